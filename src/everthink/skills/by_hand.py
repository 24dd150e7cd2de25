"""A skill that a person or code activates, instead of the model.

    activate(agent, name) --> a question, the call of activate_skill, its result --> the conversation

The conversation reads as if the model had been asked for it and had done so, so whatever holds for activated
skills holds for this one: it stays whole, it is not said twice, a panel shows it as active.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..context.activated_skills import ACTIVATE, OPENING, activated_in
from ..errors import SkillError
from ..messages import Message
from ..session.overlay import is_overlay
from ..words import said

if TYPE_CHECKING:
    from .registry import SkillRegistry

__all__ = ["activate"]


async def activate(agent: Any, name: str) -> bool:
    """Make a skill's instructions part of an agent's conversation, without a turn: those of `/name`, say.

        async with app.agent(Assistant, "ada") as agent:
            await skills.activate(agent, "pirate-style")

    False when these instructions are there already. Raises `SkillError` when there is no such skill.
    """
    registry: SkillRegistry | None = agent._skills()
    text = "" if registry is None else await registry.activate(name)
    if not text.startswith(OPENING):
        raise _unknown(registry, name)
    added = False

    def unless_said(path: Sequence[Message]) -> list[dict[str, Any]]:
        nonlocal added
        added = text not in activated_in(path, is_overlay).values()
        return _as_said(name, text) if added else []

    await agent.add_messages(unless_said)
    return added


def _unknown(registry: SkillRegistry | None, name: str) -> SkillError:
    there = ", ".join(said(one.name) for one in registry.skills[:50]) if registry is not None else ""
    return SkillError(
        f"There is no skill {said(name)!r}.",
        kept="Nothing was activated.",
        next_step=f"There are: {there}."
        if there
        else "Give the agent some: skills = [skills.from_directory(…)].",
    )


def _as_said(name: str, text: str) -> list[dict[str, Any]]:
    """Both halves: a conversation begins with a person, and a model reads no result without its call."""
    call = {
        "type": f"tool-{ACTIVATE}",
        "toolCallId": f"by-hand-{uuid.uuid4().hex}",
        "state": "output-available",
        "input": {"name": name},
        "output": text,
    }
    words = {"type": "text", "text": f"Activate the skill {said(name)}."}
    return [
        {"role": "user", "parts": [words]},
        {"role": "assistant", "parts": [{"type": "step-start"}, call]},
    ]
