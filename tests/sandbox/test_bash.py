"""bash in a child: what is particular to it, and to the children."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from everthink.sandbox.bash import BashSandbox
from everthink.sandbox.port import Job, Limits
from everthink.testing.contracts.sandbox.case import Asked, bash
from tests.mcp.serving import children, is_gone, until
from tests.sandbox.flat import stays_flat
from tests.shape.source import PACKAGE
from tests.support.samples import sample

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
CRASH = 'echo lost > /made; x=\'eval "$x"\'; eval "$x"'
"""24 characters of it end the process that runs bashkit."""


@pytest.fixture
async def sandbox() -> AsyncIterator[BashSandbox]:
    before = children()
    opened = BashSandbox()
    yield opened
    await opened.aclose()
    assert children() == before


# --- crashes


async def test_a_script_that_crashes_the_interpreter_loses_its_own_changes_only(sandbox: BashSandbox) -> None:
    # Given a child that is warm
    await sandbox.check()
    (warm,) = sandbox.pids

    # When a script crashes it
    outcome = await sandbox.run(bash(CRASH), Asked())

    # Then that is said, and the next script has another child
    assert (outcome.status, outcome.exit_code, outcome.changed) == ("crashed", None, {})
    assert "SIGSEGV" in (outcome.error or "")
    assert (outcome.error or "").endswith("Nothing was written.")
    assert is_gone(warm)
    assert (await sandbox.run(bash("echo alive"), Asked())).stdout == "alive\n"


async def test_a_child_that_the_kernel_gives_no_more_memory_is_said_to_need_too_much(
    sandbox: BashSandbox,
) -> None:
    deep = 'echo "$(echo ' * 20_000 + "x" + ')"' * 20_000
    outcome = await sandbox.run(bash(deep), Asked())
    assert outcome.status == "memory"
    assert "(memory: 67,108,864 bytes)" in (outcome.error or "")


async def test_a_child_that_was_killed_while_it_waited_is_not_used(sandbox: BashSandbox) -> None:
    await sandbox.check()
    (warm,) = sandbox.pids
    os.kill(warm, signal.SIGKILL)
    await until(lambda: is_gone(warm))
    assert (await sandbox.run(bash("echo alive"), Asked())).stdout == "alive\n"


# --- children


async def test_a_child_is_used_again_and_replaced_after_its_number_of_scripts() -> None:
    sandbox = BashSandbox(jobs_each=3)
    used = []
    for _ in range(4):
        await sandbox.run(bash("ask", commands=("ask",)), Asked(_noted(used, sandbox)))
    await sandbox.aclose()
    assert used[0] == used[1] == used[2] != used[3]


async def test_not_more_children_than_allowed_are_at_work() -> None:
    sandbox = BashSandbox(most=2)
    used: list[int] = []
    jobs = [sandbox.run(bash("ask", commands=("ask",)), Asked(_noted(used, sandbox))) for _ in range(6)]
    await asyncio.gather(*jobs)
    assert len(sandbox.pids) <= 2
    await sandbox.aclose()


async def test_a_child_that_nobody_needs_ends() -> None:
    sandbox = BashSandbox(idle_after=0.01)
    await sandbox.check()
    await until(lambda: not sandbox.pids)
    assert (await sandbox.run(bash("echo again"), Asked())).stdout == "again\n"
    await sandbox.aclose()


async def test_scripts_with_more_memory_get_a_child_of_their_own(sandbox: BashSandbox) -> None:
    await sandbox.run(bash("true"), Asked())
    await sandbox.run(bash("true", limits=Limits(memory=128 << 20)), Asked())
    assert len(sandbox.pids) == 2


async def test_a_cancelled_run_has_ended_its_child_when_it_raises(sandbox: BashSandbox) -> None:
    asked = asyncio.Event()

    async def wait(args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        asked.set()
        await asyncio.Event().wait()

    running = asyncio.create_task(sandbox.run(bash("ask", commands=("ask",)), Asked(wait)))
    await asked.wait()
    (pid,) = sandbox.pids
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert (is_gone(pid), sandbox.pids) == (True, [])


async def test_closing_ends_what_runs_and_says_so() -> None:
    sandbox = BashSandbox()
    asked = asyncio.Event()

    async def wait(args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        asked.set()
        await asyncio.Event().wait()

    running = asyncio.create_task(sandbox.run(bash("ask", commands=("ask",)), Asked(wait)))
    await asked.wait()
    pids = sandbox.pids
    await sandbox.aclose()
    assert (await running).status == "crashed"
    assert all(is_gone(pid) for pid in pids)


async def test_no_child_outlives_a_server_that_is_killed() -> None:
    script = (
        "import asyncio\n"
        "from everthink.sandbox.bash import BashSandbox\n"
        "from everthink.sandbox.port import Job, NoHost\n"
        "async def main():\n"
        "    sandbox = BashSandbox()\n"
        "    await sandbox.check()\n"
        "    print(*sandbox.pids, flush=True)\n"
        "    await sandbox.run(Job(language='bash', source='sleep 1000'), NoHost())\n"
        "asyncio.run(main())\n"
    )
    server = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, stdout=asyncio.subprocess.PIPE
    )
    assert server.stdout is not None
    pid = int(await server.stdout.readline())
    assert not is_gone(pid)
    server.kill()
    await server.wait()
    await until(lambda: is_gone(pid))


async def test_every_step_of_the_lock_holds_here(sandbox: BashSandbox) -> None:
    held = await sandbox.held()
    assert held["seccomp"] == held["no new privileges"] == held["limits"] == ""


async def test_a_child_knows_nothing_of_the_server(sandbox: BashSandbox) -> None:
    await sandbox.check()
    (pid,) = sandbox.pids
    if (environ := _readable(f"/proc/{pid}/environ")) is None:
        pytest.skip("only root may look at a locked process")
    assert {entry.partition("=")[0] for entry in environ.split("\0") if entry} == {"LANG", "TZ"}
    assert os.readlink(f"/proc/{pid}/cwd") == "/"


def test_a_guest_loads_nothing_of_ours_but_what_stands_beside_it() -> None:
    script = (
        "import sys, types\n"
        "package = types.ModuleType('sandboxed')\n"
        "package.__path__ = [sys.argv[1]]\n"
        "sys.modules['sandboxed'] = package\n"
        "sys.path.append(sys.argv[2])\n"
        "import sandboxed.bash_guest, bashkit\n"
        "print(*sys.modules)\n"
    )
    found = importlib.util.find_spec("bashkit")
    assert found is not None
    assert found.origin is not None
    libraries = str(Path(found.origin).parents[1])
    ran = subprocess.run(
        [sys.executable, "-I", "-S", "-c", script, str(PACKAGE / "sandbox"), libraries],
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = {name.partition(".")[0] for name in ran.stdout.split()}
    assert loaded - set(sys.stdlib_module_names) - {"__main__"} <= {"sandboxed", "bashkit"}


# --- where bashkit would not say the truth


async def test_a_range_that_would_not_be_expanded_is_an_error_before_anything_runs(
    sandbox: BashSandbox,
) -> None:
    outcome = await sandbox.run(bash("echo begun; for i in {1..20000}; do echo $i; done"), Asked())
    assert (outcome.status, outcome.stdout, sandbox.pids) == ("failed", "", [])
    assert "{1..20000}" in (outcome.error or "")
    assert "Nothing was run" in (outcome.error or "")


async def test_bashkit_still_expands_what_we_let_through(sandbox: BashSandbox) -> None:
    outcome = await sandbox.run(bash("echo {1..10000} | wc -w; echo {1..100}{1..100} | wc -w"), Asked())
    assert outcome.stdout.split() == ["10000", "10000"]


@pytest.mark.parametrize(
    ("script", "count"),
    [
        ("seq 1 200000 | wc -l", 100_000),
        ("yes | wc -l", 10_000),
        ("head -c 5000000 /dev/zero | wc -c", 1_048_576),
        ("head -c 5000000 /dev/urandom | wc -c", 8_192),
    ],
)
async def test_the_caps_that_the_page_lists_are_the_ones_there_are(
    sandbox: BashSandbox, script: str, count: int
) -> None:
    outcome = await sandbox.run(bash(script), Asked())
    assert (outcome.status, int(outcome.stdout)) == ("done", count)


# --- what cannot run here


async def test_a_missing_package_is_told_with_its_install_line(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "bashkit" else find(name, *rest)
    )
    sandbox = BashSandbox()
    told = await sandbox.check()
    assert told is not None
    assert "pip install 'everthink[sandbox]'" in told
    outcome = await sandbox.run(bash("echo hi"), Asked())
    assert (outcome.status, outcome.error) == ("failed", told)
    await sandbox.aclose()


async def test_a_child_that_cannot_be_locked_in_is_never_given_a_script(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # Given a guest whose kernel has no seccomp
    guest = tmp_path / "bash_guest.py"
    held = {"one thread": "", "parent": "", "limits": "", "no new privileges": "", "seccomp": "not here"}
    head = json.dumps({"t": "ready", "held": held})
    guest.write_text(
        "import os, struct, sys\n"
        "def main():\n"
        f"    head = {head.encode()!r}\n"
        "    os.write(1, struct.pack('>II', len(head), 0) + head)\n"
        "    sys.stdin.read()\n"
    )
    monkeypatch.setattr("everthink.sandbox.child.__file__", str(tmp_path / "child.py"))

    # When it is asked to run something
    before = children()
    told = await BashSandbox().check()

    # Then it is not, and why is said
    assert "seccomp: not here" in (told or "")
    assert children() == before


# --- for a long time


async def test_memory_and_descriptors_are_flat_after_many_scripts() -> None:
    sandbox = BashSandbox(jobs_each=1_000_000)
    job = Job(
        language="bash",
        source="f() { echo $1; }; x=$(seq 100); f a | cat; ask hi > /made; sed -i s/a/b/ /a; read line",
        files={"/a": b"a" * 1_000, "/d/b": b"b" * 1_000},
        stdin=b"one line\n",
        commands=("ask",),
    )
    await stays_flat(sandbox, [job], warm=30, times=sample(150, 1_500))
    await sandbox.aclose()


def _readable(path: str) -> str | None:
    with contextlib.suppress(PermissionError):
        return Path(path).read_text()
    return None


def _noted(used: list[int], sandbox: BashSandbox) -> Any:
    async def note(args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        used.append(sandbox.pids[0])
        assert len(sandbox.pids) <= 2

    return note
