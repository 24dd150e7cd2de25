"""What it costs to be on the network: a server process, a crowd of chat windows, real sockets.

    sockets.py --starts--> served.py (everthink, bare sockets) <--WebSocket--> crowd.py

The floor is a bare socket that sends the same frames. Think (JS) was measured once, by itself; the budgets
are about its figures. CPU is the server's, all threads. The contestants take turns. Values and ratios are
medians of the repetitions; what is measured on the wall's clock is the best of them, since other programs
can only make it worse.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from .measure import PATIENCE, Row
from .work import ALOUD, BURST, CHILDREN, FAMILY, PACED, PIECES, SHORT, SLOW, STEADY, WIRE, Job

OURS, BARE, THINK = "everthink", "bare socket", "Think (JS)"
COLUMNS = (BARE, OURS, THINK)
MANY = 200
"""So many agents, or readers."""
HISTORY = 12
"""So many short turns of one agent are recorded for the floor: the conversation is sent after each."""

THINK_DELTA = 250.0
"""µs of CPU for a delta to one reader."""
THINK_TURNS = 75.0
"""Short turns in a second of CPU, 200 agents."""
THINK_IDLE = 0.7 * 1024
"""KiB of an agent that is connected and idle."""

Found = dict[str, Any]
Figure = Callable[[Found], float]
Plays = dict[str, list[Found]]


class Server:
    """A server process of one contestant."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        command = [sys.executable, "-m", "bench.served", "floor" if name == BARE else name, str(folder)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.pid = self._process.pid
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())

    def play(self, scene: str, job: Job, agent: str, **settings: Any) -> Found:
        """A scene of the crowd with this server."""
        path, pid = f"/agents/{job.name.lower()}/{agent}", self.pid
        asked = json.dumps({"scene": scene, "path": path, "port": self.port, "pid": pid, **settings})
        ran = subprocess.run([sys.executable, "-m", "bench.crowd", asked], stdout=subprocess.PIPE, check=True)
        return json.loads(ran.stdout)

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait()


class Comparison:
    """The same scenes for all contestants, some times over, always with new agents."""

    def __init__(self, servers: Sequence[Server], repetitions: int) -> None:
        self._servers, self._repetitions = servers, repetitions
        self._agents = 0

    def play(
        self, scene: str, job: Job, *, variants: dict[str, Found] | None = None, **settings: Any
    ) -> Plays:
        """What was found, by contestant; with `variants` by the names of those, of everthink only."""
        ours = self._servers[0]
        parts: dict[str, tuple[Server, Found]] = {s.name: (s, settings) for s in self._servers}
        if variants is not None:
            parts = {name: (ours, {**settings, **more}) for name, more in variants.items()}
        found: Plays = {name: [] for name in parts}
        end = time.perf_counter() + PATIENCE
        for repetition in range(self._repetitions):
            if repetition and time.perf_counter() > end:
                break
            for name, (server, asked) in parts.items():
                self._agents += 1
                found[name].append(server.play(scene, job, str(self._agents), **asked))
        return found


def measured(folder: Path, *, quick: bool, take: Callable[[list[Row]], object]) -> None:
    """Measure everything and hand the rows to `take` as they come."""
    ours = Server(OURS, folder)
    servers = [ours]
    try:
        _record(ours, folder)
        servers.append(Server(BARE, folder))
        compare = Comparison(servers, 1 if quick else 3)
        take(_deltas(compare))
        take(_turns(compare, turns=4 if quick else 10))
        take(_calm(compare, seconds=2 if quick else 5))
        take(_readers(compare))
        take(_children(ours, repetitions=1 if quick else 3))
        take(_beside_a_sleeper(compare))
        take([_asleep(ours)])
    finally:
        for server in servers:
            server.stop()
    take([_idle(folder, agents=300 if quick else 1000)])


def _record(ours: Server, folder: Path) -> None:
    frames = {
        job.name: ours.play("record", job, "recorded", turns=HISTORY if job is SHORT else 1) for job in WIRE
    }
    (folder / "frames.json").write_text(json.dumps(frames))


# --- scenes


def _deltas(compare: Comparison) -> list[Row]:
    """One agent, one reader, and many of both at a steady pace."""
    one = "CPU per delta to one reader"
    burst = compare.play("readers", BURST, readers=1, turns=5)
    paced = compare.play("readers", PACED, readers=1, turns=5)
    slow = compare.play("readers", SLOW, readers=1, turns=1)
    steady = compare.play("chats", STEADY, agents=MANY, turns=1, warm=0)
    rows = [
        _row(f"{one}, burst of 2,000", "µs", burst, _cpu_per("chunks"), think=THINK_DELTA),
        _row(f"{one}, a turn of the loop between them", "µs", paced, _cpu_per("chunks"), think=THINK_DELTA),
        _row(f"{one}, {MANY} streams of 50 a second", "µs", steady, _cpu_per("chunks"), think=THINK_DELTA),
        _row(f"{one}, one stream of 250 a second", "µs", slow, _cpu_per("chunks")),
    ]
    for row in rows[:3]:
        row.held_to("≤ 1/4 of Think (JS)", row.values[OURS] <= THINK_DELTA / 4)
    return rows


def _turns(compare: Comparison, *, turns: int) -> list[Row]:
    """Many agents with one socket each, one short turn after the other."""
    found = compare.play("chats", SHORT, agents=MANY, turns=turns)
    what = f"{MANY} agents"
    per_core = _row(
        f"short turns in a second of CPU, {what}",
        "1/s",
        found,
        lambda one: one["turns"] / one["cpu"],
        think=THINK_TURNS,
    )
    per_core.held_to("≥ 8 × Think (JS)", per_core.values[OURS] >= 8 * THINK_TURNS)
    rate = _row(
        f"short turns per second, {what}", "1/s", found, lambda one: one["turns"] / one["wall"], best=max
    )
    return [per_core, rate, *_firsts(f"{what} as fast as they can", found)]


def _calm(compare: Comparison, *, seconds: int) -> list[Row]:
    """Turns that have air between them: many agents that ask once in a second, and one alone."""
    spread = compare.play("chats", SHORT, agents=MANY, turns=seconds, every=1.0)
    alone = compare.play("chats", SHORT, agents=1, turns=10)
    return [
        *_firsts(f"{MANY} agents, one turn a second each", spread),
        *_firsts("one agent alone", alone, only_median=True),
    ]


def _firsts(what: str, found: Plays, *, only_median: bool = False) -> list[Row]:
    def late(share: float) -> Figure:
        return lambda one: sorted(one["firsts"])[int(len(one["firsts"]) * share)] * 1e3

    rows = [_row(f"wall to the first frame, {what}, median", "ms", found, late(0.5), best=min)]
    if not only_median:
        rows.append(_row(f"wall to the first frame, {what}, 99 %", "ms", found, late(0.99), best=min))
    return rows


def _readers(compare: Comparison) -> list[Row]:
    """One agent, many readers."""
    burst = compare.play("readers", ALOUD, readers=MANY, turns=3)
    slow = compare.play("readers", SLOW, readers=MANY, turns=1)
    rate = f"chunks delivered per second, {MANY} readers"
    return [
        _row(rate, "1/s", burst, lambda one: one["chunks"] / one["wall"], best=max),
        _row(f"CPU per chunk delivered, {MANY} readers, burst", "µs", burst, _cpu_per("chunks")),
        _row(f"CPU per chunk delivered, {MANY} readers, slow stream", "µs", slow, _cpu_per("chunks")),
    ]


def _children(ours: Server, *, repetitions: int) -> list[Row]:
    """Many children whose parent has one reader, against as many agents with one reader each."""
    children: list[float] = []
    agents: list[float] = []
    for number in range(repetitions):
        for cpu, job, count in ((children, FAMILY, 1), (agents, STEADY, CHILDREN)):
            found = ours.play("chats", job, f"many-{number}", agents=count, turns=1, warm=0)
            cpu.append(found["cpu"] / (CHILDREN * STEADY.words) * 1e6)
    what = f"CPU per delta to one reader, {CHILDREN} children of one parent, 50 a second each"
    times = median(one / other for one, other in zip(children, agents, strict=True))
    return [
        Row(what, "µs", {OURS: median(children)}),
        Row(f"… against {CHILDREN} agents with a reader each", "×", {OURS: times}),
    ]


def _beside_a_sleeper(compare: Comparison) -> list[Row]:
    """The same while one of them never reads, and has not for a while: the others must not notice."""
    variants = {"awake": {}, "asleep": {"sleeper": True}}
    found = compare.play("readers", ALOUD, readers=MANY, turns=8, before=25, variants=variants)
    rows: list[Row] = []
    for kind, name, judge in (("wall", "wall", min), ("cpu", "CPU", median)):
        awake, asleep = (judge(one[kind] / one["chunks"] for one in found[who]) for who in variants)
        what = f"{name} per chunk delivered while one of {MANY} never reads, against without"
        rows.append(Row(what, "×", {OURS: asleep / awake}))
    return rows


def _asleep(ours: Server) -> Row:
    """A reader that never reads while more is said than may wait for it. It is closed, and comes back."""
    found = ours.play("asleep", PIECES, "asleep", readers=20, turns=10)
    row = Row("memory grown by a reader that never reads", "MB", {OURS: found["grown"] / 1e6})
    is_fine = found["closed"] in (1013, 1006) and found["has all"] and found["grown"] < 32e6
    return row.held_to("closed, back with all", is_fine)


def _idle(folder: Path, *, agents: int) -> Row:
    """Agents that are connected and idle, in fresh processes."""
    found: Plays = {}
    for name in (BARE, OURS):
        server = Server(name, folder)
        found[name] = [server.play("idle", SHORT, "idle", agents=agents)]
        server.stop()
    row = _row(
        "memory per connected idle agent", "KiB", found, lambda one: one["memory"] / 1024, think=THINK_IDLE
    )
    return row.held_to("≤ 40 KiB", row.values[OURS] <= 40)


# --- figures


def _row(
    what: str,
    unit: str,
    found: Plays,
    figure: Figure,
    *,
    best: Callable[..., float] | None = None,
    think: float | None = None,
) -> Row:
    """`best` is `min` or `max` for times on the wall; without it values and ratios are medians."""
    figures = {name: [figure(one) for one in plays] for name, plays in found.items()}
    values = {name: (best or median)(some) for name, some in figures.items()}
    ratios = [ours / bare for ours, bare in zip(figures[OURS], figures[BARE], strict=True)]
    row = Row(what, unit, values, values[OURS] / values[BARE] if best else median(ratios))
    if think is not None:
        row.values[THINK], row.times_peer = think, values[OURS] / think
    return row


def _cpu_per(what: str) -> Figure:
    return lambda found: found["cpu"] / found[what] * 1e6
