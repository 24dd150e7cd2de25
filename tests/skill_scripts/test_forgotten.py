"""A forgotten `await` in a script: what was asked for is done, or the model is told that it is not."""

from __future__ import annotations

from typing import Any

import pytest

from everthink.errors import ToolError
from everthink.machines.bubblewrap import Bubblewrap
from everthink.machines.locked import Locked
from tests.machines.here import runs_here
from tests.skill_scripts.scripts import add, files, ran, refusal

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


@pytest.fixture(scope="module", params=[Bubblewrap, Locked])
def machine(request: pytest.FixtureRequest) -> Any:
    """A machine of this computer."""
    made = request.param()
    runs_here(made)
    return made


@pytest.mark.parametrize(
    ("body", "lost"),
    [
        ("tools.add(a=1, b=2)", "tools.add"),
        ("x = tools.call('add', {})", "tools.call"),
        ("workspace.write_file('/a.md', 'x')", "workspace.write_file"),
        ("own()", "own"),
    ],
)
async def test_in_a_machine_what_was_called_and_not_awaited_fails_the_script(
    machine: Any, body: str, lost: str
) -> None:
    place = files(a_md="old")
    source = f"async def own():\n    return 1\nasync def run(input):\n    {body}\n    return 'done'\n"

    said = await refusal(
        "a.py", source, machine=machine, tools=[add], workspace_instance=place, workspace="read-write"
    )

    assert f"{lost}() was called and nobody has awaited it, so nothing of it was done" in said
    assert f"write await {lost}(" in said
    assert await place.read_file("/a.md") == "old"


async def test_in_a_machine_a_task_that_run_leaves_behind_is_told(machine: Any) -> None:
    begins = "import asyncio\nasync def run(input):\n"
    source = f"{begins}    task = asyncio.create_task(tools.add(a=1, b=2))\n    return 1\n"

    assert "run() returned while 1 of its tasks were at work" in await refusal(
        "a.py", source, machine=machine, tools=[add]
    )


async def test_in_a_machine_what_is_awaited_later_is_fine(machine: Any) -> None:
    source = (
        "import asyncio\nasync def run(input):\n    x = tools.add(a=1, b=2)\n"
        "    task = asyncio.create_task(tools.add(a=3, b=4))\n    return [await x, await task]\n"
    )
    assert await ran("a.py", source, machine=machine, tools=[add]) == [3, 7]


async def test_in_javascript_a_write_is_made_and_a_refusal_that_nobody_hears_is_told() -> None:
    place = files(a_md="old")
    writes = "export default async (input, ctx) => { ctx.workspace.writeFile('/a.md', 'new'); return 1 }"

    with pytest.raises(ToolError, match="Nobody has awaited this: write await before the call"):
        await ran("a.js", writes, workspace_instance=place)
    assert await place.read_file("/a.md") == "old"
    assert await ran("a.js", writes, workspace_instance=place, workspace="read-write") == 1
    assert await place.read_file("/a.md") == "new"


async def test_without_a_machine_too(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pydantic_monty")
    no_machine(monkeypatch)
    place = files(a_md="old")
    writes = "async def run(input):\n    x = workspace.write_file('/a.md', 'new')\n    return 1\n"

    with pytest.raises(ToolError, match="Nobody has awaited this: write `await` before the call"):
        await ran("a.py", writes, workspace_instance=place)
    assert await ran("a.py", writes, workspace_instance=place, workspace="read-write") == 1
    assert await place.read_file("/a.md") == "new"
    for inner, words in (
        ("workspace.read_file('/a.md')", "every call of a tool needs `await`"),  # by its type
        ("x", "nobody has awaited it"),
    ):
        begins = "from typing import Any\nasync def run(input):\n    x: Any = workspace.read_file('/a.md')\n"
        with pytest.raises(ToolError, match=f"(?i){words}"):
            await ran(
                "a.py",
                f"{begins}    await workspace.write_file('/a.md', {inner})\n",
                workspace_instance=place,
                workspace="read-write",
            )
    assert await place.read_file("/a.md") == "new"


def no_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A computer on which no real process can be locked in."""
    from everthink.engines.sandboxes import Sandboxes
    from everthink.machines.port import CannotSpawn

    async def none(self: Sandboxes, python: str | None = None) -> Any:
        raise CannotSpawn("There is no machine.")

    monkeypatch.setattr(Sandboxes, "machine", none)
