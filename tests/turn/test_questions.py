"""A tool may ask a person something, and goes on with the answer, whatever becomes of the process."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from everthink import Think, ToolContext, tool
from everthink.errors import InvalidTurn
from everthink.journal.ledger import question_of
from everthink.testing import ScriptedModel, calls, says
from everthink.testing.in_process_server import Listening
from everthink.tools.question import Form, Question
from everthink.turn import attempt
from tests.conftest import OpenApp

pytestmark = pytest.mark.anyio

SCHEMA = {"type": "object", "properties": {"seats": {"type": "integer"}}, "required": ["seats"]}


def booking(*plays: Any) -> type[Think]:
    """An agent whose tool asks how many seats, and then whether it is sure."""

    class Booking(Think):
        model = ScriptedModel(*plays)
        runs: list[Any] = []  # noqa: RUF012

        @tool
        def book(self, city: str, ctx: ToolContext) -> str:
            """Book a trip."""
            answer = ctx.answer
            self.runs.append((city, answer and dict(answer.forms), ctx.identity))
            if answer is None:
                form = Form(f"How many seats to {city}?", SCHEMA)
                raise Question({"seats": form}, state={"step": 1}, asks="travel")
            if answer.state["step"] == 1:
                given = answer.forms["seats"]
                if given.action != "accept":
                    return f"{given.action}d"
                assert given.content is not None
                raise Question({"sure": Form("Sure?")}, state={"step": 2, "seats": given.content["seats"]})
            return f"{answer.state['seats']} seats"

    Booking.runs = []
    return Booking


PLAYS = (calls("book", city="Rome"), says("Done."))


async def question(agent: Any) -> dict[str, Any]:
    """The part of the call that waits."""
    messages = await agent.get_messages()
    (part,) = [part for message in messages for part in message.parts if "toolCallId" in part]
    return part


async def test_a_question_ends_the_turn_and_its_form_is_shown(open_app: OpenApp) -> None:
    cls = booking(*PLAYS)
    agent = (await open_app(cls)).agent(cls)
    result = await agent.save_messages("A trip, please")

    part = await question(agent)
    assert result.status == "completed"
    assert part["state"] == "approval-requested"
    assert part["approval"]["descriptor"] == {
        "kind": "question",
        "asks": "travel",
        "forms": {"seats": {"message": "How many seats to Rome?", "schema": SCHEMA}},
    }
    assert agent.has_pending_interaction()


async def test_the_answers_go_to_the_tool_one_after_the_other_also_after_restarts(open_app: OpenApp) -> None:
    cls = booking(*PLAYS)
    app = await open_app(cls)
    await app.agent(cls).save_messages("A trip, please")
    call = (await question(app.agent(cls)))["toolCallId"]

    # When the process ends between each step
    await app.close()
    app = await open_app(cls)
    assert await app.agent(cls).apply_tool_result(call, {"action": "accept", "content": {"seats": 3}})
    await app.close()
    app = await open_app(cls)
    await app.agent(cls).continue_last_turn()
    second = await question(app.agent(cls))
    assert second["approval"]["descriptor"]["forms"] == {"sure": {"message": "Sure?"}}
    await app.close()
    app = await open_app(cls)
    assert await app.agent(cls).apply_tool_approval(call, True)
    result = await app.agent(cls).continue_last_turn()

    # Then the tool has got each answer once, with what it had kept
    assert result.text == "Done."
    assert (await question(app.agent(cls)))["output"] == "3 seats"
    assert len(cls.runs) == 3


async def test_what_does_not_fit_the_form_is_no_answer(open_app: OpenApp) -> None:
    cls = booking(*PLAYS)
    agent = (await open_app(cls)).agent(cls)
    await agent.save_messages("A trip, please")
    call = (await question(agent))["toolCallId"]
    for wrong in (
        {"action": "accept", "content": {"seats": "three"}},
        {"action": "accept"},
        {"action": "maybe"},
        "three",
        {"answers": {"other": {"action": "accept"}}},
    ):
        with pytest.raises(InvalidTurn, match="still open"):
            await agent.apply_tool_result(call, wrong)
    with pytest.raises(InvalidTurn, match="seats"):
        await agent.apply_tool_approval(call, True)
    assert (await question(agent))["state"] == "approval-requested"


async def test_declining_is_an_answer_and_a_no_ends_the_call(open_app: OpenApp) -> None:
    for answer, state, shown in (
        ({"action": "decline"}, "output-available", "declined"),
        (None, "output-denied", None),
    ):
        cls = booking(*PLAYS)
        app = await open_app(cls, store=":memory:")
        agent = app.agent(cls)
        await agent.save_messages("A trip, please")
        call = (await question(agent))["toolCallId"]
        if answer is None:
            await agent.apply_tool_approval(call, False)
        else:
            await agent.apply_tool_result(call, answer)
        await agent.continue_last_turn()
        part = await question(agent)
        assert (part["state"], part.get("output")) == (state, shown)
        assert len(cls.runs) == (1 if answer is None else 2)


async def test_what_was_answered_is_shown_beside_the_question(open_app: OpenApp) -> None:
    for answer, shown in (
        ({"action": "accept", "content": {"seats": 2}}, {"action": "accept", "content": {"seats": 2}}),
        ({"action": "decline", "content": {"seats": 2}}, {"action": "decline"}),
    ):
        cls = booking(*PLAYS)
        agent = (await open_app(cls, store=":memory:")).agent(cls)
        await agent.save_messages("A trip, please")
        call = (await question(agent))["toolCallId"]
        await agent.apply_tool_result(call, answer)

        part = await question(agent)
        assert (part["state"], part["approval"]["approved"]) == ("approval-responded", True)
        assert part["approval"]["descriptor"]["asks"] == "travel"
        assert part["approval"]["descriptor"]["answers"] == {"seats": shown}


async def test_a_question_in_the_middle_of_a_call_shows_its_answer_and_refuses_what_does_not_fit(
    open_app: OpenApp,
) -> None:
    class Asker(Think):
        model = ScriptedModel(calls("book"), says("Done."))

        @tool
        async def book(self, ctx: ToolContext) -> str:
            """Book a trip."""
            assert ctx.ask is not None
            given = await ctx.ask(Question({"seats": Form("How many?", SCHEMA)}, asks="old"), 30)
            return f"{given['seats'].content}"

    async with Listening(await open_app(Asker)) as server:
        window = await server.connect(Asker, "room")

        def part() -> dict[str, Any]:
            return next((p for m in window.messages for p in m.parts if "toolCallId" in p), {})

        request = await window.say("A trip, please")
        await window.until(lambda: part().get("state") == "approval-requested")
        await window.answer(part()["toolCallId"], {"action": "accept"})
        await window.until(lambda: window.of("message_updated"))
        assert part()["state"] == "approval-requested"

        await window.answer(part()["toolCallId"], {"action": "accept", "content": {"seats": 4}})
        await window.until_done(request)
        assert part()["approval"]["descriptor"]["answers"]["seats"]["content"] == {"seats": 4}
        assert part()["output"] == "{'seats': 4}"


async def test_a_window_answers_and_the_tool_goes_on_in_its_name(open_app: OpenApp) -> None:
    cls = booking(*PLAYS)

    def who(connection: Any) -> Any:
        return {"id": connection.query_params["who"]}

    app = await open_app(cls, authenticate=who)
    async with Listening(app) as server:
        ada = await server.connect(cls, "room", query={"who": "ada"})
        bob = await server.connect(cls, "room", query={"who": "bob"})
        await ada.until_done(await ada.say("A trip, please"))
        (part,) = [p for p in ada.messages[-1].parts if "toolCallId" in p]
        call = part["toolCallId"]
        # Somebody's wrong answer changes nothing, and they are shown that the question is open
        told = len(bob.of("chat_messages"))
        await bob.answer(call, {"action": "accept", "content": {"seats": "x"}}, autoContinue=True)
        await bob.until(lambda: len(bob.of("chat_messages")) > told)
        assert [p["state"] for p in bob.messages[-1].parts if "toolCallId" in p] == ["approval-requested"]
        await bob.answer(call, {"action": "accept", "content": {"seats": 2}}, autoContinue=True)
        await bob.until(lambda: len(cls.runs) == 2)
        await bob.settled()
        await bob.approve(call)
        await ada.until(lambda: ada.text.endswith("Done."))

        assert [run[2]["id"] for run in cls.runs] == ["ada", "bob", "bob"]


async def test_a_window_that_takes_its_answer_for_the_result_is_not_told_of_the_call_in_a_new_message(
    open_app: OpenApp,
) -> None:
    # As the published hook does it: it sends the answer, and asks for the stream at once
    cls = booking(*PLAYS)
    async with Listening(await open_app(cls)) as server:
        ada, bob = [await server.connect(cls, "room") for _ in "ab"]
        await ada.until_done(await ada.say("A trip, please"))
        (part,) = [p for p in ada.messages[-1].parts if "toolCallId" in p]
        await ada.answer(part["toolCallId"], {"action": "decline"}, autoContinue=True)
        await ada.probe("here")
        await ada.until(lambda: ada.of("stream_resuming"))
        await ada.ack(ada.of("stream_resuming")[-1]["id"])
        request = ada.of("stream_resuming")[-1]["id"]
        for window in (ada, bob):
            await window.until_done(request)

        said = {window: [frame["body"] for frame in window.responses(request)] for window in (ada, bob)}
        assert not any("tool-output" in body for body in said[ada])
        assert any("tool-output" in body for body in said[bob])
        for window in (ada, bob):
            assert window.seqs(request) == list(range(len(window.seqs(request))))
            updated = window.of("message_updated")[-1]["message"]["parts"]
            assert [p.get("output") for p in updated if "toolCallId" in p] == ["declined"]


async def test_a_second_question_is_shown_to_those_who_watch(open_app: OpenApp) -> None:
    cls = booking(*PLAYS)
    async with Listening(await open_app(cls)) as server:
        ada, bob = [await server.connect(cls, "room") for _ in "ab"]
        await ada.until_done(await ada.say("A trip, please"))
        (part,) = [p for p in ada.messages[-1].parts if "toolCallId" in p]
        told = len(bob.of("chat_messages"))
        await ada.answer(part["toolCallId"], {"action": "accept", "content": {"seats": 2}}, autoContinue=True)
        await bob.until(lambda: len(bob.of("chat_messages")) > told)
        (part,) = [p for p in bob.messages[-1].parts if "toolCallId" in p]
        assert part["approval"]["descriptor"]["forms"]["sure"]["message"] == "Sure?"


async def test_one_answer_is_for_one_run(open_app: OpenApp) -> None:
    cls = booking(calls("book", city="Rome"), says("Done."), says("Again."))
    agent = (await open_app(cls)).agent(cls)
    await agent.save_messages("A trip, please")
    call = (await question(agent))["toolCallId"]
    await agent.apply_tool_result(call, {"action": "decline"})
    assert not await agent.apply_tool_approval(call, True)
    await agent.continue_last_turn()
    assert not await agent.apply_tool_approval(call, True)
    await agent.continue_last_turn()
    assert len(cls.runs) == 2


async def test_an_answer_that_comes_while_the_turn_stores_its_end_is_taken(
    open_app: OpenApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a turn whose question is shown, and whose answer is no message yet
    ends, go, ended = asyncio.Event(), asyncio.Event(), attempt._ended

    async def slowly(*args: Any) -> Any:
        ends.set()
        await go.wait()
        return await ended(*args)

    monkeypatch.setattr(attempt, "_ended", slowly)
    cls = booking(*PLAYS)
    agent = await (await open_app(cls)).agent(cls).__aenter__()
    turn = asyncio.ensure_future(agent.save_messages("A trip, please"))
    await ends.wait()
    async with asyncio.timeout(10):
        while await question_of(agent._home.store, "call_1") is None:  # noqa: ASYNC110 - rows tell nobody
            await asyncio.sleep(0)

    # When somebody answers at that moment
    answered = asyncio.ensure_future(agent.apply_tool_result("call_1", {"action": "decline"}))
    for _ in range(20):
        await asyncio.sleep(0)
    go.set()
    await turn

    # Then the answer counts, and the tool goes on with it
    assert await answered
    assert (await question(agent))["state"] == "approval-responded"


async def test_a_live_question_goes_with_the_turn_that_is_stopped(open_app: OpenApp) -> None:
    asking = asyncio.Event()

    class Asking(Think):
        model = ScriptedModel(calls("book"), says("Later."))

        @tool
        async def book(self, ctx: ToolContext) -> str:
            """Ask while it runs."""
            assert ctx.ask is not None
            asking.set()
            await ctx.ask(Question({"sure": Form("Sure?")}), 300.0)
            return "booked"

    app = await open_app(Asking)
    agent = app.agent(Asking)
    turn = asyncio.ensure_future(agent.save_messages("Go"))
    await asking.wait()
    await agent.abort_all_requests("enough")

    assert (await turn).status == "aborted"
    part = await question(agent)
    assert part["state"] == "output-error"
    assert "stopped while it asked" in part["errorText"]
    assert not agent.has_pending_interaction()
    await app.evict(Asking, "default")
    assert (await question(agent))["state"] == "output-error"
