"""How a test of the contract opens its files, and what it says about them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Generator
from contextlib import contextmanager
from typing import Any

import pytest

from ....errors import WorkspaceCode, WorkspaceError
from ....workspace.port import Change, Files, WorkspaceLimits
from ....workspace.workspace import Workspace

__all__ = ["FilesCase", "gathered", "pieces", "refused", "told"]


class FilesCase:
    """How a test reaches the files it tests."""

    keeps_media_types = True
    knows_hashes = True

    async def open(self) -> Files:
        """Open this test's files: the same ones at every call, and empty at the first."""
        raise NotImplementedError

    async def workspace(self, *, limits: WorkspaceLimits | None = None, on_change: Any = None) -> Workspace:
        """A workspace over this test's files."""
        return Workspace(await self.open(), limits=limits, on_change=on_change)


@contextmanager
def refused(code: WorkspaceCode) -> Generator[None]:
    """What is inside is refused with this code, and says so like a letter."""
    with pytest.raises(WorkspaceError) as caught:
        yield
    assert caught.value.code == code, str(caught.value)
    assert str(caught.value).startswith(f"{code}: ")


async def gathered(stream: AsyncIterator[bytes] | None) -> bytes | None:
    """All that a stream gives."""
    return None if stream is None else b"".join([piece async for piece in stream])


async def pieces(*some: bytes) -> AsyncIterator[bytes]:
    """A stream of these pieces."""
    for piece in some:
        yield piece


def told(changes: list[Change]) -> list[tuple[str, str, str]]:
    """Changes in short."""
    return [(change.change, change.path, change.kind) for change in changes]
