"""What a live agent holds that does nothing: there may be thousands."""

from __future__ import annotations

import asyncio
import gc
from collections import Counter, deque
from pathlib import Path
from typing import Any

import pytest

from everthink import App, Think
from everthink.server.guarded import Arrived
from everthink.testing.scripted import ScriptedModel, says

pytestmark = pytest.mark.anyio

AGENTS = 20


class Quiet(Think):
    """Says little."""

    model = ScriptedModel.forever(says("Yes."))


def counted() -> Counter[type[Any]]:
    gc.collect()
    kinds: list[type[Any]] = [type(one) for one in gc.get_objects()]
    return Counter(kind for kind in kinds if kind in (set, deque))


async def test_an_agent_that_does_nothing_has_no_sets_and_queues_of_its_own(tmp_path: Path) -> None:
    # Given an app in which everything was used once
    async with App(Quiet, store=f"sqlite:///{tmp_path / 'quiet.db'}") as app:
        await app.agent(Quiet, "first").get_messages()
        before = counted()
        # When many agents are in memory
        for number in range(AGENTS):
            await app.agent(Quiet, f"{number}").get_messages()
        # Then none has made what it has not used (an empty set weighs 216 bytes, an empty deque 624)
        grown = counted() - before
        assert grown[set] < AGENTS
        assert grown[deque] < AGENTS


async def test_events_that_arrive_are_taken_in_order_by_whoever_waits() -> None:
    arrived = Arrived()
    # Given two that wait, of whom one gives up
    patient, hasty = (asyncio.ensure_future(arrived.get()) for _ in range(2))
    await asyncio.sleep(0)
    hasty.cancel()
    # When three events arrive
    for number in range(3):
        arrived.put_nowait(number)
    # Then the first is the patient one's, and the others are there for who comes
    assert await patient == 0
    assert [await arrived.get(), await arrived.get()] == [1, 2]
    assert arrived.empty()
    with pytest.raises(asyncio.CancelledError):
        await hasty
