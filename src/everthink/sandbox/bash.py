"""bash for models: bashkit, an interpreter of its own, in a locked child and never in our process.

    Job --checks--> a child of the pool --frames--> checks --> Outcome

A script sees the files of its job as the whole machine. What it changed comes back as a difference to what
was sent; of a child that dies nothing comes back. bashkit can be crashed by scripts of one line, hence the
child.
"""

from __future__ import annotations

from ..words import said as on_one_line
from .braces import MOST_WORDS, too_many_words
from .checks import refusal
from .child import CannotStart, Child
from .pool import Pool
from .port import Host, Isolation, Job, Language, NoHost, Outcome
from .running import NOTHING_WRITTEN, OVER_LIMIT, NotBegun, Run

__all__ = ["BashSandbox"]

CHILDREN = 3
"""So many are tried for a script that has not begun: one that rested may have been killed meanwhile."""


class BashSandbox:
    """Runs bash scripts in locked child processes, which are kept warm. `check` says whether it can here."""

    languages: frozenset[Language] = frozenset({"bash"})
    isolation: Isolation = "interpreter"

    def __init__(self, *, most: int = 2, jobs_each: int = 200, idle_after: float = 60.0) -> None:
        """At most so many scripts run at once, in children that each run so many and end when they idle."""
        self._pool = Pool(_start, most=most, jobs_each=jobs_each, idle_after=idle_after)

    @property
    def pids(self) -> list[int]:
        """The child processes that are there."""
        return self._pool.pids

    async def check(self) -> str | None:
        """Why no script can run here; `None` when one just did."""
        outcome = await self.run(Job(language="bash", source="jq -n 40+2"), NoHost())
        if outcome.stdout == "42\n":
            return None
        return outcome.error or f"A script answered {outcome.stdout!r} in the place of 42."

    async def held(self) -> dict[str, str]:
        """The steps with which a child is locked in: "" for those that hold, else why not."""
        async with self._pool.lent(_memory(Job(language="bash", source=""))) as child:
            return child.held

    async def run(self, job: Job, host: Host) -> Outcome:
        """Run a script to its end."""
        if (refused := _refusal(job)) is not None:
            return Outcome(status="failed", error=refused, exit_code=OVER_LIMIT)
        gone = ""
        for _ in range(CHILDREN):
            try:
                async with self._pool.lent(_memory(job)) as child:
                    return await Run(child, job, host).outcome()
            except CannotStart as error:
                return Outcome(status="failed", error=f"bash cannot run here. {error}")
            except NotBegun as error:
                gone = str(error)
        return Outcome(
            status="crashed", error=f"The sandbox died before the script began: {gone}. {NOTHING_WRITTEN}"
        )

    async def aclose(self) -> None:
        """End all children."""
        await self._pool.aclose()


async def _start(memory: int) -> Child:
    return await Child.start("bash_guest", "bashkit", memory=memory)


def _memory(job: Job) -> int:
    """What a child needs: the files are there as they came, in the tree, and as they go."""
    return job.limits.memory + 3 * job.limits.tree_bytes


def _refusal(job: Job) -> str | None:
    if job.language != "bash":
        return f"{job.language} is not run here, only bash. Nothing was run."
    if (word := too_many_words(job.source)) is not None:
        return (
            f"{on_one_line(word, 80)} stands for more than {MOST_WORDS:,} words,"
            " and so many are not expanded here. Nothing was run."
            " Use `seq`, or a loop that counts: for ((i = 1; i <= n; i++))."
        )
    return refusal(job)
