"""Shortening a conversation: when it happens, what the function is shown, what is stored, who is told."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

from everthink.errors import CompactionNotSetUp
from everthink.messages import Message
from everthink.models.tokens import (
    TokenCount,
    estimate_messages,
    estimate_tokens,
)
from everthink.session.compaction import CompactionFailed, SessionNews, SessionStatus
from everthink.session.session import Session
from everthink.session.summary import CompactContext, Compaction
from everthink.testing import WatchedStore
from tests.support.context import Sign
from tests.support.memory import Summarizer, between, fill, ids, said, session_on, texts

from .conftest import OpenSession

pytestmark = pytest.mark.anyio


def watched(session: Session) -> list[SessionNews]:
    """What whoever watches the session is told from now on."""
    told: list[SessionNews] = []
    session.listener = told.append
    return told


def fails(error: Exception) -> Callable[..., Any]:
    def fn(messages: list[Message], context: CompactContext) -> Compaction | None:
        raise error

    return fn


# --- asked for


@pytest.mark.memory_case(57)
async def test_without_a_function_compacting_is_an_error_that_says_what_to_do(
    open_session: OpenSession,
) -> None:
    session = await open_session()
    await fill(session, "a")
    with pytest.raises(CompactionNotSetUp, match="on_compaction"):
        await session.compact()


@pytest.mark.memory_case(58)
@pytest.mark.parametrize("is_async", [True, False])
async def test_a_function_that_returns_nothing_changes_nothing(
    open_session: OpenSession, is_async: bool
) -> None:
    async def later(messages: list[Message], context: CompactContext) -> None: ...

    session = (await open_session()).on_compaction(later if is_async else lambda messages, context: None)
    await fill(session, "a", "b")
    assert await session.compact() is None
    assert (ids(session.path), await session.get_compactions()) == (["a", "b"], [])


@pytest.mark.memory_case(59)
async def test_the_function_alone_says_how_few_are_too_few(open_session: OpenSession) -> None:
    session = (await open_session()).on_compaction(between("a", "a", "one"))
    await fill(session, "a")
    assert await session.compact() == Compaction("a", "a", "one")
    assert texts(session.path) == ["one"]


@pytest.mark.memory_case(60)
@pytest.mark.parametrize("form", [lambda **given: Compaction(**given), lambda **given: given])
async def test_what_the_function_returns_is_stored(open_session: OpenSession, form: Any) -> None:
    answer = form(from_message_id="b", to_message_id="c", summary="b and c")
    session = (await open_session()).on_compaction(lambda messages, context: answer)
    await fill(session, *"abcd")
    assert await session.compact() == Compaction("b", "c", "b and c")
    [stored] = await (await open_session()).get_compactions()
    assert (stored.from_message_id, stored.to_message_id, stored.summary) == ("b", "c", "b and c")
    assert (stored.reason, stored.tokens_before) == ("asked", estimate_messages(map(said, "abcd")))


@pytest.mark.parametrize(("first", "last"), [("c", "b"), ("a", "nobody"), ("nobody", "b"), ("x", "c")])
async def test_ends_that_are_not_on_the_path_are_ignored(
    open_session: OpenSession, first: str, last: str, caplog: pytest.LogCaptureFixture
) -> None:
    session = (await open_session()).on_compaction(between(first, last))
    await fill(session, *"abc")
    await fill(session, "x", parent="a")
    await session.select_leaf("c")
    assert await session.compact() is None
    assert await session.get_compactions() == []
    assert "not on this path" in caplog.text


@pytest.mark.memory_case(61)
async def test_compacting_a_given_leaf_shows_the_function_that_path_alone(open_session: OpenSession) -> None:
    # Given two branches, of which one has an overlay
    summarizer = Summarizer(tail=0)
    session = (await open_session()).on_compaction(summarizer)
    await fill(session, *"abcd")
    await session.add_compaction("c and d", "c", "d")
    await fill(session, "x", "y", parent="b")

    # When the other one is compacted, whichever is live
    await session.select_leaf("d")
    assert await session.compact("y") == Compaction("a", "y", "summary 1")

    # Then the function saw that branch, and the live one is as it was
    assert texts(summarizer.shown[0]) == ["a", "b", "x", "y"]
    assert texts(session.path) == ["a", "b", "c and d"]
    assert texts(await session.get_history("y")) == ["summary 1"]


@pytest.mark.memory_case(62, 63, 64)
async def test_compacting_again_reaches_back_to_where_the_first_overlay_in_view_begins(
    open_session: OpenSession,
) -> None:
    # Given a conversation with two summaries
    session = await open_session()
    await fill(session, *"abcdefg")
    await session.add_compaction("b, c", "b", "c")
    await session.add_compaction("d", "d", "d")

    # When the function takes what follows them
    seen: list[list[str]] = []

    def fn(messages: list[Message], context: CompactContext) -> Compaction:
        seen.append(texts(messages))
        return Compaction("e", "f", "b to f")

    session.on_compaction(fn)
    done = await session.compact()

    # Then it saw the summaries, and its own replaces them
    assert seen == [["a", "b, c", "d", "e", "f", "g"]]
    assert done == Compaction("b", "f", "b to f")
    assert texts(session.path) == ["a", "b to f", "g"]
    assert [(o.from_message_id, o.to_message_id) for o in await session.get_compactions()] == [
        ("b", "c"),
        ("d", "d"),
        ("b", "f"),
    ]


@pytest.mark.memory_case(84)
async def test_however_often_it_runs_the_ends_are_real_messages(open_session: OpenSession) -> None:
    session = (await open_session()).on_compaction(Summarizer(tail=1))
    await fill(session, "m0", "m1", "m2")
    for n in range(3, 20):
        await fill(session, f"m{n}")
        assert await session.compact()
        assert ids(session.path) == ["*", f"m{n}"]
    made = await session.get_compactions()
    assert {one.from_message_id for one in made} == {"m0"}
    assert [one.to_message_id for one in made] == [f"m{n}" for n in range(2, 19)]


async def test_what_the_function_does_to_its_messages_stays_with_it(open_session: OpenSession) -> None:
    def fn(messages: list[Message], context: CompactContext) -> None:
        messages[0].parts[0]["text"] = "forged"
        messages.clear()

    session = (await open_session()).on_compaction(fn)
    await fill(session, "a", "b")
    await session.compact()
    assert texts(session.path) == ["a", "b"]


# --- by itself


@pytest.mark.memory_case(65, 66, 189)
@pytest.mark.case(16)
async def test_an_append_beyond_the_threshold_compacts_and_memory_follows(open_session: OpenSession) -> None:
    summarizer = Summarizer()
    weight = estimate_messages([said("a")])
    session = (await open_session()).on_compaction(summarizer).compact_after(3 * weight)
    await fill(session, "a", "b", "c")
    assert summarizer.shown == []  # as much as allowed is not more than that
    await fill(session, "d")
    assert texts(session.path) == ["summary 1", "d"]
    assert texts((await open_session()).path) == ["summary 1", "d"]
    [overlay] = await session.get_compactions()
    assert (overlay.reason, overlay.tokens_before) == ("threshold", 4 * weight)


@pytest.mark.memory_case(67, 68)
@pytest.mark.parametrize("has_threshold", [True, False])
async def test_without_a_threshold_or_without_a_function_nothing_happens(
    open_session: OpenSession, has_threshold: bool, caplog: pytest.LogCaptureFixture
) -> None:
    summarizer = Summarizer()
    session = await open_session()
    session = session.compact_after(1) if has_threshold else session.on_compaction(summarizer)
    await fill(session, *"abcdef")
    assert (summarizer.shown, await session.get_compactions()) == ([], [])
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_a_known_message_that_is_appended_again_compacts_nothing(open_session: OpenSession) -> None:
    summarizer = Summarizer()
    session = await open_session()
    await fill(session, "a", "b", "c")
    session.on_compaction(summarizer).compact_after(1)
    assert not await session.append_message(said("b"))
    assert summarizer.shown == []


@pytest.mark.memory_case(69, 70)
async def test_the_prompt_of_the_session_counts_and_is_not_stored_by_counting(
    open_session: OpenSession,
) -> None:
    session = (await open_session()).with_context("rules", provider=Sign("Be kind. " * 100))
    session.with_cached_prompt()
    await fill(session, "a")
    weight = await session.estimate_tokens()
    assert await session._store.fetch("SELECT * FROM blocks") == []
    prompt = await session.freeze_system_prompt()
    assert weight == estimate_messages([said("a")]) + estimate_tokens(prompt) > 200
    assert len(await session._store.fetch("SELECT * FROM blocks")) == 1

    # and so it decides
    summarizer = Summarizer(tail=0)
    session.on_compaction(summarizer).compact_after(200)
    await fill(session, "b")
    assert len(summarizer.shown) == 1


@pytest.mark.memory_case(71)
async def test_the_estimate_goes_by_the_prompt_as_it_was_frozen(open_session: OpenSession) -> None:
    source = Sign("short")
    session = (await open_session()).with_context("rules", provider=source).with_cached_prompt()
    await session.freeze_system_prompt()
    before = await session.estimate_tokens()
    source.text = "much longer " * 200
    assert await session.estimate_tokens() == before
    # also in a process that has just started
    fresh = (await open_session()).with_context("rules", provider=source).with_cached_prompt()
    assert await fresh.estimate_tokens() == before
    await session.refresh_system_prompt()
    assert await session.estimate_tokens() > before + 200


@pytest.mark.memory_case(72, 73)
@pytest.mark.parametrize("is_stored", [False, True])
async def test_a_counter_is_given_everything_and_its_answer_decides(
    open_session: OpenSession, is_stored: bool
) -> None:
    def configured(session: Session) -> Session:
        return session.with_context("rules", provider=Sign("Be kind.")).with_cached_prompt()

    if is_stored:
        await configured(await open_session()).freeze_system_prompt()
    asked: list[TokenCount] = []

    async def counter(count: TokenCount) -> float:
        asked.append(count)
        return 100.0 if len(count.messages) > 2 else 1.0

    summarizer = Summarizer()
    session = configured(await open_session()).on_compaction(summarizer)
    session.compact_after(99, token_counter=counter)
    await fill(session, "a", "b")
    assert summarizer.shown == []
    last = asked[-1]
    assert ids(last.messages) == ["a", "b"]
    assert "Be kind." in last.system_prompt
    assert [(block.label, block.content) for block in last.context_blocks] == [("rules", "Be kind.")]
    await fill(session, "c")
    assert texts(session.path) == ["summary 1", "c"]


async def test_a_conversation_that_cannot_be_shortened_is_told_once_until_it_could(
    open_session: OpenSession, caplog: pytest.LogCaptureFixture
) -> None:
    summarizer = Summarizer(tail=10)
    session = (await open_session()).on_compaction(summarizer).compact_after(1)

    def warnings() -> int:
        return caplog.text.count("found nothing to shorten")

    await fill(session, "a", "b", "c")
    assert warnings() == 1
    summarizer.tail = 1
    await fill(session, "d")
    summarizer.tail = 10
    await fill(session, "e", "f")
    assert warnings() == 2


# --- what goes wrong


@pytest.mark.memory_case(76, 77)
@pytest.mark.parametrize("handler_fails", [False, True])
async def test_storage_that_fails_while_compacting_is_told_once_and_the_append_stands(
    open_session: OpenSession, handler_fails: bool
) -> None:
    store = WatchedStore((await open_session())._store.database)
    heard: list[Exception] = []

    async def handler(error: Exception) -> None:
        heard.append(error)
        if handler_fails:
            raise RuntimeError("the handler is broken too")

    session = session_on(store).on_compaction(Summarizer()).compact_after(10).on_compaction_error(handler)
    await session.load()
    told = watched(session)
    broken = OSError("the disk is full")
    full = store.fail(broken, matching="INTO compactions")
    await fill(session, "a", "b", "c")
    assert full.happened
    assert heard == [broken]
    assert told.count(CompactionFailed("the disk is full")) == 1
    before = estimate_messages(map(said, "abc"))
    assert told[-2:] == [SessionStatus("idle", before, 10), CompactionFailed("the disk is full")]
    assert ids((await open_session()).path) == ["a", "b", "c"]

    # and the next append does it
    await fill(session, "d")
    assert ids(session.path) == ["*", "d"]


async def test_a_counter_that_fails_is_told_and_compacts_nothing(open_session: OpenSession) -> None:
    heard: list[Exception] = []
    broken = ValueError("cannot count")

    def counter(count: TokenCount) -> float:
        raise broken

    summarizer = Summarizer()
    session = (await open_session()).on_compaction(summarizer).on_compaction_error(heard.append)
    session.compact_after(1, token_counter=counter)
    await fill(session, "a")
    assert (heard, summarizer.shown) == ([broken], [])


@pytest.mark.memory_case(615)
@pytest.mark.parametrize("is_automatic", [True, False])
async def test_trap_a_function_that_raises_ends_in_idle_and_never_reaches_the_handler(
    open_session: OpenSession, is_automatic: bool
) -> None:
    heard: list[Exception] = []
    session = (await open_session()).on_compaction(fails(ValueError("no summary today")))
    session.on_compaction_error(heard.append)
    await fill(session, "a")
    told = watched(session)
    if is_automatic:
        session.compact_after(1)
        await fill(session, "b")
    else:
        await fill(session, "b")
        assert await session.compact() is None
    before = estimate_messages([said("a"), said("b")])
    threshold = 1 if is_automatic else None
    assert told[-3:] == [
        SessionStatus("compacting", before, threshold),
        CompactionFailed("no summary today"),
        SessionStatus("idle", before, threshold),
    ]
    assert heard == []
    assert ids(session.path) == ["a", "b"]


async def test_a_compaction_that_is_stopped_ends_in_idle_and_lets_the_next_one_in(
    open_session: OpenSession,
) -> None:
    summarizer = Summarizer(hold=True)
    session = (await open_session()).on_compaction(summarizer)
    await fill(session, *"abc")
    told = watched(session)
    work = asyncio.create_task(session.compact())
    await summarizer.asked.wait()
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    assert [one.phase for one in told if isinstance(one, SessionStatus)] == ["compacting", "idle"]
    assert await session.get_compactions() == []
    summarizer.go.set()
    assert await session.compact()


@pytest.mark.memory_case(78)
async def test_whoever_watches_is_told_that_it_begins_and_what_there_was_before(
    open_session: OpenSession,
) -> None:
    session = (await open_session()).on_compaction(between("a", "b", "in short")).compact_after(1000)
    await fill(session, *"abc")
    before = estimate_messages(map(said, "abc"))
    told = watched(session)
    await session.compact()
    after = estimate_messages(session.path)
    assert told == [
        SessionStatus("compacting", before, 1000),
        SessionStatus("idle", after, 1000, tokens_before=before),
    ]


@pytest.mark.memory_case(162)
async def test_an_update_is_told_and_a_silent_rewrite_is_not(open_session: OpenSession) -> None:
    session = (await open_session()).on_compaction(Summarizer())
    await fill(session, "a")
    told = watched(session)
    await session.rewrite(said("a", "rewritten"))
    assert told == []
    assert texts(session.path) == texts((await open_session()).path) == ["rewritten"]
    await session.update_message(said("a", "updated and longer than before"))
    weight = estimate_messages([said("a", "updated and longer than before")])
    assert told == [SessionStatus("idle", weight, None)]


async def test_a_session_without_compaction_tells_nothing(open_session: OpenSession) -> None:
    session = await open_session()
    told = watched(session)
    await fill(session, "a", "b")
    await session.update_message(said("a", "x"))
    await session.clear_messages()
    assert told == []
