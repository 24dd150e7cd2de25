"""Who is refused, with which words, and what the log says of it."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import InvalidStatus

from everthink import AgentError, App, Think
from everthink.testing import ScriptedModel, says

from ..support.agents import assistant
from ..support.server import served
from .conftest import Serve

pytestmark = pytest.mark.anyio

ROOM = "/agents/assistant/room"


LOUD: Any = {"log_config": None, "log_level": "warning"}
"""Settings of uvicorn that let the test hear it."""


def said(caplog: pytest.LogCaptureFixture, by: str) -> list[str]:
    """What was logged as a warning or worse."""
    return [r.getMessage() for r in caplog.records if r.name.startswith(by) and r.levelno >= logging.WARNING]


async def refusal(server: Any, path: str, **options: Any) -> tuple[int, str]:
    with pytest.raises(InvalidStatus) as refused:
        await server.connect(path, **options)
    response = refused.value.response
    return response.status_code, bytes(response.body or b"").decode()


@pytest.mark.parametrize(
    ("path", "options", "status", "text", "why"),
    [
        (
            "/agents/asistant/room",
            {},
            400,
            "Invalid request",
            "there is no agent 'asistant' (known: assistant)",
        ),
        (f"/agents/assistant/{'n' * 600}", {}, 400, "Invalid request", "longer than 512 characters"),
        ("/agents/assistant", {}, 404, "Not Found", "no agent is at this address"),
        (
            ROOM,
            {"origin": "https://evil.example"},
            403,
            "Origin not allowed",
            "https://evil.example is not allowed (allow_origins=['https://evil.example'] would)",
        ),
        (
            ROOM,
            {"query": {"__agents_transport": "capnweb", "token": "t0ken"}},
            501,
            "The Cap'n Web transport is not supported. Connect with the default one, cf-websocket.",
            "it asks for the Cap'n Web transport",
        ),
    ],
    ids=["unknown agent", "long name", "no name", "foreign origin", "Cap'n Web"],
)
async def test_a_refusal_is_said_once_with_its_reason(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    path: str,
    options: Any,
    status: int,
    text: str,
    why: str,
) -> None:
    app = App(assistant(ScriptedModel()), store=f"sqlite:///{tmp_path}/e.db")
    async with served(app, **LOUD) as server:
        assert await refusal(server, path, **options) == (status, text)
    # uvicorn has nothing to complain about, and nobody logs what stands behind the question mark
    assert said(caplog, "uvicorn") == []
    [line] = said(caplog, "everthink.server")
    assert why in line
    assert f"refused with {status}" in line
    assert "t0ken" not in caplog.text


async def test_what_the_application_refuses_itself_is_quiet(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    app = App(
        assistant(ScriptedModel()),
        store=f"sqlite:///{tmp_path}/e.db",
        authenticate=lambda connection: None,
        authorize=lambda identity, action, agent: True,
    )
    async with served(app, **LOUD) as server:
        assert await refusal(server, ROOM) == (401, "Unauthorized")
    assert said(caplog, "uvicorn") == []
    assert said(caplog, "everthink.server") == []


async def test_another_transport_than_capnweb_is_nobodys_business(serve: Serve) -> None:
    cls = assistant(ScriptedModel(says("Hi.")))
    server = await serve(cls)
    chat = await server.connect(cls, query={"__agents_transport": "cf-websocket"})
    await chat.until_done(await chat.say("Hello"))
    assert chat.text == "Hi."
    # and an HTTP request is not an upgrade
    assert (await server.http(f"{ROOM}/get-messages?__agents_transport=capnweb")).status == 200


def test_two_classes_with_one_address_are_told() -> None:
    one: type[Think] = type("MyDesk", (Think,), {})
    two: type[Think] = type("My_desk", (Think,), {})
    with pytest.raises(AgentError, match="My_desk and MyDesk have the same address, my-desk"):
        App(one, two)
