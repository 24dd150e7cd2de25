"""`python -m bench` measures everything and prints the table; `--quick` in 20 seconds, `--json FILE` for programs."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import sys
import tempfile
import time
from pathlib import Path

from . import standing, streams
from .floor import CHEAPEST, PER_DELTA, ROWS, Floor
from .measure import Row
from .ours import Ours
from .table import LATER, render
from .work import Contestant


def contestants(folder: Path) -> list[Contestant]:
    """Everybody who takes part. Without pydantic-ai its column stays empty."""
    found: list[Contestant] = [Floor(folder, name) for name in (PER_DELTA, ROWS, CHEAPEST)]
    found.append(Ours(folder))
    try:
        from .peer import Peer

        found.append(Peer())
    except ImportError:
        print("pydantic-ai is not installed: pip install 'everthink[providers]'", file=sys.stderr)
    return found


async def measured(folder: Path, *, quick: bool) -> list[Row]:
    """All rows, in the order of the table."""
    many, few, agents = (3, 2, 500) if quick else (9, 5, 2000)
    everybody = contestants(folder)
    has_peer = everybody[-1].name == "pydantic-ai"
    rows: list[Row] = []

    def take(what: str, found: list[Row]) -> None:
        print(f"{time.perf_counter() - began:6.1f} s  {what}", file=sys.stderr)
        rows.extend(found)

    began = time.perf_counter()
    take("deltas", await streams.deltas(everybody, repetitions=many))
    take("turns", await streams.turns(everybody, repetitions=many))
    for crowd in (20, 200):
        take(f"{crowd} agents at once", await streams.concurrency(everybody, crowd, repetitions=few))
    take("latency", await streams.latency(everybody, repetitions=1 if quick else 4))
    compared = [one for one in everybody if one.name in (CHEAPEST, "everthink", "pydantic-ai")]
    take("growth", await standing.growth(compared, agents=1 if quick else 6))
    for one in everybody:
        await one.close()
    take("size", await standing.size(folder))
    take("cold open", await standing.cold_open(folder, repetitions=5 if quick else 30))
    take("imports", standing.imports(repetitions=3 if quick else 10, peer=has_peer))
    take("idle agents", standing.idle(folder, agents=agents))
    return [*rows, *LATER]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer repetitions: a first look, not a result")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the figures there, too")
    parser.add_argument("--folder", default=".", help="where the databases go (a real disk; default: here)")
    options = parser.parse_args()
    machine = f"{os.cpu_count()} cores, Python {platform.python_version()}"
    with tempfile.TemporaryDirectory(prefix=".bench-", dir=options.folder) as folder:
        rows = asyncio.run(measured(Path(folder).resolve(), quick=options.quick))
    print(f"{time.strftime('%Y-%m-%d')}, {machine}\n\n{render(rows)}")
    if options.json:
        found = {
            "date": time.strftime("%Y-%m-%d"),
            "machine": machine,
            "rows": [row.as_json() for row in rows],
        }
        options.json.write_text(json.dumps(found, indent=2, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
