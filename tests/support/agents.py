"""Agents for tests, made on the spot."""

from __future__ import annotations

from typing import Any, TypeVar

from everthink import Think

T = TypeVar("T", bound=Think)


def assistant(model: Any, **members: Any) -> type[Think]:
    """An agent class called `Assistant` with this model and these members."""
    return type("Assistant", (Think,), {"model": model, **members})


async def live(handle: T) -> T:
    """The agent behind a handle, started, and free to leave memory again."""
    async with handle as agent:
        return agent
