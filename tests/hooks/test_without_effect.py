"""What would have no effect where it is written: keys, names and conditions that nobody reads."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from everthink import Agent, App, Think, TurnConfig, exposed, tool
from everthink.errors import AgentError, InvalidSettings, ToolDefinitionError
from everthink.hooks import has_tool_call, step_count_is
from everthink.server.connections import Connection
from everthink.testing import ScriptedModel, calls, says
from tests.conftest import OpenApp
from tests.support.agents import assistant

# --- a turn


@pytest.mark.parametrize("field", ["telemetry", "experimental_telemetry"])
def test_a_key_of_telemetry_that_nobody_reads_is_refused(field: str) -> None:
    with pytest.raises(InvalidSettings, match=r"TurnConfig\.telemetry .*'record_input'.*'record_inputs'"):
        TurnConfig(**{field: {"record_input": False}})
    TurnConfig(**{field: {"record_inputs": False, "function_id": "x", "metadata": {"any": 1}}})


@tool
def finish() -> str:
    """Say that it is done."""
    return "done"


def stopping_when(*conditions: Any) -> type[Think]:
    model = ScriptedModel(calls("finish"), says("Bye."))
    return assistant(
        model,
        get_tools=lambda self: [finish],
        before_turn=lambda self, turn: TurnConfig(stop_when=list(conditions)),
    )


@pytest.mark.anyio
async def test_waiting_for_a_tool_that_is_nearly_one_is_told(open_app: OpenApp) -> None:
    app = await open_app(cls := stopping_when(step_count_is(9), has_tool_call("finsh")))
    result = await app.agent(cls).save_messages("Go")
    assert result.status == "error"
    assert "stop_when waits for a call of 'finsh'" in (result.error or "")
    assert "Did you mean 'finish'?" in (result.error or "")


@pytest.mark.anyio
async def test_waiting_for_a_tool_far_from_all_is_told_in_the_log(
    open_app: OpenApp, caplog: pytest.LogCaptureFixture
) -> None:
    app = await open_app(cls := stopping_when(has_tool_call("web_search"), has_tool_call("finish")))
    assert (await app.agent(cls).save_messages("Go")).stopped_by == "stop_when"
    assert "stop_when waits for a call of 'web_search'" in caplog.text


@pytest.mark.anyio
async def test_what_is_no_tool_is_told_with_the_place_it_came_from(open_app: OpenApp) -> None:
    cls = assistant(ScriptedModel(), before_turn=lambda self, turn: TurnConfig(tools=[5]))
    app = await open_app(cls)
    with pytest.raises(ToolDefinitionError, match=r"^TurnConfig\.tools: 5 is not a tool\."):
        await app.agent(cls).save_messages("Go")


@pytest.mark.anyio
async def test_a_client_tool_from_code_has_only_the_keys_that_are_read(open_app: OpenApp) -> None:
    app = await open_app(cls := assistant(ScriptedModel(says("Hi."))))
    with pytest.raises(InvalidSettings, match=r"client tool has no option 'paramters'.*'parameters'"):
        await app.agent(cls).chat("Go", client_tools=[{"name": "w", "paramters": {}}])


# --- a context block


@pytest.mark.anyio
async def test_a_provider_that_is_a_dict_has_only_the_keys_that_are_read(open_app: OpenApp) -> None:
    def configure_session(self: Any, session: Any) -> Any:
        return session.with_context("notes", provider={"get": lambda: "x", "sett": print})

    app = await open_app(cls := assistant(ScriptedModel(), configure_session=configure_session))
    with pytest.raises(AgentError, match=r"'sett'\..*Did you mean 'set'\?"):
        await app.agent(cls).chat("Go")


# --- an app


@pytest.mark.parametrize(
    ("header", "meant"),
    [
        ("Access-Control-Allow-Orign", "Access-Control-Allow-Origin"),
        ("acces-control-allow-origin", "Access-Control-Allow-Origin"),
        ("Access-Control-Age", "Access-Control-Max-Age"),
    ],
)
def test_a_header_that_no_browser_reads_is_refused(header: str, meant: str) -> None:
    with pytest.raises(InvalidSettings, match=f"{header}.*Did you mean '{meant}'"):
        App(assistant(ScriptedModel()), cors={header: "*"})


def test_headers_of_any_other_name_are_taken() -> None:
    App(assistant(ScriptedModel()), cors={"access-control-max-age": "60", "Vary": "Origin", "X-Mine": "1"})


# --- a tool


def test_a_tool_of_the_browser_has_no_body() -> None:
    with pytest.raises(ToolDefinitionError, match="its body never runs"):

        @tool(client=True)
        async def look(place: str) -> str:
            """Look."""
            return place.upper()


def test_an_empty_body_is_whatever_type_checkers_like() -> None:
    @tool(client=True)
    def dots(place: str) -> str: ...

    @tool(client=True)
    async def raises(place: str) -> str:
        """Look."""
        raise NotImplementedError("in the browser")

    @tool(client=True)
    async def constant(place: str) -> str:
        """Look."""
        return ""

    assert not any(one.has_body for one in (dots, raises, constant))


def test_help_for_an_argument_that_is_not_there_is_told(caplog: pytest.LogCaptureFixture) -> None:
    @tool
    def weather(city: str) -> str:
        """The weather.

        Args:
            citty: Where.
        """
        return city

    assert weather.name == "weather"
    assert "describes 'citty', which is no parameter" in caplog.text
    assert "Did you mean 'city'?" in caplog.text


def test_help_for_arguments_that_are_there_is_not_told(caplog: pytest.LogCaptureFixture) -> None:
    @tool
    def weather(city: str, **more: str) -> str:
        """The weather.

        Args:
            city: Where.
            unit: Celsius or not.
        """
        return city

    assert weather.name == "weather"
    assert caplog.messages == []


@pytest.mark.parametrize(
    ("kind", "default"), [(int, "three"), (list[str], "a,b"), (bool, "perhaps"), (str, 5), (dict, [1])]
)
def test_a_default_of_another_type_is_refused(kind: Any, default: Any) -> None:
    def weather(days: Any = default) -> str:
        """The weather."""
        return str(days)

    weather.__annotations__["days"] = kind
    with pytest.raises(ToolDefinitionError, match="the default of parameter 'days' is"):
        tool(weather)


@pytest.mark.parametrize(("kind", "default"), [(int, None), (float, 3), (list[str], ()), (str, object())])
def test_a_default_that_says_not_given_is_taken(kind: Any, default: Any) -> None:
    def weather(days: Any = default) -> str:
        """The weather."""
        return str(days)

    weather.__annotations__["days"] = kind
    assert tool(weather).complete()


# --- a connection, an exposed method


class Nowhere:
    """A socket to nobody."""

    async def send_text(self, data: str) -> None: ...

    async def close(self, code: int = 1000, reason: str | None = None) -> None: ...


def test_a_permission_that_is_none_is_told() -> None:
    connection = Connection("one", Nowhere(), None)
    assert connection.may("ask")
    with pytest.raises(InvalidSettings, match=r"'writ' is no permission"):
        connection.may("writ")  # type: ignore[arg-type]
    with pytest.raises(InvalidSettings, match=r"is no permission.*Did you mean 'clear'"):
        connection.may("cler")  # type: ignore[arg-type]


def test_reading_only_is_yes_or_no() -> None:
    connection = Connection("one", Nowhere(), None)
    connection.is_readonly = True
    assert not connection.may("ask")
    with pytest.raises(InvalidSettings, match=r"connection\.is_readonly is 'no', a str"):
        connection.is_readonly = "no"  # type: ignore[assignment]


def by_name(self: Any, *, to: str) -> None: ...
def without_self() -> None: ...
def without_stream(self: Any) -> None: ...


@pytest.mark.parametrize(
    ("method", "streaming", "words"),
    [
        (by_name, False, "needs 'to' by name, and clients give arguments in order"),
        (without_self, False, "has no `self`"),
        (without_stream, True, "streams, and takes no stream"),
    ],
)
def test_exposed_methods_that_no_client_could_call_are_refused(
    method: Any, streaming: bool, words: str
) -> None:
    with pytest.raises(InvalidSettings, match=words):
        type("Bot", (Agent,), {"send": exposed(streaming=streaming)(method)})


def test_exposed_in_other_forms_are_taken(caplog: pytest.LogCaptureFixture) -> None:
    class Bot(Agent):
        @exposed
        def any(self, *given: Any, loud: bool = False) -> None: ...

        @exposed(streaming=True)
        def stream(self, *given: Any) -> None: ...

        @exposed
        @staticmethod
        def add(a: int, b: int) -> int:
            return a + b

        @exposed
        @tool
        def both(self, city: str) -> str:
            """Look."""
            return city

    with caplog.at_level(logging.WARNING):
        assert Bot.add(1, 2) == 3
