"""Finding what was said: by words, in one session, also what a summary covers."""

from __future__ import annotations

import pytest

from everthink.clock import EPOCH
from everthink.messages import Message
from everthink.session.session import SearchHit
from tests.support.memory import fill, ids, said

from .conftest import OpenSession

pytestmark = pytest.mark.anyio


def found(hits: list[SearchHit]) -> list[str]:
    return sorted(hit.id for hit in hits)


@pytest.mark.memory_case(163)
async def test_a_message_is_found_by_a_word_of_it(open_session: OpenSession) -> None:
    session = await open_session()
    await session.append_message(said("a", "We deployed the Straßenbahn on Monday."))
    await session.append_message(said("b", "Nothing of note.", "assistant"))
    [hit] = await session.search("monday")
    assert (hit.id, hit.role, hit.session_id) == ("a", "user", "")
    assert hit.content == "We deployed the Straßenbahn on Monday."
    assert hit.snippet == "We deployed the Straßenbahn on **Monday**."
    assert hit.created_at > EPOCH
    # in other forms of the word too
    assert [hit.id for hit in await session.search("deploying")] == ["a"]
    assert [hit.role for hit in await session.search("notes")] == ["assistant"]


async def test_several_words_are_one_phrase(open_session: OpenSession) -> None:
    session = await open_session()
    await session.append_message(said("a", "the red house on the hill"))
    await session.append_message(said("b", "a house that is red"))
    assert found(await session.search("red house")) == ["a"]
    assert found(await session.search("house")) == ["a", "b"]


@pytest.mark.parametrize(
    "query",
    [
        "",
        "   ",
        '"',
        "'; DROP TABLE messages; --",
        "* OR a",
        "NEAR(",
        "\x00",
        "((",
        "-",
        "%",
        "_",
        "é" * 5000,
    ],
)
async def test_no_query_is_obeyed_and_none_is_an_error(open_session: OpenSession, query: str) -> None:
    session = await open_session()
    await fill(session, "a")
    assert await session.search(query) == []
    assert ids(session.path) == ["a"]


async def test_a_query_with_signs_finds_the_words_in_it(open_session: OpenSession) -> None:
    session = await open_session()
    await session.append_message(said("a", 'He said "good morning" to main.py'))
    for query in ('"good morning"', "main.py", "good-morning", "MORNING*"):
        assert found(await session.search(query)) == ["a"], query


async def test_what_a_summary_covers_is_found_and_the_summary_is_not(open_session: OpenSession) -> None:
    session = await open_session()
    for id, text in [("a", "apples"), ("b", "bananas"), ("c", "cherries")]:
        await session.append_message(said(id, text))
    await session.add_compaction("talk of fruit", "a", "b")
    for fresh in (session, await open_session()):
        assert found(await fresh.search("bananas")) == ["b"]
        assert found(await fresh.search("fruit")) == []


async def test_messages_of_other_branches_are_found(open_session: OpenSession) -> None:
    session = await open_session()
    await fill(session, "root", "left")
    await fill(session, "right", parent="root")
    assert found(await session.search("left")) == ["left"]


async def test_only_what_was_written_is_searched(open_session: OpenSession) -> None:
    session = await open_session()
    parts = [
        {"type": "text", "text": "spoken"},
        {"type": "reasoning", "text": "pondered"},
        {
            "type": "tool-find",
            "toolCallId": "1",
            "state": "output-available",
            "input": {},
            "output": "fetched",
        },
        {"type": "text", "text": "aloud"},
    ]
    await session.append_message(Message("a", "assistant", parts, {"note": "scribbled"}))
    assert found(await session.search("spoken aloud")) == ["a"]
    for word in ("pondered", "fetched", "scribbled", "text", "parts"):
        assert await session.search(word) == []


async def test_the_index_follows_updates_deletions_and_clearing(open_session: OpenSession) -> None:
    session = await open_session()
    await session.append_message(said("a", "early"))
    await session.append_message(said("b", "staying"))
    await session.update_message(said("a", "late"))
    assert (found(await session.search("early")), found(await session.search("late"))) == ([], ["a"])
    await session.update_message(Message("a", "user", [{"type": "file", "url": "data:,x"}]))
    assert await session.search("late") == []
    await session.update_message(said("a", "returned"))
    assert found(await session.search("returned")) == ["a"]
    await session.delete_messages(["a"])
    assert await session.search("returned") == []
    assert found(await session.search("staying")) == ["b"]
    await session.clear_messages()
    assert await session.search("staying") == []


FILE = {"type": "file", "mediaType": "image/png", "url": "data:image/png;base64," + "A" * 3_000_000}


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("the harbor at night", "harbor"),
        ('she said "harbor\\" }', "harbor"),
        ("first line\nharbor\ttoday", "today"),
        ("ein Straßenhafen 😀 harbor", "Straßenhafen"),
        ("before\0 harbor", "harbor"),
        ('{"type":"text","text":"nested harbor"}', "harbor"),
        ("harbor " + 'quoted "word" ' * 10_000, "harbor"),
    ],
)
@pytest.mark.parametrize("is_first", [True, False])
async def test_what_is_said_beside_a_large_file_is_found(
    open_session: OpenSession, text: str, word: str, is_first: bool
) -> None:
    session = await open_session()
    parts = [{"type": "text", "text": text}, FILE] if is_first else [FILE, {"type": "text", "text": text}]
    await session.append_message(Message("a", "user", parts))
    assert found(await session.search(word)) == ["a"]
    await session.update_message(Message("a", "user", [FILE]))
    assert await session.search(word) == []
    await session.update_message(Message("a", "user", parts))
    await session.delete_messages(["a"])
    assert await session.search(word) == []


async def test_trap_updating_an_unknown_id_leaves_nothing_to_find(open_session: OpenSession) -> None:
    session = await open_session()
    await fill(session, "a")
    assert not await session.update_message(said("nobody", "ghost"))
    assert await session.search("ghost") == []
    # not even when a message takes that id later
    await session.append_message(said("nobody", "somebody"))
    assert await session.search("ghost") == []
    assert found(await session.search("somebody")) == ["nobody"]


async def test_an_append_that_was_refused_leaves_nothing_to_find(open_session: OpenSession) -> None:
    session = await open_session()
    await session.append_message(said("a", "first"))
    assert not await session.append_message(said("a", "second"))
    assert (found(await session.search("first")), await session.search("second")) == (["a"], [])


@pytest.mark.memory_case(17)
async def test_a_session_finds_its_own_messages_alone(open_session: OpenSession) -> None:
    places = [
        await open_session(),
        await open_session(id="other"),
        await open_session("Assistant/elsewhere"),
        await open_session("Assistant/room2"),
    ]
    for n, session in enumerate(places):
        await session.append_message(said("same", f"shared word{n}"))
    for n, session in enumerate(places):
        assert [hit.content for hit in await session.search("shared")] == [f"shared word{n}"]
        assert await session.search(f"word{(n + 1) % 4}") == []


async def test_there_is_a_limit_and_the_best_come_first(open_session: OpenSession) -> None:
    session = await open_session()
    for n in range(25):
        await session.append_message(
            said(f"m{n}", f"needle in a large amount of hay number {n} " + "hay " * 20)
        )
    await session.append_message(said("best", "needle needle needle"))
    await fill(session, "last")
    assert len(await session.search("needle")) == 20
    hits = await session.search("needle", limit=3)
    assert len(hits) == 3
    assert hits[0].id == "best"
    assert await session.search("needle", limit=0) == []
