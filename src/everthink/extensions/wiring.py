"""The extensions of one agent: declared, restored, with blocks in its sessions and tools in its turns.

    Chat.load --start--> get_extensions, then what was stored --> ExtensionManager
    a session --declare--> their blocks      a turn --tools--> their tools      HookRunner --> their hooks

Nothing in here fails an agent's start or a turn: each extension that cannot be loaded is told, and the others
are there. An agent that has none pays nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..context.providers import SearchableEntries, StoredBlock, StoredEntries
from ..empty import NONE
from ..errors import InvalidContext

if TYPE_CHECKING:
    from ..engines.sandboxes import Sandboxes
    from ..hooks.runner import HookRunner
    from ..session.session import Session
    from ..store.port import AgentStore, Statement
    from ..tools.tool import Tool
    from .manager import ExtensionManager
    from .port import LoadedExtension
    from .values import ContextBlockInfo, Origin

__all__ = ["AgentExtensions", "Parts"]

log = logging.getLogger("everthink.extensions")

Attempt = Callable[[str, Awaitable[None]], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What the extensions of an agent work with."""

    store: AgentStore
    hooks: HookRunner
    now: Callable[[], int]
    save_value: Callable[[str, Any], Statement]
    background: Callable[[Awaitable[Any]], None]
    engines: Callable[[], Sandboxes]
    live: Callable[[], Session | None]
    """The live session; `None` before there is one."""
    add_message: Callable[[str], Awaitable[None]]


class AgentExtensions:
    """What an agent has of extensions."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._manager: ExtensionManager | None = None
        self._told: frozenset[str] = NONE
        self._taken: frozenset[str] = NONE
        """Labels that an extension would have, and that are of blocks of the agent itself."""
        self._seen: str | None = None
        """The session whose prompt is known to show their blocks."""
        self._outdated: frozenset[str] = NONE
        """Sessions of which an extension has written a block since their prompt was made."""

    # --- whom extensions ask

    @property
    def store(self) -> AgentStore:
        """The rows of the agent."""
        return self._parts.store

    @property
    def session(self) -> Session:
        """Its live session."""
        session = self._parts.live()
        if session is None:
            raise InvalidContext("The agent has no session yet.")
        return session

    @property
    def workspace(self) -> Any:
        """Its files."""
        return self._parts.hooks.agent.workspace

    def owns(self, label: str) -> bool:
        """True for the label of a block that an extension has really brought along."""
        return label not in self._taken

    async def write_block(self, label: str, content: str, *, is_owner: bool) -> None:
        """Write a block, which is in the prompt from the next turn on."""
        session = self.session
        await session.context.load()
        block = session.context.get_block(label)
        changes = block is None or block.content != content
        ours = session.context.unfrozen() if changes else []
        if ours:
            # First, so that a prompt which does not show it is not found again after a crash.
            await self._parts.store.apply(ours)
        await session.context.replace(label, content, is_owner=is_owner)
        if changes and session.context.keeps_prompt and not ours:
            await session.refresh_system_prompt("extensions")  # it is kept where nothing can be taken away
        elif changes:
            self._outdated |= {session.id}

    async def add_message(self, text: str) -> None:
        """Add a message of the user without a turn."""
        await self._parts.add_message(text)

    # --- life

    @property
    def manager(self) -> ExtensionManager:
        """The manager of this agent, made when it is first needed."""
        if self._manager is None:
            from .bridge import Bridge
            from .dispatching import Listening
            from .manager import ExtensionManager
            from .queries import StoredExtensions

            parts = self._parts
            self._manager = ExtensionManager(
                storage=StoredExtensions(parts.store, parts.now, parts.save_value, self.owns),
                engines=parts.engines(),
                hook_timeout=parts.hooks.setting("hook_timeout"),
            )
            self._manager.host_for = lambda manifest, origin: Bridge(manifest, self, origin)
            self._manager.policy = parts.hooks.extension_policy
            self._manager.on_load, self._manager.on_unload = self._loaded, self._unloaded
            listening = Listening(
                self._manager, lambda: parts.hooks.setting("hook_timeout"), parts.background
            )
            parts.hooks.listeners = listening.listeners()
        return self._manager

    @property
    def loaded(self) -> ExtensionManager | None:
        """The manager, if anything was ever loaded."""
        return self._manager

    async def start(self, has_stored: bool, attempt: Attempt) -> None:
        """Load what the agent declares, in its order, then what was stored."""
        await attempt("extensions", self._declared(attempt))
        if has_stored:
            await attempt("stored extensions", self._restored())

    async def _declared(self, attempt: Attempt) -> None:
        given = await self._parts.hooks.get_extensions()
        if given is None or (isinstance(given, Sequence) and not given):
            return
        from .values import listed, name_of

        for one in listed(given):
            await attempt(f"the extension {name_of(one)!r}", self._load(one))

    async def _load(self, declared: Any) -> None:
        from .values import as_extension, as_installed

        of_package = as_installed(declared)
        if of_package is None:
            await self.manager.load(as_extension(declared), origin="declared")
            return
        from .packages import loaded  # with the first extension of a package

        one = await loaded(of_package, self._parts.hooks.agent)
        try:
            await self.manager.attach(one)
        except BaseException:
            await one.close()
            raise

    async def _restored(self) -> None:
        await self.manager.restore()

    async def close(self) -> None:
        """The agent leaves memory: those that run in this process hear of it."""
        if self._manager is not None:
            await self._manager.aclose()

    # --- blocks

    def declare(self, session: Session) -> Session:
        """Give a session the blocks of what is loaded."""
        _stand_beside(session, self._all())
        for one in self._all():
            for block, label in zip(one.manifest.context, one.manifest.labels, strict=True):
                if session.context.has(label):
                    self._taken |= {label}
                    self._tell(f"the agent has a context block {label!r}; that of an extension is left out")
                    continue
                session.with_context(
                    label,
                    description=block.description,
                    max_tokens=block.max_tokens,
                    provider=_provider(block, label, one.origin),
                )
        return session

    async def _loaded(self, one: LoadedExtension) -> None:
        session = self._parts.live()
        if session is None or not one.manifest.context:
            return  # at the start they are declared with the session
        _stand_beside(session, [one])
        for block, label in zip(one.manifest.context, one.manifest.labels, strict=True):
            try:
                await session.add_context(
                    label,
                    description=block.description,
                    max_tokens=block.max_tokens,
                    provider=_provider(block, label, one.origin),
                )
            except InvalidContext as error:
                self._taken |= {label}
                self._tell(f"the block {label!r} of the extension {one.manifest.name!r} is left out: {error}")
        await session.refresh_system_prompt("extensions")

    async def _unloaded(self, name: str, labels: tuple[str, ...]) -> None:
        session = self._parts.live()
        own = [label for label in labels if self.owns(label)]
        self._taken -= set(labels)
        removed = [] if session is None else [label for label in own if session.remove_context(label)]
        if session is not None and removed:
            await session.refresh_system_prompt("extensions")

    # --- turns

    async def tools(self) -> Mapping[str, Tool]:
        """The tools of a turn. A kept prompt that does not show their blocks is made anew."""
        if self._manager is None:
            return {}
        await self._show_blocks()
        await self._show_written()
        return self._manager.get_tools()

    async def _show_written(self) -> None:
        """Make the prompt anew when an extension has written a block since. A turn never sees it move."""
        session = self.session
        if session.id in self._outdated:
            await session.refresh_system_prompt("extensions")
            self._outdated -= {session.id}

    async def _show_blocks(self) -> None:
        session, labels = self.session, self.manager.get_context_labels()
        if not labels or self._seen == session.id:
            return
        prompt = await session.context.peek()
        await session.context.load()
        blocks = [block for block in session.context.get_blocks() if block.label in labels]
        if any((block.content or block.writable) and block.label.upper() not in prompt for block in blocks):
            await session.refresh_system_prompt("extensions")
        self._seen = session.id

    def hidden(self, names: Sequence[str]) -> None:
        """Say which tools are not offered, since the agent has its own of the same name."""
        for name in names:
            self._tell(f"the tool {name!r} of an extension is left out: the agent has one of this name")

    def _all(self) -> Sequence[LoadedExtension]:
        if self._manager is None:
            return ()
        found = (self._manager.get(info.name) for info in self._manager.list())
        return [one for one in found if one is not None]

    def _tell(self, words: str) -> None:
        if words not in self._told:
            self._told |= {words}
            log.warning("%s: %s", self._parts.hooks.cls.__name__, words)


def _stand_beside(session: Session, extensions: Sequence[LoadedExtension]) -> None:
    """Before their blocks are added: alone they do not take the place of the agent's own prompt."""
    if not session.has_context and any(one.manifest.context for one in extensions):
        session.context.is_beside = True


class _ReadonlyBlock(StoredBlock):
    """A block that the model sees and only its extension writes."""

    writable = False


def _provider(block: ContextBlockInfo, label: str, origin: Origin) -> Any:
    from .values import kept_under

    kinds = {"skill": StoredEntries, "searchable": SearchableEntries, "readonly": _ReadonlyBlock}
    return kinds.get(block.type, StoredBlock)(kept_under(label, origin))
