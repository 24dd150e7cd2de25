"""Requests and their answers over a line that may be lost at any time.

    Conversation --frames--> Exchange --> Line --> server
    server --> Line --texts--> Exchange --> Transcript, Replies, Calls

Each connection begins with a probe, whose answer says where things stand. From it `_catch_up` finds out what
became of every answer that is waited for: it goes on, it ended while we were away, or the request never
arrived and is sent again. While somebody else is being answered that cannot be known; then it is asked again
at the end of that.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Mapping
from dataclasses import dataclass
from typing import Any

from .. import chunks as ui
from ..errors import NoSuchChild, NotConnected
from ..messages import Message
from ..wire import frames as wire
from ..wire.codec import decode_told
from .address import misled, stored_messages
from .calls import Calls
from .line import Line, Pace
from .received import check_frame
from .reply import Reply
from .runs import RunEvent, Runs
from .transcript import Transcript

__all__ = ["Exchange"]

Answered = wire.StreamResuming | wire.StreamPending | wire.ResumeNone
OF_A_CONVERSATION = (wire.StreamResuming, wire.StreamPending, wire.Recovering)
"""What comes in place of the conversation to whoever comes in mid-answer."""
SILENCE = 30.0
"""Seconds within which a server says where things stand, once it has let us in."""
REMEMBERED = 64
"""So many turns that ended are remembered."""


@dataclass(slots=True, eq=False)
class Pending:
    """A reply that is waited for, and what it takes to find it again."""

    reply: Reply
    frame: wire.UseChat | None = None
    """What asks for it. `None`: it follows the answers to open calls."""
    message: Message | None = None
    """The message that it answers, if that is new."""
    before: frozenset[str] = frozenset()
    """What was there before it was asked for again."""
    connection: int = 0
    """The number of the connection over which it was last sent or heard of."""
    is_known: bool = False
    """True once the server has said anything about it."""
    is_cancelled: bool = False


class Exchange:
    """All that goes to and fro in one conversation."""

    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None,
        pace: Pace,
        notice: Callable[[str], object] | None,
    ) -> None:
        self._url, self._headers, self._notice = url, headers, notice
        # The same id over all connections, as browsers have it: what was ours stays ours.
        self._line = Line(
            url,
            on_text=self._on_text,
            on_connect=self._on_connect,
            on_lost=self._on_lost,
            on_over=self._on_over,
            id=f"client-{secrets.token_hex(8)}",
            headers=headers,
            pace=pace,
        )
        self.transcript = Transcript()
        self.calls, self.runs = Calls(self._line), Runs()
        self.refusal: Exception | None = None
        """Why there is no coming back, once there is none."""
        self.state_refused: str | None = None
        self._offered: str | None = None
        self._pending: list[Pending] = []
        self._over: deque[str] = deque(maxlen=REMEMBERED)
        self._probes: dict[str, asyncio.Future[Answered]] = {}
        self._up = asyncio.Event()
        self._was_opened = False
        # Something that arrived is about a conversation: the agent has one.
        self._chats = False
        self._watching: list[asyncio.Queue[Any]] = []
        self._watching_runs: list[asyncio.Queue[RunEvent | None]] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Connect, and learn where things stand."""
        self._was_opened = True
        await self._line.open()
        try:
            async with asyncio.timeout(SILENCE):
                await self.ready()
        except TimeoutError:
            await self.close()
            raise NotConnected(
                f"{self._line.place} lets us in and says nothing.",
                next_step="Check that the address is that of an agent.",
            ) from None
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Hang up."""
        await self._line.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._end(NotConnected("The conversation was closed here.", kept="The agent goes on."))

    async def ready(self) -> None:
        """Wait for a connection. Raises when there will be none."""
        self._refuse_unopened()
        await self._up.wait()
        if self.refusal is not None:
            raise self.refusal

    def _refuse_unopened(self) -> None:
        if not self._was_opened:
            raise NotConnected(
                "The conversation is not open yet.",
                kept="Nothing was sent.",
                next_step="Use it inside a block: `async with connect(…) as chat:`.",
            )

    # --- asking

    @property
    def chats(self) -> bool:
        """True when the agent has a conversation, as far as the server has shown."""
        return self._chats or self.transcript.told is not None

    @property
    def streaming(self) -> str | None:
        """The request whose answer streams, or is about to, whoever asked for it."""
        is_offered = self._offered is not None and self._offered not in self._over
        return self._offered if is_offered else self.transcript.streaming

    @property
    def replies(self) -> list[Reply]:
        """The answers that are waited for."""
        return [pending.reply for pending in self._pending]

    def ask(
        self, frame: wire.UseChat, *, message: Message | None = None, before: frozenset[str] = frozenset()
    ) -> Reply:
        """Send a request, now or when there is a connection."""
        self._refuse_unopened()
        if self.refusal is not None:
            raise self.refusal
        pending = self._expect(frame.id, frame)
        pending.message, pending.before = message, before
        if message is not None:
            self.transcript.said(message)
        if self._up.is_set():
            self._send(pending)
        return pending.reply

    def continuation(self) -> Reply:
        """What follows the answers to the open calls: one reply for all of them."""
        for pending in self._pending:
            if pending.reply.id is None:
                return pending.reply
        pending = self._expect(None, None)
        pending.connection = self._line.connections
        return pending.reply

    def going_on(self, request: str) -> Reply:
        """What else is said in an answer that streams."""
        for pending in self._pending:
            if pending.reply.id == request:
                return pending.reply
        pending = self._expect(request, None)
        pending.connection, pending.is_known = self._line.connections, True
        return pending.reply

    async def send_and_know(self, frame: wire.ClientFrame) -> Answered:
        """Send a frame, and wait until the server has handled it. Raises `NotConnected` if nobody knows."""
        await self._line.send(frame)
        return await self._probe()

    @contextlib.contextmanager
    def watch_state(self) -> Generator[asyncio.Queue[Any]]:
        """A queue that gets every state that is told, and something when there is no coming back."""
        queue: asyncio.Queue[Any] = asyncio.Queue()
        self._watching.append(queue)
        try:
            yield queue
        finally:
            self._watching.remove(queue)

    @contextlib.contextmanager
    def watch_runs(self) -> Generator[asyncio.Queue[RunEvent | None]]:
        """The same of what is told of the runs of children."""
        queue: asyncio.Queue[RunEvent | None] = asyncio.Queue()
        self._watching_runs.append(queue)
        try:
            yield queue
        finally:
            self._watching_runs.remove(queue)

    def _expect(self, id: str | None, frame: wire.UseChat | None) -> Pending:
        pending = Pending(Reply(lambda: self._cancel(pending), id=id), frame)
        self._pending.append(pending)
        return pending

    def _send(self, pending: Pending) -> None:
        assert pending.frame is not None
        pending.connection = self._line.connections
        if pending.message is not None:
            self.transcript.said(pending.message)  # the conversation that came meanwhile does not have it
        self._later(self._post(pending.frame))

    async def _cancel(self, pending: Pending) -> None:
        pending.is_cancelled = True
        if pending.reply.id is not None and pending in self._pending:
            await self._post(wire.CancelRequest(pending.reply.id))

    async def _post(self, frame: wire.ClientFrame) -> None:
        with contextlib.suppress(NotConnected):  # When we are back, `_catch_up` sees whether it arrived.
            await self._line.send(frame)

    async def _probe(self) -> Answered:
        """Ask where things stand. When it is answered, all that was sent before was handled."""
        id = secrets.token_hex(4)
        answered = self._probes[id] = asyncio.get_running_loop().create_future()
        await self._line.send(wire.ResumeRequest(id))
        return await answered

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)  # A task that nobody holds may be collected before it ran.
        task.add_done_callback(self._was_done)

    def _was_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Exception):
            self._on_over(error)  # whoever waits must not wait for ever

    # --- what happens on the line

    def _on_connect(self, again: bool) -> None:
        """There is a connection."""
        self._later(self._catch_up(again))

    def _on_lost(self, why: str | None) -> None:
        """It is gone; the line looks for the next one."""
        self._up.clear()
        self._cut(NotConnected("The connection was lost.", kept="Whether this arrived is not known."))
        self._tell(f"connection lost, {why}; reconnecting…" if why else "connection lost; reconnecting…")

    def _on_over(self, error: Exception) -> None:
        """There is no coming back."""
        is_heard = bool(self._pending)
        self._end(error)
        if not is_heard:
            self._tell(str(error))

    def _end(self, error: Exception) -> None:
        self.refusal = self.refusal or error
        self._up.set()
        self._cut(error)
        for reply in self.replies:
            reply.fail(error)
        self._pending.clear()
        for queue in (*self._watching, *self._watching_runs):
            queue.put_nowait(None)

    def _cut(self, error: Exception) -> None:
        """What was asked over this connection is not answered any more."""
        self.calls.fail(error)
        for probe in self._probes.values():
            if not probe.done():
                probe.set_exception(error)
                probe.exception()  # it is raised where somebody waits, and nobody may
        self._probes.clear()

    def _tell(self, text: str) -> None:
        if self._notice is not None:
            self._notice(text)

    # --- finding out where things stand

    async def _catch_up(self, again: bool = False) -> None:
        try:
            answer = await self._probe()
        except NotConnected:
            return  # the next connection will tell
        if self.transcript.told is None and self._chats:
            await self._read_stored()
        if again:
            self._tell("connected again")
        self._up.set()
        is_idle = isinstance(answer, wire.ResumeNone) and answer.reason == "idle"
        if isinstance(answer, wire.StreamResuming):
            is_idle = answer.id in self._over  # a failure that was told already
        for pending in [*self._pending]:
            if pending.is_cancelled and pending.is_known and not is_idle:
                await self._cancel(pending)
            elif pending in self._doubtful():
                await self._resolve(pending, is_idle)

    async def _read_stored(self) -> None:
        """The conversation so far, which is not sent to whoever comes in mid-answer."""
        messages = await stored_messages(self._url, self._headers)
        if messages is not None and self.transcript.told is None:
            self.transcript.replace(messages)

    def _doubtful(self) -> list[Pending]:
        """What is waited for and was neither sent nor heard of over this connection."""
        return [pending for pending in self._pending if pending.connection != self._line.connections]

    async def _resolve(self, pending: Pending, is_idle: bool) -> None:
        """Nothing was heard of it yet. When nothing runs, it ended while we were away, or never arrived."""
        if pending.frame is not None and not pending.connection:
            self._send(pending)  # for the first time
        elif not is_idle:
            return
        elif pending.is_known or self._was_taken(pending):
            await self._ask_end(pending)
        elif pending.is_cancelled:
            self._finish(pending, "aborted")
        elif pending.frame is not None:
            self._send(pending)

    async def _ask_end(self, pending: Pending) -> None:
        """It ended while we were away: the server says how. One that does not say is taken at its silence."""
        if pending.reply.id is not None:
            await self._post(wire.ResumeAck(pending.reply.id))
            try:
                await self._probe()
            except NotConnected:
                return  # the next connection will tell
        if pending in self._pending:
            self._finish(pending, "completed")

    def _was_taken(self, pending: Pending) -> bool:
        if pending.frame is None:
            open_calls = self.transcript.open_calls
            return not open_calls("approval-requested") and not open_calls("input-available")
        if pending.message is not None:
            return pending.message.id in (self.transcript.told or ())
        last = self.transcript.last_answer
        return last is not None and last.id not in pending.before

    # --- what arrives

    def _on_text(self, text: str | bytes) -> None:
        """Take what the server says."""
        check_frame(text)
        frame = decode_told(text)
        if frame is None:
            return
        self._chats = self._chats or isinstance(frame, OF_A_CONVERSATION)
        draft = None
        if isinstance(frame, wire.ResponseFrame) and frame.done:
            draft = self.transcript.draft(frame.id)  # which the end takes away
        new = self.transcript.take(frame)
        match frame:
            case wire.Identity(name, agent):
                self._check_whom(agent, name)
            case wire.State(state):
                for queue in self._watching:
                    queue.put_nowait(state)
            case wire.StateError(error):
                self.state_refused = error
            case wire.CallResult():
                self.calls.hear(frame)
            case wire.AgentToolEvent():
                if (event := self.runs.take(frame)) is not None:
                    for queue in self._watching_runs:
                        queue.put_nowait(event)
            case wire.StreamResuming() | wire.StreamPending() | wire.ResumeNone():
                self._told(frame)
            case wire.ResponseFrame():
                self._respond(frame, new, draft)
            case _:
                pass

    def _check_whom(self, agent: str, name: str) -> None:
        """Raise when it is not whom we asked for: what is said is not for others."""
        if (child := misled(self._url, agent, name)) is not None:
            raise NoSuchChild(*child, place=self._line.place, parent=f"{agent}/{name}")

    def _told(self, frame: Answered) -> None:
        """The server says where things stand, because we asked or by itself."""
        if not isinstance(frame, wire.ResumeNone):
            for pending in self._pending:
                if pending.reply.id == frame.id:
                    self._heard_of(pending)
        # Always accepted: whoever is offered a stream that runs is held out of it until then.
        self._offered = frame.id if isinstance(frame, wire.StreamResuming) else None
        if isinstance(frame, wire.StreamResuming) and frame.id not in self._over:
            self._later(self._post(wire.ResumeAck(frame.id)))
        probe = self._probes.pop(frame.probe_id, None) if frame.probe_id is not None else None
        if probe is not None and not probe.done():
            probe.set_result(frame)
        elif isinstance(frame, wire.ResumeNone) and frame.probe_id is None:
            self._nothing_follows()

    def _nothing_follows(self) -> None:
        """We were told to wait for a stream, and there will be none."""
        for pending in self._pending:
            if pending.reply.id is None:
                pending.connection = -1
        if self._doubtful():
            self._later(self._catch_up())

    def _heard_of(self, pending: Pending) -> None:
        pending.is_known, pending.connection = True, self._line.connections

    def _respond(self, frame: wire.ResponseFrame, new: ui.Chunk | None, draft: Message | None) -> None:
        pending = self._waiting_for(frame)
        is_over = frame.done and frame.outcome != "recovering"  # that one begins anew
        if is_over:
            self._over.append(frame.id)
        if pending is not None:
            self._heard_of(pending)
            reply = pending.reply
            if frame.error:
                reply.error = frame.body
            if new is not None:
                reply.hear(new)
            if is_over:
                self._finish(pending, frame.outcome or ("error" if reply.error else "completed"), draft)
        if is_over and self._doubtful():
            self._later(self._catch_up())  # that was somebody else; what about us?

    def _waiting_for(self, frame: wire.ResponseFrame) -> Pending | None:
        for pending in self._pending:
            if pending.reply.id == frame.id:
                return pending
        if frame.continuation and frame.id not in self._over:
            for pending in self._pending:
                if pending.reply.id is None:
                    pending.reply.id = frame.id
                    return pending
        return None

    def _finish(self, pending: Pending, outcome: str, draft: Message | None = None) -> None:
        self._pending.remove(pending)
        reply = pending.reply
        message = self.transcript.find(reply.message_id)
        if message is None and outcome != "skipped" and (draft is None or pending.frame is None):
            # It ended while we were away; or it is a continuation, which gets its id when it is stored.
            last = self.transcript.last_answer
            message = last if last is not None and last.text.startswith(reply.text) else None
        reply.finish(outcome, message or draft)
