"""What the model is told about a function: schema, description, help."""

import dataclasses
import datetime as dt
import decimal
import enum
import json
import uuid
from typing import Annotated, Any, Generic, Literal, NamedTuple, Optional, Required, TypeVar

import pytest
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from everthink.tools.tool import Tool, ToolContext, tool

T = TypeVar("T")


class Color(enum.Enum):
    RED = "red"
    GREEN = "green"


class Address(BaseModel):
    street: str
    zip_code: int = Field(ge=1, description="Five digits.")


@dataclasses.dataclass
class Point:
    x: int
    y: int = 0


class Options(TypedDict, total=False):
    deep: Required[bool]
    limit: int


class Node(BaseModel):
    value: int
    children: list["Node"] = []


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int = 9


class Dog(BaseModel):
    kind: Literal["dog"]
    name: str


class Pair(NamedTuple):
    left: int
    right: str


class Page(BaseModel, Generic[T]):
    items: list[T]


def schema_of(hint: Any, default: Any = ...) -> dict[str, Any]:
    """The schema of one parameter `x` of type `hint`."""
    if default is ...:

        def takes(x): ...
    else:

        def takes(x=default): ...

    takes.__annotations__["x"] = hint
    return tool(takes).input_schema["properties"]["x"]


@pytest.mark.parametrize(
    ("hint", "schema"),
    [
        (str, {"type": "string"}),
        (int, {"type": "integer"}),
        (float, {"type": "number"}),
        (bool, {"type": "boolean"}),
        (Any, {}),
        (list[int], {"type": "array", "items": {"type": "integer"}}),
        (set[str], {"type": "array", "items": {"type": "string"}, "uniqueItems": True}),
        (dict[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}),
        (
            tuple[int, str],
            {
                "type": "array",
                "prefixItems": [{"type": "integer"}, {"type": "string"}],
                "minItems": 2,
                "maxItems": 2,
            },
        ),
        (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}),
        (Color, {"type": "string", "enum": ["red", "green"]}),
        (int | str, {"anyOf": [{"type": "integer"}, {"type": "string"}]}),
        (Optional[int], {"anyOf": [{"type": "integer"}, {"type": "null"}]}),  # noqa: UP045
        (dt.datetime, {"type": "string", "format": "date-time"}),
        (dt.date, {"type": "string", "format": "date"}),
        (uuid.UUID, {"type": "string", "format": "uuid"}),
        (decimal.Decimal, {"anyOf": [{"type": "number"}, {"type": "string"}]}),
        (Annotated[int, Field(ge=1, le=9)], {"type": "integer", "minimum": 1, "maximum": 9}),
    ],
)
def test_a_type_becomes_the_schema_a_model_expects(hint: Any, schema: dict[str, Any]) -> None:
    assert schema_of(hint) == schema


def test_models_dataclasses_and_typed_dicts_become_objects_in_place() -> None:
    assert schema_of(Address) == {
        "type": "object",
        "properties": {
            "street": {"type": "string"},
            "zip_code": {"type": "integer", "minimum": 1, "description": "Five digits."},
        },
        "required": ["street", "zip_code"],
    }
    assert schema_of(Point) == {
        "type": "object",
        "properties": {"x": {"type": "integer"}, "y": {"type": "integer", "default": 0}},
        "required": ["x"],
    }
    assert schema_of(Options) == {
        "type": "object",
        "properties": {"deep": {"type": "boolean"}, "limit": {"type": "integer"}},
        "required": ["deep"],
    }


def test_a_single_model_parameter_stays_a_parameter() -> None:
    @tool
    def move(address: Address) -> None: ...

    assert list(move.input_schema["properties"]) == ["address"]
    assert move.arguments({"address": {"street": "Long", "zip_code": 12345}}) == {
        "address": Address(street="Long", zip_code=12345)
    }


def test_a_type_that_contains_itself_keeps_its_definition() -> None:
    @tool
    def grow(tree: Node) -> None: ...

    schema = grow.input_schema
    assert schema["properties"]["tree"] == {"$ref": "#/$defs/Node"}
    assert schema["$defs"]["Node"]["properties"]["children"]["items"] == {"$ref": "#/$defs/Node"}


def test_a_large_type_used_twice_is_defined_once_and_a_small_one_is_repeated() -> None:
    class Large(BaseModel):
        """Something with a long story: it needs many words to say what it is good for and when to use it."""

        first: str = Field(description="The first of several fields that need some explaining.")
        second: str = Field(description="The second of several fields that need some explaining.")

    @tool
    def compare(a: Large, b: Large, c: Color, d: Color) -> None: ...

    schema = compare.input_schema
    assert schema["properties"]["a"] == schema["properties"]["b"] == {"$ref": "#/$defs/Large"}
    assert (
        schema["properties"]["c"] == schema["properties"]["d"] == {"type": "string", "enum": ["red", "green"]}
    )
    assert list(schema["$defs"]) == ["Large"]


def test_tagged_unions_and_generics_are_inlined_without_leftovers() -> None:
    @tool
    def adopt(pet: Annotated[Cat | Dog, Field(discriminator="kind")], pages: Page[int]) -> None: ...

    text = json.dumps(adopt.input_schema)
    assert "$defs" not in text
    assert "$ref" not in text
    assert "discriminator" not in text
    assert '"title"' not in text


def test_titles_appear_only_when_somebody_wrote_them() -> None:
    class Book(BaseModel):
        title: str
        pages: int = Field(title="How long it is")

    @tool
    def read(book: Book, title: str) -> None: ...

    book = read.input_schema["properties"]["book"]
    assert book["properties"] == {
        "title": {"type": "string"},
        "pages": {"type": "integer", "title": "How long it is"},
    }
    assert "title" not in book
    assert read.input_schema["properties"]["title"] == {"type": "string"}


@pytest.mark.parametrize("hint", [Address, Point, Options, Node, Pair, Page[int], Color, list[Cat | Dog]])
def test_no_automatic_title_survives_anywhere(hint: Any) -> None:
    assert '"title"' not in json.dumps(schema_of(hint))


def test_a_dataclass_is_not_described_by_its_generated_docstring() -> None:
    assert "description" not in schema_of(Point)


def test_defaults_are_shown_as_json_and_none_is_not_worth_showing() -> None:
    assert schema_of(int, 3) == {"type": "integer", "default": 3}
    assert schema_of(Color, Color.RED)["default"] == "red"
    assert schema_of(dt.date, dt.date(2024, 2, 29))["default"] == "2024-02-29"
    assert "default" not in schema_of(int | None, None)


def test_a_default_that_is_not_json_is_left_out_quietly(recwarn: pytest.WarningsRecorder) -> None:
    assert schema_of(Any, object()) == {}
    assert not recwarn.list


def test_only_parameters_without_default_are_required() -> None:
    @tool
    def find(query: str, limit: int = 5, *, exact: bool, lang: str | None = None) -> None: ...

    assert find.input_schema["required"] == ["query", "exact"]
    assert find.input_schema["additionalProperties"] is False


def test_a_tool_without_parameters_has_an_empty_object() -> None:
    @tool
    def now() -> str:
        return "now"

    assert now.input_schema == {"type": "object", "properties": {}}


def test_keyword_arguments_open_the_object() -> None:
    @tool
    def tag(name: str, **labels: int) -> None: ...

    @tool
    def free(**anything: Any) -> None: ...

    assert tag.input_schema["additionalProperties"] == {"type": "integer"}
    assert list(tag.input_schema["properties"]) == ["name"]
    assert free.input_schema == {"type": "object", "properties": {}, "additionalProperties": True}


def test_self_and_the_context_never_appear() -> None:
    class Agent:
        @tool
        def one(self, city: str, ctx: ToolContext) -> None: ...

        @tool
        def two(self, whatever: ToolContext | None, city: str) -> None: ...

        @tool
        def three(this, city: str, c: "ToolContext", d: Annotated[ToolContext, "ours"]) -> None: ...

    for name in ("one", "two", "three"):
        made: Tool = getattr(Agent, name)
        assert list(made.input_schema["properties"]) == ["city"]


def test_names_that_pydantic_reserves_are_fine_as_parameters() -> None:
    @tool
    def odd(schema: int, copy: str, model_config: bool, _hidden: int, json: str = "") -> None: ...

    given = {"schema": 1, "copy": "c", "model_config": True, "_hidden": 2}
    assert list(odd.input_schema["properties"]) == ["schema", "copy", "model_config", "_hidden", "json"]
    assert odd.arguments(given) == given


def test_a_field_alias_is_the_name_in_json() -> None:
    @tool
    def trip(from_: Annotated[str, Field(alias="from")], to: str) -> str:
        return f"{from_}-{to}"

    assert list(trip.input_schema["properties"]) == ["from", "to"]
    assert trip.arguments({"from": "A", "to": "B"}) == {"from_": "A", "to": "B"}


def test_a_field_as_default_value_works_like_in_annotated() -> None:
    @tool
    def roll(sides: int = Field(6, ge=2, description="Of the die.")) -> None: ...

    assert roll.input_schema["properties"]["sides"] == {
        "type": "integer",
        "minimum": 2,
        "default": 6,
        "description": "Of the die.",
    }
    assert "required" not in roll.input_schema
    assert roll.arguments({}) == {"sides": 6}


GOOGLE = """Look up the weather.

Uses the nearest station.

Args:
    city: Where to look, in
        English.
    days (int): How many days.

Returns:
    A sentence.
"""
NUMPY = """Look up the weather.

Uses the nearest station.

Parameters
----------
city : str
    Where to look, in
    English.
days : int
    How many days.

Returns
-------
str
    A sentence.
"""
REST = """Look up the weather.

Uses the nearest station.

:param city: Where to look, in
    English.
:param int days: How many days.
:returns: A sentence.
"""


@pytest.mark.parametrize("docstring", [GOOGLE, NUMPY, REST], ids=["google", "numpy", "rest"])
def test_the_docstring_is_the_description_and_the_help_of_each_argument(docstring: str) -> None:
    def weather(city: str, days: Annotated[int, Field(description="Days ahead.")] = 1) -> str: ...

    weather.__doc__ = docstring
    made = tool(weather)

    assert made.description == "Look up the weather.\n\nUses the nearest station."
    assert made.input_schema["properties"]["city"]["description"] == "Where to look, in English."
    # What the field says itself wins.
    assert made.input_schema["properties"]["days"]["description"] == "Days ahead."


def test_the_help_of_an_argument_is_preferred_to_the_docstring_of_its_type() -> None:
    class Place(BaseModel):
        """A place on earth."""

        name: str

    @tool
    def go(where: Place, back: Place) -> None:
        """Go.

        Args:
            where: The goal.
        """

    assert go.input_schema["properties"]["where"]["description"] == "The goal."
    assert go.input_schema["properties"]["back"]["description"] == "A place on earth."


def test_a_docstring_of_several_lines_without_sections_is_kept() -> None:
    @tool
    def note() -> None:
        """First line
        and second.

        Colons: are no problem: here.
        """

    assert note.description == "First line\nand second.\n\nColons: are no problem: here."


def test_without_a_docstring_the_name_says_it_in_words() -> None:
    @tool
    def get_latest_news() -> None: ...

    @tool(name="sendEMail-now")
    def mail() -> None: ...

    assert get_latest_news.description == "Get latest news."
    assert mail.description == "Send email now."


def test_options_win_over_the_function() -> None:
    @tool(name="search", description="Find things.", title="Search", strict=True)
    def look_up(q: str) -> None:
        """Not this."""

    spec = look_up.spec()
    assert (spec.name, spec.description, spec.strict) == ("search", "Find things.", True)
    assert spec.input_schema is look_up.input_schema
    assert look_up.title == "Search"
