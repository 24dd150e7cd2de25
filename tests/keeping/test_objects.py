"""What an object store holds of an agent goes with it, and is exported with it."""

from __future__ import annotations

import base64
import hashlib
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from obstore.store import MemoryStore, S3Store

from everthink import App, Think
from everthink.cli.main import cli
from everthink.errors import AgentError, WorkspaceError
from everthink.testing import ManualClock, ScriptedModel
from everthink.workspace import Workspace
from everthink.workspace.contents import PART_BYTES
from tests.conftest import OpenApp
from tests.support.agents import live
from tests.workspace.test_objects import _names as names

pytestmark = pytest.mark.anyio

LARGE = bytes(range(256)) * 8200  # some 2 MiB: more than one line
DAY = 24 * 60 * 60


def desk(bucket: Any, **options: Any) -> tuple[type[Think], type[Think]]:
    """A class with its files in an object store, and that of its children."""
    files = Workspace(objects=bucket, prefix="files", spill_from=100, **options)
    notes = type("Notes", (Think,), {"model": ScriptedModel(), "workspace": files})
    return type(
        "Desk", (Think,), {"model": ScriptedModel(), "workspace": files, "sub_agents": [notes]}
    ), notes


async def fill(app: App, name: str, *, child: bool = True) -> None:
    cls, notes = app.classes[0], None
    agent = await live(app.agent(cls, name))
    await agent.workspace.write_file_bytes("/large", LARGE)
    await agent.workspace.write_file("/small", "in a row")
    if child:
        notes = cls.sub_agents[0]
        below = await live(await agent.sub_agent(notes, "one"))
        await below.workspace.write_file_bytes("/large", LARGE[::-1])


async def test_erasing_an_agent_deletes_its_objects_and_those_of_its_children(open_app: OpenApp) -> None:
    # Given two agents with large files, one of them with a child
    bucket = MemoryStore()
    cls, _ = desk(bucket)
    app = await open_app(cls)
    await fill(app, "ada")
    await fill(app, "bob", child=False)
    assert len(names(bucket)) == 3

    # When one is erased
    await app.erase(cls, "ada")

    # Then nothing of it is left there either, and the other has what it had
    assert [name.split("/")[1] for name in names(bucket)] == ["Desk%2Fbob"]
    assert await (await live(app.agent(cls, "bob"))).workspace.read_file_bytes("/large") == LARGE


async def test_erasing_a_child_leaves_the_objects_of_its_parent(open_app: OpenApp) -> None:
    bucket = MemoryStore()
    cls, notes = desk(bucket)
    app = await open_app(cls)
    await fill(app, "ada")
    await app.erase(cls, "ada", (notes, "one"))
    assert [name.split("/")[1] for name in names(bucket)] == ["Desk%2Fada"]


async def test_what_has_been_idle_for_too_long_takes_its_objects_along(tmp_path: Path) -> None:
    bucket, clock = MemoryStore(), ManualClock()
    cls, _ = desk(bucket)
    app = App(cls, store=f"sqlite:///{tmp_path}/a.db", clock=clock, retention="30 days", idle_after=60.0)
    async with app:
        await fill(app, "ada", child=False)
        directory = await app.open()
        for seconds in (60, 60, 700, 31 * DAY, 700, 700):
            await clock.advance(seconds)
            while directory._leaving or (directory._sweeping is not None and not directory._sweeping.done()):
                for task in [*directory._leaving.values(), directory._sweeping]:
                    if task is not None:
                        await task
        assert await directory.store.fetch("SELECT name FROM agents") == []
    assert names(bucket) == []


async def test_a_store_that_does_not_answer_keeps_the_agent_to_be_erased_again(
    open_app: OpenApp,
) -> None:
    # Given an object store that cannot be reached for a while
    bucket = MemoryStore()
    cls, _ = desk(bucket)
    app = await open_app(cls)
    await fill(app, "ada", child=False)
    reached = cls.workspace
    away = S3Store(
        "bucket",
        endpoint="http://127.0.0.1:9",
        access_key_id="k",
        secret_access_key="s",
        region="r",
        client_options={"allow_http": True},
        retry_config={"max_retries": 0},
    )
    cls.workspace = Workspace(objects=away, prefix="files", spill_from=100)

    # When the agent is erased, that is told, and everything is there
    with pytest.raises(WorkspaceError, match="object store of the workspace could not be listed"):
        await app.erase(cls, "ada")
    cls.workspace = reached
    assert await (await live(app.agent(cls, "ada"))).workspace.read_file_bytes("/large") == LARGE

    # And it can be erased later
    assert await app.erase(cls, "ada") > 0
    assert names(bucket) == []


async def test_objects_of_which_nobody_knows_where_they_are_keep_an_agent_from_being_erased(
    open_app: OpenApp,
) -> None:
    cls, _ = desk(MemoryStore())
    app = await open_app(cls)
    await fill(app, "ada", child=False)
    await app.close()
    plain = type("Desk", (Think,), {"model": ScriptedModel()})
    app = await open_app(plain)
    with pytest.raises(AgentError, match="1 contents of 'Desk/ada' are in an object store") as told:
        await app.erase(plain, "ada")
    assert "Nothing was erased." in str(told.value)
    assert await (await live(app.agent(plain, "ada"))).workspace.read_file("/small") == "in a row"


def test_the_command_does_not_erase_what_has_objects(tmp_path: Path) -> None:
    import anyio

    cls, _ = desk(MemoryStore())
    store = f"sqlite:///{tmp_path}/a.db"

    async def begin() -> None:
        async with AsyncExitStack() as stack:
            app = await stack.enter_async_context(App(cls, store=store))
            await fill(app, "ada", child=False)

    anyio.run(begin)
    ran = CliRunner().invoke(cli, ["erase", "desk/ada", "--store", store, "--yes"])
    assert ran.exit_code != 0
    assert "object store" in ran.output + str(ran.exception)


# --- exporting


async def exported(app: App, *whom: Any) -> list[dict[str, Any]]:
    return [line async for line in app.export(*whom)]


def content_in(lines: list[dict[str, Any]], hash: str) -> bytes:
    """The bytes of a content, put together from its lines."""
    parts = sorted((one for one in lines if one.get("hash") == hash), key=lambda one: one["part"])
    assert [one["begins"] for one in parts] == [n * PART_BYTES for n in range(len(parts))]
    return b"".join(base64.b64decode(one["content"]) for one in parts)


async def test_an_export_has_the_bytes_of_files_that_are_in_an_object_store(open_app: OpenApp) -> None:
    # Given an agent and its child with large files
    cls, _ = desk(MemoryStore())
    app = await open_app(cls)
    await fill(app, "ada")

    # When it is exported
    contents = [line for line in await exported(app, cls, "ada") if line["kind"] == "content"]

    # Then every file can be made again from the lines, in pieces that are good to hold
    for data in (LARGE, LARGE[::-1]):
        hash = hashlib.sha256(data).hexdigest()
        assert content_in(contents, hash) == data
        assert all(len(line["content"]) <= 4 * PART_BYTES // 3 + 4 for line in contents)
    [small] = [line for line in contents if line["place"] == "row"]
    assert small["content"] == "in a row"


async def test_an_object_that_is_lost_is_said_in_the_export(open_app: OpenApp) -> None:
    bucket = MemoryStore()
    cls, _ = desk(bucket)
    app = await open_app(cls)
    await fill(app, "ada", child=False)
    await _delete(bucket)
    [line] = [line for line in await exported(app, cls, "ada") if line.get("place") == "object"]
    assert line["content"] is None
    assert "not in the object store any more" in line["error"]


async def _delete(bucket: Any) -> None:
    import obstore

    await obstore.delete_async(bucket, names(bucket)[0])


async def test_an_export_of_files_in_rows_makes_them_again(open_app: OpenApp) -> None:
    # Given an agent with texts, bytes, a copy and a link
    cls = type("Desk", (Think,), {"model": ScriptedModel()})
    app = await open_app(cls)
    files = (await live(app.agent(cls, "ada"))).workspace
    await files.write_file("/notes/a.md", "# Ä\n")
    await files.write_file_bytes("/large.bin", LARGE)
    await files.cp("/large.bin", "/copy.bin")
    await files.symlink("/notes/a.md", "/link")

    # When whoever has the export puts them somewhere else
    lines = await exported(app, cls, "ada")
    made: dict[str, bytes] = {}
    for file in (line for line in lines if line["kind"] == "file" and line["hash"]):
        parts = sorted(
            (one for one in lines if one["kind"] == "content" and one["hash"] == file["hash"]),
            key=lambda one: one["part"],
        )
        made[file["path"]] = b"".join(
            one["content"].encode() if one["encoding"] == "utf8" else base64.b64decode(one["content"])
            for one in parts
        )

    # Then they are the same
    assert made == {"/notes/a.md": "# Ä\n".encode(), "/large.bin": LARGE, "/copy.bin": LARGE}
