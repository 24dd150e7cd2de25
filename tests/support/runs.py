"""Runs of children in tests: what windows are told of them, and what their rows say."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

from everthink.calling import awaited
from everthink.testing.client import Client

__all__ = ["columns", "ends", "pieces", "run_frames", "text_of", "until_shown"]


def run_frames(tab: Client, run_id: str | None = None) -> list[dict[str, Any]]:
    """What a window was told of runs, or of one."""
    told = [frame for frame in tab.frames if frame["type"] == "agent-tool-event"]
    return [frame for frame in told if run_id in (None, frame["event"]["runId"])]


def pieces(tab: Client, run_id: str | None = None) -> dict[int, dict[str, Any]]:
    """The pieces of a run, by number, without reports, which have none."""
    found: dict[int, dict[str, Any]] = {}
    for frame in run_frames(tab, run_id):
        if frame["event"]["kind"] == "chunk":
            body = json.loads(frame["event"]["body"])
            if body["type"] != "data-agent-progress":
                found[frame["sequence"]] = body
    return found


def text_of(tab: Client, run_id: str | None = None) -> str:
    """The words of a run."""
    return "".join(body.get("delta", "") for body in pieces(tab, run_id).values())


def ends(tab: Client, run_id: str | None = None) -> list[dict[str, Any]]:
    """How a window was told that runs ended."""
    events = [frame["event"] for frame in run_frames(tab, run_id)]
    return [event for event in events if event["kind"] not in ("started", "chunk")]


async def until_shown(live: Any, is_so: Callable[[], Any]) -> None:
    """Return once that is so, which may be after whatever the agent shows."""
    changed = asyncio.Event()
    leave = live._home.feed.join(lambda _: changed.set())
    try:
        while changed.clear() or not await awaited(is_so()):
            await changed.wait()
    finally:
        leave()


async def columns(agent: Any, run_id: str, *names: str) -> tuple[Any, ...]:
    """What the row of a run says."""
    async with agent as live:
        sql = f"SELECT {', '.join(names)} FROM child_runs WHERE agent = :agent AND run_id = ?"
        (row,) = await live._home.store.fetch(sql, run_id)
    return row
