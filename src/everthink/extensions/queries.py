"""The tables `extensions` and `extension_values`: what was loaded while an agent ran, and what each has kept.

    StoredExtensions --save, remove--> Statement --> a commit of the agent's store
    bridge.py        --storage-------> a value of one extension

One row is one extension of one agent, with the rights that it was granted and what was found in its source;
or one value that an extension has kept under a key of its own. What `get_extensions()` declares has no row.
Values belong to a name and to who has loaded what is called so (`owned`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

from ..context import queries as context
from ..errors import AgentError
from ..messages import decode_json, encode_json
from ..store.port import AgentStore, Statement
from .values import Extension, Manifest, Origin, StoredExtension, kept_under, owned

if TYPE_CHECKING:
    from .port import Commit

__all__ = ["HAS_EXTENSIONS", "TABLES", "StoredExtensions", "StoredValues", "as_json"]

log = logging.getLogger("everthink.extensions")

TABLES = (
    """CREATE TABLE extensions (
        agent TEXT NOT NULL,
        name TEXT NOT NULL,
        version TEXT NOT NULL,
        manifest TEXT NOT NULL,
        source TEXT NOT NULL,
        language TEXT NOT NULL,
        origin TEXT NOT NULL,
        found TEXT NOT NULL,
        loaded_at BIGINT NOT NULL,
        PRIMARY KEY (agent, name)
    ) /* clustered */""",
    """CREATE TABLE extension_values (
        agent TEXT NOT NULL,
        extension TEXT NOT NULL,
        key TEXT NOT NULL,
        value TEXT NOT NULL,
        PRIMARY KEY (agent, extension, key)
    ) /* clustered */""",
)

HAS_EXTENSIONS = "hasExtensions"
"""Under which an agent keeps that it has rows here, so that others need not look."""

_ALL = """SELECT name, manifest, source, language, origin, found FROM extensions
    WHERE agent = :agent ORDER BY loaded_at, name"""
_SAVED = """INSERT INTO extensions
    (agent, name, version, manifest, source, language, origin, found, loaded_at)
    VALUES (:agent, ?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (agent, name) DO UPDATE SET version = excluded.version, manifest = excluded.manifest,
    source = excluded.source, language = excluded.language, origin = excluded.origin,
    found = excluded.found, loaded_at = excluded.loaded_at"""
_REMOVED = (
    "DELETE FROM extensions WHERE agent = :agent AND name = ?",
    "DELETE FROM extension_values WHERE agent = :agent AND extension = ?",
)
_VALUE = "SELECT value FROM extension_values WHERE agent = :agent AND extension = ? AND key = ?"
_SIZES = """SELECT key, LENGTH(value) FROM extension_values
    WHERE agent = :agent AND extension = ? ORDER BY key"""
_KEPT = """INSERT INTO extension_values (agent, extension, key, value) VALUES (:agent, ?, ?, ?)
    ON CONFLICT (agent, extension, key) DO UPDATE SET value = excluded.value"""
_FORGOTTEN = "DELETE FROM extension_values WHERE agent = :agent AND extension = ? AND key = ? RETURNING key"


class StoredExtensions:
    """Where an agent keeps the extensions that were loaded while it ran."""

    def __init__(
        self,
        store: AgentStore,
        now: Callable[[], int],
        save_value: Callable[[str, Any], Statement],
        owns: Callable[[str], bool],
    ) -> None:
        """`owns` says of the label of a block whether it is of an extension, and not of the agent itself."""
        self._store, self._now, self._save_value = store, now, save_value
        self._owns = owns

    async def entries(self) -> Sequence[StoredExtension]:
        """All of them, in the order in which they were loaded. One that cannot be read is left out."""
        rows = cast("list[tuple[str, ...]]", await self._store.fetch(_ALL))
        found: list[StoredExtension] = []
        for name, manifest, source, language, origin, has in rows:
            try:
                extension = Extension(decode_json(manifest), source, cast("Any", language))
                found.append(StoredExtension(extension, cast("Origin", origin), decode_json(has)))
            except (AgentError, ValueError) as error:
                log.error("the extension %r of %s cannot be read: %s", name, self._store.agent, error)
        return found

    async def save(self, entry: StoredExtension, commit: Commit | None = None) -> None:
        """Keep one, which is durable when this returns."""
        extension = entry.extension
        manifest = extension.manifest
        row = (
            manifest.name,
            manifest.version,
            encode_json(as_json(manifest)).decode(),
            extension.source,
            extension.language,
            entry.origin,
            encode_json(entry.found).decode(),
            self._now(),
        )
        statements = [Statement(_SAVED, row), self._save_value(HAS_EXTENSIONS, True)]
        await (self._store.apply(statements) if commit is None else commit(statements))

    async def remove(self, name: str) -> None:
        """Forget one, with the values that it kept itself."""
        await self._store.apply([Statement(sql, (name,)) for sql in _REMOVED])

    async def unload(self, manifest: Manifest, origin: Origin, *, keep: bool) -> int:
        """Forget one, and unless `keep` its values and what its blocks hold, in one commit."""
        row, values = _REMOVED
        owner = owned(manifest.name, origin)
        count = len(await StoredValues(self._store, owner).sizes())
        statements = [Statement(row, (manifest.name,))]
        if not keep:
            statements.append(Statement(values, (owner,)))
            own = [kept_under(label, origin) for label in manifest.labels if self._owns(label)]
            statements += [one for label in own for one in context.emptied(label)]
        await self._store.apply(statements)
        return count


class StoredValues:
    """The values of one extension. The name is given by us, so no extension reaches those of another."""

    MOST, LONGEST_KEY, LARGEST, LARGEST_ALL = 1_000, 200, 65_536, 1_000_000

    def __init__(self, store: AgentStore, extension: str) -> None:
        self._store, self._extension = store, extension

    async def get(self, key: str) -> str | None:
        """The JSON under a key."""
        rows = await self._store.fetch(_VALUE, self._extension, key)
        return rows[0][0] if rows else None

    async def sizes(self) -> dict[str, int]:
        """All keys, with the characters that each takes."""
        return dict(cast("list[tuple[str, int]]", await self._store.fetch(_SIZES, self._extension)))

    async def set(self, key: str, value: str) -> None:
        """Keep JSON under a key."""
        await self._store.apply([Statement(_KEPT, (self._extension, key, value))])

    async def delete(self, key: str) -> bool:
        """Forget a key. False when there was none."""
        rows = await self._store.apply([Statement(_FORGOTTEN, (self._extension, key))])
        return bool(rows[0])


def as_json(manifest: Manifest) -> dict[str, Any]:
    """A manifest as `as_manifest` reads it."""
    may = manifest.permissions
    return {
        "name": manifest.name,
        "version": manifest.version,
        "description": manifest.description,
        "permissions": {
            "network": list(may.network),
            "workspace": may.workspace,
            "context": {"read": _listed(may.context.read), "write": _listed(may.context.write)},
            "messages": may.messages,
            "session": {"send_message": may.session.send_message, "metadata": may.session.metadata},
            "storage": may.storage,
        },
        "tools": None if manifest.tools is None else list(manifest.tools),
        "hooks": None if manifest.hooks is None else list(manifest.hooks),
        "context": [
            {
                "label": block.label,
                "description": block.description,
                "type": block.type,
                "max_tokens": block.max_tokens,
            }
            for block in manifest.context
        ],
    }


def _listed(labels: str | tuple[str, ...]) -> str | list[str]:
    return labels if isinstance(labels, str) else list(labels)
