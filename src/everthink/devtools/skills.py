"""The skills of an agent, for the page: what it has, from where, why not, and one that a person activates.

    GET  …/skills               sources, skills, diagnostics, what is active; `?again=1`: looked at again
    GET  …/look?name=           a skill: its instructions, its files
    GET  …/file?name=&path=     a file of it: the beginning of its text
    GET  …/languages            which languages of scripts run on this machine
    POST …/activate {"name"}    as `skills.activate` does it

All of them below `…/skills`.
Sources are looked at as with each turn. Whoever may look at the agent may read what its model may read.
"""

from __future__ import annotations

import base64
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ..errors import SkillError, StoreError, is_for_people
from ..runtime.chat import Chat
from ..skills.by_hand import activate
from ..skills.port import SkillSource
from ..skills.registry import SkillRegistry
from ..skills.showing import look, view
from ..words import said
from .replies import as_json, body_of, fields_of, refusal

__all__ = ["ROOM", "answer"]

ROOM = "skills"
"""What this module answers, as the first word of the path."""
LOOK_BYTES = 256 * 1024
"""So much of a text is shown."""

Json = dict[str, Any]


async def answer(chat: Chat, request: Request, rest: list[str]) -> Response:
    """Answer one request that is for skills. What stands against it becomes a refusal."""
    registry, asked = chat.skills.registry, request.query_params
    match request.method, rest:
        case "POST", [_, "activate"]:
            return await _activate(chat, request)
        case "GET" | "HEAD", [_]:
            if registry is not None and asked.get("again"):
                await registry.refresh()
            return as_json(_shown(chat, registry))
        case "GET" | "HEAD", [_, "languages"]:
            return as_json(await _languages(chat, registry))
        case "GET" | "HEAD", [_, "look"]:
            return await _read(registry, asked.get("name", ""), None)
        case "GET" | "HEAD", [_, "file"]:
            return await _read(registry, asked.get("name", ""), asked.get("path", ""))
        case _:
            return refusal(404, "There is nothing at this address of the inspector.")


def _shown(chat: Chat, registry: SkillRegistry | None) -> Json:
    problem = next((one.error for one in chat.degradations if one.step == "skills"), None)
    return {**view(registry, chat.session.path), "problem": problem}


async def _languages(chat: Chat, registry: SkillRegistry | None) -> Json | None:
    check: Any = None if registry is None else getattr(registry.runner, "check", None)
    if not callable(check):
        return None  # a runner of its own: nobody knows
    found: Any = check(chat.host.hooks.agent)
    return await found


async def _read(registry: SkillRegistry | None, name: str, path: str | None) -> Response:
    source = None if registry is None else registry.owner_of(name)
    if source is None:
        return refusal(404, f"There is no skill {said(name)!r}.")
    try:
        return await (_skill(source, name) if path is None else _file(source, name, path))
    except StoreError:
        raise
    except Exception as error:  # noqa: BLE001 - a source is other people's
        return _unread(error)


def _unread(error: Exception) -> Response:
    why = str(error) if is_for_people(error) else f"{type(error).__name__}: {error}"
    return refusal(502, f"The source of the skill could not be read: {said(why)}")


async def _skill(source: SkillSource, name: str) -> Response:
    found = await source.load(name)
    return (
        refusal(404, f"There is no skill {said(name)!r} any more.") if found is None else as_json(look(found))
    )


async def _file(source: SkillSource, name: str, path: str) -> Response:
    found = await source.read_resource(name, path)
    if found is None:
        return refusal(404, f"The skill {said(name)!r} has no file {said(path)!r}.")
    text = found.content if found.encoding == "text" else None
    size = len(text.encode()) if text is not None else len(base64.b64decode(found.content))
    return as_json(
        {
            "path": path,
            "kind": found.kind,
            "size": size,
            "mediaType": found.media_type,
            "text": None if text is None else text[:LOOK_BYTES],
            "isCut": text is not None and len(text) > LOOK_BYTES,
        }
    )


async def _activate(chat: Chat, request: Request) -> Response:
    fields = fields_of(await body_of(request, chat.host.limits))
    if fields is None or not fields.get("name"):
        return refusal(400, 'Send {"name": "…"}: the skill to activate. Nothing was changed.')
    if not chat.is_at_rest:
        return refusal(409, "A turn runs or waits. Nothing was changed. Wait for its end, or stop it.")
    if chat.answers.is_waiting_for_person():
        return refusal(409, "A call waits for a person. Nothing was changed. Answer it first.")
    name = fields["name"]
    try:
        return as_json({"name": name, "added": await activate(chat.host.hooks.agent, name)})
    except SkillError as error:
        return refusal(404, str(error))
    except StoreError:
        raise
    except Exception as error:  # noqa: BLE001 - a source is other people's
        return _unread(error)
