"""Runs inside a machine: one job, then it ends. Python 3.8 or newer, the standard library, and nothing of ours.

    a line with the job --> standard input    standard output --out, call ... done--> the host

Sent as text, with `python3 -c`. The job is a process of its own: it has the limits, not its runner, so what was
written is still collected when a limit ends it. Nothing here is a promise to the host, which checks every
line; what is bounded here is bounded so that a script is told.
"""

from __future__ import annotations

import base64
import contextlib
import errno
import io
import json
import os
import signal
import stat
import sys
import tarfile
import threading
import time

PART = 32768
"""Bytes of output in one line, at most."""
LONGEST_INPUT = 1000000
"""Bytes that a command of the host may be given through a pipe."""
LONGEST_ASKED = 8 * 1024 * 1024
"""Bytes of what a guest asks the host."""
LONGEST_ARGUMENT = 100000
"""Bytes of a script that is an argument of bash; a longer one is a file."""
INTERPRETER = 64 * 1024 * 1024
"""Bytes of data that an interpreter and its libraries have, besides those of the job."""
DESCRIPTORS = 256
LOOK = 0.1
"""Seconds between looks at the clocks."""
TIMED_OUT, OVER_LIMIT, NO_MEMORY = 124, 126, 137

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
"""A function of the host as a command."""


class Refused(RuntimeError):
    """The host does not do what was asked."""


class Wire:
    """Both pipes to the host, and who waits for its answers."""

    def __init__(self):
        self._in = os.fdopen(os.dup(0), "rb")
        self._out = os.dup(1)
        self.ends = (self._in.fileno(), self._out)
        nothing = os.open("/dev/null", os.O_RDWR)
        os.dup2(nothing, 0)
        os.dup2(nothing, 1)
        self._writing = threading.Lock()
        self._asked = 0
        self._waiting = {}
        self.told = {}
        """What the host says besides: why to stop."""

    def say(self, said):
        data = json.dumps(said).encode() + b"\n"
        with self._writing:
            while data:
                data = data[os.write(self._out, data) :]

    def receive(self):
        line = self._in.readline()
        return json.loads(line) if line.endswith(b"\n") else None

    def ask(self, answered, **asked):
        """Call the host. `answered` is called with what it says."""
        with self._writing:
            self._asked += 1
            number = self._asked
            self._waiting[number] = answered
        self.say(dict(asked, t="call", id=number))

    def listen(self, ended):
        """Hand out answers until the host is gone."""
        while True:
            said = self.receive()
            if said is None:
                ended()
                return
            if "stop" in said:
                self.told["stop"] = said["stop"]
            else:
                answered = self._waiting.pop(said.get("id"), None)
                if answered is not None:
                    answered(said)


class Output:
    """One stream of the job: the beginning goes to the host, the rest is counted."""

    def __init__(self, wire, name, room, reading):
        self._wire, self._name, self._room, self._reading = wire, name, room, reading
        self.dropped = 0
        self._thread = started(self._pump)

    def _pump(self):
        while True:
            data = os.read(self._reading, PART)
            if not data:
                return
            kept = data[: self._room]
            self._room -= len(kept)
            self.dropped += len(data) - len(kept)
            if kept:
                self._wire.say({"t": "out", "s": self._name, "d": base64.b64encode(kept).decode()})

    def end(self):
        """Wait for what is still in the pipe; not for ever, who holds it may have got away."""
        self._thread.join(1.0)


def started(work):
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


class Job:
    """The job, as its process and what it leaves."""

    def __init__(self, wire, said, setup):
        self.wire, self.said, self.setup = wire, said, setup
        self.root = os.getcwd()
        self.sent = {}
        self.pid = 0
        self.result = {}
        """What the guest says of its own end."""
        self.folder = ""

    # --- before it

    def fill(self):
        """Put the files of the job into the folder; what is wrong with them."""
        with tarfile.open(fileobj=io.BytesIO(base64.b64decode(self.said["tree"])), mode="r:") as tar:
            for entry in tar:
                place = os.path.join(self.root, entry.name)
                if entry.isdir():
                    os.makedirs(place, exist_ok=True)
                    continue
                os.makedirs(os.path.dirname(place), exist_ok=True)
                data = tar.extractfile(entry).read()
                with open(place, "wb") as file:
                    file.write(data)
                os.chmod(place, entry.mode)
                self.sent["/" + entry.name] = data
        if not os.path.isdir(self.place(self.said["cwd"])):
            return "There is no folder %s" % self.said["cwd"]
        return None

    def place(self, path):
        """Where a path of the job is."""
        return os.path.normpath(os.path.join(self.root, path.lstrip("/")))

    def environment(self):
        python = os.path.dirname(sys.executable or "/usr/bin/python3")
        found = {
            "PATH": ":".join(dict.fromkeys([python, "/usr/local/bin", "/usr/bin", "/bin"])),
            "HOME": self.root,
            "TMPDIR": os.environ.get("TMPDIR", "/tmp"),
            "LANG": "C.UTF-8",
            "TZ": "UTC",
            "USER": "agent",
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        found.update(self.said["env"])
        return found

    def offer_commands(self, stdin):
        """Functions of the host as programs, in front of all others."""
        import tempfile

        self.folder = tempfile.mkdtemp(prefix=".host-")
        programs = os.path.join(self.folder, "bin")
        os.mkdir(programs)
        seen = os.fstat(stdin)
        for name in self.said["commands"]:
            place = os.path.join(programs, name)
            with open(place, "w") as file:
                file.write(
                    STUB
                    % {
                        "python": sys.executable,
                        "folder": self.folder,
                        "name": name,
                        "own": (seen.st_dev, seen.st_ino),
                        "most": LONGEST_INPUT,
                    }
                )
            os.chmod(place, 0o755)
        os.mkfifo(os.path.join(self.folder, "calls"), 0o600)
        calls = os.open(os.path.join(self.folder, "calls"), os.O_RDWR | os.O_CLOEXEC)
        return programs, calls

    def start(self):
        """Start the process of the job."""
        said = self.said
        environment = self.environment()
        pipes = [os.pipe() for _ in range(5)]
        (in_, feed), (hear_out, out), (hear_err, err), (hear, asks), (told, answers) = pipes
        calls = None
        if said["stdin"]:
            stdin = in_
        else:
            stdin = os.open("/dev/null", os.O_RDONLY)
        if said["commands"]:
            # The input of the job itself is not read by a command; that of /dev/null is empty anyway.
            programs, calls = self.offer_commands(stdin)
            environment["PATH"] = programs + ":" + environment["PATH"]
        self.pid = os.fork()
        if self.pid == 0:
            own = (stdin, out, err)
            for place, stream in enumerate(own):
                os.dup2(stream, place)
            closed = {end for pair in pipes for end in pair} - {0, 1, 2, asks, told}
            for end in (closed | set(self.wire.ends)) - {0, 1, 2}:
                os.close(end)
            guest(said, self, environment, asks, told)
            return None
        for end in (in_, out, err, asks, told):
            os.close(end)
        if calls is not None:
            started(lambda: self._hear_commands(calls))
        started(lambda: self._feed(feed, base64.b64decode(said["stdin"])))
        listening = started(lambda: self._hear(hear, answers))
        room = said["limits"]["output"]
        return (
            [
                Output(self.wire, "stdout", room, hear_out),
                Output(self.wire, "stderr", room, hear_err),
            ],
            listening,
        )

    def _feed(self, feed, data):
        with contextlib.suppress(OSError):  # it need not read its input
            while data:
                data = data[os.write(feed, data) :]
        os.close(feed)

    # --- what it asks

    def _hear(self, hear, answers):
        """Python: functions of the host, and the value at the end."""
        lock = threading.Lock()

        def answer(number, said):
            data = json.dumps(dict(said, id=number)).encode() + b"\n"
            with lock, contextlib.suppress(OSError):  # nobody waits any more
                while data:
                    data = data[os.write(answers, data) :]

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
                    asked = {"name": str(said["name"]), "args": list(said["args"])}
                    asked["kwargs"] = dict(said["kwargs"])
                except (ValueError, TypeError, KeyError, RecursionError):
                    return
                self.wire.ask(lambda told, number=number: answer(number, told), **asked)

    def _hear_commands(self, calls):
        """bash: commands of the host."""
        with os.fdopen(calls, "rb") as file:
            while True:
                line = file.readline(64)
                if not line.strip().isdigit():
                    continue
                place = os.path.join(self.folder, str(int(line)))
                with contextlib.suppress(OSError, ValueError, RecursionError):  # the stub is not what it was
                    self._asked_by_command(place)

    def _asked_by_command(self, place):
        with open(place, "rb") as file:
            count = int(file.readline())
            parts = [file.read(int(file.readline())) for _ in range(count)]
            given = file.read(LONGEST_INPUT)
        words = [part.decode(errors="replace") for part in parts]
        cwd = os.path.relpath(words[1], self.root)
        cwd = "/" if cwd == "." else "/" + cwd if not cwd.startswith("..") else words[1]

        def answered(said):
            if "refused" in said:
                code, out, err = 1, b"", ("%s: %s\n" % (words[0], said["refused"])).encode()
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
            answered, name=words[0], args=words[2:], kwargs={}, stdin=given.decode(errors="replace"), cwd=cwd
        )

    # --- its end

    def kill(self):
        """End the job and all that it has started, as far as this machine lets us reach it."""
        if self.setup.get("alone"):
            # Everything that we may signal is of this run: a namespace, or Landlock, sees to that.
            with contextlib.suppress(OSError):
                os.kill(-1, signal.SIGKILL)
            return
        for end in (os.killpg, os.kill):
            with contextlib.suppress(OSError):
                end(self.pid, signal.SIGKILL)

    def wait(self, began):
        """Wait for its end, or for a limit: the exit code, and which limit it was."""
        limits = self.said["limits"]
        status = []
        over = threading.Event()

        def reap():
            status.append(os.waitpid(self.pid, 0)[1])
            over.set()

        started(reap)
        stopped = None
        while not over.wait(LOOK):
            stopped = self._limit(began, limits)
            if stopped is not None:
                break
        self.kill()
        if not over.wait(2.0):
            return None, stopped or "wall"
        code, signalled = os.WEXITSTATUS(status[0]), os.WTERMSIG(status[0])
        if stopped is None and os.WIFSIGNALED(status[0]):
            if signalled == signal.SIGXCPU:
                stopped = "cpu"
            code = 128 + signalled
        return code, stopped

    def _limit(self, began, limits):
        if "stop" in self.wire.told:
            return self.wire.told["stop"]
        if time.monotonic() - began > limits["wall"]:
            return "wall"
        if self.setup.get("counted") and worked() > limits["cpu"]:
            return "cpu"
        watched = self.setup.get("watched")
        if watched and taken(watched) > self.setup["disk"]:
            return "tree_bytes"
        return None

    # --- after it

    def collect(self):
        """What differs from what was sent."""
        limits = self.said["limits"]
        tree = io.BytesIO()
        total, changed, found, folders = 0, 0, set(), []
        with tarfile.open(fileobj=tree, mode="w", format=tarfile.PAX_FORMAT) as tar:
            for path, place, seen in self._entries():
                if len(os.fsencode(path)) > 4096:
                    return {"over": "name", "path": path[:200]}
                if stat.S_ISDIR(seen.st_mode):
                    folders.append(path)
                    if len(folders) > limits["files"] + len(self.sent) + len(self.said["folders"]):
                        return {"over": "files"}
                    continue
                place = self._plain(place, seen)
                if place is None:
                    continue
                size = os.stat(place).st_size
                if size > limits["file_bytes"]:
                    return {"over": "file_bytes", "path": printable(path)}
                with open(place, "rb") as file:
                    data = file.read(size)
                found.add(path)
                if self.sent.get(path) == data:
                    continue
                if not is_text(path):
                    return {"over": "name", "path": printable(path)}
                changed, total = changed + 1, total + len(data)
                if changed > limits["files"]:
                    return {"over": "files"}
                if total > limits["tree_bytes"]:
                    return {"over": "tree_bytes"}
                entry = tarfile.TarInfo(path[1:])
                entry.size = len(data)
                tar.addfile(entry, io.BytesIO(data))
        for path in folders:
            if not is_text(path):
                return {"over": "name", "path": printable(path)}
        deleted = [path for path in self.sent if path not in found and self._is_collected(path)]
        return {
            "tree": base64.b64encode(tree.getvalue()).decode(),
            "deleted": deleted,
            "folders": folders,
        }

    def _is_collected(self, path):
        for top in self.said["collect"]:
            if top == "/" or path == top or path.startswith(top + "/"):
                return True
        return False

    def _entries(self):
        """Every path below what is to be collected, with where it is and what it is."""
        todo = [(top if top != "/" else "") for top in self.said["collect"]]
        done = set()
        while todo:
            path = todo.pop()
            if path in done:
                continue
            done.add(path)
            place = self.root + path
            try:
                seen = os.lstat(place)
            except OSError as error:
                if error.errno == errno.ENAMETOOLONG:
                    seen = os.stat_result((stat.S_IFDIR,) + (0,) * 9)
                    yield path, place, seen
                continue
            if path:
                yield path, place, seen
            if stat.S_ISDIR(seen.st_mode):
                if seen.st_mode & 0o700 != 0o700:
                    with contextlib.suppress(OSError):  # listing it says so
                        os.chmod(place, 0o700)
                try:
                    names = os.listdir(place)
                except PermissionError:
                    continue
                todo.extend(path + "/" + name for name in names)

    def _plain(self, place, seen):
        """Where the content of a file is: in itself, or, of a link that stays in here, where that leads."""
        if stat.S_ISLNK(seen.st_mode):
            place = os.path.realpath(place)
            if not place.startswith(self.root + "/"):
                return None
            try:
                seen = os.stat(place)
            except OSError:
                return None
        if not stat.S_ISREG(seen.st_mode):
            return None
        if not seen.st_mode & 0o400:
            with contextlib.suppress(OSError):  # reading it says so
                os.chmod(place, 0o600)
        return place if os.access(place, os.R_OK) else None


def is_text(path):
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def printable(path):
    return path.encode(errors="replace").decode()[:200]


def worked():
    """Seconds of work of all processes in here, where one can look at them."""
    total = 0.0
    with contextlib.suppress(OSError):
        for name in os.listdir("/proc"):
            if name.isdigit() and int(name) != os.getpid():
                with contextlib.suppress(OSError, ValueError, IndexError):  # it has just ended
                    with open("/proc/%s/stat" % name) as file:
                        fields = file.read().rpartition(")")[2].split()
                    total += sum(map(int, fields[11:15]))
    return total / os.sysconf("SC_CLK_TCK")


def taken(places):
    """Bytes on the disk below some folders."""
    total, todo = 0, list(places)
    while todo:
        with contextlib.suppress(OSError), os.scandir(todo.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    todo.append(entry.path)
                else:
                    total += entry.stat(follow_symlinks=False).st_blocks * 512
    return total


# --- the process of the job


def guest(said, job, environment, asks, told):
    """Become the job: bounded, in its folder, with its variables. Returns for Python, at its end."""
    setup = job.setup
    if setup.get("alone"):
        if setup.get("guarded"):
            hide_runner()
    else:
        with contextlib.suppress(OSError):  # where it is not allowed, there is one group anyway
            os.setpgid(0, 0)
    bound(said["limits"], setup)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    os.chdir(job.place(said["cwd"]))
    os.environ.clear()
    os.environ.update(environment)
    if said["language"] == "python":
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        sys.exit(Python(said, job, asks, told).run())
    os.close(asks)
    os.close(told)
    argv = ["bash", *bash_of(said, job)]
    try:
        os.execvp("bash", argv)
    except OSError as error:
        os.write(2, ("bash cannot be run in this machine: %s\n" % error).encode())
        os._exit(127)


def bash_of(said, job):
    """The arguments of bash: a file of the tree as it is there, a short script as text."""
    source, path = said["source"], said["path"]
    place = job.place(path)
    if job.sent.get(path) == source.encode():
        return [place, *said["args"]]
    if len(source.encode()) < LONGEST_ARGUMENT:
        return ["-c", source, path, *said["args"]]
    import tempfile

    number, place = tempfile.mkstemp(prefix=".script-")
    with os.fdopen(number, "w") as file:
        file.write(source)
    return [place, *said["args"]]


def bound(limits, setup):
    import resource

    data = limits["memory"] + INTERPRETER
    seconds = int(limits["cpu"]) + 1
    bounds = [
        (resource.RLIMIT_CORE, 0, 0),
        (resource.RLIMIT_CPU, seconds, seconds + 1),
        (resource.RLIMIT_DATA, data, data),
        (resource.RLIMIT_FSIZE, limits["tree_bytes"], limits["tree_bytes"]),
        (resource.RLIMIT_NOFILE, DESCRIPTORS, DESCRIPTORS),
    ]
    if setup.get("processes"):
        bounds.append((resource.RLIMIT_NPROC, setup["processes"], setup["processes"]))
    for what, soft, hard in bounds:
        most = resource.getrlimit(what)[1]
        if most != resource.RLIM_INFINITY:
            soft, hard = min(soft, most), min(hard, most)
        resource.setrlimit(what, (soft, hard))


def hide_runner():
    """Landlock once more, around the job alone: it cannot signal its runner, which may signal it."""
    import ctypes
    import struct

    libc = ctypes.CDLL(None, use_errno=True)
    rules = struct.pack("QQQ", 0, 0, 0b10)
    ruleset = libc.syscall(444, rules, ctypes.c_size_t(len(rules)), 0)
    if ruleset < 0 or libc.syscall(446, ruleset, 0) != 0:
        os.write(2, b"The job cannot be kept from its runner.\n")
        os._exit(OVER_LIMIT)
    os.close(ruleset)


class Python:
    """A job in Python, in the process that the runner has forked."""

    def __init__(self, said, job, asks, told):
        self._said, self._job = said, job
        self._asks, self._told = asks, told
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._numbers = 0
        self._waiting = {}
        self._is_listening = False

    def run(self):
        """Its exit code. What else there is to say goes to the runner."""
        import linecache
        import types

        said, style = self._said, self._said["style"]
        for stream in (sys.stdout, sys.stderr):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace", line_buffering=True)
        sys.stdin = open(0, encoding="utf-8", errors="surrogateescape", closefd=False)  # noqa: SIM115
        sys.dont_write_bytecode = True
        path = said["path"]
        name = self._job.place(path) if path.startswith("/") else path
        folder = os.path.dirname(name) if path.startswith("/") else os.getcwd()
        sys.argv = [name, *said["args"]]
        sys.path.insert(0, folder)
        module = types.ModuleType("__main__" if style != "function" else "script")
        module.__file__ = name
        sys.modules[module.__name__] = module
        scope = module.__dict__
        spaces = self._spaces()
        if style != "command":
            scope.update(spaces)
        if said["seed"] is not None:
            import random

            random.seed(said["seed"])
        source = said["source"]
        linecache.cache[name] = (len(source), None, source.splitlines(True), name)
        try:
            if style == "snippet":
                if said["input"] is not None:
                    scope["input"] = said["input"]
                self._tell({"value": evaluated(source, name, scope)})
            else:
                exec(compile(source, name, "exec"), scope)
                if style == "function":
                    self._tell({"value": called(scope, said["input"])})
        except SystemExit as error:
            if error.code is None or isinstance(error.code, int):
                return error.code
            sys.stderr.write("%s\n" % (error.code,))
            return 1
        except BaseException as error:
            self._failed(error, name, style)
            return 1
        return 0

    def _failed(self, error, name, style):
        import traceback

        frames = error.__traceback__
        while frames is not None and frames.tb_frame.f_code.co_filename != name:
            frames = frames.tb_next
        traceback.print_exception(type(error), error, frames)
        sys.stderr.flush()
        if isinstance(error, MemoryError):
            self._tell({"memory": True})
        elif style != "command":
            words = str(error)
            self._tell({"error": type(error).__name__ + (": " + words if words else "")})

    def _tell(self, end):
        try:
            self._send({"end": end})
        except (TypeError, ValueError, RecursionError):
            kind = type(end["value"]).__name__
            if self._said["style"] == "function":
                self._send({"end": {"error": "TypeError: run() returned %s, which is no JSON" % kind}})

    def _send(self, said):
        data = json.dumps(said, allow_nan=False).encode() + b"\n"
        if len(data) > LONGEST_ASKED:
            raise ValueError("more than %d bytes" % LONGEST_ASKED)
        with self._lock:
            while data:
                data = data[os.write(self._asks, data) :]

    # --- functions of the host

    def _spaces(self):
        """Modules with the functions that may be called, importable by name."""
        import types

        tops = {}
        for full, stub in self._said["names"].items():
            *folders, name = full.split(".")
            holder, place = None, ""
            for folder in folders:
                place = place + "." + folder if place else folder
                module = sys.modules.get(place)
                if module is None or not getattr(module, "__host__", False):
                    module = sys.modules[place] = types.ModuleType(place)
                    module.__host__ = True
                    module.__path__ = []
                if holder is None:
                    tops[folder] = module
                else:
                    setattr(holder, folder, module)
                holder = module
            function = self._function(full, name, stub)
            if holder is None:
                tops[name] = function
            else:
                setattr(holder, name, function)
        return tops

    def _function(self, full, name, stub):
        if "async def " in stub:

            async def function(*args, **kwargs):
                import asyncio

                loop = asyncio.get_running_loop()
                future = loop.create_future()

                def settle(said):
                    if not future.done():
                        future.set_result(said)

                self._ask(full, args, kwargs, lambda said: loop.call_soon_threadsafe(settle, said))
                return value_of(await future)
        else:

            def function(*args, **kwargs):
                import queue

                answers = queue.SimpleQueue()
                self._ask(full, args, kwargs, answers.put)
                return value_of(answers.get())

        function.__name__ = function.__qualname__ = name
        function.__doc__ = stub or None
        return function

    def _ask(self, name, args, kwargs, answered):
        if os.getpid() != self._pid:
            raise RuntimeError("%s can only be called in the process of the script itself" % name)
        with self._lock:
            self._numbers += 1
            number = self._numbers
            self._waiting[number] = answered
            is_first, self._is_listening = not self._is_listening, True
        if is_first:
            started(self._listen)
        self._send({"id": number, "name": name, "args": args, "kwargs": kwargs})

    def _listen(self):
        with os.fdopen(self._told, "rb") as file:
            for line in file:
                said = json.loads(line)
                with self._lock:
                    answered = self._waiting.pop(said["id"], None)
                if answered is not None:
                    answered(said)


def value_of(said):
    if "refused" in said:
        raise Refused(said["refused"])
    return said.get("value")


def evaluated(source, name, scope):
    """Run a snippet; the value of its last line, when that is an expression."""
    import ast

    tree = ast.parse(source, name)
    last = tree.body[-1] if tree.body else None
    if not isinstance(last, ast.Expr):
        exec(compile(tree, name, "exec"), scope)
        return None
    tree.body.pop()
    exec(compile(tree, name, "exec"), scope)
    return awaited(eval(compile(ast.Expression(last.value), name, "eval"), scope))


def called(scope, given):
    """Call `run` with what was given to the job, and a context when it takes one."""
    import inspect

    run = scope.get("run")
    if not callable(run):
        raise NameError("the script defines no function `run`")
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    count = sum(one.kind in kinds for one in inspect.signature(run).parameters.values())
    return awaited(run(*(given, {})[: min(count, 2)]))


def awaited(value):
    import inspect

    if not inspect.isawaitable(value):
        return value
    import asyncio

    async def wait():
        return await value

    return asyncio.run(wait())


# --- the runner


def main():
    setup = json.loads(os.environ.pop("EVERTHINK_MACHINE", "{}"))
    if setup.get("alone"):
        with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
            file.write("1000")  # when memory is short, this is what the kernel takes
    wire = Wire()
    said = wire.receive()
    if said is None:
        return
    began = time.monotonic()
    job = Job(wire, said, setup)
    try:
        problem = job.fill()
    except (OSError, ValueError) as error:
        problem = "The files cannot be put there: %s" % error
    if problem is not None:
        wire.say({"t": "done", "refused": problem})
        os._exit(0)
    running = job.start()
    if running is None:
        return  # this is the job, at its end
    outputs, listening = running

    def end_all():
        job.kill()
        if setup.get("alone"):
            with contextlib.suppress(OSError):
                os.kill(0, signal.SIGKILL)
        os._exit(1)

    started(lambda: wire.listen(end_all))
    code, stopped = job.wait(began)
    for output in outputs:
        output.end()
    listening.join(1.0)
    reply = job.result if stopped is None else {}
    ended = {
        "t": "done",
        "exit": code,
        "stopped": "memory" if reply.get("memory") else stopped,
        "error": reply.get("error"),
        "value": reply.get("value"),
        "dropped": sum(output.dropped for output in outputs),
    }
    try:
        ended.update(job.collect())
    except (OSError, ValueError, MemoryError) as error:
        ended.update({"over": "name", "path": "%s: %s" % (type(error).__name__, error)})
    wire.say(ended)
    os._exit(0)


if __name__ == "__main__":
    main()
