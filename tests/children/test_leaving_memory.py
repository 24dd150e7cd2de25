"""A family that waits for a person leaves memory, and goes on when they answer: days later, or elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest

from everthink import App, Think, agent_tool, tool
from everthink.calling import call_hook
from everthink.children import AgentToolResult, AgentToolRun, Detached
from everthink.errors import AgentNotInMemory
from everthink.models.port import Request, ToolMessage
from everthink.recovery import ChatRecoveryContext
from everthink.testing import ManualClock, ScriptedModel, calls, says, waits
from everthink.testing.scripted import Play
from tests.runtime.conftest import BOTH, Open
from tests.support.server import served

pytestmark = pytest.mark.anyio

BOTH_ENGINES = pytest.mark.parametrize("url", BOTH, indirect=True)
IDLE, DAYS = 60.0, 3 * 86_400.0
DONE: list[str] = []


def once(name: str, words: str, **given: Any) -> ScriptedModel:
    """A model that calls a tool, and says something once it has the result."""

    def play(request: Request) -> Play:
        is_answered = any(isinstance(message, ToolMessage) for message in request.messages)
        return says(words) if is_answered else calls(name, **given)

    return ScriptedModel(play, repeat=True)


class Cleaner(Think):
    """It asks before it deletes."""

    model: Any = once("delete", "All clean.", what="files")

    @tool(needs_approval=True)
    async def delete(self, what: str) -> str:
        """Delete."""
        DONE.append(what)
        return f"{what} deleted"


class Boss(Think):
    """It has the cleaner work for it."""

    model: Any = once("clean", "It is clean.", query="Clean up")
    clean = agent_tool(Cleaner, description="Cleans.")


@pytest.fixture(autouse=True)
def _nothing_done() -> None:
    DONE.clear()


async def until(is_so: Callable[[], Any], clock: ManualClock | None = None, *, step: float = 1.0) -> None:
    """Return once that is so; with a clock, time passes meanwhile."""
    async with asyncio.timeout(20):
        while not await call_hook(is_so):
            await (asyncio.sleep(0) if clock is None else clock.advance(step))


async def until_all_left(app: App, clock: ManualClock) -> None:
    """Return once no agent of the app is in memory, because time passes."""
    directory = await app.open()
    await until(lambda: not len(directory), clock, step=IDLE)


def is_here(app: App, cls: type[Think], name: str = "b") -> bool:
    """True while an agent without parents is in memory."""
    try:
        return app.agent(cls, name).state is None
    except AgentNotInMemory:
        return False


async def run_of(app: App, cls: type[Think] = Boss) -> AgentToolRun:
    """The only run."""
    boss: Any = app.agent(cls, "b")
    await until(boss.list_agent_tool_runs)
    (run,) = await boss.list_agent_tool_runs()
    return run


async def asked(app: App, child: Any) -> str:
    """The call of a child that asks a person, once it does."""
    found: list[str] = []

    async def asks() -> bool:
        parts = [part for message in await child.get_messages() for part in message.tool_parts]
        found[:] = [part["toolCallId"] for part in parts if part["state"] == "approval-requested"]
        return bool(found)

    await until(asks)
    return found[0]


async def submitted(app: App, cls: type[Think] = Boss, child: type[Think] = Cleaner) -> tuple[Any, str]:
    """The child of a turn that was asked for, and the call with which it asks a person."""
    await app.agent(cls, "b").submit_messages("Go", submission_id="s")
    below: Any = await app.agent(cls, "b").sub_agent(child, (await run_of(app, cls)).run_id)
    return below, await asked(app, below)


async def answer(child: Any, call: str, *, approved: bool = True) -> None:
    """What a person's window does."""
    assert await child.apply_tool_approval(call, approved)
    await child.continue_last_turn()


async def is_over(app: App, cls: type[Think] = Boss) -> bool:
    """True once the answer of the parent is stored. Nobody reaches the parent to look."""
    store = (await app.open()).store
    rows = await store.fetch("SELECT status FROM turns WHERE agent = ? AND id = 's'", f"{cls.__name__}/b")
    return rows == [("completed",)]


async def until_answered(app: App, cls: type[Think] = Boss, clock: ManualClock | None = None) -> list[Any]:
    """The conversation of the parent, once it has answered."""
    await until(lambda: is_over(app, cls), clock)
    await app.agent(cls, "b").wait_for_submission("s")
    return await app.agent(cls, "b").get_messages()


# --- leaving


@BOTH_ENGINES
@pytest.mark.parametrize("restarts", [0, 1])
@pytest.mark.parametrize("approved", [True, False], ids=["approved", "denied"])
async def test_parent_and_child_leave_memory_while_a_person_thinks_for_days(
    start: Open, clock: ManualClock, restarts: int, approved: bool
) -> None:
    app = await start(Boss, idle_after=IDLE)
    child, call = await submitted(app)
    await until_all_left(app, clock)
    if restarts:
        app = await start(Boss, idle_after=IDLE)
        await until_all_left(app, clock)
        child = await app.agent(Boss, "b").sub_agent(Cleaner, child.name)
        await until_all_left(app, clock)
    await clock.advance(DAYS)
    assert not await is_over(app)
    await answer(child, call, approved=approved)
    # Nobody reaches the parent but the child that goes on
    messages = await until_answered(app)
    assert messages[-1].text == "It is clean."
    assert [part["output"] for part in messages[1].tool_parts] == ["All clean."]
    assert [run.status for run in await app.agent(Boss, "b").list_agent_tool_runs()] == ["completed"]
    assert len(DONE) == approved
    assert [message.role for message in await child.get_messages()].count("user") == 1


async def test_what_leaves_memory_so_was_not_interrupted(start: Open, clock: ManualClock) -> None:
    told: list[str] = []

    class Strict(Boss):
        chat_recovery = False

        def on_chat_recovery(self, recovery: ChatRecoveryContext) -> None:
            told.append(recovery.incident_id)

    app = await start(Strict, idle_after=IDLE)
    app.events.subscribe(lambda event: told.append(event.type), channel="chat")
    child, call = await submitted(app, Strict)
    await until_all_left(app, clock)
    await answer(child, call)
    await until_answered(app, Strict)
    assert [what for what in told if "recovery" in what or ":" not in what] == []


@pytest.mark.parametrize("restarts", [0, 1])
async def test_a_family_of_three_leaves_from_the_outside_in_and_comes_back_from_the_inside_out(
    start: Open, clock: ManualClock, restarts: int
) -> None:
    class Chief(Think):
        model = once("manage", "All done.", query="Manage")
        manage = agent_tool(Boss, description="Manages.")

    app = await start(Chief, idle_after=IDLE)
    await app.agent(Chief, "b").submit_messages("Go", submission_id="s")
    middle: Any = await app.agent(Chief, "b").sub_agent(Boss, (await run_of(app, Chief)).run_id)
    await until(middle.list_agent_tool_runs)
    (run,) = await middle.list_agent_tool_runs()
    child = await middle.sub_agent(Cleaner, run.run_id)
    call = await asked(app, child)
    await until_all_left(app, clock)
    if restarts:
        app = await start(Chief, idle_after=IDLE)
        await until_all_left(app, clock)
        middle = await app.agent(Chief, "b").sub_agent(Boss, middle.name)
        child = await middle.sub_agent(Cleaner, child.name)
        await until_all_left(app, clock)
    await clock.advance(DAYS)
    await answer(child, call)
    assert (await until_answered(app, Chief))[-1].text == "All done."
    assert (await middle.get_messages())[-1].text == "It is clean."
    assert DONE == ["files"]


async def test_a_window_of_the_child_answers_while_the_parent_is_away(
    start: Open, clock: ManualClock
) -> None:
    app = await start(Boss, idle_after=IDLE)
    child, call = await submitted(app)
    async with served(app) as server:
        tab = await server.connect(f"/agents/boss/b/sub/cleaner/{quote(child.name)}")
        await until(lambda: not is_here(app, Boss), clock, step=IDLE)
        await tab.approve(call)
        await until_answered(app, clock=clock)
        window = await server.connect("/agents/boss/b")
        await window.until(lambda: "finished" in [f["event"]["kind"] for f in window.of("agent-tool-event")])
        numbers = [frame["sequence"] for frame in window.of("agent-tool-event")]
        assert numbers == list(range(len(numbers)))


# --- staying


async def test_a_parent_stays_while_another_of_its_calls_works(start: Open, clock: ManualClock) -> None:
    gate = asyncio.Event()

    class Busy(Boss):
        model = ScriptedModel(calls("clean", query="x").calls("count"), says("Both."))

        @tool
        async def count(self) -> str:
            """Count for a long time."""
            await gate.wait()
            return "3"

    app = await start(Busy, idle_after=IDLE)
    child, call = await submitted(app, Busy)
    for _ in range(10):
        await clock.advance(IDLE)
    assert is_here(app, Busy)
    gate.set()
    await until_all_left(app, clock)
    await answer(child, call)
    messages = await until_answered(app, Busy)
    assert [part["output"] for part in messages[1].tool_parts] == ["All clean.", "3"]


@pytest.mark.parametrize("by", ["save_messages", "chat", "run_agent_tool"])
async def test_a_parent_stays_for_code_that_waits_for_its_answer(
    start: Open, clock: ManualClock, by: str
) -> None:
    app = await start(Boss, idle_after=IDLE)
    boss: Any = app.agent(Boss, "b")

    async def ask() -> Any:
        match by:
            case "run_agent_tool":
                return (await boss.run_agent_tool(Cleaner, input="Go", run_id="r")).summary
            case "chat":
                return (await boss.chat("Go")).text
            case _:
                return (await boss.save_messages("Go")).text

    waiting = asyncio.ensure_future(ask())
    child: Any = await boss.sub_agent(Cleaner, (await run_of(app)).run_id)
    call = await asked(app, child)
    for _ in range(10):
        await clock.advance(IDLE)
    assert is_here(app, Boss)
    await answer(child, call)
    assert await waiting in ("It is clean.", "All clean.")


async def test_a_child_that_works_on_is_waited_for_as_if_its_parent_had_never_left(
    start: Open, clock: ManualClock
) -> None:
    gate = asyncio.Event()

    class Slow(Cleaner):
        model = ScriptedModel(calls("delete", what="x"), waits(gate).says("At last."))

    class Patient(Think):
        model = once("clean", "It is clean.", query="Clean up")
        clean = agent_tool(Slow, description="Cleans.")
        agent_tool_reattach_no_progress_timeout = 5.0

    app = await start(Patient, idle_after=IDLE)
    child, call = await submitted(app, Patient, Slow)
    await until_all_left(app, clock)
    answering = asyncio.ensure_future(answer(child, call))
    await until(lambda: is_here(app, Patient))
    await until(lambda: DONE)
    await clock.advance(200.0)
    gate.set()
    await answering
    messages = await until_answered(app, Patient)
    assert [part["output"] for part in messages[1].tool_parts] == ["At last."]


async def test_a_child_that_a_restart_has_cut_off_is_not_waited_for_in_silence(
    start: Open, clock: ManualClock
) -> None:
    gate = asyncio.Event()

    class Silent(Think):
        model = ScriptedModel(lambda request: waits(gate).says("Too late."), repeat=True)
        model_timeout = 0.0

    class Hurried(Think):
        model = once("ask", "So be it.", query="Go")
        ask = agent_tool(Silent, description="Asks.")
        agent_tool_reattach_no_progress_timeout = 5.0

    app = await start(Hurried, idle_after=None)
    await app.agent(Hurried, "b").submit_messages("Go", submission_id="s")
    await run_of(app, Hurried)
    app = await start(Hurried, idle_after=None)
    async with app.agent(Hurried, "b") as live:
        await until(lambda: live._home.children.runs.watched)
    (part,) = (await until_answered(app, Hurried, clock))[1].tool_parts
    assert (part["output"]["reason"], part["output"]["childStillRunning"]) == ("no-progress", True)


# --- what else may happen meanwhile


async def test_a_turn_that_is_stopped_while_it_is_away_waits_for_nobody(
    start: Open, clock: ManualClock
) -> None:
    app = await start(Boss, idle_after=IDLE)
    await submitted(app)
    await until_all_left(app, clock)
    boss: Any = app.agent(Boss, "b")
    await boss.cancel_submission("s", "enough")
    assert (await boss.inspect_submission("s")).status == "aborted"

    async def is_stopped() -> bool:
        return (await boss.list_agent_tool_runs())[0].status == "aborted"

    await until(is_stopped)


@pytest.mark.parametrize("how", ["delete", "clear", "say something else"])
async def test_a_parent_comes_back_for_whatever_ends_the_waiting(
    start: Open, clock: ManualClock, how: str
) -> None:
    app = await start(Boss, idle_after=IDLE)
    child, _ = await submitted(app)
    await until_all_left(app, clock)
    match how:
        case "delete":
            directory = await app.open()
            await directory.erase(directory.address(Boss, "b").child("Cleaner", child.name))
        case "clear":
            await child.clear_messages()
        case _:
            await child.save_messages("Forget it.")
    assert (await until_answered(app))[-1].text == "It is clean."
    assert DONE == []


# --- detached runs


class Librarian(Think):
    """It has something cleaned, and goes on."""

    model: Any = ScriptedModel()
    sub_agents = (Cleaner,)

    async def tidied(self, run: AgentToolRun, result: AgentToolResult) -> None:
        """The cleaner is done."""
        HEARD.append((result.status, result.reason))


HEARD: list[tuple[str, str | None]] = []


@pytest.fixture(autouse=True)
def _nothing_heard() -> None:
    HEARD.clear()


async def begun(app: App, **options: Any) -> tuple[Any, str]:
    """The child of a detached run, and the call with which it asks a person."""
    librarian: Any = app.agent(Librarian, "b")
    plan = Detached(on_finish="tidied", **options)
    await librarian.run_agent_tool(Cleaner, input="Go", run_id="r", detached=plan)
    child = await librarian.sub_agent(Cleaner, "r")
    return child, await asked(app, child)


async def test_the_parent_of_a_detached_run_leaves_and_is_told_how_it_ended(
    start: Open, clock: ManualClock
) -> None:
    app = await start(Librarian, idle_after=IDLE)
    child, call = await begun(app)
    await until_all_left(app, clock)
    await clock.advance(DAYS)
    await answer(child, call)
    await until(lambda: HEARD == [("completed", None)])


async def test_a_detached_run_is_given_up_in_time_although_its_parent_has_left(
    start: Open, clock: ManualClock
) -> None:
    app = await start(Librarian, idle_after=IDLE)
    await begun(app, max_budget=DAYS)
    await until_all_left(app, clock)
    await until(lambda: HEARD == [("interrupted", "budget-exceeded"), ("aborted", None)], clock, step=3600.0)


async def test_a_run_of_code_that_nobody_waits_for_any_more_leaves_as_well(
    start: Open, clock: ManualClock
) -> None:
    app = await start(Boss, idle_after=IDLE)
    waiting = asyncio.ensure_future(app.agent(Boss, "b").run_agent_tool(Cleaner, input="Go", run_id="r"))
    await run_of(app)
    app = await start(Boss, idle_after=IDLE)  # whoever waited is gone with the process
    waiting.cancel()
    child: Any = await app.agent(Boss, "b").sub_agent(Cleaner, "r")
    call = await asked(app, child)
    await until_all_left(app, clock)
    await answer(child, call)
    boss: Any = app.agent(Boss, "b")

    async def is_completed() -> bool:
        return (await boss.list_agent_tool_runs())[0].status == "completed"

    await until(is_completed)
