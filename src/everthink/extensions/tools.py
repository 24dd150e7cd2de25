"""The tools with which a model loads extensions that it has written: `load_extension` and its like.

    create_extension_tools --load_extension--> extension_policy: granted | a person is asked | refused
                                           --> ExtensionManager.load, in one commit with the result

A model never has the last word on rights. What it asks for is cut to what the policy allows, and where a
person is asked, what they have seen is the most that it gets.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from ..calling import awaited
from ..errors import AgentError, InvalidSettings, ToolError
from ..settings import shown
from ..store.port import Statement
from ..tools.json_input import JsonInput
from ..tools.tool import Origin, Tool, ToolContext
from .manager import ExtensionManager
from .queries import as_json
from .values import (
    LANGUAGES,
    Approval,
    Extension,
    ExtensionInfo,
    ExtensionRequest,
    Manifest,
    Permissions,
    Refuse,
    beyond,
    capped,
    has_port,
)

__all__ = ["CEILING", "create_extension_tools", "default_policy"]

Decision = Permissions | Approval | Refuse
Policy = Callable[[ExtensionRequest], "Decision | Awaitable[Decision]"]

CEILING = Permissions(workspace="read")
"""What a model may give its extensions without asking anybody, where the application says nothing else."""
LOADING = Origin(
    "load_extension",
    "You can write a tool that is missing, and load it with load_extension; it is offered from the next turn"
    " on. Look with list_extensions first whether it is there already.",
)
_UNASKED = (
    "A person has to agree to what it may do, and nobody was asked. Call load_extension as a tool of its own."
)
_ACCESS = ("none", "read", "read-write")

_LOAD = """\
Load an extension that you have written: new tools, and hooks, from source code that runs in a sandbox.

`source` is one JavaScript object expression: ({ tools: { NAME: { description, parameters, required, \
execute: async (args, host) => value } }, hooks: { beforeTurn: async (snapshot, host) => … } }). \
`parameters` are JSON Schema properties, `required` a list of their names. Arguments and results are JSON.

`host` exists only inside of the source, and only with permissions; it has readFile(path), listFiles(dir), \
writeFile(path, content), deleteFile(path) for the workspace, and fetch(url, options) for the hosts in \
`network`. All of them are async. There is nothing else: no require, no import, no process.

Name in `hooks` those that it is to hear (beforeTurn, beforeToolCall, afterToolCall, onStepFinish, onChunk); \
others are left out. Ask for no more than it needs: a person may be asked to agree. Name it with \
lower-case letters, digits and underscores; its tools are then called name_tool. They are offered from the \
next turn on, not in this one."""


def default_policy(asked: ExtensionRequest) -> Decision:
    """Reading the workspace is granted; whoever wants more, or hooks, needs a person who agrees."""
    wants = asked.manifest
    return Approval() if wants.hooks or beyond(wants.permissions, CEILING) else CEILING


def create_extension_tools(
    *, manager: ExtensionManager | None = None, policy: Policy | None = None
) -> dict[str, Tool]:
    """`load_extension`, `list_extensions` and `unload_extension`, for `get_tools()`.

        def get_tools(self):
            return create_extension_tools()

    Without a `manager` they are about the extensions of the agent whose model calls them. `policy` says what
    a model may load, in the place of the agent's `extension_policy`.
    """
    door = _Door(manager, policy)
    return {
        tool.name: tool
        for tool in (
            Tool(
                "load_extension",
                _LOAD,
                JsonInput(_LOAD_INPUT),
                door.load,
                needs_approval=door.asks,
                on_interrupt="rerun",
                origin=LOADING,
            ),
            Tool(
                "list_extensions",
                "List the extensions that are loaded: their tools and what they may do.",
                JsonInput({"type": "object", "properties": {}}),
                door.list,
                on_interrupt="rerun",
                origin=LOADING,
            ),
            Tool(
                "unload_extension",
                "Unload an extension that you have loaded, with its tools and what it has stored.",
                JsonInput(
                    {
                        "type": "object",
                        "properties": {"name": {"type": "string"}},
                        "required": ["name"],
                        "additionalProperties": False,
                    }
                ),
                door.unload,
                on_interrupt="rerun",
                origin=LOADING,
            ),
        )
    }


_LOAD_INPUT: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "description": "Lower-case letters, digits and underscores."},
        "version": {"type": "string", "description": "For example 1.0.0."},
        "description": {"type": "string", "description": "What it is for, in a sentence."},
        "source": {"type": "string", "description": "The object expression."},
        "language": {
            "type": "string",
            "enum": list(LANGUAGES),
            "description": "Default: javascript. In python, dictionaries `tools` and `hooks`.",
        },
        "workspace_access": {
            "type": "string",
            "enum": list(_ACCESS),
            "description": "What it may do with files. Default: none.",
        },
        "network": {
            "type": "array",
            "items": {"type": "string"},
            "description": 'Hosts that it may fetch, such as "api.example.com". Default: none.',
        },
        "hooks": {
            "type": "array",
            "items": {"type": "string"},
            "description": "Hooks of its source that it is to hear. Default: none.",
        },
    },
    "required": ["name", "version", "source"],
    "additionalProperties": False,
}


class _Door:
    """The three tools of one turn."""

    def __init__(self, manager: ExtensionManager | None, policy: Policy | None) -> None:
        self._manager, self._policy = manager, policy
        # By call, what was decided before it ran: an answer that changes meanwhile grants nothing.
        self._decided: dict[str, Permissions | Refuse] = {}

    async def asks(self, given: dict[str, Any], ctx: ToolContext) -> bool:
        """Whether a person has to agree."""
        try:
            request = _request(given, ctx)
        except AgentError:
            return False  # it will not be loaded; the words come from the call
        decision, asked = await self._decision(request, ctx), request.manifest.permissions
        if isinstance(decision, Approval) and ctx.turn_id and ctx.inner is None:
            self._decided[ctx.tool_call_id] = Refuse(_UNASKED)  # code calls it, which asks nobody
            return False
        if isinstance(decision, Approval):
            self._decided[ctx.tool_call_id] = asked if decision.most is None else capped(asked, decision.most)
            return True
        self._decided[ctx.tool_call_id] = decision
        return False

    async def load(self, given: dict[str, Any], ctx: ToolContext) -> dict[str, Any]:
        """Load what the model has written, with the rights that it is granted."""
        manager = self._of(ctx)
        try:
            request = _request(given, ctx)
            allowed = self._decided.pop(ctx.tool_call_id, None)
            if allowed is None:
                decision = await self._decision(request, ctx)
                if isinstance(decision, Approval):
                    raise ToolError(f"The extension is not loaded: {_UNASKED}")
                allowed = decision
            if isinstance(allowed, Refuse):
                raise ToolError(f"The extension is not loaded: {allowed.reason}")
            asked = request.manifest
            granted = capped(asked.permissions, allowed)
            manifest = Manifest(
                name=asked.name,
                version=asked.version,
                description=asked.description,
                permissions=granted,
                hooks=asked.hooks,
            )
            left_out = granted != asked.permissions

            async def together(info: ExtensionInfo, statements: Sequence[Statement]) -> None:
                assert ctx.conclude is not None
                await ctx.conclude(_loaded(info, left_out=left_out), statements, None)

            info = await manager.load(
                Extension(manifest, request.source, request.language),
                origin="model",
                together=None if ctx.conclude is None else together,
            )
        except ToolError:
            raise
        except AgentError as error:
            raise ToolError(str(error)) from error
        return _loaded(info, left_out=left_out)

    async def list(self, given: dict[str, Any], ctx: ToolContext) -> dict[str, Any]:
        """What is loaded."""
        manager = self._of(ctx)
        extensions = [
            {
                "name": info.name,
                "version": info.version,
                "description": info.description,
                "tools": list(info.tools),
                "permissions": as_json(manifest)["permissions"],
            }
            for info in manager.list()
            if (manifest := manager.get_manifest(info.name)) is not None
        ]
        return {"count": len(extensions), "extensions": extensions}

    async def unload(self, given: dict[str, Any], ctx: ToolContext) -> dict[str, Any]:
        """Take away what a model has loaded, and nothing else."""
        manager, name = self._of(ctx), given["name"]
        one = manager.get(name)
        if one is not None and one.origin != "model":
            raise ToolError(
                f"The extension {name!r} was not loaded by you, so it stays.",
                next_step="Ask the people who run this agent.",
            )
        found = await manager.take_away(name)
        if found is None:
            return {"unloaded": False, "name": name, "message": "There is no extension of that name."}
        message = "Its tools and hooks are gone, with all that it had stored"
        message += f" ({found.values} values)." if found.values else "."
        return {"unloaded": True, "name": name, "message": message}

    def _of(self, ctx: ToolContext) -> ExtensionManager:
        found = self._manager or getattr(ctx.agent, "extension_manager", None)
        if not isinstance(found, ExtensionManager):
            raise ToolError("This agent has no extensions.")
        return found

    async def _decision(self, request: ExtensionRequest, ctx: ToolContext) -> Decision:
        policy = self._policy or self._of(ctx).policy or default_policy
        decision: Any = await awaited(policy(request))
        if not isinstance(decision, Permissions | Approval | Refuse):
            raise InvalidSettings(
                f"extension_policy returned {shown(decision)}.",
                kept="Nothing was loaded.",
                next_step="Return Permissions(…), Approval() or Refuse(reason).",
            )
        return decision


def _request(given: Mapping[str, Any], ctx: ToolContext) -> ExtensionRequest:
    hosts = tuple(given.get("network") or ())
    if near := [host for host in hosts if has_port(host)]:
        raise ToolError(
            f"{near[0]!r} has a port, and a model may ask for public hosts only.",
            kept="Nothing was loaded.",
            next_step="Name the host alone.",
        )
    permissions = Permissions(workspace=given.get("workspace_access") or "none", network=hosts)
    manifest = Manifest(
        name=given["name"],
        version=given["version"],
        description=given.get("description") or "",
        permissions=permissions,
        hooks=tuple(given.get("hooks") or ()),
    )
    language = given.get("language") or "javascript"
    Extension(manifest, given["source"], language)  # raises for what is none
    return ExtensionRequest(
        manifest=manifest, source=given["source"], language=language, identity=ctx.identity
    )


def _loaded(info: ExtensionInfo, *, left_out: bool) -> dict[str, Any]:
    message = f"Loaded. Its tools begin with {info.prefix}_ and are offered from the next turn on."
    if left_out:
        message += " It was granted less than you asked for: see list_extensions."
    told = {
        "loaded": True,
        "name": info.name,
        "prefix": info.prefix,
        "version": info.version,
        "tools": list(info.tools),
        "message": message,
    }
    return told | ({"notes": list(info.notes)} if info.notes else {})
