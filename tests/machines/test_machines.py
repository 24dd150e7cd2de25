"""What is particular to the machines of this computer: who they run as, what they say when they cannot."""

from __future__ import annotations

import ast
import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec
import pytest

from everthink.errors import InvalidSettings
from everthink.machines import bubblewrap, filters, locked, strongest
from everthink.machines.bubblewrap import Bubblewrap
from everthink.machines.locked import Locked
from everthink.machines.port import CannotSpawn, Machine
from everthink.machines.process import Process
from everthink.machines.pythons import found_python
from everthink.machines.sandbox import MachineSandbox, program
from everthink.sandbox.port import Job, NoHost, Outcome
from everthink.testing.contracts.machine.case import is_running, marked, until_gone
from tests.machines.here import runs_here
from tests.mcp.serving import until
from tests.sandbox.test_lock import ARCHITECTURES
from tests.shape.source import PACKAGE

pytestmark = [pytest.mark.anyio]

ROOT = os.geteuid() == 0
BOTH = pytest.mark.parametrize("make", [Bubblewrap, Locked])


async def ran(machine: Machine, source: str, **options: object) -> Outcome:
    runs_here(machine, await machine.check())
    sandbox = MachineSandbox(machine)
    try:
        job = Job(language="python", source=source, **options)  # pyright: ignore[reportArgumentType]
        return await sandbox.run(job, NoHost())
    finally:
        await sandbox.aclose()


# --- who they are


@pytest.mark.slow
@pytest.mark.skipif(not ROOT, reason="only root becomes somebody else")
@BOTH
async def test_a_server_that_is_root_runs_jobs_as_somebody_else(make: type[Bubblewrap | Locked]) -> None:
    mark = marked()
    machine = make()
    runs_here(machine, await machine.check())
    sandbox = MachineSandbox(machine)
    running = asyncio.create_task(sandbox.run(Job(language="bash", source=f"sleep {mark}"), NoHost()))
    await until(lambda: _user_of(mark) is not None)
    assert _user_of(mark) == 65_534
    running.cancel()
    await asyncio.wait({running})
    await until_gone(mark)
    await sandbox.aclose()


def _user_of(mark: str) -> int | None:
    for place in Path("/proc").iterdir():
        try:
            if place.name.isdigit() and mark.encode() in (place / "cmdline").read_bytes().split(b"\0"):
                return place.stat().st_uid
        except OSError:
            continue
    return None


SERVER = """
import asyncio, os, sys
from everthink.machines.bubblewrap import Bubblewrap
from everthink.machines.locked import Locked
from everthink.machines.sandbox import MachineSandbox
from everthink.sandbox.port import Job, NoHost

async def main(home):
    script = f"cat {home}/key; chmod 777 {home}/key; kill -9 {os.getpid()}; echo x > made; cp -p made copy"
    for machine in (Locked(folder=home), Bubblewrap()):
        sandbox = MachineSandbox(machine)
        if problem := await sandbox.check():
            print("skipped:", problem)
        else:
            outcome = await sandbox.run(Job(language="bash", source=script), NoHost())
            print(outcome.status, *sorted(outcome.changed), "only-the-server" in outcome.stdout)
        await sandbox.aclose()

asyncio.run(main(sys.argv[1]))
"""


@pytest.mark.slow
@pytest.mark.skipif(not ROOT, reason="needs another user")
def test_a_server_that_is_not_root_has_the_same_walls() -> None:
    # Given a server without any right, with a file of its own that its own user may read
    python = "/usr/bin/python3"
    version = subprocess.run([python, "-c", "import sys; print(*sys.version_info[:2])"], capture_output=True)
    if version.stdout.split() != [str(number).encode() for number in sys.version_info[:2]]:
        pytest.skip("it needs a Python of the same version that every user may read")
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="everthink-user-") as home:
        shutil.copytree(PACKAGE, f"{home}/lib/everthink", ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copytree(str(Path(msgspec.__file__).parent), f"{home}/lib/msgspec")
        (key := Path(home) / "key").write_text("only-the-server")
        subprocess.run(["chown", "-R", "12345:12345", home], check=True)
        key.chmod(0o644)

        # When it runs jobs in the machines that it has
        ran = subprocess.run(
            [python, "-c", SERVER, home],
            env={"PATH": "/usr/bin:/bin", "PYTHONPATH": f"{home}/lib"},
            user=12_345,
            group=12_345,
            extra_groups=[],
            capture_output=True,
            text=True,
        )

        # Then none is read, changed or signalled
        assert len(ran.stdout.splitlines()) == 2, ran
        for line in ran.stdout.splitlines():
            assert line.startswith("skipped:") or line == "done /copy /made False", ran
        assert key.stat().st_mode & 0o777 == 0o644


@pytest.mark.slow
@BOTH
async def test_no_job_outlives_a_server_that_is_killed(make: type[Bubblewrap | Locked]) -> None:
    machine = make()
    runs_here(machine, await machine.check())
    mark = marked()
    script = (
        "import asyncio\n"
        f"from {make.__module__} import {make.__name__}\n"
        "from everthink.machines.sandbox import MachineSandbox\n"
        "from everthink.sandbox.port import Job\n"
        "class Host:\n"
        "    async def call(self, name, args, kwargs): ...\n"
        "    def output(self, stream, text): print(text, flush=True)\n"
        "async def main():\n"
        f"    source = 'sleep {mark} & (trap \"\" TERM; sleep {mark}) & echo begun; wait'\n"
        f"    sandbox = MachineSandbox({make.__name__}())\n"
        "    await sandbox.run(Job(language='bash', source=source), Host())\n"
        "asyncio.run(main())\n"
    )
    server = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, stdout=asyncio.subprocess.PIPE
    )
    assert server.stdout is not None
    assert await server.stdout.readline() == b"begun\n"
    server.kill()
    await server.wait()
    await until_gone(mark)


@pytest.mark.slow
@BOTH
async def test_paths_that_were_named_are_read_and_not_written(make: type[Bubblewrap | Locked]) -> None:
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="everthink-library-") as library:
        os.chmod(library, 0o777)
        Path(library, "own.py").write_text("x = 42")  # noqa: ASYNC240
        source = f"import sys; sys.path.append({library!r}); import own\nprint(own.x)\n"
        source += f"open({library!r} + '/y', 'w')"
        outcome = await ran(make(read_only=[library]), source)
        assert (outcome.status, outcome.stdout) == ("failed", "42\n"), outcome
        assert os.listdir(library) == ["own.py"]


@pytest.mark.slow
async def test_the_folder_of_a_locked_job_is_removed_however_deep_it_is() -> None:
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="everthink-deep-") as folder:
        os.chmod(folder, 0o755)
        source = "import os\nfor n in range(3000):\n    os.mkdir('deep'); os.chdir('deep')\nos.chmod('.', 0)"
        outcome = await ran(Locked(folder=folder), source, collect=("/nothing",))
        assert outcome.status == "done", outcome
        assert os.listdir(folder) == []


@pytest.mark.slow
@pytest.mark.skipif(not ROOT, reason="only root becomes somebody else")
async def test_a_folder_that_the_user_of_jobs_cannot_reach_is_told() -> None:
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        told = await Locked(folder=folder).check() or ""
        assert "folder: [Errno 13] Permission denied" in told
        assert os.listdir(folder) == []


# --- what cannot run here


async def test_a_missing_bubblewrap_is_told_with_the_way_out() -> None:
    machine = Bubblewrap(command="there-is-no-such-bwrap")
    assert await machine.check() == (
        "bubblewrap is not installed: apt install bubblewrap, or your system's way."
    )
    outcome = await MachineSandbox(machine).run(Job(language="bash", source="echo hi"), NoHost())
    assert (outcome.status, outcome.stdout) == ("failed", "")
    assert "apt install bubblewrap" in (outcome.error or "")
    assert "Nothing was run." in (outcome.error or "")


def program_that(tmp_path: Path, script: str) -> str:
    folder = Path("/var/tmp") / f"everthink-{tmp_path.name}-{os.getpid()}"
    folder.mkdir()
    (folder / "bwrap").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "bwrap").chmod(0o755)
    return str(folder / "bwrap")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("echo bubblewrap 0.6.1", ["0.8 or newer", "0.6.1", "apt install"]),
        ("echo something else", ["0.8 or newer", "something else"]),
        (
            'case "$1" in --version) echo bubblewrap 0.11.0 ;; *)'
            " echo 'bwrap: No permissions to create new namespace' >&2; exit 1 ;; esac",
            ["No permissions to create new namespace", "Locked()", "--security-opt", "AppArmor"],
        ),
    ],
)
async def test_a_bubblewrap_that_cannot_is_told_with_the_way_out(
    tmp_path: Path, script: str, words: list[str]
) -> None:
    command = program_that(tmp_path, script)
    told = await Bubblewrap(command=command).check() or ""
    shutil.rmtree(os.path.dirname(command))
    for word in words:
        assert word in told


@pytest.mark.slow
async def test_namespaces_that_the_kernel_forbids_are_detected() -> None:
    # Given a bubblewrap whose machine cannot make namespaces: one that is in a machine itself
    inner = Bubblewrap(read_only=["/usr"])
    runs_here(inner, await inner.check())
    outcome = await ran(
        inner,
        "import subprocess\nsubprocess.run(['bwrap', '--unshare-all', '--ro-bind', '/', '/',"
        " 'true'], capture_output=True, text=True).stderr",
    )
    assert "bwrap" in str(outcome.value), outcome


async def test_a_kernel_without_landlock_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locked, "landlock_version", lambda: 0)
    told = await Locked().check() or ""
    assert "no Landlock" in told
    assert "Bubblewrap()" in told


async def test_another_system_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locked, "unsupported", lambda: "It needs Linux.")
    assert await Locked().check() == "It needs Linux."


async def test_when_no_machine_works_the_way_out_of_each_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bubblewrap.shutil, "which", lambda *args, **rest: None)
    monkeypatch.setattr(locked, "landlock_version", lambda: 0)
    with pytest.raises(CannotSpawn, match=r"Bubblewrap: .*Locked: ") as told:
        await strongest.strongest()
    assert told.value.kept == "Nothing was run."


def test_a_python_that_a_user_cannot_read_is_not_taken(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    own = tmp_path / "python3"
    own.write_text("#!/bin/sh\n")
    own.chmod(0o755)
    with pytest.raises(CannotSpawn, match="user 4711 may read"):
        found_python(str(own), 4_711)


def test_a_language_that_no_machine_has_is_refused_at_once() -> None:
    with pytest.raises(InvalidSettings, match="javascript"):
        MachineSandbox(Locked(), languages={"javascript"})


# --- what is sent, and what the kernel is told


@pytest.mark.parametrize("language", ["python", "bash"])
def test_what_is_sent_is_old_python_and_fits_an_argument(language: str) -> None:
    sent = program(language)  # pyright: ignore[reportArgumentType]
    assert len(sent.encode()) < 100_000  # the kernel takes 131,072 for one
    for name in ("guest_wire", "guest_tree", "guest_python", "runner"):
        text = (PACKAGE / "machines" / f"{name}.py").read_text("utf-8")
        tree = ast.parse(text, feature_version=(3, 8))
        imported = {
            name.name.partition(".")[0]
            for node in ast.walk(tree)
            if isinstance(node, ast.Import)
            for name in node.names
        }
        assert imported <= sys.stdlib_module_names


@pytest.mark.parametrize("machine", ARCHITECTURES)
def test_what_has_no_namespaces_has_a_filter_for_all_that_landlock_does_not_cover(
    machine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("platform.machine", lambda: machine)
    intel = machine == "x86_64"
    setsid, setpgid, chmod, kill = (112, 109, 268, 62) if intel else (157, 154, 53, 129)
    new = filters.bare(version=7, is_own_user=False)
    old = filters.bare(version=5, is_own_user=True)
    assert [_asked(new, machine, number) for number in (setsid, setpgid)] == [REFUSED, REFUSED]
    assert _asked(new, machine, chmod) == ALLOWED
    assert _asked(old, machine, chmod) == PRETENDED
    assert _asked(new, machine, kill, 77) == ALLOWED
    assert (_asked(old, machine, kill, 77), _asked(old, machine, kill, 0)) == (REFUSED, ALLOWED)


@pytest.mark.parametrize("machine", ARCHITECTURES)
def test_no_filter_lets_a_process_make_namespaces(machine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: machine)
    clone, unshare, mmap = (56, 272, 9) if machine == "x86_64" else (220, 97, 222)
    for program_ in (filters.walled() or b"", filters.bare(version=7, is_own_user=False)):
        assert _asked(program_, machine, clone, 17) == ALLOWED
        for flag in (0x10000000, 0x00020000, 0x40000000, 0x20000000):
            assert _asked(program_, machine, clone, flag | 17) == REFUSED
        assert _asked(program_, machine, unshare) == REFUSED
        assert _asked(program_, machine, mmap, fourth=0x22) == ALLOWED
        assert _asked(program_, machine, mmap, fourth=0x21) == REFUSED
        assert _asked(program_, machine, mmap, fourth=0x01) == ALLOWED


REFUSED, PRETENDED, ALLOWED = 0x0005_0001, 0x0005_0000, 0x7FFF_0000


def _asked(steps: bytes, machine: str, number: int, argument: int = 0, *, fourth: int = 0) -> int:
    """What a filter answers to a system call, as the kernel would run it."""
    import struct

    data = struct.pack("<IIQQQQQ", number, ARCHITECTURES[machine], 0, argument, 0, 0, fourth)
    place, held = 0, 0
    while True:
        code, yes, no, value = struct.unpack_from("HBBI", steps, place * 8)
        place += 1
        if code == 0x06:
            return value
        if code == 0x20:
            (held,) = struct.unpack_from("<I", data, value)
            continue
        passed = {0x15: held == value, 0x35: held >= value, 0x45: bool(held & value)}[code]
        place += yes if passed else no


@pytest.mark.slow
async def test_a_start_that_is_cancelled_leaves_no_process() -> None:
    mark = marked()
    starting = asyncio.ensure_future(Process.start(["/usr/bin/env", "sleep", mark], name="sleep", env={}))
    await asyncio.sleep(0)
    assert any(is_running(mark) for _ in range(1_000))  # it is there, and nobody has it yet
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert not is_running(mark)


@pytest.mark.slow
async def test_names_of_the_home_are_at_the_root_where_a_machine_has_one() -> None:
    runs_here(Bubblewrap(), await Bubblewrap().check())
    sandbox = MachineSandbox(Bubblewrap().with_root(["skill", "output"]))
    job = Job(
        language="bash",
        source="cat /skill/a; echo new > /output/b; echo x > /other; echo y > /skill2",
        files={"/skill/a": b"here\n"},
        folders=frozenset({"/output"}),
    )
    outcome = await sandbox.run(job, NoHost())
    await sandbox.aclose()
    assert (outcome.stdout, outcome.changed) == ("here\n", {"/output/b": b"new\n"})
    assert outcome.stderr.count("Read-only file system") == 2
