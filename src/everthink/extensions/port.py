"""What runs an extension, whatever it is: code in a sandbox, or a package in this process.

    ExtensionManager --tools, hook, close--> LoadedExtension     sandboxed JavaScript and Python, packages
                     --entries, save, remove--> ExtensionStorage what outlives the process

The manager does what all have in common: names, prefixes, order, time limits, what a hook may change. Whoever
implements this protocol has none of that to do. A loaded extension belongs to one agent.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

from ..store.port import Statement
from ..tools.tool import Tool
from .values import HookName, Manifest, Origin, StoredExtension

__all__ = ["Commit", "ExtensionHost", "ExtensionStorage", "LoadedExtension"]

Commit = Callable[[Sequence[Statement]], Awaitable[None]]
"""Stores statements together with something of the caller's, or nothing of both."""


class LoadedExtension(Protocol):
    """An extension that is ready to be used by one agent."""

    @property
    def manifest(self) -> Manifest:
        """What it says of itself, with the rights that it was granted."""
        ...

    @property
    def origin(self) -> Origin:
        """Where it comes from."""
        ...

    @property
    def hooks(self) -> frozenset[HookName]:
        """The hooks that it hears."""
        ...

    def tools(self) -> Mapping[str, Tool]:
        """Its tools by their own names, without a prefix. The same over its life."""
        ...

    async def hook(self, name: HookName, snapshot: Mapping[str, Any]) -> Any:
        """Let it see what happens: JSON in, JSON out, or `None`. Only what it says to `before_turn` counts.

        It may raise and may take long: the caller gives it five seconds, and goes on without it.
        """
        ...

    async def chunks(self, snapshots: Sequence[Mapping[str, Any]]) -> None:
        """Let `on_chunk` see pieces of the answer, one after the other: those that came while it was busy."""
        ...

    async def close(self) -> None:
        """Free what it holds. A tool that somebody still has raises from here on: it "has been unloaded"."""
        ...


class ExtensionStorage(Protocol):
    """Where extensions are kept that were loaded while an agent ran."""

    async def entries(self) -> Sequence[StoredExtension]:
        """All of them, in the order in which they were loaded."""
        ...

    async def save(self, entry: StoredExtension, commit: Commit | None = None) -> None:
        """Keep one, which is durable when this returns. `commit` stores it together with something else."""
        ...

    async def remove(self, name: str) -> None:
        """Forget one, with the values that it kept itself."""
        ...


class ExtensionHost(Protocol):
    """Whom the code of one extension can ask. Made anew whenever its rights are."""

    async def call(self, verb: str, given: Sequence[Any], named: Mapping[str, Any]) -> Any:
        """Do what it asks for, if it may: JSON in, JSON out. Raises `ExtensionError` in words for it."""
        ...
