"""What grows or stands still: late turns, the file, opening an agent, importing the package, idle agents."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from everthink import App, Message
from everthink.journal import queries

from .measure import PATIENCE, Row, calm, live
from .ours import agent_class
from .work import QUESTION, SHORT, Contestant


async def growth(contestants: Sequence[Contestant], *, agents: int) -> list[Row]:
    """CPU of the turns around number 100 and 200 of a conversation against those around number 2."""
    windows = {2: range(2, 6), 100: range(98, 102), 200: range(198, 202)}
    taken: dict[str, dict[int, list[float]]] = {c.name: {at: [] for at in windows} for c in contestants}
    end = time.perf_counter() + PATIENCE
    for number in range(agents):
        if number and time.perf_counter() > end:
            break
        for contestant in contestants:
            calm()
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
        rows.append(Row(f"CPU of turn {at} against turn 2", "×", values))
    rows[0].held_to("≤ 1.2 ×", rows[0].values["everthink"] <= 1.2)
    return rows


async def size(folder: Path) -> list[Row]:
    """The closed file after 100 short turns of one agent, then without the deltas of its ended turns.

    Closing gives the freed pages back by itself (incremental vacuum); VACUUM afterwards finds nothing.
    """
    cls, path = agent_class(SHORT), folder / "size.db"
    async with App(cls, store=f"sqlite:///{path}") as app:
        await app.open()
    empty = path.stat().st_size
    async with App(cls, store=f"sqlite:///{path}") as app:
        for _ in range(100):
            await app.agent(cls, "one").save_messages(QUESTION)
    full = path.stat().st_size
    async with App(cls, store=f"sqlite:///{path}") as app:
        store = (await app.open()).store
        await store.apply([queries.pruned(before=time.time_ns())], agent=f"{cls.__name__}/one")
        assert not await store.fetch("SELECT 1 FROM segments"), "segments are left"
    pruned = path.stat().st_size
    return [
        Row("file after 100 short turns", "KB", {"everthink": full / 1000}).held_to(
            "≤ 300 KB", full <= 300_000
        ),
        Row("… with their deltas pruned", "KB", {"everthink": pruned / 1000}).held_to(
            "≤ 150 KB", pruned <= 150_000
        ),
        Row("… of which the empty database, once for all agents", "KB", {"everthink": empty / 1000}),
    ]


async def cold_open(folder: Path, *, repetitions: int) -> list[Row]:
    """Reach an agent with 1,000 messages of 150 characters that was evicted. The OS has the file cached."""
    cls, text = agent_class(SHORT), "Somebody said something here. " * 5
    roles = ("user", "assistant")
    messages = [Message(f"m{i}", roles[i % 2], [{"type": "text", "text": text}]) for i in range(1000)]
    cpu: list[float] = []
    wall: list[float] = []
    async with App(cls, store=f"sqlite:///{folder / 'cold.db'}") as app:
        agent = app.agent(cls, "old")
        await agent.add_messages(messages)
        for _ in range(repetitions):
            await app.evict(cls, "old")
            calm()
            began = time.process_time(), time.perf_counter()
            opened = await live(agent)
            cpu.append((time.process_time() - began[0]) * 1e3)
            wall.append((time.perf_counter() - began[1]) * 1e3)
            assert len(opened.session.path) == 1000
    row = Row("CPU of a cold open, 1,000 messages", "ms", {"everthink": median(cpu)})
    row.held_to("≤ 10 ms", median(cpu) <= 10)
    return [row, Row("wall of a cold open, 1,000 messages", "ms", {"everthink": median(wall)})]


# What the first line of an agent's module imports.
USED = {"everthink": "from everthink import App, Think, tool", "pydantic_ai": "from pydantic_ai import Agent"}

FIRST_AGENT = """
import asyncio
async def first():
    async with App(type("First", (Think,), {}), store=":memory:") as app:
        await app.agent(next(iter(app.classes)), "one").get_messages()
asyncio.run(first())
"""


def imports(packages: Sequence[str], *, repetitions: int) -> list[Row]:
    """What a new process pays to import what an agent is made of, and until the first agent is there."""
    timed = "import time; c, w = time.process_time(), time.perf_counter()\n{}\n"
    timed += "print(time.process_time() - c, time.perf_counter() - w)"
    cpu: dict[str, list[float]] = {package: [] for package in packages}
    wall: dict[str, list[float]] = {package: [] for package in packages}
    ready: list[float] = []
    for _ in range(repetitions):
        for package in packages:
            spent, passed = _python("-c", timed.format(USED[package])).stdout.split()
            cpu[package].append(float(spent) * 1e3)
            wall[package].append(float(passed) * 1e3)
        ready.append(
            float(_python("-c", timed.format(USED["everthink"] + FIRST_AGENT)).stdout.split()[0]) * 1e3
        )
    rows: list[Row] = []
    for what, taken in (("CPU of the import", cpu), ("wall of the import", wall)):
        values = {package.replace("_", "-"): median(times) for package, times in taken.items()}
        peer = values.get("pydantic-ai")
        rows.append(Row(what, "ms", values, None, values["everthink"] / peer if peer else None))
    rows[0].held_to("≤ 200 ms", rows[0].values["everthink"] <= 200)
    rows.append(Row("CPU of the import and the first agent", "ms", {"everthink": median(ready)}))
    return rows


def idle(folder: Path, *, agents: int) -> list[Row]:
    """Memory of live idle agents, fresh and after a turn, the disk of agents that exist, and children."""
    rows: list[Row] = []
    taken: dict[str, float] = {}
    for how in ("fresh", "talked", "child", "run"):
        ran = _python("-m", "bench.idle", how, str(agents), str(folder / f"{how}.db"))
        taken[how], disk = (size / 1024 for size in json.loads(ran.stdout))
        if how in ("fresh", "talked"):
            row = Row(f"memory per live idle agent, {how}", "KiB", {"everthink": taken[how]})
            rows.append(row.held_to("≤ 40 KiB", taken[how] <= 40))
        if how == "fresh":
            row = Row("disk per idle agent", "KiB", {"everthink": disk})
            rows.append(row.held_to("≤ 2 KiB", disk <= 2))
    for how, what, other in (("child", "fresh", "fresh"), ("run", "after a run", "talked")):
        rows.append(Row(f"memory per live idle child, {what}", "KiB", {"everthink": taken[how]}))
        rows.append(Row(f"… against an agent, {other}", "×", {"everthink": taken[how] / taken[other]}))
    return rows


def startup(folder: Path, *, idle: int, cut: int) -> list[Row]:
    """Start-up with many idle agents and some turns that were cut off, against that with few idle ones."""
    few = json.loads(_python("-m", "bench.startup", str(cut), str(cut), str(folder / "few.db")).stdout)
    many = json.loads(_python("-m", "bench.startup", str(idle), str(cut), str(folder / "many.db")).stdout)
    crowd = f"{idle:,} idle agents"
    return [
        Row(f"open the app, {crowd}", "ms", {"everthink": many[0]}),
        Row(f"first answer of an idle agent, {crowd}", "ms", {"everthink": many[1]}),
        Row(f"until {cut} cut-off turns are finished, {crowd}", "ms", {"everthink": many[2]}),
        Row(f"CPU of that start-up, {crowd}", "ms", {"everthink": many[3]}),
        Row(f"… against {cut} idle agents", "×", {"everthink": many[3] / few[3]}),
    ]


def _python(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=True)
