"""Clearing a conversation: what its calls have asked of children goes with it; what outlives turns stays."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from everthink import App, Think, agent_tool
from everthink.models.port import Request, ToolMessage
from everthink.runtime.actor import Actor
from everthink.testing import ScriptedModel, calls, says
from everthink.testing.scripted import Play
from tests.children.test_deleting import left_of
from tests.support.hooks import until
from tests.support.server import served

pytestmark = pytest.mark.anyio

SECRET = "Zanzibarquokka"


class Low(Think):
    """It repeats what it is asked, or is silent."""

    is_silent = False
    model = ScriptedModel(
        lambda request: says("one ").then_hangs() if Low.is_silent else says(f"About {SECRET}."), repeat=True
    )


class Desk(Think):
    """It asks a child, in a turn and in code."""

    ask = agent_tool(Low, description="Ask.")

    def get_model(self) -> Any:
        """Ask once for each message."""

        def play(request: Request) -> Play:
            if isinstance(request.messages[-1], ToolMessage):
                return says("Told.")
            return calls("ask", query=f"Find {SECRET}")

        return ScriptedModel(play, repeat=True)


@pytest.fixture(autouse=True)
def _loud() -> None:
    Low.is_silent = False


def opened(tmp_path: Path) -> App:
    """The app, as each process has it."""
    return App(Desk, store=f"sqlite:///{tmp_path}/everthink.db", grace=0.0, idle_after=None)


async def holds(app: App, text: str) -> list[str]:
    """The tables in which a text stands."""
    store = (await app.open()).store
    found: list[str] = []
    for (table,) in await store.fetch("SELECT name FROM sqlite_master WHERE type = 'table'"):
        rows = await store.fetch(f"SELECT * FROM {table}")
        found += [table] if any(text in str(row) for row in rows) else []
    return found


async def test_the_runs_of_a_cleared_conversation_go_with_it_and_those_of_code_stay(tmp_path: Path) -> None:
    async with opened(tmp_path) as app:
        desk: Any = app.agent(Desk, "d")
        await desk.save_messages("Go")
        await desk.run_agent_tool(Low, input="By code", run_id="code")
        await desk.run_agent_tool(Low, input="Alone", run_id="alone", detached=True)
        [(call, _)] = [
            (run.run_id, run) for run in await desk.list_agent_tool_runs() if run.parent_tool_call_id
        ]
        await desk.clear_messages()
        await until(lambda: are(desk, ["alone", "code"]))
        assert sorted(child.name for child in await desk.list_sub_agents()) == ["alone", "code"]
        assert await left_of(app, f"{desk.id}/sub/Low/{call}") == {}


async def are(desk: Any, ids: list[str]) -> bool:
    """True once these are the runs, all of them over."""
    runs = await desk.list_agent_tool_runs()
    return sorted(run.run_id for run in runs) == ids and all(run.status != "running" for run in runs)


async def test_a_run_under_way_is_stopped_and_goes_too_and_the_next_turn_is_not_touched(
    tmp_path: Path,
) -> None:
    Low.is_silent = True
    async with opened(tmp_path) as app, served(app, lifespan="off") as server:
        desk: Any = app.agent(Desk, "d")
        tab = await server.connect("/agents/desk/d")
        await desk.submit_messages("Go", submission_id="s")
        await tab.until(lambda: "agent-tool-event" in {frame["type"] for frame in tab.frames})
        Low.is_silent = False
        await desk.clear_messages()
        assert (await desk.save_messages("Again")).text == "Told."
        await until(lambda: is_one(desk))
        assert (await desk.inspect_submission("s")).status in ("aborted", "skipped")
        assert len(await desk.list_sub_agents()) == 1
        # A window that comes now is told of the one that is left
        late = await server.connect("/agents/desk/d")
        await late.settled()
        started = [frame for frame in late.of("agent-tool-event") if frame["event"]["kind"] == "started"]
        assert len(started) == 1


async def is_one(desk: Any) -> bool:
    """True once one run is left."""
    return len(await desk.list_agent_tool_runs()) == 1


async def test_what_a_crash_left_of_a_cleared_conversation_goes_at_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path) as app:
        desk: Any = app.agent(Desk, "d")
        await desk.save_messages("Go")
        with monkeypatch.context() as patched:  # a process that dies once the clearing is durable
            patched.setattr(Actor, "background", lambda self, work, **_: work.close())
            await desk.clear_messages()
        assert await holds(app, SECRET)
    async with opened(tmp_path) as app:
        desk = app.agent(Desk, "d")
        assert await desk.get_messages() == []
        await until(lambda: are(desk, []))
        assert await desk.list_sub_agents() == []
        assert await holds(app, SECRET) == []
        await desk.save_messages("Go")
        await asyncio.sleep(0)
    async with opened(tmp_path) as app:  # and that was it
        assert len(await app.agent(Desk, "d").list_agent_tool_runs()) == 1
