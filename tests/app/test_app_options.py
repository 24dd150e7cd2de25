"""Options of `App` that cannot be meant are refused where they are written."""

from __future__ import annotations

import inspect
import math
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from everthink import App, Think
from everthink.app.options import OPTIONS, READ
from everthink.errors import AgentError, InvalidSettings, StoreError
from everthink.server import Limits
from everthink.testing import ManualClock, ScriptedModel, says

from ..support.agents import assistant


class Room(Think):
    model = "demo"


@pytest.mark.parametrize(
    ("option", "value", "takes"),
    [
        ("grace", "5", "a number of seconds, 0 or more"),
        ("grace", None, "a number of seconds, 0 or more"),
        ("grace", -1, "a number of seconds, 0 or more"),
        ("grace", True, "a number of seconds, 0 or more"),
        ("grace", math.nan, "a number of seconds, 0 or more"),
        ("idle_after", "x", "a number of seconds above 0, or None"),
        ("idle_after", 0, "a number of seconds above 0, or None"),
        ("watchdog", "1", "a number of seconds above 0, or None"),
        ("cors", "yes", "True or False, or a dict of texts"),
        ("cors", {"Access-Control-Allow-Origin": 5}, "a dict of texts"),
        ("prefix", 5, "It takes text"),
        ("prefix", None, "It takes text"),
        ("clock", 5, "a clock"),
        ("clock", ManualClock, "a clock"),
        ("new_id", "id", "a function that returns a new text"),
        ("allow_origins", 5, 'It takes a list: allow_origins=["https://my.page"]'),
        ("allow_hosts", 5, 'It takes a list: allow_hosts=["my.page"]'),
        ("limits", 5, "It takes a Limits, a dict with its fields, or None"),
        ("store", None, "sqlite:///data/agents.db"),
        ("store", 5, "or a store that is open"),
        ("store", App, "or a store that is open"),
        ("store_options", 5, 'a dict, such as {"synchronous": "NORMAL"}'),
        ("store_options", ["synchronous"], "It takes a dict"),
        ("retention", "a month", 'retention="30 days"'),
        ("retention", timedelta(0), "a time above 0"),
        ("retention", [30], "timedelta(days=30)"),
    ],
)
def test_an_option_of_a_wrong_kind_says_what_it_is_and_what_it_takes(
    option: str, value: Any, takes: str
) -> None:
    with pytest.raises(AgentError) as told:
        App(Room, **{option: value})
    assert str(told.value).startswith(f"App({option}=…) is {value!r}, ")
    assert takes in str(told.value)


def test_every_option_of_app_has_its_kind() -> None:
    parameters = inspect.signature(App.__init__).parameters.values()
    assert {one.name for one in parameters if one.kind is one.KEYWORD_ONLY} == {*OPTIONS, *READ}


# --- the functions


def more(identity: Any, action: str, agent: Any, database: Any) -> bool:
    return True


def named(connection: Any, *, secret: str) -> bool:
    return True


def other(agent: Any, identity: Any) -> bool:
    return True


@pytest.mark.parametrize(
    ("option", "function", "words"),
    [
        ("authenticate", "x", "is 'x', a str. Give a function: authenticate(connection)."),
        ("authorize", True, "Give a function: authorize(identity, action, agent)."),
        ("on_before_connect", [], "Give a function: on_before_connect(connection, cls, name)."),
        ("on_before_request", {}, "Give a function: on_before_request(connection, cls, name)."),
        ("authorize", more, "it is given only identity, action, agent."),
        ("authenticate", more, "it is given only connection."),
        ("authenticate", named, "it is given only connection."),
        ("authorize", other, "its 'agent' would get the identity"),
        ("on_before_connect", lambda cls, name: True, "its 'cls' would get the connection"),
        ("on_before_request", lambda a, b, c, d: True, "it is given only connection, cls, name."),
    ],
)
def test_a_function_that_cannot_take_what_it_is_given_is_told_what_that_is(
    option: str, function: Any, words: str
) -> None:
    with pytest.raises(InvalidSettings) as told:
        App(Room, **{option: function})
    assert str(told.value).startswith(option)
    assert words in str(told.value)


def test_a_check_that_yields_would_run_nothing() -> None:
    def user(connection: Any) -> Any:
        yield "ada"

    with pytest.raises(InvalidSettings, match=r"App\(authenticate=…\) has a `yield`.*Use `return`"):
        App(Room, authenticate=user)


class Guard:
    """Its methods and itself are checks."""

    def who(self, connection: Any) -> str:
        return "ada"

    def __call__(self, who: Any, action: str, agent: Any, log: Any = None) -> bool:
        return True


def test_functions_may_take_fewer_have_defaults_and_be_anything_that_is_called() -> None:
    App(Room, authenticate=Guard().who, authorize=Guard())
    App(Room, authenticate=lambda: "ada", authorize=lambda *given: True, on_before_connect=print)
    App(Room, authorize=lambda identity, action: True, on_before_request=lambda request, **more: None)


# --- the store and its options


@pytest.mark.parametrize("option", [{"readers": 2}, {"lease": 5.0}, {"patience": 1.0}])
def test_an_option_of_the_other_engine_is_told_as_one(option: dict[str, Any]) -> None:
    (name,) = option
    with pytest.raises(InvalidSettings) as told:
        App(Room, store="sqlite:///a.db", store_options=option)
    where = f"App(store_options={{{name!r}: …}})"
    assert f"{where} is an option of PostgreSQL, and the store is SQLite." in str(told.value)
    assert "SQLite has: 'synchronous', 'busy_timeout'." in str(told.value)
    with pytest.raises(InvalidSettings, match="is an option of SQLite, and the store is PostgreSQL"):
        App(Room, store="postgresql://localhost/x", store_options={"synchronous": "FULL"})


@pytest.mark.parametrize(
    "wrong", [{"readers": 0}, {"readers": "4"}, {"lease": 0}, {"lease": 0.01}, {"patience": "long"}]
)
def test_options_of_postgresql_have_kinds_too(wrong: dict[str, Any]) -> None:
    (name,) = wrong
    with pytest.raises(InvalidSettings, match=rf"App\(store_options={{'{name}': …}}\) is .* It takes "):
        App(Room, store="postgresql://localhost/x", store_options=wrong)
    fine = {"readers": 2, "lease": 5, "patience": 0.5}
    App(Room, store="postgresql://localhost/x", store_options=fine)


@pytest.mark.parametrize("wrong", [{"synchronous": "OFF"}, {"busy_timeout": "x"}, {"busy_timeout": -1}])
def test_options_of_sqlite_have_kinds_too(wrong: dict[str, Any]) -> None:
    (name,) = wrong
    with pytest.raises(InvalidSettings, match=rf"App\(store_options={{'{name}': …}}\) is .* It takes "):
        App(Room, store="sqlite:///a.db", store_options=wrong)


def test_an_option_of_the_store_that_is_given_to_the_app_is_told_where_it_goes() -> None:
    with pytest.raises(InvalidSettings, match=r"option 'synchronous'\. .*store_options={'synchronous': …}"):
        App(Room, synchronous="NORMAL")
    with pytest.raises(InvalidSettings, match=r"option 'synchronus'\. .*store_options={'synchronous': …}"):
        App(Room, synchronus="NORMAL")


@pytest.mark.parametrize("url", ["mysql://app:hush@host/x", "", "sqlite://", "sqlite:///a.db?mode=ro"])
def test_a_url_that_names_no_store_is_refused_where_it_is_written(url: str) -> None:
    with pytest.raises(StoreError, match="Accepted are:") as told:
        App(Room, store=url)
    assert "hush" not in str(told.value)


@pytest.mark.parametrize("url", [":memory", "sqlite:/data/x.db", "$HOME/x.db", "postgresql://h:port/x"])
def test_a_url_that_is_meant_otherwise_is_refused_where_it_is_written(url: str) -> None:
    with pytest.raises(StoreError, match=r"Nothing was opened\."):
        App(Room, store=url)


@pytest.mark.anyio
async def test_a_path_is_a_store(tmp_path: Path) -> None:
    cls = assistant(ScriptedModel(says("Hi.")))
    async with App(cls, store=tmp_path / "agents.db") as app:
        assert (await app.agent(cls).save_messages("Hello")).text == "Hi."
    assert (tmp_path / "agents.db").exists()


def test_a_slip_is_told_with_the_name_that_was_meant() -> None:
    with pytest.raises(InvalidSettings, match=r"no option 'stroe'. Did you mean store=\?"):
        App(Room, stroe="x.db")
    with pytest.raises(InvalidSettings, match=r"PostgreSQL has no option 'readrs'.*Did you mean 'readers'"):
        App(Room, store="postgresql://localhost/x", store_options={"readrs": 2})
    with pytest.raises(InvalidSettings, match=r"no option 'alow_origins'. Did you mean allow_origins=\?"):
        App(Room, alow_origins=["https://my.page"])
    with pytest.raises(InvalidSettings, match="It is a setting of agents: write `max_steps = …`"):
        App(Room, max_steps=5)


# --- limits and retention


def test_limits_may_be_a_dict_and_a_slip_in_it_is_named() -> None:
    assert App(Room, limits={"waiting_turns": 5}).limits == Limits(waiting_turns=5)
    with pytest.raises(InvalidSettings, match="Did you mean 'waiting_turns'"):
        App(Room, limits={"waiting_turn": 5})
    with pytest.raises(AgentError, match="a limit is a number above 0"):
        App(Room, limits={"waiting_turns": math.nan})


@pytest.mark.parametrize("number", [30, 30.0, 2_592_000])
def test_a_bare_number_is_no_retention_since_it_does_not_say_of_what(number: Any) -> None:
    with pytest.raises(InvalidSettings) as told:
        App(Room, retention=number)
    assert str(told.value) == (
        f"App(retention={number!r}) does not say of what."
        ' Say how long: retention=timedelta(days=30), or retention="30 days".'
    )


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        ("30 days", 2_592_000.0),
        ("1 day", 86_400.0),
        ("2 Weeks", 1_209_600.0),
        ("1.5 hours", 5_400.0),
        ("90 minutes", 5_400.0),
        ("45seconds", 45.0),
        (timedelta(days=30), 2_592_000.0),
        (None, None),
    ],
)
def test_retention_is_a_time_in_words_or_a_timedelta(given: Any, seconds: float | None) -> None:
    assert App(Room, retention=given)._retention == seconds


def test_an_app_without_an_agent_is_told() -> None:
    with pytest.raises(AgentError, match=r"given no agent class.*App\(Assistant\)"):
        App()
    with pytest.raises(AgentError, match="Think is what agents are made of"):
        App(Think)


@pytest.mark.parametrize("prefix", ["a b?c", "a#b", "https://my.page/agents", "{id}", "a%20b"])
def test_a_prefix_that_no_address_has_is_refused(prefix: str) -> None:
    with pytest.raises(InvalidSettings, match=r"App\(prefix=…\) is .*\"api/agents\""):
        App(Room, prefix=prefix)


def test_no_name_at_all_is_refused() -> None:
    with pytest.raises(InvalidSettings, match=r"allow_hosts=\[\]\) allows no name: every request"):
        App(Room, allow_hosts=[])
