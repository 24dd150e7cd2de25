"""`message_concurrency` at work: messages that arrive while a turn runs."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from everthink.chat import Debounce
from everthink.door.chat_request import Dropped
from everthink.journal.feed import TurnEnded
from everthink.testing.clock import ManualClock
from everthink.testing.scripted import ScriptedModel, says
from tests.conftest import OpenApp
from tests.support.agents import assistant
from tests.support.turns import Database, Witness, home_of, prompt, record_events
from tests.support.window import Window

pytestmark = pytest.mark.anyio


class Room:
    """An agent whose first answer waits, a window on it, and what its response hook was told."""

    def __init__(self, policy: Any, *answers: str, clock: ManualClock | None = None) -> None:
        self.goes, self.clock = asyncio.Event(), clock
        first, *rest = answers
        self.model = ScriptedModel(says(first).waits(self.goes), *(says(text) for text in rest))
        self.responses: list[str] = []
        self.cls = assistant(
            self.model,
            message_concurrency=policy,
            on_chat_response=lambda agent, response: self.responses.append(response.request_id),
        )

    async def open(self, open_app: OpenApp) -> Room:
        self.app = await open_app(self.cls, **({"clock": self.clock} if self.clock else {}))
        self.agent = self.app.agent(self.cls)
        self.home = await home_of(self.app, self.cls)
        self.window = Window(self.home)
        self.witness = Witness(self.home)
        return self

    async def texts(self) -> list[str]:
        return [message.text for message in await self.agent.get_messages()]


async def statuses(*turns: Any) -> list[str]:
    return [(await turn.result()).status for turn in turns]


@pytest.mark.case(339)
async def test_queue_answers_every_message_in_order(open_app: OpenApp) -> None:
    room = await Room("queue", "One.", "Two.", "Three.").open(open_app)
    turns = [await room.window.send("u1", "First")]
    await room.witness.until_text("One.")
    turns += [await room.window.send("u2", "Second"), await room.window.send("u3", "Third")]
    room.goes.set()
    assert await statuses(*turns) == ["completed"] * 3
    assert await room.texts() == ["First", "One.", "Second", "Third", "Two.", "Three."]
    assert room.responses == ["u1", "u2", "u3"]
    # Each turn sees what came before, and has something to answer
    assert prompt(room.model.requests[1])[:3] == [
        ("user", "First"),
        ("assistant", "One."),
        ("user", "Second"),
    ]


@pytest.mark.case(149, 340, 341)
@pytest.mark.parametrize("policy", ["latest", "merge"])
async def test_latest_and_merge_store_every_message_and_answer_the_newest(
    open_app: OpenApp, tmp_path: Path, policy: str
) -> None:
    room = await Room(policy, "One.", "All of it.").open(open_app)
    events = record_events(room.app, "chat:turn:start", "chat:request:failed")
    first = await room.window.send("u1", "First")
    await room.witness.until_text("One.")
    second = await room.window.send("u2", "Second")
    third = await room.window.send("u3", "Third")

    # All three are stored before anything is answered
    assert [m["id"] for m in Database(tmp_path).messages() if m["role"] == "user"] == ["u1", "u2", "u3"]
    room.goes.set()

    # Then the first ran, the second was skipped without an error, the third ran with both
    assert await statuses(first, second, third) == ["completed", "skipped", "completed"]
    assert await room.texts() == ["First", "One.", "Second", "Third", "All of it."]
    assert room.model.asked == 2
    asked = prompt(room.model.last_request)
    assert asked == [("user", "First"), ("assistant", "One."), ("user", "Second"), ("user", "Third")]
    # and hooks, events and readers know of those that ran
    assert room.responses == ["u1", "u3"]
    assert [event.payload["requestId"] for event in events] == ["u1", "u3"]
    ends = [(s.turn.request_id, s.status, s.error) for s in room.witness.shown if isinstance(s, TurnEnded)]
    assert ends == [("u1", "completed", None), ("u2", "skipped", None), ("u3", "completed", None)]
    assert Database(tmp_path).statuses() == ["completed", "skipped", "completed"]


@pytest.mark.case(340)
async def test_the_first_message_is_never_superseded(open_app: OpenApp) -> None:
    room = await Room("latest", "One.", "Two.", "Three.").open(open_app)
    room.goes.set()
    for id, text in (("u1", "First"), ("u2", "Second"), ("u3", "Third")):
        assert await statuses(await room.window.send(id, text)) == ["completed"]
    assert await room.texts() == ["First", "One.", "Second", "Two.", "Third", "Three."]


@pytest.mark.case(342)
async def test_debounce_answers_after_a_quiet_time_and_only_the_newest(open_app: OpenApp) -> None:
    clock = ManualClock()
    room = await Room(Debounce(0.5), "One.", "Two.", clock=clock).open(open_app)
    first = await room.window.send("u1", "First")
    await room.witness.until_text("One.")

    # Given a message that overlaps, and a turn that ends 0.2 seconds later
    second = await room.window.send("u2", "Second")
    await clock.advance(0.2)
    room.goes.set()
    await first.result()
    await clock.until_waiting()

    # When another one is typed before the half second is over
    await clock.advance(0.2)
    third = await room.window.send("u3", "Third")
    await clock.advance(0.1)
    assert await statuses(second) == ["skipped"]

    # Then its own half second counts
    await clock.until_waiting()
    await clock.advance(0.39)
    assert room.model.asked == 1
    assert not third.ended.done()
    await clock.advance(0.01)
    assert await statuses(third) == ["completed"]
    assert await room.texts() == ["First", "One.", "Second", "Third", "Two."]


async def test_nobody_is_kept_waiting_by_somebody_who_never_stops_typing(open_app: OpenApp) -> None:
    # Given somebody who asks, and somebody else who writes again before each quiet moment is over
    clock = ManualClock()
    room = await Room(Debounce(0.5), "One.", "Two.", clock=clock).open(open_app)
    first = await room.window.send("u1", "First")
    await room.witness.until_text("One.")
    sent = [await room.window.send("ada", "Ada asks")]
    room.goes.set()
    await first.result()
    for number in range(16):
        await clock.until_waiting()
        await clock.advance(0.3)
        assert room.model.asked == 1
        sent.append(await room.window.send(f"dot{number}", "."))
    await clock.until_waiting()
    await clock.advance(0.21)
    # Then it is answered after ten quiet moments, with all that was said until then
    assert await statuses(sent[-1]) == ["completed"]
    assert (await room.texts())[2:] == ["Ada asks", *["."] * 16, "Two."]


@pytest.mark.case(342)
async def test_a_quiet_time_that_passed_while_the_first_turn_ran_is_not_waited_for_again(
    open_app: OpenApp,
) -> None:
    clock = ManualClock()
    room = await Room("debounce", "One.", "Two.", clock=clock).open(open_app)
    first = await room.window.send("u1", "First")
    await room.witness.until_text("One.")
    second = await room.window.send("u2", "Second")
    await clock.advance(0.75)
    room.goes.set()
    assert await statuses(first, second) == ["completed", "completed"]
    assert clock.waiting == 0


@pytest.mark.case(149, 343)
async def test_drop_takes_nothing_of_a_message_that_overlaps(open_app: OpenApp, tmp_path: Path) -> None:
    room = await Room("drop", "One.", "Two.").open(open_app)
    first = await room.window.send("u1", "First", body={"size": 1}, client_tools=[{"name": "one"}])
    await room.witness.until_text("One.")
    refused = await room.window.try_to_send("u2", "Second", body={"size": 2}, client_tools=[{"name": "two"}])
    assert refused == Dropped("u2")
    assert [m["id"] for m in Database(tmp_path).messages()] == ["u1"]
    assert len(Database(tmp_path).turns()) == 1
    room.goes.set()
    assert await statuses(first) == ["completed"]

    # Neither its body nor its tools were taken, and the next one is
    assert room.home.chat.browser.body == {"size": 1}
    assert room.home.chat.browser.tools == [{"name": "one"}]
    assert await statuses(await room.window.send("u3", "Third")) == ["completed"]
    assert await room.texts() == ["First", "One.", "Third", "Two."]
    assert room.responses == ["u1", "u3"]


@pytest.mark.case(344)
@pytest.mark.parametrize("policy", ["drop", "latest", Debounce(60)], ids=str)
async def test_policies_do_not_apply_to_a_regeneration_or_to_code(open_app: OpenApp, policy: Any) -> None:
    room = await Room(policy, "One.", "One again.", "Two.").open(open_app)
    first = await room.window.send("u1", "First")
    await room.witness.until_text("One.")
    again = await room.window.regenerate("again")
    code = asyncio.create_task(room.agent.save_messages("Second"))
    await room.witness.until_accepted(3)
    room.goes.set()
    assert await statuses(first, again) == ["completed", "completed"]
    assert (await code).status == "completed"
    assert await room.texts() == ["First", "One again.", "Second", "Two."]


@pytest.mark.case(349)
async def test_a_regeneration_does_not_supersede_a_message(open_app: OpenApp) -> None:
    room = await Room("latest", "One.", "Two.", "Two again.").open(open_app)
    first = await room.window.send("u1", "First")
    await room.witness.until_text("One.")
    second = await room.window.send("u2", "Second")
    again = await room.window.regenerate("again")
    room.goes.set()
    assert await statuses(first, second, again) == ["completed"] * 3


@pytest.mark.case(345)
@pytest.mark.parametrize("policy", ["queue", "latest", Debounce(60)], ids=str)
async def test_clearing_skips_what_waits_and_leaves_nothing(
    open_app: OpenApp, tmp_path: Path, policy: Any
) -> None:
    room = await Room(policy, "One.").open(open_app)
    turns = [await room.window.send("u1", "First")]
    await room.witness.until_text("One.")
    turns += [await room.window.send("u2", "Second"), await room.window.send("u3", "Third")]
    await room.agent.clear_messages()
    assert await statuses(*turns) == ["skipped"] * 3
    assert await room.agent.get_messages() == []
    assert Database(tmp_path).messages() == []
    assert room.model.asked == 1
    assert room.responses == []


@pytest.mark.case(345, 350)
async def test_clearing_ends_a_quiet_time(open_app: OpenApp) -> None:
    clock = ManualClock()
    room = await Room(Debounce(60), "One.", "Three.", clock=clock).open(open_app)
    first = await room.window.send("u1", "First")
    await room.witness.until_text("One.")
    second = await room.window.send("u2", "Second")
    room.goes.set()
    await first.result()
    await clock.until_waiting()
    await room.agent.clear_messages()
    # Nobody had to move the clock
    assert await statuses(second) == ["skipped"]
    assert clock.waiting == 0
    room.window.messages = []
    assert await statuses(await room.window.send("u3", "Third")) == ["completed"]
    assert await room.texts() == ["Third", "Three."]


@pytest.mark.case(346)
async def test_a_message_after_clearing_overlaps_nothing(open_app: OpenApp) -> None:
    room = await Room("drop", "One.", "Two.").open(open_app)
    first = await room.window.send("u1", "First")
    await room.witness.until_text("One.")
    await room.agent.clear_messages()
    room.window.messages = []
    second = await room.window.send("u2", "Second")
    assert await statuses(first, second) == ["skipped", "completed"]
    assert await room.texts() == ["Second", "Two."]


@pytest.mark.case(347)
async def test_messages_that_are_just_being_accepted_overlap(open_app: OpenApp) -> None:
    # Given an agent that has to read its conversation again before it can accept anything
    room = await Room("drop", "One.").open(open_app)
    room.home.chat.session.roll_back()
    room.goes.set()

    # When two windows type at the same moment
    taken = await asyncio.gather(
        room.window.try_to_send("u1", "First"), Window(room.home).try_to_send("u2", "Second")
    )

    # Then the second one overlaps the first, which is not in the queue yet
    assert taken[1] == Dropped("u2")
    assert await statuses(taken[0]) == ["completed"]
    assert await room.texts() == ["First", "One."]


@pytest.mark.case(349)
async def test_a_request_that_is_refused_supersedes_nobody(open_app: OpenApp) -> None:
    room = await Room("latest", "One.", "Two.").open(open_app)
    first = await room.window.send("u1", "First")
    await room.witness.until_text("One.")
    second = await room.window.send("u2", "Second")
    with pytest.raises(Exception, match="name"):
        await room.window.send("u3", "Third", client_tools=[{"description": "nameless"}])
    room.goes.set()
    assert await statuses(first, second) == ["completed", "completed"]
    assert room.home.chat.requests.overlaps.pending == 0


async def test_a_policy_nobody_knows_fails_the_request_and_not_the_agent(open_app: OpenApp) -> None:
    room = await Room("queue", "One.", "Two.").open(open_app)
    first = await room.window.send("u1", "First")
    await room.witness.until_text("One.")
    setattr(room.cls, "message_concurrency", "newest")  # noqa: B010 - no policy at all
    with pytest.raises(ValueError, match="message_concurrency is 'newest'"):
        await room.window.send("u2", "Second")
    room.goes.set()
    assert await statuses(first) == ["completed"]
