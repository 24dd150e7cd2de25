"""Documents that are objects in a bucket, for a loadable context block. Needs the extra `objects`.

    ObjectStoreProvider --list, get, put--> obstore --> S3, R2, GCS, Azure, memory, a local directory

    store = obstore.store.S3Store("skills-bucket", retry_config={"max_retries": 3})
    session.with_context("skills", provider=ObjectStoreProvider(store, prefix="skills/"))

A key is an object's path below the prefix. With `keys`, only those exist for the model: others are
neither listed nor fetched.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Iterable
from typing import Any

from ..errors import ContextRefused, ContextUnavailable, InvalidContext, MissingExtra
from .blocks import catalogue_line

__all__ = ["ObjectStoreProvider"]

MAX_BYTES = 1024 * 1024
_AT_ONCE = 16


class ObjectStoreProvider:
    """The objects of a store below `prefix`, as documents to load and to write.

    `store` is one of obstore's. A description is kept as the object's metadata `description`; a store
    without metadata (a local directory) keeps none, and its catalogue lists keys alone.
    """

    def __init__(
        self,
        store: Any,
        *,
        prefix: str = "",
        keys: Iterable[str] | None = None,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        if isinstance(keys, str):
            raise InvalidContext(f"keys={keys!r} is one text.", next_step="Give a list of keys.")
        self._obstore = _obstore()
        self.store, self.prefix, self.max_bytes = store, prefix, max_bytes
        self.keys = frozenset(keys or ())

    async def get(self) -> str | None:
        """One line for each document, by key; `None` without any."""
        # A store lists by whole folders, so the rest of the prefix is compared here.
        folder = self.prefix.rpartition("/")[0]
        found: list[str] = []
        try:
            async for page in self._obstore.list(self.store, prefix=folder or None):
                found += [meta["path"] for meta in page if meta["path"].startswith(self.prefix)]
        except Exception as error:  # every store has errors of its own
            raise self._unavailable("listed", error) from error
        keys = sorted(key for path in found if self._is_allowed(key := path[len(self.prefix) :]))
        limit = asyncio.Semaphore(_AT_ONCE)
        described = await asyncio.gather(*(self._described(key, limit) for key in keys))
        return "\n".join(line for line in described if line) or None

    async def load(self, key: str) -> str | None:
        """The text of one object, or `None` when there is none of that key or it is not allowed."""
        if not self._is_allowed(key):
            return None
        found = await self._fetched(key)
        if found is None:
            return None
        if found.meta["size"] > self.max_bytes:
            raise ContextRefused(
                f"The document {key!r} is longer than {self.max_bytes} bytes.",
                next_step="Split it into several documents, or allow more with max_bytes=...",
            )
        try:
            data = bytes(await found.bytes_async())
        except Exception as error:  # every store has errors of its own
            raise self._unavailable("read", error) from error
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise ContextUnavailable(f"The document {key!r} is not UTF-8 text.") from error

    async def set(self, key: str, content: str, description: str | None = None) -> None:
        """Write one object, whether `keys` names it or not."""
        data = content.encode("utf-8", "replace")
        attributes = {"description": _header(description)} if description else None
        try:
            await self._put(key, data, attributes)
        except ValueError as error:
            raise ContextRefused(
                f"{key!r} cannot be the key of a document here.",
                kept="Nothing was written.",
                next_step='Keys are relative paths without ".." or empty parts.',
            ) from error
        except Exception as error:  # every store has errors of its own
            raise self._unavailable("written", error) from error

    async def _put(self, key: str, data: bytes, attributes: dict[str, str] | None) -> None:
        if not key.strip("/"):
            raise ValueError("no key")
        path = self.prefix + key
        try:
            await self._obstore.put_async(self.store, path, data, attributes=attributes)
        except NotImplementedError:
            if attributes is None:
                raise
            await self._obstore.put_async(self.store, path, data)  # a store without metadata

    async def _described(self, key: str, limit: asyncio.Semaphore) -> str:
        async with limit:
            found = await self._fetched(key, head=True)
        # Gone since it was listed: then it is not in the catalogue.
        return "" if found is None else catalogue_line(key, _text(found.attributes.get("description")))

    async def _fetched(self, key: str, *, head: bool = False) -> Any:
        try:
            return await self._obstore.get_async(self.store, self.prefix + key, options={"head": head})
        except (FileNotFoundError, ValueError):
            return None  # not there, or no path that an object can have
        except Exception as error:  # every store has errors of its own
            raise self._unavailable("read", error) from error

    def _is_allowed(self, key: str) -> bool:
        return bool(key.strip("/")) and (not self.keys or key in self.keys)

    def _unavailable(self, what: str, error: Exception) -> ContextUnavailable:
        return ContextUnavailable(
            f"The object store of a context block could not be {what} ({type(error).__name__}).",
            next_step="Check its address and credentials, and set retry_config for passing failures.",
        )


def _obstore() -> Any:
    try:
        return importlib.import_module("obstore")
    except ModuleNotFoundError as error:
        if error.name != "obstore":
            raise
        raise MissingExtra(
            "ObjectStoreProvider needs the package obstore, which is not installed.",
            kept="Nothing was opened.",
            next_step='Run: pip install "everthink[objects]"',
        ) from error


def _header(description: str) -> str:
    """A description as metadata can carry it: one line of ASCII."""
    told = " ".join(description.split())
    if told.isascii() and told.isprintable():
        return told
    from email.header import Header

    return Header(told, "utf-8").encode(maxlinelen=0)


def _text(value: str | None) -> str | None:
    """The description that a piece of metadata means."""
    if not value or "=?" not in value:
        return value
    from email.errors import HeaderParseError
    from email.header import decode_header, make_header

    try:
        return str(make_header(decode_header(value)))
    except (HeaderParseError, LookupError, UnicodeDecodeError):
        return value  # it only looked encoded
