"""Values of code that are small there and endless here: they are counted while they are written out."""

from __future__ import annotations

import json
from typing import Any

import pytest

from everthink import tool
from everthink.codemode import execution, queries, showing
from everthink.codemode.queries import CallRow
from everthink.codemode.showing import calls_of
from everthink.messages import DEEPEST, depth_of
from everthink.monty.values import MOST_VALUES, TooMuch, from_guest, in_json, out_of_json
from everthink.sandbox.port import Limits
from everthink.weight import is_light
from tests.codemode.support import MakeCoder
from tests.support.steps import steps

DOUBLED = "a = [0]\nfor i in range(40):\n    a = [a, a]\n"


def doubled(times: int) -> Any:
    value: Any = [0]
    for _ in range(times):
        value = [value, value]
    return value


def in_itself() -> list[Any]:
    value: list[Any] = []
    value += [value, value]
    return value


@pytest.mark.parametrize(
    "value",
    [
        doubled(40),
        *(
            pytest.param(value, marks=pytest.mark.slow)
            for value in (
                in_itself(),
                {"x": [doubled(60)] * 60},
                [{(1, (2,)): doubled(50)}],
                (doubled(30),) * 30,
            )
        ),
    ],
)
def test_a_list_in_a_million_places_costs_no_more_than_the_bound(value: Any) -> None:
    def refused() -> None:
        with pytest.raises(TooMuch, match="holds more than 200,000 values"):
            from_guest(value)

    assert steps(refused) < 30 * MOST_VALUES
    assert steps(lambda: is_light(value)) < 50_000
    assert not is_light(value)


def test_a_long_text_in_many_places_is_counted_in_each_of_them() -> None:
    text = "x" * 1_000_000
    assert from_guest([text] * 8) == [text] * 8
    with pytest.raises(TooMuch, match="more than 8,388,608 characters"):
        from_guest([text] * 9)
    with pytest.raises(TooMuch, match="8,388,608 characters"):
        from_guest({text * 9: 1})


def test_a_number_that_takes_for_ever_to_write_is_refused_and_others_are_not() -> None:
    assert from_guest([2**64, -(2**8_000)]) == [2**64, -(2**8_000)]
    with pytest.raises(TooMuch, match="a whole number of more than 4,000 digits"):
        from_guest({"x": 10**5_000})


@pytest.mark.parametrize("size", [DEEPEST - 7, DEEPEST - 1, DEEPEST, 1_000])
def test_many_lists_beside_each_other_are_not_deep(size: int) -> None:
    flat = "[" + ",".join(["[]"] * size) + "]"
    assert depth_of(flat) == depth_of(flat.encode()) == 2


def test_a_long_input_of_a_call_is_shown_without_being_read(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    monkeypatch.setattr(showing, "value_of", lambda text: read.append(len(text)) or json.loads(text))
    text = '{"content":[' + "1," * 400_000 + "1]}"
    rows = [CallRow(n, "state.write_json", text, "done", began_at=0, outcome="null") for n in range(40)]
    shown = calls_of(rows)[0]["input"]
    assert shown.startswith('{"content":[1,1,')
    assert shown.endswith("(800,015 characters in all)")
    assert sum(read) <= 4 * 40  # the outcomes


@pytest.mark.anyio
@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "words"),
    [
        (f"{DOUBLED}await state.write_json(path='/x', value=a)", "is given holds more than 200,000 values"),
        (f"{DOUBLED}a", "The result holds more than 200,000 values"),
        (f"{DOUBLED}{{'x': (a,)}}", "The result holds more than 200,000 values"),
        ("a = 'x' * 1_000_000\n[a] * 500", "The result holds more than 8,388,608 characters"),
        ("a = 'x' * 1_000_000\nawait state.write_json(path='/x', value=[a] * 500)", "8,388,608 characters"),
        ("10 ** 5_000", "The result holds a whole number of more than 4,000 digits"),
        (f"{DOUBLED}open('/x', 'w').write(str(len(a)))\nopen(a)", "str"),
    ],
)
async def test_code_is_told_the_bound(coder: MakeCoder, code: str, words: str) -> None:
    agent = await coder(options={"timeout": 120.0})
    output = await agent.run(code)
    assert output["status"] == "error"
    assert words in output["error"], output


@pytest.mark.anyio
@pytest.mark.slow
async def test_code_can_go_on_after_it_gave_too_much(coder: MakeCoder) -> None:
    agent = await coder()
    code = (
        f"{DOUBLED}try:\n    await state.write_json(path='/x', value=a)\n"
        "except RuntimeError as error:\n    told = str(error)\n"
        "await state.write_json(path='/x', value=[1])\ntold"
    )
    output = await agent.run(code)
    assert output["status"] == "completed"
    assert "Give it less, or write it to a file and pass the path." in output["result"]
    assert [call["name"] for call in output["calls"]] == ["state.write_json"]


@pytest.mark.anyio
@pytest.mark.slow
async def test_long_answers_reach_code_in_the_order_of_the_log(coder: MakeCoder) -> None:
    """What is long is read in a thread; a short answer behind it does not overtake it."""
    agent = await coder()
    workspace = (await agent.agent()).workspace
    await workspace.write_file("/long", "x" * 900_000)
    code = """
import asyncio
order = []
async def look(path):
    text = await state.read_file(path=path)
    order.append(len(text))
await state.write_file(path="/short", content="y")
await asyncio.gather(*[look("/long" if n % 3 == 0 else "/short") for n in range(30)])
order
"""
    output = await agent.run(code)
    assert output["status"] == "completed"
    id = (await agent.part())["toolCallId"]
    rows = await queries.calls_of((await agent.executions()).store, id)
    in_order = sorted((row for row in rows if "read_file" in row.tool), key=lambda row: row.settled or 0)
    assert output["result"] == [900_000 if "long" in row.input else 1 for row in in_order]


@pytest.mark.anyio
@pytest.mark.slow
async def test_the_same_key_is_not_read_a_thousand_times(coder: MakeCoder) -> None:
    agent = await coder(options={"limits": Limits(cpu=2)})
    code = (
        "a = (0,)\nfor i in range(24):\n    a = (a, a)\nkey = {a: 1}\n"
        "for n in range(900):\n    try:\n        await state.write_json(path='/x', value=key)\n"
        "    except RuntimeError as error:\n        pass\n"
    )
    output = await agent.run(code)
    assert output["status"] == "error"
    assert "It took more than 2 seconds (cpu) to read what the code gave" in output["error"], output
    # Then the next code runs as ever
    assert (await agent.run("40 + 2"))["result"] == 42


@pytest.mark.anyio
@pytest.mark.slow
@pytest.mark.parametrize(
    ("language", "code"),
    [
        (
            "python",
            "import asyncio\nx = 'x' * 1_000\n"
            "await asyncio.gather(*[state.write_file(path=f'/{n}', content=x) for n in range(20)])",
        ),
        (
            "javascript",
            "const x = 'x'.repeat(1000); await Promise.all(Array.from({length: 20}, (_, n) =>"
            " state.writeFile({path: `/${n}`, content: x})))",
        ),
    ],
)
async def test_code_is_ended_when_its_calls_hold_more_than_the_log(
    coder: MakeCoder, monkeypatch: pytest.MonkeyPatch, language: str, code: str
) -> None:
    monkeypatch.setattr(execution, "MOST_LOGGED", 10_000)
    agent = await coder(options={"language": language})
    output = await agent.run(code)
    assert output["status"] == "error"
    assert "more than 10,000 characters together" in output["error"], output
    assert 0 < len(output["calls"]) < 10
    assert {call["state"] for call in output["calls"]} == {"done"}
    assert (await agent.run("40 + 2"))["result"] == 42


@pytest.mark.anyio
@pytest.mark.slow
async def test_what_a_log_answers_again_is_counted_once(
    coder: MakeCoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(execution, "MOST_LOGGED", 10_000)

    @tool(needs_approval=True)
    async def pay(amount: int) -> str:
        """Pay."""
        return f"paid {amount}"

    agent = await coder(pay)
    write = "await state.write_file(path='/x', content='x' * 6_000)\n"
    await agent.run(f"{write}await tools.pay(amount=1)\n")
    await agent.answer(True)
    assert (await agent.go_on())["result"] == "paid 1"
    await agent.run(f"{write}await tools.pay(amount=1)\n{write}")
    await agent.answer(True)
    assert "more than 10,000 characters together" in (await agent.go_on())["error"]


def test_bytes_and_what_looks_like_them_come_through_the_pipe() -> None:
    nested = {"__bytes__": "aGk=", "__bytes__x": [b"\x00\xff", {"__bytes__": b""}]}
    for value in (nested, {"é": ["\u0000", 2**70, 1.5, None]}, {"b_": ["__bytes__", True]}):
        assert out_of_json(in_json(value)) == value
