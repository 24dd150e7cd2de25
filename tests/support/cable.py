"""A network that can be lost."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Generator

__all__ = ["Cable"]


class Cable:
    """Carries bytes between a client and a server until it is pulled out."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._is_plugged, self._is_deaf = True, False
        self.swallowed = threading.Event()
        """Set once something was lost that the client had sent."""
        self._ends: list[socket.socket] = []
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return  # closed
            with self._lock:
                if not self._is_plugged:
                    near.close()
                    continue
                far = socket.create_connection(("127.0.0.1", self._target))
                self._ends += [near, far]
            for one, other, up in ((near, far, True), (far, near, False)):
                threading.Thread(target=self._carry, args=(one, other, up), daemon=True).start()

    def _carry(self, one: socket.socket, other: socket.socket, up: bool) -> None:
        try:
            while data := one.recv(65536):
                if up and self._is_deaf:
                    self.swallowed.set()
                else:
                    other.sendall(data)
        except OSError:
            pass  # pulled out
        for end in (one, other):
            with contextlib.suppress(OSError):  # hung up already
                end.shutdown(socket.SHUT_RDWR)  # a thread reads from it: close() alone tells nobody
            end.close()

    def pull(self) -> None:
        """Cut what is connected; nobody gets through until it is back in."""
        with self._lock:
            self._is_plugged = False
            for end in self._ends:
                with contextlib.suppress(OSError):  # hung up already
                    end.shutdown(socket.SHUT_RDWR)
            self._ends.clear()

    def plug(self) -> None:
        self._is_plugged = True

    @contextlib.contextmanager
    def deaf(self) -> Generator[None]:
        """Lose what the client sends, unnoticed. At the end the connection breaks; the next one is good."""
        self._is_deaf = True
        yield
        self.pull()
        self._is_deaf = False
        self.plug()

    def close(self) -> None:
        self.pull()
        self._listener.close()
