"""`Agent`: an addressable thing that lives in a database and wakes when it is reached."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .runtime.actor import Actor

__all__ = ["Agent"]


class Agent:
    """An agent with a name of its own. Subclass `Think` for one that chats.

    An instance exists while the agent is in memory; what must survive belongs into its
    storage. Instances are made by the app, never by hand: `app.agent(Cls, "name")`.
    """

    _home: Actor

    @property
    def name(self) -> str:
        """The name this agent is reached by."""
        return self._home.name

    @property
    def id(self) -> str:
        """The agent's address: its class and its name."""
        return self._home.id

    async def on_start(self, props: Any = None) -> None:
        """Runs once each time the agent comes into memory, before it serves anybody.

        `props` are those given to `app.agent(..., props=...)` by whoever woke it. Raising fails
        that caller; the next one tries again.
        """
