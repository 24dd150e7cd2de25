"""The skills of one agent: its registry, the block of its prompt, its tools in each turn.

    Chat.load --start--> get_skills --> SkillRegistry        make_session --declare--> the block think_skills
    each turn --tools--> refresh, the prompt anew if it says otherwise --> the registry's tools

Nothing in here fails an agent or a turn: what went wrong is logged once, and the model goes on with the
skills that were there before.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from ..context.blocks import RULE, ContextBlock, render

if TYPE_CHECKING:
    from ..hooks.runner import HookRunner
    from ..session.session import Session
    from ..store.port import AgentStore, Statement
    from ..tools.tool import Tool
    from .registry import SkillRegistry

__all__ = ["DESCRIPTION", "LABEL", "TRUSTED", "AgentSkills", "shows"]

TRUSTED = "skillsTrusted"
"""Under which an agent keeps which files of its workspace no model wrote."""
LABEL, DESCRIPTION = "think_skills", "skill catalogue"
_MOST_TOLD = 500

log = logging.getLogger("everthink.skills")

# By class, what was logged already: thousands of agents may have the same skills.
_told: WeakKeyDictionary[type, set[str]] = WeakKeyDictionary()


class AgentSkills:
    """What an agent has of skills. Nothing, unless its class or `get_skills` names sources."""

    __slots__ = ("_hooks", "_save_value", "_shown", "_store", "registry")

    def __init__(
        self, hooks: HookRunner, store: AgentStore, save_value: Callable[[str, Any], Statement]
    ) -> None:
        self._hooks, self._store, self._save_value = hooks, store, save_value
        self.registry: SkillRegistry | None = None
        """`None`: it has no sources, or they could not be asked for."""
        self._shown: tuple[str, str] | None = None
        # The session, and the catalogue that its prompt was last seen to show.

    async def start(self, trusted: dict[str, str] | None) -> None:
        """Ask the agent for its sources, and them for their skills. Raises when it names what is none.
        `trusted` is what was kept of the files that no model wrote."""
        hooks = self._hooks
        given = await hooks.get_skills()
        if given is None or (isinstance(given, tuple | list) and not given):
            if hooks.cls.skill_script_runner is not None:
                self._tell(["skill_script_runner is set, and no skills are named: nothing uses it"])
            return
        from .registry import SkillRegistry, as_runner, as_sources  # loaded with the first skills

        sources = [self._bound(one, trusted or {}) for one in as_sources(given)]
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

    def _bound(self, source: Any, trusted: dict[str, str]) -> Any:
        """A source that is a definition (`from_workspace`) as the one of this agent."""
        bind = getattr(source, "bind", None)
        if not callable(bind):
            return source
        from .workspace import Trust

        return bind(self._hooks.agent, Trust(trusted, self._trusted))

    async def _trusted(self, known: Mapping[str, str]) -> None:
        await self._store.apply([self._save_value(TRUSTED, dict(known))])

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
