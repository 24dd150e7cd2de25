"""What becomes of a call: the instructions of a skill, a file of it, what its script gives.

    tools.py, SkillRegistry --name, path--> activation, resource, run --> a text for the model, or a result

Whatever cannot be done is a text that says why and what to do; only a source that fails raises. Names and
paths stand escaped in the tags: they are chosen by whoever wrote the skill.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ..context.activated_skills import OPENING
from ..errors import is_for_people
from ..skill_values import (
    SCRIPTS,
    Resource,
    ResourceInfo,
    ScriptRequest,
    Skill,
    is_safe_path,
)
from ..tools.tool import ToolContext
from ..words import clean, said
from .port import SkillSource

if TYPE_CHECKING:
    from .registry import SkillRegistry

__all__ = ["RUNNABLE", "activation", "resource", "run"]

log = logging.getLogger("everthink.skills")

RUNNABLE = ("js", "mjs", "ts", "tsx", "py", "sh", "bash")
"""Endings of scripts that can be run."""
LONGEST_SHOWN = 400_000
"""Characters of a file that a model is shown; base64 counts as it is written."""
_LONGEST_BODY = 1_000_000


# --- instructions


async def activation(registry: SkillRegistry, name: str, shown: Iterable[str] = ()) -> str:
    """The instructions of a skill, unless the model sees just these already."""
    skill = await registry.load_skill(name)
    if skill is None:
        return _unknown(registry, name)
    text = _instructions(skill)
    if any(text in one for one in shown):
        return (
            f"The skill {said(name)!r} is active already: its instructions are above, and have not changed."
        )
    return text


def _instructions(skill: Skill) -> str:
    version = "" if skill.version is None else f" version={_quoted(skill.version)}"
    lines = [f"{OPENING}name={_quoted(skill.name)}{version}>", clean(skill.body, _LONGEST_BODY)]
    if skill.resources:
        lines += ["", "<skill_resources>", *map(_file, skill.resources), "</skill_resources>"]
    lines += ["</skill_content>", ""]
    if not skill.resources:
        lines.append("It has no bundled resources.")
        return "\n".join(lines)
    lines.append("Bundled resources (read them with read_skill_resource):")
    return "\n".join([*lines, *map(_bullet, skill.resources)])


def _file(info: ResourceInfo) -> str:
    size = "" if info.size is None else f" size={_quoted(str(info.size))}"
    about = f"kind={_quoted(info.kind)} encoding={_quoted(info.encoding)}{size}"
    return f"<file {about}>{_escaped(info.path)}</file>"


def _bullet(info: ResourceInfo) -> str:
    about = [info.kind, info.encoding]
    about += [info.media_type] if info.media_type else []
    about += [] if info.size is None else [f"{info.size} bytes"]
    return f"- {said(info.path)} ({', '.join(about)})"


# --- files


async def resource(registry: SkillRegistry, name: str | None, path: str) -> str:
    """A file of a skill in its tag."""
    if path.startswith("../"):
        return (
            f"{said(path)!r} leads out of the skill. A file of another skill is named by its skill and its"
            " path there: other-skill/references/file.md, without a name."
        )
    if not is_safe_path(path):
        return f"{said(path)!r} is no path of a file: it is relative, without empty, `.` or `..` parts."
    if name is None:
        name, slash, path = path.partition("/")
        if not slash:
            return f"{said(name)!r} names no skill: give the name of the skill too, or write skill/path."
    source = registry.owner_of(name)
    if source is None:
        return _unknown(registry, name)
    if not callable(getattr(source, "read_resource", None)):
        return f"The files of the skill {said(name)!r} cannot be read."
    found = await source.read_resource(name, path)
    if found is None:
        there = _files_of(await registry.load_skill(name))
        return f"The skill {said(name)!r} has no file {said(path)!r}.{there}"
    if len(found.content) > LONGEST_SHOWN:
        return (
            f"The file {said(path)!r} is too long to be shown: {found.size or len(found.content):,} bytes."
            " A script of the skill can read it."
        )
    media = "" if found.media_type is None else f" mimeType={_quoted(found.media_type)}"
    about = f"kind={_quoted(found.kind)} encoding={_quoted(found.encoding)}{media}"
    opening = f"<skill_resource name={_quoted(name)} path={_quoted(path)} {about}>"
    return f"{opening}\n{found.content}\n</skill_resource>"


# --- scripts


async def run(
    registry: SkillRegistry,
    name: str,
    path: str,
    input: Any,
    args: Sequence[str],
    context: ToolContext | None,
) -> Any:
    """What a script gives. A script that fails is a text, as is every reason not to run it."""
    request = await _asked(registry, name, path, input, args, context)
    if isinstance(request, str):
        return request
    assert registry.runner is not None
    try:
        return await registry.runner.run(request)
    except Exception as error:
        if not is_for_people(error):
            log.exception("the script %s of the skill %r failed", path, name)
            return "Skill script failed: It could not be run because of a failure on our side."
        return f"Skill script failed: {error}"


async def _asked(
    registry: SkillRegistry,
    name: str,
    path: str,
    input: Any,
    args: Sequence[str],
    context: ToolContext | None,
) -> ScriptRequest | str:
    """The script and all it comes with, or why there is none."""
    if registry.runner is None:
        return "Scripts of skills are not run here."
    if not path.startswith(SCRIPTS):
        there = _files_of(await registry.load_skill(name), "script")
        return f"{said(path)!r} is no script: scripts are below {SCRIPTS}.{there}"
    if not is_safe_path(path):
        return f"{said(path)!r} is no path of a script: it has empty, `.` or `..` parts."
    if path.rpartition(".")[2].lower() not in RUNNABLE or "." not in path.rpartition("/")[2]:
        return f"{said(path)!r} cannot be run: scripts end with {', '.join(f'.{one}' for one in RUNNABLE)}."
    skill, source = await registry.load_skill(name), registry.owner_of(name)
    if skill is None or source is None:
        return _unknown(registry, name)
    if getattr(source, "allow_scripts", True) is False:
        return f"Scripts of the skill {said(name)!r} are not run: its source does not allow it."
    info = next((one for one in skill.resources if one.path == path), None)
    if info is None:
        return f"The skill {said(name)!r} has no script {said(path)!r}.{_files_of(skill, 'script')}"
    if info.kind != "script":
        return f"{said(path)!r} of the skill {said(name)!r} is no script but a {info.kind}."
    if not callable(getattr(source, "read_resource", None)):
        return f"The files of the skill {said(name)!r} cannot be read."
    script = await source.read_resource(name, path)
    if script is None:
        return f"The script {said(path)!r} of the skill {said(name)!r} is not there any more."
    if script.encoding != "text":
        return f"The script {said(path)!r} of the skill {said(name)!r} is no text."
    resources = await _resources(source, skill, script)
    return ScriptRequest(skill, path, script.content, input, tuple(args), resources, context)


async def _resources(source: SkillSource, skill: Skill, script: Resource) -> tuple[Resource, ...]:
    found = list[Resource]()
    for info in skill.resources:
        if info.path == script.path:
            found.append(script)
        elif is_safe_path(info.path) and (one := await source.read_resource(skill.name, info.path)):
            found.append(one)
    return tuple(found)


# --- words


def _unknown(registry: SkillRegistry, name: str) -> str:
    names = ", ".join(said(one.name) for one in registry.skills[:50])
    return f"There is no skill {said(name)!r}. There are: {names}." if names else "There are no skills."


def _files_of(skill: Skill | None, kind: str | None = None) -> str:
    """The files of a skill that there are, or its scripts alone."""
    resources = () if skill is None else skill.resources
    paths = [said(one.path) for one in resources if kind in (None, one.kind)]
    more = f" and {len(paths) - _LISTED:,} more" if len(paths) > _LISTED else ""
    return f" There are: {', '.join(paths[:_LISTED])}{more}." if paths else ""


_LISTED = 20

_ENTITIES = {ord("&"): "&amp;", ord("<"): "&lt;", ord(">"): "&gt;", ord('"'): "&quot;"}


def _escaped(text: str) -> str:
    return said(text, 1_000).translate(_ENTITIES)


def _quoted(text: str) -> str:
    return f'"{_escaped(text)}"'
