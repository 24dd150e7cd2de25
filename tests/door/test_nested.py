"""Turns asked for from inside a turn: waiting for one would never end, so it is refused."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from everthink import App, Think, tool
from everthink.errors import NestedTurn
from everthink.testing.scripted import ScriptedModel, calls, says
from tests.conftest import OpenApp
from tests.support.agents import assistant, live
from tests.support.turns import Heard, all_over, follow

pytestmark = pytest.mark.anyio

Ask = Callable[[Think], Awaitable[Any]]


async def iterate(agent: Think) -> None:
    async for _ in agent.chat("nested"):
        pass


async def answer(agent: Think) -> Any:
    return await agent.chat("nested")


async def go_on(agent: Think) -> Any:
    return await agent.continue_last_turn()


async def again(agent: Think) -> Any:
    return await agent.regenerate()


def asking(ask: Ask, *more: Any) -> type[Think]:
    """An agent with a tool that calls `ask` with itself."""

    class Nested(Think):
        model = ScriptedModel(calls("act", id="call-1"), *(more or (says("done"),)))

        @tool
        async def act(self) -> str:
            """Ask for a turn from inside this one."""
            await ask(self)
            return "fine"

    return Nested


@pytest.mark.case(88)
@pytest.mark.parametrize(
    ("ask", "trigger"),
    [
        (lambda agent: agent.save_messages("nested"), "programmatic"),
        (go_on, "programmatic"),
        (again, "programmatic"),
        (answer, "rpc"),
        (iterate, "rpc"),
        (lambda agent: agent.run_turn("nested"), "programmatic"),
        (lambda agent: agent.run_turn(continuation=True), "programmatic"),
        (lambda agent: agent.run_turn("nested", mode="stream", callback=Heard()), "rpc"),
    ],
)
async def test_waiting_for_a_turn_from_inside_one_is_refused(
    open_app: OpenApp, ask: Ask, trigger: str
) -> None:
    app = await open_app(cls := asking(ask))

    result = await app.agent(cls).save_messages("Go")

    assert result.status == "completed"
    (part,) = result.message.tool_parts  # type: ignore[union-attr]
    home = (await live(app.agent(cls)))._home
    assert home.chat.host.words.of(result.message.id, part["toolCallId"]) == (  # type: ignore[union-attr]
        f"Think turn admission ({trigger}) cannot be called from inside an active turn; "
        'use run_turn(mode="submit") or add_messages() instead.'
    )
    assert (home.chat.door.queue.is_idle, len(home.chat.host.aborts), len(home.feed)) == (True, 0, 0)
    assert [m.text for m in await app.agent(cls).get_messages()] == ["Go", "done"]


@pytest.mark.case(88)
@pytest.mark.parametrize(
    "ask",
    [
        lambda agent: agent.submit_messages("later"),
        lambda agent: agent.run_turn("later", mode="submit"),
    ],
)
async def test_submitting_from_inside_a_turn_runs_after_it(open_app: OpenApp, ask: Ask) -> None:
    app = await open_app(cls := asking(ask, says("done"), says("and that too")))
    result = await app.agent(cls).save_messages("Go")
    assert result.message.tool_parts[0]["output"] == "fine"  # type: ignore[union-attr]
    await all_over(app, cls)
    assert [m.text for m in await app.agent(cls).get_messages()] == ["Go", "done", "later", "and that too"]


@pytest.mark.case(88)
async def test_adding_messages_from_inside_a_turn_works(open_app: OpenApp) -> None:
    app = await open_app(cls := asking(lambda agent: agent.add_messages("note")))
    result = await app.agent(cls).save_messages("Go")
    assert result.message.tool_parts[0]["output"] == "fine"  # type: ignore[union-attr]
    assert [m.text for m in await app.agent(cls).get_messages()] == ["Go", "note", "done"]


@pytest.mark.case(88)
@pytest.mark.parametrize(
    "hook", ["before_turn", "before_step", "on_step_finish", "on_chunk", "before_tool_call"]
)
async def test_hooks_of_a_turn_are_inside_it(open_app: OpenApp, hook: str) -> None:
    refused: list[str] = []

    async def inside(self: Think, context: Any) -> None:
        try:
            await self.save_messages("nested")
        except NestedTurn as error:
            refused.append(str(error))

    @tool
    def look() -> str:
        """Look."""
        return "a cat"

    app = await open_app(
        cls := assistant(
            ScriptedModel(calls("look"), says("done")), get_tools=lambda self: [look], **{hook: inside}
        )
    )
    assert (await app.agent(cls).save_messages("Go")).text == "done"
    assert refused
    assert "inside an active turn" in refused[0]


@pytest.mark.case(88)
async def test_a_function_input_is_inside_its_turn(open_app: OpenApp) -> None:
    app = await open_app(cls := assistant(ScriptedModel(says("done"))))
    agent = await live(app.agent(cls))

    async def ask(messages: list[Any]) -> list[str]:
        with pytest.raises(NestedTurn):
            await agent.save_messages("nested")
        return ["asked"]

    assert (await agent.save_messages(ask)).text == "done"


async def said_to_the_model(app: App, cls: type[Think], message: Any) -> str:
    """What a failed tool said: people are not shown it."""
    home = (await live(app.agent(cls)))._home
    return str(home.chat.host.words.of(message.id, message.tool_parts[0]["toolCallId"]))


@pytest.mark.case(88)
async def test_a_task_that_a_tool_started_is_inside_the_turn_too(open_app: OpenApp) -> None:
    async def ask(agent: Think) -> None:
        await asyncio.create_task(agent.save_messages("nested"))

    app = await open_app(cls := asking(ask))
    result = await app.agent(cls).save_messages("Go")
    assert "inside an active turn" in await said_to_the_model(app, cls, result.message)


@pytest.mark.case(87)
async def test_somebody_elses_turn_waits_behind_the_active_one(open_app: OpenApp) -> None:
    gate = asyncio.Event()
    model = ScriptedModel(says("one").waits(gate), says("two"))
    app = await open_app(cls := assistant(model))
    first = asyncio.create_task(app.agent(cls).run_turn("first"))
    await model.until_silent()
    second = asyncio.create_task(app.agent(cls).run_turn("second"))
    third = follow(app.agent(cls).chat("third"))
    await asyncio.sleep(0)
    model.add(says("three"))
    gate.set()
    results = await asyncio.gather(first, second, third)
    assert [(r.status, r.text) for r in results] == [
        ("completed", "one"),
        ("completed", "two"),
        ("completed", "three"),
    ]


async def test_a_turn_may_wait_for_another_agent(open_app: OpenApp) -> None:
    # Given an agent whose tool asks another one of the same class
    apps: list[App] = []

    class Delegating(Think):
        model = ScriptedModel(calls("ask"), says("42, they say."))

        def get_model(self) -> Any:
            return ScriptedModel(says("42")) if self.name == "expert" else self.model

        @tool
        async def ask(self) -> str:
            """Ask the expert."""
            return (await apps[0].agent(Delegating, "expert").save_messages("What is it?")).text

    apps.append(await open_app(Delegating))
    result = await apps[0].agent(Delegating, "front").save_messages("What is it?")
    assert result.text == "42, they say."
    assert result.message.tool_parts[0]["output"] == "42"  # type: ignore[union-attr]


async def test_two_agents_that_would_wait_for_each_other_are_refused(open_app: OpenApp) -> None:
    # Given an agent that asks another, which asks back
    apps: list[App] = []

    class Circle(Think):
        def get_model(self) -> Any:
            return ScriptedModel(calls("ask"), says(f"{self.name} is done"))

        @tool
        async def ask(self) -> str:
            """Ask the other one."""
            other = "b" if self.name == "a" else "a"
            return (await apps[0].agent(Circle, other).save_messages("And you?")).text

    apps.append(app := await open_app(Circle))

    # When the first is asked
    turn = asyncio.create_task(app.agent(Circle, "a").save_messages("Go"))
    result = await asyncio.wait_for(turn, timeout=30)

    # Then the way back is refused instead of hanging for ever
    assert result.message.tool_parts[0]["output"] == "b is done"  # type: ignore[union-attr]
    (_, inner) = await app.agent(Circle, "b").get_messages()
    home = (await live(app.agent(Circle, "b")))._home
    assert "inside an active turn" in str(
        home.chat.host.words.of(inner.id, inner.tool_parts[0]["toolCallId"])
    )
    assert len(await app.agent(Circle, "a").get_messages()) == 2


async def test_an_agent_may_submit_to_whoever_asked_it(open_app: OpenApp) -> None:
    # Given an agent that asks another, which leaves it a message for later
    apps: list[App] = []

    class Letter(Think):
        def get_model(self) -> Any:
            if self.name == "a":
                return ScriptedModel(
                    lambda request: says("noted") if "a letter" in repr(request) else calls("ask"),
                    says("done"),
                )
            return ScriptedModel(calls("write"), says("written"))

        @tool
        async def ask(self) -> str:
            """Ask b."""
            return (await apps[0].agent(Letter, "b").save_messages("Write to me.")).text

        @tool
        async def write(self) -> str:
            """Write to a."""
            await apps[0].agent(Letter, "a").submit_messages("a letter")
            return "sent"

    apps.append(app := await open_app(Letter))
    await asyncio.wait_for(asyncio.create_task(app.agent(Letter, "a").save_messages("Go")), timeout=30)
    await all_over(app, Letter, "a")
    texts = [m.text for m in await app.agent(Letter, "a").get_messages()]
    assert texts == ["Go", "done", "a letter", "noted"]


async def wait_for_the_next(agent: Any) -> Any:
    later = await agent.submit_messages("later", submission_id="later")
    return await agent.wait_for_submission(later.submission_id)


async def wait_for_itself(agent: Any) -> Any:
    return await agent.wait_for_submission("now")


async def wait_until_stable(agent: Any) -> Any:
    return await agent.wait_until_stable()


@pytest.mark.parametrize("by_handle", [False, True])
@pytest.mark.parametrize(
    ("wait", "method"),
    [
        (wait_for_the_next, "wait_for_submission"),
        (wait_for_itself, "wait_for_submission"),
        (wait_until_stable, "wait_until_stable"),
    ],
)
async def test_waiting_inside_a_turn_for_what_comes_after_it_is_refused(
    open_app: OpenApp, by_handle: bool, wait: Ask, method: str
) -> None:
    # Given a tool that waits for its own turn, or for one behind it
    refused: list[str] = []
    apps: list[App] = []

    async def ask(agent: Think) -> None:
        try:
            await asyncio.wait_for(wait(apps[0].agent(cls) if by_handle else agent), timeout=5)
        except NestedTurn as error:
            refused.append(str(error))

    apps.append(app := await open_app(cls := asking(ask, says("done"), says("and that too"))))
    await app.agent(cls).submit_messages("Go", submission_id="now")

    # Then it is told, and both turns end
    assert (await app.agent(cls).wait_for_submission("now")).status == "completed"
    await all_over(app, cls)
    (words,) = refused
    assert words.startswith(f"{method}() would wait for ever: it was called from inside a turn")


async def test_what_is_over_and_what_has_a_time_limit_may_be_waited_for_inside_a_turn(
    open_app: OpenApp,
) -> None:
    async def ask(agent: Think) -> None:
        ended = await agent.wait_for_submission("before")
        assert ended is not None
        assert (ended.status, await agent.wait_for_submission("unknown")) == ("completed", None)
        assert await agent.wait_until_stable(timeout=0) is False

    app = await open_app(cls := asking(ask))
    cls.model = ScriptedModel(says("first"), calls("act"), says("done"))
    agent = app.agent(cls)
    await agent.submit_messages("Before", submission_id="before")
    await agent.wait_for_submission("before")

    result = await agent.save_messages("Go")

    assert result.message.tool_parts[0]["output"] == "fine"


async def test_a_task_that_outlives_its_turn_may_wait_for_the_next(open_app: OpenApp) -> None:
    waiting: list[asyncio.Task[Any]] = []
    is_over = asyncio.Event()

    async def later(agent: Think) -> Any:
        await is_over.wait()
        return await wait_for_the_next(agent)

    async def ask(agent: Think) -> None:
        waiting.append(asyncio.create_task(later(agent)))

    app = await open_app(cls := asking(ask, says("done"), says("and that too")))
    await app.agent(cls).save_messages("Go")
    is_over.set()

    assert (await waiting[0]).status == "completed"
