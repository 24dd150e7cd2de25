"""The secrets of one MCP server: one JSON object, kept sealed in one column.

    oauth, headers --change, write--> Keep --text--> save: the row        read <-- load

When `write` or `change` returns, what it wrote is durable. Changes are made one after the other and from what
is stored, so two that are made at once lose nothing. There is one keep for each server of an agent that is in
memory; that no other process writes is the agent's own promise.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from .sealing import Sealer

__all__ = ["OAUTH", "Keep"]

OAUTH = ("tokens", "expires_at", "client", "metadata", "resource", "auth_server", "pending", "redeemed")
"""What of it is OAuth's. Beside that: `headers`, and `given`, the client that code names."""


class Keep:
    """Reads and writes the secrets of one server.

    `load` gives the text of the column, `None` when there is none; `save` returns once it is stored.
    """

    def __init__(
        self,
        sealer: Sealer,
        load: Callable[[], Awaitable[str | None]],
        save: Callable[[str], Awaitable[object]],
    ) -> None:
        self._sealer, self._load, self._save = sealer, load, save
        self._changing = asyncio.Lock()

    async def read(self) -> dict[str, Any]:
        """All that is kept. Raises `SecretsUnreadable` when it cannot be opened."""
        text = await self._load()
        return {} if text is None else self._sealer.open(text)

    async def write(self, **changed: Any) -> None:
        """Set these and leave the others. `None` takes one away."""
        await self.change(lambda kept: changed)

    async def change(self, decide: Callable[[dict[str, Any]], Mapping[str, Any] | None]) -> bool:
        """Set what `decide` returns for what is kept; nothing when it returns `None`. Returns whether."""
        async with self._changing:
            kept = await self.read()
            changed = decide(kept)
            if changed is None:
                return False
            now = {**kept, **changed}
            await self._save(self._sealer.seal({key: one for key, one in now.items() if one is not None}))
            return True

    async def start_over(self, **values: Any) -> None:
        """Keep these and nothing else, whether the old ones can be opened or not."""
        async with self._changing:
            await self._save(self._sealer.seal(values))
