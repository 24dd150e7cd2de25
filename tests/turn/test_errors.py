"""Turns that fail: what is kept, who is told, and what they are told."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from everthink import App, Message, Think, tool
from everthink.door.chat_request import ChatRequest
from everthink.errors import ModelError
from everthink.hooks import ChatErrorContext, ChatResponse, StepContext, TurnContext
from everthink.testing.scripted import Play, ScriptedModel, calls, fails, says
from tests.conftest import OpenApp
from tests.support.agents import assistant, live
from tests.support.turns import (
    Database,
    Heard,
    accept_request,
    all_over,
    home_of,
    prompt,
    record_events,
    roles,
)

pytestmark = pytest.mark.anyio


class Failed(Exception):
    """What a hook or a provider raises in these tests."""


# --- the four doors; each returns the text of the error its caller is shown


async def by_save(app: App, cls: type[Think]) -> str:
    try:
        return (await app.agent(cls).save_messages("Hi")).error or ""
    except Failed as error:
        return str(error)


async def by_chat(app: App, cls: type[Think]) -> str:
    heard = Heard()
    await app.agent(cls).chat("Hi", callback=heard)
    return heard.told[-1][1]


async def by_request(app: App, cls: type[Think]) -> str:
    question = Message("q", "user", [{"type": "text", "text": "Hi"}])
    admitted: Any = await accept_request(await home_of(app, cls), ChatRequest("r", [question]))
    return (await admitted.outcome()).text


async def by_submission(app: App, cls: type[Think]) -> str:
    submission = await app.agent(cls).submit_messages("Hi")
    await all_over(app, cls)
    return (await app.agent(cls).inspect_submission(submission.submission_id)).error or ""


Door = Callable[[App, type[Think]], Awaitable[str]]
DOORS = pytest.mark.parametrize("door", [by_save, by_chat, by_request, by_submission])


def broken_before_turn(self: Think, turn: TurnContext) -> None:
    raise Failed("set-up broke")


# --- a failing model


@pytest.mark.case(29)
@pytest.mark.parametrize(
    "play", [fails("the key is wrong"), says("Half").then_raises(Failed("the key is wrong"))]
)
async def test_a_failing_model_gives_the_callback_its_text_and_no_done(open_app: OpenApp, play: Play) -> None:
    app = await open_app(cls := assistant(ScriptedModel(play)))
    heard = Heard()
    result = await app.agent(cls).chat("Hi", callback=heard)
    assert heard.names == ["start", "error"]
    assert heard.told[-1] == ("error", "the key is wrong")
    assert (result.status, result.error) == ("error", "the key is wrong")


@pytest.mark.case(30)
@pytest.mark.parametrize(
    "play",
    [says("Half an ", "answer").then_fails("no"), says("Half an ", "answer").then_raises(Failed("no"))],
)
async def test_what_was_said_before_the_failure_is_stored(
    open_app: OpenApp, tmp_path: Path, play: Play
) -> None:
    app = await open_app(cls := assistant(ScriptedModel(play)))
    result = await app.agent(cls).save_messages("Hi")
    question, partial = await app.agent(cls).get_messages()
    assert (question.text, partial.text) == ("Hi", "Half an answer")
    assert partial == result.message
    assert partial.parts[-1]["state"] == "streaming"
    assert [(t["status"], t["error"]) for t in Database(tmp_path).turns()] == [("error", "no")]


@pytest.mark.case(30)
async def test_a_failure_before_the_first_word_stores_no_answer(open_app: OpenApp, tmp_path: Path) -> None:
    app = await open_app(cls := assistant(ScriptedModel(fails("no"))))
    result = await app.agent(cls).save_messages("Hi")
    assert (result.status, result.error, result.message) == ("error", "no", None)
    assert Database(tmp_path).texts() == ["Hi"]


@pytest.mark.case(31)
async def test_on_chat_error_receives_the_error_its_stage_and_what_was_stored(
    open_app: OpenApp, tmp_path: Path
) -> None:
    seen: list[Any] = []

    def on_chat_error(self: Think, error: BaseException, ctx: ChatErrorContext) -> BaseException:
        seen.append((error, ctx, Database(tmp_path).texts()))
        return error

    app = await open_app(
        cls := assistant(
            ScriptedModel(says("Half").then_fails("no", status=500)), on_chat_error=on_chat_error
        )
    )
    result = await app.agent(cls).save_messages("Hi")

    ((error, ctx, stored),) = seen
    assert isinstance(error, ModelError)
    assert (str(error), error.status) == ("no", 500)
    assert (ctx.stage, ctx.messages_persisted, ctx.request_id) == ("stream", True, result.request_id)
    assert stored == ["Hi", "Half"], "the partial answer is stored before the hook is asked"


@pytest.mark.case(32, 33)
@DOORS
@pytest.mark.parametrize(
    "play", [says("Half").then_fails("no"), fails("no"), says("H").then_raises(Failed("no"))]
)
async def test_a_failing_stream_is_reported_with_its_stage(open_app: OpenApp, door: Door, play: Play) -> None:
    app = await open_app(cls := assistant(ScriptedModel(play)))
    events = record_events(app, "chat:request:failed", "message:error")

    assert await door(app, cls) == "no"

    assert [event.type for event in events] == ["message:error", "chat:request:failed"]
    request_id = events[1].payload.pop("requestId")
    assert events[1].payload == {"stage": "stream", "messagesPersisted": True, "error": "no"}
    assert isinstance(request_id, str)
    assert events[0].payload == {"error": "no"}


@pytest.mark.case(34)
@DOORS
async def test_the_turn_after_a_failed_one_works(open_app: OpenApp, door: Door) -> None:
    model = ScriptedModel(says("Half").then_fails("no"), says("Whole."))
    app = await open_app(cls := assistant(model))
    await door(app, cls)

    result = await app.agent(cls).save_messages("Again")

    assert result.text == "Whole."
    assert prompt(model.last_request) == [("user", "Hi"), ("assistant", "Half"), ("user", "Again")]
    home = await home_of(app, cls)
    assert (home.chat.door.queue.is_idle, len(home.chat.host.aborts), home.chat.host.turns.answer) == (
        True,
        0,
        None,
    )


@pytest.mark.case(35)
async def test_nothing_after_an_error_in_the_stream_is_read(open_app: OpenApp) -> None:
    # Given a model that goes on talking after it reported an error
    ran: list[str] = []

    @tool
    def act() -> str:
        """Act."""
        ran.append("act")
        return "acted"

    play = says("Half").then_fails("no").says(" and more").calls("act")
    app = await open_app(cls := assistant(ScriptedModel(play), get_tools=lambda self: [act]))
    heard = Heard()

    # When it is asked
    result = await app.agent(cls).chat("Hi", callback=heard)

    # Then the answer ends at the error
    assert (heard.text, result.text, ran) == ("Half", "Half", [])
    assert heard.chunks[-1]["type"] == "text-delta"


@pytest.mark.case(36)
async def test_a_callback_that_raises_on_the_error_reaches_the_caller_and_the_hook_fires_once(
    open_app: OpenApp,
) -> None:
    responses: list[ChatResponse] = []

    class Grumpy(Heard):
        def on_error(self, error: str) -> None:
            super().on_error(error)
            raise Failed(f"I was told {error}")

    app = await open_app(
        cls := assistant(
            ScriptedModel(says("Half").then_fails("no")), on_chat_response=lambda self, r: responses.append(r)
        )
    )
    heard = Grumpy()
    with pytest.raises(Failed, match="I was told no"):
        await app.agent(cls).chat("Hi", callback=heard)

    assert heard.names == ["start", "error"]
    assert [(r.status, r.error, r.message.text) for r in responses] == [("error", "no", "Half")]


@pytest.mark.case(37, 140)
@DOORS
async def test_parts_before_an_error_are_stored_and_the_hook_sees_it(open_app: OpenApp, door: Door) -> None:
    responses: list[ChatResponse] = []
    app = await open_app(
        cls := assistant(
            ScriptedModel(says("Half").then_fails("no")), on_chat_response=lambda self, r: responses.append(r)
        )
    )
    await door(app, cls)
    await all_over(app, cls)
    assert [(r.status, r.error, r.message.text) for r in responses] == [("error", "no", "Half")]


@pytest.mark.case(142)
@DOORS
async def test_an_error_before_any_part_is_for_on_chat_error_only(open_app: OpenApp, door: Door) -> None:
    told: list[str] = []
    app = await open_app(
        cls := assistant(
            ScriptedModel(fails("no")),
            on_chat_response=lambda self, r: told.append("response"),
            on_chat_error=lambda self, error, ctx: told.append("error"),
        )
    )
    await door(app, cls)
    await all_over(app, cls)
    assert told == ["error"]


@pytest.mark.case(38)
async def test_save_messages_reports_an_error_in_the_stream_as_its_status(open_app: OpenApp) -> None:
    app = await open_app(cls := assistant(ScriptedModel(says("Half").then_fails("overloaded"))))
    result = await app.agent(cls).save_messages("Hi")
    assert (result.status, result.error, result.text) == ("error", "overloaded", "Half")


# --- a failing set-up


@pytest.mark.case(39, 40, 41)
@DOORS
@pytest.mark.parametrize("what", ["before_turn", "get_model", "get_tools", "get_system_prompt"])
async def test_a_failing_set_up_is_told_once_and_the_question_stays(
    open_app: OpenApp, tmp_path: Path, door: Door, what: str
) -> None:
    # Given an agent whose set-up fails the first time
    model, contexts, attempts = ScriptedModel(says("Better.")), [], []

    def broken(self: Think, *args: Any) -> Any:
        attempts.append(what)
        if len(attempts) == 1:
            raise Failed("set-up broke")
        return {"get_model": model, "get_tools": [], "get_system_prompt": "Be kind."}.get(what)

    members = {what: broken, "on_chat_error": lambda self, error, ctx: contexts.append(ctx)}
    app = await open_app(cls := assistant(model, **members))
    events = record_events(app, "chat:request:failed")

    # When it is asked
    assert await door(app, cls) == "set-up broke"

    # Then the failure was reported once, with what was kept, and no model was asked
    assert [(c.stage, c.messages_persisted) for c in contexts] == [("turn", True)]
    assert [(e.payload["stage"], e.payload["messagesPersisted"]) for e in events] == [("turn", True)]
    assert model.requests == []
    assert [(t["status"], t["error"]) for t in Database(tmp_path).turns()] == [("error", "set-up broke")]
    assert Database(tmp_path).texts() == ["Hi"]

    # ... and the next turn answers both
    assert (await app.agent(cls).save_messages("Again")).text == "Better."
    assert prompt(model.last_request) == [("user", "Hi"), ("user", "Again")]


@pytest.mark.case(40)
async def test_save_messages_raises_what_kept_the_turn_from_starting(open_app: OpenApp) -> None:
    app = await open_app(cls := assistant(ScriptedModel(), before_turn=broken_before_turn))
    with pytest.raises(Failed, match="set-up broke"):
        await app.agent(cls).save_messages("Hi")
    with pytest.raises(Failed, match="set-up broke"):
        await app.agent(cls).run_turn("Hi")
    with pytest.raises(Failed, match="set-up broke"):
        await app.agent(cls).regenerate()


@pytest.mark.case(40)
async def test_a_failing_set_up_fires_no_response_hook(open_app: OpenApp) -> None:
    told: list[Any] = []
    app = await open_app(
        cls := assistant(
            ScriptedModel(),
            before_turn=broken_before_turn,
            on_chat_response=lambda self, response: told.append(response),
        )
    )
    await app.agent(cls).chat("Hi")
    assert told == []


@pytest.mark.case(175)
async def test_a_failing_step_hook_is_an_error_of_the_answer(open_app: OpenApp) -> None:
    def before_step(self: Think, step: StepContext) -> None:
        if step.step_number == 1:
            raise Failed("step broke")

    @tool
    def look() -> str:
        """Look."""
        return "a cat"

    app = await open_app(
        cls := assistant(
            ScriptedModel(says("Let me see.").calls("look")),
            before_step=before_step,
            get_tools=lambda self: [look],
        )
    )
    result = await app.agent(cls).save_messages("What is it?")
    assert (result.status, result.error, result.text) == ("error", "step broke", "Let me see.")
    assert roles(await app.agent(cls).get_messages()) == ["user", "assistant"]


# --- what people are told


def masked(answer: Any) -> Callable[..., Any]:
    def on_chat_error(self: Think, error: BaseException, ctx: ChatErrorContext) -> Any:
        self.__dict__.setdefault("told", []).append(str(error))
        if isinstance(answer, type):
            raise answer("the hook broke")
        return answer

    return on_chat_error


@pytest.mark.case(43)
@DOORS
@pytest.mark.parametrize(
    ("answer", "shown"),
    [
        (Failed("Please try again later."), "Please try again later."),
        ("Please try again later.", "Please try again later."),
        (None, "secret detail"),
        (RuntimeError, "secret detail"),
    ],
)
async def test_on_chat_error_is_asked_once_and_its_answer_is_what_everybody_reads(
    open_app: OpenApp, tmp_path: Path, door: Door, answer: Any, shown: str
) -> None:
    responses: list[Any] = []
    app = await open_app(
        cls := assistant(
            ScriptedModel(says("Half").then_fails("secret detail")),
            on_chat_error=masked(answer),
            on_chat_response=lambda self, response: responses.append(response.error),
        )
    )
    events = record_events(app, "chat:request:failed", "chat:turn:finish")

    assert await door(app, cls) == shown

    agent = await live(app.agent(cls))
    assert agent.__dict__["told"] == ["secret detail"]
    assert [event.payload["error"] for event in events] == ["secret detail", shown], "operators get the whole"
    assert [t["error"] for t in Database(tmp_path).turns()] == [shown]
    await all_over(app, cls)
    assert responses == [shown]


@pytest.mark.case(43)
async def test_an_async_on_chat_error_is_awaited(open_app: OpenApp) -> None:
    async def on_chat_error(self: Think, error: BaseException, ctx: ChatErrorContext) -> str:
        return f"sorry: {error}"

    app = await open_app(cls := assistant(ScriptedModel(fails("no")), on_chat_error=on_chat_error))
    assert (await app.agent(cls).save_messages("Hi")).error == "sorry: no"


@pytest.mark.case(43)
async def test_an_error_without_words_is_known_by_its_name(open_app: OpenApp) -> None:
    app = await open_app(cls := assistant(ScriptedModel(says("H").then_raises(ValueError()))))
    assert (await app.agent(cls).save_messages("Hi")).error == "ValueError"


async def test_a_failing_tool_is_no_error_of_the_turn(open_app: OpenApp) -> None:
    @tool
    def divide(by: int) -> float:
        """Divide one."""
        return 1 / by

    told: list[Any] = []
    app = await open_app(
        cls := assistant(
            ScriptedModel(calls("divide", by=0), says("That cannot be done.")),
            get_tools=lambda self: [divide],
            on_chat_error=lambda self, error, ctx: told.append(error),
        )
    )
    result = await app.agent(cls).save_messages("1 / 0?")
    assert (result.status, told) == ("completed", [])
    # The issue overrules the original: the words are the model's, people learn that it failed.
    assert result.message.tool_parts[0]["errorText"] == "The tool failed."  # type: ignore[union-attr]
