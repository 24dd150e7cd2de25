"""A short soak: the long one is `make soak`."""

from __future__ import annotations

from dataclasses import replace

import pytest

from everthink.testing.crashtest.soak import Soak, soaked

pytestmark = pytest.mark.anyio


async def test_nothing_is_lost_or_done_twice_while_the_server_is_killed_again_and_again() -> None:
    soak = await soaked(agents=6, seconds=8, every=2.0)
    assert soak.is_fine, soak.to_json()
    assert soak.kills >= 1
    assert soak.answered == soak.acknowledged == soak.asked > 0
    assert len(soak.memory) == len(soak.restarts) == soak.kills


@pytest.mark.parametrize(
    "wrong",
    [
        {"lost": ["job"]},
        {"wrong": ["job: 'What?'"]},
        {"faults": ["an answer went back"]},
        {"doubled": ["job"]},
        {"missing": ["job"]},
        {"open_turns": 1},
        {"memory": [50.0, 50.0, 50.0, 60.0, 90.0, 90.0]},
    ],
)
def test_a_soak_with_anything_wrong_is_not_fine(wrong: dict[str, object]) -> None:
    fine = Soak(kills=6, memory=[50.0, 52.0, 51.0, 53.0, 55.0, 54.0])
    assert fine.is_fine
    spoiled = replace(fine, **wrong)  # type: ignore[arg-type]
    assert not spoiled.is_fine
    assert spoiled.to_json()["ok"] is False
