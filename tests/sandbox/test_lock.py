"""A process that has locked itself in can compute, and nothing else."""

from __future__ import annotations

import json
import os
import platform
import signal
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from everthink.sandbox import lock, syscalls
from everthink.sandbox.lock import NEEDED, NOBODY, unsupported
from tests.sandbox import probe

HERE = Path(__file__).parents[2]
ROOT = os.geteuid() == 0

needs_linux = pytest.mark.skipif(unsupported() is not None, reason=str(unsupported()))


@pytest.fixture(scope="module")
def probed() -> dict[str, Any]:
    ran = subprocess.run(
        [sys.executable, "-m", "tests.sandbox.probe"], cwd=HERE, stdout=subprocess.PIPE, check=True
    )
    return json.loads(ran.stdout)


@needs_linux
@pytest.mark.slow
def test_every_step_that_is_needed_holds(probed: dict[str, Any]) -> None:
    assert {step: probed["held"].get(step) for step in NEEDED} == dict.fromkeys(NEEDED, "")


@needs_linux
@pytest.mark.slow
@pytest.mark.parametrize("attempt", probe.ATTEMPTS)
def test_a_locked_process_cannot(probed: dict[str, Any], attempt: str) -> None:
    assert attempt not in probed["done"]


@needs_linux
@pytest.mark.slow
@pytest.mark.skipif(not ROOT, reason="only root becomes somebody else")
def test_a_child_of_root_is_nobody(probed: dict[str, Any]) -> None:
    assert (probed["held"]["user"], probed["user"]) == ("", NOBODY)


def test_another_system_is_told_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    assert unsupported() == "It needs Linux to lock a process in, and this is Darwin."
    assert set(lock.lock_down(memory=1, parent=1).values()) == {unsupported()}


def test_another_machine_is_told_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    assert "riscv64" in (unsupported() or "")


# --- the filter, as the kernel would run it


REFUSED, KILLED, UNKNOWN, ALLOWED = 0x0005_0001, 0x8000_0000, 0x0005_0026, 0x7FFF_0000
PID = 4_711
ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}


def asked(machine: str, number: int, argument: int = 0, *, architecture: int | None = None) -> int:
    """What the filter of a machine answers to a system call."""
    program = list(lock._filter(machine, PID))
    data = struct.pack("<IIQQ", number, architecture or ARCHITECTURES[machine], 0, argument)
    place, held = 0, 0
    while True:
        code, yes, no, value = program[place]
        place += 1
        if code == 0x06:
            return value
        if code == 0x20:
            (held,) = struct.unpack_from("<I", data, value)
            continue
        passed = {0x15: held == value, 0x35: held >= value, 0x45: bool(held & value)}[code]
        place += yes if passed else no


@pytest.mark.parametrize("machine", ARCHITECTURES)
def test_every_call_of_the_table_is_refused_on_both_machines(machine: str) -> None:
    column = list(ARCHITECTURES).index(machine)
    numbers = {name: numbers[column] for name, numbers in syscalls.DENIED.items()}
    known = {name: number for name, number in numbers.items() if number is not None}
    assert {name: asked(machine, number) for name, number in known.items()} == dict.fromkeys(known, REFUSED)
    assert len(set(known.values())) == len(known)


@pytest.mark.parametrize("machine", ARCHITECTURES)
def test_a_thread_may_be_started_and_a_process_may_not(machine: str) -> None:
    column = list(ARCHITECTURES).index(machine)
    clone = syscalls.CLONE[column]
    assert asked(machine, clone, 0x3D0F00) == ALLOWED
    assert asked(machine, clone, signal.SIGCHLD) == REFUSED
    assert asked(machine, syscalls.CLONE3[column]) == UNKNOWN


@pytest.mark.parametrize("machine", ARCHITECTURES)
def test_a_process_may_signal_and_name_itself_only(machine: str) -> None:
    column = list(ARCHITECTURES).index(machine)
    assert asked(machine, syscalls.TGKILL[column], PID) == ALLOWED
    assert asked(machine, syscalls.TGKILL[column], PID + 1) == REFUSED
    assert asked(machine, syscalls.PRCTL[column], 15) == ALLOWED
    assert asked(machine, syscalls.PRCTL[column], 1) == REFUSED


@pytest.mark.parametrize("machine", ARCHITECTURES)
def test_calls_in_the_words_of_another_machine_end_the_process(machine: str) -> None:
    assert asked(machine, 0, architecture=0x40000003) == KILLED


def test_the_second_set_of_numbers_ends_the_process() -> None:
    assert asked("x86_64", 0x4000_0000 | 41) == KILLED


@pytest.mark.parametrize(("machine", "read", "write"), [("x86_64", 0, 1), ("aarch64", 63, 64)])
def test_reading_and_writing_what_is_open_is_allowed(machine: str, read: int, write: int) -> None:
    assert asked(machine, read) == asked(machine, write) == ALLOWED


WITHOUT_LANDLOCK = """
from everthink.sandbox import lock
from tests.sandbox import probe
lock.landlock_version = lambda: 0
probe.main()
"""


@needs_linux
@pytest.mark.slow
def test_where_the_kernel_has_no_landlock_the_other_walls_hold_by_themselves() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", WITHOUT_LANDLOCK], cwd=HERE, stdout=subprocess.PIPE, check=True
    )
    found = json.loads(ran.stdout)
    assert found["held"]["landlock"] == "this kernel has no Landlock (Linux 5.13, switched on)"
    assert {step: found["held"][step] for step in NEEDED} == dict.fromkeys(NEEDED, "")
    assert found["done"] == []
