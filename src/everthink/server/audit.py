"""What the connections of one agent did, and what they were kept from: told with who they are.

ChatSockets, Asking, Calls --connection, action--> AgentAuditor --> access/audit.py
"""

from __future__ import annotations

from ..access.audit import Auditor
from .connections import Connection

__all__ = ["AgentAuditor"]


class AgentAuditor:
    """Tells the observers of one agent's app."""

    def __init__(self, auditor: Auditor, agent: str, name: str) -> None:
        self._auditor, self._agent, self._name = auditor, agent, name

    def tell(
        self, connection: Connection, action: str, target: str | None = None, reason: str | None = None
    ) -> None:
        """Tell observers what somebody did; with a `reason`, why they may not."""
        who = {"identity": connection.who, "connection_id": connection.id, "address": connection.address}
        if reason is None:
            self._auditor.did(self._agent, self._name, action, target=target, **who)
        else:
            self._auditor.refused(self._agent, self._name, action, reason, target=target, **who)
