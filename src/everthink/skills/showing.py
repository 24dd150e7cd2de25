"""What a panel shows of an agent's skills, as JSON values.

view(agent.…skills, session) --> {"sources": […], "skills": […], "diagnostics": […], "active": […]}
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ..context.activated_skills import activated_in
from ..session.overlay import is_overlay
from ..skill_values import Diagnostic, Skill
from ..words import clean, said

if TYPE_CHECKING:
    from ..messages import Message
    from .port import ScriptRunner
    from .registry import SkillRegistry

__all__ = ["LONGEST_SHOWN", "look", "rights", "view"]

LONGEST_SHOWN = 200_000
"""Characters of instructions that a panel is given."""


def view(registry: SkillRegistry | None, messages: Iterable[Message] = ()) -> dict[str, Any]:
    """Sources with what became of them, their skills, what there is to say, and which skills are active in
    these messages of a conversation."""
    active = list(activated_in(messages, is_overlay))
    if registry is None:
        return {
            "sources": [],
            "skills": [],
            "diagnostics": [],
            "active": active,
            "scripts": None,
            "catalogue": None,
        }
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
        "scripts": rights(registry.runner),
        "catalogue": registry.catalogue(),
    }


def rights(runner: ScriptRunner | None) -> dict[str, Any] | None:
    """What scripts may do, as JSON; `None`: nothing runs them. Not known of a runner of one's own."""
    if runner is None:
        return None
    told: Any = getattr(runner, "told", None)
    known: Any = told() if callable(told) else {}
    return {"runner": type(runner).__name__, "rights": None, **known}


def look(skill: Skill) -> dict[str, Any]:
    """A skill with its instructions and the list of its files, as JSON."""
    return {
        "name": said(skill.name),
        "body": clean(skill.body, LONGEST_SHOWN),
        "isCut": len(skill.body) > LONGEST_SHOWN,
        "metadata": dict(skill.metadata),
        "resources": [
            {"path": one.path, "kind": one.kind, "size": one.size, "mediaType": one.media_type}
            for one in skill.resources
        ],
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
