"""What does it cost on PostgreSQL that each commit asks whether the agent is still ours?

    python scripts/with-postgres python -m bench.fence --store @postgres

The same commits and the same short turns with and without the fence, one after the other in each repetition;
the figures are medians of the ratios within a repetition.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from everthink import App, Think
from everthink.cluster.fence import Fence
from everthink.cluster.membership import Membership
from everthink.journal import queries as turns
from everthink.postgres import PostgresStore, open_postgres
from everthink.runtime.schema import MIGRATIONS
from everthink.store.port import AgentStore
from everthink.testing import ScriptedModel, says

AGENTS = 200
WORDS = [f"word{number} " for number in range(20)]


class Talker(Think):
    """Answers in twenty pieces."""

    model = ScriptedModel(says(*WORDS), repeat=True, records=False)


class Unshared:
    """A store that says nothing of being shared: nobody registers and nothing is fenced."""

    def __init__(self, store: PostgresStore) -> None:
        self.apply, self.fetch, self.search = store.apply, store.fetch, store.search
        self.scrub, self.close = store.scrub, store.close


async def measured(work: Callable[[], Awaitable[object]]) -> tuple[float, float]:
    """Wall and CPU seconds."""
    wall, cpu = time.perf_counter(), time.process_time()
    await work()
    return time.perf_counter() - wall, time.process_time() - cpu


async def commits(stores: Sequence[AgentStore], turn: str, each: int) -> None:
    """So many agents write so many segments each, one after the other."""

    async def write(store: AgentStore) -> None:
        for seq in range(each):
            segment = turns.segment(turn, first=seq, last=seq, chunks='["hello"]', now=1)
            await store.apply([segment])

    await asyncio.gather(*(write(store) for store in stores))


async def talk(app: App, name: str, agents: int, each: int) -> None:
    """Short turns of several agents at once."""

    async def one(number: int) -> None:
        for _ in range(each):
            await app.agent(Talker, f"{name}-{number}").save_messages("Talk.")

    await asyncio.gather(*(one(number) for number in range(agents)))


async def main(url: str, repetitions: int) -> None:
    """Print the table."""
    store = await open_postgres(url, MIGRATIONS)
    membership = Membership(store, classes=(), version="")
    await membership.join()
    fenced = [Fence(store, f"A/{n}", await membership.claim(f"A/{n}")) for n in range(AGENTS)]
    plain = [AgentStore(store, f"A/{n}") for n in range(AGENTS)]
    found: dict[str, list[tuple[float, float, float, float]]] = {}

    async def compare(what: str, without: Any, with_fence: Any, units: int) -> None:
        before, after = await measured(without), await measured(with_fence)
        row = (before[0] / units, after[0] / units, before[1] / units, after[1] / units)
        found.setdefault(what, []).append(row)

    unshared: Any = Unshared(store)
    async with (
        App(Talker, store=unshared, idle_after=None) as bare,
        App(Talker, store=store, idle_after=None) as shared,
    ):
        for round in range(repetitions + 1):
            if round == 1:
                found.clear()  # the first one is for warming up
            await compare(
                "a commit, one at a time",
                lambda round=round: commits(plain[:1], f"p{round}", 300),
                lambda round=round: commits(fenced[:1], f"f{round}", 300),
                300,
            )
            await compare(
                f"a commit, {AGENTS} agents at once",
                lambda round=round: commits(plain, f"pp{round}", 20),
                lambda round=round: commits(fenced, f"ff{round}", 20),
                20 * AGENTS,
            )
            await compare(
                "a short turn, one at a time",
                lambda round=round: talk(bare, f"p{round}", 1, 30),
                lambda round=round: talk(shared, f"f{round}", 1, 30),
                30,
            )
            await compare(
                "a short turn, 50 agents at once",
                lambda round=round: talk(bare, f"pp{round}", 50, 3),
                lambda round=round: talk(shared, f"ff{round}", 50, 3),
                150,
            )
    print("| | without | fenced | × wall | × CPU of the process |\n|---|---:|---:|---:|---:|")
    for what, rows in found.items():
        wall, cpu = (statistics.median(row[i + 1] / row[i] for row in rows) for i in (0, 2))
        without, after = (statistics.median(row[i] for row in rows) * 1e6 for i in (0, 1))
        print(f"| {what} | {without:,.0f} µs | {after:,.0f} µs | {wall:.2f} | {cpu:.2f} |")
    await membership.leave()
    await store.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", required=True, help="postgresql://…, an empty database")
    parser.add_argument("--repetitions", type=int, default=9)
    given = parser.parse_args()
    asyncio.run(main(given.store, given.repetitions))
