"""Rows as a table: floors, everthink, the peer, the ratios, and the budget with met or MISSED."""

from __future__ import annotations

from collections.abc import Sequence

from .floor import CHEAPEST, PER_DELTA, ROWS
from .measure import Row

__all__ = ["LATER", "render"]

LATER = (
    Row("server CPU per delta to a WebSocket reader", "", budget="≤ 1/4 of Think (JS)"),
    Row("short turns per second over sockets, 200 agents", "", budget="≥ 8 × Think (JS)"),
)
"""Budgets that nothing can be held against before there is a server."""

COLUMNS = (PER_DELTA, ROWS, CHEAPEST, "everthink", "pydantic-ai")
HEAD = ("", "floor: commit per delta", "floor: batched rows", "floor: segments", "everthink", "pydantic-ai")


def render(rows: Sequence[Row]) -> str:
    """A Markdown table, aligned for the terminal too."""
    lines = [(*HEAD, "× floor", "× peer", "budget", ""), *(_cells(row) for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    lines.insert(
        1,
        (
            "-" * widths[0],
            *("-" * (width - 1) + ":" for width in widths[1:-2]),
            *(("-" * w) for w in widths[-2:]),
        ),
    )
    return "\n".join(
        f"| {line[0]:<{widths[0]}} | "
        + " | ".join(cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True))
        + " |"
        for line in lines
    )


def _cells(row: Row) -> tuple[str, ...]:
    values = (_number(row.values.get(name), row.unit) for name in COLUMNS)
    verdict = "" if not row.budget else {None: "later", True: "met", False: "MISSED"}[row.is_met]
    return (row.what, *values, _times(row.times_floor), _times(row.times_peer), row.budget, verdict)


def _number(value: float | None, unit: str) -> str:
    if value is None:
        return ""
    digits = 0 if value >= 100 else 1 if value >= 10 else 2
    return f"{value:,.{digits}f} {unit}"


def _times(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"
