"""A program that talks to an agent over a real socket."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

import pytest

from everthink import Agent, Think, ToolContext, exposed, tool
from everthink import chunks as ui
from everthink.client import Reply, connect
from everthink.errors import AgentError, CallFailed, NotConnected, TurnFailed
from everthink.server import StreamingResponse
from everthink.testing import ScriptedModel, calls, fails, says

from ..support.agents import assistant
from .conftest import Enter, Serve

pytestmark = pytest.mark.anyio


async def text_of(reply: Reply) -> str:
    return "".join([chunk.delta async for chunk in reply if isinstance(chunk, ui.TextDelta)])


async def test_an_answer_comes_in_pieces_and_is_in_the_conversation(serve: Serve, enter: Enter) -> None:
    cls = assistant(ScriptedModel(says("Hello, ", "you."), says("Again.")))
    room = await enter(await serve(cls), cls)

    # When it is read as it comes, and as a whole
    reply = room.say("Hi")
    assert await text_of(reply) == "Hello, you."
    whole = await room.ask("And again?")

    # Then both are what is kept
    assert (reply.outcome, reply.message and reply.message.text) == ("completed", "Hello, you.")
    assert whole.text == "Again."
    assert [m.text for m in room.messages] == ["Hi", "Hello, you.", "And again?", "Again."]
    assert (room.agent, room.name) == ("assistant", "room")


async def test_who_comes_in_the_middle_of_an_answer_has_the_conversation_and_the_answer(
    serve: Serve, enter: Enter
) -> None:
    go = asyncio.Event()
    cls = assistant(ScriptedModel(says("First."), says("one ").waits(go).says("two."), says("Three.")))
    server = await serve(cls)
    first = await enter(server, cls)
    await first.ask("Hi")
    reply = first.say("Count")
    async for chunk in reply:
        if isinstance(chunk, ui.TextDelta):
            break

    second = await enter(server, cls)
    assert [m.text for m in second.messages][:3] == ["Hi", "First.", "Count"]
    go.set()
    await reply
    await second.ask("Next")
    assert [m.text for m in second.messages] == ["Hi", "First.", "Count", "one two.", "Next", "Three."]


async def test_who_comes_in_the_middle_of_an_answer_may_wait_for_the_rest_of_it(
    serve: Serve, enter: Enter
) -> None:
    go = asyncio.Event()
    cls = assistant(ScriptedModel(says("one ").waits(go).says("two.")))
    server = await serve(cls)
    first = await enter(server, cls)
    assert first.following() is None
    reply = first.say("Count")
    async for chunk in reply:
        if isinstance(chunk, ui.TextDelta):
            break

    second = await enter(server, cls)
    rest = second.following()
    assert rest is not None
    assert second.following() is rest
    go.set()
    assert (await rest).text == (await reply).text == "one two."
    assert second.following() is None


async def test_a_turn_that_fails_raises_what_people_are_told(serve: Serve, enter: Enter) -> None:
    cls = assistant(ScriptedModel(says("Half ").then_fails("The model is tired."), says("Whole.")))
    room = await enter(await serve(cls), cls)

    reply = room.say("Hi")
    with pytest.raises(TurnFailed, match=r"The model is tired\. What was said before"):
        await text_of(reply)
    assert await reply.ended() == "error"

    # The conversation goes on
    assert (await room.ask("Once more")).text == "Whole."


async def test_an_answer_can_be_stopped_and_asked_for_again(serve: Serve, enter: Enter) -> None:
    cls = assistant(ScriptedModel(says("Much ").then_hangs(), says("Better.")))
    room = await enter(await serve(cls), cls)
    reply = room.say("Hi")
    async for chunk in reply:
        if isinstance(chunk, ui.TextDelta):
            await reply.cancel()
    assert (reply.outcome, reply.message and reply.message.text) == ("aborted", "Much ")

    again = await room.regenerate()
    assert again.text == "Better."
    assert [m.text for m in room.messages] == ["Hi", "Better."]


def deleting(*plays: Any) -> type[Think]:
    class Careful(Think):
        model = ScriptedModel(*plays)

        @tool(needs_approval=True)
        def delete(self, path: str) -> str:
            """Delete a file."""
            return f"{path} is gone"

    return Careful


async def test_the_agent_goes_on_when_all_calls_are_decided(serve: Serve, enter: Enter) -> None:
    two = calls("delete", {"path": "a"}, id="c1").calls("delete", {"path": "b"}, id="c2")
    cls = deleting(two, says("One is gone."))
    room = await enter(await serve(cls), cls)
    await room.ask("Delete a and b")
    assert [part["toolCallId"] for part in room.to_approve] == ["c1", "c2"]

    # When one is allowed and the other is not
    first = await room.approve("c1")
    second = await room.approve("c2", False)

    # Then there is one answer to both
    assert first is second
    assert await text_of(second) == "One is gone."
    assert room.messages[-1].text == "One is gone."
    states = {part["toolCallId"]: part["state"] for m in room.messages for part in m.tool_parts}
    assert states == {"c1": "output-available", "c2": "output-denied"}
    with pytest.raises(AgentError, match="No call 'c1' waits"):
        await room.approve("c1")


async def test_a_call_that_was_stopped_waits_for_nobody(serve: Serve, enter: Enter) -> None:
    class Slow(Think):
        model = ScriptedModel(calls("dig", {}, id="c1"))

        @tool
        async def dig(self, ctx: ToolContext) -> str:
            """Dig until somebody stops it."""
            await ctx.signal.wait()
            return "a hole"

    room = await enter(await serve(Slow), Slow)
    reply = room.say("Dig")
    async for chunk in reply:
        if chunk.type == "tool-input-available":
            await reply.cancel()
    await reply.ended()
    assert reply.outcome == "aborted"
    assert [part["state"] for part in room.messages[-1].tool_parts] == ["input-available"]
    assert room.to_answer == []


async def test_a_tool_of_the_client_runs_in_the_client(serve: Serve, enter: Enter) -> None:
    cls = assistant(ScriptedModel(calls("locate", {}, id="c1"), says("You are in Oslo.")))
    locate = {"name": "locate", "description": "Where am I?", "parameters": {"type": "object"}}
    room = await enter(await serve(cls), cls, tools=[locate])
    await room.ask("Where am I?")
    (part,) = room.to_answer

    reply = await room.answer(part["toolCallId"], {"city": "Oslo"})
    assert (await reply).text == "You are in Oslo."
    assert not room.to_answer


class Desk(Think):
    """A desk with a state and methods."""

    model = ScriptedModel(says("Yes."))
    initial_state: ClassVar[dict[str, int]] = {"votes": 0}

    def validate_state_change(self, next_state: Any, source: Any) -> None:
        if next_state["votes"] < 0:
            raise ValueError("secret")

    @exposed
    async def vote(self, count: int) -> int:
        await self.set_state({"votes": self.state["votes"] + count})
        return self.state["votes"]

    @exposed
    def refuse(self) -> None:
        raise RuntimeError("No votes today.")

    @exposed(streaming=True)
    def count(self, stream: StreamingResponse, to: int) -> None:
        for number in range(to):
            stream.send(number)
        stream.end("done")


async def test_methods_are_called_and_the_state_is_watched(serve: Serve, enter: Enter) -> None:
    server = await serve(Desk)
    room, other = await enter(server, Desk), await enter(server, Desk)
    states = other.states()
    assert await anext(states) == {"votes": 0}

    assert await room.call("vote", 2) == 2
    assert await anext(states) == {"votes": 2}
    await room.set_state({"votes": 7})
    assert await anext(states) == {"votes": 7}
    assert (room.state, other.state) == ({"votes": 7}, {"votes": 7})
    assert [piece async for piece in room.stream("count", 2)] == [0, 1, "done"]

    # What the agent refuses raises, in its words, and changes nothing
    with pytest.raises(CallFailed, match=r"refuse: No votes today\."):
        await room.call("refuse")
    with pytest.raises(AgentError, match="State update rejected"):
        await room.set_state({"votes": -1})
    assert room.state == {"votes": 7}
    await states.aclose()  # type: ignore[attr-defined]


async def test_a_cleared_conversation_is_empty_and_one_that_may_not_clear_is_told_how_it_is(
    serve: Serve, enter: Enter
) -> None:
    class Guarded(Think):
        model = ScriptedModel(says("Hello."))

        def should_connection_be_readonly(self, connection: Any, request: Any) -> bool:
            return "reads" in request.headers

    server = await serve(Guarded)
    room = await enter(server, Guarded)
    reader = await enter(server, Guarded, headers={"reads": "yes"})
    await room.ask("Hi")

    await reader.clear()
    assert [m.text for m in reader.messages] == ["Hi", "Hello."]
    with pytest.raises(TurnFailed, match="You may read this conversation, but not write in it"):
        await reader.ask("May I?")

    await room.clear()
    assert room.messages == []


async def test_who_finds_nobody_or_is_not_let_in_is_told_what_to_do(serve: Serve, enter: Enter) -> None:
    cls = assistant(ScriptedModel(fails("never asked")))

    def authenticate(connection: Any) -> str | None:
        return "ada" if connection.query_params.get("token") == "t" else None

    server = await serve(cls, authenticate=authenticate)

    with pytest.raises(NotConnected, match="give a token") as refused:
        await enter(server, cls)
    assert refused.value.status == 401
    await enter(server, cls, token="t")
    with pytest.raises(NotConnected, match=r"Nobody answers at ws://127\.0\.0\.1:1/agents/a/default\."):
        await connect("http://127.0.0.1:1", "a", token="secret").open()
    with pytest.raises(AgentError, match="is not an address"):
        connect("127.0.0.1:8000", "a")
    with pytest.raises(AgentError, match="names no agent"):
        connect("http://127.0.0.1:8000")


async def test_an_agent_that_does_not_chat_is_not_asked_for_a_conversation(serve: Serve) -> None:
    requests: list[str] = []

    class Counter(Agent):
        @exposed
        async def add(self, a: int, b: int) -> int:
            return a + b

        async def on_request(self, request: Any) -> None:
            requests.append(request.url.path)

    server = await serve(Counter)
    room = connect(f"http://127.0.0.1:{server.port}", Counter, "room")
    async with room:
        assert await room.call("add", 1, 2) == 3
    assert requests == []
