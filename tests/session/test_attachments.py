"""What left old messages is a file of the workspace: read by the model, taken back by nobody, gone with the
conversation."""

from __future__ import annotations

import asyncio
import base64
import hashlib
from pathlib import Path
from typing import Any, cast

import pytest

from everthink import App, Think
from everthink.clock import Clock
from everthink.messages import Message
from everthink.models.port import FilePart
from everthink.open_store import open_store
from everthink.runtime.actor import Actor
from everthink.runtime.schema import MIGRATIONS
from everthink.store.port import AgentStore, Statement
from everthink.testing import ManualClock
from everthink.testing.scripted import ScriptedModel, calls, says
from everthink.workspace import DiskFiles, Workspace, WorkspaceLimits
from tests.conftest import OpenApp
from tests.file_tools.support import results_in
from tests.support.agents import assistant
from tests.support.memory import said
from tests.support.postgres import empty_postgres_url
from tests.support.turns import home_of

__all__ = ["empty_postgres_url"]

pytestmark = pytest.mark.anyio

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 200
WHERE = "/attachments/evicted/p-0.png"
DAY = 24 * 60 * 60


def picture(id: str, data: bytes = PNG) -> Message:
    url = "data:image/png;base64," + base64.b64encode(data).decode()
    return Message(id, "user", [{"type": "file", "mediaType": "image/png", "url": url}])


async def opened(
    open_app: OpenApp, store: str, *plays: Any, clock: Clock | None = None, **members: Any
) -> tuple[Actor, ScriptedModel]:
    model = ScriptedModel(*plays)
    cls = assistant(
        model,
        media_eviction={"keep_recent_messages": 4, "min_part_bytes": 1000},
        include_workspace_tools=True,
        **members,
    )
    return await home_of(await open_app(cls, store=store, clock=clock), cls), model


async def evict(home: Actor, data: bytes = PNG) -> None:
    """Let a picture leave its message, `p`."""
    session = home.chat.session
    await session.write(session.plan_append([picture("p", data), *(said(f"s{n}") for n in range(4))]))
    await evict_again(home)


async def evict_again(home: Actor) -> None:
    from everthink.session.media import eviction_of

    settings = eviction_of(home.agent.media_eviction)
    assert settings is not None
    await home.chat.evictor.run_pass(settings)


def shown(model: ScriptedModel) -> list[str]:
    """The pictures that results in the prompt showed."""
    return [
        part.url
        for result in results_in(model.last_request)
        for part in cast("list[Any]", result.content or [])
        if isinstance(part, FilePart)
    ]


async def hashes(home: Actor) -> set[str]:
    return {row[0] for row in await home.store.fetch("SELECT hash FROM contents WHERE agent = :agent")}


# --- who sees them


@pytest.mark.parametrize("place", ["own rows", "a directory"])
async def test_the_model_reads_what_left_a_message_wherever_its_workspace_is(
    store_url: str, open_app: OpenApp, tmp_path: Path, place: str
) -> None:
    # Given a picture that has left its message
    (tmp_path / "shared").mkdir()
    members = {} if place == "own rows" else {"workspace": Workspace(DiskFiles(tmp_path / "shared"))}
    read = calls("read", {"path": WHERE})
    home, model = await opened(open_app, store_url, read, says("A gradient."), **members)
    await evict(home)

    # When the model reads what the marker names
    await home.agent.save_messages("What was it?")

    # Then it sees the picture, now and later
    url = "data:image/png;base64," + base64.b64encode(PNG).decode()
    for _ in range(2):
        assert url in shown(model)
        model.add(says("Yes."))
        await home.agent.save_messages("Sure?")
    # And nobody else's files have it: what is said to an agent stays with it
    assert not list((tmp_path / "shared").rglob("*.png"))


async def test_it_is_listed_among_the_files(store_url: str, open_app: OpenApp) -> None:
    home, _ = await opened(open_app, store_url)
    await evict(home)
    [entry] = await home.workspace.glob("/attachments/**/*.png")
    assert (entry.path, entry.size, entry.media_type) == (WHERE, len(PNG), "image/png")


async def test_neither_undo_nor_restore_takes_it_from_its_message(store_url: str, open_app: OpenApp) -> None:
    home, _ = await opened(open_app, store_url)
    await home.workspace.write_file("/a", "one")
    await evict(home)
    assert [change.path for change in await home.workspace.changes()] == ["/a"]
    await home.workspace.restore(0)
    assert not await home.workspace.exists("/a")
    assert await home.agent.read_attachment(WHERE) == PNG


async def test_a_file_that_is_there_already_is_not_written_over(store_url: str, open_app: OpenApp) -> None:
    home, _ = await opened(open_app, store_url)
    await home.workspace.write_file(WHERE, "mine")
    await evict(home)
    marker = home.chat.session.path[0].parts[0]["text"]
    assert "preserved at /attachments/evicted/p~n1-0.png]" in marker
    assert await home.workspace.read_file(WHERE) == "mine"
    assert await home.agent.read_attachment("/attachments/evicted/p~n1-0.png") == PNG


async def test_what_no_name_is_left_for_stays_in_its_message(store_url: str, open_app: OpenApp) -> None:
    home, _ = await opened(open_app, store_url)
    await home.workspace.write_file("/attachments/evicted", "a file, where the folder would be")
    await evict(home)
    assert home.chat.session.path[0].parts == picture("p").parts


async def test_it_counts_as_a_file_and_is_kept_beyond_the_limits(store_url: str, open_app: OpenApp) -> None:
    limits = WorkspaceLimits(file_bytes=1000, files_bytes=2000)
    home, _ = await opened(open_app, store_url, workspace=Workspace(limits=limits))
    await evict(home)
    assert await home.agent.read_attachment(WHERE) == PNG
    with pytest.raises(Exception, match="files_bytes"):
        await home.workspace.write_file("/a", "one more")
    await home.agent.clear_messages()
    await home.workspace.write_file("/a", "now there is room")


@pytest.mark.parametrize("path", ["/notes.md", "/attachments/evicted", "../..", "", "/attachments/evicted/x"])
async def test_read_attachment_reads_nothing_else(store_url: str, open_app: OpenApp, path: str) -> None:
    home, _ = await opened(open_app, store_url)
    await home.workspace.write_file("/notes.md", "mine")
    await evict(home)
    assert await home.agent.read_attachment(path) is None


# --- what goes with a conversation


async def test_a_cleared_conversation_leaves_no_byte(store_url: str, open_app: OpenApp) -> None:
    # Given a picture in the conversation, which the model has moved and put back
    home, _ = await opened(open_app, store_url)
    await evict(home)
    await home.workspace.mv(WHERE, "/elsewhere.png")
    await home.workspace.mv("/elsewhere.png", WHERE)
    await home.workspace.write_file("/mine", "stays")

    # When it is cleared
    await home.agent.clear_messages()

    # Then the file, its bytes and its folder are gone, and others are not
    assert [entry.path for entry in await home.workspace.glob("/**")] == ["/attachments", "/mine"]
    assert hashlib.sha256(PNG).hexdigest() in await hashes(home)  # /elsewhere.png may be brought back
    await home.workspace.rm("/mine")
    await evict(home, PNG[::-1])
    await home.agent.clear_messages()
    assert hashlib.sha256(PNG[::-1]).hexdigest() not in await hashes(home)


async def test_what_the_model_copied_from_it_stays(store_url: str, open_app: OpenApp) -> None:
    home, _ = await opened(open_app, store_url)
    await evict(home)
    await home.workspace.cp(WHERE, "/album/mine.png")
    await home.agent.clear_messages()
    assert await home.workspace.read_file_bytes("/album/mine.png") == PNG
    assert await home.agent.read_attachment(WHERE) is None


async def test_a_deleted_session_takes_its_files_along(store_url: str, open_app: OpenApp) -> None:
    home, _ = await opened(open_app, store_url)
    agent: Think = home.agent
    other = await agent.sessions.create("other")
    await agent.sessions.open(other.id)
    await evict(home)
    where = f"/attachments/evicted/{other.id}/p-0.png"
    assert await agent.read_attachment(where) == PNG
    await agent.sessions.open("")
    await agent.sessions.delete(other.id)
    assert await agent.read_attachment(where) is None
    assert await hashes(home) == set()


async def test_what_a_process_did_not_get_to_remove_the_next_one_does(
    store_url: str, open_app: OpenApp
) -> None:
    # Given a conversation that was cleared by a process which went no further than that commit
    model = ScriptedModel()
    cls = assistant(model, media_eviction={"keep_recent_messages": 4, "min_part_bytes": 1000})
    async with App(cls, store=store_url, idle_after=None) as app:
        home = await home_of(app, cls)
        await evict(home)
        await home.chat._cleared()
        assert hashlib.sha256(PNG).hexdigest() in await hashes(home)

    # When the next one starts, and nobody asks for the agent
    app = await open_app(cls, store=store_url)
    directory = await app.open()
    await directory.waker.idle()
    [agent] = directory._live
    again = await directory.reach(agent)
    while again._tasks:
        await asyncio.wait(set(again._tasks))

    # Then nothing of it is left, and nothing is owed
    assert await hashes(again) == set()
    assert await again.store.fetch("SELECT name FROM kv WHERE agent = :agent AND name = 'sweep'") == []


# --- sweeping by itself


async def test_a_picture_that_only_the_history_shows_is_never_forgotten(
    store_url: str, open_app: OpenApp
) -> None:
    # Given a picture that the model has seen, and that is gone from the files and from the log
    plays = [calls("read", {"path": "/p.png"}), says("Nice."), says("Still nice.")]
    limits, clock = Workspace(limits=WorkspaceLimits(history=1)), ManualClock()
    home, model = await opened(open_app, store_url, *plays, clock=clock, workspace=limits)
    await home.workspace.write_file_bytes("/p.png", PNG)
    await home.agent.save_messages("Look")
    await home.workspace.rm("/p.png")
    for n in range(3):
        await clock.advance(1)
        await home.workspace.write_file("/a", str(n))

    # When what nothing names is swept away
    await home.workspace.sweep()
    assert len(await home.workspace.changes()) < 4

    # Then the model still sees it, also in a process that has to read it anew
    home.chat.host.views.forget()
    await home.agent.save_messages("And?")
    assert "data:image/png;base64," + base64.b64encode(PNG).decode() in shown(model)
    # And it goes with the conversation that named it
    await home.agent.clear_messages()
    assert hashlib.sha256(PNG).hexdigest() not in await hashes(home)


async def test_a_start_sweeps_once_a_day(tmp_path: Path) -> None:
    # Given an agent with bytes that nothing names
    clock, store = ManualClock(), f"sqlite:///{tmp_path}/daily.db"
    cls = assistant(ScriptedModel(), workspace=Workspace(limits=WorkspaceLimits(history=1)))

    async def left(*, add: str | None = None) -> int:
        """How many contents a start leaves."""
        async with App(cls, store=store, clock=clock, idle_after=None) as app:
            home = await home_of(app, cls)
            while home._tasks:
                await asyncio.wait(set(home._tasks))
            count = len(await hashes(home))
            if add is not None:
                for n in range(3):
                    await clock.advance(1)
                    await home.workspace.write_file("/a", f"{add} {n}")
            return count

    await left(add="first")

    # When it starts, starts again on the same day, and on the next
    assert await left(add="second") == 2  # what is there, and what was before the last change
    same_day = await left()
    await clock.advance(DAY)
    next_day = await left()

    # Then it was swept once a day
    assert (same_day, next_day) == (5, 2)


# --- databases of before


def test_nothing_is_left_of_the_table() -> None:
    from everthink.runtime.erasing import TABLES

    assert "attachments" not in {table.name for table in TABLES}


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
async def test_the_files_of_earlier_databases_move_over(
    request: pytest.FixtureRequest, tmp_path: Path, engine: str
) -> None:
    # Given a database with the table of before: small and large files, of two agents and a session
    url = f"sqlite:///{tmp_path}/old.db"
    if engine == "postgres":
        url = request.getfixturevalue("empty_postgres_url")
    large, odd = bytes(range(256)) * 9_000 + b"end", bytes(1 << 20)
    given = [
        ("A/ann", "/attachments/evicted/a-0.png", "", PNG),
        ("A/ann", "/attachments/evicted/s1/a-0.bin", "s1", large),
        ("A/ann", "/attachments/evicted/b-0.txt", "", b""),
        ("A/bob", "/attachments/evicted/a-0.bin", "", odd),
    ]
    before = await open_store(url, [one for one in MIGRATIONS if one.number < 20])
    await before.apply(
        [
            Statement(
                "INSERT INTO attachments (agent, path, session, media_type, size, content, created_at)"
                " VALUES (?, ?, ?, 'image/png', ?, ?, 7)",
                (agent, path, session, len(data), base64.b64encode(data).decode()),
            )
            for agent, path, session, data in given
        ]
    )
    await before.close()

    # When this release opens it
    store = await open_store(url, MIGRATIONS)
    try:
        # Then they are files, as if they had been written today
        for agent, path, _, data in given:
            files = Workspace().bind(AgentStore(store, agent), clock=ManualClock())
            entry = await files.stat(path)
            assert entry is not None
            assert (entry.size, entry.hash) == (len(data), hashlib.sha256(data).hexdigest())
            assert await files.read_file_bytes(path) == data
            assert await files.read_file_bytes(path, start=786_000, length=900) == data[786_000:786_900]
            stream = await files.read_file_stream(path)
            assert stream is not None
            assert b"".join([piece async for piece in stream]) == data
        ann = Workspace().bind(AgentStore(store, "A/ann"), clock=ManualClock())
        assert [entry.path for entry in await ann.glob("/**")] == [
            "/attachments",
            "/attachments/evicted",
            "/attachments/evicted/a-0.png",
            "/attachments/evicted/b-0.txt",
            "/attachments/evicted/s1",
            "/attachments/evicted/s1/a-0.bin",
        ]
        await ann.write_file_bytes("/again.bin", large)
        assert await ann.read_file_bytes("/again.bin") == large
        await ann.rm("/attachments", recursive=True)
        await ann.restore(1)
        assert await ann.read_file_bytes("/attachments/evicted/s1/a-0.bin") == large
    finally:
        await store.close()
