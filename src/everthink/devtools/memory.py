"""What an agent remembers, for the page: blocks and prompt, summaries, sessions, search.

    GET  …/memory                         session, tokens, prompt and why, blocks, compactions
    POST …/memory/{blocks, refresh, compact}
    GET  …/sessions                       POST …/sessions[/{rename, open, fork, delete}]
    GET  …/search?q=…&all=1               GET  …/compacted/{summary}

It does what the agent's own `session` and `sessions` do and nothing beside them, so that what the
page changes is what code would have changed. Unlike the journal this starts the agent; looking makes none
that does not exist.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

from starlette.requests import Request
from starlette.responses import Response

from ..context.blocks import ContextBlock
from ..errors import (
    CompactionNotSetUp,
    ContextRefused,
    ContextUnavailable,
    SessionBusy,
    UnknownMessage,
    UnknownSession,
)
from ..masking import masked
from ..messages import tool_name
from ..runtime.actor import Actor
from ..session import queries
from ..session.session import SearchHit
from ..session.sessions import MAIN, SessionInfo
from ..store.port import Store
from .layout import Layout
from .prompt import explained
from .replies import as_json, body_of, fields_of, letter
from .view import Tree

__all__ = ["ROOMS", "answer", "layout_of"]

ROOMS = frozenset({"memory", "sessions", "search", "compacted"})
"""What this module answers, by the first word of the path."""

MOST_ROWS = 10_000
"""So many messages of a session are looked at, the newest."""
MOST_SHOWN = 500
"""So many messages behind a summary are sent, the newest."""
HITS = 30
LONGEST_NAME = 120
LONGEST_BLOCK = 1_000_000

Json = dict[str, Any]
Fields = dict[str, str]


async def answer(actor: Actor, request: Request, rest: list[str]) -> Response:
    """Answer one request that is for memory. Errors of the session become letters."""
    try:
        if request.method == "POST":
            fields = fields_of(await body_of(request, LONGEST_BLOCK))
            if fields is None:
                return letter(400, "Send a JSON object of texts. Nothing was changed.")
            return await _change(actor, [unquote(part) for part in rest], fields)
        return await _look(actor, [unquote(part) for part in rest], request)
    except (UnknownSession, UnknownMessage) as error:
        return letter(404, str(error))
    except ContextRefused as error:
        return letter(400, str(error))
    except (SessionBusy, CompactionNotSetUp) as error:
        return letter(409, str(error))


async def layout_of(store: Store, agent: str, session: str, most: int = MOST_ROWS) -> Layout:
    """How a session lies, also one that is not live."""
    rows = await store.fetch(queries.TREE, agent, session, most)
    overlays = await store.fetch(queries.COMPACTIONS, agent, session)
    return Layout(Tree(rows), [queries.overlay_of(row) for row in overlays])


async def _look(actor: Actor, rest: list[str], request: Request) -> Response:
    match rest:
        case ["memory"]:
            return as_json(await _memory(actor))
        case ["sessions"]:
            return as_json(await _sessions(actor))
        case ["search"]:
            asked = request.query_params
            return as_json(await _search(actor, asked.get("q", ""), everywhere=bool(asked.get("all"))))
        case ["compacted", id]:
            return await _compacted(actor, id)
        case _:
            return letter(404, "There is nothing at this address of the inspector.")


async def _change(actor: Actor, rest: list[str], fields: Fields) -> Response:
    match rest:
        case ["memory", "blocks"]:
            return await _write(actor, fields)
        case ["memory", "refresh"]:
            await actor.session.refresh_system_prompt()
            return as_json({"prompt": await explained(actor)})
        case ["memory", "compact"]:
            return await _compact(actor)
        case ["sessions"]:
            return as_json(_told(await actor.sessions.create(_name(fields) or "New session")))
        case ["sessions", "rename"]:
            return await _rename(actor, fields)
        case ["sessions", "open"]:
            return as_json(_told(await actor.sessions.open(fields.get("id", MAIN))))
        case ["sessions", "fork"]:
            return await _fork(actor, fields)
        case ["sessions", "delete"]:
            await _require(actor, fields.get("id", MAIN))
            await actor.sessions.delete(fields.get("id", MAIN))
            return as_json(await _sessions(actor))
        case _:
            return letter(404, "There is nothing to change at this address of the inspector.")


# --- memory


async def _memory(actor: Actor) -> Json:
    session = actor.session
    layout = await layout_of(actor.store, actor.id, session.id)
    prompt = await explained(actor)
    info = await actor.sessions.get(session.id)
    return {
        "session": {"id": session.id, "name": info.name if info else ""},
        "tokens": {"estimate": await _weight(actor), "threshold": session.token_threshold},
        "has_compaction": session.has_compaction,
        "is_at_rest": actor.is_at_rest,
        "prompt": prompt,
        "blocks": [_block(block, prompt["behind"]) for block in session.get_context_blocks()],
        "loaded": sorted(session.context.loaded),
        "compactions": layout.compactions(),
        "omitted": [await _omitted(actor, id) for id in sorted(session.omitted)],
    }


async def _weight(actor: Actor) -> int | None:
    try:
        return await actor.session.estimate_tokens()
    except ContextUnavailable:
        return None  # the prompt cannot be read at the moment, and is told so beside it


def _block(block: ContextBlock, behind: list[str]) -> Json:
    # What can be written is shown as it is: a mask would be saved in its place.
    can_edit = block.writable and not block.is_keyed
    return {
        "label": block.label,
        "description": block.description,
        "kind": _kind(block),
        "content": block.content if can_edit else masked(block.content),
        "tokens": block.tokens,
        "max_tokens": block.max_tokens,
        "writable": block.writable,
        "can_edit": can_edit,
        "is_behind": block.label in behind,
    }


def _kind(block: ContextBlock) -> str:
    if block.is_searchable:
        return "searchable"
    if block.is_skill:
        return "loadable"
    return "writable" if block.writable else "readonly"


async def _omitted(actor: Actor, call_id: str) -> Json:
    message = await actor.session.find_call(call_id)
    parts = [] if message is None else [part for part in message.tool_parts if part["toolCallId"] == call_id]
    return {"call_id": call_id, "tool": tool_name(parts[0]) if parts else None}


async def _write(actor: Actor, fields: Fields) -> Response:
    label, content = fields.get("label"), fields.get("content")
    if label is None or content is None:
        return letter(400, 'Send {"label": "…", "content": "…"}. Nothing was written.')
    before = actor.session.get_context_block(label)
    if "was" in fields and before is not None and before.content != fields["was"]:
        return letter(
            409,
            f"The block {label!r} was written meanwhile. Nothing was changed."
            " Look at it again before you save.",
        )
    block = await actor.session.replace_context_block(label, content)
    prompt = await explained(actor)
    return as_json({"block": _block(block, prompt["behind"]), "prompt": prompt})


async def _compact(actor: Actor) -> Response:
    if not actor.is_at_rest:
        return letter(409, "A turn runs or waits. Nothing was changed. Wait for its end, or stop it.")
    before = await actor.session.estimate_tokens()
    done = await actor.session.compact()
    after = await actor.session.estimate_tokens()
    return as_json({"is_shorter": done is not None, "tokens_before": before, "tokens": after})


async def _compacted(actor: Actor, id: str) -> Response:
    session = actor.session
    layout = await layout_of(actor.store, actor.id, session.id)
    overlay = layout.overlay(id)
    if overlay is None:
        return letter(404, f"This session has no summary {id!r}.")
    ids = layout.messages_of(overlay) or []
    found = [await session.get_message(one) for one in ids[-MOST_SHOWN:]]
    return as_json(
        {
            "id": overlay.id,
            "summary": overlay.summary,
            "messages": [message.to_json() for message in found if message is not None],
            "left_out": max(0, len(ids) - MOST_SHOWN),
        }
    )


# --- sessions


async def _sessions(actor: Actor) -> Json:
    known = await actor.sessions.list()
    live = actor.session.id
    # The main one has no row before it was used, or when it is older than sessions are.
    if all(info.id != MAIN for info in known) and (
        live == MAIN or await actor.store.fetch(queries.TREE, actor.id, MAIN, 1)
    ):
        known.append(SessionInfo(MAIN, "", None, None, None, 0, 0, 0.0, None, 0, 0))
    return {"live": live, "sessions": [_told(info) for info in known]}


def _told(info: SessionInfo) -> Json:
    return {
        "id": info.id,
        "name": info.name,
        "parent": info.parent_session_id,
        "input_tokens": info.input_tokens,
        "output_tokens": info.output_tokens,
        "end_reason": info.end_reason,
        "created_at": info.created_at,
        "updated_at": info.updated_at,
    }


async def _rename(actor: Actor, fields: Fields) -> Response:
    name = _name(fields)
    if not name:
        return letter(400, 'Send {"id": "…", "name": "…"} with a name. Nothing was changed.')
    await actor.sessions.rename(fields.get("id", MAIN), name)
    return as_json(await _sessions(actor))


async def _fork(actor: Actor, fields: Fields) -> Response:
    id = fields.get("id", MAIN)
    await _require(actor, id)
    layout = await layout_of(actor.store, actor.id, id)
    made = await actor.sessions.fork(id, layout.row(fields.get("message", "")), _name(fields) or None)
    return as_json(_told(made))


async def _require(actor: Actor, id: str) -> None:
    """Raise unless there is such a session; the main one is there as soon as somebody asks for it."""
    if id != MAIN and await actor.sessions.get(id) is None:
        raise UnknownSession(f"There is no session {id!r}.", kept="Nothing was changed.")


def _name(fields: Fields) -> str:
    return " ".join(fields.get("name", "").split())[:LONGEST_NAME]


# --- search


async def _search(actor: Actor, words: str, *, everywhere: bool) -> Json:
    if not words.strip():
        return {"hits": []}
    hits = await (actor.sessions if everywhere else actor.session).search(words, limit=HITS)
    layouts = {id: await layout_of(actor.store, actor.id, id) for id in {hit.session_id for hit in hits}}
    names = {info.id: info.name for info in await actor.sessions.list()}
    return {"hits": [{**_hit(hit, names), **layouts[hit.session_id].where(hit.id)} for hit in hits]}


def _hit(hit: SearchHit, names: dict[str, str]) -> Json:
    return {
        "id": hit.id,
        "session": hit.session_id,
        "session_name": names.get(hit.session_id, ""),
        "role": hit.role,
        "text": hit.content,
        "snippet": hit.snippet,
        "created_at": hit.created_at,
    }
