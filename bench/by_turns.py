"""CPU of a turn of several agents, by turns: what one of them is offered more."""

from __future__ import annotations

import time
from collections.abc import Sequence
from statistics import median

from everthink import App, Think

from .measure import calm
from .work import QUESTION

ROOM = 20
"""Turns in one conversation."""


async def cpu_of_turns(app: App, agents: Sequence[type[Think]], *, turns: int) -> list[float]:
    """Seconds of CPU, the median of each agent. All are asked the same, one after the other."""
    taken: dict[type[Think], list[float]] = {cls: [] for cls in agents}
    for number in range(-ROOM, turns):
        for cls, cpu in taken.items():
            if number % ROOM == 0:
                calm()
            began = time.process_time()
            await app.agent(cls, f"room-{number // ROOM}").save_messages(QUESTION)
            if number % ROOM and number > 0:  # the first of a room opens it
                cpu.append(time.process_time() - began)
    return [median(cpu) for cpu in taken.values()]
