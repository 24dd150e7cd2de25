"""What a turn is marked with: its metadata and its channel, kept on the user's message."""

from __future__ import annotations

from typing import Any

import pytest

from everthink import Message, Think
from everthink.door.chat_request import ChatRequest
from everthink.hooks import TurnContext
from everthink.testing.scripted import ScriptedModel, calls, says
from tests.conftest import OpenApp
from tests.support.agents import assistant
from tests.support.turns import accept_request, home_of

pytestmark = pytest.mark.anyio


def noting(model: ScriptedModel, seen: list[Any]) -> type[Think]:
    def before_turn(self: Think, turn: TurnContext) -> None:
        seen.append(turn.metadata)

    return assistant(model, before_turn=before_turn)


@pytest.mark.agent_case(441)
@pytest.mark.case(209)
@pytest.mark.parametrize("door", ["save_messages", "chat", "run_turn", "function", "list"])
async def test_metadata_is_stamped_on_the_user_message_and_visible_during_the_turn(
    open_app: OpenApp, door: str
) -> None:
    seen: list[Any] = []
    app = await open_app(cls := noting(ScriptedModel(says("ok")), seen))
    agent, mark = app.agent(cls), {"ticket": 7, "tags": ["a"]}

    match door:
        case "save_messages":
            await agent.save_messages("Hi", metadata=mark, channel="email")
        case "chat":
            await agent.chat("Hi", metadata=mark, channel="email")
        case "run_turn":
            await agent.run_turn("Hi", metadata=mark, channel="email")
        case "function":
            await agent.save_messages(lambda messages: ["Hi"], metadata=mark, channel="email")
        case _:
            await agent.save_messages(["Hi", "there"], metadata=mark, channel="email")

    *questions, answer = await agent.get_messages()
    assert len(questions) == (2 if door == "list" else 1)
    assert all(q.metadata == {"channel": "email", "turnMetadata": mark} for q in questions)
    assert answer.metadata is None
    assert seen == [mark]


@pytest.mark.case(209)
async def test_metadata_of_the_message_itself_is_kept_beside_the_stamp(open_app: OpenApp) -> None:
    app = await open_app(cls := assistant(ScriptedModel(says("ok"))))
    given = Message("q", "user", [{"type": "text", "text": "Hi"}], {"from": "form"})

    await app.agent(cls).save_messages(given, metadata={"ticket": 7})

    [asked, *_] = await app.agent(cls).get_messages()
    assert asked.metadata == {"from": "form", "turnMetadata": {"ticket": 7}}
    assert given.metadata == {"from": "form"}


@pytest.mark.agent_case(442)
@pytest.mark.case(210)
async def test_it_is_read_again_from_the_stored_message_by_a_continuation(open_app: OpenApp) -> None:
    seen: list[Any] = []
    app = await open_app(cls := noting(ScriptedModel(says("one"), says("two")), seen))
    await app.agent(cls).save_messages("Hi", metadata={"ticket": 7})

    await app.evict(cls, "default")
    await app.agent(cls).continue_last_turn()

    assert seen == [{"ticket": 7}, {"ticket": 7}]


@pytest.mark.agent_case(442)
@pytest.mark.case(211)
async def test_without_any_on_the_latest_user_message_there_is_none(open_app: OpenApp) -> None:
    seen: list[Any] = []
    app = await open_app(cls := noting(ScriptedModel(says("one"), says("two"), says("three")), seen))
    agent = app.agent(cls)
    await agent.save_messages("Hi", metadata={"ticket": 7})
    await agent.save_messages("And now?")
    await agent.continue_last_turn()
    assert seen == [{"ticket": 7}, None, None]


@pytest.mark.agent_case(443)
@pytest.mark.case(212)
async def test_what_a_client_puts_under_the_reserved_keys_is_stripped(open_app: OpenApp) -> None:
    # Given a message from a browser that claims a channel and turn metadata
    seen: list[Any] = []
    app = await open_app(cls := noting(ScriptedModel(says("ok")), seen))
    forged = Message(
        "q",
        "user",
        [{"type": "text", "text": "Hi"}],
        {"channel": "admin", "turnMetadata": {"is_admin": True}, "theme": "dark"},
    )

    # When it comes in as a chat request
    admitted: Any = await accept_request(await home_of(app, cls), ChatRequest("r-1", [forged]))
    await admitted.result()

    # Then only what is the client's to say was kept
    assert (await app.agent(cls).get_messages())[0].metadata == {"theme": "dark"}
    assert seen == [None]


async def test_tools_of_a_marked_turn_do_not_see_the_stamp_in_the_prompt(open_app: OpenApp) -> None:
    model = ScriptedModel(calls("nothing"), says("ok"))
    app = await open_app(cls := assistant(model))
    await app.agent(cls).save_messages("Hi", metadata={"secret": "xyzzy"})
    assert "xyzzy" not in repr(model.requests)
