"""Who is told what of code that comes to a bad end: the code, people, and the model's next request."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

import pytest

from everthink import Block, ToolError, tool
from everthink.testing.scripted import calls, says
from tests.codemode.support import Coder, MakeCoder

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

SECRET = "row 17 of customers: Ada, /srv/customers.db"


class Shop:
    """Tools with a memory, of which one asks a person."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.begun = asyncio.Event()

        @tool
        async def charge(customer: str) -> str:
            """Take money."""
            self.done.append(f"charged {customer}")
            return "charged"

        @tool(needs_approval=True)
        async def refund(order: str) -> str:
            """Pay back."""
            self.done.append(f"refunded {order}")
            return "refunded"

        @tool
        async def hang() -> None:
            """Never ends."""
            self.begun.set()
            await asyncio.Event().wait()

        self.tools = (charge, refund, hang)


CODE = 'await tools.charge(customer="ann")\nawait tools.refund(order="o3")'
JS = 'await tools.charge({customer: "ann"}); await tools.refund({order: "o3"})'


@pytest.mark.parametrize(
    ("language", "code"),
    [
        ("python", "paid = 0\nfor n in range(2):\n    await tools.pay(amount=500)\n    paid += 1\npaid"),
        (
            "javascript",
            "let paid = 0; for (const n of [1, 2]) { await tools.pay({amount: 500}); paid++ } paid",
        ),
    ],
)
async def test_a_call_that_a_hook_blocks_raises_in_the_code(
    coder: MakeCoder, language: str, code: str
) -> None:
    seen: list[Any] = []

    @tool
    async def pay(amount: int) -> int:
        """Pay."""
        raise AssertionError("it was blocked")

    async def before_tool_call(self: Any, call: Any) -> Any:
        return Block("Above 100 a manager decides.") if call.name == "pay" else None

    async def after_tool_call(self: Any, outcome: Any) -> None:
        seen.append((outcome.tool_name, outcome.success, str(outcome.error or "")))

    agent = await coder(
        pay,
        options={"language": language},
        before_tool_call=before_tool_call,
        after_tool_call=after_tool_call,
    )
    output = await agent.run(code)
    assert output["status"] == "error", output
    assert "Above 100 a manager decides." in output["error"]
    assert [(one["state"], one["error"]) for one in output["calls"]] == [
        ("denied", "Above 100 a manager decides.")
    ]
    assert agent.shown["calls"] == ["1 tools.pay: denied (Above 100 a manager decides.)"]
    assert seen[0] == ("pay", False, "Above 100 a manager decides.")


async def test_code_that_catches_a_block_goes_on_and_the_model_reads_the_reason(coder: MakeCoder) -> None:
    @tool
    async def pay(amount: int) -> int:
        """Pay."""
        return amount

    async def before_tool_call(self: Any, call: Any) -> Any:
        return Block("too much") if call.name == "pay" and call.input["amount"] > 100 else None

    agent = await coder(pay, before_tool_call=before_tool_call)
    output = await agent.run(
        "paid = []\nfor amount in (5, 500):\n    try:\n        paid.append(await tools.pay(amount=amount))\n"
        "    except RuntimeError as error:\n        paid.append(str(error))\npaid"
    )
    assert output["result"] == [5, "too much"]
    assert agent.shown["calls"] == ["1 tools.pay: done", "2 tools.pay: denied (too much)"]
    past = await (await agent.executions()).get(output["executionId"])
    assert past is not None
    assert [(made.state, made.output) for made in past.calls] == [("done", 5), ("denied", "too much")]


@pytest.mark.parametrize("by", ["body", "hook", "predicate"])
@pytest.mark.parametrize(
    ("language", "code"),
    [
        ("python", "await tools.look()"),
        (
            "python",
            "try:\n    await tools.look()\nexcept Exception as e:\n    print('caught', e)\n"
            "    said = str(e)\nsaid",
        ),
        ("javascript", "await tools.look({})"),
    ],
)
async def test_words_of_an_exception_reach_the_model_and_the_log_and_nobody_else(
    coder: MakeCoder, caplog: pytest.LogCaptureFixture, language: str, code: str, by: str
) -> None:
    def raises(*_: Any) -> Any:
        raise RuntimeError(SECRET)

    @tool(needs_approval=raises if by == "predicate" else False)
    async def look() -> str:
        """Look."""
        return raises() if by == "body" else "seen"

    async def before_tool_call(self: Any, call: Any) -> Any:
        return raises() if by == "hook" and call.name == "look" else None

    agent = await coder(look, options={"language": language}, before_tool_call=before_tool_call)
    with caplog.at_level(logging.ERROR):
        output = await agent.run(code)
    messages = await agent.app.agent(agent.cls).get_messages()
    assert SECRET not in json.dumps([message.parts for message in messages])
    assert "The tool failed." in json.dumps(output)
    assert agent.shown["calls"] == [f"1 tools.look: failed ({SECRET})"]
    assert SECRET in caplog.text
    past = await (await agent.executions()).get(output["executionId"])
    assert past is not None
    assert past.calls[0].output == SECRET
    # … also after a restart, when the model is asked again
    await agent.restart()
    agent.model.add(says("Hello."))
    await agent.app.agent(agent.cls).save_messages("And now?")
    assert agent.shown["calls"] == [f"1 tools.look: failed ({SECRET})"]


async def test_words_of_a_tool_error_are_for_everybody(coder: MakeCoder) -> None:
    @tool
    async def look() -> str:
        """Look."""
        raise ToolError("There is no order 17.")

    agent = await coder(look)
    output = await agent.run("await tools.look()")
    assert "There is no order 17." in output["error"]
    assert output["calls"][0]["error"] == "There is no order 17."


@pytest.mark.parametrize(
    ("reason", "told"), [("too much", "too much\n"), (None, "Tool call execution denied.\n")]
)
@pytest.mark.parametrize(("language", "code"), [("python", CODE), ("javascript", JS)])
async def test_after_a_no_the_model_reads_what_was_done(
    coder: MakeCoder, reason: str | None, told: str, language: str, code: str
) -> None:
    shop = Shop()
    agent = await coder(*shop.tools, options={"language": language})
    id = (await agent.run(code))["executionId"]
    assert await agent.answer(False, reason)
    agent.model.add(says("I see."))
    await agent.go_on()
    assert agent.shown.startswith(told)
    assert '1 tools.charge({"customer":"ann"}): done' in agent.shown
    assert '2 tools.refund({"order":"o3"}): not run' in agent.shown
    assert shop.done == ["charged ann"]
    past = await (await agent.executions()).get(id)
    assert past is not None
    assert past.state == "rejected"


async def test_somebody_who_writes_something_else_leaves_a_model_that_knows_what_was_done(
    coder: MakeCoder,
) -> None:
    shop = Shop()
    agent = await coder(*shop.tools)
    await agent.run(CODE)
    agent.model.add(says("As you like."))
    await agent.app.agent(agent.cls).save_messages("Never mind.")
    assert '1 tools.charge({"customer":"ann"}): done' in agent.shown
    assert '2 tools.refund({"order":"o3"}): not run' in agent.shown


async def stopped(agent: Coder, shop: Shop, code: str) -> None:
    """Have code run until it hangs, and stop the turn."""
    handle = agent.app.agent(agent.cls)
    agent.model.add(calls("execute", {"code": code}))
    reply = handle.chat("Go")

    async def read() -> None:
        async for _ in reply:
            pass

    reading = asyncio.create_task(read())
    await shop.begun.wait()
    await handle.cancel_chat(reply.request_id)
    await reading
    assert reply.result is not None
    assert reply.result.status == "aborted"


async def test_code_that_a_person_stops_says_what_it_has_done(coder: MakeCoder) -> None:
    shop = Shop()
    agent = await coder(*shop.tools)
    await stopped(agent, shop, 'await tools.charge(customer="ann")\nprint("now")\nawait tools.hang()\n1')
    part = await agent.part()
    assert part["state"] == "output-available"
    assert not part.get("preliminary")
    assert part["output"]["status"] == "error"
    assert "A person stopped it." in part["output"]["error"]
    assert [(one["name"], one["state"]) for one in part["output"]["calls"]] == [
        ("tools.charge", "done"),
        ("tools.hang", "unknown"),
    ]
    assert part["output"]["logs"] == ["now"]
    agent.model.add(says("Well."))
    await agent.app.agent(agent.cls).save_messages("And now?")
    assert agent.shown["calls"] == ["1 tools.charge: done", "2 tools.hang: unknown"]
    [past] = await (await agent.executions()).list()
    assert past.state == "error"
    assert past.outcome == part["output"]


async def test_an_execution_that_fails_inside_tells_the_model_what_was_done(
    coder: MakeCoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Shop()
    agent = await coder(*shop.tools)

    async def breaks(*_: Any) -> Any:
        raise RuntimeError("a defect of ours")

    monkeypatch.setattr("everthink.codemode.tool._Run._told", breaks)
    await agent.run('await tools.charge(customer="ann")')
    assert (await agent.part())["state"] == "output-error"
    assert "a defect of ours" in agent.shown
    assert '1 tools.charge({"customer":"ann"}): done' in agent.shown
    agent.model.add(says("Well."))
    await agent.app.agent(agent.cls).save_messages("And now?")
    assert '1 tools.charge({"customer":"ann"}): done' in agent.shown
    assert [past.state for past in await (await agent.executions()).list()] == ["error"]
