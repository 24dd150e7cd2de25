"""A call within code that a person must agree to: the turn ends, and the answer goes on with the code."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from everthink import Tool, tool
from everthink.journal import turn_rows
from everthink.testing.scripted import calls, says
from everthink.tools.context import ToolContext
from tests.codemode.support import MakeCoder

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

CODE = """
first = await tools.look(what="a")
done = await tools.pay(amount=first)
again = await tools.look(what="b")
[first, done, again]
"""


class Till:
    """Tools with a memory, and one of them asks."""

    def __init__(self) -> None:
        self.done: list[Any] = []

        @tool
        async def look(what: str) -> int:
            """Look at something."""
            self.done.append(what)
            return len(what)

        @tool(needs_approval=True)
        async def pay(amount: int) -> str:
            """Pay."""
            self.done.append(amount)
            return f"paid {amount}"

        self.tools = (look, pay)

    def asking(self, needs_approval: Any) -> Tool:
        """A tool that asks when that says so."""

        @tool(needs_approval=needs_approval)
        async def gated(amount: int) -> str:
            """Pay."""
            self.done.append(amount)
            return f"paid {amount}"

        return gated


@pytest.mark.case(276)
@pytest.mark.memory_case(452, 456, 462, 500, 501)
@pytest.mark.memory_case(453)
@pytest.mark.memory_case(454)
@pytest.mark.memory_case(493)
@pytest.mark.memory_case(497)
async def test_a_yes_goes_on_with_the_code_and_repeats_nothing(coder: MakeCoder) -> None:
    till = Till()
    agent = await coder(*till.tools)
    waiting = await agent.run(CODE)
    part = await agent.part()
    assert part["state"] == "approval-requested"
    assert part["approval"]["descriptor"]["asks"] == "execute"
    assert 'tools.pay with {"amount":1}' in part["approval"]["descriptor"]["forms"]["approval"]["message"]
    assert waiting["status"] == "paused"
    assert [(one["name"], one["state"]) for one in waiting["calls"]] == [
        ("tools.look", "done"),
        ("tools.pay", "pending"),
    ]
    assert till.done == ["a"]

    assert await agent.answer(True)
    output = await agent.go_on()
    assert (output["status"], output["result"]) == ("completed", [1, "paid 1", 1])
    assert [one["state"] for one in output["calls"]] == ["done", "done", "done"]
    assert till.done == ["a", 1, "b"]
    assert agent.shown["result"] == [1, "paid 1", 1]
    assert not await agent.answer(True)
    assert not await agent.answer(False)
    assert (await agent.output())["status"] == "completed"


@pytest.mark.memory_case(455)
@pytest.mark.memory_case(498)
async def test_a_no_ends_the_execution_and_what_was_done_stays(coder: MakeCoder) -> None:
    till = Till()
    agent = await coder(*till.tools)
    id = (await agent.run(CODE))["executionId"]
    assert await agent.answer(False, reason="too much")
    await agent.go_on()
    assert (await agent.part())["state"] == "output-denied"
    assert agent.shown.startswith("too much\nThe code had made these calls before that")
    executions = await agent.executions()
    past = await executions.get(id)
    assert past is not None
    assert past.state == "rejected"
    assert [made.state for made in past.calls] == ["done", "denied"]
    assert till.done == ["a"]
    assert await executions.pending() == []


async def test_a_form_that_is_declined_ends_it_as_well(coder: MakeCoder) -> None:
    till = Till()
    agent = await coder(*till.tools)
    id = (await agent.run(CODE))["executionId"]
    await agent.app.agent(agent.cls).apply_tool_result(id, {"action": "decline"})
    output = await agent.go_on()
    assert output["status"] == "error"
    assert "A person said no to tools.pay" in output["error"]
    past = await (await agent.executions()).get(id)
    assert past is not None
    assert past.state == "rejected"


@pytest.mark.memory_case(487)
@pytest.mark.memory_case(505)
async def test_the_answer_may_come_after_a_restart_of_everything(coder: MakeCoder) -> None:
    till = Till()
    agent = await coder(*till.tools)
    await agent.run(CODE)
    await agent.restart()
    assert [one.name for one in await (await agent.executions()).pending()] == ["tools.pay"]
    assert await agent.answer(True)
    await agent.restart()
    assert (await agent.go_on())["result"] == [1, "paid 1", 1]
    assert till.done == ["a", 1, "b"]


@pytest.mark.memory_case(499)
async def test_the_next_call_that_asks_waits_again_under_the_same_id(coder: MakeCoder) -> None:
    till = Till()
    agent = await coder(*till.tools)
    first = await agent.run("a = await tools.pay(amount=1)\nb = await tools.pay(amount=2)\n[a, b]")
    await agent.answer(True)
    second = await agent.go_on()
    assert second["status"] == "paused"
    assert second["executionId"] == first["executionId"]
    assert till.done == [1]
    await agent.answer(True)
    assert (await agent.go_on())["result"] == ["paid 1", "paid 2"]
    assert till.done == [1, 2]


async def test_of_two_that_go_on_at_once_one_leaves_the_next_question_open(coder: MakeCoder) -> None:
    # Given code that asks twice, and a yes to the first
    till = Till()
    agent = await coder(*till.tools)
    await agent.run("a = await tools.pay(amount=1)\nb = await tools.pay(amount=2)\n[a, b]")
    await agent.answer(True)

    # When two go on with it at the same moment
    handle = agent.app.agent(agent.cls)
    both = await asyncio.gather(handle.continue_last_turn(), handle.continue_last_turn())

    # Then one answer was to one question, and the other is still asked
    assert sorted(result.status for result in both) == ["completed", "skipped"]
    assert till.done == [1]
    [asked] = await (await agent.executions()).pending()
    assert asked.input == {"amount": 2}
    assert await agent.answer(True)
    assert (await agent.go_on())["result"] == ["paid 1", "paid 2"]
    assert till.done == [1, 2]


async def test_of_two_that_a_restart_has_queued_one_leaves_the_next_question_open(coder: MakeCoder) -> None:
    # Given code that asks twice, a yes to the first, and two that go on with it
    begun, stays, done = asyncio.Event(), asyncio.Event(), list[int]()

    @tool(needs_approval=True, on_interrupt="rerun")
    async def pay(amount: int) -> str:
        """Pay."""
        begun.set()
        await stays.wait()
        done.append(amount)
        return f"paid {amount}"

    agent = await coder(pay)
    await agent.run("a = await tools.pay(amount=1)\nb = await tools.pay(amount=2)\n[a, b]")
    await agent.answer(True)
    handle = agent.app.agent(agent.cls)
    both = asyncio.gather(*(handle.continue_last_turn() for _ in range(2)), return_exceptions=True)
    await begun.wait()
    while len(await turn_rows.unfinished((await agent.executions()).store)) < 2:  # noqa: ASYNC110 - rows
        await asyncio.sleep(0)

    # When the process ends under the first, and another takes up both
    await agent.restart()
    await both
    stays.set()
    home = (await agent.agent())._home  # pyright: ignore[reportPrivateUsage]
    await home.chat.door.queue.wait_for_idle()
    ended = await turn_rows.all_turns((await agent.executions()).store)

    # Then one answer was to one question, and the other is still asked
    assert [turn.status for turn in ended] == ["completed", "completed", "skipped"]
    assert done == [1]
    [asked] = await (await agent.executions()).pending()
    assert asked.input == {"amount": 2}
    assert await agent.answer(True)
    assert (await agent.go_on())["result"] == ["paid 1", "paid 2"]


async def test_two_that_go_on_at_once_after_the_last_question_both_do(coder: MakeCoder) -> None:
    agent = await coder(*Till().tools)
    await agent.run("await tools.pay(amount=1)")
    await agent.answer(True)
    agent.model.add(says("And more."))
    handle = agent.app.agent(agent.cls)
    both = await asyncio.gather(handle.continue_last_turn(), handle.continue_last_turn())
    assert [result.status for result in both] == ["completed", "completed"]


@pytest.mark.parametrize("approved", [True, False])
async def test_an_answer_that_names_its_question_is_not_taken_for_the_next(
    coder: MakeCoder, approved: bool
) -> None:
    till = Till()
    agent = await coder(*till.tools)
    await agent.run("await tools.pay(amount=30)\nawait tools.pay(amount=4000)")
    handle = agent.app.agent(agent.cls)
    [shown] = await (await agent.executions()).pending()  # two people look at this
    assert shown.asked == (await agent.part())["approval"]["id"]
    assert await handle.apply_tool_approval(shown.execution, True, asked=shown.asked)
    assert await (await agent.executions()).pending() == []  # nobody has to answer any more
    await agent.go_on()
    assert not await handle.apply_tool_approval(shown.execution, approved, asked=shown.asked)
    assert not await handle.apply_tool_result(
        shown.execution, {"action": "accept", "content": {}}, asked=shown.asked
    )
    [following] = await (await agent.executions()).pending()
    assert following.input == {"amount": 4000}
    assert following.asked != shown.asked
    assert till.done == [30]
    assert await handle.apply_tool_approval(following.execution, True, asked=following.asked)
    await agent.go_on()
    assert till.done == [30, 4000]


async def test_what_a_turn_waits_for_names_its_question(coder: MakeCoder) -> None:
    agent = await coder(*Till().tools)
    agent.model.add(calls("execute", {"code": "await tools.pay(amount=1)"}), says("Done."))
    result = await agent.app.agent(agent.cls).save_messages("Go")
    assert [call.asked for call in result.pending] == [(await agent.part())["approval"]["id"]]


@pytest.mark.memory_case(458)
async def test_code_that_catches_everything_does_nothing_more(coder: MakeCoder) -> None:
    till = Till()
    agent = await coder(*till.tools)
    waiting = await agent.run(
        "try:\n    await tools.pay(amount=1)\nexcept BaseException:\n    pass\nawait tools.look(what='more')"
    )
    assert [one["name"] for one in waiting["calls"]] == ["tools.pay"]
    assert till.done == []
    assert len(await (await agent.executions()).pending()) == 1


async def test_what_runs_beside_a_call_that_asks_comes_to_its_end_and_is_not_repeated(
    coder: MakeCoder,
) -> None:
    till = Till()
    asked = asyncio.Event()

    @tool
    async def slow() -> str:
        """Ends after the other has asked."""
        await asked.wait()
        till.done.append("slow")
        return "slow"

    async def ask(amount: int, ctx: ToolContext) -> bool:
        asyncio.get_running_loop().call_later(0.05, asked.set)
        return True

    gated = till.asking(ask)
    agent = await coder(slow, gated)
    waiting = await agent.run("import asyncio\nawait asyncio.gather(tools.slow(), tools.gated(amount=5))")
    assert [one["state"] for one in waiting["calls"]] == ["done", "pending"]
    await agent.answer(True)
    assert (await agent.go_on())["result"] == ["slow", "paid 5"]
    assert till.done == ["slow", 5]


@pytest.mark.case(276)
@pytest.mark.memory_case(506)
@pytest.mark.memory_case(459)
async def test_several_executions_wait_side_by_side(coder: MakeCoder) -> None:
    till = Till()
    agent = await coder(*till.tools)
    play = calls("execute", {"code": "await tools.pay(amount=1)"})
    agent.model.add(play.calls("execute", {"code": "await tools.pay(amount=2)"}), says("Done."))
    result = await agent.app.agent(agent.cls).save_messages("Go")
    assert result.message is not None
    one, other = (part["toolCallId"] for part in result.message.parts if "toolCallId" in part)
    executions = await agent.executions()
    assert sorted((p.execution, p.seq, p.input["amount"]) for p in await executions.pending()) == [
        (one, 1, 1),
        (other, 1, 2),
    ]
    assert [p.execution for p in await executions.pending(one)] == [one]
    handle = agent.app.agent(agent.cls)
    assert await handle.apply_tool_approval(other, True)
    assert await handle.apply_tool_approval(one, False)
    await handle.continue_last_turn()
    assert till.done == [2]
    assert {past.id: past.state for past in await executions.list()} == {one: "rejected", other: "completed"}


@pytest.mark.memory_case(507)
async def test_a_long_input_is_cut_for_the_conversation_and_whole_for_the_call(coder: MakeCoder) -> None:
    given: list[str] = []

    @tool(needs_approval=True)
    async def write(text: str) -> int:
        """Write."""
        given.append(text)
        return len(text)

    agent = await coder(write)
    waiting = await agent.run("await tools.write(text='x' * 5000)")
    assert len(str(waiting["calls"][0]["input"])) < 2_200
    [pending] = await (await agent.executions()).pending()
    assert pending.input == {"text": "x" * 5000}
    await agent.answer(True)
    assert (await agent.go_on())["result"] == 5000
    assert given == ["x" * 5000]


async def test_what_a_person_agrees_to_is_there_however_long_the_rest_is(coder: MakeCoder) -> None:
    @tool(needs_approval=True)
    async def pay(note: str, amount: int) -> str:
        """Pay."""
        return f"paid {amount}"

    agent = await coder(pay)
    await agent.run("await tools.pay(note='x' * 5000, amount=1_000_000)")
    asked = (await agent.part())["approval"]["descriptor"]["forms"]["approval"]["message"]
    assert '"amount":1000000' in asked
    assert "4,599 characters of it are not shown here." in asked
    assert len(asked) < 1_500


@pytest.mark.memory_case(479)
@pytest.mark.memory_case(502)
async def test_an_answer_that_comes_too_late_is_told_so(coder: MakeCoder) -> None:
    till = Till()
    agent = await coder(*till.tools)
    id = (await agent.run(CODE))["executionId"]
    executions = await agent.executions()
    assert await executions.expire() == []
    await executions.store.apply([_aged(id)])
    assert await executions.expire() == [id]
    assert await agent.answer(True)
    output = await agent.go_on()
    assert output["status"] == "error"
    assert "Nobody answered in time" in output["error"]
    assert till.done == ["a"]


def _aged(id: str) -> Any:
    from everthink.store.port import Statement

    return Statement("UPDATE executions SET changed_at = 0 WHERE agent = :agent AND id = ?", (id,))


@pytest.mark.memory_case(460)
async def test_code_that_differs_on_its_second_run_is_stopped(coder: MakeCoder) -> None:
    from everthink.store.port import Statement

    till = Till()
    agent = await coder(*till.tools)
    id = (await agent.run(CODE))["executionId"]
    executions = await agent.executions()
    other = "UPDATE execution_calls SET input = ? WHERE agent = :agent AND execution = ? AND seq = 0"
    await executions.store.apply([Statement(other, ('{"what":"other"}', id))])
    await agent.answer(True)
    output = await agent.go_on()
    assert output["status"] == "error"
    assert 'Call 1 was tools.look({"what":"other"})' in output["error"]
    assert till.done == ["a"]
    assert await executions.pending() == []


async def test_a_predicate_decides_by_the_input_who_is_asked(coder: MakeCoder) -> None:
    till = Till()

    def is_much(amount: int) -> bool:
        return amount > 10

    gated = till.asking(is_much)
    agent = await coder(gated)
    assert (await agent.run("await tools.gated(amount=10)"))["result"] == "paid 10"
    assert (await agent.run("await tools.gated(amount=11)"))["status"] == "paused"


async def test_a_predicate_that_breaks_lets_nothing_through(coder: MakeCoder) -> None:
    till = Till()

    def broken(amount: int) -> bool:
        raise ValueError("no idea")

    gated = till.asking(broken)
    agent = await coder(gated)
    output = await agent.run("await tools.gated(amount=1)")
    assert output["status"] == "error"
    assert till.done == []
