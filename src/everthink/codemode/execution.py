"""One execution: code that is run from its beginning, and a log that answers what was answered before.

    sandbox --Host.call--> decide --Replay--> the answer of the log, when its turn has come
                                  --Begin--> `started` is durable, the tool runs, `done` is on its way
                                  --Ask--> a row `pending`, the guest is given up, a person is asked

Answers reach the code in one order, which the log keeps: that, a clock that stands still and a seed make the
second run the same as the first. A body that has begun is never cut off by a pause: it ends, and is logged.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..clock import Clock
from ..errors import ToolError, ToolInputError, ToolOutputError
from ..journal.tool_errors import MAY_HAVE_RUN, UNTOLD_TOOL, words_of
from ..sandbox.port import HostRefused, Pause, Stream
from ..store.port import AgentStore, Statement
from ..tools.ask import REPORT, RERUN
from ..turn.inner import Blocked, Inner
from ..weight import unhurried
from . import queries
from .decide import Ask, Begin, Diverged, FindOut, Replay, decide
from .functions import Function
from .queries import CallRow, CallState, told_words, untold
from .runs import CUT_OFF
from .values import MOST, misfit, packed, text_of, unpacked, value_of

__all__ = ["Divergence", "Execution"]

_log = logging.getLogger("everthink.codemode")


LAST_WORDS = 1.0
"""Seconds in which what is cut off may put things in order."""


MOST_LOGGED = 64_000_000
"""Characters of all inputs and results of one execution: its log is in memory while it runs."""


class Divergence(Exception):
    """The code cannot go on: it is not the same on its second run, or its log is full."""


class Execution:
    """The host of a piece of code."""

    def __init__(
        self,
        id: str,
        *,
        store: AgentStore,
        clock: Clock,
        inner: Inner,
        functions: Mapping[str, Function],
        rows: Sequence[CallRow],
        changed: Callable[[], object],
    ) -> None:
        self.id = id
        self._store, self._clock, self._inner = store, clock, inner
        self.functions, self._changed = functions, changed
        self.rows = {row.seq: row for row in rows}
        """The log, with what this run adds to it."""
        self.pending: CallRow | None = None
        """What a person has to say before it goes on."""

        self.written: list[tuple[Stream, str]] = []
        self._next = 0
        self._logged = sum(len(row.input) + len(row.outcome or "") for row in rows)
        self._live: set[asyncio.Task[Any]] = set()
        self._bodies: set[asyncio.Future[None]] = set()
        self._is_closing = False
        # Answers of the log, in the order in which they were given: each waits for the one before.
        numbered = sorted((row for row in rows if row.settled is not None), key=lambda row: row.settled or 0)
        self._order = deque(row.seq for row in numbered)
        self._gates = {seq: asyncio.Event() for seq in self._order}
        self._caught_up = asyncio.Event()
        self._settled = max((row.settled or 0 for row in numbered), default=0)
        # What is long is read and written in threads, and still in the order in which it came.
        self._taking, self._giving = asyncio.Lock(), asyncio.Lock()
        self._open_next()
        # Not awaited one by one: what comes after is behind them in the same queue.
        self._writes: list[asyncio.Future[Any]] = []

    # --- what the sandbox asks

    def output(self, stream: Stream, text: str) -> None:
        """See what the code has written."""
        self.written.append((stream, text))
        self._changed()

    async def call(self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Answer a call of the code."""
        await self._unless_closing()
        function = self.functions.get(name)
        if function is None:
            raise HostRefused(f"There is no {name}. There are: {', '.join(sorted(self.functions))}.")
        async with self._taking:
            given, text = await unhurried(_taken, function, args, kwargs)
            seq, self._next = self._next, self._next + 1
        task = asyncio.ensure_future(self._answer(seq, function, given, text))
        self._live.add(task)
        task.add_done_callback(self._live.discard)
        return await asyncio.shield(task)

    # --- answering

    async def _answer(self, seq: int, function: Function, given: dict[str, Any], text: str) -> Any:
        row = self.rows.get(seq)
        asks = False
        if row is None:
            self._log(text)
            try:
                function.tool.arguments(given)
                asks = await self._inner.asks(function.tool, self._call_id(seq), given)
            except ToolInputError as error:
                return await self._refuse(seq, function, text, str(error))
            except Exception as error:  # noqa: BLE001 - a broken predicate must not let the call through
                return await self._refuse(seq, function, text, self._words(function, error, "needs_approval"))
            await self._unless_closing()
        match decide(row, seq, function.full_name, text, asks=asks):
            case Replay(row):
                return await self._replayed(row)
            case Begin(is_new):
                return await self._run(seq, function, given, text, is_new=is_new)
            case FindOut():
                return await self._find_out(seq, function, given)
            case Ask(is_new):
                await self._ask(seq, function, text, is_new=is_new)
                raise Pause
            case Diverged(words):
                raise Divergence(words)

    async def _unless_closing(self) -> None:
        """Go no further when the run is ending: whatever the code asks from then on never was."""
        if self._is_closing:
            await asyncio.Event().wait()

    async def _replayed(self, row: CallRow) -> Any:
        if (gate := self._gates.get(row.seq)) is None:
            return await self._deliver(row)  # its outcome was durable, and nobody had been given it
        await gate.wait()
        self._order.popleft()
        self._open_next()
        return await self._answer_of(row)

    def _open_next(self) -> None:
        if self._order:
            self._gates[self._order[0]].set()
        else:
            self._caught_up.set()

    def _words(self, function: Function, error: Exception, by: str = "") -> Any:
        """What is kept of an exception: the code, which people may see, reads the words of a `ToolError`."""
        said_so = isinstance(error, ToolError)
        _log.log(
            logging.INFO if said_so and not isinstance(error, ToolOutputError) else logging.ERROR,
            "%s%s %s",
            f"{by} of " if by else "",
            function.full_name,
            "failed" if by else "raised, called by code",
            exc_info=error,
        )
        return words_of(error) if said_so else untold(words_of(error))

    async def _refuse(self, seq: int, function: Function, text: str, words: Any) -> Any:
        """A call that does not begin: it is logged, since a later run may find it to fit."""
        row = CallRow(seq, function.full_name, text, "failed", began_at=self._clock.now_ms())
        return await self._settle(row, "failed", words, has_row=False)

    async def _run(
        self, seq: int, function: Function, given: dict[str, Any], text: str, *, is_new: bool
    ) -> Any:
        row = CallRow(seq, function.full_name, text, "started", began_at=self._clock.now_ms())
        # The log keeps what the code asked for; what a hook makes of it is the hook's to decide again.
        start = queries.made(self.id, row) if is_new else queries.begun(self.id, seq)
        return await self._carry_out(row, function, given, start, has_row=not is_new)

    async def _find_out(self, seq: int, function: Function, given: dict[str, Any]) -> Any:
        """It had begun, and nobody knows whether it came to an end: its tool says what that means."""
        row = self.rows[seq]
        try:
            found = await self._inner.find_out(function.tool, self._call_id(seq), given)
        except Exception:  # noqa: BLE001 - a tool that cannot say what became of it says nothing
            _log.exception("on_interrupt of %s failed", function.full_name)
            found = REPORT
        if found is RERUN:
            return await self._carry_out(row, function, given, None, has_row=True)
        if found is REPORT:
            return await self._settle(row, "unknown", MAY_HAVE_RUN, has_row=True)
        return await self._settle(row, "done", found, has_row=True)

    async def _carry_out(
        self,
        row: CallRow,
        function: Function,
        given: dict[str, Any],
        start: Statement | None,
        *,
        has_row: bool,
    ) -> Any:
        concluded: CallRow | None = None
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def begin(chosen: Any) -> None:
            nonlocal has_row
            await self._unless_closing()
            self._bodies.add(over)
            self.rows[row.seq] = row
            self._changed()
            has_row = True
            if start is not None:
                await self._store.apply([start])

        async def conclude(
            output: Any, statements: Sequence[Statement], stored: Callable[[], object] | None
        ) -> None:
            nonlocal concluded
            state, outcome = await unhurried(_outcome, "done", output)
            self._logged += len(outcome)
            now = self._clock.now_ms()
            ended = queries.settled(self.id, row.seq, state=state, settled=None, outcome=outcome, now=now)
            await self._store.apply([*statements, ended])
            concluded = row._replace(state=state, outcome=outcome, settled_at=now)
            if stored is not None:
                stored()

        try:
            call_id = self._call_id(row.seq)
            output = await self._inner.run(function.tool, call_id, given, begin=begin, conclude=conclude)
            settled = await self._settled_row(row, "done", output)
        except Blocked as blocked:
            settled = await self._settled_row(row, "denied", str(blocked))
        except Exception as error:  # noqa: BLE001 - whatever a tool raises, the code is told
            if concluded is not None:
                _log.exception("%s raised after its result was stored", function.full_name)
                settled = concluded
            else:
                settled = await self._settled_row(row, "failed", self._words(function, error))
        finally:
            if not over.done() and concluded is not None:
                self._end_body(over)
        if concluded is not None:
            self.rows[row.seq] = concluded
            return await self._deliver(concluded)
        try:
            settled = self._keep(settled, has_row=has_row)
        finally:
            self._end_body(over)
        return await self._given(settled)

    def _end_body(self, over: asyncio.Future[None]) -> None:
        self._bodies.discard(over)
        if not over.done():
            over.set_result(None)

    async def _settle(self, row: CallRow, state: CallState, value: Any, *, has_row: bool) -> Any:
        return await self._given(self._keep(await self._settled_row(row, state, value), has_row=has_row))

    async def _settled_row(self, row: CallRow, state: CallState, value: Any) -> CallRow:
        state, outcome = await unhurried(_outcome, state, value)
        self._logged += len(outcome)
        return row._replace(state=state, outcome=outcome, settled_at=self._clock.now_ms())

    def _log(self, text: str) -> None:
        """Count what is logged. Code that asks for more than the log holds is ended."""
        self._logged += len(text)
        if self._logged > MOST_LOGGED:
            raise Divergence(
                f"The calls of this code were given and gave more than {MOST_LOGGED:,} characters together."
                " What it called stays done. Look what is done, and do the rest in several pieces of code."
            )

    def _keep(self, row: CallRow, *, has_row: bool) -> CallRow:
        """Write how a call ended: with its place among the answers when the code gets it now."""
        if self._caught_up.is_set() and not self._is_closing:
            self._settled += 1
            row = row._replace(settled=self._settled)
        self.rows[row.seq] = row
        if has_row:
            ended = queries.settled(
                self.id,
                row.seq,
                state=row.state,
                settled=row.settled,
                outcome=row.outcome or "null",
                now=row.settled_at or 0,
            )
            self._write(ended)
        else:
            self._write(queries.made(self.id, row))
        self._changed()
        return row

    async def _given(self, row: CallRow) -> Any:
        return await self._deliver(row) if row.settled is None else await self._answer_of(row)

    async def _answer_of(self, row: CallRow) -> Any:
        async with self._giving:
            return await unhurried(_as_answer, row)

    async def _deliver(self, row: CallRow) -> Any:
        """Give an answer that is durable its place behind all others, and then to the code."""
        await self._caught_up.wait()
        await self._unless_closing()
        self._settled += 1
        self.rows[row.seq] = row._replace(settled=self._settled)
        self._write(queries.numbered(self.id, row.seq, settled=self._settled))
        self._changed()
        return await self._answer_of(row)

    async def _ask(self, seq: int, function: Function, text: str, *, is_new: bool) -> None:
        """Keep what a person is asked, and let come to its end what has begun."""
        await self._unless_closing()
        self._is_closing = True
        row = CallRow(seq, function.full_name, text, "pending", began_at=self._clock.now_ms())
        self.pending = self.rows[seq] = row
        statements = [queries.paused(self.id, now=row.began_at)]
        if is_new:
            statements.append(queries.made(self.id, row))
        await self._store.apply(statements)
        self._changed()
        await self._bodies_end()

    # --- its end

    async def finish(self, *, is_out_of_time: bool = False) -> None:
        """Let come to its end what has begun, and wait until all of it is durable.

        When the time is over nothing is waited for: what still runs is cut off, and nobody knows its end.
        """
        self._is_closing = True
        if not is_out_of_time:
            await self._bodies_end()
        self.abandon()
        if is_out_of_time and self._live:
            await asyncio.wait(set(self._live), timeout=LAST_WORDS)
        for write in self._writes:
            await write
        self._writes.clear()
        if is_out_of_time:
            ended = queries.cut_off(self.id, outcome=text_of(CUT_OFF), now=self._clock.now_ms())
            await self._store.apply([ended])
            self.rows = {row.seq: row for row in await queries.calls_of(self._store, self.id)}

    async def _bodies_end(self) -> None:
        while self._bodies:
            await asyncio.wait(self._bodies)

    def abandon(self) -> None:
        """Stop what still runs."""
        for task in self._live:
            task.cancel()

    def _write(self, *statements: Statement) -> None:
        self._writes.append(self._store.apply(statements))

    def _call_id(self, seq: int) -> str:
        return f"{self.id}/{seq + 1}"


def _taken(function: Function, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """The input of a call, and its text."""
    name = function.full_name
    if (why := misfit([args, kwargs])) is not None:
        raise HostRefused(f"The input of {name} {why}.")
    given = packed(function.input(args, kwargs))
    text = text_of(given, is_sorted=True)
    if len(text) > MOST:
        raise HostRefused(
            f"The input of {name} has {len(text):,} characters, more than {MOST:,}."
            " Write it to a file and pass the path."
        )
    return given, text


def _outcome(state: CallState, value: Any) -> tuple[CallState, str]:
    """How a call ended, for its row. What is too large for one has failed, though it was done."""
    text = text_of(value)
    if len(text) <= MOST:
        return state, text
    words = (
        f"The call was done, but its result has {len(text):,} characters, more than {MOST:,}, and is lost."
        " Have it write to a file and return the path, or ask it for less."
    )
    return "failed", text_of(words)


def _as_answer(row: CallRow) -> Any:
    if row.state != "done":
        raise HostRefused(told_words(row, UNTOLD_TOOL))
    return unpacked(value_of(row.outcome or "null"))
