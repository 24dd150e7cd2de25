"""`everthink skills`: look through skills before an agent does, list those of agents, install some.

check, install: files alone        list: the agents of a target, without starting any
"""

from __future__ import annotations

import asyncio
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from ..errors import AgentError, SkillError
from ..plain import cut, plain
from ..serving.output import EXIT_PROBLEM, print_json, say, say_error
from ..settings import nearest
from ..skill_values import SKILL_FILE, Diagnostic, Skill
from ..skills.directory import DirectoryTree
from ..skills.installing import Installed
from ..skills.installing import install as install_skills
from ..skills.registry import SkillRegistry, as_sources
from ..skills.showing import told, view
from ..skills.tree import Bounds, FilesTree, Index, index_of
from ..skills.using import RUNNABLE

__all__ = ["command"]

_json = click.option("--json", "as_json", is_flag=True, help="For scripts.")
_NAMED = re.compile(r"(?<![\w./-])(?:scripts|references|assets)/[\w-]+(?:[./][\w-]+)*")
_NOBODYS = (".rb", ".pl", ".php", ".go", ".lua", ".ps1", ".bat", ".cmd", ".exe", ".jsx", ".zsh", ".fish")
"""Endings of programs that no runner of ours runs."""
_STYLES = {"error": "bold red", "warning": "yellow", "note": ""}


@click.group(
    "skills",
    short_help="Check skills, list those of agents, install some.",
    help="""Check skills, list those of agents, install some.

    A skill is a folder with a SKILL.md: https://agentskills.io. Nothing of it is run here.

    \b
    Examples:
      everthink skills check skills
      everthink skills list agents
      everthink skills install release-notes.zip --into skills""",
)
def command() -> None:
    """The group of its commands."""


# --- check


@command.command(
    "check",
    short_help="Look through skills and say what is wrong with them.",
    help="""Look through the skills in DIR, or the one that DIR is, and say what is wrong with them.

    An error keeps a skill from agents. A warning is something that other clients may refuse, or that is left
    out; a note changes nothing. The exit code is 1 when there is an error (with --strict: or a warning), or
    no skill at all.

    \b
    Examples:
      everthink skills check skills
      everthink skills check skills/release-notes --strict
      everthink skills check skills --json | jq '.diagnostics[].what'""",
)
@click.argument("directory", metavar="DIR", type=click.Path(exists=True, file_okay=False))
@click.option("--strict", is_flag=True, help="Warnings count as errors.")
@_json
@click.pass_context
def check(ctx: click.Context, directory: str, strict: bool, as_json: bool) -> None:
    """Look through skills and say what is wrong with them."""
    place = Path(directory).absolute()
    is_one = (place / SKILL_FILE).is_file()
    index = asyncio.run(_index_of(place, as_one=place.name if is_one else None))
    index = replace(index, diagnostics=(*index.diagnostics, *_slips(index.skills.values())))
    levels = Counter(one.level for one in index.diagnostics)
    is_bad = levels["error"] > 0 or (strict and levels["warning"] > 0) or not index.skills
    if as_json:
        skills = [
            {"name": one.name, "description": one.description, "files": len(one.resources) + 1}
            for one in index.skills.values()
        ]
        print_json({"ok": not is_bad, "skills": skills, "diagnostics": list(map(told, index.diagnostics))})
    else:
        _print_checked(index, directory, levels)
    if is_bad:
        ctx.exit(EXIT_PROBLEM)


_FOLDERS = ("references", "scripts", "assets")


def _slips(skills: Iterable[Skill]) -> Iterator[Diagnostic]:
    """What a model would stumble over: files that are named and not there, scripts that nobody runs."""
    for skill in skills:
        there = [one.path for one in skill.resources]
        for name in dict.fromkeys(_NAMED.findall(skill.body)):
            if name not in there and not any(path.startswith(f"{name}/") for path in there):
                yield Diagnostic(
                    "note",
                    skill.name,
                    f"Its instructions name {name}, which is not there.",
                    "Look at its path.",
                )
        for path in there:
            folder = path.partition("/")[0]
            is_inside = "/" in path and folder not in _FOLDERS
            near = nearest(folder.lower(), _FOLDERS, like=0.8) if is_inside else None
            if near is not None:
                yield Diagnostic(
                    "note",
                    skill.name,
                    f"{path} is a file like any other.",
                    f"Did you mean {near}/{path.partition('/')[2]}?",
                )
            if path.startswith("scripts/") and path.lower().endswith(_NOBODYS):
                yield Diagnostic(
                    "note",
                    skill.name,
                    f"{path} is run by nobody.",
                    f"Scripts end with {', '.join(RUNNABLE)}.",
                )


async def _index_of(directory: Path, *, as_one: str | None) -> Index:
    """What is in a folder of skills; of one that is a skill itself, as if it were looked at from above."""
    tree, bounds = DirectoryTree(directory), Bounds()
    try:
        if as_one is None:
            return await index_of(tree, bounds)
        looked = await tree.look(bounds)
        files = {
            f"{as_one}/{one.path}": await tree.read(one.path, max(bounds.file_bytes, bounds.skill_bytes))
            or b""
            for one in looked.files
        }
        about = [Diagnostic(one.level, as_one, one.what, one.next_step) for one in looked.diagnostics]
        return await index_of(FilesTree(files, about), bounds)
    except OSError as error:
        raise SkillError(f"{str(directory)!r} cannot be read: {error.strerror}.") from error


def _print_checked(index: Index, directory: str, levels: Counter[Any]) -> None:
    by_skill: dict[str | None, list[Diagnostic]] = {}
    for one in index.diagnostics:
        by_skill.setdefault(one.skill, []).append(one)
    names = [*index.skills, *(name for name in by_skill if name is not None and name not in index.skills)]
    for name in names:
        found = by_skill.pop(name, [])
        state = "skill" if name in index.skills else "no skill"
        size = f"  {_many(len(index.skills[name].resources) + 1, 'file')}" if name in index.skills else ""
        say(f"{state:<9} {plain(name)}{size}", "bold")
        _print_diagnostics(found)
    _print_diagnostics(by_skill.pop(None, []))
    if not index.skills:
        say_error(f"There is no skill in {directory}: a skill is a folder with a {SKILL_FILE}.", "bold red")
    said = [_many(levels[level], level) for level in _STYLES if levels[level]]
    say(f"{_many(len(index.skills), 'skill')}, {', '.join(said) or 'all well'}.")


def _many(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _print_diagnostics(diagnostics: Iterable[Diagnostic]) -> None:
    for one in diagnostics:
        say(f"  {one.level:<8} {one.what}", _STYLES[one.level])
        if one.next_step:
            say(f"           {one.next_step}")


# --- list


@command.command(
    "list",
    short_help="List the skills of agents.",
    help="""List the skills that the agents of TARGET have: module:app, a file, a folder with agents.

    TARGET is what `dev` and `serve` take; a folder of skills is listed, too. Sources that only a running
    agent knows (get_skills, from_workspace) are named and not asked.

    \b
    Examples:
      everthink skills list agents
      everthink skills list shop.app:app --json""",
)
@click.argument("target")
@_json
def list_(target: str, as_json: bool) -> None:
    """List the skills of agents."""
    if _has_skills(Path(target)):
        from ..skills.directory import from_directory

        found = {target: asyncio.run(_listed([from_directory(target)]))}
    else:
        found = _of_agents(target)
    if as_json:
        print_json(found)
        return
    for where, shown in found.items():
        say(where, "bold")
        for skill in shown["skills"]:
            say(f"  {skill['name']:<28} {cut(skill['description'], 80)}")
        if not shown["skills"] and not shown.get("unasked"):
            say("  no skills")
        for unasked in shown.get("unasked", ()):
            say(f"  {unasked}: asked when an agent runs")
        for source in shown["sources"]:
            if source["error"]:
                say_error(f"  {source['error']}", "yellow")


def _has_skills(path: Path) -> bool:
    return path.is_dir() and any((one / SKILL_FILE).is_file() for one in path.iterdir())


def _of_agents(target: str) -> dict[str, Any]:
    from ..serving.target import load
    from ..think import Think

    found: dict[str, Any] = {}
    for cls, _ in load(target).chatting:
        sources = as_sources(cls.skills) if not isinstance(cls.skills, property) else []
        asked = [one for one in sources if not hasattr(one, "bind")]
        unasked = [one.id for one in sources if hasattr(one, "bind")]
        if cls.get_skills is not Think.get_skills:
            unasked.append("get_skills()")
        found[cls.__name__] = {**asyncio.run(_listed(asked)), "unasked": unasked}
    return found


async def _listed(sources: Sequence[Any]) -> dict[str, Any]:
    registry = SkillRegistry(sources)
    await registry.load()
    return view(registry)


# --- install


@command.command(
    "install",
    short_help="Install skills from a zip or a folder.",
    help="""Install the skills of SOURCE (a zip, a tar.gz or a folder) into a directory: all of them, or none.

    Nothing of them is run. Archives with links, with paths that lead out, or with more than is reasonable are
    refused whole. Read what you install: it becomes instructions of your agents.

    \b
    Examples:
      everthink skills install release-notes.zip --into skills
      everthink skills install ../other/skills --into skills --replace""",
)
@click.argument("source", type=click.Path(exists=True))
@click.option("--into", required=True, metavar="DIR", help="Where agents look for skills.")
@click.option("--replace", is_flag=True, help="Replace skills that are there already.")
@_json
def install(source: str, into: str, replace: bool, as_json: bool) -> None:
    """Install skills from a zip or a folder."""
    if os.path.isfile(into):
        raise AgentError(f"{into} is a file.", kept="Nothing was installed.", next_step="Name a directory.")
    done = asyncio.run(install_skills(source, into=into, replace=replace))
    if as_json:
        print_json([_installed(one) for one in done])
        return
    for one in done:
        how = "replaced" if one.replaced else "installed"
        say(f"{how:<9} {one.name}  {_many(one.files, 'file')}, {one.bytes:,} bytes  {one.path}")
        _print_diagnostics(one.diagnostics)


def _installed(one: Installed) -> dict[str, Any]:
    return {
        "name": one.name,
        "path": one.path,
        "files": one.files,
        "bytes": one.bytes,
        "replaced": one.replaced,
        "diagnostics": list(map(told, one.diagnostics)),
    }
