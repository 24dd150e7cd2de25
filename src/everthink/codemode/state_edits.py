"""`state.*` that edits: JSON by its places, texts wherever they are, several files at once.

    instructions --plan_edits--> {edits: [{path, changed, content, diff}]} --apply_edit_plan--> one commit

Several files are one edit: all of them are written, or none is.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

from ..errors import ToolError, WorkspaceError
from ..file_tools.place import Place
from ..limits import Limits
from ..media_types import text_of
from ..messages import DEEPEST, decode_json, encode_json
from ..text_diff import unified
from ..wire.bounds import check
from ..workspace.paths import normal
from ..workspace.port import Put
from .json_path import NoPlace, steps_of, value_at, with_value, without
from .state_looking import HOW, SECONDS, is_small_file, wanted_of
from .state_parts import (
    ANY,
    FLAG,
    LIST,
    MOST_AT_ONCE,
    OBJECT,
    PATH,
    SPACES,
    TEXT,
    Room,
    Schema,
    Tools,
    batch_tool,
    beside,
    fits,
    read_tool,
    text_at,
)
from .values import MOST

__all__ = ["edit_tools", "json_at"]

_TOO_LONG = "[too long to be compared]"
_LEFT_OUT = "[left out: the differences of all files together are too long]"
_MOST_CHANGED = 32 * 1024 * 1024
"""Characters of files that one call changes, before and after."""
_READ = Limits(frame_bytes=MOST_AT_ONCE, frame_nodes=400_000, frame_depth=DEEPEST)
"""What of a JSON file is read: nobody else does anything while it is decoded."""
_GIVEN = Limits(frame_bytes=MOST, frame_nodes=100_000, frame_depth=DEEPEST)
"""What of it code is given."""
_OPERATIONS: Schema = {"type": "array", "items": {"type": "object"}}


def edit_tools(place: Place) -> Tools:
    """The functions by full name."""
    return {**_json(place), **_texts(place), **_several(place)}


async def json_at(files: Any, path: str, query: str = "") -> Any:
    """What a JSON file holds, or is at a place in it: so much of it as code can have."""
    return await beside(_asked_for, path, await text_at(files, path), _steps(query))


def _asked_for(path: str, text: str, steps: Sequence[str | int]) -> Any:
    value = value_at(json_of(path, text), steps)
    if (why := check(encode_json(value), _GIVEN)) is not None:
        raise ToolError(f"EFBIG: What is there in {path} {why}. Ask for less of it with query_json.")
    return value


def json_of(path: str, text: str) -> Any:
    """What a JSON file holds. Belongs in a thread."""
    if (why := check(text, _READ)) is not None:
        raise ToolError(f"EFBIG: {path} {why}. Have it written to several files, or read it as a text.")
    try:
        return decode_json(text)
    except ValueError as error:
        raise ToolError(f"{path} is no JSON: {error}") from error


def _json(place: Place) -> Tools:
    async def query_json(files: Any, given: dict[str, Any]) -> Any:
        return await json_at(files, given["path"], given["query"])

    async def write_json(files: Any, given: dict[str, Any]) -> tuple[list[Put], Any]:
        text = await beside(_as_json, given["value"], given.get("spaces", 2))
        return [Put(given["path"], text.encode())], None

    async def update_json(files: Any, given: dict[str, Any]) -> tuple[list[Put], Any]:
        path = given["path"]
        before = await _before(files, path)
        value, after = await beside(
            _all_updated, path, before.editable(path), given["operations"], given.get("spaces", 2)
        )
        told = {"value": value, "diff": await _diff(path, before.text, after)}
        told["operationsApplied"] = len(given["operations"])
        return _puts({path: (before, after)}), told

    return {
        "state.query_json": read_tool(
            place,
            query_json,
            "What is at a place in a JSON file, such as users[0].name; None when nothing is.",
            {"path": PATH, "query": TEXT},
        ),
        "state.write_json": batch_tool(
            place, write_json, "Write a value as JSON.", {"path": PATH, "value": ANY}, {"spaces": SPACES}
        ),
        "state.update_json": batch_tool(
            place,
            update_json,
            'Change a JSON file: operations are {op: "set", path, value} and {op: "delete", path}, with'
            " places such as users[0].name. {value, diff, operationsApplied}",
            {"path": PATH, "operations": _OPERATIONS},
            {"spaces": SPACES},
        ),
    }


def _texts(place: Place) -> Tools:
    async def replace_in_file(files: Any, given: dict[str, Any]) -> tuple[list[Put], Any]:
        path, wanted = given["path"], wanted_of(given["search"], given)
        before = await _before(files, path)
        text = before.editable(path)
        after, count = await beside(wanted.replaced, text, given["replacement"])
        return _puts({path: (before, after)}), {"replaced": count}

    async def replace_in_files(files: Any, given: dict[str, Any]) -> tuple[list[Put], Any]:
        wanted = wanted_of(given["search"], given)
        texts: dict[str, tuple[_Before, str]] = {}
        told: list[dict[str, Any]] = []
        room, held = Room("", ""), 0
        for entry in await files.glob(given["pattern"]):
            if not is_small_file(entry):
                continue
            before = await _before(files, entry.path)
            if before.text is None:
                continue
            after, count = await beside(wanted.replaced, before.text, given["replacement"])
            if count:
                held += len(before.text) + len(after)
                if held > _MOST_CHANGED:
                    raise ToolError(
                        f"EFBIG: Files of more than {_MOST_CHANGED:,} characters would change at once."
                        " Nothing was changed. Take a pattern that means fewer of them."
                    )
                texts[entry.path] = (before, after)
                diff = await _diff(entry.path, before.text, after)
                diff = diff if room.has(diff, entry.path) else _LEFT_OUT
                told.append({"path": entry.path, "replaced": count, "diff": diff})
        is_dry = given.get("dry_run", False)
        total = sum(one["replaced"] for one in told)
        outcome = {"dryRun": is_dry, "files": told, "totalFiles": len(told), "totalReplacements": total}
        return [] if is_dry else _puts(texts), outcome

    wanted: Schema = {"search": TEXT, "replacement": TEXT}
    return {
        "state.replace_in_file": batch_tool(
            place,
            replace_in_file,
            "Replace a text in a file wherever it is; {replaced}.",
            {"path": PATH, **wanted},
            HOW,
        ),
        "state.replace_in_files": batch_tool(
            place,
            replace_in_files,
            "The same in all files whose paths fit a pattern, or in none; dry_run only shows it."
            " {dryRun, files: [{path, replaced, diff}], totalFiles, totalReplacements}",
            {"pattern": TEXT, **wanted},
            {**HOW, "dry_run": FLAG},
        ),
    }


def _several(place: Place) -> Tools:
    async def plan_edits(files: Any, given: dict[str, Any]) -> Any:
        planned: dict[str, _Before] = {}
        told: list[dict[str, Any]] = []
        room = Room("The plan", "Plan fewer edits at once, or make them with replace_in_files.")
        for instruction in _objects(given["instructions"], "instruction"):
            path = normal(_text_in(instruction, "path"))
            before = planned.get(path) or await _before(files, path)
            after = await _planned(path, before, instruction)
            planned[path] = _Before(_hash(after.encode("utf-8", "replace")), after)
            edit = {"path": path, "changed": before.text != after, "content": after}
            room.take(after, json.dumps(instruction))
            edit["diff"] = await _diff(path, before.text, after)
            room.take(edit["diff"])
            told.append({"instruction": instruction, **edit})
        changed = sum(one["changed"] for one in told)
        return {"edits": told, "totalChanged": changed, "totalInstructions": len(told)}

    async def apply_edits(files: Any, given: dict[str, Any]) -> tuple[list[Put], Any]:
        return await _applied(files, given["edits"], given.get("dry_run", False))

    async def apply_edit_plan(files: Any, given: dict[str, Any]) -> tuple[list[Put], Any]:
        edits = given["plan"].get("edits")
        if not isinstance(edits, list):
            raise ToolError("EINVAL: A plan is what plan_edits gives: {edits: [{path, content}]}.")
        return await _applied(files, cast("list[Any]", edits), given.get("dry_run", False))

    told = "{dryRun, edits: [{path, changed, diff}], totalChanged}"
    return {
        "state.plan_edits": read_tool(
            place,
            plan_edits,
            'What edits would come to, without making them: {kind: "write", path, content},'
            ' {kind: "replace", path, search, replacement}, {kind: "writeJson", path, value}.'
            " {edits: [{instruction, path, changed, content, diff}], totalChanged, totalInstructions}",
            {"instructions": _OPERATIONS},
        ),
        "state.apply_edit_plan": batch_tool(
            place,
            apply_edit_plan,
            f"Make the edits of a plan: all of them, or none. {told}",
            {"plan": OBJECT},
            {"dry_run": FLAG},
        ),
        "state.apply_edits": batch_tool(
            place,
            apply_edits,
            f"Write several files, {{path, content}}: all of them, or none. {told}",
            {"edits": LIST},
            {"dry_run": FLAG},
        ),
    }


async def _applied(files: Any, edits: Sequence[Any], is_dry: bool) -> tuple[list[Put], Any]:
    last: dict[str, tuple[_Before, str]] = {}
    told: list[dict[str, Any]] = []
    room = Room("", "")
    for edit in _objects(edits, "edit"):
        path, after = normal(_text_in(edit, "path")), _text_in(edit, "content")
        first = last[path][0] if path in last else await _before(files, path)
        text = last[path][1] if path in last else first.text
        last[path] = (first, after)
        diff = await _diff(path, text, after)
        diff = diff if room.has(diff, path) else _LEFT_OUT
        told.append({"path": path, "changed": text != after, "diff": diff})
    changed = sum(one["changed"] for one in told)
    return [] if is_dry else _puts(last), {"dryRun": is_dry, "edits": told, "totalChanged": changed}


class _Before(NamedTuple):
    """A file as it is found."""

    hash: str
    """Empty when there is none."""
    text: str | None
    """`None` when there is no file, and when it is no text."""

    def editable(self, path: str) -> str:
        """Its text, if there is one to edit."""
        if not self.hash:
            raise ToolError(f"ENOENT: There is no file {path}.")
        if self.text is None:
            raise ToolError(f"EINVAL: {path} is no text. Read and write its bytes.")
        return self.text


async def _before(files: Any, path: str) -> _Before:
    await fits(files, path)
    data: bytes | None = await files.read_file_bytes(path)
    return _Before("", None) if data is None else _Before(_hash(data), text_of(data))


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


async def _planned(path: str, before: _Before, instruction: Mapping[str, Any]) -> str:
    match instruction.get("kind"):
        case "write":
            return _text_in(instruction, "content")
        case "writeJson" | "write_json":
            return await beside(_as_json, instruction.get("value"), 2)
        case "replace":
            if not before.hash:
                raise ToolError(f"ENOENT: There is no file {path} to replace something in.")
            options = {**instruction, **_mapping(instruction.get("options"))}
            wanted = wanted_of(_text_in(instruction, "search"), options)
            replacement = _text_in(instruction, "replacement")
            text = before.editable(path)
            return (await beside(wanted.replaced, text, replacement))[0]
        case kind:
            raise ToolError(f"EINVAL: There is no edit {kind!r}: kind is write, replace or writeJson.")


def _puts(texts: Mapping[str, tuple[_Before, str]]) -> list[Put]:
    """What is written: only what differs, over what was looked at."""
    return [
        Put(path, after.encode("utf-8", "replace"), None, before.hash)
        for path, (before, after) in texts.items()
        if before.text != after
    ]


async def _diff(path: str, before: str | None, after: str) -> str:
    try:
        return await beside(lambda: unified(before or "", after, old=path, new=path))
    except WorkspaceError:
        return _TOO_LONG


def _all_updated(
    path: str, text: str, operations: Sequence[Mapping[str, Any]], spaces: int
) -> tuple[Any, str]:
    """What operations make of a JSON text: the value, and its text. Belongs in a thread."""
    value, ends = json_of(path, text), time.monotonic() + SECONDS
    for operation in operations:
        if time.monotonic() > ends:
            words = f"EINVAL: {len(operations):,} operations on {path} take longer than {SECONDS:g} seconds."
            raise ToolError(f"{words} Nothing was changed. Make fewer of them at once.")
        value = _updated(value, operation)
    return value, _as_json(value, spaces)


def _updated(value: Any, operation: Mapping[str, Any]) -> Any:
    steps = _steps(_text_in(operation, "path"))
    try:
        match operation.get("op"):
            case "set" if "value" in operation:
                return with_value(value, steps, operation["value"])
            case "delete":
                return without(value, steps)
            case _:
                raise ToolError('EINVAL: An operation is {op: "set", path, value} or {op: "delete", path}.')
    except NoPlace as error:
        raise ToolError(f"EINVAL: {error}") from error


def _steps(query: str) -> tuple[str | int, ...]:
    try:
        return steps_of(query)
    except NoPlace as error:
        raise ToolError(f"EINVAL: {error}") from error


def _as_json(value: Any, spaces: int) -> str:
    """A value as a text, so long as a file of code may be: each level of it adds to each line."""
    pieces, size = list[str](), 0
    for piece in json.JSONEncoder(ensure_ascii=False, indent=spaces or None).iterencode(value):
        pieces.append(piece)
        size += len(piece)
        if size > MOST_AT_ONCE:
            raise ToolError(
                f"EFBIG: The text would have more than {MOST_AT_ONCE:,} characters with {spaces} spaces"
                " for each level. Nothing was changed. Use fewer spaces, or write several files."
            )
    return "".join(pieces) + "\n"


def _objects(given: Sequence[Any], what: str) -> list[Mapping[str, Any]]:
    for one in given:
        if not isinstance(one, dict):
            raise ToolError(f"EINVAL: An {what} is an object, not {one!r}."[:200])
    return cast("list[Mapping[str, Any]]", list(given))


def _text_in(given: Mapping[str, Any], name: str) -> str:
    value = given.get(name)
    if not isinstance(value, str):
        raise ToolError(f"EINVAL: {name} is missing, or no text: {dict(given)!r}"[:300])
    return value


def _mapping(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}
