"""A family for server processes: a parent that waits for two children, one of which may be held up.

HOUSEHOLD_NOTES  a file; what tools did is written there, a line each
HOUSEHOLD_STORE  the database
HOUSEHOLD_LEASE  seconds of the lease, if it is to be short
TALKER_GATE      a file; the talker's words after the fifth are said once it is there
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from everthink import App, Think, agent_tool, tool
from everthink.models.port import Request, ToolMessage
from everthink.testing.scripted import Play, ScriptedModel, calls, says
from tests.cluster.talker import Talker

__all__ = ["DONE", "FILED", "Clerk", "Head"]

DONE, FILED = "Both have answered.", "It is filed."


def note(what: str) -> None:
    """Do something to the world."""
    with Path(os.environ["HOUSEHOLD_NOTES"]).open("a") as file:
        file.write(f"{what} {os.getpid()}\n")


def is_answered(request: Request) -> bool:
    return any(isinstance(message, ToolMessage) for message in request.messages)


class Clerk(Think):
    """A child that does something and is done soon."""

    model: Any = ScriptedModel(
        lambda request: says(FILED) if is_answered(request) else calls("file"), repeat=True, records=False
    )

    @tool
    async def file(self) -> str:
        """File it."""
        note("filed")
        return "Filed."


def delegated(request: Request) -> Play:
    """Ask both children at once and do something itself, then answer."""
    asked = calls("stamp").calls("clerk", query="File it.").calls("talker", query="Talk.")
    return says(DONE) if is_answered(request) else asked


class Head(Think):
    """The parent."""

    model: Any = ScriptedModel(delegated, repeat=True, records=False)
    clerk = agent_tool(Clerk, description="Files.")
    talker = agent_tool(Talker, description="Talks.")

    @tool
    async def stamp(self) -> str:
        """Stamp it."""
        note("stamped")
        return "Stamped."


if "HOUSEHOLD_STORE" in os.environ:
    lease = os.environ.get("HOUSEHOLD_LEASE")
    app = App(
        Head,
        store=os.environ["HOUSEHOLD_STORE"],
        store_options={} if lease is None else {"lease": float(lease)},
        grace=0.0,
    )
