"""What people bring back, before anybody has checked it."""

from __future__ import annotations

import pytest

from everthink.mcp.naming import random_id, server_id
from everthink.oauth.callback import Callback, new_state, read_callback, server_of

STATE = "0123456789abcdef0123456789abcdef.github"  # as `new_state` makes them


def test_a_state_names_its_server_and_is_another_each_time() -> None:
    ids = [random_id(), server_id("My Files"), "a" * 64]
    assert [server_of(new_state(id)) for id in ids] == ids
    assert len({new_state("github") for _ in range(100)}) == 100


@pytest.mark.agent_case(222)
@pytest.mark.parametrize("query", [f"state={STATE}&code=abc&iss=https%3A%2F%2Fa.example&x=1&x=2"])
def test_a_callback_is_known_by_its_state(query: str) -> None:
    found = Callback(STATE, code="abc", issuer="https://a.example")
    assert read_callback(query) == read_callback(query.encode()) == found
    assert found.server_id == "github"
    assert found.problem is None


@pytest.mark.agent_case(222, 223)
@pytest.mark.parametrize(
    "query",
    [
        "",
        "code=abc",
        "state=&code=abc",
        "state=short.github&code=abc",
        f"state={STATE.partition('.')[0]}",
        f"state={STATE}&state={STATE}",
        f"state={STATE}&code=a&code=b",
        f"state={STATE}%00",
        "state=" + "x" * 20_000,
        "&".join(f"a{number}=1" for number in range(100)) + f"&state={STATE}",
        b"state=\xff",
    ],
)
def test_a_request_without_a_state_of_ours_is_somebody_else_s(query: str | bytes) -> None:
    assert read_callback(query) is None


@pytest.mark.agent_case(224)
@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("error=access_denied", "access_denied"),
        ("error=access_denied&error_description=Not%20today", "access_denied: Not today"),
        ("error=a%0Ab%1B%5B2J", "a b[2J"),
        ("error=" + "x" * 600, "x" * 500 + "..."),
        ("error=%00", "the authorization server gives no reason"),
        ("error=", "the authorization server gives no reason"),
        ("error=denied&code=abc", "denied"),
        ("code=", "the authorization server has sent no code"),
        ("x=1", "the authorization server has sent no code"),
    ],
)
def test_why_there_is_no_code_is_told_in_the_words_of_the_server(query: str, words: str) -> None:
    found = read_callback(f"state={STATE}&{query}")
    assert found is not None
    assert found.problem == words


def test_neither_state_nor_code_are_in_what_is_printed() -> None:
    found = Callback(STATE, code="secret-code")
    assert STATE not in repr(found)
    assert "secret-code" not in repr(found)
