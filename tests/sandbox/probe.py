"""Locks itself in, then tries everything that it may not do any more, and prints what worked."""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from everthink.sandbox.lock import lock_down

MEMORY = 64 << 20
libc = ctypes.CDLL(None, use_errno=True)


def called(name: str, *args: object) -> None:
    if getattr(libc, name)(*args) < 0:
        raise OSError(ctypes.get_errno(), name)


def system_call(number: int, *args: object) -> None:
    if libc.syscall(number, *args) < 0:
        raise OSError(ctypes.get_errno(), str(number))


def fork() -> None:
    if os.fork() == 0:
        os._exit(0)


def in_a_thread(attempt: Callable[[], object]) -> Callable[[], object]:
    def run() -> None:
        raised: list[BaseException] = []

        def tried() -> None:
            try:
                attempt()
            except BaseException as error:
                raised.append(error)

        thread = threading.Thread(target=tried)
        thread.start()
        thread.join()
        if raised:
            raise raised[0]

    return run


ATTEMPTS: dict[str, Callable[[], object]] = {
    "read a file": lambda: Path("/etc/passwd").read_bytes(),
    "read its environment": lambda: Path("/proc/self/environ").read_bytes(),
    "list a folder": lambda: os.listdir("/"),
    "look at a file": lambda: os.stat("/etc/passwd"),
    "follow a link": lambda: os.readlink("/proc/self/exe"),
    "make a file": lambda: Path("/tmp/everthink-probe").touch(),
    "make a folder": lambda: os.mkdir("/tmp/everthink-probe"),
    "delete a file": lambda: os.unlink("/tmp/there-is-no-such-file"),
    "rename a file": lambda: os.rename("/tmp/there-is-no-such-file", "/tmp/x"),
    "change rights of a file": lambda: os.chmod("/tmp", 0o777),
    "change folder": lambda: os.chdir("/tmp"),
    "open a socket": lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM),
    "open a local socket": lambda: socket.socket(socket.AF_UNIX),
    "start a process": fork,
    "start a program": lambda: os.execv("/bin/true", ["true"]),
    "signal its parent": lambda: os.kill(os.getppid(), 0),
    "signal a thread of its parent": lambda: called("tgkill", os.getppid(), os.getppid(), 0),
    "signal its group": lambda: os.killpg(0, 0),
    "leave its group": os.setsid,
    "trace its parent": lambda: called("ptrace", 16, os.getppid(), 0, 0),
    "become root": lambda: os.setuid(0),
    "have a namespace of its own": lambda: called("unshare", 0x10000000),
    "mount": lambda: called("mount", b"none", b"/tmp", b"tmpfs", 0, None),
    "keep memory in a file": lambda: os.memfd_create("x"),
    "raise its limits": lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (1_000, 1_000)),
    "outlive its parent": lambda: called("prctl", 1, 0, 0, 0, 0),
    "take rings to the kernel": lambda: system_call(425, 1, None),
    "take all memory": lambda: bytearray(MEMORY + (200 << 20)),
    "read a file in a thread": in_a_thread(lambda: Path("/etc/passwd").read_bytes()),
    "open a socket in a thread": in_a_thread(socket.socket),
}


def run_a_thread() -> None:
    in_a_thread(lambda: None)()


def main() -> None:
    held = lock_down(memory=MEMORY, parent=os.getppid())
    done: list[str] = []
    for name, attempt in ATTEMPTS.items():
        try:
            attempt()
        except (PermissionError, MemoryError, ValueError):
            continue
        except OSError:
            pass  # it was tried, so it was allowed
        done.append(name)
    run_a_thread()
    signal.raise_signal(signal.SIGCONT)  # to itself it may
    print(json.dumps({"held": held, "done": done, "user": os.getuid()}))
    sys.stdout.flush()


if __name__ == "__main__":
    main()
