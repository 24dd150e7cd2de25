"""What the MCP servers of an app have in common: where they may be, how their secrets are kept, who they are.

App --> Network --> McpServers of each agent, SharedServers of the app
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..oauth.sealing import Sealer

__all__ = ["Network"]


@dataclass(slots=True)
class Network:
    """How servers are reached."""

    sealer: Sealer
    version: str = "0"
    """What we say about ourselves."""
    loopback: bool = False
    """True lets agents add servers on this machine. `everthink dev` sets it."""
    allow: Sequence[str] = ()
    """Hosts near us that agents may add servers of."""
    prefix: str = "agents"
    """Below which path the agents are."""
