"""Answering again: the new answer is a branch beside the old one."""

from __future__ import annotations

from typing import Any

import pytest

from everthink import Message, Think
from everthink.door.chat_request import ChatRequest
from everthink.errors import InvalidTurn, UnknownMessage
from everthink.hooks import ChatResponse
from everthink.testing.scripted import ScriptedModel, calls, says
from tests.conftest import OpenApp
from tests.support.agents import assistant, live
from tests.support.turns import Database, accept_request, home_of, prompt, roles

pytestmark = pytest.mark.anyio

Ask = Any


@pytest.fixture(params=["method", "request"])
def regenerate(request: pytest.FixtureRequest) -> Ask:
    """The two doors: `regenerate()`, and what a browser's button sends (the list up to the question)."""

    async def by_method(app: Any, cls: type[Think]) -> Any:
        return await app.agent(cls).regenerate()

    async def by_request(app: Any, cls: type[Think]) -> Any:
        messages = await app.agent(cls).get_messages()
        while messages[-1].role == "assistant":
            messages.pop()
        admitted: Any = await accept_request(
            await home_of(app, cls), ChatRequest("r", messages, trigger="regenerate-message")
        )
        return await admitted.result()

    return by_method if request.param == "method" else by_request


@pytest.mark.memory_case(199)
@pytest.mark.case(334, 338)
async def test_the_path_keeps_the_question_and_gets_another_answer(
    open_app: OpenApp, regenerate: Ask
) -> None:
    model = ScriptedModel(says("The old one."), says("The new one."))
    app = await open_app(cls := assistant(model))
    await app.agent(cls).save_messages("Hi")
    question, old = await app.agent(cls).get_messages()

    result = await regenerate(app, cls)

    assert (result.status, result.continuation, result.text) == ("completed", False, "The new one.")
    assert await app.agent(cls).get_messages() == [question, result.message]
    assert result.message.id != old.id
    assert prompt(model.last_request) == [("user", "Hi")]


@pytest.mark.memory_case(200)
@pytest.mark.case(335)
async def test_the_old_answers_are_kept_as_branches(
    open_app: OpenApp, tmp_path: Any, regenerate: Ask
) -> None:
    model = ScriptedModel(says("one"), says("two"), says("three"))
    app = await open_app(cls := assistant(model))
    await app.agent(cls).save_messages("Hi")
    agent = await live(app.agent(cls))
    question = agent.messages[0].id

    await regenerate(app, cls)
    assert [m.text for m in await agent.session.get_branches(question)] == ["one", "two"]
    await regenerate(app, cls)
    branches = await agent.session.get_branches(question)
    assert [m.text for m in branches] == ["one", "two", "three"]
    assert Database(tmp_path).texts() == ["Hi", "one", "two", "three"]
    # ... and an old one can still be read
    assert [m.text for m in await agent.session.get_history(branches[0].id)] == ["Hi", "one"]


@pytest.mark.memory_case(201)
@pytest.mark.case(336, 338)
async def test_what_came_before_the_question_is_kept_and_shown(open_app: OpenApp, regenerate: Ask) -> None:
    model = ScriptedModel(says("one"), says("two"), says("two again"), says("three"))
    app = await open_app(cls := assistant(model))
    await app.agent(cls).save_messages("first")
    await app.agent(cls).save_messages("second")

    await regenerate(app, cls)

    assert [m.text for m in await app.agent(cls).get_messages()] == ["first", "one", "second", "two again"]
    asked = [("user", "first"), ("assistant", "one"), ("user", "second")]
    assert prompt(model.last_request) == asked

    # The next turn goes on from the new answer, also after a restart
    await app.evict(cls, "default")
    await app.agent(cls).save_messages("third")
    assert prompt(model.last_request) == [*asked, ("assistant", "two again"), ("user", "third")]


@pytest.mark.memory_case(203)
@pytest.mark.case(337)
async def test_a_request_to_regenerate_nothing_is_a_normal_one(open_app: OpenApp) -> None:
    model = ScriptedModel(says("one"), says("two"))
    app = await open_app(cls := assistant(model))
    await app.agent(cls).save_messages("Hi")

    admitted: Any = await accept_request(
        await home_of(app, cls), ChatRequest("r", [], trigger="regenerate-message")
    )
    await admitted.result()

    assert [m.text for m in await app.agent(cls).get_messages()] == ["Hi", "one", "two"]


@pytest.mark.memory_case(202)
@pytest.mark.case(148)
async def test_the_response_hook_fires(open_app: OpenApp, regenerate: Ask) -> None:
    heard: list[tuple[str, bool, str]] = []

    def on_chat_response(self: Think, response: ChatResponse) -> None:
        heard.append((response.message.text, response.continuation, response.status))

    model = ScriptedModel(says("one"), says("two"))
    app = await open_app(cls := assistant(model, on_chat_response=on_chat_response))
    await app.agent(cls).save_messages("Hi")
    await regenerate(app, cls)
    assert heard == [("one", False, "completed"), ("two", False, "completed")]


@pytest.mark.case(338)
async def test_an_earlier_answer_can_be_given_again(open_app: OpenApp) -> None:
    model = ScriptedModel(says("one"), says("two"), says("one again"))
    app = await open_app(cls := assistant(model))
    await app.agent(cls).save_messages("first")
    await app.agent(cls).save_messages("second")
    first_answer = (await app.agent(cls).get_messages())[1].id

    await app.agent(cls).regenerate(first_answer)

    assert [m.text for m in await app.agent(cls).get_messages()] == ["first", "one again"]
    assert prompt(model.last_request) == [("user", "first")]


@pytest.mark.case(334)
async def test_all_answers_after_the_last_question_are_replaced(open_app: OpenApp) -> None:
    model = ScriptedModel(says("one"), says("more"), says("again"))
    app = await open_app(cls := assistant(model))
    await app.agent(cls).save_messages("Hi")
    await app.agent(cls).continue_last_turn()
    await app.agent(cls).regenerate()
    assert [m.text for m in await app.agent(cls).get_messages()] == ["Hi", "again"]
    assert prompt(model.last_request) == [("user", "Hi")]


async def test_a_question_without_an_answer_is_answered(open_app: OpenApp) -> None:
    app = await open_app(cls := assistant(ScriptedModel(says("late"))))
    await app.agent(cls).add_messages("Hi")
    await app.agent(cls).regenerate()
    assert roles(await app.agent(cls).get_messages()) == ["user", "assistant"]


async def test_a_failed_attempt_keeps_its_partial_answer_as_a_branch_beside_the_old_one(
    open_app: OpenApp,
) -> None:
    model = ScriptedModel(says("good"), says("half ").then_fails("overloaded"))
    app = await open_app(cls := assistant(model))
    await app.agent(cls).save_messages("Hi")
    agent = await live(app.agent(cls))
    result = await agent.regenerate()
    assert (result.status, result.text) == ("error", "half ")
    assert [m.text for m in await agent.session.get_branches(agent.messages[0].id)] == ["good", "half "]


@pytest.mark.parametrize("before", [[], ["assistant"]])
async def test_without_a_question_there_is_nothing_to_answer(
    open_app: OpenApp, tmp_path: Any, before: list[Any]
) -> None:
    app = await open_app(cls := assistant(ScriptedModel()))
    await app.agent(cls).add_messages(
        [Message("m", role, [{"type": "text", "text": "Hi"}]) for role in before]
    )
    with pytest.raises(InvalidTurn, match="no message to answer"):
        await app.agent(cls).regenerate()
    assert Database(tmp_path).turns() == []


async def test_an_unknown_message_cannot_be_answered_again(open_app: OpenApp, tmp_path: Any) -> None:
    app = await open_app(cls := assistant(ScriptedModel()))
    await app.agent(cls).add_messages("Hi")
    with pytest.raises(UnknownMessage, match="'nobody' is not in the conversation"):
        await app.agent(cls).regenerate("nobody")
    assert Database(tmp_path).turns() == []


@pytest.mark.case(338)
async def test_a_call_of_the_old_answer_is_neither_shown_nor_touched(open_app: OpenApp) -> None:
    # Given an answer that waits for a browser tool
    model = ScriptedModel(calls("locate", id="call-1"), says("I do not know."))
    app = await open_app(cls := assistant(model))
    home = await home_of(app, cls)
    question = Message("q", "user", [{"type": "text", "text": "Where am I?"}])
    asked: Any = await accept_request(home, ChatRequest("r", [question], client_tools=[{"name": "locate"}]))
    await asked.result()
    waiting = (await app.agent(cls).get_messages())[1]

    # When the question is answered again
    await app.agent(cls).regenerate()

    # Then the old branch is as it was, still waiting
    assert prompt(model.last_request) == [("user", "Where am I?")]
    old, _ = await home.chat.session.get_branches("q")
    assert old == waiting
    assert old.tool_parts[0]["state"] == "input-available"
