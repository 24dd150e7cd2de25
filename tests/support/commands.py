"""Real `everthink` processes whose output is waited for."""

from __future__ import annotations

import os
import queue
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import TracebackType

PATIENCE = 20.0


class Command:
    """A running `everthink` command. Its lines arrive as it writes them."""

    def __init__(self, folder: Path, *args: str, hears: bool = True, **env: str) -> None:
        clean = {key: value for key, value in os.environ.items() if not key.endswith("_API_KEY")}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "everthink.cli", *args],
            cwd=folder,
            env={**clean, "PYTHONUNBUFFERED": "1", **env},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            # A test run in the background ignores Ctrl-C, and so would what it starts.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL if hears else signal.SIG_IGN),
        )
        self.seen: list[str] = []
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            self._lines.put(line.rstrip("\n"))
        self._lines.put(None)

    def until(self, pattern: str) -> re.Match[str]:
        """Wait for a line that matches."""
        while True:
            line = self._lines.get(timeout=PATIENCE)
            assert line is not None, f"it ended without {pattern!r}:\n" + "\n".join(self.seen)
            self.seen.append(line)
            if found := re.search(pattern, line):
                return found

    def interrupt(self) -> int:
        """Ctrl-C, as a terminal does it: to the whole group. Returns the exit code."""
        os.killpg(self.process.pid, signal.SIGINT)
        return self.ended()

    def ended(self) -> int:
        """Wait for the end. Returns the exit code."""
        code = self.process.wait(PATIENCE)
        while (line := self._lines.get(timeout=PATIENCE)) is not None:
            self.seen.append(line)
        return code

    def __enter__(self) -> Command:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self._reader.join()
        for stream in (self.process.stdin, self.process.stdout):
            if stream:
                stream.close()
