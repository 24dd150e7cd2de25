"""A prompt that the provider refuses as too long: shortened, and asked again in the same turn."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from everthink import App, Think
from everthink import chunks as ui
from everthink.door.chat_request import ChatRequest
from everthink.hooks import ChatResponse, TurnContext
from everthink.journal.feed import TurnEnded, TurnRewound
from everthink.prompt.wording import CONTINUE_NUDGE
from everthink.testing import Window
from everthink.testing.scripted import Play, ScriptedModel, fails, opens, overflows, says, thinks
from everthink.turn.overflow import ContextOverflow
from tests.conftest import OpenApp
from tests.support.overflow import NOTE, SUMMARY, Shortener, roomy, talk
from tests.support.turns import Database, Heard, Witness, accept_request, home_of, prompt, record_events
from tests.support.window import said

pytestmark = pytest.mark.anyio

OLD = talk("What is a bee?", "An insect, and a long story about it.")
SHORTENED = [NOTE, ("assistant", SUMMARY), ("user", "And a wasp?")]
COMPACTED = "chat:context:compacted"


async def by_saving(app: App, cls: type[Think]) -> str | None:
    return (await app.agent(cls).save_messages("And a wasp?")).error


async def by_chat(app: App, cls: type[Think]) -> str | None:
    heard = Heard()
    await app.agent(cls).chat("And a wasp?", callback=heard)
    assert heard.names in (["start", "done"], ["start", "error"])
    return next((value for name, value in heard.told if name == "error"), None)


async def by_submission(app: App, cls: type[Think]) -> str | None:
    submitted = await app.agent(cls).submit_messages("And a wasp?")
    home = await home_of(app, cls)
    await home.chat.door.queue.wait_for_idle()
    found = await app.agent(cls).inspect_submission(submitted.submission_id)
    assert found is not None
    return found.error


async def by_window(app: App, cls: type[Think]) -> str | None:
    home = await home_of(app, cls)
    witness = Witness(home)
    await accept_request(home, ChatRequest("r", [*OLD, said("new", "And a wasp?")]))
    await witness.until(lambda: any(isinstance(s, TurnEnded) for s in witness.shown))
    (ended,) = [s for s in witness.shown if isinstance(s, TurnEnded)]
    return ended.error


Door = Callable[[App, type[Think]], Awaitable[str | None]]
DOORS = pytest.mark.parametrize("door", [by_saving, by_chat, by_submission, by_window])
REFUSALS = pytest.mark.parametrize(
    "refused",
    [overflows(), opens().then_overflows(), says("A wa").then_overflows(), thinks("Hm").then_overflows()],
    ids=["before it opens", "before the first word", "after some text", "after a thought"],
)


@pytest.mark.case(381, 382, 387, 388)
@DOORS
@REFUSALS
async def test_the_conversation_is_shortened_and_the_same_turn_answers(
    open_app: OpenApp, tmp_path: Path, door: Door, refused: Play
) -> None:
    # Given a conversation that is too long for the model
    model, fn, turns, errors = ScriptedModel(refused, says("A cousin.")), Shortener(), [], []

    def before_turn(self: Think, turn: TurnContext) -> None:
        turns.append((turn.request_id, turn.continuation))

    def on_chat_error(self: Think, error: Any, context: Any) -> None:
        errors.append(error)

    cls = roomy(model, fn, before_turn=before_turn, on_chat_error=on_chat_error)
    app = await open_app(cls)
    await app.agent(cls).add_messages(OLD)
    events = record_events(app, COMPACTED, "chat:request:failed")

    # When somebody asks
    error = await door(app, cls)

    # Then it was shortened once and asked again: nobody sees an error
    assert (error, errors, fn.asked, model.asked) == (None, [], 1, 2)
    assert prompt(model.requests[1]) == SHORTENED
    (turn,) = Database(tmp_path).turns()
    assert turns == [(turn["request_id"], False)] * 2
    assert turn["status"] == "completed"
    (event,) = events
    told = (event.body.reason, event.body.shortened, event.body.request_id, event.body.attempt)
    assert told == ("reactive", True, turn["request_id"], 1)

    # And the answer is stored once, and nothing of the refused one
    assert Database(tmp_path).texts() == ["What is a bee?", OLD[1].text, "And a wasp?", "A cousin."]
    answer = Database(tmp_path).messages()[-1]
    assert [part["type"] for part in answer["parts"]] == ["step-start", "text"]
    assert answer["id"] == turn["message_id"]


@pytest.mark.case(382)
async def test_readers_are_told_that_what_was_said_is_taken_back(open_app: OpenApp, tmp_path: Path) -> None:
    model = ScriptedModel(says("A wa").then_overflows(), says("A cousin."))
    cls = roomy(model, Shortener())
    app = await open_app(cls)
    await app.agent(cls).add_messages(OLD)
    witness = Witness(await home_of(app, cls))

    await app.agent(cls).save_messages("And a wasp?")

    assert witness.text == "A waA cousin."
    place = next(n for n, shown in enumerate(witness.shown) if isinstance(shown, TurnRewound))
    del witness.shown[:place]
    assert witness.text == "A cousin."
    (start,) = [chunk.message_id for chunk in witness.chunks if isinstance(chunk, ui.Start)]
    assert start == Database(tmp_path).messages()[-1]["id"]
    assert [chunk for chunk in Database(tmp_path).chunks() if isinstance(chunk, ui.TextDelta)] == [
        ui.TextDelta("text_1", "A cousin.")
    ]


async def test_a_turn_that_had_said_nothing_goes_on_under_its_message_id(open_app: OpenApp) -> None:
    model = ScriptedModel(overflows(), says("A cousin."))
    cls = roomy(model, Shortener())
    app = await open_app(cls)
    await app.agent(cls).add_messages(OLD)
    witness = Witness(await home_of(app, cls))

    result = await app.agent(cls).save_messages("And a wasp?")

    assert not any(isinstance(shown, TurnRewound) for shown in witness.shown)
    (start,) = [chunk for chunk in witness.chunks if isinstance(chunk, ui.Start)]
    assert result.message is not None
    assert start.message_id == result.message.id


async def test_a_continuation_is_shortened_as_well(open_app: OpenApp) -> None:
    model, fn = ScriptedModel(says("It ").then_overflows(), says("goes on.")), Shortener(tail=1)
    cls = roomy(model, fn)
    app = await open_app(cls)
    await app.agent(cls).add_messages(talk("One?", "Long.", "Two?", "Begun"))

    result = await app.agent(cls).continue_last_turn()

    assert (result.status, result.continuation, result.text) == ("completed", True, "goes on.")
    assert prompt(model.requests[1]) == [
        NOTE,
        ("assistant", SUMMARY),
        ("assistant", "Begun"),
        ("user", CONTINUE_NUDGE),
    ]
    assert [m.text for m in await app.agent(cls).get_messages()] == [SUMMARY, "Begun", "goes on."]


async def test_the_response_hook_fires_once_for_the_turn(open_app: OpenApp) -> None:
    seen: list[ChatResponse] = []
    cls = roomy(
        ScriptedModel(says("A wa").then_overflows(), says("A cousin.")),
        Shortener(),
        on_chat_response=lambda self, response: seen.append(response),
    )
    app = await open_app(cls)
    await app.agent(cls).add_messages(OLD)
    await app.agent(cls).save_messages("And a wasp?")
    assert [(response.status, response.message.text) for response in seen] == [("completed", "A cousin.")]


@pytest.mark.case(383)
@pytest.mark.parametrize("off", [None, ContextOverflow(), {"reactive": False, "max_retries": 3}])
async def test_switched_off_the_error_is_shown_after_one_call(open_app: OpenApp, off: Any) -> None:
    model, fn = ScriptedModel(says("A wa").then_overflows("prompt is too long: 9 > 8")), Shortener()
    cls = roomy(model, fn, overflow=off)
    app = await open_app(cls)
    await app.agent(cls).add_messages(OLD)
    events = record_events(app, COMPACTED)

    result = await app.agent(cls).save_messages("And a wasp?")

    assert (result.status, model.asked, fn.asked, events) == ("error", 1, 0, [])
    assert "prompt is too long: 9 > 8" in str(result.error)
    assert result.message is not None
    assert result.message.text == "A wa"


@pytest.mark.parametrize("as_dict", [True, False])
async def test_the_setting_may_be_a_dict(open_app: OpenApp, as_dict: bool) -> None:
    setting = {"reactive": True, "max_retries": 1} if as_dict else ContextOverflow(True, 1)
    cls = roomy(ScriptedModel(overflows(), says("Fits.")), Shortener(), overflow=setting)
    app = await open_app(cls)
    await app.agent(cls).add_messages(OLD)
    assert (await app.agent(cls).save_messages("And a wasp?")).text == "Fits."


@pytest.mark.case(394)
@pytest.mark.parametrize("word", ["rate_limit", None, 7, "raise"])
async def test_a_hook_that_raises_or_says_another_word_means_no_overflow(
    open_app: OpenApp, word: Any
) -> None:
    asked: list[Any] = []

    def classify_chat_error(self: Think, error: BaseException, context: Any) -> Any:
        asked.append((type(error).__name__, context.stage, context.request_id))
        if word == "raise":
            raise RuntimeError("no idea")
        return word

    model, fn = ScriptedModel(overflows()), Shortener()
    cls = roomy(model, fn, classify_chat_error=classify_chat_error)
    app = await open_app(cls)
    await app.agent(cls).add_messages(OLD)

    result = await app.agent(cls).save_messages("And a wasp?")

    assert (result.status, model.asked, fn.asked) == ("error", 1, 0)
    assert asked == [("ModelError", "stream", result.request_id)]


async def test_a_hook_may_know_an_overflow_that_nobody_else_knows(open_app: OpenApp) -> None:
    async def classify_chat_error(self: Think, error: BaseException, context: Any) -> str | None:
        await asyncio.sleep(0)
        return "context_overflow" if "Zu viel" in str(error) else None

    model = ScriptedModel(fails("Zu viel Text."), says("Fits."))
    cls = roomy(model, Shortener(), classify_chat_error=classify_chat_error)
    app = await open_app(cls)
    await app.agent(cls).add_messages(OLD)
    assert (await app.agent(cls).save_messages("And a wasp?")).text == "Fits."


async def test_the_next_turn_may_be_too_long_again_and_has_its_own_retries(open_app: OpenApp) -> None:
    model = ScriptedModel(overflows(), says("One."), overflows(), says("Two."))
    fn = Shortener()
    cls = roomy(model, fn)
    app = await open_app(cls)
    await app.agent(cls).add_messages(OLD)
    assert (await app.agent(cls).save_messages("And a wasp, a hornet, and all their many cousins?")).text
    assert (await app.agent(cls).save_messages("And a bumblebee?")).text == "Two."
    assert fn.asked == 2
    assert prompt(model.last_request) == [NOTE, ("assistant", f"{SUMMARY} (2)"), ("user", "And a bumblebee?")]


async def test_an_answer_that_begins_anew_while_somebody_writes_leaves_nothing_of_its_first_beginning(
    open_app: OpenApp, tmp_path: Path
) -> None:
    # Given an answer of which a window has brought the beginning along with its next message
    goes = asyncio.Event()
    model = ScriptedModel(says("A wa").waits(goes).then_overflows(), says("A cousin."), says("Indeed."))
    cls = roomy(model, Shortener())
    app = await open_app(cls)
    await app.agent(cls).add_messages(OLD)
    home = await home_of(app, cls)
    window, witness = Window(home), Witness(home)
    window.messages = [*OLD]
    first = await window.send("u1", "And a wasp?")
    await witness.until_text("A wa")
    second = await window.send("u2", "Really?")
    assert "A wa" in Database(tmp_path).texts()

    # When there is no room for it, and it begins anew
    goes.set()
    await first.result()
    await second.result()

    # Then the first beginning is gone, for everybody
    assert sorted(Database(tmp_path).texts()[2:]) == ["A cousin.", "And a wasp?", "Indeed.", "Really?"]
    assert "A wa" not in [message.text for message in home.chat.session.path]
    await home.chat.session.load()
    assert [m.text for m in home.chat.session.path if m.role == "assistant"][-2:] == ["A cousin.", "Indeed."]
