"""Scripts in Python on a computer without a machine: functions run in Monty, programs say what they need."""

# ruff: noqa: E501 - programs stand as they are

from __future__ import annotations

import pytest

from everthink import tool
from everthink.skill_scripts.rights import Rights
from tests.skill_scripts.scripts import add, files, ran, refusal
from tests.skill_scripts.test_hostile import no_machine

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


@pytest.fixture(autouse=True)
def without_a_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pydantic_monty")
    no_machine(monkeypatch)


async def test_a_function_runs_with_its_input_tools_workspace_and_output() -> None:
    @tool(name="add-up")
    def add_up(numbers: list[int]) -> int:
        """Add them."""
        return sum(numbers)

    source = (
        "import json\nasync def run(input, ctx):\n"
        "    print('seen')\n"
        "    open('/output/n.txt', 'w').write(open('/skill/SKILL.md').read()[:3])\n"
        "    return [input['n'], ctx['skill']['name'], await tools.add(a=1, b=2), await tools.add({'a': 1, 'b': 3}),\n"
        "            await tools.call('add', {'a': 1, 'b': 4}), await tools.add_up(numbers=[1, 2]),\n"
        "            await workspace.read_file('a'), json.loads(open('/input.json').read())]"
    )
    found = await ran("a.py", source, input={"n": 1}, tools=[add, add_up], workspace_instance=files(a="x"))
    assert found == {
        "result": [1, "release-notes", 3, 4, 5, 3, "x", {"n": 1}],
        "outputFiles": [{"path": "/output/n.txt", "encoding": "text", "content": "---"}],
    }
    assert await ran("a.py", "def run(input):\n    return input", input=[1, None]) == [1, None]


async def test_a_program_says_that_it_needs_a_machine_and_how_one_is_had() -> None:
    words = await refusal("a.py", "import argparse\nprint(1)")
    assert words.startswith("scripts/a.py needs a machine: it is a program")
    assert "apt install bubblewrap" in words
    assert "skills.runner(machine=" in words


async def test_a_function_that_needs_more_of_python_says_so_before_anything_is_done() -> None:
    words = await refusal("a.py", "import numpy\ndef run(input):\n    return 1")
    assert "Nothing was run" in words
    assert "All of Python runs in a machine" in words


async def test_writing_is_refused_without_the_right_and_tools_that_were_not_given_are_not_there() -> None:
    place = files(a="x")
    source = "async def run(input):\n    await workspace.write_file('a', 'gone')"
    assert "write access is not available" in await refusal("a.py", source, workspace_instance=place)
    assert await place.read_file("/a") == "x"
    words = await refusal(
        "a.py", "async def run(input):\n    return await tools.call('drop', {})", tools=[add]
    )
    assert "Tool not available: drop" in words


async def test_what_works_for_too_long_is_stopped() -> None:
    words = await refusal("a.py", "def run(input):\n    while True: pass", timeout=1)
    assert words.startswith("Python script execution timed out")


async def test_what_is_printed_is_in_the_words_of_a_failure() -> None:
    words = await refusal("a.py", "def run(input):\n    print('so far')\n    raise ValueError('no cheese')")
    assert "ValueError: no cheese" in words
    assert words.endswith("It printed:\nso far")


def test_rights_are_the_same_without_a_machine() -> None:
    assert Rights.of(workspace=None, files=None, network=False, tools=None).on_interrupt == "rerun"
