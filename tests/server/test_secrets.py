"""What the application's code raises stays on the server, wherever it is raised.

One place is meant to be read and sends its exception's own text: a method that a client calls. A tool's is
for the model; it reaches people when it is a `ToolError` (tests/security/test_traces_tools.py).
"""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

import pytest
from starlette.exceptions import HTTPException
from websockets.exceptions import ConnectionClosed, InvalidStatus

from everthink import AgentError, App, Think, tool
from everthink.address import kebab
from everthink.errors import UNTOLD, StoreFull
from everthink.journal.tool_errors import UNTOLD_TOOL
from everthink.memory import Session
from everthink.runtime.rpc import exposed
from everthink.testing import ScriptedModel, calls, says
from everthink.testing.client import Client
from tests.support.agents import live

from ..support.server import Served
from .conftest import Serve

pytestmark = pytest.mark.anyio

SECRET = "the word is marmalade at 10.0.0.7"
INSIDE = "the cause, with a /home/path.py"


def blow_up(*_: Any, **__: Any) -> Any:
    try:
        raise OSError(INSIDE)
    except OSError as cause:
        raise RuntimeError(SECRET) from cause


class Fine(Think):
    """An agent in good health, of which one part at a time breaks."""

    initial_state: Any = {"count": 0}  # noqa: RUF012 - copied by the framework

    def __init__(self) -> None:
        self.model = ScriptedModel.forever(says("Fine."))


def broken(place: str) -> type[Think]:
    return type("Broken", (Fine,), {place: blow_up})


async def used(server: Served, cls: type[Think]) -> str:
    """Everything a client gets to see while it does all that clients do."""
    seen: list[Any] = []
    path = f"/agents/{kebab(cls.__name__)}/room"
    for method in ("GET", "POST"):
        for rest in ("/get-messages", "/else"):
            answer = await server.http(path + rest, method=method)
            seen.append((answer.status, answer.headers, answer.text))
    try:
        tab = await server.connect(cls, id="tab")
    except InvalidStatus as refused:
        seen.append((refused.response.status_code, bytes(refused.response.body or b"").decode()))
        return json.dumps(seen)
    try:
        await tab.send("not a frame")
        await tab.set_state({"count": 1})
        await tab.until_done(await tab.say("Hi"))
        await tab.probe("p")
        await tab.until(lambda: any(f.get("probeId") == "p" for f in tab.frames))
        later = await server.connect(cls, id="later", resumes=True)
        await later.settled()
        seen += [*later.frames, *later.other]
    except (ConnectionClosed, TimeoutError):
        if tab.closed is None:
            raise
    seen += [*tab.frames, *tab.other, tab.closed]
    return json.dumps(seen)


HOOKS = [
    "on_start",
    "configure_session",
    "should_connection_be_readonly",
    "should_send_protocol_messages",
    "on_connect",
    "on_message",
    "on_request",
    "validate_state_change",
    "on_state_changed",
    "get_model",
    "get_system_prompt",
    "get_tools",
    "before_turn",
    "before_step",
    "on_chunk",
    "on_step_finish",
    "on_chat_response",
    "on_chat_error",
    "on_close",
]


@pytest.mark.parametrize("place", HOOKS)
async def test_what_a_hook_raises_reaches_nobody(
    serve: Serve, place: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    cls = broken(place)
    server = await serve(cls)
    if place == "on_chat_error":
        model: Any = ScriptedModel.forever(says("Half").then_raises(RuntimeError(SECRET)))
        cls.__init__ = lambda self: setattr(self, "model", model)  # type: ignore[method-assign]
    seen = await used(server, cls)
    assert SECRET not in seen
    assert INSIDE not in seen
    assert "RuntimeError" not in seen
    # whoever runs the server can read what happened
    await server.leave()
    await server.stop()
    assert SECRET in caplog.text


async def test_what_a_model_raises_is_told_as_a_sentence(serve: Serve) -> None:
    cls = type("Broken", (Fine,), {})
    model: Any = ScriptedModel(says("Half ").then_raises(RuntimeError(SECRET)), says("Whole."))
    cls.__init__ = lambda self: setattr(self, "model", model)  # type: ignore[method-assign]
    server = await serve(cls)
    tab = await server.connect(cls)
    request = await tab.say("Hi")
    await tab.until_done(request)
    assert [f["body"] for f in tab.responses(request) if f.get("error")] == [UNTOLD]
    # a tab that comes later is told the same
    later = await server.connect(cls, resumes=True)
    await later.until_done(request)
    assert [f["body"] for f in later.responses(request) if f.get("error")] == [UNTOLD]
    assert SECRET not in json.dumps([*tab.frames, *later.frames])


async def test_what_a_compaction_raises_is_told_as_a_sentence(serve: Serve) -> None:
    class Forgetful(Fine):
        def configure_session(self, session: Session) -> Session:
            return session.on_compaction(blow_up)

    server = await serve(Forgetful)
    tab = await server.connect(Forgetful, name="room")
    await tab.until_done(await tab.say("Hi"))
    agent = await live(server.app.agent(Forgetful, "room"))
    assert await agent.session.compact() is None
    assert (await tab.until_frame("cf_agent_session_error"))["error"] == UNTOLD
    assert SECRET not in json.dumps(tab.frames)


async def test_code_that_asks_for_a_turn_gets_the_words(serve: Serve) -> None:
    cls = broken("before_turn")
    server = await serve(cls)
    with pytest.raises(RuntimeError, match="marmalade"):
        await server.app.agent(cls, "room").save_messages("Hi")
    result = await server.app.agent(cls, "room").chat("Hi")
    assert result.error == SECRET


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        (
            AgentError("Not on Sundays.", next_step="Come back on Monday."),
            "Not on Sundays. Come back on Monday.",
        ),
        (StoreFull("There is no space left at /srv/everthink.db."), UNTOLD),
        (ValueError("sk-123"), UNTOLD),
    ],
)
async def test_our_own_letters_are_read_and_those_of_the_database_are_not(
    serve: Serve, error: Exception, shown: str
) -> None:
    def before_turn(self: Any, turn: Any) -> None:
        raise error

    cls = type("Broken", (Fine,), {"before_turn": before_turn})
    server = await serve(cls)
    tab = await server.connect(cls)
    assert (await tab.until_done(await tab.say("Hi")))["body"] == shown


@pytest.mark.parametrize(
    ("answer", "shown"),
    [("Sorry.", "Sorry."), (ValueError("Sorry."), "Sorry."), (None, UNTOLD), ("the same", UNTOLD)],
)
async def test_the_error_hook_chooses_other_words_or_none(serve: Serve, answer: Any, shown: str) -> None:
    def on_chat_error(self: Any, error: Any, ctx: Any) -> Any:
        return error if answer == "the same" else answer

    cls = type("Broken", (Fine,), {"before_turn": blow_up, "on_chat_error": on_chat_error})
    server = await serve(cls)
    tab = await server.connect(cls)
    assert (await tab.until_done(await tab.say("Hi")))["body"] == shown


@pytest.mark.parametrize("check", ["authenticate", "on_before_connect", "on_before_request"])
@pytest.mark.parametrize("is_async", [False, True])
async def test_a_check_that_raises_lets_nobody_in_and_says_nothing(
    serve: Serve, check: str, is_async: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def later(*given: Any) -> Any:
        blow_up()

    server = await serve(Fine, **{check: later if is_async else blow_up})
    seen = await used(server, Fine)
    assert SECRET not in seen
    assert INSIDE not in seen
    assert "Internal Server Error" in seen
    assert SECRET in caplog.text
    if check != "on_before_request":
        with pytest.raises(InvalidStatus) as refused:
            await server.connect(Fine)
        assert refused.value.response.status_code == 500


async def test_a_check_may_answer_with_an_http_exception(serve: Serve) -> None:
    def authenticate(connection: Any) -> Any:
        raise HTTPException(402, "Pay first.", {"X-Price": "1"})

    server = await serve(Fine, authenticate=authenticate)
    answer = await server.http("/agents/fine/room/get-messages")
    assert (answer.status, answer.text, answer.headers["x-price"]) == (402, "Pay first.", "1")
    with pytest.raises(InvalidStatus) as refused:
        await server.connect(Fine)
    assert (refused.value.response.status_code, refused.value.response.body) == (402, b"Pay first.")


async def test_a_request_that_is_about_no_agent_says_nothing_either(serve: Serve, tmp_path: Any) -> None:
    class Loud(App):
        async def on_other_request(self, request: Any) -> Any:
            blow_up()

    from ..support.server import served

    async with served(Loud(Fine, store=f"sqlite:///{tmp_path}/loud.db")) as server:
        answer = await server.http("/elsewhere")
    assert answer.status == 500
    assert SECRET not in answer.text


async def test_an_answer_that_is_no_json_is_an_error_without_words(serve: Serve) -> None:
    cls = type("Broken", (Fine,), {"on_request": lambda self, request: {"it": object()}})
    server = await serve(cls)
    answer = await server.http("/agents/broken/room/x", method="POST")
    assert (answer.status, answer.text) == (500, "Internal Server Error")


# --- the one that is meant to be read, and the one that is not


class Open(Think):
    model = ScriptedModel(calls("fail", id="c1"), says("It failed."))

    @tool
    async def fail(self) -> str:
        """Fail."""
        return blow_up()

    @exposed
    def call(self) -> None:
        blow_up()

    @exposed
    def keep(self) -> None:
        raise StoreFull("There is no space left at /srv/everthink.db.")

    @exposed(streaming=True)
    async def stream(self, stream: Any) -> None:
        await asyncio.sleep(0)
        blow_up()


async def test_a_called_method_sends_its_own_text_and_a_tool_does_not(serve: Serve) -> None:
    server = await serve(Open)
    tab: Client = await server.connect(Open)
    await tab.until_done(await tab.say("Go"))
    part = tab.messages[-1].tool_parts[0]
    assert part["errorText"] == UNTOLD_TOOL
    assert SECRET not in json.dumps([*tab.frames, *tab.other])
    for method in ("call", "stream"):
        [answer] = await tab.call(method)
        assert answer["error"] == SECRET
    # the database's words are not theirs
    assert (await tab.call("keep"))[0]["error"] == UNTOLD
    seen = json.dumps([*tab.frames, *tab.other])
    assert INSIDE not in seen
    assert "RuntimeError" not in seen
    assert "Traceback" not in seen
