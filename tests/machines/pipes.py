"""Pipes and machines made of Python: what a machine far away may say, without one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence

from everthink.machines.port import Pipe
from everthink.sandbox.port import Isolation, Limits

__all__ = ["SaidMachine", "SaidPipe", "line"]


def line(**said: object) -> bytes:
    return json.dumps(said).encode() + b"\n"


class SaidPipe:
    """Says what it was told to say, then ends, or never does."""

    def __init__(self, said: Sequence[bytes], *, ends: bool = True) -> None:
        self._said, self._ends = list(said), ends
        self.written = b""
        self.killed = 0
        self._gone = asyncio.Event()

    async def write(self, data: bytes) -> None:
        self.written += data

    async def read(self) -> bytes:
        if self._said and not self.killed:
            return self._said.pop(0)
        if not self._ends:
            await self._gone.wait()
        return b""

    async def kill(self) -> None:
        self.killed += 1
        self._gone.set()


class SaidMachine:
    """Its processes are such pipes."""

    isolation: Isolation = "vm"

    def __init__(self, pipe: SaidPipe) -> None:
        self.pipe = pipe
        self.asked: list[Sequence[str]] = []

    async def check(self) -> str | None:
        return None

    async def spawn(self, argv: Sequence[str], limits: Limits) -> Pipe:
        self.asked.append(argv)
        return self.pipe

    async def aclose(self) -> None:
        """Nothing is open."""
