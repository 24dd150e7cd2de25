"""`Agent`: an addressable thing that lives in a database and wakes when it is reached."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .errors import AgentError
from .runtime.context import current_connection
from .runtime.state import NO_STATE

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

    initial_state: Any = NO_STATE
    """The state of an agent that has none yet: any JSON value, shown to every connected client."""

    @property
    def state(self) -> Any:
        """The agent's state, as a copy. `None` when it has none."""
        return self._home.state

    async def set_state(self, state: Any) -> None:
        """Replace the state; it is stored, and every connected client gets it.

        Raises when the change is not valid, or when the client whose call this is may only read.
        """
        connection = current_connection.get()
        if connection is not None and connection.is_readonly:
            raise AgentError("Connection is readonly")
        await self._home.set_state(state, source="server")

    def validate_state_change(self, state: Any, source: Any) -> None:
        """Raise to refuse a state. `source` is `"server"` or the connection it came by."""

    def on_state_changed(self, state: Any, source: Any) -> Any:
        """See a new state, after it was stored and sent. Raising is logged."""

    # --- connections

    def should_connection_be_readonly(self, connection: Any, request: Any) -> Any:
        """True for a client that may not change the state. Default: nobody."""
        return False

    def should_send_protocol_messages(self, connection: Any, request: Any) -> Any:
        """False for a client that wants no identity, state and MCP frames. Default: everybody does."""
        return True

    def on_connect(self, connection: Any, request: Any) -> Any:
        """A client connected and was greeted. Raising closes the connection with code 1011."""

    def on_message(self, connection: Any, message: str | bytes) -> Any:
        """A client sent something that is not part of the protocol. Raising is logged."""

    def on_close(self, connection: Any, code: int, reason: str) -> Any:
        """A client left. Raising is logged."""

    def on_request(self, request: Any) -> Any:
        """Answer an HTTP request below the agent's address: a response, a JSON value, or `None` for 404."""
        return None

    def broadcast(self, message: str, *, without: Sequence[str] = ()) -> None:
        """Send text to every connected client except those ids."""
        if self._home.hall is not None:
            self._home.hall.broadcast(message, without=without)

    @property
    def connections(self) -> list[Any]:
        """The connected clients."""
        return list(self._home.hall.connections) if self._home.hall is not None else []

    # --- life

    async def on_start(self, props: Any = None) -> None:
        """Runs once each time the agent comes into memory, before it serves anybody.

        `props` are those given to `app.agent(..., props=...)` by whoever woke it. Raising fails
        that caller; the next one tries again.
        """
