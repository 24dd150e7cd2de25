"""In a machine: the pipes to the host, and output that goes there.

    the job --bytes--> Output --lines--> Wire --> the host          the host --answers--> Wire --> who asked

One of the texts that are sent into a machine: Python 3.8 or newer, the standard library, nothing of ours.
"""

from __future__ import annotations

import binascii
import json
import os
import threading

TYPE_CHECKING = False  # importing typing takes longer than most jobs begin
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

__all__ = ["Output", "Wire", "started", "write_all"]

PART = 32768
"""Bytes of output in one line, at most."""


def started(work: Callable[[], object]) -> threading.Thread:
    """Do something in a thread that nobody waits for at the end."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def write_all(stream: int, data: bytes) -> None:
    """Write, however much the pipe takes at once."""
    while data:
        data = data[os.write(stream, data) :]


class Wire:
    """Both pipes to the host, and who waits for its answers."""

    def __init__(self) -> None:
        self._in = os.fdopen(os.dup(0), "rb")
        self._out = os.dup(1)
        self.ends = (self._in.fileno(), self._out)
        nothing = os.open("/dev/null", os.O_RDWR)
        os.dup2(nothing, 0)
        os.dup2(nothing, 1)
        self._writing = threading.Lock()
        self._asked = 0
        self._waiting: dict[int, Callable[[dict[str, Any]], object]] = {}
        self.stop: str | None = None
        """Why the host says that the job is to end."""

    def say(self, said: dict[str, Any]) -> None:
        """Tell the host."""
        data = json.dumps(said).encode() + b"\n"
        with self._writing:
            write_all(self._out, data)

    def receive(self) -> dict[str, Any] | None:
        """What the host says next; nothing when it is gone."""
        line = self._in.readline()
        return json.loads(line) if line.endswith(b"\n") else None

    def ask(self, answered: Callable[[dict[str, Any]], object], **asked: Any) -> None:
        """Call the host. `answered` is called with what it says."""
        with self._writing:
            self._asked += 1
            number = self._asked
            self._waiting[number] = answered
        self.say(dict(asked, t="call", id=number))

    def listen(self, ended: Callable[[], object]) -> None:
        """Hand out answers until the host is gone."""
        while True:
            said = self.receive()
            if said is None:
                ended()
                return
            if "stop" in said:
                self.stop = said["stop"]
                continue
            answered = self._waiting.pop(said["id"], None)
            if answered is not None:
                answered(said)


class Output:
    """One stream of the job: the beginning goes to the host, the rest is counted."""

    def __init__(self, wire: Wire, name: str, room: int, reading: int) -> None:
        self._wire, self._name, self._room, self._reading = wire, name, room, reading
        self.dropped = 0
        self._thread = started(self._pump)

    def _pump(self) -> None:
        while True:
            data = os.read(self._reading, PART)
            if not data:
                return
            kept = data[: self._room]
            self._room -= len(kept)
            self.dropped += len(data) - len(kept)
            if kept:
                self._wire.say(
                    {"t": "out", "s": self._name, "d": binascii.b2a_base64(kept, newline=False).decode()}
                )

    def end(self) -> None:
        """Wait for what is still in the pipe; not for ever, whoever holds it may have got away."""
        self._thread.join(1.0)
