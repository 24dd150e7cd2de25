"""Results and approvals that reach a living agent, before and after its message is stored."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from everthink import App, tool
from everthink.door.chat_request import ChatRequest
from everthink.journal.feed import FeedEvent, MessageUpdated
from everthink.messages import Message, user_message
from everthink.testing.scripted import Play, ScriptedModel, calls, says
from tests.conftest import OpenApp
from tests.support.agents import assistant, live
from tests.support.turns import accept_request

pytestmark = pytest.mark.anyio

PICK = {"name": "pick", "description": "Pick a file.", "parameters": {"type": "object"}}


@tool(needs_approval=True)
def delete(path: str) -> str:
    """Delete a file."""
    return f"deleted {path}"


@tool
def read(path: str) -> str:
    """Read a file."""
    return f"read {path}"


class Room:
    """A chat whose browser offers `pick`."""

    def __init__(self, app: App, handle: Any, model: ScriptedModel) -> None:
        self.app, self.handle, self.model = app, handle, model
        self.shown: list[FeedEvent] = []

    @property
    def updates(self) -> list[Message]:
        return [event.message for event in self.shown if isinstance(event, MessageUpdated)]

    async def home(self) -> Any:
        return (await live(self.handle))._home

    async def begin(self, text: str = "Go") -> Any:
        """Send a message; returns the admitted turn."""
        home = await self.home()
        home.feed.join(self.shown.append)
        messages = [user_message(text, id=f"u-{text}")]
        return await accept_request(home, ChatRequest(f"r-{text}", messages, client_tools=[PICK]))

    async def ask(self, text: str = "Go") -> None:
        """Send a message and wait for the end of its turn."""
        await (await self.begin(text)).result()

    async def restart(self) -> None:
        await self.app.evict(self.handle._cls, self.handle.name)

    async def parts(self) -> dict[str, dict[str, Any]]:
        """The tool parts of the conversation by call id, as a new process reads them."""
        await self.restart()
        return {p["toolCallId"]: p for m in await self.handle.get_messages() for p in m.tool_parts}


@pytest.fixture
async def room(open_app: OpenApp) -> Any:
    async def open_(*plays: Play, **members: Any) -> Room:
        model = ScriptedModel(*plays)
        cls = assistant(model, get_tools=lambda self: [delete, read], **members)
        app = await open_app(cls)
        return Room(app, app.agent(cls, "room"), model)

    return open_


@pytest.mark.case(254, 274, 275)
async def test_a_result_is_stored_announced_and_there_after_a_restart(room: Any) -> None:
    chat: Room = await room(calls("pick", id="c"))
    await chat.ask()
    assert await chat.handle.apply_tool_result("c", {"file": "a.txt"})
    (updated,) = chat.updates
    assert updated.tool_parts[0]["output"] == {"file": "a.txt"}
    part = (await chat.parts())["c"]
    assert (part["state"], part["output"]) == ("output-available", {"file": "a.txt"})


@pytest.mark.case(255, 256)
@pytest.mark.parametrize("text", ["no camera", None])
async def test_a_failed_result_is_stored_with_its_text_or_a_default(room: Any, text: str | None) -> None:
    chat: Room = await room(calls("pick", id="c"), says("Then not."))
    await chat.ask()
    assert await chat.handle.apply_tool_result("c", is_error=True, error_text=text)
    part = (await chat.parts())["c"]
    assert (part["state"], part["errorText"]) == ("output-error", text or "Tool execution denied by user")
    # and the model reads it
    await chat.handle.continue_last_turn()
    assert chat.model.last_request.messages[-1].content[0].output == part["errorText"]


@pytest.mark.case(257, 258, 263, 264, 269)
async def test_what_is_settled_stays_and_nobody_is_told(room: Any) -> None:
    # Given one call that has its result and one that was denied
    chat: Room = await room(calls("pick", id="c").calls("delete", path="x", id="d"))
    await chat.ask()
    await chat.handle.apply_tool_result("c", 1)
    await chat.handle.apply_tool_approval("d", False)
    before = await chat.handle.get_messages()
    chat.shown.clear()

    # When more arrives for them, and for a call nobody made
    assert not await chat.handle.apply_tool_result("c", 2)
    assert not await chat.handle.apply_tool_result("d", 2)
    assert not await chat.handle.apply_tool_approval("c", True)
    assert not await chat.handle.apply_tool_approval("d", True)
    assert not await chat.handle.apply_tool_approval("unknown", True)
    assert not await chat.handle.apply_tool_result("unknown", 2)

    # Then nothing has changed and nothing was announced
    assert chat.shown == []
    assert await chat.handle.get_messages() == before


@pytest.mark.case(261, 262, 265, 275)
@pytest.mark.parametrize(("approved", "state"), [(True, "approval-responded"), (False, "output-denied")])
async def test_an_approval_is_stored_with_what_is_known_of_it(room: Any, approved: bool, state: str) -> None:
    chat: Room = await room(calls("delete", path="x", id="d"))
    await chat.ask()
    asked = (await chat.handle.get_messages())[-1].tool_parts[0]
    assert asked["state"] == "approval-requested"
    assert await chat.handle.apply_tool_approval("d", approved, reason="because")
    part = (await chat.parts())["d"]
    assert part["state"] == state
    assert part["approval"] == {"id": asked["approval"]["id"], "approved": approved, "reason": "because"}
    assert [m.tool_parts[0]["state"] for m in chat.updates] == [state]


@pytest.mark.case(259)
async def test_a_result_is_taken_while_approval_is_asked_for(room: Any) -> None:
    chat: Room = await room(calls("delete", path="x", id="d"))
    await chat.ask()
    assert await chat.handle.apply_tool_result("d", "did it by hand")
    assert (await chat.parts())["d"]["output"] == "did it by hand"


@pytest.mark.case(270, 273)
@pytest.mark.parametrize("count", [2, 12])
async def test_results_that_overlap_all_survive(room: Any, count: int) -> None:
    # Given many calls of one message that the browser runs at once
    play = says("Pick.")
    for number in range(count):
        play = play.calls("pick", id=f"c{number}")
    chat: Room = await room(play, says("Thanks."))
    await chat.ask()

    # When all results arrive together
    handle = chat.handle
    taken = await asyncio.gather(*(handle.apply_tool_result(f"c{n}", n) for n in range(count)))

    # Then each is stored, and the next turn repairs none of them
    assert all(taken)
    assert {id: part["output"] for id, part in (await chat.parts()).items()} == {
        f"c{n}": n for n in range(count)
    }
    await handle.continue_last_turn()
    results = chat.model.last_request.messages[2].content
    assert [(result.id, result.output) for result in results] == [(f"c{n}", n) for n in range(count)]


@pytest.mark.case(270)
async def test_of_two_results_for_one_call_the_first_is_kept(room: Any) -> None:
    chat: Room = await room(calls("pick", id="c"))
    await chat.ask()
    handle = chat.handle
    assert await asyncio.gather(handle.apply_tool_result("c", 1), handle.apply_tool_result("c", 2)) == [
        True,
        False,
    ]
    assert (await chat.parts())["c"]["output"] == 1


@pytest.mark.case(271, 272, 274)
async def test_a_result_that_comes_during_the_stream_lands_in_the_message_and_is_not_repaired(
    room: Any,
) -> None:
    # Given an answer that goes on after its call
    go_on = asyncio.Event()
    chat: Room = await room(calls("pick", id="c").says("Please ").waits(go_on).says("pick."), says("Thanks."))
    turn = await chat.begin()
    await chat.model.until_silent()

    # When the result arrives before the message is stored
    assert await chat.handle.apply_tool_result("c", "a.txt")
    (updated,) = chat.updates
    assert (updated.text, updated.tool_parts[0]["output"]) == ("Please ", "a.txt")
    go_on.set()
    await turn.result()

    # Then the stored message has both, and the next turn shows the model the result
    _, answer = await chat.handle.get_messages()
    assert (answer.text, answer.tool_parts[0]["output"]) == ("Please pick.", "a.txt")
    assert (await chat.parts())["c"]["state"] == "output-available"
    await chat.ask("More")
    assert "a.txt" in [
        part.output
        for m in chat.model.last_request.messages
        for part in getattr(m, "content", [])
        if hasattr(part, "output")
    ]


@pytest.mark.case(271)
@pytest.mark.parametrize(("approved", "state"), [(True, "approval-responded"), (False, "output-denied")])
async def test_an_approval_that_comes_during_the_stream_lands_in_the_message(
    room: Any, approved: bool, state: str
) -> None:
    go_on = asyncio.Event()
    chat: Room = await room(calls("delete", path="x", id="d").says("May ").waits(go_on).says("I?"))
    turn = await chat.begin()
    await chat.model.until_silent()
    assert await chat.handle.apply_tool_approval("d", approved)
    assert not await chat.handle.apply_tool_approval("d", not approved)
    go_on.set()
    await turn.result()
    part = (await chat.parts())["d"]
    assert (part["state"], part["approval"]["approved"]) == (state, approved)


@pytest.mark.case(269)
async def test_a_result_that_comes_during_the_stream_wins_over_a_later_one(room: Any) -> None:
    go_on = asyncio.Event()
    chat: Room = await room(calls("pick", id="c").says("so").waits(go_on))
    turn = await chat.begin()
    await chat.model.until_silent()
    assert await chat.handle.apply_tool_result("c", 1)
    assert not await chat.handle.apply_tool_result("c", 2)
    go_on.set()
    await turn.result()
    assert not await chat.handle.apply_tool_result("c", 3)
    assert (await chat.parts())["c"]["output"] == 1


# --- does anything wait for a person?


async def waits(chat: Room) -> bool:
    return (await live(chat.handle)).has_pending_interaction()


@pytest.mark.case(498)
async def test_a_browser_tool_is_pending_until_its_result_also_after_a_restart(room: Any) -> None:
    chat: Room = await room(calls("pick", id="c"))
    assert not await waits(chat)
    await chat.ask()
    assert await waits(chat)
    await chat.restart()
    assert await waits(chat)
    await chat.handle.apply_tool_result("c", 1)
    assert not await waits(chat)


@pytest.mark.case(499)
@pytest.mark.parametrize("approved", [True, False])
async def test_an_approval_is_pending_until_it_is_answered(room: Any, approved: bool) -> None:
    chat: Room = await room(calls("delete", path="x", id="d"))
    await chat.ask()
    assert await waits(chat)
    await chat.handle.apply_tool_approval("d", approved)
    assert not await waits(chat)


@pytest.mark.case(500)
async def test_a_call_of_ours_that_never_ended_waits_for_nobody(room: Any) -> None:
    chat: Room = await room()
    dead = {"type": "tool-read", "toolCallId": "r", "state": "input-available", "input": {}}
    await chat.handle.add_messages([Message("a", "assistant", [dead])])
    assert not await waits(chat)


@pytest.mark.case(501, 503)
async def test_a_pending_call_of_the_running_answer_is_seen_and_its_result_too(room: Any) -> None:
    go_on = asyncio.Event()
    chat: Room = await room(calls("pick", id="c").says("Pick.").waits(go_on))
    turn = await chat.begin()
    await chat.model.until_silent()
    assert await waits(chat)
    await chat.handle.apply_tool_result("c", 1)
    assert not await waits(chat)
    go_on.set()
    await turn.result()
    assert not await waits(chat)


@pytest.mark.case(502)
async def test_a_call_of_ours_in_the_running_answer_is_not_pending(open_app: OpenApp) -> None:
    # Given a tool of the server that takes its time
    started, go_on = asyncio.Event(), asyncio.Event()

    @tool
    async def slow() -> str:
        """Take long."""
        started.set()
        await go_on.wait()
        return "done"

    model = ScriptedModel(calls("slow"), says("Done."))
    app = await open_app(cls := assistant(model, get_tools=lambda self: [slow]))
    handle = app.agent(cls, "room")
    turn = asyncio.create_task(handle.save_messages("Go"))
    await started.wait()
    assert not (await live(handle)).has_pending_interaction()
    go_on.set()
    assert (await turn).status == "completed"
