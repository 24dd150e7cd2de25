"""The skills of one agent: its registry, the block of its prompt, its tools in each turn.

    Chat.load --start--> get_skills --> SkillRegistry        make_session --declare--> the block think_skills
    each turn --tools--> refresh, the prompt anew if it says otherwise --> the registry's tools

Nothing in here fails an agent or a turn: what went wrong is logged once, and the model goes on with the
skills that were there before.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from ..context.blocks import RULE, ContextBlock, render

if TYPE_CHECKING:
    from ..hooks.runner import HookRunner
    from ..session.session import Session
    from ..tools.tool import Tool
    from .registry import SkillRegistry

__all__ = ["DESCRIPTION", "LABEL", "AgentSkills"]

LABEL, DESCRIPTION = "think_skills", "skill catalogue"
_MOST_TOLD = 500

log = logging.getLogger("everthink.skills")

# By class, what was logged already: thousands of agents may have the same skills.
_told: WeakKeyDictionary[type, set[str]] = WeakKeyDictionary()


class AgentSkills:
    """What an agent has of skills. Nothing, unless its class or `get_skills` names sources."""

    __slots__ = ("_hooks", "_shown", "registry")

    def __init__(self, hooks: HookRunner) -> None:
        self._hooks = hooks
        self.registry: SkillRegistry | None = None
        """`None`: it has no sources, or they could not be asked for."""
        self._shown: tuple[str, str] | None = None
        # The session, and the catalogue that its prompt was last seen to show.

    async def start(self) -> None:
        """Ask the agent for its sources, and them for their skills. Raises when it names what is none."""
        hooks = self._hooks
        given = await hooks.get_skills()
        if given is None or (isinstance(given, tuple | list) and not given):
            return
        from .registry import SkillRegistry, as_runner, as_sources  # loaded with the first skills

        sources = [_bound(one, hooks.agent) for one in as_sources(given)]
        runner = as_runner(await hooks.get_skill_script_runner())
        registry = SkillRegistry(sources, runner)
        await registry.load()
        self.registry = registry
        self._tell(registry.warnings)

    def declare(self, session: Session) -> Session:
        """Give a session the block that lists the skills."""
        if (registry := self.registry) is not None:
            session.with_context(LABEL, description=DESCRIPTION, provider=_Catalogue(registry))
        return session

    async def tools(self, session: Session) -> Mapping[str, Tool]:
        """The tools of a turn, after a look at the sources. A prompt that lists others is made anew."""
        registry = self.registry
        if registry is None:
            return {}
        try:
            await registry.refresh()
            self._tell(registry.warnings)
            await self._show(session, registry.catalogue() or "")
        except Exception as error:  # noqa: BLE001 - a turn goes on with the skills there were
            self._tell([f"the catalogue of skills stays as it was: {type(error).__name__}: {error}"])
        return registry.tools()

    async def _show(self, session: Session, catalogue: str) -> None:
        if self._shown == (session.id, catalogue):
            return
        # The prompt itself says what it shows: it outlives this process, and each session has its own.
        if not shows(await session.context.peek(), catalogue):
            await session.refresh_system_prompt("skills")
        self._shown = (session.id, catalogue)

    def _tell(self, warnings: Any) -> None:
        cls = self._hooks.cls
        told = _told.setdefault(cls, set())
        for warning in warnings:
            if warning not in told and len(told) < _MOST_TOLD:
                told.add(warning)
                log.warning("%s: %s", cls.__name__, warning)


class _Catalogue:
    """Stands behind the block. It has no `set`, so nobody writes to it."""

    def __init__(self, registry: SkillRegistry) -> None:
        self._registry = registry

    def get(self) -> str | None:
        return self._registry.catalogue()


def shows(prompt: str, catalogue: str) -> bool:
    """True when a prompt lists exactly these skills."""
    if not catalogue:
        return f"\n{LABEL.upper()} ({DESCRIPTION}) [" not in prompt
    rendered = render([ContextBlock(LABEL, DESCRIPTION, catalogue)])
    return prompt.endswith(rendered) or f"{rendered}\n\n{RULE}" in prompt


def _bound(source: Any, agent: Any) -> Any:
    """A source that is a definition (`from_workspace`) as the one of an agent."""
    bind = getattr(source, "bind", None)
    return bind(agent) if callable(bind) else source
