"""One conversation of one agent: the tree, its memory, its summaries.

    configure_session(session) --> with_context, on_compaction, compact_after, with_cached_prompt

`Session` declares and delegates: messages are in `tree.py`, what the model is told about itself and
may edit in `context.py`, shortening in `compaction.py`. Nothing here costs a session that asked for
none of it anything.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ..clock import moment_of
from ..context.blocks import ContextBlock, block_options
from ..context.context import Context
from ..context.loaded_documents import restored, unloaded_in
from ..empty import NONE
from ..errors import ContextUnavailable
from ..messages import UNSET, Message, Unset
from ..models.tokens import (
    TokenCount,
    TokenCounter,
    counted,
    estimate_tokens,
)
from ..settings import check_call
from ..store.port import LONGEST_QUERY, AgentStore, Search, Statement
from . import queries
from .compaction import (
    CompactionReason,
    Compactor,
    ErrorHandler,
    SessionNews,
    SessionStatus,
    check_function,
)
from .files import Files
from .overlay import Overlay
from .path_reader import Shape
from .summary import CompactFunction, Compaction
from .tree import Plan, Tree

if TYPE_CHECKING:
    from ..store.port import Rows
    from ..tools.tool import Tool

__all__ = ["REWRITTEN", "SearchHit", "Session"]

log = logging.getLogger("everthink.session")

REWRITTEN = "rewritten"
"""The guard of a commit that goes with a message: it is there still."""


@dataclass(frozen=True, slots=True)
class SearchHit:
    """A message that holds what was searched for."""

    id: str
    role: str
    content: str
    """Its text."""
    snippet: str
    """The words around the first hit; hits stand between `**`."""
    session_id: str
    created_at: datetime
    """When the message was stored."""


class Session(Tree):
    """One conversation of one agent, set up in `configure_session`. Nothing is read before its first use."""

    # There is one for each session, and without a dict it weighs a kilobyte less.
    # fmt: off
    __slots__ = (
        "_blocks", "_shortening", "files", "hydrated", "listener", "omitted", "rewriting", "unreadable",
    )
    # fmt: on

    # Set only where they are needed: a live agent that has no use for them should weigh little.
    _last_cover = 0  # the number of the last overlay that was made here
    _has_restored = False
    _restored: asyncio.Lock | None = None

    def __init__(self, store: AgentStore, *, now: Callable[[], int], id: str = "") -> None:
        super().__init__(store, now=now, id=id)
        # Made when asked for: most sessions of most agents have neither.
        self._blocks: Context | None = None
        self._shortening: Compactor | None = None
        self.rewriting = asyncio.Lock()
        """Held from reading a message that is not in memory to writing it again: nobody's change is lost."""
        self.omitted: frozenset[str] = NONE
        """Calls whose results are left out of prompts, because nothing else made room (turn/overflow.py)."""
        self.files = Files()
        """What models took and refused of the files people sent (turn/loop.py)."""
        self.listener: Callable[[SessionNews], None] | None = None
        """Told how long the conversation is, for sessions with compaction."""
        self.hydrated: Callable[[Shape], None] | None = None
        """Told what was read into memory."""
        self._reader.unreadable = self._found_unreadable
        self.unreadable: Callable[[str, Exception], None] | None = None
        """Told of a stored message that cannot be read and is left out; its row stays."""

    @property
    def _context(self) -> Context:
        if self._blocks is None:
            self._blocks = Context(self._store, self.id, now=self._now)
        return self._blocks

    @property
    def _compactor(self) -> Compactor:
        if self._shortening is None:
            self._shortening = Compactor(self, count=self.count, tell=self.tell, cover=self.cover)
        return self._shortening

    @property
    def has_context(self) -> bool:
        """True when the system prompt is made of blocks."""
        return self._blocks is not None and not self._blocks.is_empty

    # --- setting it up

    def with_context(
        self,
        label: str,
        options: Mapping[str, Any] | None = None,
        *,
        description: str | None = None,
        max_tokens: int | None = None,
        provider: Any = None,
    ) -> Session:
        """Add a block to the system prompt. Without a provider the model may write it, and it is kept.

        The options may also be written as a dict: `with_context("memory", {"max_tokens": 2000})`.
        """
        given = {"description": description, "max_tokens": max_tokens, "provider": provider}
        self._context.declare(label, **block_options(label, options, **given))
        return self

    def with_cached_prompt(self, provider: Any = None) -> Session:
        """Keep the rendered prompt across restarts, so that the provider's cache stays warm."""
        self._context.cache_prompt(provider)
        return self

    def on_compaction(self, fn: CompactFunction) -> Session:
        """How to shorten the conversation: `create_compact_function(summarize=…)`, or a function of yours."""
        check_function(fn)
        self._compactor.fn = fn
        return self

    def compact_after(self, threshold: int, *, token_counter: TokenCounter | None = None) -> Session:
        """Shorten the conversation once it is estimated at more than `threshold` tokens."""
        check_call("compact_after", threshold=threshold, token_counter=token_counter)
        self._compactor.threshold = threshold
        self._compactor.counter = token_counter or self._compactor.counter
        return self

    def on_compaction_error(self, handler: ErrorHandler) -> Session:
        """Told what went wrong around an automatic compaction: the store, the counter."""
        self._compactor.on_error = handler
        return self

    # --- context blocks

    @property
    def context(self) -> Context:
        """The blocks of the system prompt."""
        return self._context

    def get_context_block(self, label: str) -> ContextBlock | None:
        """A block as it is in memory."""
        return self._context.get_block(label)

    def get_context_blocks(self) -> list[ContextBlock]:
        """All blocks as they are in memory, in their order."""
        return self._context.get_blocks()

    async def replace_context_block(self, label: str, content: str) -> ContextBlock:
        """Write a block. The prompt does not change before its next refresh."""
        return await self._context.replace(label, content)

    async def append_context_block(self, label: str, content: str) -> ContextBlock:
        """Add to a block, on a line of its own."""
        return await self._context.append(label, content)

    async def set_context_entry(
        self, label: str, key: str, content: str, *, description: str | None = None
    ) -> None:
        """Write one entry of a block that has entries."""
        await self._context.set_entry(label, key, content, description)

    async def load_context(self, label: str, key: str) -> str | None:
        """A document of a loadable block."""
        return await self._context.load_document(label, key)

    async def unload_context(self, label: str, key: str) -> bool:
        """Take a loaded document out of the conversation again. False when it is not loaded."""
        await self._restore()
        if not self._context.unload_document(label, key):
            return False
        await self._forget_document(label, key)
        return True

    async def search_context(self, label: str, query: str) -> str | None:
        """What a searchable block finds."""
        return await self._context.search(label, query)

    async def add_context(
        self,
        label: str,
        options: Mapping[str, Any] | None = None,
        *,
        description: str | None = None,
        max_tokens: int | None = None,
        provider: Any = None,
    ) -> ContextBlock:
        """Add a block while the agent runs. It is in the prompt after `refresh_system_prompt`."""
        given = {"description": description, "max_tokens": max_tokens, "provider": provider}
        block = await self._context.add(label, **block_options(label, options, **given))
        await self._restore()
        return block

    def remove_context(self, label: str) -> bool:
        """Remove a block; what it holds is kept. It leaves the prompt with `refresh_system_prompt`."""
        return self._context.remove(label)

    async def freeze_system_prompt(self) -> str:
        """The prompt of the blocks, the same text each time until it is refreshed. Empty without blocks."""
        return "" if not self.has_context else await self._context.freeze()

    async def refresh_system_prompt(self, reason: str = "asked") -> str:
        """Read every block again and render the prompt anew."""
        return "" if not self.has_context else await self._context.refresh(reason)

    async def tools(self) -> dict[str, Tool]:
        """The tools that the blocks give the model."""
        if not self.has_context:
            return {}
        await self._restore()
        return await self._context.tools(on_unload=self._forget_document)

    async def _restore(self) -> None:
        """Learn once which documents the conversation has loaded."""
        if self._has_restored or not self._context.has_loadable:
            return
        self._restored = self._restored or asyncio.Lock()
        async with self._restored:
            if self._has_restored:
                return
            try:
                self._context.loaded |= restored([message async for message in self._assistant_messages()])
            except Exception:
                log.exception("the loaded documents of a conversation were not found; none counts as loaded")
            self._has_restored = True

    async def _assistant_messages(self, *, newest_first: bool = False) -> AsyncIterator[Message]:
        """Every assistant message of the path, one at a time, also those that a summary covers."""
        rows = [row for row in await self.get_history_row_stats() if row.role == "assistant"]
        for row in reversed(rows) if newest_first else rows:
            message = self.find(row.id) or await self.get_message(row.id)
            if message is not None:
                yield message

    async def find_call(self, call_id: str) -> Message | None:
        """The message of the path that holds a tool call, also one that is not in memory."""
        async for message in self._assistant_messages(newest_first=True):
            if any(part.get("toolCallId") == call_id for part in message.parts):
                return message
        return None

    async def _forget_document(self, label: str, key: str) -> None:
        async with self.rewriting:
            async for message in self._assistant_messages(newest_first=True):
                changed = unloaded_in(message, label, key)
                if changed is not None:
                    await self.rewrite(changed)
                    return

    # --- compaction

    @property
    def has_compaction(self) -> bool:
        """True when there is a function that shortens the conversation."""
        return self._shortening is not None and self._shortening.fn is not None

    @property
    def token_threshold(self) -> int | None:
        """The number of tokens after which the conversation is shortened."""
        return None if self._shortening is None else self._shortening.threshold

    async def estimate_tokens(self) -> int:
        """What the conversation and its prompt weigh in tokens, roughly."""
        return await self._compactor.estimate()

    async def compact(
        self, leaf_id: str | None = None, *, reason: CompactionReason = "asked"
    ) -> Compaction | None:
        """Shorten the conversation now. `None` when there was nothing to shorten, or it failed."""
        return await self._compactor.compact(leaf_id, reason=reason)

    async def compact_if_due(self) -> bool:
        """Shorten the conversation if it has outgrown `compact_after`. Never raises."""
        return self._shortening is not None and await self._shortening.compact_if_due()

    async def add_compaction(self, summary: str, from_message_id: str, to_message_id: str) -> Overlay | None:
        """Show `summary` in place of a range of messages. `None` when they are no range of one path."""
        begins = {overlay.message_id: overlay.from_message_id for overlay in self._overlays}
        from_message_id = begins.get(from_message_id, from_message_id)
        to_message_id = self.row_id(to_message_id)
        if not any(row.id == from_message_id for row in await self.get_history_row_stats(to_message_id)):
            return None
        return await self.cover(from_message_id, to_message_id, summary, "asked", 0)

    async def cover(
        self, first: str, last: str, summary: str, reason: str, tokens_before: int
    ) -> Overlay | None:
        """Store an overlay, read the path again and render the prompt anew."""
        stored_seq = await self._reader.last_overlay()
        seq = self._last_cover = 1 + max(self._last_cover, stored_seq)
        now = self._now()
        overlay = Overlay(f"{now:x}-{seq}", first, last, summary, reason, tokens_before, moment_of(now), seq)
        stored = queries.compacted(self.id, overlay)
        applied = self._store.apply([stored, *self._context.unfrozen()])
        try:
            [rows, *_] = await asyncio.shield(applied)
            if not rows:
                return None
            await self.load()
        except BaseException:
            # Stopped or failed, it may be stored all the same: whoever needs the path next reads it again.
            applied.add_done_callback(lambda _: self.mark_stale())
            raise
        try:
            await self.refresh_system_prompt("compaction")
        except ContextUnavailable:
            # The conversation is shorter all the same; the prompt follows with the next refresh or restart.
            log.exception("the system prompt could not be made anew after a compaction; it stays as it was")
        return await self._reader.overlay(overlay.id)  # `None`: cleared meanwhile

    async def count(self, counter: TokenCounter | None) -> int:
        """What the conversation weighs in tokens, with its prompt, by `counter` or by our estimate."""
        await self.refresh()
        prompt = "" if not self.has_context else await self._context.peek()
        if counter is None:
            return self.token_estimate() + estimate_tokens(prompt)
        if self.has_context:
            await self._context.load()
        messages = [message.copy() for message in self._path]
        return await counted(counter, TokenCount(messages, prompt, self._context.get_blocks()))

    def tell(self, news: SessionNews) -> None:
        """Tell whoever watches this session."""
        if self.listener is not None:
            self.listener(news)

    # --- search

    async def search(self, query: str, *, limit: int = 20) -> list[SearchHit]:
        """Messages of this session that hold `query` as a phrase, best first; also summarised ones."""
        check_call("session.search", query=query, limit=limit)
        rows = await self._store.search(
            Search(
                "messages",
                ("id", "role", "created_at"),
                tuple(query[:LONGEST_QUERY].split()),
                is_phrase=True,
                where="session = ?",
                params=(self.id,),
                limit=limit,
            )
        )
        return [SearchHit(id, role, text, snip, self.id, moment_of(at)) for id, role, at, text, snip in rows]

    # --- writing

    async def append_message(self, message: Message, parent_id: str | Unset | None = UNSET) -> bool:
        """Store one message; an unknown parent means a new root. False when the id was known already."""
        inserted = await super().append_message(message, parent_id)
        if inserted:
            await self.compact_if_due()
        return inserted

    async def rewrite(self, message: Message, *more: Statement) -> None:
        """Replace a stored message without telling those who watch how long the conversation is.

        `more` is done in the same commit, which is refused (`REWRITTEN`) when the message is gone.
        """
        plan = self.plan_update(message)
        (update,) = plan.statements
        guarded = update._replace(guard=True, name=REWRITTEN) if more else update
        rows = await self._store.apply([guarded, *more])
        super().confirm(plan, rows[:1])

    def confirm(self, plan: Plan, rows: Sequence[Rows]) -> None:
        """Take a committed plan into the path."""
        super().confirm(plan, rows)
        self._tell_length()

    def confirm_clear(self) -> None:
        """The session was emptied. Follow with `clear_memory`."""
        super().confirm_clear()
        if self._blocks is not None:
            self._blocks.forget_loaded()
        self.omitted = NONE
        self.files = Files()
        self._tell_length()

    async def clear_messages(self) -> None:
        """Remove every message of this session, and render its prompt anew."""
        await super().clear_messages()
        await self.refresh_system_prompt("cleared")

    def plan_delete(self) -> list[Statement]:
        """What removes the session for good: its messages, its summaries, its blocks, its prompt."""
        return [*self.plan_clear(), *self._context.cleared()]

    def _tell_length(self) -> None:
        if self.listener is None or self._shortening is None or not self._shortening.is_set_up:
            return
        prompt = self._blocks.prompt_tokens if self._blocks is not None else 0
        phase = "compacting" if self._shortening.is_running else "idle"
        self.tell(SessionStatus(phase, self.token_estimate() + prompt, self._shortening.threshold))

    def _found_unreadable(self, id: str, error: Exception) -> None:
        if self.unreadable is not None:
            self.unreadable(id, error)
        else:
            log.warning("message %s of %s cannot be read and is left out: %s", id, self._store.agent, error)

    def _hydrated(self, shape: Shape) -> None:
        if self.hydrated is not None:
            self.hydrated(shape)

    def limit_hydration(self, max_bytes: float) -> None:
        """How much of the path is kept in memory; what is older stays in the database."""
        self._budget = max_bytes
