"""The conversations of an agent class, for the list beside the page.

    GET  /everthink/conversations/{class}                  those one may look at, the one used last first
    GET  /everthink/conversations/{class}?q=…              what was said in them, by words
    GET  /everthink/conversations/{class}?open=NAME        and whether one may enter that one, or else which
    POST /everthink/conversations/{class}/{name}/rename    {"title": "…"}
    POST /everthink/conversations/{class}/{name}/erase     for good: App.erase

A conversation is an agent in which something was said. Who asks is shown those of which `authorize`
(`"inspect"`) says that they may look, and learns nothing of the others. Looking starts no agent.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ..access.access import Pass
from ..address import Address
from ..app.app import App
from ..deliveries.showing import came_by
from ..identity import name_of
from ..messages import decode_json, parse_stored
from ..runtime import queries as runtime
from ..session import queries
from ..store.port import LONGEST_QUERY, AgentStore, Search, Store
from ..think import Think
from . import deliveries, family
from .memory import layout_of
from .replies import as_json, body_of, fields_of, refusal

__all__ = ["change", "listed"]

MOST = 300
"""So many conversations are listed and searched, those that were used last."""
HITS, HITS_EACH = 40, 5
LONGEST_TITLE = 80
TITLE = "title"
"""The value that holds the name somebody gave."""
ATTACHED = re.compile(r"\[Attached: /[^\]]+\)\]")
"""How the page says in a message that a file goes along."""

Json = dict[str, Any]


async def listed(app: App, request: Request, cls: type[Think]) -> Response:
    """The conversations one may look at, or what was found in them."""
    store = (await app.open()).store
    rows = await store.fetch(runtime.LATEST, cls.__name__, MOST + 1)
    names = await app.access.among(request, "inspect", cls, [row[0] for row in rows[:MOST]])
    if isinstance(names, Response):
        return names
    found = await _described(store, cls, names)
    words = request.query_params.get("q", "")
    if words.strip():
        return as_json({"hits": await _hits(store, cls, found, words)})
    told: Json = {"conversations": found, "more": len(rows) > MOST}
    if asked := request.query_params.get("open"):
        told["entry"] = await _entry(app, request, cls, asked)
    return as_json(told)


async def _entry(app: App, request: Request, cls: type[Think], asked: str) -> Json:
    """Whether one may enter `asked`; if not, the conversation that is called like oneself, if one may."""

    async def may_enter(name: str) -> bool:
        return await app.access.among(request, "connect", cls, [name]) == [name]

    if await may_enter(asked):
        return {"name": asked, "open": True}
    own = name_of(getattr(request.state, "identity", None))
    return {"name": asked, "open": False, "yours": own if own and await may_enter(own) else None}


async def change(
    app: App, request: Request, cls: type[Think], name: str, deed: str, entered: Pass
) -> Response:
    """Rename or erase one. Whether they may was asked before."""
    directory = await app.open()
    address = directory.address(cls, name)
    if not await directory.exists(address):
        return refusal(404, f"There is no conversation {name!r} of {cls.__name__}. Nothing was changed.")
    match deed:
        case "rename":
            title = _title(fields_of(await body_of(request, app.limits)) or {})
            if not title:
                return refusal(400, 'Send {"title": "…"} with a name. Nothing was changed.')
            actor = await directory.reach(address)
            await actor.store.apply([actor.save_value(TITLE, title)])
            return as_json({"name": name, "title": title})
        case "erase":
            return as_json({"name": name, "rows": await app.erase(cls, name, identity=entered.identity)})
        case _:
            return refusal(404, "There is nothing to change at this address.")


# --- what they are called


async def _described(store: Store, cls: type[Think], names: Sequence[str]) -> list[Json]:
    """Those in which something was said, the one used last first."""
    if not names:
        return []
    agents = [Address(cls.__name__, name).id for name in names]
    used = {row[0]: row[1] for row in await store.fetch(queries.latest_of(len(agents)), *agents)}
    given = {row[0]: row[1] for row in await store.fetch(runtime.values_of(len(agents)), TITLE, *agents)}
    first = {row[0]: row[1:] for row in await store.fetch(queries.first_asked(len(agents)), *agents)}
    children = await family.children_of(store, agents)
    met = {agent: came_by(parse_stored(*row)) for agent, row in first.items()}
    chats = await _chats(store, children)
    known = [
        {
            "name": name,
            "title": _given(given.get(agent)) or _asked(first.get(agent)) or (name if agent in chats else ""),
            "at": max(used.get(agent, 0), chats.get(agent, 0)),
            "messenger": met.get(agent),
            "children": children.get(agent, []),
        }
        for name, agent in zip(names, agents, strict=True)
        if agent in used or agent in chats
    ]
    return sorted(known, key=lambda one: one["at"], reverse=True)


async def _chats(store: Store, children: dict[str, list[Json]]) -> dict[str, int]:
    """Mark those children that somebody talks to in a messenger. When one of them did last, by their root."""
    talked = {
        child["id"]: (root, child)
        for root, found in children.items()
        for child in found
        if child["status"] is None
    }
    met = await deliveries.of_agents(store, [(id, child["name"]) for id, (_, child) in talked.items()])
    if not met:
        return {}
    used = {row[0]: row[1] for row in await store.fetch(queries.latest_of(len(met)), *met)}
    latest: dict[str, int] = {}
    for id, messenger in met.items():
        root, child = talked[id]
        child["messenger"], child["title"] = messenger, messenger["chat"]
        latest[root] = max(latest.get(root, 0), used.get(id, 0))
    return latest


def _given(value: str | None) -> str:
    try:
        return "" if value is None else decode_json(value, str)
    except ValueError:
        return ""  # not what we wrote; what was said names it


def _asked(row: Sequence[Any] | None) -> str:
    message = parse_stored(*row) if row else None
    words = " ".join(message.text.split()) if message else ""
    # What the page says of files that went along names nothing, unless there are no other words.
    return (ATTACHED.sub("", words).strip() or words)[:LONGEST_TITLE]


def _title(fields: dict[str, str]) -> str:
    return " ".join(fields.get("title", "").split())[:LONGEST_TITLE]


# --- what was said in them


async def _hits(store: Store, cls: type[Think], conversations: Sequence[Json], words: str) -> list[Json]:
    found: list[Json] = []
    for one in conversations:
        theirs = AgentStore(store, Address(cls.__name__, one["name"]).id)
        rows = await theirs.search(_search(words))
        layouts = {session: await layout_of(theirs, session) for session in {row[2] for row in rows}}
        found += [
            {
                "conversation": one["name"],
                "title": one["title"],
                "id": id,
                "session": session,
                "role": role,
                "text": text,
                "snippet": snippet,
                "created_at": at,
                **layouts[session].where(id),
            }
            for id, role, session, at, text, snippet in rows
        ]
        if len(found) >= HITS:
            break
    return found[:HITS]


def _search(words: str) -> Search:
    columns = ("id", "role", "session", "created_at")
    return Search("messages", columns, tuple(words[:LONGEST_QUERY].split()), limit=HITS_EACH)
