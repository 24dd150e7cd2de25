"""The context of a session: its blocks, the system prompt they make, the documents that are loaded.

    with_context --declare--> Context --freeze--> the system prompt of a turn
    set_context, replace ---> Context --------> BoundBlock --> providers

The prompt is frozen: writing a block does not change it, only a refresh does, so that a model provider's
cache of it stays warm and a turn never sees it move.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from ..calling import awaited
from ..errors import AgentError, ContextRefused, ContextUnavailable, InvalidContext
from ..models.tokens import estimate_tokens
from ..store.port import AgentStore, Statement
from ..tools.tool import Tool
from . import blocks
from . import queries as queries
from . import tools as context_tools
from .blocks import ContextBlock, Place
from .bound_block import BoundBlock
from .loaded_documents import loaded_name
from .providers import StoredBlock, StoredPrompt

__all__ = ["Context"]

PROMPT_LABEL = "_system_prompt"
"""What a store for the prompt is told as its label."""

log = logging.getLogger("everthink.session")


class Context:
    """The context blocks of one session."""

    def __init__(self, store: AgentStore, session: str, *, now: Callable[[], int]) -> None:
        self._store, self._session, self._now = store, session, now
        self._slots: dict[str, BoundBlock] = {}
        # Where the prompt is kept (and whether that was told so), the prompt as it is frozen, and whether
        # our own store has that one. Whoever changes the last two holds the lock.
        self._prompt: Any = None
        self._is_prompt_ready = False
        self._frozen: str | None = None
        self._is_kept = False
        self._freezing = asyncio.Lock()
        self._weighed = ("", 0)  # a prompt and its tokens
        self.last_refresh: tuple[str, int] | None = None
        """Why and when (ms) this process last rebuilt the prompt."""
        self.rendered_at: int | None = None
        """When (ms) this process first made the prompt because none was kept."""
        self.is_beside = False
        """True when nobody but extensions has declared blocks: they stand behind the agent's own prompt, and
        not in its place."""
        self.loaded: set[str] = set()
        """The documents that the conversation holds, as `label:key`."""

    # --- declaring

    @property
    def is_empty(self) -> bool:
        """True when nothing was declared: then nothing here reads or writes anything."""
        return not self._slots and self._prompt is None and self._frozen is None

    @property
    def is_frozen(self) -> bool:
        """True once the prompt is fixed: later changes of blocks show after a refresh."""
        return self._frozen is not None

    @property
    def keeps_prompt(self) -> bool:
        """True when the frozen prompt outlives the process."""
        return self._prompt is not None

    @property
    def has_loadable(self) -> bool:
        """True when a block has documents to load."""
        return any(slot.abilities.can_load for slot in self._slots.values())

    def declare(
        self,
        label: str,
        *,
        description: str | None = None,
        max_tokens: int | None = None,
        provider: Any = None,
    ) -> None:
        """Add a block; the same label again replaces it. Nothing is read before it is needed.

        Without a provider it is a text in the agent's database that the model may rewrite.
        """
        self._slots[label] = self._slot(label, description, max_tokens, provider)

    def cache_prompt(self, provider: Any = None) -> None:
        """Keep the frozen prompt across restarts: in the agent's database, or where `provider` puts it."""
        if provider is None:
            provider = StoredPrompt()
        elif not all(callable(getattr(provider, method, None)) for method in ("get", "set")):
            raise InvalidContext(
                f"The prompt cannot be kept in a {type(provider).__name__}: it needs get() and set(prompt).",
                kept="Nothing was changed.",
            )
        self._prompt = self._bound(provider, PROMPT_LABEL)
        self._is_prompt_ready = self._is_kept = False

    async def add(
        self,
        label: str,
        *,
        description: str | None = None,
        max_tokens: int | None = None,
        provider: Any = None,
    ) -> ContextBlock:
        """Add a block while the session is in use and read it. The prompt shows it after a refresh."""
        slot = self._slot(label, description, max_tokens, provider)
        await self.load()
        if label in self._slots:
            raise InvalidContext(
                f"A context block {label!r} already exists.",
                kept="It stays as it is.",
                next_step="Remove it first, or choose another label.",
            )
        self._slots[label] = slot
        try:
            return await slot.ready()
        except BaseException:
            if self._slots.get(label) is slot:
                del self._slots[label]
            raise

    def remove(self, label: str) -> bool:
        """Take a block away; what it kept stays stored. False when there is none of that label."""
        if self._slots.pop(label, None) is None:
            return False
        self.loaded -= {name for name in self.loaded if name.startswith(loaded_name(label, ""))}
        return True

    def _slot(self, label: str, description: str | None, max_tokens: int | None, provider: Any) -> BoundBlock:
        blocks.check_label(label)
        blocks.check_limit(label, max_tokens)
        blocks.check_description(label, description)
        provider = StoredBlock() if provider is None else blocks.as_provider(provider)
        blocks.check_provider(label, provider)
        return BoundBlock(label, description, max_tokens, self._bound(provider, label))

    def _bound(self, provider: Any, label: str) -> Any:
        bind = getattr(provider, "bind", None)
        if not callable(bind):
            return provider
        return bind(Place(self._store, self._session, label, self._now))

    # --- reading

    def has(self, label: str) -> bool:
        """True when a block of this label was declared."""
        return label in self._slots

    def get_block(self, label: str) -> ContextBlock | None:
        """A block as it is in memory; `None` when there is none or it has not been read yet."""
        slot = self._slots.get(label)
        return None if slot is None else slot.block

    def get_blocks(self) -> list[ContextBlock]:
        """Every block that has been read, in the order of their declaration."""
        return [slot.block for slot in self._slots.values() if slot.block is not None]

    async def load(self) -> None:
        """Read the blocks that have not been read yet."""
        for slot in list(self._slots.values()):
            await slot.ready()

    async def load_document(self, label: str, key: str) -> str | None:
        """The text of a document, which counts as loaded from now on; `None` when there is none."""
        slot = self._slots.get(label)
        if slot is None or not slot.abilities.can_load:
            raise self._not(label, "loadable", lambda slot: slot.abilities.can_load)
        text = await slot.load(key)
        if text is not None:
            self.loaded.add(loaded_name(label, key))
        return text

    def unload_document(self, label: str, key: str) -> bool:
        """Count a document as no longer loaded. False when it was not."""
        name = loaded_name(label, key)
        was_loaded = name in self.loaded
        self.loaded.discard(name)
        return was_loaded

    def forget_loaded(self) -> None:
        """Count every document as no longer loaded: the history that held them is gone."""
        self.loaded.clear()

    async def search(self, label: str, query: str) -> str | None:
        """What a searchable block has about `query`; `None` for nothing."""
        slot = self._slots.get(label)
        if slot is None or not slot.abilities.can_search:
            raise self._not(label, "searchable", lambda slot: slot.abilities.can_search)
        return await slot.search(query)

    async def tools(self, *, on_unload: Callable[[str, str], Awaitable[None]]) -> dict[str, Tool]:
        """The tools with which the model uses the blocks there are now. `{}` when none has a use for one.

        A block that cannot be read at the moment keeps its tools: their calls say what is wrong with it.
        """
        for slot in list(self._slots.values()):
            try:
                await slot.ready()
            except ContextUnavailable as error:
                log.warning("%s (%r)", error, error.__cause__)
        outlines = [slot.outline() for slot in self._slots.values()]
        return context_tools.tools_for(self, outlines, on_unload=on_unload)

    # --- writing

    async def replace(self, label: str, content: str, *, is_owner: bool = False) -> ContextBlock:
        """Write a block anew. The prompt shows it after a refresh. Whoever owns it writes it also when it is
        none that the model may write."""
        slot = self._slots.get(label)
        if slot is None:
            raise self._unknown(label, "was not found")
        return await slot.write(content, is_added=False, is_owner=is_owner)

    async def append(self, label: str, content: str) -> ContextBlock:
        """Add to the end of a block, on a line of its own. The prompt shows it after a refresh."""
        slot = self._slots.get(label)
        if slot is None:
            raise self._unknown(label, "was not found")
        return await slot.write(content, is_added=True)

    async def set_entry(self, label: str, key: str, content: str, description: str | None = None) -> None:
        """Write an entry of a block whose documents or entries have keys; a known key is replaced."""
        slot = self._slots.get(label)
        if slot is None or not slot.is_keyed:
            raise self._not(label, "loadable or searchable", lambda slot: slot.is_keyed)
        await slot.set_entry(key, content, description)

    def _unknown(self, label: str, problem: str) -> ContextRefused:
        return ContextRefused(
            f"The context block {label!r} {problem}.",
            kept="Nothing was written.",
            next_step=self._those("writable", lambda slot: slot.abilities.can_set),
        )

    def _not(self, label: str, kind: str, fits: Callable[[BoundBlock], bool]) -> ContextRefused:
        return ContextRefused(
            f"The context block {label!r} is not {kind}.",
            kept="Nothing was changed.",
            next_step=self._those(kind, fits),
        )

    def _those(self, kind: str, fits: Callable[[BoundBlock], bool]) -> str:
        labels = ", ".join(repr(slot.label) for slot in self._slots.values() if fits(slot))
        return f"Blocks that are {kind}: {labels}." if labels else f"No block is {kind}."

    # --- the prompt

    async def freeze(self) -> str:
        """The system prompt. Made on first use, or taken from where it is kept; the same until a refresh."""
        if self.is_empty:
            return ""
        async with self._freezing:
            prompt = await self._kept()
            if prompt is None:
                prompt = self._frozen
                if prompt is None:
                    await self.load()
                    prompt = blocks.render(self.get_blocks())
                    self.rendered_at = self._now()
                await self._keep(prompt)
            return prompt

    async def refresh(self, reason: str = "asked") -> str:
        """Read every block again and make the prompt anew. `reason` is noted for whoever looks."""
        async with self._freezing:
            for slot in list(self._slots.values()):
                await slot.reload()
            prompt = blocks.render(self.get_blocks())
            if not self.is_empty:
                await self._keep(prompt)
            self.last_refresh = (reason, self._now())
            return prompt

    async def peek(self) -> str:
        """The prompt as `freeze` would give it, without freezing it."""
        if self.is_empty:
            return ""
        async with self._freezing:
            prompt = self._frozen if self._frozen is not None else await self._kept()
            if prompt is None:
                await self.load()
                prompt = blocks.render(self.get_blocks())
            return prompt

    @property
    def prompt_tokens(self) -> int:
        """About how many tokens the prompt takes, from what is in memory."""
        prompt = self._frozen if self._frozen is not None else blocks.render(self.get_blocks())
        if prompt is not self._weighed[0]:
            self._weighed = (prompt, estimate_tokens(prompt))
        return self._weighed[1]

    def unfrozen(self) -> list[Statement]:
        """Statements that forget the kept prompt, for a commit after which it would be out of date.

        If the process dies before the refresh that follows, the next one makes the prompt anew.
        """
        if not isinstance(self._prompt, StoredPrompt):
            return []
        return [queries.forgotten(self._session, queries.PROMPT)]

    async def _kept(self) -> str | None:
        """The prompt that is fixed already: in its store, or without a store in memory."""
        if self._prompt is None or self._is_kept:
            return self._frozen
        prompt = await self._asked("read", self._prompt.get)
        if prompt is not None and not isinstance(prompt, str):
            raise ContextUnavailable(f"The store of the prompt gave a {type(prompt).__name__}, not text.")
        if prompt is not None:
            # This process is the only writer of our own row; any other store is asked every time.
            self._frozen, self._is_kept = prompt, isinstance(self._prompt, StoredPrompt)
        return prompt

    async def _keep(self, prompt: str) -> None:
        if self._prompt is not None:
            await self._asked("written", self._prompt.set, prompt)
            self._is_kept = isinstance(self._prompt, StoredPrompt)
        self._frozen = prompt

    async def _asked(self, what: str, method: Callable[..., Any], *given: Any) -> Any:
        try:
            if not self._is_prompt_ready and callable(init := getattr(self._prompt, "init", None)):
                await awaited(init(PROMPT_LABEL))
            self._is_prompt_ready = True
            return await awaited(method(*given))
        except AgentError:
            raise
        except Exception as error:
            raise ContextUnavailable(
                f"The kept system prompt could not be {what} ({type(error).__name__}).",
                kept="The prompt is as it was.",
            ) from error

    # --- deleting for good

    def cleared(self) -> list[Statement]:
        """Remove the blocks, entries and prompt of this session. Let this context go afterwards."""
        return queries.cleared(self._session)
