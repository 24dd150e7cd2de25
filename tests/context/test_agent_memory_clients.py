"""Clients that remember more than is shown: old lists, summaries sent back, answers to covered calls."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from everthink import App, Message, Think, tool
from everthink.door.chat_request import ChatRequest
from everthink.journal.feed import HistoryChanged
from everthink.open_store import open_store
from everthink.runtime.schema import MIGRATIONS
from everthink.session import queries
from everthink.testing import WatchedStore
from everthink.testing.scripted import ScriptedModel, calls, hangs, says
from tests.conftest import OpenApp
from tests.support.agents import assistant, live
from tests.support.memory import Summarizer, ids, said, texts
from tests.support.turns import Witness, accept_request, all_over, home_of, prompt
from tests.support.window import Window

pytestmark = pytest.mark.anyio


def talk(count: int) -> list[Message]:
    """m0, m1…: a person and the assistant in turns, each with a text of its own."""
    return [said(f"m{n}", f"words {n}", ("user", "assistant")[n % 2]) for n in range(count)]


async def summarised(
    open_app: OpenApp,
    model: ScriptedModel,
    *,
    count: int = 8,
    first: str = "m1",
    last: str = "m5",
    **members: Any,
) -> tuple[App, type[Think], Think]:
    """An agent with a conversation whose middle is a summary."""
    Assistant = assistant(model, **members)
    app = await open_app(Assistant)
    agent = await live(app.agent(Assistant))
    await agent.add_messages(talk(count))
    assert await agent.session.add_compaction("in short", first, last)
    return app, Assistant, agent


async def sends(app: App, cls: type[Think], messages: list[Message], **options: Any) -> Any:
    admitted: Any = await accept_request(await home_of(app, cls), ChatRequest("r", messages, **options))
    result = await admitted.result()
    await all_over(app, cls)
    return result


async def rows_of(agent: Think) -> dict[str, str | None]:
    """Each stored message and its parent, of all branches."""
    found = await agent._home.store.fetch("SELECT id, parent FROM messages ORDER BY seq")
    return dict(found)  # type: ignore[arg-type]


@pytest.mark.parametrize("with_summary", [False, True])
async def test_a_client_with_its_whole_old_list_stores_its_new_message_alone(
    open_app: OpenApp, with_summary: bool
) -> None:
    model = ScriptedModel(says("fine"))
    app, cls, agent = await summarised(open_app, model)
    before = await rows_of(agent)
    held = agent.messages if with_summary else talk(8)
    result = await sends(app, cls, [*held, said("new", "and now?")])

    # Then there are two rows more, below the tip, and the model saw the summary
    after = await rows_of(agent)
    assert {id: after[id] for id in before} == before
    assert list(after)[len(before) :] == ["new", result.message.id]
    assert after["new"] == "m7"
    assert prompt(model.last_request) == [
        ("user", "words 0"),
        ("assistant", "in short"),
        ("user", "words 6"),
        ("assistant", "words 7"),
        ("user", "and now?"),
    ]
    assert texts(agent.messages) == ["words 0", "in short", "words 6", "words 7", "and now?", "fine"]


async def test_a_client_that_made_up_ids_for_covered_answers_stores_nothing_twice(open_app: OpenApp) -> None:
    # Given a client with ids of its own for what the assistant said, also for a call
    model = ScriptedModel(says("fine"))
    Assistant = assistant(model)
    app = await open_app(Assistant)
    agent = await live(app.agent(Assistant))
    called = Message(
        "m5",
        "assistant",
        [{"type": "tool-x", "toolCallId": "c1", "state": "output-available", "input": {}, "output": 1}],
    )
    history = [*talk(5), called, *talk(8)[6:]]
    await agent.add_messages(history)
    await agent.session.add_compaction("in short", "m1", "m5")
    held = [Message(f"mine-{m.id}", m.role, m.parts) if m.role == "assistant" else m for m in history]

    # When it sends them all with a new message
    before = await rows_of(agent)
    await sends(app, Assistant, [*held, said("new")])
    after = await rows_of(agent)
    assert len(after) == len(before) + 2
    assert after["new"] == "m7"
    assert ids(agent.messages)[:5] == ["m0", "*", "m6", "m7", "new"]


async def test_a_client_cannot_change_what_is_covered_by_sending_it(open_app: OpenApp) -> None:
    app, cls, agent = await summarised(open_app, ScriptedModel(says("fine")))
    forged = [said("m2", "forged"), said("m3", "forged", "assistant"), said("new")]
    await sends(app, cls, forged)
    assert [m.text for m in await agent.session.get_stored_path()][:8] == texts(talk(8))


async def test_a_conversation_shortened_while_a_request_is_on_its_way_takes_it_at_the_tip(
    open_app: OpenApp,
) -> None:
    # Given a compaction that is about to be stored
    summarizer = Summarizer(tail=2, hold=True)

    def configure_session(self: Think, session: Any) -> Any:
        return session.on_compaction(summarizer)

    model = ScriptedModel(*(says(f"answer {n}") for n in range(12)))
    for moment in range(10):
        Assistant = assistant(model, configure_session=configure_session)
        app = await open_app(Assistant)
        agent = await live(app.agent(Assistant, f"room{moment}"))
        home = await home_of(app, Assistant, f"room{moment}")
        await agent.add_messages(talk(8))
        summarizer.go.clear()
        summarizer.asked.clear()
        compacting = asyncio.create_task(agent.session.compact())
        await summarizer.asked.wait()
        summarizer.go.set()
        for _ in range(moment):
            await asyncio.sleep(0)

        # When a client sends its list at that very moment
        admitted: Any = await accept_request(home, ChatRequest("r", [*talk(8), said("new")]))
        await admitted.result()
        await compacting

        # Then nothing is stored twice, and the message is below the tip
        await agent.session.refresh()
        assert [text for text in texts(agent.messages) if not text.startswith("summary")] == [
            "words 6",
            "words 7",
            "new",
            f"answer {moment}",
        ]
        assert await agent.session.get_path_length() == 10
        await app.close()


async def test_what_is_covered_between_two_looks_is_still_known(tmp_path: Path) -> None:
    # Given a summary, and a client whose old list is being looked at
    store = WatchedStore(await open_store(f"sqlite:///{tmp_path}/everthink.db", MIGRATIONS))
    Assistant = assistant(ScriptedModel(says("fine")))
    try:
        async with App(Assistant, store=store, grace=0.0, idle_after=None) as app:
            agent = await live(app.agent(Assistant))
            await agent.add_messages(talk(8))
            await agent.session.add_compaction("in short", "m1", "m3")
            look = store.hold_read(queries.KNOWN)
            asking = asyncio.create_task(sends(app, Assistant, [*talk(8), said("new")]))
            await look.reached()

            # When the conversation is shortened further at that moment
            await agent.session.add_compaction("shorter", "m1", "m6")
            look.release()
            await asking

            # Then what the client had in view does not come a second time
            assert texts(agent.messages) == ["words 0", "shorter", "words 7", "new", "fine"]
            assert await agent.session.get_path_length() == 10
    finally:
        await store.close()


async def test_input_that_begins_with_what_is_covered_does_not_move_the_conversation(
    open_app: OpenApp,
) -> None:
    model = ScriptedModel(says("fine"), says("again"))
    _, _, agent = await summarised(open_app, model)
    await agent.save_messages([*talk(8), said("new", "and now?")])
    assert texts(agent.messages) == ["words 0", "in short", "words 6", "words 7", "and now?", "fine"]
    await agent.save_messages(lambda messages: [*messages, said("more")])
    assert texts(agent.messages)[-2:] == ["more", "again"]
    assert texts(agent.messages)[1] == "in short"


# --- asking again


@pytest.mark.parametrize("by_client", [True, False])
async def test_asking_again_when_the_question_is_the_last_covered_message(
    open_app: OpenApp, by_client: bool
) -> None:
    # Given a summary that ends with the question
    model = ScriptedModel(says("another"), says("go on"))
    app, cls, agent = await summarised(open_app, model, count=6, first="m1", last="m4")
    if by_client:
        await sends(app, cls, talk(5), trigger="regenerate-message")
    else:
        await agent.regenerate("m5")

    # Then the new answer stands beside the old one, behind the summary
    assert prompt(model.requests[0])[:2] == [("user", "words 0"), ("assistant", "in short")]
    assert texts(agent.messages) == ["words 0", "in short", "another"]
    assert texts(await agent.session.get_branches("m4")) == ["words 5", "another"]
    await agent.save_messages("next")
    assert texts(agent.messages) == ["words 0", "in short", "another", "next", "go on"]


async def test_asking_again_inside_the_summary_goes_on_from_there_without_it(open_app: OpenApp) -> None:
    model = ScriptedModel(says("another"))
    app, cls, agent = await summarised(open_app, model)
    await sends(app, cls, talk(3), trigger="regenerate-message")
    assert prompt(model.last_request) == [("user", "words 0"), ("assistant", "words 1"), ("user", "words 2")]
    assert texts(agent.messages) == ["words 0", "words 1", "words 2", "another"]
    assert texts(await agent.session.get_history("m7")) == ["words 0", "in short", "words 6", "words 7"]


# --- answers to covered calls


def waiting(id: str, *call_ids: str) -> Message:
    return Message(
        id,
        "assistant",
        [
            {"type": "tool-ask", "toolCallId": call_id, "state": "input-available", "input": {}}
            for call_id in call_ids
        ],
    )


async def with_covered_calls(open_app: OpenApp, *call_ids: str) -> Think:
    Assistant = assistant(ScriptedModel())
    agent = await live((await open_app(Assistant)).agent(Assistant))
    await agent.add_messages([said("m0"), waiting("m1", *call_ids), said("m2"), said("m3")])
    await agent.session.add_compaction("in short", "m0", "m2")
    return agent


async def test_the_result_of_a_covered_call_is_stored(open_app: OpenApp) -> None:
    agent = await with_covered_calls(open_app, "c1")
    assert await agent.apply_tool_result("c1", {"said": "yes"})
    row = await agent.session.get_message("m1")
    assert row is not None
    assert (row.parts[0]["state"], row.parts[0]["output"]) == ("output-available", {"said": "yes"})
    assert texts(agent.messages) == ["in short", "m3"]
    # the first outcome stays
    assert not await agent.apply_tool_result("c1", "no")
    assert not await agent.apply_tool_result("nobody", "x")


async def test_results_of_covered_calls_that_arrive_together_are_all_stored(open_app: OpenApp) -> None:
    names = [f"c{n}" for n in range(6)]
    agent = await with_covered_calls(open_app, *names)
    assert await asyncio.gather(*(agent.apply_tool_result(name, name) for name in names)) == [True] * 6
    row = await agent.session.get_message("m1")
    assert row is not None
    assert [part.get("output") for part in row.parts] == names


# --- while a turn runs


async def test_messages_added_inside_a_turn_that_is_shortened_find_their_place(open_app: OpenApp) -> None:
    # Given a tool that adds a message, which makes the conversation too long
    summarizer = Summarizer(tail=1)

    class Assistant(Think):
        model = ScriptedModel(calls("note"), says("noted"), says("later"))

        def configure_session(self, session: Any) -> Any:
            return session.on_compaction(summarizer).compact_after(60)

        @tool
        async def note(self) -> str:
            "Note something."
            await self.add_messages([said("added", "a long note " * 20)])
            return "ok"

    app = await open_app(Assistant)
    agent = await live(app.agent(Assistant))
    await agent.add_messages(talk(4))
    result = await agent.save_messages("please note")
    await all_over(app, Assistant)

    # Then the turn ended well, and everything is stored once, in one path
    assert (result.status, result.text) == ("completed", "noted")
    stored = await agent.session.get_stored_path()
    assert len(stored) == len(await rows_of(agent)) == 7
    assert {"added", result.message.id if result.message else ""} <= set(ids(stored))
    fresh = (await agent.sessions.session("")).path
    assert list(fresh) == agent.messages
    assert (await agent.save_messages("and?")).text == "later"


async def test_clearing_while_a_turn_waits_for_a_summary_leaves_no_overlay(open_app: OpenApp) -> None:
    summarizer = Summarizer(hold=True)

    def configure_session(self: Think, session: Any) -> Any:
        return session.on_compaction(summarizer).compact_after(10)

    model = ScriptedModel(says("never"), says("fresh"))
    Assistant = assistant(model, configure_session=configure_session)
    app = await open_app(Assistant)
    agent = await live(app.agent(Assistant))
    await agent.session.write(agent.session.plan_append(talk(6)))
    running = asyncio.create_task(agent.save_messages("hi"))
    await summarizer.asked.wait()
    await agent.clear_messages()
    summarizer.go.set()
    assert (await running).status == "skipped"
    await all_over(app, Assistant)
    assert (agent.messages, await agent.session.get_compactions()) == ([], [])
    assert await rows_of(agent) == {}


async def test_stopping_a_turn_that_waits_for_a_summary_stops_at_once(open_app: OpenApp) -> None:
    summarizer = Summarizer(hold=True)

    def configure_session(self: Think, session: Any) -> Any:
        return session.on_compaction(summarizer).compact_after(10)

    Assistant = assistant(ScriptedModel(), configure_session=configure_session)
    app = await open_app(Assistant)
    agent = await live(app.agent(Assistant))
    await agent.session.write(agent.session.plan_append(talk(6)))
    running = asyncio.create_task(agent.save_messages("hi"))
    await summarizer.asked.wait()
    agent.abort_all_requests()
    assert (await running).status == "aborted"
    assert texts(agent.messages) == [*texts(talk(6)), "hi"]


async def test_windows_see_the_summary_when_nothing_runs(open_app: OpenApp) -> None:
    def configure_session(self: Think, session: Any) -> Any:
        return session.on_compaction(Summarizer(tail=2))

    Assistant = assistant(ScriptedModel(), configure_session=configure_session)
    app = await open_app(Assistant)
    home = await home_of(app, Assistant)
    agent = await live(app.agent(Assistant))
    await agent.add_messages(talk(6))
    witness = Witness(home)
    await agent.session.compact()
    assert [type(one) for one in witness.shown].count(HistoryChanged) == 1


async def test_a_window_goes_on_through_many_compactions(open_app: OpenApp) -> None:
    # Given a window that never forgets, and a conversation that is shortened again and again
    summarizer = Summarizer(tail=1)

    def configure_session(self: Think, session: Any) -> Any:
        return session.on_compaction(summarizer).compact_after(40)

    model = ScriptedModel(*(says(f"answer number {n}") for n in range(12)))
    Assistant = assistant(model, configure_session=configure_session)
    app = await open_app(Assistant)
    window = Window(await home_of(app, Assistant))
    agent = await live(app.agent(Assistant))
    for n in range(12):
        await (await window.send(f"q{n}", f"question number {n}")).outcome()
        await all_over(app, Assistant)
    stored = texts(await agent.session.get_stored_path())
    assert stored == [f"{what} number {n}" for n in range(12) for what in ("question", "answer")]
    assert len(await rows_of(agent)) == 24
    assert len(summarizer.shown) > 3
    assert len(agent.messages) < 8
    assert [prompt(request)[-1] for request in model.requests] == [
        ("user", f"question number {n}") for n in range(12)
    ]


async def test_a_turn_in_flight_when_another_session_is_asked_for_is_not_moved(open_app: OpenApp) -> None:
    model = ScriptedModel(hangs())
    _, _, agent = await summarised(open_app, model)
    running = asyncio.create_task(agent.save_messages("hi"))
    await model.until_silent()
    other = await agent.sessions.create("other")
    await agent.sessions.append(other.id, said("x"))
    assert ids(await agent.sessions.get_history(other.id)) == ["x"]
    agent.abort_all_requests()
    await running
    assert agent.session.id == ""
