"""The strongest machine that this computer has.

strongest --Bubblewrap? Locked?--> a Machine, or CannotSpawn with the way out of each
"""

from __future__ import annotations

from .bubblewrap import Bubblewrap
from .locked import Locked
from .port import CannotSpawn, Machine

__all__ = ["LOCAL", "strongest"]

LOCAL: tuple[type[Bubblewrap] | type[Locked], ...] = (Bubblewrap, Locked)
"""Machines that need nothing but this computer, the strongest first."""


async def strongest(*, python: str | None = None) -> Machine:
    """The first that works here, with the Python that is named. Raises `CannotSpawn`."""
    problems: list[str] = []
    for make in LOCAL:
        machine = make(python=python)
        if (problem := await machine.check()) is None:
            return machine
        problems.append(f"{make.__name__}: {problem}")
    raise CannotSpawn(
        "No machine for real processes works here.",
        kept="Nothing was run.",
        next_step=" ".join(problems),
    )
