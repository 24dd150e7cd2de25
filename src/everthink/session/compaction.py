"""Compaction: when a conversation grows too long, a summary takes the place of its middle.

    append --is it due?--> compact --fn(messages)--> Overlay --> the path is read again

Nothing is destroyed: the messages stay where they are, searchable and readable, and only what is
shown changes. The overlay and the end of the cached prompt are one commit, so a process that is
killed anywhere in here leaves the conversation as it was or as it should be.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from ..calling import awaited
from ..context.activated_skills import with_activated, without_activated
from ..errors import UNTOLD, AgentError, CompactionNotSetUp, InvalidSettings, is_for_people
from ..messages import Message
from ..models.tokens import TokenCounter
from ..settings import shown, with_article
from .overlay import Overlay, is_overlay
from .summary import CompactContext, CompactFunction, Compaction
from .tree import Tree

__all__ = [
    "CompactionFailed",
    "CompactionReason",
    "Compactor",
    "SessionNews",
    "SessionStatus",
    "check_function",
]

log = logging.getLogger("everthink.session")

CompactionReason = Literal["asked", "threshold", "reactive", "proactive"]
PATIENCE = 1.05
"""After a failure the conversation has to grow so much before it is tried again by itself."""

ErrorHandler = Callable[[Exception], Any]


@dataclass(frozen=True, slots=True)
class SessionStatus:
    """How long the conversation is, and whether it is being shortened."""

    phase: Literal["idle", "compacting"]
    token_estimate: int
    token_threshold: int | None
    tokens_before: int | None = None
    """After a compaction: the estimate before it."""


@dataclass(frozen=True, slots=True)
class CompactionFailed:
    """A compaction raised. The conversation is as it was."""

    error: str
    for_people: str = field(default=UNTOLD, compare=False)
    """What clients read: the words of our own errors, and no more than a sentence of any other."""


SessionNews = SessionStatus | CompactionFailed


Cover = Callable[[str, str, str, CompactionReason, int], Awaitable[Overlay | None]]
"""Stores a summary over the messages from the first id to the second, and reads the path again: with why, and
with the tokens before. `None` when one of the ends is gone."""


class Compactor:
    """The compaction of one conversation: its settings, and carrying it out.

    `count` says what the conversation weighs in tokens, with its prompt; `tell` tells whoever watches.
    """

    def __init__(
        self,
        tree: Tree,
        *,
        count: Callable[[TokenCounter | None], Awaitable[int]],
        tell: Callable[[SessionNews], None],
        cover: Cover,
    ) -> None:
        self._tree, self._count, self._tell, self._cover = tree, count, tell, cover
        self.fn: CompactFunction | None = None
        self.threshold: int | None = None
        self.counter: TokenCounter | None = None
        self.on_error: ErrorHandler | None = None
        self._lock = asyncio.Lock()
        self._busy: asyncio.Task[Any] | None = None
        self._has_warned = False
        # What the conversation weighed when its summary failed, or 0. It is not asked for again at once.
        self._failed_at = 0

    @property
    def is_set_up(self) -> bool:
        """True when there is something to do or to tell."""
        return self.fn is not None or self.threshold is not None

    async def estimate(self) -> int:
        """What the conversation weighs now. A counter that raises is reported and counts as nothing."""
        try:
            return await self._count(self.counter)
        except Exception as error:  # noqa: BLE001 - whatever a developer's counter raises
            await self._failed(error)
            return 0

    @property
    def is_running(self) -> bool:
        """True while a summary is being made."""
        return self._busy is not None

    @property
    def _is_inside(self) -> bool:
        """True for the compaction function itself: what it appends does not start another one."""
        return self._busy is not None and self._busy is asyncio.current_task()

    @property
    def _limit(self) -> float:
        return max(self.threshold or 0, self._failed_at * PATIENCE)

    async def compact_if_due(self) -> bool:
        """Shorten the conversation when it has outgrown its threshold. Never raises; True when it did."""
        if self.fn is None or self.threshold is None or self._is_inside:
            return False
        try:
            if await self.estimate() <= self._limit:
                return False
            async with self._lock:
                before = await self.estimate()
                if before <= self._limit:
                    return False  # whoever was here before has shortened it
                done = await self._told(None, "threshold", before)
        except Exception as error:  # noqa: BLE001 - the append that led here succeeded
            await self._failed(error)
            return False
        if done is not None:
            self._has_warned = False
        elif not self._has_warned:
            self._has_warned = True
            log.warning(
                "the conversation is above %d tokens, and its compaction found nothing to shorten",
                self.threshold,
            )
        return done is not None

    async def compact(
        self, leaf_id: str | None = None, *, reason: CompactionReason = "asked"
    ) -> Compaction | None:
        """Shorten the path to `leaf_id` (the active one when omitted). `None` when nothing was shortened."""
        if self.fn is None:
            raise CompactionNotSetUp()
        if self._is_inside:
            return None
        async with self._lock:
            return await self._told(leaf_id, reason, await self.estimate())

    async def _told(self, leaf_id: str | None, reason: CompactionReason, before: int) -> Compaction | None:
        """Shorten, and tell whoever watches that it begins and that it is over."""
        self._busy = asyncio.current_task()
        self._tell(SessionStatus("compacting", before, self.threshold))
        done: Compaction | None = None
        try:
            done = await self._compact(leaf_id, reason, before)
        finally:
            # Whatever happened: nobody is left looking at "compacting".
            self._busy = None
            after = before if done is None else await self.estimate()
            tokens_before = None if done is None else before
            self._tell(SessionStatus("idle", after, self.threshold, tokens_before))
        return done

    async def _compact(self, leaf_id: str | None, reason: CompactionReason, before: int) -> Compaction | None:
        history = await self._tree.get_history(leaf_id)
        overlays = {overlay.message_id: overlay for overlay in await self._tree.overlays_in(history)}
        try:
            result = await self._ask([without_activated(one) if is_overlay(one) else one for one in history])
        except Exception as error:
            log.warning("a compaction failed; the conversation is as it was", exc_info=error)
            self._tell(_failure(error))
            self._failed_at = before
            return None
        self._failed_at = 0
        ends = None if result is None else _ends(result, history, overlays)
        if result is None or ends is None:
            return None
        first, last, covered = ends
        summary = with_activated(result.summary, covered, is_overlay)
        made = await self._cover(first, last, summary, reason, before)
        return None if made is None else Compaction(first, last, summary)

    async def _ask(self, history: list[Message]) -> Compaction | None:
        assert self.fn is not None
        answer: Any = await awaited(self.fn(history, CompactContext(token_counter=self.counter)))
        return _compaction(answer, self.fn)

    async def _failed(self, error: Exception) -> None:
        """Report what went wrong around a compaction; what the handler raises is only logged."""
        log.warning("a compaction failed; the conversation is as it was", exc_info=error)
        self._tell(_failure(error))
        if self.on_error is None:
            return
        try:
            await awaited(self.on_error(error))
        except Exception:
            log.exception("the handler of compaction errors raised")


def check_function(fn: Any) -> None:
    """Refuse what cannot be called with the messages and the context."""
    if not callable(fn):
        raise InvalidSettings(f"on_compaction is given {shown(fn)}.", next_step=_FUNCTION)
    try:
        signature = inspect.signature(fn)
    except (TypeError, ValueError):
        return  # it shows when it is called
    try:
        signature.bind("messages", "context")
    except TypeError as error:
        raise InvalidSettings(
            f"on_compaction is given {_name(fn)}, which cannot be called with the messages and the context:"
            f" {error}.",
            next_step=_FUNCTION,
        ) from None


_FUNCTION = (
    "Give it a function of (messages, context) that returns a Compaction or None. One that answers a prompt"
    " with text is made into that: create_compact_function(summarize=…)."
)


def _name(fn: Any) -> str:
    return getattr(fn, "__qualname__", None) or type(fn).__name__


def _compaction(answer: Any, fn: Any) -> Compaction | None:
    """What a compaction function returned. Raises when it is something else."""
    kind = type(cast("object", answer)).__name__
    if answer is None or isinstance(answer, Compaction):
        return answer
    if isinstance(answer, Mapping):
        try:
            return Compaction(**cast("Mapping[str, Any]", answer))
        except TypeError:
            pass  # fields of another name
    raise AgentError(
        f"The compaction function {_name(fn)} returned {with_article(kind)}.",
        kept="The conversation is as it was.",
        next_step="Return Compaction(from_message_id, to_message_id, summary), a dict with its fields, or"
        " None. One that answers a prompt with text belongs in create_compact_function(summarize=…).",
    )


def _failure(error: Exception) -> CompactionFailed:
    text = str(error) or type(error).__name__
    return CompactionFailed(text, text if is_for_people(error) else UNTOLD)


def _ends(
    result: Compaction, history: Sequence[Message], overlays: Mapping[str, Overlay]
) -> tuple[str, str, Sequence[Message]] | None:
    """The real messages the new overlay covers, from the start of the first one it takes over: the ends, and
    all that is shown of them now."""
    index_of = {message.id: index for index, message in enumerate(history)}
    first, last = index_of.get(result.from_message_id), index_of.get(result.to_message_id)
    if first is None or last is None or first > last:
        log.warning(
            "a compaction named messages %r to %r, which are not on this path in that order; it is ignored",
            result.from_message_id,
            result.to_message_id,
        )
        return None
    # It grows over the overlays before it: what they say was given to the function that wrote this one.
    older = [index for id, index in index_of.items() if id in overlays and index <= last]
    begin = min([first, *older])
    start, end = history[begin].id, history[last].id
    from_id = overlays[start].from_message_id if start in overlays else start
    to_id = overlays[end].to_message_id if end in overlays else end
    return from_id, to_id, history[begin : last + 1]
