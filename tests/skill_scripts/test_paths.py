"""Which paths a script is told: those of its skill, and no word of where that is on this computer."""

# ruff: noqa: E501 - programs stand as they are

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest

import everthink
from everthink.machines.bubblewrap import Bubblewrap
from everthink.machines.locked import Locked
from tests.machines.here import runs_here
from tests.skill_scripts.scripts import ran, refusal, script, text
from tests.skill_scripts.test_forgotten import no_machine

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

LIB = 'def boom():\n    open("/skill/none.txt")\n'
MORE = (script("scripts/lib.py", LIB), text("references/guide.md", "Be brief."))
OURS = ("everthink-machine-", str(Path(everthink.__file__).parent), str(Path.cwd()))


@pytest.fixture(scope="module", params=[None, Bubblewrap, Locked], ids=["strongest", "Bubblewrap", "Locked"])
def machine(request: pytest.FixtureRequest) -> Any:
    """The strongest shows files at the root; the others leave that to Python's own functions."""
    made = None if request.param is None else request.param()
    runs_here(made or Locked())
    return made


def holds_no_path_of_ours(told: Any) -> None:
    """Fail for a word of where the files are, or where this server is."""
    words = told if isinstance(told, str) else json.dumps(told)
    for path in OURS:
        assert path not in words, words
    assert f"{tempfile.gettempdir()}/everthink" not in words


ASKS = """
import glob, inspect, os, pathlib, shutil, subprocess, sys, tempfile, traceback
import lib

def run(input, ctx):
    def error(function):
        try:
            function()
        except OSError as raised:
            return [str(raised), raised.filename, "".join(traceback.format_exception(type(raised), raised, raised.__traceback__))]
    os.chdir("/skill/references")
    inside = os.getcwd()
    os.chdir("/skill")
    return {
        "cwd": [os.getcwd(), os.getcwdb().decode(), str(pathlib.Path.cwd()), inside],
        "absolute": [os.path.abspath("x"), str(pathlib.Path("x").absolute()), str(pathlib.Path("x").resolve()), os.path.realpath("/skill/x")],
        "argv": sys.argv, "file": [__file__, lib.__file__, inspect.getsourcefile(lib), sys.path[0]],
        "errors": [error(lambda: open("/skill/none")), error(lambda: os.listdir("/skill/none")), error(lambda: os.rename("/skill/none", "/output/x")), error(lib.boom)],
        "names": [open("/skill/SKILL.md").name, open("/skill/SKILL.md", "rb").name, open("/skill/SKILL.md", "rb", buffering=0).name],
        "listed": sorted(entry.path for entry in os.scandir("/skill")) + sorted(glob.glob("/skill/*")) + sorted(map(str, pathlib.Path("/skill").iterdir())),
        "walked": [top for top, _, _ in os.walk("/skill")],
        "copied": [shutil.copytree("/skill/references", "/output/copy"), os.listdir("/output/copy")],
        "variables": dict(os.environ), "expanded": os.path.expanduser("~/x"), "temporary": tempfile.gettempdir(),
        "modules": sorted(str(getattr(one, "__file__", "")) for one in list(sys.modules.values())),
        "programs": [subprocess.run(["bash", "-c", words], capture_output=True, text=True).__dict__ for words in ("pwd", "cat none", "env", "cd ~; pwd; ls")],
    }
"""


async def test_python_is_told_the_paths_of_its_skill(machine: Any) -> None:
    found = await ran("a.py", ASKS, *MORE, machine=machine)
    if "result" in found:
        assert [one["path"] for one in found["outputFiles"]] == ["/output/copy/guide.md"]
        found = found["result"]

    holds_no_path_of_ours(found)
    assert found["cwd"] == ["/skill", "/skill", "/skill", "/skill/references"]
    assert found["absolute"] == ["/skill/x"] * 4
    assert (found["argv"], found["file"]) == (
        ["/skill/scripts/a.py"],
        ["/skill/scripts/a.py", "/skill/scripts/lib.py", "/skill/scripts/lib.py", "/skill/scripts"],
    )
    assert [one[1] for one in found["errors"]] == ["/skill/none"] * 3 + ["/skill/none.txt"]
    assert found["errors"][2][0].endswith("'/skill/none' -> '/output/x'")
    assert found["names"] == ["/skill/SKILL.md"] * 3
    assert found["listed"] == ["/skill/SKILL.md", "/skill/references", "/skill/scripts"] * 3
    assert sorted(found["walked"]) == ["/skill", "/skill/references", "/skill/scripts"]
    assert found["copied"] == ["/output/copy", ["guide.md"]]


@pytest.mark.parametrize("call", ["import lib\nlib.boom()", "import lib\ndef run(input):\n    lib.boom()"])
async def test_how_python_fails_is_told_in_paths_of_the_skill(machine: Any, call: str) -> None:
    said = await refusal("a.py", call, *MORE, machine=machine)

    holds_no_path_of_ours(said)
    assert "No such file or directory: '/skill/none.txt'" in said
    assert 'File "/skill/scripts/lib.py", line 2, in boom\n    open("/skill/none.txt")' in said


async def test_modules_of_a_skill_are_found_from_anywhere_in_it(machine: Any) -> None:
    source = "import sys\nsys.path.append('/skill/assets')\nfrom pack import inner\nfrom pack.deep import X\nprint(inner.__file__, X)"
    more = (
        script("assets/pack/__init__.py", ""),
        script("assets/pack/inner.py", ""),
        script("assets/pack/deep/__init__.py", "X = 5"),
    )

    found = await ran("a.py", source, *more, machine=machine)

    assert found["stdout"] == "/skill/assets/pack/inner.py 5\n"


async def test_what_programs_say_of_a_folder_here_is_told_as_that_of_the_skill() -> None:
    runs_here(Locked(), await Locked().check())
    source = "import os, subprocess, sys\nsubprocess.run('pwd; ls $HOME/none; echo $TMPDIR; pwd > ../output/where', shell=True)\nprint(os.environ['HOME'], file=sys.stderr)"

    found = await ran("a.py", source, machine=Locked())

    holds_no_path_of_ours(found)
    assert found["stdout"] == "/skill\n/tmp\n"
    assert "'~/none'" in found["stderr"]
    assert [one["content"] for one in found["outputFiles"]] == ["/skill\n"]


async def test_without_a_machine_a_trace_names_the_script_and_none_of_our_lines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("pydantic_monty")
    no_machine(monkeypatch)

    said = await refusal("a.py", "def run(input):\n    return open('/skill/none').read()")

    assert said == (
        "Traceback (most recent call last):\n"
        '  File "/skill/scripts/a.py", line 2, in run\n'
        "    return open('/skill/none').read()\n"
        "           ~~~~~~~~~~~~~~~~~~~\n"
        "FileNotFoundError: No such file or directory: '/skill/none'"
    )


BASH = 'pwd; echo "$PWD $0 ${BASH_SOURCE[0]}"; env; cat none; source none.sh; nothing-like-it; bash scripts/bad.sh'


async def test_bash_is_told_the_paths_of_its_skill(machine: Any) -> None:
    found = await ran("a.sh", BASH, script("scripts/bad.sh", "if then fi"), machine=machine)

    holds_no_path_of_ours(found)
    assert found["stdout"].startswith("/skill\n/skill /skill/scripts/a.sh /skill/scripts/a.sh\n")
    assert "/work/skill" not in found["stdout"] + found["stderr"]


@pytest.mark.parametrize("ending", ["js", "ts"])
async def test_javascript_is_told_the_paths_of_its_skill(ending: str) -> None:
    source = "import { boom } from './lib.js';\nexport default function run(input, ctx) { boom(ctx) }"
    for body in ("null.x", "ctx.files.x.y", "import('./none.js')"):
        lib = script("scripts/lib.js", f"export function boom(ctx) {{ return {body} }}")
        found = (
            await refusal(f"a.{ending}", source, lib)
            if "import" not in body
            else str(await ran(f"a.{ending}", source, lib))
        )
        holds_no_path_of_ours(found)
        assert "/skill/scripts/lib.js" in found or found == "None"
