"""The server process of a crash test: one agent with its children, and what the runner has to ask it.

    everthink serve everthink.testing.crashtest.stage:app   --> /agents/…      as ever
                                                            --> /crashtest/…   state, submit, schedule, …

What the runner asks for may arrive twice, because its first answer may die with the process: every
request below can be repeated. Models are watched: what a provider would refuse is written down.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import importlib
import json
import os
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, Literal, cast

from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, PlainTextResponse

from ...app.app import App
from ...errors import AgentError, ModelError
from ...journal.turn_rows import all_turns, unfinished
from ...messages import is_tool_part, tool_name
from ...models.port import Model, ModelEvent, Request
from ...runtime.actor import Actor
from ...runtime.chat import Chat
from ...store.crashpoints import CrashPoints
from ...store.port import AgentStore
from ...think import Think
from ..scripted_rules import check
from .clock import ForwardClock
from .members import addresses, is_waited_for, members, stored

__all__ = ["SETTINGS", "Stage", "agent_class"]

SETTINGS = "EVERTHINK_CRASHTEST"
"""A JSON object: `agent`, `store`, `room`, `ahead` (seconds of the clock), `refusals` (a file)."""

_WAITING = ("input-available", "approval-requested")
_BREATHS = 3
"""So often does the event loop turn before a chunk that was said is on its way to the store."""


class Watched:
    """A model that is shown nothing a provider would refuse; what it would have been is written down.

    It is held back until what it said is written, so that each piece is a commit of its own, and the same one
    each time.
    """

    def __init__(self, model: Model, refusals: str, written: Callable[[], Awaitable[None]]) -> None:
        self.name = model.name
        self.continues: Literal["prefill", "prompt"] = model.continues
        self._model, self._refusals, self._written = model, refusals, written

    async def stream(self, request: Request) -> AsyncGenerator[ModelEvent, None]:
        """Check the request, then ask the model."""
        try:
            check(request, prefill=self.continues == "prefill")
        except ModelError as error:
            self._note(error.what)
            raise
        async with contextlib.aclosing(self._model.stream(request)) as events:
            async for event in events:
                yield event
                await self._written()

    def _note(self, what: str) -> None:
        with open(self._refusals, "a", encoding="utf-8") as file:
            file.write(json.dumps(what) + "\n")


class Stage(App):
    """An app of one agent that answers the runner's questions."""

    def __init__(self, agent: type[Think], *, store: str, room: str, ahead: float, refusals: str) -> None:
        self._clock_ahead = ForwardClock(ahead)
        self._agent_class, self._room, self._refusals = _with_prompts(agent), room, refusals
        super().__init__(self._agent_class, store=store, clock=self._clock_ahead, grace=0.0)

    def resolve_model(self, value: Any) -> Model:
        """Every model is watched."""
        return Watched(super().resolve_model(value), self._refusals, self._written)

    async def _written(self) -> None:
        store = (await self.open()).store
        if isinstance(store, CrashPoints):
            for _ in range(_BREATHS):
                await asyncio.sleep(0)
            await store.quiet()

    async def on_other_request(self, request: Any) -> Any:
        """Answer the runner."""
        asked = cast("HttpRequest", request)
        deed = {
            "/crashtest/state": self._state,
            "/crashtest/report": self._report,
            "/crashtest/submit": self._submit,
            "/crashtest/schedule": self._schedule,
            "/crashtest/advance": self._advance,
        }.get(asked.url.path)
        if deed is None:
            return PlainTextResponse("Not Found", 404)
        text = await asked.body()
        try:
            return JSONResponse(await deed(json.loads(text) if text else {}))
        except AgentError as error:
            return JSONResponse({"refused": str(error)}, 400)

    async def _home(self) -> Actor:
        directory = await self.open()
        return await directory.reach(directory.address(self._agent_class, self._room))

    async def _chat(self) -> Chat:
        chat = (await self._home()).chat
        assert chat is not None
        return chat

    async def _state(self, _: Any) -> Any:
        """What the agent is doing. `resting`: it will do nothing by itself, and none of its children will."""
        home, chat = await self._home(), await self._chat()
        async with chat.continuations.lock:  # An answer is being taken: what follows is not known yet.
            return await self._told_state(home, chat)

    async def _told_state(self, home: Actor, chat: Chat) -> Any:
        directory = await self.open()
        busy: list[str] = []
        # The children first: what they have done for their parent by then is seen with it.
        for address in (*reversed(await addresses(directory, home.address)), home.address):
            busy += await _busy(AgentStore(directory.store, address.id), directory.live(address))
        rows = await all_turns(home.store)
        return {
            "requests": [row.request_id for row in rows],
            "busy": busy,
            "waiting": [
                {"id": part["toolCallId"], "name": tool_name(part), "state": part["state"]}
                for message in chat.session.path
                for part in message.parts
                if message.role == "assistant" and is_tool_part(part) and part.get("state") in _WAITING
            ],
            "resting": not busy,
        }

    async def _submit(self, given: Any) -> Any:
        made = await (await self._chat()).submissions.accept(given["text"], idempotency_key=given["key"])
        return {"request": made.request_id}

    async def _schedule(self, given: Any) -> Any:
        home = await self._home()
        call, payload = given.get("call"), given.get("with")
        if call is None:
            call, payload = "crashtest_prompt", {"prompt": given["prompt"], "key": given["key"]}
        await home.alarms.schedule(given["in"], call, payload, idempotent=True)
        return {}

    async def _advance(self, given: Any) -> Any:
        self._clock_ahead.put_ahead(given["ahead"])
        return {}

    async def _report(self, _: Any) -> Any:
        """All there is in the database of this agent and of those below it."""
        home = await self._home()
        return {**await stored(home), "family": await members(await self.open(), home)}


async def _busy(store: AgentStore, home: Actor | None) -> list[str]:
    """What an agent is about, or will be by itself. `home` is `None` for one that is not in memory."""
    found = [f"turn {row.request_id}" for row in await unfinished(store)]
    if await is_waited_for(store):
        found.append("a run of a child")
    if home is not None:
        now, timers = home.clock.now_ms(), await home.alarms.listed()
        found += [f"timer {timer.callback}" for timer in timers if timer.time.timestamp() * 1000 <= now]
        if (chat := home.chat) is not None and not (
            chat.door.queue.is_idle and not chat.host.turns and chat.continuations.pending is None
        ):
            found.append("its queue")
    return found


def _with_prompts(agent: type[Think]) -> type[Think]:
    """The agent with a method that schedules can call. It keeps its name, which is its address."""

    async def crashtest_prompt(self: Think, payload: Any, schedule: Any = None) -> None:
        await self.submit_messages(payload["prompt"], idempotency_key=payload["key"])

    fields = {"crashtest_prompt": crashtest_prompt, "__module__": agent.__module__, "__doc__": agent.__doc__}
    return type(agent.__name__, (agent,), fields)


def agent_class(target: str) -> type[Think]:
    """The class that `module:Agent` names. Raises an `AgentError` when there is none."""
    module, _, name = target.partition(":")
    try:
        found: Any = importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise AgentError(
            f"{target} cannot be imported: {error}.", next_step="Run this where the module is."
        ) from error
    for part in name.split("."):
        found = getattr(found, part, None)
    if not (isinstance(found, type) and issubclass(found, Think)):
        raise AgentError(f"{target} is no agent class.", next_step="Name a subclass of Think: module:Agent")
    return found


@functools.cache
def _from_environment() -> Stage:
    settings = json.loads(os.environ[SETTINGS])
    agent = agent_class(settings.pop("agent"))
    return Stage(agent, **settings)


# `app`, made when it is asked for: whoever only imports this module has no settings.
def __getattr__(name: str) -> Any:
    if name == "app":
        return _from_environment()
    raise AttributeError(name)
