"""A tool: something the model may ask for, made from a function or from a JSON schema.

    @tool def … --Tool--> turn/assemble (spec) --> the model --> turn/calls (call, iterate)

A `Tool` is a value. On a class it is also a descriptor: `agent.refund` is the same tool bound to
that agent, and calling it calls the method as if it had never been decorated. The schema is made
when the function is decorated; only annotations that name something not yet defined wait until
the class exists (`collect_tools`) or the tool is first used.
"""

from __future__ import annotations

import copy
import functools
import re
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Concatenate, Generic, Literal, TypedDict, Unpack, cast, overload

from ..errors import InvalidSettings, ToolDefinitionError, ToolInputError
from ..models.port import ToolSpec
from ..settings import check_call, shown
from ..surface import note_definition, refuse_unknown
from .context import ToolContext
from .function_input import FunctionInput
from .json_input import JsonInput
from .run import run, runs_on_loop, stream, streams
from .signature import Kind, definition_of, enclosing_names, read_signature, refuse, takes
from .written import does_something, tell_unknown_help

if TYPE_CHECKING:  # their defaults let users write `Tool` alone
    from typing_extensions import ParamSpec, TypeVar

    P = ParamSpec("P", default=...)
    R = TypeVar("R", default=Any)
else:
    from typing import ParamSpec, TypeVar

    P = ParamSpec("P")
    R = TypeVar("R")

Q = ParamSpec("Q")

__all__ = [
    "APP",
    "BROWSER",
    "InterruptPolicy",
    "NeedsApproval",
    "OnInterrupt",
    "Origin",
    "Tool",
    "ToolContext",
    "ToolOptions",
    "client_tool",
    "tool",
]

InterruptPolicy = Literal["report", "rerun", "reconcile"]
NeedsApproval = bool | Callable[..., Any]
OnInterrupt = Literal["report", "rerun"] | Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Origin:
    """Where tools come from, and what the capability block says of them."""

    name: str
    line: str | None = None
    """Said once for all of them."""
    where: str | None = None
    """Where they run, when that is not the server: "in the user's browser". They are named with it."""
    is_first: bool = False
    """True when the line comes before all others."""


APP = Origin("app")
"""The application itself."""
BROWSER = Origin("browser", where="in the user's browser")

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_UNBOUND: Any = object()


def _takes_context(view: Callable[..., Any]) -> bool:
    return not takes(view, 1, unread=True) and takes(view, 2)


class ToolOptions(TypedDict, total=False):
    """What `@tool(...)` takes."""

    name: str | None
    """What the model calls it. Default: the function's name."""
    description: str | None
    """What it does. Default: the docstring."""
    title: str | None
    """What people see."""
    needs_approval: NeedsApproval
    """True, or a function of the input (checked, with its defaults) that says so: a person is asked first."""
    on_interrupt: OnInterrupt
    """After a crash during a call: `"report"` it to the model, `"rerun"` it, or let a function find out."""
    timeout: float | None
    """Seconds it may take."""
    to_model_output: Callable[..., Any] | None
    """Changes what the model sees of the result; people see the result itself. It may be async, and may take
    the context (`ToolContext`) after the result."""
    strict: bool | None
    """Ask the provider to follow the schema to the letter."""
    client: bool
    """It runs in the browser: the function only describes it."""


class Tool(Generic[P, R]):
    """Something the model may ask for. Made by `@tool`, `client_tool` or `Tool.from_schema`."""

    def __init__(
        self,
        name: str,
        description: str,
        input: FunctionInput | JsonInput,
        body: Callable[..., Any] | None,
        *,
        kind: Kind = "function",
        source: Callable[..., Any] | None = None,
        title: str | None = None,
        needs_approval: NeedsApproval = False,
        on_interrupt: OnInterrupt = "report",
        timeout: float | None = None,
        to_model_output: Callable[..., Any] | None = None,
        strict: bool | None = None,
        origin: Origin | None = None,
    ) -> None:
        self._input = input
        self._body = body
        self._source = body if source is None else source
        self._kind: Kind = kind
        self._receiver: Any = _UNBOUND
        self._guard: Callable[[], None] | None = None
        if self._source is not None:
            functools.update_wrapper(cast("Any", self), self._source, updated=())
        self._takes_context = isinstance(input, JsonInput) and body is not None and takes(body, 2)
        self.name = name
        self.description = description
        self.title = title
        self.needs_approval = needs_approval
        self.on_interrupt = on_interrupt
        self.timeout = timeout
        self.to_model_output = to_model_output
        self.view_takes_context = to_model_output is not None and _takes_context(to_model_output)
        """True when `to_model_output` wants the context beside the result."""
        self.view_waits = self.view_takes_context or runs_on_loop(to_model_output)
        """True when what the model sees of a result is made before the prompt is: by an async function, or
        one that wants the context."""
        self.strict = strict
        self.origin: Origin = origin or (BROWSER if body is None else APP)
        self._check()

    @classmethod
    def from_schema(
        cls,
        name: str,
        description: str,
        input_schema: Mapping[str, Any] | None,
        execute: Callable[..., Any] | None,
        *,
        title: str | None = None,
        needs_approval: NeedsApproval = False,
        on_interrupt: OnInterrupt = "report",
        timeout: float | None = None,
        to_model_output: Callable[..., Any] | None = None,
        strict: bool | None = None,
    ) -> Tool[..., Any]:
        """A tool whose schema is given. `execute(input)` or `execute(input, ctx)` gets a dict."""
        return Tool(
            name,
            description,
            JsonInput(_object_schema(name, input_schema)),
            execute,
            title=title,
            needs_approval=needs_approval,
            on_interrupt=on_interrupt,
            timeout=timeout,
            to_model_output=to_model_output,
            strict=strict,
        )

    # --- what it is ------------------------------------------------------------------------

    @property
    def input_schema(self) -> dict[str, Any]:
        """The JSON schema of its input, always an object."""
        return self._input.schema

    @property
    def has_body(self) -> bool:
        """False for client tools: they run in the browser."""
        return self._body is not None

    @property
    def streams(self) -> bool:
        """True when the body is an async generator function: each value is a preliminary result."""
        return streams(self._body)

    @property
    def is_async(self) -> bool:
        """True when the body runs on the event loop, False when in a thread."""
        return runs_on_loop(self._body)

    @property
    def interrupt_policy(self) -> InterruptPolicy:
        """What the ledger notes: what to do with a call that a crash cut off."""
        return (
            cast("InterruptPolicy", self.on_interrupt) if isinstance(self.on_interrupt, str) else "reconcile"
        )

    @property
    def source(self) -> str:
        """Where it is written, for errors."""
        return definition_of(self._source) if self._source is not None else f"tool {self.name!r}"

    def spec(self) -> ToolSpec:
        """The tool as the model is told about it."""
        return ToolSpec(
            name=self.name, description=self.description, input_schema=self.input_schema, strict=self.strict
        )

    def named(self, name: str) -> Tool[P, R]:
        """The same tool under another name."""
        if name == self.name:
            return self
        other = copy.copy(self)
        other.name = name
        other._check()
        return other

    def guarded(self, check: Callable[[], None]) -> Tool[P, R]:
        """The same tool, which asks before its body runs. What `check` raises is how the call ends."""
        other = copy.copy(self)
        other._guard = check
        return other

    # --- running it ------------------------------------------------------------------------

    def bind(self, agent: Any) -> Tool[..., Any]:
        """The same tool with `self` filled in. Functions have none and stay as they are."""
        if self._kind == "function" or self._receiver is not _UNBOUND:
            return self
        bound = copy.copy(self)
        bound._receiver = agent
        return cast("Tool[..., Any]", bound)

    has_aftermath = False
    """True when the model is told more of a call that ended without a result than why."""

    async def aftermath(self, ctx: ToolContext) -> str | None:
        """What a call had done that was denied, stopped or lost. For tools with a log of their own."""
        return None

    def arguments(self, input: Any, *, lenient: bool = False) -> dict[str, Any]:
        """The typed arguments for `input`. Raises `ToolInputError` with a sentence for the model.

        `lenient` is for input that a hook put in place of the model's: it is converted where that
        works and otherwise passed as it is.
        """
        if lenient and isinstance(self._input, JsonInput):
            return cast("dict[str, Any]", input) if isinstance(input, dict) else {}
        if lenient:
            return cast("FunctionInput", self._input).typed.unchecked(input)
        return self._input.arguments(self.name, input)

    def completed(self, input: Any) -> dict[str, Any]:
        """The input as JSON, as the body will get it: checked, converted, with the defaults of what is left
        out. Raises `ToolInputError` when it does not fit."""
        if isinstance(self._input, JsonInput):
            return copy.deepcopy(self._input.arguments(self.name, input))
        return self._input.typed.completed(self.name, input)

    def check_keys(self, input: Any) -> None:
        """Raise `InvalidSettings` when input that a hook put in place of the model's has not the keys that
        the function takes. A tool with a schema of its own gets what the hook says."""
        if not isinstance(self._input, JsonInput):
            self._input.typed.check_keys(self.name, input)

    async def needs_approval_for(self, input: Any, ctx: ToolContext) -> bool:
        """True when a person must agree before this call runs."""
        if isinstance(self.needs_approval, bool):
            return self.needs_approval
        from .ask import ask_yes_or_no

        return await ask_yes_or_no(self.needs_approval, *self._question(input, self.completed(input)), ctx)

    async def find_out(self, input: Any, ctx: ToolContext) -> Any:
        """What became of a call that a crash cut off: its result, `RERUN` or `REPORT`."""
        from .ask import REPORT, RERUN, ask

        if not callable(self.on_interrupt):
            return RERUN if self.on_interrupt == "rerun" else REPORT
        try:
            given = self.completed(input)
        except ToolInputError:  # a hook chose it, whose word counts
            given = cast("dict[str, Any]", input) if isinstance(input, dict) else {}
        return await ask(self.on_interrupt, *self._question(input, given), ctx)

    def _question(
        self, input: Any, given: dict[str, Any]
    ) -> tuple[str, dict[str, Any], Callable[[], dict[str, Any]], Sequence[str]]:
        """What the functions of a tool are asked about: its name, the input, the arguments, their names."""
        if isinstance(self._input, JsonInput):
            names, defaults = list(self._input.schema.get("properties", {})), {}
        else:
            names, defaults = list(self._input.typed.parameters), self._input.typed.defaults()
        return self.name, given, lambda: {**defaults, **self.arguments(input)}, names

    async def call(self, input: Any, ctx: ToolContext, *, lenient: bool = False) -> Any:
        """Run it and return its result; of several values, the last."""
        if self.streams:
            last = None
            async for value in self.iterate(input, ctx, lenient=lenient):
                last = value
            return last
        body = self._prepared(input, ctx, lenient)
        return await run(self.name, body, is_async=self.is_async, timeout=self.timeout)

    async def iterate(
        self, input: Any, ctx: ToolContext, *, lenient: bool = False
    ) -> AsyncGenerator[Any, None]:
        """Run it and yield each preliminary result; the last one is also the final one.

        Close it (`contextlib.aclosing`) when you stop early, so that the body can clean up.
        """
        if not self.streams:
            yield await self.call(input, ctx, lenient=lenient)
            return
        body = self._prepared(input, ctx, lenient)
        async with aclosing(stream(self.name, body, timeout=self.timeout)) as values:
            async for value in values:
                yield value

    def _prepared(self, input: Any, ctx: ToolContext, lenient: bool) -> Callable[[], Any]:
        if self._body is None:
            raise TypeError(f"Tool {self.name!r} runs in the browser; there is no body to call here.")
        if self._guard is not None:
            self._guard()
        arguments = self.arguments(input, lenient=lenient)
        if isinstance(self._input, JsonInput):
            given = copy.deepcopy(arguments)  # the original is part of the conversation
            return functools.partial(self._body, *((given, ctx) if self._takes_context else (given,)))
        arguments.update(dict.fromkeys(self._input.typed.context, ctx))
        return functools.partial(self._body, *self._first(ctx.agent), **arguments)

    def _first(self, agent: Any = None) -> tuple[Any, ...]:
        if self._kind == "function":
            return ()
        receiver = agent if self._receiver is _UNBOUND else self._receiver
        if self._kind == "classmethod" and not isinstance(receiver, type):
            receiver = cast("Any", type(receiver))
        return (receiver,)

    # --- the function it was ---------------------------------------------------------------

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the decorated function itself: no schema, no thread, no timeout."""
        if self._source is None:
            raise TypeError(f"Tool {self.name!r} has no function to call.")
        first = () if self._receiver is _UNBOUND else self._first()
        return cast("R", self._source(*first, *args, **kwargs))

    @overload
    def __get__(self, instance: None, owner: type | None = None, /) -> Tool[P, R]: ...
    @overload
    def __get__(
        self: Tool[Concatenate[Any, Q], R], instance: object, owner: type | None = None, /
    ) -> Tool[Q, R]: ...
    def __get__(self, instance: object | None, owner: type | None = None, /) -> Any:
        if self._kind == "classmethod":
            return self.bind(owner if instance is None else type(instance))
        return self if instance is None else self.bind(instance)

    def __set_name__(self, owner: type, name: str) -> None:
        # Nothing that can fail: Python 3.11 would wrap the error.
        if isinstance(self._input, FunctionInput):
            self._input.belongs_to(owner)

    @property
    def __isabstractmethod__(self) -> bool:
        return bool(getattr(self._source, "__isabstractmethod__", False))

    def __repr__(self) -> str:
        return f"<Tool {self.name}>"

    # --- being defined ---------------------------------------------------------------------

    def complete(self, owner: type | None = None, *, required: bool = True) -> bool:
        """Make the schema now if it is still open. Returns whether it is there.

        With `required=False` a name that is not defined yet is no error: a later try may find it.
        """
        if isinstance(self._input, JsonInput):
            return True
        return self._input.complete(owner, required=required)

    def as_class_method(self) -> Tool[..., Any]:
        """The same tool with the class as its receiver."""
        other = copy.copy(self)
        other._kind = "classmethod"
        return cast("Tool[..., Any]", other)

    def _check(self) -> None:
        if not isinstance(cast("Any", self.name), str) or not _NAME.fullmatch(self.name):
            raise self._refused(
                f"{self.name!r:.80} is not a name that providers accept",
                "Use 1 to 64 letters, digits, `_` or `-`: @tool(name=...).",
            )
        try:
            check_call("tool", description=self.description, title=self.title, strict=self.strict)
        except InvalidSettings as error:
            raise self._refused(error.what.removesuffix("."), error.next_step or "") from None
        if not callable(self.on_interrupt) and self.on_interrupt not in ("report", "rerun"):
            raise self._refused(
                f"on_interrupt is {self.on_interrupt!r}", 'Use "report", "rerun" or a function.'
            )
        if not callable(self.needs_approval) and not isinstance(cast("Any", self.needs_approval), bool):
            raise self._refused(
                f"needs_approval is {self.needs_approval!r}", "Use True, False or a function of the input."
            )
        if self.timeout is not None and not (_is_number(self.timeout) and self.timeout > 0):
            raise self._refused(f"timeout is {self.timeout!r}", "Give seconds above 0, or None for no limit.")
        if isinstance(self._input, JsonInput) and self._body is not None and not self._takes_context:
            self._check_function(
                "execute", self._body, "the input, and the context if it takes two arguments"
            )
        if self.to_model_output is not None and not self.view_takes_context:
            self._check_function(
                "to_model_output", self.to_model_output, "the result, and may take the context"
            )
        self._check_asked("needs_approval", self.needs_approval)
        self._check_asked("on_interrupt", self.on_interrupt)

    def _check_function(self, option: str, function: Any, given: str) -> None:
        if not callable(function):
            raise self._refused(f"its {option} is {shown(function)}", f"Give a function; it gets {given}.")
        if not takes(function, 1, unread=True):
            raise self._refused(
                f"its {option}, {definition_of(function)}, cannot be called", f"It gets {given}."
            )

    def _check_asked(self, option: str, function: Any) -> None:
        names = self._input.names
        if not callable(function) or names is None:
            return
        from .ask import why_not

        if why := why_not(function, names):
            raise self._refused(
                f"its {option}, {definition_of(function)}, {why}",
                f"It may take these by name: {', '.join(names)}; or the whole input, and the context (ctx)."
                if names
                else "It may take the whole input, and the context (ctx).",
            )

    def _refused(self, why: str, next_step: str) -> ToolDefinitionError:
        if self._source is not None:
            return refuse(self._source, why, next_step)
        return ToolDefinitionError(f"Tool {self.name!r:.80} cannot be used: {why}.", next_step=next_step)


@overload
def tool(fn: Callable[P, R], /, **options: Unpack[ToolOptions]) -> Tool[P, R]: ...
@overload
def tool(**options: Unpack[ToolOptions]) -> Callable[[Callable[P, R]], Tool[P, R]]: ...
def tool(fn: Callable[..., Any] | None = None, /, **options: Unpack[ToolOptions]) -> Any:
    """Let the model use a function or a method.

        @tool
        async def weather(self, city: str) -> str:
            \"\"\"The weather in a city, now.\"\"\"

    Types become the schema, the docstring the description. A parameter annotated `ToolContext`
    is filled in by the framework; the model never sees it.
    """
    refuse_unknown(options, ToolOptions.__annotations__, "tool()")
    if fn is not None:
        note_definition(fn, 1)
        return _from_function(fn, enclosing_names(1), options)

    def decorate(fn: Callable[..., Any]) -> Tool[..., Any]:
        note_definition(fn, 1)
        return _from_function(fn, enclosing_names(1), options)

    return decorate


def client_tool(
    name: str, description: str = "", parameters: Mapping[str, Any] | None = None
) -> Tool[..., Any]:
    """A tool that runs in the browser. `parameters` is the JSON schema of its input."""
    return Tool.from_schema(name, description, parameters, None)


def _from_function(fn: Callable[..., Any], names: Mapping[str, Any], options: ToolOptions) -> Tool[..., Any]:
    found: Any = fn
    if isinstance(found, Tool):
        raise refuse(fn, "it is a tool already", "Decorate it once.")
    if not callable(found) and not isinstance(found, classmethod):
        raise ToolDefinitionError(
            f"{found!r} is not a function.",
            next_step="Decorate a function or a method; options have names: @tool(name=…).",
        )
    from .docs import in_words, read_docstring

    signature = read_signature(fn, names=names)
    description, help_ = read_docstring(signature.docstring)
    given = cast("dict[str, Any]", dict(options))
    is_client = given.pop("client", False)
    if not isinstance(is_client, bool):
        raise refuse(fn, f"its client is {shown(is_client)}", "It takes True or False.")
    name = given.pop("name", None)
    name = signature.name if name is None else name
    told = given.pop("description", None)
    if is_client and does_something(signature.fn):
        raise refuse(
            fn,
            "with client=True its body never runs: the browser does the work",
            "Leave the body empty (`...`), or leave out client=True.",
        )
    tell_unknown_help(signature, help_)
    input = FunctionInput(signature, help_)
    made = Tool(
        name,
        told if told is not None else description or in_words(name),
        input,
        None if is_client else signature.fn,
        kind=signature.kind,
        source=signature.fn,
        **given,
    )
    input.complete(required=False)
    return made


def _object_schema(name: str, schema: Mapping[str, Any] | None) -> dict[str, Any]:
    if schema is None:
        return {"type": "object"}
    if schema.get("type", "object") != "object":
        raise ToolDefinitionError(
            f"Tool {name!r} takes {schema['type']!r:.80} as its input, but a tool's input is a JSON object.",
            next_step='Wrap it: {"type": "object", "properties": {"value": …}}.',
        )
    return {"type": "object", **schema}


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
