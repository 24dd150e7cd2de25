"""The files of an agent, for the page: looked at, brought, taken away, put back.

    GET  …/files?path=&after=       a folder, and how much may be brought at once
    GET  …/files/look?path=         one file: what it is, and the beginning of its text
    GET  …/files/content?path=      its bytes; with `&hash=` those it had; with `&download=1` always saved
    GET  …/files/changes            what changed, by turns, newest first
    GET  …/files/diff?first=&last=  what the changes with these numbers came to; `?call=` those of a tool call
    POST …/files/upload?path=       the body becomes a file; with `&replace=1` also where there is one
    POST …/files/delete   {"path"}  with all that is in it
    POST …/files/restore  {"seq"}   everything as it stood after that change
    POST …/files/undo     {"turn"}  what one turn changed, and nothing else

Looking is not told to observers: the page would look again at every look. A file is shown as what its bytes
are, and saved when they are neither a picture, nor a PDF, nor text. Putting back is a change like any other.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Mapping
from contextlib import contextmanager
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from ..errors import WorkspaceError
from ..limits import Limits
from ..runtime.actor import Actor
from ..server.answers import HEADERS
from ..workspace import refusals
from ..workspace.paths import name_of, normal
from ..workspace.port import Change, Entry
from ..workspace.workspace import Workspace
from . import file_views as view
from .replies import as_json, body_of, fields_of, refusal

__all__ = ["ROOM", "answer"]

ROOM = "files"
"""What this module answers, as the first word of the path."""
LISTED = 500
"""So many entries of a folder are told at once."""
LOOK_BYTES = 256 * 1024
"""So much of a text is shown."""
DIFF_BYTES = 1024 * 1024
"""Longer files are not compared."""
DIFF_PATHS = 50
GROUPS = 100
UPLOAD_BYTES = 32 * 1024 * 1024
"""Bytes of one file that is brought, if the workspace takes as much."""

# A file is nobody's page. A PDF is shown inside of ours, and a browser's own viewer does that.
SEALED = "default-src 'none'; sandbox; frame-ancestors 'none'"
OURS = "frame-ancestors 'self'"

STATUS = {
    "ENOENT": 404,
    "EEXIST": 409,
    "ESTALE": 409,
    "EFBIG": 413,
    "EDQUOT": 413,
    "EROFS": 403,
    "EPERM": 403,
}
"""What a refusal of a workspace is in HTTP. All others are 400."""

Json = dict[str, Any]


async def answer(actor: Actor, request: Request, rest: list[str]) -> Response:
    """Answer one request that is for files. What stands against it becomes a refusal."""
    workspace, limits, asked = actor.workspace, actor.limits, request.query_params
    if not isinstance(workspace, Workspace):
        return refusal(
            404, f"{actor.id} keeps its files in an object of its own, which the page cannot show."
        )
    try:
        match request.method, rest:
            case "POST", [_, deed]:
                return await _changed(workspace, request, deed, limits)
            case "GET" | "HEAD", [_]:
                return as_json(await _folder(workspace, asked.get("path", "/"), asked.get("after", "")))
            case "GET" | "HEAD", [_, "look"]:
                return as_json(await _look(workspace, asked.get("path", "")))
            case "GET" | "HEAD", [_, "content"]:
                return await _content(workspace, request)
            case "GET" | "HEAD", [_, "changes"]:
                return as_json(await _groups(workspace))
            case "GET" | "HEAD", [_, "diff"]:
                return await _diff(workspace, asked)
            case _:
                return _nothing()
    except WorkspaceError as error:
        return refusal(STATUS.get(error.code, 400), str(error))


def _nothing() -> Response:
    return refusal(404, "There is nothing at this address of the inspector.")


# --- looking


async def _folder(workspace: Workspace, path: str, after: str) -> Json:
    folder = normal(path)
    found = await workspace.files.list(folder, limit=LISTED + 1, after=after)
    return {
        "path": folder,
        "entries": [view.entry(one) for one in found[:LISTED]],
        "more": len(found) > LISTED,
        "upload_bytes": _most(workspace),
    }


async def _file(workspace: Workspace, path: str) -> Entry:
    """The file at a path, under its own path. Raises `ENOENT` or `EISDIR`."""
    found = await workspace.files.stat(normal(path))
    if found is None:
        raise WorkspaceError(f"There is no file at {path!r}.", code="ENOENT", path=path)
    if found.kind != "file":
        raise WorkspaceError(f"{path!r} is a folder.", code="EISDIR", path=path)
    return found


async def _look(workspace: Workspace, path: str) -> Json:
    found = await _file(workspace, path)
    data = await workspace.files.read(found.path, length=LOOK_BYTES) or b""
    shape = view.shape_of(data[: view.HEAD_BYTES])
    text = data.decode("utf-8", "replace") if shape.kind == "text" else None
    if text is not None and found.size > LOOK_BYTES:
        text = text.rpartition("\n")[0] or text
    return {"entry": view.entry(found), "kind": shape.kind, "text": text, "is_cut": found.size > LOOK_BYTES}


async def _content(workspace: Workspace, request: Request) -> Response:
    asked = request.query_params
    path = normal(asked.get("path", ""))
    if hash := asked.get("hash"):
        stream = await workspace.read_content_stream(hash)
        if stream is None:
            return refusal(404, "This version of the file is not kept any more.")
    else:
        stream = workspace.files.stream((await _file(workspace, path)).path)
    # Of what is sent, and not of what is there a moment before.
    first = await anext(stream, b"")
    headers, kind = _headers(path, first, asked), _type_of(first)
    if request.method == "HEAD":
        await _closed(stream)
        return Response(headers=headers, media_type=kind)
    return StreamingResponse(_joined(first, stream), headers=headers, media_type=kind)


async def _joined(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    try:
        yield first
        async for piece in rest:
            yield piece
    finally:
        await _closed(rest)


async def _closed(stream: AsyncIterator[bytes]) -> None:
    """Let go of what a stream holds that nobody reads to its end."""
    if isinstance(stream, AsyncGenerator):
        await stream.aclose()


def _type_of(data: bytes) -> str:
    return view.shape_of(data[: view.HEAD_BYTES]).content_type


def _headers(path: str, data: bytes, asked: Mapping[str, str]) -> dict[str, str]:
    shape = view.shape_of(data[: view.HEAD_BYTES])
    return {
        **HEADERS,
        "Content-Disposition": view.disposition(
            name_of(path), is_saved="download" in asked or not shape.is_shown
        ),
        "Content-Security-Policy": OURS if shape.kind == "pdf" else SEALED,
        "Cross-Origin-Resource-Policy": "same-origin",
    }


# --- what changed


async def _log(workspace: Workspace) -> list[Change]:
    """All changes that are kept, in order."""
    found: list[Change] = []
    while some := await workspace.changes(after=found[-1].seq if found else 0):
        found += some
    return found


async def _groups(workspace: Workspace) -> Json | None:
    """By turns, newest first; `None` when the files are where no change is remembered."""
    try:
        changes = await _log(workspace)
    except WorkspaceError as error:
        if error.code != "EINVAL":
            raise
        return None
    groups = await asyncio.to_thread(view.groups, changes)
    return {"groups": groups[:GROUPS], "last": changes[-1].seq if changes else 0}


async def _diff(workspace: Workspace, asked: Mapping[str, str]) -> Response:
    changes = await _log(workspace)
    if call := asked.get("call"):
        changes = [one for one in changes if one.call_id == call]
    else:
        first, last = _number(asked.get("first", "")), _number(asked.get("last", ""))
        if first is None or last is None:
            return refusal(400, "Say which changes: ?first=…&last=…, or ?call=…")
        changes = [one for one in changes if first <= one.seq <= last]
    paths = [one for one in await asyncio.to_thread(view.net, changes) if one.kind == "file"]
    return as_json(
        {
            "files": [await _compared(workspace, one) for one in paths[:DIFF_PATHS]],
            "more": max(0, len(paths) - DIFF_PATHS),
        }
    )


async def _compared(workspace: Workspace, one: view.Net) -> Json:
    """What became of a file: the lines, or why they are not shown."""
    before, after = [await _version(workspace, hash) for hash in (one.was, one.hash)]
    told: Json = {"path": one.path, "change": one.change, "diff": None, "why": None}
    if before is None or after is None:
        return {**told, "why": "An earlier version is not kept any more."}
    if len(before) > DIFF_BYTES or len(after) > DIFF_BYTES:
        return {**told, "why": "It is too long to be compared."}
    if any(view.shape_of(data[: view.HEAD_BYTES]).kind != "text" for data in (before, after)):
        return {**told, "why": f"It is no text: {len(before):,} bytes before, {len(after):,} bytes after."}
    texts = [data.decode("utf-8", "replace") for data in (before, after)]
    try:
        return {**told, "diff": await asyncio.to_thread(view.unified, one.path, *texts)}
    except WorkspaceError as error:
        return {**told, "why": error.what}


async def _version(workspace: Workspace, hash: str | None) -> bytes | None:
    """The bytes that a change names: none at all where there was no file, `None` when they are not kept.

    Of more than are compared not all.
    """
    if hash is None:
        return b""
    stream, data = await workspace.read_content_stream(hash), bytearray()
    if stream is None:
        return None
    async for piece in stream:
        data += piece
        if len(data) > DIFF_BYTES:
            break
    await _closed(stream)
    return bytes(data)


def _number(text: str) -> int | None:
    """The number of a change. None has twenty digits."""
    return int(text) if text.isdecimal() and len(text) < 20 else None


# --- changing


async def _changed(workspace: Workspace, request: Request, deed: str, limits: Limits) -> Response:
    if deed == "upload":
        return await _upload(workspace, request, limits)
    fields = fields_of(await body_of(request, limits))
    if fields is None:
        return refusal(400, "Send a JSON object of texts. Nothing was changed.")
    match deed, fields:
        case "delete", {"path": path}:
            await workspace.rm(path, recursive=True)
            return as_json({"path": normal(path)})
        case "restore", {"seq": written} if (seq := _number(written)) is not None:
            return as_json(_put_back(await workspace.restore(seq)))
        case "undo", {"turn": turn}:
            return as_json(_put_back(await workspace.undo(turn=turn)))
        case (("delete" | "restore" | "undo"), _):
            return refusal(400, 'Send {"path"}, {"seq"} or {"turn"}. Nothing was changed.')
        case _:
            return _nothing()


def _put_back(changes: list[Change]) -> Json:
    """How much was put back, the number to restore so that it was not, and that of the newest change."""
    before, last = (changes[0].seq - 1, changes[-1].seq) if changes else (None, None)
    return {"paths": len({one.path for one in changes}), "before": before, "last": last}


class Whole:
    """Bytes of bodies that have arrived and are not stored yet, of all agents: there is one memory."""

    in_all = 0


@contextmanager
def _kept(size: int, limits: Limits) -> Generator[None]:
    """Count a body until it is stored. Raises `HTTPException` (503) when too many wait for that."""
    if Whole.in_all and Whole.in_all + size > limits.buffered_bytes:
        text = "Too much is being stored at once. Nothing was stored. Please try again later."
        raise HTTPException(503, text, {"Retry-After": "10"})
    Whole.in_all += size
    try:
        yield
    finally:
        Whole.in_all -= size


def _most(workspace: Workspace) -> int:
    return min(UPLOAD_BYTES, workspace.limits.file_bytes)


async def _upload(workspace: Workspace, request: Request, limits: Limits) -> Response:
    path, most = normal(request.query_params.get("path", "")), _most(workspace)
    if path == "/":
        return refusal(400, "Say where it goes: ?path=/folder/name. Nothing was stored.")
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared[:15]) > most:
        return refusal(
            413,
            f"{path!r} has {int(declared[:15]):,} bytes, and the page takes {most:,}. Nothing was stored.",
        )
    data = await body_of(request, limits, most)
    with _kept(len(data), limits):
        return await _stored(workspace, request, path, data)


async def _stored(workspace: Workspace, request: Request, path: str, data: bytes) -> Response:
    replaces = "replace" in request.query_params
    try:
        if not replaces and await workspace.exists(path):
            raise refusals.changed_meanwhile(path)
        # Looked at again with the commit: two may bring a file of one name at once.
        await workspace.write_file_bytes(path, data, if_hash=None if replaces else "")
    except WorkspaceError as error:
        if error.code != "ESTALE":
            raise
        return refusal(409, f"There is something at {path!r} already. Nothing was stored.")
    found = await _file(workspace, path)
    return as_json(view.entry(found))
