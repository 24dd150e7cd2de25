"""Scripts of a skill, as the tests run them."""

from __future__ import annotations

import base64
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from everthink import ToolContext, tool
from everthink.errors import ToolError
from everthink.skill_scripts.runner import Runner, runner
from everthink.skill_values import Resource, ScriptRequest, Skill
from everthink.workspace import MemoryFiles, Workspace

__all__ = ["SKILL", "add", "asset", "files", "ran", "refusal", "request", "script", "text"]

SKILL = Skill(
    "release-notes",
    "Write release notes.",
    license="MIT",
    version="2",
    body="Write them.",
    raw="---\nname: release-notes\ndescription: Write release notes.\n---\nWrite them.",
)


OPTIONS: dict[str, Any] = {}
"""Options that a test gives all its runners."""


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def text(path: str, content: str) -> Resource:
    """A text of the skill."""
    return Resource(path, "reference", content=content)


def asset(path: str, data: bytes) -> Resource:
    """Bytes of the skill."""
    return Resource(path, "asset", encoding="base64", content=base64.b64encode(data).decode())


def script(path: str, source: str) -> Resource:
    """Another script of the skill."""
    return Resource(path, "script", content=source)


def request(path: str, source: str, *resources: Resource, **options: Any) -> ScriptRequest:
    """What the tool asks a runner for."""
    if not path.startswith("scripts/"):
        path = f"scripts/{path}"
    return ScriptRequest(SKILL, path, source, resources=resources, **options)


def files(**contents: str) -> Workspace:
    """A workspace of its own: `notes_md="x"` is /notes.md."""
    return Workspace(MemoryFiles({f"/{name.replace('_', '.')}": text for name, text in contents.items()}))


@asynccontextmanager
async def opened(**options: Any) -> AsyncGenerator[Runner]:
    """A runner outside of any app."""
    made = runner(**OPTIONS, **options)
    try:
        yield made
    finally:
        await made.aclose()


async def ran(
    path: str,
    source: str,
    *resources: Resource,
    input: Any = None,
    args: tuple[str, ...] = (),
    context: ToolContext | None = None,
    **options: Any,
) -> Any:
    """Run one script with a runner of these options."""
    async with opened(**options) as made:
        return await made.run(request(path, source, *resources, input=input, args=args, context=context))


async def refusal(path: str, source: str, *resources: Resource, **options: Any) -> str:
    """The words with which a script fails."""
    with pytest.raises(ToolError) as refused:
        await ran(path, source, *resources, **options)
    return str(refused.value)
