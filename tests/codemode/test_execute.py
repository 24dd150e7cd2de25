"""Code that a model writes calls the agent's tools, as those tools."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from everthink import Allow, Block, Substitute, tool
from everthink.codemode import create_execute_tool
from everthink.errors import InvalidSettings, ToolDefinitionError, ToolError
from everthink.monty.sandbox import MontySandbox
from everthink.tools.context import ToolContext
from tests.codemode.support import MakeCoder

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


@tool
async def price(sku: str, count: int = 1) -> int:
    """The price of something.

    Args:
        sku: What it is.
    """
    return {"apple": 3, "pear": 4}[sku] * count


@tool
def sizes() -> dict[str, Any]:
    """How large things are."""
    return {"s": 1, "items": [1, 2.5, None, True]}


@tool
async def breaks(why: str) -> None:
    """Does not work."""
    raise ToolError(why)


@pytest.mark.memory_case(394)
@pytest.mark.memory_case(395, 446)
@pytest.mark.memory_case(449)
@pytest.mark.memory_case(491)
async def test_code_calls_tools_and_its_last_expression_is_the_result(coder: MakeCoder) -> None:
    agent = await coder(price, sizes)
    output = await agent.run(
        "a = await tools.price(sku='apple')\nb = await tools.price('pear', count=2)\n[a, b, await tools.sizes()]"  # noqa: E501
    )
    assert output["status"] == "completed"
    assert output["result"] == [3, 8, {"s": 1, "items": [1, 2.5, None, True]}]
    assert [
        (one["seq"], one["name"], one["state"], one["input"], one["output"]) for one in output["calls"]
    ] == [
        (1, "tools.price", "done", {"sku": "apple"}, 3),
        (2, "tools.price", "done", {"count": 2, "sku": "pear"}, 8),
        (3, "tools.sizes", "done", {}, {"s": 1, "items": [1, 2.5, None, True]}),
    ]
    part = await agent.part()
    assert part["toolCallId"] == output["executionId"]
    assert agent.shown["calls"] == ["1 tools.price: done", "2 tools.price: done", "3 tools.sizes: done"]


@pytest.mark.memory_case(395)
async def test_calls_run_at_the_same_time(coder: MakeCoder) -> None:
    both = asyncio.Barrier(2)

    @tool
    async def meet(name: str) -> str:
        """Wait for the other."""
        await both.wait()
        return name.upper()

    agent = await coder(meet)
    output = await agent.run(
        "import asyncio\nawait asyncio.gather(tools.meet(name='a'), tools.meet(name='b'))"
    )
    assert output["result"] == ["A", "B"]


@pytest.mark.memory_case(401)
@pytest.mark.memory_case(410)
@pytest.mark.memory_case(463)
@pytest.mark.memory_case(494)
async def test_a_tool_that_fails_raises_in_the_code_which_may_catch_it(coder: MakeCoder) -> None:
    agent = await coder(breaks)
    caught = await agent.run(
        "try:\n    await tools.breaks(why='closed')\nexcept RuntimeError as e:\n    said = str(e)\nsaid"
    )
    assert (caught["status"], caught["result"]) == ("completed", "closed")
    assert caught["calls"][0]["error"] == "closed"
    not_caught = await agent.run("await tools.breaks(why='closed')")
    assert not_caught["status"] == "error"
    assert not_caught["executionId"]
    assert "RuntimeError: closed" in not_caught["error"]


@pytest.mark.memory_case(402)
async def test_what_code_prints_is_shown(coder: MakeCoder) -> None:
    agent = await coder()
    output = await agent.run(
        "import sys\nprint('one', 2)\nprint('no', file=sys.stderr)\nprint('end', end='')"
    )
    assert output["logs"] == ["one 2", "[error] no", "end"]
    assert output["result"] is None
    assert agent.shown["logs"] == "one 2\n[error] no\nend"


@pytest.mark.memory_case(409)
async def test_code_that_takes_too_long_is_stopped(coder: MakeCoder) -> None:
    agent = await coder(options={"timeout": 0.5})
    output = await agent.run(
        "while True:\n    try:\n        while True: pass\n    except BaseException: pass"
    )
    assert output["status"] == "error"
    assert "0.5 seconds (wall)" in output["error"]


@pytest.mark.memory_case(321, 404)
@pytest.mark.parametrize(
    "attempt", ["import socket", "import urllib.request", "import httpx", "import subprocess"]
)
async def test_there_is_no_network(coder: MakeCoder, attempt: str) -> None:
    agent = await coder()
    output = await agent.run(attempt)
    assert output["status"] == "error"
    assert "Nothing was run." in output["error"]


@pytest.mark.memory_case(406)
@pytest.mark.memory_case(413)
@pytest.mark.memory_case(415)
@pytest.mark.memory_case(418)
@pytest.mark.parametrize(
    ("code", "result"),
    [
        ("```python\n1 + 1\n```", 2),
        ("```\n1 + 1\n```", 2),
        ("\n\n  \n```py\nx = 3\nx\n```\n", 3),
        ("x = 1\nx + 1", 2),
        ("x = 1", None),
        ("", None),
        ("'```'", "```"),
        ("async def main():\n    return 7\nawait main()", 7),
        ("import asyncio\nasync def main():\n    return 7\nasyncio.run(main())", 7),
    ],
)
async def test_code_in_a_fence_and_bare_expressions_run(coder: MakeCoder, code: str, result: Any) -> None:
    agent = await coder()
    assert (await agent.run(code))["result"] == result


@pytest.mark.memory_case(417)
@pytest.mark.parametrize("code", ["x = (", "return 5", "  x = 1\n y = 2", "const x = 1"])
async def test_what_is_no_python_is_refused_in_words(coder: MakeCoder, code: str) -> None:
    agent = await coder()
    output = await agent.run(code)
    assert output["status"] == "error"
    assert "line 1" in output["error"] or "main.py" in output["error"] or "SyntaxError" in output["error"]


@pytest.mark.memory_case(408)
@pytest.mark.memory_case(423)
async def test_a_name_that_python_does_not_take_is_changed(coder: MakeCoder) -> None:
    dashed = price.named("get-price")
    reserved = price.named("import")
    agent = await coder(dashed, reserved)
    output = await agent.run("[await tools.get_price(sku='pear'), await tools.import_(sku='apple')]")
    assert output["result"] == [4, 3]


@pytest.mark.memory_case(400)
def test_names_that_would_be_one_are_refused() -> None:
    one, other = price.named("a-b"), price.named("a_b")
    with pytest.raises(ToolDefinitionError, match=r"'a-b' and 'a_b' would both be tools\.a_b"):
        create_execute_tool([one, other])


@pytest.mark.memory_case(398, 399, 489)
@pytest.mark.parametrize(
    ("module", "words"),
    [
        *((name, "is there already") for name in ("tools", "state", "codemode", "files")),
        *((name, "is something else") for name in ("console", "Promise", "setTimeout", "print", "asyncio")),
        *((name, "is no name") for name in ("my-shop", "3d", "a.b", "", "class", "delete")),
    ],
)
def test_a_module_takes_nobodys_name(module: str, words: str) -> None:
    for language in ("python", "javascript"):
        with pytest.raises(ToolDefinitionError, match=words):
            create_execute_tool(language=language, modules={module: {"price": price}})


@pytest.mark.memory_case(405, 438)
async def test_modules_are_given_imported_and_named_in_the_description(coder: MakeCoder) -> None:
    modules = {"shop": {"price": price}}
    agent = await coder(options={"modules": modules})
    for code in (
        "await shop.price(sku='pear')",
        "import shop\nawait shop.price(sku='pear')",
        "from shop import price\nawait price(sku='pear')",
    ):
        assert (await agent.run(code))["result"] == 4
    assert "`shop`: price" in create_execute_tool(modules=modules).description


@pytest.mark.memory_case(442)
async def test_tools_of_a_turn_whose_names_would_be_one_are_told(coder: MakeCoder) -> None:
    agent = await coder(price.named("a-b"), price.named("a_b"))
    await agent.run("1")
    part = await agent.part()
    assert part["state"] == "output-error"
    assert "'a-b' and 'a_b' would both be tools.a_b" in part["errorText"]


async def test_options_that_make_no_sense_are_refused() -> None:
    with pytest.raises(InvalidSettings, match="language"):
        create_execute_tool(language="cobol")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ToolDefinitionError, match="nothing to call"):
        create_execute_tool([], state=False)
    with pytest.raises(InvalidSettings, match="timeout is 0"):
        create_execute_tool(timeout=0)
    with pytest.raises(InvalidSettings, match=r"sandbox is <class.*Write MontySandbox\(\)"):
        create_execute_tool(sandbox=MontySandbox)  # pyright: ignore[reportArgumentType]


async def test_tools_that_are_given_are_for_the_code_alone(coder: MakeCoder) -> None:
    agent = await coder(sizes, options={"tools": [price]})
    output = await agent.run("await tools.price(sku='pear')")
    assert output["result"] == 4
    assert "price" not in {spec.name for spec in agent.model.last_request.tools}
    hidden = await agent.run("await tools.sizes()")
    assert "Module `tools` has no member `sizes`" in hidden["error"]


async def test_modules_of_functions_are_for_the_code_alone(coder: MakeCoder) -> None:
    options = {"tools": {}, "state": False, "modules": {"shop": {"get_price": price, "sizes": sizes}}}
    agent = await coder(options=options)
    output = await agent.run("[await shop.get_price('pear', count=2), (await shop.sizes())['s']]")
    assert output["result"] == [8, 1]
    assert [one["name"] for one in output["calls"]] == ["shop.get_price", "shop.sizes"]
    [spec] = [spec for spec in agent.model.last_request.tools if spec.name == "execute"]
    assert "`shop`: get_price, sizes" in spec.description


@pytest.mark.parametrize(
    ("modules", "why"),
    [
        ({"state": {"price": price}}, "'state' is there already"),
        ({"my-shop": {"price": price}}, "'my-shop' is no name that code can write"),
        ({"shop": {"import": price}}, "'import' is no name that code can write"),
    ],
)
def test_modules_that_code_could_not_name_are_refused(modules: Any, why: str) -> None:
    with pytest.raises(ToolDefinitionError, match=why):
        create_execute_tool(modules=modules)


@pytest.mark.memory_case(451)
async def test_an_undefined_name_lists_what_is_there(coder: MakeCoder) -> None:
    agent = await coder(price)
    output = await agent.run("await price(sku='pear')")
    assert output["error"].startswith("Nothing was run. line 1: Name `price` used when not defined")
    assert "tools.price" in output["error"]
    assert output["calls"] == []


@pytest.mark.memory_case(315)
async def test_code_that_calls_a_tool_wrongly_is_refused_before_anything_runs(coder: MakeCoder) -> None:
    ran: list[str] = []

    @tool
    async def effect(name: str) -> None:
        """Do something."""
        ran.append(name)

    agent = await coder(effect, price)
    for wrong, why in {
        "tools.price(sku=3)": "Expected `str`",
        "tools.price()": "sku",
        "tools.price(sku='pear', colour='red')": "colour",
        "tools.prize(sku='pear')": "no member `prize`",
    }.items():
        output = await agent.run(f"await tools.effect(name='x')\nawait {wrong}")
        assert "Nothing was run. line 2:" in output["error"], output
        assert why in output["error"]
    forgotten = await agent.run("tools.effect(name='x')")
    assert "needs `await`" in forgotten["error"]
    assert ran == []


async def test_an_input_that_only_running_shows_to_be_wrong_raises_in_the_code(coder: MakeCoder) -> None:
    agent = await coder(price)
    output = await agent.run("import json\nsku = json.loads('5')\nawait tools.price(sku=sku)")
    assert output["status"] == "error"
    assert output["calls"][0]["state"] == "failed"


@pytest.mark.memory_case(469)
async def test_a_tool_knows_its_call_and_its_execution(coder: MakeCoder) -> None:
    seen: list[tuple[str, str]] = []

    @tool
    async def look(ctx: ToolContext) -> None:
        """Look."""
        seen.append((ctx.tool_name, ctx.tool_call_id))

    agent = await coder(look)
    output = await agent.run("await tools.look()\nawait tools.look()")
    id = output["executionId"]
    assert seen == [("look", f"{id}/1"), ("look", f"{id}/2")]


async def test_hooks_decide_about_calls_of_code_as_about_any(coder: MakeCoder) -> None:
    told: list[Any] = []

    async def before_tool_call(self: Any, call: Any) -> Any:
        match call.input:
            case {"sku": "apple"}:
                return Block("no apples")
            case {"sku": "pear"}:
                return Substitute(99)
            case {"sku": "plum"}:
                return Allow(input={"sku": "pear", "count": 1})
            case _:
                return None

    async def after_tool_call(self: Any, outcome: Any) -> None:
        told.append((outcome.tool_name, outcome.output))

    agent = await coder(price, before_tool_call=before_tool_call, after_tool_call=after_tool_call)
    output = await agent.run(
        "try:\n    await tools.price(sku='apple')\nexcept RuntimeError as error:\n    said = str(error)\n"
        "[said, await tools.price(sku='pear'), await tools.price(sku='plum')]"
    )
    assert output["result"] == ["no apples", 99, 4]
    assert [one for one in told if one[0] == "price"] == [("price", None), ("price", 99), ("price", 4)]


async def test_a_call_of_code_has_the_time_limit_of_its_tool(coder: MakeCoder) -> None:
    @tool(timeout=0.05)
    async def slow() -> None:
        """Never ends."""
        await asyncio.Event().wait()

    agent = await coder(slow)
    output = await agent.run(
        "try:\n    await tools.slow()\nexcept RuntimeError as e:\n    said = str(e)\nsaid"
    )
    assert "did not finish within 0.05 seconds" in output["result"]


@pytest.mark.memory_case(425)
@pytest.mark.memory_case(407)
async def test_without_tools_there_is_still_the_workspace(coder: MakeCoder) -> None:
    agent = await coder()
    assert (await agent.run("await state.readdir(path='/')"))["result"] == []


@pytest.mark.memory_case(482)
async def test_code_that_is_too_long_is_refused_with_nothing_recorded(coder: MakeCoder) -> None:
    agent = await coder()
    await agent.run("#" * 1_000_001)
    assert "more than the 1000000" in (await agent.part())["errorText"]
    assert await (await agent.executions()).list() == []


@pytest.mark.memory_case(477)
async def test_a_result_that_no_row_can_hold_fails_with_advice(coder: MakeCoder) -> None:
    @tool
    async def much() -> str:
        """A lot."""
        return "x" * 1_000_001

    agent = await coder(much)
    output = await agent.run("await tools.much()")
    assert "write to a file and return the path" in output["error"]


@pytest.mark.memory_case(478)
@pytest.mark.memory_case(435)
async def test_what_the_model_is_shown_is_cut_and_what_people_see_is_whole(coder: MakeCoder) -> None:
    agent = await coder()
    output = await agent.run("'x' * 100_000")
    assert len(output["result"]) == 100_000
    assert agent.shown["result"].endswith("--- TRUNCATED --- (100,000 characters in all)")
    assert len(agent.shown["result"]) < 25_000
    too_much = await agent.run("'x' * 1_000_001")
    assert "left out" in too_much["result"]


@pytest.mark.memory_case(316, 396)
@pytest.mark.memory_case(476)
@pytest.mark.memory_case(393)
async def test_bytes_go_through_calls_and_results(coder: MakeCoder) -> None:
    agent = await coder()
    output = await agent.run(
        "await state.write_file_bytes(path='/b', content=b'\\x00\\xff')\n"
        "data = await state.read_file_bytes(path='/b')\n[data == b'\\x00\\xff', open('/b', 'rb').read() == data, data]"  # noqa: E501
    )
    assert output["result"] == [True, True, {"__bytes__": "AP8="}]


@pytest.mark.memory_case(486)
async def test_a_result_can_be_changed_by_the_application(coder: MakeCoder) -> None:
    def given(value: Any) -> Any:
        return {"given": value}

    agent = await coder(options={"transform_result": given})
    assert (await agent.run("5"))["result"] == {"given": 5}


async def test_a_change_of_a_result_that_fails_leaves_it_as_it_is(coder: MakeCoder) -> None:
    def broken(value: Any) -> Any:
        raise ValueError(value)

    agent = await coder(options={"transform_result": broken})
    assert (await agent.run("5"))["result"] == 5


@pytest.mark.memory_case(450)
@pytest.mark.memory_case(433)
def test_the_description_names_what_there_is_and_what_is_lacking() -> None:
    made = create_execute_tool([price], hints={"tools": "prices are in cents"})
    for words in ("`tools`: price", "`state`", "`codemode`", "tools: prices are in cents", "no generators"):
        assert words in made.description
    assert create_execute_tool(description="Mine.").description == "Mine."


@pytest.mark.memory_case(490)
async def test_code_finds_functions_by_words(coder: MakeCoder) -> None:
    agent = await coder(price, sizes)
    output = await agent.run(
        "found = await codemode.search(query='price')\n[found, await codemode.describe(target='tools.price'),"
        " await codemode.describe(target='nothing')]"
    )
    found, described, nothing = output["result"]
    assert found["results"][0] == {"path": "tools.price", "description": "The price of something."}
    assert (found["total"], found["truncated"]) == (1, False)
    assert "async def price(sku: str, count: int = ...) -> Any:" in described
    assert "sku: What it is." in described
    assert "There is no 'nothing'" in nothing


async def test_the_clock_stands_still_and_random_numbers_have_a_seed(coder: MakeCoder) -> None:
    agent = await coder()
    output = await agent.run(
        "import time, random, datetime\n[time.time() == datetime.datetime.now().timestamp(), random.random() < 1]"  # noqa: E501
    )
    assert output["result"] == [True, True]
