"""Work done, counted instead of timed: how many lines and calls of Python something takes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

__all__ = ["grows_no_faster", "steps"]


def steps(work: Callable[[], Any]) -> int:
    """Lines of ours that `work` runs, and calls that it makes of anything, also of what is written in C."""
    counted = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal counted
        counted += event == "line"
        return trace

    def profile(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal counted
        counted += event in ("call", "c_call")

    before = sys.gettrace(), sys.getprofile()
    sys.settrace(trace)
    sys.setprofile(profile)
    try:
        work()
    finally:
        sys.settrace(before[0])
        sys.setprofile(before[1])
    return counted


def grows_no_faster(work: Callable[[int], Callable[[], Any]], size: int, *, times: float = 5.0) -> None:
    """`work(n)` prepares something to do for `n`; four times as much must cost at most `times` as much."""
    small, large = steps(work(size)), steps(work(4 * size))
    assert large <= times * small, f"{size}: {small:,} steps, {4 * size}: {large:,} steps"
