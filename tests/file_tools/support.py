"""An agent whose model calls one tool in each turn, as a test says, and what the model was shown of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from everthink import App, Think
from everthink.models.port import Request, ToolMessage, ToolResultPart
from everthink.testing.scripted import Play, ScriptedModel, calls, says
from everthink.workspace import Workspace
from tests.conftest import OpenApp
from tests.support.agents import live

__all__ = ["PNG", "Desk", "Failed", "MakeDesk", "desk_maker", "results_in"]

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 24
"""As much of a picture as anybody here looks at."""


class Failed(str):
    """What a tool failed with."""


class Desk:
    """One agent, its model and its files."""

    def __init__(self, app: App, cls: type[Think], model: ScriptedModel) -> None:
        self.app, self.cls, self.model = app, cls, model

    async def turn(self, *plays: Play) -> list[Any]:
        """What the calls of one turn gave, in order."""
        self.model.add(*plays, says("Done."))
        result = await self.app.agent(self.cls).save_messages("Go")
        assert result.status == "completed", result
        parts = [part for part in result.message.parts if "toolCallId" in part]
        return [
            Failed(part["errorText"]) if part["state"] == "output-error" else part["output"] for part in parts
        ]

    async def call(self, name: str, /, **input: Any) -> Any:
        """What one call of a tool gives."""
        [output] = await self.turn(calls(name, input))
        return output

    async def files(self) -> Workspace:
        """The workspace of the agent."""
        return (await live(self.app.agent(self.cls))).workspace

    @property
    def shown(self) -> ToolResultPart:
        """What the model was shown last of a result."""
        return results_in(self.model.last_request)[-1]


def results_in(request: Request) -> list[ToolResultPart]:
    """The results in a prompt."""
    return [
        part
        for message in request.messages
        if isinstance(message, ToolMessage)
        for part in message.content
        if isinstance(part, ToolResultPart)
    ]


MakeDesk = Callable[..., Awaitable[Desk]]


def desk_maker(open_app: OpenApp) -> MakeDesk:
    """Makes desks on the apps of a test."""

    async def make(*, store: Any = None, **members: Any) -> Desk:
        model = ScriptedModel()
        cls = type("Assistant", (Think,), {"model": model, **members})
        app = await open_app(cls, **({} if store is None else {"store": store}))
        return Desk(app, cls, model)

    return make
