"""Input that is not a message: refused with the path of the field, before anything is stored."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from everthink import App, Message, Think
from everthink.errors import AgentError, InvalidMessage, InvalidSettings
from everthink.messages import MAX_PARTS
from everthink.testing.scripted import ScriptedModel, says
from tests.conftest import OpenApp
from tests.support.agents import assistant
from tests.support.turns import Database, Heard, home_of

pytestmark = pytest.mark.anyio

TEXT = {"type": "text", "text": "Hi"}


def endless() -> dict[str, Any]:
    part: dict[str, Any] = {"type": "data-loop"}
    part["data"] = part
    return {"role": "user", "parts": [part]}


def deep(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


BAD: list[Any] = [
    pytest.param(None, "message", id="nothing"),
    pytest.param(7, "message", id="a number"),
    pytest.param(3.5, "message", id="a float"),
    pytest.param(True, "message", id="a truth"),
    pytest.param(object(), "message", id="an object"),
    pytest.param([None], "messages[0]", id="a list of nothing"),
    pytest.param(["fine", 7], "messages[1]", id="a number in a list"),
    pytest.param([["nested"]], "messages[0]", id="a list in a list"),
    pytest.param(b"bytes", "message", id="bytes"),
    pytest.param([b"bytes"], "messages[0]", id="bytes in a list"),
    pytest.param({}, "message.role", id="an empty object"),
    pytest.param({"parts": [TEXT]}, "message.role", id="no role"),
    pytest.param({"role": "robot", "parts": [TEXT]}, "message.role", id="an unknown role"),
    pytest.param({"role": ["user"], "parts": [TEXT]}, "message.role", id="a list of roles"),
    pytest.param({"role": {"is": "user"}, "parts": [TEXT]}, "message.role", id="a role object"),
    pytest.param({"role": 1, "parts": [TEXT]}, "message.role", id="a numbered role"),
    pytest.param({"id": 7, "role": "user", "parts": [TEXT]}, "message.id", id="a number as id"),
    pytest.param({"id": ["a"], "role": "user", "parts": [TEXT]}, "message.id", id="a list as id"),
    pytest.param({"id": "a\x00", "role": "user", "parts": [TEXT]}, "message.id", id="an id with a NUL"),
    pytest.param({"role": "user"}, "message.parts", id="no parts"),
    pytest.param({"role": "user", "parts": None}, "message.parts", id="parts of nothing"),
    pytest.param({"role": "user", "parts": "Hi"}, "message.parts", id="text as parts"),
    pytest.param({"role": "user", "parts": {"type": "text"}}, "message.parts", id="one part, no list"),
    pytest.param({"role": "user", "parts": 3}, "message.parts", id="a number of parts"),
    pytest.param({"role": "user", "content": "Hi"}, "message.parts", id="content instead of parts"),
    pytest.param({"role": "user", "parts": [TEXT] * (MAX_PARTS + 1)}, "message.parts", id="too many parts"),
    pytest.param({"role": "user", "parts": ["Hi"]}, "message.parts[0]", id="text as a part"),
    pytest.param({"role": "user", "parts": [TEXT, None]}, "message.parts[1]", id="nothing as a part"),
    pytest.param({"role": "user", "parts": [{}]}, "message.parts[0].type", id="a part without a type"),
    pytest.param({"role": "user", "parts": [{"type": ""}]}, "message.parts[0].type", id="an empty type"),
    pytest.param({"role": "user", "parts": [{"type": 1}]}, "message.parts[0].type", id="a numbered type"),
    pytest.param(
        {"role": "user", "parts": [{"type": "text"}]}, "message.parts[0].text", id="text without text"
    ),
    pytest.param(
        {"role": "user", "parts": [{"type": "text", "text": 7}]},
        "message.parts[0].text",
        id="a number as text",
    ),
    pytest.param(
        {"role": "assistant", "parts": [{"type": "reasoning"}]}, "message.parts[0].text", id="empty reasoning"
    ),
    pytest.param(
        {"role": "user", "parts": [{"type": "file", "mediaType": "image/png"}]},
        "message.parts[0].url",
        id="a file without a place",
    ),
    pytest.param(
        {"role": "user", "parts": [{"type": "file", "url": "data:,"}]},
        "message.parts[0].mediaType",
        id="a file without a type",
    ),
    pytest.param(
        {"role": "assistant", "parts": [{"type": "tool-look", "state": "input-available"}]},
        "message.parts[0].toolCallId",
        id="a call without an id",
    ),
    pytest.param(
        {"role": "assistant", "parts": [{"type": "tool-look", "toolCallId": "c"}]},
        "message.parts[0].state",
        id="a call without a state",
    ),
    pytest.param(
        {
            "role": "assistant",
            "parts": [{"type": "dynamic-tool", "toolCallId": "c", "state": "input-available"}],
        },
        "message.parts[0].toolName",
        id="a dynamic call without a name",
    ),
    pytest.param(
        {"role": "user", "parts": [{"type": "data-note"}]}, "message.parts[0].data", id="data without data"
    ),
    pytest.param(
        {"role": "user", "parts": [TEXT], "metadata": "x"}, "message.metadata", id="text as metadata"
    ),
    pytest.param(
        {"role": "user", "parts": [TEXT], "metadata": [1]}, "message.metadata", id="a list as metadata"
    ),
    pytest.param(
        {"role": "user", "parts": [{"type": "data-x", "data": object()}]},
        "message",
        id="a value that is no JSON",
    ),
    pytest.param(
        {"role": "user", "parts": [{"type": "data-x", "data": {1, 2}, "f": print}]},
        "message",
        id="a function",
    ),
    pytest.param(
        {"role": "user", "parts": [TEXT], "metadata": {("a", "b"): 1}}, "message", id="a key that is no text"
    ),
    pytest.param(endless(), "message", id="a part inside itself"),
    pytest.param(
        {"role": "user", "parts": [{"type": "data-x", "data": deep(100_000)}]},
        "message",
        id="a bottomless value",
    ),
    pytest.param(Message("m", "robot", []), "message.role", id="a Message with a wrong role"),  # type: ignore[arg-type]
    pytest.param(
        Message("m", "user", [{"type": "text"}]), "message.parts[0].text", id="a Message with a bad part"
    ),
    pytest.param(
        [Message("a", "user", [TEXT]), {"role": "user", "parts": [TEXT, {"type": "text"}]}],
        "messages[1].parts[1].text",
        id="the second part of the second message",
    ),
]

Door = Callable[[Any, Any], Awaitable[Any]]


async def chat(agent: Any, value: Any) -> None:
    await agent.chat(value, callback=Heard())


async def function(agent: Any, value: Any) -> None:
    await agent.save_messages(lambda messages: value)


DOORS: dict[str, Door] = {
    "save_messages": lambda agent, value: agent.save_messages(value),
    "chat": chat,
    "run_turn": lambda agent, value: agent.run_turn(value),
    "submit_messages": lambda agent, value: agent.submit_messages(value),
    "add_messages": lambda agent, value: agent.add_messages(value),
    "a function's result": function,
}


async def opened(open_app: OpenApp) -> tuple[App, type[Think], ScriptedModel]:
    model = ScriptedModel(says("Still here."))
    app = await open_app(cls := assistant(model), store=":memory:")
    return app, cls, model


@pytest.mark.parametrize(("value", "path"), BAD)
async def test_it_is_refused_with_the_path_of_the_field(open_app: OpenApp, value: Any, path: str) -> None:
    app, cls, model = await opened(open_app)
    home = await home_of(app, cls)

    with pytest.raises(InvalidMessage) as refused:
        await app.agent(cls).save_messages(value)

    assert refused.value.path == path
    assert str(refused.value).startswith(f"Invalid message: {path} ")
    assert "Nothing was stored." in str(refused.value)
    assert await home.store.fetch("SELECT * FROM messages") == []
    assert await home.store.fetch("SELECT * FROM turns") == []
    assert (model.requests, len(home.chat.host.aborts), home.chat.door.queue.is_idle) == ([], 0, True)
    assert (await app.agent(cls).save_messages("Are you there?")).text == "Still here."


@pytest.mark.parametrize("door", [name for name in DOORS if name != "a function's result"])
@pytest.mark.parametrize("value", [7, ["fine", {"role": "user"}], {"role": ["user"], "parts": []}])
async def test_it_is_refused_at_every_door_and_nothing_is_stored(
    open_app: OpenApp, tmp_path: Path, door: str, value: Any
) -> None:
    app = await open_app(cls := assistant(model := ScriptedModel(says("Still here."))))
    home = await home_of(app, cls)

    with pytest.raises(InvalidMessage):
        await DOORS[door](app.agent(cls), value)

    assert (Database(tmp_path).turns(), Database(tmp_path).messages()) == ([], [])
    assert (model.requests, len(home.chat.host.aborts), home.chat.door.queue.is_idle) == ([], 0, True)
    assert (await app.agent(cls).save_messages("Are you there?")).text == "Still here."


@pytest.mark.parametrize("value", [7, ["fine", {"role": "user"}], None])
async def test_a_function_that_returns_it_fails_its_turn_and_nothing_is_stored(
    open_app: OpenApp, tmp_path: Path, value: Any
) -> None:
    app = await open_app(cls := assistant(model := ScriptedModel(says("Still here."))))
    with pytest.raises(InvalidMessage):
        await function(app.agent(cls), value)
    assert (Database(tmp_path).messages(), Database(tmp_path).statuses(), model.requests) == (
        [],
        ["error"],
        [],
    )
    assert (await app.agent(cls).save_messages("Are you there?")).text == "Still here."


STRANGE: list[Any] = [
    pytest.param({"id": "", "role": "user", "parts": [TEXT]}, id="an empty id gets one"),
    pytest.param({"id": None, "role": "user", "parts": [TEXT]}, id="no id gets one"),
    pytest.param({"role": "user", "parts": (TEXT,)}, id="a tuple of parts"),
    pytest.param({"role": "user", "parts": [TEXT], "createdAt": 5}, id="a date that is a number"),
    pytest.param(
        {"role": "user", "parts": [TEXT], "content": "Hi", "revisionId": "r"}, id="fields of an older client"
    ),
    pytest.param(
        {"role": "user", "parts": [TEXT, {"type": "source-page", "sourceId": "s"}]},
        id="a source of a new kind",
    ),
    pytest.param(
        {"role": "user", "parts": [TEXT, {"type": "data-x", "data": 2**70}]}, id="a very large number"
    ),
    pytest.param("half an emoji \ud83d", id="text that is not Unicode"),
    pytest.param("nul \x00 and \u2028 and \x1b[31m", id="control characters"),
    pytest.param("'; DROP TABLE messages; --", id="a little SQL"),
    pytest.param("x" * 1_000_000, id="a million letters"),
    pytest.param({"id": "'; --\n☃" * 50, "role": "user", "parts": [TEXT]}, id="a wild id"),
]


@pytest.mark.parametrize("value", STRANGE)
async def test_what_is_only_strange_is_taken_and_survives_a_restart(open_app: OpenApp, value: Any) -> None:
    app = await open_app(cls := assistant(ScriptedModel(says("Well."))))
    assert (await app.agent(cls).save_messages(value)).text == "Well."
    before = await app.agent(cls).get_messages()
    assert len(before) == 2
    assert before[0].id
    await app.evict(cls, "default")
    assert await app.agent(cls).get_messages() == before


SLIPS: list[Any] = [
    pytest.param([{"type": "txt", "text": "Hi"}], "message.parts[0].type", "Did you mean 'text'?", id="txt"),
    pytest.param([TEXT, {"type": "files"}], "message.parts[1].type", "Did you mean 'file'?", id="files"),
    pytest.param([{"type": "hologram"}], "message.parts[0].type", "there are text, reasoning", id="no kind"),
    pytest.param(
        [{"type": "file", "url": "/etc/passwd", "mediaType": "text/plain"}],
        "message.parts[0].url",
        "It takes http:, https: or data:",
        id="a path",
    ),
    pytest.param(
        [{"type": "file", "url": "file:///etc/passwd", "mediaType": "text/plain"}],
        "message.parts[0].url",
        "which no model can open",
        id="a file of this machine",
    ),
]


@pytest.mark.parametrize(
    "made", [lambda parts: {"role": "user", "parts": parts}, lambda p: Message("m", "user", p)]
)
@pytest.mark.parametrize(("parts", "path", "words"), SLIPS)
async def test_a_part_that_no_model_would_be_shown_is_refused(
    open_app: OpenApp, made: Any, parts: Any, path: str, words: str
) -> None:
    app, cls, model = await opened(open_app)
    with pytest.raises(InvalidMessage) as refused:
        await app.agent(cls).save_messages(made(parts))
    assert (refused.value.path, model.requests) == (path, [])
    assert words in str(refused.value)
    assert await app.agent(cls).get_messages() == []


@pytest.mark.parametrize(
    ("field", "words"),
    [
        ("metdata", "Did you mean 'metadata'?"),
        ("created_at", "Did you mean 'createdAt'?"),
        ("unknown", "A message has id, role, parts, metadata, createdAt."),
        (7, "A message has id, role"),
    ],
)
@pytest.mark.parametrize("door", [name for name in DOORS if name != "a function's result"])
async def test_a_field_that_would_be_lost_is_refused(
    open_app: OpenApp, door: str, field: Any, words: str
) -> None:
    app, cls, _ = await opened(open_app)
    with pytest.raises(InvalidMessage) as refused:
        await DOORS[door](app.agent(cls), {"role": "user", "parts": [TEXT], field: {"for": "Ada"}})
    assert refused.value.path == f"message.{field}"
    assert words in str(refused.value)
    assert await app.agent(cls).get_messages() == []


@pytest.mark.parametrize(
    ("message", "path"),
    [
        (Message("m", "usr", [TEXT]), "message.role"),  # type: ignore[arg-type]
        (Message("m", "user", "text"), "message.parts"),  # type: ignore[arg-type]
    ],
)
async def test_a_message_that_was_made_wrongly_is_told_when_it_is_given(
    open_app: OpenApp, message: Message, path: str
) -> None:
    app, cls, _ = await opened(open_app)
    with pytest.raises(InvalidMessage) as refused:
        await app.agent(cls).save_messages(message)
    assert refused.value.path == path


@pytest.mark.parametrize("door", ["save_messages", "chat", "run_turn", "submit_messages"])
async def test_a_channel_is_text(open_app: OpenApp, door: str) -> None:
    app, cls, model = await opened(open_app)
    with pytest.raises(InvalidSettings, match=r": channel is 5, an int\. It takes text, or None\."):
        await getattr(app.agent(cls), door)("Hi", channel=5)
    assert (await app.agent(cls).get_messages(), model.requests) == ([], [])


@pytest.mark.parametrize("name", ["submission_id", "idempotency_key"])
@pytest.mark.parametrize(
    ("value", "words"), [("", "is '', a str"), (" ", "is ' '"), (7, "is 7, an int"), (b"k", "is b'k'")]
)
async def test_the_key_of_a_submission_is_text_with_something_in_it(
    open_app: OpenApp, name: str, value: Any, words: str
) -> None:
    app, cls, _ = await opened(open_app)
    for mode in {}, {"mode": "submit"}:
        agent = app.agent(cls)
        submit: Any = agent.run_turn if mode else agent.submit_messages
        with pytest.raises(InvalidSettings, match=rf": {name} {words}.*It takes text with something in it"):
            await submit("Hi", **mode, **{name: value})
    assert await app.agent(cls).list_submissions() == []


@pytest.mark.parametrize("name", ["", "x" * 513, "a\x00b", None, 7])
async def test_an_agent_has_a_name_of_reasonable_length(open_app: OpenApp, name: Any) -> None:
    app, cls, _ = await opened(open_app)
    with pytest.raises(AgentError, match="name is text"):
        await app.agent(cls, name).save_messages("Hi")


@pytest.mark.parametrize("name", ["x" * 512, "../../etc/passwd", "a/b/c", "☃ ' \"", " "])
async def test_any_other_name_is_just_a_name(open_app: OpenApp, name: str) -> None:
    app, cls, _ = await opened(open_app)
    assert (await app.agent(cls, name).save_messages("Hi")).text == "Still here."


@pytest.mark.parametrize("metadata", [{"f": print}, ["a", "list"], "text"])
async def test_turn_metadata_that_is_no_json_object_stores_nothing(
    open_app: OpenApp, tmp_path: Path, metadata: Any
) -> None:
    app = await open_app(cls := assistant(model := ScriptedModel(says("Still here."))))
    home = await home_of(app, cls)
    for door in ("save_messages", "submit_messages"):
        with pytest.raises(AgentError):
            await getattr(app.agent(cls), door)("Hi", metadata=metadata)
    with pytest.raises(AgentError):
        await app.agent(cls).chat("Hi", metadata=metadata)
    assert (Database(tmp_path).turns(), Database(tmp_path).messages()) == ([], [])
    assert (model.requests, len(home.chat.host.aborts), home.chat.door.queue.is_idle) == ([], 0, True)
    assert (await app.agent(cls).save_messages("Are you there?")).text == "Still here."


@pytest.mark.parametrize("tools", ["locate", [7], [{"description": "no name"}], [{"name": 7}], {"name": "x"}])
async def test_client_tools_that_are_none_are_refused_and_nothing_is_stored(
    open_app: OpenApp, tmp_path: Path, tools: Any
) -> None:
    app = await open_app(cls := assistant(ScriptedModel(says("Still here."))))
    home = await home_of(app, cls)
    with pytest.raises(AgentError):
        await app.agent(cls).chat("Hi", client_tools=tools)
    assert Database(tmp_path).turns() == []
    assert (len(home.chat.host.aborts), home.chat.door.queue.is_idle) == (0, True)
    assert (await app.agent(cls).save_messages("Are you there?")).text == "Still here."
