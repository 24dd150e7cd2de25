"""Takeovers under fire: owners that do not know that they are dead write on while others claim.

Nothing that was acknowledged may be lost, and no owner may write once another has claimed the agent.
`EVERTHINK_RACES=1000` runs as many histories as were asked for; a few are enough for every day.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator

import pytest

from everthink.cluster.fence import Claim, Fence
from everthink.errors import CommitRefused, LeaseLost
from everthink.postgres import PostgresStore, open_postgres
from everthink.runtime.schema import MIGRATIONS
from everthink.store.port import Migration, Statement
from tests.cluster.peers import Peers

pytestmark = pytest.mark.anyio

HISTORIES = int(os.environ.get("EVERTHINK_RACES", "40"))
OWNERS = 4

SCHEMA = (
    *MIGRATIONS,
    Migration(
        len(MIGRATIONS) + 1,
        "races",
        ("CREATE TABLE race (agent TEXT, epoch BIGINT, n BIGINT, place BIGSERIAL PRIMARY KEY)",),
    ),
)
NEVER = Statement("UPDATE race SET n = n WHERE agent = ?", ("nobody",), guard=True, name="its own")


@pytest.fixture
async def stores(postgres_url: str) -> AsyncIterator[list[PostgresStore]]:
    stores = [await open_postgres(postgres_url, SCHEMA) for _ in range(2)]
    yield stores
    for store in stores:
        await store.close()


class History:
    """One agent and its owners, one after the other."""

    def __init__(self, number: int, stores: list[PostgresStore], peers: Peers) -> None:
        self.dice = random.Random(number)
        self.agent, self._stores, self._peers = f"Race/{number}", stores, peers
        self.ids = [f"{number}-{owner}" for owner in range(OWNERS)]
        self.acknowledged: list[tuple[int, int]] = []
        self.is_over = False
        self.fenced = 0

    async def run(self) -> None:
        """Each owner writes until it is fenced, or the history is over."""
        await self._peers.register(*self.ids)
        writers: list[asyncio.Task[None]] = []
        for place, id in enumerate(self.ids):
            if place:
                if self.dice.random() < 0.3:
                    assert await self._peers.claim(self.agent, id) is None  # nobody is dead
                await self._peers.die(self.ids[place - 1])
            claim = await self._claim(id)
            for _ in range(self.dice.choice((1, 3, 20))):
                store = self.dice.choice(self._stores)
                writers.append(asyncio.create_task(self._write(store, claim)))
            for _ in range(self.dice.randrange(1, 12)):
                await self._stores[0].fetch("SELECT 1")
        self.is_over = True
        await asyncio.gather(*writers)

    async def _claim(self, id: str) -> Claim:
        claim = await self._peers.claim(self.agent, id)
        assert claim is not None
        return claim

    async def _write(self, store: PostgresStore, claim: Claim) -> None:
        lost = asyncio.Event()
        fence = Fence(store, self.agent, claim, lambda why, what: lost.set())
        first = self.dice.randrange(10**12)
        for n in range(first, first + 400):
            if self.is_over:
                return
            row = Statement(
                "INSERT INTO race (agent, epoch, n) VALUES (?, ?, ?)", (self.agent, claim.epoch, n)
            )
            commit = [row, NEVER] if n % 7 == 0 else [row]
            answer = fence.apply(commit)
            waiting = asyncio.ensure_future(lost.wait())
            await asyncio.wait([answer, waiting], return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
            fence.answer()
            try:
                await answer
                self.acknowledged.append((claim.epoch, n))
            except CommitRefused:
                continue  # for its own reason, which costs the owner nothing
            except LeaseLost:
                self.fenced += 1
                return

    async def judge(self) -> None:
        """What the database says about it."""
        sql = "SELECT epoch, n FROM race WHERE agent = ? ORDER BY place"
        rows = [tuple(row) for row in await self._stores[0].fetch(sql, self.agent)]
        [(head,)] = await self._stores[0].fetch("SELECT head FROM claims WHERE agent = ?", self.agent)
        epochs = [epoch for epoch, _ in rows]
        assert set(self.acknowledged) <= set(rows), "an acknowledged commit is lost"
        assert epochs == sorted(epochs), "an owner wrote after another had claimed the agent"
        assert head == len(rows), "a commit is stored that nobody owned"


async def test_no_acknowledged_commit_is_lost_and_none_is_by_two_owners(stores: list[PostgresStore]) -> None:
    fenced = acknowledged = 0
    async with Peers(stores[0]) as peers:
        for number in range(HISTORIES):
            history = History(number, stores, peers)
            await history.run()
            await history.judge()
            fenced += history.fenced
            acknowledged += len(history.acknowledged)
    assert fenced > HISTORIES
    assert acknowledged > HISTORIES
    print(f"{HISTORIES} histories, {acknowledged} acknowledged commits, {fenced} writers fenced")


async def test_of_many_that_claim_at_once_one_has_it(stores: list[PostgresStore]) -> None:
    async with Peers(stores[0]) as one, Peers(stores[1]) as two:
        await one.register(*(f"n{number}" for number in range(10)))
        for number in range(20):
            agent = f"Race/{number}"
            tries = [(one, two)[place % 2].claim(agent, f"n{place}") for place in range(2)]
            assert sum(claim is not None for claim in await asyncio.gather(*tries)) == 1
