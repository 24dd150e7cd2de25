"""Documents that are files below a directory, for a loadable context block.

    DirectoryProvider --catalogue--> the prompt
                      --load(key)--> the text of one file, to the model

The model chooses the keys, so every one is checked: whatever it asks for, nothing outside the directory
is read or written, and nothing that the pattern does not name. Files are touched in threads.
"""

from __future__ import annotations

import asyncio
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import cast

from ..errors import ContextRefused, ContextUnavailable, InvalidContext
from .blocks import catalogue_line

__all__ = ["DirectoryProvider"]

MAX_FILES = 1000
MAX_BYTES = 1024 * 1024
_HEAD = 4096
_MAX_DESCRIPTION = 300


class DirectoryProvider:
    """The files below a directory that match a pattern, as documents to load.

        session.with_context("guides", provider=DirectoryProvider("guides"))

    A file's key is its path below the directory. Its description is `description:` of its front matter,
    or else its first heading. Hidden files, links that lead out, files that are not UTF-8 or longer than
    `max_bytes` are not given out. With `writable` the model may add and replace files.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        pattern: str = "**/*.md",
        *,
        writable: bool = False,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        if not pattern or pattern.startswith("/") or ".." in pattern.split("/"):
            raise InvalidContext(
                f"{pattern!r} is no pattern for files below a directory.",
                next_step='Use one like "**/*.md": relative, without "..".',
            )
        self.path = Path(path)
        self.pattern = pattern
        self.writable = writable
        self.max_bytes = max_bytes
        self._matcher = re.compile(_expression(pattern))
        suffix = PurePosixPath(pattern).suffix
        self._suffix = "" if set(suffix) & set("*?[]") else suffix

    async def get(self) -> str | None:
        """One line for each file, by path; `None` without any."""
        return await asyncio.to_thread(self._catalogue)

    async def load(self, key: str) -> str | None:
        """The text of one file, or `None` when the directory has no such document."""
        return await asyncio.to_thread(self._load, key)

    async def set(self, key: str, content: str, description: str | None = None) -> None:
        """Write one file. A description goes into its front matter unless the text brings its own."""
        await asyncio.to_thread(self._write, key, content, description)

    # --- in a thread

    def _catalogue(self) -> str | None:
        lines = [
            catalogue_line(key, _description(self._head(file))) for key, file in sorted(self._documents())
        ]
        return "\n".join(lines) or None

    def _documents(self) -> Iterator[tuple[str, Path]]:
        if not self.path.is_dir():
            if self.writable:
                return  # made by the first write
            raise ContextUnavailable(
                f"The directory {str(self.path)!r} of a context block does not exist.",
                next_step="Create it, or correct the path given to DirectoryProvider.",
            )
        root = self.path.resolve()
        count = 0
        for folder, folders, files in os.walk(root, onerror=_raise):
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            for name in files:
                file = Path(folder, name)
                key = file.relative_to(root).as_posix()
                if not self._is_document(key) or not _is_file_below(file, root):
                    continue
                count += 1
                if count > MAX_FILES:
                    raise ContextUnavailable(
                        f"More than {MAX_FILES} files below {str(self.path)!r} match {self.pattern!r}.",
                        next_step="Give DirectoryProvider a narrower pattern or a smaller directory.",
                    )
                yield key, file

    def _is_document(self, key: str) -> bool:
        """True for a key that the pattern names: relative, inside, nothing hidden."""
        return (
            key.isprintable()
            and not any(part in ("", "..") or part.startswith(".") for part in key.split("/"))
            and self._matcher.fullmatch(key) is not None
        )

    def _named(self, key: str) -> str:
        """`key` with the ending that all documents have: the model may leave it out."""
        return key if self._is_document(key) else f"{key}{self._suffix}"

    def _load(self, key: str) -> str | None:
        named = self._named(key)
        root = self.path.resolve()
        if not self._is_document(named) or not _is_file_below(root / named, root):
            return None
        try:
            with (root / named).open("rb") as file:
                data = file.read(self.max_bytes + 1)
        except OSError as error:
            raise ContextUnavailable(f"The document {key!r} cannot be read.") from error
        self._check_size(key, len(data))
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise ContextUnavailable(f"The document {key!r} is not UTF-8 text.") from error

    def _head(self, file: Path) -> str:
        try:
            with file.open("rb") as opened:
                return opened.read(_HEAD).decode(errors="ignore")
        except OSError as error:
            raise ContextUnavailable(f"The document {file.name!r} cannot be read.") from error

    def _check_size(self, key: str, size: int) -> None:
        if size > self.max_bytes:
            raise ContextRefused(
                f"The document {key!r} is longer than {self.max_bytes} bytes.",
                next_step="Split it into several documents.",
            )

    def _write(self, key: str, content: str, description: str | None) -> None:
        if not self.writable:
            raise ContextRefused(
                f"The documents below {self.path.name!r} are readonly.",
                kept="Nothing was written.",
                next_step="Allow it with DirectoryProvider(..., writable=True).",
            )
        named = self._named(key)
        root = self.path.resolve()
        target = root / named
        # `resolve` follows the links that exist, so a folder that leads out is found before it is used.
        if not self._is_document(named) or not target.resolve().is_relative_to(root):
            raise ContextRefused(
                f"{key!r} cannot be the key of a document here.",
                kept="Nothing was written.",
                next_step=f"Keys are relative paths that match {self.pattern!r}.",
            )
        data = _with_description(content, description).encode("utf-8", "replace")
        self._check_size(key, len(data))
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            _replace(target, data)
        except OSError as error:
            raise ContextUnavailable(
                f"The document {key!r} cannot be written.", kept="What was there before stays."
            ) from error


def _raise(error: OSError) -> None:
    raise ContextUnavailable("A directory of a context block cannot be listed.") from error


def _is_file_below(file: Path, root: Path) -> bool:
    """True for a regular file that is inside `root` when every link has been followed."""
    try:
        real = file.resolve(strict=True)
    except (OSError, RuntimeError, ValueError):
        return False  # not there, a circle of links, or no path at all
    return real.is_relative_to(root) and real.is_file()


def _replace(target: Path, data: bytes) -> None:
    """Write `data` beside `target` and put it in its place: a crash leaves the old file or the new one."""
    handle, name = tempfile.mkstemp(prefix=".", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, target.parent.stat().st_mode & 0o666)  # as private as the folder
        os.replace(name, target)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(name)
        raise
    folder = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _expression(pattern: str) -> str:
    """A glob as a regular expression: `**` spans folders, `*` and `?` stay within one."""
    made = ""
    parts = pattern.split("/")
    for index, part in enumerate(parts):
        is_last = index == len(parts) - 1
        if part == "**":
            made += ".+" if is_last else "(?:.+/)?"
        else:
            pieces = ("[^/]*" if sign == "*" else "[^/]" if sign == "?" else re.escape(sign) for sign in part)
            made += "".join(pieces) + ("" if is_last else "/")
    return made


_HEADING = re.compile(r"^#{1,6}[ \t]+(.+?)[ \t]*#*$", re.MULTILINE)


def _description(head: str) -> str | None:
    """What a document says it is about."""
    front, body = _front_matter(head)
    told = front.get("description")
    if told is None:
        heading = _HEADING.search(body)
        told = heading[1] if heading else None
    return told[:_MAX_DESCRIPTION] if told else None


def _front_matter(text: str) -> tuple[dict[str, str], str]:
    """The texts that a document's front matter names, and what follows it."""
    lines = text.removeprefix("\ufeff").splitlines()
    if (
        not lines
        or lines[0].rstrip() != "---"
        or "---" not in (rest := [line.rstrip() for line in lines[1:]])
    ):
        return {}, text
    end = rest.index("---")
    import yaml

    try:
        # BaseLoader leaves every scalar the text that it is: no dates, no `no` that means False.
        found: object = yaml.load("\n".join(rest[:end]), Loader=yaml.BaseLoader)
    except yaml.YAMLError:
        found = None  # not front matter after all, or broken: the heading will do
    named = cast("dict[object, object]", found) if isinstance(found, dict) else {}
    front = {str(key): value for key, value in named.items() if isinstance(value, str)}
    return front, "\n".join(rest[end + 1 :])


def _with_description(content: str, description: str | None) -> str:
    if not description or _front_matter(content[:_HEAD])[0]:
        return content
    import yaml

    told = yaml.safe_dump({"description": " ".join(description.split())}, allow_unicode=True, width=10**6)
    return f"---\n{told}---\n\n{content}"
