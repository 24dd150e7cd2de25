"""Scripts in Python, in each machine of this computer: functions and programs."""

# ruff: noqa: E501 - programs stand as they are

from __future__ import annotations

import os
from typing import Any

import pytest

from everthink.machines.bubblewrap import Bubblewrap
from everthink.machines.locked import Locked
from tests.machines.here import runs_here
from tests.skill_scripts.scripts import add, asset, files, ran, refusal, script, text

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


@pytest.fixture(scope="module", params=[None, Bubblewrap, Locked], ids=["strongest", "Bubblewrap", "Locked"])
def machine(request: pytest.FixtureRequest) -> Any:
    """The strongest shows files at the root; the others leave that to Python's own functions."""
    made = None if request.param is None else request.param()
    runs_here(made or Locked())
    return made


@pytest.mark.memory_case(556)
async def test_the_function_gets_input_and_context_and_its_value_is_returned(machine: Any) -> None:
    source = "def run(input, ctx):\n    return [input['n'] + 1, ctx['skill']['name']]"
    assert await ran("a.py", source, input={"n": 41}, machine=machine) == [42, "release-notes"]
    assert await ran("a.py", "async def run(input):\n    return input", input="x", machine=machine) == "x"


PROGRAM = """
# def run(input): this is no function
import argparse, json, pathlib, sys
import lib
asked = argparse.ArgumentParser()
asked.add_argument("name")
asked.add_argument("--times", type=int, default=1)
given = asked.parse_args()
print(given.name * given.times, json.load(sys.stdin) == json.load(open("/input.json")), lib.X, __name__)
print(json.loads(pathlib.Path("/context.json").read_text())["skill"]["version"])
print(pathlib.Path("/skill/SKILL.md").read_text().splitlines()[1], pathlib.Path("/skill/assets/a.bin").read_bytes())
print(pathlib.Path(__file__).parent.name, open("references/guide.md").read(), sys.argv[0])
print("oops", file=sys.stderr)
sys.exit(3)
"""


@pytest.mark.memory_case(557)
async def test_a_program_reads_what_is_mounted_and_tells_what_it_printed(machine: Any) -> None:
    found = await ran(
        "a.py",
        PROGRAM,
        script("scripts/lib.py", "X = 5"),
        asset("assets/a.bin", b"\xff\x00"),
        text("references/guide.md", "Be brief."),
        input={"q": 1},
        args=("ab", "--times", "2"),
        machine=machine,
    )
    assert found == {
        "stdout": "abab True 5 __main__\n2\nname: release-notes b'\\xff\\x00'\nscripts Be brief. /skill/scripts/a.py\n",
        "stderr": "oops\n",
        "exitCode": 3,
    }


@pytest.mark.memory_case(557)
@pytest.mark.parametrize(("end", "code"), [("0", 0), ("", 0), ("'bad luck'", 1), ("256 + 7", 7)])
async def test_a_program_ends_with_the_code_that_it_says(end: str, code: int) -> None:
    found = await ran("a.py", f"import sys\nsys.exit({end})")
    assert found["exitCode"] == code


LEAVES = """
import os, pathlib
os.makedirs("/output/deep/er")
pathlib.Path("/output/deep/er/z.bin").write_bytes(b"\\xff\\x00")
with open("/output/b.txt", "w") as file: file.write("bé")
pathlib.Path("/output/empty").mkdir()
os.rename("/output/b.txt", "/output/a.txt")
os.symlink("/skill/SKILL.md", "/output/l.md"); os.unlink("/output/l.md")
print(sorted(os.listdir("/output")), os.path.exists("/output/a.txt"))
"""


@pytest.mark.memory_case(558)
async def test_what_a_program_leaves_in_output_is_returned_in_the_order_of_paths(machine: Any) -> None:
    found = await ran("a.py", LEAVES, machine=machine)
    assert found["outputFiles"] == [
        {"path": "/output/a.txt", "encoding": "text", "content": "bé"},
        {"path": "/output/deep/er/z.bin", "encoding": "base64", "content": "/wA="},
    ]
    assert found["stdout"] == "['a.txt', 'deep', 'empty'] True\n"


@pytest.mark.memory_case(559)
async def test_output_files_of_a_function_wrap_its_value(machine: Any) -> None:
    source = "def run(input, ctx):\n    open('/output/n.txt', 'w').write('1')\n    return {'ok': True}"
    files = [{"path": "/output/n.txt", "encoding": "text", "content": "1"}]
    assert await ran("a.py", source, machine=machine) == {"result": {"ok": True}, "outputFiles": files}


@pytest.mark.memory_case(560)
async def test_an_output_file_that_is_too_large_is_refused(machine: Any) -> None:
    source = "def run(input):\n    open('/output/n.txt', 'w').write('x' * input)"
    assert await ran("a.py", source, input=64_000, machine=machine)
    assert "/output/n.txt has 64,001 bytes" in await refusal("a.py", source, input=64_001, machine=machine)


@pytest.mark.memory_case(561)
async def test_tools_are_called_by_attribute_and_by_name(machine: Any) -> None:
    source = (
        "import asyncio\nasync def run(input, ctx):\n"
        "    return await asyncio.gather(tools.add(a=1, b=2), tools.add({'a': 3, 'b': 4}), tools.call('add', {'a': 5, 'b': 6}))"
    )
    assert await ran("a.py", source, tools={"add": add}, machine=machine) == [3, 7, 11]
    words = await refusal(
        "a.py", "async def run(input):\n    await tools.drop()", tools=[add], machine=machine
    )
    assert "Tool not available: drop" in words


@pytest.mark.memory_case(562)
async def test_a_workspace_that_is_given_may_be_read_and_not_written(machine: Any) -> None:
    place = files(notes_md="# Plan")
    reads = (
        "async def run(input):\n    return [await workspace.read_file('notes.md'), await workspace.stat('/notes.md'),"
        " [one['name'] for one in await workspace.list_files()], [one['path'] for one in await workspace.glob('*.md')]]"
    )
    found = await ran("a.py", reads, workspace_instance=place, machine=machine)
    assert found == ["# Plan", {"type": "file", "size": 6}, ["notes.md"], ["/notes.md"]]
    writes = "async def run(input):\n    await workspace.write_file('/notes.md', 'gone')"
    words = await refusal("a.py", writes, workspace_instance=place, machine=machine)
    assert "write access is not available" in words
    assert await place.read_file("/notes.md") == "# Plan"


@pytest.mark.memory_case(563)
@pytest.mark.parametrize(
    "source", ["def run(input):\n    raise ValueError('out of cheese')", "raise ValueError('out of cheese')"]
)
async def test_an_exception_that_nobody_catches_is_told(source: str, machine: Any) -> None:
    words = await refusal("a.py", f"print('so far')\n{source}", machine=machine)
    # A process has two streams: which of them is heard first, nobody knows.
    assert words.startswith(
        (
            "ValueError: out of cheese\nIt printed:\nso far\n",
            "ValueError: out of cheese\nIt printed:\nTraceback",
        )
    )
    assert "so far" in words
    assert 'File "/skill/scripts/a.py", line' in words
    assert "guest" not in words


async def test_a_value_that_is_no_json_is_told() -> None:
    assert "is no JSON" in await refusal("a.py", "def run(input):\n    return {1, 2}")


@pytest.mark.memory_case(564)
@pytest.mark.parametrize(
    "source",
    [
        "while True: pass",
        "def run(input):\n    while True:\n        try:\n            while True: pass\n        except BaseException: pass",
        "import time\ntime.sleep(1000)",
    ],
)
async def test_what_works_or_waits_for_too_long_is_stopped(source: str, machine: Any) -> None:
    words = await refusal("a.py", source, timeout=1, machine=machine)
    assert words.startswith("Python script execution timed out")


async def test_a_script_that_is_no_python_is_told_before_anything_runs() -> None:
    assert "scripts/a.py, line 2 cannot be read as Python" in await refusal("a.py", "x = 1\ndef run(:")


OTHER = "/usr/bin/python3"


@pytest.mark.skipif(not os.path.exists(OTHER), reason="there is no other Python here")
async def test_another_python_may_be_named() -> None:
    source = "import os, sys\ndef run(input, ctx):\n    return os.path.samefile(sys.executable, input)"
    assert await ran("a.py", source, input=OTHER, python=OTHER) is True
    words = await refusal("a.py", "print(1)", python="/nowhere/python3")
    assert "needs a machine" in words
    assert "python='/nowhere/python3' is no program" in words
