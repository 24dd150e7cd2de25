"""Where real processes run: a machine starts one, and all that we need of it is its input and its output.

    sandbox.py --spawn--> Machine --Pipe--> write, read ... kill

An adapter carries no files and knows no language: the program that it starts is our runner, which is told
everything over its standard input and answers on its standard output. Every adapter passes the suite in
`everthink.testing.contracts.machine`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ..errors import AgentError
from ..sandbox.port import Isolation, Limits

__all__ = ["CannotSpawn", "Machine", "Pipe"]


class CannotSpawn(AgentError):
    """A machine cannot start a process; the words say why, and the way out."""


class Pipe(Protocol):
    """A process in a machine, from outside."""

    async def write(self, data: bytes) -> None:
        """Send to its standard input; lost when it is dead."""
        ...

    async def read(self) -> bytes:
        """What came next from its standard output; nothing at its end."""
        ...

    async def kill(self) -> None:
        """End it with everything that it has started, and return when that is gone. May be called twice."""
        ...


class Machine(Protocol):
    """Something that can start a process which sees nothing of this server."""

    isolation: Isolation

    async def check(self) -> str | None:
        """Why it cannot run here, and the way out; `None` when it can."""
        ...

    async def spawn(self, argv: Sequence[str], limits: Limits) -> Pipe:
        """Start a program in an empty folder of its own. The first word, `python3`, is the machine's own
        Python, 3.8 or newer. Raises `CannotSpawn`."""
        ...

    async def aclose(self) -> None:
        """End everything that was started."""
        ...
