"""A request from a chat window: what is stored, what the turn is given, what is remembered."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from everthink import Think, tool
from everthink.hooks import TurnContext
from everthink.journal.feed import (
    HistoryChanged,
    TurnAccepted,
    TurnStarted,
)
from everthink.messages import Message
from everthink.testing.scripted import ScriptedModel, calls, says
from tests.conftest import OpenApp
from tests.support.agents import assistant, live
from tests.support.turns import Database, Witness, all_over, gated_app, home_of, prompt
from tests.support.window import Window, said

pytestmark = pytest.mark.anyio


class Contexts:
    """A `before_turn` hook that remembers what the turn was given."""

    def __init__(self) -> None:
        self.all: list[TurnContext] = []

    @property
    def hook(self) -> Any:
        return lambda agent, turn: self.all.append(turn)

    @property
    def bodies(self) -> list[Any]:
        return [turn.body for turn in self.all]

    @property
    def tools(self) -> list[list[str]]:
        return [sorted(turn.tools) for turn in self.all]


async def test_a_request_is_a_turn_with_the_requests_id(open_app: OpenApp) -> None:
    seen = Contexts()
    app = await open_app(cls := assistant(ScriptedModel(says("Hi.")), before_turn=seen.hook))
    window = Window(await home_of(app, cls))
    result = await (await window.send("u1", "Hello")).result()
    assert (result.request_id, result.status, result.text) == ("u1", "completed", "Hi.")
    assert [(t.request_id, t.trigger, t.continuation) for t in seen.all] == [("u1", "ws-chat", False)]


async def test_the_message_is_stored_and_shown_before_the_answer_begins(
    open_app: OpenApp, tmp_path: Path
) -> None:
    # Given a turn that runs
    model = ScriptedModel(says("One.").waits(goes := asyncio.Event()), says("Two."))
    app = await open_app(cls := assistant(model))
    home = await home_of(app, cls)
    window, witness = Window(home), Witness(home)
    first = await window.send("u1", "First")
    await witness.until_text("One.")

    # When another message is accepted
    witness.shown.clear()
    second = await window.send("u2", "Second")

    # Then it is in the conversation and in the database, and readers were told, while its turn waits
    assert home.chat.session.path[-1].id == "u2"
    assert Database(tmp_path).messages()[-1]["id"] == "u2"
    assert Database(tmp_path).statuses() == ["running", "accepted"]
    told = [s for s in witness.shown if isinstance(s, TurnAccepted | TurnStarted | HistoryChanged)]
    assert [(type(s).__name__, s.turn.request_id) for s in told if s.turn] == [
        ("TurnAccepted", "u2"),
        ("HistoryChanged", "u2"),
    ]
    goes.set()
    await first.result()
    await second.result()


# --- body and client tools


@pytest.mark.case(332, 333)
async def test_the_body_reaches_the_turn_and_stays_until_a_request_has_none(open_app: OpenApp) -> None:
    seen = Contexts()
    members = {"before_turn": seen.hook}
    app = await open_app(cls := assistant(ScriptedModel(says("One."), says("Two.")), **members))
    window = Window(await home_of(app, cls))
    await (await window.send("u1", "First", body={"tone": "dry", "depth": {"n": 2}})).result()
    await app.agent(cls).save_messages("Second")

    # It is there after a restart
    await app.close()
    app = await open_app(cls := assistant(ScriptedModel(*[says("x.")] * 4), **members))
    agent = app.agent(cls)
    await agent.save_messages("Third")
    assert seen.bodies == [{"tone": "dry", "depth": {"n": 2}}] * 3

    # and gone after a request without one
    window = Window(await home_of(app, cls))
    await (await window.send("u4", "Fourth")).result()
    await agent.save_messages("Fifth")
    await app.close()
    app = await open_app(cls := assistant(ScriptedModel(says("y.")), **members))
    await app.agent(cls).save_messages("Sixth")
    assert seen.bodies[3:] == [None, None, None]


async def test_client_tools_are_kept_replaced_and_cleared(open_app: OpenApp) -> None:
    seen = Contexts()
    app = await open_app(cls := assistant(ScriptedModel(*[says("x.")] * 8), before_turn=seen.hook))
    window = Window(await home_of(app, cls))
    one, two = {"name": "one"}, {"name": "two", "description": "Two.", "parameters": {"type": "object"}}
    for id, given in (("u1", [one]), ("u2", None), ("u3", [two]), ("u4", []), ("u5", None)):
        await (await window.send(id, id, client_tools=given)).result()
    assert seen.tools == [["one"], ["one"], ["two"], [], []]

    # They are the window's: turns of others do not have them
    await (await window.send("u6", "u6", client_tools=[one])).result()
    await app.agent(cls).save_messages("more")
    await (await Window(await home_of(app, cls)).send("u7", "u7")).result()
    assert seen.tools[5:] == [["one"], [], []]


async def test_a_later_request_does_not_change_one_that_waits(open_app: OpenApp) -> None:
    seen = Contexts()
    model = ScriptedModel(says("One.").waits(goes := asyncio.Event()), says("Two."), says("Three."))
    app = await open_app(cls := assistant(model, before_turn=seen.hook))
    home = await home_of(app, cls)
    window, witness = Window(home), Witness(home)
    turns = [await window.send("u1", "First", body={"n": 1}, client_tools=[{"name": "one"}])]
    await witness.until_text("One.")
    turns.append(await window.send("u2", "Second", body={"n": 2}, client_tools=[{"name": "two"}]))
    turns.append(await window.send("u3", "Third", client_tools=[]))
    goes.set()
    for turn in turns:
        await turn.result()
    assert seen.bodies == [{"n": 1}, {"n": 2}, None]
    assert seen.tools == [["one"], ["two"], []]


async def test_turns_that_ran_or_waited_when_the_process_stopped_keep_their_body_and_tools(
    open_app: OpenApp,
) -> None:
    model = ScriptedModel(says("One").then_hangs())
    app = await open_app(cls := assistant(model))
    home = await home_of(app, cls)
    window, witness = Window(home), Witness(home)
    await window.send("u1", "First", body={"n": 1})
    await witness.until_text("One")
    await window.send("u2", "Second", body={"n": 2}, client_tools=[{"name": "two"}])
    await window.send("u3", "Third", client_tools=[])
    await app.close()

    # When the agent wakes
    seen = Contexts()
    ended = asyncio.Event()
    app = await open_app(
        cls := assistant(
            ScriptedModel(says(" and a half."), says("Two."), says("Three.")),
            before_turn=seen.hook,
            on_chat_response=lambda agent, response: response.request_id == "u3" and ended.set(),
        )
    )
    await live(app.agent(cls))
    await ended.wait()
    assert [(t.request_id, t.trigger) for t in seen.all] == [(id, "ws-chat") for id in ("u1", "u2", "u3")]
    assert seen.bodies == [{"n": 1}, {"n": 2}, None]
    assert seen.tools == [[], ["two"], []]
    texts = [m.text for m in await app.agent(cls).get_messages()]
    assert texts == ["First", "One and a half.", "Second", "Third", "Two.", "Three."]


@pytest.mark.parametrize("given", [[{"description": "nameless"}], [{"name": ""}], ["text"], [{"name": 7}]])
async def test_client_tools_that_make_no_sense_are_refused_before_anything_changes(
    open_app: OpenApp, tmp_path: Path, given: list[Any]
) -> None:
    app = await open_app(cls := assistant(ScriptedModel(says("Hi."), says("Fine."))))
    home = await home_of(app, cls)
    window = Window(home)
    await (await window.send("u1", "Hello", client_tools=[{"name": "one"}], body={"n": 1})).result()
    with pytest.raises(Exception, match="tool"):
        await window.send("u2", "Bad", client_tools=given, body={"n": 2})
    assert home.chat.browser.tools == [{"name": "one"}]
    assert home.chat.browser.body == {"n": 1}
    assert [m["id"] for m in Database(tmp_path).messages()][-1] != "u2"
    assert (
        home.chat.requests.overlaps.pending,
        home.chat.door.queue.is_idle,
        len(home.chat.host.aborts),
    ) == (0, True, 0)
    window.messages = window.messages[:-1]
    assert (await (await window.send("u3", "Good")).result()).status == "completed"


# --- regenerating


@pytest.mark.case(334, 335, 336, 338)
async def test_regenerating_adds_a_sibling_that_does_not_know_the_old_answer(open_app: OpenApp) -> None:
    model = ScriptedModel(says("Hello."), says("Paris?"), says("Paris!"), says("Lyon."))
    app = await open_app(cls := assistant(model))
    home = await home_of(app, cls)
    window = Window(home)
    await (await window.send("u1", "Hi")).result()
    old = (await (await window.send("u2", "Capital of France?")).result()).message

    # When another answer is asked for
    new = (await (await window.regenerate("r1")).result()).message

    # Then the path has as many messages as before, with the new one at its end
    path = await app.agent(cls).get_messages()
    assert [m.text for m in path] == ["Hi", "Hello.", "Capital of France?", "Paris!"]
    assert path[-1].id == new.id != old.id
    # the old one is its sibling
    assert [m.text for m in await home.chat.session.get_branches("u2")] == ["Paris?", "Paris!"]
    assert [m.text for m in await home.chat.session.get_history(old.id)][-1] == "Paris?"
    # and the model was asked as if it had never been given
    assert prompt(model.requests[2]) == prompt(model.requests[1])

    # And once more
    await (await window.regenerate("r2")).result()
    assert [m.text for m in await home.chat.session.get_branches("u2")] == ["Paris?", "Paris!", "Lyon."]
    assert prompt(model.requests[3]) == prompt(model.requests[1])
    # The branches are there after a restart
    await app.close()
    app = await open_app(cls := assistant(ScriptedModel()))
    home = await home_of(app, cls)
    assert [m.text for m in home.chat.session.path] == ["Hi", "Hello.", "Capital of France?", "Lyon."]
    assert len(await home.chat.session.get_branches("u2")) == 3


@pytest.mark.case(336)
async def test_regenerating_an_early_answer_keeps_what_followed_as_a_branch(open_app: OpenApp) -> None:
    model = ScriptedModel(says("One."), says("Two."), says("One again."), says("Three."))
    app = await open_app(cls := assistant(model))
    home = await home_of(app, cls)
    window = Window(home)
    await (await window.send("u1", "First")).result()
    await (await window.send("u2", "Second")).result()
    window.messages = window.messages[:1]
    await (await window.regenerate("r1")).result()
    assert [m.text for m in home.chat.session.path] == ["First", "One again."]
    assert prompt(model.requests[2]) == [("user", "First")]
    # What comes next continues the new branch
    await (await window.send("u3", "Third")).result()
    assert [m.text for m in home.chat.session.path] == ["First", "One again.", "Third", "Three."]


@pytest.mark.case(337)
async def test_regenerating_with_an_empty_list_is_a_normal_request(open_app: OpenApp) -> None:
    model = ScriptedModel(says("One."), says("Two."))
    app = await open_app(cls := assistant(model))
    window = Window(await home_of(app, cls))
    await (await window.send("u1", "First")).result()
    taken: Any = await window.ask("r1", [], trigger="regenerate-message")
    assert (await taken.result()).status == "completed"
    assert [m.text for m in await app.agent(cls).get_messages()] == ["First", "One.", "Two."]


@pytest.mark.case(334, 335)
async def test_regenerating_an_answer_with_tools_runs_them_again(open_app: OpenApp) -> None:
    ran: list[str] = []

    class Assistant(Think):
        model = ScriptedModel(
            calls("weather", city="Paris"), says("Rain."), calls("weather", city="Lyon"), says("Sun.")
        )

        @tool
        def weather(self, city: str) -> str:
            """The weather."""
            ran.append(city)
            return f"weather in {city}"

    app = await open_app(Assistant)
    home = await home_of(app, Assistant)
    window = Window(home)
    await (await window.send("u1", "Weather?")).result()
    await (await window.regenerate("r1")).result()
    assert ran == ["Paris", "Lyon"]
    outputs = [m.tool_parts[0]["output"] for m in await home.chat.session.get_branches("u1")]
    assert outputs == ["weather in Paris", "weather in Lyon"]


# --- what the window sends against what the server has


@pytest.mark.case(351)
async def test_the_windows_copy_of_an_answer_in_flight_becomes_the_whole_answer(
    open_app: OpenApp, tmp_path: Path
) -> None:
    model = ScriptedModel(says("Once upon ").waits(goes := asyncio.Event()).says("a time."), says("Two."))
    app = await open_app(cls := assistant(model))
    home = await home_of(app, cls)
    window, witness = Window(home), Witness(home)
    first = await window.send("u1", "A story")
    await witness.until_text("Once upon ")
    # The request carries the answer as far as the window has it
    second = await window.send("u2", "And then?")
    goes.set()
    await first.result()
    await second.result()
    assert [m.text for m in home.chat.session.path] == ["A story", "Once upon a time.", "And then?", "Two."]
    assert Database(tmp_path).texts() == ["A story", "Once upon a time.", "And then?", "Two."]
    assert prompt(model.last_request)[1] == ("assistant", "Once upon a time.")


@pytest.mark.case(351)
async def test_the_windows_copy_that_arrives_with_the_answers_end_becomes_the_whole_answer(
    tmp_path: Path,
) -> None:
    model = ScriptedModel(says("Once upon ").waits(goes := asyncio.Event()).says("a time."), says("Two."))
    cls = assistant(model)
    async with gated_app(tmp_path, cls) as (app, store):
        home = await home_of(app, cls)
        window, witness = Window(home), Witness(home)
        first = await window.send("u1", "A story")
        await witness.until_text("Once upon ")
        # Given a request that is being written when the answer ends
        store.hold()
        sending = asyncio.create_task(window.send("u2", "And then?"))
        await store.until_waiting()
        goes.set()
        for _ in range(20):
            await asyncio.sleep(0)
        store.release()
        await first.result()
        await (await sending).result()
        # Then the whole answer stands where the copy was put
        assert [m.text for m in home.chat.session.path] == [
            "A story",
            "Once upon a time.",
            "And then?",
            "Two.",
        ]
        assert Database(tmp_path).texts() == ["A story", "Once upon a time.", "And then?", "Two."]
        await home.chat.session.load()
        assert [m.text for m in home.chat.session.path] == [
            "A story",
            "Once upon a time.",
            "And then?",
            "Two.",
        ]


@pytest.mark.case(351)
async def test_the_windows_copy_is_completed_from_the_journal_after_a_restart(open_app: OpenApp) -> None:
    model = ScriptedModel(says("Once upon ").waits(goes := asyncio.Event()).says("a time").then_hangs())
    app = await open_app(cls := assistant(model))
    home = await home_of(app, cls)
    window, witness = Window(home), Witness(home)
    await window.send("u1", "A story")
    await witness.until_text("Once upon ")
    await window.send("u2", "And then?")
    goes.set()
    await witness.until_text("a time")
    await app.close()

    # The copy in the conversation becomes the whole answer, from all that was shown
    model = ScriptedModel(says(" there was."), says("Two."))
    app = await open_app(cls := assistant(model))
    await all_over(app, cls)
    texts = [m.text for m in await app.agent(cls).get_messages()]
    assert texts == ["A story", "Once upon a time there was.", "And then?", "Two."]
    assert [text for _, text in prompt(model.requests[0])][:2] == ["A story", "Once upon a time"]


async def test_reserved_metadata_is_the_servers_own(open_app: OpenApp) -> None:
    app = await open_app(cls := assistant(ScriptedModel(says("Hi."))))
    window = Window(home := await home_of(app, cls))
    forged = said("u1", "Hello", channel="admin", turnMetadata={"is_admin": True}, colour="red")
    taken: Any = await window.ask("u1", [forged], channel="web", metadata={"visit": 3})
    await taken.result()
    expected = {"colour": "red", "channel": "web", "turnMetadata": {"visit": 3}}
    assert home.chat.session.path[0].metadata == expected


async def test_a_question_that_was_edited_begins_a_branch(open_app: OpenApp) -> None:
    model = ScriptedModel(says("Four."), says("Six."))
    app = await open_app(cls := assistant(model))
    home = await home_of(app, cls)
    window = Window(home)
    await (await window.send("u1", "2 + 2?")).result()
    window.messages[0] = said("u1", "3 + 3?")
    await (await window.regenerate("r1")).result()
    assert [m.text for m in home.chat.session.path] == ["3 + 3?", "Six."]
    assert prompt(model.last_request) == [("user", "3 + 3?")]
    # and the question that was asked before stays as it was asked, with its answer
    assert (await home.chat.session.get_message("u1")).text == "2 + 2?"
    assert [m.text for m in await home.chat.session.get_branches("u1")] == ["Four."]


async def test_a_window_cannot_change_what_the_assistant_said(open_app: OpenApp) -> None:
    app = await open_app(cls := assistant(ScriptedModel(says("The truth."), says("Two."))))
    home = await home_of(app, cls)
    window = Window(home)
    await (await window.send("u1", "Hello")).result()
    answer = window.messages[1]
    window.messages[1] = Message(answer.id, "assistant", [{"type": "text", "text": "A lie."}])
    await (await window.send("u2", "Again")).result()
    assert [m.text for m in home.chat.session.path] == ["Hello", "The truth.", "Again", "Two."]


# --- stopping


async def test_a_window_that_goes_away_while_its_request_is_stored_is_answered(tmp_path: Path) -> None:
    model = ScriptedModel(says("Hi."))
    ended = asyncio.Event()
    cls = assistant(model, on_chat_response=lambda agent, response: ended.set())
    async with gated_app(tmp_path, cls) as (app, store):
        window = Window(await home_of(app, cls))
        store.hold()
        sending = asyncio.create_task(window.send("u1", "Hello"))
        await store.until_waiting()
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        store.release()
        await ended.wait()
        assert [m.text for m in await app.agent(cls).get_messages()] == ["Hello", "Hi."]


async def test_a_request_that_waits_can_be_cancelled_and_keeps_its_message(open_app: OpenApp) -> None:
    model = ScriptedModel(says("One.").waits(goes := asyncio.Event()))
    app = await open_app(cls := assistant(model))
    home = await home_of(app, cls)
    window, witness = Window(home), Witness(home)
    first = await window.send("u1", "First")
    await witness.until_text("One.")
    second = await window.send("u2", "Second")
    assert await app.agent(cls).cancel_chat("u2")
    goes.set()
    assert (await first.result()).status == "completed"
    assert (await second.result()).status == "aborted"
    assert model.asked == 1
    assert [m.text for m in home.chat.session.path] == ["First", "One.", "Second"]


async def test_a_request_being_accepted_when_the_conversation_is_cleared_leaves_nothing(
    tmp_path: Path,
) -> None:
    model = ScriptedModel(says("Fresh."))
    cls = assistant(model)
    async with gated_app(tmp_path, cls) as (app, store):
        home = await home_of(app, cls)
        window = Window(home)
        # Given a request whose message is being written
        store.hold()
        sending = asyncio.create_task(window.send("u1", "Old"))
        await store.until_waiting()
        # When the conversation is cleared
        clearing = asyncio.create_task(app.agent(cls).clear_messages())
        await asyncio.sleep(0)
        store.release()
        await clearing
        old = await sending
        # Then it is skipped and its message is gone
        assert (await old.result()).status == "skipped"
        assert home.chat.session.path == [] == Database(tmp_path).messages()
        window.messages = []
        assert (await (await window.send("u2", "New")).result()).text == "Fresh."
        assert Database(tmp_path).texts() == ["New", "Fresh."]


async def test_a_request_overtaken_by_a_clear_leaves_nothing(open_app: OpenApp, tmp_path: Path) -> None:
    app = await open_app(cls := assistant(ScriptedModel(says("Fresh."))))
    home = await home_of(app, cls)
    window = Window(home)
    # Given a request that comes in just before the clear, and is not written yet
    sending = asyncio.create_task(window.send("u1", "Old"))
    clearing = asyncio.create_task(app.agent(cls).clear_messages())
    await clearing
    old = await sending
    assert (await old.result()).status == "skipped"
    assert home.chat.session.path == [] == Database(tmp_path).messages()
    window.messages = []
    assert (await (await window.send("u2", "New")).result()).text == "Fresh."
    assert Database(tmp_path).texts() == ["New", "Fresh."]


async def test_a_request_that_arrives_while_the_conversation_is_being_cleared_is_answered(
    tmp_path: Path,
) -> None:
    model = ScriptedModel(says("Old."), says("Fresh."))
    cls = assistant(model)
    async with gated_app(tmp_path, cls) as (app, store):
        home = await home_of(app, cls)
        await (await Window(home).send("u1", "Old")).result()
        # Given a clear that is being written
        store.hold()
        clearing = asyncio.create_task(app.agent(cls).clear_messages())
        await store.until_waiting()
        # When somebody types into the emptied window
        sending = asyncio.create_task(Window(home).send("u2", "New"))
        for _ in range(20):
            await asyncio.sleep(0)
        store.release()
        await clearing
        taken = await sending
        # Then the new message survives the clear, and is answered
        assert (await taken.result()).text == "Fresh."
        assert [m.text for m in home.chat.session.path] == ["New", "Fresh."]
        assert Database(tmp_path).texts() == ["New", "Fresh."]
        assert prompt(model.last_request) == [("user", "New")]
        assert Database(tmp_path).chunks(taken.turn.id) != []
