"""Agents with something wrong with them, each of which a crash test must catch."""

from __future__ import annotations

import os
import random
from collections.abc import AsyncGenerator
from typing import Any

from everthink import Think, TurnConfig, agent_tool, tool
from everthink.models.port import ModelEvent, Request, TextDelta, TextPart, UserMessage
from everthink.testing.crashtest import effect
from everthink.testing.crashtest.sample import Agency, Innkeeper, Traveller, TravelModel

if pipe := os.environ.get("SPOILED_PIPE"):
    # Tell whoever waits at the other end which process this is.
    with open(pipe, "w") as file:
        file.write(f"{os.getpid()}\n")


class Twice(Traveller):
    """Books again what may be booked already."""

    @tool(on_interrupt="rerun")
    async def weather(self, city: str) -> str:
        """The weather in a city."""
        effect(f"weather {city}")
        return f"Snow in {city}."


class GivesUp(Traveller):
    """Leaves an answer where it was cut off."""

    chat_recovery = False


class _Moody(TravelModel):
    async def stream(self, request: Request) -> AsyncGenerator[ModelEvent, None]:
        async for event in super().stream(request):
            yield TextDelta(event.id, str(random.random())) if isinstance(event, TextDelta) else event


class Moody(Traveller):
    """Never says the same thing twice."""

    model = _Moody()


class Speechless(Traveller):
    """Shows its model an empty message, which providers refuse."""

    def before_turn(self, turn: Any) -> TurnConfig:
        return TurnConfig(messages=[UserMessage([TextPart(" ")])])


class HastyInnkeeper(Innkeeper):
    """Reserves again what may be reserved already."""

    @tool(on_interrupt="rerun")
    async def reserve(self, nights: int) -> str:
        """Keep a room for somebody."""
        effect(f"reserve {nights} nights")
        return "Room 7."


class HastyAgency(Agency):
    """Has a child that acts twice."""

    inn = agent_tool(HastyInnkeeper, description="Keeps rooms.")


class ForgetfulAgency(Think):
    """Asks another child after a crash: it does not say which run it is."""

    model = TravelModel()
    sub_agents = (Innkeeper,)

    @tool(on_interrupt="rerun")
    async def inn(self, query: str) -> str:
        """Keeps rooms."""
        return (await self.run_agent_tool(Innkeeper, input={"query": query})).summary or ""
