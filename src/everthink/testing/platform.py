"""What the stand-ins of messenger platforms share: a real server, faults, and what a person sees.

    the adapter, or the platform's own client --HTTP--> Platform: SlackWorkspace, DiscordServer
    a bot's webhook                           <--HTTP--     |  somebody says something, or presses a button
                                                          Shown: what is on their screen

A stand-in keeps the platform's rules, answers with the platform's words, and forgets nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Collection, Coroutine, Mapping
from dataclasses import dataclass, field
from email.utils import formatdate
from types import TracebackType
from typing import Any, Literal, Self, get_args
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from ..errors import InvalidSettings
from ..kinds import nearest
from .in_process_server import Listening
from .server_address import Answer, Place

__all__ = ["Asked", "Delivery", "Fault", "FaultKind", "Platform", "Shown", "ShownButton"]

LONGEST = 30.0
"""Seconds that a wait takes at most, unless it is told otherwise."""

FaultKind = Literal["429", "500", "hang", "accept_then_hang", "accept_then_drop", "slow"]


@dataclass(frozen=True, slots=True)
class ShownButton:
    """A button as a person sees it."""

    id: str
    label: str
    style: str = ""


@dataclass(slots=True, kw_only=True)
class Shown:
    """A message as a person sees it."""

    id: str
    channel: str
    author: str
    """The name of whoever wrote it."""
    text: str
    thread: str | None = None
    """The message whose thread it is in."""
    reply_to: str | None = None
    """The message that it answers, where platforms show that."""
    buttons: list[ShownButton] = field(default_factory=list[ShownButton])
    before: list[str] = field(default_factory=list[str])
    """What it said before it was edited, oldest first."""
    only_for: str | None = None
    """The only person who sees it, when not all do."""
    is_loading: bool = False
    """True while the platform shows that an answer is being written."""
    is_deleted: bool = False
    raw: dict[str, Any] = field(default_factory=dict[str, Any])
    """As the platform's API has it."""

    def button(self, label: str) -> ShownButton:
        """One of its buttons. Raises `LookupError` when it is not there."""
        for one in self.buttons:
            if one.label == label:
                return one
        there = ", ".join(repr(one.label) for one in self.buttons) or "none"
        raise LookupError(
            f"There is no button {label!r} on the message {self.text[:60]!r}. Nothing was pressed."
            f" Its buttons: {there}."
        )


@dataclass(slots=True, kw_only=True)
class Delivery:
    """Something that the platform told the bot's webhook, and what came of it."""

    kind: str
    body: bytes
    content_type: str = "application/json"
    told: dict[str, Any] = field(default_factory=dict[str, Any])
    """What the body says."""
    attempts: int = 0
    answer: Answer | None = None
    """The last answer. `None`: nobody was there, or nobody answered."""

    @property
    def status(self) -> int | None:
        """The status of the last answer."""
        return None if self.answer is None else self.answer.status


@dataclass(slots=True, kw_only=True)
class Fault:
    """Something that goes wrong, so many times."""

    method: str
    kind: FaultKind
    times: int
    retry_after: float
    after: int = 0
    """So many requests go well before."""
    met: int = 0
    """How often it has happened."""
    released: asyncio.Event = field(default_factory=asyncio.Event)

    def release(self) -> None:
        """Answer what is `slow`, and cut off what hangs."""
        self.released.set()


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request that the platform got, and its answer."""

    at: float
    method: str
    body: dict[str, Any]
    status: int | None
    """`None`: it was not answered."""


class Platform:
    """A platform behind a real port of this machine, until the block ends.

    Faults, by the name of a method (`"*"`: any): `"429"` and `"500"` refuse, and nothing happens. `"hang"`
    never answers, and nothing happens. `"accept_then_hang"` and `"accept_then_drop"` do what was asked, and
    never answer, or hang up. `"slow"` does it, and answers when `Fault.release()` is called.
    """

    def __init__(self, *, now: Callable[[], float] = time.time) -> None:
        self.now = now
        self.log: list[Asked] = []
        """Every request of the API, in order."""
        self.deliveries: list[Delivery] = []
        """Everything that the bot's webhook was told, in order."""
        self.faults: list[Fault] = []
        self.notices: list[str] = []
        """What the platform would tell the developer of the bot: a webhook that does not answer."""
        self._server = Listening(self._serve, interface="asgi3", date_header=False)
        self._changed = asyncio.Event()
        self._closing = asyncio.Event()
        self._tasks: set[asyncio.Task[Any]] = set()

    async def __aenter__(self) -> Self:
        await self._server.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.set()
        self._happened()  # whoever waits for something new hears that nothing will come
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.__aexit__(kind, error, trace)

    @property
    def origin(self) -> str:
        """Where it listens: `http://127.0.0.1:49152`."""
        return f"http://{self._server.host}"

    def fault(
        self, method: str, kind: FaultKind, *, times: int = 1, retry_after: float = 1.0, after: int = 0
    ) -> Fault:
        """Let `times` requests of `method` go wrong, once `after` of them went well. See the class for the
        kinds. Raises `InvalidSettings` for a method or a kind that there is not: it would never strike."""
        _check(method, ["*", *self._faulty()], "method of this platform")
        _check(kind, get_args(FaultKind), "kind of fault")
        fault = Fault(method=method, kind=kind, times=times, retry_after=retry_after, after=after)
        self.faults.append(fault)
        return fault

    def asked(self, method: str) -> list[Asked]:
        """The requests of one method."""
        return [asked for asked in self.log if asked.method == method]

    async def until(self, reached: Callable[[], object], *, within: float = LONGEST) -> None:
        """Return once `reached()` is true. It is asked whenever something has happened here."""
        try:
            async with asyncio.timeout(within):
                while not reached():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            last = [f"{asked.method} {asked.status}" for asked in self.log[-8:]]
            raise TimeoutError(f"{within:g} s passed without it; the last requests: {last}") from None

    async def deliver(self, delivery: Delivery, url: str) -> Delivery:
        """Tell the webhook at `url`. It may be told the same again: `attempts` counts."""
        delivery.attempts += 1
        if delivery not in self.deliveries:
            self.deliveries.append(delivery)
        head = {"content-type": delivery.content_type, **self._signed(delivery)}
        try:
            delivery.answer = await self._posted(url, head, delivery.body)
        except OSError as error:
            delivery.answer = None
            self.notices.append(f"{delivery.kind}: {type(error).__name__}")
        else:
            if delivery.answer.status >= 300:
                self.notices.append(f"{delivery.kind}: HTTP {delivery.answer.status}")
        self._happened()
        return delivery

    # For the platforms.

    def _signed(self, delivery: Delivery) -> dict[str, str]:
        """The headers that say that the platform has sent it, made now."""
        raise NotImplementedError

    async def _posted(self, url: str, headers: Mapping[str, str], body: bytes) -> Answer:
        """Tell a webhook: on a connection of its own, which has ended when this returns."""
        return await posted(url, headers, body)

    def _faulty(self) -> Collection[str]:
        """The methods that may go wrong."""
        raise NotImplementedError

    async def _api(self, request: Request, body: dict[str, Any]) -> tuple[str, Callable[[], Response]]:
        """Which method it is, and what does it. Nothing has happened before that is called."""
        raise NotImplementedError

    def _refusal(self, kind: Literal["429", "500"], fault: Fault) -> Response:
        """How this platform says no."""
        raise NotImplementedError

    def _happened(self) -> None:
        self._changed.set()

    def _later(self, work: Coroutine[Any, Any, Any]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        request = Request(scope, receive)
        body = await _body(request)
        method, act = await self._api(request, body)
        fault = self._due(method)
        if fault is None:
            response = act()
        elif fault.kind == "429" or fault.kind == "500":
            response = self._refusal(fault.kind, fault)
        else:
            response = None if fault.kind == "hang" else act()
        answers = fault is None or fault.kind in ("429", "500", "slow")
        status = response.status_code if response is not None and answers else None
        self.log.append(Asked(at=self.now(), method=method, body=body, status=status))
        self._happened()
        if fault is not None and fault.kind in ("hang", "accept_then_hang", "slow"):
            if not await self._released(fault, receive) or fault.kind != "slow":
                return await _drop(send)
        elif fault is not None and fault.kind == "accept_then_drop":
            return await _drop(send)
        assert response is not None
        response.headers["date"] = formatdate(self.now(), usegmt=True)
        with contextlib.suppress(OSError):
            await response(scope, receive, send)

    def _due(self, method: str) -> Fault | None:
        for fault in self.faults:
            if fault.method not in (method, "*") or fault.met >= fault.times:
                continue
            if fault.after:
                fault.after -= 1
                continue
            fault.met += 1
            return fault
        return None

    async def _released(self, fault: Fault, receive: Receive) -> bool:
        """Wait until it is released; false when whoever asked has gone, or the block ends."""
        waits: list[asyncio.Future[Any]] = [
            asyncio.ensure_future(fault.released.wait()),
            asyncio.ensure_future(receive()),
            asyncio.ensure_future(self._closing.wait()),
        ]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            return fault.released.is_set()
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)


def _check(given: str, known: Collection[str], what: str) -> None:
    if given not in known:
        near = nearest(given, known)
        raise InvalidSettings(
            f"{given!r} is no {what}.",
            kept="No request goes wrong by it.",
            next_step=(f"Did you mean {near!r}? " if near else "") + f"It takes: {', '.join(sorted(known))}.",
        )


async def posted(url: str, headers: Mapping[str, str], body: bytes) -> Answer:
    """One POST to an address of this machine."""
    parts = urlsplit(url)
    place = Place()
    place.port = parts.port or 80
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return await place.http(path, method="POST", headers=headers, body=body)


def json_answer(body: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """An answer of an API."""
    if status == 204:
        return Response(status_code=204)
    return JSONResponse(body, status, dict(headers or {}))


async def _body(request: Request) -> dict[str, Any]:
    """What was asked, however it was written: in the address, as a form, as JSON."""
    given: dict[str, Any] = dict(request.query_params)
    kind = request.headers.get("content-type", "")
    if kind.startswith("application/json"):
        with contextlib.suppress(ValueError):
            read = await request.json()
            given |= read if isinstance(read, dict) else {"_list": read}
    elif kind.startswith(("application/x-www-form-urlencoded", "multipart/form-data")):
        given |= {name: value for name, value in (await request.form()).items() if isinstance(value, str)}
    else:
        await request.body()
    return given


async def _drop(send: Send) -> None:
    """Hang up in the middle of an answer: nobody can know what came of it."""
    headers = [(b"content-length", b"1000"), (b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
