"""What is decided about a call, and what a language is told of a function: values in, values out."""

from __future__ import annotations

from typing import Any

import pytest

from everthink.codemode.decide import Ask, Begin, Diverged, FindOut, Replay, decide
from everthink.codemode.functions import identifier
from everthink.codemode.queries import CallRow
from everthink.codemode.showing import for_model, lines_of
from everthink.codemode.stubs import python_stub, python_type, typescript_stub, typescript_type
from everthink.codemode.values import cut, data_of, packed, shown_int, text_of, unpacked, value_of
from everthink.session.row_size import cut as shortened

STATES = ["done", "failed", "unknown", "denied"]


def row(state: Any) -> CallRow:
    return CallRow(0, "tools.f", '{"a":1}', state)


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("asks", [True, False])
def test_what_has_an_answer_gets_it_again(state: str, asks: bool) -> None:
    assert decide(row(state), 0, "tools.f", '{"a":1}', asks=asks) == Replay(row(state))


def test_what_the_log_does_not_have_begins_or_asks() -> None:
    assert decide(None, 3, "tools.f", "{}", asks=False) == Begin(is_new=True)
    assert decide(None, 3, "tools.f", "{}", asks=True) == Ask(is_new=True)


def test_what_waits_is_asked_again_and_what_has_a_yes_begins() -> None:
    assert decide(row("pending"), 0, "tools.f", '{"a":1}', asks=False) == Ask(is_new=False)
    assert decide(row("approved"), 0, "tools.f", '{"a":1}', asks=True) == Begin(is_new=False)


def test_what_had_begun_is_found_out() -> None:
    assert decide(row("started"), 0, "tools.f", '{"a":1}', asks=True) == FindOut()


@pytest.mark.parametrize("state", [*STATES, "pending", "approved", "started"])
@pytest.mark.parametrize(("name", "input"), [("tools.g", '{"a":1}'), ("tools.f", '{"a":2}')])
def test_another_call_at_its_place_is_another_run(state: str, name: str, input: str) -> None:
    decided = decide(row(state), 0, name, input, asks=False)
    assert isinstance(decided, Diverged)
    assert "Call 1 was tools.f" in decided.words


@pytest.mark.memory_case(423)
@pytest.mark.parametrize(
    ("name", "made"),
    [
        ("get-price", "get_price"),
        ("a.b c", "a_b_c"),
        ("2fast", "tool_2fast"),
        ("_own", "tool_own"),
        ("class", "class_"),
        ("delete", "delete_"),
        ("é!x", "x"),
        ("", "tool"),
        ("--", "tool"),
        ("fine_1", "fine_1"),
    ],
)
def test_names_are_made_so_that_languages_take_them(name: str, made: str) -> None:
    assert identifier(name) == made


SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "limit": {"type": "integer", "description": "How\nmany."},
        "kind": {"enum": ["a", "b"]},
        "tags": {"type": "array", "items": {"type": "string"}},
        "where": {"$ref": "#/$defs/Where"},
    },
    "required": ["kind"],
    "$defs": {"Where": {"type": "object", "properties": {"x-y": {"type": "number"}}, "required": ["x-y"]}},
}


@pytest.mark.memory_case(426)
@pytest.mark.memory_case(427)
@pytest.mark.memory_case(431)
def test_a_schema_becomes_a_declaration() -> None:
    assert python_stub("find", SCHEMA, 'Find """it""".') == (
        "async def find(kind: Literal['a', 'b'], limit: int = ..., tags: Sequence[str] = ...,"
        " where: Mapping[str, Any] = ...) -> Any:\n"
        "    \"\"\"Find '''it'''.\n    limit: How many.\"\"\"\n    ..."
    )
    assert typescript_stub("find", SCHEMA, "Find */ it.") == (
        "/** Find *\\/ it.\n    limit: How many. */\n"
        'find(input: {limit?: number; kind: "a" | "b"; tags?: string[]; where?: {"x-y": number}}): Promise<any>;'  # noqa: E501
    )
    assert python_stub("f", {"type": "object", "properties": {"x-y": {}}}, "") == (
        'async def f(**input: Any) -> Any:\n    """"""\n    ...'
    )
    assert python_stub("f", {"type": "object"}, "Any.").startswith("async def f(**input: Any)")


@pytest.mark.memory_case(428)
@pytest.mark.memory_case(429)
@pytest.mark.memory_case(430)
@pytest.mark.memory_case(432)
@pytest.mark.parametrize(
    ("schema", "python", "typescript"),
    [
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "str | None", "string | null"),
        ({"type": ["integer", "string"]}, "int | str", "number | string"),
        ({"type": "string", "nullable": True}, "str | None", "string | null"),
        ({"const": None}, "Literal[None]", "null"),
        ({"enum": []}, "Any", "never"),
        ({"enum": [{"a": 1}]}, "Any", '{"a": 1}'),
        ({"$ref": "https://other/schema"}, "Any", "unknown"),
        ({"$ref": "#/$defs/none"}, "Any", "unknown"),
        (True, "Any", "unknown"),
        (False, "Any", "never"),
        (None, "Any", "unknown"),
        ("text", "Any", "unknown"),
        (
            {"type": "array", "items": {"anyOf": [{"type": "string"}, {"type": "null"}]}},
            "Sequence[str | None]",
            "(string | null)[]",
        ),
        (
            {"type": "object", "additionalProperties": {"type": "number"}},
            "Mapping[str, Any]",
            "{[key: string]: number}",
        ),
        ({"type": "object", "additionalProperties": False}, "Mapping[str, Any]", "{}"),
        ({"type": "object"}, "Mapping[str, Any]", "Record<string, unknown>"),
    ],
)
def test_every_schema_has_a_type(schema: Any, python: str, typescript: str) -> None:
    assert (python_type(schema, {}), typescript_type(schema, {})) == (python, typescript)


@pytest.mark.memory_case(429)
def test_a_schema_that_names_itself_ends() -> None:
    root = {"$defs": {"Tree": {"type": "array", "items": {"$ref": "#/$defs/Tree"}}}}
    assert python_type({"$ref": "#/$defs/Tree"}, root).count("Sequence[") <= 21
    assert python_type({"$ref": "#"}, {"$ref": "#"}) == "Any"


@pytest.mark.memory_case(436)
def test_values_come_through_the_log_as_they_were() -> None:
    value = {"b": b"\x00\xff", "a": [1, None, {"c": "ä"}], "n": -(2**62)}
    assert unpacked(packed(value)) == value
    mixed = {"b": 1, "a": [{"d": 1, "c": 2}]}
    assert text_of(mixed, is_sorted=True) == '{"a":[{"c":2,"d":1}],"b":1}'
    assert text_of(mixed) == '{"b":1,"a":[{"d":1,"c":2}]}'
    assert value_of(text_of(packed(2**70))) == 2**70
    assert shown_int([2**70, {"n": 2**62}, True]) == [str(2**70), {"n": 2**62}, True]
    assert (data_of("x"), data_of({"__bytes__": "no base64"}), data_of(5)) == (b"x", None, None)


@pytest.mark.memory_case(435)
def test_only_what_is_long_is_cut() -> None:
    small = {"a": 1}
    assert cut(small, 100) is small
    assert cut("x" * 101, 100) == f"{'x' * 100}\n--- TRUNCATED --- (101 characters in all)"
    assert cut([1] * 100, 10).startswith("[1,1,1,1,1\n--- TRUNCATED ---")


def test_output_is_told_by_line_and_the_end_of_it_is_kept() -> None:
    assert lines_of([("stdout", "a"), ("stderr", "x\n"), ("stdout", "b\nc")]) == ["[error] x", "ab", "c"]
    lines = lines_of([("stdout", "".join(f"{'x' * 99}{n}\n" for n in range(1000)))])
    assert lines[0].endswith("earlier lines are left out")
    assert lines[-1].endswith("999")
    told = for_model({"status": "completed", "logs": lines})["logs"]
    assert told.startswith("… ")
    assert told.endswith("x999")
    assert len(told) < 24_100
    first, kept = lines_of([("stdout", f"before\n{'x' * 70_000}end")])
    assert first == "… 38,003 characters of this line, and 1 lines before it are left out"
    assert kept == f"{'x' * 31_997}end"


@pytest.mark.parametrize("limit", [1_500, 500, 120])
def test_what_was_shortened_in_an_old_message_is_shown_to_the_model_as_it_is_then(limit: int) -> None:
    calls = [
        {"seq": n, "name": "tools.f", "state": "done", "input": {"text": "x" * 90}, "output": "y" * 90}
        for n in range(1, 9)
    ]
    output = {"status": "completed", "executionId": "call_1", "result": 7, "logs": ["a"] * 90, "calls": calls}
    told = for_model(shortened(output, limit))
    assert told["__truncated"] is True
    if limit > 120:
        assert told["calls"][-1].startswith("... [truncated ")
    assert for_model({"status": "completed", "logs": "a text"})["logs"] == "a text"


def test_the_model_reads_of_many_calls_the_first() -> None:
    calls = [{"seq": n, "name": "tools.f", "state": "done"} for n in range(1, 61)]
    told = for_model({"status": "completed", "calls": calls})
    assert told["calls"][0] == "1 tools.f: done"
    assert told["calls"][-1] == "… and 10 more"
    assert for_model("text") == "text"


def test_what_has_left_an_old_message_is_shown_as_it_is() -> None:
    gone = "[moved to /attachments/evicted/m-0.txt]"
    assert for_model({"status": "completed", "calls": gone, "logs": gone, "result": 1}) == {
        "status": "completed",
        "calls": gone,
        "logs": gone,
        "result": 1,
    }
    assert for_model({"status": "completed", "calls": [gone], "logs": ["a", gone]})["calls"] == [gone]
