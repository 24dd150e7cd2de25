"""A call may ask again. An answer to what it asked before is none to what it asks now."""

from __future__ import annotations

from typing import Any

import pytest

from everthink import Think, ToolContext, tool
from everthink.testing import ManualClock, ScriptedModel, calls, says
from everthink.testing.client import Client
from everthink.tools.question import Form, Question

from .conftest import Serve, ServeOn
from .strangers import people

pytestmark = pytest.mark.anyio

ONE, MILLION = "Pay one euro?", "Pay a million euros?"


class Till(Think):
    """Asks about one euro, and then about a million."""

    paid: list[str]

    @tool
    async def pay(self, ctx: ToolContext) -> str:
        """Pay."""
        if ctx.answer is None:
            raise Question({"sum": Form(ONE)}, state=ONE)
        self.paid.append(ctx.answer.state)
        if ctx.answer.state == ONE:
            raise Question({"sum": Form(MILLION)}, state=MILLION)
        return "paid"


def till() -> type[Till]:
    model = ScriptedModel(calls("pay", id="c1"), says("Paid."))
    return type("Till", (Till,), {"model": model, "paid": []})


def question(client: Client) -> dict[str, Any]:
    """The call as this window shows it, while it asks."""
    parts = [part for message in client.messages for part in message.tool_parts]
    asking = [part for part in parts if part["state"] == "approval-requested"]
    return asking[0] if asking else dict[str, Any]()


def shows(client: Client, words: str) -> bool:
    approval = question(client).get("approval", {})
    return bool(approval) and approval["descriptor"]["forms"]["sum"]["message"] == words


def yes(**more: Any) -> dict[str, Any]:
    """What the published hook sends: it does not say which question it answers."""
    return {
        "type": "cf_agent_tool_approval",
        "toolCallId": "c1",
        "approved": True,
        "autoContinue": True,
        **more,
    }


def filled() -> dict[str, Any]:
    output: dict[str, Any] = {"action": "accept", "content": {}}
    frame: dict[str, Any] = {
        "type": "cf_agent_tool_result",
        "toolCallId": "c1",
        "toolName": "pay",
        "output": output,
    }
    return {**frame, "autoContinue": True}


async def answered(client: Client, clock: ManualClock, frame: dict[str, Any]) -> None:
    """Send an answer that is taken; a continuation waits a little for others."""
    await client.send(frame)
    await client.settled()
    await clock.advance(0.1)


async def asked_twice(serve: Serve, clock: ManualClock) -> tuple[Any, type[Till], Client, Client, str]:
    """Two windows that show the second question, and the id of the first."""
    cls = till()
    server = await serve(cls, clock=clock)
    one, two = await people(server, cls, "ada", "bob")
    await one.until_done(await one.say("Pay."))
    await two.until(lambda: shows(two, ONE))
    first = question(two)["approval"]["id"]
    await answered(one, clock, yes())
    for window in (one, two):
        await window.until(lambda window=window: shows(window, MILLION))
    assert cls.paid == [ONE]
    return server, cls, one, two, first


@pytest.mark.parametrize("answer", [yes, filled])
async def test_a_second_click_on_the_first_question_does_not_answer_the_next(
    serve: Serve, answer: Any
) -> None:
    clock = ManualClock()
    _, cls, one, two, _ = await asked_twice(serve, clock)
    # When the same frame comes once more, and that of a window which showed the first question, too
    for window in (one, two, two):
        await window.send(answer())
        await window.settled()
    # Then nobody has agreed to the million, and both windows still show it
    assert cls.paid == [ONE]
    assert shows(one, MILLION)
    assert shows(two, MILLION)
    # And who has had time to read it may
    await clock.advance(1)
    await answered(two, clock, answer())
    await two.until_text("Paid.")
    assert cls.paid == [ONE, MILLION]


async def test_an_answer_that_names_the_first_question_never_counts_for_the_next(serve: Serve) -> None:
    clock = ManualClock()
    _, cls, one, _, first = await asked_twice(serve, clock)
    await clock.advance(3600)
    for frame in (yes(approvalId=first), {**filled(), "approvalId": first}, yes(approvalId="c1")):
        await one.send(frame)
        await one.settled()
    assert cls.paid == [ONE]
    assert shows(one, MILLION)
    # One that names the next is taken at once
    await answered(one, clock, yes(approvalId=question(one)["approval"]["id"]))
    await one.until_text("Paid.")
    assert cls.paid == [ONE, MILLION]


async def test_what_a_window_had_kept_while_it_was_away_answers_no_later_question(serve_on: ServeOn) -> None:
    clock = ManualClock()
    server, cls, one, _, _ = await asked_twice(serve_on, clock)
    await clock.advance(3600)
    await one.close()
    await server.app.evict(cls, "room")  # a restart forgets when it was asked
    # When a window comes back, and the first that it sends is the yes to what it had shown
    (back,) = await people(server, cls, "ada")
    await back.send(yes())
    await back.settled()
    # Then that is no yes to what is asked now
    assert cls.paid == [ONE]
    assert shows(back, MILLION)
    await clock.advance(1)
    await answered(back, clock, yes())
    await back.until_text("Paid.")
    assert cls.paid == [ONE, MILLION]


async def test_the_first_question_is_answered_as_fast_as_somebody_can(serve: Serve) -> None:
    cls = till()
    clock = ManualClock()
    server = await serve(cls, clock=clock)
    (one,) = await people(server, cls, "ada")
    await one.until_done(await one.say("Pay."))
    await answered(one, clock, yes())
    await one.until(lambda: shows(one, MILLION))
    assert cls.paid == [ONE]
