"""The agent of the wire recordings: it does what the last user message says.

Run as a program it serves itself: `python -m tests.wire.peer PORT`.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator
from typing import Any, Literal

import msgspec

from everthink import App, Message, Think, ToolError, agent_tool, tool
from everthink.errors import ModelError
from everthink.hooks import TurnContext
from everthink.models import port as model
from everthink.runtime.rpc import StreamingResponse, exposed

CALLS: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "tool": [("echo", {"value": "hi"})],
    "toolerr": [("explode", {"value": "boom"})],
    "client": [("getLocation", {})],
    "both": [("echo", {"value": "hi"}), ("getLocation", {})],
    "approve": [("danger", {"target": "x"})],
    "sub": [("delegate", {"query": "hello"})],
}


def text_of(message: model.UserMessage) -> str:
    return " ".join(p.text for p in message.content if isinstance(p, model.TextPart))


def words_of(message: model.UserMessage) -> list[str]:
    return text_of(message).split()


class ScriptFollower:
    """Does what the last user message says."""

    name = "peer"
    continues: Literal["prefill", "prompt"] = "prompt"

    async def stream(self, request: model.Request) -> AsyncGenerator[model.ModelEvent, None]:
        told = [m for m in request.messages if isinstance(m, model.UserMessage)]
        last = told[-1]
        place = request.messages.index(last)
        answers = any(isinstance(m, model.ToolMessage) for m in request.messages[place:])
        words = words_of(last)
        kind, numbers = words[0], [int(w) for w in words[1:] if w.isdigit()]
        if kind == "throw":
            raise ModelError("mock call rejected", kind="fatal")
        yield model.Opened()
        if kind in CALLS and not answers:
            for index, (name, given) in enumerate(CALLS[kind]):
                id = f"call_{len(told)}_{index}_{name}"
                yield model.ToolInputStart(id, name)
                text = msgspec.json.encode(given).decode()
                half = (len(text) + 1) // 2
                for piece in (text[:half], text[half:]):
                    if piece:
                        yield model.ToolInputDelta(id, piece)
                yield model.ToolCallReady(id, name, text)
            yield model.Finish("tool-calls", model.Usage(10, 5, 15))
            return
        async for event in self._speak(kind, numbers, text_of(last)):
            yield event

    async def _speak(
        self, kind: str, numbers: list[int], said: str
    ) -> AsyncGenerator[model.ModelEvent, None]:
        pause = 0.0
        match kind:
            case "text" | "flow" | "error":
                count, pause = numbers[0], (numbers[1] / 1000 if len(numbers) > 1 else 0.0)
            case "wait":
                count, pause = numbers[1], 0.04
            case "reason":
                yield model.ReasoningStart("r1")
                for i in range(numbers[0]):
                    yield model.ReasoningDelta("r1", f"r{i} ")
                yield model.ReasoningEnd("r1")
                count = numbers[1]
            case _ if kind in CALLS:
                count = numbers[0] if numbers else 3
                pause = numbers[1] / 1000 if len(numbers) > 1 else 0.0
            case _:
                yield model.TextStart("t1")
                yield model.TextDelta("t1", f"echo:{said}")
                yield model.TextEnd("t1")
                yield model.Finish("stop", model.Usage(10, 5, 15))
                return
        yield model.TextStart("t1")
        for i in range(count):
            if pause:
                await asyncio.sleep(pause)
            elif kind == "flow":
                await asyncio.sleep(0)
            yield model.TextDelta("t1", f"w{i} ")
        if kind == "error":
            yield model.Failed(ModelError("mock stream error", kind="fatal"))
            return
        yield model.TextEnd("t1")
        yield model.Finish("stop", model.Usage(10, 5, 15))


class Helper(Think):
    """The child of the agent that the recordings were made with."""

    model = ScriptFollower()


class ThinkPeer(Think):
    """The agent the recordings were made with, on our side."""

    model = ScriptFollower()
    delegate = agent_tool(Helper, description="Ask the helper.", display_name="Helper")
    initial_state: Any = {"count": 0}  # noqa: RUF012 - copied by the framework

    def validate_state_change(self, state: Any, source: Any) -> None:
        if state["count"] < 0:
            raise ValueError("count must not be negative")

    def should_connection_be_readonly(self, connection: Any, request: Any) -> bool:
        return request.query_params.get("readonly") == "1"

    def should_send_protocol_messages(self, connection: Any, request: Any) -> bool:
        return request.query_params.get("noproto") != "1"

    def on_connect(self, connection: Any, request: Any) -> None:
        if request.query_params.get("boom") == "1":
            raise RuntimeError("onConnect failed")

    def on_before_sub_agent(self, request: Any, cls: type[Any], name: str) -> Any:
        from starlette.responses import PlainTextResponse

        refused = {"forbidden": ("Forbidden", 403), "broken": ("Unavailable", 503)}.get(name)
        return None if refused is None else PlainTextResponse(*refused)

    async def before_turn(self, turn: TurnContext) -> None:
        words = [words_of(m) for m in turn.messages if isinstance(m, model.UserMessage)]
        if words and words[-1] and words[-1][0] == "wait":
            await asyncio.sleep(int(words[-1][1]) / 1000)

    @tool
    async def echo(self, value: str) -> dict[str, str]:
        """Say it again."""
        return {"echoed": value}

    @tool
    async def explode(self, value: str) -> str:
        """Fail."""
        raise ToolError("tool exploded")  # the original shows every exception; we show these

    @tool(needs_approval=True)
    async def danger(self, target: str) -> dict[str, str]:
        """Do something that needs a yes."""
        return {"did": target}

    @exposed(reads=True)  # a connection that may only read calls it in the scene `state`
    def add(self, a: int, b: int) -> int:
        return a + b

    @exposed
    def nothing(self) -> None:
        return None

    @exposed
    def fail(self) -> None:
        raise RuntimeError("callable failed")

    @exposed
    async def bump(self) -> int:
        count = self.state["count"] + 1
        await self.set_state({"count": count})
        return count

    @exposed
    async def seed(self, n: int) -> int:
        await self.add_messages(
            [
                Message(
                    f"seed-{i}",
                    "user" if i % 2 == 0 else "assistant",
                    [{"type": "text", "text": f"message {i} " + "lorem ipsum " * 8}],
                )
                for i in range(n)
            ]
        )
        return len(self.messages)

    @exposed
    async def say(self, text: str) -> str:
        message = Message(f"srv-{text}", "user", [{"type": "text", "text": text}])
        return (await self.save_messages([message])).status

    @exposed
    def policy(self, mode: Any) -> None:
        self.message_concurrency = mode

    @exposed
    def kick(self, code: int, reason: str) -> None:
        for connection in self.connections:
            connection.close(code, reason)

    @exposed
    async def wipe(self) -> None:
        await self.destroy()

    @exposed
    def pendingApprovals(self) -> list[Any]:
        return []

    @exposed(streaming=True)
    def count(self, stream: StreamingResponse, n: int) -> None:
        for i in range(n):
            stream.send(i)
        stream.end("done")

    @exposed(streaming=True)
    def countFail(self, stream: StreamingResponse) -> None:
        stream.send(0)
        raise RuntimeError("stream failed")

    def hidden(self) -> None:
        return None


class PeerApp(App):
    async def on_other_request(self, request: Any) -> Any:
        from starlette.responses import PlainTextResponse

        # Both are what the application around the recorded agents said.
        if request.url.path == "/healthz":
            return PlainTextResponse("ok")
        return PlainTextResponse("Not found", 404)


def peer_app(store: str) -> App:
    return PeerApp(ThinkPeer, store=store, cors=True)


if __name__ == "__main__":
    import uvicorn

    uvicorn.run(peer_app(sys.argv[2]), host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
