"""Scripts that attack: through the runner, in every language, they get no further than in the sandbox."""

# ruff: noqa: E501 - programs stand as they are

from __future__ import annotations

import ast
import asyncio
import contextlib
import json
import os
import socket
import textwrap
from pathlib import Path
from typing import Any

import pytest

from everthink import tool
from everthink.engines.sandboxes import Sandboxes
from everthink.errors import ToolError
from everthink.machines.port import CannotSpawn
from everthink.sandbox.port import Host, Isolation, Job, Language, Limits, Outcome
from everthink.skill_scripts.runner import Runner, runner
from everthink.testing.contracts.sandbox.hostile_code import HOSTILE_CODE
from everthink.testing.contracts.sandbox.walls import WallsContract
from tests.skill_scripts.scripts import asset, opened, ran, request, text

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

SECRET = "5e1f-only-the-server-knows"
SHORT = Limits(wall=4, cpu=1.5, calls=200)


class Door:
    """A sandbox that is a runner: what the contract of sandboxes asks goes through `run`."""

    languages: frozenset[Language] = frozenset({"bash"})
    isolation: Isolation = "interpreter"

    def __init__(self) -> None:
        self._runners: list[Runner] = []
        self._sandboxes = Sandboxes()

    async def check(self) -> str | None:
        return await self._sandboxes.bash().check()

    async def run(self, job: Job, host: Host) -> Outcome:
        made = runner(timeout=job.limits.wall, limits=job.limits)
        made._own = self._sandboxes
        try:
            found = await made.run(request("a.sh", job.source))
        except ToolError as error:
            return Outcome(status="failed", error=str(error))
        return Outcome(
            status="done", exit_code=found["exitCode"], stdout=found["stdout"], stderr=found["stderr"]
        )

    async def aclose(self) -> None:
        await self._sandboxes.close()


class TestBash(WallsContract):
    """The suite of bash, with every script as one of a skill."""

    async def open(self) -> Door:
        return Door()


def no_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A computer on which no machine works."""

    async def none(self: Sandboxes, python: str | None = None) -> Any:
        raise CannotSpawn("No machine for real processes works here.")

    monkeypatch.setattr(Sandboxes, "machine", none)


def as_python(source: str) -> str:
    """A piece of code as the function of a script: its last expression is what it returns."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, MemoryError, RecursionError):
        return f"async def run(input):\n{textwrap.indent(source, '    ')}"
    if tree.body and isinstance(last := tree.body[-1], ast.Expr):
        lines = source.splitlines()
        lines[last.lineno - 1] = f"return {lines[last.lineno - 1]}"
        source = "\n".join(lines)
    return f"async def run(input):\n{textwrap.indent(source, '    ')}"


async def all_end(path: str, sources: dict[str, str], *, limits: Limits = SHORT) -> dict[str, Any]:
    """Run them all at once, and one more that is harmless; what each of them gave."""
    asked: list[Any] = []

    @tool
    def ask(value: Any = None) -> str:
        """Answer."""
        asked.append(value)
        return "an answer"

    async with opened(tools=[ask], timeout=limits.wall, limits=limits) as made:

        async def ended(source: str) -> Any:
            try:
                return await made.run(request(path, source, asset("assets/a.bin", b"x")))
            except ToolError as error:
                return f"failed: {error}"

        found = await asyncio.gather(*map(ended, sources.values()))
        alive = {"js": "export default () => 42", "ts": "export default (): number => 42"}
        harmless = alive.get(path.rpartition(".")[2], "def run(input):\n    return 42")
        assert await made.run(request(path, harmless)) == 42
    assert all(SECRET not in json.dumps(one) for one in found)
    return dict(zip(sources, found, strict=True))


@pytest.mark.parametrize("language", ["javascript", "typescript"])
async def test_javascript_ends_at_its_limits_and_the_next_script_runs(
    language: Language, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("quickjs_rs")
    monkeypatch.setenv("EVERTHINK_TEST_SECRET", SECRET)
    path = "a.js" if language == "javascript" else "a.ts"
    hostile = {
        name: f"export default async (input, {{tools}}) => {{\n{source}\n}}"
        for name, source in HOSTILE_CODE[language].items()
    }
    await all_end(path, hostile)


async def test_python_in_monty_ends_at_its_limits_and_gets_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pydantic_monty")
    no_machine(monkeypatch)
    monkeypatch.setenv("EVERTHINK_TEST_SECRET", SECRET)
    hostile = {name: as_python(source) for name, source in HOSTILE_CODE["python"].items()}
    found = await all_end("a.py", hostile)
    assert [name for name, one in found.items() if one == "escaped"] == []


async def test_python_in_a_machine_ends_at_its_limits_and_the_next_script_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("EVERTHINK_TEST_SECRET", SECRET)
    limits = Limits(wall=4, cpu=1.5, calls=200, memory=128 << 20, processes=8)
    hostile = {name: as_python(source) for name, source in HOSTILE_CODE["python"].items()}
    await all_end("a.py", hostile, limits=limits)


REACHES = """
import glob, os, socket, subprocess
secret = open("/skill/references/where.txt").read()
for path in (secret, "/proc/1/environ", "/proc/%d/environ" % os.getppid(), "/etc/shadow", "/root/.ssh/id_rsa"):
    try: print(open(path, errors="replace").read())
    except OSError as error: print(type(error).__name__)
print(dict(os.environ))
print(subprocess.run("cat %s; env; cat /proc/*/environ" % secret, shell=True, capture_output=True, text=True).stdout)
try:
    socket.create_connection(("127.0.0.1", int(os.path.basename(secret)))); print("reached")
except OSError as error: print(type(error).__name__)
os.symlink(secret, "/output/link.txt")
try: os.link(secret, "/output/hard.txt")
except OSError as error: print(type(error).__name__)
os.symlink("/", "/output/root")
os.symlink("/skill/SKILL.md", "/output/own.md")
"""


async def test_a_program_reaches_nothing_of_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVERTHINK_TEST_SECRET", SECRET)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setblocking(False)
        place = tmp_path / str(listening.getsockname()[1])
        place.write_text(SECRET)
        for folder in (place, *place.parents[:3]):
            os.chmod(folder, 0o755)
        found = await ran("a.py", REACHES, text("references/where.txt", str(place)))
        with pytest.raises(BlockingIOError):
            listening.accept()
    assert SECRET not in json.dumps(found)
    assert "reached" not in found["stdout"]
    paths = {one["path"] for one in found.get("outputFiles", [])}
    assert not paths & {"/output/link.txt", "/output/hard.txt"}


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("a.py", "import os\nos.makedirs('/output/d')\nopen('/output/../../escaped', 'w').write('x')"),
        (
            "a.sh",
            "echo x > /output/../escaped; mkdir -p /output/d; ln -s /escaped /output/d/l; ln -s / /output/r",
        ),
        ("a.js", "export default () => { files.write('/output/../escaped', 'x') }"),
    ],
)
async def test_paths_out_of_output_bring_nothing_back(path: str, source: str) -> None:
    left: list[str] = []
    with contextlib.suppress(ToolError):  # a machine has nothing at its root that can be written
        found = await ran(path, source) or {}
        left = [one["path"] for one in found.get("outputFiles", [])]
    assert [one for one in left if "escaped" in one] == []


@pytest.mark.parametrize("path", ["a.py", "a.js", "a.sh"])
async def test_a_run_finds_nothing_of_the_one_before(path: str) -> None:
    leaves = {
        "a.py": "open('/output/a', 'w').write('x'); open('/skill/left', 'w').write('x')",
        "a.js": "export default () => { globalThis.left = 1; Object.prototype.left = 1; files.write('/skill/left', 'x'); files.write('/output/a', 'x') }",
        "a.sh": "echo x > /output/a; echo x > /skill/left; alias ls=echo; export LEFT=1",
    }[path]
    finds = {
        "a.py": "import os\ndef run(input):\n    return os.path.exists('/skill/left') or os.listdir('/output')",
        "a.js": "export default () => [typeof left, ({}).left ?? null, files.exists('/skill/left'), files.list('/output')]",
        "a.sh": "ls /skill /output; echo $LEFT",
    }[path]
    async with opened() as made:
        await made.run(request(path, leaves))
        found = await made.run(request(path, finds))
    nothing = {"a.py": [], "a.js": ["undefined", None, False, []]}
    if path == "a.sh":
        assert "left" not in found["stdout"]
        assert "\na\n" not in found["stdout"]
        assert "outputFiles" not in found
    else:
        assert found == nothing[path]
