"""A real server in the test's own event loop, and ways to reach it."""

from __future__ import annotations

from typing import Any

from everthink import App, Think
from everthink.testing.client import Client
from everthink.testing.in_process_server import Listening


class Served(Listening):
    """An app that listens. Its tabs open the room `room`."""

    async def connect(self, agent: type | str, name: str = "room", **options: Any) -> Client:
        return await super().connect(agent, name, **options)


served = Served
"""`async with served(app) as server`: serve `app` on a free port."""


def open_app(folder: Any, *agents: type[Think], **options: Any) -> App:
    """An app on the SQLite file of `folder`, not yet open."""
    options.setdefault("store", f"sqlite:///{folder}/everthink.db")
    options.setdefault("grace", 0.0)
    options.setdefault("idle_after", None)  # no timer that a test did not ask for
    return App(*agents, **options)


def kinds(client: Client, *, since: int = 0) -> list[str]:
    """The types of what arrived, runs of chunks as one."""
    found: list[str] = []
    for frame in client.frames[since:]:
        kind = frame["type"].removeprefix("cf_agent_")
        if kind == "use_chat_response":
            kind = "done" if frame["done"] else "error" if frame.get("error") else "chunks"
        if kind != "chunks" or found[-1:] != ["chunks"]:
            found.append(kind)
    return found
