"""What runs in the child: bash scripts, one at a time, over files in memory.

    guest.py --a job--> Run: a tree, an interpreter --what differs--> guest.py

Started by child.py as a program of its own: the standard library, bashkit, and the modules beside this one
that need nothing else. Nothing here is a promise to the host; what is bounded here is bounded so that a
script is told.
"""

from __future__ import annotations

import posixpath
import shlex
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

from . import guest
from .guest import Guest, Output, Refused, Running, Watch, Wire, collected, with_parents

COMMANDS = 100_000
"""Commands, and rounds of one loop. bashkit has the same for a whole session, where it cannot be raised."""
LONGEST_INPUT = 1_000_000
"""Bytes that a command of the host may be given through a pipe."""
_INPUT = "/dev/.stdin"
_MOST_LINKS = 40


class Run(Running):
    """One job."""

    def __init__(self, wire: Wire, watch: Watch, job: dict[str, Any], body: memoryview) -> None:
        self._wire, self._watch, self._job = wire, watch, job
        self._sent: dict[str, memoryview] = {}
        self._input = bytes(body[: job["stdin"]])
        place = job["stdin"]
        for path, size in job["files"]:
            self._sent[path] = body[place : place + size]
            place += size
        self._hidden: set[str] = set()
        """What the shell brings along (/dev, /tmp): what is in there stays here, unless the job had it."""
        self._stopped: str | None = None
        self._stop: Callable[[], None] = lambda: None

    def stop(self, why: str) -> None:
        """End the script at its next command."""
        self._stopped = self._stopped or why
        self._stop()

    async def outcome(self) -> tuple[dict[str, Any], list[bytes]]:
        """Run the script, and return what the host is to be told of its end."""
        from bashkit import Bash, FileSystem

        job, limits = self._job, self._job["limits"]
        tree = FileSystem()
        bash = Bash(
            username="agent",
            hostname="workspace",
            cwd=job["cwd"],
            env={"HOME": "/", **job["env"]},
            timeout_seconds=limits["wall"],
            max_commands=COMMANDS,
            max_loop_iterations=COMMANDS,
            max_memory=limits["memory"] // 4,
        )
        bash.mount("/", tree)
        if (problem := self._fill(tree)) is not None:
            return {"refused": problem}, []
        for name in job["commands"]:
            bash.add_command(name, self._command(name))
        if job["args"]:
            await bash.execute(f"set -- {shlex.join(job['args'])}")
        stdout = Output(self._wire.send, "stdout", limits["output"])
        stderr = Output(self._wire.send, "stderr", limits["output"])
        source = f"exec <{_INPUT}; {job['source']}" if self._input else job["source"]
        self._stop = bash.cancel
        self._watch.begin(limits["cpu"], self.stop)
        try:
            ended = await bash.execute(source, stdout=_writes(stdout), stderr=_writes(stderr))
            worked_too_long = self._watch.is_over
        finally:
            self._watch.end()
            self._stop = lambda: None
            self._wire.forget()
        if ended.error and worked_too_long:
            self._stopped = self._stopped or "cpu"  # another limit was a moment earlier
        head, parts = self._changes(tree)
        head |= {"exit": ended.exit_code, "error": ended.error, "stopped": self._stopped}
        return head | {"dropped": stdout.dropped + stderr.dropped}, parts

    def _fill(self, tree: Any) -> str | None:
        """Put the files of the job into the tree; what is wrong with them."""
        job = self._job
        given = {*job["folders"], *(path.rpartition("/")[0] for path in self._sent)} - {"", "/"}
        if not given & {"/home", "/home/user"}:
            tree.remove("/home", recursive=True)
        self._hidden = set(_paths(tree)) - with_parents(job["folders"], self._sent) - self._sent.keys()
        path = "/"
        try:
            for path in sorted(given):
                tree.mkdir(path, recursive=True)
            for path, data in self._sent.items():
                tree.write_file(path, bytes(data))
            if self._input:
                tree.write_file(_INPUT, self._input)
        except RuntimeError as error:
            return f"{path} cannot be put there: {error}"
        if not tree.exists(job["cwd"]) or tree.stat(job["cwd"])["file_type"] != "directory":
            return f"There is no folder {job['cwd']}"
        return None

    def _command(self, name: str) -> Callable[[Any], Coroutine[Any, Any, int]]:
        async def run(context: Any) -> int:
            given = bytearray()
            async for part in context.stdin:
                given += part
                if len(given) > LONGEST_INPUT:
                    await context.stderr.write(
                        f"{name}: more than {LONGEST_INPUT:,} bytes of input\n".encode()
                    )
                    return 1
            try:
                asked = {"args": list(context.argv), "stdin": given.decode(errors="replace")}
                answer, _ = await self._wire.ask({"name": name, "cwd": context.cwd, **asked})
            except Refused as refused:
                await context.stderr.write(f"{name}: {refused}\n".encode())
                return 1
            result = answer["value"]
            await context.stdout.write(result["stdout"].encode())
            await context.stderr.write(result["stderr"].encode())
            return result["exit_code"]

        return run

    def _changes(self, tree: Any) -> tuple[dict[str, Any], list[bytes]]:
        """What differs from what was sent. A loop and no recursion: a cycle would keep the interpreter."""
        job, limits = self._job, self._job["limits"]
        changed: list[tuple[str, int]] = []
        parts: list[bytes] = []
        folders: list[str] = []
        found: set[str] = set()
        todo, total = [""], 0
        while todo:
            folder = todo.pop()
            for entry in tree.read_dir(folder or "/"):
                path, kind = f"{folder}/{entry['name']}", entry["metadata"]["file_type"]
                if path in self._hidden or path == _INPUT:
                    continue
                if kind == "directory":
                    todo.append(path)
                    if collected(job, path):
                        folders.append(path)
                    continue
                if not collected(job, path):
                    found.add(path)
                    continue
                if kind == "file" and entry["metadata"]["size"] > limits["file_bytes"]:
                    return {"over": "file_bytes", "path": path}, []
                data = _content(tree, path, kind)
                if data is None:
                    continue
                found.add(path)
                sent = self._sent.get(path)
                if sent is not None and sent == memoryview(data):
                    continue
                if len(data) > limits["file_bytes"]:
                    return {"over": "file_bytes", "path": path}, []
                changed.append((path, len(data)))
                parts.append(data)
                total += len(data)
                if total > limits["tree_bytes"]:
                    return {"over": "tree_bytes"}, []
                if len(changed) > limits["files"]:
                    return {"over": "files"}, []
        new = set(folders) - with_parents(job["folders"], self._sent)
        if len(changed) + len(new) > limits["files"]:
            return {"over": "files"}, []
        gone = [path for path in self._sent if path not in found and collected(job, path)]
        return {"changed": changed, "deleted": gone, "folders": folders}, parts


def _content(tree: Any, path: str, kind: str) -> bytes | None:
    """What is in a file, or in the file that a link leads to."""
    if kind == "file":
        return tree.read_file(path)
    for _ in range(_MOST_LINKS):
        if not tree.exists(path):
            return None
        kind = tree.stat(path)["file_type"]
        if kind != "symlink":
            return tree.read_file(path) if kind == "file" else None
        path = posixpath.normpath(posixpath.join(posixpath.dirname(path), tree.read_link(path)))
    return None  # a circle


def _paths(tree: Any) -> Iterator[str]:
    """Everything in a tree."""
    todo = [""]
    while todo:
        folder = todo.pop()
        for entry in tree.read_dir(folder or "/"):
            path = f"{folder}/{entry['name']}"
            yield path
            if entry["metadata"]["file_type"] == "directory":
                todo.append(path)


def _writes(output: Output) -> Callable[[bytes], Coroutine[Any, Any, None]]:
    async def write(data: bytes) -> None:
        output.write(data)

    return write


class _Bash(Guest):
    """bashkit."""

    def load(self) -> None:
        import bashkit  # noqa: F401  # pyright: ignore[reportUnusedImport]

    async def warm(self) -> None:
        from bashkit import Bash

        await Bash().execute("jq -n 1 | cat")

    def job(self, wire: Wire, watch: Watch, job: dict[str, Any], body: memoryview) -> Run:
        return Run(wire, watch, job, body)


def main() -> None:
    """Run as the program that a child is."""
    guest.main(_Bash())
