"""The start of a process that locks itself in and then becomes a program of others.

    a shell line of monty/guest.py --> lock_down --> the program, with its own arguments

Runs alone in its process; it imports the standard library and `lock.py`. What it says on its standard error
is lost: nobody reads it.
"""

from __future__ import annotations

import json
import os
import sys

from .lock import NEEDED, lock_down

__all__ = ["main"]

LIBRARIES = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/etc/ld.so.cache", "/dev/urandom")


def main() -> None:
    """Become the program; with `held` in front of it, only say which steps hold."""
    only_asked = sys.argv[1] == "held"
    memory, parent, path = sys.argv[2:5]
    # Open before the lock: when root becomes nobody, its own folders are closed to it.
    program = os.open(path, os.O_RDONLY)
    os.set_inheritable(program, False)
    readable = [path, *(found for found in LIBRARIES if os.path.exists(found))]
    held = lock_down(memory=int(memory), parent=int(parent) or os.getppid(), program=readable)
    if only_asked:
        os.write(1, json.dumps(held).encode())
        os._exit(0)
    if any(held[step] for step in NEEDED):
        os._exit(1)
    os.execve(program, [path, *sys.argv[5:]], {})
