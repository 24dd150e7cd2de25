"""An agent that does not chat, over a socket, killed and started again."""

from __future__ import annotations

from pathlib import Path

import pytest

from everthink.testing.node import Node
from tests.crash.plain_agents import Keeper

pytestmark = pytest.mark.anyio


async def test_state_timers_and_fibers_of_an_agent_that_does_not_chat_survive_the_process(
    tmp_path: Path,
) -> None:
    async with Node("tests.crash.plain_agents:Keeper", store=f"sqlite:///{tmp_path}/k.db") as node:
        tab = await node.connect(Keeper, "one")
        assert (await tab.call("add", 5))[-1]["result"] == 5
        await tab.call("begin")
        await tab.until(lambda: tab.state["n"] >= 6)
        await node.kill()
        # The timer becomes due, the fiber is found, with nobody connected
        await node.start()
        tab = await node.connect(Keeper, "one")
        await tab.until(lambda: tab.state == {"n": 116, "found": ["long"]})
        while (await tab.call("timers"))[-1]["result"]:
            pass  # what a timer did is done before its row is gone
        # Nothing of it is done again by the next process
        await node.restart()
        tab = await node.connect(Keeper, "one")
        assert (await tab.call("add", 1))[-1]["result"] == 117
