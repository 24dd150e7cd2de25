"""What files of an agent cost: writing and reading one, and looking through ten thousand."""

from __future__ import annotations

import time
from pathlib import Path
from statistics import median

from everthink.clock import SystemClock
from everthink.runtime.schema import MIGRATIONS
from everthink.sqlite import open_sqlite
from everthink.store.port import AgentStore
from everthink.workspace import Put, Workspace, WorkspaceLimits

from .measure import Row, calm

FILES, LINES = 10_000, 88
LINE = "def handle_{0}(request, response):  # what line {0} of this file is good for, at some length\n"


async def workspace(folder: Path, *, quick: bool) -> list[Row]:
    """A file of 3 KB written and read, one at a time; then a search with no hit through all there is."""
    many = FILES // 10 if quick else FILES
    store = await open_sqlite(folder / "workspace.db", MIGRATIONS)
    try:
        limits = WorkspaceLimits(files_bytes=1 << 30)
        files = Workspace(limits=limits).bind(AgentStore(store, "Bench/files"), clock=SystemClock())
        written, read = await _one_by_one(files, times=100 if quick else 400)
        size = await _fill(files, many)
        looked = await _look(files, times=2 if quick else 5)
    finally:
        await store.close()
    amount = f"{many:,} files, {size / 1e6:.0f} MB"
    return [
        Row("Write a file of 3 KB", "ms", {"everthink": written * 1e3}).held_to(
            "≤ 0.5 ms", written <= 0.0005
        ),
        Row("Read a file of 3 KB", "ms", {"everthink": read * 1e3}).held_to("≤ 0.1 ms", read <= 0.0001),
        Row(f"Search {amount}, no hit", "ms", {"everthink": looked * 1e3}).held_to("≤ 600 ms", looked <= 0.6),
    ]


async def _one_by_one(files: Workspace, *, times: int) -> tuple[float, float]:
    text = "0123456789" * 300
    written: list[float] = []
    read: list[float] = []
    calm()
    for number in range(times):
        began = time.perf_counter()
        await files.write_file(f"/notes/{number}.txt", f"{text}{number}")
        written.append(time.perf_counter() - began)
    for number in range(times):
        began = time.perf_counter()
        await files.read_file(f"/notes/{number}.txt")
        read.append(time.perf_counter() - began)
    return median(written), median(read)


async def _fill(files: Workspace, many: int) -> int:
    size = 0
    for start in range(0, many, 500):
        edits: list[Put] = []
        for number in range(start, start + 500):
            data = "".join(LINE.format(f"{number}_{line}") for line in range(LINES)).encode()
            edits.append(Put(f"/code/{number // 100:03}/{number:05}.py", data))
            size += len(data)
        await files.apply(edits)
    return size


async def _look(files: Workspace, *, times: int) -> float:
    taken: list[float] = []
    for _ in range(times):
        calm()
        began = time.perf_counter()
        assert (await files.grep(r"zzqqxx\d+", "/code")).found == []
        taken.append(time.perf_counter() - began)
    return median(taken)
