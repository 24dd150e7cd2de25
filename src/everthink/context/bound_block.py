"""One declared block: its provider, what was last read of it, and the order in which it changes.

    Context --ready, write, load, search--> BoundBlock --> the provider --> a database, files, a bucket

A write reaches the provider first and memory after that; if it fails, memory is as it was. Changes of one
block happen one after the other, and each to its end even when its caller is cancelled.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from ..calling import awaited
from ..errors import AgentError, ContextRefused, ContextUnavailable
from .blocks import ContextBlock, abilities_of, read_block

__all__ = ["BoundBlock"]

MAX_KEY = 500

log = logging.getLogger("everthink.session")
T = TypeVar("T")


class BoundBlock:
    """A block and the provider behind it."""

    def __init__(self, label: str, description: str | None, max_tokens: int | None, provider: Any) -> None:
        self.label, self.description, self.max_tokens = label, description, max_tokens
        self.abilities = abilities_of(provider)
        self.block: ContextBlock | None = None
        """The block as last read or written. Whoever changes it holds the lock."""
        self._provider = provider
        self._lock = asyncio.Lock()
        # A write failed and nobody knows how far it came: read again before building on it.
        self._is_doubtful = False
        self._writes: set[asyncio.Task[Any]] = set()

    @property
    def is_keyed(self) -> bool:
        """True when it is written entry by entry."""
        return self.abilities.can_load or self.abilities.can_search

    def outline(self) -> ContextBlock:
        """The block, without content as long as that could not be read."""
        return self.block or self._as_block("")

    # --- reading

    async def ready(self) -> ContextBlock:
        """The block, read if it has not been."""
        async with self._lock:
            return await self._known()

    async def reload(self) -> ContextBlock:
        """The block, read again."""
        async with self._lock:
            return await self._read()

    async def load(self, key: str) -> str | None:
        """The text of a document."""
        await self.ready()
        return await self._text("read", self._provider.load, key)

    async def search(self, query: str) -> str | None:
        """What the provider finds for `query`."""
        await self.ready()
        return await self._text("searched", self._provider.search, query)

    async def _known(self) -> ContextBlock:
        if self.block is None or self._is_doubtful:
            return await self._read()
        return self.block

    async def _read(self) -> ContextBlock:
        init = getattr(self._provider, "init", None)
        if callable(init):
            await self._asked("read", init, self.label)
        return self._take(await self._content() or "")

    async def _content(self) -> str | None:
        if isinstance(self._provider, str):
            return self._provider
        return await self._text("read", getattr(self._provider, "get", self._provider))

    def _take(self, content: str) -> ContextBlock:
        self._is_doubtful = False
        self.block = self._as_block(content)
        return self.block

    def _as_block(self, content: str) -> ContextBlock:
        return read_block(
            self.label,
            content,
            self.abilities,
            description=self.description,
            max_tokens=self.max_tokens,
        )

    # --- writing

    async def write(self, content: str, *, is_added: bool, is_owner: bool = False) -> ContextBlock:
        """Replace the content, or add to its end on a line of its own."""
        if self.is_keyed:
            raise ContextRefused(
                f"The context block {self.label!r} holds keyed entries and cannot be written as a whole.",
                kept="Nothing was written.",
                next_step="Write one entry under its key instead.",
            )
        self._check(content, is_owner=is_owner)
        return await self._whole(self._write(content, is_added=is_added))

    async def _write(self, content: str, *, is_added: bool) -> ContextBlock:
        async with self._lock:
            before = (await self._known()).content
            if is_added and before:
                content = before + ("" if content.startswith("\n") else "\n") + content
            tokens = self._as_block(content).tokens
            if self.max_tokens is not None and tokens > self.max_tokens:
                raise ContextRefused(
                    f"The new content of the context block {self.label!r} exceeds maxTokens:"
                    f" it takes about {tokens} tokens, the limit is {self.max_tokens}.",
                    kept="Nothing was written; the block is as it was.",
                    next_step="Shorten it, or replace the block with a summary of what still matters.",
                )
            await self._set(content)
            return self._take(content)

    async def set_entry(self, key: str, content: str, description: str | None) -> None:
        """Write one entry and read again what the prompt says of all."""
        self._check(content)
        if not isinstance(key, str) or not key.strip() or len(key) > MAX_KEY or not key.isprintable():  # pyright: ignore[reportUnnecessaryIsInstance] - callers are not always typed
            raise ContextRefused(
                f"{key!r:.200} cannot be the key of an entry in {self.label!r}.",
                kept="Nothing was written.",
                next_step=f"A key is one line of at most {MAX_KEY} characters.",
            )
        await self._whole(self._set_entry(key, content, description))

    async def _set_entry(self, key: str, content: str, description: str | None) -> None:
        async with self._lock:
            before = await self._known()
            takes_description = self.abilities.can_load and _takes(self._provider.set, 3)
            await self._set(key, content, *([description] if takes_description else []))
            self._is_doubtful = True  # until what there is has been read again
            told = await self._content()
            keeps_catalogue = told is None and not self.abilities.can_search
            self._take(before.content if keeps_catalogue else told or "")

    async def _set(self, *given: Any) -> None:
        try:
            await self._asked("written", self._provider.set, *given)
        except BaseException:
            self._is_doubtful = True
            raise

    def _check(self, content: Any, *, is_owner: bool = False) -> None:
        if not self.abilities.can_set and not (is_owner and callable(getattr(self._provider, "set", None))):
            raise ContextRefused(
                f"The context block {self.label!r} is readonly.",
                kept="Nothing was written.",
                next_step="A block can be written when its provider has set().",
            )
        if not isinstance(content, str):
            raise ContextRefused(
                f"The content for the context block {self.label!r} is a {type(content).__name__}, not text.",
                kept="Nothing was written.",
            )

    async def _whole(self, work: Coroutine[Any, Any, T]) -> T:
        """Do all of `work` even if the caller is cancelled: storage and memory must not part half way."""
        task = asyncio.ensure_future(work)
        self._writes.add(task)
        task.add_done_callback(self._writes.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(_report)
            raise

    # --- asking the provider

    async def _text(self, what: str, method: Callable[..., Any], *given: Any) -> str | None:
        told = await self._asked(what, method, *given)
        if told is not None and not isinstance(told, str):
            raise ContextUnavailable(
                f"The provider of the context block {self.label!r} gave a {type(told).__name__}.",
                next_step="It must give text, or None when there is none.",
            )
        return told

    async def _asked(self, what: str, method: Callable[..., Any], *given: Any) -> Any:
        try:
            return await awaited(method(*given))
        except AgentError:
            raise
        except Exception as error:
            raise ContextUnavailable(
                f"The context block {self.label!r} could not be {what} ({type(error).__name__}).",
                kept="In memory it is as it was.",
                next_step="Look at what its provider says; the next use tries again.",
            ) from error


def _takes(method: Callable[..., Any], count: int) -> bool:
    """True when `method` can be called with so many arguments."""
    try:
        inspect.signature(method).bind(*range(count))
    except TypeError:
        return False
    except ValueError:
        return True  # no signature to look at
    return True


def _report(task: asyncio.Task[Any]) -> None:
    error = None if task.cancelled() else task.exception()
    if error is not None:
        log.warning("a context block could not be written after its turn was stopped: %r", error)
