"""What runs in the child: bash scripts, one at a time, over files in memory.

    host --job, answer, stop--> standard input  standard output --ready, begun, out, call, over, done--> host

Started by child.py as a program of its own: the standard library, bashkit, and the modules beside this one
that need nothing else. Rights are given up before the first script is seen. Nothing here is a promise to the
host, which checks every frame; what is bounded here is bounded so that a script is told.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import posixpath
import shlex
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

from .frames import PREFIX, lengths, packed
from .lock import lock_down

COMMANDS = 100_000
"""Commands, and rounds of one loop. bashkit has the same for a whole session, where it cannot be raised."""
LONGEST_INPUT = 1_000_000
"""Bytes that a command of the host may be given through a pipe."""
_PART = 32_768
"""Bytes of output in one frame, at most."""
_LOOK = 0.05
"""Seconds between looks at the work that was done."""
_LATE = 2.0
"""Seconds of work after which a script that was told to stop is given up."""
_INPUT = "/dev/.stdin"
_MOST_LINKS = 40


class Refused(Exception):
    """The host does not do what a command asks."""


class Wire:
    """Both pipes."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader
        self._asked = 0
        self._waiting: dict[int, asyncio.Future[Any]] = {}

    def send(self, head: dict[str, Any], *parts: bytes) -> None:
        """Write a frame. Whoever reads too slowly makes us wait."""
        view = memoryview(packed(json.dumps(head).encode(), parts))
        while view:
            view = view[os.write(1, view) :]

    async def receive(self) -> tuple[dict[str, Any], memoryview]:
        """The next frame of the host."""
        head, body = lengths(await self._reader.readexactly(PREFIX))
        said = json.loads(await self._reader.readexactly(head))
        return said, memoryview(await self._reader.readexactly(body))

    async def ask(self, **asked: Any) -> Any:
        """Call the host, and wait for its answer."""
        self._asked += 1
        number = self._asked
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        self.send({"t": "call", "id": number, **asked})
        return await answer

    def answered(self, said: dict[str, Any]) -> None:
        """Hand an answer to whoever waits for it."""
        answer = self._waiting.pop(said["id"], None)
        if answer is None or answer.done():
            return
        if "refused" in said:
            answer.set_exception(Refused(said["refused"]))
        else:
            answer.set_result(said.get("value"))

    def forget(self) -> None:
        """Nobody waits any more."""
        for answer in self._waiting.values():
            answer.cancel()
        self._waiting.clear()


class Output:
    """One stream of a script: the beginning goes to the host, the rest is counted."""

    def __init__(self, wire: Wire, stream: str, most: int) -> None:
        self._wire, self._stream, self._room = wire, stream, most
        self.dropped = 0

    async def write(self, data: bytes) -> None:
        """Take what the script has written."""
        kept, self._room = data[: self._room], self._room - min(len(data), self._room)
        self.dropped += len(data) - len(kept)
        for start in range(0, len(kept), _PART):
            self._wire.send({"t": "out", "stream": self._stream}, kept[start : start + _PART])


class Run:
    """One job."""

    def __init__(self, wire: Wire, job: dict[str, Any], body: memoryview) -> None:
        self._wire, self._job = wire, job
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
        stdout = Output(self._wire, "stdout", limits["output"])
        stderr = Output(self._wire, "stderr", limits["output"])
        source = f"exec <{_INPUT}; {job['source']}" if self._input else job["source"]
        self._stop = bash.cancel
        began = time.process_time()
        watch = asyncio.create_task(self._watch(began, limits["cpu"]))
        try:
            ended = await bash.execute(source, stdout=stdout.write, stderr=stderr.write)
        finally:
            watch.cancel()
            self._stop = lambda: None
            self._wire.forget()
        if ended.error and time.process_time() - began > limits["cpu"]:
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
        self._hidden = set(_paths(tree)) - _with_parents(job["folders"], self._sent) - self._sent.keys()
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
                answer = await self._wire.ask(
                    name=name,
                    args=list(context.argv),
                    stdin=given.decode(errors="replace"),
                    cwd=context.cwd,
                )
            except Refused as refused:
                await context.stderr.write(f"{name}: {refused}\n".encode())
                return 1
            await context.stdout.write(answer["stdout"].encode())
            await context.stderr.write(answer["stderr"].encode())
            return answer["exit_code"]

        return run

    async def _watch(self, began: float, cpu: float) -> None:
        """Stop a script that has worked for too long, and say so when it does not stop."""
        while True:
            await asyncio.sleep(_LOOK)
            worked = time.process_time() - began
            if worked > cpu:
                self.stop("cpu")
            if worked > cpu + _LATE:
                self._wire.send({"t": "over", "limit": "cpu"})
                return

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
                    if self._is_collected(path):
                        folders.append(path)
                    continue
                if not self._is_collected(path):
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
        new = set(folders) - _with_parents(job["folders"], self._sent)
        if len(changed) + len(new) > limits["files"]:
            return {"over": "files"}, []
        gone = [path for path in self._sent if path not in found and self._is_collected(path)]
        return {"changed": changed, "deleted": gone, "folders": folders}, parts

    def _is_collected(self, path: str) -> bool:
        return any(top == "/" or path == top or path.startswith(f"{top}/") for top in self._job["collect"])


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


def _with_parents(folders: list[str], files: dict[str, memoryview]) -> set[str]:
    known: set[str] = set()
    for path in (*folders, *(path.rpartition("/")[0] for path in files)):
        while path and path not in known:
            known.add(path)
            path = path.rpartition("/")[0]
    return known


async def serve(memory: int, parent: int) -> None:
    """Give up all rights, say which are gone, then run jobs until the host closes the pipe."""
    reader = asyncio.StreamReader(limit=1 << 20)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(0, "rb", 0))
    wire = Wire(reader)
    from bashkit import Bash

    held = lock_down(memory=memory, parent=parent)
    warm = await Bash().execute("jq -n 1 | cat")
    wire.send({"t": "ready", "held": held, "warm": warm.stdout})
    gc.collect()
    gc.freeze()
    run: Run | None = None
    working: asyncio.Task[None] | None = None
    while True:
        try:
            said, body = await wire.receive()
        except asyncio.IncompleteReadError:
            os._exit(0)  # nobody is there any more
        if said["t"] == "job":
            run = Run(wire, said, body)
            wire.send({"t": "begun"})
            working = asyncio.create_task(_work(wire, run))
        elif said["t"] == "answer":
            wire.answered(said)
        elif said["t"] == "stop" and run is not None and working is not None and not working.done():
            run.stop("host")
        del body


async def _work(wire: Wire, run: Run) -> None:
    try:
        head, parts = await run.outcome()  # by now the interpreter is gone, and its descriptors with it
        wire.send({"t": "done", **head}, *parts)
    except MemoryError:
        wire.send({"t": "over", "limit": "memory"})
    except Exception as error:  # noqa: BLE001 - the host is told, whatever it is
        wire.send({"t": "done", "refused": f"{type(error).__name__}: {error}"[:500]})
    gc.collect()


def main() -> None:
    """Run as the program that a child is."""
    asyncio.run(serve(memory=int(sys.argv[1]), parent=int(sys.argv[2])))
