"""A sandbox of real processes, for all machines: Python and bash as they are, over files that go in and out.

    Job --refusal--> Machine.spawn --Pipe--> Run --> Outcome

Every job has a machine of its own, which is gone when the outcome is there. What a machine holds, and what it
does not, its adapter says.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..kinds import MACHINE, at_least, check_options, each_of
from ..sandbox.checks import refusal
from ..sandbox.port import Host, Isolation, Job, Language, NoHost, Outcome
from .port import CannotSpawn, Machine
from .running import Run

__all__ = ["MachineSandbox", "program"]

LANGUAGES: frozenset[Language] = frozenset({"python", "bash"})
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}(\.[A-Za-z_][A-Za-z0-9_]{0,63}){0,7}")
_SENT = ("guest_wire", "guest_tree", "runner")
"""What is sent into a machine, in the order in which it is loaded there."""
_LOAD = """
import sys, types
package = types.ModuleType("machine")
package.__path__ = []
sys.modules["machine"] = package
for name, text in {texts!r}:
    module = sys.modules["machine." + name] = types.ModuleType("machine." + name)
    module.__package__ = "machine"
    exec(compile(text, name + ".py", "exec"), module.__dict__)
module.main()
"""
_KEPT = "Nothing was run."
_SOME = each_of(*sorted(LANGUAGES))


def _are_languages(value: Any) -> bool:
    return _SOME.fits(value) and len(value) > 0


_OPTIONS = {
    "machine": MACHINE,
    "languages": replace(_SOME, fits=_are_languages),
    "most": at_least(1),
}


def program(language: Language) -> str:
    """The text that a machine runs: our runner, with what it needs for a language."""
    here = Path(__file__)
    names = [*_SENT[:-1], *(["guest_python"] if language == "python" else []), _SENT[-1]]
    texts = [(name, here.with_name(f"{name}.py").read_text("utf-8")) for name in names]
    return _LOAD.format(texts=texts)


class MachineSandbox:
    """Runs jobs as real processes of a machine. `check` says whether it can here."""

    can_stop_clock = False
    """Its jobs have no `now`: a second run is another run."""

    def __init__(
        self, machine: Machine, *, languages: Collection[Language] = LANGUAGES, most: int = 2
    ) -> None:
        """At most so many jobs run at once: each may use `processes` times `memory` of this machine."""
        check_options("MachineSandbox", _OPTIONS, machine=machine, languages=languages, most=most)
        self.languages: frozenset[Language] = frozenset(languages)
        self.isolation: Isolation = machine.isolation
        self._machine = machine
        self._room = asyncio.Semaphore(most)
        self._running: set[asyncio.Task[Outcome]] = set()
        self._is_closed = False
        self._programs = {language: program(language) for language in self.languages}

    async def check(self) -> str | None:
        """Why no job can run here, and the way out; `None` when one just did."""
        if (problem := await self._machine.check()) is not None:
            return problem
        language = min(self.languages)
        source = "echo $((40 + 2))" if language == "bash" else "print(40 + 2)"
        outcome = await self.run(Job(language=language, source=source), NoHost())
        if outcome.stdout == "42\n":
            return None
        return (
            outcome.error or f"A script answered {(outcome.stdout + outcome.stderr)[:200]!r} in place of 42."
        )

    async def run(self, job: Job, host: Host) -> Outcome:
        """Run a job to its end."""
        if (refused := self._refusal(job)) is not None:
            return Outcome(status="failed", error=refused)
        running = asyncio.create_task(self._run(job, host))
        self._running.add(running)
        running.add_done_callback(self._running.discard)
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            if not running.cancelled():
                running.cancel()
                await asyncio.wait({running})
                raise
            return Outcome(status="crashed", error="The sandbox was closed. Nothing was written.")

    async def _run(self, job: Job, host: Host) -> Outcome:
        async with self._room:
            try:
                pipe = await self._machine.spawn(self._argv(job), job.limits)
            except CannotSpawn as error:
                return Outcome(status="failed", error=f"{error} {_KEPT}")
            return await Run(pipe, job, host).outcome()

    def _argv(self, job: Job) -> list[str]:
        # Without its packages it starts faster; bash has no use for them.
        options = ["-I"] if job.language == "python" else ["-I", "-S"]
        return ["python3", *options, "-c", self._programs[job.language]]

    def _refusal(self, job: Job) -> str | None:
        if self._is_closed:
            return f"The sandbox is closed. {_KEPT}"
        if job.language not in self.languages:
            runs = " and ".join(sorted(self.languages))
            return f"{job.language} is not run here, only {runs}. {_KEPT}"
        if job.now is not None:
            return f"Real processes have the machine's clock: it cannot be stopped (now). {_KEPT}"
        if job.language == "bash" and (job.style == "function" or job.names):
            return f"bash has commands of the host, and no functions: use `commands` and a snippet. {_KEPT}"
        for name in job.names:
            if not _NAME.fullmatch(name):
                return f"{name!r} cannot be the name of a function. {_KEPT}"
        if job.path.startswith("-") or "\0" in job.path or len(job.path) > 4_096:
            return f"{job.path!r} cannot be the name of a script. {_KEPT}"
        return refusal(job)

    async def aclose(self) -> None:
        """End all jobs, and the machine. Whoever waits for one hears it."""
        self._is_closed = True
        for running in self._running:
            running.cancel()
        if self._running:
            await asyncio.wait(self._running)
        await self._machine.aclose()
