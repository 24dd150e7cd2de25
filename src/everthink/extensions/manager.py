"""The extensions of one agent: loaded, in order, with names of their own; restored, unloaded.

    Extension --load--> read its source --> kept --> tools, hooks, blocks
    a package --attach--> the same, in this process

Usable without an agent. Tools of an extension are named `<prefix>_<tool>`, so that no extension takes the
place of another's tools. What is loaded shows in the next turn.
"""

from __future__ import annotations

import asyncio
import copy
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from ..calling import awaited
from ..errors import AgentError, ExtensionError
from ..store.port import Statement
from ..tools.tool import Tool
from .found import Found
from .port import ExtensionHost, ExtensionStorage, LoadedExtension
from .queries import StoredExtensions
from .sandboxed import SandboxedExtension, read
from .values import (
    HOOKS,
    Extension,
    ExtensionInfo,
    ExtensionRequest,
    HookName,
    Language,
    Manifest,
    Origin,
    StoredExtension,
    Unloaded,
    as_extension,
)

if TYPE_CHECKING:
    from ..engines.sandboxes import Sandboxes

__all__ = ["ExtensionManager"]

log = logging.getLogger("everthink.extensions")

MOST = 50
"""Extensions of one agent."""
MOST_AT_ONCE = 3
"""Calls of the extensions of one agent that run at once: the sandboxes are there for all agents."""
CreateHost = Callable[[Manifest], ExtensionHost | None]
OnUnload = Callable[[str, tuple[str, ...]], Any]
Together = Callable[[ExtensionInfo, Sequence[Statement]], Awaitable[None]]
"""Stores statements together with something of the caller's."""


class ExtensionManager:
    """Loads extensions, and knows their tools and hooks.

        manager = ExtensionManager()
        await manager.load({"name": "words", "version": "1.0.0"}, "({ tools: { … } })")
        manager.get_tools()                  # words_count, …
        await manager.unload("words")

    An agent has its own: `agent.extension_manager`. `storage` keeps what is loaded over restarts, for
    `restore()`; `create_host` gives what an extension may ask, by its manifest (the rights that it was
    granted are in it), or `None`.
    """

    def __init__(
        self,
        *,
        storage: ExtensionStorage | None = None,
        create_host: CreateHost | None = None,
        engines: Sandboxes | None = None,
        hook_timeout: float = 5.0,
    ) -> None:
        self._storage, self._create_host, self._engines = storage, create_host, engines
        self._own: Sandboxes | None = None
        self._hook_timeout = hook_timeout
        self._loaded: dict[str, LoadedExtension] = {}
        self._tools: dict[str, dict[str, Tool]] = {}
        self._hears: dict[HookName, tuple[LoadedExtension, ...]] = dict.fromkeys(HOOKS, ())
        self._busy = asyncio.Lock()
        self._room = asyncio.Semaphore(MOST_AT_ONCE)
        self._is_restored = False
        self.left_out: dict[str, str] = {}
        """Those that were stored and could not be taken up, with the reason."""
        self.policy: Callable[[ExtensionRequest], Any] | None = None
        """Says which rights an extension gets that a model loads. `None`: `create_extension_tools` does."""
        self.host_for: Callable[[Manifest, Origin], ExtensionHost | None] | None = None
        """`create_host` for whoever has to know who has loaded an extension."""
        self.on_unload: OnUnload | None = None
        """Called after one was unloaded, with its name and the full labels of its blocks."""
        self.on_load: Callable[[LoadedExtension], Any] | None = None
        """Called after one was loaded, with it."""

    # --- what there is

    def list(self) -> list[ExtensionInfo]:
        """Every loaded extension, in the order in which they were loaded."""
        return [self._info(one) for one in self._loaded.values()]

    def get(self, name: str) -> LoadedExtension | None:
        """A loaded extension."""
        return self._loaded.get(name)

    def get_manifest(self, name: str) -> Manifest | None:
        """The manifest of a loaded extension, with the rights that it was granted."""
        one = self._loaded.get(name)
        return None if one is None else one.manifest

    def get_context_labels(self) -> list[str]:
        """The full labels of the context blocks of all of them."""
        return [label for one in self._loaded.values() for label in one.manifest.labels]

    def get_hook_subscribers(self, hook: HookName) -> Sequence[LoadedExtension]:
        """Those that hear a hook, in the order in which they were loaded."""
        return self._hears[hook]

    def get_tools(self) -> dict[str, Tool]:
        """The tools of all of them, by their full names."""
        return {name: tool for tools in self._tools.values() for name, tool in tools.items()}

    # --- loading

    async def load(
        self,
        manifest: Extension | Manifest | Mapping[str, Any],
        source: str | None = None,
        *,
        language: Language = "javascript",
        origin: Origin = "code",
        together: Together | None = None,
    ) -> ExtensionInfo:
        """Load an extension, from a manifest and its source, or from an `Extension`.

        Raises `ExtensionError` when there is one of that name, or it cannot be loaded; then nothing was
        kept. Its tools show in the next turn. What `get_extensions()` declares is not stored.
        """
        extension = self._written(manifest, source, language)
        async with self._busy:
            self._check_room(extension.manifest)
            found = await read(extension, self._of())
            one = self._sandboxed(extension, origin, found)
            tools = self._named(one)
            info = self._info(one, tuple(tools))
            if self._storage is not None and origin in ("code", "person", "model"):
                entry = StoredExtension(extension, origin, found.as_json())
                commit = None if together is None else partial(together, info)
                await self._storage.save(entry, commit)
            self._add(one, tools)
        await self._tell_loaded(one)
        return info

    async def attach(self, one: LoadedExtension) -> ExtensionInfo:
        """Take an extension that is ready to be used: one that runs in this process. It is not stored."""
        async with self._busy:
            self._check_room(one.manifest)
            tools = self._named(one)
            self._add(one, tools)
        await self._tell_loaded(one)
        return self._info(one)

    async def restore(self) -> list[ExtensionInfo]:
        """Take up what was stored, once. What is loaded already, or does not fit any more, is left out."""
        if self._storage is None or self._is_restored:
            return []
        async with self._busy:
            if self._is_restored:
                return []
            entries = await self._storage.entries()
            self._is_restored = True
            restored = [one for entry in entries if (one := self._restored(entry)) is not None]
        for one in restored:
            await self._tell_loaded(one)
        return [self._info(one) for one in restored]

    def _restored(self, entry: StoredExtension) -> LoadedExtension | None:
        name = entry.extension.manifest.name
        if name in self._loaded:
            log.warning("the extension %r was stored and is declared now: what is declared counts", name)
            return None
        try:
            self._check_room(entry.extension.manifest)
            one = self._sandboxed(entry.extension, entry.origin, Found.from_json(entry.found))
            self._add(one, self._named(one))
        except (AgentError, KeyError, TypeError) as error:
            log.error("the extension %r was stored and is left out now: %s", name, error)
            self.left_out[name] = str(error)
            return None
        return one

    async def unload(self, name: str, *, keep_storage: bool = False) -> bool:
        """Take an extension away, with its tools, its hooks, its blocks, and what is stored of it.

        False when there is none of that name. With `keep_storage` the values that it has kept stay, and what
        its blocks hold, for the next version of it. They belong to its name and to who had loaded it.
        """
        return await self.take_away(name, keep_storage=keep_storage) is not None

    async def take_away(self, name: str, *, keep_storage: bool = False) -> Unloaded | None:
        """The same; what became of what it had stored, or `None` when there is none of that name."""
        async with self._busy:
            one = self._loaded.get(name)
            if one is None:
                return None
            values = 0
            if isinstance(self._storage, StoredExtensions):
                values = await self._storage.unload(one.manifest, one.origin, keep=keep_storage)
            elif self._storage is not None:
                await self._storage.remove(name)
            del self._loaded[name], self._tools[name]
            self._order()
        await one.close()
        if self.on_unload is not None:
            await awaited(self.on_unload(name, one.manifest.labels))
        if values:
            became = "stay, for what is loaded under this name again" if keep_storage else "are deleted"
            log.info("the extension %r was unloaded; %d values that it had stored %s", name, values, became)
        return Unloaded(name, one.origin, values, keep_storage)

    async def aclose(self) -> None:
        """End what it has started itself, outside of an agent. What is stored stays."""
        for one in self._loaded.values():
            await one.close()
        self._loaded.clear()
        self._tools.clear()
        self._order()
        own, self._own = self._own, None
        if own is not None:
            await own.close()

    # ---

    def _written(
        self, manifest: Extension | Manifest | Mapping[str, Any], source: str | None, language: Language
    ) -> Extension:
        if isinstance(manifest, Extension):
            return manifest
        if source is None:
            return as_extension(manifest, "load()")
        return Extension(manifest, source, language)

    def _check_room(self, manifest: Manifest) -> None:
        """Raise for an extension whose name, or what it becomes, is taken."""
        name = manifest.name
        if name in self._loaded:
            raise ExtensionError(
                f"The extension {name!r} is already loaded.",
                kept="It stays as it is.",
                next_step="Unload it first, or choose another name.",
            )
        for other in self._loaded.values():
            if other.manifest.prefix.casefold() == manifest.prefix.casefold():
                raise ExtensionError(
                    f"The extensions {name!r} and {other.manifest.name!r} both begin with"
                    f" {manifest.prefix!r}, so their tools would have the same names.",
                    next_step="Choose another name.",
                )
        if len(self._loaded) >= MOST:
            raise ExtensionError(f"There are {MOST} extensions already.", next_step="Unload one first.")

    def _sandboxed(self, extension: Extension, origin: Origin, found: Found) -> SandboxedExtension:
        may = extension.manifest.permissions
        create = None if may.is_empty else self._create_host
        host = None if create is None else create(extension.manifest)
        if self.host_for is not None and not may.is_empty:
            host = self.host_for(extension.manifest, origin)
        return SandboxedExtension(
            extension,
            origin,
            found,
            engines=self._of(),
            host=host,
            hook_timeout=self._hook_timeout,
            room=self._room,
        )

    def _of(self) -> Sandboxes:
        if self._engines is not None:
            return self._engines
        if self._own is None:
            from ..engines.sandboxes import Sandboxes

            self._own = Sandboxes()
        return self._own

    def _named(self, one: LoadedExtension) -> dict[str, Tool]:
        """The tools of an extension as the model knows them. Raises where a name is taken."""
        manifest, taken = one.manifest, self.get_tools()
        named = {f"{manifest.prefix}_{name}": tool for name, tool in one.tools().items()}
        if twice := sorted(set(named) & set(taken)):
            raise ExtensionError(
                f"Another extension has a tool {twice[0]!r} already.", next_step="Choose another name."
            )
        if labels := sorted(set(manifest.labels) & set(self.get_context_labels())):
            raise ExtensionError(f"Another extension has a context block {labels[0]!r} already.")
        return {name: _described(tool.named(name), manifest.name) for name, tool in named.items()}

    def _add(self, one: LoadedExtension, tools: dict[str, Tool]) -> None:
        self._loaded[one.manifest.name], self._tools[one.manifest.name] = one, tools
        self._order()

    def _order(self) -> None:
        self._hears = {
            hook: tuple(one for one in self._loaded.values() if hook in one.hooks) for hook in HOOKS
        }

    async def _tell_loaded(self, one: LoadedExtension) -> None:
        if self.on_load is not None:
            await awaited(self.on_load(one))

    def _info(self, one: LoadedExtension, tools: tuple[str, ...] | None = None) -> ExtensionInfo:
        manifest = one.manifest
        extension: Extension | None = getattr(one, "extension", None)
        return ExtensionInfo(
            name=manifest.name,
            version=manifest.version,
            description=manifest.description,
            prefix=manifest.prefix,
            tools=tuple(self._tools[manifest.name]) if tools is None else tools,
            hooks=tuple(hook for hook in HOOKS if hook in one.hooks),
            context_labels=manifest.labels,
            permissions=manifest.permissions,
            origin=one.origin,
            language=None if extension is None else extension.language,
            notes=getattr(one, "notes", ()),
        )


def _described(tool: Tool, extension: str) -> Tool:
    """A tool that says whose it is."""
    found = copy.copy(tool)
    found.description = f"[{extension}] {tool.description}"
    return found
