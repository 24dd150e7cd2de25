"""`execute`: the model writes code, and the code calls the agent's tools.

    the model's code --> Execution (a log) <--> a sandbox --> {status, result, logs, calls}

The body may be run again at any point: it runs the code from its beginning, and the log answers what was done
before. How it ended, the ledger and the chunk that shows it are one commit.
"""

from __future__ import annotations

import asyncio
import builtins
import functools
import importlib.util
import inspect
import logging
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

from ..causes import is_superseded
from ..consent import asked_input
from ..errors import InvalidSettings, ToolDefinitionError, ToolError
from ..file_tools.place import is_stored
from ..kinds import SANDBOX, SOME_TEXT, TEXT, above, check_options, optional
from ..monty.advice import LACKS
from ..sandbox.port import Job, Limits, Outcome, Sandbox
from ..settings import shown
from ..store.port import Statement
from ..tools.collect import as_tools
from ..tools.context import ToolContext
from ..tools.json_input import JsonInput
from ..tools.output import jsonable
from ..tools.question import Form, Question
from ..tools.tool import Origin, Tool
from ..turn.inner import Inner
from ..weight import unhurried
from . import queries
from .advice import advised
from .execution import Divergence, Execution
from .functions import Function, functions_of, identifier
from .queries import CallRow, ExecutionState
from .runs import CUT_OFF, FORGOTTEN, REJECTED, STOPPED, Executions
from .search import describe, search
from .showing import LISTED, calls_of, lines_of
from .state import state_tools
from .telling import aftermath, as_read
from .values import MOST, misfit, packed, shown_int, text_of, value_of

__all__ = ["CODE", "CodeLanguage", "create_execute_tool", "is_installed"]

_log = logging.getLogger("everthink.codemode")

CodeLanguage = Literal["python", "javascript"]
CODE = Origin("code", line="Code that you write with `execute` runs in a sandbox and can call your tools.")
SHOWN_EVERY = 0.25
"""Seconds between two looks at code that runs."""
_LONGEST_INPUT = 1_300
"""Characters of a call's input that a question shows: so many fit into a message of every messenger."""
_FENCE = re.compile(
    r"\s*```(?:python|py|javascript|js|typescript|ts|tsx|jsx)?[ \t]*\n(.*?)\n?```\s*", re.DOTALL
)
ASKED = "approval"
_LONGEST_QUERY = 500
"""Characters of what functions are looked for by: each word is compared with each of them."""
_ENGINES: Mapping[str, str] = {"python": "pydantic_monty", "javascript": "quickjs_rs"}


def is_installed(language: CodeLanguage) -> bool:
    """True when the package that runs a language is there: the extra `sandbox`."""
    return sys.platform == "linux" and importlib.util.find_spec(_ENGINES[language]) is not None


class _CodeTool(Tool[..., Any]):
    """A tool that runs code. Code does not call it."""

    has_aftermath = True

    async def aftermath(self, ctx: ToolContext) -> str | None:
        """The calls that code had made."""
        executions = getattr(ctx.agent, "_executions", None)
        return None if executions is None else await aftermath(executions().store, ctx.tool_call_id)


@dataclass(frozen=True, slots=True)
class _Options:
    tools: Mapping[str, Tool] | None
    modules: Mapping[str, Mapping[str, Tool]]
    state: bool
    language: CodeLanguage
    limits: Limits
    sandbox: Sandbox | None
    hints: Mapping[str, str]
    transform: Callable[[Any], Any] | None


def create_execute_tool(
    tools: Any = None,
    *,
    language: CodeLanguage = "python",
    modules: Mapping[str, Mapping[str, Tool]] | None = None,
    state: bool = True,
    timeout: float = 30.0,
    limits: Limits | None = None,
    sandbox: Sandbox | None = None,
    name: str = "execute",
    description: str | None = None,
    hints: Mapping[str, str] | None = None,
    transform_result: Callable[[Any], Any] | None = None,
) -> Tool:
    """A tool with which the model runs code that calls tools.

        def get_tools(self):
            return [create_execute_tool()]

    Code has the tools that the turn offers as `tools.<name>`, or those that you give here, which the model
    need not be offered otherwise; and the workspace as `state.*` and `open()`. `modules` are further ones of
    functions, by name: `{"cdp": {"send": send}}` is `cdp.send`. `timeout` is in seconds, the calls included;
    `limits` says the others. `hints` are lines on a module for the description. What `transform_result` makes
    of a result is what the model and people see.
    """
    if language not in ("python", "javascript"):
        raise InvalidSettings(
            f"create_execute_tool(language={shown(language)}).", next_step='Use "python" or "javascript".'
        )
    check_options(
        "create_execute_tool", _OPTIONS, timeout=timeout, name=name, description=description, sandbox=sandbox
    )
    given = None if tools is None else as_tools(tools, "create_execute_tool()")
    own = ("tools", "state", "codemode", *(modules or {}))
    _check_options(limits, sandbox, hints, transform_result, state=state, language=language, modules=own)
    bound = limits or Limits()
    options = _Options(
        given,
        _checked(modules or {}),
        state,
        language,
        replace(bound, wall=timeout),
        sandbox,
        dict(hints or {}),
        transform_result,
    )
    if given is not None:
        functions_of("tools", given.values())  # names that collide are found here
    if given == {} and not state and not options.modules:
        raise ToolDefinitionError(
            "create_execute_tool([], state=False): the code would have nothing to call.",
            next_step="Give it tools, or leave them out for those of the turn.",
        )
    return _CodeTool(
        name,
        description or _description(options),
        JsonInput(
            {
                "type": "object",
                "properties": {
                    "code": {"type": "string", "description": f"The code, in {_NAMES[language]}."}
                },
                "required": ["code"],
                "additionalProperties": False,
            }
        ),
        functools.partial(_body, options, name),
        on_interrupt="rerun",
        to_model_output=as_read,
        origin=CODE,
    )


_OPTIONS = {
    "timeout": above(0),
    "name": SOME_TEXT,
    "description": optional(TEXT),
    "sandbox": optional(SANDBOX),
}
_NOTHING = "Nothing was run. "
_KEPT = "What it did before stays done. Look what is done, and write code for the rest."
_CHANGED = (
    "The code has run before, and cannot go on: what it calls is not there any more, or takes something else"
    f" now. {_KEPT}"
)
_NEXT: Mapping[str, str] = {
    "timeout": "Look whether a loop ends, and do less in one piece of code.",
    "memory": "Keep less at a time: write to a file what is done.",
    "calls": "Do less in one piece of code, and look whether a loop ends. Each read and write of an open file"
    " is a call, too: gather the lines and write them once.",
}
_NAMES: Mapping[str, str] = {"python": "Python", "javascript": "JavaScript"}
_OWN_MODULES = ("tools", "state", "files", "codemode")
_OF_LANGUAGES = frozenset(dir(builtins)) | {
    *("asyncio", "base64", "collections", "dataclasses", "datetime", "functools", "hashlib", "itertools"),
    *("json", "math", "os", "pathlib", "random", "re", "sys", "time", "typing"),
    *("Array", "ArrayBuffer", "BigInt", "Boolean", "DataView", "Date", "Error", "Function", "Infinity"),
    *("JSON", "Map", "Math", "NaN", "Number", "Object", "Promise", "Proxy", "Reflect", "RegExp", "Set"),
    *("String", "Symbol", "TextDecoder", "TextEncoder", "Uint8Array", "args", "atob", "btoa"),
    *("clearTimeout", "console", "context", "crypto", "env", "files", "globalThis", "performance"),
    *("process", "queueMicrotask", "setInterval", "setTimeout", "stdin", "structuredClone", "undefined"),
}
"""What is something else in Python or in JavaScript."""


def _checked(modules: Mapping[str, Mapping[str, Tool]]) -> Mapping[str, Mapping[str, Tool]]:
    for module, tools in modules.items():
        for name, one in tools.items():
            if not isinstance(cast("object", one), Tool):
                raise ToolDefinitionError(
                    f"create_execute_tool(modules=…): {module}.{name} is {shown(one)}, and no tool.",
                    next_step="Write @tool above the function, or make one with Tool.from_schema.",
                )
        for name in (module, *tools):
            if identifier(name) != name:
                raise ToolDefinitionError(
                    f"create_execute_tool(modules=…): {name!r} is no name that code can write.",
                    next_step="Use letters, digits and _.",
                )
        if module in _OWN_MODULES:
            raise ToolDefinitionError(
                f"create_execute_tool(modules=…): the module {module!r} is there already.",
                next_step="Give yours another name.",
            )
        if module in _OF_LANGUAGES:
            raise ToolDefinitionError(
                f"create_execute_tool(modules=…): {module!r} is something else in the language.",
                next_step="Give the module another name.",
            )
    return {module: dict(tools) for module, tools in modules.items()}


def _check_options(
    limits: Any,
    sandbox: Any,
    hints: Any,
    transform: Any,
    *,
    state: Any,
    language: str,
    modules: Sequence[str],
) -> None:
    if limits is not None and not isinstance(limits, Limits):
        raise _no_option(
            "limits", limits, "Import it from everthink.sandbox.port: Limits(cpu=10, calls=100)."
        )
    if sandbox is not None and language not in sandbox.languages:
        runs = ", ".join(sorted(sandbox.languages))
        next_step = f"It runs {runs}. Give one that runs {language}, or leave it out."
        raise InvalidSettings(
            "The sandbox of create_execute_tool() does not run its language.", next_step=next_step
        )
    if sandbox is not None and not getattr(sandbox, "can_stop_clock", True):
        raise InvalidSettings(
            "The sandbox of create_execute_tool() has a clock that goes: after a crash or a yes its code is"
            " run again, and would be another run.",
            next_step="Leave it out, or give an engine that keeps to `now`, such as MontySandbox().",
        )
    if not isinstance(state, bool):
        raise _no_option("state", state, "Use True or False.")
    if transform is not None and not callable(transform):
        raise _no_option(
            "transform_result", transform, "Give a function that takes a result and returns one."
        )
    if hints is not None and not isinstance(hints, Mapping):
        raise _no_option("hints", hints, 'Use a line by module: hints={"tools": "amounts are in cents"}.')
    for module in cast("Mapping[Any, Any]", hints or {}):
        if module not in modules:
            next_step = f"The modules are {', '.join(modules)}."
            raise InvalidSettings(
                f"create_execute_tool(hints=…) has no module {shown(module)}.", next_step=next_step
            )


def _no_option(name: str, value: Any, next_step: str) -> InvalidSettings:
    return InvalidSettings(f"create_execute_tool({name}={shown(value)}).", next_step=next_step)


async def _body(options: _Options, name: str, given: dict[str, Any], ctx: ToolContext) -> Any:
    executions = getattr(ctx.agent, "_executions", None)
    if executions is None or ctx.inner is None:
        raise ToolError("Code that calls tools is run by the model of an agent: offer it in get_tools().")
    run = _Run(options, name, _unfenced(str(given["code"])), ctx, ctx.inner, executions())
    try:
        return await run.output()
    except Question:
        raise
    except Exception as error:
        if is_superseded(error):
            raise  # another process goes on with it
        await run.give_up()  # whatever failed is told as of any tool; nobody runs this code again
        if isinstance(error, ToolDefinitionError):  # names of tools that came from elsewhere, too
            raise ToolError(str(error)) from error
        raise


class _Run:
    """One run of the code, from its beginning."""

    def __init__(
        self,
        options: _Options,
        name: str,
        code: str,
        ctx: ToolContext,
        inner: Inner,
        executions: Executions,
    ) -> None:
        self._options, self._name, self._code, self._ctx = options, name, code, ctx
        self._inner, self._executions = inner, executions
        self._store, self._clock = executions.store, executions.clock
        self._id = ctx.tool_call_id
        self._is_new = asyncio.Event()
        self._shown_before: dict[int, str] | None = None
        """How the calls stood when an earlier process left them. Shown again they would look like progress,
        and code that takes the process down each time would never be found out."""

    async def output(self) -> Any:
        row = await queries.found(self._store, self._id)
        if row is not None and row.state not in queries.OPEN:
            return value_of(row.outcome or "null")
        if row is None and self._ctx.answer is not None:
            # It has asked a person, so it has run: from its beginning it would do everything again.
            return {"status": "error", "executionId": self._id, "error": FORGOTTEN, "calls": []}
        rows = [] if row is None else await queries.calls_of(self._store, self._id)
        if row is None:
            await self._executions.prune()
            now = self._clock.now_ms()
            row = await self._begin(now)
        elif (answered := await self._take_answer(rows)) is not None:
            if isinstance(answered, dict):
                return await self._end("rejected", answered)
            rows = await queries.calls_of(self._store, self._id)
        if row.language != self._options.language:
            return await self._end("error", self._in_another_language(row, rows))
        execution = Execution(
            self._id,
            store=self._store,
            clock=self._clock,
            inner=self._inner,
            functions=self._functions(),
            rows=rows,
            changed=self._is_new.set,
        )
        self._shown_before = {row.seq: row.state for row in rows} or None
        if self._ctx.when_stopped is not None:
            self._ctx.when_stopped(lambda: self._stopped(execution))
        outcome = await self._run(execution, row)
        if outcome.status == "paused" and execution.pending is not None:
            await self._ctx.progress(await self._shown(execution))
            raise _question(execution.pending)
        state: ExecutionState = "completed" if outcome.status == "done" else "error"
        return await self._end(state, await self._told(execution, outcome))

    def _in_another_language(self, row: queries.ExecutionRow, rows: Sequence[CallRow]) -> dict[str, Any]:
        was, now = row.language, _NAMES[self._options.language]
        words = f"The code has run before as {_NAMES[was]}, and {self._name} runs {now} now. {_KEPT}"
        return {"status": "error", "executionId": self._id, "error": words, "calls": calls_of(rows)}

    async def give_up(self) -> None:
        """Close it: it has failed in a way that is not the code's."""
        await self._store.apply(self._executions.closing(self._id, "error"))

    async def _begin(self, now: int) -> queries.ExecutionRow:
        begun = queries.began(
            self._id,
            runtime=self._name,
            language=self._options.language,
            turn=self._ctx.turn_id,
            code=self._code,
            now=now,
        )
        await self._store.apply([begun])
        found = await queries.found(self._store, self._id)
        assert found is not None
        return found

    async def _take_answer(self, rows: Sequence[CallRow]) -> dict[str, Any] | bool | None:
        """What a person said, if somebody has: True for a yes, the output for a no."""
        answer = self._ctx.answer
        pending = next((row for row in rows if row.state == "pending"), None)
        if answer is None or pending is None or answer.state != {"seq": pending.seq}:
            return None
        if answer.forms[ASKED].action == "accept":
            await self._store.apply(queries.went_on(self._id, pending.seq, now=self._clock.now_ms()))
            return True
        await self._store.apply(self._executions.closing(self._id, "rejected", REJECTED))
        denied = [row._replace(state="denied") if row is pending else row for row in rows]
        return {
            "status": "error",
            "executionId": self._id,
            "error": f"A person said no to {pending.tool}, {REJECTED.partition(', ')[2]}",
            "calls": calls_of(denied),
        }

    async def _run(self, execution: Execution, row: queries.ExecutionRow) -> Outcome:
        options = self._options
        names = {name: function.stub(options.language) for name, function in execution.functions.items()}
        job = Job(
            language=options.language,
            source=row.code,
            names=names,
            now=row.began_at,
            seed=row.id,
            limits=options.limits,
            # Files are the host's. A tree of the engine's own would be an empty one that nobody keeps.
            collect=(),
        )
        sandbox = options.sandbox or self._executions.sandbox(options.language)
        showing = asyncio.ensure_future(self._show(execution)) if self._ctx.show is not None else None
        try:
            outcome = await sandbox.run(job, execution)
            await execution.finish(is_out_of_time=outcome.status == "timeout")
            return outcome
        except Divergence as error:
            await execution.finish()
            return Outcome(status="failed", error=str(error), exit_code=1)
        except asyncio.CancelledError:
            execution.abandon()
            if self._ctx.signal.aborted:
                self._store.apply(self._executions.closing(self._id, "error"))
            raise
        finally:
            if showing is not None:
                showing.cancel()
                await asyncio.wait([showing])

    def _stopped(self, execution: Execution) -> tuple[dict[str, Any], list[Statement]]:
        """What is told of code that a person stops, and what is written with it."""
        now = self._clock.now_ms()
        unknown = text_of(CUT_OFF)
        rows = [
            row._replace(state="unknown", outcome=unknown, settled_at=now) if row.state == "started" else row
            for row in execution.rows.values()
        ]
        told: dict[str, Any] = {"status": "error", "executionId": self._id, "error": STOPPED}
        told["calls"] = calls_of(rows)
        if lines := lines_of(execution.written):
            told["logs"] = lines
        closed = queries.closed(self._id, "error", outcome=text_of(told), now=now)
        return told, [queries.cut_off(self._id, outcome=unknown, now=now), *closed]

    async def _told(self, execution: Execution, outcome: Outcome) -> dict[str, Any]:
        told: dict[str, Any] = {
            "status": "completed" if outcome.status == "done" else "error",
            "executionId": self._id,
        }
        if outcome.status == "done":
            told["result"] = await self._result(outcome.value)
        else:
            told["error"] = self._failure(outcome, has_called=bool(execution.rows))
        if lines := lines_of(execution.written):
            told["logs"] = lines
        if outcome.dropped_bytes:
            told["note"] = f"The last {outcome.dropped_bytes:,} bytes of its output are left out."
        told["calls"] = await unhurried(calls_of, list(execution.rows.values()))
        if (more := len(execution.rows) - LISTED) > 0:
            told["callsLeftOut"] = more
        return told

    def _failure(self, outcome: Outcome, *, has_called: bool) -> str:
        words = outcome.error or "The code did not come to its end."
        if self._options.language == "javascript":
            words = advised(words, self._code)
        if outcome.status == "failed":
            is_changed = has_called and words.startswith(_NOTHING)
            return f"{_CHANGED}\n{words.removeprefix(_NOTHING)}" if is_changed else words
        kept = "The calls it made before that stay done." if has_called else "It had called nothing."
        return f"{words} {kept} {_NEXT.get(outcome.status, '')}".rstrip()

    async def _result(self, value: Any) -> Any:
        if (why := await unhurried(misfit, value)) is not None:
            return f"[the result is left out: it {why}]"
        result = await unhurried(_shown_packed, value)
        if self._options.transform is not None:
            try:
                changed = self._options.transform(result)
                changed = await changed if inspect.isawaitable(changed) else changed
                result = jsonable(changed, tool=self._name)
                result = f"[the result is left out: it {why}]" if (why := misfit(result)) else result
            except Exception:  # noqa: BLE001 - the result is there all the same
                _log.exception("transform_result of %s failed; the result is given as it is", self._name)
        if len((await unhurried(text_of, result)).encode()) > MOST:
            return f"[the result is left out: it has more than {MOST:,} bytes; write it to a file]"
        return result

    async def _end(self, state: ExecutionState, output: dict[str, Any]) -> Any:
        now = self._clock.now_ms()
        ended = queries.closed(self._id, state, outcome=text_of(output), now=now)
        if self._ctx.conclude is not None:
            await self._ctx.conclude(output, ended, None)
        else:
            await self._store.apply(ended)
        return output

    async def _shown(self, execution: Execution) -> dict[str, Any]:
        return {
            "status": "running" if execution.pending is None else "paused",
            "executionId": self._id,
            "calls": await unhurried(calls_of, list(execution.rows.values())),
            "logs": lines_of(execution.written),
        }

    async def _show(self, execution: Execution) -> None:
        """Show how far the code is: its calls as they happen, and what it prints."""
        try:
            while True:
                await self._is_new.wait()
                self._is_new.clear()
                if self._shown_before == {row.seq: row.state for row in execution.rows.values()}:
                    continue
                self._shown_before = None
                await self._ctx.progress(await self._shown(execution))
                await asyncio.sleep(SHOWN_EVERY)
        except Exception:  # noqa: BLE001 - the code goes on, seen or not
            _log.exception("what code does could not be shown")

    # --- what the code can call

    def _functions(self) -> dict[str, Function]:
        options = self._options
        tools = self._inner.tools if options.tools is None else options.tools
        bound = (tool.bind(self._ctx.agent) for tool in tools.values() if not isinstance(tool, _CodeTool))
        found = functions_of("tools", bound)
        for module, more in options.modules.items():
            for name, tool in more.items():
                own = Function(module, _spelled(name, options.language), tool.bind(self._ctx.agent))
                found[own.full_name] = own
        if options.state:
            is_once = is_stored(getattr(self._ctx.agent, "workspace", None))
            for full_name, tool in state_tools(is_once=is_once).items():
                module, _, name = full_name.partition(".")
                own = Function(module, _spelled(name, options.language), tool)
                found[own.full_name] = own
        shown_ones = {name: one for name, one in found.items() if one.module != "files"}
        for own in _codemode(shown_ones, options.language):
            found[own.full_name] = own
        return found


def _codemode(functions: Mapping[str, Function], language: str) -> list[Function]:
    """Functions about the functions."""

    async def find(given: dict[str, Any]) -> Any:
        return search(functions, given["query"])

    async def tell(given: dict[str, Any]) -> Any:
        return describe(functions, given["target"], language)

    def made(name: str, description: str, parameter: str, body: Callable[..., Any]) -> Function:
        asked = {"type": "string", "maxLength": _LONGEST_QUERY}
        schema = {"type": "object", "properties": {parameter: asked}, "required": [parameter]}
        tool = Tool(f"codemode_{name}", description, JsonInput(schema), body, on_interrupt="rerun")
        return Function("codemode", name, tool)

    return [
        made("search", "Functions that fit some words, as {results: [{path, description}]}.", "query", find),
        made("describe", "The declaration of a function, or of all of a module.", "target", tell),
    ]


def _shown_packed(value: Any) -> Any:
    return shown_int(packed(value))


def _question(pending: CallRow) -> Question:
    shown, left = asked_input(value_of(pending.input), _LONGEST_INPUT, write=text_of)
    asks = f"Code wants to call {pending.tool} with {shown}"
    if left:
        asks += f"\n\n{left:,} characters of it are not shown here."
    return Question({ASKED: Form(asks)}, state={"seq": pending.seq}, asks="execute")


def _spelled(name: str, language: str) -> str:
    """A name as a language writes it: read_file, readFile."""
    if language == "python":
        return name
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _unfenced(code: str) -> str:
    whole = _FENCE.fullmatch(code)
    return whole[1] if whole is not None else code.strip("\n")


def _description(options: _Options) -> str:
    is_python = options.language == "python"
    call = "await tools.name(key=value)" if is_python else "await tools.name({key: value})"
    called, same, lost, modules = "functions", "", "", list[str]()
    if options.tools != {}:
        called, same = "tools", f" Tools are functions with the same names and parameters: `{call}`."
        named = "your tools" if options.tools is None else ", ".join(sorted(options.tools))
        modules.append(f"`tools`: {named}")
    for module, tools in options.modules.items():
        modules.append(f"`{module}`: " + ", ".join(_spelled(name, options.language) for name in tools))
    if options.state:
        example = "state.read_file(path)" if is_python else "state.readFile({path})"
        modules.append(f"`state`: the files of the workspace, such as `await {example}`")
        if is_python:
            modules[-1] += "; open() and pathlib work on the same files"
    elif is_python:
        lost = " There are no files: what open() writes is thrown away."
    modules.append(
        "`codemode`: `await codemode.search(...)` and `await codemode.describe(...)` find functions"
    )
    lines = [
        f"Run {_NAMES[options.language]} that calls {called}, when several calls, loops or a lot of data are"
        f" involved.{same} The last expression is the result; print() is shown to you as well.",
        "There are only: " + "; ".join(modules) + ".",
        *(f"{module}: {hint}" for module, hint in options.hints.items()),
        "No network and no packages. Time stands still, and random numbers are the same when the code is run"
        " again. A call that fails raises RuntimeError; one that was cut off says so, and may have taken"
        " effect: look before you repeat it. When a person has to agree to a call, the code goes on by"
        " itself after that.",
    ]
    if not is_python:
        lines.append(
            "Whole numbers beyond 2**53 are BigInt, both ways: write 9007199254740993n. Without await a call"
            " has no result."
        )
    if is_python:
        lines.append(f"Code is checked against the functions before anything runs. {LACKS}{lost}")
    return "\n".join(lines)
