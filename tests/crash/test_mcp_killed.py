"""Kill the process at every commit while an MCP tool runs or asks: once, or told that nobody knows."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.crash.mcp_child import STORIES, Traveller, go_on, traveller
from tests.crash.nursery import Nursery, commits_of
from tests.support.node import free_port, serving

pytestmark = pytest.mark.anyio

SERVER = Path(__file__).parents[1] / "mcp" / "asking_server.py"
EFFECT = {"tool": "paid 7", "question": "2 seats to Rome"}
RESULT = {"tool": "Paid 7.", "question": "Booked 2 seats to Rome."}


@pytest.fixture
def booked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BOOKED", str(tmp_path / "booked"))
    return tmp_path / "booked"


@pytest.fixture
def url(booked: Path, tmp_path: Path) -> Iterator[str]:
    """A real MCP server, which outlives the processes that use it."""
    port = free_port()
    with serving([sys.executable, str(SERVER), str(port)], port, tmp_path / "server.log") as address:
        yield f"{address}/mcp"


@pytest.mark.parametrize("story", STORIES)
@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
async def test_a_tool_of_an_mcp_server_runs_once_whenever_the_process_dies(
    story: str, engine: str, url: str, booked: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    is_sqlite = engine == "sqlite"
    store = f"sqlite:///{tmp_path}/everthink.db" if is_sqlite else request.getfixturevalue("postgres_url")
    nursery = Nursery("tests.crash.mcp_child", tmp_path)
    try:
        first = nursery.new_folder(story)
        nursery.is_killed(first, None, store=store, url=url, story=story, room=first.name)
        commits = [commit["commit"] for commit in commits_of(first)]
        assert len(commits) >= 4
        outcomes: set[str] = set()
        for at in (f"{commit}:{when}" for commit in commits[1:] for when in ("before", "after")):
            forget(booked)
            folder = nursery.new_folder(story)
            nursery.is_killed(folder, at, store=store, url=url, story=story, room=folder.name)
            async with traveller(store, url) as app:
                await go_on(app, story, folder.name)
                part = await tool_part(app, folder.name)
            outcomes.add(check(at, story, part, effects_in(booked)))
    finally:
        nursery.close()
    # It was cut off before the tool ran or after, and while it ran
    assert outcomes == {"done", "unknown"}


def forget(booked: Path) -> None:
    booked.write_text("")


def effects_in(booked: Path) -> list[str]:
    return booked.read_text().splitlines()


async def tool_part(app: Any, room: str) -> dict[str, Any]:
    messages = await app.agent(Traveller, room).get_messages()
    (part,) = [part for message in messages for part in message.parts if "toolCallId" in part]
    return part


def check(at: str, story: str, part: dict[str, Any], effects: list[str]) -> str:
    """What became of the call: it took effect once and is known to have, or it is said that nobody knows."""
    assert effects in ([], [EFFECT[story]]), (at, effects)
    if part["state"] == "output-available":
        assert effects == [EFFECT[story]], (at, part)
        assert RESULT[story] in str(part["output"]), (at, part)
        return "done"
    assert part["state"] == "output-error", (at, part)
    assert "may or may not" in part["errorText"], (at, part)
    return "unknown"
