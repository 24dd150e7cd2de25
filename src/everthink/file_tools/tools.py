"""The tools with which a model works in a workspace: `read write edit list find grep delete bash`.

    create_workspace_tools() --> the tools of every agent, which find its own workspace
    create_workspace_tools(backend, bash=False) --> the same over somebody's own storage

What they do is in the modules beside this one; here is what the model is told of them.
"""

from __future__ import annotations

import functools
import importlib.util
import sys
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from ..errors import ToolError
from ..kinds import SANDBOX, check_options, optional
from ..sandbox.port import Sandbox
from ..settings import as_settings
from ..tools.context import ToolContext
from ..tools.tool import Origin, Tool
from .bash import BashOptions, bash_of, run_bash
from .looking import find_files, grep, list_folder
from .operations import (
    FILE_TOOLS,
    BashOperations,
    DeleteOperations,
    EditOperations,
    FindOperations,
    GrepOperations,
    ListOperations,
    ReadOperations,
    WriteOperations,
    check_backend,
)
from .place import Place
from .reading import read, shown
from .writing import delete, edit, write

__all__ = [
    "BASH",
    "WORKSPACE",
    "create_bash_tool",
    "create_delete_tool",
    "create_edit_tool",
    "create_find_tool",
    "create_grep_tool",
    "create_list_tool",
    "create_read_tool",
    "create_workspace_tools",
    "create_write_tool",
    "has_bash",
    "tools_of_agents",
]

WORKSPACE = Origin(
    "workspace",
    "You have a private workspace, a file system of your own that is kept between conversations.",
)
BASH = Origin("bash", "bash scripts run over the files of the workspace, without a network.")

_PATH = {"type": "string", "description": "An absolute path, such as /notes/plan.md."}


def create_workspace_tools(
    backend: Any = None, *, bash: bool | BashOptions | Mapping[str, Any] = True
) -> dict[str, Tool]:
    """The file tools, by name. Without a backend they work in the workspace of the agent that runs them.

    `bash=False` leaves that one out; so does a missing extra `sandbox`. A backend has the methods of all the
    others: those in `everthink.file_tools` that end with `Operations`.
    """
    chosen = bash_of(bash)
    check_backend(backend, *FILE_TOOLS, *([] if chosen is None else ["bash"]))
    return _tools(Place(backend), chosen)


@functools.lru_cache(maxsize=64)
def tools_of_agents(bash: BashOptions | None, *, is_once: bool) -> Mapping[str, Tool]:
    """The same for agents, each in its own workspace: made once for all that have the same settings."""
    return MappingProxyType(_tools(Place(is_once=is_once), bash))


def _tools(place: Place, bash: BashOptions | None) -> dict[str, Tool]:
    tools = [make(place) for make in (_read, _write, _edit, _list, _find, _grep, _delete)]
    if bash is not None and has_bash():
        tools.append(_bash(place, bash, None))
    return {tool.name: tool for tool in tools}


def has_bash() -> bool:
    """True when what runs scripts is installed, the extra `sandbox`, on a system where it can run."""
    return sys.platform == "linux" and importlib.util.find_spec("bashkit") is not None


def create_read_tool(backend: ReadOperations | None = None) -> Tool:
    """`read`: a file by numbered lines; pictures and PDFs as the model sees them."""
    check_backend(backend, "read")
    return _read(Place(backend))


def _read(place: Place) -> Tool:
    async def body(given: dict[str, Any], ctx: ToolContext) -> Any:
        return await read(place, ctx, given["path"], given.get("offset"), given.get("limit"))

    async def view(output: Any, ctx: ToolContext) -> Any:
        return await shown(place, output, ctx)

    return _tool(
        "read",
        "Read a file of the workspace. A text comes with line numbers; images and PDFs are shown to you."
        " Long files: give offset and limit.",
        body,
        {
            "path": _PATH,
            "offset": {"type": "integer", "minimum": 1, "description": "The first line, from 1 on."},
            "limit": {"type": "integer", "minimum": 1, "description": "How many lines."},
        },
        required=["path"],
        to_model_output=view,
    )


def create_write_tool(backend: WriteOperations | None = None) -> Tool:
    """`write`: a whole file."""
    check_backend(backend, "write")
    return _write(Place(backend))


def _write(place: Place) -> Tool:
    async def body(given: dict[str, Any], ctx: ToolContext) -> Any:
        return await write(place, ctx, given["path"], given["content"])

    return _tool(
        "write",
        "Write a file of the workspace, all of it. Folders above it are made; what is there is replaced.",
        body,
        {"path": _PATH, "content": {"type": "string", "description": "The whole text."}},
        required=["path", "content"],
    )


def create_edit_tool(backend: EditOperations | None = None) -> Tool:
    """`edit`: one place of a file."""
    check_backend(backend, "edit")
    return _edit(Place(backend))


def _edit(place: Place) -> Tool:
    async def body(given: dict[str, Any], ctx: ToolContext) -> Any:
        return await edit(place, ctx, given["path"], given["old_string"], given["new_string"])

    return _tool(
        "edit",
        "Replace one place in a file of the workspace. old_string must be there exactly once: copy it from"
        " the file, with enough lines around it. An empty old_string makes a new file.",
        body,
        {
            "path": _PATH,
            "old_string": {"type": "string", "description": "The text to replace."},
            "new_string": {"type": "string", "description": "What takes its place, as it is written."},
        },
        required=["path", "old_string", "new_string"],
        is_once=place.is_once,
    )


def create_list_tool(backend: ListOperations | None = None) -> Tool:
    """`list`: what is in a folder."""
    check_backend(backend, "list")
    return _list(Place(backend))


def _list(place: Place) -> Tool:
    async def body(given: dict[str, Any], ctx: ToolContext) -> Any:
        limit, offset = given.get("limit", 200), given.get("offset", 0)
        return await list_folder(place, ctx, given.get("path", "/"), limit, offset)

    return _tool(
        "list",
        "List what is in a folder of the workspace.",
        body,
        {
            "path": {**_PATH, "default": "/"},
            "limit": {"type": "integer", "minimum": 1, "maximum": 1000, "default": 200},
            "offset": {"type": "integer", "minimum": 0, "default": 0},
        },
    )


def create_find_tool(backend: FindOperations | None = None) -> Tool:
    """`find`: paths like a pattern."""
    check_backend(backend, "find")
    return _find(Place(backend))


def _find(place: Place) -> Tool:
    async def body(given: dict[str, Any], ctx: ToolContext) -> Any:
        return await find_files(place, ctx, given["pattern"])

    return _tool(
        "find",
        "Find files and folders of the workspace by a pattern of their paths: **/*.md, /src/*.{js,ts}.",
        body,
        {
            "pattern": {
                "type": "string",
                "description": "* within a folder, ** across folders, ?, [abc], {a,b}.",
            }
        },
        required=["pattern"],
    )


def create_grep_tool(backend: GrepOperations | None = None) -> Tool:
    """`grep`: lines like a regular expression."""
    check_backend(backend, "grep")
    return _grep(Place(backend))


def _grep(place: Place) -> Tool:
    async def body(given: dict[str, Any], ctx: ToolContext) -> Any:
        return await grep(
            place,
            ctx,
            given["query"],
            given.get("include", "**/*"),
            fixed=given.get("fixedString", False),
            case_sensitive=given.get("caseSensitive", False),
            context=given.get("contextLines", 0),
        )

    return _tool(
        "grep",
        "Search the texts of the workspace for a regular expression, line by line.",
        body,
        {
            "query": {"type": "string", "description": "A regular expression, or with fixedString a text."},
            "include": {
                "type": "string",
                "description": "Which files: a pattern of paths.",
                "default": "**/*",
            },
            "fixedString": {"type": "boolean", "default": False},
            "caseSensitive": {"type": "boolean", "default": False},
            "contextLines": {"type": "integer", "minimum": 0, "maximum": 10, "default": 0},
        },
        required=["query"],
    )


def create_delete_tool(backend: DeleteOperations | None = None) -> Tool:
    """`delete`: a file or a folder."""
    check_backend(backend, "delete")
    return _delete(Place(backend))


def _delete(place: Place) -> Tool:
    async def body(given: dict[str, Any], ctx: ToolContext) -> Any:
        return await delete(place, ctx, given["path"], recursive=given.get("recursive", False))

    return _tool(
        "delete",
        "Delete a file of the workspace; with recursive a folder with all that is in it.",
        body,
        {"path": _PATH, "recursive": {"type": "boolean", "default": False}},
        required=["path"],
    )


def create_bash_tool(
    backend: BashOperations | None = None,
    *,
    options: BashOptions | Mapping[str, Any] | None = None,
    sandbox: Sandbox | None = None,
) -> Tool:
    """`bash`: a script over the workspace. Without a `sandbox` that of the app runs it."""
    chosen = BashOptions() if options is None else as_settings(BashOptions, options, "The options of bash")
    check_options("create_bash_tool", {"sandbox": optional(SANDBOX)}, sandbox=sandbox)
    check_backend(backend, "bash")
    return _bash(Place(backend), chosen, sandbox)


def _bash(place: Place, chosen: BashOptions, sandbox: Sandbox | None) -> Tool:
    async def body(given: dict[str, Any], ctx: ToolContext) -> Any:
        runs = sandbox or _sandbox_of(ctx)
        return await run_bash(place, ctx, runs, chosen, given["script"], given.get("cwd", "/"))

    return _tool(
        "bash",
        "Run a bash script over the workspace, which is mounted at / (there is no /workspace and no /home)"
        " and is where the script starts. What it creates, changes and deletes is written back. There is no"
        " network; git, python and node are not there; nothing is kept between scripts but files.",
        body,
        {
            "script": {"type": "string", "description": "The script."},
            "cwd": {**_PATH, "description": "Where it starts.", "default": "/"},
        },
        required=["script"],
        is_once=place.is_once,
        origin=BASH,
    )


def _sandbox_of(ctx: ToolContext) -> Sandbox:
    home: Callable[[], Sandbox] | None = getattr(ctx.agent, "_bash_sandbox", None)
    if home is None:
        raise ToolError(
            "bash is run by the model of an agent: offer it in get_tools(), or give it a sandbox."
        )
    return home()


def _tool(
    name: str,
    description: str,
    body: Callable[..., Any],
    properties: Mapping[str, Any],
    *,
    required: list[str] | None = None,
    to_model_output: Callable[..., Any] | None = None,
    is_once: bool = True,
    origin: Origin = WORKSPACE,
) -> Tool:
    schema = {"type": "object", "properties": dict(properties), "additionalProperties": False}
    made = Tool.from_schema(
        name,
        description,
        {**schema, "required": required} if required else schema,
        body,
        on_interrupt="rerun" if is_once else "report",
        to_model_output=to_model_output,
    )
    made.origin = origin
    return made
