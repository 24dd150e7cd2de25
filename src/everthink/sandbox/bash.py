"""bash for models: bashkit, an interpreter of its own, in a locked child and never in our process.

    Job --checks--> a child of the pool --frames--> checks --> Outcome

A script sees the files of its job as the whole machine. What it changed comes back as a difference to what
was sent; of a child that dies nothing comes back. bashkit can be crashed by scripts of one line, hence the
child.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from ..messages import encode_json
from ..words import said as on_one_line
from .braces import MOST_WORDS, too_many_words
from .checks import refusal
from .child import Call, Child, Done
from .engine import ChildSandbox
from .port import Host, Isolation, Job, Language
from .running import NO_MEMORY, OVER_LIMIT, TIMED_OUT, Ended, Run

__all__ = ["BashRun", "BashSandbox"]

BAD_SYNTAX = 2
"""The exit code of a script that cannot be read."""


class BashSandbox(ChildSandbox):
    """Runs bash scripts in locked child processes, which are kept warm. `check` says whether it can here."""

    languages: frozenset[Language] = frozenset({"bash"})
    isolation: Isolation = "interpreter"
    name = "bash"

    async def _start(self, memory: int) -> Child:
        return await Child.start("bash_guest", ("bashkit",), memory=memory)

    def _memory(self, job: Job) -> int:
        """The files are there as they came, in the tree, and as they go."""
        return job.limits.memory + 3 * job.limits.tree_bytes

    def _run(self, child: Child, job: Job, host: Host) -> Run:
        return BashRun(child, job, host)

    def _refusal(self, job: Job) -> str | None:
        if job.language != "bash":
            return f"{job.language} is not run here, only bash. Nothing was run."
        if (word := too_many_words(job.source)) is not None:
            return (
                f"{on_one_line(word, 80)} stands for more than {MOST_WORDS:,} words,"
                " and so many are not expanded here. Nothing was run."
                " Use `seq`, or a loop that counts: for ((i = 1; i <= n; i++))."
            )
        return refusal(job)

    def _probe(self) -> Job:
        return Job(language="bash", source="jq -n 40+2")


class BashRun(Run):
    """One bash script in a child."""

    def asked(self) -> dict[str, Any]:
        """Functions of the host are commands."""
        return {"commands": self._job.commands}

    def names(self) -> Sequence[str]:
        """The commands of the job."""
        return self._job.commands

    def arguments(self, call: Call, body: bytes) -> tuple[Sequence[Any], Mapping[str, Any]]:
        """What was on the command line, what came through the pipe, and where."""
        return call.args, {"stdin": call.stdin, "cwd": call.cwd}

    def answer(self, value: Any) -> tuple[dict[str, Any], bytes]:
        """What the command prints."""
        return {"value": as_result(value)}, b""

    def ending(self, done: Done) -> Ended:
        """How it ended, as bash says it: in words on standard error and with an exit code."""
        status, words, exit_code = self._read(done)
        if words is not None:
            self.tell(words)
        return status, None if status == "done" else words, exit_code

    def _read(self, done: Done) -> Ended:
        problem, exit_code = on_one_line(done.error or ""), (done.exit or 0) & 255
        if self._calls_beyond:
            return "calls", self.too_many_calls(), OVER_LIMIT
        if done.stopped == "cpu":
            return "timeout", self.too_long("cpu"), TIMED_OUT
        if "execution timeout" in problem:
            return "timeout", self.too_long("wall"), TIMED_OUT
        if "memory limit" in problem or "budget exhausted" in problem:
            return "memory", f"{self.too_much_memory()} ({problem})", NO_MEMORY
        if problem.startswith("parse error"):
            return "done", problem, BAD_SYNTAX
        if "limit exceeded" in problem or " exceeded (" in problem:
            return "failed", f"The script went over a limit of bash here ({problem}).", OVER_LIMIT
        if problem:
            return "failed", problem, exit_code or 1
        return "done", None, exit_code

    def tell(self, words: str) -> None:
        """As bash does."""
        self.take("stderr", f"bash: {words}\n".encode())


def as_result(value: Any) -> dict[str, Any]:
    """What a command prints, and its exit code: a text as it is, what is said in full, or JSON."""
    result: dict[str, Any] = {"stdout": "", "stderr": "", "exit_code": 0}
    if value is None:
        return result
    if isinstance(value, str):
        return result | {"stdout": value}
    if isinstance(value, Mapping) and value and cast("Mapping[str, Any]", value).keys() <= result.keys():
        said = result | dict(cast("Mapping[str, Any]", value))
        if all(isinstance(said[name], type(result[name])) for name in result):
            return said | {"exit_code": int(said["exit_code"]) & 255}
    return result | {"stdout": f"{encode_json(value).decode()}\n"}
