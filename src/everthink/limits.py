"""How much a stranger may send, ask for and keep: every bound of an app in one value.

    App(limits=Limits(waiting_turns=5)) --> server/, turn/, runtime/

What is over a bound is refused with the bound in the words; nothing is cut in silence.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from .errors import AgentError

__all__ = ["Limits"]

KIB, MIB = 1024, 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The bounds of an app. Each has a default for a public server; raise what you need."""

    frame_bytes: int = 16 * MIB
    """Bytes of one frame, or of one HTTP body."""
    frame_nodes: int = 200_000
    """Values, keys and brackets in one frame; more than 80,000 only in a frame with 13 bytes for each.
    Numbers that are slow to read count as more."""
    frame_depth: int = 128
    """Levels of lists and objects in one frame."""
    request_messages: int = 20_000
    """Messages in the list that a chat window sends."""
    new_messages: int = 16
    """New user messages in one request."""
    message_bytes: int = 8 * MIB
    """Bytes of the new messages of one request, their files included."""
    text_bytes: int = MIB
    """Bytes of the texts of the new messages of one request: everybody's commits wait for theirs."""
    message_parts: int = 256
    """Parts of one new message."""
    id_chars: int = 128
    """Characters of an id that a client chose: of a request, a message, a connection, a call."""
    body_bytes: int = 64 * KIB
    """Bytes of the custom fields of a request, which are kept with its turn."""
    client_tools: int = 64
    """Tools that one client may declare."""
    client_tools_bytes: int = 128 * KIB
    """Bytes of their declarations."""
    tool_result_bytes: int = MIB
    """Bytes of what a tool in a browser returns."""
    state_bytes: int = MIB
    """Bytes of a state that a client sets."""
    waiting_turns: int = 32
    """Turns of one agent that may wait for their place, when clients ask for them."""
    calls_at_once: int = 16
    """Method calls of one connection, or of one MCP client at one agent, that may run at once."""
    replays: int = 8
    """Times that one stream is replayed to one connection, which asks for it each time."""
    sockets: int = 10_000
    """Sockets in all."""
    sockets_per_address: int = 1_000
    """Sockets of one address."""
    agents_per_minute: int = 60
    """New agents that one address may bring into being in a minute."""
    handshake_seconds: float = 10.0
    """Time for the headers of a request and for the handshake of a socket."""
    stall_seconds: float = 30.0
    """Time in which a client takes some of what it is sent, or sends 64 KiB more of what it has begun."""
    header_bytes: int = 64 * KIB
    """Bytes of the headers of a request."""
    buffered_bytes: int = 256 * MIB
    """Bytes that wait in all: of messages that are still arriving, and of what clients do not read."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
                raise AgentError(
                    f"Limits({field.name}={value!r}): a limit is a number above 0.",
                    next_step="Leave it out for the default, or give a large number for hardly any limit.",
                )
