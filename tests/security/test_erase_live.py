"""Erasing an agent while it is awake: it stops, its sockets close, and nothing of it comes back."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from everthink import App, Think, tool
from everthink.cluster.fence import Fence
from everthink.errors import AgentError, StoreClosed, StoreError
from everthink.observe.events import Audit, Destroy, Event
from everthink.runtime import directory, erasing
from everthink.runtime.rpc import exposed
from everthink.store.port import Commit, Rows, Statement
from everthink.testing import ScriptedModel, calls, says
from everthink.testing.clock import ManualClock
from tests.support.agents import live
from tests.support.server import served

from .lives import (
    SECRET,
    Keeper,
    anyio_backend,
    live_through,
    postgres_database,
    postgres_server,
    postgres_url,
    rows_of,
    url,
)

__all__ = ["anyio_backend", "postgres_database", "postgres_server", "postgres_url", "url"]

pytestmark = pytest.mark.anyio


def open_app(url: str, *agents: type[Think], **options: Any) -> App:
    return App(*(agents or (Keeper,)), **{"store": url, "grace": 0.0, "idle_after": None} | options)


class Talker(Think):
    """Answers."""

    model = ScriptedModel.forever(lambda request: says("ok"))


async def test_every_row_goes_and_those_of_others_stay(url: str) -> None:
    async with open_app(url) as app:
        await live_through(app, "ada")
        await live_through(app, "bob")
        before = await rows_of(app, "Keeper/bob")
        gone = await rows_of(app, "Keeper/ada")
        assert await app.erase(Keeper, "ada") >= sum(gone.values()) - gone["segments"]
        assert await rows_of(app, "Keeper/ada") == {}
        assert (await rows_of(app, "Keeper/bob")).keys() == before.keys()
        # A search of the index, not of the rows
        rows = await (await app.open()).store.fetch("SELECT COUNT(*) FROM messages")
        assert rows[0][0] == before["messages"]


async def test_erasing_twice_and_erasing_nobody_is_fine(url: str) -> None:
    async with open_app(url) as app:
        await live_through(app)
        twice = await asyncio.gather(app.erase(Keeper, "ada"), app.erase(Keeper, "ada"))
        assert twice[0] == twice[1] > 0
        assert await app.erase(Keeper, "ada") == 0
        assert await app.erase(Keeper, "never-was") == 0
        assert await rows_of(app, "Keeper/never-was") == {}
        with pytest.raises(AgentError, match="not an agent of this app"):
            await app.erase(type("Stranger", (Think,), {}), "ada")
        with pytest.raises(AgentError, match="name"):
            await app.erase(Keeper, "")


async def test_it_is_told_with_who_asked(url: str) -> None:
    seen: list[Event] = []
    async with open_app(url) as app:
        app.events.subscribe(seen.append)
        await app.agent(Keeper, "ada").add_messages("hello")
        await app.erase(Keeper, "ada", identity={"id": "operator"})
        await app.erase(Keeper, "ada")
        await app.events.drain()
    told = [(one.agent, one.name, one.body) for one in seen if isinstance(one.body, Audit | Destroy)]
    assert told == [
        ("Keeper", "ada", Audit(action="erase", allowed=True, identity={"id": "operator"})),
        ("Keeper", "ada", Destroy()),
        ("Keeper", "ada", Audit(action="erase", allowed=True)),
    ]


async def test_a_turn_in_the_middle_is_cut_and_nothing_it_said_comes_back(url: str) -> None:
    class Talker(Think):
        model = ScriptedModel(says(*["word "] * 500).then_hangs())

    app = open_app(url, Talker)
    async with served(app) as server:
        chat = await server.connect(Talker, "ada")
        await chat.say("talk")
        await chat.until_text("word word")
        await app.erase(Talker, "ada")
        assert await rows_of(app, "Talker/ada") == {}
        # The socket is closed with a code and a reason that say why
        assert await chat.until_closed() == (4410, "Erased")
        assert await rows_of(app, "Talker/ada") == {}


@pytest.mark.parametrize("fails", [False, True])
async def test_sockets_are_told_once_it_is_durable_and_not_before(
    url: str, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    # Given a database that takes its time with the commit that erases
    apply_last, asked, go = Fence.apply_last, asyncio.Event(), asyncio.Event()

    async def slow(fence: Fence, commit: Commit) -> list[Rows]:
        asked.set()
        await go.wait()
        if fails:
            raise StoreError("The disk is full.")
        return await apply_last(fence, commit)

    monkeypatch.setattr(Fence, "apply_last", slow)
    app = open_app(url, Talker)
    async with served(app) as server:
        chat = await server.connect(Talker, "ada")
        await chat.until_done(await chat.say("my diary"))
        erasing = asyncio.ensure_future(app.erase(Talker, "ada"))
        await asked.wait()
        # Then nobody is told while it may still be lost, and nobody is heard
        before = len(chat.frames)
        try:
            await chat.say("one more")
            await (await chat._connection._socket.ping())  # comes after all that was sent before
            assert (chat.closed, len(chat.frames)) == (None, before)
        finally:
            go.set()
            await asyncio.wait([erasing])
        code, _ = await chat.until_closed()
        assert code == (1012 if fails else 4410)
        assert isinstance(erasing.exception(), StoreError) is fails
        assert bool(await rows_of(app, "Talker/ada")) is fails


async def test_a_tool_that_does_not_stop_can_write_nothing_any_more(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("everthink.runtime.directory.STOPPING", 0.05)
    running, go, done = asyncio.Event(), asyncio.Event(), asyncio.Event()
    refused: list[BaseException] = []

    class Stubborn(Think):
        model = ScriptedModel(calls("cling"), says("done"))

        @tool
        async def cling(self) -> str:
            """Do not go."""
            running.set()
            while not go.is_set():
                try:
                    await go.wait()
                except asyncio.CancelledError:
                    continue
            try:
                await self.set_state({"secret": SECRET})
            except StoreError as error:
                refused.append(error)
            done.set()
            return "still here"

    async with open_app(url, Stubborn) as app:
        asked = asyncio.ensure_future(app.agent(Stubborn, "ada").save_messages("go"))
        await running.wait()
        await app.erase(Stubborn, "ada")
        go.set()
        await done.wait()
        await asyncio.gather(asked, return_exceptions=True)
        assert isinstance(refused[0], StoreClosed)
        assert "was erased" in str(refused[0])
        assert await rows_of(app, "Stubborn/ada") == {}


async def test_code_that_kept_the_instance_writes_into_nothing(url: str) -> None:
    async with open_app(url) as app:
        agent: Any = await live(app.agent(Keeper, "ada"))
        await app.erase(Keeper, "ada")
        for late in (
            agent.set_state({"notes": SECRET}),
            agent.save_messages(SECRET),
            agent.add_messages(SECRET),
            agent.schedule(10, "ring", SECRET),
            agent.session.replace_context_block("memory", SECRET),
            agent.submit_messages(SECRET),
        ):
            with pytest.raises(AgentError):
                await late
        assert await rows_of(app) == {}


async def test_commits_on_their_way_do_not_come_after_the_delete(url: str) -> None:
    async with open_app(url) as app:
        agent: Any = await live(app.agent(Keeper, "ada"))
        writes = [asyncio.ensure_future(agent.set_state({"notes": f"{n}"})) for n in range(200)]
        await asyncio.sleep(0)
        erased = await app.erase(Keeper, "ada")
        await asyncio.gather(*writes, return_exceptions=True)
        assert erased
        assert await rows_of(app) == {}


async def test_whoever_reaches_it_meanwhile_waits_and_finds_a_new_one(url: str) -> None:
    async with open_app(url) as app:
        await app.agent(Keeper, "ada").add_messages(SECRET)
        erasing = asyncio.ensure_future(app.erase(Keeper, "ada"))
        await asyncio.sleep(0)
        fresh = await app.agent(Keeper, "ada").get_messages()
        await erasing
        assert fresh == []
        await app.agent(Keeper, "ada").add_messages("hello again")
        assert [m.text for m in await app.agent(Keeper, "ada").get_messages()] == ["hello again"]


async def test_an_agent_that_hangs_in_its_start_can_be_erased(url: str) -> None:
    starting = asyncio.Event()

    class Slow(Think):
        model = ScriptedModel()

        async def on_start(self, props: Any = None) -> None:
            starting.set()
            await asyncio.Event().wait()

    async with open_app(url, Slow) as app:
        reaching = asyncio.ensure_future(app.agent(Slow, "ada").get_messages())
        await starting.wait()
        await app.erase(Slow, "ada")
        with pytest.raises(AgentError, match="was erased while it started"):
            await reaching
        assert await rows_of(app, "Slow/ada") == {}


async def test_an_agent_may_erase_itself_in_the_middle_of_a_turn(url: str) -> None:
    holder: list[App] = []

    class Lemming(Think):
        model = ScriptedModel(calls("jump"), says("never said"))

        @tool
        async def jump(self) -> str:
            """Away."""
            await holder[0].erase(Lemming, self.name)
            return "still here"

    async with open_app(url, Lemming) as app:
        holder.append(app)
        with pytest.raises(AgentError):
            await app.agent(Lemming, "ada").save_messages("jump")
        while (await app.open())._erasing:
            await asyncio.wait((await app.open())._erasing.values())
        assert await rows_of(app, "Lemming/ada") == {}


async def test_a_timer_that_was_due_does_not_bring_it_back(url: str) -> None:
    clock = ManualClock()
    rung: list[str] = []

    class Clockwork(Think):
        model = ScriptedModel()

        async def ring(self, payload: Any) -> None:
            rung.append(self.name)

    async with open_app(url, Clockwork, clock=clock) as app:
        for name in ("ada", "bob"):
            await app.agent(Clockwork, name).schedule(60, "ring")
        await app.erase(Clockwork, "ada")
        waker = (await app.open()).waker
        waker.wake_at(clock.now_ms() + 60_000, "Clockwork/ada")  # as a fiber would have asked for
        await clock.advance(61)
        await waker.idle()
        assert rung == ["bob"]
        assert await rows_of(app, "Clockwork/ada") == {}


async def test_a_failing_database_keeps_everything_and_says_so(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_app(url) as app:
        await app.agent(Keeper, "ada").add_messages(SECRET)

        # Given a last statement that the database refuses
        def broken(agent: str, **options: bool) -> list[Statement]:
            return [*erasing.erased(agent, **options), Statement("DELETE FROM nowhere")]

        monkeypatch.setattr(directory, "erased", broken)
        with pytest.raises(StoreError):
            await app.erase(Keeper, "ada")
        # Then nothing is lost, and it answers again
        assert [m.text for m in await app.agent(Keeper, "ada").get_messages()] == [SECRET]


async def test_a_tab_that_comes_back_and_only_looks_brings_nothing_back(url: str) -> None:
    class Plain(Think):
        model = ScriptedModel(says("Noted."))

    app = open_app(url, Plain)
    async with served(app) as server:
        chat = await server.connect(Plain, "ada")
        await chat.until_done(await chat.say(SECRET))
        await app.erase(Plain, "ada")
        await chat.until_closed()
        again = await server.connect(Plain, "ada", resumes=True)
        shown = await again.until_frame("chat_messages")
        assert shown["messages"] == []
        assert (await server.http("/agents/plain/ada/get-messages")).json == []
        await again.close()
        assert await rows_of(app, "Plain/ada") == {}


async def test_a_socket_that_is_just_joining_is_closed_as_well(url: str) -> None:
    joining, go = asyncio.Event(), asyncio.Event()

    class Door(Think):
        model = ScriptedModel()

        async def should_connection_be_readonly(self, connection: Any, request: Any) -> bool:
            joining.set()
            await go.wait()
            return False

        @exposed
        def ping(self) -> str:
            return "pong"

    app = open_app(url, Door)
    async with served(app) as server:
        chat = await server.connect(Door, "ada")
        await joining.wait()
        await app.erase(Door, "ada")
        go.set()
        assert await chat.until_closed() == (4410, "Erased")
