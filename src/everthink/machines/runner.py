"""In a machine: runs one job, as a process that is bounded, and then ends.

    a line with the job --> standard input    standard output --out, call ... done--> the host

One of the texts that are sent into a machine: Python 3.8 or newer, the standard library, nothing of ours.
The job is a process of its own: it has the limits, not its runner, so what was written is still collected
when a limit ends it. Nothing here is a promise to the host, which checks every line; what is bounded here is
bounded so that a script is told.
"""

from __future__ import annotations

import binascii
import contextlib
import json
import os
import signal
import sys
import threading
import time

from .guest_tree import Tree, taken
from .guest_wire import Output, Wire, started, write_all

TYPE_CHECKING = False  # importing typing takes longer than most jobs begin
if TYPE_CHECKING:
    from typing import Any, NoReturn

__all__ = ["main"]

LONGEST_INPUT = 1000000
"""Bytes that a command of the host may be given through a pipe."""
LONGEST_ASKED = 8 * 1024 * 1024 + 64
"""Bytes of a line of the job."""
LONGEST_ARGUMENT = 100000
"""Bytes of a script that is an argument of bash; a longer one is a file."""
INTERPRETER = 64 * 1024 * 1024
"""Bytes of data that an interpreter and its libraries have, besides those of the job."""
DESCRIPTORS = 256
STACK = 512 * 1024
"""Bytes of the stack of a thread of the runner."""
LOOK = 0.1
"""Seconds between looks at the clocks."""
DYING = 2.0
"""Seconds that a killed job gets to be gone."""
OVER_LIMIT = 126

STUB = """#!%(python)s -IS
import os, sys
folder, name, own = %(folder)r, %(name)r, %(own)r
def read():
    try:
        seen = os.fstat(0)
    except OSError:
        return b""
    if (seen.st_dev, seen.st_ino) == own:
        return b""
    given = b""
    while len(given) <= %(most)d:
        part = os.read(0, 65536)
        if not part:
            return given
        given += part
    os.write(2, ("%%s: more than %%d bytes of input\\n" %% (name, %(most)d)).encode())
    sys.exit(1)
def write(stream, data):
    while data:
        data = data[os.write(stream, data):]
given = read()
place = os.path.join(folder, str(os.getpid()))
os.mkfifo(place + ".done", 0o600)
done = os.open(place + ".done", os.O_RDWR)
with open(place, "wb") as file:
    parts = [os.fsencode(part) for part in [name, os.getcwd()] + sys.argv[1:]]
    file.write(b"%%d\\n" %% len(parts) + b"".join(b"%%d\\n" %% len(part) + part for part in parts) + given)
calls = os.open(os.path.join(folder, "calls"), os.O_WRONLY)
os.write(calls, b"%%d\\n" %% os.getpid())
os.close(calls)
os.read(done, 1)
with open(place, "rb") as file:
    code, out, err = (int(file.readline()) for _ in range(3))
    write(1, file.read(out))
    write(2, file.read(err))
os.unlink(place)
os.unlink(place + ".done")
sys.exit(code)
"""
"""A function of the host as a command. It does not read the input of the script itself."""


class Job:
    """The process of a job."""

    def __init__(self, wire: Wire, said: dict[str, Any], setup: dict[str, Any]) -> None:
        """`setup` is what the machine says of itself."""
        self.wire, self.said, self.setup = wire, said, setup
        self.tree = Tree(os.getcwd(), said)
        self.pid = 0
        self.result: dict[str, Any] = {}
        """What a script in Python says of its own end."""
        self._calls = ""
        self._gate = -1

    # --- its beginning

    def start(self) -> tuple[list[Output], threading.Thread]:
        """Start its process, which waits for `wait`. Returns in this process only."""
        said, environment = self.said, self._environment()
        pipes = [os.pipe() for _ in range(6)]
        (stdin, feed), (hear_out, out), (hear_err, err), (hear, asks), (told, answers), gate = pipes
        opened, self._gate = gate
        nothing = os.open("/dev/null", os.O_RDONLY)
        commands = None
        if said["commands"]:
            programs, commands = self._offer_commands(os.fstat(stdin if said["stdin"] else nothing))
            environment["PATH"] = programs + ":" + environment["PATH"]
        self.pid = os.fork()
        if self.pid == 0:
            for place, stream in enumerate((stdin if said["stdin"] else nothing, out, err)):
                os.dup2(stream, place)
            for end in {nothing, *self.wire.ends, *(end for pair in pipes for end in pair)}:
                if end not in (0, 1, 2, asks, told, opened):
                    os.close(end)
            # A job that takes every process there is leaves none for threads of its runner: those come first.
            if not os.read(opened, 1):
                os._exit(OVER_LIMIT)
            os.close(opened)
            self._become(environment, asks, told)
        for end in (nothing, stdin, out, err, asks, told, opened):
            os.close(end)
        if commands is not None:
            started(lambda: self._hear_commands(commands))
        started(lambda: _feed(feed, binascii.a2b_base64(said["stdin"])))
        listening = started(lambda: self._hear(hear, answers))
        room = said["limits"]["output"]
        streams = (("stdout", hear_out), ("stderr", hear_err))
        return [Output(self.wire, name, room, reading) for name, reading in streams], listening

    def _environment(self) -> dict[str, str]:
        python = os.path.dirname(sys.executable or "/usr/bin/python3")
        found = {
            "PATH": ":".join(dict.fromkeys([python, "/usr/local/bin", "/usr/bin", "/bin"])),
            "HOME": self.tree.root,
            "TMPDIR": os.environ.get("TMPDIR", "/tmp"),
            "LANG": "C.UTF-8",
            "TZ": "UTC",
            "USER": "agent",
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        found.update(self.said["env"])
        return found

    def _offer_commands(self, seen: os.stat_result) -> tuple[str, int]:
        """Functions of the host as programs, in front of all others. `seen` is the input of the job."""
        import tempfile

        self._calls = tempfile.mkdtemp(prefix=".host-")
        programs, calls = os.path.join(self._calls, "bin"), os.path.join(self._calls, "calls")
        os.mkdir(programs)
        for name in self.said["commands"]:
            text = STUB % {
                "python": sys.executable,
                "folder": self._calls,
                "name": name,
                "own": (seen.st_dev, seen.st_ino),
                "most": LONGEST_INPUT,
            }
            with open(os.path.join(programs, name), "w") as file:
                file.write(text)
            os.chmod(os.path.join(programs, name), 0o755)
        os.mkfifo(calls, 0o600)
        return programs, os.open(calls, os.O_RDWR | os.O_CLOEXEC)

    def _become(self, environment: dict[str, str], asks: int, told: int) -> NoReturn:
        """Be the job: bounded, in its folder, with its variables."""
        try:
            if not self.setup.get("alone"):
                with contextlib.suppress(OSError):  # where it is not allowed, there is one group anyway
                    os.setpgid(0, 0)
            elif self.setup.get("guarded"):
                _guard_runner()
            self._bound()
            os.chdir(self.tree.place(self.said["cwd"]))
            os.environ.clear()
            os.environ.update(environment)
            if self.said["language"] == "bash":
                for number in (signal.SIGPIPE, signal.SIGXFSZ):
                    signal.signal(number, signal.SIG_DFL)
                os.close(asks)
                os.close(told)
                os.execvp("bash", ["bash", *self._of_bash()])
            threading.stack_size(0)
            from .guest_python import Python

            python = Python(self.said, self.tree, asks, told)
        except (OSError, RuntimeError, ValueError, MemoryError) as error:
            os.write(2, (f"The job cannot begin: {error}\n").encode())
            os._exit(OVER_LIMIT)
        sys.exit(python.run())

    def _of_bash(self) -> list[str]:
        """The arguments of bash: a file of the tree as it is there, a short script as text."""
        source, path, args = self.said["source"], self.said["path"], self.said["args"]
        if self.tree.sent.get(path) == source.encode():
            return [self.tree.place(path), *args]
        if len(source.encode()) < LONGEST_ARGUMENT:
            return ["-c", source, path, *args]
        import tempfile

        number, place = tempfile.mkstemp(prefix=".script-")
        with os.fdopen(number, "w") as file:
            file.write(source)
        return [place, *args]

    def _bound(self) -> None:
        import resource

        limits, seconds = self.said["limits"], int(self.said["limits"]["cpu"]) + 1
        data = limits["memory"] + INTERPRETER
        bounds = [
            (resource.RLIMIT_CORE, 0, 0),
            (resource.RLIMIT_CPU, seconds, seconds + 1),
            (resource.RLIMIT_DATA, data, data),
            (resource.RLIMIT_FSIZE, limits["tree_bytes"], limits["tree_bytes"]),
            (resource.RLIMIT_NOFILE, DESCRIPTORS, DESCRIPTORS),
        ]
        if "processes" in self.setup:
            bounds.append((resource.RLIMIT_NPROC, self.setup["processes"], self.setup["processes"]))
        for what, soft, hard in bounds:
            most = resource.getrlimit(what)[1]
            if most != resource.RLIM_INFINITY:
                soft, hard = min(soft, most), min(hard, most)
            resource.setrlimit(what, (soft, hard))

    # --- what it asks

    def _hear(self, hear: int, answers: int) -> None:
        """Python: functions of the host, and the value at the end."""
        lock = threading.Lock()

        def answer(number: object, said: dict[str, Any]) -> None:
            with lock, contextlib.suppress(OSError):  # nobody waits any more
                write_all(answers, json.dumps(dict(said, id=number)).encode() + b"\n")

        with os.fdopen(hear, "rb") as file:
            while True:
                line = file.readline(LONGEST_ASKED)
                if not line.endswith(b"\n"):
                    return
                try:
                    said = json.loads(line)
                    if "end" in said:
                        self.result = dict(said["end"])
                        continue
                    number = said["id"]
                    asked: dict[str, Any] = {"name": str(said["name"]), "args": list(said["args"])}
                    asked["kwargs"] = dict(said["kwargs"])
                except (ValueError, TypeError, KeyError, RecursionError):
                    return  # the job has broken its own pipe
                self.wire.ask(lambda told, number=number: answer(number, told), **asked)

    def _hear_commands(self, calls: int) -> None:
        """bash: commands of the host."""
        with os.fdopen(calls, "rb") as file:
            while True:
                line = file.readline(64)
                if not line.strip().isdigit():
                    continue
                with contextlib.suppress(OSError, ValueError, RecursionError):  # a stub that is none
                    self._asked_by(os.path.join(self._calls, str(int(line))))

    def _asked_by(self, place: str) -> None:
        """Carry out what a stub has written."""
        with open(place, "rb") as file:
            count = int(file.readline())
            parts = [file.read(int(file.readline())).decode(errors="replace") for _ in range(count)]
            given = file.read(LONGEST_INPUT)
        name, cwd, args = parts[0], os.path.relpath(parts[1], self.tree.root), parts[2:]
        cwd = "/" if cwd == "." else parts[1] if cwd.startswith("..") else "/" + cwd

        def answered(said: dict[str, Any]) -> None:
            if "refused" in said:
                code, out, err = 1, b"", ("{}: {}\n".format(name, said["refused"])).encode()
            else:
                value = said["value"]
                code, out, err = value["exit_code"], value["stdout"].encode(), value["stderr"].encode()
            with contextlib.suppress(OSError):  # nobody waits any more
                with open(place, "wb") as file:
                    file.write(b"%d\n%d\n%d\n" % (code, len(out), len(err)) + out + err)
                done = os.open(place + ".done", os.O_WRONLY | os.O_NONBLOCK)
                os.write(done, b"\n")
                os.close(done)

        self.wire.ask(
            answered, name=name, args=args, kwargs={}, stdin=given.decode(errors="replace"), cwd=cwd
        )

    # --- its end

    def kill(self) -> None:
        """End the job and all that it has started, as far as this machine lets us reach it."""
        if self.setup.get("alone"):
            # Everything that we may signal is of this run: a namespace, or Landlock, sees to that.
            with contextlib.suppress(OSError):
                os.kill(-1, signal.SIGKILL)
        elif self.pid:
            for end in (os.killpg, os.kill):
                with contextlib.suppress(OSError):
                    end(self.pid, signal.SIGKILL)

    def wait(self, began: float) -> tuple[int, str | None]:
        """Let it begin, and wait for its end, or for a limit: the exit code, and which limit it was."""
        status: list[int] = []
        over = threading.Event()

        def reap() -> None:
            status.append(os.waitpid(self.pid, 0)[1])
            over.set()

        started(reap)
        os.write(self._gate, b"\n")
        os.close(self._gate)
        stopped = None
        while not over.wait(LOOK):
            stopped = self._limit(began)
            if stopped is not None:
                break
        self.kill()
        if not over.wait(DYING):
            return OVER_LIMIT, stopped
        if not os.WIFSIGNALED(status[0]):
            return os.WEXITSTATUS(status[0]), stopped
        if stopped is None and os.WTERMSIG(status[0]) == signal.SIGXCPU:
            stopped = "cpu"
        return 128 + os.WTERMSIG(status[0]), stopped

    def _limit(self, began: float) -> str | None:
        limits = self.said["limits"]
        if self.wire.stop is not None:
            return self.wire.stop
        if time.monotonic() - began > limits["wall"]:
            return "wall"
        if self.setup.get("counted") and _worked() > limits["cpu"]:
            return "cpu"
        if "watched" in self.setup and taken(self.setup["watched"]) > self.setup["disk"]:
            return "tree_bytes"
        return None


def _feed(feed: int, data: bytes) -> None:
    with contextlib.suppress(OSError):  # it need not read its input
        write_all(feed, data)
    os.close(feed)


def _worked() -> float:
    """Seconds of work of all processes in here but ours, also of those that have ended."""
    total = 0
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            with contextlib.suppress(OSError, ValueError), open(f"/proc/{name}/stat") as file:
                total += sum(map(int, file.read().rpartition(")")[2].split()[11:15]))
    return total / os.sysconf("SC_CLK_TCK")


def _guard_runner() -> None:
    """Landlock once more, around the job alone: it cannot signal its runner, which may signal it."""
    import ctypes
    import struct

    libc = ctypes.CDLL(None, use_errno=True)
    rules = struct.pack("QQQ", 0, 0, 0b10)
    ruleset = libc.syscall(444, rules, ctypes.c_size_t(len(rules)), 0)
    if ruleset < 0 or libc.syscall(446, ruleset, 0) != 0:
        raise OSError("it cannot be kept from its runner")
    os.close(ruleset)


def main() -> None:
    """Run as the program that a machine starts."""
    setup = json.loads(os.environ.pop("EVERTHINK_MACHINE", "{}"))
    if setup.get("counted"):
        with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
            file.write("1000")  # when memory is short, this is what the kernel takes
    wire = Wire()
    said = wire.receive()
    if said is None:
        return
    began = time.monotonic()
    job = Job(wire, said, setup)
    threading.stack_size(STACK)
    try:
        problem = job.tree.fill()
        if problem is not None:
            wire.say({"t": "done", "refused": problem})
            os._exit(0)
        outputs, listening = job.start()
    except (OSError, RuntimeError, ValueError, MemoryError) as error:
        wire.say({"t": "done", "refused": f"The job cannot be started: {error}"})
        job.kill()
        os._exit(0)

    def end_all() -> None:
        job.kill()
        if setup.get("alone") or setup.get("own_group"):
            os.kill(0, signal.SIGKILL)
        os._exit(1)

    started(lambda: wire.listen(end_all))
    code, stopped = job.wait(began)
    for output in outputs:
        output.end()
    listening.join(1.0)
    own = job.result if stopped is None else {}
    ended = {
        "t": "done",
        "exit": code,
        "stopped": "memory" if own.get("memory") else stopped,
        "error": own.get("error"),
        "value": own.get("value"),
        "dropped": sum(output.dropped for output in outputs),
    }
    try:
        ended.update(job.tree.collected())
    except (OSError, ValueError, MemoryError) as error:
        ended.update({"over": "name", "path": f"{type(error).__name__}: {error}"})
    wire.say(ended)
    os._exit(0)
