"""What a panel shows of an agent's skills, as JSON values.

view(agent.…skills, session) --> {"sources": […], "skills": […], "diagnostics": […], "active": […]}
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ..context.activated_skills import activated_in
from ..session.overlay import is_overlay
from ..words import said
from .values import Diagnostic

if TYPE_CHECKING:
    from ..messages import Message
    from .registry import SkillRegistry

__all__ = ["view"]


def view(registry: SkillRegistry | None, messages: Iterable[Message] = ()) -> dict[str, Any]:
    """Sources with what became of them, their skills, what there is to say, and which skills are active in
    these messages of a conversation."""
    active = list(activated_in(messages, is_overlay))
    if registry is None:
        return {"sources": [], "skills": [], "diagnostics": [], "active": active, "catalogue": None}
    return {
        "sources": [
            {
                "id": state.source.id,
                "fingerprint": state.fingerprint,
                "skills": list(state.names),
                "error": None if state.problem is None else state.problem.what,
            }
            for state in registry.sources
        ],
        "skills": [
            {
                "name": said(one.name),
                "description": said(one.description, 2_000),
                "source": one.source_id,
                "version": one.version,
                "license": one.license,
                "compatibility": one.compatibility,
                "allowedTools": one.allowed_tools,
                "active": one.name in active,
            }
            for one in registry.skills
        ],
        "diagnostics": [told(one) for one in registry.diagnostics],
        "active": active,
        "runsScripts": registry.runner is not None,
        "catalogue": registry.catalogue(),
    }


def told(one: Diagnostic) -> dict[str, Any]:
    """A diagnostic as JSON."""
    return {
        "level": one.level,
        "skill": one.skill,
        "source": one.source_id,
        "what": one.what,
        "nextStep": one.next_step,
    }
