"""What an agent has of its children: made when it is first asked for."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

from ..abort import AbortSignal
from ..errors import AgentError
from ..models.structured import structured
from ..settings import shown
from .beginning import Asked
from .family import Family
from .parts import Parts
from .progress import Reports
from .runs import Runs
from .values import AgentToolResult

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
