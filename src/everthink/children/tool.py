"""`agent_tool`: a child agent as a tool of its parent's model.

    agent_tool(Researcher, description=…) --Tool--> the model calls it --> Runs --> what the child answered

The tool may be run again after a crash: it joins the child where it is. What the model reads of a child that
did not finish is `{"ok": false, …}`: a failure it can go on from.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from typing import Any, Never, TypeVar, cast

from ..errors import InvalidSettings, ToolDefinitionError, ToolError
from ..models.structured import adapted, check_schema, structured
from ..settings import check_call, shown
from ..surface import refuse_unknown
from ..tools.context import ToolContext
from ..tools.json_input import JsonInput
from ..tools.tool import Origin, Tool
from .paths import OF_A_CALL
from .values import CANCELLED, FAILED, INTERRUPTED, AgentToolResult

__all__ = ["AgentTool", "agent_tool"]

T = TypeVar("T")
OPTIONS = ("description", "input", "output", "name", "display_name", "icon", "display")
_OTHERWISE = {
    "input_schema": "input",
    "parameters": "input",
    "output_schema": "output",
    "title": "display_name",
}
"""What others call them."""
AGENTS = Origin(
    "agents",
    line="Some tools are other agents. They know nothing of this conversation: tell them all they need.",
)
_ERRORS = {"aborted": CANCELLED, "interrupted": INTERRUPTED}


class AgentTool(Tool[..., Any]):
    """A tool that is a child agent."""

    child: type[Any]
    """The class of the child."""
    is_named = False
    """True when its name was chosen. Otherwise it is called like the attribute that it is."""

    def __init__(self, *args: Any, child: type[Any], made_at: str, **options: Any) -> None:
        self.child, self._made_at = child, made_at
        super().__init__(*args, **options)

    @property
    def source(self) -> str:
        """Where it is written, for errors."""
        return f"agent_tool({self.child.__name__}, …) ({self._made_at})"

    def _refused(self, why: str, next_step: str) -> ToolDefinitionError:
        instead = next_step.replace("@tool(", "agent_tool(")
        return ToolDefinitionError(f"{self.source} cannot be a tool: {why}.", next_step=instead)

    def __call__(self, *args: Any, **given: Any) -> Any:
        """Refuse to be called by code: a run has options of its own."""
        raise ToolError(
            f"{self.name!r} is a tool of the model, and code cannot call it.",
            next_step=f"Write await self.run_agent_tool({self.child.__name__}, input=…).",
        )

    def __set_name__(self, owner: type, name: str) -> None:
        """Be called like the attribute."""
        if not self.is_named:
            self.name = name
        super().__set_name__(owner, name)


def agent_tool(
    cls: type[Any],
    *,
    description: str,
    input: Any = None,
    output: Any = None,
    name: str | None = None,
    display_name: str | None = None,
    icon: str | None = None,
    display: Mapping[str, Any] | None = None,
    **unknown: Never,
) -> AgentTool:
    """A child agent as a tool.

        research = agent_tool(Researcher, description="Research a topic.", input=Topic, output=Report)

    As an attribute of a class or in what `get_tools` returns. Each call is one turn of a child of its own,
    which keeps its conversation and can be watched. `input` and `output` are types or JSON schemas; without
    an `input` the model writes a text, `query`; without an `output` it reads what the child answered.
    """
    if not isinstance(cast("Any", cls), type) or not hasattr(cls, "get_model"):
        raise ToolDefinitionError(
            f"agent_tool() is given {shown(cls)}: a child that is a tool chats.",
            next_step="Give a subclass of Think.",
        )
    _in_terms_of_tools(lambda: refuse_unknown(unknown, OPTIONS, "agent_tool()", _OTHERWISE))
    given = {"description": description, "name": name, "display_name": display_name, "icon": icon}
    _in_terms_of_tools(lambda: check_call("agent_tool", **given, display=display))
    wanted = _in_terms_of_tools(lambda: structured(output, "agent_tool"))
    shown_as = {**(display or {}), "name": display_name or (display or {}).get("name", cls.__name__)}
    if icon is not None:
        shown_as["icon"] = icon

    async def run(given: dict[str, Any], ctx: ToolContext) -> Any:
        from .beginning import Asked  # with the first agent, not with the import

        children = getattr(ctx.agent, "_children", None)
        if children is None:
            raise ToolError("An agent tool is run by the model of an agent: offer it in get_tools().")
        asked = Asked(
            input=given,
            run_id=f"{OF_A_CALL}{ctx.tool_call_id}",
            call_id=ctx.tool_call_id,
            turn=ctx.turn_id,
            display=shown_as,
            output=wanted,
        )
        ended = await children().runs.run_for_call(cls, asked, ctx.request_id, ctx.alive)
        output = _read(ended.result, wanted is not None)
        if ended.statements and ctx.conclude is not None:
            await ctx.conclude(output, ended.statements, ended.stored)
        return output

    made = AgentTool(
        name or _tool_name(cls),
        description,
        JsonInput(_input(input)),
        run,
        on_interrupt="rerun",
        origin=AGENTS,
        child=cls,
        made_at=_caller(),
    )
    made.is_named = name is not None
    return made


def _caller() -> str:
    """The file and the line that call `agent_tool`."""
    frame = sys._getframe(2)  # pyright: ignore[reportPrivateUsage]
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def _in_terms_of_tools(read: Callable[[], T]) -> T:
    try:
        return read()
    except InvalidSettings as error:
        raise ToolDefinitionError(error.what, next_step=error.next_step) from error


def _read(result: AgentToolResult, is_structured: bool) -> Any:
    """What the model reads of a run."""
    if result.status == "completed":
        return result.output if is_structured else result.summary or ""
    told: dict[str, Any] = {
        "ok": False,
        "status": result.status,
        "error": result.error or _ERRORS.get(result.status, FAILED),
        "retryable": result.is_retryable,
    }
    if result.reason is not None:
        told |= {"reason": result.reason, "childStillRunning": result.child_still_running}
    return told


def _input(given: Any) -> dict[str, Any]:
    """The JSON schema of what the model writes."""
    if given is None:
        return {
            "type": "object",
            "properties": {"query": {"type": "string", "description": "What the agent is to do."}},
            "required": ["query"],
            "additionalProperties": False,
        }
    if isinstance(given, Mapping):
        schema = dict(cast("Mapping[str, Any]", given))
        _in_terms_of_tools(lambda: check_schema(schema, "agent_tool: input"))
    else:
        _, schema = _in_terms_of_tools(lambda: adapted(given, "agent_tool: input"))
    if schema.get("type", "object" if isinstance(given, Mapping) else None) != "object":
        raise ToolDefinitionError(
            f"The input of an agent tool is an object; {shown(given)} is not.",
            next_step="Give a dataclass, a TypedDict, a pydantic model, or a JSON schema of an object.",
        )
    return schema


def _tool_name(cls: type[Any]) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", cls.__name__).lower()
