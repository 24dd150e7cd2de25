"""Many chat windows in one cheap process: `python -m bench.crowd '{"scene": …}'`, answers in JSON.

    sockets.py --scene--> crowd (epoll, raw sockets) <--WebSocket--> served.py

Frames are cut out of the bytes and looked at as little as possible, so that a frame costs this side
a small part of what it costs the server: what is measured is the server. Its CPU time is read from
its own clock, all threads and the kernel's share included.
"""

from __future__ import annotations

import json
import os
import resource
import select
import socket
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from .work import QUESTION

RESPONSE = b'{"type":"cf_agent_use_chat_response"'
SNAPSHOT = b'{"type":"cf_agent_chat_messages"'
GREETED = b'{"type":"cf_agent_mcp_servers"'
DONE = b'"done":true'  # inside a body its quotes would be escaped
EMPTY = b'{"messages":[]}'
LONGEST = len(RESPONSE) - 1
TEXT, CLOSE, PING, PONG = 1, 8, 9, 10
SERVER_PING = bytes((0x80 | PING, 4))  # uvicorn's have four bytes; all else we are sent is ASCII
PATIENCE = 60.0
"""After so many seconds without the expected end a scene fails."""


class Tab:
    """One socket, and what arrived by it."""

    def __init__(self, port: int, path: str, *, window: int | None = None) -> None:
        self.socket = socket.socket()
        if window is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, window)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.settimeout(PATIENCE)
        self.socket.connect(("127.0.0.1", port))
        self._rest = b""
        self.frames = self.chunks = self.done = self.asked = 0
        self.sent_at = self.first_at = 0.0
        self.snapshot = EMPTY
        self.is_greeted = False
        self.closed: int | None = None
        self.kept: list[str] | None = None
        """Every frame as text, when somebody wants them."""
        self.skims = False
        """Count answers only, without cutting frames out: the cheapest way to read along."""
        self._shake_hands(port, path)

    def _shake_hands(self, port: int, path: str) -> None:
        lines = (
            f"GET {path} HTTP/1.1",
            f"Host: 127.0.0.1:{port}",
            "Upgrade: websocket",
            "Connection: Upgrade",
            "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
            "Sec-WebSocket-Version: 13",
        )
        self.socket.sendall("\r\n".join((*lines, "", "")).encode())
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            byte = self.socket.recv(1)  # not one more: frames follow at once
            if not byte:
                raise ConnectionError(f"The server hung up: {head!r}")
            head += byte
        if not head.startswith(b"HTTP/1.1 101"):
            raise ConnectionError(f"The server did not agree to talk: {head!r}")

    def send(self, payload: bytes, kind: int = TEXT) -> None:
        """Send a frame. Its mask is zero, which leaves the payload as it is."""
        size = len(payload)
        if size < 126:
            head = bytes((0x80 | kind, 0x80 | size))
        elif size < 65536:
            head = bytes((0x80 | kind, 0x80 | 126)) + size.to_bytes(2)
        else:
            head = bytes((0x80 | kind, 0x80 | 127)) + size.to_bytes(8)
        self.socket.sendall(head + b"\0\0\0\0" + payload)

    def ask(self, number: str | None = None) -> None:
        """Put the question, with the whole conversation, as browsers do. `number`: of the question."""
        self.asked += 1
        number = number or str(self.asked)
        said = {"id": f"u{number}", "role": "user", "parts": [{"type": "text", "text": QUESTION}]}
        body = {
            "messages": [*json.loads(self.snapshot)["messages"], said],
            "trigger": "submit-message",
        }
        frame = {
            "type": "cf_agent_use_chat_request",
            "id": f"r{number}",
            "init": {"method": "POST", "body": json.dumps(body)},
        }
        payload = json.dumps(frame).encode()
        self.first_at = 0.0
        self.sent_at = time.perf_counter()
        self.send(payload)

    def read(self) -> None:
        """Take what has arrived."""
        data = self._rest + self.socket.recv(262144) if self._rest else self.socket.recv(262144)
        if len(data) == len(self._rest):
            self.closed = self.closed or 1006
        if self.skims:
            self._skim(data)
            return
        at, end = 0, len(data)
        while end - at >= 2:
            start, size = at + 2, data[at + 1]
            if size == 126:
                start, size = at + 4, int.from_bytes(data[at + 2 : at + 4])
            elif size == 127:
                start, size = at + 10, int.from_bytes(data[at + 2 : at + 10])
            after = start + size
            if after > end or start > end:
                break
            if data[at] == 0x80 | TEXT:
                self._take(data, start, after)
            elif data[at] == 0x80 | PING:
                self.send(data[start:after], PONG)
            elif data[at] == 0x80 | CLOSE:
                self.closed = int.from_bytes(data[start : start + 2])
            at = after
        self._rest = data[at:]

    def _skim(self, data: bytes) -> None:
        responses, done = data.count(RESPONSE), data.count(DONE)
        self.chunks += responses - done
        self.done += done
        ping = data.find(SERVER_PING)
        if 0 <= ping <= len(data) - 6:
            self.send(data[ping + 2 : ping + 6], PONG)
        # A word that is cut in two is counted with what comes next, one that is whole is not counted twice.
        self._rest = data[max(len(data) - LONGEST, data.rfind(RESPONSE) + 1, data.rfind(DONE) + 1) :]

    def _take(self, data: bytes, start: int, end: int) -> None:
        self.frames += 1
        if self.kept is not None:
            self.kept.append(data[start:end].decode())
        if data.startswith(RESPONSE, start):
            if not self.first_at:
                self.first_at = time.perf_counter()
            if data.find(DONE, max(start, end - 256), end) < 0:
                self.chunks += 1
            else:
                self.done += 1
        elif data.startswith(SNAPSHOT, start):
            self.snapshot = data[start:end]
        elif data.startswith(GREETED, start):
            self.is_greeted = True


class Crowd:
    """Tabs that are read as soon as there is something."""

    def __init__(self, port: int, pid: int) -> None:
        self.port, self.pid = port, pid
        self._poll = select.epoll()
        self._tabs: dict[int, Tab] = {}
        self.asleep: Tab | None = None
        """One that nobody reads."""
        self.largest = 0
        """The most bytes the server was seen to hold in memory."""

    def open(self, paths: Sequence[str], *, keeps: bool = False, greeted: bool = True) -> list[Tab]:
        """One tab for each path, `greeted` or on the way. With `keeps` they keep what they get."""
        tabs: list[Tab] = []
        for path in paths:
            tab = Tab(self.port, path)
            tab.kept = [] if keeps else None
            self._tabs[tab.socket.fileno()] = tab
            self._poll.register(tab.socket, select.EPOLLIN)
            tabs.append(tab)
        if greeted:
            self.read(until=lambda: all(tab.is_greeted for tab in tabs))
        return tabs

    def close(self, tab: Tab) -> None:
        """Leave."""
        self._poll.unregister(tab.socket)
        del self._tabs[tab.socket.fileno()]
        tab.send((1000).to_bytes(2), CLOSE)
        tab.socket.close()

    def read(self, *, until: Callable[[], bool], each: Callable[[Tab], object] | None = None) -> None:
        """Read from all tabs until something is so; `each` is called after a tab was read."""
        last = time.perf_counter()
        while not until():
            for number, _ in self._poll.poll(0.01):
                tab = self._tabs.get(number)
                if tab is None:
                    continue  # it left a moment ago
                tab.read()
                last = time.perf_counter()
                if tab.closed is not None:
                    raise ConnectionError(f"The server closed a socket with {tab.closed}.")
                if each is not None:
                    each(tab)
            if time.perf_counter() - last > PATIENCE:
                raise TimeoutError("Nothing arrives any more.")

    def sleep(self, seconds: float) -> None:
        """Let the server finish what it does after an answer."""
        end = time.perf_counter() + seconds
        self.read(until=lambda: time.perf_counter() > end)


def cpu(pid: int) -> float:
    """Seconds of CPU a process has used, all threads: Linux' clock of another process."""
    return time.clock_gettime(~pid << 3 | 2)


def resident(pid: int) -> int:
    """Bytes of a process in memory."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Measured:
    """What passed on both sides between two moments."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._began = cpu(pid), time.process_time(), time.perf_counter()

    def upto_now(self) -> dict[str, float]:
        """CPU of the server, share of the time in which this side was busy, seconds."""
        server, own, wall = self._began
        wall = time.perf_counter() - wall
        return {"cpu": cpu(self._pid) - server, "busy": (time.process_time() - own) / wall, "wall": wall}


# --- scenes


def record(crowd: Crowd, *, path: str, turns: int) -> dict[str, Any]:
    """What a server sends to a tab: at the beginning, and in each turn."""
    (tab,) = crowd.open([path], keeps=True)
    found: dict[str, Any] = {"greeting": tab.kept, "turns": []}
    for _ in range(turns):
        tab.kept = []
        _all_ask(crowd, [tab])
        found["turns"].append(tab.kept)
    return found


def chats(
    crowd: Crowd, *, path: str, agents: int, turns: int, every: float | None = None, warm: int = 1
) -> dict[str, Any]:
    """Each of many agents has one tab and answers one question after the other.

    `every`: how many seconds after the last question a tab asks the next one, all tabs spread evenly.
    Without it, as soon as the answer is there.
    """
    tabs = crowd.open([f"{path}-{number}" for number in range(agents)])
    for _ in range(warm):
        _all_ask(crowd, tabs)
    crowd.sleep(0.05)
    firsts: list[float] = []
    chunks, done = sum(tab.chunks for tab in tabs), agents * warm
    goal = done + agents * turns
    measured = Measured(crowd.pid)
    if every is None:
        for tab in tabs:
            tab.ask()

        def again(tab: Tab) -> None:
            nonlocal done
            if tab.done == tab.asked and tab.first_at:
                firsts.append(tab.first_at - tab.sent_at)
                tab.first_at = 0.0
                done += 1
                if tab.done < warm + turns:
                    tab.ask()

        crowd.read(until=lambda: done >= goal, each=again)
    else:
        began = time.perf_counter()
        plan = sorted((every * (turn + n / agents), n) for turn in range(turns) for n in range(agents))
        at = 0

        def due() -> bool:
            nonlocal at
            now = time.perf_counter() - began
            while at < len(plan) and plan[at][0] <= now:
                tab = tabs[plan[at][1]]
                if tab.done < tab.asked:
                    break  # the server is late: so is the question
                tab.ask()
                at += 1
            return done >= goal

        def heard(tab: Tab) -> None:
            nonlocal done
            if tab.done == tab.asked and tab.first_at:
                firsts.append(tab.first_at - tab.sent_at)
                tab.first_at = 0.0
                done += 1

        crowd.read(until=due, each=heard)
    found = measured.upto_now()
    crowd.sleep(0.05)
    found["cpu"] = measured.upto_now()["cpu"]
    chunks = sum(tab.chunks for tab in tabs) - chunks
    return {**found, "turns": agents * turns, "chunks": chunks, "firsts": firsts}


def readers(
    crowd: Crowd, *, path: str, readers: int, turns: int, before: int = 0, sleeper: bool = False
) -> dict[str, Any]:
    """One agent, many tabs that read along. With `sleeper` one of them never reads.

    It and the first tab hear so many answers `before` the others come: the kernel keeps megabytes for
    a sleeper before the server notices anything.
    """
    tabs = crowd.open([path] * min(readers, 1 if sleeper else 2))
    if sleeper:
        crowd.asleep = Tab(crowd.port, path, window=4096)
    for _ in range(before):
        _all_hear(crowd, tabs)
    tabs += crowd.open([path] * (readers - 2))
    for tab in tabs[1:]:
        tab.skims = True
    _all_hear(crowd, tabs)
    crowd.sleep(0.05)
    chunks = sum(tab.chunks for tab in tabs)
    measured = Measured(crowd.pid)
    for _ in range(turns):
        _all_hear(crowd, tabs)
    found = measured.upto_now()
    crowd.sleep(0.05)
    found["cpu"] = measured.upto_now()["cpu"]
    return {**found, "chunks": sum(tab.chunks for tab in tabs) - chunks}


def asleep(crowd: Crowd, *, path: str, readers: int, turns: int) -> dict[str, Any]:
    """A tab sleeps while more is said than may wait for it; then it wakes up and comes back.

    The conversation is cleared before each answer but the last, so that only chunks are much.
    """
    tabs = crowd.open([path] * readers)
    for tab in tabs[1:]:
        tab.skims = True
    _all_hear(crowd, tabs)
    before = crowd.largest = resident(crowd.pid)
    tab = Tab(crowd.port, path, window=4096)
    for _ in range(turns):
        tabs[0].send(b'{"type":"cf_agent_chat_clear"}')
        tabs[0].snapshot = EMPTY
        _all_hear(crowd, tabs, watches=True)
    try:
        while tab.closed is None:
            tab.read()
    except ConnectionResetError:
        tab.closed = 1006
    (again,) = crowd.open([path])
    return {
        "closed": tab.closed,
        "missed": tabs[0].frames - tab.frames,
        "grown": crowd.largest - before,
        "has all": json.loads(again.snapshot)["messages"] == json.loads(tabs[0].snapshot)["messages"],
    }


def idle(crowd: Crowd, *, path: str, agents: int) -> dict[str, Any]:
    """So many agents with one tab each and nothing to do."""
    crowd.open([f"{path}-early-{number}" for number in range(200)])
    crowd.sleep(0.2)
    before = resident(crowd.pid)
    crowd.open([f"{path}-{number}" for number in range(agents)])
    crowd.sleep(0.2)
    return {"memory": (resident(crowd.pid) - before) / agents}


def _all_ask(crowd: Crowd, tabs: Sequence[Tab]) -> None:
    for tab in tabs:
        tab.ask()
    crowd.read(until=lambda: all(tab.done == tab.asked for tab in tabs))


def _all_hear(crowd: Crowd, tabs: Sequence[Tab], *, watches: bool = False) -> None:
    """The first tab asks; all hear the answer. `watches`: how large the server gets meanwhile."""
    ends = {tab: tab.done + 1 for tab in tabs}
    tabs[0].ask()
    waiting = set(tabs)

    def heard(tab: Tab) -> None:
        if tab.done >= ends[tab]:
            waiting.discard(tab)
        if watches and tab is tabs[0]:
            crowd.largest = max(crowd.largest, resident(crowd.pid))

    crowd.read(until=lambda: not waiting, each=heard)


SCENES: dict[str, Callable[..., dict[str, Any]]] = {
    "record": record,
    "chats": chats,
    "readers": readers,
    "asleep": asleep,
    "idle": idle,
}


def main() -> None:
    asked: dict[str, Any] = json.loads(sys.argv[1])
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    crowd = Crowd(asked.pop("port"), asked.pop("pid"))
    print(json.dumps(SCENES[asked.pop("scene")](crowd, **asked)))
    sys.stdout.flush()
    os._exit(0)  # a thousand goodbyes are not part of it


if __name__ == "__main__":
    main()
