"""Skills that are objects of a bucket. Needs the extra `objects`.

    object_store(store, prefix="skills/") --list, get--> obstore --> S3, R2, GCS, Azure, memory, a directory

To make the list only the `SKILL.md` objects are read, and of those only the ones that changed.
"""

from __future__ import annotations

import importlib
from collections.abc import Collection
from typing import Any, Literal

from ..clock import Clock
from ..errors import InvalidSettings, MissingExtra, SkillError
from ..kinds import TEXT, TEXTS, check_options, optional
from ..settings import shown
from ..skill_values import Diagnostic
from .tree import OPTIONS, Bounds, FileFound, Looked, TreeSource

__all__ = ["object_store"]


def object_store(
    store: Any,
    *,
    prefix: str = "",
    skills: Collection[str] | None = None,
    id: str | None = None,
    fingerprint: Literal["metadata", "content"] = "metadata",
    refresh_interval: float = 60.0,
    bounds: Bounds | None = None,
    clock: Clock | None = None,
) -> TreeSource:
    """Skills in a bucket, each a folder below `prefix`. It is only read.

        skills = [skills.object_store(S3Store("bucket"), prefix="skills/")]

    `skills`: only those of these names. It is looked at again when that was done more than
    `refresh_interval` seconds ago; 0 does so every time. With `fingerprint="content"` every file is read to
    see what changed, for stores whose metadata does not tell.
    """
    options = {**OPTIONS, "skills": optional(TEXTS), "prefix": TEXT}
    given = {"id": id, "refresh_interval": refresh_interval, "bounds": bounds}
    check_options("object_store", options, skills=skills, prefix=prefix, **given)
    if fingerprint not in ("metadata", "content"):
        raise InvalidSettings(
            f"object_store: fingerprint is {shown(fingerprint)}.", next_step='It is "metadata" or "content".'
        )
    obstore = _obstore()
    folder = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
    return TreeSource(
        id or f"objects:{folder or '/'}",
        _ObjectsTree(obstore, store, folder),
        bounds=bounds,
        names=None if skills is None else frozenset(skills),
        refresh_interval=refresh_interval,
        hashes_contents=fingerprint == "content",
        clock=clock,
    )


class _ObjectsTree:
    """The objects below a prefix."""

    def __init__(self, obstore: Any, store: Any, prefix: str) -> None:
        self._obstore, self._store, self._prefix = obstore, store, prefix

    async def look(self, bounds: Bounds) -> Looked:
        """Every object, by its key."""
        files, told = list[FileFound](), list[Diagnostic]()
        try:
            async for page in self._obstore.list(self._store, prefix=self._prefix or None):
                for meta in page:
                    path = meta["path"]
                    if not path.startswith(self._prefix):
                        continue
                    mark = f"{meta.get('e_tag') or ''} {meta.get('last_modified') or ''}"
                    files.append(FileFound(path[len(self._prefix) :], meta["size"], mark))
                if len(files) > bounds.entries:
                    what = f"There are more than {bounds.entries:,} objects; the rest is not looked at."
                    told.append(Diagnostic("warning", None, what, "Give a longer prefix."))
                    files = files[: bounds.entries]
                    break
        except Exception as error:  # every store has errors of its own
            raise _unavailable("listed", error) from error
        return Looked(sorted(files, key=lambda one: one.path), told)

    async def read(self, path: str, most: int) -> bytes | None:
        """The bytes of an object."""
        try:
            found = await self._obstore.get_async(self._store, self._prefix + path)
            return bytes(await found.bytes_async()) if found.meta["size"] <= most else None
        except (FileNotFoundError, ValueError):
            return None  # gone, or no path that an object can have
        except Exception as error:  # every store has errors of its own
            raise _unavailable("read", error) from error


def _unavailable(what: str, error: Exception) -> SkillError:
    return SkillError(
        f"The object store of the skills could not be {what} ({type(error).__name__}).",
        next_step="Check its address and credentials, and set retry_config for passing failures.",
    )


def _obstore() -> Any:
    try:
        return importlib.import_module("obstore")
    except ModuleNotFoundError as error:
        if error.name != "obstore":
            raise
        raise MissingExtra(
            "skills.object_store needs the package obstore, which is not installed.",
            kept="Nothing was opened.",
            next_step='Run: pip install "everthink[objects]"',
        ) from error
