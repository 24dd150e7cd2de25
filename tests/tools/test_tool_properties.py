"""What must hold for any input."""

import dataclasses
import datetime as dt
import enum
import math
import uuid
from typing import Any, Literal

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, TypeAdapter

from everthink.errors import ToolInputError, ToolOutputError
from everthink.tools.json_input import misfits
from everthink.tools.output import jsonable
from everthink.tools.schema import tidy
from everthink.tools.tool import client_tool, tool


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Address(BaseModel):
    street: str
    number: int | None = None


@dataclasses.dataclass
class Point:
    x: float
    tags: list[str]


TYPES: list[Any] = [
    int,
    str,
    bool,
    float,
    dt.date,
    dt.datetime,
    uuid.UUID,
    Color,
    Address,
    Point,
    Literal["a", "b"],
]

text = st.text(st.characters(exclude_categories=["Cs"]))
leaves = {
    int: st.integers(-(2**63), 2**63 - 1),
    str: text,
    bool: st.booleans(),
    float: st.floats(allow_nan=False, allow_infinity=False),
    dt.date: st.dates(),
    dt.datetime: st.datetimes(timezones=st.just(dt.UTC)),
    uuid.UUID: st.uuids(),
    Color: st.sampled_from(Color),
    Address: st.builds(Address, street=text, number=st.none() | st.integers(-(2**31), 2**31)),
    Point: st.builds(Point, x=st.floats(-1e9, 1e9), tags=st.lists(text, max_size=3)),
    Literal["a", "b"]: st.sampled_from(["a", "b"]),
}


@st.composite
def typed_values(draw: st.DrawFn, depth: int = 2) -> tuple[Any, Any]:
    """A type and a value of it."""
    shape = draw(st.sampled_from(["leaf", "list", "dict", "optional", "tuple"] if depth else ["leaf"]))
    if shape == "leaf":
        hint = draw(st.sampled_from(TYPES))
        return hint, draw(leaves[hint])
    hint, value = draw(typed_values(depth=depth - 1))
    match shape:
        case "list":
            return list[hint], draw(st.lists(st.just(value), max_size=3))
        case "dict":
            return dict[str, hint], draw(st.dictionaries(text, st.just(value), max_size=3))
        case "optional":
            return hint | None, draw(st.sampled_from([value, None]))
        case _:
            return tuple[hint, int], (value, draw(leaves[int]))


@settings(max_examples=150, deadline=None)
@given(st.lists(typed_values(), min_size=1, max_size=4), st.data())
def test_typed_arguments_survive_the_way_through_json(
    fields: list[tuple[Any, Any]], data: st.DataObject
) -> None:
    names = [f"p{index}" for index in range(len(fields))]
    namespace: dict[str, Any] = {}
    exec(f"def take({', '.join(names)}): ...", namespace)
    take = namespace["take"]
    take.__annotations__ = {name: hint for name, (hint, _) in zip(names, fields, strict=True)}
    made = tool(take)

    typed = {name: value for name, (_, value) in zip(names, fields, strict=True)}
    wire = msgspec.json.decode(
        b"{"
        + b",".join(
            msgspec.json.encode(name) + b":" + TypeAdapter(hint).dump_json(typed[name])
            for name, (hint, _) in zip(names, fields, strict=True)
        )
        + b"}"
    )

    # Whatever the schema promises, pydantic takes; and what pydantic takes fits the schema.
    assert made.arguments(wire) == typed
    assert list(misfits(wire, made.input_schema)) == []
    missing = data.draw(st.sampled_from(names))
    with pytest.raises(ToolInputError, match=f"{missing} is required"):
        made.arguments({name: value for name, value in wire.items() if name != missing})


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=20,
)


@given(json_values)
def test_any_input_is_taken_or_explained(value: Any) -> None:
    @tool
    def take(a: int, b: list[Address], c: Color | None = None) -> None: ...

    for given_ in (value, {"a": value, "b": value, "c": value}, {"a": 1, "b": [value, {"street": value}]}):
        try:
            take.arguments(given_)
        except ToolInputError as error:
            length = len(str(error))
            assert length < 3000
        take.arguments(given_, lenient=True)


@given(json_values, json_values)
def test_any_schema_and_any_input_go_together_without_a_crash(schema: Any, value: Any) -> None:
    list(misfits(value, schema))
    if isinstance(schema, dict):
        schema.pop("type", None)
        try:
            client_tool("t", "", schema).arguments(value)
        except ToolInputError:
            pass


anything = st.recursive(
    json_values
    | st.binary()
    | st.decimals()
    | st.dates()
    | st.timedeltas()
    | st.uuids()
    | st.sampled_from(Color)
    | st.builds(object)
    | st.complex_numbers(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(max_size=3) | st.integers() | st.booleans(), inner, max_size=4)
        | st.tuples(inner, inner)
        | st.builds(Point, x=inner, tags=inner)
    ),
    max_leaves=20,
)


@given(anything)
def test_whatever_a_tool_returns_becomes_json_or_a_letter(value: Any) -> None:
    try:
        made = jsonable(value, tool="t")
    except ToolOutputError:
        return
    encoded = msgspec.json.encode(made)
    assert msgspec.json.decode(encoded) == made
    assert jsonable(made, tool="t") == made


def is_plain(value: Any) -> bool:
    match value:
        case float():
            return math.isfinite(value)
        case int():
            return -(2**63) <= value < 2**64
        case list():
            return all(map(is_plain, value))
        case dict():
            return all(map(is_plain, value.values()))
        case _:
            return True


@given(json_values.filter(is_plain))
def test_plain_json_stays_as_it_is(value: Any) -> None:
    assert jsonable(value, tool="t") == value


names = st.sampled_from(["A", "B", "C"])
schemas = st.recursive(
    st.just({"type": "integer"}) | names.map(lambda name: {"$ref": f"#/$defs/{name}"}),
    lambda inner: (
        inner.map(lambda item: {"type": "array", "items": item})
        | st.lists(inner, min_size=1, max_size=3).map(lambda choices: {"anyOf": choices})
        | st.dictionaries(names, inner, max_size=3).map(lambda p: {"type": "object", "properties": p})
    ),
    max_leaves=6,
)


def refs_in(node: Any) -> set[str]:
    match node:
        case dict():
            return {node["$ref"]} if "$ref" in node else set().union(*map(refs_in, node.values()))
        case list():
            return set().union(*map(refs_in, node))
        case _:
            return set()


@given(schemas, st.fixed_dictionaries({"A": schemas, "B": schemas, "C": schemas}))
def test_tidying_leaves_no_reference_without_definition_and_none_unused(
    schema: Any, defs: dict[str, Any]
) -> None:
    made = tidy({"type": "object", "properties": {"x": schema}, "$defs": defs})
    used = {ref.removeprefix("#/$defs/") for ref in refs_in(made)}
    assert used == set(made.get("$defs", {}))
