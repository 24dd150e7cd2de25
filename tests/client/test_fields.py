"""A form, field by field: what is asked for, and what a line means."""

from __future__ import annotations

from typing import Any

import pytest

from everthink.client.fields import Field, fields_of, read


def field(schema: dict[str, Any], *, required: bool = True, **root: Any) -> Field:
    """The one field of a form."""
    (found,) = fields_of({"properties": {"x": schema}, "required": ["x"] if required else [], **root})
    return found


TITLED = {"oneOf": [{"const": "in", "title": "Inside"}, {"const": "out", "title": "Outside"}]}
SEVERAL = {"type": "array", "items": {"enum": ["a", "b", "c"]}, "minItems": 1, "maxItems": 2}


@pytest.mark.parametrize(
    ("schema", "line", "value"),
    [
        ({"type": "string"}, " a b ", "a b"),
        ({"type": "string", "format": "email"}, "ada@example.com", "ada@example.com"),
        ({"type": "string", "format": "uri"}, "https://example.com/a", "https://example.com/a"),
        ({"type": "string", "format": "date"}, "2026-12-24", "2026-12-24"),
        ({"type": "string", "format": "date-time"}, "2026-12-24T18:30:00+01:00", "2026-12-24T18:30:00+01:00"),
        ({"type": "integer", "minimum": 1}, "12", 12),
        ({"type": "integer"}, "3.0", 3),
        ({"type": "number"}, "-1.5e2", -150.0),
        ({"type": "boolean"}, "Yes", True),
        ({"type": "boolean"}, "n", False),
        ({"enum": ["red", "blue"]}, "2", "blue"),
        ({"enum": ["red", "blue"], "enumNames": ["Red one", "Blue one"]}, "blue one", "blue"),
        ({"enum": [10, 2]}, "2", 2),
        (TITLED, "outside", "out"),
        (SEVERAL, "3, 1", ["a", "c"]),
        ({"type": "array", "items": {"anyOf": TITLED["oneOf"]}}, "Inside", ["in"]),
        ({"type": ["string", "null"]}, "x", "x"),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "7", 7),
        ({"type": "object", "properties": {"n": {"type": "integer"}}}, '{"n": 1}', {"n": 1}),
    ],
)
def test_a_line_is_what_the_tool_gets(schema: dict[str, Any], line: str, value: Any) -> None:
    found = read(field(schema), line)
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("schema", "line", "words"),
    [
        ({"type": "string", "minLength": 2}, "a", "It has at least 2 characters; this has 1."),
        ({"type": "string", "maxLength": 1}, "ab", "It has at most 1 characters; this has 2."),
        ({"type": "string", "format": "email"}, "ada", "This is no e-mail address."),
        ({"type": "string", "format": "uri"}, "http://[", "This is no web address"),
        ({"type": "string", "format": "uri"}, "example.com", "This is no web address"),
        ({"type": "string", "format": "date"}, "24.12.", "This is no day"),
        ({"type": "string", "format": "date-time"}, "noon", "This is no time"),
        ({"type": "integer"}, "two", "This is not a number."),
        ({"type": "integer"}, "1e400", "This is not a number."),
        ({"type": "integer"}, "1" * 5000, "This is not a number."),
        ({"type": "integer"}, "2.5", "This is not a whole number."),
        ({"type": "number", "minimum": 1}, "0", "It is at least 1."),
        ({"type": "number", "maximum": 1}, "2", "It is at most 1."),
        ({"type": "boolean"}, "perhaps", "Say y or n."),
        ({"enum": ["red", "blue"]}, "3", "Choose one: 1 to 2."),
        ({"enum": ["red", "blue"]}, "²", "Choose one: 1 to 2."),
        (SEVERAL, "1, 2, 3", "Choose at most 2."),
        (SEVERAL, ",", "Choose at least 1."),
        ({"type": "object"}, "{", "This is no JSON."),
        ({"type": "object"}, "[" * 100_000, "This is no JSON."),
        ({"type": "object"}, "[]", "It does not fit"),
    ],
)
def test_what_is_wrong_is_said_in_words(schema: dict[str, Any], line: str, words: str) -> None:
    with pytest.raises(ValueError, match=words[:20].replace("?", ".")) as said:
        read(field(schema), line)
    assert str(said.value).startswith(words)


def test_a_field_says_what_it_wants() -> None:
    schema = {"type": "integer", "title": "How many?", "description": "Of you.", "minimum": 1, "default": 2}
    one = field({**schema, "maximum": 9})
    assert (one.label, one.help, one.bounds, one.default) == ("How many?", "Of you.", "1 to 9", 2)
    assert field({**schema, "default": "two"}).default is None  # a default that does not fit is none
    assert (field({"type": "string"}).label, field({"minItems": 1}).bounds) == ("x", "at least 1")
    assert field(SEVERAL).named(["a", "b"]) == "a, b"
    assert field(TITLED).named("out") == "Outside"
    assert field({"type": "boolean"}).named(True) == "yes"


def test_nothing_is_left_out_or_a_null() -> None:
    nothing = {"type": ["string", "null"]}
    assert (field(nothing).is_required, field(nothing).is_nullable) == (False, True)
    assert not field(nothing, required=False).is_nullable
    assert field({"type": "string"}).is_required


def test_a_schema_is_a_strangers() -> None:
    loops = field({"$ref": "#/$defs/a"}, **{"$defs": {"a": {"$ref": "#/$defs/a"}}})
    assert (loops.kind, read(loops, "1")) == ("json", 1)
    size = field({"$ref": "#/$defs/Size"}, **{"$defs": {"Size": {"enum": ["S", "L"]}}})
    assert read(size, "2") == "L"
    assert field({"$ref": "https://example.com/a"}).kind == "json"
    for odd in (
        {},
        {"properties": []},
        {"properties": {"x": 1}, "required": "x"},
        {"properties": {"x": {"enum": 1}}},
    ):
        assert all(one.kind == "json" for one in fields_of(odd))
