"""An agent that leaves memory while it comes into it."""

from __future__ import annotations

import asyncio

import pytest

from everthink.testing import ScriptedModel, says
from tests.conftest import OpenApp
from tests.support.agents import assistant

pytestmark = pytest.mark.anyio


async def test_an_agent_that_is_evicted_before_its_start_has_begun_can_be_reached_again(
    open_app: OpenApp,
) -> None:
    app = await open_app(cls := assistant(ScriptedModel(says("Here."))))
    directory = await app.open()
    # Given a start that was asked for and has not had its turn on the event loop
    starting = asyncio.ensure_future(directory.reach(directory.address(cls, "room")))
    await asyncio.sleep(0)
    # When the agent is sent away
    async with asyncio.timeout(10):
        await app.evict(cls, "room")
        await asyncio.wait([starting])
        # Then the next one to reach it finds it
        assert (await app.agent(cls, "room").save_messages("Hi")).text == "Here."
