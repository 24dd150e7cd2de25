"""Quick tests start no process: a test that does is marked `slow`, and `make check` leaves it out.

tests/crash, tests/journeys, ... --marked--> slow
the second engine, outside the rooms that know which one they are on --marked--> slow
a test that is not marked --subprocess.Popen--> fails, and says why
"""

from __future__ import annotations

import functools
import os
import subprocess
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

__all__ = ["SLOW", "is_slow", "mark_slow", "watched"]

SLOW = ("tests/crash", "tests/journeys", "tests/docs", "tests/test_readme.py")
"""Whole stories, killed processes and pages. The Makefile names them as well, and does not even read them."""

BOTH = ("tests/store", "tests/cluster")
"""Where PostgreSQL is quick, too: the contract of the stores, and what only one of them has."""

SHARED = ("initdb", "postgres")
"""The database that all tests of a run share."""

ROOT = Path(__file__).parents[2]


def mark_slow(items: list[pytest.Item]) -> None:
    """Mark slow folders and what is tried on PostgreSQL as well, and put whole files that are slow last."""
    for item in items:
        is_second = is_on_postgres(item) and not _is_within(item.path, BOTH)
        if is_second or _is_within(item.path, SLOW):
            item.add_marker(pytest.mark.slow)
    quick = {item.path for item in items if not is_slow(item)}
    items.sort(key=lambda item: item.path not in quick)  # stable: nothing else changes places


@functools.cache
def _is_within(path: Path, places: tuple[str, ...]) -> bool:
    return any(path.is_relative_to(ROOT / place) for place in places)


def is_on_postgres(item: pytest.Item) -> bool:
    spoken = getattr(item, "callspec", None)
    names: list[str] = getattr(item, "fixturenames", [])
    return "postgres_url" in names or (spoken is not None and "postgres" in spoken.id.lower())


def is_slow(item: pytest.Item) -> bool:
    return item.get_closest_marker("slow") is not None


def watched(item: pytest.Item) -> Generator[None, object, object]:
    """Run a test, and let it start processes only when it is marked."""
    if is_slow(item):
        return (yield)
    start = subprocess.Popen.__init__

    @functools.wraps(start)
    def refuse(self: Any, args: Any, *rest: Any, **options: Any) -> None:
        command = args if isinstance(args, str | bytes | os.PathLike) else next(iter(args))
        if Path(os.fsdecode(command)).name not in SHARED:
            pytest.fail(f"A quick test started {args!r}. Mark it: @pytest.mark.slow", pytrace=False)
        start(self, args, *rest, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subprocess.Popen, "__init__", refuse)
        return (yield)
