"""What extensions are shown of a turn: plain JSON, made anew, never what the turn itself works with.

    TurnContext, ToolCall, ToolOutcome, StepResult, ChunkContext --of_…--> a dict of JSON

Pure. Narrower than what the agent's own hooks see: no objects, no signals, nothing that an extension could
hold on to. Values that are nested deeper than six levels are cut there.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec

from ..hooks.values import (
    Allow,
    ChunkContext,
    StepResult,
    Substitute,
    ToolCall,
    ToolDecision,
    ToolOutcome,
    TurnConfig,
    TurnContext,
)
from ..journal.tool_errors import words_of
from ..messages import Unset

__all__ = ["json_safe", "of_call", "of_chunk", "of_outcome", "of_step", "of_turn"]

DEEPEST = 6
LARGEST_NUMBER = 2**53 - 1
_LONGEST = 100_000
"""Characters of a text that are shown, and entries of a list."""
_USAGE = ("input_tokens", "output_tokens", "total_tokens", "reasoning_tokens", "cached_input_tokens")
_DROPPED: Any = object()


def json_safe(value: Any) -> Any:
    """A value as JSON. What cannot be written so is left out, `None` at the top."""
    found = _safe(value, 0)
    return None if found is _DROPPED else found


def _safe(value: Any, depth: int) -> Any:
    if depth > DEEPEST:
        return _DROPPED
    match value:
        case None | bool():
            return value
        case str():
            return value[:_LONGEST].encode("utf-8", "replace").decode()
        case int():
            return value if abs(value) <= LARGEST_NUMBER else str(value)
        case float():
            return value if math.isfinite(value) else None
        case BaseException():
            name, words = type(value).__name__, words_of(value) if isinstance(value, Exception) else ""
            return {"name": name, "message": words, "stack": f"{name}: {words}"}
        case Mapping():
            items = cast("Mapping[Any, Any]", value).items()
            made = {str(key): _safe(one, depth + 1) for key, one in items if isinstance(key, str | int)}
            return {key: one for key, one in made.items() if one is not _DROPPED}
        case list() | tuple():
            given = cast("Sequence[Any]", value)[:_LONGEST]
            found = [_safe(one, depth + 1) for one in given]
            return [None if one is _DROPPED else one for one in found]
        case msgspec.Struct():
            return _safe(msgspec.to_builtins(value), depth)
        case _:
            return _DROPPED


def of_turn(context: TurnContext, config: TurnConfig) -> dict[str, Any]:
    """For `before_turn`: the turn as it is so far."""
    system = config.instructions if config.instructions is not None else config.system
    messages = context.messages if config.messages is None else config.messages
    names = list(context.tools) if config.active_tools is None else list(config.active_tools)
    chosen = context.model if config.model is None else config.model
    shown = {
        "system": context.system if system is None else system,
        "tool_names": names,
        "message_count": len(messages),
        "continuation": context.continuation,
        "model_id": chosen if isinstance(chosen, str) else str(getattr(chosen, "name", "") or "unknown"),
    }
    if context.body is not None:
        shown["body"] = json_safe(context.body)
    return shown


def of_call(call: ToolCall, decision: ToolDecision | None = None) -> dict[str, Any]:
    """For `before_tool_call`: the call with the input that it will have, after what the agent decided."""
    given = call.input
    if isinstance(decision, Allow | Substitute) and not isinstance(decision.input, Unset):
        given = decision.input
    shown = {"tool_name": call.tool_name, "tool_call_id": call.tool_call_id, "input": json_safe(given)}
    if call.step_number is not None:
        shown["step_number"] = call.step_number
    if call.dynamic:
        shown["dynamic"] = True
    return shown


def of_outcome(outcome: ToolOutcome) -> dict[str, Any]:
    """For `after_tool_call`: the call, and what came of it."""
    shown = of_call(outcome) | {
        "duration_ms": round(outcome.duration * 1_000, 3),
        "success": outcome.success,
    }
    if outcome.success:
        return shown | {"output": json_safe(outcome.output)}
    return shown | {"error": json_safe(outcome.error)}


def of_step(step: StepResult) -> dict[str, Any]:
    """For `on_step_finish`."""
    return {
        "step_number": step.step_number,
        "finish_reason": step.finish_reason,
        "text": step.text,
        "reasoning_text": step.reasoning_text,
        "tool_call_count": len(step.tool_calls),
        "tool_result_count": len(step.tool_results),
        "usage": {name: getattr(step.usage, name) for name in _USAGE},
        "provider_metadata": json_safe(step.provider_metadata),
    }


def of_chunk(context: ChunkContext) -> dict[str, Any]:
    """For `on_chunk`: little, since it comes with every word."""
    chunk: Any = context.chunk
    shown: dict[str, Any] = {"type": chunk.type}
    for name, field in (("text", "text"), ("tool_name", "tool_name"), ("tool_call_id", "tool_call_id")):
        value = getattr(chunk, field, None)
        if isinstance(value, str):
            shown[name] = value
    return shown
