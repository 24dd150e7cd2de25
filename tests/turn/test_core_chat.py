"""The core of a chat: a question, an answer, and a conversation that stays."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from everthink import Message, Think, tool
from everthink.errors import InvalidMessage, NoModel, UnknownModel
from everthink.testing.scripted import ScriptedModel, calls, says, waits
from tests.conftest import OpenApp
from tests.support.agents import assistant, live
from tests.support.turns import Database, Heard, prompt, roles

pytestmark = pytest.mark.anyio


def user(text: str, id: str) -> Message:
    return Message(id, "user", [{"type": "text", "text": text}])


@pytest.mark.case(1)
async def test_properties_given_by_whoever_wakes_an_agent_reach_its_start_hook(open_app: OpenApp) -> None:
    # Given an agent that keeps what it is started with
    started: list[Any] = []

    async def on_start(self: Think, props: Any = None) -> None:
        started.append(props)

    app = await open_app(cls := assistant(ScriptedModel(), on_start=on_start))

    # When it is woken with properties, and reached again with others
    await app.agent(cls, "room", props={"plan": "pro"}).get_messages()
    await app.agent(cls, "room", props={"plan": "free"}).get_messages()

    # Then it started once, with the first
    assert started == [{"plan": "pro"}]


@pytest.mark.case(2)
async def test_one_turn_stores_exactly_the_question_and_the_answer(open_app: OpenApp, tmp_path: Path) -> None:
    app = await open_app(cls := assistant(ScriptedModel(says("Hello ", "there."))))

    await app.agent(cls).chat("Hi")

    question, answer = await app.agent(cls).get_messages()
    assert (question.role, question.text) == ("user", "Hi")
    assert answer.role == "assistant"
    assert [part for part in answer.parts if part["type"] == "text"] == [
        {"type": "text", "text": "Hello there.", "state": "done"}
    ]
    assert Database(tmp_path).texts() == ["Hi", "Hello there."]


@pytest.mark.memory_case(187)
@pytest.mark.case(3)
async def test_turns_pile_up_in_order_and_the_model_sees_those_before(open_app: OpenApp) -> None:
    model = ScriptedModel(says("one"), says("two"), says("three"))
    app = await open_app(cls := assistant(model))
    agent = app.agent(cls)

    for question in ("first", "second", "third"):
        await agent.chat(question)

    assert [m.text for m in await agent.get_messages()] == ["first", "one", "second", "two", "third", "three"]
    assert prompt(model.last_request) == [
        ("user", "first"),
        ("assistant", "one"),
        ("user", "second"),
        ("assistant", "two"),
        ("user", "third"),
    ]


@pytest.mark.case(4)
async def test_a_new_agent_has_no_history(open_app: OpenApp) -> None:
    app = await open_app(cls := assistant(ScriptedModel()))
    assert await app.agent(cls).get_messages() == []
    assert (await live(app.agent(cls))).messages == []


@pytest.mark.memory_case(190)
@pytest.mark.case(5)
@pytest.mark.parametrize("read", ["messages", "get_messages", "get_history", "result"])
async def test_the_history_handed_out_is_a_copy(open_app: OpenApp, read: str) -> None:
    # Given a conversation
    app = await open_app(cls := assistant(ScriptedModel(says("Hello"))))
    agent = await live(app.agent(cls))
    result = await agent.save_messages(
        [Message("q", "user", [{"type": "text", "text": "Hi"}], {"tags": ["a"]})]
    )
    before = [m.copy() for m in agent.messages]

    # When somebody scribbles over what they were given
    match read:
        case "messages":
            given = agent.messages
        case "get_messages":
            given = await agent.get_messages()
        case "get_history":
            given = await agent.session.get_history()
        case _:
            assert result.message is not None
            given = [result.message]
    given[0].parts[0]["text"] = "changed"
    given[0].parts.append({"type": "text", "text": "more"})
    if given[0].metadata:
        given[0].metadata["tags"].append("b")
    given.clear()

    # Then the conversation is what it was
    assert agent.messages == before
    assert await app.agent(cls).get_messages() == before


@pytest.mark.case(5)
async def test_what_is_given_is_copied_too(open_app: OpenApp) -> None:
    app = await open_app(cls := assistant(ScriptedModel(says("Hello"))))
    given = Message("q", "user", [{"type": "text", "text": "Hi"}], {"tags": ["a"]})
    mark = {"ticket": [7]}

    await app.agent(cls).save_messages(given, metadata=mark)
    given.parts[0]["text"] = "changed"
    mark["ticket"].append(8)

    question = (await app.agent(cls).get_messages())[0]
    assert (question.text, question.metadata) == ("Hi", {"tags": ["a"], "turnMetadata": {"ticket": [7]}})


@pytest.mark.memory_case(193)
@pytest.mark.case(6)
async def test_clearing_empties_the_conversation_in_memory_and_in_storage(
    open_app: OpenApp, tmp_path: Path
) -> None:
    model = ScriptedModel(says("one"), says("two"))
    app = await open_app(cls := assistant(model))
    agent = app.agent(cls)
    await agent.save_messages("first")

    await agent.clear_messages()

    assert await agent.get_messages() == []
    assert Database(tmp_path).messages() == []
    await agent.save_messages("second")
    assert prompt(model.last_request) == [("user", "second")]
    assert Database(tmp_path).texts() == ["second", "two"]


@pytest.mark.case(11)
@pytest.mark.parametrize("text", ["", "  \n"])
async def test_a_message_without_any_text_still_asks_the_model(open_app: OpenApp, text: str) -> None:
    # Given a model that refuses empty messages, as providers do
    model = ScriptedModel(says("Yes?"))
    app = await open_app(cls := assistant(model))

    # When nothing is said
    result = await app.agent(cls).chat(text)

    # Then it answers, and the message is stored as it was
    assert (result.status, result.text) == ("completed", "Yes?")
    assert [m.text for m in await app.agent(cls).get_messages()] == [text, "Yes?"]
    assert [role for role, _ in prompt(model.last_request)] == ["user"]


@pytest.mark.case(12)
async def test_tools_given_to_chat_are_ignored_with_a_warning(
    open_app: OpenApp, caplog: pytest.LogCaptureFixture
) -> None:
    model = ScriptedModel(says("ok"))
    app = await open_app(cls := assistant(model))

    @tool
    def sneak() -> str:
        """Not for you."""
        return ""

    with caplog.at_level(logging.WARNING, "everthink"):
        await app.agent(cls).chat("Hi", tools=[sneak])

    assert model.last_request.tools == []
    assert "define tools on Assistant" in caplog.text


@pytest.mark.case(13)
@pytest.mark.parametrize("form", ["message", "mapping"])
async def test_chat_takes_a_whole_message_and_keeps_its_id_and_metadata(open_app: OpenApp, form: str) -> None:
    app = await open_app(cls := assistant(ScriptedModel(says("ok"))))
    given = Message("q-1", "user", [{"type": "text", "text": "Hi"}], {"from": "form"})

    await app.agent(cls).chat(given if form == "message" else given.to_json())

    stored = (await app.agent(cls).get_messages())[0]
    assert (stored.id, stored.text, stored.metadata) == ("q-1", "Hi", {"from": "form"})


@pytest.mark.case(14)
async def test_chat_takes_a_message_of_several_parts(open_app: OpenApp) -> None:
    model = ScriptedModel(says("A cat."))
    app = await open_app(cls := assistant(model))
    parts = [
        {"type": "text", "text": "What is"},
        {"type": "text", "text": " this?"},
        {"type": "file", "url": "data:image/png;base64,AA==", "mediaType": "image/png"},
        {"type": "data-note", "data": {"kept": True}},
    ]

    await app.agent(cls).chat({"role": "user", "parts": parts})

    assert (await app.agent(cls).get_messages())[0].parts == parts
    (asked,) = model.last_request.messages
    assert [type(part).__name__ for part in asked.content] == ["TextPart", "TextPart", "FilePart"]


@pytest.mark.memory_case(188)
@pytest.mark.case(15)
async def test_a_user_message_sent_twice_under_one_id_is_kept_once(open_app: OpenApp, tmp_path: Path) -> None:
    model = ScriptedModel(says("one"), says("two"))
    app = await open_app(cls := assistant(model))
    agent = app.agent(cls)

    await agent.chat(user("Hi", "same"))
    await agent.chat(user("Hi", "same"))

    texts = [m.text for m in await agent.get_messages()]
    assert texts == Database(tmp_path).texts() == ["Hi", "one", "two"]
    assert prompt(model.last_request)[:2] == [("user", "Hi"), ("assistant", "one")]


@pytest.mark.memory_case(188)
@pytest.mark.parametrize(
    "send",
    [
        lambda agent, message: agent.save_messages(message),
        lambda agent, message: agent.submit_messages(message),
        lambda agent, message: agent.run_turn(message),
        lambda agent, message: agent.save_messages([user("first", "new"), message]),
        lambda agent, message: agent.save_messages(lambda messages: message),
    ],
    ids=["save", "submit", "run", "behind another", "a function"],
)
async def test_another_message_under_a_known_id_is_refused_and_nothing_is_stored(
    open_app: OpenApp, tmp_path: Path, send: Any
) -> None:
    model = ScriptedModel(says("one"))
    app = await open_app(cls := assistant(model))
    agent = app.agent(cls)
    await agent.save_messages(user("Hi", "same"))

    with pytest.raises(InvalidMessage, match=r"is 'same', which another user message has already"):
        await send(agent, user("Something else", "same"))

    assert Database(tmp_path).texts() == ["Hi", "one"]
    assert len(model.requests) == 1
    assert await agent.list_submissions() == []


async def test_two_messages_under_one_id_are_refused(open_app: OpenApp, tmp_path: Path) -> None:
    app = await open_app(cls := assistant(ScriptedModel()))
    with pytest.raises(InvalidMessage, match="'same'"):
        await app.agent(cls).save_messages([user("One", "same"), user("Two", "same")])
    assert Database(tmp_path).texts() == []


async def test_a_message_whose_id_waits_in_the_queue_is_known_too(open_app: OpenApp) -> None:
    gate = asyncio.Event()
    model = ScriptedModel(waits(gate).says("one"), says("two"))
    app = await open_app(cls := assistant(model))
    agent = app.agent(cls)
    running = asyncio.ensure_future(agent.save_messages("first"))
    await agent.submit_messages(user("Hi", "same"))
    with pytest.raises(InvalidMessage, match="'same'"):
        await agent.submit_messages(user("Something else", "same"))
    gate.set()
    await running
    await agent.wait_until_stable()
    assert [m.text for m in await agent.get_messages()] == ["first", "one", "Hi", "two"]


@pytest.mark.case(15)
async def test_a_known_message_in_front_of_a_new_one_does_not_move_the_conversation(
    open_app: OpenApp, tmp_path: Path
) -> None:
    # Given a conversation whose first message is known by its id
    model = ScriptedModel(says("one"), says("two"))
    app = await open_app(cls := assistant(model))
    agent = app.agent(cls)
    await agent.save_messages(user("first", "q-1"))

    # When it is sent again, with a new one behind it
    await agent.save_messages([user("first", "q-1"), user("second", "q-2")])

    # Then the new one hangs below the answer, which the model sees
    assert [m.text for m in await agent.get_messages()] == ["first", "one", "second", "two"]
    assert prompt(model.last_request) == [("user", "first"), ("assistant", "one"), ("user", "second")]
    parents = {r["id"]: r["parent"] for r in Database(tmp_path).rows("SELECT id, parent FROM messages")}
    assert parents["q-2"] == (await agent.get_messages())[1].id


@pytest.mark.memory_case(191)
@pytest.mark.case(17)
async def test_appending_through_the_session_keeps_memory_and_storage_in_step(
    open_app: OpenApp, tmp_path: Path
) -> None:
    app = await open_app(cls := assistant(ScriptedModel(says("one"))))
    agent = await live(app.agent(cls))
    await agent.save_messages("first")

    assert await agent.session.append_message(user("second", "q-2")) is True
    assert await agent.session.append_message(user("again", "q-2")) is False

    assert [m.text for m in agent.messages] == Database(tmp_path).texts() == ["first", "one", "second"]


@pytest.mark.memory_case(192)
@pytest.mark.case(18)
async def test_updating_an_unknown_id_through_the_session_adds_nothing(
    open_app: OpenApp, tmp_path: Path
) -> None:
    app = await open_app(cls := assistant(ScriptedModel(says("one"))))
    agent = await live(app.agent(cls))
    await agent.save_messages("first")

    assert await agent.session.update_message(user("ghost", "nobody")) is False

    assert [m.text for m in agent.messages] == Database(tmp_path).texts() == ["first", "one"]


@pytest.mark.memory_case(191)
@pytest.mark.case(19)
async def test_an_append_helper_of_a_subclass_writes_storage_and_memory_together(
    open_app: OpenApp, tmp_path: Path
) -> None:
    # Given an agent with a method of its own that writes to the conversation
    async def note(self: Think, text: str) -> list[str]:
        await self.session.append_message(user(text, f"note-{text}"))
        return [m.text for m in self.messages]

    model = ScriptedModel(says("ok"))
    app = await open_app(cls := assistant(model, note=note))

    # When it is called through a handle
    seen = await app.agent(cls).note("remember")

    # Then memory, storage and the next prompt have it
    assert seen == Database(tmp_path).texts() == ["remember"]
    await app.agent(cls).save_messages("go")
    assert prompt(model.last_request) == [("user", "remember"), ("user", "go")]


@pytest.mark.case(20)
async def test_an_agent_without_a_model_says_how_to_give_it_one(open_app: OpenApp, tmp_path: Path) -> None:
    app = await open_app(cls := assistant(None))
    heard = Heard()

    with pytest.raises(NoModel, match=r"Assistant names no model.*model.*get_model\(\)"):
        await app.agent(cls).save_messages("Hi")
    result = await app.agent(cls).chat("Hi", callback=heard)

    assert heard.names == ["start", "error"]
    assert "get_model()" in heard.told[-1][1]
    assert result.status == "error"
    assert "get_model()" in (result.error or "")
    assert Database(tmp_path).statuses() == ["error", "error"]


@pytest.mark.case(20)
@pytest.mark.parametrize(
    ("name", "named"), [("opnai:gpt-5", "'opnai'"), ("nonsense", "'nonsense'"), ("", "''")]
)
async def test_a_model_name_nobody_serves_fails_the_turn_and_is_named(
    open_app: OpenApp, name: str, named: str
) -> None:
    app = await open_app(cls := assistant(name))
    with pytest.raises(UnknownModel) as failed:
        await app.agent(cls).save_messages("Hi")
    assert named in str(failed.value)
    assert [m.text for m in await app.agent(cls).get_messages()] == ["Hi"]


@pytest.mark.case(20)
async def test_get_model_may_choose_the_model_of_each_turn(open_app: OpenApp) -> None:
    models = [ScriptedModel(says("one"), name="a"), ScriptedModel(says("two"), name="b")]
    app = await open_app(cls := assistant(None, get_model=lambda self: models[len(self.messages) // 2]))
    assert (await app.agent(cls).save_messages("first")).text == "one"
    assert (await app.agent(cls).save_messages("second")).text == "two"


@pytest.mark.case(22)
@pytest.mark.parametrize("how", ["evicted", "reopened"])
async def test_messages_are_there_when_the_agent_is_loaded_anew(open_app: OpenApp, how: str) -> None:
    # Given a conversation
    model = ScriptedModel(says("one"), says("two"))
    app = await open_app(cls := assistant(model))
    await app.agent(cls, "room").save_messages(user("first", "q-1"))
    before = await app.agent(cls, "room").get_messages()

    # When the agent leaves memory, or the whole app is closed and opened again
    if how == "evicted":
        await app.evict(cls, "room")
    else:
        await app.close()
        app = await open_app(cls)

    # Then it knows everything, and goes on from there
    assert await app.agent(cls, "room").get_messages() == before
    await app.agent(cls, "room").save_messages("second")
    assert prompt(model.last_request) == [("user", "first"), ("assistant", "one"), ("user", "second")]
    assert roles(await app.agent(cls, "room").get_messages()) == ["user", "assistant"] * 2


@pytest.mark.case(23)
async def test_cancelling_what_does_not_run_is_harmless(open_app: OpenApp) -> None:
    app = await open_app(cls := assistant(ScriptedModel(says("ok"))))
    agent = app.agent(cls)
    assert await agent.cancel_chat("nothing") is False
    assert (await agent.save_messages("Hi")).status == "completed"


@pytest.mark.case(24)
async def test_a_tool_call_is_followed_by_a_text_step_in_the_same_turn(open_app: OpenApp) -> None:
    class Calculator(Think):
        model = ScriptedModel(calls("add", a=2, b=3), says("It is 5."))

        @tool
        async def add(self, a: int, b: int) -> int:
            """Add two numbers."""
            return a + b

    app = await open_app(cls := Calculator)

    result = await app.agent(cls).save_messages("2 + 3?")

    assert result.text == "It is 5."
    assert result.message is not None
    (call,) = result.message.tool_parts
    assert (call["type"], call["state"], call["output"]) == ("tool-add", "output-available", 5)
    assert roles(await app.agent(cls).get_messages()) == ["user", "assistant"]
    assert [p["type"] for p in result.message.parts] == ["step-start", "tool-add", "step-start", "text"]


async def test_agents_and_apps_keep_their_conversations_apart(open_app: OpenApp, tmp_path: Path) -> None:
    # Given two names of one class, a second class of the same name in another app, and the same ids
    first, second = ScriptedModel(says("one"), says("two")), ScriptedModel(says("three"))
    app = await open_app(cls := assistant(first))
    other = await open_app(twin := assistant(second), store=f"sqlite:///{tmp_path}/other.db")

    # When each is asked
    await app.agent(cls, "a").save_messages(user("to a", "q"))
    await app.agent(cls, "b").save_messages(user("to b", "q"))
    await other.agent(twin, "a").save_messages(user("to the other a", "q"))
    await app.agent(cls, "a").clear_messages()

    # Then each has its own conversation
    assert await app.agent(cls, "a").get_messages() == []
    assert [m.text for m in await app.agent(cls, "b").get_messages()] == ["to b", "two"]
    assert [m.text for m in await other.agent(twin, "a").get_messages()] == ["to the other a", "three"]


async def test_callers_that_arrive_together_share_one_start(open_app: OpenApp) -> None:
    starts: list[str] = []

    async def on_start(self: Think, props: Any = None) -> None:
        await asyncio.sleep(0)
        starts.append(self.name)

    app = await open_app(cls := assistant(ScriptedModel(), on_start=on_start))
    instances = await asyncio.gather(*(live(app.agent(cls, "room")) for _ in range(5)))
    assert len(set(map(id, instances))) == 1
    assert starts == ["room"]


async def test_a_start_that_raises_fails_its_caller_and_is_tried_again(open_app: OpenApp) -> None:
    starts: list[int] = []

    async def on_start(self: Think, props: Any = None) -> None:
        starts.append(1)
        if len(starts) == 1:
            raise RuntimeError("not yet")

    app = await open_app(cls := assistant(ScriptedModel(says("ok")), on_start=on_start))
    with pytest.raises(RuntimeError, match="not yet"):
        await app.agent(cls).save_messages("Hi")
    assert (await app.agent(cls).save_messages("Hi")).text == "ok"
