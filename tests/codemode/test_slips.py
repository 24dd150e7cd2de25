"""What goes wrong with code and around it, and what people and models are told then."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from everthink import tool
from everthink.codemode import Executions, create_execute_tool
from everthink.codemode.advice import advised
from everthink.codemode.queries import CallRow
from everthink.codemode.showing import LISTED, calls_of, for_model
from everthink.errors import InvalidSettings, ToolDefinitionError
from everthink.machines.docker import Docker
from everthink.machines.sandbox import MachineSandbox
from everthink.messages import encode_json
from everthink.monty.sandbox import MontySandbox
from everthink.sandbox.bash import BashSandbox
from everthink.sandbox.port import Host, Job, Limits, Outcome
from everthink.testing.scripted import calls, says
from tests.codemode.support import Coder, MakeCoder

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


@tool(needs_approval=True)
async def pay(amount: int) -> int:
    """Pay."""
    return amount


@tool
async def double(n: int) -> int:
    """Twice as much."""
    return 2 * n


async def test_many_large_calls_leave_room_for_the_message_that_shows_them(coder: MakeCoder) -> None:
    @tool
    async def rows() -> str:
        """Much data."""
        return "x" * 10_000

    agent = await coder(rows)
    output = await agent.run("for n in range(990):\n    await tools.rows()\n'done'")
    assert output["result"] == "done"
    assert len(output["calls"]) == 990
    assert len(encode_json(output)) < 250_000
    assert "output" in output["calls"][0]
    assert output["calls"][-1] == {
        "seq": 990,
        "name": "tools.rows",
        "state": "done",
        "ms": output["calls"][-1]["ms"],
    }
    past = await (await agent.executions()).get(output["executionId"])
    assert past is not None
    assert past.calls[-1].output == "x" * 10_000


def test_what_waits_for_a_person_is_shown_whole_behind_large_calls() -> None:
    rows = [CallRow(n, "tools.a", '"%s"' % ("x" * 1_900), "done", outcome="1") for n in range(100)]
    [*_, last] = calls_of([*rows, CallRow(100, "tools.pay", '{"amount":1}', "pending")])
    assert last["input"] == {"amount": 1}


def test_calls_that_are_not_listed_are_counted_for_the_model() -> None:
    shown = calls_of(CallRow(n, "tools.a", "{}", "done", outcome="1") for n in range(LISTED + 5))
    assert len(shown) == LISTED
    told = for_model({"calls": shown, "callsLeftOut": 5})
    assert told["calls"][-1] == f"… and {LISTED + 5 - 50:,} more"
    assert "callsLeftOut" not in told


async def test_a_result_of_many_bytes_leaves_room_for_the_message(coder: MakeCoder) -> None:
    agent = await coder()
    output = await agent.run("'é' * 600_000")
    assert "left out" in output["result"]


async def test_a_call_that_outlives_the_time_of_its_code_is_cut_off(coder: MakeCoder) -> None:
    @tool
    async def forever() -> None:
        """Never ends."""
        await asyncio.Event().wait()

    agent = await coder(forever, options={"timeout": 1.5})
    output = await asyncio.wait_for(agent.run("await tools.forever()"), 60)
    assert "within 1.5 seconds" in output["error"]
    assert "stay done" in output["error"]
    [call] = output["calls"]
    assert call["state"] == "unknown"
    assert "may or may not have taken effect" in call["error"]
    past = await (await agent.executions()).get(output["executionId"])
    assert past is not None
    assert [made.state for made in past.calls] == ["unknown"]


@pytest.mark.parametrize("is_late", [False, True])
async def test_a_yes_to_deleted_code_does_nothing_again(coder: MakeCoder, is_late: bool) -> None:
    done: list[int] = []

    @tool
    async def send(n: int) -> None:
        """Send."""
        done.append(n)

    agent = await coder(send, pay)
    await agent.run("await tools.send(n=1)\nawait tools.pay(amount=2)")
    part = await agent.part()
    if is_late:
        assert await (await agent.executions()).delete(part["toolCallId"])
        assert not await agent.answer(True), "the question was closed with it"
        told = (await agent.part())["errorText"]
    else:
        assert await agent.answer(True)
        assert await (await agent.executions()).delete(part["toolCallId"])
        told = (await agent.go_on())["error"]
    assert "was deleted" in told
    assert "Nothing was run now" in told
    assert done == [1]
    assert await (await agent.executions()).pending() == []


async def asked_and_left(coder: MakeCoder) -> Coder:
    """An agent whose code asked a person, who then wrote something else."""
    agent = await coder(pay)
    await agent.run("await tools.pay(amount=1)")
    await agent.app.agent(agent.cls).save_messages("Something else")  # "Done." was left to say
    return agent


async def test_code_that_nobody_answers_is_closed_when_the_conversation_goes_on(coder: MakeCoder) -> None:
    agent = await asked_and_left(coder)
    executions = await agent.executions()
    assert await executions.pending() == []
    [past] = await executions.list()
    assert past.state == "rejected"
    assert "went on without an answer" in (past.outcome or {})["error"]
    assert [made.state for made in cast("Any", await executions.get(past.id)).calls] == ["denied"]


async def test_code_that_nobody_answers_is_closed_when_the_next_begins(coder: MakeCoder) -> None:
    from everthink.codemode import queries

    agent = await asked_and_left(coder)
    await agent.run("1")
    rows = await queries.executions((await agent.executions()).store)
    assert [row.state for row in rows] == ["completed", "rejected"]


async def test_what_ran_when_a_person_stopped_the_code_is_in_doubt(coder: MakeCoder) -> None:
    agent = await coder(pay)
    executions = await agent.executions()
    from everthink.codemode import queries

    begun = queries.began("left", runtime="execute", language="python", turn="t", code="1", now=1)
    call = queries.made("left", CallRow(0, "tools.pay", "{}", "started"))
    await executions.store.apply([begun, call])
    await executions.store.apply(executions.closing("left", "error"))
    past = await executions.get("left")
    assert past is not None
    assert [made.state for made in past.calls] == ["unknown"]
    assert "may or may not" in past.calls[0].output


async def test_executions_of_a_handle_say_how_to_hold_the_agent(coder: MakeCoder) -> None:
    agent = await coder()
    for wrong in (agent.app.agent(agent.cls), agent.cls, "one"):
        with pytest.raises(InvalidSettings, match="async with"):
            Executions.of(wrong)


async def test_questions_about_executions_that_make_no_sense_are_refused(coder: MakeCoder) -> None:
    executions = await (await coder()).executions()
    for age in ("1d", float("nan"), timedelta(days=-1), None):
        with pytest.raises(InvalidSettings, match="Nothing was closed"):
            await executions.expire(max_age=cast("Any", age))
    with pytest.raises(InvalidSettings, match="running, paused"):
        await executions.list(states=cast("Any", ["waiting"]))
    assert await executions.list(states=cast("Any", "paused")) == []


async def test_a_name_that_only_the_checker_of_types_knows_is_told(coder: MakeCoder) -> None:
    output = await (await coder()).run("exit(1)")
    assert "name 'exit' is not defined" in output["error"]
    assert "last line" in output["error"]


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("return 5", "without `return`"),
        ("a = {'x': 1}\ndel a['x']", "d.pop(key)"),
        ("import os\nos.system('ls')", "no processes"),
        ("const x = 1", "This runs Python"),
        ("sorted(['b', 'A'], key=str.lower)", "key=lambda s: s.lower()"),
        ("await tools.pey(amount=1)", "Did you mean tools.pay?"),
        ("await state.readFile(path='/a')", "Did you mean state.read_file?"),
        ("await tools.list(pth='/')", "It is declared so: async def list(path: str = ..., limit: int"),
        ("await tools.write(path='/a', contents='x')", "def write(path: str, content: str) -> Any"),
        ("import asyncio\nawait asyncio.gather(return_exceptions=True)", "Catch in a function"),
        ("while True:\n    await codemode.search('x')", "calls it made before that stay done"),
    ],
)
async def test_an_error_names_the_way_round(coder: MakeCoder, code: str, words: str) -> None:
    assert words in (await (await coder(pay)).run(code))["error"]


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        ("ReferenceError: fetch is not defined", "await fetch('x')", "call a tool"),
        ("ReferenceError: There is no state.read_file here.", "state.read_file({})", "camelCase"),
        ("ReferenceError: rows is not defined", "r = await tools.many(rows=3)", "one object"),
        ("SyntaxError: Unexpected identifier", "for x in range(3):\n  print(x)", "not Python"),
    ],
)
def test_javascript_that_does_not_run_is_told_the_way_round(error: str, code: str, words: str) -> None:
    assert words in advised(error, code)
    assert advised("Error: no luck", "tools.many({rows: 3})") == "Error: no luck"


@pytest.mark.parametrize(
    "options",
    [
        {"limits": {"cpu": 1}},
        {"hints": "amounts are in cents"},
        {"hints": {"tool": "amounts are in cents"}},
        {"transform_result": "upper"},
        {"sandbox": "docker"},
        {"state": "no"},
        {"sandbox": BashSandbox()},
        {"sandbox": MontySandbox(), "language": "javascript"},
    ],
)
def test_an_option_that_makes_no_sense_is_refused_at_once(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidSettings, match="create_execute_tool"):
        create_execute_tool(**options)


NESTED = "a = []\nfor n in range({0}):\n    a = [a]\n"


@pytest.mark.parametrize("levels", [95, 3_000])
async def test_a_result_that_is_nested_too_deep_is_left_out(coder: MakeCoder, levels: int) -> None:
    output = await (await coder()).run(NESTED.format(levels) + "a")
    assert output["status"] == "completed"
    assert "nested more than 90 levels" in output["result"]


@pytest.mark.parametrize("levels", [95, 3_000])
async def test_what_is_nested_too_deep_for_a_call_is_an_exception_in_the_code(
    coder: MakeCoder, levels: int
) -> None:
    write = "await state.write_json(path='/a', value=a)"
    write = f"try:\n    {write}\nexcept RuntimeError as error:\n    a = str(error)\na"
    output = await (await coder()).run(NESTED.format(levels) + write)
    assert "nested more than 90 levels" in output["result"]


async def test_a_call_that_gives_something_deep_is_shown_all_the_same(coder: MakeCoder) -> None:
    @tool
    async def deep() -> Any:
        """98 levels."""
        value: Any = 1
        for _ in range(98):
            value = [value]
        return value

    output = await (await coder(deep)).run("await tools.deep()\n'done'")
    assert output["result"] == "done"
    assert output["calls"][0]["output"].startswith("[[[")


async def test_a_transform_may_be_awaited(coder: MakeCoder) -> None:
    async def twice(value: int) -> int:
        return 2 * value

    assert (await (await coder(options={"transform_result": twice})).run("4"))["result"] == 8


async def test_a_transform_that_gives_no_json_leaves_the_result_as_it_is(coder: MakeCoder) -> None:
    def broken(value: Any) -> object:
        return object()

    agent = await coder(options={"transform_result": broken})
    assert (await agent.run("4"))["result"] == 4
    assert [past.state for past in await (await agent.executions()).list()] == ["completed"]


async def test_an_execution_whose_sandbox_fails_is_closed(coder: MakeCoder) -> None:
    class Broken(MontySandbox):
        async def run(self, job: Job, host: Host) -> Outcome:
            raise OSError("The disk is full.")

    agent = await coder(options={"sandbox": Broken()})
    agent.model.add(calls("execute", {"code": "1"}), says("Done."))
    await agent.app.agent(agent.cls).save_messages("Go")
    assert (await agent.part())["state"] == "output-error"
    [past] = await (await agent.executions()).list()
    assert past.state == "error"


async def test_a_tool_whose_name_begins_with_a_digit_can_be_called(coder: MakeCoder) -> None:
    @tool(name="3d-print")
    async def build() -> str:
        """Print."""
        return "printed"

    assert (await (await coder(build)).run("await tools.tool_3d_print()"))["result"] == "printed"


async def changed_meanwhile(coder: MakeCoder, path: Any, **members: Any) -> Coder:
    """An agent whose code waited for a person, and that is another one when somebody says yes."""
    agent = await coder(double, pay, store=f"sqlite:///{path}/everthink.db")
    await agent.run("await tools.double(n=1)\nawait tools.pay(amount=1)")
    await agent.app.close()
    later = await coder(double, store=f"sqlite:///{path}/everthink.db", **members)
    later.model.add(says("Done."))
    assert await later.answer(True)
    await later.app.agent(later.cls).continue_last_turn()
    return later


@pytest.mark.memory_case(484)
async def test_code_whose_tool_has_gone_is_told_what_stays_done(coder: MakeCoder, tmp_path: Path) -> None:
    agent = await changed_meanwhile(coder, tmp_path)
    error = (await agent.output())["error"]
    assert error.startswith("The code has run before")
    assert "Nothing was run" not in error
    [past] = await (await agent.executions()).list()
    kept = await (await agent.executions()).get(past.id)
    assert kept is not None
    assert [(made.name, made.state) for made in kept.calls] == [
        ("tools.double", "done"),
        ("tools.pay", "denied"),
    ]


async def test_code_of_another_language_is_not_run(coder: MakeCoder, tmp_path: Path) -> None:
    agent = await changed_meanwhile(coder, tmp_path, options={"language": "javascript"})
    assert "has run before as Python" in (await agent.output())["error"]


async def test_code_whose_execute_has_gone_is_closed(coder: MakeCoder, tmp_path: Path) -> None:
    def get_tools(self: Any) -> Any:
        return [double]

    agent = await changed_meanwhile(coder, tmp_path, get_tools=get_tools)
    assert (await agent.part())["state"] == "output-error"
    assert await (await agent.executions()).pending() == []
    assert [past.state for past in await (await agent.executions()).list()] == ["error"]


async def test_a_function_that_is_no_tool_is_refused_at_once() -> None:
    def send(text: str) -> str:
        return text

    with pytest.raises(ToolDefinitionError, match="@tool above the function"):
        create_execute_tool(modules={"mail": {"send": cast("Any", send)}})


async def test_a_sandbox_whose_clock_goes_is_refused_at_once() -> None:
    with pytest.raises(InvalidSettings, match="a clock that goes"):
        create_execute_tool(sandbox=MachineSandbox(Docker()))


async def test_code_without_a_workspace_is_told_what_becomes_of_files() -> None:
    words = "what open() writes is thrown away"
    tools = [double]
    assert words in create_execute_tool(tools, state=False).description
    assert words not in create_execute_tool(tools).description
    assert words not in create_execute_tool(tools, state=False, language="javascript").description


async def test_code_that_writes_too_often_is_told_that_a_write_is_a_call(coder: MakeCoder) -> None:
    agent = await coder(options={"limits": Limits(calls=5)})
    output = await agent.run("with open('/out.csv', 'w') as f:\n    for n in range(9):\n        f.write('x')")
    assert "Each read and write of an open file is a call, too" in output["error"]
