"""The wire from the client's side: one conversation that survives lost connections.

    chat --> Line --frames--> server            server --frames--> Line --chunks, endings--> chat

A chunk is shown once: sequence numbers are the same live and replayed, so what was seen before a
connection was lost is skipped after it.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import ssl
from collections.abc import Callable
from typing import Any

from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus

from ..errors import AgentError
from ..plain import plain
from .received import LONGEST_FRAME, Direct, chunk_of, frame_of, words_of

__all__ = ["Ending", "Line", "is_closed", "is_unknown"]

Json = dict[str, Any]
CONNECT_TIMEOUT = 10.0
STAY_AWAY = (1008, *range(4000, 5000))
"""Close codes after which a client does not come back."""
TOO_LONG = 1009
SHORT, MOST_IN_VAIN = 2.0, 6
"""A connection that ends within so many seconds was in vain, and so many of them in a row are enough."""
LOST = "(connection lost; reconnecting…)"
pause = asyncio.sleep


class Ending:
    """How a turn ended."""

    def __init__(self, outcome: str, error: str | None = None) -> None:
        self.outcome, self.error = outcome, error


class Line:
    """A conversation with an agent at a URL."""

    def __init__(self, url: str, *, show: Callable[[Json], None], tell: Callable[[str], None]) -> None:
        self.url = url
        self._place = url.partition("?")[0]  # What follows may be a secret.
        self.messages: list[Json] = []
        """The conversation as the server last told it."""
        self.identity: Json = {}
        self._show, self._tell = show, tell
        self._socket: ClientConnection | None = None
        self._up = asyncio.Event()
        self.refusal: Exception | None = None
        """Why there is no coming back, once there is none."""
        # The turn that is waited for: its request, what was shown of it, how it ended.
        self._request: Json | None = None
        self._id: str | None = None
        self._next_seq = 0
        self._answer_id: str | None = None
        self._said = ""
        self._errors: str | None = None
        self._ended: asyncio.Future[Ending] | None = None
        self._task: asyncio.Task[None] | None = None

    # --- connecting

    async def open(self) -> None:
        """Connect. Raises a letter when nobody answers."""
        self._socket = await self._connect()
        self._task = asyncio.create_task(self._keep())
        await self._up.wait()

    async def close(self) -> None:
        """Hang up."""
        if self._task:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._socket:
            await self._socket.close()

    async def _connect(self) -> ClientConnection:
        try:
            return await Direct(
                f"{self.url}{'&' if '?' in self.url else '?'}_pk=terminal-{secrets.token_hex(4)}",
                max_size=LONGEST_FRAME,
                open_timeout=CONNECT_TIMEOUT,
            )
        except InvalidStatus as error:
            status = error.response.status_code
            said = words_of(error.response)
            raise AgentError(
                f"{self._place} refused the connection: {status} {said}".strip() + ".",
                next_step=_what_to_do(status) if said else _what_to_do_unsaid(status),
            ) from error
        except ssl.SSLCertVerificationError as error:
            raise AgentError(
                f"The certificate of {self._place} is not trusted: {error.verify_message}.",
                next_step="Check the address; for a certificate of your own, set SSL_CERT_FILE.",
            ) from error
        except ssl.SSLError as error:
            raise AgentError(
                f"What answers at {self._place} does not speak TLS.",
                next_step="Write http:// instead of https://, if that is where the server is.",
            ) from error
        except (OSError, InvalidHandshake, TimeoutError) as error:
            raise AgentError(
                f"Nobody answers at {self._place}.",
                next_step="Start a server in another terminal: everthink dev",
            ) from error

    async def _keep(self) -> None:
        """Read frames; come back when the connection is lost."""
        loop = asyncio.get_running_loop()
        in_vain = 0
        while True:
            assert self._socket is not None
            began = loop.time()
            try:
                await self._send({"type": "cf_agent_stream_resume_request", "probeId": "p"})
                async for text in self._socket:
                    self._receive(frame_of(text))
            except ConnectionClosed as ended:
                if ended.rcvd is None and ended.sent is not None and ended.sent.code == TOO_LONG:
                    self._fail(AgentError(f"The server sent a frame of more than {LONGEST_FRAME} bytes."))
                    return
            except Exception as error:  # noqa: BLE001 - nobody can be shown what came: a closed pipe, say
                self._fail(error)
                return
            code, why, self._socket = self._socket.close_code, self._socket.close_reason, None
            said = f"code {code}: {plain(why).rstrip('.')}" if why else f"code {code}"
            self._up.clear()
            if code in STAY_AWAY:
                self._fail(AgentError(f"The server closed the conversation with {said}."))
                return
            in_vain = in_vain + 1 if loop.time() - began < SHORT else 0
            if in_vain >= MOST_IN_VAIN:
                self._fail(AgentError(f"The server lets us in and hangs up at once, with {said}."))
                return
            self._tell(f"(connection lost, {said}; reconnecting…)" if in_vain else LOST)
            try:
                if in_vain:
                    await pause(min(0.1 * 2**in_vain, 3.0))
                await self._come_back()
            except AgentError as error:
                self._fail(error)
                return

    async def _come_back(self) -> None:
        """Connect again, however long that takes. Raises when we are not let in any more."""
        delay = 0.1
        while self._socket is None:
            try:
                self._socket = await self._connect()
            except AgentError as error:
                if isinstance(error.__cause__, InvalidStatus) and _is_meant(error.__cause__):
                    raise
                await asyncio.sleep(delay)
                delay = min(delay * 1.5, 3.0)
        self._tell("(connected again)")

    def _fail(self, error: Exception) -> None:
        self.refusal = error
        self._up.set()
        if self._ended and not self._ended.done():
            self._ended.set_exception(error)  # whoever waits tells it
        else:
            self._tell(str(error))

    async def _send(self, frame: Json) -> None:
        if self._socket is not None:
            await self._socket.send(json.dumps(frame))

    # --- asking

    async def ask(self, text: str) -> Ending:
        """Send a message and wait for the whole answer, over as many connections as it takes."""
        message = {"id": secrets.token_hex(8), "role": "user", "parts": [{"type": "text", "text": text}]}
        return await self._turn({"messages": [*self.messages, message], "trigger": "submit-message"})

    async def ask_again(self) -> Ending:
        """Let the last message be answered once more."""
        kept = list(self.messages)
        while kept and kept[-1]["role"] != "user":
            kept.pop()
        if not kept:
            raise AgentError("There is nothing to answer again.")
        return await self._turn({"messages": kept, "trigger": "regenerate-message"})

    async def _turn(self, body: Json) -> Ending:
        await self._ready()
        id = secrets.token_hex(4)
        self._request = {
            "type": "cf_agent_use_chat_request",
            "id": id,
            "init": {"method": "POST", "body": json.dumps(body)},
        }
        self.messages = body["messages"]
        self._expect(id)
        await self._send_surely(self._request)
        return await self._wait()

    async def answer(self, approvals: dict[str, bool]) -> Ending:
        """Say yes or no to calls that wait, and wait for what the agent makes of it."""
        await self._ready()
        self._request = None
        self._expect(None)
        for call, approved in approvals.items():
            await self._send_surely(
                {
                    "type": "cf_agent_tool_approval",
                    "toolCallId": call,
                    "approved": approved,
                    "autoContinue": True,
                }
            )
        return await self._wait()

    async def stop(self) -> None:
        """Stop the answer that is waited for."""
        if self._id:
            await self._send({"type": "cf_agent_chat_request_cancel", "id": self._id})

    async def clear(self) -> None:
        """Forget the conversation."""
        await self._ready()
        await self._send_surely({"type": "cf_agent_chat_clear"})
        self.messages = []

    def waiting(self) -> list[Json]:
        """The tool calls that wait for a yes or a no."""
        return [part for part in self._tool_parts() if part.get("state") == "approval-requested"]

    def unanswered(self) -> list[Json]:
        """The calls that only another client, a browser say, can answer."""
        return [part for part in self._tool_parts() if part.get("state") == "input-available"]

    def _tool_parts(self) -> list[Json]:
        last = self.messages[-1] if self.messages else None
        if not last or last["role"] != "assistant":
            return []
        return [part for part in last["parts"] if "toolCallId" in part]

    async def _ready(self) -> None:
        await self._up.wait()
        if self.refusal:
            raise self.refusal

    async def _send_surely(self, frame: Json) -> None:
        try:
            await self._send(frame)
        except ConnectionClosed:
            pass  # When we are back, the probe's answer shows whether it arrived.

    def _expect(self, id: str | None) -> None:
        self._id, self._next_seq, self._answer_id, self._said, self._errors = id, 0, None, "", None
        self._ended = asyncio.get_running_loop().create_future()

    async def _wait(self) -> Ending:
        assert self._ended is not None
        try:
            return await self._ended
        finally:
            self._ended = self._id = self._request = None

    # --- what the server says

    def _receive(self, frame: Json) -> None:
        match frame.get("type"):
            case "cf_agent_identity":
                self.identity = frame
            case "cf_agent_chat_messages":
                self.messages = frame["messages"]
            case "cf_agent_message_updated":
                changed = frame["message"]
                self.messages = [changed if m["id"] == changed["id"] else m for m in self.messages]
            case "cf_agent_chat_clear":
                self.messages = []
            case "cf_agent_stream_resuming":
                self._offered(frame["id"])
            case "cf_agent_stream_pending":
                self._up.set()
            case "cf_agent_stream_resume_none":
                self._nothing(frame)
            case "cf_agent_use_chat_response":
                self._response(frame)
            case _:
                pass

    def _offered(self, id: str) -> None:
        self._up.set()
        # Always accepted: whoever was offered a stream is held out of it until then.
        self._later({"type": "cf_agent_stream_resume_ack", "id": id})

    def _nothing(self, frame: Json) -> None:
        """Nothing runs. What we waited for ended while we were away, or never arrived."""
        came_back = self._ended is not None and frame.get("probeId") == "p"
        self._up.set()
        if not came_back or frame.get("reason") != "idle":
            return
        if self._request and not self._was_answered():
            self._later(self._request)
        elif self._ended and self._id:
            self._finish(Ending("completed"))

    def _was_answered(self) -> bool:
        return bool(self._answer_id) or bool(self.messages and self.messages[-1]["role"] == "assistant")

    def _later(self, frame: Json) -> None:
        task = asyncio.create_task(self._send_surely(frame))
        self._sending = task  # A task that nobody holds may be collected before it ran.

    def _response(self, frame: Json) -> None:
        if self._ended is None or self._ended.done():
            return
        if self._id is None and frame.get("continuation"):
            self._id = frame["id"]
        if frame["id"] != self._id:
            return
        if frame.get("error"):
            self._errors = frame["body"]
        elif frame["body"] and not frame["done"]:
            self._chunk(frame)
        if frame["done"]:
            self._finish(
                Ending(frame.get("outcome") or ("error" if self._errors else "completed"), self._errors)
            )

    def _chunk(self, frame: Json) -> None:
        seq = frame.get("seq")
        if seq is not None:
            if seq < self._next_seq:
                return
            self._next_seq = seq + 1
        chunk = chunk_of(frame)
        if chunk["type"] == "start":
            self._answer_id = chunk.get("messageId")
        elif chunk["type"] == "text-delta":
            self._said += chunk["delta"]
        self._show(chunk)

    def _finish(self, ending: Ending) -> None:
        if self._ended is None or self._ended.done():
            return
        if rest := self._rest():
            self._show({"type": "text-delta", "id": "rest", "delta": rest})
        self._ended.set_result(ending)

    def _rest(self) -> str:
        """What was stored and not seen, because it was said while we were away."""
        if self._answer_id is None and self._next_seq:
            return ""  # A continuation; its text is told from the stream alone.
        stored = next((m for m in self.messages if m["id"] == self._answer_id), None)
        if stored is None and self._next_seq == 0 and self._id and self.messages:
            stored = self.messages[-1] if self.messages[-1]["role"] == "assistant" else None
        if stored is None:
            return ""
        text = "".join(part["text"] for part in stored["parts"] if part.get("type") == "text")
        return text.removeprefix(self._said) if text.startswith(self._said) else ""


def _is_meant(refused: InvalidStatus) -> bool:
    """True for a refusal that asking again does not change; a server that restarts may say other things."""
    return refused.response.status_code in (401, 403)


def is_unknown(error: AgentError) -> bool:
    """True for a refusal because nobody has that name."""
    cause = error.__cause__
    if not isinstance(cause, InvalidStatus):
        return False
    return cause.response.status_code in (400, 404) or is_closed(error)


def is_closed(error: AgentError) -> bool:
    """True for a refusal without a word: what a site says of a path that it does not have, too."""
    cause = error.__cause__
    if not isinstance(cause, InvalidStatus):
        return False
    return cause.response.status_code == 403 and not bytes(cause.response.body or b"").strip()


def _what_to_do_unsaid(status: int) -> str:
    """The same for a refusal that does not say why."""
    if status != 403:
        return _what_to_do(status)
    return (
        "Either nothing is at that path (for an app that is mounted below one, write it:"
        " --server http://host/path), or you may not enter: then give another --token."
    )


def _what_to_do(status: int) -> str:
    """What helps whoever was refused with this status."""
    match status:
        case 401:
            return "It asks who you are: give a token with --token or EVERTHINK_TOKEN, or a newer one."
        case 403:
            return "You may not enter here. Name one that is yours (AGENT/NAME), or give another --token."
        case 400 | 404:  # the first for a class that is not there, the second for any other address
            return "Check the agent's name."
        case _ if 300 <= status < 400:
            return "chat goes nowhere by itself: if you trust that address, give it instead of this one."
        case _ if status >= 500:
            return "The fault is the server's: its log says more. Try again later."
        case _:
            return "Check the address."
