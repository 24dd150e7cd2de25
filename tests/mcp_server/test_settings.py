"""What `App(mcp=…)` takes, and which tools it makes."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from everthink import Agent, App, Think, exposed
from everthink.errors import AgentError, InvalidSettings
from everthink.mcp_server.catalogue import Catalogue
from everthink.mcp_server.settings import endpoint_of
from everthink.server import McpEndpoint


class TravelAgent(Think):
    model = "demo"


class Plain(Agent):
    pass


def names(*classes: type, **settings: Any) -> list[str]:
    endpoint = endpoint_of(settings or True, {cls.__name__: cls for cls in classes})
    assert endpoint is not None
    return [tool.name for tool in Catalogue(classes, endpoint, Think)]


@pytest.mark.parametrize("given", [False, None])
def test_nothing_is_offered_unless_that_is_asked_for(given: Any) -> None:
    assert App(TravelAgent, store=":memory:", mcp=given).mcp is None


def test_an_app_says_how_it_is_offered() -> None:
    app = App(TravelAgent, store=":memory:", mcp={"path": "api/mcp", "newName": lambda identity: "x"})

    assert app.mcp is not None
    assert (app.mcp.path, app.mcp.exposed) == ("api/mcp", False)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("yes", "App(mcp=…) is 'yes', a str. It takes True, a dict"),
        ({"expose": True}, "McpEndpoint has no field 'expose'. Did you mean 'exposed'?"),
        ({"exposed": "yes"}, "McpEndpoint.exposed is 'yes', a str. It takes True or False."),
        ({"path": "https://my.page/mcp"}, "McpEndpoint.path is"),
        ({"path": ""}, "McpEndpoint.path is"),
        ({"agents": "TravelAgent"}, "McpEndpoint.agents is 'TravelAgent', a str. It takes a list"),
        ({"agents": []}, "McpEndpoint.agents is []"),
        (
            {"agents": ["TravelAgnt"]},
            "'TravelAgnt', which is no agent of this app. Did you mean 'TravelAgent'?",
        ),
        ({"agents": [Plain]}, "'Plain', which is no agent of this app."),
        ({"agents": [3]}, "offers 3, which is no agent of this app."),
        ({"new_name": "x"}, "McpEndpoint.new_name is 'x', a str. It takes a function"),
        ({"new_name": lambda identity, action, agent: "x"}, "it is given only identity"),
    ],
)
def test_what_is_not_understood_is_refused_where_it_was_written(given: Any, words: str) -> None:
    with pytest.raises(InvalidSettings) as caught:
        App(TravelAgent, store=":memory:", mcp=given)

    assert words in str(caught.value)


def test_an_option_that_is_nearly_this_one_is_told_with_its_name() -> None:
    with pytest.raises(InvalidSettings, match=r"Did you mean mcp=\?"):
        App(TravelAgent, mpc=True)  # type: ignore[call-arg]


def test_settings_may_be_an_object() -> None:
    app = App(TravelAgent, Plain, store=":memory:", mcp=McpEndpoint(agents=["travel-agent"]))

    assert app.mcp is not None
    assert app.mcp.agents == [TravelAgent]


def test_a_tool_is_called_like_its_class_in_letters_that_every_client_takes() -> None:
    makers = [
        type(name, (Think,), {"model": "demo"})
        for name in ("TravelAgent", "HTTP", "MY_Bot", "Jürgen", "天气")
    ]

    assert names(*makers) == ["ask_travel_agent", "ask_http", "ask_m_y_bot", "ask_j_rgen", "ask_agent"]


def test_a_name_that_is_too_long_is_cut_and_stays_its_own() -> None:
    one, two = (type("A" + "b" * 80 + end, (Think,), {"model": "demo"}) for end in ("One", "Two"))

    first, second = names(one, two)

    assert len(first) == len(second) == 64
    assert first != second


def test_two_tools_of_one_name_are_refused() -> None:
    one, two = (type(name, (Think,), {"model": "demo"}) for name in ("Bot1_", "Bot1__"))

    with pytest.raises(AgentError, match="Two tools for MCP clients are called ask_bot1"):
        App(one, two, store=":memory:", mcp=True)


def test_an_app_with_nothing_to_offer_says_so() -> None:
    with pytest.raises(AgentError, match="no agent of it chats"):
        App(Plain, store=":memory:", mcp=True)


def test_only_the_classes_that_are_named_are_offered() -> None:
    class Other(Think):
        model = "demo"

        @exposed
        def size(self) -> int:
            return 1

    assert names(TravelAgent, Other, agents=["TravelAgent"], exposed=True) == ["ask_travel_agent"]


@pytest.mark.slow
def test_a_missing_package_is_told_with_its_install_line() -> None:
    script = (
        "import sys; sys.modules['mcp'] = None\n"
        "from everthink import App, Think\n"
        "class Bot(Think): model = 'demo'\n"
        "try: App(Bot, mcp=True)\n"
        "except Exception as error: print(type(error).__name__, error)"
    )

    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout

    assert said.startswith("MissingExtra App(mcp=…) needs the package mcp, which is not installed.")
    assert 'pip install "everthink[mcp]"' in said


@pytest.mark.slow
def test_an_app_that_is_offered_loads_the_package_when_it_is_served_and_not_before() -> None:
    script = (
        "import sys\n"
        "from everthink import App, Think\n"
        "class Bot(Think): model = 'demo'\n"
        "App(Bot, mcp=True)\n"
        "print(sorted(name for name in sys.modules if name == 'mcp' or name.startswith('mcp.')))"
    )

    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout

    assert said.strip() == "[]"
