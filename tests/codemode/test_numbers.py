"""Values between code and tools: they arrive as they were, or are refused with words."""

from __future__ import annotations

from typing import Any

import pytest

from everthink import Tool, tool
from tests.codemode.support import Coder, MakeCoder

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

LARGE = 2**53 + 1
HUGE = 2**70


class Desk:
    """Tools that give and take whatever a test says."""

    def __init__(self, gives: Any = None) -> None:
        self.taken: list[Any] = []

        @tool
        async def give() -> Any:
            """Give something."""
            return gives

        @tool
        async def order(id: int) -> str:
            """Take an order."""
            self.taken.append(id)
            return f"order {id}"

        async def anything(given: dict[str, Any]) -> Any:
            self.taken.append(given["what"])
            return given["what"]

        schema = {"type": "object", "properties": {"what": {}}, "required": ["what"]}
        take = Tool.from_schema("take", "Take something.", schema, anything)
        self.tools = (give, order, take)


async def javascript(coder: MakeCoder, desk: Desk) -> Coder:
    return await coder(*desk.tools, options={"language": "javascript"})


@pytest.mark.parametrize("number", [LARGE, -LARGE, 2**64 - 1, HUGE, 10**3_000])
async def test_large_whole_numbers_are_the_same_on_both_sides_of_javascript(
    coder: MakeCoder, number: int
) -> None:
    desk = Desk({"id": number})
    agent = await javascript(coder, desk)
    output = await agent.run(
        "const {id} = await tools.give({}); await tools.order({id}); await tools.order({id: id + 1n});"
        " [typeof id, String(id)]"
    )
    assert output["result"] == ["bigint", str(number)]
    assert desk.taken == [number, number + 1]


async def test_whole_numbers_up_to_2_to_the_53_are_numbers_of_javascript(coder: MakeCoder) -> None:
    desk = Desk([2**53 - 1, -(2**53) + 1, 1.5e300, 3])
    agent = await javascript(coder, desk)
    output = await agent.run(
        "const all = await tools.give({}); await tools.take({what: all}); all.map((one) => typeof one)"
    )
    assert output["result"] == ["number"] * 4
    assert desk.taken == [[2**53 - 1, -(2**53) + 1, 1.5e300, 3]]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("9007199254740993", "Write a BigInt: 9007199254740993n"),
        ("{deep: [NaN]}", "NaN"),
        ("-Infinity", "no number of JSON"),
        ("10n ** 5000n", "more than 4,000 digits"),
        ("new Map([[{}, 1]])", "whose keys are no text"),
        ("new Map([[1, 1], ['1', 2]])", "become the same text"),
        ("Promise.resolve(1)", "put await before"),
        ("tools.give({})", "put await before"),
    ],
)
async def test_what_would_arrive_as_something_else_is_refused_with_words(
    coder: MakeCoder, value: str, words: str
) -> None:
    desk = Desk()
    agent = await javascript(coder, desk)
    output = await agent.run(f"await tools.take({{what: {value}}})")
    assert output["status"] == "error", output
    assert words in output["error"]
    assert desk.taken == []
    if "Promise" not in value and "give" not in value:  # of these the end of the code is awaited
        returned = await agent.run(f"({value})")
        assert returned["status"] == "error", returned
        assert words in returned["error"]


async def test_sets_are_lists_and_maps_are_objects(coder: MakeCoder) -> None:
    desk = Desk()
    agent = await javascript(coder, desk)
    output = await agent.run(
        "const ids = new Set([3, 1, 2]), names = new Map([['b', new Set(['x'])], ['a', 1n]]);\n"
        "await tools.take({what: {ids, names}}); ({ids, names})"
    )
    assert desk.taken == [{"ids": [3, 1, 2], "names": {"b": ["x"], "a": 1}}]
    assert output["result"] == desk.taken[0]


@pytest.mark.parametrize(
    "code",
    [
        "const x = tools.give({}); x.length",
        "const x = tools.give({}); x[0]",
        "const x = tools.give({}); x + 1",
        "const x = tools.give({}); `${x}`",
        "const x = tools.give({}); Object.keys(x)",
    ],
)
async def test_a_forgotten_await_in_javascript_is_told(coder: MakeCoder, code: str) -> None:
    agent = await javascript(coder, Desk([1, 2]))
    output = await agent.run(code)
    assert output["status"] == "error", output
    assert "tools.give() was not awaited: put await before the call." in output["error"]


async def test_calls_that_are_awaited_later_are_promises_as_ever(coder: MakeCoder) -> None:
    agent = await javascript(coder, Desk([1, 2]))
    output = await agent.run(
        "const one = tools.give({}), other = tools.give({});\n"
        "const all = await Promise.all([one, other]), first = await Promise.race([one, other]);\n"
        "const [done] = await Promise.allSettled([one.then((x) => x.length)]);\n"
        "[all, first, done.value, one instanceof Promise, await one.catch(() => 0).finally(() => 1)]"
    )
    assert output["result"] == [[[1, 2], [1, 2]], [1, 2], 2, True, [1, 2]]


@pytest.mark.parametrize("number", [HUGE, -HUGE, 2**64, 10**3_000])
async def test_whole_numbers_of_any_size_are_numbers_in_python(coder: MakeCoder, number: int) -> None:
    desk = Desk({"n": number})
    agent = await coder(*desk.tools)
    output = await agent.run(
        "n = (await tools.give())['n']\nawait tools.order(id=n * 2)\n[n * 2, (await tools.take(what=n)) + 1]"
    )
    assert desk.taken == [number * 2, number]
    assert output["result"] == [str(number * 2), str(number + 1)]  # a message holds 64 bits


@pytest.mark.parametrize("language", ["python", "javascript"])
async def test_keys_keep_their_order(coder: MakeCoder, language: str) -> None:
    desk = Desk({"zed": 1, "ann": {"y": 1, "x": 2}, "bob": 3})
    agent = await coder(*desk.tools, options={"language": language})
    code = {
        "python": "all = await tools.give()\nawait tools.take(what=all)\n[list(all), list(all['ann']), all]",
        "javascript": "const all = await tools.give({}); await tools.take({what: all});"
        " [Object.keys(all), Object.keys(all.ann), all]",
    }
    output = await agent.run(code[language])
    assert output["result"][:2] == [["zed", "ann", "bob"], ["y", "x"]]
    assert list(output["result"][2]) == ["zed", "ann", "bob"]
    assert list(desk.taken[0]) == ["zed", "ann", "bob"]


async def test_a_number_that_nobody_can_write_is_refused_with_words(coder: MakeCoder) -> None:
    desk = Desk()
    agent = await coder(*desk.tools)
    output = await agent.run("await tools.order(id=1)\n10**5000")
    assert output["status"] == "error"
    assert "The result holds a whole number of more than 4,000 digits" in output["error"]
    assert [one["state"] for one in output["calls"]] == ["done"]
    output = await agent.run("await tools.order(id=10**5000)")
    assert "What tools.order is given holds a whole number of more than 4,000 digits" in output["error"]
    assert desk.taken == [1]


async def test_a_tool_that_gives_such_a_number_has_failed_with_words(coder: MakeCoder) -> None:
    agent = await coder(*Desk(10**5000).tools)
    output = await agent.run("await tools.give()")
    assert "is a whole number of more than 4,000 digits" in output["error"]
