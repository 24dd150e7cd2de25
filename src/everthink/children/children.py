"""What an agent has of its children: made when it is first asked for."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Mapping
from dataclasses import fields
from typing import Any

from ..abort import AbortSignal
from ..errors import AgentError, InvalidSettings
from ..models.structured import structured
from ..settings import shown
from ..surface import refuse_unknown
from .beginning import Asked
from .family import Family
from .parts import Parts
from .progress import Reports
from .runs import Runs
from .values import AgentToolResult, Detached

__all__ = ["Children"]


class Children:
    """The children of one agent and their runs."""

    __slots__ = ("family", "reports", "runs")

    def __init__(self, parts: Parts) -> None:
        self.family = Family(parts.address, parts.store, parts.kin)
        self.runs = Runs(parts)
        self.reports = Reports(parts)

    async def run(
        self,
        cls: Any,
        unknown: Collection[str] = (),
        *,
        input: Any,
        run_id: str | None,
        call_id: str | None,
        signal: AbortSignal | None,
        preview: str | None,
        display: Mapping[str, Any] | None,
        order: int,
        output: Any,
        detached: Any,
    ) -> AgentToolResult:
        """Let a child answer once."""
        if not isinstance(cls, type) or not hasattr(cls, "get_model"):
            raise AgentError(
                f"run_agent_tool() is given {shown(cls)}, in the place of a class of agents that chat.",
                next_step="Give a subclass of Think.",
            )
        _refuse(unknown)
        asked = Asked(
            input=input,
            run_id=secrets.token_hex(6) if run_id is None else run_id,
            call_id=call_id,
            order=order,
            preview=preview,
            display=None if display is None else dict(display),
            output=structured(output, "run_agent_tool"),
            detached=self.runs.detached.planned(detached),
        )
        return await self.runs.run(cls, asked, signal)


_OPTIONS = (
    "input",
    "run_id",
    "parent_tool_call_id",
    "signal",
    "input_preview",
    "display",
    "display_order",
    "output",
    "detached",
)
_OTHERWISE = {"id": "run_id", "tool_call_id": "parent_tool_call_id", "output_schema": "output"}


def _refuse(unknown: Collection[str]) -> None:
    """Refuse options that a run does not have: some are said elsewhere."""
    for name in unknown:
        if name in {field.name for field in fields(Detached)}:
            raise InvalidSettings(
                f"run_agent_tool() has no option {name!r}: it is for runs that nobody waits for.",
                next_step=f"Write detached=Detached({name}=…).",
            )
    refuse_unknown(unknown, _OPTIONS, "run_agent_tool()", _OTHERWISE)
