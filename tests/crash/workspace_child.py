"""A process to be killed: edits files as tool calls do, each with its ledger row in the same commit.

Run by `nursery.py`. Calls that the ledger knows are not made again, as after a restart.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from obstore.store import LocalStore

from everthink.clock import SystemClock
from everthink.open_store import open_store
from everthink.runtime.schema import MIGRATIONS
from everthink.store.port import AgentStore, Statement
from everthink.workspace import Workspace
from tests.crash.nursery import fork_for_each_line

AGENT = "Assistant/files"
_LEDGER = "INSERT INTO kv (agent, name, value) VALUES (:agent, ?, '1')"
_KNOWN = "SELECT 1 FROM kv WHERE agent = :agent AND name = ?"

STORY: tuple[tuple[str, Callable[[Workspace], Awaitable[Any]]], ...] = (
    ("write", lambda files: files.write_file("/notes/a.md", "one\n")),
    ("append", lambda files: files.append_file("/notes/a.md", "two\n")),
    ("append again", lambda files: files.append_file("/notes/a.md", "three\n")),
    ("large", lambda files: files.write_file("/large", "x" * 50)),
    ("copy", lambda files: files.cp("/notes", "/copy", recursive=True)),
    ("move", lambda files: files.mv("/copy/a.md", "/moved.md")),
    ("large again", lambda files: files.append_file("/large", "y" * 50)),
    ("remove", lambda files: files.rm("/copy", recursive=True)),
    ("restore", lambda files: files.restore(5)),
    ("append last", lambda files: files.append_file("/notes/a.md", "four\n")),
)


async def run(store: str, bucket: str) -> None:
    """Make the calls of the story that were not made yet, then sweep."""
    database = await open_store(store, MIGRATIONS)
    mine = AgentStore(database, AGENT)
    files = Workspace(objects=LocalStore(bucket, mkdir=True), spill_from=40).bind(mine, clock=SystemClock())
    for name, edit in STORY:
        if await mine.fetch(_KNOWN, name):
            continue

        async def conclude(statements: Sequence[Statement], name: str = name) -> None:
            await mine.apply([*statements, Statement(_LEDGER, (name,))])

        await edit(files.concluding(conclude))
    await files.sweep()
    await database.close()


if __name__ == "__main__":
    fork_for_each_line(run)
