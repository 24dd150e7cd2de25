"""What only the model is told of code: words that people do not read, and what was done before a bad end.

    the output, the log --as_read--> the output as the model reads it
    the log of code whose call was denied, stopped or lost --aftermath--> a note beside the reason

The log knows what a message cannot show: an exception may hold anything, and a message that was cut off shows
what was seen last, not what was done last.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from ..journal.tool_errors import UNTOLD_TOOL
from ..store.port import AgentStore
from ..tools.context import ToolContext
from . import queries
from .queries import CallRow
from .showing import REASON, for_model
from .values import cut

__all__ = ["aftermath", "as_read"]

LISTED = 50


async def as_read(output: Any, ctx: ToolContext) -> Any:
    """What the model reads of an output, with the words of calls that failed."""
    shown: Mapping[str, Any] = cast("Mapping[str, Any]", output) if isinstance(output, Mapping) else {}
    executions = getattr(ctx.agent, "_executions", None)
    if executions is None or not _hides(shown.get("calls")):
        return for_model(output)
    rows = await queries.calls_of(executions().store, str(shown.get("executionId", ctx.tool_call_id)))
    words = {row.seq + 1: queries.told_words(row) for row in rows if row.outcome and row.state == "failed"}
    return for_model(output, words)


def _hides(calls: Any) -> bool:
    """True when a call has words that are not in the output."""
    return isinstance(calls, list) and any(
        isinstance(one, Mapping) and cast("Mapping[str, Any]", one).get("error") == UNTOLD_TOOL
        for one in cast("list[Any]", calls)
    )


async def aftermath(store: AgentStore, id: str) -> str | None:
    """What code had done whose call ended without its output; `None` when it had called nothing."""
    rows = await queries.calls_of(store, id)
    if not rows:
        return None
    listed = "\n".join(map(_line, rows[:LISTED]))
    more = len(rows) - LISTED
    rest = f"\n… and {more:,} more" if more > 0 else ""
    return f"The code had made these calls before that, and what is done stays done:\n{listed}{rest}"


_ENDS: Mapping[str, str] = {
    "done": "done",
    "failed": "failed",
    "denied": "not run",
    "pending": "not run",
    "approved": "not run",
}


def _line(row: CallRow) -> str:
    end = _ENDS.get(row.state, "may have run: check before you call it again")
    why = queries.told_words(row) if row.outcome and row.state in ("failed", "denied") else ""
    told = f"{end} ({cut(why, REASON)})" if why else end
    return f"{row.seq + 1} {row.tool}({cut(row.input, REASON)}): {told}"
