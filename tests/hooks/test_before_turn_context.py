"""What before_turn is shown, when it runs, and what raising in it does."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from everthink import Message, Think, TurnConfig, tool
from everthink.hooks import TurnContext
from everthink.models.port import AssistantMessage, TextPart, ToolMessage, UserMessage
from everthink.testing.scripted import ScriptedModel, calls, says
from tests.conftest import OpenApp
from tests.support.agents import assistant
from tests.support.hooks import ask, breathe, script, soon, submitted

pytestmark = pytest.mark.anyio


def looker(model: ScriptedModel, seen: list[TurnContext], **members: Any) -> type[Think]:
    """An agent that keeps every context it is shown."""
    return assistant(model, before_turn=lambda self, turn: seen.append(turn), **members)


@tool
async def look(place: str) -> str:
    """Look somewhere."""
    return f"nothing in {place}"


@pytest.mark.case(152)
async def test_the_context_holds_the_turn_as_it_was_put_together(open_app: OpenApp) -> None:
    # Given an agent with a prompt and a tool
    seen: list[TurnContext] = []
    model = ScriptedModel(says("Hello."))
    cls = looker(model, seen, system_prompt="You are a cook.", get_tools=lambda self: [look])
    app = await open_app(cls)

    # When it is asked
    result = await app.agent(cls, "room").save_messages("Hi", metadata={"tenant": "a"})

    # Then before_turn saw what the model got
    (turn,) = seen
    assert turn.system.startswith("You are a cook.\n\nYou are running inside a Think agent.")
    assert turn.system == model.last_request.system
    assert turn.messages == [UserMessage([TextPart("Hi")])]
    assert turn.tools == {"look": look}
    assert turn.model is model
    assert turn.continuation is False
    assert turn.body is None
    assert turn.request_id == result.request_id
    assert turn.trigger == "programmatic"
    assert turn.metadata == {"tenant": "a"}


@pytest.mark.case(152)
async def test_the_context_shows_the_whole_conversation_in_the_models_words(open_app: OpenApp) -> None:
    seen: list[TurnContext] = []
    model = ScriptedModel(calls("look", place="the box"), says("Nothing."), says("Bye."))
    app = await open_app(cls := looker(model, seen, get_tools=lambda self: [look]))
    handle = app.agent(cls, "room")

    await handle.save_messages("Look")
    await handle.save_messages("Bye")

    kinds = [type(message) for message in seen[1].messages]
    assert kinds == [UserMessage, AssistantMessage, ToolMessage, AssistantMessage, UserMessage]
    assert seen[1].messages == model.last_request.messages


@pytest.mark.case(152)
async def test_it_fires_once_per_turn_however_many_steps_the_turn_has(open_app: OpenApp) -> None:
    seen: list[TurnContext] = []
    model = ScriptedModel(calls("look", place="a"), calls("look", place="b"), says("No."), says("Bye."))
    app = await open_app(cls := looker(model, seen, get_tools=lambda self: [look]))
    handle = app.agent(cls, "room")

    await handle.save_messages("Look twice")
    assert len(seen) == 1
    await handle.chat("Bye")
    assert len(seen) == 2


@pytest.mark.case(133, 152, 153)
async def test_only_a_continuation_is_called_one(open_app: OpenApp) -> None:
    # Given one turn of each kind
    seen: list[TurnContext] = []
    model = ScriptedModel(*(says(word) for word in ("One.", "Two.", "Three.", "Four.", "Five.", "Six.")))
    app = await open_app(cls := looker(model, seen))
    handle = app.agent(cls, "room")

    # When they run
    await handle.save_messages("1")
    await handle.chat("2")
    await ask(handle, "3")
    await handle.regenerate()
    await handle.continue_last_turn()
    await handle.run_turn(continuation=True)

    # Then the label and the flag say which door it was
    assert [(turn.trigger, turn.continuation) for turn in seen] == [
        ("programmatic", False),
        ("rpc", False),
        ("ws-chat", False),
        ("programmatic", False),
        ("programmatic", True),
        ("programmatic", True),
    ]


async def test_a_submission_is_labelled_as_one(open_app: OpenApp) -> None:
    seen: list[TurnContext] = []
    app = await open_app(cls := looker(ScriptedModel(says("Done.")), seen))
    handle = app.agent(cls, "room")
    submission = await submitted(handle, "Work")
    assert submission.status == "completed"
    assert (seen[0].trigger, seen[0].request_id) == ("submission", submission.submission_id)


@pytest.mark.case(135, 136)
async def test_the_body_is_the_requests_own_or_the_one_before(open_app: OpenApp) -> None:
    # Given a chat window that sends extra fields once
    seen: list[TurnContext] = []
    model = ScriptedModel(*(says(word) for word in ("0.", "1.", "2.", "3.", "4.", "5.")))
    app = await open_app(cls := looker(model, seen))
    handle = app.agent(cls, "room")

    # When turns follow by other doors
    await handle.save_messages("before any body")
    await handle.continue_last_turn()
    await ask(handle, "from the window", body={"file": "a.py"})
    await handle.save_messages("from code")
    await handle.continue_last_turn({"file": "b.py"})
    await handle.chat("by itself")

    # Then code uses the window's last, a continuation may bring its own, and chat() has none
    bodies = [turn.body for turn in seen]
    assert bodies == [None, None, {"file": "a.py"}, {"file": "a.py"}, {"file": "b.py"}, None]


async def test_the_tools_of_all_sources_are_shown_together(open_app: OpenApp) -> None:
    seen: list[TurnContext] = []

    class Assistant(Think):
        model = ScriptedModel(says("Hello."))
        include_workspace_tools = False

        @tool
        async def own(self) -> str:
            """Own."""
            return ""

        async def get_tools(self):
            return {"given": look}

        def before_turn(self, turn):
            seen.append(turn)

    app = await open_app(Assistant)
    await app.agent(Assistant, "room").chat("Hi", client_tools=[{"name": "browser"}])
    assert list(seen[0].tools) == ["own", "given", "browser"]
    assert not seen[0].tools["browser"].has_body


@pytest.mark.case(155)
async def test_the_context_shows_the_original_prompt_and_the_override_reaches_the_model(
    open_app: OpenApp,
) -> None:
    seen: list[str] = []

    def before_turn(self, turn):
        seen.append(turn.system)
        return TurnConfig(system=turn.system + f"\n\nThe user edits {(turn.body or {}).get('file')}.")

    model = ScriptedModel(says("One."), says("Two."))
    app = await open_app(cls := assistant(model, before_turn=before_turn, system_prompt="You are a cook."))
    handle = app.agent(cls, "room")

    for _ in range(2):
        await ask(handle, "Hi", body={"file": "a.py"})

    assert seen[0] == seen[1]
    assert "edits" not in seen[0]
    assert model.requests[1].system == seen[1] + "\n\nThe user edits a.py."


async def test_an_async_hook_is_awaited_before_the_model_is_asked(open_app: OpenApp) -> None:
    entered, go_on = asyncio.Event(), asyncio.Event()

    async def before_turn(self, turn):
        entered.set()
        await go_on.wait()
        return TurnConfig(system="Slowly.")

    model = ScriptedModel(says("Hello."))
    app = await open_app(cls := assistant(model, before_turn=before_turn))
    turn = asyncio.create_task(app.agent(cls, "room").save_messages("Hi"))
    await soon(entered.wait())
    await breathe()
    assert model.asked == 0
    go_on.set()
    await soon(turn)
    assert model.last_request.system == "Slowly."


class Refused(Exception):
    """What the hooks here raise."""


def raising(model: ScriptedModel, told: list[Any]) -> type[Think]:
    async def before_turn(self, turn):
        if turn.messages[-1] == UserMessage([TextPart("Hi")]):
            raise Refused("Not today.")

    return assistant(
        model,
        before_turn=before_turn,
        on_chat_error=lambda self, error, ctx: told.append((type(error), ctx.stage, ctx.messages_persisted)),
        on_chat_response=lambda self, response: told.append(response),
    )


@pytest.mark.case(40, 41)
async def test_raising_fails_the_turn_before_the_model_is_asked(open_app: OpenApp) -> None:
    # Given a hook that refuses
    told: list[Any] = []
    model = ScriptedModel(says("Hello."))
    app = await open_app(cls := raising(model, told))
    handle = app.agent(cls, "room")

    # When a turn starts
    with pytest.raises(Refused, match=r"Not today\."):
        await handle.save_messages("Hi")

    # Then no model was asked, the question is kept, and the error hook was told once
    assert model.asked == 0
    assert [message.text for message in await handle.get_messages()] == ["Hi"]
    assert told == [(Refused, "turn", True)]

    # And the next turn is fine
    assert (await handle.save_messages("Please")).text == "Hello."


async def test_raising_reaches_the_callback_of_chat_as_its_error(open_app: OpenApp) -> None:
    told: list[Any] = []
    heard: list[str] = []

    class Callback:
        def on_start(self, request_id):
            heard.append("start")

        def on_event(self, json):
            heard.append(json)

        def on_done(self):
            heard.append("done")

        def on_error(self, error):
            heard.append(f"error: {error}")

    model = ScriptedModel()
    app = await open_app(cls := raising(model, told))
    result = await app.agent(cls, "room").chat("Hi", callback=Callback())
    assert heard == ["start", "error: Not today."]
    assert (result.status, result.error, model.asked) == ("error", "Not today.", 0)


async def test_changing_what_a_shown_message_holds_changes_this_turn_only(open_app: OpenApp) -> None:
    # Given a hook that adds a hint to the newest message
    def before_turn(self, turn):
        if len(turn.messages) == 1:
            turn.messages[-1].content.append(TextPart("Think twice."))

    model = ScriptedModel(says("One."), says("Two."))
    app = await open_app(cls := assistant(model, before_turn=before_turn))
    handle = app.agent(cls, "room")

    # When two turns run
    await handle.save_messages("Hi")
    await handle.save_messages("Again")

    # Then the first had the hint, the second has not, and storage never had it
    assert script(model.requests[0]) == [("user", "Hi Think twice.")]
    assert script(model.requests[1]) == [("user", "Hi"), ("assistant", "One."), ("user", "Again")]
    assert [message.text for message in await handle.get_messages()] == ["Hi", "One.", "Again", "Two."]


async def test_a_message_with_parts_of_every_kind_is_shown_as_the_model_reads_it(open_app: OpenApp) -> None:
    seen: list[TurnContext] = []
    app = await open_app(cls := looker(ScriptedModel(says("Hello.")), seen))
    message = Message(
        "m1",
        "user",
        [
            {"type": "text", "text": "Look at"},
            {"type": "file", "url": "data:text/plain,hi", "mediaType": "text/plain", "filename": "a.txt"},
            {"type": "data-cursor", "data": {"line": 3}},
        ],
    )
    await app.agent(cls, "room").save_messages(message)
    (shown,) = seen[0].messages
    assert [part.__struct_config__.tag for part in shown.content] == ["text", "file"]
    assert shown.content[1].filename == "a.txt"
