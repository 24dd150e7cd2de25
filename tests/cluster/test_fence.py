"""The fence in front of an agent's commits, on a real database: who may write, and what is told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from everthink.cluster.fence import Claim, Fence
from everthink.errors import CommitInDoubt, CommitRefused, LeaseLost
from everthink.postgres import PostgresStore, open_postgres
from everthink.runtime.schema import MIGRATIONS
from everthink.store.port import Rows, Statement
from tests.cluster.peers import Peers

pytestmark = pytest.mark.anyio

PUT = "INSERT INTO kv (agent, name, value) VALUES (?, ?, ?)"


@pytest.fixture
async def store(postgres_url: str) -> AsyncIterator[PostgresStore]:
    store = await open_postgres(postgres_url, MIGRATIONS)
    yield store
    await store.close()


@pytest.fixture
async def peers(store: PostgresStore) -> AsyncIterator[Peers]:
    async with Peers(store) as peers:
        yield peers


def put(name: str, *, value: str = "{}") -> Statement:
    return Statement(PUT, ("A/1", name, value))


class Losses(list[str]):
    """What a fence told."""

    def note(self, why: str, what: str) -> None:
        self.append(why)


async def names(store: PostgresStore) -> list[str]:
    return [name for (name,) in await store.fetch("SELECT name FROM kv ORDER BY name")]


async def test_an_agent_is_claimed_once_and_only_a_dead_owner_is_replaced(peers: Peers) -> None:
    await peers.register("one", "two")
    first = await peers.claim("A/1", "one")
    assert first is not None
    assert await peers.claim("A/1", "two") is None
    await peers.die("one")
    second = await peers.claim("A/1", "two")
    assert second is not None
    assert second.epoch == first.epoch + 1


async def test_who_was_declared_dead_claims_nothing_any_more(peers: Peers) -> None:
    await peers.register("one")
    await peers.die("one")
    assert await peers.claim("A/1", "one") is None


async def test_what_the_owner_writes_passes_and_its_rows_are_the_commits_own(
    store: PostgresStore, peers: Peers
) -> None:
    await peers.register("one")
    fence = Fence(store, "A/1", await peers.claim("A/1", "one"))
    assert await fence.apply([put("a"), Statement(PUT + " RETURNING name", ("A/1", "b", "{}"))]) == [
        [],
        [("b",)],
    ]
    # And refusals of other guards stay what they are, and cost the owner nothing
    with pytest.raises(CommitRefused) as refused:
        await fence.apply([Statement("DELETE FROM kv WHERE name = ?", ("none",), guard=True, name="mine")])
    assert refused.value.guard == "mine"
    with pytest.raises(Exception, match="rejected"):
        await fence.apply([put("a")])
    await fence.apply([put("c")])
    assert await names(store) == ["a", "b", "c"]


async def test_a_former_owner_writes_nothing_and_does_not_hear_of_it_before_it_is_stopped(
    store: PostgresStore, peers: Peers
) -> None:
    await peers.register("one", "two")
    losses = Losses()
    fence = Fence(store, "A/1", await peers.claim("A/1", "one"), losses.note)
    await fence.apply([put("before")])
    await peers.die("one")
    new = Fence(store, "A/1", await peers.claim("A/1", "two"))
    # When both write, one of them several commits one behind the other
    late = [fence.apply([put(f"late {n}")]) for n in range(3)]
    await new.apply([put("new")])
    assert await names(store) == ["before", "new"]
    # Then the former one is told once, and those who wait for it only when it has been stopped
    assert losses == ["taken"]
    assert not any(answer.done() for answer in late)
    fence.answer()
    for answer in late:
        with pytest.raises(LeaseLost):
            await answer
    with pytest.raises(LeaseLost):
        await fence.apply([put("later")])


async def test_a_lost_lease_is_not_a_refused_commit_for_anybody_who_minds_those(
    store: PostgresStore, peers: Peers
) -> None:
    # Given callers who take a refused commit for "somebody else was first", with a guard of their own
    await peers.register("one", "two")
    lost = asyncio.Event()
    fence = Fence(store, "A/1", await peers.claim("A/1", "one"), lambda why, what: lost.set())
    own = Statement("UPDATE kv SET value = ? WHERE agent = :agent AND name = ?", ("1", "a"), True, "mine")

    async def told() -> str:
        try:
            await fence.apply([own])
        except CommitRefused as error:
            return f"refused: {error.guard}"
        except LeaseLost:
            return "lost"
        return "stored"

    assert await told() == "refused: mine"
    # When the agent is another's, in flight and afterwards
    await peers.die("one")
    await peers.claim("A/1", "two")
    waiting = asyncio.create_task(told())
    await lost.wait()
    fence.answer()
    # Then they hear of the lease, though their own guard is not met either
    assert (await waiting, await told()) == ("lost", "lost")
    assert not issubclass(LeaseLost, CommitRefused)
    assert not issubclass(CommitRefused, LeaseLost)


async def test_a_later_life_in_the_same_process_fences_the_earlier_one(
    store: PostgresStore, peers: Peers
) -> None:
    await peers.register("one")
    losses = Losses()
    old = Fence(store, "A/1", await peers.claim("A/1", "one"), losses.note)
    new = Fence(store, "A/1", await peers.claim("A/1", "one"))
    old.apply([put("old")])
    await new.apply([put("new")])
    assert (losses, await names(store)) == (["taken"], ["new"])


async def test_a_database_that_has_lost_commits_is_noticed(store: PostgresStore, peers: Peers) -> None:
    await peers.register("one")
    losses = Losses()
    fence = Fence(store, "A/1", await peers.claim("A/1", "one"), losses.note)
    for n in range(3):
        await fence.apply([put(f"{n}")])
    # As after a failover to a copy that lagged behind
    await store.apply([Statement("UPDATE claims SET head = 1 WHERE agent = ?", ("A/1",))])
    await fence.apply([put("next")])
    assert losses == ["doubt"]
    with pytest.raises(LeaseLost):
        await fence.apply([put("later")])


async def test_nobody_is_told_what_became_of_a_commit_in_doubt(peers: Peers) -> None:
    await peers.register("one")

    class Broken:
        """A store whose connection breaks in the middle of a commit."""

        def apply(self, commit: object, *, agent: str) -> asyncio.Future[list[Rows]]:
            answer: asyncio.Future[list[Rows]] = asyncio.get_running_loop().create_future()
            answer.set_exception(CommitInDoubt("The connection was lost."))
            return answer

    losses = Losses()
    fence = Fence(Broken(), "A/1", Claim("A/1", "one", 1, 0), losses.note)  # type: ignore[arg-type]
    answer = fence.apply([put("a")])
    await asyncio.sleep(0)
    assert (losses, answer.done()) == (["doubt"], False)
    fence.answer()
    with pytest.raises(CommitInDoubt):
        await answer
