"""A conversation that no longer fits the model: shorten it and go on, within bounds.

    provider says "too long" --classify--> make_room: compact, else leave out results --> another attempt
    a step came near the limit ----------> compact before the next step

Each way out is bounded, and the last one cannot fail for want of a summary: the largest tool results
are left out of the prompt. What the conversation holds is never changed by any of it.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from ..journal.turn import Turn
from ..models import port as model
from ..observe.events import ChatContextCompacted, ChatContextSlimmed
from ..session.compaction import CompactionReason
from ..session.omit_results import choose
from ..settings import as_settings, check_fields
from .host import TurnHost

__all__ = ["ContextOverflow", "Proactive", "before_step", "is_near", "make_room", "overflow_of"]

log = logging.getLogger("everthink.turn")

MAX_SLIMS = 2
"""How often one turn may leave out results: each time halves what is asked."""


@dataclass(frozen=True, slots=True)
class Proactive:
    """Shorten the conversation in the middle of a turn, before a step that would come too close."""

    max_input_tokens: int
    """How much the model takes. 0 or less never shortens."""
    headroom: float = 0.9
    """The share of it from which on the conversation is shortened."""
    max_compactions: int = 1
    """How often in one turn."""

    def __post_init__(self) -> None:
        check_fields(self, "Proactive")


@dataclass(frozen=True, slots=True)
class ContextOverflow:
    """What to do when a conversation grows too long for the model in the middle of a turn."""

    reactive: bool = False
    """After the provider refused: shorten, and ask again."""
    max_retries: int = 1
    """How often in one turn."""
    proactive: Proactive | None = None

    def __post_init__(self) -> None:
        check_fields(self, "ContextOverflow")


_OFF = ContextOverflow()


def overflow_of(setting: Any) -> ContextOverflow:
    """The setting of an agent: `None`, a `ContextOverflow`, or the same as a dict."""
    if setting is None:
        return _OFF
    settings = as_settings(ContextOverflow, setting, "context_overflow")
    if settings.proactive is None:
        return settings
    return replace(
        settings, proactive=as_settings(Proactive, settings.proactive, "context_overflow.proactive")
    )


class _Attempt(Protocol):
    host: TurnHost
    turn: Turn
    asked: Sequence[model.ModelMessage]


async def make_room(attempt: _Attempt) -> bool:
    """Make room after the provider refused a prompt. False when nothing more can be done."""
    host, turn = attempt.host, attempt.turn
    settings = overflow_of(host.hooks.agent.context_overflow)
    if turn.overflows < settings.max_retries:
        turn.overflows += 1
        if await _compacted(host, turn, "reactive", turn.overflows):
            return True
    if settings.max_retries <= 0 or turn.slims >= MAX_SLIMS:
        return False
    return _slim(host, turn, attempt.asked)


def _slim(host: TurnHost, turn: Turn, asked: Sequence[model.ModelMessage]) -> bool:
    session = host.session
    more = choose(asked, omitted=session.omitted)
    if not more:
        return False
    turn.slims += 1
    session.omitted |= more
    log.warning("%s: the results of %d calls are left out of the prompt to make room", host.id, len(more))
    host.emit(ChatContextSlimmed(request_id=turn.request_id, tool_call_ids=tuple(sorted(more))))
    return True


async def _compacted(host: TurnHost, turn: Turn, reason: CompactionReason, attempt: int | None) -> bool:
    if not host.session.has_compaction:
        log.warning(
            "%s has context_overflow and no compaction: give its session one with on_compaction()", host.id
        )
        return False
    try:
        is_shorter = await shortened(host, reason)
    except Exception:
        log.exception("%s: the conversation could not be shortened", host.id)
        return False
    if reason == "reactive":
        event = ChatContextCompacted(
            reason="reactive", shortened=is_shorter, request_id=turn.request_id, attempt=attempt
        )
    else:
        event = ChatContextCompacted(reason="proactive", shortened=is_shorter)
    host.emit(event)
    return is_shorter


async def shortened(host: TurnHost, reason: CompactionReason) -> bool:
    """Compact the conversation. True when it is shorter now."""
    session = host.session
    await session.refresh()
    before = session.token_estimate()
    return await session.compact(reason=reason) is not None and session.token_estimate() < before


def is_near(settings: Proactive | None, usage: model.Usage | None) -> bool:
    """True when the last step came so close to the limit that the next one may pass it."""
    if settings is None or usage is None or settings.max_input_tokens <= 0:
        return False
    tokens = usage.input_tokens if usage.input_tokens is not None else usage.total_tokens
    if tokens is None or not math.isfinite(tokens):
        return False
    return tokens >= settings.max_input_tokens * settings.headroom


async def before_step(host: TurnHost, turn: Turn) -> bool:
    """Shorten the conversation because the last step came near the limit. True when it is shorter now."""
    return await _compacted(host, turn, "proactive", None)
