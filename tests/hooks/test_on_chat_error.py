"""on_chat_error: once per failed turn, and what it says is what people read."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from everthink import TurnConfig
from everthink.errors import ModelError
from everthink.hooks import ChatErrorContext
from everthink.testing.scripted import Play, ScriptedModel, fails, opens, says
from tests.conftest import OpenApp
from tests.support.agents import assistant, live
from tests.support.hooks import ask, configured, soon, submitted, until

pytestmark = pytest.mark.anyio

HALF = says("Half").then_fails("overloaded")


@pytest.mark.case(31)
@pytest.mark.parametrize(
    "play",
    [
        HALF,
        fails("overloaded"),
        opens().then_fails("overloaded"),
        opens().then_raises(ModelError("overloaded")),
    ],
)
async def test_it_sees_the_error_the_stage_and_whether_the_question_is_stored(
    open_app: OpenApp, play: Play
) -> None:
    told: list[tuple[BaseException, ChatErrorContext]] = []
    cls = assistant(ScriptedModel(play), on_chat_error=lambda self, error, ctx: told.append((error, ctx)))
    app = await open_app(cls)
    result = await app.agent(cls, "room").save_messages("Hi")
    ((error, ctx),) = told
    assert isinstance(error, ModelError)
    assert str(error) == "overloaded"
    assert (ctx.stage, ctx.messages_persisted, ctx.request_id) == ("stream", True, result.request_id)
    assert ctx.classification is None


async def _save(handle: Any) -> str:
    return (await handle.save_messages("Hi")).error


async def _chat(handle: Any) -> str:
    return (await handle.chat("Hi")).error


async def _socket(handle: Any) -> str:
    return (await ask(handle, "Hi")).error


async def _submit(handle: Any) -> str:
    submission = await submitted(handle, "Hi")
    assert submission.status == "error"
    return submission.error


@pytest.mark.case(43)
@pytest.mark.parametrize("door", [_save, _chat, _socket, _submit])
@pytest.mark.parametrize("is_async", [False, True])
async def test_it_is_asked_once_on_every_path_and_its_answer_is_what_people_read(
    open_app: OpenApp, door: Callable[[Any], Awaitable[str]], is_async: bool
) -> None:
    # Given a hook that puts errors into friendly words
    told: list[str] = []
    responses: list[str | None] = []

    def sync(self, error, ctx):
        told.append(str(error))
        return RuntimeError("Something went wrong.")

    async def later(self, error, ctx):
        return sync(self, error, ctx)

    cls = assistant(
        ScriptedModel(HALF),
        on_chat_error=later if is_async else sync,
        on_chat_response=lambda self, response: responses.append(response.error),
    )
    app = await open_app(cls)

    # When a turn fails by this door
    read = await soon(door(app.agent(cls, "room")))
    await until(lambda: responses)

    # Then it was asked once, and everybody reads its words
    assert told == ["overloaded"]
    assert read == "Something went wrong."
    assert responses == ["Something went wrong."]


@pytest.mark.parametrize(
    ("answer", "read"),
    [
        ("Just a text.", "Just a text."),
        (None, "overloaded"),
        (ValueError("Other."), "Other."),
        (ValueError(), "ValueError"),
    ],
)
async def test_it_may_answer_with_a_text_an_error_or_nothing(
    open_app: OpenApp, answer: Any, read: str
) -> None:
    cls = assistant(ScriptedModel(HALF), on_chat_error=lambda self, error, ctx: answer)
    app = await open_app(cls)
    assert (await app.agent(cls, "room").save_messages("Hi")).error == read


async def test_raising_keeps_the_original_error(open_app: OpenApp) -> None:
    def on_chat_error(self, error, ctx):
        raise ValueError("worse")

    app = await open_app(cls := assistant(ScriptedModel(HALF), on_chat_error=on_chat_error))
    result = await app.agent(cls, "room").save_messages("Hi")
    assert (result.status, result.error, result.text) == ("error", "overloaded", "Half")


async def test_a_setup_failure_raises_what_the_hook_returned(open_app: OpenApp) -> None:
    def before_turn(self, turn):
        raise ValueError("secret detail")

    cls = assistant(
        ScriptedModel(),
        before_turn=before_turn,
        on_chat_error=lambda self, error, ctx: PermissionError(f"Failed at {ctx.stage}."),
    )
    app = await open_app(cls)
    with pytest.raises(PermissionError, match=r"Failed at turn\."):
        await app.agent(cls, "room").save_messages("Hi")


async def test_being_cancelled_is_no_error(open_app: OpenApp) -> None:
    told: list[Any] = []
    model = ScriptedModel(says("Half").then_hangs())
    app = await open_app(cls := assistant(model, on_chat_error=lambda self, error, ctx: told.append(error)))
    handle = app.agent(cls, "room")
    turn = asyncio.create_task(handle.save_messages("Hi"))
    await soon(model.until_silent())
    (await live(handle)).abort_all_requests()
    assert (await soon(turn)).status == "aborted"
    assert told == []


async def test_a_failing_structured_output_is_told_too(open_app: OpenApp) -> None:
    told: list[str] = []
    cls = assistant(
        ScriptedModel(says("not json")),
        before_turn=configured(TurnConfig(output={"type": "object"})),
        on_chat_error=lambda self, error, ctx: told.append(ctx.stage),
    )
    app = await open_app(cls)
    result = await app.agent(cls, "room").save_messages("Hi")
    assert result.status == "error"
    assert told == ["stream"]
