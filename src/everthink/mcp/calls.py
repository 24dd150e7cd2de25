"""One call of a tool of an MCP server, and what it asks on the way.

    Server --input, ToolContext--> called --> Link --> result --> results.output_of
                                      ^ asks a person: Question (protocol of 2026), or ctx.ask (older ones)

Imported when a tool is first called: it loads the `mcp` package.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, cast

import mcp_types as types

from ..errors import ToolError
from ..tools.question import MAX_FORMS, Form, Given, Question
from ..tools.tool import ToolContext
from ..words import clean, said
from .link import Link, Timeouts
from .results import output_of, progress_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mcp import Client

__all__ = ["LIVE_SECONDS", "called", "elicited"]

log = logging.getLogger("everthink.mcp")

LIVE_SECONDS = 300.0
"""So long an older server waits for a person, whose question does not outlive the call."""
LONGEST_MESSAGE = 2_000


async def called(link: Link, tool: str, input: dict[str, Any], ctx: ToolContext, timeouts: Timeouts) -> Any:
    """Run a tool. Raises `ToolError` with words for the model, or `Question` when a person has to answer."""
    answers = None if ctx.answer is None else _responses(ctx.answer.forms)
    state = None if ctx.answer is None else ctx.answer.state

    async def ask(client: Client, alive: Callable[[], None]) -> Any:
        async def heard(progress: float, total: float | None, message: str | None) -> None:
            alive()
            await ctx.progress(progress_of(progress, total, message))

        return await client.session.call_tool(
            tool,
            input,
            read_timeout_seconds=timeouts.most + LIVE_SECONDS,  # the link knows when it is too long
            progress_callback=heard,
            input_responses=answers,
            request_state=state,
            allow_input_required=True,
        )

    result = await link.call(ask, timeouts, f"the tool {tool!r}")
    if isinstance(result, types.InputRequiredResult):
        raise _question(result, link.name, tool)
    return output_of(result)


def _question(result: types.InputRequiredResult, server: str, tool: str) -> Question:
    requests: Mapping[str, Any] = result.input_requests or {}
    if not 0 < len(requests) <= MAX_FORMS:
        raise ToolError(
            f"The tool {tool!r} of {server!r} asks {len(requests)} things at once, and cannot go on."
        )
    forms = {key: _form(request, server) for key, request in requests.items()}
    return Question(forms, state=result.request_state, asks=server)


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
