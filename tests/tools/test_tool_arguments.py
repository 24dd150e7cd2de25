"""From the JSON a model wrote to typed arguments, or to a sentence it can act on."""

import dataclasses
import datetime as dt
import decimal
import enum
import math
import uuid
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field, StrictInt, field_validator
from tests.support.steps import steps

from everthink.errors import ToolInputError
from everthink.tools.finite import non_finite
from everthink.tools.tool import Tool, ToolContext, tool


class Color(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Item:
    name: str
    price: decimal.Decimal = decimal.Decimal(0)


class Order(BaseModel):
    items: list[Item]
    note: str | None = None

    @field_validator("note")
    @classmethod
    def polite(cls, note: str | None) -> str | None:
        if note == "rude":
            raise ValueError("be polite")
        return note


@tool
def order(
    order: Order,
    when: dt.date,
    color: Color = Color.RED,
    count: Annotated[int, Field(ge=1, le=5)] = 1,
    ctx: ToolContext | None = None,
) -> None: ...


def complaint(made: Tool, given: Any) -> str:
    with pytest.raises(ToolInputError) as caught:
        made.arguments(given)
    return str(caught.value)


def test_json_becomes_the_types_the_function_declares() -> None:
    arguments = order.arguments(
        {"order": {"items": [{"name": "tea", "price": "1.20"}]}, "when": "2024-02-29", "color": "red"}
    )
    assert arguments == {
        "order": Order(items=[Item("tea", decimal.Decimal("1.20"))]),
        "when": dt.date(2024, 2, 29),
        "color": Color.RED,
    }


def test_what_the_model_left_out_is_left_to_the_function() -> None:
    marker: list[str] = []

    @tool
    def keep(a: list[str] = marker, b: int = 2) -> bool:
        return a is marker

    assert keep.arguments({}) == {}
    assert keep.arguments(None) == {}
    assert keep(**keep.arguments({"b": 3})) is True


def test_strict_types_follow_json_rules() -> None:
    @tool
    def strict(
        day: Annotated[dt.date, Field(strict=True)], pair: tuple[int, int], ids: set[uuid.UUID], n: StrictInt
    ) -> None: ...

    one = uuid.uuid4()
    arguments = strict.arguments({"day": "2024-01-02", "pair": [1, 2], "ids": [str(one)], "n": 3})
    assert arguments == {"day": dt.date(2024, 1, 2), "pair": (1, 2), "ids": {one}, "n": 3}


def test_numbers_beyond_64_bits_and_broken_text_still_arrive() -> None:
    @tool
    def take(n: int, s: Any) -> None: ...

    given = {"n": 2**80, "s": "half \ud83d"}
    assert take.arguments(given) == given


class Loose(BaseModel):
    price: float
    seen: list[float] = []


@pytest.mark.parametrize("wrong", ["nan", "NaN", "-inf", "Infinity", float("nan"), float("-inf")])
def test_nan_and_infinities_are_no_numbers(wrong: Any) -> None:
    @tool
    def pay(
        amount: float = 0, each: list[float] | None = None, any: Any = None, loose: Loose | None = None
    ) -> None: ...

    assert "amount should be a finite number" in complaint(pay, {"amount": wrong})
    assert "each[1] should be a finite number" in complaint(pay, {"each": [1, wrong]})
    assert "loose.price should be a finite number" in complaint(pay, {"loose": {"price": wrong}})
    assert "loose.seen[0] should be a finite number" in complaint(
        pay, {"loose": {"price": 1, "seen": [wrong]}}
    )
    if isinstance(wrong, float):
        assert "any should be a finite number" in complaint(pay, {"any": wrong})
    else:
        assert pay.arguments({"any": wrong}) == {"any": wrong}  # there it is a text


@pytest.mark.parametrize("schema", [{"type": "number"}, {}])
def test_nor_in_tools_that_come_with_a_schema(schema: dict[str, Any]) -> None:
    pay = Tool.from_schema("pay", "Pay.", {"properties": {"amount": schema}}, lambda input: input)
    assert "amount should be a finite number" in complaint(pay, {"amount": float("nan")})
    assert "[1] should be a finite number" in complaint(pay, {"rest": [1, float("inf")]})


def test_the_completed_input_is_what_the_body_gets_as_json() -> None:
    given = {"order": {"items": [{"name": "tea", "price": 1.5}]}, "when": "2024-02-29", "count": "3"}
    assert order.completed(given) == {
        "order": {"items": [{"name": "tea", "price": 1.5}], "note": None},
        "when": "2024-02-29",
        "color": "red",
        "count": 3,
    }


def test_the_body_gets_its_own_copy_of_the_input() -> None:
    @tool
    def change(values: list[int]) -> None: ...

    given = {"values": [1]}
    change.arguments(given)["values"].append(2)
    assert given == {"values": [1]}


def test_a_complaint_names_the_field_what_was_expected_and_what_came() -> None:
    text = complaint(
        order,
        {"order": {"items": [{"name": "tea"}, {"price": "x"}], "note": "rude"}, "color": "blue", "count": 9},
    )
    assert "'order'" in text
    assert "order.items[1].name is required but missing" in text
    assert "order.items[1].price should be a valid decimal (got the text 'x')" in text
    assert "order.note be polite (got the text 'rude')" in text
    assert "when is required but missing" in text
    assert "color should be 'red' (got the text 'blue')" in text
    assert "count should be less than or equal to 5 (got the number 9)" in text
    assert text.endswith("The tool was not run. Correct the input and call it again.")


def test_an_unknown_field_is_told_what_the_known_ones_are() -> None:
    text = complaint(order, {"order": {"items": []}, "when": "2024-01-01", "colour": "red"})
    assert "colour is not a known field (it takes order, when, color, count)" in text


def test_the_context_cannot_be_given_by_the_model() -> None:
    assert "ctx is not a known field" in complaint(
        order, {"order": {"items": []}, "when": "2024-01-01", "ctx": {}}
    )

    @tool
    def open_ended(ctx: ToolContext, **rest: Any) -> None: ...

    assert "ctx is not a known field" in complaint(open_ended, {"ctx": 1, "fine": 2})

    class Agent:
        @tool
        def method(self, **rest: Any) -> None: ...

    assert "self is not a known field" in complaint(Agent.method, {"self": 1})


def test_the_python_name_behind_an_alias_is_no_second_way_in() -> None:
    @tool
    def trip(from_: Annotated[str, Field(alias="from")], **rest: str) -> None: ...

    assert trip.arguments({"from": "A", "via": "B"}) == {"from_": "A", "via": "B"}
    assert "from_ is not a known field" in complaint(trip, {"from": "A", "from_": "B"})


def test_keyword_arguments_are_typed() -> None:
    @tool
    def tag(name: str, **labels: int) -> None: ...

    assert tag.arguments({"name": "n", "a": 1, "b": "2"}) == {"name": "n", "a": 1, "b": 2}
    assert "a should be a valid integer" in complaint(tag, {"name": "n", "a": "x"})


def test_a_tool_without_parameters_forgives_invented_ones() -> None:
    @tool
    def now() -> None: ...

    assert now.arguments({"random": "dummy"}) == {}


@pytest.mark.parametrize(
    ("given", "came"),
    [
        ([1, 2], "a list of 2"),
        ("text", "the text 'text'"),
        (3, "the number 3"),
        (True, "true"),
        (1.5, "the number 1.5"),
    ],
)
def test_input_that_is_no_object_is_refused(given: Any, came: str) -> None:
    assert f"expected a JSON object, got {came}" in complaint(order, given)


def test_the_members_of_a_union_are_told_as_alternatives() -> None:
    class Cat(BaseModel):
        lives: int

    @tool
    def take(
        x: int | bool | Literal["all"], pet: Cat | None = None, m: dict[int, str] | None = None
    ) -> None: ...

    text = complaint(take, {"x": "some", "pet": {"lives": "many"}, "m": {"k": "v"}})
    assert "x should be a valid integer" in text
    assert " or should be a valid boolean" in text
    assert "or should be 'all' (got the text 'some')" in text
    assert "pet.lives should be a valid integer" in text
    assert "a key of m should be a valid integer" in text
    assert "Cat" not in text


def test_long_input_and_many_problems_stay_short() -> None:
    @tool
    def take(values: list[int]) -> None: ...

    text = complaint(take, {"values": ["x" * 500] * 100})
    assert "and 92 more" in text
    assert len(text) < 2000


def test_a_complaint_about_broken_text_can_itself_be_sent() -> None:
    @tool
    def take(m: dict[str, int]) -> None: ...

    text = complaint(take, {"m": {"half \ud83d": "x", "long" * 1000: "\ud83d"}, "\ud83d": 1})
    assert len(text.encode()) < 2000


def test_substituted_input_is_converted_where_that_works_and_passed_raw_where_not() -> None:
    arguments = order.arguments(
        {"order": {"items": [{"name": "tea"}]}, "when": "someday", "count": 99, "other": 1}, lenient=True
    )
    assert arguments == {"order": Order(items=[Item("tea")]), "when": "someday", "count": 99}


def test_substituted_input_may_hold_python_values_and_names() -> None:
    @tool
    def trip(from_: Annotated[str, Field(alias="from")], item: Item, **rest: int) -> None: ...

    item = Item("tea")
    assert trip.arguments({"from_": "A", "item": item, "x": "raw"}, lenient=True) == {
        "from_": "A",
        "item": item,
        "x": "raw",
    }
    assert trip.arguments({"from": "A"}, lenient=True) == {"from_": "A"}
    assert trip.arguments("nonsense", lenient=True) == {}


def test_what_holds_no_number_that_is_none_is_looked_at_quickly() -> None:
    many = [{"a": 1} for _ in range(10_000)]
    assert steps(lambda: list(non_finite({"all": many}))) < 13 * len(many)
    assert list(non_finite({"all": [*many, {"a": math.inf}, [], [1, [math.nan]]]})) == [
        "all[10000].a",
        "all[10002][1][0]",
    ]
