"""Several sessions of one agent: make, list, rename, fork, delete for good.

    agent.sessions --> Sessions --> session.py (one conversation), session_queries.py (what is known of it)

One of them is live: turns run in it and chat windows show it. The others rest in the database
and cost nothing until somebody reads them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..clock import moment_of
from ..errors import SessionBusy, UnknownSession
from ..messages import UNSET, Message, Unset
from ..store.port import LONGEST_QUERY, AgentStore, Search
from . import session_queries as queries
from .session import SearchHit, Session
from .session_queries import SessionInfo
from .tree import Plan

if TYPE_CHECKING:
    from ..tools.tool import Tool

__all__ = ["MAIN", "Parts", "SessionInfo", "Sessions"]

MAIN = ""
"""The id of the session that every agent has."""

FORKED = "Fork of {}"
CARRIED_ON = "# What was said in the session before this one\n\n"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Parts:
    """The parts of an agent that its sessions use."""

    store: AgentStore
    new_id: Callable[[], str]
    now: Callable[[], int]
    """The time in ms."""
    live: Callable[[], Session]
    """The session that turns run in."""
    make: Callable[[str], Awaitable[Session]]
    """A session of that id, set up as the developer asked for."""
    switch: Callable[[Session], Awaitable[None]]
    """Makes a session the live one. Raises `SessionBusy` while a turn runs or waits."""
    cleared: Callable[[], Awaitable[None]]
    """Removes what a session that was cleared leaves behind."""


class Sessions:
    """The sessions of one agent."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._known: dict[str, Session] = {}
        self._making: dict[str, asyncio.Lock] = {}

    # --- one of them

    @property
    def live(self) -> Session:
        """The session that turns run in."""
        return self._parts.live()

    async def session(self, id: str) -> Session:
        """A session to read from or write to, also one that is not live."""
        if id == self.live.id:
            return self.live
        # Two objects for one session would give out the same numbers twice.
        async with self._making.setdefault(id, asyncio.Lock()):
            if id == self.live.id:
                return self.live
            session = self._known.get(id)
            if session is None:
                session = await self._parts.make(id)
                await session.load()
                self._known[id] = session
            return session

    async def open(self, id: str) -> SessionInfo:
        """Make a session the live one. Raises `SessionBusy` while a turn runs or waits."""
        info = await self._required(id)
        if id != self.live.id:
            opened = await self.session(id)
            await opened.load()
            before = self.live
            if opened is before:
                return info  # opened by somebody else meanwhile
            self._known[before.id] = before
            await self._parts.switch(opened)
            self._known.pop(id, None)
        return info

    # --- what there is

    async def create(
        self,
        name: str,
        *,
        parent_session_id: str | None = None,
        model: str | None = None,
        source: str | None = None,
    ) -> SessionInfo:
        """A new, empty session."""
        made = self._fresh(name, parent_session_id, model, source)
        await self._parts.store.apply([queries.created(made)])
        return made

    async def get(self, id: str) -> SessionInfo | None:
        """What is known about a session; `None` when there is none of that id."""
        rows = await self._parts.store.fetch(queries.ONE, id)
        return queries.info_of(rows[0]) if rows else None

    async def list(self) -> list[SessionInfo]:
        """Every session, the one used last first. The main one is among them once it was used."""
        rows = await self._parts.store.fetch(queries.ALL)
        return [queries.info_of(row) for row in rows]

    async def rename(self, id: str, name: str) -> None:
        """Give a session another name."""
        if id == MAIN:
            await self._note_main()
        parts = self._parts
        [rows] = await parts.store.apply([queries.renamed(id, name, now=parts.now())])
        if not rows:
            raise _unknown(id)

    async def delete(self, id: str) -> None:
        """Remove a session for good: messages, summaries, blocks, prompt. Not the live one.

        One that is not there, or not any more, is as good as removed.
        """
        parts = self._parts
        if id == self.live.id:
            raise SessionBusy(
                "The live session cannot be deleted.",
                kept="It is as it was.",
                next_step="Open another one first, or empty this one with clear_messages().",
            )
        session = await self.session(id)
        await parts.store.apply([*session.plan_delete(), queries.removed(id)])
        self._known.pop(id, None)
        await parts.cleared()

    async def fork(self, id: str, at_message_id: str, new_name: str | None = None) -> SessionInfo:
        """A new session with the conversation up to a message, as it is shown there."""
        source = await self.session(id)
        await source.require(at_message_id, what="fork: at_message_id")
        info = await self.get(id)
        name = new_name if new_name is not None else FORKED.format((info and info.name) or "the conversation")
        made = self._fresh(name, id, info.model if info else None, info.source if info else None)
        copies = [
            Message(self._parts.new_id(), one.role, one.parts, one.metadata, created_text=one.created_text)
            for one in await source.get_history(at_message_id)
        ]
        return await self._begin(made, copies, *self._touched(id))

    async def compact_and_split(self, id: str, summary: str, new_name: str | None = None) -> SessionInfo:
        """End a session and go on in a new one that begins with a summary of it."""
        parts, info = self._parts, await self._required(id)
        name = new_name if new_name is not None else info.name or "Compacted"
        made = self._fresh(name, id, info.model, info.source)
        begun = Message(parts.new_id(), "assistant", [{"type": "text", "text": CARRIED_ON + summary}])
        over = queries.ended(id, reason="compaction", now=parts.now())
        return await self._begin(made, [begun], over)

    async def add_usage(
        self, id: str, input_tokens: int, output_tokens: int, estimated_cost: float = 0.0
    ) -> None:
        """Add to a session's totals. What providers report for turns is added without this."""
        await self._required(id)
        parts = self._parts
        await parts.store.apply(
            [
                queries.used(
                    id,
                    input=input_tokens,
                    output=output_tokens,
                    cost=estimated_cost,
                    now=parts.now(),
                )
            ]
        )

    # --- what is in one of them

    async def append(self, id: str, message: Message, parent_id: str | Unset | None = UNSET) -> bool:
        """Store a message in a session. False when its id is known there."""
        await self._required(id)
        inserted = await (await self.session(id)).append_message(message, parent_id)
        await self._touch(id)
        return inserted

    async def upsert(self, id: str, message: Message, parent_id: str | Unset | None = UNSET) -> None:
        """Store a message in a session, in its place when its id is known there."""
        await self._required(id)
        session = await self.session(id)
        if not await session.update_message(message):
            await session.append_message(message, parent_id)
        await self._touch(id)

    async def append_all(
        self, id: str, messages: Sequence[Message], parent_id: str | Unset | None = UNSET
    ) -> None:
        """Store messages one under the other, below the session's tip or below `parent_id`."""
        await self._required(id)
        session = await self.session(id)
        if isinstance(parent_id, str):
            await session.require(parent_id, what="append_all: parent_id")
        await session.note_stored_ids(messages)
        plan: Plan = session.plan_append(messages, parent_id)
        await session.write(plan, *self._touched(id))
        await session.compact_if_due()

    async def get_history(self, id: str, leaf_id: str | None = None) -> list[Message]:
        """The conversation of a session."""
        return await (await self.session(id)).get_history(leaf_id)

    async def get_message_count(self, id: str) -> int:
        """How many messages lead to the tip of a session."""
        return await (await self.session(id)).get_path_length()

    async def delete_messages(self, id: str, ids: Sequence[str]) -> None:
        """Remove messages of a session."""
        await self._required(id)
        await (await self.session(id)).delete_messages(ids)
        await self._touch(id)

    async def clear_messages(self, id: str) -> None:
        """Empty a session. The live one is emptied with `Think.clear_messages`, which stops its turns."""
        if id == self.live.id:
            raise SessionBusy(
                "The live session is emptied with clear_messages() of the agent.", kept="It is as it was."
            )
        await self._required(id)
        await (await self.session(id)).clear_messages()
        await self._parts.cleared()
        await self._touch(id)

    async def search(self, query: str, *, limit: int = 20) -> list[SearchHit]:
        """Messages of all sessions that hold every word of `query`, best first."""
        rows = await self._parts.store.search(
            Search(
                "messages",
                ("id", "role", "session", "created_at"),
                tuple(query[:LONGEST_QUERY].split()),
                limit=limit,
            )
        )
        return [
            SearchHit(id, role, text, snip, session, moment_of(at))
            for id, role, session, at, text, snip in rows
        ]

    def tools(self) -> dict[str, Tool]:
        """`session_search`: lets the model look through all sessions."""
        from ..tools.tool import Tool

        async def session_search(input: dict[str, str]) -> str:
            hits = await self.search(input["query"], limit=10)
            return "\n---\n".join(f"[{hit.role}] {hit.content}" for hit in hits) or "No results found."

        schema = {
            "type": "object",
            "properties": {"query": {"type": "string", "description": "The words to look for."}},
            "required": ["query"],
        }
        about = "Search everything that was said in any session with this person, also long ago."
        return {"session_search": Tool.from_schema("session_search", about, schema, session_search)}

    def history_provider(self) -> HistoryProvider:
        """A searchable block over all sessions: `session.with_context("history", provider=…)`."""
        return HistoryProvider(self)

    # --- helpers

    def _fresh(self, name: str, parent: str | None, model: str | None, source: str | None) -> SessionInfo:
        now = moment_of(self._parts.now())
        return SessionInfo(self._parts.new_id(), name, parent, model, source, 0, 0, 0.0, None, now, now)

    async def _begin(
        self, made: SessionInfo, messages: Sequence[Message], *more: queries.Statement
    ) -> SessionInfo:
        """Note a new session with its first messages in one commit: a crash leaves both or neither."""
        target = await self.session(made.id)
        plan = target.plan_append(messages)
        now = moment_of(self._parts.now())  # no copy is younger than its session (session/attachments.py)
        made = replace(made, created_at=now, updated_at=now)
        try:
            await target.write(plan, queries.created(made), *more)
        except BaseException:
            self._known.pop(made.id, None)
            raise
        return made

    async def _required(self, id: str) -> SessionInfo:
        if id == MAIN:
            await self._note_main()
        info = await self.get(id)
        if info is None:
            raise _unknown(id)
        return info

    async def _note_main(self) -> None:
        parts, now = self._parts, moment_of(self._parts.now())
        main = SessionInfo(MAIN, "", None, None, None, 0, 0, 0.0, None, now, now)
        await parts.store.apply([queries.created(main)])

    def _touched(self, id: str) -> Sequence[queries.Statement]:
        parts = self._parts
        return [queries.used(id, input=0, output=0, cost=0.0, now=parts.now())]

    async def _touch(self, id: str) -> None:
        await self._parts.store.apply(self._touched(id))


class HistoryProvider:
    """What was said in all sessions, as a block the model can search."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    async def get(self) -> str | None:
        """How many sessions there are."""
        count = len(await self._sessions.list())
        return f"{count} session{'' if count == 1 else 's'} to search." if count else None

    async def search(self, query: str) -> str | None:
        """What was said about something, in any session."""
        hits = await self._sessions.search(query, limit=10)
        return "\n---\n".join(f"[{hit.role}] {hit.content}" for hit in hits) or None


def _unknown(id: str) -> UnknownSession:
    return UnknownSession(
        f"There is no session {id!r}.", kept="Nothing was changed.", next_step="See sessions.list()."
    )
