"""What deltas and turns cost, alone and many at once, and how much later a reader has a word."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from statistics import median, quantiles

from .floor import BATCHED, PER_DELTA
from .measure import Row, compare
from .work import BURST, PACED, SHORT, SLOW, TOOL, Contestant, Job


async def deltas(contestants: Sequence[Contestant], *, repetitions: int) -> list[Row]:
    """A long answer: in a burst, and with a turn of the event loop between two deltas."""
    burst = await _one_job("delta, burst of 2,000", contestants, BURST, 1, repetitions, per=BURST.words)
    paced = await _one_job(
        "delta, a turn of the loop between them", contestants, PACED, 1, repetitions, per=PACED.words
    )
    return [_at_most(5, burst[0]), paced[0]]


async def turns(contestants: Sequence[Contestant], *, repetitions: int, count: int = 20) -> list[Row]:
    """Short turns, one after the other on one agent, without and with a tool call."""
    short = await _one_job("short turn", contestants, SHORT, count, repetitions, per=count)
    tool = await _one_job("short turn with a tool", contestants, TOOL, count, repetitions, per=count)
    return [_at_most(10, short[0]), short[1], _at_most(10, tool[0]), tool[1]]


async def _one_job(
    what: str, contestants: Sequence[Contestant], job: Job, count: int, repetitions: int, *, per: int
) -> tuple[Row, Row]:
    def agent(repetition: int) -> str:
        # A long answer may follow others; short turns need a conversation that is short, too.
        return f"{job.name} {repetition}" if count > 1 else job.name

    async def warm(contestant: Contestant, repetition: int) -> None:
        if count > 1:
            await contestant.turn(agent(repetition), job)

    async def work(contestant: Contestant, repetition: int) -> None:
        for _ in range(count):
            await contestant.turn(agent(repetition), job)

    return await compare(what, contestants, work, repetitions=repetitions, per=per, warm=warm)


def _at_most(times: int, row: Row) -> Row:
    return row.held_to(f"≤ {times} × floor", (row.times_floor or 0) <= times)


async def concurrency(contestants: Sequence[Contestant], agents: int, *, repetitions: int) -> list[Row]:
    """One short turn of each of `agents` agents, all at once. They are in memory already."""

    async def crowd(contestant: Contestant, repetition: int) -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(agents):
                group.create_task(contestant.turn(f"crowd {agents} {number}", SHORT))

    async def warm(contestant: Contestant, repetition: int) -> None:
        if repetition < 0:
            await crowd(contestant, repetition)

    what = f"short turn, {agents} agents at once"
    cpu, wall = await compare(what, contestants, crowd, repetitions=repetitions, per=agents, warm=warm)
    rates = {name: 1e6 / value for name, value in wall.values.items()}
    inverse = [1 / times if times else None for times in (wall.times_floor, wall.times_peer)]
    return [cpu, Row(f"short turns per second, {agents} agents at once", "1/s", rates, *inverse)]


async def latency(contestants: Sequence[Contestant], *, repetitions: int) -> list[Row]:
    """Wall time from the model saying a word to the reader having it, on a slow stream.

    Against the floor that commits each delta: the batched one shows a word when its batch is full.
    """
    waits: dict[str, list[float]] = {}
    for repetition in range(repetitions):
        for contestant in contestants:
            if contestant.name != BATCHED:
                SLOW.spoken.clear()
                SLOW.heard.clear()
                await contestant.turn(f"slow {repetition}", SLOW)
                pairs = zip(SLOW.spoken, SLOW.heard, strict=True)
                waits.setdefault(contestant.name, []).extend((there - said) * 1e6 for said, there in pairs)
    middle = {name: median(taken) for name, taken in waits.items()}
    late = {name: quantiles(taken, n=100)[98] for name, taken in waits.items()}
    return [_delay("median", middle), _delay("99 %", late)]


def _delay(which: str, values: dict[str, float]) -> Row:
    times = [values["everthink"] / values[to] if to in values else None for to in (PER_DELTA, "pydantic-ai")]
    return Row(f"wall added to a delta of a slow stream, {which}", "µs", values, *times)
