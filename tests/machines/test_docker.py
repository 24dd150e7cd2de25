"""Docker passes the contract: in containers where a daemon answers, else with a fake of its command."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from everthink.machines.bubblewrap import Bubblewrap
from everthink.machines.docker import Docker
from everthink.machines.port import CannotSpawn, Machine
from everthink.machines.sandbox import MachineSandbox
from everthink.sandbox.port import Job, Limits, NoHost
from everthink.testing.contracts.machine import MachineContract
from tests.machines import fake_docker
from tests.machines.here import runs_here
from tests.support.samples import sample

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A command `docker`, and the folder with its containers."""
    command, containers = tmp_path / "bin" / "docker", tmp_path / "containers"
    command.parent.mkdir()
    containers.mkdir()
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S {fake_docker.__file__} "$@"\n')
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{command.parent}:/usr/local/bin:/usr/bin:/bin")
    monkeypatch.setenv("DOCKER_CONFIG", str(containers))
    return containers


class TestFakeDocker(MachineContract):
    @pytest.fixture(autouse=True)
    def fake_daemon(self, fake: Path) -> None:
        """What the tests speak to."""

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def here(cls) -> None:
        runs_here(Bubblewrap())

    async def machine(self) -> Machine:
        return Docker()

    async def test_files_in_memory_are_bounded(self) -> None:
        pytest.skip("by control groups, which the fake has not")

    async def test_ways_of_the_kernel_that_scripts_do_not_need_are_closed(self) -> None:
        pytest.skip("by Docker's own filter, which the fake has not")


class TestDocker(MachineContract):
    many = sample(20, 1_500)

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def here(cls) -> None:
        if (problem := asyncio.run(Docker().check())) is not None:
            pytest.skip(problem)

    async def machine(self) -> Machine:
        return Docker()


async def ran(script: str = "echo hi") -> str:
    sandbox = MachineSandbox(Docker())
    outcome = await sandbox.run(Job(language="bash", source=script), NoHost())
    await sandbox.aclose()
    return outcome.stdout + (outcome.error or "")


async def test_no_container_is_left_behind_when_its_command_is(fake: Path) -> None:
    runs_here(Bubblewrap(), await Bubblewrap().check())
    (fake / "made-and-never-begun").write_text("created")
    assert await ran() == "hi\n"
    assert os.listdir(fake) == []


async def test_a_daemon_that_does_not_answer_is_told_with_the_way_out(fake: Path) -> None:
    os.rmdir(fake)
    told = await Docker().check() or ""
    assert "Cannot connect to the Docker daemon" in told
    assert "DOCKER_HOST" in told


async def test_an_image_that_is_not_there_is_told_with_its_command(fake: Path) -> None:
    assert await Docker("other:1").check() == "The image other:1 is not there: docker pull other:1"


async def test_a_command_that_is_not_there_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert "https://docs.docker.com" in (await Docker().check() or "")
    assert "https://docs.docker.com" in await ran()


def test_what_is_no_name_of_an_image_is_no_option_either() -> None:
    with pytest.raises(CannotSpawn):
        Docker("--privileged")


@pytest.mark.skipif(shutil.which("docker") is None, reason="the command docker is not there")
def test_the_real_command_knows_every_option_that_we_use() -> None:
    said = subprocess.run(["docker", "run", "--help"], capture_output=True, text=True, check=True).stdout
    known = set(re.findall(r"(?<=\s)--[a-z-]+", said))
    used = {word for word in Docker(runtime="runsc").options(Limits()) if word.startswith("--")}
    assert used <= known
    assert used <= fake_docker.VALUES | fake_docker.SWITCHES


def test_a_container_is_bounded_as_the_job_is() -> None:
    options = Docker().options(Limits(memory=1 << 30, processes=5, tree_bytes=1 << 20))
    said = dict(pairwise(options))
    assert said["--pids-limit"] == "21"
    assert (
        int(said["--memory"]) == int(said["--memory-swap"]) == (1 << 30) + (96 << 20) + (5 << 20) + (16 << 20)
    )
    assert said["--network"] == "none"
    assert said["--user"] == "65534:65534"
    variables = [word for word in options if word.startswith("EVERTHINK_MACHINE=")]
    assert json.loads(variables[0].partition("=")[2]) == {"alone": True, "counted": True}
