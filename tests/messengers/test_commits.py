"""What one message writes and reads: as little as keeps the promise, and nothing twice."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from everthink import App
from everthink.messengers import DeliveryPolicy
from everthink.sqlite.store import SqliteStore
from everthink.store.crashpoints import COUNT_COMMITS
from everthink.testing import ScriptedModel, says
from everthink.testing.telegram import TelegramServer
from tests.support.messengers import bot_class, talking

pytestmark = pytest.mark.anyio

TURN, MESSAGE, DELIVERY = "insert turns", "insert messages", "insert deliveries"
BEGUN, OVER, SHOWN = "update turns", "update turns", "update deliveries"


class Delivered:
    """Hears of each message that is shown, and stored as shown."""

    def __init__(self, app: App) -> None:
        self._events: asyncio.Queue[Any] = asyncio.Queue()
        app.events.subscribe(self._events.put_nowait, type="messenger:delivered")

    async def one(self) -> None:
        """Wait for the next one."""
        async with asyncio.timeout(30):
            await self._events.get()


@pytest.fixture
def commits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a line is written for each commit."""
    monkeypatch.setenv(COUNT_COMMITS, str(tmp_path / "commits"))
    return tmp_path / "commits"


async def written(telegram: TelegramServer, store: str, commits: Path, **options: Any) -> list[set[str]]:
    """What each commit writes for somebody's third message and its answer."""

    def lines() -> list[set[str]]:
        written = commits.read_text().splitlines() if commits.exists() else []
        return [set(json.loads(line)["writes"]) for line in written]

    ann = telegram.private("Ann")
    model = ScriptedModel(lambda request: says("Paris."), repeat=True)
    found: list[set[str]] = []
    async with talking(telegram, bot_class(telegram, model, **options), store) as (app, _):
        delivered = Delivered(app)
        for _ in range(3):
            before = len(lines())
            await ann.say("Capital of France?")
            await delivered.one()
            found = lines()[before:]
    assert [shown.text for shown in ann.answers] == ["Paris."] * 3
    return found


async def test_a_message_and_its_answer_are_three_commits(
    telegram: TelegramServer, store: str, commits: Path
) -> None:
    accepted, over, shown = await written(telegram, store, commits)

    assert accepted == {TURN, MESSAGE, DELIVERY}  # it has begun
    assert over >= {OVER, MESSAGE, SHOWN}  # its answer is being sent
    assert shown == {SHOWN}


async def test_what_may_wait_for_more_words_begins_when_its_time_has_come(
    telegram: TelegramServer, store: str, commits: Path
) -> None:
    accepted, begun, over, shown = await written(telegram, store, commits, burst=0.001)

    assert accepted == {TURN, DELIVERY}
    assert begun == {BEGUN, MESSAGE}
    assert over >= {OVER, MESSAGE, SHOWN}
    assert shown == {SHOWN}


async def test_where_nobody_may_guess_it_is_not_stored_early_that_an_answer_is_being_sent(
    telegram: TelegramServer, store: str, commits: Path
) -> None:
    policy = DeliveryPolicy(on_uncertain="skip")
    _, over, sending, shown = await written(telegram, store, commits, delivery=policy)

    assert SHOWN not in over
    assert sending == shown == {SHOWN}


async def test_of_a_message_nothing_is_read_but_whether_it_is_known(
    telegram: TelegramServer, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    fetch = SqliteStore.fetch

    def noted(self: SqliteStore, sql: str, *params: Any, **more: Any) -> Any:
        read.append(sql)
        return fetch(self, sql, *params, **more)

    monkeypatch.setattr(SqliteStore, "fetch", noted)
    ann = telegram.private("Ann")
    model = ScriptedModel(lambda request: says("Paris."), repeat=True)
    async with talking(telegram, bot_class(telegram, model), store) as (app, _):
        delivered = Delivered(app)
        for _ in range(3):
            read.clear()
            await ann.say("Capital of France?")
            await delivered.one()

    assert [sql.partition("WHERE")[2].strip() for sql in read] == ["agent = :agent AND idempotency_key = ?"]


async def test_what_was_announced_is_sent_though_the_platform_refuses_it_at_first(
    telegram: TelegramServer, store: str
) -> None:
    telegram.fault("sendMessage", "429", times=2, retry_after=0.001)
    ann = telegram.private("Ann")
    async with talking(telegram, bot_class(telegram, ScriptedModel(says("Paris."))), store) as (app, _):
        delivered = Delivered(app)
        await ann.say("Capital of France?")
        await delivered.one()
        rows = await (await app.open()).store.fetch("SELECT state, attempts, ref IS NULL FROM deliveries")

    assert [shown.text for shown in ann.answers] == ["Paris."]
    assert [tuple(row) for row in rows] == [("done", 0, 0)]


async def test_a_thread_that_is_remembered_listens_from_the_mention_on(
    telegram: TelegramServer, store: str
) -> None:
    group = telegram.group("Team")
    model = ScriptedModel(lambda request: says("Yes."), repeat=True)
    options: dict[str, Any] = {"respond_to": ["mention", "subscribed-thread"]}
    deaf = bot_class(telegram, model, subscribe_on_mention=False, **options)
    async with talking(telegram, deaf, store) as (app, _):
        delivered = Delivered(app)
        await group.say("@test_bot are you there?")
        await delivered.one()
    async with talking(telegram, bot_class(telegram, model, **options), store) as (app, _):
        delivered = Delivered(app)
        ignored: list[Any] = []
        app.events.subscribe(ignored.append, type="messenger:ignored")
        await group.say("Somebody else?")
        assert len(ignored) == 1
        for words in ("@test_bot once more", "And now?"):
            await group.say(words)
            await delivered.one()

    assert len(ignored) == 1
    assert len(group.answers) == 3
