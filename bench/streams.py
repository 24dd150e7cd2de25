"""What deltas and turns cost, alone and many at once, and how much later a reader has a word."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from statistics import median, quantiles

from .floor import CHEAPEST, PER_DELTA
from .measure import Row, compare, costs
from .work import BURST, PACED, SHORT, SLOW, TOOL, Contestant, Job

__all__ = ["concurrency", "deltas", "latency", "turns"]


async def deltas(contestants: Sequence[Contestant], *, repetitions: int) -> list[Row]:
    """CPU per delta of a long answer: without a pause, and with a turn of the event loop between two deltas."""
    rows: list[Row] = []
    for job, how in ((BURST, "burst"), (PACED, "paced")):

        async def work(contestant: Contestant, repetition: int, job: Job = job) -> None:
            await contestant.turn(f"{job.name} {repetition}", job)

        samples = await compare(contestants, work, repetitions=repetitions, per=job.words)
        row = costs(f"CPU per delta, {how} of {job.words}", "µs", samples, floor=CHEAPEST)
        if job is BURST:
            row.budget, row.is_met = "≤ 5 × floor", (row.times_floor or 0) <= 5
        rows.append(row)
    return rows


async def turns(contestants: Sequence[Contestant], *, repetitions: int, count: int = 20) -> list[Row]:
    """A short turn, one after the other on one agent, without and with a tool call."""
    rows: list[Row] = []
    for job, what in ((SHORT, "short turn"), (TOOL, "short turn with a tool")):

        async def warm(contestant: Contestant, repetition: int, job: Job = job) -> None:
            await contestant.turn(f"{job.name} {repetition}", job)

        async def work(contestant: Contestant, repetition: int, job: Job = job) -> None:
            for _ in range(count):
                await contestant.turn(f"{job.name} {repetition}", job)

        samples = await compare(contestants, work, repetitions=repetitions, per=count, warm=warm)
        row = costs(f"CPU per {what}", "µs", samples, floor=CHEAPEST)
        row.budget, row.is_met = "≤ 10 × floor", (row.times_floor or 0) <= 10
        rows += [row, costs(f"wall per {what}", "µs", samples, floor=CHEAPEST, kind="wall")]
    return rows


async def concurrency(contestants: Sequence[Contestant], agents: int, *, repetitions: int) -> list[Row]:
    """`agents` agents doing two short turns each, all at once."""
    count = 2 * agents

    async def one(contestant: Contestant, agent: str, times: int) -> None:
        for _ in range(times):
            await contestant.turn(agent, SHORT)

    async def crowd(contestant: Contestant, repetition: int, times: int) -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(agents):
                group.create_task(one(contestant, f"crowd {agents} {repetition} {number}", times))

    samples = await compare(
        contestants,
        lambda contestant, repetition: crowd(contestant, repetition, 2),
        repetitions=repetitions,
        per=count,
        warm=lambda contestant, repetition: crowd(contestant, repetition, 1),
    )
    cpu = costs(f"CPU per short turn, {agents} agents at once", "µs", samples, floor=CHEAPEST)
    wall = costs(f"turns per second, {agents} agents at once", "1/s", samples, floor=CHEAPEST, kind="wall")
    wall.values = {name: 1e6 / value for name, value in wall.values.items()}
    wall.times_floor = 1 / wall.times_floor if wall.times_floor else None
    wall.times_peer = 1 / wall.times_peer if wall.times_peer else None
    return [cpu, wall]


async def latency(contestants: Sequence[Contestant], *, repetitions: int) -> list[Row]:
    """Wall time from the model saying a word to the reader having it, on a slow stream.

    The batched floors are left out: they show a word when its batch is full.
    """
    waits: dict[str, list[float]] = {}
    for repetition in range(repetitions):
        for contestant in contestants:
            if contestant.name.startswith("floor") and contestant.name != PER_DELTA:
                continue
            SLOW.spoken.clear()
            SLOW.heard.clear()
            await contestant.turn(f"slow {repetition}", SLOW)
            pairs = zip(SLOW.spoken, SLOW.heard, strict=True)
            waits.setdefault(contestant.name, []).extend(heard - spoken for spoken, heard in pairs)
    middle = {name: median(taken) * 1e6 for name, taken in waits.items()}
    late = {name: quantiles(taken, n=100)[98] * 1e6 for name, taken in waits.items()}
    return [
        _latency("median", middle),
        _latency("99 %", late),
    ]


def _latency(which: str, values: dict[str, float]) -> Row:
    peer = values.get("pydantic-ai")
    ours = values["everthink"]
    return Row(
        f"added to a delta of a slow stream (wall, {which})",
        "µs",
        values,
        ours / values[PER_DELTA],
        ours / peer if peer else None,
    )
