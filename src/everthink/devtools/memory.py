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

from ..clock import EPOCH, ms_of
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
from ..runtime.chat import Chat
from ..session import queries
from ..session.session import SearchHit
from ..session.sessions import MAIN, SessionInfo
from ..store.port import AgentStore
from .layout import Layout
from .prompt import explained
from .replies import as_json, body_of, fields_of, refusal
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


async def answer(chat: Chat, request: Request, rest: list[str]) -> Response:
    """Answer one request that is for memory. Errors of the session become refusals."""
    try:
        if request.method == "POST":
            fields = fields_of(await body_of(request, chat.host.limits, LONGEST_BLOCK))
            if fields is None:
                return refusal(400, "Send a JSON object of texts. Nothing was changed.")
            return await _change(chat, [unquote(part) for part in rest], fields)
        return await _look(chat, [unquote(part) for part in rest], request)
    except (UnknownSession, UnknownMessage) as error:
        return refusal(404, str(error))
    except ContextRefused as error:
        return refusal(400, str(error))
    except (SessionBusy, CompactionNotSetUp) as error:
        return refusal(409, str(error))


async def layout_of(store: AgentStore, session: str, most: int = MOST_ROWS) -> Layout:
    """How a session lies, also one that is not live."""
    rows = await store.fetch(queries.TREE, session, most)
    overlays = await store.fetch(queries.COMPACTIONS, session)
    return Layout(Tree(rows), [queries.overlay_of(row) for row in overlays])


async def _look(chat: Chat, rest: list[str], request: Request) -> Response:
    match rest:
        case ["memory"]:
            return as_json(await _memory(chat))
        case ["sessions"]:
            return as_json(await _sessions(chat))
        case ["search"]:
            asked = request.query_params
            return as_json(await _search(chat, asked.get("q", ""), everywhere=bool(asked.get("all"))))
        case ["compacted", id]:
            return await _compacted(chat, id)
        case _:
            return refusal(404, "There is nothing at this address of the inspector.")


async def _change(chat: Chat, rest: list[str], fields: Fields) -> Response:
    match rest:
        case ["memory", "blocks"]:
            return await _write(chat, fields)
        case ["memory", "refresh"]:
            await chat.session.refresh_system_prompt()
            return as_json({"prompt": await explained(chat)})
        case ["memory", "compact"]:
            return await _compact(chat)
        case ["sessions"]:
            return as_json(_told(await chat.sessions.create(_name(fields) or "New session")))
        case ["sessions", "rename"]:
            return await _rename(chat, fields)
        case ["sessions", "open"]:
            return as_json(_told(await chat.sessions.open(fields.get("id", MAIN))))
        case ["sessions", "fork"]:
            return await _fork(chat, fields)
        case ["sessions", "delete"]:
            await _require(chat, fields.get("id", MAIN))
            await chat.sessions.delete(fields.get("id", MAIN))
            return as_json(await _sessions(chat))
        case _:
            return refusal(404, "There is nothing to change at this address of the inspector.")


# --- memory


async def _memory(chat: Chat) -> Json:
    session = chat.session
    layout = await layout_of(chat.host.store, session.id)
    prompt = await explained(chat)
    info = await chat.sessions.get(session.id)
    return {
        "session": {"id": session.id, "name": info.name if info else ""},
        "tokens": {"estimate": await _weight(chat), "threshold": session.token_threshold},
        "has_compaction": session.has_compaction,
        "is_at_rest": chat.is_at_rest,
        "prompt": prompt,
        "blocks": [_block(block, prompt["behind"]) for block in session.get_context_blocks()],
        "loaded": sorted(session.context.loaded),
        "compactions": layout.compactions(),
        "omitted": [await _omitted(chat, id) for id in sorted(session.omitted)],
    }


async def _weight(chat: Chat) -> int | None:
    try:
        return await chat.session.estimate_tokens()
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


async def _omitted(chat: Chat, call_id: str) -> Json:
    message = await chat.session.find_call(call_id)
    parts = [] if message is None else [part for part in message.tool_parts if part["toolCallId"] == call_id]
    return {"call_id": call_id, "tool": tool_name(parts[0]) if parts else None}


async def _write(chat: Chat, fields: Fields) -> Response:
    label, content = fields.get("label"), fields.get("content")
    if label is None or content is None:
        return refusal(400, 'Send {"label": "…", "content": "…"}. Nothing was written.')
    before = chat.session.get_context_block(label)
    if "was" in fields and before is not None and before.content != fields["was"]:
        return refusal(
            409,
            f"The block {label!r} was written meanwhile. Nothing was changed."
            " Look at it again before you save.",
        )
    block = await chat.session.replace_context_block(label, content)
    prompt = await explained(chat)
    return as_json({"block": _block(block, prompt["behind"]), "prompt": prompt})


async def _compact(chat: Chat) -> Response:
    if not chat.is_at_rest:
        return refusal(409, "A turn runs or waits. Nothing was changed. Wait for its end, or stop it.")
    before = await chat.session.estimate_tokens()
    done = await chat.session.compact()
    after = await chat.session.estimate_tokens()
    return as_json({"is_shorter": done is not None, "tokens_before": before, "tokens": after})


async def _compacted(chat: Chat, id: str) -> Response:
    session = chat.session
    layout = await layout_of(chat.host.store, session.id)
    overlay = layout.overlay(id)
    if overlay is None:
        return refusal(404, f"This session has no summary {id!r}.")
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


async def _sessions(chat: Chat) -> Json:
    known = await chat.sessions.list()
    live = chat.session.id
    # The main one has no row before it was used, or when it is older than sessions are.
    if all(info.id != MAIN for info in known) and (
        live == MAIN or await chat.host.store.fetch(queries.TREE, MAIN, 1)
    ):
        known.append(SessionInfo(MAIN, "", None, None, None, 0, 0, 0.0, None, EPOCH, EPOCH))
    return {"live": live, "sessions": [_told(info) for info in known]}


def _told(info: SessionInfo) -> Json:
    return {
        "id": info.id,
        "name": info.name,
        "parent": info.parent_session_id,
        "input_tokens": info.input_tokens,
        "output_tokens": info.output_tokens,
        "end_reason": info.end_reason,
        "created_at": ms_of(info.created_at),
        "updated_at": ms_of(info.updated_at),
    }


async def _rename(chat: Chat, fields: Fields) -> Response:
    name = _name(fields)
    if not name:
        return refusal(400, 'Send {"id": "…", "name": "…"} with a name. Nothing was changed.')
    await chat.sessions.rename(fields.get("id", MAIN), name)
    return as_json(await _sessions(chat))


async def _fork(chat: Chat, fields: Fields) -> Response:
    id = fields.get("id", MAIN)
    await _require(chat, id)
    layout = await layout_of(chat.host.store, id)
    made = await chat.sessions.fork(id, layout.row(fields.get("message", "")), _name(fields) or None)
    return as_json(_told(made))


async def _require(chat: Chat, id: str) -> None:
    """Raise unless there is such a session; the main one is there as soon as somebody asks for it."""
    if id != MAIN and await chat.sessions.get(id) is None:
        raise UnknownSession(f"There is no session {id!r}.", kept="Nothing was changed.")


def _name(fields: Fields) -> str:
    return " ".join(fields.get("name", "").split())[:LONGEST_NAME]


# --- search


async def _search(chat: Chat, words: str, *, everywhere: bool) -> Json:
    if not words.strip():
        return {"hits": []}
    hits = await (chat.sessions if everywhere else chat.session).search(words, limit=HITS)
    layouts = {id: await layout_of(chat.host.store, id) for id in {hit.session_id for hit in hits}}
    names = {info.id: info.name for info in await chat.sessions.list()}
    return {"hits": [{**_hit(hit, names), **layouts[hit.session_id].where(hit.id)} for hit in hits]}


def _hit(hit: SearchHit, names: dict[str, str]) -> Json:
    return {
        "id": hit.id,
        "session": hit.session_id,
        "session_name": names.get(hit.session_id, ""),
        "role": hit.role,
        "text": hit.content,
        "snippet": hit.snippet,
        "created_at": ms_of(hit.created_at),
    }
