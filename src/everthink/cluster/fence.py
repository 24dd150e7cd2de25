"""An agent's way to the store: it passes what the agent's owner writes, until it is shut for good.

    turn/, session/, fibers, … --commit--> Fence --[guard, commit]--> Store
                                             ^ shut: erased, asleep, somebody else's, or in doubt

Whatever of such an agent still runs (a tool that ignores being stopped, code that kept the instance) can
write no row any more. Where several processes share the database, each commit begins with a statement that
refuses it unless this process still owns the agent.

What the agent must not hear is held back: that its owner is another one, or that a commit may or may not be
stored. It would act on it, and tell people of a failure that is none. It is stopped instead, as by a crash,
and read again; then `answer` tells those outside of it who still wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from ..errors import CommitInDoubt, CommitRefused, LeaseLost, StoreClosed, StoreError
from ..store.port import AgentStore, Commit, Rows, Statement, Store
from . import queries

__all__ = ["Claim", "Fence", "Loss"]

Loss = Literal["taken", "doubt"]
"""Another process owns the agent; or what is stored may not be what the agent in memory goes by."""


@dataclass(frozen=True, slots=True)
class Claim:
    """That this process owns an agent, and all below it."""

    agent: str
    owner: str
    """The id under which this process claimed it."""
    epoch: int
    """Grows with each claim."""
    head: int
    """How many commits the agent had made when it was claimed."""

    @property
    def guard(self) -> Statement:
        """The statement that refuses a commit when the claim is not ours any more."""
        return queries.guard(self.agent, self.owner, self.epoch)


class Fence(AgentStore):
    """The store of one agent. Without a `claim` everything passes as it is until it is shut.

    `lost` is called once, when the agent must leave memory: why, and what happened in words.
    """

    __slots__ = ("_guard", "_head", "_held", "_lost", "_reason", "claim")

    def __init__(
        self,
        database: Store,
        agent: str,
        claim: Claim | None = None,
        lost: Callable[[Loss, str], object] | None = None,
    ) -> None:
        super().__init__(database, agent)
        self.claim, self._lost = claim, lost
        self._guard = None if claim is None else claim.guard
        self._head = 0 if claim is None else claim.head
        # Why nothing is written any more.
        self._reason: Callable[[], StoreError] | None = None
        self._held: list[tuple[asyncio.Future[list[Rows]], StoreError]] = []

    # --- shutting it

    def shut(self) -> None:
        """Write nothing any more. What was asked for before is written before what is asked for next."""
        self._reason = self._erased

    def retire(self) -> None:
        """The agent has left memory: whoever kept the object writes nothing beside the next one."""
        if self._reason is None:
            self._reason = self._retired

    def lose(self, why: Loss, what: str) -> None:
        """The agent is not ours any more, or not what we think: nothing more is written, and it must go."""
        if self._reason is None:
            self._reason = self._taken
        told, self._lost = self._lost, None
        if told is not None:
            told(why, what)

    @property
    def is_lost(self) -> bool:
        """True when the agent is not ours any more, or not what we think."""
        return self._reason == self._taken

    def answer(self) -> None:
        """Tell those who still wait for a commit. After the agent was stopped."""
        held, self._held = self._held, []
        for future, error in held:
            if not future.done():
                future.set_exception(error)
                future.exception()  # most often nobody is left to hear it

    # --- as a store

    def apply(self, commit: Commit) -> asyncio.Future[list[Rows]]:
        """See `Store.apply`."""
        if self._reason is not None:
            return _refused(self._reason())
        return self._write(commit)

    def apply_last(self, commit: Commit) -> asyncio.Future[list[Rows]]:
        """Write one more commit although it is shut, if the agent is still ours: the one that erases it."""
        return self._write(commit)

    # ---

    def _write(self, commit: Commit) -> asyncio.Future[list[Rows]]:
        if self._guard is None:
            return super().apply(commit)
        return self._guarded(self._guard, commit)

    def _guarded(self, guard: Statement, commit: Sequence[Statement]) -> asyncio.Future[list[Rows]]:
        written = super().apply([guard, *commit])
        told: asyncio.Future[list[Rows]] = asyncio.get_running_loop().create_future()
        # The work goes on even if nobody waits for it: what it says about the claim is always heard.
        written.add_done_callback(lambda done: self._heard(done, told))
        return told

    def _heard(self, done: asyncio.Future[list[Rows]], told: asyncio.Future[list[Rows]]) -> None:
        if done.cancelled():
            told.cancel()
            return
        error = done.exception()
        if error is None:
            self._stored(done.result(), told)
        elif isinstance(error, CommitRefused) and error.guard == queries.GUARD:
            self._hold(told, self._taken())
            self.lose("taken", "a commit was refused")
        elif isinstance(error, CommitInDoubt):
            self._hold(told, error)
            self.lose("doubt", error.what)
        elif not told.done():
            told.set_exception(error)

    def _stored(self, rows: list[Rows], told: asyncio.Future[list[Rows]]) -> None:
        before, self._head = self._head, rows[0][0][0]
        if self._head <= before:
            # A copy of the database that lagged behind was put in its place.
            self.lose("doubt", f"the database has lost commits: it is at {self._head}, and was at {before}")
        if not told.done():
            told.set_result(rows[1:])

    def _hold(self, told: asyncio.Future[list[Rows]], error: StoreError) -> None:
        if not told.done():
            self._held.append((told, error))

    def _erased(self) -> StoreError:
        return StoreClosed(
            f"{self.agent} was erased.",
            kept="Nothing was stored.",
            next_step="Reach it anew, through the app, to begin from nothing.",
        )

    def _retired(self) -> StoreError:
        return StoreClosed(
            f"{self.agent} has left memory, and this object is not it any more.",
            kept="Nothing was stored.",
            next_step="Reach it anew, through the app: inside `async with app.agent(…) as agent:` it stays.",
        )

    def _taken(self) -> StoreError:
        return LeaseLost(
            f"{self.agent} is not run by this instance any more.",
            kept="Nothing of this commit was stored; what was stored before is intact.",
            next_step="Reach it anew, through the app: here, or in the process that has it now.",
        )


def _refused(error: StoreError) -> asyncio.Future[list[Rows]]:
    refused: asyncio.Future[list[Rows]] = asyncio.get_running_loop().create_future()
    refused.set_exception(error)
    return refused
