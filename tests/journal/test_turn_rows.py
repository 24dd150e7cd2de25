from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from everthink.errors import Unreadable
from everthink.journal import queries, turn_rows
from everthink.open_store import open_store
from everthink.runtime.schema import MIGRATIONS
from everthink.store.port import AgentStore, Statement

pytestmark = pytest.mark.anyio


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[AgentStore]:
    database = await open_store(f"sqlite:///{tmp_path}/t.db", MIGRATIONS)
    yield AgentStore(database, "A/ann")
    await database.close()


def accepted(id: str, seq: int, *, trigger: str = "rpc", key: str | None = None) -> Statement:
    return queries.accepted(
        id=id,
        seq=seq,
        request_id=f"r-{id}",
        trigger=trigger,
        continuation=True,
        input="{}",
        message_id=f"m-{id}",
        now=1,
        key=key,
    )


async def test_a_row_is_a_value_with_the_names_of_its_columns(store: AgentStore) -> None:
    await store.apply([accepted("t1", 7, trigger="submission", key="k")])
    row = await turn_rows.one(store, "t1")
    assert row is not None
    assert (row.id, row.request_id, row.seq, row.status, row.trigger) == (
        "t1",
        "r-t1",
        7,
        "accepted",
        "submission",
    )
    assert (row.continuation, row.answer_id, row.ended_at, row.stop) == (True, "m-t1", None, None)
    assert row == await turn_rows.submission(store, "t1") == await turn_rows.of_key(store, "k")
    assert [row] == await turn_rows.submissions(store)
    assert await turn_rows.one(store, "t2") is None


async def test_what_has_begun_comes_before_what_waits_and_what_is_over_is_left_out(store: AgentStore) -> None:
    await store.apply([accepted(id, seq) for seq, id in enumerate(("over", "waits", "runs", "last"), 1)])
    await store.apply(
        [
            queries.started("runs", question=None, input=None, now=2),
            queries.ended_early("over", status="skipped", error=None, now=2),
        ]
    )
    assert [row.id for row in await turn_rows.unfinished(store)] == ["runs", "waits", "last"]
    assert [row.id for row in await turn_rows.all_turns(store)] == ["over", "waits", "runs", "last"]


async def test_an_agent_sees_its_own_turns_alone(store: AgentStore) -> None:
    bob = AgentStore(store.database, "A/bob")
    await store.apply([accepted("t1", 5)])
    await bob.apply([accepted("t1", 9)])
    assert [row.seq for row in await turn_rows.all_turns(store)] == [5]
    assert (await turn_rows.last_number(store), await turn_rows.last_number(bob)) == (5, 9)
    assert await turn_rows.last_number(AgentStore(store.database, "A/eve")) == 0


async def test_a_turn_that_names_no_message_says_so(store: AgentStore) -> None:
    await store.apply([accepted("t1", 1), Statement("UPDATE turns SET message_id = NULL")])
    row = await turn_rows.one(store, "t1")
    assert row is not None
    with pytest.raises(Unreadable, match="names no message"):
        _ = row.answer_id
