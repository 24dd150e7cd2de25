"""What a tool returned, as JSON and as the model sees it."""

import dataclasses
import datetime as dt
import decimal
import enum
import json
import logging
import pathlib
import types
import uuid
from collections import OrderedDict, deque
from typing import Any, NamedTuple

import msgspec
import pytest
from pydantic import BaseModel

from everthink.errors import ToolOutputError
from everthink.models.port import FilePart, TextPart
from everthink.tools.output import jsonable, model_output
from everthink.tools.tool import tool


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1


@dataclasses.dataclass
class Point:
    x: int
    when: dt.date | None = None


class Moment(dt.datetime):
    """As other libraries make them."""


class Person(BaseModel):
    name: str
    born: dt.date
    points: list[Point] = []


class Row(msgspec.Struct, rename="camel", tag="row"):
    first_name: str
    color: Color = Color.RED
    person: Person | None = None


class Pair(NamedTuple):
    left: int
    right: Any


class Text(str):
    def __str__(self) -> str:
        return "something else"


class Lazy(dict[str, Any]):
    """Like a row whose session is gone."""

    def items(self) -> Any:
        raise RuntimeError("the session is closed")


@dataclasses.dataclass
class Holder:
    inner: Any


class Anything(BaseModel):
    inner: Any


class Int64:
    """Looks like numpy's."""

    __module__ = "numpy"

    def tolist(self) -> int:
        return 7


DAY = dt.date(2024, 2, 29)


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (None, None),
        ({"a": [1, 2.5, True, None, "x"]}, {"a": [1, 2.5, True, None, "x"]}),
        ((1, (2,)), [1, [2]]),
        ({3, 1, 2}, [1, 2, 3]),
        (frozenset({"b", "a"}), ["a", "b"]),
        (deque([1]), [1]),
        (range(3), [0, 1, 2]),
        ({"a": 1}.keys(), ["a"]),
        ({"a": 1}.values(), [1]),
        (OrderedDict(a=1), {"a": 1}),
        (types.MappingProxyType({"a": 1}), {"a": 1}),
        ({1: "a", Color.RED: "b", Level.LOW + 1: "c"}, {"1": "a", "red": "b", "2": "c"}),
        (Color.RED, "red"),
        (Level.LOW, 1),
        (Text("kept"), "kept"),
        (dt.datetime(2024, 2, 29, 12, tzinfo=dt.UTC), "2024-02-29T12:00:00Z"),
        (DAY, "2024-02-29"),
        (dt.time(9, 30), "09:30:00"),
        (dt.timedelta(hours=1), "PT3600S"),
        (Moment(2024, 2, 29, tzinfo=dt.timezone(dt.timedelta(hours=2))), "2024-02-29T00:00:00+02:00"),
        ({Color.RED, Color.BLUE}, ["blue", "red"]),
        (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (decimal.Decimal("1.10"), "1.10"),
        (decimal.Decimal(0), "0"),
        (pathlib.PurePosixPath("a/b"), "a/b"),
        (Point(1, DAY), {"x": 1, "when": "2024-02-29"}),
        (
            Person(name="Ada", born=DAY, points=[Point(1)]),
            {"name": "Ada", "born": "2024-02-29", "points": [{"x": 1, "when": None}]},
        ),
        (
            Row("Ada", person=Person(name="B", born=DAY)),
            {
                "type": "row",
                "firstName": "Ada",
                "color": "red",
                "person": {"name": "B", "born": "2024-02-29", "points": []},
            },
        ),
        (Pair(1, Point(2)), {"left": 1, "right": {"x": 2, "when": None}}),
        (Int64(), 7),
        (Anything(inner=[float("nan")]), {"inner": [None]}),  # pydantic's own rule
        (2**64 - 1, 2**64 - 1),
        (2**64, str(2**64)),
        (-(2**63) - 1, str(-(2**63) - 1)),
        ("smile \ud83d\ude00", "smile 😀"),
        ("half \ud83d", "half �"),
        ({"k\udc00": "grün"}, {"k�": "grün"}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_values_with_an_obvious_json_form_get_it(value: Any, plain: Any) -> None:
    made = jsonable(value, tool="t")
    assert made == plain
    assert type(made) is type(plain)
    assert msgspec.json.decode(msgspec.json.encode(made)) == plain


LOOP: list[Any] = []
LOOP.append(LOOP)


@pytest.mark.parametrize(
    ("value", "where", "kind", "instead"),
    [
        (b"raw", "result", "is bytes", "data:"),
        ({"files": [{"body": bytearray(b"x")}]}, "result['files'][0]['body']", "bytearray", "decode"),
        (Holder({"x": [1, object()]}), "result.inner['x'][1]", "is of type object", "dataclasses"),
        ({"n": float("nan")}, "result['n']", "nan", "None"),
        ([float("-inf")], "result[0]", "-inf", "None"),
        (decimal.Decimal("NaN"), "result", "nan", "None"),
        ({"d": {(1, 2): 3}}, "result['d'][(1, 2)]", "key of type tuple", "str(key)"),
        ({True: 1}, "result[True]", "key of type bool", "str(key)"),
        ({None: 1}, "result[None]", "key of type NoneType", "str(key)"),
        ({1: "a", "1": "b"}, "result['1']", "two keys", "differ"),
        (LOOP, "result[0][0]", "contains itself", "without cycles"),
        (iter([1]), "result", "list_iterator", "list(...)"),
        ({"e": ValueError("x")}, "result['e']", "is of type ValueError", "Raise it"),
        (Person, "result", "is of type", "pydantic"),
        (lambda: 1, "result", "is of type function", "text"),
        (pathlib.Path, "result", "is of type type", "text"),
        (Row("x", color=object()), "result", "is of type object", "text"),  # type: ignore[arg-type]
        (Anything(inner=object()), "result", "cannot be read", "JSON form"),
        (1j, "result", "is of type complex", "text"),
        ([Lazy()], "result", "the session is closed", "JSON form"),
        ({"\ud800": b""}, "result", "bytes", "data:"),
    ],
)
def test_values_without_json_form_get_a_letter(value: Any, where: str, kind: str, instead: str) -> None:
    with pytest.raises(ToolOutputError) as caught:
        jsonable(value, tool="lookup")
    error = caught.value
    assert "'lookup'" in error.what
    assert where in error.what
    assert kind in error.what
    assert instead in error.next_step
    assert len(str(error).encode()) < 500


def test_a_deep_value_is_fine_up_to_a_limit() -> None:
    def nested(levels: int) -> Any:
        value: Any = 1
        for _ in range(levels):
            value = [value]
        return value

    assert jsonable(nested(90), tool="t") == nested(90)
    with pytest.raises(ToolOutputError, match="100 levels"):
        jsonable(nested(5000), tool="t")


def test_the_result_is_a_copy() -> None:
    value: dict[str, Any] = {"a": [1]}
    made = jsonable(value, tool="t")
    value["a"].append(2)
    assert made == {"a": [1]}


def test_the_tool_itself_may_be_named() -> None:
    @tool
    def lookup() -> None: ...

    with pytest.raises(ToolOutputError, match="'lookup'"):
        jsonable(b"", tool=lookup)


# --- the model's view ----------------------------------------------------------------------


def viewed(view: Any) -> Any:
    @tool(to_model_output=view)
    def shot() -> None: ...

    return shot


@pytest.mark.parametrize("value", ["text", {"a": 1}, None, 3, [1]])
def test_without_a_view_the_model_sees_the_value(value: Any) -> None:
    @tool
    def plain() -> None: ...

    assert model_output(plain, value) == (value, None)
    assert model_output(None, value) == (value, None)


def test_a_view_may_be_text_or_json() -> None:
    assert model_output(viewed(lambda value: f"{len(value)} rows"), [1, 2]) == ("2 rows", None)
    assert model_output(viewed(lambda value: {"first": value[0]}), [1, 2]) == ({"first": 1}, None)
    assert model_output(viewed(lambda value: [1, {"type": "text"}]), 0) == ([1, {"type": "text"}], None)
    assert model_output(viewed(lambda value: []), 0) == ([], None)
    assert model_output(viewed(lambda value: value), None) == (None, None)


def test_a_view_may_be_text_and_files() -> None:
    output, content = model_output(
        viewed(
            lambda value: [
                TextPart("A screenshot"),
                {"type": "text", "text": "of the page"},
                FilePart(url="data:image/png;base64,AA==", media_type="image/png"),
                {
                    "type": "file",
                    "url": "https://x.example/a.pdf",
                    "mediaType": "application/pdf",
                    "filename": "a.pdf",
                },
                {"type": "file", "data": b"\0", "media_type": "image/png"},
                {"type": "file", "data": "AA==", "media_type": "image/png"},
            ]
        ),
        {},
    )
    png = FilePart(url="data:image/png;base64,AA==", media_type="image/png")
    pdf = FilePart(url="https://x.example/a.pdf", media_type="application/pdf", filename="a.pdf")
    assert content == [TextPart("A screenshot"), TextPart("of the page"), png, pdf, png, png]
    assert output == "\n".join(
        [
            "A screenshot",
            "of the page",
            "[file: image/png]",
            "[file: a.pdf]",
            "[file: image/png]",
            "[file: image/png]",
        ]
    )
    json.dumps(output)
    assert model_output(viewed(lambda value: png), {}).content == [png]


@pytest.mark.parametrize("view", [lambda value: 1 / 0, lambda value: b"raw"])
def test_a_view_that_fails_falls_back_to_the_value(view: Any, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert model_output(viewed(view), {"kept": 1}) == ({"kept": 1}, None)
    assert "'shot'" in caplog.text
