"""A program answers what a tool asks, over a real socket."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from everthink import Think, ToolContext, tool
from everthink import chunks as ui
from everthink.client import Reply
from everthink.client.questions import question_in
from everthink.errors import AgentError, AnsweredBefore
from everthink.testing import ScriptedModel, calls, says
from everthink.tools.question import Form, Question

from ..support.cable import Cable
from ..support.server import Served
from .conftest import Enter, Serve

pytestmark = pytest.mark.anyio

SEATS = {"type": "object", "properties": {"seats": {"type": "integer"}}, "required": ["seats"]}


def asking(*forms: dict[str, Form], then: str = "Done.") -> type[Think]:
    """An agent whose tool asks these, one after the other, and says what it was told."""

    class Asker(Think):
        model = ScriptedModel(calls("book", id="c1"), says(then))

        @tool
        def book(self, ctx: ToolContext) -> str:
            """Book a trip."""
            told = [] if ctx.answer is None else [*ctx.answer.state, str(_plain(ctx.answer.forms))]
            if len(told) < len(forms):
                raise Question(forms[len(told)], state=told, asks="travel")
            return " and ".join(told)

    return Asker


def _plain(forms: Any) -> Any:
    return {name: (one.action, one.content) for name, one in forms.items()}


def result(room: Any) -> Any:
    """What the tool gave in the end."""
    (part,) = [part for message in room.messages for part in message.tool_parts]
    return part.get("output")


async def heard(reply: Reply) -> list[str]:
    return [chunk.type async for chunk in reply if isinstance(chunk, ui.ToolOutputAvailable | ui.TextDelta)]


async def test_what_a_tool_asks_is_answered_and_it_goes_on(serve: Serve, enter: Enter) -> None:
    cls = asking({"seats": Form("How many?", SEATS)})
    room = await enter(await serve(cls), cls)
    await room.ask("A trip, please")

    # Given a question with its form, which is no question of yes or no
    (question,) = room.questions
    assert (question.call_id, question.tool, question.asks, question.seconds) == (
        "c1",
        "book",
        "travel",
        None,
    )
    assert question.forms["seats"] == Form("How many?", SEATS)
    assert room.to_approve == []
    assert question.asked == room.messages[-1].tool_parts[0]["approval"]["id"]

    # Then the tool's result and the agent's words follow the answer
    reply = await room.reply("c1", {"seats": 2})
    assert await heard(reply) == ["tool-output-available", "text-delta"]
    assert (await reply).text == "Done."
    assert (result(room), room.questions) == ("{'seats': ('accept', {'seats': 2})}", [])
    with pytest.raises(AgentError, match="No call 'c1' waits"):
        await room.reply("c1", {"seats": 2})


@pytest.mark.parametrize("other", ["reply", "decline", "approve"])
async def test_of_two_who_answer_at_once_the_one_who_was_slower_is_told(
    serve: Serve, enter: Enter, other: str
) -> None:
    cls = asking({"seats": Form("How many?", SEATS)})
    server = await serve(cls)
    one, two = await enter(server, cls), await enter(server, cls)
    await one.ask("A trip, please")
    await _until(lambda: two.questions)

    async def another() -> Reply:
        match other:
            case "approve":
                return await one.approve("c1", False)
            case "decline":
                return await one.reply("c1", action="decline")
            case _:
                return await one.reply("c1", {"seats": 2})

    # When both have the question before them, and both answer
    first, second = await asyncio.gather(another(), two.reply("c1", {"seats": 3}), return_exceptions=True)

    # Then one answer counts, and whoever gave the other one hears of it, and of what follows
    lost, won = (second, first) if isinstance(second, AnsweredBefore) else (first, second)
    assert isinstance(lost, AnsweredBefore), (first, second)
    assert isinstance(won, Reply), (first, second)
    assert "Somebody else was faster" in str(lost)
    assert (await won).text == (await lost.reply).text == "Done."
    assert result(one) == result(two)


async def test_two_who_answer_the_same_need_not_be_told_apart(serve: Serve, enter: Enter) -> None:
    cls = asking({"seats": Form("How many?", SEATS)})
    server = await serve(cls)
    one, two = await enter(server, cls), await enter(server, cls)
    await one.ask("A trip, please")
    await _until(lambda: two.questions)
    replies = await asyncio.gather(one.reply("c1", {"seats": 2}), two.reply("c1", {"seats": 2}))
    assert [(await reply).text for reply in replies] == ["Done.", "Done."]


async def _until(is_so: Callable[[], Any]) -> None:
    async with asyncio.timeout(20):
        while not is_so():  # noqa: ASYNC110 - what is waited for is said over a socket
            await asyncio.sleep(0)


async def test_what_does_not_fit_is_not_sent(serve: Serve, enter: Enter) -> None:
    cls = asking({"seats": Form("How many?", SEATS)})
    room = await enter(await serve(cls), cls)
    await room.ask("A trip, please")
    for wrong in ({"seats": "two"}, {}, None):
        with pytest.raises(AgentError, match=r"What was filled in does not fit.*still open"):
            await room.reply("c1", wrong)
    with pytest.raises(AgentError, match="An answer is wanted for each of: 'seats'"):
        await room.reply("c1", answers={"other": {"action": "accept"}})
    assert len(room.questions) == 1


async def test_a_question_is_declined_and_several_forms_are_answered_at_once(
    serve: Serve, enter: Enter
) -> None:
    pay = Form("Pay.", url="https://pay.example")
    cls = asking({"seats": Form("How many?", SEATS)}, {"who": Form("Who?", SEATS), "pay": pay})
    room = await enter(await serve(cls), cls)
    await room.ask("A trip, please")

    # When the tool asks again after a no, it is the same call with another question
    await (await room.reply("c1", {"seats": 9}, action="decline"))
    (second,) = room.questions
    assert list(second.forms) == ["who", "pay"]
    answers = {"who": {"action": "accept", "content": {"seats": 1}}, "pay": {"action": "cancel"}}
    assert (await (await room.reply("c1", answers=answers))).text == "Done."
    first = "{'seats': ('decline', None)}"
    assert result(room) == f"{first} and {{'who': ('accept', {{'seats': 1}}), 'pay': ('cancel', None)}}"


async def test_an_answer_that_was_lost_is_sent_again(
    serve: Serve, enter: Enter, cable_to: Callable[[Served], Cable]
) -> None:
    cls = asking({"seats": Form("How many?", SEATS)})
    cable = cable_to(await serve(cls))
    room = await enter(cable, cls)
    await room.ask("A trip, please")
    with cable.deaf():
        answering = asyncio.create_task(room.reply("c1", {"seats": 3}))
        assert await asyncio.to_thread(cable.swallowed.wait, 20)
    reply = await asyncio.wait_for(answering, 20)
    assert (await asyncio.wait_for(reply, 20)).text == "Done."
    assert result(room) == "{'seats': ('accept', {'seats': 3})}"


async def test_a_question_of_a_call_that_runs_is_answered_in_the_middle(serve: Serve, enter: Enter) -> None:
    class Asker(Think):
        model = ScriptedModel(calls("book", id="c1"), says("Done."))

        @tool
        async def book(self, ctx: ToolContext) -> str:
            """Book a trip."""
            assert ctx.ask is not None
            given = await ctx.ask(Question({"seats": Form("How many?", SEATS)}), 30)
            return str(_plain(given))

    server = await serve(Asker)
    room = await enter(server, Asker)
    asked = room.say("A trip, please")
    async for chunk in asked:
        if isinstance(chunk, ui.ToolApprovalRequest):
            break
    other = await enter(server, Asker)
    assert [question.seconds for one in (room, other) for question in one.questions] == [30, 30]

    # Whoever answers goes on with the same answer
    going_on = await other.reply("c1", {"seats": 4})
    for reply in (asked, going_on):
        assert (await reply).text == "Done."
    assert result(room) == result(other) == "{'seats': ('accept', {'seats': 4})}"


@pytest.mark.parametrize(
    "approval",
    [
        None,
        "yes",
        {},
        {"descriptor": "question"},
        {"descriptor": {"kind": "question", "forms": {}}},
        {"descriptor": {"kind": "question", "forms": {"x": {"schema": {}}}}},
        {"descriptor": {"kind": "question", "forms": {"x": {"message": "Hi", "schema": []}}}},
        {"descriptor": {"kind": "other", "forms": {"x": {"message": "Hi"}}}},
    ],
)
def test_what_a_strange_server_says_is_no_question(approval: Any) -> None:
    part = {"type": "tool-x", "toolCallId": "c1", "state": "approval-requested", "approval": approval}
    assert question_in(part) is None


async def test_an_answer_that_is_neither_yes_nor_no_is_not_sent(serve: Serve, enter: Enter) -> None:
    cls = asking({"seats": Form("How many?", SEATS)})
    room = await enter(await serve(cls), cls)
    await room.ask("A trip, please")
    with pytest.raises(AgentError, match="`approved` is True or False, not 'yes'"):
        await room.approve("c1", cast("Any", "yes"))
    assert [question.call_id for question in room.questions] == ["c1"]
