"""Large contents in an object store, by their hash. Needs the extra `objects`.

    StoredFiles --put, get, delete--> ObjectContents --> obstore --> S3, R2, GCS, Azure, memory, a directory

The object is there before the row that names it is committed. A crash between the two leaves an object that
nobody names, never a name without its object; a sweep (`stored.py`) deletes such objects.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import AsyncIterator, Collection
from typing import Any
from urllib.parse import quote

from .errors import MissingExtra, WorkspaceError

__all__ = ["LostObject", "ObjectContents"]

_AT_ONCE = 20
"""Objects that are deleted at the same time."""


class LostObject(WorkspaceError):
    """A row names an object that is not there."""


class ObjectContents:
    """The contents of one agent in a store of `obstore`: `<prefix>/<agent>/<hash>`."""

    def __init__(self, store: Any, *, prefix: str | None, agent: str) -> None:
        self._obstore, self._exceptions = obstore(), importlib.import_module("obstore.exceptions")
        self._store = store
        self._folder = "/".join(
            part for part in ((prefix or "workspaces").strip("/"), quote(agent, "")) if part
        )

    async def put(self, hash: str, data: bytes, media_type: str) -> None:
        """Keep some bytes. That they are there already is as good."""
        try:
            await self._put(hash, data, {"Content-Type": media_type})
        except Exception as error:  # every store has errors of its own
            raise self._unavailable("written to", error) from error

    async def _put(self, hash: str, data: bytes, attributes: dict[str, str] | None) -> None:
        try:
            await self._obstore.put_async(
                self._store, self._key(hash), data, attributes=attributes, mode="create"
            )
        except self._exceptions.AlreadyExistsError:
            return
        except NotImplementedError:
            if attributes is None:
                raise
            await self._put(hash, data, None)  # a store without metadata

    async def get(self, hash: str, *, start: int = 0, length: int | None = None) -> bytes:
        """The bytes of a hash, all or some."""
        key = self._key(hash)
        try:
            if start or length is not None:
                size = (await self._obstore.head_async(self._store, key))["size"]
                end = size if length is None else min(start + length, size)
                if start >= end:
                    return b""
                return bytes(await self._obstore.get_range_async(self._store, key, start=start, end=end))
            return bytes(await (await self._obstore.get_async(self._store, key)).bytes_async())
        except FileNotFoundError as error:
            raise _lost(hash) from error
        except Exception as error:  # every store has errors of its own
            raise self._unavailable("read", error) from error

    async def stream(self, hash: str) -> AsyncIterator[bytes]:
        """The bytes of a hash, piece by piece."""
        try:
            found = await self._obstore.get_async(self._store, self._key(hash))
            async for piece in found.stream():
                yield bytes(piece)
        except FileNotFoundError as error:
            raise _lost(hash) from error
        except Exception as error:  # every store has errors of its own
            raise self._unavailable("read", error) from error

    async def delete(self, hashes: Collection[str]) -> None:
        """Delete some contents. What is not there is fine."""
        wanted = list(hashes)
        for start in range(0, len(wanted), _AT_ONCE):
            await asyncio.gather(*(self._delete(hash) for hash in wanted[start : start + _AT_ONCE]))

    async def _delete(self, hash: str) -> None:
        try:
            await self._obstore.delete_async(self._store, self._key(hash))
        except FileNotFoundError:
            return
        except Exception as error:  # every store has errors of its own
            raise self._unavailable("written to", error) from error

    async def listed(self) -> set[str]:
        """The hashes of all that is here of this agent."""
        found: set[str] = set()
        try:
            async for page in self._obstore.list(self._store, prefix=self._folder):
                found.update(meta["path"].rpartition("/")[2] for meta in page)
        except Exception as error:  # every store has errors of its own
            raise self._unavailable("listed", error) from error
        return found

    def _key(self, hash: str) -> str:
        return f"{self._folder}/{hash}"

    def _unavailable(self, what: str, error: Exception) -> WorkspaceError:
        return WorkspaceError(
            f"The object store of the workspace could not be {what} ({type(error).__name__}).",
            code="EIO",
            kept="The files are as they were.",
            next_step="Check its address and credentials, and set retry_config for passing failures.",
        )


def _lost(hash: str) -> LostObject:
    return LostObject(
        f"The bytes of a file are not in the object store any more ({hash[:12]}…).",
        code="EIO",
        kept="The file is still listed.",
        next_step="Bring the object back, or write the file again.",
    )


def obstore() -> Any:
    """The library, or a letter that says how to install it."""
    try:
        return importlib.import_module("obstore")
    except ModuleNotFoundError as error:
        if error.name != "obstore":
            raise
        raise MissingExtra(
            "Workspace(objects=…) needs the package obstore, which is not installed.",
            kept="Nothing was opened.",
            next_step='Run: pip install "everthink[objects]"',
        ) from error
