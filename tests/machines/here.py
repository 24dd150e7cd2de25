"""Whether a machine can run on this computer."""

from __future__ import annotations

import asyncio
import os

import pytest

from everthink.machines.port import Machine

__all__ = ["runs_here"]

ASK = "ask"


def runs_here(machine: Machine, problem: str | None = ASK) -> None:
    """Skip where a machine cannot run, with its words; never where all is tested."""
    if problem is ASK:
        problem = asyncio.run(machine.check())
    if problem is not None:
        assert not os.environ.get("CI"), problem
        pytest.skip(problem)
