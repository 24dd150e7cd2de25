"""Who is dead and who is not: leases, locks, and loops that stand still."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import asyncpg
import pytest

from everthink import App, Think
from everthink.errors import AgentElsewhere, AgentSetAside
from everthink.postgres import open_postgres
from everthink.recovery import suspects
from everthink.recovery.suspects import Suspect
from everthink.runtime.schema import MIGRATIONS
from everthink.testing import ManualClock, ScriptedModel, says
from tests.cluster.peers import Peers
from tests.cluster.talker import ANSWER, Talker, Words
from tests.support.agents import assistant
from tests.support.postgres import Cluster
from tests.support.server import served

pytestmark = pytest.mark.anyio

CONTROL = """SELECT l.pid FROM pg_locks l
JOIN nodes n ON ((l.classid::bigint << 32) | l.objid::bigint) = n.lock
WHERE l.locktype = 'advisory' AND l.granted AND n.id = $1"""


def app_of(url: str, agent: type[Think], *, lease: float = 1.0, **options: Any) -> App:
    given: dict[str, Any] = {"idle_after": None, **options}
    return App(agent, store=url, store_options={"lease": lease}, grace=0.0, **given)


async def id_of(app: App) -> str:
    membership = (await app.open()).membership
    assert membership is not None
    return membership.id


async def until(connection: Any, sql: str, *params: Any) -> Any:
    """The value of a query once it has one; the server does the waiting."""
    async with asyncio.timeout(20):
        while not (found := await connection.fetchval(sql, *params)):
            await connection.execute("SELECT pg_sleep(0.02)")
    return found


async def test_a_process_that_left_nothing_but_its_row_is_declared_dead_before_we_serve(
    postgres_url: str,
) -> None:
    agent = assistant(ScriptedModel(says("Hi.")))
    store = await open_postgres(postgres_url, MIGRATIONS)
    async with Peers(store) as peers:
        # Given one whose machine was switched off, and one that was killed: its lock is gone
        await peers.register("late", lock=1, lease_ms=-1)
        await peers.register("killed", lock=2)
        for id in ("late", "killed"):
            assert await peers.claim(f"Assistant/{id}", id) is not None
        async with app_of(postgres_url, agent) as app:
            assert await peers.states() == {"late": "dead", "killed": "dead", await id_of(app): "live"}
            assert (await app.agent(agent, "late").save_messages("Hello?")).text == "Hi."
            assert await app.agent(agent, "killed").get_messages() == []
    await store.close()


async def test_what_took_others_down_is_known_to_those_who_take_it_over(postgres_url: str) -> None:
    agent = assistant(ScriptedModel())
    async with app_of(postgres_url, agent) as app:
        await app.agent(agent, "poison").add_messages("Hello.")
        await app.evict(agent, "poison")
        # Given three processes that died in its start while we were up
        store = (await app.open()).store
        strikes = Suspect(agent="Assistant/poison", strikes=3, what="its start")
        await store.apply([suspects.counted(strikes)], agent=strikes.agent)
        with pytest.raises(AgentSetAside):
            await app.agent(agent, "poison").get_messages()


async def test_one_that_holds_its_lock_and_its_lease_keeps_its_agents(postgres_url: str) -> None:
    agent = assistant(ScriptedModel())
    store = await open_postgres(postgres_url, MIGRATIONS)
    async with Peers(store) as peers:
        await peers.connection.fetchval("SELECT pg_advisory_lock(77)")
        await peers.register("other", lock=77)
        await peers.claim("Assistant/a", "other")
        async with app_of(postgres_url, agent, lease=0.5) as app:
            with pytest.raises(AgentElsewhere, match="node other"):
                await app.agent(agent, "a").get_messages()
            # When its lock goes, its agents are anybody's
            await peers.connection.fetchval("SELECT pg_advisory_unlock(77)")
            await until(peers.connection, "SELECT 1 FROM nodes WHERE id = 'other' AND state = 'dead'")
            assert await app.agent(agent, "a").get_messages() == []
    await store.close()


async def test_a_control_connection_that_is_made_anew_is_no_death(
    postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    agent = assistant(ScriptedModel(says("One."), says("Two.")))
    watch = await asyncpg.connect(postgres_url)
    async with app_of(postgres_url, agent, lease=12.0) as first, app_of(postgres_url, agent, lease=12.0):
        await first.agent(agent, "a").save_messages("Hello?")
        id = await id_of(first)
        pid = await until(watch, CONTROL, id)
        # When the connection is cut that holds the lock and renews the lease
        assert await watch.fetchval("SELECT pg_terminate_backend($1)", pid)
        assert await until(watch, CONTROL + " AND l.pid <> $2", id, pid)
        # Then it is still itself, and has what it had
        assert (await first.agent(agent, "a").save_messages("And?")).text == "Two."
        assert (await id_of(first), await watch.fetchval("SELECT owner FROM claims")) == (id, id)
        assert await watch.fetchval("SELECT count(*) FROM nodes WHERE state = 'dead'") == 0
    assert "is dead" not in caplog.text
    await watch.close()


async def test_a_loop_that_stands_still_for_longer_than_half_a_lease_costs_nothing_when_it_goes_on(
    postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    watch = await asyncpg.connect(postgres_url)
    async with app_of(postgres_url, Talker, watchdog=None) as app:
        id = await id_of(app)
        agent: Any = app.agent(Talker, "a")
        # Alone it may stand still for as long as it likes: nobody else is there to take its agents
        await agent.block(0.8)
        await agent.block(1.6)
        lease = "SELECT lease_until FROM nodes WHERE id = $1"
        before = await watch.fetchval(lease, id)
        await until(watch, lease.replace("lease_until", f"lease_until > {before}"), id)
        assert (await agent.save_messages("Talk.")).text == ANSWER
        assert await id_of(app) == id
    assert "lost its lease" not in caplog.text
    await watch.close()


async def test_a_lease_that_was_lost_drops_every_agent_and_the_process_goes_on_under_another_name(
    postgres_url: str,
) -> None:
    agent = assistant(ScriptedModel(says("One."), says("Two.")))
    store = await open_postgres(postgres_url, MIGRATIONS)
    app = app_of(postgres_url, agent)
    async with served(app) as server, Peers(store) as peers:
        chat = await server.connect(agent, "room")
        await chat.until_done(await chat.say("Hello?"))
        before = await id_of(app)
        await peers.die(before)
        assert await chat.until_closed() == (1012, "Service restart")
        again = await server.connect(agent, "room", resumes=True)
        await again.until_done(await again.say("Again?"))
        assert again.text.endswith("Two.")
        assert (await peers.owner("Assistant/room")) == await id_of(app) != before
        names = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'everthink ' || $1"
        assert await peers.connection.fetchval(names, await id_of(app)) >= 3
    await store.close()


async def test_timers_that_are_due_in_two_processes_fire_once(postgres_url: str) -> None:
    fired: list[str] = []

    def ring(self: Think, payload: Any, item: Any = None) -> None:
        fired.append(self.name)

    agent = assistant(ScriptedModel(), ring=ring)
    clock = ManualClock()
    names = [f"{number}" for number in range(60)]
    options: dict[str, Any] = {"clock": clock, "lease": 3.0}
    one, two = (app_of(postgres_url, agent, **options) for _ in range(2))
    async with one as first, two as second:
        for name in names:
            await first.agent(agent, name).schedule(60, "ring")
            await first.evict(agent, name)
        (await second.open()).waker.look()
        await (await second.open()).waker.idle()
        await clock.advance(120)
        for app in (first, second):
            await (await app.open()).waker.idle()
        # However they shared them: on a busy machine one of them may have been quicker with all
        assert sorted(fired) == sorted(names)


async def test_what_is_done_for_all_agents_is_done_by_one_process(postgres_url: str) -> None:
    agent = assistant(ScriptedModel())
    clock = ManualClock()
    watch = await asyncpg.connect(postgres_url)
    async with app_of(postgres_url, agent, clock=clock, retention="1 minute") as app:
        await app.agent(agent, "old").add_messages("Remember me.")
        await app.evict(agent, "old")
        directory: Any = await app.open()
        # While another process is at it, we do nothing
        await watch.execute("BEGIN")
        await watch.fetchval("SELECT pg_advisory_xact_lock($1)", 0x65766572_616C6C)
        await clock.advance(1000)
        await asyncio.wait([directory._sweeping])
        assert len(await app.agent(agent, "old").get_messages()) == 1
        await app.evict(agent, "old")
        await watch.execute("COMMIT")
        for _ in range(2):  # the first time it was just seen
            await clock.advance(1000)
            await asyncio.wait([directory._sweeping])
        assert await directory.store.fetch("SELECT 1 FROM agents") == []
    await watch.close()


async def test_an_agent_in_use_in_another_process_is_not_erased_for_being_old(postgres_url: str) -> None:
    agent = assistant(ScriptedModel())
    clock = ManualClock()
    options: dict[str, Any] = {"clock": clock, "lease": 3.0}
    async with app_of(postgres_url, agent, **options) as first:
        await first.agent(agent, "a").add_messages("Keep me.")
        async with app_of(postgres_url, agent, retention="1 minute", **options) as second:
            directory: Any = await second.open()
            await clock.advance(1000)
            await asyncio.wait([directory._sweeping])
        assert len(await first.agent(agent, "a").get_messages()) == 1


async def test_a_server_that_restarts_kills_nobody_and_costs_no_word(
    own_cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    url = own_cluster.create_database()
    gate = asyncio.Event()

    class Held(Words):
        async def stream(self, request: Any) -> Any:
            async for event in super().stream(request):
                yield event
                if begun.is_set():
                    await gate.wait()

    begun = asyncio.Event()

    class Slow(Think):
        model = Held()

        def on_chunk(self, chunk: Any) -> None:
            begun.set()

    async with app_of(url, Slow, lease=15.0) as first, app_of(url, Slow, lease=15.0) as second:
        await first.agent(Slow, "a").submit_messages("Talk.")
        await begun.wait()
        before = [await id_of(first), await id_of(second)]
        own_cluster.stop()
        own_cluster.start()
        gate.set()
        watch = await asyncpg.connect(url)
        await until(watch, "SELECT 1 FROM turns WHERE status = 'completed'")
        for app in (first, second):
            await until(watch, CONTROL, await id_of(app))
        assert [await id_of(first), await id_of(second)] == before
        assert [m.text for m in await first.agent(Slow, "a").get_messages()] == ["Talk.", ANSWER]
        await watch.close()
    assert "is dead" not in caplog.text


async def test_a_server_that_is_away_for_longer_than_a_lease_costs_the_agents_in_memory_and_no_word(
    own_cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    url = own_cluster.create_database()
    agent = assistant(ScriptedModel(says("One."), says("Two.")))
    app = app_of(url, agent, lease=0.5)
    async with served(app) as server:
        chat = await server.connect(agent, "room")
        await chat.until_done(await chat.say("Hello?"))
        before = await id_of(app)
        own_cluster.stop()
        assert await chat.until_closed() == (1012, "Service restart")
        own_cluster.start()
        # Nobody has to help it: it registers anew, and whoever comes back finds everything
        again = await server.connect(agent, "room", resumes=True)
        await again.until_done(await again.say("Again?"))
        assert [m.text for m in await app.agent(agent, "room").get_messages()] == [
            "Hello?",
            "One.",
            "Again?",
            "Two.",
        ]
        assert await id_of(app) != before
    assert "could not be reached for 0.5 s" in caplog.text
