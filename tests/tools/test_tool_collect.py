"""Gathering tools from classes, from get_tools() and from browsers."""

import logging
from typing import Any

import pytest

from everthink.errors import ToolDefinitionError, ToolInputError
from everthink.tools.collect import as_tools, client_tools_from, collect_tools
from everthink.tools.tool import Tool, ToolContext, client_tool, tool


class Base:
    @tool
    def first(self) -> str:
        return "base"

    @tool
    def second(self) -> str:
        return "base"

    @tool
    def third(self) -> str:
        return "base"

    def helper(self) -> None: ...


class Mixin:
    @tool
    def extra(self) -> str:
        return "mixin"


def search(query: str) -> str:
    """Search."""
    return query


def test_tools_come_in_the_order_they_are_written_bases_first() -> None:
    class Child(Mixin, Base):
        @tool
        def fourth(self) -> str:
            return "child"

    assert list(collect_tools(Child)) == ["first", "second", "third", "extra", "fourth"]


def test_an_override_replaces_and_keeps_the_place() -> None:
    class Child(Base):
        @tool
        def second(self, n: int) -> str:
            return "child"

    tools = collect_tools(Child)
    assert list(tools) == ["first", "second", "third"]
    assert tools["second"] is Child.second
    assert tools["first"] is Base.first


def test_overriding_with_none_removes() -> None:
    class Child(Base):
        first = None  # type: ignore[assignment]
        second = None  # type: ignore[assignment]

    class Grandchild(Child):
        def first(self) -> str:  # type: ignore[override]
            return "not for the model, and no tool was there any more"

        @tool
        def second(self) -> str:
            return "back again"

    assert list(collect_tools(Child)) == ["third"]
    assert list(collect_tools(Grandchild)) == ["second", "third"]


def test_a_plain_method_in_the_place_of_a_tool_is_refused() -> None:
    class Child(Base):
        def second(self) -> str:  # type: ignore[override]
            return "meant for the model"

    with pytest.raises(
        ToolDefinitionError, match=r"Child\.second is no tool.* Base\.second.*@tool above it.*`second = None`"
    ):
        collect_tools(Child)


def test_what_a_mixin_puts_in_the_place_of_a_tool_is_refused() -> None:
    class Plain:
        second = "meanwhile a text"

    class Child(Plain, Base): ...

    with pytest.raises(ToolDefinitionError, match=r"Plain\.second is no tool"):
        collect_tools(Child)


def test_a_function_tool_can_be_hung_on_a_class() -> None:
    class Child(Base):
        look = tool(search)

    assert collect_tools(Child)["search"] is Child.look
    assert Child().look("x") == "x"


def test_two_tools_of_one_class_with_the_same_name_are_refused() -> None:
    class Child:
        @tool(name="go")
        def one(self) -> None: ...

        @tool(name="go")
        def two(self) -> None: ...

    with pytest.raises(ToolDefinitionError, match=r"'go'.*Child\.one.*Child\.two"):
        collect_tools(Child)


def test_get_tools_may_return_a_list_of_tools_and_functions() -> None:
    agent = Base()
    tools = as_tools([agent.first, search, client_tool("locate")])
    assert list(tools) == ["first", "search", "locate"]
    assert tools["search"].description == "Search."


def test_get_tools_may_return_a_mapping_whose_keys_are_the_names() -> None:
    made = tool(search)
    tools = as_tools({"find": search, "look": made, "quick": lambda: 1, "search": made})
    assert [t.name for t in tools.values()] == list(tools) == ["find", "look", "quick", "search"]
    assert made.name == "search"
    assert tools["search"] is made
    assert tools["look"].input_schema is made.input_schema


def test_get_tools_may_return_nothing_or_one_tool() -> None:
    assert as_tools(None) == {}
    assert as_tools([]) == {}
    made = tool(search)
    assert as_tools(made) == {"search": made}
    assert as_tools(t for t in [made]) == {"search": made}


def test_duplicates_in_a_list_are_refused_naming_both() -> None:
    def other(q: str) -> None: ...

    with pytest.raises(ToolDefinitionError) as caught:
        as_tools([search, tool(other, name="search")])
    assert "search (" in str(caught.value)
    assert "other (" in str(caught.value)
    assert str(caught.value).count(__file__) == 2


@pytest.mark.parametrize(
    "value", ["search", 3, [3], {"a": None}, {1: search}, [Base], {"a b": search}, {"": search}]
)
def test_what_is_no_tool_is_refused(value: Any) -> None:
    with pytest.raises(ToolDefinitionError):
        as_tools(value)


# --- browser tools ---------------------------------------------------------------------------


def test_a_client_tool_has_a_schema_and_no_body() -> None:
    locate = client_tool("locate", "Where the user is.", {"properties": {"precise": {"type": "boolean"}}})
    assert not locate.has_body
    assert not locate.streams
    assert locate.spec().input_schema == {"type": "object", "properties": {"precise": {"type": "boolean"}}}
    assert client_tool("x").input_schema == {"type": "object"}
    with pytest.raises(ToolInputError, match="precise should be a boolean"):
        locate.arguments({"precise": "yes"})


def test_the_tools_of_a_browser_are_read_from_its_request() -> None:
    tools = client_tools_from(
        [{"name": "locate"}, {"name": "alert", "description": "Warn.", "parameters": {"type": "object"}}]
    )
    assert list(tools) == ["locate", "alert"]
    assert tools["locate"].description == ""
    assert tools["locate"].input_schema == {"type": "object"}
    assert client_tools_from(None) == client_tools_from([]) == {}
    assert client_tools_from([{"name": "a", "description": None, "parameters": None}])["a"].description == ""


def test_of_two_browser_tools_with_one_name_the_last_is_used(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        tools = client_tools_from(
            [{"name": "a", "description": "1"}, {"name": "b"}, {"name": "a", "description": "2"}]
        )
    assert tools["a"].description == "2"
    assert "'a'" in caplog.text


@pytest.mark.parametrize(
    ("schemas", "where"),
    [
        ({"name": "a"}, "not a list"),
        ([3], r"clientTools\[0\] is not an object"),
        ([{"name": "a"}, {}], r"clientTools\[1\]\.name"),
        ([{"name": "a", "description": 3}], "description"),
        ([{"name": "a", "parameters": []}], "parameters"),
        ([{"name": "a", "parameters": {"type": "array"}}], "JSON object"),
        ([{"name": "a b"}], "providers accept"),
    ],
)
def test_a_browser_that_sends_nonsense_is_told_where(schemas: Any, where: str) -> None:
    with pytest.raises(ToolDefinitionError, match=where):
        client_tools_from(schemas)


# --- tools with a given schema ---------------------------------------------------------------

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "days": {"type": "integer"},
        "unit": {"enum": ["c", "f"]},
        "tags": {"type": "array", "items": {"$ref": "#/$defs/tag"}},
        "when": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "flag": {"const": True},
        "size": {"type": ["number", "string"]},
    },
    "required": ["city"],
    "additionalProperties": False,
    "$defs": {
        "tag": {"type": "object", "properties": {"sub": {"$ref": "#/$defs/tag"}}, "required": ["name"]}
    },
}


@pytest.mark.anyio
async def test_the_body_of_a_given_schema_gets_the_input_and_the_context_if_it_wants(
    ctx: ToolContext,
) -> None:
    async def with_context(input: dict[str, Any], context: ToolContext) -> Any:
        return input["city"], context.tool_call_id

    one = Tool.from_schema("one", "One.", SCHEMA, lambda input: input["city"])
    two = Tool.from_schema("two", "Two.", SCHEMA, with_context)
    assert await one.call({"city": "Rome"}, ctx) == "Rome"
    assert await two.call({"city": "Rome"}, ctx) == ("Rome", "call-1")
    assert two.is_async
    assert one.spec().input_schema == SCHEMA


@pytest.mark.anyio
async def test_a_body_that_changes_its_input_changes_only_its_own(ctx: ToolContext) -> None:
    def change(input: dict[str, Any]) -> None:
        input["tags"].append(1)

    given: dict[str, Any] = {"tags": []}
    await Tool.from_schema("change", "", None, change).call(given, ctx)
    assert given == {"tags": []}


@pytest.mark.parametrize(
    "given",
    [
        {"city": "Rome"},
        {"city": "Rome", "days": 3.0, "unit": "f", "when": None, "flag": True, "size": 1},
        {"city": "Rome", "tags": [{"name": "a", "sub": {"name": "b"}}], "size": "big"},
    ],
)
def test_input_that_fits_a_given_schema_is_passed_on(given: dict[str, Any]) -> None:
    assert Tool.from_schema("t", "", SCHEMA, print).arguments(given) == given


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (None, "city is required but missing"),
        ([], "expected a JSON object, got a list of 0"),
        ({"city": 3}, r"city should be text \(got the number 3\)"),
        ({"city": "R", "days": 1.5}, "days should be a whole number"),
        ({"city": "R", "days": True}, r"days should be a whole number \(got true\)"),
        ({"city": "R", "unit": "k"}, "unit should be one of the text 'c', the text 'f'"),
        ({"city": "R", "flag": 1}, "flag should be true"),
        ({"city": "R", "tags": [{}]}, r"tags\[0\]\.name is required"),
        ({"city": "R", "tags": [{"name": 1, "sub": {}}]}, r"tags\[0\]\.sub\.name is required"),
        ({"city": "R", "when": 3}, "when should be text"),
        ({"city": "R", "size": None}, "size should be a number or text"),
        ({"city": "R", "citi": 3}, "citi is not a known field; it takes city, days"),
    ],
)
def test_input_that_does_not_fit_a_given_schema_is_explained(given: Any, sentence: str) -> None:
    with pytest.raises(ToolInputError, match=sentence):
        Tool.from_schema("t", "", SCHEMA, print).arguments(given)


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"$ref": "#/nowhere/at/all"},
        {"$ref": "https://elsewhere.example/schema"},
        {"properties": 3, "required": "x", "items": 4, "anyOf": [], "enum": None},
        {"allOf": [{"$ref": "#"}]},
        {"properties": {"a": True}, "additionalProperties": {"type": "mystery"}},
        {"patternProperties": {"^a": {}}, "additionalProperties": False},
    ],
)
def test_a_strange_schema_lets_input_pass(schema: dict[str, Any]) -> None:
    assert client_tool("t", "", schema).arguments(
        {"a": [1], "b": {}} if "pattern" not in str(schema) else {"a": 1}
    )


def test_substituted_input_of_a_given_schema_is_not_checked() -> None:
    made = Tool.from_schema("t", "", SCHEMA, print)
    assert made.arguments({"citi": 3}, lenient=True) == {"citi": 3}


def test_a_dict_of_tools_in_a_list_is_told_with_the_way_to_put_it_there() -> None:
    @tool
    def add(a: int) -> int:
        """Add."""
        return a

    with pytest.raises(ToolDefinitionError) as told:
        as_tools([{"add": add}], "get_tools()")
    assert str(told.value).startswith("get_tools(): a dict of tools is in the list.")
    assert "[*more.values()]" in str(told.value)
