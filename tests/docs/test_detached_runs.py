"""docs/detached-runs.md: its program does what the page says."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from everthink import App

from .pages import program

pytestmark = pytest.mark.anyio


async def test_a_conversation_goes_on_and_hears_of_its_child(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assistant = program("detached-runs.md", "research.py")["Assistant"]
    opened = App(assistant, store=f"sqlite:///{tmp_path}/everthink.db", idle_after=None)
    async with opened as app, app.agent(assistant) as live:
        assert (await live.save_messages("What do bees see?")).text.endswith("I am on it.")
        while live._home._tasks:
            await asyncio.wait(live._home._tasks)
        assert await live.wait_until_stable()
        (run,) = await live.list_agent_tool_runs()
        said = [message.text for message in await live.get_messages()]
    assert "The background run of Researcher has reached 'sources found': reading" in said
    assert f"The background run of Researcher ({run.run_id}) is complete:\n\nBees see ultraviolet." in said
    assert said[-1] == "It is done: ultraviolet."
    out = capsys.readouterr().out
    assert "Researcher 0.5 sources found" in out
    assert f"{run.run_id} completed Bees see ultraviolet." in out
