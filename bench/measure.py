"""Measure: contestants take turns within one run, and medians are compared, so that a noisy machine is noisy for all.

CPU is `time.process_time`: user and system time of all threads of this process, so the writer thread of
everthink and the kernel's share of a commit are included. Wall is `time.perf_counter`. Other programs
on the machine disturb wall time far more than CPU time; budgets of cost are therefore judged on CPU.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any

from .work import Contestant

__all__ = ["Cost", "Row", "Samples", "compare", "costs", "ratio"]


@dataclass(frozen=True)
class Cost:
    """What something took, in seconds."""

    cpu: float
    wall: float


Samples = Mapping[str, Sequence[Cost]]
"""Costs by contestant; the n-th ones were taken right after each other."""


@dataclass
class Row:
    """One line of the table. Values are in `unit`; ratios are medians of the ratios within each repetition."""

    what: str
    unit: str
    values: dict[str, float] = field(default_factory=dict)
    times_floor: float | None = None
    times_peer: float | None = None
    budget: str = ""
    is_met: bool | None = None

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


async def compare(
    contestants: Sequence[Contestant],
    work: Callable[[Contestant, int], Awaitable[None]],
    *,
    repetitions: int,
    per: Mapping[str, int] | int,
    warm: Callable[[Contestant, int], Awaitable[None]] | None = None,
) -> Samples:
    """Let each do `work(contestant, repetition)`, in turn, `repetitions` times; costs are divided by `per`."""
    samples: dict[str, list[Cost]] = {contestant.name: [] for contestant in contestants}
    for repetition in range(-1, repetitions):  # The first time is for warming up.
        for contestant in contestants:
            if warm is not None:
                await warm(contestant, repetition)
            gc.collect()
            cpu, wall = time.process_time(), time.perf_counter()
            await work(contestant, repetition)
            cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
            share = per if isinstance(per, int) else per[contestant.name]
            if repetition >= 0:
                samples[contestant.name].append(Cost(cpu / share, wall / share))
    return samples


def ratio(samples: Samples, of: str, to: str, kind: str = "cpu") -> float | None:
    """How many times more `of` takes than `to`."""
    if of not in samples or to not in samples:
        return None
    pairs = zip(samples[of], samples[to], strict=True)
    return median(getattr(a, kind) / getattr(b, kind) for a, b in pairs)


def costs(
    what: str, unit: str, samples: Samples, *, floor: str, kind: str = "cpu", scale: float = 1e6
) -> Row:
    """A row of medians with ratios against the floor and the peer."""
    return Row(
        what,
        unit,
        {name: median(getattr(cost, kind) for cost in taken) * scale for name, taken in samples.items()},
        ratio(samples, "everthink", floor, kind),
        ratio(samples, "everthink", "pydantic-ai", kind),
    )
