"""Children whose class nobody names but `get_tools`, or code: after a restart they are found, or told of."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pytest

from everthink import App, Think, agent_tool
from everthink.children import AgentToolResult, AgentToolRun
from everthink.testing import ScriptedModel, calls, says
from everthink.testing.scripted import hangs
from tests.support.hooks import until

pytestmark = pytest.mark.anyio


class Hidden(Think):
    """It is silent until it may speak."""

    may_speak = False
    model = ScriptedModel(lambda request: says("Done.") if Hidden.may_speak else hangs(), repeat=True)


class Boss(Think):
    """Only its method names the class of its child."""

    model = ScriptedModel(calls("ask", query="x"), says("Well done."))
    heard: ClassVar[list[AgentToolResult]] = []
    offers = True

    def get_tools(self) -> Any:
        return [agent_tool(Hidden, description="Ask.", name="ask")] if self.offers else []

    def hear(self, run: AgentToolRun, result: AgentToolResult) -> None:
        self.heard.append(result)


@pytest.fixture(autouse=True)
def _silent() -> None:
    Hidden.may_speak = False
    Boss.heard.clear()
    Boss.model = ScriptedModel(calls("ask", query="x"), says("Well done."))


@pytest.fixture
def store(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/everthink.db"


def opened(store: str) -> App:
    """The app, as each process has it."""
    return App(Boss, store=store, grace=0.0, idle_after=None)


async def begun(store: str, **options: Any) -> None:
    """A run of code, cut off."""
    async with opened(store) as app:
        boss = app.agent(Boss, "b")
        async with boss as live:
            if options:
                await live.run_agent_tool(Hidden, input="x", run_id="r", **options)
            else:
                live._home.background(live.run_agent_tool(Hidden, input="x", run_id="r"))
            await until(boss.list_agent_tool_runs)


async def statuses(app: App) -> list[str]:
    """How the runs stand."""
    return [run.status for run in await app.agent(Boss, "b").list_agent_tool_runs()]


async def test_a_call_of_a_tool_that_get_tools_offers_goes_on_after_a_restart(store: str) -> None:
    async with opened(store) as app:
        await app.agent(Boss, "b").submit_messages("Go", submission_id="s")
        await until(app.agent(Boss, "b").list_agent_tool_runs)
    Hidden.may_speak = True
    async with opened(store) as app:
        assert (await app.agent(Boss, "b").wait_for_submission("s")).status == "completed"
        assert (await app.agent(Boss, "b").get_messages())[-1].tool_parts[0]["output"] == "Done."
        assert await statuses(app) == ["completed"]


async def test_a_run_of_code_is_found_again_through_get_tools(store: str) -> None:
    await begun(store)
    Hidden.may_speak = True
    async with opened(store) as app:
        await until(lambda: is_over(app))
        assert await statuses(app) == ["completed"]


async def test_a_detached_run_is_found_again_through_get_tools(store: str) -> None:
    await begun(store, detached={"on_finish": "hear"})
    Hidden.may_speak = True
    async with opened(store):
        await until(lambda: Boss.heard)
    assert [(result.status, result.summary) for result in Boss.heard] == [("completed", "Done.")]


async def test_a_detached_run_whose_class_nobody_names_any_more_is_told_as_an_error(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await begun(store, detached={"on_finish": "hear"})
    monkeypatch.setattr(Boss, "offers", False)
    async with opened(store) as app:
        await until(lambda: Boss.heard)
        assert await statuses(app) == ["error"]
    (result,) = Boss.heard
    assert result.status == "error"
    assert "sub_agents = (Hidden,)" in (result.error or "")


async def test_a_run_of_code_whose_class_nobody_names_is_left_and_goes_on_when_it_is_asked_for_again(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await begun(store)
    monkeypatch.setattr(Boss, "offers", False)
    Hidden.may_speak = True
    async with opened(store) as app:
        await until(lambda: is_over(app))
        assert await statuses(app) == ["interrupted"]
        again = await app.agent(Boss, "b").run_agent_tool(Hidden, input="x", run_id="r")
        assert (again.status, again.summary) == ("completed", "Done.")


async def is_over(app: App) -> bool:
    """True once nothing is under way."""
    return "running" not in await statuses(app)
