"""An engine in locked children: a job is looked at, run in a child of the pool, and what came of it is told.

    Job --refusal--> a child of the pool --Run--> Outcome

What bash, JavaScript and Monty have in common. A child that died while it rested is no failure of the job.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from ..kinds import check_options
from .child import CannotStart, Child
from .pool import OPTIONS, Pool
from .port import Host, Isolation, Job, Language, NoHost, Outcome
from .running import NOTHING_WRITTEN, OVER_LIMIT, NotBegun, Runs

__all__ = ["ChildSandbox"]

CHILDREN = 3
"""So many are tried for a script that has not begun: one that rested may have been killed meanwhile."""


class ChildSandbox(ABC):
    """Runs scripts in locked child processes, which are kept warm. `check` says whether it can here."""

    languages: frozenset[Language]
    isolation: Isolation
    name: str
    """What its messages call it."""

    def __init__(self, *, most: int = 2, jobs_each: int = 200, idle_after: float = 60.0) -> None:
        """At most so many scripts run at once, in children that each run so many and end when they idle."""
        given = {"most": most, "jobs_each": jobs_each, "idle_after": idle_after}
        check_options(type(self).__name__, OPTIONS, **given)
        self._pool = Pool(self._start, most=most, jobs_each=jobs_each, idle_after=idle_after)

    @property
    def pids(self) -> list[int]:
        """The child processes that are there."""
        return self._pool.pids

    async def check(self) -> str | None:
        """Why no script can run here; `None` when one just did."""
        outcome = await self.run(self._probe(), NoHost())
        if outcome.stdout == "42\n":
            return None
        return outcome.error or f"A script answered {outcome.stdout!r} in the place of 42."

    async def held(self) -> dict[str, str]:
        """The steps with which a child is locked in: "" for those that hold, else why not."""
        async with self._pool.lent(self._memory(self._probe())) as child:
            return child.held

    async def run(self, job: Job, host: Host) -> Outcome:
        """Run a script to its end."""
        if (refused := self._refusal(job)) is not None:
            return Outcome(status="failed", error=refused, exit_code=OVER_LIMIT)
        gone = ""
        for _ in range(CHILDREN):
            try:
                async with self._pool.lent(self._memory(job), job.keep) as child:
                    if job.keep is not None:
                        child.kept.add(job.keep)
                    return await self._run(child, job, host).outcome()
            except CannotStart as error:
                return Outcome(status="failed", error=f"{self.name} cannot run here. {error}")
            except NotBegun as error:
                gone = str(error)
        return Outcome(
            status="crashed", error=f"The sandbox died before the script began: {gone}. {NOTHING_WRITTEN}"
        )

    async def aclose(self) -> None:
        """End all children."""
        await self._pool.aclose()

    @abstractmethod
    async def _start(self, memory: int) -> Child:
        """A child that may use so much memory."""

    @abstractmethod
    def _memory(self, job: Job) -> int:
        """What a child needs to run a job."""

    @abstractmethod
    def _run(self, child: Child, job: Job, host: Host) -> Runs:
        """A job in a child."""

    @abstractmethod
    def _refusal(self, job: Job) -> str | None:
        """Why a job is not run."""

    @abstractmethod
    def _probe(self) -> Job:
        """A script that prints 42."""
