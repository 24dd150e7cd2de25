"""The skills of all sources, by name: what the prompt says of them, and what the model's tools do with them.

    sources --load, refresh--> SkillRegistry --catalogue--> the prompt
                                             --activate, read_resource, run_script--> tools.py

Usable without an agent. The first source to have a name has it. Nothing that a source does is raised by
`load` and `refresh`: a source that fails keeps what it had before, or is left out, and a warning says so.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..clock import Clock, SystemClock
from ..context.blocks import catalogue_line
from ..errors import InvalidSettings, is_for_people
from ..settings import shown
from ..skill_values import LONGEST_DESCRIPTION, Diagnostic, Skill, SkillInfo
from ..tools.tool import Tool, ToolContext
from ..words import said
from .port import ScriptRunner, SkillSource, diagnostics_of

__all__ = ["PATIENCE", "SkillRegistry", "SourceState", "as_runner", "as_sources"]

log = logging.getLogger("everthink.skills")

PATIENCE = 10.0
"""Seconds that a source may take to look; then it counts as failed for this time."""

LONG, REST = 1.0, 60.0
"""A failure that took longer than the first is not repeated before the second has passed, in seconds."""

PREAMBLE = (
    "These skills hold instructions for certain tasks. When a task matches the description of one, activate"
    " it by its name with activate_skill before you begin:"
)

_METHODS = ("list", "load", "read_resource", "refresh")


@dataclass(slots=True)
class SourceState:
    """A source, and what came of the last look at it."""

    source: SkillSource
    skills: Sequence[SkillInfo] = ()
    problem: Diagnostic | None = None
    """Why the last look failed."""
    was_listed: bool = False
    fingerprint: str = ""
    rests_until: float = 0.0
    """Not asked again before: its last failure took long, and every turn would wait for the next one."""
    names: list[str] = field(default_factory=list[str])
    """The skills that are its own: no earlier source has them."""


def as_sources(value: Any, where: str = "get_skills()") -> list[SkillSource]:
    """Sources as they are written: one, several, or none. Raises `InvalidSettings` for anything else."""
    if value is None:
        return []
    if is_source(value):
        return [value]
    if isinstance(value, str | bytes | dict) or not isinstance(value, Iterable):
        raise _no_source(value, where)
    sources: list[Any] = list(value)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    for one in sources:
        if not is_source(one):
            raise _no_source(one, where)
    return sources


def as_runner(value: Any, where: str = "get_skill_script_runner()") -> ScriptRunner | None:
    """What runs scripts, or `None`. Raises `InvalidSettings` for anything else."""
    if value is None or (not isinstance(value, type) and callable(getattr(value, "run", None))):
        return value
    raise InvalidSettings(
        f"{where} has {shown(value)}, which runs no scripts.",
        next_step="Give an object with `async def run(self, request)`: skills.runner(…), or None.",
    )


def is_source(value: Any) -> bool:
    """True for what skills can come from."""
    if isinstance(value, type) or not isinstance(getattr(value, "id", None), str):
        return False
    return all(callable(getattr(value, name, None)) for name in _METHODS)


def _no_source(value: Any, where: str) -> InvalidSettings:
    return InvalidSettings(
        f"{where} has {shown(value)}, which is no source of skills.",
        next_step='Give sources: skills.from_directory("skills", beside=__file__), or others of'
        " everthink.skills.",
    )


class SkillRegistry:
    """The skills of several sources.

        registry = SkillRegistry([skills.from_directory("skills")])
        await registry.load()
        registry.catalogue()             # for a prompt
        registry.tools()                 # for a model
        await registry.activate("pirate-style")

    `runner` runs their scripts; without one there is no `run_skill_script`.
    """

    def __init__(
        self,
        sources: SkillSource | Iterable[SkillSource],
        runner: ScriptRunner | None = None,
        *,
        clock: Clock | None = None,
    ) -> None:
        self._clock = clock or SystemClock()
        self._states = [SourceState(one) for one in as_sources(sources, "SkillRegistry()")]
        _check_ids(self._states)
        self.runner = as_runner(runner, "SkillRegistry()")
        self._owners: dict[str, SourceState] = {}
        self._infos: dict[str, SkillInfo] = {}
        self._made: tuple[str | None, dict[str, Tool]] | None = None
        """The catalogue and the tools of these skills: asked for in every turn, made when skills change."""
        self._diagnostics: list[Diagnostic] = []
        self._busy = asyncio.Lock()

    # --- what there is

    @property
    def sources(self) -> Sequence[SourceState]:
        """Every source, and how it is."""
        return tuple(self._states)

    @property
    def skills(self) -> tuple[SkillInfo, ...]:
        """The skills there are, by source and name."""
        return tuple(self._infos.values())

    @property
    def fingerprint(self) -> str:
        """A text that changes with what any of the sources has."""
        return "|".join(f"{one.source.id}:{one.fingerprint}" for one in self._states)

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """All there is to say of the sources and their skills since the last look."""
        return tuple(self._diagnostics)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What somebody should know, as texts: sources that failed, names that are there twice."""
        return tuple(dict.fromkeys(str(one) for one in self._diagnostics if one.level != "note"))

    def owner_of(self, name: str) -> SkillSource | None:
        """The source that a skill is read from."""
        state = self._owners.get(name)
        return None if state is None else state.source

    def catalogue(self) -> str | None:
        """What a prompt says of the skills; `None` without any."""
        return self._of_skills()[0]

    def _of_skills(self) -> tuple[str | None, dict[str, Tool]]:
        if self._made is None:
            from .tools import tools_for

            self._made = self._listing(), tools_for(self)
        return self._made

    def _listing(self) -> str | None:
        if not self._infos:
            return None
        lines = (
            catalogue_line(said(one.name), said(one.description, LONGEST_DESCRIPTION))
            for one in self._infos.values()
        )
        return f"{PREAMBLE}\n\n" + "\n".join(lines)

    # --- looking

    async def load(self) -> None:
        """Ask every source for its skills."""
        async with self._busy:
            await self._listed([None] * len(self._states))

    async def refresh(self) -> None:
        """Let every source look again, and ask them all."""
        async with self._busy:
            await self._listed(
                await asyncio.gather(*(self._asked(state, self._refreshed) for state in self._states))
            )

    async def _asked(
        self, state: SourceState, ask: Callable[[SourceState], Awaitable[None]]
    ) -> Diagnostic | None:
        """Ask a source something, within bounds. What goes wrong is noted with it."""
        began = self._clock.monotonic()
        if began < state.rests_until:
            return state.problem
        try:
            async with asyncio.timeout(PATIENCE):
                await ask(state)
            state.problem = None
        except Exception as error:  # noqa: BLE001 - a source of others must not end a turn
            state.problem = _failed(state, error)
            now = self._clock.monotonic()
            if now - began > LONG or isinstance(error, TimeoutError):
                state.rests_until = now + REST
        return state.problem

    async def _refreshed(self, state: SourceState) -> None:
        await state.source.refresh()

    async def _list(self, state: SourceState) -> None:
        skills = tuple(await state.source.list())
        if (strange := next((one for one in skills if not _is_info(one)), None)) is not None:
            raise TypeError(f"it listed {shown(strange)}, which is no SkillInfo")
        fingerprint = str(state.source.fingerprint)
        state.skills, state.fingerprint, state.was_listed = skills, fingerprint, True

    async def _listed(self, problems: Sequence[Diagnostic | None]) -> None:
        """Ask those that did not just fail for their skills, and put all of them together."""
        waiting = [state for state, problem in zip(self._states, problems, strict=True) if problem is None]
        await asyncio.gather(*(self._asked(state, self._list) for state in waiting))
        found = [state.problem for state in self._states if state.problem is not None]
        owners, infos = dict[str, SourceState](), dict[str, SkillInfo]()
        for state in self._states:
            state.names = []
            found += diagnostics_of(state.source)
            for info in state.skills:
                first = owners.get(info.name)
                if first is not None:
                    found.append(_twice(info, first, state))
                    continue
                owners[info.name], infos[info.name] = state, info
                state.names.append(info.name)
        if infos != self._infos:
            self._made = None
        self._owners, self._infos, self._diagnostics = owners, infos, found

    # --- using

    async def load_skill(self, name: str) -> Skill | None:
        """A skill with its instructions, or `None` when there is none of that name (any more)."""
        state = self._owners.get(name)
        return None if state is None else await state.source.load(name)

    async def activate(self, name: str, shown: Iterable[str] = ()) -> str:
        """The instructions of a skill, as the model reads them.

        `shown` are texts that the model sees already: what is among them is not said a second time.
        """
        from .using import activation

        return await activation(self, name, shown)

    async def read_resource(self, path: str, name: str | None = None) -> str:
        """A file of a skill, as the model reads it. Without a name the path begins with it."""
        from .using import resource

        return await resource(self, name, path)

    async def run_script(
        self,
        name: str,
        path: str,
        input: Any = None,
        args: Sequence[str] = (),
        *,
        context: ToolContext | None = None,
    ) -> Any:
        """What a script of a skill gives; a text that says why when it cannot be run."""
        from .using import run

        return await run(self, name, path, {} if input is None else input, args, context)

    def tools(self) -> dict[str, Tool]:
        """The tools with which a model uses the skills there are now; none without skills."""
        return dict(self._of_skills()[1])


def _check_ids(states: Sequence[SourceState]) -> None:
    seen = set[str]()
    for state in states:
        if state.source.id in seen:
            raise InvalidSettings(
                f"Two sources of skills have the id {state.source.id!r}.",
                next_step="Leave one out, or give it an id of its own: id=….",
            )
        seen.add(state.source.id)


def _is_info(value: Any) -> bool:
    return isinstance(value, SkillInfo) and bool(value.name)


def _failed(state: SourceState, error: Exception) -> Diagnostic:
    reason = str(error) if is_for_people(error) or isinstance(error, OSError) else ""
    if isinstance(error, TimeoutError):
        reason = f"it took longer than {PATIENCE:g} seconds"
    told = said(reason or f"{type(error).__name__}: {error}").rstrip(".")
    kept = "its skills stay as they were" if state.was_listed else "it is left out"
    return Diagnostic(
        "error",
        None,
        f"The source {state.source.id!r} could not be read, {kept}: {told}.",
        "It is asked again later.",
        state.source.id,
    )


def _twice(info: SkillInfo, first: SourceState, again: SourceState) -> Diagnostic:
    return Diagnostic(
        "warning",
        info.name,
        f"The sources {first.source.id!r} and {again.source.id!r} both have it; the first one's is used.",
        "Rename one of them.",
        again.source.id,
    )
