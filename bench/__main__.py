"""Measure what everthink costs, beside a hand-written loop and beside pydantic-ai, and print a table."""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import importlib.util
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from everthink.browser.chromium import find_chromium

from . import (
    bounds,
    browser,
    codemode,
    extensions,
    families,
    file_tools,
    machines,
    mcp,
    memory,
    messengers,
    sandbox,
    skills,
    sockets,
    standing,
    strangers,
    streams,
    workspace,
)
from .floor import BATCHED, PER_DELTA, Floor
from .measure import Row
from .ours import Ours
from .work import Contestant

COLUMNS = (PER_DELTA, BATCHED, "everthink", "pydantic-ai")
Take = Callable[[list[Row]], None]


async def in_process(folder: Path, *, quick: bool, take: Take) -> None:
    """All rows without a network."""
    everybody: list[Contestant] = [Floor(folder, PER_DELTA), Floor(folder, BATCHED), Ours(folder)]
    try:
        from .peer import Peer

        everybody.append(Peer())
    except ImportError:
        print(
            "pydantic-ai is not here, its column stays empty: pip install pydantic-ai-slim", file=sys.stderr
        )
    batched = [one for one in everybody if one.name != PER_DELTA]
    packages = ["everthink", "pydantic_ai"][: len(batched) - 1]
    many, few = (2, 1) if quick else (15, 7)
    take(await streams.deltas(everybody, repetitions=many))
    take(await streams.turns(everybody, repetitions=many))
    take(await streams.concurrency(batched, 20, repetitions=many))
    take(await streams.concurrency(batched, 200, repetitions=few))
    take(await streams.latency(everybody, repetitions=1 if quick else 4))
    take(await standing.growth(batched, agents=1 if quick else 8))
    for one in everybody:
        await one.close()
    take(await standing.size(folder))
    take(await standing.cold_open(folder, repetitions=5 if quick else 30))
    take(await memory.cold_open(folder, repetitions=5 if quick else 30))
    take(await memory.late_turns(folder, turns=250 if quick else 2500))
    take(await families.delegation(folder, repetitions=many))
    take(await families.crowd(folder, repetitions=few))
    if importlib.util.find_spec("mcp") is not None:
        take(await mcp.catalogue(folder, turns=100 if quick else 600))
    if importlib.util.find_spec("bashkit") is not None:
        take(await sandbox.scripts(repetitions=3 if quick else 20))
    take(await machines.jobs(repetitions=2 if quick else 10))
    take(await skills.scripts(repetitions=2 if quick else 10))
    if importlib.util.find_spec("quickjs_rs") is not None:
        take(await extensions.learned(folder, turns=100 if quick else 600))
    if importlib.util.find_spec("html_to_markdown") is not None and find_chromium() is not None:
        take(await browser.pages(repetitions=3 if quick else 20))
    if importlib.util.find_spec("pydantic_monty") is not None:
        take(await codemode.code(repetitions=3 if quick else 20))
    take(await workspace.workspace(folder, quick=quick))
    take(await file_tools.offered(folder, turns=100 if quick else 600))
    take(standing.imports(packages, repetitions=2 if quick else 10))
    take(standing.idle(folder, agents=1000 if quick else 2000))
    take(standing.startup(folder, idle=10_000 if quick else 100_000, cut=500))


def table(rows: Sequence[Row], columns: Sequence[str], floor: str, peer: str) -> str:
    """The rows in Markdown, aligned for the terminal too."""
    lines = [("", *columns, f"× {floor}", f"× {peer}", "budget", ""), *(_cells(row, columns) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    lines.insert(1, tuple("-" * (width - 1) + (":" if i else "-") for i, width in enumerate(widths)))
    aligned = (
        [line[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(line[1:], widths[1:], strict=True))]
        for line in lines
    )
    return "\n".join(f"| {' | '.join(line)} |" for line in aligned)


def _cells(row: Row, columns: Sequence[str]) -> tuple[str, ...]:
    values = (f"{_figure(row.values[c])} {row.unit}" if c in row.values else "" for c in columns)
    times = ("" if t is None else _figure(t) for t in (row.times_floor, row.times_peer))
    verdict = ("met" if row.is_met else "MISSED") if row.budget else ""
    return (row.what, *values, *times, row.budget, verdict)


def _figure(value: float) -> str:
    return f"{value:,.{0 if value >= 100 else 1 if value >= 10 else 2}f}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a first look, not a result")
    parser.add_argument("--json", metavar="FILE", type=Path, help="also write the figures there")
    parser.add_argument("--folder", default=".", help="where the databases go: a real disk (default: here)")
    parser.add_argument(
        "--only",
        choices=("process", "sockets", "messengers", "bounds", "strangers"),
        help="one of the tables",
    )
    parser.add_argument(
        "--input", default="", help="of the inputs of strangers, those with this in their name"
    )
    options = parser.parse_args()
    machine = f"{os.cpu_count()} cores, Python {platform.python_version()}"
    began = time.perf_counter()

    def into(rows: list[Any]) -> Callable[[list[Any]], None]:
        def take(found: list[Any]) -> None:
            print(f"{time.perf_counter() - began:4.0f} s  {found[-1].what}", file=sys.stderr)
            rows.extend(found)

        return take

    process: list[Row] = []
    network: list[Row] = []
    delivered: list[Row] = []
    cost: list[Row] = []
    costly: list[strangers.Found] = []
    with tempfile.TemporaryDirectory(prefix=".bench-", dir=options.folder) as name:
        folder = Path(name).resolve()
        if options.only in (None, "process"):
            asyncio.run(in_process(folder, quick=options.quick, take=into(process)))
        if options.only in (None, "sockets"):
            sockets.measured(folder, quick=options.quick, take=into(network))
        if options.only in (None, "messengers"):
            messengers.measured(folder, quick=options.quick, take=into(delivered))
        if options.only in (None, "bounds"):
            bounds.measured(folder, quick=options.quick, take=into(cost))
        if options.only in (None, "strangers"):
            strangers.measured(folder, quick=options.quick, take=into(costly), only=options.input)
    print(f"{time.strftime('%Y-%m-%d')}, {machine}")
    if process:
        print(f"\n{table(process, COLUMNS, 'floor', 'peer')}")
    if network:
        print(f"\n{table(network, sockets.COLUMNS, 'bare', 'Think')}")
    if delivered:
        print(f"\n{table(delivered, messengers.COLUMNS, 'socket', '')}")
    if cost:
        print(f"\n{table(cost, bounds.COLUMNS, 'unbound', 'Think')}")
    if costly:
        print(f"\n{strangers.table(costly)}")
    if options.json:
        found = {
            "date": time.strftime("%Y-%m-%d"),
            "machine": machine,
            "rows": [*map(dataclasses.asdict, process)],
            "sockets": [*map(dataclasses.asdict, network)],
            "messengers": [*map(dataclasses.asdict, delivered)],
            "bounds": [*map(dataclasses.asdict, cost)],
            "strangers": [*map(dataclasses.asdict, costly)],
        }
        options.json.write_text(json.dumps(found, indent=2, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
