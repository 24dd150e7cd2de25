"""What the scripts of a runner may do besides computing: as its options say, and nothing a skill says.

    runner(workspace="read", workspace_instance=…, network=[…], tools=…) --Rights--> bridge.py

Pure. A skill's `allowed-tools` is a hint of its author and grants nothing. Nobody has rights that were not
given: no workspace, no network, no tools.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from ..errors import InvalidSettings
from ..guard.rules import Rules
from ..tools.collect import as_tools
from ..tools.tool import Tool

__all__ = ["Permission", "Rights", "check_tools", "is_factory", "rules_of"]

Permission = Literal["none", "read", "read-write"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rights:
    """What scripts may use."""

    workspace: Permission = "none"
    files: Any = None
    """The workspace itself, or storage with the same methods."""
    network: Rules | None = None
    """Which addresses may be opened; `None`: no network."""
    tools: Any = None
    """Tools, or a function that gives them for each run."""

    @classmethod
    def of(cls, *, workspace: Permission | None, files: Any, network: Any, tools: Any) -> Rights:
        """The rights that options give. A workspace is read, when nothing else is said."""
        return cls(
            workspace=workspace or ("none" if files is None else "read"),
            files=files,
            network=rules_of(network),
            tools=tools,
        )

    @property
    def may_read(self) -> bool:
        """True when there is a workspace, and it may be read."""
        return self.files is not None and self.workspace != "none"

    @property
    def may_write(self) -> bool:
        """True when it may be written, too."""
        return self.files is not None and self.workspace == "read-write"

    def told(self) -> dict[str, Any]:
        """The same as JSON, for people."""
        chosen = is_factory(self.tools)
        return {
            "workspace": "read-write" if self.may_write else "read" if self.may_read else "none",
            "network": None if self.network is None else str(self.network),
            "tools": None if chosen else sorted(as_tools(self.tools, "runner(tools=…)")),
        }

    @property
    def on_interrupt(self) -> Literal["report", "rerun"]:
        """What becomes of a call that a crash cut off: a script that could change nothing is run again."""
        is_harmless = self.tools is None and self.network is None and not self.may_write
        return "rerun" if is_harmless else "report"


def is_factory(tools: Any) -> bool:
    """True for a function that gives the tools of each run."""
    return callable(tools) and not isinstance(tools, Tool)


def check_tools(tools: dict[str, Tool]) -> dict[str, Tool]:
    """The same tools, if a script can call all of them."""
    for tool in tools.values():
        if not tool.has_body:
            raise InvalidSettings(
                f"runner(tools=…): {tool.name!r} runs in the browser, which a script cannot reach.",
                next_step="Give scripts tools that run on the server.",
            )
    return tools


def rules_of(network: bool | Rules | Iterable[str]) -> Rules | None:
    """Which addresses a runner's `network` opens. A place with its port may be one near us."""
    if isinstance(network, Rules):
        return network
    if isinstance(network, bool):
        return Rules() if network else None
    named = list(network)
    if not named:
        raise InvalidSettings(
            "runner(network=[]) names no host.",
            next_step="Leave it out for no network, or name hosts: network=['api.example.com'].",
        )
    near = [host for host in named if _has_port(host)]
    return Rules(hosts=[host for host in named if host not in near], allow=near)


def _has_port(host: str) -> bool:
    return host.rpartition(":")[2].isdigit() and (host.count(":") == 1 or "]:" in host)
