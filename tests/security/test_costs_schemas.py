"""Schemas that a browser wrote: data with bounds. Nothing of theirs runs, nothing of theirs is dear."""

from __future__ import annotations

from typing import Any

import pytest

from everthink.errors import ToolDefinitionError, ToolInputError
from everthink.models.demo_tools import calls_for
from everthink.tools import bounds
from everthink.tools.bounds import MAX_REFERENCE
from everthink.tools.collect import client_tools_from
from everthink.tools.json_input import MAX_STEPS, JsonInput, misfits

from ..support.steps import grows_no_faster, steps

HONEST = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "description": "Where?", "minLength": 1},
        "unit": {"enum": ["c", "f"]},
        "next": {"$ref": "#/$defs/place"},
    },
    "required": ["city"],
    "$defs": {"place": {"type": "object", "properties": {"inner": {"$ref": "#/$defs/place"}}}},
}


def declare(schema: Any, name: str = "show") -> Any:
    return client_tools_from([{"name": name, "parameters": schema}])[name]


def doubling(levels: int) -> dict[str, Any]:
    """Each level uses the next one twice."""
    defs: dict[str, Any] = {
        f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{n + 1}"}, {"$ref": f"#/$defs/d{n + 1}"}]}
        for n in range(levels)
    }
    defs[f"d{levels}"] = {"type": "integer"}
    return {"type": "object", "properties": {"x": {"$ref": "#/$defs/d0"}}, "$defs": defs}


def clique(size: int) -> dict[str, Any]:
    """Everybody refers to everybody: written out it has more than `size!` schemas."""
    names = [f"d{n}" for n in range(size)]
    everybody = [{"$ref": f"#/$defs/{name}"} for name in names]
    return {"$defs": {name: {"anyOf": everybody} for name in names}, "properties": {"x": everybody[0]}}


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(levels):
        schema = {"properties": {"x": schema}}
    return schema


def test_an_honest_schema_is_taken_as_it_is() -> None:
    assert declare(HONEST).input_schema == HONEST


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"properties": {f"p{n}": {} for n in range(bounds.MAX_NODES)}}, "more than 5,000 keys and values"),
        ({"enum": list(range(501))}, "more than 500"),
        ({"required": ["a"] * 501}, "more than 500"),
        ({"anyOf": [{}] * 65}, "more than 64"),
        (nested(33), "more than 32 levels"),
        (doubling(14), "written out it has more than 10,000"),
        (doubling(30), "levels deep"),
        (clique(12), "written out it has more than 10,000"),
        ({"$ref": "#/" + "x" * MAX_REFERENCE}, "not text of at most 256"),
        ({"$ref": "#/$defs/nobody"}, "leads nowhere"),
        ({"$ref": 7}, "not text of at most"),
        ({"properties": []}, "'properties' is not an object"),
        ({"properties": {"x": 7}}, "a int stands where a schema belongs"),
        ({"anyOf": {}}, "'anyOf' is not a list"),
        ({"required": [["x"]]}, "not text"),
        ({"properties": {"x": {"type": [["string"]]}}}, "not text"),
        ({"properties": {"x": {"minLength": 10**12}}}, "not a number from 0 to 1,000,000"),
        ({"properties": {"x": {"type": "array", "minItems": "many"}}}, "not a number"),
    ],
)
def test_a_schema_that_is_too_complex_is_refused_with_the_bound_in_the_words(schema: Any, words: str) -> None:
    with pytest.raises(ToolDefinitionError, match=words):
        declare(schema)


@pytest.mark.parametrize("name", ["", "a b", "x" * 65, "näme", "a\n", "../x", "x\0"])
def test_a_name_that_providers_do_not_take_is_refused_in_few_words(name: str) -> None:
    with pytest.raises(ToolDefinitionError) as refused:
        declare(None, name)
    assert len(str(refused.value)) < 400


def test_a_name_of_a_million_characters_is_not_repeated_in_the_refusal() -> None:
    with pytest.raises(ToolDefinitionError) as refused:
        declare({"enum": 7}, "x" * 1_000_000)
    assert len(str(refused.value)) < 400


@pytest.mark.parametrize("hostile", [doubling(14), doubling(25), clique(12), clique(40), nested(64)])
def test_refusing_a_hostile_schema_costs_no_more_than_its_bound(hostile: dict[str, Any]) -> None:
    def refuse() -> None:
        with pytest.raises(ToolDefinitionError):
            declare(hostile)

    assert steps(refuse) < 60 * bounds.MAX_WRITTEN_OUT


def test_the_tools_of_one_declaration_share_the_bounds() -> None:
    def declared(count: int) -> None:
        client_tools_from([{"name": f"t{n}", "parameters": doubling(6)} for n in range(count)])

    declared(4)
    with pytest.raises(ToolDefinitionError, match="more than 10,000 schemas"):
        declared(40)


def test_looking_at_a_schema_is_linear_in_its_size() -> None:
    def work(size: int) -> Any:
        schema = {"properties": {f"p{n}": {"type": "string", "enum": ["a", "b"]} for n in range(size)}}
        return lambda: declare(schema)

    grows_no_faster(work, 60)


def test_a_pattern_or_a_format_of_theirs_never_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    import re

    evil = "(a+)+$"
    known = re.compile

    def compiled(pattern: Any, *options: Any) -> Any:
        assert pattern != evil
        return known(pattern, *options)

    monkeypatch.setattr(re, "compile", compiled)
    string = {"type": "string", "pattern": evil, "format": "regex"}
    tool = declare({"properties": {"x": string}, "patternProperties": {evil: string}})
    given = {"x": "a" * 40 + "!", "a" * 40 + "!": "y"}
    assert tool.arguments(given) == given


# --- the model's input, looked over with their schema


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (doubling(28), {"x": "no number"}),
        (
            {
                "$defs": {
                    "n": {"anyOf": [{"type": "object", "additionalProperties": {"$ref": "#/$defs/n"}}] * 8}
                },
                "additionalProperties": {"$ref": "#/$defs/n"},
            },
            {"a": {"a": {"a": {"a": {"a": {"a": {"a": {"a": 7}}}}}}}},
        ),
        ({"properties": {"x": {"items": {"enum": list(range(500))}}}}, {"x": [499] * 10_000}),
        ({"properties": {"x": {"items": {"required": ["a"] * 500}}}}, {"x": [{"a": 1}] * 10_000}),
    ],
)
def test_input_that_takes_too_many_steps_is_refused(schema: Any, value: Any) -> None:
    # The schema may be one of the application's own: those have no bounds but this one.
    def look() -> None:
        with pytest.raises(ToolInputError, match="too complex to check"):
            JsonInput(schema).arguments("show", value)

    assert steps(look) < 150 * MAX_STEPS


def test_a_large_honest_input_is_looked_over() -> None:
    rows = [{"name": "Ada", "age": n} for n in range(4000)]
    row = {"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}}}
    schema = {"properties": {"rows": {"type": "array", "items": row}}}
    assert list(misfits({"rows": rows}, schema)) == []
    rows[3999]["age"] = "old"
    assert "rows[3999].age should be a whole number" in "".join(misfits({"rows": rows}, schema))


def test_the_check_is_linear_in_the_input() -> None:
    schema = {"properties": {"x": {"items": {"anyOf": [{"type": "string"}, {"type": "integer"}]}}}}
    grows_no_faster(lambda size: lambda: list(misfits({"x": list(range(size))}, schema)), 200)


def test_what_is_told_about_a_huge_input_is_short() -> None:
    value = {"k" * 1_000_000: [{"x" * 500_000: "y" * 500_000}] * 1000, "n": 10**4000}
    schema = {
        "additionalProperties": {"items": {"additionalProperties": {"type": "integer"}}},
        "properties": {"n": {"type": "string"}},
    }
    assert sum(map(len, misfits(value, schema))) < 20_000
    with pytest.raises(ToolInputError) as refused:
        JsonInput(schema).arguments("show", value)
    assert len(str(refused.value)) < 4000


def test_the_demo_model_writes_no_million_of_anything() -> None:
    many = {"type": "array", "minItems": 1_000_000, "items": {"type": "string", "minLength": 1_000_000}}
    tool = declare({"properties": {"x": many}, "required": ["x"]}, "show")
    (call,) = calls_for("show me", [tool.spec()], "required")
    assert sum(map(len, call.input["x"])) <= 40_000
