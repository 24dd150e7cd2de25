"""What a context block can be made of: rows of the agent's own database, or a directory of files.

    Context --bind(place)--> StoredBlock, StoredEntries, SearchableEntries --> store/
            --get, load----> DirectoryProvider                             --> files

A stored provider is a description until it is bound: `bind` returns a copy for one place, so that the
same provider may serve several blocks, sessions and agents without mixing them up. When `set` returns,
what it wrote is durable.
"""

from __future__ import annotations

import copy
from typing import TypeVar

from ..errors import InvalidContext
from ..store.port import LONGEST_QUERY
from . import queries as queries
from .blocks import Place, catalogue_line, check_label
from .directory import DirectoryProvider

__all__ = ["DirectoryProvider", "SearchableEntries", "StoredBlock", "StoredEntries", "StoredPrompt"]

MAX_HITS = 10

Stored = TypeVar("Stored", bound="_Stored")


class _Stored:
    """Something that lives in the agent's database, once it knows where."""

    def __init__(self, label: str | None = None, *, shared: bool = False) -> None:
        if label is not None:
            check_label(label)
        self._label, self._is_shared = label, shared
        self._bound: Place | None = None

    def bind(self: Stored, place: Place) -> Stored:
        """The same provider at `place`. A label of its own wins over the block's."""
        bound = copy.copy(self)
        bound._bound = place
        return bound

    @property
    def _place(self) -> Place:
        if self._bound is None:
            raise InvalidContext(
                f"This {type(self).__name__} belongs to no session yet.",
                kept="Nothing was read or written.",
                next_step="Give it to with_context(...) or add_context(...) as the provider.",
            )
        return self._bound

    @property
    def _key(self) -> tuple[str, str]:
        place = self._place
        session = queries.SHARED if self._is_shared else place.session
        return session, place.label if self._label is None else self._label


class StoredBlock(_Stored):
    """One text that the model may rewrite: what a block without a provider is.

    It is kept under the block's label, or under `label` when that is given. With `shared` all sessions of
    the agent have the same one, and deleting a session leaves it.
    """

    async def get(self) -> str | None:
        """The text, or `None` when it was never written."""
        rows = await self._place.store.fetch(queries.BLOCK, *self._key)
        return rows[0][0] if rows else None

    async def set(self, content: str) -> None:
        """Replace the text."""
        place = self._place
        await place.store.apply([queries.written(*self._key, content, now=place.now())])


class StoredPrompt(StoredBlock):
    """Where `with_cached_prompt()` keeps the frozen prompt: beside the blocks, under a label none has."""

    def __init__(self) -> None:
        super().__init__()
        self._label = queries.PROMPT


class _StoredEntries(_Stored):
    async def set(self, key: str, content: str, description: str | None = None) -> None:
        """Add an entry, or replace the one that has `key`."""
        place = self._place
        await place.store.apply(
            [queries.written_entry(*self._key, key, content, description, now=place.now())]
        )


class StoredEntries(_StoredEntries):
    """Documents in the database. The prompt lists them; the model loads the ones it needs and adds to them.

    session.with_context("skills", description="How we do things", provider=StoredEntries())
    """

    async def get(self) -> str | None:
        """One line for each document, the oldest first; `None` without any."""
        rows = await self._place.store.fetch(queries.CATALOGUE, *self._key)
        return "\n".join(catalogue_line(key, description) for key, description in rows) or None

    async def load(self, key: str) -> str | None:
        """The document, or `None` when there is none of that key."""
        rows = await self._place.store.fetch(queries.ENTRY, *self._key, key)
        return rows[0][0] if rows else None


class SearchableEntries(_StoredEntries):
    """Entries in the database that the model finds by their words, and adds to.

    session.with_context("facts", description="What we learned", provider=SearchableEntries())
    """

    async def get(self) -> str | None:
        """How many entries there are; `None` without any."""
        rows = await self._place.store.fetch(queries.COUNT, *self._key)
        count = rows[0][0]
        return f"{count} entries indexed." if count else None

    async def search(self, query: str) -> str | None:
        """The ten entries that fit best and hold every word of `query`, or `None`."""
        words = tuple(query[:LONGEST_QUERY].split())
        if not words:
            return None
        rows = await self._place.store.search(queries.found(*self._key, words, limit=MAX_HITS))
        return "\n\n".join(f"[{key}]\n{content}" for key, content, _ in rows) or None
