"""One call of a tool of an MCP server, and what it asks on the way.

    Server --input, ToolContext--> called --> Link --> result --> results.output_of
                                      | ^ asks a person: Question (protocol of 2026), or ctx.ask (older ones)
                                      v how far it is: Progress --now and then--> ctx.progress

Imported when a tool is first called: it loads the `mcp` package.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, cast

import mcp_types as types
from mcp.shared.exceptions import MCPError

from ..clock import Clock
from ..errors import ToolError
from ..tools.question import MAX_FORMS, Answer, Form, Given, Question
from ..tools.tool import ToolContext
from ..words import clean, said
from .link import Call, Link, Timeouts
from .results import output_of, progress_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from mcp import Client

__all__ = ["LIVE_SECONDS", "Progress", "called", "elicited"]

log = logging.getLogger("everthink.mcp")

LIVE_SECONDS = 300.0
"""So long an older server waits for a person, whose question does not outlive the call."""
LONGEST_MESSAGE = 2_000
BETWEEN_SHOWN = 0.2
"""Seconds between two signs of progress that are shown: each is stored, and sent to every window."""


async def called(
    link: Link, call: Call, input: dict[str, Any], ctx: ToolContext, timeouts: Timeouts, clock: Clock
) -> Any:
    """Run a tool. Raises `ToolError` with words for the model, or `Question` when a person has to answer."""
    answers = None if ctx.answer is None else _responses(ctx.answer.forms)
    state = None if ctx.answer is None else ctx.answer.state

    async def ask(client: Client, alive: Callable[[], None]) -> Any:
        try:
            return await once(client, alive, answers, state)
        except MCPError as error:
            if ctx.answer is None or not _is_forgotten(error):
                raise
        # The server has begun anew since, or does not wait that long: nothing was run. It is asked from the
        # start, and what a person has answered counts if it asks the very same.
        first = await once(client, alive, None, None)
        if isinstance(first, types.InputRequiredResult) and _asks_again(first, link.name, ctx.answer):
            return await once(client, alive, answers, first.request_state)
        return first

    async def once(client: Client, alive: Callable[[], None], given: Any, kept: str | None) -> Any:
        async def heard(progress: float, total: float | None, message: str | None) -> None:
            alive()
            shown.take(progress_of(progress, total, message))

        return await client.session.call_tool(
            call.tool,
            input,
            read_timeout_seconds=timeouts.most + LIVE_SECONDS,  # the link knows when it is too long
            progress_callback=heard,
            input_responses=given,
            request_state=kept,
            allow_input_required=True,
        )

    async with Progress(ctx.progress, clock) as shown:
        what = f"the tool {call.tool!r}"
        result = await link.call(ask, timeouts, what, may_repeat=call.may_repeat)
    if isinstance(result, types.InputRequiredResult):
        raise _question(result, link.name, call.tool)
    return output_of(result)


class Progress:
    """How far a call is: the newest is shown now and then, and the last always."""

    def __init__(self, show: Callable[[Any], Awaitable[None]], clock: Clock) -> None:
        self._show, self._clock = show, clock
        self._newest: dict[str, Any] | None = None
        self._task: asyncio.Task[None] | None = None
        self._is_over, self._rested = False, asyncio.Event()

    def take(self, value: dict[str, Any]) -> None:
        """Show `value`, at once or a little later, unless there is something newer by then."""
        self._newest = value
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(), name="progress of an MCP tool")

    async def __aenter__(self) -> Progress:
        return self

    async def __aexit__(self, kind: Any, error: Any, trace: Any) -> None:
        """Show what is left, before what the call came to. Of a call that was cancelled nothing more is."""
        if self._task is None:
            return
        if isinstance(error, asyncio.CancelledError):
            self._task.cancel()
            return
        self._is_over = True
        self._rested.set()
        await asyncio.wait([self._task])

    async def _run(self) -> None:
        while self._newest is not None:
            value, self._newest = self._newest, None
            try:
                await self._show(value)
            except Exception:
                # It is the call that counts, not whether somebody sees how far it is.
                log.exception("how far a tool of an MCP server is could not be shown")
            if not self._is_over:
                await self._rest()

    async def _rest(self) -> None:
        timer = self._clock.call_later(BETWEEN_SHOWN, self._rested.set)
        try:
            await self._rested.wait()
        finally:
            timer.cancel()
        if not self._is_over:
            self._rested.clear()


def _question(result: types.InputRequiredResult, server: str, tool: str) -> Question:
    requests: Mapping[str, Any] = result.input_requests or {}
    if not 0 < len(requests) <= MAX_FORMS:
        raise ToolError(
            f"The tool {tool!r} of {server!r} asks {len(requests)} things at once, and cannot go on."
        )
    forms = {key: _form(request, server) for key, request in requests.items()}
    return Question(forms, state=result.request_state, asks=server)


def _is_forgotten(error: MCPError) -> bool:
    """True when a server does not know any more what it had asked."""
    data: Any = error.error.data
    return isinstance(data, dict) and cast("dict[str, Any]", data).get("reason") == "invalid_request_state"


def _asks_again(result: types.InputRequiredResult, server: str, answer: Answer) -> bool:
    """True when a server asks what a person has answered before, word for word."""
    requests: Mapping[str, Any] = result.input_requests or {}
    return {key: _form(request, server) for key, request in requests.items()} == answer.asked


def _form(request: Any, server: str) -> Form:
    params = getattr(request, "params", None)
    if not isinstance(request, types.ElicitRequest) or params is None:
        method = said(getattr(request, "method", type(request).__name__), 80)
        raise ToolError(f"The MCP server {server!r} asks for {method}, which is not offered to it.")
    return form_of(params)


def form_of(params: Any) -> Form:
    """What a server wants to know, as a form."""
    message = clean(params.message, LONGEST_MESSAGE)
    if isinstance(params, types.ElicitRequestURLParams):
        return Form(message, url=said(params.url, LONGEST_MESSAGE))
    schema: Any = params.requested_schema
    return Form(message, cast("dict[str, Any]", schema) if isinstance(schema, dict) else {})


def _responses(forms: Mapping[str, Given]) -> dict[str, Any]:
    return {key: _result(given) for key, given in forms.items()}


def _result(given: Given) -> types.ElicitResult:
    content: Any = given.content if given.action == "accept" else None
    return types.ElicitResult(action=given.action, content=content)


async def elicited(asking: list[ToolContext], server: str, params: Any) -> types.ElicitResult:
    """An older server asks in the middle of a call: the person of that call, as long as it waits."""
    if len(asking) != 1 or asking[0].ask is None:
        # Of several calls at once nobody knows which one asks: the wrong person must not be shown it.
        log.warning("the MCP server %s asks something, and it is not known of whom; it is declined", server)
        return types.ElicitResult(action="decline")
    form = form_of(params)
    given = await asking[0].ask(Question({"form": form}, asks=server), LIVE_SECONDS)
    return _result(given["form"])
