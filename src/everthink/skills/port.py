"""What the skills of an agent come from, and what runs their scripts.

    SkillRegistry --list, load, read_resource--> SkillSource     a directory, a package, a bucket, …
                  --run--> ScriptRunner                          whoever runs scripts

A source may be slow and may fail: whoever asks it goes on without. It never runs what it finds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from ..skill_values import Diagnostic, Resource, ScriptRequest, Skill, SkillInfo

__all__ = ["ScriptRunner", "SkillSource"]


@runtime_checkable
class SkillSource(Protocol):
    """Where skills are. Made by `from_directory`, `from_package`, `object_store`, …, or your own."""

    @property
    def id(self) -> str:
        """Its name in warnings and among sources. The same over restarts."""
        ...

    @property
    def fingerprint(self) -> str:
        """A short text that changes with what `list` and `load` say. As of the last `list` or `refresh`."""
        ...

    async def list(self) -> Sequence[SkillInfo]:
        """Its skills. Raising: it is skipped, with a warning."""
        ...

    async def load(self, name: str) -> Skill | None:
        """One of them with its instructions, or `None` when there is none of that name (any more)."""
        ...

    async def read_resource(self, name: str, path: str) -> Resource | None:
        """A file of a skill, or `None` for one that is not there or whose path leads elsewhere."""
        ...

    async def refresh(self) -> None:
        """Look again. May do nothing when it was looked a moment ago."""
        ...


@runtime_checkable
class ScriptRunner(Protocol):
    """What runs the scripts of skills."""

    async def run(self, request: ScriptRequest) -> Any:
        """Run a script; what is returned is the tool's result. Raises `ToolError` with words for people."""
        ...


def diagnostics_of(source: SkillSource) -> tuple[Diagnostic, ...]:
    """What a source has to say of its skills, if it says anything: the attribute `diagnostics`."""
    found: Any = getattr(source, "diagnostics", ())
    return tuple(one for one in found if isinstance(one, Diagnostic))
