"""Agents to whom nothing happens are erased after a while, and no others."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from everthink import App, Think
from everthink.errors import AgentError
from everthink.observe.events import Audit, Destroy, Event
from everthink.runtime.directory import Directory
from everthink.store.port import Statement
from everthink.testing import ScriptedModel, says
from everthink.testing.clock import ManualClock

from .lives import (
    SECRET,
    anyio_backend,
    postgres_database,
    postgres_server,
    postgres_url,
    rows_of,
    traces,
    url,
)

__all__ = ["anyio_backend", "postgres_database", "postgres_server", "postgres_url", "url"]

pytestmark = pytest.mark.anyio

MINUTE, DAY = 60.0, 86_400.0


class Room(Think):
    model: Any = ScriptedModel(says("Noted."), repeat=True, records=False)

    async def ring(self, payload: Any) -> None:
        """A timer."""


@pytest.fixture
def clock(anyio_backend: str) -> ManualClock:
    return ManualClock()


def open_app(url: str, clock: ManualClock, **options: Any) -> App:
    given = {"store": url, "clock": clock, "grace": 0.0, "idle_after": MINUTE, "retention": "30 days"}
    return App(Room, **given | options)


async def tidied(app: App, clock: ManualClock, seconds: float = MINUTE) -> None:
    """Let idle agents leave memory and be noted, then let so much time pass, and the directory tidy up."""
    directory: Directory = await app.open()
    for step in (MINUTE, MINUTE, 11 * MINUTE, seconds, 11 * MINUTE):
        await clock.advance(step)
        while directory._leaving or (directory._sweeping is not None and not directory._sweeping.done()):
            tasks = [*directory._leaving.values(), *([directory._sweeping] if directory._sweeping else [])]
            await asyncio.gather(*tasks, return_exceptions=True)
            await asyncio.sleep(0)


async def there(app: App) -> set[str]:
    rows = await (await app.open()).store.fetch("SELECT name FROM agents")
    return {row[0] for row in rows}


async def test_only_the_idle_ones_go_and_it_is_told(url: str, clock: ManualClock, tmp_path: Path) -> None:
    seen: list[Event] = []
    async with open_app(url, clock) as app:
        app.events.subscribe(seen.append)
        for name in ("idle", "busy"):
            await app.agent(Room, name).save_messages(f"Remember {SECRET}" if name == "idle" else "Hello")
        await tidied(app, clock, 20 * DAY)
        assert await there(app) == {"idle", "busy"}
        await app.agent(Room, "busy").save_messages("Still here")
        await tidied(app, clock, 11 * DAY)
        # Then one is over, with every row of it, and the other is as it was
        assert await there(app) == {"busy"}
        assert await rows_of(app, "Room/idle") == {}
        assert len(await app.agent(Room, "busy").get_messages()) == 4
        await app.events.drain()
        assert traces(tmp_path) == {}
    told = [(one.name, one.body) for one in seen if isinstance(one.body, Audit | Destroy)]
    assert told == [("idle", Audit(action="erase", allowed=True, reason="retention")), ("idle", Destroy())]


async def test_an_agent_with_something_to_come_stays(url: str, clock: ManualClock) -> None:
    async with open_app(url, clock) as app:
        await app.agent(Room, "timer").schedule(365 * DAY, "ring")
        await app.agent(Room, "plain").add_messages("hello")
        store = (await app.open()).store
        # Given work of an earlier process that nobody here takes up
        await store.apply(
            [
                Statement(
                    "INSERT INTO agents (agent, class, name, created_at, seen_at) VALUES (?, ?, ?, 0, 0)",
                    (f"Room/{name}", "Room", name),
                )
                for name in ("fiber", "wish")
            ]
        )
        await store.apply(
            [
                Statement(
                    "INSERT INTO fibers (agent, id, seq, name, managed, status, is_open, attempts,"
                    " created_at) VALUES ('Room/fiber', 'f', 1, 'f', 1, 'running', 1, 0, 0)"
                ),
                Statement("INSERT INTO kv (agent, name, value) VALUES ('Room/wish', 'continuation', '{}')"),
            ]
        )
        await tidied(app, clock, 31 * DAY)
        assert await there(app) == {"timer", "fiber", "wish"}


async def outermost(app: App) -> list[str]:
    sql = "SELECT name FROM agents WHERE parent IS NULL ORDER BY name"
    return [name for (name,) in await (await app.open()).store.fetch(sql)]


async def test_a_family_stays_while_something_is_to_come_for_one_of_it(url: str, clock: ManualClock) -> None:
    async with open_app(url, clock) as app:
        for name in ("idle", "timer"):
            middle = await app.agent(Room, name).sub_agent(Room, "middle")
            deep = await middle.sub_agent(Room, "deep")
            await deep.add_messages("hello")
            if name == "timer":
                await deep.schedule(365 * DAY, "ring")
        await tidied(app, clock, 31 * DAY)
        assert await outermost(app) == ["timer"]
        assert await there(app) == {"timer", "middle", "deep"}
        assert await rows_of(app, "Room/idle/sub/Room/middle/sub/Room/deep") == {}


async def test_a_family_stays_when_one_of_it_was_busy(url: str, clock: ManualClock) -> None:
    # Given a child that somebody talked to yesterday, in a process that was killed before it noted that
    async with open_app(url, clock, retention=None) as app:
        for name in ("idle", "busy"):
            await (await app.agent(Room, name).sub_agent(Room, "child")).add_messages("hello")
        await clock.advance(60 * DAY)
        await (await app.agent(Room, "busy").sub_agent(Room, "child")).add_messages("hello again")
        await clock.advance(DAY)
    async with open_app(url, clock) as app:
        await tidied(app, clock)
        assert await outermost(app) == ["busy"]
        await tidied(app, clock, 30 * DAY)
        assert await there(app) == set()


async def test_one_that_is_in_memory_stays(url: str, clock: ManualClock) -> None:
    async with open_app(url, clock, idle_after=None) as app:
        await app.agent(Room, "live").set_state({"a": 1})
        await tidied(app, clock, 40 * DAY)
        assert await there(app) == {"live"}
        # It counts from when it left memory
        await app.evict(Room, "live")
        await tidied(app, clock, 29 * DAY)
        assert await there(app) == {"live"}
        await tidied(app, clock, 2 * DAY)
        assert await there(app) == set()


async def test_a_setting_that_comes_later_spares_who_was_busy_before(url: str, clock: ManualClock) -> None:
    # Given agents of an app that kept everything, one busy until yesterday
    async with open_app(url, clock, retention=None) as app:
        for name in ("old", "busy"):
            await app.agent(Room, name).save_messages("Hello")
        await clock.advance(60 * DAY)
        await app.agent(Room, "busy").save_messages("Hello again")
        await clock.advance(DAY)
    # When it keeps them for thirty days from now on
    async with open_app(url, clock) as app:
        assert await there(app) == {"old", "busy"}
        await tidied(app, clock)
        assert await there(app) == {"busy"}
        await tidied(app, clock, 30 * DAY)
        assert await there(app) == set()


async def test_many_go_in_one_tidying_up(url: str, clock: ManualClock) -> None:
    async with open_app(url, clock) as app:
        store = (await app.open()).store
        await store.apply(
            [
                Statement(
                    "INSERT INTO agents (agent, class, name, created_at, seen_at) VALUES (?, ?, ?, 0, 0)",
                    (f"{cls}/{number}", cls, f"{number}"),
                )
                for cls in ("Room", "Stranger")
                for number in range(120)
            ]
        )
        await tidied(app, clock)
        # Those of classes that this app does not have are left to the one that does
        assert await store.fetch("SELECT class, COUNT(*) FROM agents GROUP BY class") == [("Stranger", 120)]


async def test_one_that_cannot_be_erased_stands_in_nobodys_way(
    tmp_path: Path, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    # Given rows that nobody of ours wrote, of agents that come first: a time that is none, and one agent's
    # row under another's name
    async with open_app(f"sqlite:///{tmp_path}/x.db", clock) as app:
        for name in ("broken", "old"):
            await app.agent(Room, name).add_messages("hello")
        await tidied(app, clock)
        store = (await app.open()).store
        mixed_up = "INSERT INTO agents (agent, class, name, created_at, seen_at) VALUES (?, ?, ?, 0, 0)"
        await store.apply(
            [
                Statement("UPDATE messages SET created_at = 'once' WHERE agent = ?", ("Room/broken",)),
                Statement("UPDATE agents SET seen_at = 1 WHERE agent = ?", ("Room/broken",)),
                Statement(mixed_up, ("Room/somebody", "Room", "else")),
            ]
        )
        # When the time of all of them is over
        await asyncio.wait_for(tidied(app, clock, 31 * DAY), 30)
        # Then those that can go are gone, and it is said of the other
        assert await there(app) == {"broken", "else"}
        assert "Room/broken could not be erased and stays for now" in caplog.text


async def test_without_the_setting_nobody_goes(url: str, clock: ManualClock) -> None:
    async with open_app(url, clock, retention=None) as app:
        await app.agent(Room, "old").add_messages("hello")
        await tidied(app, clock, 10_000 * DAY)
        assert await there(app) == {"old"}


@pytest.mark.parametrize(
    "wrong", [-1, 30, timedelta(0), "0 days", "thirty", "99999999999 days", True, float("nan"), float("inf")]
)
def test_a_setting_that_means_nothing_is_refused(wrong: Any) -> None:
    with pytest.raises(AgentError, match="retention"):
        App(Room, retention=wrong)
