"""What a machine is told is looked at where it is written, before a job sees more than was meant, or less."""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from everthink.errors import InvalidSettings
from everthink.machines.bubblewrap import Bubblewrap
from everthink.machines.docker import Docker
from everthink.machines.locked import Locked
from everthink.machines.port import CannotSpawn
from everthink.machines.sandbox import MachineSandbox
from everthink.machines.strongest import strongest
from everthink.sandbox.port import Job, NoHost, Outcome
from tests.machines.here import runs_here
from tests.machines.pipes import SaidMachine, SaidPipe

pytestmark = [pytest.mark.anyio]

BOTH = pytest.mark.parametrize("make", [Bubblewrap, Locked])


@pytest.fixture
def data() -> Iterator[Path]:
    """A folder that a job may be shown."""
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="everthink-shown-") as folder:
        os.chmod(folder, 0o755)
        (Path(folder) / "data").mkdir()
        (Path(folder) / "data" / "a").write_text("here")
        yield Path(folder) / "data"


async def ran(machine: Any, source: str, language: Any = "python", **options: Any) -> Outcome:
    sandbox = MachineSandbox(machine)
    try:
        return await sandbox.run(Job(language=language, source=source, **options), NoHost())
    finally:
        await sandbox.aclose()


# --- what jobs see of this computer


@BOTH
@pytest.mark.parametrize("of", [str, Path])
def test_one_path_in_the_place_of_a_list_is_refused(make: Any, of: Callable[[Path], Any], data: Path) -> None:
    # A text is a list of its letters, and one of them is the whole disk.
    with pytest.raises(InvalidSettings, match=rf"read_only is .*write \['{data}'\]"):
        make(read_only=of(data))


@BOTH
@pytest.mark.parametrize("root", ["/", "//", "/usr/..", "a link"])
def test_the_whole_disk_is_not_shown_to_jobs(make: Any, root: str, data: Path) -> None:
    if root == "a link":
        root = str(data / "root")
        os.symlink("/", root)
    with pytest.raises(InvalidSettings, match="the whole disk of this server"):
        make(read_only=[root])


@BOTH
def test_a_path_that_is_not_there_is_refused_with_the_nearest(make: Any, data: Path) -> None:
    with pytest.raises(InvalidSettings, match=rf"dta', which is not there\. Did you mean '{data}'\?"):
        make(read_only=[data.with_name("dta")])
    with pytest.raises(InvalidSettings, match=r"'data', which does not begin at the root\. Write '/"):
        make(read_only=["data"])


@BOTH
async def test_a_path_that_has_gone_since_is_told(make: Any, data: Path) -> None:
    machine = make(read_only=[data])
    os.rename(data, data.with_name("elsewhere"))
    with pytest.raises(CannotSpawn, match="not there any more"):
        await machine.spawn(["python3"], Job(language="bash", source="").limits)


@pytest.mark.parametrize("place", ["/tmp", "/dev/null", "/proc/self"])
def test_a_place_that_a_namespace_has_itself_is_refused(place: str) -> None:
    with pytest.raises(InvalidSettings, match=f"which would not be seen.*{place[:4]}"):
        Bubblewrap(read_only=[place])


@pytest.mark.slow
async def test_what_is_below_the_scratch_folder_is_seen_there_and_cannot_be_written() -> None:
    runs_here(Bubblewrap(), await Bubblewrap().check())
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="everthink-shown-") as shown:
        os.chmod(shown, 0o777)
        source = f"ls -d {shown}; echo x > {shown}/b || echo no; echo y > /tmp/mine && cat /tmp/mine"
        outcome = await ran(Bubblewrap(read_only=[shown]), source, "bash")
        assert outcome.stdout == f"{shown}\nno\ny\n", outcome
        assert os.listdir(shown) == []


@pytest.mark.slow
async def test_a_link_that_was_named_shows_what_it_leads_to(data: Path) -> None:
    runs_here(Bubblewrap(), await Bubblewrap().check())
    link = f"{data.parent}/link"
    os.symlink("data", link)
    outcome = await ran(Bubblewrap(read_only=[link]), f"cat {link}/a", "bash")
    assert outcome.stdout == "here", outcome


@pytest.mark.parametrize(
    ("names", "why"),
    [
        ("data", r"names is 'data', a str.*write \['data'\]"),
        (["usr"], "the machine has a /usr of its own"),
        (["tmp"], "the machine has a /tmp of its own"),
        (["a/b"], "'a/b' is no name of a folder"),
        ([".."], r"'\.\.' is no name of a folder"),
        ([3], r"names is \(3,\)"),
    ],
)
def test_names_at_the_root_that_cannot_be_there_are_refused(names: Any, why: str) -> None:
    with pytest.raises(InvalidSettings, match=why):
        Bubblewrap().with_root(names)


# --- the rest


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: Bubblewrap(user="nobody"), "Bubblewrap: user is 'nobody'"),  # pyright: ignore[reportArgumentType]
        (lambda: Bubblewrap(user=-1), "Bubblewrap: user is -1"),
        (lambda: Locked(folder=3), "Locked: folder is 3"),  # pyright: ignore[reportArgumentType]
        (lambda: Locked(python=""), "Locked: python is ''"),
        (lambda: Docker(3), "Docker: image is 3"),  # pyright: ignore[reportArgumentType]
        (lambda: Docker(user="nobody"), "Docker: user is 'nobody'"),  # pyright: ignore[reportArgumentType]
        (lambda: Docker(runtime=""), "Docker: runtime is ''"),
        (lambda: MachineSandbox(Locked(), most=0), "most is 0.*at least 1"),
        (lambda: MachineSandbox(Locked(), most="2"), "most is '2'"),  # pyright: ignore[reportArgumentType]
        (lambda: MachineSandbox(Locked), r"machine is <class.*Write Locked\(\)"),  # pyright: ignore[reportArgumentType]
        (lambda: MachineSandbox("bwrap"), "machine is 'bwrap'"),  # pyright: ignore[reportArgumentType]
        (lambda: MachineSandbox(Locked(), languages="bash"), r"write \['bash'\]"),  # pyright: ignore[reportArgumentType]
        (lambda: MachineSandbox(Locked(), languages=[]), r"languages is \[\]"),
        (lambda: MachineSandbox(Locked(), languages=["pyton"]), "did you mean 'python'"),  # pyright: ignore[reportArgumentType]
    ],
)
def test_options_that_make_no_sense_are_told_with_their_name(make: Callable[[], Any], why: str) -> None:
    with pytest.raises(InvalidSettings, match=why):
        make()


async def test_a_machine_that_was_not_awaited_is_told_with_what_to_write() -> None:
    machine = strongest()
    with pytest.raises(InvalidSettings, match=r"Write await strongest\(\)"):
        MachineSandbox(machine)  # pyright: ignore[reportArgumentType]
    machine.close()


@pytest.mark.slow
@BOTH
async def test_a_python_that_was_named_and_cannot_be_read_is_told_with_its_name(make: Any) -> None:
    told = await make(python="/nowhere/python3").check() or ""
    assert "python='/nowhere/python3' is no program that" in told


# --- a machine that ends at once says why


class Complaining(SaidPipe):
    """A program that ends with words on its standard error, which are read when it is gone."""

    said: tuple[str, ...] = ()

    async def kill(self) -> None:
        await super().kill()
        self.said = ("bwrap: Can't make symlink at /usr:", "File exists")


async def test_a_machine_that_ends_before_its_runner_speaks_says_what_it_said() -> None:
    outcome = await ran(SaidMachine(Complaining([])), "1")
    assert outcome.status == "crashed"
    assert outcome.error == (
        "The machine crashed: it ended. Nothing was written. It said: bwrap: Can't make symlink at /usr: File"
        " exists"
    )


@pytest.mark.slow
async def test_bubblewrap_that_cannot_do_what_it_is_told_says_why() -> None:
    runs_here(Bubblewrap(), await Bubblewrap().check())
    machine = Bubblewrap()
    machine._at_root = ("usr",)
    assert "usr: File exists" in ((await ran(machine, "1")).error or "")


@pytest.mark.slow
async def test_a_daemon_that_is_not_there_is_told_in_the_outcome_and_once_in_the_log(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    command = tmp_path / "docker"
    command.write_text(
        '#!/bin/sh\necho "Cannot connect to the Docker daemon." >&2\n[ "$1" = run ] && exit 125\nexit 1\n'
    )
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with caplog.at_level(logging.WARNING):
        outcome = await ran(Docker(), "1")
    assert (outcome.status, "Cannot connect to the Docker daemon." in (outcome.error or "")) == (
        "crashed",
        True,
    )
    assert [record.getMessage()[:47] for record in caplog.records] == [
        "Docker does not say whether containers are left"
    ]
