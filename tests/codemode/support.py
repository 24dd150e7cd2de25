"""An agent whose model runs code, once in each turn, as a test says."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from everthink import App, Think
from everthink.codemode import Executions, create_execute_tool
from everthink.testing.scripted import ScriptedModel, calls, says
from tests.conftest import OpenApp
from tests.file_tools.support import results_in
from tests.support.agents import live

__all__ = ["Coder", "MakeCoder", "coder_maker"]


class Coder:
    """One agent and its model."""

    def __init__(
        self, open_app: OpenApp, app: App, cls: type[Think], model: ScriptedModel, store: Any
    ) -> None:
        self._open_app, self._store = open_app, store
        self.app, self.cls, self.model = app, cls, model

    async def run(self, code: str, *, tool: str = "execute") -> dict[str, Any]:
        """The output of one piece of code; of one that waits, what it shows meanwhile."""
        self.model.add(calls(tool, {"code": code}), says("Done."))
        await self.app.agent(self.cls).save_messages("Go")
        return await self.output()

    async def go_on(self) -> dict[str, Any]:
        """The same after an answer."""
        await self.app.agent(self.cls).continue_last_turn()
        return await self.output()

    async def answer(self, approved: bool, reason: str | None = None) -> bool:
        """Say yes or no to what waits."""
        part = await self.part()
        return await self.app.agent(self.cls).apply_tool_approval(part["toolCallId"], approved, reason=reason)

    async def part(self) -> dict[str, Any]:
        """The last call of the conversation."""
        messages = await self.app.agent(self.cls).get_messages()
        return [part for message in messages for part in message.parts if "toolCallId" in part][-1]

    async def output(self) -> dict[str, Any]:
        return (await self.part()).get("output", {})

    async def restart(self) -> None:
        """Everything ends, and begins again."""
        await self.app.close()
        self.app = await self._open_app(self.cls, **({} if self._store is None else {"store": self._store}))

    async def agent(self) -> Any:
        return await live(self.app.agent(self.cls))

    async def executions(self) -> Executions:
        return Executions.of(await self.agent())

    @property
    def shown(self) -> Any:
        """What the model was shown last of a result."""
        return results_in(self.model.last_request)[-1].output


MakeCoder = Callable[..., Awaitable[Coder]]


def coder_maker(open_app: OpenApp) -> MakeCoder:
    """Makes them on the apps of a test."""

    async def make(
        *tools: Any, store: Any = None, options: dict[str, Any] | None = None, **members: Any
    ) -> Coder:
        model = ScriptedModel()

        def get_tools(self: Any) -> Any:
            return [create_execute_tool(**(options or {})), *tools]

        cls = type("Assistant", (Think,), {"model": model, "get_tools": get_tools, **members})
        app = await open_app(cls, **({} if store is None else {"store": store}))
        return Coder(open_app, app, cls, model, store)

    return make
