"""A server that dies in the middle of an answer to an MCP client: the answer is there after its restart."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from mcp.shared.exceptions import MCPError

from everthink.testing.node import Node

from ..support.mcp import Words, client_of, texts
from ..support.turns import Database

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

APP = """
import os
from everthink import App, Think
from everthink.testing import ScriptedModel, says

class Assistant(Think):
    model = ScriptedModel(says("Paris."), says("Yes.")) if os.environ.get("AGAIN") else ScriptedModel(
        says("The capital is ").then_hangs()
    )

app = App(Assistant, store="sqlite:///everthink.db", mcp=True)
"""


async def test_an_answer_that_was_cut_off_by_a_kill_can_be_asked_for_after_the_restart(
    tmp_path: Path,
) -> None:
    (tmp_path / "shop.py").write_text(APP)
    began = asyncio.Event()

    class Heard(Words):
        async def __call__(self, progress: float, total: float | None, message: str | None) -> None:
            await super().__call__(progress, total, message)
            if "The capital is " in self.said:
                began.set()

    async with Node("shop:app", folder=tmp_path) as node:
        # Given a client that has heard the beginning of an answer
        async with client_of(node) as client:
            asked = {"message": "Capital of France?", "conversation": "room"}
            asking = asyncio.create_task(client.call_tool("ask_assistant", asked, progress_callback=Heard()))
            await began.wait()

            # When the process dies and comes back
            await node.kill()
            with pytest.raises(MCPError):
                await asking
        await node.start(AGAIN="1")

        # Then the whole answer is in the same conversation, which goes on
        async with client_of(node) as client:
            looked = await client.call_tool("ask_assistant", {"conversation": "room"})
            went_on = await client.call_tool("ask_assistant", {"message": "Sure?", "conversation": "room"})

    assert texts(looked) == ["The capital is Paris."]
    assert texts(went_on) == ["Yes."]
    assert Database(tmp_path).statuses() == ["completed", "completed"]
