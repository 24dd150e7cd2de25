"""The states of a turn: every way there is, and no other."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

from everthink.journal import queries, states
from everthink.journal.states import MOVES, OPEN, OVER, State, may
from everthink.open_store import open_store
from everthink.runtime.schema import MIGRATIONS
from everthink.store.port import Statement, Store

STATEMENTS: dict[states.MoveName, Statement | list[Statement]] = {
    "start": queries.started("t", question=None, input=None, now=2),
    "cut": queries.interrupted("t"),
    "pick up": queries.picked_up("t"),
    "fail": queries.failing("t", failure="{}"),
    "end": [queries.ended("t", status=status, error=None, now=2) for status in sorted(OVER)],
    "drop": queries.ended_early("t", status="aborted", error=None, now=2),
    "set aside": queries.set_aside("t", error="", now=2),
    "release": queries.released("t"),
}


def test_every_state_is_reached_and_only_those_that_are_over_are_left_by_nobody() -> None:
    reached = {state for move in MOVES.values() for state in move.targets}
    assert reached == set(get_args(State))
    left = {state for name, move in MOVES.items() if name != "release" for state in move.sources}
    assert left == set(OPEN)


def test_what_is_over_stays_over_unless_it_was_set_aside() -> None:
    for before in OVER:
        for after in get_args(State):
            assert may(before, after) == (before == "error" and after in MOVES["release"].targets)


@pytest.mark.anyio
@pytest.mark.parametrize("name", list(MOVES))
@pytest.mark.parametrize("before", get_args(State))
async def test_a_row_goes_no_other_way_than_the_table_says(
    name: states.MoveName, before: State, tmp_path: Path
) -> None:
    store = await open_store(f"sqlite:///{tmp_path}/t.db", MIGRATIONS)
    try:
        given = STATEMENTS[name]
        for statement in given if isinstance(given, list) else [given]:
            await _put(store, before, is_set_aside=name == "release")
            await store.apply([statement._replace(guard=False)], agent="a")
            [(after,)] = await store.fetch("SELECT status FROM turns")
            assert after == before or (before in MOVES[name].sources and after in MOVES[name].targets)
            if before not in MOVES[name].sources:
                assert after == before
    finally:
        await store.close()


async def _put(store: Store, status: State, *, is_set_aside: bool) -> None:
    turn = queries.accepted(
        id="t",
        seq=1,
        request_id="r",
        trigger="rpc",
        continuation=False,
        input=None,
        message_id="m",
        now=1,
    )
    ended, aside = (1 if status in OVER else None), (1 if is_set_aside and status == "error" else None)
    await store.apply(
        [
            Statement("DELETE FROM turns"),
            turn,
            Statement("UPDATE turns SET status = ?, ended_at = ?, set_aside_at = ?", (status, ended, aside)),
        ],
        agent="a",
    )


def test_the_page_has_the_table_as_it_is() -> None:
    page = (Path(__file__).parents[2] / "docs" / "turns.md").read_text(encoding="utf-8")
    (drawing,) = re.findall(r"<!-- states -->\n```text\n(.*?)\n```", page, re.DOTALL)
    assert drawing == states.drawn(), "write what states.drawn() gives into docs/turns.md"
