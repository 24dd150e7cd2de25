"""What callers, browsers and the log are told, in words that say what happened."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from everthink import AgentError, App, Think, exposed
from everthink.errors import InvalidSettings
from everthink.testing import ScriptedModel

from ..support.agents import assistant
from ..support.server import served
from ..support.turns import record_events
from .conftest import Serve

pytestmark = pytest.mark.anyio


class Desk(Think):
    model = ScriptedModel()

    @exposed
    def check(self) -> None:
        raise AssertionError

    @exposed
    def fail(self) -> None:
        raise RuntimeError("no paper")


async def test_what_a_callable_raises_is_in_the_log_with_its_place(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    server = await serve(Desk)
    events = record_events(server.app)
    chat = await server.connect("/agents/desk/a")

    # The client hears what it always heard
    answers = [*await chat.call("check"), *await chat.call("fail")]
    assert [one["error"] for one in answers] == ["Unknown error occurred", "no paper"]

    # The log has where it was raised, observers the type
    logged = [r for r in caplog.records if r.name == "everthink.server" and r.exc_info]
    assert [r.exc_info[0] for r in logged if r.exc_info] == [AssertionError, RuntimeError]
    assert "@exposed check" in logged[0].getMessage()
    assert [e.body.error for e in events if e.type == "rpc:error"] == ["AssertionError", "no paper"]


@pytest.mark.parametrize(
    ("frame", "why"),
    [
        ({"type": "rpc", "id": 7, "method": "fail", "args": []}, "its fields are not those"),
        ({"type": "rpc", "id": "a", "method": "fail", "args": {}}, "its fields are not those"),
        (
            {"type": "cf_agent_use_chat_request", "id": "a", "init": {"method": "POST", "body": "{}"}},
            "no JSON object with a list `messages`",
        ),
    ],
)
async def test_a_frame_of_ours_in_another_shape_is_told_to_observers_and_gets_no_answer(
    serve: Serve, frame: Any, why: str
) -> None:
    server = await serve(Desk)
    events = record_events(server.app)
    chat = await server.connect("/agents/desk/a")
    seen = len(chat.frames)
    await chat.send(frame)
    await chat.call("fail")
    assert [
        one["type"] for one in chat.frames[seen:] if one["type"] in ("rpc", "cf_agent_use_chat_response")
    ] == ["rpc"]
    (told,) = [e.body for e in events if e.type == "audit" and e.body.action == "frame"]
    assert told.target == frame["type"]
    assert why in told.reason


async def test_looking_at_an_agent_that_does_not_exist_says_so(serve: Serve) -> None:
    server = await serve(Desk)
    answer = await server.http("/agents/desk/nobody/report")
    assert answer.status == 404
    assert answer.text.startswith("This agent does not exist yet, and nothing is made by looking.")


async def test_other_requests_are_answered_as_those_of_agents_are(tmp_path: Any) -> None:
    class Site(App):
        def on_other_request(self, request: Any) -> Any:
            return {"path": request.url.path} if request.url.path == "/health" else None

    app = Site(assistant(ScriptedModel()), store=f"sqlite:///{tmp_path}/e.db")
    async with served(app) as server:
        assert (await server.http("/health")).json == {"path": "/health"}
        assert (await server.http("/elsewhere")).status == 404


async def test_a_wrong_channel_is_told_with_the_method_that_was_called(serve: Serve) -> None:
    server = await serve(Desk)
    with pytest.raises(InvalidSettings, match=r"^save_messages: channel is 3, an int"):
        await server.app.agent(Desk).save_messages("Hi", channel=3)  # type: ignore[arg-type]


async def test_a_checkpoint_outside_of_everything_names_turns_too(serve: Serve) -> None:
    server = await serve(Desk)
    with pytest.raises(AgentError, match="outside a fiber and outside a turn"):
        await server.app.agent(Desk).stash({})


async def test_a_listing_with_a_time_without_a_zone_does_not_speak_of_scheduling(serve: Serve) -> None:
    from datetime import datetime

    server = await serve(Desk)
    with pytest.raises(AgentError, match="has no time zone") as refused:
        await server.app.agent(Desk).list_schedules(start=datetime(2027, 1, 1))
    assert "scheduled" not in str(refused.value)


async def test_a_hook_that_fails_is_logged_in_one_sentence(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    from everthink import tool
    from everthink.testing import calls, says

    @tool
    def look() -> str:
        """Look."""
        return ""

    def before_tool_call(self: Any, call: Any) -> None:
        raise RuntimeError("no")

    model = ScriptedModel(calls("look"), says("Done."))
    cls = assistant(model, get_tools=lambda self: [look], before_tool_call=before_tool_call)
    server = await serve(cls)
    with caplog.at_level(logging.ERROR):
        await server.app.agent(cls).save_messages("Go")
    assert "before_tool_call failed for tool look of Assistant/default, which was not run" in caplog.messages
