"""A commit whose answer is lost: the agent is dropped and read again, and nobody is told of a failure."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from everthink import App, Think
from everthink.errors import CommitInDoubt, TurnInterrupted
from everthink.postgres import open_postgres
from everthink.runtime.schema import MIGRATIONS
from everthink.store.port import Commit
from everthink.testing import WatchedStore
from tests.cluster.talker import ANSWER, Words
from tests.support.server import served

pytestmark = pytest.mark.anyio


def is_fenced(commit: Commit) -> bool:
    """Whether it is a commit of an agent."""
    return commit[0].sql.startswith("UPDATE claims SET head")


def doubt() -> CommitInDoubt:
    return CommitInDoubt("The connection was lost during a commit.")


class Reader(Think):
    """Says its words, and notes what it is told of failures."""

    model = Words(pace=0.002)  # so that there are several commits
    failures: list[BaseException] = []  # noqa: RUF012 - of the class, so that every life of the agent has it

    def on_chat_error(self, error: Any, ctx: Any) -> Any:
        self.failures.append(error)
        return error


@pytest.fixture
async def store(postgres_url: str) -> AsyncIterator[WatchedStore]:
    store = await open_postgres(postgres_url, MIGRATIONS)
    yield WatchedStore(store)
    await store.close()


async def ended(app: App, name: str) -> list[str]:
    """The texts of a conversation, once nothing of it is open."""
    directory = await app.open()
    while await directory.store.fetch("SELECT 1 FROM turns WHERE ended_at IS NULL"):
        await directory.store.fetch("SELECT 1 FROM pg_sleep(0.01)")
    return [message.text for message in await app.agent(Reader, name).get_messages()]


@pytest.mark.parametrize("stores", [True, False], ids=["stored", "not stored"])
async def test_at_every_commit_of_a_turn_a_lost_answer_costs_no_word_and_tells_nobody_of_a_failure(
    store: WatchedStore, stores: bool, caplog: pytest.LogCaptureFixture
) -> None:
    Reader.failures.clear()
    async with App(Reader, store=store, idle_after=None, grace=0.0) as app:
        interrupted: list[list[str]] = []
        for at in itertools.count(1):
            name = f"{at}"
            lost = store.fail(doubt(), nth=at, matching=is_fenced, stored=stores)
            try:
                await app.agent(Reader, name).save_messages("Talk.")
            except (TurnInterrupted, CommitInDoubt):
                # Whoever waits is told that nobody knows. A question that is not stored is theirs to repeat.
                interrupted.append(await ended(app, name))
            else:
                assert await ended(app, name) == ["Talk.", ANSWER]
            if not lost.happened:
                break
        assert len(interrupted) >= 4
        assert interrupted[0] == (["Talk.", ANSWER] if stores else [])
        assert interrupted[1:] == [["Talk.", ANSWER]] * (len(interrupted) - 1)
        assert Reader.failures == []
        assert "leaves memory" in caplog.text


async def test_an_agent_is_read_again_from_a_database_that_has_lost_what_it_acknowledged(
    postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    other = await asyncpg.connect(postgres_url)
    async with App(Reader, store=postgres_url, idle_after=None, grace=0.0) as app:
        await app.agent(Reader, "a").save_messages("Talk.")
        await app.agent(Reader, "a").add_messages("And more.")
        # When a copy takes over that lagged behind: the last commits are gone
        await other.execute("DELETE FROM messages WHERE content LIKE '%And more.%'")
        await other.execute("UPDATE claims SET head = 1")
        await app.agent(Reader, "a").set_state({"read": "again"})
        # Then people see what is stored, and a line in the log says why
        assert await ended(app, "a") == ["Talk.", ANSWER]
        assert "the database has lost commits: it is at 2" in caplog.text
    await other.close()


async def test_a_connection_that_breaks_in_a_commit_closes_sockets_with_1012_and_the_turn_goes_on(
    postgres_url: str,
) -> None:
    Reader.failures.clear()
    app = App(Reader, store=postgres_url, idle_after=None, grace=0.0)
    other = await asyncpg.connect(postgres_url)
    async with served(app) as server:
        chat = await server.connect(Reader, "room")
        await chat.until_done(await chat.say("Talk."))
        # Given a commit that waits in the server
        await other.execute("BEGIN")
        await other.execute("SELECT 1 FROM claims WHERE agent = 'Reader/room' FOR UPDATE")
        await chat.say("And again.")
        waiting = "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND pid = ANY($1)"
        ours = "SELECT array_agg(pid) FROM pg_stat_activity WHERE application_name = 'everthink ' || $1"
        pids = await other.fetchval(ours, (await app.open()).membership.id)  # type: ignore[union-attr]
        while (pid := await other.fetchval(waiting, pids)) is None:
            await other.execute("SELECT pg_sleep(0.01)")
        # When its connection is cut
        assert await other.fetchval("SELECT pg_terminate_backend($1)", pid)
        await other.execute("COMMIT")
        # Then the window is asked to come back, and sees no failure
        assert await chat.until_closed() == (1012, "Service restart")
        again = await server.connect(Reader, "room", resumes=True)
        if "And again." in [message.text for message in await app.agent(Reader, "room").get_messages()]:
            await again.until(lambda: again.text.count(ANSWER) == 2)
        assert Reader.failures == []
    await other.close()
