"""The journal of an agent as it is written, for the page of `everthink dev`.

    GET  /everthink/inspect/{class}/{name}                turns, calls, messages
    GET  /everthink/inspect/{class}/{name}/turns/{id}     one turn with its chunks
    GET  /everthink/inspect/{class}/{name}/answers/{id}   every version of what follows a message
    POST /everthink/inspect/{class}/{name}/leaf           go on from another version
    …    /everthink/inspect/{class}/{name}/{memory, …}    memory, sessions, search: memory.py
    …    /everthink/inspect/{class}/{name}/servers        MCP servers: servers.py
    …    /everthink/inspect/{class}/{name}/files          files: files.py
    …    /everthink/inspect/{class}/{name}/skills         skills: skills.py
    …    /everthink/inspect/{class}/{name}/extensions     extensions: extensions.py
    …    /everthink/inspect/{class}/{name}/{family, runs} children and their runs: family.py
    …    messengers, as part of the first of these: deliveries.py
    …    /everthink/conversations/{class}                 the list beside the page: conversations.py
    WS   /everthink/events/{class}/{name}                 the latest events, then each as it happens

Only `everthink dev` serves it, and only to those who may: the host (page.py), the origin, `authenticate`,
`authorize` with the action `"inspect"` and the other checks of the app come first. Who might not do
everything on a socket (`"connect"`) may only look. Messages are those of the live session. Looking at the
journal starts no agent. A child stands below its parents, as in its own address (`…/sub/{class}/{name}`);
who may look at the outermost of a family may look at all of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, HTTPConnection, Request
from starlette.responses import Response
from starlette.websockets import WebSocket, WebSocketDisconnect

from ..access.access import Pass
from ..access.expiry import close_when_expired
from ..address import Address, from_address, kebab
from ..app.app import App
from ..children.paths import BadName
from ..errors import AgentError
from ..journal.facts import TurnFacts, bad_endings, latest_calls, latest_turns, spans
from ..journal.feed import HistoryChanged
from ..journal.fold import fold
from ..journal.read import texts_of
from ..journal.segments import readable
from ..messages import Message, decode_json, encode_json, parse_stored
from ..recovery import suspects
from ..runtime import queries as runtime
from ..runtime.actor import Actor
from ..runtime.chat import Chat
from ..server.asgi import deny
from ..server.connections import Connection
from ..server.places import Place
from ..session import queries as session
from ..session import session_queries as sessions
from ..store.port import AgentStore
from ..think import Think
from . import conversations, deliveries, extensions, family, files, memory, servers, skills, view
from .layout import Layout
from .recorder import Recorder
from .replies import as_json, body_of, fields_of, refusal

__all__ = ["Inspector"]

log = logging.getLogger("everthink.devtools")

HTTP, SOCKET = ["everthink", "inspect"], ["everthink", "events"]
LIST = ["everthink", "conversations"]
TURNS, CALLS, MESSAGES, ENDINGS = 50, 100, 2000, 500
"""So many of each are shown, the newest."""
MAIN_SESSION = ""
ROOMS = memory.ROOMS | {servers.ROOM, files.ROOM, skills.ROOM, extensions.ROOM}
"""What is asked of the agent itself, by the first word of the path."""
NO_JOURNAL = "A {} does not chat: it has no journal to look at."
MAY_NOT = "You may look at this agent, but not change it. Nothing was changed."


@dataclass(frozen=True, slots=True)
class _Asked:
    """Who asks for what."""

    place: Place
    entered: Pass

    @property
    def address(self) -> Address:
        """Of the agent that is looked at."""
        return self.place.address


class Inspector:
    """Answers for one app."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._recorder = Recorder(app.events)

    def handles(self, scope: Any) -> bool:
        """True when a request is for the inspector."""
        doors = {"http": (HTTP, LIST), "websocket": (SOCKET,)}.get(scope["type"], ())
        return bool(doors) and _parts(scope)[:2] in doors

    def knows(self, scope: Any) -> bool:
        """True when the agent of a request is one of this app."""
        return _parts(scope)[2:3] in ([kebab(cls.__name__)] for cls in self._app.classes)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve one request or socket, among all others that the app serves."""
        gate = await self._app.gate()
        await gate.within(scope, receive, send, self._serve)

    async def _serve(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "websocket":
            await self._socket(WebSocket(scope, receive, send), receive)
            return
        request = Request(scope, receive)
        try:
            response = await (self._conversations if _parts(scope)[:2] == LIST else self._http)(request)
        except ClientDisconnect:
            response = Response(status_code=400)  # it left in the middle of its body, and reads no answer
        except AgentError as error:
            response = refusal(503, str(error))
        except HTTPException as error:
            response = refusal(error.status_code, error.detail)
        except Exception:
            log.exception("%s %s failed", request.method, request.url.path)
            response = refusal(500, "The inspector failed; the terminal says how.")
        await (await self._app.gate()).answer(response, scope, receive, send)

    # --- who asks for what

    def _class(self, connection: HTTPConnection) -> type[Think] | Response:
        """The class that is asked for; or a refusal."""
        access, (kind, name) = self._app.access, [*_parts(connection.scope)[2:], "", ""][:2]
        found = next((cls for cls in self._app.classes if kebab(cls.__name__) == kind), None)
        cls = found if found is not None and issubclass(found, Think) else None
        if access.is_foreign(connection):
            access.wrong_origin(connection, "inspect", cls or Think, name)
            return refusal(
                403,
                "The inspector answers its own page; this request comes from"
                f" {connection.headers.get('origin', '')!r}. Nothing was shown."
                " To allow it, name the origin in App(allow_origins=[…]).",
            )
        if cls is None and found is not None:
            return refusal(404, NO_JOURNAL.format(found.__name__))
        known = ", ".join(kebab(one.__name__) for one in self._app.classes if issubclass(one, Think))
        return cls or refusal(404, f"There is no agent {kind!r} here. There are: {known}.")

    async def _found(self, connection: HTTPConnection) -> _Asked | Response:
        """Who asks for what; or a refusal."""
        cls = self._class(connection)
        if isinstance(cls, Response):
            return cls
        _, written, *rest = [*_parts(connection.scope)[2:], "", ""]
        name = from_address(written)
        if not name:
            return refusal(404, "Name an agent: /everthink/inspect/{class}/{name}.")
        gate = await self._app.gate()
        try:
            place: Place = await gate.place(cls, name, rest[:-2])
        except (AgentError, BadName) as error:
            return refusal(400, f"There can be no such agent: {error}")
        entered = await gate.entered(connection, "inspect", cls, name)
        if isinstance(entered, Response):
            return entered
        if not issubclass(place.target, Think):
            return refusal(404, NO_JOURNAL.format(place.target.__name__))
        return _Asked(place, entered)

    async def _may_change(self, asked: _Asked) -> bool:
        """True when they might do everything on a socket, too. Otherwise it is told to the audit."""
        if await self._app.access.may_change(asked.entered, asked.place.cls, asked.place.name):
            return True
        reason, who = "no permission", {"identity": asked.entered.who}
        self._app.access.audit.refused(asked.address, "inspect", reason, **who)
        return False

    async def _conversations(self, request: Request) -> Response:
        """The list beside the page."""
        match request.method, _parts(request.scope)[2:]:
            case "GET" | "HEAD", [_]:
                asked = self._class(request)
                if isinstance(asked, Response):
                    return asked
                return await conversations.listed(self._app, request, asked)
            case "POST", [_, _, deed]:
                found = await self._found(request)
                if isinstance(found, Response):
                    return found
                if not await self._may_change(found):
                    return refusal(403, MAY_NOT)
                return await conversations.change(
                    self._app, request, found.place.cls, found.place.name, deed, found.entered
                )
            case _:
                return refusal(404, "There is nothing at this address: /everthink/conversations/{class}.")

    async def _http(self, request: Request) -> Response:
        found = await self._found(request)
        if isinstance(found, Response):
            return found
        address, rest = found.address, list(found.place.rest)
        if request.method == "POST":
            if not await self._may_change(found):
                return refusal(403, MAY_NOT)
            # Those above a child may say no, as they may to its socket; and who makes agents is counted.
            gate, makes_none = await self._app.gate(), rest[:1] not in ([room] for room in ROOMS)
            barred = await gate.refusal(request, found.place, found.entered, makes_none=makes_none)
            if barred is not None:
                return refusal(barred.status_code, f"{bytes(barred.body).decode()}. Nothing was changed.")
        match request.method, [unquote(part) for part in rest]:
            case "GET" | "HEAD", []:
                return as_json(await self._overview(address))
            case "GET" | "HEAD", ["turns", id]:
                return await self._turn(address, id)
            case "GET" | "HEAD", ["answers", id]:
                return as_json(await self._answers(address, id))
            case "GET" | "HEAD", ["family"]:
                database = (await self._app.open()).store
                return as_json(await family.tree(database, address.root, self._recorder.steps))
            case "POST", ["leaf"]:
                return await self._go_on_from(address, await body_of(request, self._app.limits))
            case "POST", ["runs", "stop"]:
                return await self._stop_run(address, await body_of(request, self._app.limits))
            case (("GET" | "HEAD"), [room, *_]) if room in ROOMS and not await self._exists(address):
                # The page looks before its socket has made the agent: nothing yet, which is no failure.
                return as_json(None)
            case (("GET" | "HEAD" | "POST"), [room, *_]) if room in memory.ROOMS:
                return await memory.answer(await self._chat(address), request, rest)
            case (("GET" | "HEAD" | "POST"), [servers.ROOM, *_]):
                actor = await self._actor(address)
                with actor.hold():
                    return await servers.answer(actor, request, rest)
            case (("GET" | "HEAD" | "POST"), [files.ROOM, *_]):
                actor = await self._actor(address)
                with actor.hold():
                    return await files.answer(actor, request, rest)
            case (("GET" | "HEAD" | "POST"), [skills.ROOM, *_]):
                actor = await self._actor(address)
                with actor.hold():
                    return await skills.answer(await self._chat(address), request, rest)
            case (("GET" | "HEAD" | "POST"), [extensions.ROOM, *_]):
                actor = await self._actor(address)
                with actor.hold():
                    return await extensions.answer(await self._chat(address), request, rest)
            case "GET" | "HEAD" | "POST", _:
                return refusal(404, "There is nothing at this address of the inspector.")
            case _:
                return refusal(405, "The inspector answers GET and POST.")

    # --- what it shows

    async def _overview(self, address: Address) -> dict[str, Any]:
        store = await self._store_of(address)
        turns = await latest_turns(store, TURNS)
        calls = await latest_calls(store, CALLS)
        with_calls = {call.turn for call in calls}
        holders = [
            message for turn in turns if turn.id in with_calls for message in await self._said(store, turn)
        ]
        layout = await self._layout(store)
        return {
            "agent": store.agent,
            "turns": view.turns(turns, functools.partial(self._recorder.steps, address.id)),
            "calls": view.calls(calls, view.in_and_out(holders)),
            "messages": layout.tree.to_json(),
            "leaf": layout.tree.leaf,
            "forks": layout.forks(),
            "endings": view.endings(await bad_endings(store, ENDINGS)),
            "set_aside": [view.aside(one) for one in await suspects.aside_of(store)],
            "runs": await family.runs(store, turns, self._recorder.steps),
            "messenger": await deliveries.of_conversation(store, await self._live(store), address.name),
            "deliveries": await deliveries.listed(store),
            "now": self._app.clock.now_ms(),
        }

    async def _turn(self, address: Address, id: str) -> Response:
        store = await self._store_of(address)
        turns = [turn for turn in await latest_turns(store, TURNS) if turn.id == id]
        if not turns:
            return refusal(404, f"{store.agent} has no turn {id!r} among its latest {TURNS}.")
        [found] = view.turns(turns, functools.partial(self._recorder.steps, address.id))
        return as_json({**found, "chunks": view.chunks(await spans(store, id))})

    async def _answers(self, address: Address, id: str) -> dict[str, Any]:
        store = await self._store_of(address)
        live = await self._live(store)
        layout = await memory.layout_of(store, live, MESSAGES)
        tree = layout.tree
        path = set(tree.path())
        branches = {version: tree.answer(version) for version in tree.versions(layout.row(id))}
        ids = (one for branch in branches.values() for one in branch)
        messages = await self._messages(store, [live], ids)
        return {
            "versions": [
                {"id": version, "messages": [messages[one].to_json() for one in branch if one in messages]}
                for version, branch in branches.items()
            ],
            "active": next((place for place, version in enumerate(branches) if version in path), None),
        }

    async def _go_on_from(self, address: Address, body: bytes) -> Response:
        fields = fields_of(body)
        if fields is None:
            return refusal(400, 'Send {"message": "…"}: the id of the version to go on from.')
        wanted = fields.get("message", "")
        if not await self._exists(address):
            return refusal(404, f"{address} has no message {wanted!r}. Nothing was changed.")
        chat = await self._chat(address)
        layout = await memory.layout_of(chat.host.store, chat.session.id, MESSAGES)
        leaf = layout.tree.tip_below(layout.row(wanted))
        if leaf is None:
            return refusal(404, f"{chat.host.id} has no message {wanted!r}. Nothing was changed.")
        if not chat.door.queue.is_idle or chat.requests.overlaps.pending:
            return refusal(409, "A turn runs or waits. Nothing was changed. Wait for its end, or stop it.")
        if not await chat.session.select_leaf(leaf):
            return refusal(409, "The conversation went on meanwhile. Nothing was changed. Look again.")
        chat.host.feed.publish(HistoryChanged())
        return as_json({"leaf": leaf})

    async def _stop_run(self, address: Address, body: bytes) -> Response:
        """Stop a run of a child, as `cancel_agent_tool` does."""
        run = (fields_of(body) or {}).get("id", "")
        if not await self._exists(address) or not run:
            return refusal(404, f"{address} has no run {run!r}. Nothing was changed.")
        await (await self._actor(address)).children.runs.cancel(run, family.STOPPED)
        return as_json({"id": run})

    async def _store_of(self, address: Address) -> AgentStore:
        return AgentStore((await self._app.open()).store, address.id)

    async def _exists(self, address: Address) -> bool:
        return await (await self._app.open()).exists(address)

    async def _actor(self, address: Address) -> Actor:
        return await (await self._app.open()).reach(address)

    async def _chat(self, address: Address) -> Chat:
        chat = (await self._actor(address)).chat
        assert chat is not None
        return chat

    async def _live(self, store: AgentStore) -> str:
        """The id of the live session, from what is stored: this starts no agent."""
        found = [value for name, value in await store.fetch(runtime.VALUES) if name == "session"]
        try:
            return decode_json(found[0], str) if found else MAIN_SESSION
        except msgspec.DecodeError:
            return MAIN_SESSION  # as the agent itself takes it, which tells

    async def _layout(self, store: AgentStore) -> Layout:
        return await memory.layout_of(store, await self._live(store), MESSAGES)

    async def _said(self, store: AgentStore, turn: TurnFacts) -> Iterable[Message]:
        """The answer of a turn: as stored, or as far as it has come."""
        if turn.ended_at is not None:
            known = [row[0] for row in await store.fetch(sessions.ALL)]
            places = dict.fromkeys([await self._live(store), MAIN_SESSION, *known])
            return (await self._messages(store, places, [turn.message_id])).values()
        texts = await texts_of(store, turn.id)
        return [fold(readable(texts), id=turn.message_id).message()]

    async def _messages(
        self, store: AgentStore, places: Iterable[str], ids: Iterable[str]
    ) -> dict[str, Message]:
        """Messages by id, from the first of these sessions that has them."""
        found: dict[str, Message] = {}
        for id in ids:
            for place in places:
                rows = await store.fetch(session.ONE, place, id)
                if rows and (message := parse_stored(id, *rows[0][:2])):
                    found[id] = message
                    break
        return found

    # --- events as they happen

    async def _socket(self, socket: WebSocket, receive: Any) -> None:
        found = await self._found(socket)
        if isinstance(found, Response):
            await deny(socket, receive, found)
            return
        agent = found.address.id
        await socket.accept()
        connection = Connection(str(uuid.uuid4()), socket, socket)
        connection.until = found.entered.until
        call_off = close_when_expired(connection.until, connection.close, self._app.clock)

        def tell(event: dict[str, Any]) -> None:
            connection.send(encode_json(event).decode())

        for event in self._recorder.events(agent):
            tell(event)
        stop = self._recorder.follow(agent, tell)
        pump = asyncio.create_task(connection.pump(), name=f"events {connection.id}")
        try:
            while (await socket.receive())["type"] != "websocket.disconnect":
                pass  # It has nothing to say to us.
        finally:
            stop()
            call_off()
            connection.is_open = False
            pump.cancel()
            with contextlib.suppress(asyncio.CancelledError, WebSocketDisconnect):
                await pump


def _parts(scope: Any) -> list[str]:
    """The path as it was sent: a name may hold what looks like a path."""
    raw: bytes = scope.get("raw_path") or quote(scope["path"]).encode()
    return [part for part in raw.decode(errors="replace").partition("?")[0].split("/") if part]
