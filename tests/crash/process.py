"""Start the child process, read its lines, kill it."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
from pathlib import Path
from types import TracebackType
from typing import Any

__all__ = ["Child"]

SCRIPT = Path(__file__).with_name("child.py")
PATIENCE = 30
"""Seconds after which a child that neither speaks nor ends is taken for stuck."""


class Child:
    """A process running a scenario of child.py, or another script. `lines` is what it said so far."""

    def __init__(self, store: str, scenario: str, effects: Path, *, script: Path = SCRIPT) -> None:
        self.lines: list[dict[str, Any]] = []
        self._process = subprocess.Popen(
            [sys.executable, str(script), store, scenario, str(effects)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.pid = self._process.pid
        self._watchdog = threading.Timer(PATIENCE, self._process.kill)
        self._watchdog.start()

    def __enter__(self) -> Child:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def read(self) -> dict[str, Any] | None:
        """The next line, or `None` when the child has ended. Reading a piece of text calls for the next."""
        assert self._process.stdout
        text = self._process.stdout.readline()
        if not text.endswith("\n"):
            return None  # the end, or a line that was cut off while it was written
        line: dict[str, Any] = json.loads(text)
        self.lines.append(line)
        if "-delta" in line.get("body", ""):
            self.go_on()
        return line

    def until(self, kind: str) -> dict[str, Any]:
        """Read on to a line of this kind."""
        while (line := self.read()) is not None:
            if line["kind"] == kind:
                return line
        assert self._process.stderr
        raise AssertionError(f"the child never said {kind!r}: {self.lines}\n{self._process.stderr.read()}")

    def go_on(self) -> None:
        """Let the model say its next piece."""
        assert self._process.stdin
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write("\n")
            self._process.stdin.flush()

    def kill(self) -> list[dict[str, Any]]:
        """Kill the process without warning. Returns every line it had said by then."""
        process = self._process
        assert process.stdin
        assert process.stdout
        assert process.stderr
        if process.stdout.closed:
            return self.lines
        process.kill()
        while self.read() is not None:
            pass
        process.wait()
        self._watchdog.cancel()
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        process.stdout.close()
        process.stderr.close()
        return self.lines
