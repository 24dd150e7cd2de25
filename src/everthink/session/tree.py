"""The conversation as a tree of messages, with its active path in memory.

    turn/, add_messages --plan--> (caller's commit) --confirm--> path

Each message has at most one parent; the tip is the newest message, the active path leads
from the root to it. In memory is the path as it is shown: a summary stands for the messages it
covers, and what is older than the budget allows stays in the database. A write is planned
(statements for the caller's commit) and confirmed once that commit is durable, so nobody reads a
message that a crash can take back.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ..empty import NONE
from ..errors import InvalidMessage, UnknownMessage
from ..messages import UNSET, Message, Unset, encode_json
from ..models.tokens import estimate_message
from ..settings import check_call
from ..store.port import AgentStore, Rows, Statement
from . import attachments, authors, queries
from .overlay import OVERLAY_PREFIX, Overlay, applied, is_overlay
from .path_reader import (
    PathReader,
    RowStats,
    Shape,
    Step,
)
from .row_size import is_cut, storable

__all__ = ["Plan", "RecentHistory", "Tree"]


@dataclass(slots=True)
class Plan:
    """A write that waits for its commit: put `statements` there, then `confirm` with their rows."""

    statements: list[Statement] = field(default_factory=list[Statement])
    writes: list[tuple[Message, str | None, int | None]] = field(
        default_factory=list[tuple[Message, str | None, int | None]]
    )
    """(message, parent, sequence number) in the order of the statements. An update has no number."""
    moves: list[Statement] = field(default_factory=list[Statement])
    """Belong behind `statements`: what is stored already gets another place."""

    @property
    def new(self) -> list[str]:
        """The messages it appends. One that was stored already stays where it is, and is none of them."""
        return [message.id for message, _, seq in self.writes if seq is not None]

    @property
    def cut(self) -> list[str]:
        """The messages that were too large for a row, and are not stored as they were given."""
        return [message.id for message, _, _ in self.writes if is_cut(message)]


@dataclass(frozen=True, slots=True)
class RecentHistory:
    """The end of a path: as many of its messages as a budget allows."""

    messages: list[Message]
    truncated: bool
    total_content_bytes: int
    """Of the whole path."""


class Tree:
    """The messages of one session."""

    # There is one for each session, and without a dict it weighs a kilobyte less.
    # fmt: off
    __slots__ = (
        "__dict__", "__weakref__", "_budget", "_bytes_added", "_bytes_read", "_confirmed", "_cut", "_floor",
        "_index_of", "_is_partial", "_is_windowed", "_leaf", "_leaf_seq", "_now", "_out_of_view",
        "_overlays", "_path", "_planned", "_reader", "_seq", "_stale", "_store", "_tip", "_tip_seq",
        "_weights", "heaviest", "id", "tell_cut", "when_cleared",
    )
    # fmt: on

    def __init__(self, store: AgentStore, *, now: Callable[[], int], id: str = "") -> None:
        self.id = id
        self._store, self._now = store, now
        self._reader = PathReader(store, id)
        # The confirmed active path as it is shown, what each message weighs in tokens (-1: not estimated),
        # and where each id stands in it. The last message that a summary covers stands where that does.
        self._path: list[Message] = []
        self._weights: list[int] = []
        self._index_of: dict[str, int] = {}
        # Its last row.
        self._leaf: str | None = None
        self._leaf_seq = 0
        self._overlays: list[Overlay] = []
        self._is_partial = self._is_windowed = False
        self._budget, self._floor = math.inf, 4
        # The bytes of what was read into memory, and of what was added since.
        self._bytes_read = self._bytes_added = 0
        self.heaviest = 0
        """The bytes of the largest row that was read or written here."""
        # The tip as planned: ahead of the path while a commit is in flight. 0: take the database's.
        self._tip: str | None = None
        self._tip_seq = 0
        # The last number given out. It only grows.
        self._seq = 0
        self._stale = False
        # Ids whose rows are being written.
        self._planned: dict[str, None] = {}
        # Those of them that were cut to fit a row, with the bytes they had.
        self._cut: dict[str, int] = {}
        self.tell_cut: Callable[[Message, int], object] | None = None
        """Called with a message that is stored in part, and the bytes it had."""
        self.when_cleared: Callable[[], Sequence[Statement]] = tuple
        """What else is to be in the commit that clears it."""
        # Ids that are stored and out of view, as far as somebody has asked.
        self._out_of_view: frozenset[str] = NONE
        # Counts what became known, so that a read that was overtaken is noticed.
        self._confirmed = 0

    # --- reading

    @property
    def path(self) -> Sequence[Message]:
        """The active path, root first. Shared: read it, do not change it."""
        return self._path

    @property
    def tip(self) -> str | None:
        """The id of the last message, counting what is being written."""
        return self._tip

    @property
    def leaf(self) -> Message | None:
        """The last message of the active path."""
        return self._path[-1] if self._path else None

    @property
    def is_partial(self) -> bool:
        """True when the path has messages that are not in memory: summarised, or beyond the budget."""
        return self._is_partial

    def find(self, id: str) -> Message | None:
        """A message of the active path."""
        index = self._index_of.get(id)
        found = None if index is None else self._path[index]
        return found if found is not None and found.id == id else None

    def token_estimate(self) -> int:
        """What the active path weighs in tokens, roughly. Each message is estimated once."""
        for index, weight in enumerate(self._weights):
            if weight < 0:
                self._weights[index] = estimate_message(self._path[index])
        return sum(self._weights)

    def up_to(self, id: str) -> list[Message] | None:
        """The active path up to a message of it, or `None` when it is not on it (or inside a summary)."""
        index = self._index_of.get(id)
        return None if index is None else self._path[: index + 1]

    def row_of(self, message: Message) -> str:
        """The id that a message hangs on below this one: for a summary, the last message it covers."""
        if not is_overlay(message):
            return message.id
        return self.row_id(message.id)

    def row_id(self, id: str) -> str:
        """The id of the row that `id` means: for that of a summary, the last message it covers."""
        return next((one.to_message_id for one in self._overlays if one.message_id == id), id)

    def is_known(self, id: str) -> bool:
        """True when the message is on the active path, or is being written."""
        return id in self._index_of or id in self._planned

    async def load(self) -> None:
        """Read the active path from the database."""
        while True:
            confirmed = self._confirmed
            shape = await self._reader.walk(
                covers=True, contents=True, max_bytes=self._budget, min_recent=self._floor
            )
            path = await self._reader.read(shape)
            if confirmed == self._confirmed:
                break  # otherwise a commit was confirmed while we read: what we read may be older
        self._stale = False
        leaf, seq = shape.leaf, shape.leaf_seq
        if seq >= self._tip_seq:
            self._tip, self._tip_seq = leaf, seq
        self._seq = max(self._seq, seq)
        self._leaf, self._leaf_seq = leaf, seq
        self._overlays, self._is_partial = shape.overlays, shape.is_partial
        self._is_windowed = shape.is_truncated
        self._bytes_read = sum(step.bytes for step in shape.steps if isinstance(step, Step))
        self._bytes_added = 0
        self._set_path(path)
        self.heaviest = max([self.heaviest, *(step.bytes for step in shape.steps if isinstance(step, Step))])
        self._hydrated(shape)

    def _hydrated(self, shape: Shape) -> None:
        """The path was read."""

    async def refresh(self) -> None:
        """Read the path again if a write made the one in memory unsure."""
        if self._stale:
            await self.load()

    async def note_stored_ids(self, messages: Sequence[Message]) -> None:
        """`refresh`, and learn which of `messages` are stored but out of view: a plan leaves those where
        they are."""
        await self.refresh()
        if self._is_partial:
            self._out_of_view |= await self.known([m.id for m in messages if m.id not in self._index_of])
            await self.refresh()

    async def get_message(self, id: str) -> Message | None:
        """A message by id, on whichever branch, also one that a summary covers."""
        rows = await self._store.fetch(queries.ONE, self.id, id)
        if not rows:
            return None
        role, content, _, at = rows[0]
        return self._reader.parsed(id, role, content, at)

    async def has(self, id: str) -> bool:
        """True when this session holds the message, on whichever branch."""
        return id in self._index_of or bool(await self._store.fetch(queries.ONE, self.id, id))

    async def get_parent(self, id: str) -> str | None:
        """The id of the message that this one follows; `None` for a root."""
        rows = await self._store.fetch(queries.ONE, self.id, id)
        return rows[0][2] if rows else None

    async def get_history(self, leaf_id: str | None = None) -> list[Message]:
        """The path from the root to `leaf_id` (the tip when omitted), as copies. Unknown id: empty."""
        if leaf_id is None:
            await self.refresh()
            if not self._is_windowed:
                return [message.copy() for message in self._path]
        else:
            leaf_id = self.row_id(leaf_id)
        return await self._reader.read(await self._reader.walk(leaf_id, covers=True, contents=True))

    async def get_stored_path(self) -> list[Message]:
        """The active path as it is stored: what summaries cover, and nothing in place of it."""
        return await self._reader.read(await self._reader.walk(contents=True))

    async def get_recent_history(self, max_bytes: float, min_recent: int = 1) -> RecentHistory:
        """The longest end of the active path that fits `max_bytes`; at least its last `min_recent`."""
        floor = max(1, int(min_recent))
        shape = await self._reader.walk(contents=True, max_bytes=max_bytes, min_recent=floor)
        overlays = await self._reader.overlays() if shape.steps else []
        messages = applied(await self._reader.read(shape), overlays)
        return RecentHistory(messages, shape.is_truncated, shape.total_bytes)

    async def get_history_row_stats(self, leaf_id: str | None = None) -> list[RowStats]:
        """The rows of a path with their sizes, root first, without reading what they say."""
        shape = await self._reader.walk(leaf_id)
        return [RowStats(step.id, step.role, step.bytes) for step in shape.steps if isinstance(step, Step)]

    async def get_compactions(self) -> list[Overlay]:
        """Every compaction of this session, oldest first, also those that a later one covers."""
        return await self._reader.overlays()

    async def overlays_in(self, messages: Sequence[Message]) -> list[Overlay]:
        """The compactions that stand among `messages`."""
        ids = [message.id.removeprefix(OVERLAY_PREFIX) for message in messages if is_overlay(message)]
        found = [await self._reader.overlay(id) for id in ids]
        return [overlay for overlay in found if overlay is not None]

    async def known(self, ids: Sequence[str]) -> set[str]:
        """Those of `ids` that this session holds, on whichever branch."""
        return await self._reader.known(ids)

    async def get_latest_leaf(self) -> Message | None:
        """The tip of the active path."""
        await self.refresh()
        return self._path[-1].copy() if self._path else None

    async def get_branches(self, id: str) -> list[Message]:
        """The direct children of a message, oldest first."""
        rows = await self._store.fetch(queries.BRANCHES, self.id, id)
        return [message for row in rows if (message := self._reader.parsed(*row))]

    async def get_path_length(self, leaf_id: str | None = None) -> int:
        """How many messages lead to `leaf_id` (the tip when omitted)."""
        return len((await self._reader.walk(leaf_id)).steps)

    # --- planning: pure statements for the caller's commit

    def plan_append(
        self, messages: Sequence[Message], parent: str | Unset | None = UNSET, *, is_new: bool = False
    ) -> Plan:
        """Append `messages` one under the other: below the tip, below `parent`, or as a new root (`None`).

        `is_new`: a commit that finds one of them stored already, on another branch, is refused.
        """
        plan = Plan()
        above = self._tip if isinstance(parent, Unset) else parent and self.row_id(parent)
        for message in messages:
            if message.role == "user" and is_overlay(message):
                raise InvalidMessage("message.id", f"is {message.id[:40]!r}, which stands for a summary")
            if message.id in self._index_of or message.id in self._out_of_view or is_overlay(message):
                continue  # stays where it is, and so does the place of what follows
            now = self._now()
            message = self._fitted(message).stored(now)
            self._seq += 1
            statement = queries.appended(self.id, message, seq=self._seq, parent=above, now=now, guard=is_new)
            plan.statements.append(statement)
            size = queries.bytes_of(statement)
            self.heaviest = max(self.heaviest, size)
            self._bytes_added += size
            plan.writes.append((message, above, self._seq))
            self._planned[message.id] = None
            above = message.id
        if plan.writes:
            self._tip, self._tip_seq = above, self._seq
        return plan

    def plan_update(self, *messages: Message) -> Plan:
        """Replace the content of messages by id; never inserts, never moves them."""
        plan = Plan()
        for message in messages:
            message = self._fitted(message)
            plan.statements.append(queries.updated(self.id, message))
            plan.writes.append((message, None, None))
        return plan

    def _fitted(self, message: Message) -> Message:
        fitted = storable(message)
        if fitted is not message and is_cut(fitted) and not is_cut(message):
            self._cut[message.id] = len(encode_json(message))
        return fitted

    def plan_take_along(self, plan: Plan, ids: Sequence[str]) -> None:
        """Hang stored messages below what `plan` appends, one under the other, in its commit.

        What hung below one of them stays where it was.
        """
        for id in ids:
            self._seq += 1
            plan.moves += queries.moved(self.id, id, below=self._tip, seq=self._seq)
            self._tip, self._tip_seq = id, self._seq

    def plan_clear(self) -> list[Statement]:
        """Remove everything but what is planned later. Follow a durable commit with `confirm_clear`."""
        self._tip, self._tip_seq = None, self._seq
        self._out_of_view = NONE
        return [
            authors.cleared(self.id),  # while it can be seen which messages go
            *queries.cleared(self.id),
            *attachments.cleared(self.id),
            *self.when_cleared(),
        ]

    # --- confirming: the commit is durable

    def confirm(self, plan: Plan, rows: Sequence[Rows]) -> None:
        """Take a committed plan into the path. `rows` are those of the plan's statements."""
        self._confirmed += 1
        for (message, parent, seq), returned in zip(plan.writes, rows, strict=True):
            if seq is not None:
                self._planned.pop(message.id, None)
                if returned:
                    self._hang(message, parent, seq)
                else:
                    self.roll_back()  # the id was known already, on another branch
            elif returned:
                self.apply_early(message)
            size = self._cut.pop(message.id, None) if self._cut else None
            if size is not None and returned and self.tell_cut is not None:
                self.tell_cut(message, size)
        if plan.moves:
            self.mark_stale()
        if self._bytes_added > max(self._budget, self._bytes_read) / 2:
            self.mark_stale()  # the oldest leave memory when the path is read again, within the budget

    def apply_early(self, message: Message) -> None:
        """Put an update into the path ahead of its commit, so that the next one builds on it."""
        index = self._index_of.get(message.id)
        if index is not None and self._path[index].id == message.id:
            self._path[index] = message.stored(self._path[index])
            self._weights[index] = -1

    def roll_back(self, plan: Plan | None = None) -> None:
        """A planned row was not written: what memory believes about the tip may be wrong."""
        if plan is not None:
            for message, _, _ in plan.writes:
                self._planned.pop(message.id, None)
                self._cut.pop(message.id, None)
        self._confirmed += 1
        self._stale = True
        self._tip, self._tip_seq = self._leaf, 0

    def mark_stale(self) -> None:
        """What is shown may have changed in the database: `refresh` reads it again. The tip is as it was."""
        self._confirmed += 1
        self._stale = True

    def confirm_clear(self) -> None:
        """The session was emptied."""
        self._confirmed += 1
        self._leaf, self._leaf_seq = None, 0
        self._overlays, self._is_partial, self._is_windowed = [], False, False
        self._bytes_read = self._bytes_added = 0
        self._set_path([])

    def _hang(self, message: Message, parent: str | None, seq: int) -> None:
        if seq > self._tip_seq:
            self._tip, self._tip_seq = message.id, seq
        index = -1 if parent is None else self._index_of.get(parent, -2)
        if index == -2 or seq <= self._leaf_seq:
            self._stale = self._stale or message.id not in self._index_of
            return
        self._leaf, self._leaf_seq = message.id, seq
        if len(self._path) > index + 1:
            self._set_path(self._path[: index + 1])
        self._index_of[message.id] = len(self._path)
        self._path.append(message)
        self._weights.append(-1)

    # --- writing directly

    async def append_message(self, message: Message, parent_id: str | Unset | None = UNSET) -> bool:
        """Store one message; an unknown parent means a new root. False when the id was known already."""
        await self.refresh()
        if isinstance(parent_id, str) and not await self.has(parent_id):
            parent_id = None
        plan = self.plan_append([message], parent_id)
        if not plan.statements:
            return False
        return bool((await self.write(plan))[0])

    async def update_message(self, message: Message) -> bool:
        """Replace a message's content. False when there is none of that id."""
        return bool((await self.write(self.plan_update(message)))[0])

    async def write(self, plan: Plan, *more: Statement) -> list[Rows]:
        """Commit `plan` (and `more` statements) and take it into the path."""
        try:
            rows = await self._store.apply([*plan.statements, *plan.moves, *more])
        except BaseException:
            self.roll_back(plan)
            raise
        self.confirm(plan, rows[: len(plan.statements)])
        await self.refresh()
        return rows

    async def delete_messages(self, ids: Sequence[str]) -> None:
        """Remove messages; what hung below one of them hangs below its parent afterwards."""
        check_call("delete_messages", ids=ids)
        for id in ids:
            if removal := await self.plan_removal(id):
                await self._store.apply(removal)
        await self.removed()

    async def plan_removal(self, id: str) -> list[Statement]:
        """What removes a message, if it is stored. Follow the commit with `removed`."""
        rows = await self._store.fetch(queries.ONE, self.id, id)
        if not rows:
            return []
        above: str | None = rows[0][2]
        return [queries.reparented(self.id, old=id, new=above), *queries.deleted(self.id, [id])]

    async def removed(self) -> None:
        """Messages were removed: read the conversation again."""
        self._out_of_view = NONE
        self.roll_back()
        await self.load()

    async def select_leaf(self, id: str) -> bool:
        """Go on from another branch: make its last message the tip. False when it is none's last."""
        await self.refresh()
        self._seq += 1
        rows = await self._store.apply([queries.selected(self.id, id, seq=self._seq)])
        self.roll_back()
        await self.load()
        return bool(rows[0])

    async def clear_messages(self) -> None:
        """Remove every message of this session."""
        await self._store.apply(self.plan_clear())
        self.confirm_clear()

    async def require(self, id: str, *, what: str) -> None:
        """Raise `UnknownMessage` unless the session holds `id`."""
        if not await self.has(id):
            raise UnknownMessage(f'{what} "{id}" does not exist in this session.', kept="Nothing was stored.")

    # --- helpers

    def _set_path(self, messages: list[Message]) -> None:
        self._path = messages
        self._weights = [-1] * len(messages)
        self._index_of = {message.id: index for index, message in enumerate(messages)}
        for overlay in self._overlays:
            index = self._index_of.get(overlay.message_id)
            if index is not None:
                self._index_of[overlay.to_message_id] = index
