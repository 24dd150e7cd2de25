"""The strongest machine that this computer has.

strongest --Bubblewrap? Locked?--> a Machine, or CannotSpawn with the way out of each
"""

from __future__ import annotations

from collections.abc import Sequence

from .bubblewrap import Bubblewrap
from .locked import Locked
from .port import CannotSpawn, Machine

__all__ = ["LOCAL", "strongest"]

LOCAL: tuple[type[Bubblewrap] | type[Locked], ...] = (Bubblewrap, Locked)
"""Machines that need nothing but this computer, the strongest first."""


async def strongest(*, python: str | None = None, at_root: Sequence[str] = ()) -> Machine:
    """The first that works here, with the Python that is named. `at_root`: names in the home of a job that
    are to be found at the root, too, where a machine has a root of its own. Raises `CannotSpawn`."""
    problems: list[str] = []
    for make in LOCAL:
        machine = make(python=python, at_root=at_root) if make is Bubblewrap else make(python=python)
        if (problem := await machine.check()) is None:
            return machine
        problems.append(f"{make.__name__}: {problem}")
    raise CannotSpawn(
        "No machine for real processes works here.",
        kept="Nothing was run.",
        next_step=" ".join(problems),
    )
