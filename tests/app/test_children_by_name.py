"""Children are exported, evicted, released and erased by an app: by their names, or by a handle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from everthink import App, Think
from everthink.errors import AgentError, AgentSetAside
from everthink.recovery import suspects
from everthink.recovery.suspects import Suspect
from everthink.store.port import AgentStore
from everthink.testing import ScriptedModel, says
from tests.conftest import OpenApp

pytestmark = pytest.mark.anyio


class Scout(Think):
    """It stands two levels below."""

    model = ScriptedModel(says("Nothing there."), repeat=True)


class Researcher(Think):
    """A child."""

    model = ScriptedModel(says("Found."), repeat=True)
    sub_agents = (Scout,)


class Assistant(Think):
    """The outermost."""

    model = ScriptedModel(says("Hello."), repeat=True)
    sub_agents = (Researcher,)


class Stranger(Think):
    """Nobody's child."""


NOTES = (Researcher, "notes")
FAR = (Scout, "far")


@pytest.fixture
async def app(open_app: OpenApp, anyio_backend: str) -> App:
    """A family of three, with two researchers."""
    app = await open_app(Assistant)
    room: Any = app.agent(Assistant, "room-1")
    await room.save_messages("Hi")
    for name in ("notes", "other"):
        child: Any = await room.sub_agent(Researcher, name)
        await child.save_messages(f"Remember {name}")
        await (await child.sub_agent(Scout, "far")).save_messages("Go")
    return app


async def exported(app: App, *whom: Any) -> list[dict[str, Any]]:
    """All that is exported."""
    return [line async for line in app.export(*whom)]


async def has(app: App, name: str) -> bool:
    """True when there is such a researcher."""
    return await app.agent(Assistant, "room-1").has_sub_agent(Researcher, name)


async def test_a_child_is_exported_alone_by_its_names_and_by_a_handle(app: App) -> None:
    named = await exported(app, Assistant, "room-1", NOTES)
    handle = await app.agent(Assistant, "room-1").sub_agent(Researcher, "notes")
    assert (await exported(app, handle))[1:] == named[1:]
    words = str(named)
    assert "Remember notes" in words
    assert "Nothing there." in words  # what is below it as well
    assert "Remember other" not in words
    assert "Hi" not in [part.get("text") for line in named for part in _parts(line)]


async def test_one_two_levels_below_is_named_by_all_on_the_way(app: App) -> None:
    words = str(await exported(app, Assistant, "room-1", NOTES, FAR))
    assert "Nothing there." in words
    assert "Remember" not in words


async def test_an_outermost_agent_may_be_given_as_a_handle(app: App) -> None:
    assert await exported(app, app.agent(Assistant, "room-1"))
    assert await app.erase(app.agent(Assistant, "room-1")) > 0
    assert not await has(app, "notes")


@pytest.mark.parametrize("by", ["names", "handle"])
async def test_a_child_is_erased_with_all_below_it_and_its_parent_stays(app: App, by: str) -> None:
    room: Any = app.agent(Assistant, "room-1")
    whom: list[Any] = [Assistant, "room-1", NOTES]
    if by == "handle":
        whom = [await room.sub_agent(Researcher, "notes")]
    assert await app.erase(*whom) > 0
    assert not await has(app, "notes")
    assert await has(app, "other")
    assert [message.text for message in await room.get_messages()] == ["Hi", "Hello."]
    store = (await app.open()).store
    left = await store.fetch("SELECT agent FROM agents WHERE agent LIKE '%/notes%'")
    assert left == []
    assert await app.erase(Assistant, "room-1", NOTES) == 0  # as for one that never was


async def test_a_child_leaves_memory_alone(app: App) -> None:
    directory = await app.open()
    room = directory.address(Assistant, "room-1")
    notes = room.child("Researcher", "notes")
    assert directory.live(notes) is not None
    await app.evict(Assistant, "room-1", NOTES)
    assert directory.live(notes) is None
    assert directory.live(room) is not None
    assert directory.live(notes.child("Scout", "far")) is not None
    child: Any = await app.agent(Assistant, "room-1").sub_agent(Researcher, "notes")
    await app.evict(child)
    assert directory.live(notes) is None
    assert [message.text for message in await child.get_messages()] == ["Remember notes", "Found."]


@pytest.mark.parametrize(
    "whom", [(Assistant, "room-1", NOTES), (Assistant, "room-1")], ids=["alone", "with its parent"]
)
async def test_a_child_that_was_set_aside_is_released(tmp_path: Path, whom: tuple[Any, ...]) -> None:
    store = f"sqlite:///{tmp_path}/everthink.db"
    async with App(Assistant, store=store, grace=0.0) as app:
        room: Any = app.agent(Assistant, "room-1")
        await (await room.sub_agent(Researcher, "notes")).save_messages("Hi")
        directory = await app.open()
        notes = directory.address(Assistant, "room-1").child("Researcher", "notes")
        aside = Suspect(agent=notes.id, strikes=3, what="its start", is_aside=True)
        await AgentStore(directory.store, notes.id).apply([suspects.put_aside(aside)])
    async with App(Assistant, store=store, grace=0.0) as app:
        room = app.agent(Assistant, "room-1")
        with pytest.raises(AgentSetAside):  # so there can be no handle of it
            await room.sub_agent(Researcher, "notes")
        assert await app.release(Assistant, "room-1", (Researcher, "other")) == []
        assert await app.release(*whom) == [""]
        child: Any = await room.sub_agent(Researcher, "notes")
        assert len(await child.get_messages()) == 2


@pytest.mark.parametrize(
    ("whom", "words"),
    [
        pytest.param((Assistant, "room-1", (Stranger, "x")), "has no children", id="unknown class"),
        pytest.param((Stranger, "x"), "is not an agent of this app", id="unknown outermost class"),
        pytest.param((Assistant, "room-1", Researcher, "notes"), "Write a pair", id="no pair"),
        pytest.param((Assistant, "room-1", ("Researcher", "notes")), "Write a pair", id="a name of a class"),
        pytest.param((Assistant, "room-1", (Researcher, 3)), "name is text", id="no name"),
        pytest.param((Assistant,), "is given no name", id="a class alone"),
        pytest.param(("assistant", "room-1"), "in the place of an agent class", id="a text"),
    ],
)
@pytest.mark.parametrize("method", ["export", "erase", "evict", "release"])
async def test_whom_nobody_can_be_is_told_in_words(
    app: App, method: str, whom: tuple[Any, ...], words: str
) -> None:
    called = exported(app, *whom) if method == "export" else getattr(app, method)(*whom)
    with pytest.raises(AgentError, match=words):
        await called
    assert await has(app, "notes")


async def test_a_handle_says_who_is_meant_and_takes_no_name(app: App) -> None:
    with pytest.raises(AgentError, match=r"Write app\.erase\(handle\)"):
        await app.erase(app.agent(Assistant, "room-1"), "notes")


async def test_a_child_that_there_is_not_cannot_be_exported(app: App) -> None:
    with pytest.raises(AgentError, match="There is no Researcher 'none' below Assistant/room-1"):
        await exported(app, Assistant, "room-1", (Researcher, "none"))
    assert not await has(app, "none")


def _parts(line: dict[str, Any]) -> list[dict[str, Any]]:
    content = line.get("content")
    return content["parts"] if isinstance(content, dict) and "parts" in content else []
