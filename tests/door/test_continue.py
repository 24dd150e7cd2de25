"""`continue_last_turn`: the model goes on after its own last message."""

from __future__ import annotations

from typing import Any

import pytest

from everthink import Message, Think, client_tool, tool
from everthink import chunks as ui
from everthink.door.chat_request import ChatRequest
from everthink.errors import InvalidTurn
from everthink.hooks import ChatResponse, TurnContext
from everthink.prompt.wording import CONTINUE_NUDGE, EMPTY_MESSAGE
from everthink.testing.scripted import ScriptedModel, calls, says
from tests.conftest import OpenApp
from tests.support.agents import assistant, live
from tests.support.turns import Database, Witness, accept_request, home_of, prompt, roles

pytestmark = pytest.mark.anyio


@pytest.mark.case(131, 137)
async def test_it_continues_in_a_new_message_from_the_last_one(open_app: OpenApp, tmp_path: Any) -> None:
    # Given an answer
    model = ScriptedModel(says("Once upon"), says(" a time."))
    app = await open_app(cls := assistant(model))
    agent = app.agent(cls)
    await agent.save_messages("A story!")
    before = await agent.get_messages()

    # When the model is asked to go on
    result = await agent.continue_last_turn()

    # Then it was shown its answer and a nudge that is never stored, and wrote a message of its own
    assert prompt(model.last_request) == [
        ("user", "A story!"),
        ("assistant", "Once upon"),
        ("user", CONTINUE_NUDGE),
    ]
    assert (result.status, result.continuation, result.text) == ("completed", True, " a time.")
    messages = await agent.get_messages()
    assert messages[:2] == before
    assert roles(messages) == ["user", "assistant", "assistant"]
    assert messages[2].id == result.message.id != messages[1].id  # type: ignore[union-attr]
    assert CONTINUE_NUDGE not in "".join(Database(tmp_path).texts())


@pytest.mark.case(132)
@pytest.mark.parametrize("last", [None, "user", "system"])
async def test_it_is_skipped_without_an_answer_to_go_on_from(
    open_app: OpenApp, tmp_path: Any, last: Any
) -> None:
    model = ScriptedModel()
    app = await open_app(cls := assistant(model))
    if last:
        await app.agent(cls).add_messages(Message("m", last, [{"type": "text", "text": "Hi"}]))

    result = await app.agent(cls).continue_last_turn()

    assert (result.request_id, result.status, result.message) == ("", "skipped", None)
    assert (model.requests, Database(tmp_path).turns()) == ([], [])


@pytest.mark.case(133, 134)
async def test_the_hooks_are_told_that_it_is_a_continuation(open_app: OpenApp) -> None:
    seen: list[tuple[str, bool]] = []

    def before_turn(self: Think, turn: TurnContext) -> None:
        seen.append(("before", turn.continuation))

    def on_chat_response(self: Think, response: ChatResponse) -> None:
        seen.append(("after", response.continuation))

    model = ScriptedModel(says("one"), says("two"))
    app = await open_app(cls := assistant(model, before_turn=before_turn, on_chat_response=on_chat_response))
    await app.agent(cls).save_messages("Hi")
    await app.agent(cls).continue_last_turn()
    assert seen == [("before", False), ("after", False), ("before", True), ("after", True)]


@pytest.mark.case(135, 136)
async def test_a_body_is_passed_through_and_without_one_there_is_none(open_app: OpenApp) -> None:
    bodies: list[Any] = []
    app = await open_app(
        cls := assistant(
            ScriptedModel(says("one"), says("two"), says("three")),
            before_turn=lambda self, turn: bodies.append(turn.body),
        )
    )
    await app.agent(cls).save_messages("Hi")
    await app.agent(cls).continue_last_turn({"tone": "dry"})
    await app.agent(cls).continue_last_turn()
    assert bodies == [None, {"tone": "dry"}, None]


@pytest.mark.case(135)
async def test_the_last_body_a_browser_sent_is_used_unless_another_is_given(open_app: OpenApp) -> None:
    bodies: list[Any] = []
    model = ScriptedModel(*(says(str(i)) for i in range(5)))
    app = await open_app(cls := assistant(model, before_turn=lambda self, turn: bodies.append(turn.body)))
    question = Message("q", "user", [{"type": "text", "text": "Hi"}])
    admitted: Any = await accept_request(
        await home_of(app, cls), ChatRequest("r", [question], body={"tone": "dry"})
    )
    await admitted.result()

    await app.agent(cls).continue_last_turn()
    await app.agent(cls).continue_last_turn({"tone": "warm"})
    await app.evict(cls, "default")
    await app.agent(cls).continue_last_turn()
    await app.agent(cls).save_messages("And?")

    dry, warm = {"tone": "dry"}, {"tone": "warm"}
    assert bodies == [dry, dry, warm, dry, dry]


async def test_its_start_chunk_announces_no_id_so_that_readers_append_to_what_they_show(
    open_app: OpenApp,
) -> None:
    app = await open_app(cls := assistant(ScriptedModel(says("one"), says("two"))))
    await app.agent(cls).save_messages("Hi")
    witness = Witness(await home_of(app, cls))

    await app.agent(cls).continue_last_turn()

    assert witness.chunks[0] == ui.Start()


@pytest.mark.case(137)
async def test_after_a_tool_result_there_is_no_nudge(open_app: OpenApp) -> None:
    # Given an answer that ends with the result of a call, because its steps were used up
    @tool
    def look() -> str:
        """Look."""
        return "a cat"

    model = ScriptedModel(calls("look"), says("It is a cat."))
    app = await open_app(cls := assistant(model, max_steps=1, get_tools=lambda self: [look]))
    await app.agent(cls).save_messages("What is it?")

    # When it goes on
    await app.agent(cls).continue_last_turn()

    # Then the prompt ends with the result, as providers want it
    assert [role for role, _ in prompt(model.last_request)] == ["user", "assistant", "tool"]


@pytest.mark.parametrize("before", [["Question"], []])
async def test_somebody_who_sends_what_only_a_page_shows_is_not_taken_for_the_models_last_answer(
    open_app: OpenApp, before: list[str]
) -> None:
    # Given a conversation, and a message of which a model is told nothing
    model = ScriptedModel(*(says("Answer") for _ in before), says("What do you mean?"))
    app = await open_app(cls := assistant(model))
    agent = app.agent(cls)
    for text in before:
        await agent.save_messages(text)
    await agent.add_messages({"role": "user", "parts": [{"type": "text", "text": "Look:"}]})

    # When it is asked about
    await agent.save_messages({"role": "user", "parts": [{"type": "data-cursor", "data": 1}]})

    # Then the model is told that there is one, not to go on with its own, nor to answer the one before
    assert prompt(model.last_request)[-2:] == [("user", "Look:"), ("user", EMPTY_MESSAGE)]


async def test_after_an_answer_a_message_that_says_nothing_to_a_model_is_told_as_empty(
    open_app: OpenApp,
) -> None:
    app = await open_app(cls := assistant(model := ScriptedModel(says("Answer"), says("Yes?"))))
    await app.agent(cls).save_messages("Question")
    await app.agent(cls).save_messages({"role": "user", "parts": [{"type": "data-cursor", "data": 1}]})
    assert prompt(model.last_request) == [
        ("user", "Question"),
        ("assistant", "Answer"),
        ("user", EMPTY_MESSAGE),
    ]


@pytest.mark.parametrize(
    "ask", [lambda agent: agent.continue_last_turn(), lambda agent: agent.run_turn(continuation=True)]
)
@pytest.mark.parametrize("kind", ["approval", "client tool"])
async def test_an_open_question_is_not_answered_by_going_on(open_app: OpenApp, ask: Any, kind: str) -> None:
    # Given an answer that waits for a person
    @tool(needs_approval=True)
    def refund() -> str:
        """Refund."""
        return "refunded"

    asks = {"approval": refund, "client tool": client_tool("refund", "Refund.")}
    model = ScriptedModel(calls("refund", id="c1"), says("Done."))
    app = await open_app(cls := assistant(model, get_tools=lambda self: [asks[kind]]))
    agent = app.agent(cls)
    await agent.save_messages("Refund me.")
    before = await agent.get_messages()

    # When code asks the model to go on
    with pytest.raises(
        InvalidTurn, match=r"waits for .*'c1' of 'refund'.*the question stays open.*Answer it"
    ):
        await ask(agent)

    # Then the question is as it was, and can still be answered
    assert (await agent.get_messages(), len(model.requests)) == (before, 1)
    assert (await live(agent)).has_pending_interaction()
    await agent.apply_tool_approval("c1", False)
    assert (await ask(agent)).text == "Done."
