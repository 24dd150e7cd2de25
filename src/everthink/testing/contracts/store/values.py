"""Values: what goes in comes out, on every engine alike."""

# ruff: noqa: D102 - the name of a test is its sentence

from __future__ import annotations

import asyncio

import pytest

from ....errors import StoreError
from ....store.port import Statement
from .case import PUT, StoreCase, notes, put

__all__ = ["ValuesContract"]


class ValuesContract(StoreCase):
    """What statements and queries may carry."""

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "plain",
            "naïve – “quotes” 'it''s' \\ % ? $1",
            "漢字 العربية 👩‍👩‍👧‍👦 e\u0301",
            "line\n\ttab\r\x01\x7f",
            '{"a": "\\u0000"}',
        ],
        ids=["empty", "plain", "punctuation", "scripts", "control", "json"],
    )
    @pytest.mark.parametrize("statements", [1, 2])
    async def test_text_comes_back_as_it_went_in(self, text: str, statements: int) -> None:
        async with self.opened() as store:
            sql = "INSERT INTO notes (id, body) VALUES (?, ?) RETURNING id, body"
            commit = [Statement(sql, (text, text)), put("other")][:statements]
            assert (await store.apply(commit))[0] == [(text, text)]
            assert await store.fetch("SELECT body FROM notes WHERE id = ?", text) == [(text,)]

    @pytest.mark.parametrize(
        ("text", "kept"),
        [
            ("a\0b\0", "a\ufffdb\ufffd"),
            ("half \ud83d", "half \ufffd"),
            ("two halves \ud83d\ude00", "two halves 😀"),
        ],
        ids=["nul", "half a pair", "a pair apart"],
    )
    async def test_what_cannot_be_stored_becomes_the_replacement_character(
        self, text: str, kept: str
    ) -> None:
        async with self.opened() as store:
            sql = "INSERT INTO notes (id, body) VALUES (?, ?)"
            await store.apply([Statement(sql, ("one", text))])
            await asyncio.gather(
                store.apply([Statement(sql, ("two", text))]),
                store.apply([Statement(sql, ("three", text)), put("four")]),
            )
            rows = await store.fetch("SELECT id FROM notes WHERE body = ? ORDER BY id", text)
            assert rows == [("one",), ("three",), ("two",)]
            assert await store.fetch("SELECT DISTINCT body FROM notes WHERE body IS NOT NULL") == [(kept,)]

    async def test_five_megabytes_of_text_fit(self) -> None:
        async with self.opened() as store:
            text = "Größe 👍" * 600_000
            sql = "INSERT INTO notes (id, body) VALUES (?, ?)"
            await asyncio.gather(
                *(store.apply([Statement(sql, (f"{i}", text)), put(f"{i}+")]) for i in range(2))
            )
            assert await store.fetch("SELECT body FROM notes WHERE body IS NOT NULL") == [(text,), (text,)]

    @pytest.mark.parametrize("n", [None, 0, -1, 2**31, 2**53 + 1, 2**62, 2**63 - 1, -(2**63)])
    @pytest.mark.parametrize("statements", [1, 2])
    async def test_integers_and_null_come_back_exactly(self, n: int | None, statements: int) -> None:
        async with self.opened() as store:
            commit = [Statement(PUT + " RETURNING n", ("a", n)), put("b", 0)][:statements]
            assert (await store.apply(commit))[0] == [(n,)]
            assert await store.fetch("SELECT n FROM notes WHERE id = ?", "a") == [(n,)]

    @pytest.mark.parametrize("weight", [0.0, 0.1, -1e300, 5e-324, 1 / 3])
    async def test_floats_come_back_exactly(self, weight: float) -> None:
        async with self.opened() as store:
            sql = "INSERT INTO notes (id, weight) VALUES (?, ?) RETURNING weight"
            assert await store.apply([Statement(sql, ("a", weight))]) == [[(weight,)]]
            assert (await store.apply([put("c"), Statement(sql, ("b", weight))]))[1] == [(weight,)]
            assert await store.fetch("SELECT weight FROM notes WHERE weight = ?", weight) == [(weight,)] * 2

    @pytest.mark.parametrize(
        "value", [2**63, {"a": 1}, b"bytes", object()], ids=["large", "dict", "bytes", "object"]
    )
    async def test_a_value_that_does_not_fit_is_refused(self, value: object) -> None:
        async with self.opened() as store:
            wrong = Statement(PUT, ("wrong", value))
            with pytest.raises(StoreError, match="Nothing of"):
                await store.apply([wrong])
            outcomes = await asyncio.gather(
                store.apply([put("a")]),
                store.apply([put("b"), wrong]),
                store.apply([put("c")]),
                return_exceptions=True,
            )
            assert [isinstance(outcome, StoreError) for outcome in outcomes] == [False, True, False]
            assert set(await notes(store)) == {"a", "c"}

    async def test_a_value_has_its_own_type_wherever_it_stands(self) -> None:
        async with self.opened() as store:
            assert await store.fetch("SELECT ?, ?, ?, ?", 1, "1", 0.5, None) == [(1, "1", 0.5, None)]
            assert await store.fetch("SELECT 1 WHERE ? > 0 AND ? IS NOT NULL", 2**40, "x") == [(1,)]
            assert await store.fetch("SELECT COALESCE(?, ?)", None, 7) == [(7,)]

    async def test_a_question_mark_in_quotes_is_not_a_placeholder(self) -> None:
        async with self.opened() as store:
            sql = "SELECT 'really?', 'it''s ?', ? AS \"what?\" -- is it?"
            assert await store.fetch(sql, "yes") == [("really?", "it's ?", "yes")]
            assert await store.apply([Statement(sql, ("yes",)), put("a")]) == [
                [("really?", "it's ?", "yes")],
                [],
            ]

    async def test_sums_and_counts_are_integers(self) -> None:
        async with self.opened() as store:
            query = "SELECT COUNT(*), SUM(n), MAX(n), COALESCE(SUM(n), 0) + 1 FROM notes"
            assert await store.fetch(query) == [(0, None, None, 1)]
            await store.apply([put("a", 2**60), put("b", 2**60)])
            [row] = await store.fetch(query)
            assert row == (2, 2**61, 2**60, 2**61 + 1)
            assert [type(value) for value in row] == [int] * 4
