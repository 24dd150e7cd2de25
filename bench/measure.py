"""Let the contestants take turns within one run and compare medians: a noisy machine is noisy for all.

CPU is `time.process_time`: user and system time of all threads, so everthink's writer thread and the kernel's
share of a commit count. Wall is `time.perf_counter`. Other programs disturb wall time far more than CPU
time, so what something costs is judged on CPU.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from .floor import BATCHED
from .work import Contestant

PATIENCE = 12.0
"""After so many seconds a comparison ends with the repetitions it has: a busy machine is slower at each."""

Work = Callable[[Contestant, int], Awaitable[None]]


@dataclass
class Row:
    """One line of the table: a value per contestant, ratios, and a budget if there is one."""

    what: str
    unit: str
    values: dict[str, float] = field(default_factory=dict[str, float])
    times_floor: float | None = None
    times_peer: float | None = None
    budget: str = ""
    is_met: bool | None = None

    def held_to(self, budget: str, is_met: bool) -> Row:
        """The same row with its budget."""
        self.budget, self.is_met = budget, is_met
        return self


def calm() -> None:
    """Collect garbage, and keep what others left behind out of later collections."""
    gc.collect()
    gc.freeze()


async def compare(
    what: str, contestants: Sequence[Contestant], work: Work, *, repetitions: int, per: int, warm: Work
) -> tuple[Row, Row]:
    """CPU and wall of `work(contestant, repetition)`, divided by `per`, in µs.

    Ratios are medians of the ratios within each repetition. The first round is not counted.
    """
    rounds: list[dict[str, tuple[float, float]]] = []
    end = time.perf_counter() + PATIENCE
    for repetition in range(-1, repetitions):
        taken: dict[str, tuple[float, float]] = {}
        for contestant in contestants:
            await warm(contestant, repetition)
            calm()
            cpu, wall = time.process_time(), time.perf_counter()
            await work(contestant, repetition)
            taken[contestant.name] = (time.process_time() - cpu, time.perf_counter() - wall)
        if repetition >= 0:
            rounds.append(taken)
        if rounds and time.perf_counter() > end:
            break

    def row(kind: int, name: str) -> Row:
        values = {one: median(r[one][kind] for r in rounds) / per * 1e6 for one in rounds[0]}
        times = [
            median(r["everthink"][kind] / r[to][kind] for r in rounds) if to in values else None
            for to in (BATCHED, "pydantic-ai")
        ]
        return Row(f"{name} per {what}", "µs", values, *times)

    return row(0, "CPU"), row(1, "wall")


async def live(handle: Any) -> Any:
    """The agent behind a handle, started."""
    async with handle as agent:
        return agent
