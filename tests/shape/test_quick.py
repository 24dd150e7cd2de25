"""What `make check` leaves out says so, and nothing else starts processes."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys

import pytest

from tests.support.quick import SLOW, is_slow

from .source import ROOT


def test_a_quick_test_that_starts_a_process_fails_and_is_told_what_to_do() -> None:
    with pytest.raises(pytest.fail.Exception, match=r"@pytest\.mark\.slow"):
        subprocess.run([sys.executable, "--version"], check=True)


@pytest.mark.anyio
async def test_also_one_that_does_it_on_the_event_loop() -> None:
    with pytest.raises(pytest.fail.Exception, match=r"@pytest\.mark\.slow"):
        await asyncio.create_subprocess_exec(sys.executable, "--version")


@pytest.mark.slow
def test_a_slow_test_may_start_processes() -> None:
    assert subprocess.run([sys.executable, "--version"], check=True).returncode == 0


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
def test_what_is_tried_on_postgresql_as_well_is_slow(engine: str, request: pytest.FixtureRequest) -> None:
    assert is_slow(request.node) is (engine == "postgres")


def test_the_makefile_names_the_same_slow_folders() -> None:
    named = re.search(r"^SLOW := \$\(wildcard (.*)\)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert named
    assert tuple(named[1].split()) == SLOW
