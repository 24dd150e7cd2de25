"""Sizes in words: `12 B`, `3.4 KB`, `5.6 MB`."""

from __future__ import annotations

__all__ = ["in_words"]


def in_words(size: int) -> str:
    """A number of bytes as people read it."""
    if size < 1024:
        return f"{size} B"
    if size < 1024 * 1024:
        return f"{size / 1024:.1f} KB"
    return f"{size / 1024 / 1024:.1f} MB"
