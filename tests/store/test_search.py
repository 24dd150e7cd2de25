"""Searching, beyond the contract: the index and its rows agree, whatever happens and whatever it costs."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import sqlite3
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from everthink.errors import StoreError
from everthink.open_store import open_store
from everthink.postgres.search import query
from everthink.sqlite import open_sqlite
from everthink.sqlite import search as texts
from everthink.store.crashpoints import COUNT_COMMITS
from everthink.store.port import Migration, Search, Statement, Store, TextIndex
from everthink.store.search import (
    OPEN,
    SHUT,
    snippet_of,
    words_of,
)
from tests.support.postgres import Server

pytestmark = pytest.mark.anyio

TABLE = "CREATE TABLE says (agent TEXT, id TEXT, topic TEXT, content TEXT, PRIMARY KEY (agent, id))"
SCHEMA = [Migration(1, "says", (TABLE, TextIndex("says", "content", parts=True)))]
PUT = "INSERT INTO says (agent, id, content) VALUES (?, ?, ?)"
UPSERT = PUT + " ON CONFLICT (agent, id) DO UPDATE SET content = excluded.content"


def said(text: str, **more: Any) -> str:
    return json.dumps({"parts": [{"type": "text", "text": text}], **more})


def put(id: str, text: str, agent: str = "ann") -> Statement:
    return Statement(PUT, (agent, id, said(text)))


async def found(store: Store, *words: str, agent: str = "ann") -> list[str]:
    return [row[0] for row in await store.search(Search("says", ("id",), words, limit=100), agent=agent)]


# The words and the snippet.


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("two words", "three"), ["two", "words", "three"]),
        (('main.py "x*" (NEAR)',), ["main", "py", "x", "NEAR"]),
        (("don’t", "Café", "e\u0301", "港口"), ["don", "t", "Café", "e\u0301", "港口"]),
        (("?!", "🙂", "\0", "\ud800", "\ue000"), []),
    ],
)
def test_words_are_cut_to_letters_and_digits(words: tuple[str, ...], expected: list[str]) -> None:
    assert words_of(Search("says", (), words)) == expected


@pytest.mark.parametrize(
    ("marked", "expected"),
    [
        ("[harbor]", "**harbor**"),
        ("  a \n [harbor] ", "a **harbor**"),
        ("one two three four five six seven [eight] nine", "…two three four five six seven **eight** nine"),
        ("[a b] c [d]", "**a b** c **d**"),
        ("no hit", "no hit"),
        ("", ""),
        ("[w] " + "x " * 30, "**w** " + "x " * 22 + "x…"),
        ("x" * 500 + "[w]" + "x" * 500, "…" + "x" * 72 + "**w**" + "x" * 215 + "…"),
        ("y " * 20 + "[" + "w " * 40 + "]", "…" + "y " * 6 + "**" + "w " * 17 + "w**…"),
    ],
)
def test_a_snippet_is_cut_around_the_first_hit(marked: str, expected: str) -> None:
    text = marked.replace("[", "").replace("]", "")
    assert snippet_of(text, marked.replace("[", OPEN).replace("]", SHUT)) == expected


@given(text=st.text(), hits=st.lists(st.tuples(st.integers(0, 50), st.integers(1, 9)), max_size=4))
def test_a_snippet_of_any_text_is_words_of_that_text(text: str, hits: list[tuple[int, int]]) -> None:
    marked, at = "", 0
    for gap, length in hits:
        begin, end = at + gap, at + gap + length
        if end > len(text):
            break
        marked += text[at:begin] + OPEN + text[begin:end] + SHUT
        at = end
    snippet = snippet_of(text, marked + text[at:])
    assert len(snippet) < 450
    plain = "".join(snippet.replace("**", "").strip("…").split())
    assert plain.strip("…") in "".join(text.replace("**", "").split()).replace("**", "")


# Any rows, any words.


class Change(NamedTuple):
    """A statement, and what it does to a dictionary of texts."""

    verb: str
    agent: str
    id: str
    words: tuple[str, ...]

    def statement(self) -> Statement:
        key, content = (self.agent, self.id), said(" ".join(self.words))
        if self.verb == "put":
            return Statement(PUT, (*key, content))
        if self.verb == "upsert":
            return Statement(UPSERT, (*key, content))
        if self.verb == "break":
            return Statement(UPSERT, (*key, "{" + content))
        if self.verb == "settle":
            sql = "UPDATE says SET content = REPLACE(content, '}]', '}  ]') WHERE agent = ? AND id = ?"
            return Statement(sql, key)
        return Statement("DELETE FROM says WHERE agent = ? AND id = ?", key, guard=True)

    def do(self, rows: dict[tuple[str, str], tuple[str, ...]]) -> bool:
        key = (self.agent, self.id)
        if key in rows if self.verb == "put" else key not in rows and self.verb == "delete":
            return False
        if self.verb == "delete":
            del rows[key]
        elif self.verb != "settle":
            rows[key] = () if self.verb == "break" else self.words
        return True


WORDS = ["quab", "zib", "mork", "vux"]  # Nobody's stem is another's.
changes = st.builds(
    Change,
    st.sampled_from(["put", "put", "upsert", "break", "settle", "delete"]),
    st.sampled_from(["ann", "bob"]),
    st.sampled_from(["1", "2", "3"]),
    st.lists(st.sampled_from(WORDS), max_size=4).map(tuple),
)
bursts = st.lists(st.lists(st.lists(changes, min_size=1, max_size=3), max_size=6), max_size=3)


async def check(url: str, plan: Sequence[Sequence[Sequence[Change]]]) -> None:
    store = await open_store(url, SCHEMA)
    try:
        rows: dict[tuple[str, str], tuple[str, ...]] = {}
        await store.apply([Statement("DELETE FROM says")])
        for burst in plan:
            commits = [[change.statement() for change in commit] for commit in burst]
            outcomes = await asyncio.gather(*map(store.apply, commits), return_exceptions=True)
            for commit, outcome in zip(burst, outcomes, strict=True):
                draft = dict(rows)
                is_good = all(change.do(draft) for change in commit)
                assert isinstance(outcome, StoreError) != is_good
                rows = draft if is_good else rows
            for asked in (("quab",), ("zib", "mork"), ("vux", "quab", "zib")):
                for agent in ("ann", "bob"):
                    expected = {
                        id
                        for (owner, id), words in rows.items()
                        if owner == agent and set(asked) <= set(words)
                    }
                    hits = await found(store, *asked, agent=agent)
                    assert (set(hits), len(hits)) == (expected, len(expected))
    finally:
        await store.close()


some = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], database=None)


@settings(some, max_examples=60)
@given(plan=bursts)
def test_a_file_finds_what_a_dictionary_finds_and_its_index_is_what_a_new_one_would_be(
    plan: list[list[list[Change]]], tmp_path: Path
) -> None:
    path = tmp_path / "says.db"
    asyncio.run(check(str(path), plan))
    assert is_in_step(path)


@pytest.mark.slow
@settings(some, max_examples=40)
@given(plan=bursts)
def test_postgresql_finds_what_a_dictionary_finds(plan: list[list[list[Change]]], postgres_url: str) -> None:
    asyncio.run(check(postgres_url, plan))


def is_in_step(path: Path) -> bool:
    """Does the index hold what an index made of the rows would hold?"""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("BEGIN")
    connection.execute(
        "CREATE VIRTUAL TABLE fresh USING fts5(text, scope, content='says_text', content_rowid='id',"
        " columnsize=0, tokenize='porter unicode61')"
    )
    connection.execute("INSERT INTO fresh (rowid, text, scope) SELECT id, text, scope FROM says_text")
    entries: list[list[Any]] = []
    for table in ("says_fts", "fresh"):
        connection.execute(
            f"CREATE VIRTUAL TABLE temp.{table}_words USING fts5vocab(main, {table}, instance)"
        )
        entries.append(connection.execute(f"SELECT * FROM {table}_words ORDER BY 1, 2, 3, 4").fetchall())
    connection.execute("ROLLBACK")
    connection.close()
    return entries[0] == entries[1]


anything = st.lists(
    st.text(st.characters(), max_size=20) | st.sampled_from(['"', "*", "NEAR(", "text:"]), max_size=6
)


async def write_and_search(url: str, content: str, words: list[str]) -> None:
    store = await open_store(url, SCHEMA)
    try:
        await store.apply([Statement("DELETE FROM says")])
        await store.apply(
            [Statement(PUT, ("ann", "1", content)), Statement(PUT, ("ann", "2", said(content)))]
        )
        for is_phrase in (False, True):
            for agent in ("ann", content):
                rows = await store.search(Search("says", ("id",), tuple(words), is_phrase), agent=agent)
                assert {row[0] for row in rows} <= ({"1", "2"} if agent == "ann" else set[str]())
        await store.apply(
            [Statement(UPSERT, ("ann", "2", content)), Statement("DELETE FROM says", (), guard=True)]
        )
    finally:
        await store.close()


@settings(some, max_examples=150)
@given(content=st.text(st.characters()), words=anything)
def test_no_text_and_no_words_upset_sqlite(content: str, words: list[str]) -> None:
    asyncio.run(write_and_search(":memory:", content, words))


@pytest.mark.slow
@settings(some, max_examples=60)
@given(content=st.text(st.characters()), words=anything)
def test_no_text_and_no_words_upset_postgresql(content: str, words: list[str], postgres_url: str) -> None:
    asyncio.run(write_and_search(postgres_url, content, words))


# SQLite.


async def test_an_answer_stored_again_with_the_same_text_does_not_touch_the_index(tmp_path: Path) -> None:
    path = tmp_path / "says.db"
    store = await open_sqlite(path, SCHEMA)
    index = "SELECT id, hex(block) FROM says_fts_data"
    await store.apply([put("1", "harbor")])
    before = await store.fetch(index)
    again = "UPDATE says SET content = ?, topic = ? WHERE id = '1'"
    await store.apply([Statement(again, (said("harbor", metadata={"n": 1}), "x"), guard=True)])
    assert await store.fetch(index) == before
    await store.apply([Statement(again, (said("bridge"), "x"), guard=True)])
    assert await store.fetch(index) != before
    await store.close()
    assert is_in_step(path)


async def test_a_file_keeps_working_under_a_sqlite_without_full_text_and_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "says.db"
    store = await open_sqlite(path, SCHEMA)
    await store.apply([put("1", "the deployed harbor"), put("2", "harbor")])
    await store.close()
    # Given a Python whose SQLite cannot index
    with monkeypatch.context() as patch:
        patch.setattr(texts, "has_fts5", lambda connection: False)  # type: ignore
        for _ in range(2):
            with caplog.at_level(logging.WARNING, "everthink.store"):
                store = await open_sqlite(path, SCHEMA)
            [record] = caplog.records
            assert "no FTS5" in record.getMessage()
            caplog.clear()
            # Then rows are written and found all the same, without stems
            await store.apply(
                [
                    Statement(UPSERT, ("ann", "2", said("bridge"))),
                    Statement(UPSERT, ("ann", "3", said("harbor"))),
                ]
            )
            assert set(await found(store, "harbor")) == {"1", "3"}
            assert await found(store, "deploying") == []
            await store.close()
    # And an SQLite that can begins anew
    store = await open_sqlite(path, SCHEMA)
    assert caplog.records == []
    assert set(await found(store, "harbor")) == {"1", "3"}
    assert (await found(store, "bridge"), await found(store, "deploying")) == (["2"], ["1"])
    await store.close()
    assert is_in_step(path)


async def test_an_index_that_an_earlier_version_made_another_way_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "says.db"
    with monkeypatch.context() as patch:
        patch.setattr(texts, "_text", lambda index, row="": row + index.column)  # the whole row, as it is
        store = await open_sqlite(path, SCHEMA)
        await store.apply([put("1", "harbor " * 10_000 + "end")])
        assert await found(store, "type") == ["1"]
        await store.close()
    store = await open_sqlite(path, SCHEMA)
    assert (await found(store, "type"), await found(store, "harbor")) == ([], ["1"])
    await store.apply([Statement("DELETE FROM says", (), guard=True)])
    await store.close()
    assert is_in_step(path)


async def test_the_index_of_a_huge_text_is_small(tmp_path: Path) -> None:
    """Everybody's commits wait while a text is indexed: what goes into the index is what it costs."""
    path = tmp_path / "says.db"
    store = await open_sqlite(path, SCHEMA)
    await store.apply([put("1", " ".join(f"w{n:x}" for n in range(130_000)))])
    [(entries,)] = await store.fetch("SELECT sum(length(block)) FROM says_fts_data")
    assert entries < 200_000
    # and a file beside the text is not taken apart
    parts = [{"type": "text", "text": "harbor"}, {"type": "file", "url": "A" * 3_000_000}]
    await store.apply([Statement(PUT, ("ann", "2", json.dumps({"parts": parts})))])
    assert await found(store, "harbor") == ["2"]
    await store.close()
    assert is_in_step(path)


async def test_an_index_is_right_after_a_foreign_program_has_vacuumed_the_file(tmp_path: Path) -> None:
    path = tmp_path / "says.db"
    store = await open_sqlite(path, SCHEMA)
    await store.apply([put(f"{i}", f"harbor number{i}") for i in range(50)])
    await store.apply([Statement("DELETE FROM says WHERE id < '3'")])
    await store.close()
    foreign = sqlite3.connect(path)
    foreign.execute("VACUUM")
    foreign.close()
    store = await open_sqlite(path, SCHEMA)
    assert await found(store, "number42") == ["42"]
    await store.close()
    assert is_in_step(path)


async def test_a_clustered_table_cannot_have_a_text_index(tmp_path: Path) -> None:
    clustered = Migration(1, "says", (TABLE + " /* clustered */", TextIndex("says", "content")))
    with pytest.raises(StoreError, match=r"step 1 \(says\).*TextIndex"):
        await open_sqlite(tmp_path / "says.db", [clustered])
    await (await open_sqlite(tmp_path / "says.db", SCHEMA)).close()


async def test_a_store_whose_commits_are_counted_can_be_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(COUNT_COMMITS, str(tmp_path / "commits"))
    store = await open_store(tmp_path / "says.db", SCHEMA)
    await store.apply([put("1", "harbor")])
    assert await found(store, "harbor") == ["1"]
    await store.close()


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux how many bytes were read")
async def test_a_search_does_not_read_what_other_agents_said(tmp_path: Path) -> None:
    # Given files in which every agent uses the same words, one with fifty times as many agents
    few, many = [await bytes_to_search(tmp_path / f"{agents}.db", agents) for agents in (20, 1000)]
    # Then a search in one agent reads a little more, because trees are higher; not fifty times as much
    assert many < 8 * few


async def bytes_to_search(path: Path, agents: int) -> int:
    """How much SQLite reads of the file, from a connection that has nothing of it in memory yet."""
    store = await open_sqlite(path, SCHEMA, synchronous="NORMAL")
    for i in range(20):
        rows = [put(f"{i}", f"the weather in the harbor {i}", f"agent {a}") for a in range(agents)]
        for start in range(0, agents, 100):
            await store.apply(rows[start : start + 100])
    await store.close()
    search = Search("says", ("id",), ("weather", "harbor"))
    sql, params = texts.query(search, "agent 7", words_of(search), is_indexed=True)
    connection = sqlite3.connect(path)
    before = bytes_read()
    assert len(connection.execute(sql, params).fetchall()) == 20
    after = bytes_read()
    connection.close()
    return after - before


def bytes_read() -> int:
    lines = Path("/proc/thread-self/io").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("rchar"))


# PostgreSQL.


async def test_two_schemas_of_one_database_have_indexes_of_their_own(
    postgres_server: Server, postgres_database: str
) -> None:
    with postgres_server.empty(postgres_database) as first:
        one = await open_store(first, SCHEMA)
        with postgres_server.empty(postgres_database) as second:
            two = await open_store(second, SCHEMA)
            await one.apply([put("1", "harbor")])
            await two.apply([put("2", "harbor")])
            assert (await found(one, "harbor"), await found(two, "harbor")) == (["1"], ["2"])
            await two.close()
        # When the second is gone with its functions, the first has its own
        await one.apply([put("3", "harbor")])
        assert await found(one, "harbor") == ["3", "1"]
        await one.close()


async def test_a_search_in_postgresql_uses_the_index(postgres_url: str) -> None:
    store = await open_store(postgres_url, SCHEMA)
    for start in range(0, 3000, 500):
        await store.apply(
            [put(f"{i}", "the weather in the harbor", f"agent {i % 100}") for i in range(start, start + 500)]
        )
    await store.apply([Statement("ANALYZE says")])
    search = Search("says", ("id",), ("weather",))
    assert len(await store.search(search, agent="agent 7")) == 20
    sql, params = query(search, "agent 7", TextIndex("says", "content", parts=True), ["weather"])
    sql = f"EXPLAIN {sql}"
    plan = "\n".join(row[0] for row in await store.fetch(sql, *params))
    assert "says_by_text" in plan
    await store.close()


async def test_words_that_english_leaves_out_find_nothing_in_postgresql(postgres_url: str) -> None:
    store = await open_store(postgres_url, SCHEMA)
    await store.apply([put("1", "the harbor of the town")])
    assert (await found(store, "the", "of"), await found(store, "the", "harbor")) == ([], ["1"])
    await store.close()


async def test_a_text_that_spells_the_mark_of_another_agent_is_not_found_by_it(postgres_url: str) -> None:
    store = await open_store(postgres_url, SCHEMA)
    mark = "agent" + hashlib.sha256(b"ann").hexdigest()[:32]
    await store.apply([put("1", f"harbor {mark}", "bob")])
    assert (await found(store, "harbor", mark), await found(store, mark, agent="bob")) == ([], ["1"])
    await store.close()


async def test_the_index_can_be_made_again_without_a_search_path(
    postgres_server: Server, postgres_url: str
) -> None:
    store = await open_store(postgres_url, SCHEMA)
    await store.apply([put("1", "harbor")])
    schema = postgres_url.rpartition("=")[2]
    database = postgres_url.partition("?")[0]
    # As a restored dump and every VACUUM do.
    postgres_server.run("SET search_path = ''", f"REINDEX TABLE {schema}.says", url=database)
    assert await found(store, "harbor") == ["1"]
    await store.close()


async def test_rows_that_came_without_their_index_are_indexed_at_the_next_start(tmp_path: Path) -> None:
    # Given the rows of a file with gaps in its row numbers in a new one, without triggers, with other numbers
    path, copy = tmp_path / "says.db", tmp_path / "restored.db"
    store = await open_store(f"sqlite:///{path}", SCHEMA)
    await store.apply([put("1", "first word"), put("2", "second word"), put("3", "third word")])
    await store.apply([Statement("DELETE FROM says WHERE id = ?", ("1",))])
    await store.close()
    with sqlite3.connect(path) as old, sqlite3.connect(copy) as new:
        for name in ("everthink_schema", "says"):
            [(sql,)] = old.execute("SELECT sql FROM sqlite_master WHERE name = ?", (name,))
            new.execute(sql)
            rows = old.execute(f"SELECT * FROM {name}").fetchall()
            new.executemany(f"INSERT INTO {name} VALUES ({', '.join('?' * len(rows[0]))})", rows)
    old.close()
    new.close()

    # When it is opened, then a search finds what it looks for
    store = await open_store(f"sqlite:///{copy}", SCHEMA)
    try:
        assert await found(store, "third") == ["3"]
    finally:
        await store.close()
