"""The extensions of an agent, for the page: what is loaded, what it may do, what it said; loaded, unloaded.

    GET  …/extensions                         those that are loaded, in order, and why others are not
    GET  …/source?name=                       the source of one that runs in a sandbox
    POST …/load    {"name", "source", …}      as `extension_manager.load` does it
    POST …/unload  {"name"}                   as `extension_manager.unload` does it

All of them below `…/extensions`. Whoever may change the agent grants the rights of what they load, up to all
there are. Nothing that is loaded here leaves its sandbox: those of packages are named by the program alone.
"""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ..errors import ExtensionError, InvalidSettings
from ..extensions.queries import as_json as manifest_json
from ..extensions.values import LONGEST_SOURCE, Extension, ExtensionInfo, as_manifest
from ..masking import mask
from ..runtime.chat import Chat
from ..words import said
from .replies import as_json, body_of, fields_of, refusal

__all__ = ["ROOM", "answer"]

ROOM = "extensions"
"""What this module answers, as the first word of the path."""
FIELDS = (
    "name",
    "version",
    "source",
    "language",
    "description",
    "workspace",
    "network",
    "messages",
    "storage",
)
"""What may be sent to be loaded."""

Json = dict[str, Any]


async def answer(chat: Chat, request: Request, rest: list[str]) -> Response:
    """Answer one request that is for extensions. What stands against it becomes a refusal."""
    match request.method, rest:
        case "GET" | "HEAD", [_]:
            return as_json(_shown(chat))
        case "GET" | "HEAD", [_, "source"]:
            return _source(chat, request.query_params.get("name", ""))
        case "POST", [_, ("load" | "unload") as deed]:
            fields = fields_of(await body_of(request, chat.host.limits, LONGEST_SOURCE * 4))
            if fields is None:
                return refusal(400, "Send a JSON object of texts. Nothing was changed.")
            return await (_load(chat, fields) if deed == "load" else _unload(chat, fields))
        case _:
            return refusal(404, "There is nothing at this address of the inspector.")


def _shown(chat: Chat) -> Json:
    manager = chat.extensions.loaded
    failed = [
        {"what": one.step, "error": said(one.error, 2_000)}
        for one in chat.degradations
        if one.step.endswith("extensions") or one.step.startswith("the extension ")
    ]
    if manager is not None:
        failed += [
            {"what": f"the extension {name!r}", "error": said(why, 2_000)}
            for name, why in manager.left_out.items()
        ]
    return {
        "extensions": [] if manager is None else [_told(chat, info) for info in manager.list()],
        "failed": failed,
    }


def _told(chat: Chat, info: ExtensionInfo) -> Json:
    manager = chat.extensions.manager
    one, tools = manager.get(info.name), manager.get_tools()
    return {
        "name": info.name,
        "version": info.version,
        "description": said(info.description),
        "origin": "code" if info.origin == "person" else info.origin,
        "language": info.language,
        "tools": [
            {"name": name, "description": said(tools[name].description), "schema": tools[name].input_schema}
            for name in info.tools
            if name in tools
        ],
        "hooks": list(info.hooks),
        "context": list(info.context_labels),
        # One of a package runs in this process, and may do whatever that may.
        "permissions": None
        if one is None or info.language is None
        else manifest_json(one.manifest)["permissions"],
        "log": [mask(str(line)) for line in getattr(one, "printed", ())],
    }


def _source(chat: Chat, name: str) -> Response:
    manager = chat.extensions.loaded
    extension = None if manager is None else getattr(manager.get(name), "extension", None)
    if not isinstance(extension, Extension):
        return refusal(404, f"There is no extension {said(name)!r} that has its source here.")
    return as_json({"source": extension.source})


async def _load(chat: Chat, fields: dict[str, str]) -> Response:
    if unknown := sorted(set(fields) - set(FIELDS)):
        return refusal(400, f"{unknown[0]!r} is not known. Send {', '.join(FIELDS)}. Nothing was loaded.")
    given: Json = {
        "name": fields.get("name", "").strip(),
        "version": fields.get("version", "").strip() or "1.0.0",
        "description": fields.get("description", "").strip(),
        "permissions": {
            "workspace": fields.get("workspace") or "none",
            "network": fields.get("network", "").replace(",", " ").split(),
            "messages": fields.get("messages") or "none",
            "storage": fields.get("storage", "") == "true",
        },
    }
    language: Any = fields.get("language") or "javascript"
    try:
        manifest = as_manifest(given)
        info = await chat.extensions.manager.load(
            manifest, fields.get("source", ""), language=language, origin="person"
        )
    except (ExtensionError, InvalidSettings) as error:
        return refusal(400, str(error))
    return as_json(_told(chat, info))


async def _unload(chat: Chat, fields: dict[str, str]) -> Response:
    name, manager = fields.get("name", ""), chat.extensions.loaded
    info = next((one for one in manager.list() if one.name == name), None) if manager is not None else None
    # What comes back with the next start finds what it had stored.
    comes_back = info is not None and info.origin in ("declared", "package")
    found = None if manager is None else await manager.take_away(name, keep_storage=comes_back)
    if found is None:
        return refusal(404, f"There is no extension {said(name)!r}. Nothing was changed.")
    deleted = 0 if found.is_kept else found.values
    return as_json({"name": name, "comes_back": found.comes_back, "values_deleted": deleted})
