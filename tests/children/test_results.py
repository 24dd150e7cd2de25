"""What comes of a run: for code that asked, for the model, for windows; and how many there may be."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest

from everthink import Think, ToolContext, agent_tool, tool
from everthink.abort import AbortController
from everthink.children import AgentToolResult, AgentToolRun
from everthink.errors import StoreClosed
from everthink.models.port import ToolMessage
from everthink.testing import ScriptedModel, calls, says, waits
from tests.conftest import OpenApp
from tests.support.agents import live
from tests.support.hooks import results, until
from tests.support.runs import columns, ends, pieces, run_frames, text_of
from tests.support.server import served

pytestmark = pytest.mark.anyio


def helper(*plays: Any, **members: Any) -> type[Think]:
    """A child that follows a script."""
    return type("Helper", (Think,), {"model": ScriptedModel(*plays), "__module__": __name__, **members})


def parent_of(child: type[Think], *plays: Any, output: Any = None, **members: Any) -> type[Think]:
    """An agent whose tool is a child."""

    class Assistant(Think):
        model: Any = ScriptedModel(*plays)
        delegate = agent_tool(child, description="Ask the helper.", output=output)

    return type("Assistant", (Assistant,), {"__module__": __name__, **members})


def read_by(cls: type[Think]) -> Any:
    """What the model of the parent read last of a call."""
    model: Any = cls.model
    return results(model.last_request)[-1].output


# --- what is a result


@pytest.mark.agent_case(309)
@pytest.mark.parametrize("by", ["model", "code"])
async def test_a_child_that_says_nothing_has_run_all_the_same(open_app: OpenApp, by: str) -> None:
    child = helper(says())
    cls = parent_of(child, calls("delegate", query="x"), says("Hm."))
    agent = (await open_app(cls)).agent(cls)
    if by == "model":
        assert (await agent.save_messages("Go")).text == "Hm."
        assert read_by(cls) == ""
    else:
        result = await agent.run_agent_tool(child, input="x")
        assert (result.status, result.summary) == ("completed", "")
    assert [run.status for run in await agent.list_agent_tool_runs()] == ["completed"]


@pytest.mark.agent_case(308, 325)
async def test_the_model_reads_the_words_of_a_child_that_gives_a_value_nobody_asked_for(
    open_app: OpenApp,
) -> None:
    def value(self: Any, run_id: str) -> Any:
        return {"count": 3}

    child = helper(says("There are three."), says(), get_agent_tool_output=value)
    cls = parent_of(
        child, calls("delegate", query="x"), says("Good."), calls("delegate", query="x"), says("")
    )
    agent = (await open_app(cls)).agent(cls)
    await agent.save_messages("Go")
    assert read_by(cls) == "There are three."
    # Without words the value stands for them
    await agent.save_messages("Again")
    assert read_by(cls) == '{"count":3}'


@dataclass
class Found:
    """What is found."""

    title: str
    score: int


@pytest.mark.agent_case(326)
async def test_a_structured_answer_is_checked(open_app: OpenApp) -> None:
    child = helper(says('{"title": "T", "score": 3}'))
    cls = parent_of(child, calls("delegate", query="x"), says("ok"), output=Found)
    agent = (await open_app(cls)).agent(cls)
    await agent.save_messages("Go")
    assert read_by(cls) == {"title": "T", "score": 3}


@pytest.mark.agent_case(326)
@pytest.mark.parametrize(
    ("said", "words"),
    [
        ('{"title": "T", "score": "many"}', "does not fit"),
        ("T, 3", "no JSON"),
        ("", "without the structured"),
    ],
    ids=["wrong", "words", "nothing"],
)
async def test_a_value_that_does_not_fit_is_a_failure_which_the_model_reads(
    open_app: OpenApp, said: str, words: str
) -> None:
    child = helper(*(says(said) for _ in range(2)))
    cls = parent_of(child, calls("delegate", query="x", id="c1"), says("Never mind."), output=Found)
    agent = (await open_app(cls)).agent(cls)
    assert (await agent.save_messages("Go")).text == "Never mind."
    told = read_by(cls)
    assert (told["ok"], told["status"], told["retryable"]) == (False, "error", False)
    status, error, output = await columns(agent, "agent-tool:c1", "status", "error", "output")
    assert (status, output, error) == ("error", None, told["error"])
    result = await agent.run_agent_tool(child, input="x", output=Found)
    assert (result.status, result.output, result.error) == ("error", None, told["error"])


@pytest.mark.agent_case(323)
@pytest.mark.parametrize("reason", ["enough", None])
async def test_the_model_reads_that_a_run_was_stopped(open_app: OpenApp, reason: str | None) -> None:
    child = helper(says("Half ").then_hangs())
    cls = parent_of(child, calls("delegate", query="x", id="c1"), says("Then not."))
    app = await open_app(cls)
    agent = app.agent(cls, "room")
    async with served(app) as server:
        tab = await server.connect(cls)
        said = await tab.say("Go")
        await tab.until(lambda: "Half" in text_of(tab))
        await agent.cancel_agent_tool("agent-tool:c1", reason)
        await tab.until_done(said)
        assert (await agent.get_messages())[-1].text == "Then not."
        error = reason or "agent tool run was cancelled"
        assert read_by(cls) == {"ok": False, "status": "aborted", "error": error, "retryable": False}
        said_why = {} if reason is None else {"reason": reason}
        assert ends(tab) == [{"kind": "aborted", "runId": "agent-tool:c1", **said_why}]
        assert await columns(agent, "agent-tool:c1", "status", "reason") == ("aborted", None)


@pytest.mark.agent_case(312)
async def test_a_run_whose_signal_is_given_already_is_aborted(open_app: OpenApp) -> None:
    child = helper(says("Half ").then_hangs())
    cls = parent_of(child)
    agent = (await open_app(cls)).agent(cls)
    stop = AbortController()
    stop.abort("enough")
    result = await agent.run_agent_tool(child, input="x", run_id="r", signal=stop.signal)
    assert (result.status, result.error) == ("aborted", "enough")


@pytest.mark.agent_case(311)
@pytest.mark.parametrize("has_begun", [True, False])
async def test_a_run_whose_turn_is_cleared_away_is_an_error(open_app: OpenApp, has_begun: bool) -> None:
    child = helper(*(says("Half ").then_hangs() for _ in range(2)))
    cls = parent_of(child)
    agent = (await open_app(cls)).agent(cls)
    below: Any = await agent.sub_agent(child, "r")
    other = None if has_begun else asyncio.ensure_future(below.save_messages("Something else"))
    model: Any = child.model
    if other is not None:
        await model.until_silent()
    asked = asyncio.ensure_future(agent.run_agent_tool(child, input="x", run_id="r"))
    if other is None:
        await model.until_silent()
    else:
        await until(agent.list_agent_tool_runs)
    await below.clear_messages()
    result = await asked
    assert (result.status, result.error) == (
        "error",
        "Agent tool run was skipped before the child could finish.",
    )
    assert await columns(agent, "r", "status") == ("error",)
    if other is not None:
        assert (await other).status != "completed"


# --- whose it is


@pytest.mark.agent_case(321)
async def test_a_call_id_that_a_provider_uses_again_is_another_run_in_another_turn(open_app: OpenApp) -> None:
    child = helper(says("one"), says("two"))
    again = (calls("delegate", query="x", id="c1"), says("ok"))
    cls = parent_of(child, *again, *again)
    agent = (await open_app(cls)).agent(cls)
    await agent.save_messages("Go")
    assert read_by(cls) == "one"
    await agent.save_messages("Go")
    assert read_by(cls) == "two"
    first, second = await agent.list_agent_tool_runs()
    assert first.run_id == "agent-tool:c1"
    assert second.run_id == f"agent-tool:{second.parent_tool_call_id}" != first.run_id


@pytest.mark.agent_case(317)
async def test_a_turn_that_fails_in_the_child_beside_the_run_is_none_of_its(open_app: OpenApp) -> None:
    gate = asyncio.Event()
    child = helper(waits(gate).says("Wait.").then_fails("broken"), says("Done."))
    cls = parent_of(child)
    app = await open_app(cls)
    agent = app.agent(cls, "room")
    async with served(app) as server:
        tab = await server.connect(cls)
        below: Any = await agent.sub_agent(child, "r")
        other = asyncio.ensure_future(below.save_messages("Something else"))
        await child.model.until_silent()  # type: ignore[union-attr]
        asked = asyncio.ensure_future(agent.run_agent_tool(child, input="x", run_id="r"))
        await tab.until(lambda: bool(run_frames(tab)))
        gate.set()
        assert (await other).status == "error"
        result = await asked
        assert (result.status, result.summary, result.error) == ("completed", "Done.", None)
        await tab.until(lambda: bool(ends(tab)))
        assert text_of(tab) == "Done."
        assert list(pieces(tab)) == list(range(1, len(pieces(tab)) + 1))


@pytest.mark.agent_case(317)
@pytest.mark.parametrize("asks", [True, False])
async def test_what_somebody_else_asks_the_child_does_not_hold_up_the_run(
    open_app: OpenApp, asks: bool
) -> None:
    @tool(needs_approval=True)
    async def sure(query: str) -> str:
        """Is it?"""
        return query

    gate, never = asyncio.Event(), asyncio.Event()
    then = calls("sure", query="x") if asks else waits(never).says("Late.")
    child = helper(waits(gate).says("Done."), then, sure=sure)
    cls = parent_of(child)
    agent = (await open_app(cls)).agent(cls)
    asked = asyncio.ensure_future(agent.run_agent_tool(child, input="x", run_id="r"))
    await child.model.until_silent()  # type: ignore[union-attr]
    below: Any = await agent.sub_agent(child, "r")
    other = asyncio.ensure_future(below.save_messages("And you?"))
    turns = (await live(below))._home.chat.host.turns
    await until(lambda: len(turns) == 2)
    gate.set()
    assert (await asked).summary == "Done."
    never.set()
    await other


@pytest.mark.agent_case(319)
async def test_of_two_runs_at_once_each_has_its_own_end(open_app: OpenApp) -> None:
    def play(request: Any) -> Any:
        is_bad = "bad" in str(request.messages[-1])
        return waits(gate).says("Half").then_fails("broken") if is_bad else waits(gate).says("Fine.")

    gate = asyncio.Event()
    child = helper()
    child.model = model = ScriptedModel(play, repeat=True)
    cls = parent_of(child)
    agent = (await open_app(cls)).agent(cls)
    runs = [
        asyncio.ensure_future(agent.run_agent_tool(child, input=one, run_id=one)) for one in ("bad", "good")
    ]
    await until(lambda: len(model.requests) == 2)
    gate.set()
    bad, good = await asyncio.gather(*runs)
    assert (bad.status, good.status, good.summary, good.error) == ("error", "completed", "Fine.", None)


# --- nobody there


@pytest.mark.agent_case(318, 378)
@pytest.mark.parametrize("breaks", [True, False])
async def test_what_a_child_says_while_nobody_follows_it_counts(open_app: OpenApp, breaks: bool) -> None:
    gate = asyncio.Event()
    play = says("Half ").waits(gate).says("whole.")
    child = helper(play.then_fails("broken") if breaks else play)
    cls = parent_of(child)
    app = await open_app(cls)
    agent = app.agent(cls, "room")
    async with served(app) as server:
        tab = await server.connect(cls)
        asked = asyncio.ensure_future(agent.run_agent_tool(child, input="x", run_id="r"))
        await tab.until(lambda: "Half" in text_of(tab))
        below: Any = await agent.sub_agent(child, "r")
        async with below as at_work:  # it stays, and its parent leaves with all who follow
            await app.evict(cls, "room")
            gate.set()
            ended = await at_work.wait_for_submission("r")
        with pytest.raises(StoreClosed):
            await asked
        result = await agent.run_agent_tool(child, input="x", run_id="r")
        assert (result.status, ended.status) == (("error",) * 2 if breaks else ("completed",) * 2)
        assert result.error == ended.error
        late = await server.connect(cls)
        await late.until(lambda: bool(ends(late)))
        assert text_of(late) == "Half whole."
        assert pieces(tab).items() <= pieces(late).items()
        assert [frame["sequence"] for frame in run_frames(late)] == list(range(len(pieces(late)) + 2))


@pytest.mark.agent_case(313)
@pytest.mark.parametrize("by", ["model", "code", "stopped", "detached"])
async def test_nothing_of_a_run_that_is_over_is_left_in_memory(open_app: OpenApp, by: str) -> None:
    child = helper(says("Done.") if by != "stopped" else says("Half ").then_hangs())
    cls = parent_of(child, calls("delegate", query="x"), says("ok"))
    agent: Any = (await open_app(cls)).agent(cls)
    home = (await live(agent))._home
    before = len(home.feed)
    match by:
        case "model":
            await agent.save_messages("Go")
        case "stopped":
            asked = asyncio.ensure_future(agent.run_agent_tool(child, input="x", run_id="r"))
            await until(agent.list_agent_tool_runs)
            await agent.cancel_agent_tool("r")
            await asked
        case _:
            await agent.run_agent_tool(child, input="x", detached=by == "detached")
    while home._tasks:
        await asyncio.wait(home._tasks)
    runs = home.children.runs
    assert (list(runs.watched), runs._turns, runs.detached._kept) == ([], set(), {})
    assert home.holds.count == 0
    assert len(home.feed) == before + 1  # its runs listen to the agent themselves
    (run,) = await agent.list_agent_tool_runs()
    below = (await live(await agent.sub_agent(child, run.run_id)))._home
    assert below.holds.count == 0
    assert below.is_idle


# --- how many


@pytest.mark.agent_case(327)
@pytest.mark.parametrize("by", ["model", "code"])
async def test_more_runs_than_allowed_are_refused_at_once(open_app: OpenApp, by: str) -> None:
    called: list[str] = []
    child = helper()
    cls = parent_of(
        child,
        calls("delegate", query="x", id="c1"),
        says("Then without."),
        max_concurrent_agent_tools=0,
        on_agent_tool_start=lambda self, run: called.append("start"),
        on_agent_tool_finish=lambda self, run, result: called.append("finish"),
    )
    app = await open_app(cls)
    agent = app.agent(cls, "room")
    words = "max_concurrent_agent_tools (0) exceeded"
    async with served(app) as server:
        tab = await server.connect(cls)
        if by == "model":
            await tab.until_done(await tab.say("Go"))
            assert read_by(cls) == {"ok": False, "status": "error", "error": words, "retryable": False}
            assert (await agent.get_messages())[-1].text == "Then without."
        else:
            result = await agent.run_agent_tool(child, input="Hi", run_id="agent-tool:c1")
            assert (result.status, result.error) == ("error", words)
        await tab.until(lambda: bool(ends(tab)))
        told = [(frame["sequence"], frame["event"]["kind"]) for frame in run_frames(tab)]
        assert told == [(0, "started"), (1, "error")]
        assert ends(tab) == [{"kind": "error", "runId": "agent-tool:c1", "error": words}]
        assert await agent.list_sub_agents() == []
        assert called == []
        # It is kept like any other
        assert await columns(agent, "agent-tool:c1", "status", "error") == ("error", words)


@pytest.mark.agent_case(327, 328)
async def test_a_place_is_free_again_when_a_run_is_over(open_app: OpenApp) -> None:
    gate = asyncio.Event()
    child = helper(waits(gate).says("one"), says("two"))
    cls = parent_of(child, max_concurrent_agent_tools=1)
    agent = (await open_app(cls)).agent(cls)
    first = asyncio.ensure_future(agent.run_agent_tool(child, input="x", run_id="first"))
    await until(agent.list_agent_tool_runs)
    refused = await agent.run_agent_tool(child, input="x")
    assert refused.error == "max_concurrent_agent_tools (1) exceeded"
    gate.set()
    assert (await first).summary == "one"
    assert (await agent.run_agent_tool(child, input="x")).summary == "two"


@pytest.mark.agent_case(327)
async def test_of_several_that_are_asked_for_at_once_no_more_begin_than_may(open_app: OpenApp) -> None:
    gate = asyncio.Event()
    child = helper(*(waits(gate).says("done") for _ in range(2)))
    cls = parent_of(child, max_concurrent_agent_tools=2)
    agent = (await open_app(cls)).agent(cls)
    asked = [asyncio.ensure_future(agent.run_agent_tool(child, input="x")) for _ in range(5)]

    async def are_refused() -> bool:
        return [run.status for run in await agent.list_agent_tool_runs()].count("error") == 3

    await until(are_refused)
    gate.set()
    assert (
        sorted(result.status for result in await asyncio.gather(*asked)) == ["completed"] * 2 + ["error"] * 3
    )


@pytest.mark.agent_case(329)
async def test_without_a_bound_there_may_be_any_number_at_once(open_app: OpenApp) -> None:
    gate = asyncio.Event()
    child = helper(*(waits(gate).says("done") for _ in range(20)))
    cls = parent_of(child)
    agent = (await open_app(cls)).agent(cls)
    asked = [asyncio.ensure_future(agent.run_agent_tool(child, input="x")) for _ in range(20)]

    async def all_run() -> bool:
        return [run.status for run in await agent.list_agent_tool_runs()] == ["running"] * 20

    await until(all_run)
    gate.set()
    assert {result.status for result in await asyncio.gather(*asked)} == {"completed"}


@pytest.mark.agent_case(333)
async def test_each_level_has_its_own_bound(open_app: OpenApp) -> None:
    def play(request: Any) -> Any:
        is_answered = isinstance(request.messages[-1], ToolMessage)
        asking = calls("ask", query="x", id="m1").calls("ask", query="y", id="m2")
        return says("middle") if is_answered else asking

    class Leaf(Think):
        model: Any = ScriptedModel.forever(says("leaf"))

    class Middle(Think):
        model: Any = ScriptedModel.forever(play)
        ask = agent_tool(Leaf, description="Ask the leaf.")
        max_concurrent_agent_tools = 1

    class Top(Think):
        model: Any = ScriptedModel(
            calls("ask", query="x", id="t1").calls("ask", query="y", id="t2"), says("top")
        )
        ask = agent_tool(Middle, description="Ask the middle.")
        max_concurrent_agent_tools = 2

    top = (await open_app(Top)).agent(Top)
    assert (await top.save_messages("Go")).text == "top"
    assert [run.status for run in await top.list_agent_tool_runs()] == ["completed", "completed"]
    for run in await top.list_agent_tool_runs():
        middle = await top.sub_agent(Middle, run.run_id)
        assert sorted(one.status for one in await middle.list_agent_tool_runs()) == ["completed", "error"]


# --- starting


async def test_a_child_that_takes_long_to_start_holds_up_no_other(open_app: OpenApp) -> None:
    gate = asyncio.Event()

    async def on_start(self: Any) -> None:
        if self.name == "slow":
            await gate.wait()

    child = helper(says("one"), says("two"), on_start=on_start)
    cls = parent_of(child)
    agent = (await open_app(cls)).agent(cls)
    slow = asyncio.ensure_future(agent.run_agent_tool(child, input="x", run_id="slow"))
    assert (await agent.run_agent_tool(child, input="x", run_id="quick")).summary == "one"
    gate.set()
    assert (await slow).summary == "two"


async def test_two_who_ask_for_one_run_at_the_same_moment_begin_it_once(open_app: OpenApp) -> None:
    finished: list[str] = []

    def on_finish(self: Any, run: AgentToolRun, result: AgentToolResult) -> None:
        finished.append(run.run_id)

    child = helper(says("one"))
    cls = parent_of(child, on_agent_tool_finish=on_finish)
    agent: Any = (await open_app(cls)).agent(cls)
    asked = [agent.run_agent_tool(child, input="x", run_id="r") for _ in range(3)]
    first, second, third = await asyncio.gather(*asked)
    assert first == second == third
    home = (await live(agent))._home
    while home._tasks:
        await asyncio.wait(home._tasks)
    assert finished == ["r"]


# --- clearing


async def test_runs_of_a_class_that_is_gone_can_be_cleared(open_app: OpenApp) -> None:
    child = helper(says("Half ").then_hangs())
    cls = parent_of(child)
    app = await open_app(cls)
    agent = app.agent(cls)
    asked = asyncio.ensure_future(agent.run_agent_tool(child, input="x", run_id="r"))
    await child.model.until_silent()  # type: ignore[union-attr]
    await app.close()
    with pytest.raises(StoreClosed):
        await asked

    class Assistant(Think):
        model: Any = ScriptedModel()

    agent = (await open_app(Assistant)).agent(Assistant)
    assert [run.status for run in await agent.list_agent_tool_runs()] == ["running"]
    assert await agent.clear_agent_tool_runs() == 1
    assert await agent.list_agent_tool_runs() == []
    assert await agent.list_sub_agents() == []


async def test_a_tool_may_show_several_runs_of_its_call_in_their_order(open_app: OpenApp) -> None:
    child = helper(*(says("done") for _ in range(2)))

    class Assistant(Think):
        model: Any = ScriptedModel(calls("both", id="c1"), says("ok"))

        @tool
        async def both(self, ctx: ToolContext) -> str:
            """Ask two."""
            for order, name in ((1, "a"), (0, "b")):
                await self.run_agent_tool(
                    child, input=name, run_id=name, parent_tool_call_id=ctx.tool_call_id, display_order=order
                )
            return "both"

    app = await open_app(Assistant)
    async with served(app) as server:
        tab = await server.connect(Assistant)
        await tab.until_done(await tab.say("Go"))
        begun = [frame for frame in run_frames(tab) if frame["event"]["kind"] == "started"]
        assert [(one["parentToolCallId"], one["event"]["runId"], one["event"]["order"]) for one in begun] == [
            ("c1", "a", 1),
            ("c1", "b", 0),
        ]
