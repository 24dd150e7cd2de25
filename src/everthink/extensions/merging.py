"""What an extension changes of a turn: field by field, the last one wins; what it may not change is left out.

    TurnConfig of the agent + what `before_turn` of an extension said --merged--> TurnConfig

Pure, but for the log. Nothing that an extension says fails a turn: a field that makes no sense is told and
left out, and the others count.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any, cast

import msgspec

from ..errors import AgentError
from ..hooks.values import Timeouts, TurnConfig, TurnContext, tool_choice_of
from ..models import port as model
from ..settings import as_settings, nearest
from ..words import said

__all__ = ["FIELDS", "merged"]

log = logging.getLogger("everthink.extensions")

FIELDS = (
    "system",
    "messages",
    "active_tools",
    "tool_choice",
    "max_steps",
    "send_reasoning",
    "max_output_tokens",
    "temperature",
    "top_p",
    "top_k",
    "presence_penalty",
    "frequency_penalty",
    "stop_sequences",
    "seed",
    "max_retries",
    "timeout",
    "headers",
    "provider_options",
)
"""What an extension may change."""
_ADDED = ("headers", "provider_options")
"""Of these what there was stays, where it says nothing else."""


def merged(
    config: TurnConfig,
    answer: Mapping[str, Any],
    context: TurnContext,
    by: str,
    tell: Callable[[str], object] = lambda words: None,
) -> TurnConfig:
    """The config with what an extension said, by our names. `tell` hears what is left out, as the log."""
    for name, value in answer.items():
        if value is None:
            continue
        if name not in FIELDS:
            near = nearest(name, FIELDS, like=0.8)
            meant = f". Did you mean {near!r}?" if near else ""
            words = f"may not change {said(name, 80)} of a turn; it is left out{meant}"
        else:
            try:
                config = _with(config, name, value, context)
                continue
            except (AgentError, msgspec.ValidationError) as error:
                words = f"gives a {name} that is left out: {said(error)}"
        log.warning("the extension %r %s", by, words)
        tell(f"before_turn {words}")
    return config


def _with(config: TurnConfig, name: str, value: Any, context: TurnContext) -> TurnConfig:
    match name:
        case "system":
            # The agent's `instructions` win over its own `system`, and not over what comes after them.
            return replace(config, system=value, instructions=None)
        case "messages":
            return replace(config, messages=_messages(value))
        case "active_tools":
            return replace(config, active_tools=_known(value, context.tools))
        case "tool_choice":
            choice = tool_choice_of(value, "before_turn")
            _known(
                [choice.removeprefix("tool:")] if choice and choice.startswith("tool:") else [], context.tools
            )
            return replace(config, tool_choice=choice)
        case "timeout" if isinstance(value, Mapping):
            return replace(config, timeout=as_settings(Timeouts, value, "timeout"))
        case _ if name in _ADDED:
            changed = replace(config, **{name: value})  # raises for what it may not be
            return replace(changed, **{name: {**(getattr(config, name) or {}), **value}})
        case _:
            return replace(config, **{name: value})


def _known(names: Any, tools: Collection[str]) -> Any:
    """Names of tools, all of which there are."""
    for name in cast("list[Any]", names if isinstance(names, list) else []):
        if name not in tools:
            ending = [one for one in tools if one.endswith(f"_{name}")]
            near = ending[0] if ending else nearest(str(name), tools)
            raise AgentError(
                f"There is no tool {said(name, 80)!r} in this turn.",
                next_step=f"Did you mean {near!r}?" if near else "",
            )
    return cast("Any", names)


def _messages(value: Any) -> list[model.ModelMessage]:
    """Messages as the original writes them: a role, and a text or parts."""
    if not isinstance(value, list):
        raise AgentError("messages are a list.")
    given = [_message(one) for one in cast("list[Any]", value)]
    return msgspec.convert(given, list[model.ModelMessage])


def _message(one: Any) -> Any:
    if not isinstance(one, Mapping):
        return one
    found = cast("Mapping[str, Any]", one)
    role, content = found.get("role"), found.get("content")
    if role == "system":
        return {"role": role, "text": content if content is not None else found.get("text")}
    if isinstance(content, str):
        return {"role": role, "content": [{"type": "text", "text": content}]}
    return found
