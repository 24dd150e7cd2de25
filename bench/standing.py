"""What grows or stands still: late turns, the file, opening an agent, importing the package."""

from __future__ import annotations

import gc
import json
import sqlite3
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from statistics import median

from everthink import App, Message
from everthink.turn import queries

from .measure import Row
from .ours import agent_class
from .work import QUESTION, SHORT, Contestant

__all__ = ["cold_open", "growth", "idle", "imports", "size"]


async def growth(contestants: Sequence[Contestant], *, agents: int) -> list[Row]:
    """CPU of the turns around number 100 and 200 of one agent against those around number 2."""
    windows = {2: range(2, 6), 100: range(98, 102), 200: range(198, 202)}
    taken: dict[str, dict[int, list[float]]] = {c.name: {at: [] for at in windows} for c in contestants}
    for number in range(agents):
        for contestant in contestants:
            gc.collect()
            for turn in range(1, 202):
                cpu = time.process_time()
                await contestant.turn(f"growing {number}", SHORT)
                cpu = time.process_time() - cpu
                for at, window in windows.items():
                    if turn in window:
                        taken[contestant.name][at].append(cpu)
    rows: list[Row] = []
    for at in (100, 200):
        values = {name: median(costs[at]) / median(costs[2]) for name, costs in taken.items()}
        row = Row(f"CPU of turn {at} against turn 2", "×", values)
        row.budget, row.is_met = "≤ 1.2 ×", values["everthink"] <= 1.2
        rows.append(row)
    rows[1].budget, rows[1].is_met = "", None
    return rows


async def size(folder: Path) -> list[Row]:
    """The file after 100 short turns of one agent; without the deltas of ended turns; and after VACUUM."""
    cls, path = agent_class(SHORT), folder / "size.db"
    async with App(cls, store=f"sqlite:///{path}") as app:
        for _ in range(100):
            await app.agent(cls, "one").save_messages(QUESTION)
    full = path.stat().st_size
    async with App(cls, store=f"sqlite:///{path}") as app:
        store = (await app.open()).store
        await store.apply([queries.pruned(f"{cls.__name__}/one", before=_now_ms() + 1)])
    pruned = path.stat().st_size
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT COUNT(*) FROM segments").fetchone() == (0,), "nothing was pruned"
        db.execute("VACUUM")
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    vacuumed = path.stat().st_size
    return [
        _kilobytes("file after 100 short turns, with deltas", full, 300),
        _kilobytes("… deltas pruned, app closed", pruned, 150),
        _kilobytes("… and VACUUM", vacuumed, None),
    ]


def _kilobytes(what: str, size: int, budget: int | None) -> Row:
    row = Row(what, "KB", {"everthink": size / 1000})
    if budget:
        row.budget, row.is_met = f"≤ {budget} KB", size <= budget * 1000
    return row


async def cold_open(folder: Path, *, repetitions: int) -> list[Row]:
    """Reach an agent with 1,000 messages (150 characters each) that is not in memory. The OS has the file cached."""
    cls = agent_class(SHORT)
    text = "Somebody said something here. " * 5
    async with App(cls, store=f"sqlite:///{folder / 'cold.db'}") as app:
        agent = app.agent(cls, "old")
        await agent.add_messages(
            [
                Message(f"m{i}", "assistant" if i % 2 else "user", [{"type": "text", "text": text}])
                for i in range(1000)
            ]
        )
        taken: list[float] = []
        for _ in range(repetitions):
            await app.evict(cls, "old")
            gc.collect()
            began = time.perf_counter()
            await agent.instance()
            taken.append(time.perf_counter() - began)
            assert len((await agent.instance()).session.path) == 1000
    row = Row("cold open of 1,000 messages (wall)", "ms", {"everthink": median(taken) * 1e3})
    row.budget, row.is_met = "≤ 10 ms", row.values["everthink"] <= 10
    return [row]


def imports(*, repetitions: int, peer: bool) -> list[Row]:
    """Import time in a new process each, as `-X importtime` sums it up (which adds some 10 % itself)."""
    taken: dict[str, list[float]] = {"everthink": []} | ({"pydantic_ai": []} if peer else {})
    for _ in range(repetitions):
        for package, times in taken.items():
            command = [sys.executable, "-X", "importtime", "-c", f"import {package}"]
            last = subprocess.run(command, capture_output=True, text=True, check=True).stderr.splitlines()[-1]
            assert last.split("|")[2].strip() == package
            times.append(int(last.split("|")[1]) / 1e3)
    values = {name.replace("_", "-"): median(times) for name, times in taken.items()}
    row = Row("import in a new process", "ms", values)
    row.times_peer = values["everthink"] / values["pydantic-ai"] if peer else None
    row.budget, row.is_met = "≤ 200 ms", values["everthink"] <= 200
    return [row]


def idle(folder: Path, *, agents: int) -> list[Row]:
    """Memory of agents that are live and idle, and the disk they need, measured in processes of their own."""
    seen: dict[str, float] = {}
    for how in ("rss", "traced", "talked"):
        command = [sys.executable, "-m", "bench.idle", how, str(agents), str(folder / f"{how}.db")]
        ran = subprocess.run(command, capture_output=True, text=True, check=True)
        seen |= json.loads(ran.stdout)
    names = {
        "rss": "memory per live idle agent (RSS)",
        "traced": "memory per live idle agent (traced)",
        "talked": "memory per live agent after one short turn (RSS)",
    }
    rows = [_kibibytes(names[how], seen[how], 40) for how in names]
    return [*rows, _kibibytes("disk per agent that exists", seen["disk"], 2)]


def _kibibytes(what: str, size: float, budget: int) -> Row:
    return Row(
        what, "KiB", {"everthink": size / 1024}, budget=f"≤ {budget} KiB", is_met=size <= budget * 1024
    )


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
