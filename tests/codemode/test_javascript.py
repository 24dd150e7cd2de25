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


@tool
async def keep(record: dict[str, int], times: int = 1) -> int:
    """Keep a record."""
    return sum(record.values()) * times


async def test_a_tool_that_takes_an_object_is_called_in_every_way(coder: MakeCoder) -> None:
    agent = await coder(keep, options={"language": "javascript"})
    output = await agent.run(
        "[await tools.keep({record: {a: 1, b: 2}}), await tools.keep({record: {a: 1}, times: 5}),"
        " await tools.keep({a: 1}), await tools.keep({a: 1}, 3)]"
    )
    assert output["result"] == [3, 5, 1, 3], output


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


@pytest.mark.memory_case(403)
async def test_quotes_and_templates_in_javascript_do_no_harm(coder: MakeCoder) -> None:
    agent = await coder(price, options={"language": "javascript"})
    output = await agent.run(
        "const sku = 'apple', text = `\\`${sku}\\` costs \"${await tools.price({sku})}\" '$'`;\ntext"
    )
    assert output["result"] == """`apple` costs "3" '$'"""


@pytest.mark.memory_case(422)
@pytest.mark.parametrize(
    "code",
    [
        "```js\nexport default async () => tools.price({sku: 'apple'})\n```",
        "```typescript\nasync function main() { return 3 }\n```",
        "```\nfunction main() { return 3 }\n```",
        "  ```javascript\nexport default 3\n```\n",
    ],
)
async def test_fences_with_exports_and_functions_in_them_are_run(coder: MakeCoder, code: str) -> None:
    agent = await coder(price, options={"language": "javascript"})
    output = await agent.run(code)
    assert output.get("result") == 3, output


@pytest.mark.memory_case(316, 393, 397)
async def test_bytes_of_javascript_reach_files_and_come_back(coder: MakeCoder) -> None:
    agent = await coder(options={"language": "javascript"})
    output = await agent.run(
        "const all = new Uint8Array([7, 0, 255, 7]);\n"
        "await state.writeFileBytes({path: '/b', content: all.subarray(1, 3)});\n"
        "const read = await state.readFileBytes({path: '/b'});\n"
        "[read instanceof Uint8Array, [...read], read]"
    )
    assert output["result"] == [True, [0, 255], {"__bytes__": "AP8="}], output
    assert await (await agent.agent()).workspace.read_file_bytes("/b") == b"\x00\xff"
