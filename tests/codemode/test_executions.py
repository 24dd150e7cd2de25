"""What is known of executions, and how long."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from everthink import tool
from everthink.codemode import Executions
from everthink.errors import InvalidSettings
from everthink.store.port import Statement
from everthink.testing.scripted import says
from everthink.tools.context import ToolContext
from tests.codemode.support import MakeCoder

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


@tool
async def double(n: int) -> int:
    """Twice as much."""
    return 2 * n


@tool(needs_approval=True)
async def pay(amount: int) -> int:
    """Pay."""
    return amount


async def test_an_execution_is_kept_with_its_calls(coder: MakeCoder) -> None:
    agent = await coder(double)
    output = await agent.run("await tools.double(n=4)")
    past = await (await agent.executions()).get(output["executionId"])
    assert past is not None
    assert (past.tool, past.language, past.state, past.code) == (
        "execute",
        "python",
        "completed",
        "await tools.double(n=4)",
    )
    assert past.outcome == output
    assert [(made.seq, made.name, made.input, made.state, made.output) for made in past.calls] == [
        (1, "tools.double", {"n": 4}, "done", 8)
    ]


@pytest.mark.memory_case(464)
async def test_executions_at_the_same_time_do_not_meet(coder: MakeCoder) -> None:
    both = asyncio.Barrier(2)

    @tool
    async def meet(n: int) -> int:
        """Wait for the other."""
        await both.wait()
        return n

    from everthink.testing.scripted import calls, says

    agent = await coder(meet)
    code = "[await tools.meet(n={0}), {0}]"
    play = calls("execute", {"code": code.format(1)}).calls("execute", {"code": code.format(2)})
    agent.model.add(play, says("Done."))
    result = await agent.app.agent(agent.cls).save_messages("Go")
    assert result.message is not None
    outputs = [part["output"] for part in result.message.parts if "toolCallId" in part]
    assert [output["result"] for output in outputs] == [[1, 1], [2, 2]]
    assert len({output["executionId"] for output in outputs}) == 2


@pytest.mark.memory_case(483)
@pytest.mark.memory_case(496)
async def test_they_are_listed_newest_first_by_state_and_by_tool(coder: MakeCoder) -> None:
    agent = await coder(double, pay)
    await agent.run("1")
    await agent.run("nope")
    await agent.run("await tools.pay(amount=1)")
    executions = await agent.executions()
    assert [past.state for past in await executions.list()] == ["paused", "error", "completed"]
    assert [past.state for past in await executions.list(states=["error", "completed"])] == [
        "error",
        "completed",
    ]
    assert len(await executions.list(limit=1)) == 1
    assert await executions.list(tool="other") == []
    assert len(await Executions.of(await agent.agent()).list(tool="execute")) == 3


@pytest.mark.memory_case(465)
async def test_the_newest_that_are_over_are_kept_and_what_waits_always(coder: MakeCoder) -> None:
    agent = await coder(pay)
    for n in range(3):
        await agent.run(str(n))
    await agent.run("await tools.pay(amount=1)")
    executions = await agent.executions()
    assert await executions.prune(keep=1) == 2
    assert [past.code for past in await executions.list()] == ["await tools.pay(amount=1)", "2"]


@pytest.mark.memory_case(468)
@pytest.mark.memory_case(481)
async def test_one_can_be_forgotten(coder: MakeCoder) -> None:
    agent = await coder(pay)
    id = (await agent.run("await tools.pay(amount=1)"))["executionId"]
    executions = await agent.executions()
    assert await executions.delete(id)
    assert not await executions.delete(id)
    assert (await executions.get(id), await executions.pending()) == (None, [])


async def test_one_that_waits_is_forgotten_with_its_question(coder: MakeCoder) -> None:
    agent = await coder(pay)
    id = (await agent.run("await tools.pay(amount=1)"))["executionId"]
    assert (live := await agent.agent()).has_pending_interaction()
    assert await (await agent.executions()).delete(id)
    assert not live.has_pending_interaction()
    assert not await agent.answer(True)
    assert (await agent.part())["state"] == "output-error"
    await agent.go_on()
    assert "The execution was deleted while it waited for a person" in agent.shown

    # And one that has a yes already runs nothing
    id = (await agent.run("await tools.pay(amount=2)"))["executionId"]
    assert await agent.answer(True)
    assert await (await agent.executions()).delete(id)
    assert "was deleted while it waited" in (await agent.go_on())["error"]


async def test_what_an_answer_asked_that_was_replaced_is_asked_of_nobody(coder: MakeCoder) -> None:
    # Given code that waits in an answer, and another answer in its place
    agent = await coder(pay)
    id = (await agent.run("await tools.pay(amount=1)"))["executionId"]
    executions, handle = await agent.executions(), agent.app.agent(agent.cls)
    agent.model.add(says("Another answer."))
    await handle.regenerate()

    # Then nobody is asked, and nobody can answer
    assert await executions.pending() == await executions.pending(id) == []
    assert not (await agent.agent()).has_pending_interaction()
    assert not await handle.apply_tool_approval(id, True)

    # And it is closed when its time is over, as what nobody answers is
    assert [past.state for past in await executions.list()] == ["paused"]
    aged = Statement("UPDATE executions SET changed_at = 0 WHERE agent = :agent AND id = ?", (id,))
    await executions.store.apply([aged])
    assert await executions.expire() == [id]


@pytest.mark.memory_case(480)
async def test_one_that_did_not_end_is_closed_once(coder: MakeCoder) -> None:
    from everthink.codemode import queries

    agent = await coder()
    executions = await agent.executions()
    begun = queries.began("left", runtime="execute", language="python", turn="t", code="1", now=1)
    await executions.store.apply([begun])
    assert await executions.expire(max_age=timedelta(hours=1)) == ["left"]
    assert await executions.expire() == []
    past = await executions.get("left")
    assert past is not None
    assert past.state == "error"
    with pytest.raises(InvalidSettings):
        await executions.expire(max_age=-1)


async def test_code_that_a_person_stops_is_closed(coder: MakeCoder) -> None:
    requests: list[str] = []
    begun = asyncio.Event()

    @tool
    async def forever(ctx: ToolContext) -> None:
        """Never ends."""
        requests.append(ctx.request_id)
        begun.set()
        await asyncio.Event().wait()

    from everthink.testing.scripted import calls

    agent = await coder(forever)
    agent.model.add(calls("execute", {"code": "await tools.forever()"}))
    handle: Any = agent.app.agent(agent.cls)
    turn = asyncio.create_task(handle.save_messages("Go"))
    await begun.wait()
    await (await agent.agent()).cancel_chat(requests[0])
    await turn
    executions = await agent.executions()
    while (await executions.list())[0].state == "running":  # noqa: ASYNC110 - the guest is killed first
        await asyncio.sleep(0)
    [past] = await executions.list()
    assert past.state == "error"
    assert "A person stopped it" in (past.outcome or {})["error"]
