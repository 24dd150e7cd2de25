"""Agents for tests, made on the spot."""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

from everthink import Think
from everthink.errors import AgentElsewhere

T = TypeVar("T", bound=Think)


def assistant(model: Any, **members: Any) -> type[Think]:
    """An agent class called `Assistant` with this model, these members, and no tools that it did not name."""
    return type("Assistant", (Think,), {"model": model, "include_workspace_tools": False, **members})


async def live(handle: T) -> T:
    """The agent behind a handle, started, and free to leave memory again.

    One that a process had which was just killed is there once the database knows that it is dead.
    """
    for _ in range(200):
        try:
            async with handle as agent:
                return agent
        except AgentElsewhere:
            await asyncio.sleep(0.05)
    async with handle as agent:
        return agent
