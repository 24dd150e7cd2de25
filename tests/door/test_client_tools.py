"""Tools that run at the client: declared by a chat window, or by whoever calls chat()."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from everthink import tool
from everthink.door.chat_request import ChatRequest
from everthink.errors import ToolDefinitionError
from everthink.messages import user_message
from everthink.models.port import Request, ToolMessage
from everthink.testing.scripted import ScriptedModel, calls, says
from everthink.tools.collect import client_tools_from
from tests.conftest import OpenApp
from tests.support.agents import assistant, live
from tests.support.turns import accept_request

pytestmark = pytest.mark.anyio

PICK = {
    "name": "pick",
    "description": "Pick a file.",
    "parameters": {"type": "object", "properties": {"kind": {"type": "string"}}, "required": ["kind"]},
}
LOCATE = {"name": "locate"}


def offered(request: Request) -> dict[str, dict[str, Any]]:
    return {spec.name: spec.input_schema for spec in request.tools}


def results(request: Request) -> list[tuple[str, Any, bool]]:
    return [
        (part.name, part.output, part.is_error)
        for message in request.messages
        if isinstance(message, ToolMessage)
        for part in message.content
    ]


class Window:
    """A chat window of one agent."""

    def __init__(self, app: Any, cls: Any) -> None:
        self.app, self.cls, self.handle = app, cls, app.agent(cls, "room")
        self._sent = 0
        self._tools: Any = []

    async def begin(self, client_tools: Any = None, **options: Any) -> Any:
        self._sent += 1
        home = (await live(self.handle))._home
        messages = [user_message("Go", id=f"u{self._sent}")]
        # As a connection does: a request that says nothing of tools has those of the one before.
        tools = self._tools if client_tools is None else client_tools
        taken = await accept_request(
            home, ChatRequest(f"r{self._sent}", messages, client_tools=tools, **options)
        )
        self._tools = tools
        return taken

    async def send(self, **options: Any) -> Any:
        return await (await self.begin(**options)).result()


# --- declared by a chat window


@pytest.mark.case(319)
async def test_the_schemas_of_a_request_reach_the_model(open_app: OpenApp) -> None:
    model = ScriptedModel(says("ok"))
    window = Window(await open_app(cls := assistant(model)), cls)
    await window.send(client_tools=[PICK, LOCATE])
    assert offered(model.last_request) == {"pick": PICK["parameters"], "locate": {"type": "object"}}
    assert model.last_request.tools[0].description == "Pick a file."


@pytest.mark.case(319, 322)
async def test_a_window_s_tools_are_for_its_own_turns_and_nobody_else_s(open_app: OpenApp) -> None:
    """The original offers the last window's tools to everybody; a client is a stranger to the others."""
    # Given a window that declared its tools
    model = ScriptedModel(*[says("ok")] * 7)
    window = Window(await open_app(cls := assistant(model)), cls)
    await window.send(client_tools=[PICK])

    # Then its requests without a list have them; turns from code, other windows and new processes have not
    await window.send()
    await window.handle.save_messages("From code")
    await Window(window.app, cls).send(client_tools=[])
    await window.app.evict(cls, "room")
    await window.handle.save_messages("After a restart")
    assert [list(offered(request)) for request in model.requests] == [["pick"], ["pick"], [], [], []]


async def test_a_list_replaces_the_window_s_tools_and_an_empty_one_removes_them(open_app: OpenApp) -> None:
    model = ScriptedModel(*[says("ok")] * 3)
    window = Window(await open_app(cls := assistant(model)), cls)
    await window.send(client_tools=[PICK])
    await window.send(client_tools=[LOCATE])
    await window.send(client_tools=[])
    assert [list(offered(request)) for request in model.requests] == [["pick"], ["locate"], []]


async def test_a_later_request_does_not_change_the_tools_of_one_that_waits(open_app: OpenApp) -> None:
    # Given a running turn and one that waits behind it
    go_on = asyncio.Event()
    model = ScriptedModel(says("one").waits(go_on), says("two"), says("three"))
    window = Window(await open_app(cls := assistant(model)), cls)
    first = await window.begin()
    await model.until_silent()
    second = await window.begin(client_tools=[PICK])

    # When a third declares other tools before the second runs
    third = await window.begin(client_tools=[LOCATE])
    go_on.set()
    for turn in (first, second, third):
        await turn.result()

    # Then each turn had its own
    assert [list(offered(request)) for request in model.requests] == [[], ["pick"], ["locate"]]


@pytest.mark.case(659)
@pytest.mark.parametrize("name", ["pick", "PICK"])
async def test_a_tool_of_the_window_never_takes_the_place_of_one_of_the_server(
    open_app: OpenApp, name: str
) -> None:
    """The original lets it; then a browser could answer for our tools, or imitate one that asks first."""
    ran: list[str] = []

    @tool
    def pick() -> str:
        """Pick on the server."""
        ran.append("server")
        return "server"

    model = ScriptedModel(calls("pick", id="c"), says("ok"))
    window = Window(await open_app(cls := assistant(model, get_tools=lambda self: [pick])), cls)
    await window.send(client_tools=[{**PICK, "name": name}, LOCATE])
    offers = [(spec.name, spec.description) for spec in model.last_request.tools]
    assert offers == [("pick", "Pick on the server."), ("locate", "")]
    assert ran == ["server"]


async def test_of_two_tools_with_one_name_the_last_is_used(
    open_app: OpenApp, caplog: pytest.LogCaptureFixture
) -> None:
    model = ScriptedModel(says("ok"))
    window = Window(await open_app(cls := assistant(model)), cls)
    await window.send(client_tools=[PICK, LOCATE, {**PICK, "description": "Pick well."}])
    assert [(s.name, s.description) for s in model.last_request.tools] == [
        ("locate", ""),
        ("pick", "Pick well."),
    ]
    assert "two tools named 'pick'" in caplog.text


@pytest.mark.parametrize("broken", [[{"description": "no name"}], ["pick"], [{"name": "two words"}]])
async def test_a_list_that_is_no_list_of_tools_is_refused_and_changes_nothing(
    open_app: OpenApp, broken: list[Any]
) -> None:
    model = ScriptedModel(says("ok"), says("ok"))
    window = Window(await open_app(cls := assistant(model)), cls)
    await window.send(client_tools=[PICK])
    with pytest.raises(ToolDefinitionError):
        await window.send(client_tools=broken)
    assert len(await window.handle.get_messages()) == 2
    await window.send()
    assert list(offered(model.last_request)) == ["pick"]


@pytest.mark.case(323)
def test_without_schemas_there_are_no_tools_and_client_tools_have_no_body() -> None:
    assert client_tools_from(None) == client_tools_from([]) == {}
    made = client_tools_from([PICK, LOCATE])
    assert list(made) == ["pick", "locate"]
    assert not any(one.has_body for one in made.values())


# --- given to chat()


@pytest.mark.case(324, 325)
@pytest.mark.parametrize("is_async", [True, False])
async def test_a_client_tool_with_an_executor_is_answered_within_the_turn(
    open_app: OpenApp, is_async: bool
) -> None:
    # Given a caller who runs the tool itself
    asked: list[tuple[str, Any, str]] = []

    def run(name: str, given: Any, call_id: str) -> Any:
        asked.append((name, given, call_id))
        return {"file": "a.txt"}

    async def run_later(name: str, given: Any, call_id: str) -> Any:
        await asyncio.sleep(0)
        return run(name, given, call_id)

    model = ScriptedModel(calls("pick", kind="text", id="c7"), says("a.txt it is."))
    app = await open_app(cls := assistant(model))
    handle = app.agent(cls, "room")

    # When the model calls it
    result = await handle.chat(
        "Pick", client_tools=[PICK], on_client_tool_call=run_later if is_async else run
    )

    # Then name, input and id were passed on, and one turn had the whole round trip
    assert asked == [("pick", {"kind": "text"}, "c7")]
    assert (result.status, result.text) == ("completed", "a.txt it is.")
    assert results(model.last_request) == [("pick", {"file": "a.txt"}, False)]
    (part,) = (await handle.get_messages())[-1].tool_parts
    assert (part["state"], part["output"]) == ("output-available", {"file": "a.txt"})


@pytest.mark.case(326)
async def test_several_client_tools_of_one_step_run_at_once(open_app: OpenApp) -> None:
    # Given an executor that finishes nothing before everything has begun
    begun: list[str] = []
    all_begun = asyncio.Event()

    async def run(name: str, given: Any, call_id: str) -> str:
        begun.append(call_id)
        if len(begun) == 3:
            all_begun.set()
        await all_begun.wait()
        return f"{name} {call_id}"

    model = ScriptedModel(
        calls("pick", kind="x", id="1").calls("locate", id="2").calls("pick", kind="y", id="3"), says("ok")
    )
    app = await open_app(cls := assistant(model))
    result = await app.agent(cls, "room").chat("Go", client_tools=[PICK, LOCATE], on_client_tool_call=run)

    # Then all three ran, and the model read the results in the order of its calls
    assert result.status == "completed"
    assert [output for _, output, _ in results(model.last_request)] == ["pick 1", "locate 2", "pick 3"]


@pytest.mark.case(327)
async def test_client_tools_run_over_several_steps_of_one_turn(open_app: OpenApp) -> None:
    model = ScriptedModel(calls("locate", id="1"), calls("pick", kind="x", id="2"), says("Done."))
    app = await open_app(cls := assistant(model))
    result = await app.agent(cls, "room").chat(
        "Go", client_tools=[PICK, LOCATE], on_client_tool_call=lambda name, given, id: f"{name}!"
    )
    assert result.text == "Done."
    assert [output for _, output, _ in results(model.last_request)] == ["locate!", "pick!"]


@pytest.mark.case(329)
async def test_an_executor_that_raises_is_a_tool_error_and_the_turn_goes_on(open_app: OpenApp) -> None:
    def run(name: str, given: Any, call_id: str) -> str:
        raise RuntimeError("the camera is off")

    model = ScriptedModel(calls("locate"), says("Then without."))
    app = await open_app(cls := assistant(model))
    handle = app.agent(cls, "room")
    result = await handle.chat("Go", client_tools=[LOCATE], on_client_tool_call=run)
    assert (result.status, result.text) == ("completed", "Then without.")
    assert results(model.last_request) == [("locate", "the camera is off", True)]
    assert (await handle.get_messages())[-1].tool_parts[0]["state"] == "output-error"


@pytest.mark.case(330)
async def test_without_an_executor_the_call_is_left_open(open_app: OpenApp) -> None:
    model = ScriptedModel(says("Pick!").calls("pick", kind="x", id="c"))
    app = await open_app(cls := assistant(model))
    handle = app.agent(cls, "room")
    result = await handle.chat("Go", client_tools=[PICK])
    assert (result.status, model.remaining) == ("completed", 0)
    (part,) = (await handle.get_messages())[-1].tool_parts
    assert (part["state"], part["input"]) == ("input-available", {"kind": "x"})


@pytest.mark.case(331)
async def test_client_tools_of_chat_are_gone_with_their_turn(open_app: OpenApp) -> None:
    # Given a call that nobody answered, of a tool that lived for one turn
    model = ScriptedModel(calls("pick", kind="x", id="c"), says("Next."), calls("pick", kind="x", id="c2"))
    app = await open_app(cls := assistant(model))
    window = Window(app, cls)
    await window.handle.chat("Go", client_tools=[PICK])

    # Then nothing waits for a browser that never had it, before and after a restart
    assert not (await live(window.handle)).has_pending_interaction()
    await app.evict(cls, "room")
    assert not (await live(window.handle)).has_pending_interaction()

    # And the next turn does not offer it, and tells the model that the call came to nothing
    await window.handle.save_messages("Next")
    assert offered(model.last_request) == {}
    assert [is_error for _, _, is_error in results(model.last_request)] == [True]

    # While one that a window declared would be waited for
    await window.send(client_tools=[PICK])
    assert (await live(window.handle)).has_pending_interaction()


async def test_client_tools_of_chat_leave_those_of_the_window_alone(open_app: OpenApp) -> None:
    model = ScriptedModel(says("1"), says("2"), says("3"))
    window = Window(await open_app(cls := assistant(model)), cls)
    await window.send(client_tools=[PICK])
    await window.handle.chat("Go", client_tools=[LOCATE], on_client_tool_call=lambda *given: None)
    await window.send()
    assert [list(offered(request)) for request in model.requests] == [["pick"], ["locate"], ["pick"]]
