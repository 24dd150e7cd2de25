"""The same in JavaScript: other names for functions of the workspace, and objects as arguments."""

from __future__ import annotations

import pytest

from everthink import tool
from tests.codemode.support import MakeCoder

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


@tool
async def price(sku: str) -> int:
    """The price of something."""
    return {"apple": 3, "pear": 4}[sku]


@tool(needs_approval=True)
async def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


async def test_code_in_javascript_calls_tools_waits_and_goes_on(coder: MakeCoder) -> None:
    agent = await coder(price, pay, options={"language": "javascript"})
    waiting = await agent.run(
        'const sum = await tools.price({sku: "apple"}) + await tools.price({sku: "pear"});\n'
        'await state.writeFile({path: "/sum.txt", content: String(sum)});\n'
        "await tools.pay({amount: sum});"
    )
    assert waiting.get("status") == "paused", await agent.part()
    await agent.answer(True)
    output = await agent.go_on()
    assert output["status"] == "completed", output
    assert [one["state"] for one in output["calls"]] == ["done"] * 4
    assert await (await agent.agent()).workspace.read_file("/sum.txt") == "7"


@pytest.mark.parametrize(
    "code",
    [
        "import fs from 'node:fs'; fs.readdirSync('/')",
        "import { writeFileSync } from 'fs'; writeFileSync('/lost.txt', 'x')",
        "import { existsSync } from 'node:fs'; existsSync('/kept.txt')",
        "files.write('/lost.txt', 'x')",
        "files.list('/')",
    ],
)
async def test_javascript_is_not_shown_an_empty_tree_in_the_place_of_the_workspace(
    coder: MakeCoder, code: str
) -> None:
    agent = await coder(options={"language": "javascript"})
    await (await agent.agent()).workspace.write_file("/kept.txt", "kept")
    output = await agent.run(code)
    assert output["status"] == "error", output
    assert "There are no files here" in output["error"]
    assert "await state.readFile({path})" in output["error"]


async def test_types_in_javascript_are_told_as_such(coder: MakeCoder) -> None:
    agent = await coder(options={"language": "javascript"})
    output = await agent.run("const n: number = 3; n")
    assert output["error"].endswith("This runs JavaScript, not TypeScript: leave the types out."), output
