"""Providers of context blocks as an application would write them, each of another kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from everthink.context.context import Context

__all__ = ["Index", "Library", "Notes", "OpenContext", "Sign", "texts"]

OpenContext = Callable[..., Context]


class Sign:
    """Can only be read. Remembers the order in which it was asked."""

    def __init__(self, text: str | None = "") -> None:
        self.text = text
        self.asked: list[str] = []

    def init(self, label: str) -> None:
        self.asked.append(f"init {label}")

    def get(self) -> str | None:
        self.asked.append("get")
        return self.text


class Notes(Sign):
    """Can be written."""

    broken: Exception | None = None

    async def set(self, content: str) -> None:
        if self.broken is not None:
            raise self.broken
        self.text = content


class Library:
    """Documents to load and to write."""

    def __init__(self, **documents: str) -> None:
        self.documents = dict(documents)
        self.descriptions: dict[str, str | None] = {}
        self.label = ""

    async def init(self, label: str) -> None:
        self.label = label

    async def get(self) -> str | None:
        return "\n".join(f"- {key}" for key in self.documents) or None

    async def load(self, key: str) -> str | None:
        return self.documents.get(key)

    async def set(self, key: str, content: str, description: str | None = None) -> None:
        self.documents[key] = content
        self.descriptions[key] = description


class Index:
    """Entries to search in, not to write."""

    def __init__(self, **entries: str) -> None:
        self.entries = entries
        self.label = ""

    def init(self, label: str) -> None:
        self.label = label

    def get(self) -> str | None:
        return f"{len(self.entries)} entries in {self.label}" if self.entries else None

    def search(self, query: str) -> str | None:
        hits = [f"{self.label}/{key}: {text}" for key, text in self.entries.items() if query in text]
        return "\n".join(hits) or None


def texts(context: Context) -> dict[str, str]:
    """What each block of `context` says."""
    return {block.label: block.content for block in context.get_blocks()}


async def nothing(*_: Any) -> None:
    """A listener that does not listen."""
