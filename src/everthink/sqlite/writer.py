"""The one thread that writes: it takes every commit that has gathered and applies them together.

    apply --(commit, future)--> queue --> writer thread --> one call back to the loop --> futures

While a group is being made durable the next one gathers, so one slow stream pays a small commit
per chunk and two hundred busy ones share theirs. The order of the calls is the order of the commits.
`docs/decisions/0001-sqlite-writer-thread.md` has the figures against committing on the loop.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import TypeVarTuple, Unpack

from ..errors import StoreError
from ..store.error_texts import closed
from ..store.marks import bound
from ..store.outcomes import Job, settle
from ..store.port import Commit, Rows
from .commits import Commits
from .database import Database
from .scrub import Asked, Scrubber

__all__ = ["Writer"]

_LARGEST_GROUP = 512
_BUSY, _GATHER = 8, 0.001
"""After a group of so many commits, so many seconds are left for the next one to gather: fewer flushes, and
fewer calls back to the loop, when there is much to do. A few streams never wait."""

TURN = 0.001
"""Seconds that other threads may go on while the writer's waits for its turn."""

_Arguments = TypeVarTuple("_Arguments")


class Writer:
    """Owns the writing connection from open to close. Its methods belong to the event loop's thread."""

    def __init__(self, opens: Callable[[], Database], *, name: str) -> None:
        self._opens = opens
        self._name = name
        self._loop = asyncio.get_running_loop()
        self._opened: asyncio.Future[Database] = self._loop.create_future()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._queue: SimpleQueue[Job | None] = SimpleQueue()
        self._in_hand: Sequence[Job] = ()
        # Filled on the loop's thread, emptied on the writer's.
        self._asked: deque[Asked] = deque()
        # Set once no more commits are accepted; only the loop's thread reads or writes it.
        self._refusal: Callable[[], StoreError] | None = None
        # A daemon, because a program that ends without close() must end; it was promised nothing more.
        self._thread = threading.Thread(target=self._live, name="everthink writer", daemon=True)

    async def start(self) -> Database:
        """Open the database, or raise what opening it raises."""
        self._come_in()
        self._thread.start()
        try:
            return await asyncio.shield(self._opened)
        except asyncio.CancelledError:
            self._opened.add_done_callback(lambda opened: opened.exception())
            await self.stop()
            raise

    @staticmethod
    def _come_in() -> None:
        """Let the writer's thread have its turn soon, however busy the event loop is.

        Python lets one thread run at a time, for 5 ms when another waits, and a commit asks for its turn some
        forty times: a client with a flood of small frames kept everybody's commits waiting for a second.
        """
        sys.setswitchinterval(min(sys.getswitchinterval(), TURN))

    def submit(self, commit: Commit, agent: str = "") -> asyncio.Future[list[Rows]]:
        """Put `commit` behind those already waiting."""
        future: asyncio.Future[list[Rows]] = self._loop.create_future()
        if self._refusal is not None:
            future.set_exception(self._refusal())
            return future
        try:
            # A copy: the caller may go on filling its list while the thread reads ours.
            self._queue.put((bound(commit, agent), future))
        except StoreError as error:
            future.set_exception(error)
        return future

    def scrub(self, patience: float) -> asyncio.Future[bool]:
        """Ask for what was deleted so far to be scrubbed out of the file."""
        future: asyncio.Future[bool] = self._loop.create_future()
        if self._refusal is None:
            self._asked.append((patience, future))
            self.submit(())  # so that the thread looks
        else:
            future.set_exception(self._refusal())
        return future

    def seal(self) -> None:
        """Accept no more commits."""
        if self._refusal is None:
            self._refusal = lambda: closed(self._name)

    async def stop(self) -> None:
        """Finish what was accepted, then close the database."""
        self.seal()
        self._queue.put(None)
        await asyncio.shield(self._ended)
        self._thread.join()  # Its last act was to tell us.

    # On the writer's thread:

    def _live(self) -> None:
        try:
            database = self._opens()
        except BaseException as error:  # noqa: BLE001 - whoever awaits start() must hear of it.
            self._tell(self._opened.set_exception, error)
        else:
            self._tell(self._opened.set_result, database)
            try:
                self._serve(database)
            except BaseException as error:  # noqa: BLE001 - nobody may wait for a thread that is gone.
                self._tell(self._die, error)
            finally:
                database.close()
        finally:
            self._tell(self._end)

    def _serve(self, database: Database) -> None:
        commits = Commits(database.connection, database.path, indexed=database.indexed)
        scrubber = Scrubber(database, self._asked, self._tell_scrubbed)
        if database.owes_scrub:
            self._asked.append((0.0, None))
        try:
            while (jobs := self._take(scrubber.wait())) is not None:
                if jobs:
                    self._in_hand = jobs
                    with database.mutex:
                        outcomes = commits.write([commit for commit, _ in jobs])
                    self._tell(settle, jobs, outcomes)
                if scrubber.is_asked:
                    with database.mutex:
                        scrubber.go_on()
                elif len(jobs) >= _BUSY:
                    time.sleep(_GATHER)
        finally:
            database.owes_scrub = scrubber.leave()

    def _tell_scrubbed(self, future: asyncio.Future[bool], is_clean: bool) -> None:
        self._tell(_answer, future, is_clean)

    def _take(self, patience: float | None) -> list[Job] | None:
        """Wait for a commit, so long at most, and take all that have gathered. `None`: it is time to stop."""
        jobs: list[Job] = []
        try:
            job = self._queue.get(timeout=patience)
        except Empty:
            return jobs
        while job is not None:
            jobs.append(job)
            if len(jobs) == _LARGEST_GROUP or self._queue.empty():
                return jobs
            job = self._queue.get()
        if not jobs:
            return None
        self._queue.put(None)  # Nothing follows it: these first, then stop.
        return jobs

    def _tell(self, callback: Callable[[Unpack[_Arguments]], object], *arguments: *_Arguments) -> None:
        try:
            self._loop.call_soon_threadsafe(callback, *arguments)
        except RuntimeError:
            pass  # The loop was closed before the store: nobody is left to be told.

    # Called back on the loop:

    def _die(self, error: BaseException) -> None:
        def refusal() -> StoreError:
            translated = StoreError(
                f"The writer of {self._name} stopped: {type(error).__name__}: {error}.",
                kept="Commits that were confirmed are stored; this one may or may not be.",
                next_step="Close the store and open it again, and please report this: it is a defect.",
            )
            translated.__cause__ = error
            return translated

        self._refusal = refusal
        settle(self._in_hand, [refusal() for _ in self._in_hand])

    def _end(self) -> None:
        while not self._queue.empty():
            job = self._queue.get()
            if job and self._refusal:
                settle([job], [self._refusal()])
        while self._asked:
            _, future = self._asked.popleft()
            if future is not None:
                _answer(future, False)
        self._ended.set_result(None)


def _answer(future: asyncio.Future[bool], is_clean: bool) -> None:
    if not future.done():
        future.set_result(is_clean)
