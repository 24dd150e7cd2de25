"""What becomes of a family whose process ends in the middle: nobody is given up who works or waits."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, ClassVar

import pytest

from everthink import App, Think, agent_tool, tool
from everthink.children import AgentToolResult, AgentToolRun
from everthink.models.port import Request, ToolMessage
from everthink.recovery import ChatRecovery
from everthink.recovery.incident import Assessment, Incident, evaluate
from everthink.testing import ManualClock, ScriptedModel, calls, says, waits
from everthink.testing.scripted import Play, hangs
from tests.runtime.conftest import Open
from tests.support.hooks import until

pytestmark = pytest.mark.anyio


def asks_and_says(name: str, words: str) -> ScriptedModel:
    """A model that calls a tool, and says something once it has the result."""

    def play(request: Request) -> Play:
        is_answered = any(isinstance(message, ToolMessage) for message in request.messages)
        return says(words) if is_answered else calls(name, query="x")

    return ScriptedModel(play, repeat=True)


class Worker(Think):
    """It is silent until it may speak."""

    may_speak = False
    model = ScriptedModel(lambda request: says("Done.") if Worker.may_speak else hangs(), repeat=True)


class Asker(Think):
    """It asks a person first."""

    model = asks_and_says("sure", "Sure.")

    @tool(needs_approval=True)
    async def sure(self, query: str) -> str:
        """Is it?"""
        return query


class Boss(Think):
    """It waits for the worker."""

    model = asks_and_says("work", "Well done.")
    work = agent_tool(Worker, description="Works.")
    chat_recovery = ChatRecovery(max_attempts=3)
    finished: ClassVar[list[str]] = []

    async def on_agent_tool_finish(self, run: AgentToolRun, result: AgentToolResult) -> None:
        self.finished.append(f"{run.run_id} {result.status} {result.summary}")


class Chief(Think):
    """It waits for one that waits for a person."""

    model = asks_and_says("ask", "Thank you.")
    ask = agent_tool(Asker, description="Asks.")
    chat_recovery = ChatRecovery(max_attempts=3)


class Chooser(Think):
    """Nothing but its method names the class of its child."""

    model = asks_and_says("work", "Well done.")

    def get_tools(self) -> Any:
        return [agent_tool(Worker, description="Works.", name="work")]


@pytest.fixture(autouse=True)
def _silent() -> None:
    Worker.may_speak = False
    Boss.finished.clear()


@pytest.fixture
def store(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/everthink.db"


def opened(cls: type[Think], store: str) -> App:
    """The app, as each process has it."""
    return App(cls, store=store, grace=0.0, idle_after=None)


async def until_run(app: App, cls: type[Think]) -> AgentToolRun:
    """The run, once there is one."""
    await until(app.agent(cls, "b").list_agent_tool_runs)
    return (await app.agent(cls, "b").list_agent_tool_runs())[0]


@pytest.mark.agent_case(358)
async def test_a_parent_whose_child_waits_for_a_person_is_not_given_up(store: str) -> None:
    async with opened(Chief, store) as app:
        await app.agent(Chief, "b").submit_messages("Go", submission_id="s")
        run = await until_run(app, Chief)
        child: Any = await app.agent(Chief, "b").sub_agent(Asker, run.run_id)
        await until(lambda: is_asked(child))
    for _ in range(6):
        async with opened(Chief, store) as app:
            await until(lambda app=app: has_gone_on(app, Chief))
            child = await app.agent(Chief, "b").sub_agent(Asker, run.run_id)
    async with opened(Chief, store) as app:
        child = await app.agent(Chief, "b").sub_agent(Asker, run.run_id)
        (call,) = [part["toolCallId"] for one in await child.get_messages() for part in one.tool_parts]
        await child.apply_tool_approval(call, True)
        await child.continue_last_turn()
        assert (await app.agent(Chief, "b").wait_for_submission("s")).status == "completed"
        assert (await app.agent(Chief, "b").get_messages())[-1].text == "Thank you."


async def is_asked(child: Any) -> bool:
    """True once a person is asked."""
    parts = [part for one in await child.get_messages() for part in one.tool_parts]
    return any(part["state"] == "approval-requested" for part in parts)


async def has_gone_on(app: App, cls: type[Think]) -> bool:
    """True once the parent has been picked up, and follows its child."""
    async with app.agent(cls, "b") as live:
        return bool(live._home.children.runs.watched)


@pytest.mark.case(416, 417)
@pytest.mark.agent_case(357)
@pytest.mark.parametrize("speaks", [True, False])
async def test_a_parent_is_given_up_in_the_end_unless_its_child_does_something(
    start: Open, clock: ManualClock, speaks: bool
) -> None:
    # Given a child that says a word in every process, or none
    may_speak = asyncio.Event()
    words: list[str] = []

    class Child(Think):
        model = ScriptedModel(lambda request: waits(may_speak).says(words[-1]).then_hangs(), repeat=True)
        chat_recovery = ChatRecovery(max_attempts=100)

    class Parent(Think):
        model: Any = asks_and_says("work", "Well done.")
        chat_recovery = ChatRecovery(max_attempts=3)
        work = agent_tool(Child, description="Works.")

    given_up: list[Any] = []

    async def again() -> Any:
        may_speak.clear()
        words.append(f"word {len(words)} ")
        app = await start(Parent)
        app.events.subscribe(lambda event: given_up.append(event.name), type="chat:recovery:exhausted")
        return app.agent(Parent, "b")

    async def is_followed() -> bool:
        async with agent as live:
            return bool(given_up or live._home.children.runs.watched)

    async def has_spoken() -> bool:
        """True when what the child says in this process is stored."""
        (run,) = await agent.list_agent_tool_runs()
        async with await agent.sub_agent(Child, run.run_id) as live:
            said = await live._home.store.fetch("SELECT chunks FROM segments WHERE agent = :agent")
        return words[-1] in str([tuple(row) for row in said])

    agent = await again()
    await agent.submit_messages("Go", submission_id="s")
    for _ in range(6):
        # When one process after the other ends, a minute apart
        await until(is_followed)
        if given_up:
            break
        await Child.model.until_silent()
        await clock.advance(30)
        if speaks:
            may_speak.set()
            await until(has_spoken)
        await clock.advance(30)
        agent = await again()

    # Then the parent is given up when the child has been silent in all of them, and not otherwise
    if given_up:
        await agent.wait_for_submission("s")
    submission = await agent.inspect_submission("s")
    assert (submission.status, given_up) == (("running", []) if speaks else ("error", ["b"]))


@pytest.mark.agent_case(357, 358)
def test_what_children_do_counts_as_progress() -> None:
    settings = ChatRecovery(max_attempts=2, no_progress_timeout=300.0)

    def again(known: Incident | None, *, now: int, worked_at: int) -> Assessment:
        return evaluate(
            known,
            id="i",
            request_id="r",
            kind="continue",
            progress=5,
            now=now,
            settings=settings,
            awaiting=False,
            worked_at=worked_at,
        )

    found = again(None, now=0, worked_at=0)
    for hour in range(1, 6):  # it works for hours, and says something shortly before each interruption
        found = again(found.incident, now=hour * 3_600_000, worked_at=hour * 3_600_000 - 5)
        assert (found.exhausted, found.incident.attempt) == (None, 1)
    silent = again(found.incident, now=6 * 3_600_000, worked_at=5 * 3_600_000 - 5)
    assert silent.exhausted == "no_progress_timeout"


@pytest.mark.case(663, 665)
@pytest.mark.agent_case(335, 346)
async def test_a_run_of_code_is_followed_to_its_end_by_the_next_process(store: str) -> None:
    async with opened(Boss, store) as app:
        asked = asyncio.ensure_future(app.agent(Boss, "b").run_agent_tool(Worker, input="Go", run_id="r"))
        assert (await until_run(app, Boss)).status == "running"
    asked.cancel()
    Worker.may_speak = True
    async with opened(Boss, store) as app:  # nobody asks for anything
        await until(lambda: Boss.finished)
        assert Boss.finished == ["r completed Done."]
        result = await app.agent(Boss, "b").run_agent_tool(Worker, input="Go", run_id="r")
        assert (result.status, result.summary) == ("completed", "Done.")
        child: Any = await app.agent(Boss, "b").sub_agent(Worker, "r")
        assert [message.role for message in await child.get_messages()] == ["user", "assistant"]


@pytest.mark.agent_case(360)
async def test_a_child_whose_class_only_get_tools_names_is_joined_after_a_restart(store: str) -> None:
    async with opened(Chooser, store) as app:
        await app.agent(Chooser, "b").submit_messages("Go", submission_id="s")
        run = await until_run(app, Chooser)
    Worker.may_speak = True
    async with opened(Chooser, store) as app:
        async with asyncio.timeout(10):
            assert (await app.agent(Chooser, "b").wait_for_submission("s")).status == "completed"
        messages = await app.agent(Chooser, "b").get_messages()
        assert [part["output"] for part in messages[-1].tool_parts] == ["Done."]
        assert [one.run_id for one in await app.agent(Chooser, "b").list_agent_tool_runs()] == [run.run_id]
        child: Any = await app.agent(Chooser, "b").sub_agent(Worker, run.run_id)
        assert [message.role for message in await child.get_messages()] == ["user", "assistant"]


async def test_calls_whose_tools_find_out_what_became_of_them_do_not_wait_for_each_other(
    open_app: Any,
) -> None:
    """The first finds out only once the second has: one after the other they would wait for ever."""
    second = asyncio.Event()

    async def wait_for_second(input: Any, ctx: Any) -> str:
        await second.wait()
        return "first"

    async def tell_first(input: Any, ctx: Any) -> str:
        second.set()
        return "second"

    class Twice(Think):
        model = ScriptedModel(calls("one", query="x").calls("two", query="x"), says("Both."))

        @tool(on_interrupt=wait_for_second)
        async def one(self, query: str) -> str:
            """One."""
            return await asyncio.get_running_loop().create_future()

        @tool(on_interrupt=tell_first)
        async def two(self, query: str) -> str:
            """Two."""
            return await asyncio.get_running_loop().create_future()

    app = await open_app(Twice)
    await app.agent(Twice, "t").submit_messages("Go", submission_id="s")
    store = (await app.open()).store

    async def both_began() -> bool:
        return len(await store.fetch("SELECT 1 FROM calls WHERE state = 'started'")) == 2

    await until(both_began)
    await app.evict(Twice, "t")
    async with asyncio.timeout(10):
        assert (await app.agent(Twice, "t").wait_for_submission("s")).status == "completed"
    messages = await app.agent(Twice, "t").get_messages()
    assert [part["output"] for part in messages[1].tool_parts] == ["first", "second"]
