"""Agents: whose a call is goes along with it, and stands where the SQL says `:agent`."""

# ruff: noqa: D102 - the name of a test is its sentence

from __future__ import annotations

import pytest

from ....errors import CommitRefused, StoreError
from ....store.port import AgentStore, Migration, Statement, Store
from .case import StoreCase

__all__ = ["AgentContract"]

_ROOMS = (
    Migration(1, "kept", ("CREATE TABLE kept (agent TEXT, id BIGINT, body TEXT, PRIMARY KEY (agent, id))",)),
)
_NEXT = (
    "INSERT INTO kept (agent, id, body) SELECT :agent, COALESCE(MAX(id), 0) + 1, ? FROM kept"
    " WHERE agent = :agent RETURNING id"
)
_MINE = "SELECT id, body FROM kept WHERE agent = :agent AND id >= ? ORDER BY id"
_WRITE = "UPDATE kept SET body = ? WHERE id = ? AND agent = :agent"


def _keep(body: str | None) -> Statement:
    return Statement(_NEXT, (body,))


async def _bodies(store: Store) -> list[tuple[str, str | None]]:
    return [(row[0], row[1]) for row in await store.fetch("SELECT agent, body FROM kept ORDER BY agent, id")]


class AgentContract(StoreCase):
    """What `agent=` promises."""

    async def test_the_agent_stands_wherever_a_statement_says_so(self) -> None:
        async with self.opened(_ROOMS) as store:
            assert await store.apply([_keep("a"), _keep("b")], agent="A/ann") == [[(1,)], [(2,)]]
            assert await store.apply([_keep("c")], agent="A/ben") == [[(1,)]]
            assert await store.fetch(_MINE, 1, agent="A/ann") == [(1, "a"), (2, "b")]
            assert await store.fetch(_MINE, 2, agent="A/ann") == [(2, "b")]
            assert await store.fetch(_MINE, 1, agent="A/ben") == [(1, "c")]
            assert await store.fetch(_MINE, 1, agent="A/nobody") == []

    async def test_an_agents_store_reads_and_writes_what_is_its_own(self) -> None:
        async with self.opened(_ROOMS) as store:
            ann, ben = AgentStore(store, "A/ann"), AgentStore(store, "A/ben")
            await ann.apply([_keep("a")])
            await ben.apply([_keep("b")])
            await ann.apply([Statement(_WRITE, ("changed", 1))])
            assert await ann.fetch(_MINE, 1) == [(1, "changed")]
            assert await ben.fetch(_MINE, 1) == [(1, "b")]

    async def test_commits_of_several_agents_that_are_asked_for_at_once_stay_apart(self) -> None:
        async with self.opened(_ROOMS) as store:
            names = [f"A/{n:02}" for n in range(40)]
            applied = [store.apply([_keep(name), _keep(None)], agent=name) for name in names]
            assert [await one for one in applied] == [[[(1,)], [(2,)]]] * len(names)
            assert await _bodies(store) == [(name, body) for name in names for body in (name, None)]

    async def test_a_guard_counts_the_rows_of_its_agent(self) -> None:
        async with self.opened(_ROOMS) as store:
            await store.apply([_keep("a")], agent="A/ann")
            guard = Statement(_WRITE, ("taken", 1), guard=True, name="mine")
            with pytest.raises(CommitRefused) as refused:
                await store.apply([guard, _keep("b")], agent="A/ben")
            assert refused.value.guard == "mine"
            await store.apply([guard, _keep("b")], agent="A/ann")
            assert await _bodies(store) == [("A/ann", "taken"), ("A/ann", "b")]

    @pytest.mark.parametrize(
        "agent", ["A/o'hara", 'A/"', "A/?", "A/:agent", "A/ü 港", "A/; DROP TABLE kept; --"]
    )
    async def test_any_name_is_a_value_and_never_sql(self, agent: str) -> None:
        async with self.opened(_ROOMS) as store:
            await store.apply([_keep("a")], agent=agent)
            assert await store.fetch(_MINE, 1, agent=agent) == [(1, "a")]
            assert await _bodies(store) == [(agent, "a")]

    async def test_what_is_quoted_or_said_beside_is_not_the_agent(self) -> None:
        async with self.opened(_ROOMS) as store:
            sql = "SELECT ':agent', '?', /* :agent ? */ :agent, ? -- :agent"
            assert await store.fetch(sql, "x", agent="A/ann") == [(":agent", "?", "A/ann", "x")]

    async def test_statements_that_name_nobody_pass_as_they_are(self) -> None:
        async with self.opened(_ROOMS) as store:
            plain = Statement("INSERT INTO kept (agent, id, body) VALUES (?, ?, ?)", ("A/ben", 7, "plain"))
            await store.apply([plain, _keep("a")], agent="A/ann")
            assert await store.fetch("SELECT id FROM kept WHERE agent = ?", "A/ben", agent="A/ann") == [(7,)]
            assert await _bodies(store) == [("A/ann", "a"), ("A/ben", "plain")]

    async def test_a_statement_about_an_agent_in_nobodys_name_is_refused_and_nothing_is_written(self) -> None:
        async with self.opened(_ROOMS) as store:
            plain = Statement("INSERT INTO kept (agent, id, body) VALUES (?, ?, ?)", ("A/ben", 7, "plain"))
            with pytest.raises(StoreError, match="nobody said which"):
                await store.apply([plain, _keep("a")])
            with pytest.raises(StoreError, match="nobody said which"):
                await store.fetch(_MINE, 1)
            assert await _bodies(store) == []

    @pytest.mark.parametrize("params", [(), ("a", "b")])
    async def test_a_parameter_for_each_mark_besides_the_agent(self, params: tuple[str, ...]) -> None:
        async with self.opened(_ROOMS) as store:
            with pytest.raises(StoreError):
                await store.apply([Statement(_NEXT, params)], agent="A/ann")
            with pytest.raises(StoreError):
                await store.fetch(_MINE, *params, agent="A/ann")
            assert await _bodies(store) == []
