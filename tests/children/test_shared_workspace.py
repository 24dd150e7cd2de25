"""A child works in its parent's files: one tree, one lock, one log, and what goes with whom."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path
from typing import Any

import pytest

from everthink import App, Think
from everthink.errors import AgentError, WorkspaceError
from everthink.testing import ManualClock, ScriptedModel
from everthink.testing.scripted import calls, says
from everthink.workspace import DiskFiles, ParentWorkspace, Workspace, WorkspaceLimits
from tests.conftest import OpenApp
from tests.support.agents import live

pytestmark = pytest.mark.anyio


def family(
    *, parent: list[Any] | None = None, child: list[Any] | None = None, **members: Any
) -> tuple[type[Think], type[Think]]:
    """A parent, and a child that works in its files."""
    researcher = type(
        "Researcher", (Think,), {"model": ScriptedModel(*(child or [])), "workspace": ParentWorkspace()}
    )
    desk = type(
        "Desk",
        (Think,),
        {"model": ScriptedModel(*(parent or [])), "sub_agents": [researcher], **members},
    )
    return desk, researcher


async def both(app: App) -> tuple[Any, Any]:
    """The two of them, in memory."""
    desk = await live(app.agent(app.classes[0], "ada"))
    return desk, await live(await desk.sub_agent(app.classes[0].sub_agents[0], "notes"))


async def test_what_one_writes_the_other_reads(open_app: OpenApp) -> None:
    desk, notes = await both(await open_app(*family()[:1]))
    await desk.workspace.write_file("/plan", "ours")
    assert await notes.workspace.read_file("/plan") == "ours"
    await notes.workspace.write_file("/found", "a fact")
    assert await desk.workspace.read_file("/found") == "a fact"
    assert [change.seq for change in await desk.workspace.changes()] == [1, 2]
    assert await desk.workspace.changes() == await notes.workspace.changes()


async def test_a_grandchild_works_in_the_files_of_the_first_that_has_some(open_app: OpenApp) -> None:
    clerk = type("Clerk", (Think,), {"model": ScriptedModel(), "workspace": ParentWorkspace()})
    desk_class, notes_class = family()
    notes_class.sub_agents = [clerk]
    desk, notes = await both(await open_app(desk_class))
    below = await live(await notes.sub_agent(clerk, "c"))
    await below.workspace.write_file("/a", "from far below")
    assert await desk.workspace.read_file("/a") == "from far below"


async def test_a_class_that_is_nobodys_child_has_files_of_its_own(open_app: OpenApp) -> None:
    desk_class, notes_class = family()
    app = await open_app(desk_class, notes_class)
    alone = await live(app.agent(notes_class, "alone"))
    await alone.workspace.write_file("/a", "mine")
    other = await live(app.agent(notes_class, "other"))
    assert await other.workspace.read_file("/a") is None


async def test_limits_and_places_are_those_of_the_parent(open_app: OpenApp, tmp_path: Path) -> None:
    _, notes = await both(
        await open_app(family(workspace=Workspace(limits=WorkspaceLimits(file_bytes=5)))[0])
    )
    with pytest.raises(WorkspaceError, match="file_bytes"):
        await notes.workspace.write_file("/a", "too long")
    (tmp_path / "shared").mkdir()
    (tmp_path / "second").mkdir()
    cls, _ = family(workspace=Workspace(DiskFiles(tmp_path / "shared")))
    _, notes = await both(await open_app(cls, store=f"sqlite:///{tmp_path}/second/a.db"))
    await notes.workspace.write_file("/a", "there")
    assert (tmp_path / "shared" / "a").read_text() == "there"


async def test_two_who_add_to_one_file_at_once_both_succeed(open_app: OpenApp) -> None:
    desk, notes = await both(await open_app(family()[0]))
    await asyncio.gather(
        *(one.workspace.append_file("/log", f"{n}\n") for n in range(20) for one in (desk, notes))
    )
    text = await desk.workspace.read_file("/log")
    assert sorted(text.split()) == sorted(str(n) for n in range(20) for _ in range(2))
    assert [change.seq for change in await notes.workspace.changes()] == list(range(1, 41))


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
async def test_what_the_childs_model_writes_names_the_childs_turn_and_can_be_undone(
    open_app: OpenApp, request: pytest.FixtureRequest, engine: str
) -> None:
    # Given a file of the parent that a tool of the child replaces
    cls, _ = family(child=[calls("write", {"path": "/plan", "content": "its own"}), says("Done.")])
    options = {} if engine == "sqlite" else {"store": request.getfixturevalue("postgres_url")}
    desk, notes = await both(await open_app(cls, **options))
    await desk.workspace.write_file("/plan", "ours")
    await notes.save_messages("Rewrite the plan")

    # Then the change is the child's, in the parent's log, and its call is settled with it
    [_, change] = await desk.workspace.changes()
    [turn] = await notes._home.store.fetch("SELECT id FROM turns WHERE agent = :agent")
    [call] = await notes._home.store.fetch("SELECT call_id, state FROM calls WHERE agent = :agent")
    assert (change.path, change.turn, change.call_id) == ("/plan", turn[0], call[0])
    assert call[1] == "done"

    # And either of them takes it back, and that back
    await desk.workspace.undo(turn=turn[0])
    assert await notes.workspace.read_file("/plan") == "ours"
    await notes.workspace.restore(2)
    assert await desk.workspace.read_file("/plan") == "its own"


async def test_a_deleted_child_leaves_the_files_and_an_erased_parent_takes_them(open_app: OpenApp) -> None:
    cls, notes_class = family()
    app = await open_app(cls)
    desk, notes = await both(app)
    await notes.workspace.write_file("/found", "a fact")
    kept = notes.workspace
    await desk.delete_sub_agent(notes_class, "notes")
    assert await desk.workspace.read_file("/found") == "a fact"
    with pytest.raises(AgentError, match="erased"):
        await kept.write_file("/late", "by nobody")
    assert not await desk.workspace.exists("/late")

    await app.erase(cls, "ada")
    store = (await app.open()).store
    assert await store.fetch("SELECT agent FROM files") == []
    assert await store.fetch("SELECT agent FROM contents") == []


async def test_a_picture_that_the_child_was_shown_is_not_swept_from_its_parent(open_app: OpenApp) -> None:
    # Given a picture that only the child's conversation names
    png = b"\x89PNG\r\n\x1a\n" + bytes(90)
    cls, _ = family(
        child=[calls("read", {"path": "/p.png"}), says("A cat.")],
        workspace=Workspace(limits=WorkspaceLimits(history=1)),
    )
    clock = ManualClock()
    desk, notes = await both(await open_app(cls, clock=clock))
    await desk.workspace.write_file_bytes("/p.png", png)
    await notes.save_messages("What is it?")
    await desk.workspace.rm("/p.png")
    for n in range(3):
        await clock.advance(1)
        await desk.workspace.write_file("/a", str(n))

    # When the parent's files are swept
    await desk.workspace.sweep()
    assert len(await desk.workspace.changes()) == 1

    # Then it is there for the child
    assert await notes.workspace.read_content(hashlib.sha256(png).hexdigest()) == png


async def test_what_left_the_childs_messages_is_the_childs(open_app: OpenApp) -> None:
    """Only whoever was told something has it: it is in the child's own rows, and its model reads it there."""
    import base64

    from everthink import Message
    from everthink.memory import MediaEviction

    png = b"\x89PNG\r\n\x1a\n" + bytes(9000)
    where = "/attachments/evicted/p-0.png"
    cls, _ = family(child=[calls("read", {"path": where}), says("A cat.")])
    desk, notes = await both(await open_app(cls))
    url = "data:image/png;base64," + base64.b64encode(png).decode()
    await notes.add_messages([Message("p", "user", [{"type": "file", "mediaType": "image/png", "url": url}])])
    await notes.add_messages([Message(f"m{n}", "user", [{"type": "text", "text": "hm"}]) for n in range(4)])
    await notes._home.chat.evictor.run_pass(MediaEviction(keep_recent_messages=4, min_part_bytes=1000))
    assert await notes.read_attachment(where) == png
    assert not await desk.workspace.exists(where)
    await notes.save_messages("What was it?")
    [part] = [one for message in notes.messages for one in message.parts if one["type"] == "tool-read"]
    assert part["output"]["kind"] == "image"
