"""What another person waits while a stranger sends the costliest inputs, and what those take in memory.

    strangers.py --starts--> served.py <--WebSocket-- A: one costly input after the other
         └--starts--> itself, as B <--WebSocket-- a call every few milliseconds, a short turn now and then

B is a process of its own with its own agent, and notes when it asked and how long it waited. A quiet moment
before each input says what the machine itself adds; each input is tried some times and the best one counts,
since others can only make it worse. Memory is the kernel's high-water mark against what was there before, by
the bytes that were sent; of that the worst counts.
"""

from __future__ import annotations

import json
import resource
import select
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from .crowd import CLOSE, Tab, resident
from .sockets import Server
from .stranger import CALL, FOLDER, SHOW

MIB = 1024 * 1024
HEAD = ("what A sends", "bytes", "B waits, median", "longest", "when quiet", "memory ÷ bytes", "budget", "")
MOST_WAIT = 100.0
"""Milliseconds that B may wait beyond the noise."""
MOST_MEMORY = 8.0
"""Times the bytes that were sent."""
PREPARED = "full"
"""The agent whose workspace is full, and what begins the names of the inputs that are for it."""
SMALL = MIB
"""Below so many bytes memory is not judged: a page here and there is more."""
EVERY = 0.004
"""Seconds between two calls of B."""
PATIENCE = 60.0


# --- B


class Probe(Tab):
    """A tab that calls a method, or asks a question, and waits."""

    def __init__(self, port: int, path: str) -> None:
        super().__init__(port, path)
        self.kept = []
        self._number = 0

    def until(self, mark: str) -> bool:
        """Read until a frame says it, or the server hung up."""
        end = time.monotonic() + PATIENCE
        while True:
            assert self.kept is not None
            if any(mark in frame for frame in self.kept):
                self.kept.clear()
                return True
            if self.closed is not None:
                return False
            self.kept.clear()
            if time.monotonic() > end:
                raise TimeoutError(f"No frame with {mark} in {PATIENCE} s.")
            if select.select([self.socket], [], [], 1.0)[0]:
                try:
                    self.read()
                except OSError:
                    self.closed = self.closed or 1006

    def call(self) -> bool:
        """Call a method and wait for its answer."""
        self._number += 1
        self.send(
            json.dumps({"type": "rpc", "id": f"p{self._number}", "method": "ping", "args": []}).encode()
        )
        return self.until(f'"id":"p{self._number}"')

    def turn(self, text: str = "Hi", **body: Any) -> bool:
        """Ask and wait for the end of the answer."""
        self._number += 1
        self.send(request(f"t{self._number}", message(text, id=f"m{self._number}"), **body))
        return self.until(f'"id":"t{self._number}","body":"","done":true')


def probe(port: int) -> None:
    """Be B until nobody listens any more, then say how long each thing took."""
    tab = Probe(port, "/agents/target/b")
    samples: list[tuple[float, float]] = []
    count = 0
    print("ready", flush=True)
    while not select.select([sys.stdin], [], [], 0)[0]:
        began = time.monotonic()
        count += 1
        if count % 50 == 0:
            tab.turn()
            if count % 1000 == 0:
                tab.send(b'{"type":"cf_agent_chat_clear"}')
        else:
            tab.call()
        samples.append((began, time.monotonic() - began))
        time.sleep(EVERY)
    print(json.dumps(samples), flush=True)


# --- A


def message(text: str, *, id: str = "u1", parts: Sequence[Any] | None = None) -> dict[str, Any]:
    """A person's message."""
    return {"id": id, "role": "user", "parts": parts or [{"type": "text", "text": text}]}


def request(id: str, *messages: Any, **body: Any) -> bytes:
    """A chat request."""
    asked = json.dumps({"messages": messages, "trigger": "submit-message", **body}, ensure_ascii=False)
    frame = {"type": "cf_agent_use_chat_request", "id": id, "init": {"method": "POST", "body": asked}}
    return json.dumps(frame, ensure_ascii=False).encode()


def padded(head: bytes, unit: bytes, tail: bytes, size: int = 16 * MIB - 16) -> bytes:
    """A frame as large as may be, filled with one thing."""
    return head + unit * ((size - len(head) - len(tail)) // len(unit)) + tail


class Stranger:
    """Somebody who sends things. Comes back when thrown out."""

    def __init__(self, port: int) -> None:
        self.port, self._number, self.sent = port, 0, 0
        self._tab: Probe | None = None
        self.agent = "a"

    @property
    def tab(self) -> Probe:
        if self._tab is None or self._tab.closed is not None:
            self._tab = Probe(self.port, f"/agents/target/{self.agent}")
            self._tab.until("cf_agent_mcp_servers")
        return self._tab

    def fresh(self, agent: str) -> None:
        """Go to another agent."""
        if self._tab is not None:
            self._tab.socket.close()
        self._tab, self.agent = None, agent

    def send(self, *payloads: bytes) -> None:
        """Send and wait until all of it was looked at."""
        tab = self.tab
        try:
            for payload in payloads:
                self.sent += len(payload)
                tab.send(payload)
            tab.call()
        except OSError:
            tab.closed = tab.closed or 1006

    def ask(self, *messages: Any, **body: Any) -> None:
        """Send a request and wait for its end, whatever that is."""
        self._number += 1
        payload = request(f"q{self._number}", *messages, **body)
        self.sent += len(payload)
        tab = self.tab
        try:
            tab.send(payload)
            tab.until(f'"id":"q{self._number}"') and tab.call()
        except OSError:
            tab.closed = tab.closed or 1006

    def model(self, tool: str, **input: Any) -> None:
        """Have the model call a tool of ours, and wait for the end of the turn."""
        self.ask(self.new(f"{CALL}{tool} {json.dumps(input)}"))

    def new(self, text: str, parts: Sequence[Any] | None = None) -> dict[str, Any]:
        """A message that nobody has seen."""
        self._number += 1
        return message(text, id=f"n{self._number}", parts=parts)

    # --- more than frames

    def http(self, head: str, body: bytes = b"") -> None:
        """A request by HTTP, its answer read to the end."""
        with socket.create_connection(("127.0.0.1", self.port), PATIENCE) as plain:
            fields = f"Host: 127.0.0.1\r\nConnection: close\r\nContent-Length: {len(body)}"
            data = f"{head}\r\n{fields}\r\n\r\n".encode() + body
            self.sent += len(data)
            try:
                plain.sendall(data)
                while plain.recv(MIB):
                    pass
            except OSError:
                pass  # it was refused half way

    def files(self, rest: str, body: bytes | None = None, *, agent: str | None = None) -> None:
        """Ask for something of an agent's files; with a body, change it."""
        method = "GET" if body is None else "POST"
        path = f"/everthink/inspect/target/{agent or self.agent}/files{rest}"
        self.http(f"{method} {path} HTTP/1.1", body or b"")

    def prepare(self) -> None:
        """Let there be an agent whose workspace is full."""
        self.fresh(PREPARED)
        self.tab.send(b'{"type":"rpc","id":"fill","method":"fill","args":[]}')
        self.tab.until('"id":"fill"')

    def open_many(self, count: int) -> None:
        """Open sockets, as many at once as it gets, and leave."""
        tabs: list[Tab] = []
        try:
            for number in range(count):
                tabs.append(Tab(self.port, f"/agents/target/many-{number % 10}"))
        except (ConnectionError, OSError):
            pass
        for tab in tabs:
            try:
                tab.send((1000).to_bytes(2), CLOSE)
            except OSError:
                pass
            tab.socket.close()
        self.sent += 200 * count


def inputs(quick: bool) -> dict[str, Callable[[Stranger], object]]:
    """Everything that costs, by name: about the largest that is accepted, or the least that is not."""
    chat, words = b'{"type":"cf_agent_use_chat_request","id":"x","init":{"method":"POST","body":"', b'"}}'
    foreign = b'{"type":"nobody","x":'
    doubled = {
        f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{n + 1}"}, {"$ref": f"#/$defs/d{n + 1}"}]} for n in range(15)
    } | {"d15": {"type": "string"}}
    tool = {"properties": {"x": {"$ref": "#/$defs/d0"}}, "$defs": doubled}
    wide = {"properties": {f"p{n}": {"type": "string", "description": "x" * 100} for n in range(60)}}
    tools = [{"name": f"t{n}", "parameters": wide if n < 12 else {}} for n in range(64)]
    few = 5 if quick else 20
    found: dict[str, Callable[[Stranger], object]] = {
        "frame of 16 MiB, one text": lambda a: a.send(padded(foreign + b'"', b"x", b'"}')),
        "frame of 16 MiB, escapes": lambda a: a.send(padded(foreign + b'"', rb"\u00e9", b'"}')),
        "frame of 16 MiB, half emoji": lambda a: a.send(padded(foreign + b'"', rb"\ud83d", b'"}')),
        "frame of 16 MiB, emoji": lambda a: a.send(padded(foreign + b'"', "😀".encode(), b'"}')),
        "frame of 16 MiB, numbers": lambda a: a.send(padded(foreign + b"[1", b",1", b"]}")),
        "call with 198,000 slow numbers": lambda a: a.send(_numbers(b"1.2345678901234567e-300", 198_000)),
        "call with 490 slow numbers": lambda a: a.send(_numbers(b"1.7976931348623157e308", 490)),
        "call with 39,000 long numbers": lambda a: a.send(_numbers(b"9007199254740993.0", 39_000)),
        "frame of 16 MiB, lists": lambda a: a.send(padded(foreign + b"[[]", b",[]", b"]}")),
        "frame of 16 MiB, brackets": lambda a: a.send(padded(foreign, b"[", b"")),
        "frame of 190,000 keys": lambda a: a.send(
            json.dumps({"type": "nobody", "x": {f"k{n}": 1 for n in range(94_000)}}).encode()
        ),
        "request of 16 MiB, one text": lambda a: a.send(padded(chat, b"x", words)),
        "request of 16 MiB, a body of lists": lambda a: a.send(padded(chat + b"[", b"[],", b"[]]" + words)),
        "request of 16 MiB, escaped quotes": lambda a: a.send(padded(chat, rb"\"", words)),
        "transcript of 16,000 messages": lambda a: a.ask(
            *(message(f"This is number {n} of many. " * 3, id=f"old{n:012}") for n in range(15_990)),
            a.new("Hi"),
        ),
        "message of 1 MiB, short words": lambda a: a.ask(a.new("a b " * (MIB // 4 - 100))),
        "message of 1 MiB, all different": lambda a: a.ask(
            a.new(" ".join(f"w{n:x}" for n in range(MIB // 8)))
        ),
        "message of 1 MiB, Chinese": lambda a: a.ask(a.new("話" * (MIB // 3 - 100))),
        "message with a file of 8 MiB": lambda a: a.ask(a.new("", parts=[_file(8 * MIB - 4096)])),
        "message of 256 parts": lambda a: a.ask(
            a.new("", parts=[{"type": "text", "text": "x" * 4000}] * 256)
        ),
        "16 new messages, 1 MiB in all": lambda a: a.ask(*(a.new("some words " * 5_900) for _ in range(16))),
        "16 new messages of 900 KiB": lambda a: a.ask(*(a.new("some words " * 80_000) for _ in range(16))),
        "a turn after 20 messages of 1 MiB": _long_conversation,
        "64 tools of 128 KiB": lambda a: a.ask(a.new("Hi"), clientTools=tools),
        "a tool of doubling references": lambda a: a.ask(
            a.new("Hi"), clientTools=[{"name": SHOW, "parameters": tool}]
        ),
        "a body of 64 KiB": lambda a: a.ask(a.new("Hi"), more={"x": "y" * 65_000}),
        "state of 1 MiB": lambda a: a.send(
            json.dumps({"type": "cf_agent_state", "state": {"x": "y" * (MIB - 100)}}).encode()
        ),
        "state of 90,000 keys": lambda a: a.send(
            json.dumps({"type": "cf_agent_state", "state": {f"k{n:x}": 1 for n in range(80_000)}}).encode()
        ),
        "result of a tool, 1 MiB": _tool_result,
        "2,000 acks": lambda a: a.send(*_many(b'{"type":"cf_agent_stream_resume_ack","id":"q1"}', 2000)),
        "20,000 frames of one sign": lambda a: a.send(*_many(b"x", 20_000)),
        "10,000 probes": lambda a: a.send(*_many(b'{"type":"cf_agent_stream_resume_request"}', 10_000)),
        "1,000 requests at once": lambda a: a.send(*(request(f"f{n}", a.new("Hi")) for n in range(1000))),
        "1,000 calls at once": lambda a: a.send(*_many(_call(), 1000)),
        f"{few} calls with 1 MiB": lambda a: a.send(*_many(_call("x" * (MIB - 100)), few)),
        "100 clears": lambda a: a.send(*_many(b'{"type":"cf_agent_chat_clear"}', 100)),
        "300 sockets": lambda a: a.open_many(300),
        "HTTP, a body of 16 MiB": lambda a: a.http("POST /agents/target/a HTTP/1.1", b"x" * (16 * MIB - 1)),
        "HTTP, a header of 60 KiB": lambda a: a.http(
            "GET /agents/target/a HTTP/1.1\r\nX-Long: " + "x" * 60_000
        ),
        "HTTP, 50 × get-messages": lambda a: [
            a.http("GET /agents/target/a/get-messages HTTP/1.1") for _ in range(50)
        ],
        "HTTP, multipart of 16 MiB, one part": lambda a: _multipart(a, [b"x" * (16 * MIB - 4096)]),
        "HTTP, multipart of 900 parts": lambda a: _multipart(a, [b"x" * 16_000] * 900),
        "HTTP, multipart of 100,000 parts": lambda a: _multipart(a, [b"x"] * 100_000),
        "upload of 32 MiB, text": lambda a: a.files("/upload?path=/a", b"some words " * (32 * MIB // 11)),
        "upload of 32 MiB, bytes": lambda a: a.files("/upload?path=/a", bytes(range(256)) * (MIB // 8)),
        "upload of 32 MiB, Chinese": lambda a: a.files("/upload?path=/a", "話".encode() * (32 * MIB // 3)),
        "upload of 32 MiB, and four times its bytes": _up_and_down,
        "upload of 32 MiB that is refused": lambda a: a.files("/upload?path=/a", b"x" * (33 * MIB)),
        "500 uploads of 1 KiB": lambda a: [
            a.files(f"/upload?path=/many/{n}", b"some words " * 93) for n in range(500)
        ],
        "500 uploads over one file, and all changes": _rewritten,
        "a diff of 32 MiB": _long_diff,
        "a diff of 9,000 lines that are alike": _alike,
        "200 requests to a child of a child of …": lambda a: [
            a.http(f"POST /agents/target/a{''.join(f'/sub/child/c{n % 7}' for _ in range(4))} HTTP/1.1")
            for n in range(200)
        ],
        "a path of 60 KiB of children": lambda a: [
            a.http(f"{method} /agents/target/a{'/sub/child/c' * 5000} HTTP/1.1") for method in ("GET", "POST")
        ],
        "a model: braces to find": lambda a: a.model("find", pattern="{" * 4_096),
        "a model: stars to find": lambda a: a.model("find", pattern="*a" * 1_000),
        "a model: a pattern without end": _endless,
        "a model: a place that is there a hundred thousand times": _overlapping,
        "a model: reads a text of 32 MiB": lambda a: _reads(a, offset=900_000),
        "a model: edits a text of 32 MiB": lambda a: _reads(a, old_string="zz", new_string="y"),
        "a model: code that makes gigabytes of a text": lambda a: _coded(
            a, "await state.replace_in_file(path='/a', search='a', replacement='b' * 20_000)"
        ),
        "a model: code that reads a text of 32 MiB": lambda a: _coded(a, "open('/b').read(1)"),
        "a model: code that writes on, 100 times": lambda a: _coded(
            a, "for n in range(100):\n    await state.append_file(path='/a', content='x' * 10_000)"
        ),
        "a model: code with 900 calls": lambda a: _coded(
            a, "for n in range(900):\n    await state.exists(path='/a')"
        ),
        "a model: code that gives a list in a million places": lambda a: _coded(
            a, "a = [0]\nfor i in range(40):\n    a = [a, a]\nawait state.write_json(path='/x', value=a)"
        ),
        "a model: code that returns one": lambda a: _coded(
            a, "a = [0]\nfor i in range(40):\n    a = [a, a]\na"
        ),
        "a model: code that looks for a pattern of 900,000": lambda a: _coded(
            a, "await state.search_text(path='/a', query='a' * 900_000)"
        ),
        "a model: code that shows 100 lines around 10,000 places": lambda a: _coded(
            a,
            "await state.write_file(path='/c', content=('a' * 90 + '\\n') * 9_000)\n"
            "await state.search_text(path='/c', query='a', context_before=100, context_after=100,"
            " max_matches=10_000)",
        ),
        "a model: code that gives long things 100 times": lambda a: _coded(
            a, "for n in range(100):\n    await state.write_file(path='/x', content='x' * 900_000)"
        ),
        "full workspace: listed to its end": _listed,
        "full workspace: its changes": lambda a: a.files("/changes", agent=PREPARED),
        "full workspace: their differences": lambda a: a.files("/diff?first=1&last=99999", agent=PREPARED),
        "full workspace: searched": _searched,
        "full workspace: deleted and put back": _put_back,
        "full workspace: one file too many": lambda a: [
            a.files(f"/upload?path=/{n}/x", b"x", agent=PREPARED) for n in range(20)
        ],
    }
    return found


def _endless(a: Stranger) -> None:
    a.files("/upload?path=/a", b"a" * 40 + b"!")
    a.model("grep", query="(a|aa)+$")


def _overlapping(a: Stranger) -> None:
    a.files("/upload?path=/a", b"a" * MIB)
    a.model("edit", path="/a", old_string="a" * 900_000, new_string="b")


def _reads(a: Stranger, **input: Any) -> None:
    a.files("/upload?path=/b", b"some words, so many\n" * (32 * MIB // 20))
    a.model("edit" if "old_string" in input else "read", path="/b", **input)


def _coded(a: Stranger, code: str) -> None:
    a.files("/upload?path=/a", b"a" * 900_000)
    if "/b" in code:
        a.files("/upload?path=/b", b"some words, so many\n" * (32 * MIB // 20))
    a.model("execute", code=code)


def _multipart(a: Stranger, parts: Sequence[bytes]) -> None:
    head = b'--b\r\nContent-Disposition: form-data; name="f"; filename="f"\r\n\r\n'
    body = b"".join(head + part + b"\r\n" for part in parts) + b"--b--\r\n"
    form = "Content-Type: multipart/form-data; boundary=b"
    a.http(f"POST /agents/target/{a.agent} HTTP/1.1\r\n{form}", body)


def _up_and_down(a: Stranger) -> None:
    a.files("/upload?path=/a", b"some words " * (32 * MIB // 11))
    for _ in range(4):
        a.files("/content?path=/a")


def _rewritten(a: Stranger) -> None:
    for number in range(500):
        a.files("/upload?replace=1&path=/one", b"some words " * 90 + str(number).encode())
    for _ in range(5):
        a.files("/changes")
        a.files("/diff?first=1&last=500")


def _long_diff(a: Stranger) -> None:
    for unit in (b"some words\n", b"more words\n"):
        a.files("/upload?replace=1&path=/a", unit * (16 * MIB // 11))
    a.files("/diff?first=2&last=2")


def _alike(a: Stranger) -> None:
    for step in (1, 7):
        for name in range(10):
            text = "\n".join(str(n * step % 40) for n in range(9_000))
            a.files(f"/upload?replace=1&path=/{name}", text.encode())
    a.files("/diff?first=11&last=20")


def _listed(a: Stranger) -> None:
    for after in range(0, 50_000, 500):
        a.files(f"?path={FOLDER}&after={after:05}.py", agent=PREPARED)


def _searched(a: Stranger) -> None:
    a.fresh(PREPARED)
    for pattern in ("nothing has this", "line 4[0-9]* of"):
        a.tab.send(json.dumps({"type": "rpc", "id": "look", "method": "grep", "args": [pattern]}).encode())
        a.tab.until('"id":"look"')


def _put_back(a: Stranger) -> None:
    # Of what is deleted all is kept, and the last edit can be taken back however long it was.
    a.files("/delete", json.dumps({"path": FOLDER}).encode(), agent=PREPARED)
    a.fresh(PREPARED)
    a.files("/restore", b'{"seq":"%d"}' % _last_but(a, 50_000), agent=PREPARED)


def _last_but(a: Stranger, count: int) -> int:
    """The number of the change before the last ones."""
    with socket.create_connection(("127.0.0.1", a.port), PATIENCE) as plain:
        path = f"/everthink/inspect/target/{PREPARED}/files/changes"
        plain.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode())
        answer = b"".join(iter(lambda: plain.recv(MIB), b""))
    return int(json.loads(answer.partition(b"\r\n\r\n")[2])["last"]) - count


def _file(size: int) -> dict[str, Any]:
    return {"type": "file", "mediaType": "image/png", "url": "data:image/png;base64," + "A" * size}


def _many(payload: bytes, count: int) -> list[bytes]:
    return [payload] * count


def _call(*args: Any) -> bytes:
    return json.dumps({"type": "rpc", "id": "many", "method": "ping", "args": args}).encode()


def _numbers(number: bytes, count: int) -> bytes:
    """A call with numbers, and a text that gives it room for them."""
    head = b'{"type":"rpc","id":"many","method":"nobody","args":["' + b"x" * (5 * MIB // 2) + b'"'
    return head + (b"," + number) * count + b"]}"


def _long_conversation(a: Stranger) -> None:
    for _ in range(20):
        a.ask(a.new("some words " * 90_000))
    a.ask(a.new("Hi"))


def _tool_result(a: Stranger) -> None:
    tab = a.tab
    a.ask(a.new(SHOW), clientTools=[{"name": SHOW, "description": "Show it."}])
    for number in range(1, 4):  # one of these it is
        answer = {"type": "cf_agent_tool_result", "toolCallId": f"call-{number}", "toolName": SHOW}
        a.send(json.dumps({**answer, "output": "some words " * 90_000, "autoContinue": True}).encode())
    tab.call()


# --- measuring


@dataclass
class Window:
    """A stretch of time in which something was sent, or nothing."""

    began: float
    ended: float
    sent: int = 0
    grown: float = 0.0


@dataclass
class Found:
    """What one input did to B and to memory. Times in milliseconds."""

    what: str
    bytes: int
    usual: float
    longest: float
    quiet: float
    memory: float | None
    """Times the bytes, for inputs that are large."""

    @property
    def is_met(self) -> bool:
        """Whether both budgets are kept."""
        return self.longest - self.quiet <= MOST_WAIT and (self.memory or 0.0) <= MOST_MEMORY


def table(rows: Sequence[Found]) -> str:
    """The rows in Markdown, aligned for the terminal too."""
    budget = f"≤ {MOST_WAIT:.0f} ms more, ≤ {MOST_MEMORY:.0f} ×"
    lines = [HEAD, *(_cells(row, budget) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    lines.insert(1, tuple("-" * (width - 1) + (":" if i else "-") for i, width in enumerate(widths)))
    aligned = (
        [line[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(line[1:], widths[1:], strict=True))]
        for line in lines
    )
    return "\n".join(f"| {' | '.join(line)} |" for line in aligned)


def _cells(row: Found, budget: str) -> tuple[str, ...]:
    times = (f"{value:,.{0 if value >= 100 else 1}f} ms" for value in (row.usual, row.longest, row.quiet))
    memory = "" if row.memory is None else f"{row.memory:.1f} ×"
    return (row.what, f"{row.bytes:,}", *times, memory, budget, "met" if row.is_met else "MISSED")


def measured(folder: Path, *, quick: bool, take: Callable[[list[Found]], object], only: str = "") -> None:
    """Try everything and hand a row for each input to `take`."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    server = Server("strangers", folder)
    times = 1 if quick else 3
    asked = {name: work for name, work in inputs(quick).items() if only in name}
    windows: dict[str, list[tuple[Window, Window]]] = {name: [] for name in asked}
    command = [sys.executable, "-m", "bench.strangers", str(server.port)]
    b = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert b.stdout is not None
        assert b.stdin is not None
        b.stdout.readline()
        a = Stranger(server.port)
        if any(name.startswith(PREPARED) for name in asked):
            a.prepare()
        for round_ in range(times):
            for name, work in asked.items():
                windows[name].append(_attack(server, a, work, f"{round_}-{name[:20]}".replace(" ", "-")))
        b.stdin.write("\n")
        b.stdin.flush()
        samples: list[tuple[float, float]] = json.loads(b.stdout.readline())
    finally:
        b.kill()
        server.stop()
    for name, tries in windows.items():
        take([_row(name, tries, samples)])


def _attack(
    server: Server, a: Stranger, work: Callable[[Stranger], object], agent: str
) -> tuple[Window, Window]:
    """A quiet moment, then the input. Both with a moment after it, in which what it began may go on."""
    quiet = Window(time.monotonic(), 0.0)
    time.sleep(0.5)
    quiet.ended = time.monotonic()
    a.fresh("".join(sign if sign.isalnum() else "-" for sign in agent))
    a.tab.call()
    before = resident(server.pid)
    Path(f"/proc/{server.pid}/clear_refs").write_text("5")
    loud, a.sent = Window(time.monotonic(), 0.0), 0
    work(a)
    time.sleep(0.2)
    loud.ended, loud.sent = time.monotonic(), a.sent
    loud.grown = _highest(server.pid) - before
    return quiet, loud


def _highest(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


def _row(name: str, tries: Sequence[tuple[Window, Window]], samples: Sequence[tuple[float, float]]) -> Found:
    def waits(window: Window) -> list[float]:
        return [
            took * 1e3 for began, took in samples if window.began <= began + took and began <= window.ended
        ]

    best = min(tries, key=lambda pair: max(waits(pair[1]), default=0.0) - max(waits(pair[0]), default=0.0))
    quiet, loud = waits(best[0]), waits(best[1])
    return Found(
        name,
        best[1].sent,
        median(loud) if loud else 0.0,
        max(loud, default=0.0),
        max(quiet, default=0.0),
        max(loud.grown / loud.sent for _, loud in tries) if best[1].sent >= SMALL else None,
    )


if __name__ == "__main__":
    probe(int(sys.argv[1]))
