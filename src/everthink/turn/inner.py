"""Calls of tools from within a call: the body of one tool runs another.

    a body --ctx.inner.run--> Inner --> the hook, the start, the body: as calls.py runs any call --> a result

Nothing is said in the journal: these calls belong to the one that makes them, which keeps what became of
them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..errors import ToolError
from ..hooks.values import CalledTool, ToolCall
from ..tools.ask import REPORT, RERUN
from ..tools.context import Conclude, ToolContext
from ..tools.output import jsonable
from ..tools.question import Question
from ..tools.tool import Tool

if TYPE_CHECKING:
    from .calls import StepCalls

__all__ = ["Blocked", "Inner"]


class Blocked(ToolError):
    """`before_tool_call` does not let a call run that another call makes. The words are the reason."""


class Inner:
    """The calls that one call makes."""

    def __init__(self, calls: StepCalls, outer: CalledTool) -> None:
        self._calls, self._outer = calls, outer

    @property
    def tools(self) -> Mapping[str, Tool]:
        """The tools of this step that run here; not the one that asks."""
        offered = self._calls.tools.items()
        return {name: tool for name, tool in offered if tool.has_body and name != self._outer.tool_name}

    async def asks(self, tool: Tool, call_id: str, input: Any) -> bool:
        """True when a person must agree first."""
        return bool(tool.needs_approval) and await tool.needs_approval_for(
            input, self._context(tool, call_id, None)
        )

    async def find_out(self, tool: Tool, call_id: str, input: Any) -> Any:
        """What became of a call that a crash cut off."""
        found = await tool.find_out(input, self._context(tool, call_id, None))
        if found is RERUN or found is REPORT:
            return found
        return jsonable(found, tool=tool.name, is_exact=True)

    async def run(
        self,
        tool: Tool,
        call_id: str,
        input: Any,
        *,
        begin: Callable[[Any], Awaitable[None]],
        conclude: Conclude | None = None,
    ) -> Any:
        """Run a call and return its result as JSON; what it raises is raised. Without `conclude` nothing is
        kept of it."""
        calls, run = self._calls, self._calls.run
        called = CalledTool(call_id, tool.name, input)
        call = ToolCall(
            tool_name=tool.name,
            tool_call_id=call_id,
            input=input,
            messages=calls.messages,
            signal=run.signal,
            identity=calls.whose(self._outer.tool_call_id),
            approved_by=calls.approver_of(self._outer.tool_call_id),
        )
        began = run.host.clock.monotonic()
        calls.tell_start(called)
        failure: Exception | None = None
        output: Any = None
        try:
            context = self._context(tool, call_id, conclude)
            given = await calls.decide_and_run(tool, context, call, begin, is_inner=True)
            output = jsonable(given, tool=tool.name, is_exact=True)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            failure = ToolError(f"Something that {tool.name!r} waited for was cancelled.")
        except Question:
            failure = ToolError(
                f"{tool.name!r} has to ask a person something, which it cannot do from within code."
                " Call it as a tool of its own."
            )
        except Exception as error:  # noqa: BLE001 - it is raised once all have been told
            failure = calls.cause_of(error)
        duration = run.host.clock.monotonic() - began
        calls.tell_finish(called, output, failure, duration)
        await calls.tell_hook(called, output, failure, duration)
        if failure is not None:
            raise failure
        return output

    def _context(self, tool: Tool, call_id: str, conclude: Conclude | None) -> ToolContext:
        calls = self._calls
        return replace(
            calls.context_of(self._outer, tool),
            tool_name=tool.name,
            tool_call_id=call_id,
            answer=None,
            show=None,
            ask=None,
            inner=None,
            when_stopped=None,
            conclude=conclude,
        )
