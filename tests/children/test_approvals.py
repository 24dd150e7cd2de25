"""A child that asks a person: on its own route, also after a restart of everything; its parent waits."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from everthink import App, Think, agent_tool, client_tool, tool
from everthink.models.port import Request, ToolMessage
from everthink.testing import ScriptedModel, calls, says
from everthink.testing.scripted import Play
from tests.support.hooks import until
from tests.support.server import served

pytestmark = pytest.mark.anyio

DONE: list[str] = []


def once(name: str, words: str, **given: Any) -> ScriptedModel:
    """A model that calls a tool, and says something once it has the result."""

    def play(request: Request) -> Play:
        is_answered = any(isinstance(message, ToolMessage) for message in request.messages)
        return says(words) if is_answered else calls(name, **given)

    return ScriptedModel(play, repeat=True)


class Cleaner(Think):
    """It asks before it deletes."""

    model = once("delete", "All clean.", what="files")

    @tool(needs_approval=True)
    async def delete(self, what: str) -> str:
        """Delete."""
        DONE.append(what)
        return f"{what} deleted"


class Locator(Think):
    """It asks the person's browser."""

    model = once("locate", "Near the river.")

    def get_tools(self) -> Any:
        return [client_tool("locate", "Where the person is.", {"type": "object", "properties": {}})]


class Guide(Think):
    """It has the other one ask."""

    model = once("find", "You are near the river.", query="Where?")
    find = agent_tool(Locator, description="Finds.")


class Boss(Think):
    """It has the cleaner work for it."""

    model = once("clean", "It is clean.", query="Clean up")
    clean = agent_tool(Cleaner, description="Cleans.")


@pytest.fixture(autouse=True)
def _nothing_done() -> None:
    DONE.clear()


@pytest.fixture
def store(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/everthink.db"


def opened(store: str) -> App:
    """The app, as each process has it."""
    return App(Boss, store=store, grace=0.0, idle_after=None)


async def asked_of(app: App) -> tuple[Any, str]:
    """The child that asks a person, and its call, once it does."""
    boss: Any = app.agent(Boss, "b")
    await until(boss.list_agent_tool_runs)
    child: Any = await boss.sub_agent(Cleaner, (await boss.list_agent_tool_runs())[0].run_id)
    found: list[str] = []

    async def asks() -> bool:
        parts = [part for message in await child.get_messages() for part in message.tool_parts]
        found[:] = [part["toolCallId"] for part in parts if part["state"] == "approval-requested"]
        return bool(found)

    await until(asks)
    return child, found[0]


async def answer(child: Any, call: str, *, approved: bool) -> None:
    """What a person's window does."""
    assert await child.apply_tool_approval(call, approved)
    await child.continue_last_turn()


async def output_of(app: App) -> Any:
    """What the model of the parent read of its call."""
    messages = await app.agent(Boss, "b").get_messages()
    (part,) = [part for message in messages for part in message.parts if "toolCallId" in part]
    return part.get("output", part.get("errorText"))


@pytest.mark.agent_case(358)
@pytest.mark.parametrize("restarts", [0, 1, 2])
@pytest.mark.parametrize("approved", [True, False], ids=["approved", "denied"])
async def test_a_child_asks_and_the_answer_of_the_parent_follows(
    store: str, restarts: int, approved: bool
) -> None:
    app = opened(store)
    await app.open()
    await app.agent(Boss, "b").submit_messages("Go", submission_id="s")
    child, call = await asked_of(app)
    for _ in range(restarts):
        await app.close()
        app = opened(store)
        await app.open()
        child, call = await asked_of(app)
    boss: Any = app.agent(Boss, "b")
    assert [run.status for run in await boss.list_agent_tool_runs()] == ["running"]
    assert (await boss.inspect_submission("s")).status == "running"
    assert DONE == []
    await answer(child, call, approved=approved)
    assert (await boss.wait_for_submission("s")).status == "completed"
    assert (await boss.get_messages())[-1].text == "It is clean."
    assert await output_of(app) == "All clean."
    assert len(DONE) == approved
    assert [run.status for run in await boss.list_agent_tool_runs()] == ["completed"]
    await app.close()


@pytest.mark.parametrize("restarts", [0, 1])
async def test_a_parent_that_is_stopped_waits_for_nobody(store: str, restarts: int) -> None:
    app = opened(store)
    await app.open()
    await app.agent(Boss, "b").submit_messages("Go", submission_id="s")
    child, call = await asked_of(app)
    if restarts:
        await app.close()
        app = opened(store)
        await app.open()
        child, call = await asked_of(app)
    boss: Any = app.agent(Boss, "b")
    await boss.cancel_submission("s", "enough")
    assert (await boss.inspect_submission("s")).status == "aborted"

    async def is_over() -> bool:
        return (await boss.list_agent_tool_runs())[0].status == "aborted"

    await until(is_over)
    # The question stays with the child: a yes is the child's own business from here on
    await answer(child, call, approved=True)
    assert (await child.get_messages())[-1].text == "All clean."
    assert (await boss.list_agent_tool_runs())[0].status == "aborted"
    await app.close()


async def test_who_says_something_else_ends_the_run_where_it_is(store: str) -> None:
    async with opened(store) as app:
        boss: Any = app.agent(Boss, "b")
        await boss.submit_messages("Go", submission_id="s")
        child, _ = await asked_of(app)
        await child.save_messages("Forget it.")
        assert (await boss.wait_for_submission("s")).status == "completed"
        assert await output_of(app) == ""
        assert DONE == []


@pytest.mark.parametrize("restarts", [0, 1])
async def test_a_window_of_the_child_answers_over_its_own_address(store: str, restarts: int) -> None:
    app = opened(store)
    await app.open()
    await app.agent(Boss, "b").submit_messages("Go", submission_id="s")
    child, call = await asked_of(app)
    if restarts:
        await app.close()
        app = opened(store)
        await app.open()
    async with served(app) as server:
        window = await server.connect("/agents/boss/b")
        tab = await server.connect(f"/agents/boss/b/sub/cleaner/{quote(child.name)}")
        await tab.until(lambda: any(part["state"] == "approval-requested" for part in parts_of(tab)))
        await tab.approve(call)
        assert (await app.agent(Boss, "b").wait_for_submission("s")).status == "completed"
        assert await output_of(app) == "All clean."
        assert DONE == ["files"]
        await window.until(lambda: "finished" in kinds(window))
        assert kinds(window).count("started") == 1
        numbers = [frame["sequence"] for frame in window.of("agent-tool-event")]
        assert numbers == list(range(len(numbers)))


@pytest.mark.parametrize("restarts", [0, 1])
async def test_the_browser_of_a_window_of_the_child_does_a_part(store: str, restarts: int) -> None:
    app = App(Guide, store=store, grace=0.0, idle_after=None)
    await app.open()
    await app.agent(Guide, "g").submit_messages("Go", submission_id="s")
    await until(app.agent(Guide, "g").list_agent_tool_runs)
    (run,) = await app.agent(Guide, "g").list_agent_tool_runs()
    if restarts:
        await app.close()
        app = App(Guide, store=store, grace=0.0, idle_after=None)
        await app.open()
    async with served(app) as server:
        child: Any = await app.agent(Guide, "g").sub_agent(Locator, run.run_id)

        asked: list[str] = []

        async def asks() -> list[str]:
            parts = [part for message in await child.get_messages() for part in message.tool_parts]
            asked[:] = [part["toolCallId"] for part in parts if part["state"] == "input-available"]
            return asked

        await until(asks)
        tab = await server.connect(f"/agents/guide/g/sub/locator/{quote(run.run_id)}")
        await tab.answer(asked[0], "Lisbon", toolName="locate", autoContinue=True)
        assert (await app.agent(Guide, "g").wait_for_submission("s")).status == "completed"
        messages = await app.agent(Guide, "g").get_messages()
    assert [part["output"] for part in messages[1].tool_parts] == ["Near the river."]


def parts_of(tab: Any) -> list[Any]:
    """The calls on the screen of a window."""
    return [part for message in tab.messages for part in message.tool_parts]


def kinds(tab: Any) -> list[str]:
    """What a window was told of runs."""
    return [frame["event"]["kind"] for frame in tab.of("agent-tool-event")]
