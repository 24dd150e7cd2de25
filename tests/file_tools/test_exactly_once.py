"""An edit, the ledger and the result of the call are one commit: all of it is there, or nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from everthink import App, Think
from everthink.errors import StoreFull
from everthink.open_store import open_store
from everthink.runtime.schema import MIGRATIONS
from everthink.testing import WatchedStore
from everthink.testing.scripted import ScriptedModel, calls, says
from tests.support.agents import live

pytestmark = pytest.mark.anyio

CALLS = [
    pytest.param("write", {"path": "/b", "content": "new"}, id="write"),
    pytest.param("edit", {"path": "/a", "old_string": "before", "new_string": "after"}, id="edit"),
    pytest.param("edit", {"path": "/b", "old_string": "", "new_string": "new"}, id="create"),
    pytest.param("delete", {"path": "/a"}, id="delete"),
    pytest.param("bash", {"script": "echo x > /b; rm /a"}, id="bash", marks=pytest.mark.slow),
]


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.slow)])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database of each kind."""
    if request.param == "postgres":
        return request.getfixturevalue("postgres_url")
    return f"sqlite:///{tmp_path}/everthink.db"


@asynccontextmanager
async def watched(url: str, cls: type[Think]) -> AsyncIterator[tuple[App, WatchedStore]]:
    """An app whose commits can be looked at."""
    store = WatchedStore(await open_store(url, MIGRATIONS))
    try:
        async with App(cls, store=store, grace=0.0, idle_after=None) as app:
            yield app, store
    finally:
        await store.close()


def agent_that(name: str, input: dict[str, Any]) -> type[Think]:
    model = ScriptedModel(calls(name, input, id="the-call"), says("Done."))
    return type("Assistant", (Think,), {"model": model})


def changes_files(commit: Any) -> bool:
    return any("INTO file_changes" in statement.sql for statement in commit)


@pytest.mark.parametrize(("name", "input"), CALLS)
async def test_files_ledger_and_result_are_one_commit(
    store_url: str, name: str, input: dict[str, Any]
) -> None:
    cls = agent_that(name, input)
    async with watched(store_url, cls) as (app, store):
        files = (await live(app.agent(cls))).workspace
        await files.write_file("/a", "before")
        store.commits.clear()
        result = await app.agent(cls).save_messages("Go")
        assert result.status == "completed"
        [commit] = [one for one in store.commits if changes_files(one)]
        texts = " ".join(statement.sql for statement in commit)
        assert "UPDATE calls" in texts
        assert "INSERT INTO segments" in texts
        changes = [change for change in await files.changes() if change.seq > 1]
        assert changes
        assert {change.call_id for change in changes} == {"the-call"}


@pytest.mark.parametrize(("name", "input"), CALLS)
async def test_what_cannot_be_committed_is_neither_an_edit_nor_a_result(
    store_url: str, name: str, input: dict[str, Any]
) -> None:
    cls = agent_that(name, input)
    async with watched(store_url, cls) as (app, store):
        files = (await live(app.agent(cls))).workspace
        await files.write_file("/a", "before")
        store.fail(StoreFull("full"), matching=changes_files)
        result = await app.agent(cls).save_messages("Go")
        assert result.status == "error"
        assert [entry.path for entry in await files.glob("**/*")] == ["/a"]
        assert await files.read_file("/a") == "before"
        assert len(await files.changes()) == 1
        messages = await app.agent(cls).get_messages()
        assert not any(part.get("output") for part in messages[-1].parts)
