"""Assemble what a turn sends to the model: tools, prompt, history, settings.

    Turn + session --> assemble --before_turn--> Assembled --> turn/loop

Runs once per attempt. The history is mended first (and the mended rows stored), so what
leaves here always pairs every call with its result.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..errors import NoMessages
from ..hooks.given import ReadDict, ReadList
from ..hooks.values import (
    StopCondition,
    Timeouts,
    TurnConfig,
    TurnContext,
)
from ..journal import queries
from ..journal.feed import HistoryChanged
from ..journal.turn import Turn
from ..messages import SETTLED_STATES, Message, Unset
from ..models import port as model
from ..models.structured import Structured, structured
from ..observe.events import ChatTranscriptRepaired
from ..prompt.convert import unshared
from ..prompt.wording import CONTINUE_NUDGE, EARLIER, EMPTY_MESSAGE, with_blocks, with_capabilities
from ..session.repair import Repair, repair
from ..settings import as_settings
from ..tools.collect import as_tools
from ..tools.tool import Tool
from .host import TurnHost

__all__ = [
    "Assembled",
    "as_prompt",
    "asking",
    "assemble",
    "history_so_far",
    "mended_history",
    "offered",
    "prompt_with",
]

log = logging.getLogger("everthink.turn")

DEFAULT_RETRIES = 2


@dataclass(slots=True)
class Assembled:
    """Everything the step loop needs."""

    system: str
    base: str | None
    """The prompt without what the tools add to it; `None` when a hook wrote the whole."""
    messages: list[model.ModelMessage]
    tools: dict[str, Tool]
    model: model.Model
    config: TurnConfig
    settings: model.Settings
    max_steps: int
    stop_when: list[StopCondition]
    max_retries: int
    send_reasoning: bool
    timeouts: Timeouts
    output: Structured | None
    stall_timeout: float
    history: list[Message] = field(default_factory=list[Message])
    """The conversation that the prompt was made of."""

    async def system_for(self, host: TurnHost, tools: Mapping[str, Tool]) -> str:
        """The system prompt of a step that is offered these tools."""
        if self.base is None or tools.keys() == self.tools.keys():
            return self.system
        return await prompt_with(host, self.base, tools)


async def assemble(host: TurnHost, turn: Turn) -> Assembled:
    """Put the turn together and ask `before_turn`."""
    tools = await offered(host, turn.client_tools)
    base = await host.session.freeze_system_prompt()
    if not base or host.session.context.is_beside:
        base = with_blocks(await host.hooks.get_system_prompt(), base)
    turn.is_read = False
    history = await mended_history(host, turn)
    messages = await as_prompt(host, history, tools)
    turn.is_read = True
    if not messages:
        raise NoMessages(
            "No messages to send to the model.", next_step="Send a message, or add one with add_messages()."
        )
    chosen = await host.resolve_model(await host.hooks.get_model())
    config: TurnConfig | None = None
    if host.hooks.overrides("before_turn") or host.hooks.overrides("before_step"):
        messages = unshared(messages)
    if host.hooks.hears("before_turn"):
        context = TurnContext(
            system=await prompt_with(host, base, tools),
            messages=ReadList(messages, "turn.messages", "Return TurnConfig(messages=[…]) from before_turn."),
            tools=ReadDict(
                tools, "turn.tools", "Return TurnConfig(tools=[…]) from before_turn: they are added."
            ),
            model=chosen,
            continuation=turn.continuation,
            body=turn.body,
            request_id=turn.request_id,
            trigger=turn.trigger,
            metadata=turn.metadata if turn.metadata is not None else _stamped(history),
            identity=turn.identity,
        )
        config = await host.hooks.before_turn(context)
    assembled = await _configured(host, config or TurnConfig(), base, messages, tools, chosen)
    assembled.history = list(history)
    return assembled


async def offered(host: TurnHost, client_tools: Mapping[str, Tool]) -> dict[str, Tool]:
    """The tools of a turn: those of the agent's sources, and beside them a browser's."""
    ours: dict[str, Tool] = {}
    found = [(source, await source.get()) for source in reversed(host.tool_sources())]
    for _, tools in found:
        ours |= tools
    if len(ours) < sum(len(tools) for _, tools in found):
        for source, tools in found:
            if source.hidden is not None:
                source.hidden([name for name, tool in tools.items() if ours[name] is not tool])
    return {**ours, **_beside(host, client_tools, ours)}


async def prompt_with(host: TurnHost, base: str, tools: Mapping[str, Tool]) -> str:
    """The prompt `base` with what these tools add to it."""
    return with_capabilities(base, await host.hooks.get_capability_prompt(tools))


def _beside(host: TurnHost, given: Mapping[str, Tool], ours: Mapping[str, Tool]) -> dict[str, Tool]:
    """The browser's tools that have names of their own: one of ours is never replaced, nor imitated."""
    if not given:
        return {}
    taken = {name.casefold() for name in ours}
    own = {name: tool for name, tool in given.items() if name.casefold() not in taken}
    if len(own) < len(given):
        names = ", ".join(sorted(set(given) - set(own)))
        log.info("%s: a window offers tools whose names are taken; they are left out: %s", host.id, names)
    return own


async def _configured(
    host: TurnHost,
    config: TurnConfig,
    base: str,
    messages: list[model.ModelMessage],
    tools: dict[str, Tool],
    chosen: model.Model,
) -> Assembled:
    if config.tools is not None:
        tools = {**tools, **as_tools(config.tools, "TurnConfig.tools")}
    override = config.instructions if config.instructions is not None else config.system
    final = list(config.messages) if config.messages is not None else messages
    max_steps = config.max_steps if config.max_steps is not None else host.hooks.setting("max_steps")
    return Assembled(
        system=override if override is not None else await prompt_with(host, base, tools),
        base=base if override is None else None,
        messages=asking(final),
        tools=tools,
        model=await host.resolve_model(config.model) if config.model is not None else chosen,
        config=config,
        settings=_settings(config),
        max_steps=max_steps,
        stop_when=_conditions(config.stop_when),
        max_retries=DEFAULT_RETRIES if config.max_retries is None else config.max_retries,
        send_reasoning=host.hooks.setting("send_reasoning")
        if config.send_reasoning is None
        else config.send_reasoning,
        timeouts=_timeouts(config.timeout),
        output=structured(config.output if config.output is not None else host.tool_output),
        stall_timeout=host.hooks.setting("chat_stream_stall_timeout")
        if config.chat_stream_stall_timeout is None
        else config.chat_stream_stall_timeout,
    )


def asking(messages: list[model.ModelMessage]) -> list[model.ModelMessage]:
    """`messages` with something to answer at the end, never stored: providers do not follow the assistant."""
    if messages and isinstance(messages[-1], model.AssistantMessage):
        return [*messages, model.UserMessage([model.TextPart(CONTINUE_NUDGE)])]
    return messages


async def as_prompt(
    host: TurnHost, history: Sequence[Message], tools: Mapping[str, Tool]
) -> list[model.ModelMessage]:
    """The conversation as the model reads it; one whose beginning is not shown says so."""
    await host.views.learn(host.converter.unchecked(history), tools)
    messages = host.converter.convert(history, tools)
    if messages and _says_nothing(history[-1]):
        # Whoever asked wants an answer all the same, and none to what was said before.
        messages.append(model.UserMessage([model.TextPart(EMPTY_MESSAGE)]))
    if host.session.is_partial and messages and isinstance(messages[0], model.AssistantMessage):
        messages.insert(0, model.UserMessage([model.TextPart(EARLIER)]))
    return messages


def _says_nothing(message: Message) -> bool:
    """True for a user message of parts that only a page shows: nothing of it is told to a model."""
    return message.role == "user" and not any(part.get("type") in ("text", "file") for part in message.parts)


def _timeouts(given: Any) -> Timeouts:
    if given is None or isinstance(given, int | float):
        return Timeouts(total=given)
    return as_settings(Timeouts, given, "What before_turn returned: TurnConfig.timeout")


def _conditions(given: StopCondition | Sequence[StopCondition] | None) -> list[StopCondition]:
    if given is None:
        return []
    return [given] if callable(given) else list(given)


_SETTINGS = tuple(model.Settings.__struct_fields__)


def _settings(config: TurnConfig) -> model.Settings:
    return model.Settings(**{name: getattr(config, name) for name in _SETTINGS})


def _stamped(history: Sequence[Message]) -> dict[str, Any] | None:
    """The metadata of the turn that brought the latest user message: a continuation belongs to it."""
    for message in reversed(history):
        if message.role == "user":
            return (message.metadata or {}).get("turnMetadata")
    return None


async def mended_history(host: TurnHost, turn: Turn) -> Sequence[Message]:
    """The messages the model should see, with interrupted calls mended (and stored so)."""
    session = host.session
    await session.refresh()
    history = session.path
    if not isinstance(turn.parent, Unset):
        # A regeneration: up to the question, without the answer it replaces.
        history = await _up_to(host, turn.parent)
    elif turn.journal is not None and turn.question is not None:
        # A turn that goes on answers what it was asked, not what was said meanwhile.
        history = [m for m in await _up_to(host, turn.question) if m.id != turn.message_id]
    history = _asked(host, turn, history)
    report = repair(host.converter.unchecked(history), host.hooks.agent.repair_interrupted_tool_part)
    if report.messages:
        now = host.clock.now_ms()
        passed = [queries.passed(call, now=now) for call in _settled(report)]
        await session.write(session.plan_update(*report.messages), *passed)
        mended: Mapping[str, Message] = {m.id: m for m in report.messages}
        history = [mended.get(m.id, m) for m in history]
        host.feed.publish(HistoryChanged(turn))
        host.emit(
            ChatTranscriptRepaired(
                request_id=turn.request_id,
                removed_tool_calls=report.removed_tool_calls,
                normalized_inputs=report.normalized_inputs,
                tool_call_ids=tuple(report.tool_call_ids) or None,
            )
        )
    await host.words.learn(host.converter.unchecked(history))
    return history


def _settled(report: Repair) -> list[str]:
    """The calls that have an outcome since their message was mended: a hook may leave some open."""
    open_before = set(report.tool_call_ids)
    parts = [part for message in report.messages for part in message.parts]
    settled = [part.get("toolCallId") for part in parts if part.get("state") in SETTLED_STATES]
    return [str(id) for id in settled if id in open_before]


def _asked(host: TurnHost, turn: Turn, history: Sequence[Message]) -> Sequence[Message]:
    """The history with what this turn was asked at its end, and without what only later turns are asked.

    Messages are stored when they arrive, so others may stand before the answers to earlier ones, or between
    a question and its turn. A turn runs in the name of the one who asked, and hears nobody else.
    """
    waiting, own = set(host.turns.waiting_messages(turn)), set(turn.message_ids)
    if not waiting and (not own or (history and history[-1].id in own)):
        return history
    said = [message for message in history if message.id not in waiting and message.id not in own]
    return [*said, *(message for message in history if message.id in own)]


async def history_so_far(host: TurnHost, turn: Turn) -> Sequence[Message]:
    """The messages a running turn answers, as the conversation shows them now."""
    await host.session.refresh()
    question = turn.question if isinstance(turn.parent, Unset) else turn.parent
    history = host.session.path if question is None else await _up_to(host, question)
    history = _asked(host, turn, [message for message in history if message.id != turn.message_id])
    await host.words.learn(host.converter.unchecked(history))
    return history


async def _up_to(host: TurnHost, parent: str | None) -> Sequence[Message]:
    if parent is None:
        return []
    return host.session.up_to(parent) or await host.session.get_history(parent)
