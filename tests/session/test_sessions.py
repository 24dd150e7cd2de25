"""Several sessions of one agent: made, listed, forked, searched, deleted for good."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from everthink import App, Think
from everthink.clock import moment_of
from everthink.errors import InvalidSettings, SessionBusy, UnknownMessage, UnknownSession
from everthink.messages import Message
from everthink.models.port import Request, ToolMessage, ToolResultPart
from everthink.session.sessions import Sessions
from everthink.testing.clock import ManualClock
from everthink.testing.scripted import ScriptedModel, calls, says
from tests.conftest import OpenApp
from tests.support.agents import assistant, live
from tests.support.memory import ids, said, texts
from tests.support.turns import home_of

pytestmark = pytest.mark.anyio


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


Plain = assistant(ScriptedModel())


@pytest.fixture
async def app(store_url: str, open_app: OpenApp, clock: ManualClock) -> App:
    return await open_app(Plain, clock=clock, store=store_url)


async def sessions_of(app: App, cls: type[Think] = Plain, name: str = "default") -> Sessions:
    return (await home_of(app, cls, name)).chat.sessions


async def begun(sessions: Sessions, *texts_: str, name: str = "Plans") -> str:
    """A session in which something was said; the messages have ids m0, m1…"""
    made = await sessions.create(name)
    await sessions.append_all(made.id, [said(f"m{n}", text) for n, text in enumerate(texts_)])
    return made.id


def results_in(request: Request) -> list[Any]:
    """The tool results that a model was shown."""
    tool_messages = [message for message in request.messages if isinstance(message, ToolMessage)]
    return [part.output for one in tool_messages for part in one.content if isinstance(part, ToolResultPart)]


# --- what there is


@pytest.mark.memory_case(164)
async def test_a_new_session_has_an_id_and_a_name(app: App, clock: ManualClock) -> None:
    sessions = await sessions_of(app)
    made = await sessions.create("Plans", parent_session_id="p", model="m", source="import")
    assert made.id
    assert made.name == "Plans"
    assert (made.parent_session_id, made.model, made.source) == ("p", "m", "import")
    assert (made.input_tokens, made.output_tokens, made.estimated_cost, made.end_reason) == (0, 0, 0.0, None)
    assert made.created_at == made.updated_at == moment_of(clock.now_ms())
    assert await sessions.get(made.id) == made
    assert await sessions.get("nobody") is None
    assert await sessions.get_history(made.id) == []


@pytest.mark.memory_case(165)
async def test_the_list_has_every_session_the_one_used_last_first(app: App, clock: ManualClock) -> None:
    sessions = await sessions_of(app)
    assert await sessions.list() == []
    made: list[str] = []
    for name in ("one", "two", "three"):
        made.append((await sessions.create(name)).id)
        await clock.advance(1)
    assert [one.name for one in await sessions.list()] == ["three", "two", "one"]
    await sessions.append(made[0], said("a"))
    assert [one.name for one in await sessions.list()] == ["one", "three", "two"]
    other = await sessions_of(app, name="elsewhere")
    assert await other.list() == []


@pytest.mark.memory_case(167)
async def test_a_renamed_session_is_listed_under_its_new_name(app: App) -> None:
    sessions = await sessions_of(app)
    made = await sessions.create("old")
    await sessions.rename(made.id, "new")
    assert [one.name for one in await sessions.list()] == ["new"]
    await sessions.rename("", "the main one")
    assert {one.name for one in await sessions.list()} == {"new", "the main one"}
    with pytest.raises(UnknownSession, match="no session 'nobody'"):
        await sessions.rename("nobody", "x")


@pytest.mark.memory_case(166, 616)
async def test_trap_a_deleted_session_is_gone_with_all_it_had(store_url: str, open_app: OpenApp) -> None:
    # Given two sessions with messages, a summary, a block and a stored prompt
    def configure_session(self: Think, session: Any) -> Any:
        return session.with_context("memory").with_cached_prompt()

    Assistant = assistant(ScriptedModel(), configure_session=configure_session)
    app = await open_app(Assistant, store=store_url)
    sessions = await sessions_of(app, Assistant)
    gone, kept = await begun(sessions, "a", "b", "c"), await begun(sessions, "a", "b", "c")
    for id in (gone, kept):
        session = await sessions.session(id)
        await session.add_compaction("in short", "m0", "m1")
        await session.replace_context_block("memory", "likes tea")
        await session.freeze_system_prompt()

    # When one is deleted
    await sessions.delete(gone)

    # Then no table knows it any more, and the other one is whole
    store = (await home_of(app, Assistant)).store
    for table in ("messages", "compactions", "blocks"):
        rows = await store.fetch(f"SELECT session, COUNT(*) FROM {table} GROUP BY session")
        assert [row[0] for row in rows] == [kept], table
    assert [one.id for one in await sessions.list()] == [kept]
    assert await sessions.get_history(gone) == []
    assert texts(await sessions.get_history(kept)) == ["in short", "c"]
    assert await sessions.search("a") == await sessions.search("a", limit=1)
    await sessions.delete("nobody")


@pytest.mark.parametrize(
    "write",
    [
        lambda sessions: sessions.append("nobody", said("a")),
        lambda sessions: sessions.upsert("nobody", said("a")),
        lambda sessions: sessions.append_all("nobody", [said("a")]),
        lambda sessions: sessions.add_usage("nobody", 1, 1),
        lambda sessions: sessions.clear_messages("nobody"),
        lambda sessions: sessions.delete_messages("nobody", ["a"]),
    ],
    ids=["append", "upsert", "append_all", "add_usage", "clear", "delete_messages"],
)
async def test_a_session_that_is_not_there_takes_nothing(app: App, write: Any) -> None:
    sessions = await sessions_of(app)
    with pytest.raises(UnknownSession, match="no session 'nobody'"):
        await write(sessions)
    store = (await home_of(app, app.classes[0])).store
    assert await store.fetch("SELECT * FROM messages WHERE session = 'nobody'") == []


async def test_messages_to_delete_are_a_list_of_ids(app: App) -> None:
    agent = await live(app.agent(app.classes[0]))
    await agent.add_messages({"id": "m", "role": "user", "parts": [{"type": "text", "text": "Hi"}]})
    for wrong in ("m", ["m", 5], None, agent.messages):
        with pytest.raises(
            InvalidSettings, match=r'delete_messages: ids is .*a list of message ids: \["m1"\]'
        ):
            await agent.session.delete_messages(wrong)  # type: ignore[arg-type]
    assert [message.id for message in agent.messages] == ["m"]


async def test_the_live_session_is_neither_deleted_nor_emptied_from_here(app: App) -> None:
    sessions = await sessions_of(app)
    await sessions.append("", said("a"))
    with pytest.raises(SessionBusy, match="Open another one first"):
        await sessions.delete("")
    with pytest.raises(SessionBusy, match=r"clear_messages\(\) of the agent"):
        await sessions.clear_messages("")
    assert ids(sessions.live.path) == ["a"]


async def test_what_providers_report_is_added_up(app: App) -> None:
    sessions = await sessions_of(app)
    made = await sessions.create("Plans")
    await sessions.add_usage(made.id, 100, 20, 0.5)
    await sessions.add_usage(made.id, 10, 2, 0.25)
    info = await sessions.get(made.id)
    assert info is not None
    assert (info.input_tokens, info.output_tokens, info.estimated_cost) == (110, 22, 0.75)


# --- what is in them


@pytest.mark.memory_case(14)
async def test_a_parent_that_another_session_has_makes_a_root_here(app: App) -> None:
    sessions = await sessions_of(app)
    one, two = await begun(sessions, "a", "b"), (await sessions.create("two")).id
    assert await sessions.append(two, said("x"), "m1")
    assert ids(await sessions.get_history(two)) == ["x"]
    assert ids(await sessions.get_history(one)) == ["m0", "m1"]
    assert await (await sessions.session(one)).get_branches("m1") == []


@pytest.mark.memory_case(15)
async def test_trap_two_sessions_may_use_the_same_message_id(app: App) -> None:
    sessions = await sessions_of(app)
    one, two = await begun(sessions, "first"), await begun(sessions, "second")
    assert texts(await sessions.get_history(one)) == ["first"]
    assert texts(await sessions.get_history(two)) == ["second"]
    await sessions.upsert(two, said("m0", "changed"))
    assert texts(await sessions.get_history(one)) == ["first"]


@pytest.mark.memory_case(612)
async def test_trap_several_messages_without_a_parent_go_on_from_the_tip(app: App) -> None:
    sessions = await sessions_of(app)
    id = await begun(sessions, "a", "b")
    await sessions.append_all(id, [said("x"), said("y")])
    assert ids(await sessions.get_history(id)) == ["m0", "m1", "x", "y"]
    await sessions.append_all(id, [said("z")], "m0")
    assert ids(await sessions.get_history(id)) == ["m0", "z"]
    await sessions.append_all(id, [said("r"), said("s")], None)
    assert ids(await sessions.get_history(id)) == ["r", "s"]
    with pytest.raises(UnknownMessage, match="append_all: parent_id"):
        await sessions.append_all(id, [said("t")], "nobody")
    await sessions.append_all(id, [])
    assert await sessions.get_message_count(id) == 2


async def test_several_messages_of_which_one_is_covered_go_on_from_the_tip(app: App) -> None:
    sessions = await sessions_of(app)
    id = await begun(sessions, "a", "b", "c")
    session = await sessions.session(id)
    await session.add_compaction("in short", "m0", "m1")
    await sessions.append_all(id, [said("m0"), said("m1"), said("m2"), said("new")])
    assert ids(await sessions.get_history(id)) == ["*", "m2", "new"]
    assert await sessions.get_message_count(id) == 4


@pytest.mark.memory_case(16, 170)
async def test_deleting_messages_of_one_session_leaves_the_others(app: App) -> None:
    sessions = await sessions_of(app)
    one, two = await begun(sessions, "a", "b", "c"), await begun(sessions, "a", "b", "c")
    await sessions.delete_messages(one, ["m1"])
    assert texts(await sessions.get_history(one)) == ["a", "c"]
    assert texts(await sessions.get_history(two)) == ["a", "b", "c"]
    await sessions.clear_messages(one)
    assert await sessions.get_history(one) == []
    assert await sessions.get_message_count(two) == 3


async def test_callers_that_meet_at_a_cold_session_write_into_one(app: App) -> None:
    sessions = await sessions_of(app)
    made = await sessions.create("Plans")
    await asyncio.gather(*(sessions.append(made.id, said(f"m{n}")) for n in range(8)))
    assert sorted(ids(await sessions.get_history(made.id))) == [f"m{n}" for n in range(8)]
    first, second = await asyncio.gather(sessions.session("cold"), sessions.session("cold"))
    assert first is second


# --- fork and split


@pytest.mark.memory_case(171)
async def test_a_fork_is_the_conversation_up_to_a_message_with_ids_of_its_own(
    app: App, clock: ManualClock
) -> None:
    sessions = await sessions_of(app)
    source = await begun(sessions, "a", "b", "c")
    await clock.advance(5)
    made = await sessions.fork(source, "m1", "What if")
    assert (made.name, made.parent_session_id) == ("What if", source)
    copied = await sessions.get_history(made.id)
    assert texts(copied) == ["a", "b"]
    assert not {"m0", "m1", "m2"} & set(ids(copied))
    assert texts(await sessions.get_history(source)) == ["a", "b", "c"]
    info = await sessions.get(source)
    assert info is not None
    assert info.updated_at == moment_of(clock.now_ms())
    assert (await sessions.fork(source, "m0")).name == "Fork of Plans"
    with pytest.raises(UnknownMessage, match="fork: at_message_id"):
        await sessions.fork(source, "nobody")


@pytest.mark.parametrize(
    ("at", "expected"),
    [("m4", ["a", "in short", "e"]), ("m3", ["a", "in short"]), ("m2", ["a", "b", "c"]), ("m0", ["a"])],
)
async def test_a_fork_equals_what_was_shown_there(app: App, at: str, expected: list[str]) -> None:
    sessions = await sessions_of(app)
    source = await begun(sessions, "a", "b", "c", "d", "e")
    session = await sessions.session(source)
    await session.add_compaction("in short", "m1", "m3")
    made = await sessions.fork(source, at)
    assert texts(await sessions.get_history(made.id)) == expected == texts(await session.get_history(at))
    # The summary is an ordinary message there.
    fork = await sessions.session(made.id)
    assert await fork.get_compactions() == []
    assert await fork.get_path_length() == len(expected)
    assert not any(id == "*" for id in ids(fork.path))


async def test_a_fork_at_a_summary_ends_with_it(app: App) -> None:
    sessions = await sessions_of(app)
    source = await begun(sessions, "a", "b", "c")
    session = await sessions.session(source)
    await session.add_compaction("in short", "m0", "m1")
    made = await sessions.fork(source, session.path[0].id)
    assert texts(await sessions.get_history(made.id)) == ["in short"]


async def test_a_session_that_was_split_goes_on_in_another(app: App) -> None:
    sessions = await sessions_of(app)
    source = await begun(sessions, "a", "b")
    made = await sessions.compact_and_split(source, "They spoke of tea.")
    info = await sessions.get(source)
    assert info is not None
    assert info.end_reason == "compaction"
    assert (made.name, made.parent_session_id) == ("Plans", source)
    [first] = await sessions.get_history(made.id)
    assert first.role == "assistant"
    assert first.text.endswith("\n\nThey spoke of tea.")
    assert texts(await sessions.get_history(source)) == ["a", "b"]


# --- search over all of them


@pytest.mark.memory_case(168)
async def test_search_over_all_sessions_finds_messages_of_each(app: App) -> None:
    sessions = await sessions_of(app)
    one = await begun(sessions, "tea with milk", "nothing")
    two = await begun(sessions, "milk without tea")
    await sessions.append("", said("main", "tea is enough"))
    stranger = await sessions_of(app, name="elsewhere")
    await stranger.append("", said("x", "tea and milk of somebody else"))
    assert {hit.session_id for hit in await sessions.search("tea")} == {one, two, ""}
    # all words, anywhere
    assert {hit.session_id for hit in await sessions.search("milk tea")} == {one, two}
    assert {hit.content for hit in await sessions.search("without milk")} == {"milk without tea"}
    assert len(await sessions.search("tea", limit=2)) == 2
    assert await sessions.search("  ") == await sessions.search("coffee") == []
    # and in one session only its own
    assert [hit.id for hit in await (await sessions.session(two)).search("tea")] == ["m0"]


@pytest.mark.memory_case(169)
async def test_the_tool_to_search_all_sessions_joins_those_of_a_session(
    store_url: str, open_app: OpenApp
) -> None:
    # Given an agent that lets its model look through everything
    def get_tools(self: Think) -> Any:
        return self.sessions.tools()

    def configure_session(self: Think, session: Any) -> Any:
        return session.with_context("memory")

    model = ScriptedModel(
        calls("session_search", query="tea"), calls("session_search", query="coffee"), says("You like tea.")
    )
    Assistant = assistant(model, get_tools=get_tools, configure_session=configure_session)
    app = await open_app(Assistant, store=store_url)
    sessions = await sessions_of(app, Assistant)
    old = await sessions.create("long ago")
    await sessions.append(old.id, said("m", "I like tea"))

    # When it does
    await app.agent(Assistant).save_messages("What do I like?")

    # Then it had both tools, and read what was said elsewhere
    assert {tool.name for tool in model.requests[0].tools} == {"session_search", "set_context"}
    assert results_in(model.requests[1]) == ["[user] I like tea"]
    assert results_in(model.requests[2]) == ["[user] I like tea", "No results found."]
    assert "session_search" not in await sessions.live.tools()


async def test_a_block_over_all_sessions_can_be_searched(store_url: str, open_app: OpenApp) -> None:
    def configure_session(self: Think, session: Any) -> Any:
        return session.with_context("history", provider=self.sessions.history_provider())

    Assistant = assistant(ScriptedModel(), configure_session=configure_session)
    app = await open_app(Assistant, store=store_url)
    sessions = await sessions_of(app, Assistant)
    made = await sessions.create("long ago")
    await sessions.append(made.id, Message("m", "assistant", [{"type": "text", "text": "Tea it is"}]))
    assert await sessions.live.search_context("history", "tea") == "[assistant] Tea it is"
    assert "1 session to search" in await sessions.live.refresh_system_prompt()
    assert await sessions.live.search_context("history", "coffee") is None
