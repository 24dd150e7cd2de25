"""What a script finds in its files, and what it leaves there.

    ScriptRequest --mounted--> /input.json, /context.json, /skill/…       /output --artifacts--> the result

Pure. Paths are checked before anything runs, and again when something comes back.
"""

from __future__ import annotations

import base64
import binascii
import posixpath
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..errors import ToolError
from ..messages import encode_json
from ..sandbox.port import Limits
from ..skill_values import SKILL_FILE, ScriptRequest, SkillInfo, is_safe_path
from ..words import said as on_one_line

__all__ = [
    "INPUT",
    "LARGEST_ARTIFACT",
    "MOST_ARTIFACTS",
    "OUTPUT",
    "SKILL",
    "artifacts",
    "check",
    "described",
    "mounted",
    "place_of",
    "with_room",
]

INPUT, CONTEXT, SKILL, OUTPUT = "/input.json", "/context.json", "/skill", "/output"
LARGEST_ARTIFACT = 64_000
"""Bytes of one file that a script returns."""
MOST_ARTIFACTS = 20
"""So many of them."""
_LARGEST_FILE, _LARGEST_TREE = 16 << 20, 64 << 20
"""What a skill may bring along when nobody has set limits."""
_NOTHING_RUN = "Nothing was run."


def place_of(path: str) -> str:
    """Where a file of the skill is."""
    return f"{SKILL}/{path}"


def check(request: ScriptRequest) -> None:
    """Raise for a path that leads out of the skill, whichever of its files it is of."""
    for path in (request.path, *(resource.path for resource in request.resources)):
        if not is_safe_path(path):
            raise ToolError(
                f"{on_one_line(path, 80)!r} is no path within the skill {request.skill.name!r}.",
                kept=_NOTHING_RUN,
            )


def described(skill: SkillInfo) -> dict[str, Any]:
    """A skill as its script is told of it."""
    told = {
        "name": skill.name,
        "description": skill.description,
        "compatibility": skill.compatibility,
        "license": skill.license,
        "allowedTools": skill.allowed_tools,
        "metadata": dict(skill.metadata) or None,
        "sourceId": skill.source_id,
        "version": skill.version,
    }
    return {name: value for name, value in told.items() if value is not None}


def mounted(request: ScriptRequest) -> dict[str, bytes]:
    """The files that a script sees: its input, the skill that it belongs to, and nothing of another one."""
    files = {place_of(resource.path): _bytes(resource) for resource in request.resources}
    files[place_of(SKILL_FILE)] = (request.skill.raw or request.skill.body).encode()
    files[place_of(request.path)] = request.source.encode()
    files[INPUT] = encode_json(request.input)
    files[CONTEXT] = encode_json({"skill": described(request.skill)})
    return files


def _bytes(resource: Any) -> bytes:
    if resource.encoding == "text":
        return resource.content.encode("utf-8", "replace")
    try:
        return base64.b64decode(resource.content, validate=True)
    except (binascii.Error, ValueError):
        raise ToolError(
            f"The file {on_one_line(resource.path, 80)!r} of the skill is no base64.", kept=_NOTHING_RUN
        ) from None


def with_room(limits: Limits, files: Mapping[str, bytes]) -> Limits:
    """Limits that a skill with large files fits into, up to a bound."""
    largest, together = max(map(len, files.values())), sum(map(len, files.values()))
    return replace(
        limits,
        file_bytes=max(limits.file_bytes, min(largest, _LARGEST_FILE)),
        tree_bytes=max(limits.tree_bytes, min(2 * together, _LARGEST_TREE)),
    )


def artifacts(changed: Mapping[str, bytes], *, is_relative: bool = False) -> list[dict[str, str]]:
    """What a script left in `/output`, by path: text, or base64 for what is none."""
    found = {path: data for path, data in sorted(changed.items()) if path.startswith(f"{OUTPUT}/")}
    if len(found) > MOST_ARTIFACTS:
        raise ToolError(f"The script left {len(found)} files in {OUTPUT}, and may leave {MOST_ARTIFACTS}.")
    for path, data in found.items():
        if len(data) > LARGEST_ARTIFACT:
            raise ToolError(
                f"{on_one_line(path, 200)} has {len(data):,} bytes, and may have {LARGEST_ARTIFACT:,}."
            )
    start = OUTPUT if is_relative else "/"
    return [_artifact(posixpath.relpath(path, start), data, is_relative) for path, data in found.items()]


def _artifact(path: str, data: bytes, is_relative: bool) -> dict[str, str]:
    shown = path if is_relative else f"/{path}"
    try:
        return {"path": shown, "encoding": "text", "content": data.decode()}
    except UnicodeDecodeError:
        return {"path": shown, "encoding": "base64", "content": base64.b64encode(data).decode()}
