"""Searches: what is written can be found, by whom it belongs to, whatever the words are."""

# ruff: noqa: D102 - the name of a test is its sentence

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from ....errors import CommitRefused, StoreClosed, StoreError
from ....store.port import Migration, Search, Statement, Store, TextIndex
from .case import StoreCase

__all__ = ["SearchContract"]

_TABLES = (
    "CREATE TABLE says (agent TEXT, id TEXT, topic TEXT, content TEXT, PRIMARY KEY (agent, id))",
    # Columns with names that an index may have too.
    "CREATE TABLE facts (agent TEXT, id TEXT, text TEXT, rank BIGINT, PRIMARY KEY (agent, id))",
)
_INDEXES = (TextIndex("says", "content", parts=True), TextIndex("facts", "text"))
_TEXTS = (Migration(1, "texts", (*_TABLES, *_INDEXES)),)

_NOTHING = "WITH x AS (SELECT ? AS id) UPDATE says SET topic = '' WHERE id IN (SELECT x.id FROM x)"

_HOSTILE = [
    '"',
    '""',
    "'",
    "*",
    "harbor*",
    "^harbor",
    "text:harbor",
    "scope : harbor",
    "says_fts",
    "NEAR(harbor ship, 2)",
    "harbor AND NOT ship",
    "AND",
    "OR",
    "NOT",
    "harbor | ship",
    "!harbor",
    "harbor & (",
    "harbor <-> ship:*",
    ":*",
    "(",
    ")))",
    "{}",
    "\\",
    "\\'",
    "%",
    "_",
    "; DROP TABLE says; --",
    "$1",
    "?",
    "\0",
    "harbor\0ship",
    "\ud800",
    "harbor\udfff",
    "🙂",
    "👩‍👩‍👧",
    "\u0301",
    "\ue000\ue001",
    "\N{ZERO WIDTH SPACE}",
    "港口",
    "порт",
    "ميناء",
    "",
    " ",
    "\n\t",
    "…—“”",
    "x" * 100_000,
    "a b " * 25_000,
    "((((" * 5_000,
    '"' * 9_999,
]


def _said(*texts: str) -> str:
    """A message as a row keeps it."""
    return json.dumps({"parts": [{"type": "text", "text": text} for text in texts]})


def _say(id: str, *texts: str, agent: str = "ann", topic: str = "") -> Statement:
    return _row(id, _said(*texts), agent=agent, topic=topic)


def _row(id: str, content: str | None, *, agent: str = "ann", topic: str = "") -> Statement:
    sql = "INSERT INTO says (agent, id, topic, content) VALUES (?, ?, ?, ?)"
    return Statement(sql, (agent, id, topic, content))


def _say_again(id: str, content: str | None) -> Statement:
    return Statement("UPDATE says SET content = ? WHERE agent = 'ann' AND id = ?", (content, id))


async def _found(store: Store, *words: str, agent: str = "ann", **options: Any) -> list[str]:
    """The ids of the texts with `words`, as they come."""
    return [row[0] for row in await store.search(Search("says", ("id",), words, **options), agent=agent)]


class SearchContract(StoreCase):
    """What `search` promises. Set the three below for an engine that knows less."""

    finds_stems = True
    folds_accents = True
    keeps_words_apart = True
    """False when a word is also found inside others."""

    # Finding.

    async def test_a_text_is_found_by_its_words_with_the_columns_asked_for(self) -> None:
        async with self.opened(_TEXTS) as store:
            await store.apply(
                [_say("1", "The ship left Harbor", "at noon.", topic="sea"), _say("2", "Nothing.")]
            )
            rows = await store.search(Search("says", ("id", "topic"), ("noon", "harbor")), agent="ann")
            text = "The ship left Harbor at noon."
            assert rows == [("1", "sea", text, "The ship left **Harbor** at **noon**.")]
            assert await store.search(Search("says", (), ("SHIP",)), agent="ann") == [
                (text, "The **ship** left Harbor at noon.")
            ]
            assert await _found(store, "ship", "nothing") == []
            assert await _found(store, "submarine") == []

    async def test_a_plain_column_is_searched_as_it_is(self) -> None:
        async with self.opened(_TEXTS) as store:
            sql = "INSERT INTO facts (agent, id, text, rank) VALUES (?, ?, ?, ?)"
            await store.apply(
                [
                    Statement(sql, ("ann", "1", '{"likes": "green tea"}', 1)),
                    Statement(sql, ("ann", "2", "coffee, not tea", 2)),
                    Statement(sql, ("ann", "3", None, 3)),
                ]
            )
            search = Search("facts", ("id", "text", "rank"), ("tea",))
            narrow = search._replace(where="rank > ? AND text LIKE ?", params=(1, "coffee%"))
            text = "coffee, not tea"
            assert await store.search(narrow, agent="ann") == [("2", text, 2, text, "coffee, not **tea**")]
            assert {row[0] for row in await store.search(search, agent="ann")} == {"1", "2"}
            wrong = search._replace(words=("likes",), where="rank > ?", params=(1,))
            assert await store.search(wrong, agent="ann") == []

    async def test_a_word_is_found_by_its_stem(self) -> None:
        if not self.finds_stems:
            pytest.skip("this engine knows no stems")
        async with self.opened(_TEXTS) as store:
            await store.apply([_say("1", "We deployed it."), _say("2", "Deployments are slow.")])
            for word in ("deploy", "deploying", "Deployed"):
                assert "1" in await _found(store, word)

    async def test_accents_do_not_matter(self) -> None:
        if not self.folds_accents:
            pytest.skip("this engine keeps accents")
        async with self.opened(_TEXTS) as store:
            await store.apply([_say("1", "Ein Café in Zürich")])
            assert await _found(store, "cafe", "zurich") == ["1"]
            assert await _found(store, "Café", "ZÜRICH") == ["1"]

    async def test_words_with_accents_and_of_other_scripts_are_found_as_they_are_written(self) -> None:
        async with self.opened(_TEXTS) as store:
            await store.apply([_say("1", "Ein Café in Zürich, порт, 港口。")])
            for word in ("Café", "Zürich", "порт", "港口"):
                assert await _found(store, word) == ["1"], word

    async def test_signs_part_words(self) -> None:
        async with self.opened(_TEXTS) as store:
            await store.apply([_say("1", "Look at src/main.py—it’s “broken”, mail me@home.org")])
            for word in ("main", "main.py", "src", "(broken)", '"it"', "home", "me@home.org"):
                assert await _found(store, "look", word) == ["1"], word

    async def test_a_phrase_is_found_where_its_words_follow_each_other(self) -> None:
        async with self.opened(_TEXTS) as store:
            await store.apply([_say("1", "a green boat, a red house"), _say("2", "a red boat")])
            assert await _found(store, "red", "boat", is_phrase=True) == ["2"]
            assert await _found(store, "red boat", is_phrase=True) == ["2"]
            assert set(await _found(store, "boat", "red")) == {"1", "2"}
            assert set(await _found(store, "boat red")) == {"1", "2"}

    async def test_another_agents_texts_are_never_found(self) -> None:
        async with self.opened(_TEXTS) as store:
            agents = ["ann", "ANN", "ann ", "ann/bob", "bob", "", "ann%", "änn", "a" * 3000, "a" * 3001]
            await store.apply([_say("same", "the secret harbor", agent=agent) for agent in agents])
            for agent in agents:
                search = Search("says", ("agent",), ("secret",))
                assert [row[0] for row in await store.search(search, agent=agent)] == [agent]
            assert await _found(store, "secret", agent="nobody") == []
            # Not by a condition that says otherwise either.
            assert (
                await _found(store, "secret", agent="nobody", where="1 = 1 OR agent = ?", params=("bob",))
                == []
            )

    async def test_a_condition_narrows_the_search(self) -> None:
        async with self.opened(_TEXTS) as store:
            await store.apply([_say(f"{i}", "harbor", topic="odd" if i % 2 else "even") for i in range(6)])
            odd = await _found(store, "harbor", where="topic = ? AND id <> ?", params=("odd", "3"))
            assert set(odd) == {"1", "5"}
            assert await _found(store, "harbor", where="topic = ?", params=("?",)) == []

    # The answer.

    async def test_the_best_come_first_and_of_equals_the_newest(self) -> None:
        async with self.opened(_TEXTS) as store:
            filler = "and then we talked about something else for a while "
            await store.apply([_say("much", "harbor, harbor and again the harbor")])
            await store.apply([_say("little", f"{filler * 4} harbor {filler * 4}")])
            if self.keeps_words_apart:
                assert await _found(store, "harbor") == ["much", "little"]
            for i in range(5):
                await store.apply([_say(f"{i}", "just one bridge")])
            assert await _found(store, "bridge") == ["4", "3", "2", "1", "0"]

    async def test_a_limit_keeps_the_best(self) -> None:
        async with self.opened(_TEXTS) as store:
            await store.apply([_say(f"{i:02}", "harbor") for i in range(30)])
            assert len(await _found(store, "harbor")) == 20
            assert await _found(store, "harbor", limit=3) == ["29", "28", "27"]
            assert await _found(store, "harbor", limit=0) == []
            assert await _found(store, "harbor", limit=-1) == []
            assert len(await _found(store, "harbor", limit=1000)) == 30

    async def test_of_very_many_hits_some_are_returned(self) -> None:
        async with self.opened(_TEXTS) as store:
            await store.apply([_say(f"{i}", f"harbor {i}") for i in range(1200)])
            assert len(await _found(store, "harbor", limit=5000)) == 1000

    async def test_a_snippet_shows_the_words_around_the_first_hit(self) -> None:
        async with self.opened(_TEXTS) as store:
            before = " ".join(f"before{i}" for i in range(40))
            after = " ".join(f"after{i}" for i in range(40))
            text = f"{before}\n\n the harbor\n is closed {after}"
            await store.apply([_say("1", text)])
            [(whole, snippet)] = await store.search(Search("says", (), ("harbor",)), agent="ann")
            assert whole == text
            assert "before39 the **harbor** is closed after0" in snippet
            assert snippet.startswith("…before")
            assert snippet.endswith("…")
            assert 20 <= len(snippet.split()) <= 26

    async def test_a_snippet_of_a_text_without_spaces_is_short_too(self) -> None:
        async with self.opened(_TEXTS) as store:
            await store.apply([_say("1", "harbor," * 20_000)])
            [(_, snippet)] = await store.search(Search("says", (), ("harbor",)), agent="ann")
            assert "**harbor**" in snippet
            assert len(snippet) < 3000

    # Staying in step with the rows.

    async def test_a_text_that_changes_is_found_by_its_new_words_only(self) -> None:
        async with self.opened(_TEXTS) as store:
            await store.apply([_say("1", "old harbor"), _say("2", "old harbor")])
            await store.apply([_say_again("1", _said("new bridge"))])
            assert (await _found(store, "harbor"), await _found(store, "bridge")) == (["2"], ["1"])
            upsert = _say("1", "third tower")
            sql = upsert.sql + " ON CONFLICT (agent, id) DO UPDATE SET content = excluded.content"
            await store.apply([Statement(sql, upsert.params)])
            assert (await _found(store, "bridge"), await _found(store, "tower")) == ([], ["1"])

    async def test_a_change_beside_the_text_changes_nothing(self) -> None:
        async with self.opened(_TEXTS) as store:
            await store.apply([_say("1", "harbor")])
            more = json.dumps({"parts": [{"type": "tool-x"}, {"type": "text", "text": "harbor"}], "n": 1})
            await store.apply([_say_again("1", more), Statement("UPDATE says SET topic = 'x'")])
            assert await _found(store, "harbor", where="topic = 'x'") == ["1"]
            await store.apply([Statement("DELETE FROM says")])
            assert await _found(store, "harbor") == []

    async def test_a_row_that_changes_hands_is_found_by_its_new_agent(self) -> None:
        async with self.opened(_TEXTS) as store:
            await store.apply([_say("1", "harbor")])
            await store.apply([Statement("UPDATE says SET agent = 'bob' WHERE id = '1'")])
            assert (await _found(store, "harbor"), await _found(store, "harbor", agent="bob")) == ([], ["1"])

    @pytest.mark.parametrize("nothing", [_said(), _said(""), "{}", "", "{broken", None])
    async def test_a_text_that_goes_away_is_not_found_and_can_come_back(self, nothing: str | None) -> None:
        async with self.opened(_TEXTS) as store:
            await store.apply([_say("1", "harbor")])
            await store.apply([_say_again("1", nothing)])
            assert await _found(store, "harbor") == []
            await store.apply([_say_again("1", _said("bridge"))])
            assert (await _found(store, "harbor"), await _found(store, "bridge")) == ([], ["1"])

    async def test_a_row_that_is_deleted_is_not_found(self) -> None:
        async with self.opened(_TEXTS) as store:
            await store.apply([_say("1", "harbor"), _say("2", "harbor"), _say("3", "harbor", agent="bob")])
            await store.apply([Statement("DELETE FROM says WHERE id = ?", ("1",), guard=True)])
            assert await _found(store, "harbor") == ["2"]
            await store.apply([_say("1", "bridge")])
            assert (await _found(store, "harbor"), await _found(store, "bridge")) == (["2"], ["1"])
            await store.apply([Statement("DELETE FROM says WHERE agent = ?", ("ann",))])
            assert (await _found(store, "harbor"), await _found(store, "harbor", agent="bob")) == ([], ["3"])

    @pytest.mark.parametrize(
        "content",
        [
            None,
            "",
            "{broken harbor",
            "harbor",
            '"harbor"',
            "[1, 2]",
            "7",
            "null",
            '{"parts": "harbor"}',
            '{"parts": {"type": "text", "text": {"a": "harbor"}}}',
            '{"parts": [1, null, "harbor", [], {"text": "harbor"}, {"type": "text"}]}',
            '{"parts": [{"type": "text", "text": 7}, {"type": ["text"], "text": "harbor"}]}',
            '{"parts": [{"type": "reasoning", "text": "harbor"}]}',
            '{"parts": ' + "[" * 5000 + "]" * 5000 + "}",
            "[" * 100_000,
        ],
        ids=lambda content: str(content)[:24],
    )
    async def test_a_row_that_is_no_message_is_stored_and_not_found(self, content: str | None) -> None:
        async with self.opened(_TEXTS) as store:
            await store.apply([_row("1", content), _say("2", "harbor")])
            assert await _found(store, "harbor") == ["2"]
            await store.apply([_say_again("1", _said("harbor"))])
            await store.apply([_say_again("1", content)])
            await store.apply([Statement("DELETE FROM says WHERE id = '1'", (), guard=True)])
            assert await _found(store, "harbor") == ["2"]

    async def test_characters_that_a_database_cannot_keep_do_not_hide_a_text(self) -> None:
        async with self.opened(_TEXTS) as store:
            escaped = (
                '{"parts": [{"type": "text", "text": "one \\u0000 two \\ud83d three \\ud83d\\ude42 four"}]}'
            )
            await store.apply([_row("1", escaped), _say("2", "one \0 two \ud83d three \ue000 four")])
            assert set(await _found(store, "two", "three", "four")) == {"1", "2"}

    async def test_a_text_of_300_000_words_is_stored_and_found_by_its_beginning(self) -> None:
        async with self.opened(_TEXTS) as store:
            text = "harbor " + " ".join(f"w{i:x}" for i in range(300_000))
            await store.apply([_say("1", text)])
            assert await _found(store, "harbor") == ["1"]
            await store.apply([Statement("DELETE FROM says", (), guard=True)])

    async def test_of_a_long_text_the_first_50_000_characters_are_found(self) -> None:
        async with self.opened(_TEXTS) as store:
            await store.apply([_say("1", "beginning " + "x " * 24_000 + "middle " + "x " * 10_000 + "end")])
            assert await _found(store, "beginning", "middle") == ["1"]
            assert await _found(store, "end") == []
            await store.apply([_say_again("1", _said("short"))])
            assert await _found(store, "beginning") == []
            assert await _found(store, "short") == ["1"]

    async def test_a_commit_that_fails_leaves_no_trace_alone_or_among_others(self) -> None:
        async with self.opened(_TEXTS) as store:
            await store.apply([_say("taken", "first tower")])
            refusal = Statement("DELETE FROM says WHERE id = 'nowhere'", (), guard=True)
            failing = [
                [_say("never", "harbor"), _say("taken", "harbor")],
                [_say("never", "harbor"), _say_again("taken", _said("harbor")), refusal],
                [Statement("DELETE FROM says"), refusal],
                [_say("never", "harbor"), _say_again("missing", "")._replace(guard=True)],
                [_say("never", "harbor"), Statement(_NOTHING, ("missing",), guard=True)],
                [_say("taken", "harbor")],
                [Statement(_say("x").sql + ", ('ann', 'taken', '', '')", _say("never", "harbor").params)],
            ]
            for commit in failing:
                with pytest.raises(StoreError):
                    await store.apply(commit)
                outcomes = await asyncio.gather(
                    store.apply([_say("a", "bridge"), _say("b", "bridge")]),
                    store.apply(commit),
                    store.apply([Statement("DELETE FROM says WHERE id = 'a'", (), guard=True)]),
                    store.apply(commit),
                    store.apply([_say_again("b", _said("canal"))]),
                    return_exceptions=True,
                )
                assert [isinstance(one, StoreError) for one in outcomes] == [False, True, False, True, False]
                assert await _found(store, "harbor") == []
                assert (await _found(store, "bridge"), await _found(store, "canal")) == ([], ["b"])
                assert await _found(store, "tower") == ["taken"]
                await store.apply([Statement("DELETE FROM says WHERE id = 'b'", (), guard=True)])
            with pytest.raises(CommitRefused):
                await store.apply(failing[1])

    async def test_what_is_confirmed_is_found_at_once_by_hundreds(self) -> None:
        async with self.opened(_TEXTS) as store:

            async def talk(agent: str) -> None:
                for i in range(4):
                    await store.apply([_say(f"{i}", f"harbor {agent}", agent=agent)])
                    assert len(await _found(store, "harbor", agent=agent)) == i + 1

            await asyncio.gather(*(talk(f"agent {i}") for i in range(50)))

    async def test_rows_that_were_there_before_the_index_are_found(self) -> None:
        self.needs_kept_data()
        tables = Migration(1, "tables", _TABLES)
        async with self.opened([tables]) as store:
            await store.apply([_say("1", "harbor"), _row("2", "{broken"), _say("3", "harbor", agent="bob")])
            with pytest.raises(StoreError, match="no text index"):
                await _found(store, "harbor")
        for _ in range(2):
            async with self.opened([tables, Migration(2, "texts", _INDEXES)]) as store:
                assert await _found(store, "harbor") == ["1"]
        async with self.opened([tables, Migration(2, "texts", _INDEXES)]) as store:
            await store.apply([_say_again("1", _said("bridge")), _say_again("2", _said("harbor"))])
            assert (await _found(store, "harbor"), await _found(store, "bridge")) == (["2"], ["1"])

    async def test_texts_are_found_after_opening_again(self) -> None:
        self.needs_kept_data()
        async with self.opened(_TEXTS) as store:
            await store.apply([_say("1", "harbor"), _say("2", "bridge")])
        async with self.opened(_TEXTS) as store:
            assert await _found(store, "harbor") == ["1"]
            await store.apply([Statement("DELETE FROM says WHERE id = '1'")])
        async with self.opened(_TEXTS) as store:
            assert (await _found(store, "harbor"), await _found(store, "bridge")) == ([], ["2"])

    # Words of anybody.

    @pytest.mark.parametrize("words", _HOSTILE, ids=lambda words: ascii(words[:24]))
    async def test_words_are_looked_for_and_never_obeyed(self, words: str) -> None:
        async with self.opened(_TEXTS) as store:
            await store.apply([_say("1", "a ship in the harbor"), _say("2", "x", agent="bob")])
            for is_phrase in (False, True):
                for asked in ((words,), ("harbor", words), (words, "harbor", words)):
                    assert set(await _found(store, *asked, is_phrase=is_phrase)) <= {"1"}
            assert await _found(store, words, agent=words) == []
            assert await _found(store, "harbor") == ["1"]

    @pytest.mark.parametrize("words", [(), ("",), ("?!", "…"), ("🙂",), ("\0",), ("\ufffd",)])
    async def test_nothing_is_found_without_words(self, words: tuple[str, ...]) -> None:
        async with self.opened(_TEXTS) as store:
            await store.apply([_say("1", "harbor ?! … 🙂 \ufffd")])
            assert await _found(store, *words) == []
            assert await _found(store, *words, is_phrase=True) == []
            # Beside a word they do not matter.
            assert await _found(store, *words, "harbor") == ["1"]

    async def test_no_more_than_32_words_of_200_characters_count(self) -> None:
        async with self.opened(_TEXTS) as store:
            await store.apply([_say("1", "harbor " + "z" * 200)])
            assert await _found(store, *["harbor"] * 32, "missing") == ["1"]
            assert await _found(store, *["harbor"] * 31, "missing") == []
            assert await _found(store, "z" * 300) == ["1"]

    # Misuse.

    async def test_a_table_without_an_index_cannot_be_searched(self) -> None:
        async with self.opened([Migration(1, "tables", _TABLES)]) as store:
            with pytest.raises(StoreError, match=r"'says' has no text index.*TextIndex"):
                await _found(store, "harbor")

    async def test_a_condition_that_is_wrong_is_reported(self) -> None:
        async with self.opened(_TEXTS) as store:
            for where in ("nonsense = 1", "id = "):
                with pytest.raises(StoreError):
                    await _found(store, "harbor", where=where)
            assert await _found(store, "harbor") == []

    async def test_a_closed_store_does_not_search(self) -> None:
        store = await self.open(_TEXTS)
        await store.close()
        with pytest.raises(StoreClosed):
            await _found(store, "harbor")
