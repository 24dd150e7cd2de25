"""Which functions can be tools, and what the error says when one cannot."""

import abc
import functools
import subprocess
import sys
import textwrap
import threading
import types
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import BaseModel

from everthink.errors import ToolDefinitionError
from everthink.tools.collect import collect_tools
from everthink.tools.tool import Tool, ToolContext, client_tool, tool


class Collecting:
    """Collects when a subclass is defined, as agents do."""

    tools: dict[str, Tool]

    def __init_subclass__(cls) -> None:
        cls.tools = collect_tools(cls)


def test_a_letter_names_function_parameter_file_and_line() -> None:
    with pytest.raises(ToolDefinitionError) as caught:

        class Agent:
            @tool
            def run(self, lock: threading.Event) -> None: ...

    text = str(caught.value)
    assert "Agent.run" in text
    assert "'lock'" in text
    assert "Event" in text
    assert f"{__file__}:" in text
    assert "ToolContext" in caught.value.next_step


@pytest.mark.parametrize("hint", [Callable[[int], int], type, threading.Lock, list[threading.Event]])
def test_a_type_without_json_form_is_refused(hint: Any) -> None:
    def run(fine: int, bad: Any) -> None: ...

    run.__annotations__["bad"] = hint
    with pytest.raises(ToolDefinitionError, match="'bad'"):
        tool(run)


def test_extra_keyword_arguments_without_json_form_are_refused() -> None:
    with pytest.raises(ToolDefinitionError, match="'rest'"):

        @tool
        def run(**rest: threading.Event) -> None: ...


def test_positional_only_parameters_are_refused() -> None:
    with pytest.raises(ToolDefinitionError, match=r"'a' is positional-only.*Remove the `/`"):

        @tool
        def run(a: int, /) -> None: ...


def test_star_args_are_refused() -> None:
    with pytest.raises(ToolDefinitionError, match=r"names: list\[str\]"):

        @tool
        def run(*names: str) -> None: ...


def test_a_parameter_without_a_type_is_refused() -> None:
    with pytest.raises(ToolDefinitionError, match="'limit' has no type"):

        @tool
        def run(q: str, limit=3): ...


def test_a_context_without_annotation_gets_a_hint() -> None:
    with pytest.raises(ToolDefinitionError, match="ctx: ToolContext"):

        @tool
        def run(q: str, ctx): ...


def test_what_is_no_function_is_refused() -> None:
    with pytest.raises(ToolDefinitionError, match="is not a function"):
        tool(3)  # type: ignore[call-overload]
    with pytest.raises(ToolDefinitionError, match="already"):
        tool(tool(len_of))


def len_of(text: str) -> int:
    return len(text)


@pytest.mark.parametrize("name", ["", "two words", "größe", "a" * 65, "dot.ted", "new\n"])
def test_names_that_providers_refuse_are_refused_here(name: str) -> None:
    with pytest.raises(ToolDefinitionError, match="1 to 64 letters"):
        client_tool(name)


def test_a_function_whose_name_cannot_be_used_says_so() -> None:
    with pytest.raises(ToolDefinitionError, match=r"<lambda>.*name=\.\.\."):
        tool(lambda: 1)
    with pytest.raises(ToolDefinitionError, match="größe"):

        @tool
        def größe() -> int:
            return 1


@pytest.mark.parametrize(
    "options",
    [
        {"on_interrupt": "explode"},
        {"timeout": 0},
        {"timeout": -1},
        {"timeout": "5"},
        {"timeout": True},
        {"timeout": float("nan")},
        {"needs_approval": "yes"},
        {"needs_approval": None},
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ToolDefinitionError, match=next(iter(options))):
        tool(len_of, **options)


def test_an_unknown_option_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="aproval"):
        tool(aproval=True)  # type: ignore[call-overload]


def test_a_type_mentioned_before_the_class_exists_is_found_when_the_class_does() -> None:
    class Agent(Collecting):
        @tool
        def link(self, other: "list[Agent.Ref]", local: "Local | None" = None) -> None: ...

        class Ref(BaseModel):
            id: int

        class Local(BaseModel):
            id: str

    assert set(Agent.tools["link"].input_schema["properties"]) == {"other", "local"}


def test_a_bad_type_that_had_to_wait_is_still_refused_when_the_class_is_defined() -> None:
    # Not wrapped in a RuntimeError, as it would be from __set_name__.
    with pytest.raises(ToolDefinitionError, match=r"'bad' is of type .*Later"):

        class Agent(Collecting):
            @tool
            def run(self, bad: "Later") -> None: ...

            class Later:
                pass


def test_a_type_defined_after_the_class_is_found_at_first_use() -> None:
    module = compile_module(
        """
        from __future__ import annotations
        from dataclasses import dataclass
        from everthink.tools.tool import tool
        from everthink.tools.collect import collect_tools

        class Agent:
            @tool
            def go(self, to: Place) -> None: ...

            def __init_subclass__(cls):
                cls.tools = collect_tools(cls)

        early = collect_tools(Agent)

        @dataclass
        class Place:
            name: str
        """
    )
    made = module["early"]["go"]
    assert made.input_schema["properties"]["to"]["required"] == ["name"]
    assert made.arguments({"to": {"name": "home"}})["to"] == module["Place"]("home")


def test_a_model_that_waits_for_another_one_is_found_at_first_use() -> None:
    module = compile_module(
        """
        from pydantic import BaseModel
        from everthink.tools.tool import tool

        class Outer(BaseModel):
            inner: "Inner"

        @tool
        def go(outer: Outer) -> None: ...

        class Inner(BaseModel):
            n: int

        Outer.model_rebuild()
        """
    )
    properties = module["go"].input_schema["properties"]["outer"]["properties"]
    assert properties["inner"]["required"] == ["n"]


def test_a_type_that_never_appears_is_a_letter_at_first_use_and_on_request() -> None:
    class Agent(Collecting):
        @tool
        def go(self, to: "Nowhere") -> None: ...  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(ToolDefinitionError, match=r"Agent\.go.*Nowhere"):
        Agent.tools["go"].spec()
    with pytest.raises(ToolDefinitionError, match="Nowhere"):
        collect_tools(Agent, complete=True)


def test_an_annotation_that_is_no_type_is_refused() -> None:
    with pytest.raises(ToolDefinitionError, match="'to'"):

        @tool
        def go(to: "3 +") -> None: ...  # type: ignore[valid-type]  # noqa: F722


def test_future_annotations_with_local_types_are_resolved_at_once() -> None:
    module = compile_module(
        """
        from __future__ import annotations
        from typing import TYPE_CHECKING, Annotated
        from pydantic import BaseModel, Field
        from everthink.tools.tool import tool

        if TYPE_CHECKING:
            from somewhere import Unknown
            from everthink.tools.tool import ToolContext

        def make():
            class Local(BaseModel):
                n: int

            class Agent:
                class Inner(BaseModel):
                    m: int

                @tool
                def list(self) -> Unknown: ...

                @tool(timeout=3)
                def go(self, a: Local, b: Inner, c: list[int], ctx: ToolContext) -> Unknown: ...

            return Agent

        Agent = make()
        """
    )
    go = module["Agent"].go
    assert go._input._typed is not None, "resolved in the decorator, without a first use"
    properties = go.input_schema["properties"]
    assert list(properties) == ["a", "b", "c"]
    assert properties["a"]["required"] == ["n"]
    assert properties["b"]["required"] == ["m"]


def test_names_of_the_enclosing_function_are_let_go_once_the_types_are_known() -> None:
    def make() -> Tool:
        treasure = bytearray(3)

        @tool
        def dig(depth: int) -> int:
            return depth + len(treasure)

        return dig

    assert make()._input._signature.names == {}  # type: ignore[union-attr]


def test_static_and_class_methods_work_in_either_order() -> None:
    class Agent:
        @tool
        @staticmethod
        def one(n: int) -> int:
            return n

        @staticmethod
        @tool
        def two(n: int) -> int:
            return n

        @tool
        @classmethod
        def three(cls, n: int) -> str:
            return f"{cls.__name__}{n}"

        @classmethod
        @tool
        def four(cls, n: int) -> str:
            return f"{cls.__name__}{n}"

        @staticmethod
        @tool
        def five() -> int:
            return 5

    tools = collect_tools(Agent)
    assert [list(tools[name].input_schema["properties"]) for name in tools] == [["n"]] * 4 + [[]]
    agent = Agent()
    assert [agent.one(1), agent.two(2), agent.three(3), Agent.three(3), agent.five()] == [
        1,
        2,
        "Agent3",
        "Agent3",
        5,
    ]


def test_what_a_partial_has_filled_in_is_hidden_from_the_model() -> None:
    def query(table: str, user: str, **rest: Any) -> None:
        """Ask the database."""

    made = tool(functools.partial(query, user="me"))
    assert made.name == "query"
    assert made.description == "Ask the database."
    assert list(made.input_schema["properties"]) == ["table"]
    with pytest.raises(Exception, match="user is not a known field"):
        made.arguments({"table": "t", "user": "somebody else"})


def test_bound_methods_and_callable_objects_can_be_tools() -> None:
    class Index:
        """Searches the index."""

        def look_up(self, word: str) -> str:
            """Look a word up."""
            return word.upper()

        def __call__(self, word: str) -> str:
            return word

    index = Index()
    bound, called = tool(index.look_up), tool(index, name="index")
    assert (bound.name, bound.description) == ("look_up", "Look a word up.")
    assert (called.name, called.description) == ("index", "Searches the index.")
    assert list(bound.input_schema["properties"]) == list(called.input_schema["properties"]) == ["word"]
    assert bound("a") == "A"


def test_a_wrapped_function_is_seen_through() -> None:
    def twice(fn: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(fn)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            return [fn(*args, **kwargs), fn(*args, **kwargs)]

        return wrapper

    @tool
    @twice
    def shout(word: str) -> str:
        """Say it loudly."""
        return word.upper()

    assert list(shout.input_schema["properties"]) == ["word"]
    assert shout("a") == ["A", "A"]


def test_an_empty_body_does_not_make_a_client_tool() -> None:
    @tool
    def quiet() -> None:
        """Does nothing."""

    @tool(client=True)
    def locate(precise: bool = False) -> None:
        """Where the user is."""

    assert quiet.has_body
    assert not locate.has_body
    assert locate.spec().description == "Where the user is."
    assert locate.arguments({"precise": True}) == {"precise": True}


def test_interrupt_policy_is_what_the_ledger_notes() -> None:
    assert tool(len_of).interrupt_policy == "report"
    assert tool(len_of, on_interrupt="rerun").interrupt_policy == "rerun"
    assert tool(len_of, on_interrupt=lambda call: None).interrupt_policy == "reconcile"


def test_an_abstract_tool_must_be_written_by_the_subclass() -> None:
    class Base(abc.ABC):
        @tool
        @abc.abstractmethod
        def look_up(self, word: str) -> str: ...

    class Done(Base):
        @tool
        def look_up(self, word: str) -> str:
            return word

    with pytest.raises(TypeError, match="look_up"):
        Base()  # type: ignore[abstract]
    assert Done().look_up("a") == "a"


def test_a_tool_looks_like_its_function() -> None:
    @tool
    def weather(city: str) -> str:
        """The weather."""
        return city

    assert weather.__name__ == "weather"  # type: ignore[attr-defined]
    assert weather.__doc__ == "The weather."
    assert repr(weather) == "<Tool weather>"
    assert ToolContext().agent is None


@pytest.mark.slow
def test_importing_the_module_does_not_import_pydantic() -> None:
    code = (
        "import sys, everthink.tools.tool, everthink.tools.collect, everthink.tools.output;"
        "print([m for m in ('pydantic', 'docstring_parser') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def compile_module(source: str) -> dict[str, Any]:
    module = types.ModuleType("a_module_of_a_user")
    sys.modules[module.__name__] = module
    try:
        exec(compile(textwrap.dedent(source), "user.py", "exec", dont_inherit=True), vars(module))
    finally:
        del sys.modules[module.__name__]
    return vars(module)
