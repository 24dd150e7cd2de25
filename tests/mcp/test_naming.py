"""Names of servers and tools, and addresses."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everthink.address import from_address
from everthink.errors import AgentError
from everthink.mcp.naming import (
    callback_url,
    is_callback,
    normal_url,
    prefix_for,
    random_id,
    server_id,
    tool_name,
    tool_names,
)
from everthink.tools.tool import Tool

PROVIDERS_TAKE = re.compile(r"[A-Za-z0-9_-]{1,64}")


# --- servers


@pytest.mark.agent_case(205)
@pytest.mark.parametrize(
    ("text", "id"),
    [
        ("github", "github"),
        ("GitHub", "github"),
        ("My  Files!! (new)", "my-files-new"),
        ("a--b", "a-b"),
        ("__x__", "x"),
        ("-a_b-", "a_b"),
        ("2nd server", "id-2nd-server"),
        ("", "id"),
        ("!!!", "id"),
        ("Ünïcode", "n-code"),
        ("a" * 80, "a" * 64),
        ("a" * 63 + "-b", "a" * 63),
        ("a" * 63 + "_b", "a" * 63),
        ("1" * 80, "id-" + "1" * 61),
    ],
)
def test_an_id_is_made_of_any_text(text: str, id: str) -> None:
    assert server_id(text) == id


@pytest.mark.agent_case(205)
@given(st.text(max_size=100))
def test_an_id_is_safe_in_names_and_stays_what_it_is(text: str) -> None:
    id = server_id(text)
    assert re.fullmatch(r"[a-z]([a-z0-9_-]{0,62}[a-z0-9])?", id)
    assert server_id(id) == id


@pytest.mark.agent_case(205)
@pytest.mark.parametrize("text", [None, 3, b"github", ["github"]])
def test_an_id_that_is_no_text_is_refused(text: Any) -> None:
    with pytest.raises(AgentError, match="id of an MCP server is") as caught:
        server_id(text)
    assert isinstance(caught.value, TypeError)


def test_an_id_that_is_made_up_has_eight_characters_and_is_as_ids_are() -> None:
    made = {random_id() for _ in range(100)}
    assert len(made) == 100
    assert all(len(id) == 8 and server_id(id) == id for id in made)


# --- tools


def test_tools_are_named_after_their_server() -> None:
    assert tool_name(prefix_for("My Files"), "read") == "my-files_read"
    assert tool_name("files", "docs.read/all") == "files_docs_read_all"


def test_a_prefix_that_somebody_has_gets_a_number() -> None:
    assert prefix_for("github", {"github"}) == "github_2"
    assert prefix_for("github", {"github", "github_2"}) == "github_3"


def test_a_name_that_is_too_long_ends_in_a_mark_of_the_whole() -> None:
    long = "search_" * 12
    one, other = tool_name("files", f"{long}a"), tool_name("files", f"{long}b")
    assert len(one) == len(other) == 64
    assert one[:55] == other[:55]
    assert one != other
    assert one == tool_name("files", f"{long}a")


def test_of_two_tools_that_would_be_called_the_same_the_one_that_needs_no_change_keeps_its_name() -> None:
    named = {"a.b": "x_a_b_2", "a/b": "x_a_b_3", "a_b": "x_a_b"}
    assert tool_names("x", ["a.b", "a_b", "a/b"]) == named
    assert tool_names("x", ["a/b", "a_b", "a.b"]) == named


def test_names_of_others_are_left_to_them() -> None:
    others = tool_names("a_b", ["c"])
    assert tool_names("a", ["b_c"], taken=others.values()) == {"b_c": "a_b_c_2"}


@given(st.text(max_size=40), st.lists(st.text(min_size=1, max_size=120), unique=True, max_size=12))
def test_every_name_is_one_that_providers_accept_and_no_two_are_alike(server: str, tools: list[str]) -> None:
    named = tool_names(prefix_for(server), tools)
    assert set(named) == set(tools)
    assert len(set(named.values())) == len(tools)
    assert all(PROVIDERS_TAKE.fullmatch(name) for name in named.values())
    for name in named.values():
        Tool.from_schema(name, "", None, None)


# --- addresses


@pytest.mark.agent_case(206)
@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("https://Example.com", "https://example.com/"),
        ("https://example.com:443/mcp", "https://example.com/mcp"),
        ("http://example.com:80/mcp", "http://example.com/mcp"),
        ("HTTPS://example.com/a/../mcp", "https://example.com/mcp"),
        ("https://example.com/mcp#top", "https://example.com/mcp"),
        (" https://example.com/mcp ", "https://example.com/mcp"),
        ("https://exämple.com/mcp", "https://xn--exmple-cua.com/mcp"),
        ("http://[::1]:8000/mcp", "http://[::1]:8000/mcp"),
        ("https://example.com/m p", "https://example.com/m%20p"),
    ],
)
def test_addresses_of_the_same_server_are_the_same(one: str, other: str) -> None:
    assert normal_url(one) == normal_url(other)
    assert normal_url(normal_url(one)) == normal_url(one)


@pytest.mark.agent_case(206)
@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("https://example.com/mcp", "http://example.com/mcp"),
        ("https://example.com/mcp", "https://example.com/mcp/"),
        ("https://example.com/mcp", "https://example.com/MCP"),
        ("https://example.com/mcp?a=1", "https://example.com/mcp?a=2"),
        ("https://example.com:8443/", "https://example.com/"),
    ],
)
def test_addresses_of_different_servers_differ(one: str, other: str) -> None:
    assert normal_url(one) != normal_url(other)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "example.com",
        "ftp://example.com",
        "file:///etc/passwd",
        "https://",
        "http://a:b@",
        "https://example.com:99999",
        "https://exa mple.com",
        "javascript:alert(1)",
        "https://a/" + "x" * 5000,
        None,
        7,
    ],
)
def test_what_is_no_address_of_a_server_is_refused_in_words(url: Any) -> None:
    with pytest.raises(AgentError, match="is no address of an MCP server"):
        normal_url(url)


def test_a_password_in_an_address_is_not_repeated() -> None:
    with pytest.raises(AgentError) as caught:
        normal_url("ftp://me:hunter2@example.com")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("https://example.com", "https://example.com/agents/my-agent/room/callback"),
        ("https://example.com/", "https://example.com/agents/my-agent/room/callback"),
        ("example.com", "https://example.com/agents/my-agent/room/callback"),
        ("localhost:8000", "http://localhost:8000/agents/my-agent/room/callback"),
        ("http://127.0.0.1:8000/base", "http://127.0.0.1:8000/base/agents/my-agent/room/callback"),
    ],
)
def test_people_come_back_to_the_agent(host: str, url: str) -> None:
    assert callback_url(host, "MyAgent", "room") == url


def test_people_come_back_to_a_path_of_one_s_own() -> None:
    assert callback_url("https://a.example", "MyAgent", "room", path="/oauth") == "https://a.example/oauth"


@pytest.mark.parametrize("name", ["room", "Jürgen", "a b", "50%", "a%2Fb", "x?y"])
def test_the_address_leads_back_to_the_agent_of_that_name(name: str) -> None:
    url = callback_url("https://a.example", "MyAgent", name)
    assert from_address(url.split("/")[-2]).replace("%3F", "?") == name


@pytest.mark.agent_case(222)
def test_a_callback_is_known_by_its_path_however_it_is_escaped() -> None:
    registered = callback_url("https://example.com/chat", "MyAgent", "Jürgen & co")
    assert is_callback("/chat/agents/my-agent/J%C3%BCrgen%20%26%20co/callback", registered)
    assert is_callback("/chat/agents/my-agent/J%c3%bcrgen%20&%20co/callback", registered)
    assert not is_callback("/chat/agents/my-agent/J%C3%BCrgen/callback", registered)
    assert not is_callback("/agents/my-agent/J%C3%BCrgen%20%26%20co/callback", registered)
    assert not is_callback("", registered)
