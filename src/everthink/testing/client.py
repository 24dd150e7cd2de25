"""A chat window for tests: one connection of a client, and everything that came over it.

    chat = await Client.connect("ws://127.0.0.1:8000/agents/assistant/room-1")
    request = await chat.say("Hello")
    await chat.until_done(request)
    assert chat.messages[-1].text == "Hi."

It never guesses and never comes back: every frame is in `frames`, in order, and the conversation in
`messages` is built from them as every client of ours builds it.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable, Mapping
from typing import Any

from websockets.exceptions import ConnectionClosed

from ..client.connection import Connection, chat_request
from ..client.transcript import Transcript
from ..messages import Message, user_message
from ..wire import frames as wire
from ..wire.codec import decode_told

__all__ = ["Client"]

Frame = dict[str, Any]
PATIENCE = 10.0

_numbers = itertools.count(1)


class Client:
    """One tab. With `resumes` it asks for a running stream and takes every offer, as a browser does."""

    def __init__(self, connection: Connection, *, resumes: bool = False) -> None:
        self._connection, self._resumes = connection, resumes
        self.frames: list[Frame] = []
        """Everything that arrived, in order."""
        self.other: list[str | bytes] = []
        """What arrived and is not a frame."""
        self.identity: Frame | None = None
        self.closed: tuple[int, str] | None = None
        """Code and reason, once the socket is closed."""
        self._transcript = Transcript()
        self._acked: set[str] = set()
        self._more = asyncio.Event()
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def connect(
        cls,
        url: str,
        *,
        id: str | None = None,
        resumes: bool = False,
        origin: str | None = None,
        headers: Mapping[str, str] | None = None,
        query: Mapping[str, str] | None = None,
    ) -> Client:
        """Connect. `id` is the connection's id (`_pk`)."""
        connection = await Connection.open(
            url, id=id, query=query, origin=origin, headers=headers, compression=None
        )
        client = cls(connection, resumes=resumes)
        if resumes:
            await client.probe("connect")
        return client

    async def close(self, code: int = 1000, reason: str = "") -> None:
        """Leave."""
        await self._connection.close(code, reason)
        await self._reading

    async def drop(self) -> None:
        """Lose the network: no goodbye."""
        self._connection.drop()
        await self._reading

    # --- sending

    async def send(self, frame: wire.ClientFrame | Frame | str | bytes) -> None:
        """Send a frame, or anything else."""
        await self._connection.send(frame)

    async def say(
        self, text: str, *, id: str | None = None, message_id: str | None = None, **body: Any
    ) -> str:
        """Send a user message with the conversation so far. Returns the request's id."""
        message = user_message(text, id=message_id or f"u{next(_numbers)}")
        return await self.request([*self.messages, message], id=id, **body)

    async def request(self, messages: list[Message], *, id: str | None = None, **body: Any) -> str:
        """Send this list as the conversation. `body` is what else the request says."""
        request = id or f"req-{next(_numbers)}"
        await self.send(chat_request(request, messages, **body))
        return request

    async def cancel(self, request: str) -> None:
        """Stop a turn."""
        await self.send(wire.CancelRequest(request))

    async def clear(self) -> None:
        """Empty the conversation, here at once."""
        self._transcript.clear()
        await self.send(wire.ClearChat())

    async def probe(self, probe_id: str) -> None:
        """Ask whether anything streams."""
        await self.send(wire.ResumeRequest(probe_id))

    async def ack(self, request: str) -> None:
        """Take the stream that was offered."""
        await self.send(wire.ResumeAck(request))

    async def answer(self, call_id: str, output: Any = None, **fields: Any) -> None:
        """Send a browser tool's result."""
        frame = {"type": "cf_agent_tool_result", "toolCallId": call_id, "toolName": "", "output": output}
        await self.send({**frame, **self._asked(call_id), **fields})

    async def approve(self, call_id: str, approved: bool = True, *, auto_continue: bool = True) -> None:
        """Answer a call that asked."""
        asked = self._asked(call_id).get("approvalId")
        await self.send(wire.ApprovalAnswered(call_id, approved, auto_continue, asked))

    def _asked(self, call_id: str) -> dict[str, str]:
        """Which question of the call is shown here."""
        part = self._transcript.call(call_id) or {}
        asks = part.get("state") == "approval-requested"
        return {"approvalId": part["approval"]["id"]} if asks else {}

    async def set_state(self, state: Any) -> None:
        """Replace the agent's state, here at once."""
        self._transcript.state = state
        await self.send(wire.SetState(state))

    async def start_call(self, method: str, *args: Any) -> str:
        """Call a method without waiting. Returns the call's id."""
        id = f"call-{next(_numbers)}"
        await self.send(wire.CallMethod(id, method, list(args)))
        return id

    async def call(self, method: str, *args: Any) -> list[Frame]:
        """Call a method. Every answer, the last one included."""
        id = await self.start_call(method, *args)
        await self.until(lambda: any(_is_last(answer) for answer in self.answers(id)))
        return self.answers(id)

    # --- looking

    @property
    def messages(self) -> list[Message]:
        """The conversation as it is on the screen."""
        return self._transcript.messages

    @property
    def state(self) -> Any:
        """The agent's state, as last told or set here."""
        return self._transcript.state

    @property
    def text(self) -> str:
        """The text of everything the assistant says, stored or not."""
        return "".join(message.text for message in self.messages if message.role == "assistant")

    def of(self, *types: str) -> list[Frame]:
        """The frames of these types; the prefix `cf_agent_` may be left out."""
        wanted = {*types, *(f"cf_agent_{type}" for type in types)}
        return [frame for frame in self.frames if frame.get("type") in wanted]

    def responses(self, request: str) -> list[Frame]:
        """The response frames of a turn."""
        return [frame for frame in self.of("use_chat_response") if frame["id"] == request]

    def seqs(self, request: str) -> list[int]:
        """The numbers of a turn's chunks as they arrived, live and replayed."""
        return [frame["seq"] for frame in self.responses(request) if "seq" in frame]

    def answers(self, call: str) -> list[Frame]:
        """What came back for a call."""
        return [frame for frame in self.of("rpc") if frame["id"] == call]

    def is_done(self, request: str) -> bool:
        """True once a turn's last frame arrived."""
        return any(frame["done"] for frame in self.responses(request))

    # --- waiting

    async def until(self, condition: Callable[[], object], *, timeout: float | None = PATIENCE) -> None:
        """Return once `condition()` is true; it is asked after every frame. `timeout=None` waits for ever.

        Raises `TimeoutError`, or `ConnectionError` at once when the socket is closed: nothing more will come.
        """
        try:
            async with asyncio.timeout(timeout):
                while not condition():
                    if self.closed is not None:
                        raise ConnectionError(
                            f"not seen before the socket was closed, {_closed(*self.closed)}; {self._last()}"
                        )
                    self._more.clear()
                    await self._more.wait()
        except TimeoutError:
            raise TimeoutError(f"not seen within {timeout} s; {self._last()}") from None

    def _last(self) -> str:
        return "\n".join(["last frames:", *(json.dumps(frame)[:200] for frame in self.frames[-20:])])

    async def until_frame(self, type: str, *, count: int = 1) -> Frame:
        """Return the frame of this type that arrives as number `count`."""
        await self.until(lambda: len(self.of(type)) >= count)
        return self.of(type)[count - 1]

    async def until_done(self, request: str) -> Frame:
        """Return the frame that ends a turn."""
        await self.until(lambda: self.is_done(request))
        return next(frame for frame in self.responses(request) if frame["done"])

    async def until_text(self, text: str) -> None:
        """Return once `text` is on the screen."""
        await self.until(lambda: text in self.text)

    async def until_closed(self) -> tuple[int, str]:
        """Return code and reason once the socket is closed."""
        await self.until(lambda: self.closed is not None)
        assert self.closed is not None
        return self.closed

    async def settled(self) -> None:
        """Return once all that was sent before this was handled by the server."""
        probe = f"settled-{next(_numbers)}"
        await self.probe(probe)
        await self.until(lambda: any(frame.get("probeId") == probe for frame in self.frames))

    # --- reading

    async def _read(self) -> None:
        try:
            async for text in self._connection.texts():
                self._take(text)
                self._more.set()
                if self._resumes and self.frames and self.frames[-1]["type"] == "cf_agent_stream_resuming":
                    await self._accept(self.frames[-1]["id"])
        except ConnectionClosed:
            pass  # While a stream was accepted; what came before is there.
        finally:
            self.closed = self._connection.closed
            self._more.set()

    async def _accept(self, request: str) -> None:
        if request not in self._acked:
            self._acked.add(request)
            await self.ack(request)

    def _take(self, text: str | bytes) -> None:
        try:
            frame = json.loads(text)
        except ValueError:
            frame = None
        if not isinstance(frame, dict) or "type" not in frame:
            self.other.append(text)
            return
        taken: Frame = frame  # pyright: ignore[reportUnknownVariableType] - JSON objects have text keys
        self.frames.append(taken)
        if taken["type"] == "cf_agent_identity":
            self.identity = taken
        if (known := decode_told(text)) is not None:
            self._transcript.take(known)


def _is_last(answer: Frame) -> bool:
    return answer.get("done") is True or not answer["success"]


def _closed(code: int, reason: str) -> str:
    return f"with {code} ({reason})" if reason else f"with {code}"
