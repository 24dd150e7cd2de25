"""Play a script at every crash point and say which ones it does not survive.

    Script --once--> commits --each, before and after--> play --judge--> Verdict … --> Report

The reference is played twice: an agent that answers differently without any crash cannot be judged.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from ...address import kebab
from ...errors import AgentError
from .judge import Failure, judge
from .player import Venue, play
from .scratch import check_store, empty_store, shown
from .script import Script
from .story import Cut, Point, Story

__all__ = ["CrashTest", "Report", "Verdict", "choose", "cut_from", "points_of", "spelled"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """How one crash point went."""

    point: Point
    status: Literal["passed", "failed", "not reached"]
    cut: dict[str, Any] | None
    """The commit at which the first process died: `agent`, `writes`."""
    step: str
    """What was being done."""
    failures: Sequence[Failure] = ()
    log: str = ""

    def to_json(self) -> dict[str, Any]:
        """The verdict as plain JSON data."""
        return {
            "point": spelled(self.point),
            "status": self.status,
            "agent": (self.cut or {}).get("agent"),
            "writes": (self.cut or {}).get("writes", []),
            "step": self.step,
            "failures": [{"kind": failure.kind, "what": failure.what} for failure in self.failures],
            "log": self.log.splitlines()[-20:] if self.failures else [],
        }


@dataclass(slots=True)
class Report:
    """How all of them went."""

    agent: str
    store: str
    commits: int
    """How many commits the script makes without a crash."""
    verdicts: list[Verdict] = field(default_factory=list[Verdict])
    seconds: float = 0.0

    def of(self, status: str) -> list[Verdict]:
        """The verdicts with this status."""
        return [verdict for verdict in self.verdicts if verdict.status == status]

    def to_json(self) -> dict[str, Any]:
        """The report as plain JSON data; verdicts other than failures are counted."""
        return {
            "ok": not self.of("failed"),
            "agent": self.agent,
            "store": self.store,
            "commits": self.commits,
            "points": len(self.verdicts),
            "passed": len(self.of("passed")),
            "failed": len(self.of("failed")),
            "not_reached": len(self.of("not reached")),
            "seconds": round(self.seconds, 1),
            "failures": [verdict.to_json() for verdict in self.of("failed")],
        }


class CrashTest:
    """A script, an agent and a kind of database.

        test = CrashTest("shop.agents:Support", read_script("support.yaml"))
        report = await test.run(points_of(await test.rehearse()))

    `agent` is `module:Class`, importable from `home`. `again` kills the processes that come after the first
    one as well, each at a commit of its own.
    """

    def __init__(
        self,
        agent: str,
        script: Script,
        *,
        store: str = "sqlite",
        home: Path | None = None,
        patience: float = 30.0,
        again: Point = (),
    ) -> None:
        check_store(store)
        module, colon, name = agent.partition(":")
        if not (module and colon and name):
            raise AgentError(f"{agent!r} names no agent.", next_step="Write it as package.module:Agent")
        self.agent, self.script, self.store = agent, script, store
        self._path = f"/agents/{kebab(name.rpartition('.')[2])}/{script.room}"
        self._home, self._patience, self._again = home or Path.cwd(), patience, again
        self._reference = Story()

    @property
    def reference(self) -> Story:
        """How the script goes without a crash, once it was rehearsed."""
        return self._reference

    async def rehearse(self) -> int:
        """Play the script twice without a crash. Returns how many commits it makes."""
        stories = [await self._play(()), await self._play(())]
        for story in stories:
            if story.broken is not None or story.refusals or story.faults:
                wrong = [failure.what for failure in judge(story, story)]
                raise AgentError(
                    f"{self.agent} does not get through the script even without a crash: {'; '.join(wrong)}",
                    kept="No process was killed.",
                    next_step="What the server said last:\n" + _tail(story.log),
                )
        self._reference, second = stories
        if wrong := judge(self._reference, second):
            raise AgentError(
                f"{self.agent} answers differently each time: {wrong[0].what}",
                kept="No process was killed.",
                next_step="Give it a model that decides from the prompt alone, such as "
                "everthink.testing.crashtest.sample.TravelModel, and tools without chance in them.",
            )
        return len(self._reference.commits)

    async def run(
        self,
        points: Sequence[Point],
        *,
        jobs: int = 1,
        told: Callable[[Verdict], object] = lambda verdict: None,
    ) -> Report:
        """Play the script at each point, `jobs` at a time. `told` hears of each one. After `rehearse`."""
        report = Report(self.agent, shown(self.store), len(self._reference.commits))
        began = time.monotonic()
        waiting = list(points)[::-1]

        async def work() -> None:
            while waiting:
                verdict = await self.at(waiting.pop())
                report.verdicts.append(verdict)
                report.seconds = time.monotonic() - began
                told(verdict)

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(max(1, jobs)):
                    group.create_task(work())
        except BaseExceptionGroup as several:
            raise several.exceptions[0] from None  # The others were stopped because of it.
        report.verdicts.sort(key=lambda verdict: verdict.point)
        return report

    async def at(self, point: Point) -> Verdict:
        """Play the script with a crash and judge it. After `rehearse`."""
        point = (*point, *self._again)
        story = await self._play(point)
        failures = judge(self._reference, story)
        number = point[0].commit
        cut = next((commit for commit in story.commits if commit["commit"] == number), None)
        reached = story.deaths >= len(point)
        status = "failed" if failures else "passed" if reached else "not reached"
        return Verdict(point, status, cut, story.step, failures, story.log)

    async def _play(self, point: Point) -> Story:
        async with self._venue() as venue:
            return await play(self.script, venue, point)

    @asynccontextmanager
    async def _venue(self) -> AsyncGenerator[Venue]:
        with tempfile.TemporaryDirectory(prefix="everthink-crashtest-") as name:
            folder = Path(name)
            async with empty_store(self.store, folder) as store:
                yield Venue(self.agent, self._path, store, folder, self._home, self._patience)


def points_of(commits: int) -> list[Point]:
    """Before and after each of so many commits."""
    return [(Cut(number, when),) for number in range(1, commits + 1) for when in ("before", "after")]


def choose(asked: str, commits: int) -> list[Point]:
    """`all`, `sample:20` (spread evenly), or `3,7:after,9:before`. A number alone is both."""
    every = points_of(commits)
    if asked == "all":
        return every
    kind, _, count = asked.partition(":")
    if kind == "sample":
        if not count.isdigit() or not int(count):
            raise _unclear(asked)
        most = min(int(count), len(every))
        return [every[number * len(every) // most] for number in range(most)]
    return [point for word in asked.split(",") for point in _spelled_out(word)]


def cut_from(word: str) -> Cut:
    """`7:after`, or `7` for `7:before`."""
    number, _, when = word.strip().partition(":")
    if not number.isdigit() or not int(number) or when not in ("", "before", "after"):
        raise _unclear(word)
    return Cut(int(number), when or "before")


def _spelled_out(word: str) -> list[Point]:
    cut = cut_from(word)
    return [(cut,)] if ":" in word else [(cut,), (cut._replace(when="after"),)]


def _unclear(asked: str) -> AgentError:
    return AgentError(
        f"{asked!r} names no points.",
        kept="Nothing was run.",
        next_step="Say all, sample:20, or commits such as 3,7:after,9:before.",
    )


def spelled(point: Point) -> str:
    """A point as one writes it: `7:after`, and the deaths that follow: `7:after+2:before`."""
    return "+".join(map(str, point))


def _tail(log: str) -> str:
    return "\n".join(log.splitlines()[-20:]) or "nothing"
