"""docs/machines.md: its examples of machines run jobs, on services that are made of local processes."""

from __future__ import annotations

import ast
import asyncio
import re
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from everthink.machines.port import CannotSpawn, Machine
from everthink.machines.sandbox import MachineSandbox
from everthink.sandbox.port import Job, Limits
from everthink.testing.contracts.sandbox.case import Asked

from .pages import ROOT

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

PAGE = (ROOT / "docs/machines.md").read_text("utf-8")
(EXAMPLES,) = re.findall(r"^```python\n(import asyncio\n.*?)^```$", PAGE, re.M | re.S)


class Service:
    """What both services do: start a program, and end it with everything."""

    def __init__(self) -> None:
        self.options: dict[str, Any] = {}
        self.process: asyncio.subprocess.Process | None = None
        self.reading: asyncio.Task[None] | None = None
        self.is_ended = False

    async def start(self, *words: str) -> asyncio.subprocess.Process:
        self.process = await asyncio.create_subprocess_exec(
            *words, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, start_new_session=True
        )
        return self.process

    async def end(self) -> None:
        self.is_ended = True
        if self.process is not None and self.process.returncode is None:
            self.process.kill()
            if self.reading is not None:
                await self.reading
            assert self.process.stdout is not None
            while await self.process.stdout.read(1 << 16):
                pass
            await self.process.wait()


def e2b(service: Service) -> types.ModuleType:
    """As much of E2B's package as the example uses."""

    class Commands:
        async def run(self, command: str, *, on_stdout: Any, **options: Any) -> Any:
            assert options == {"background": True, "stdin": True, "timeout": 0}
            process = await service.start("sh", "-c", command)

            async def pump() -> None:
                assert process.stdout is not None
                while part := await process.stdout.read(1 << 16):
                    on_stdout(part.decode())

            service.reading = asyncio.create_task(pump())
            return process

        async def send_stdin(self, pid: int, data: bytes) -> None:
            assert service.process is not None
            assert service.process.stdin is not None
            assert pid == service.process.pid
            service.process.stdin.write(data)

    class AsyncSandbox:
        def __init__(self) -> None:
            self.commands = Commands()

        @classmethod
        async def create(cls, template: str, **options: Any) -> AsyncSandbox:
            if template == "missing":
                raise RuntimeError("no such template")
            service.options = options
            return cls()

        async def kill(self) -> None:
            await service.end()

    module = types.ModuleType("e2b")
    module.__dict__["AsyncSandbox"] = AsyncSandbox
    return module


class Both:
    """A function of Modal: called, it blocks; `aio` does not."""

    def __init__(self, work: Any) -> None:
        self.aio = work


def modal(service: Service) -> types.ModuleType:
    """As much of Modal's package as the example uses."""

    class Process:
        def __init__(self, process: asyncio.subprocess.Process) -> None:
            assert process.stdin is not None
            self._process, self._pending = process, process.stdin
            self.stdin = types.SimpleNamespace(write=self._pending.write, drain=Both(self._pending.drain))

        @property
        def stdout(self) -> Any:
            async def parts() -> Any:
                assert self._process.stdout is not None
                while part := await self._process.stdout.read(1 << 16):
                    yield part

            return parts()

    async def execute(*words: str, text: bool) -> Process:
        assert text is False
        return Process(await service.start(*words))

    async def create(**options: Any) -> Any:
        if options["image"] == "missing":
            raise RuntimeError("no such image")
        service.options = options
        return types.SimpleNamespace(exec=Both(execute), terminate=Both(service.end))

    module = types.ModuleType("modal")
    module.__dict__["Sandbox"] = types.SimpleNamespace(create=Both(create))
    return module


@pytest.fixture(params=["E2B", "Modal"])
def made(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Service]:
    """How an example is made, with an image or template; and its service."""
    service = Service()
    monkeypatch.setitem(sys.modules, "e2b", e2b(service))
    monkeypatch.setitem(sys.modules, "modal", modal(service))
    scope: dict[str, Any] = {"__name__": "examples"}
    exec(compile(EXAMPLES, "docs/machines.md", "exec"), scope)
    if request.param == "E2B":
        return scope["E2B"], service
    return lambda image="image": scope["Modal"]("app", image), service


async def test_an_example_runs_a_job_and_ends_its_machine(made: tuple[Any, Service]) -> None:
    make, service = made
    machine: Machine = make()
    sandbox = MachineSandbox(machine)
    assert await machine.check() is None
    host = Asked()
    job = Job(
        language="python",
        source="import tools\nopen('b', 'w').write(open('a').read() * 2)\ntools.ask(1)\nprint('ü')",
        files={"/a": b"x"},
        names={"tools.ask": ""},
        limits=Limits(wall=40),
    )
    outcome = await sandbox.run(job, host)
    await sandbox.aclose()
    assert (outcome.status, outcome.stdout, outcome.changed) == ("done", "ü\n", {"/b": b"xx"}), outcome.stderr
    assert host.calls == [("tools.ask", [1], {})]
    assert service.is_ended
    assert service.options["timeout"] == 100
    assert service.options.get("allow_internet_access", not service.options.get("block_network")) is False


async def test_an_example_that_makes_no_machine_says_so(made: tuple[Any, Service]) -> None:
    make, _ = made
    with pytest.raises(CannotSpawn, match="made no sandbox: no such"):
        await make("missing").spawn(["python3"], Limits())
    outcome = await MachineSandbox(make("missing")).run(Job(language="bash", source="echo"), Asked())
    assert outcome.status == "failed"
    assert "Nothing was run." in (outcome.error or "")


def test_the_examples_fit_the_port_by_their_types(tmp_path: Path) -> None:
    page = tmp_path / "examples.py"
    fits = "\nfrom everthink.machines.port import Machine\n"
    fits += "one: Machine = E2B()\nother: Machine = Modal(None, None)\n"
    page.write_text(f"# pyright: basic\n{EXAMPLES}{fits}")
    ast.parse(page.read_text())
    ran = subprocess.run(
        [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, str(page)],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert ran.returncode == 0, ran.stdout
