"""Kill the process of a bot at every commit of a whole conversation: people see the conversation, once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from everthink.testing.discord import DiscordServer
from everthink.testing.platform import Delivery, Shown, posted
from everthink.testing.slack import SlackWorkspace
from tests.crash.messenger_child import STOP, long_answer
from tests.crash.nursery import Nursery, commits_of
from tests.support.platforms import STAGES, Stage
from tests.support.samples import sample

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest) -> str:
    return "" if request.param == "sqlite" else request.getfixturevalue("postgres_url")


@pytest.fixture
def nursery(tmp_path: Path) -> Iterator[Nursery]:
    found = Nursery("tests.crash.messenger_child", tmp_path)
    yield found
    found.close()


class Bot:
    """The process of the bot: as often as it dies, it is started again."""

    def __init__(self, stage: Stage, nursery: Nursery, store: str, folder: Path, options: Any) -> None:
        self.stage, self._nursery, self._folder, self._store = stage, nursery, folder, store
        self._options, self.starts, self.deaths = options, 0, 0

    async def live(self, at: str | None) -> None:
        """Run until it is told to stop. It dies once, at the commit `at`."""
        while await asyncio.to_thread(
            self._nursery.is_killed,
            self._folder,
            at,
            platform=self.stage.name,
            store=self._store,
            origin=self.stage.platform.origin,
            options=self._options,
        ):
            self.deaths += 1
            at = None

    async def up(self) -> None:
        """Return once a process that has not been met listens."""
        await self.stage.platform.until(lambda: len(self._hellos()) > self.starts, within=60)
        self.starts += 1
        self._register(f"http://127.0.0.1:{self._hellos()[self.starts - 1]}")

    def _hellos(self) -> list[str]:
        return [asked.body["at"] for asked in self.stage.platform.log if "at" in asked.body]

    def _register(self, host: str) -> None:
        self.host = host
        path = f"{host}/messengers/{self.stage.name}/webhook"
        platform: Any = self.stage.platform
        if isinstance(platform, SlackWorkspace):
            platform.request_url = path
        else:
            platform.endpoint = path

    async def told(self, delivery: Delivery) -> None:
        """Tell it again until it has said yes."""
        while delivery.status not in (200, 202):
            if delivery.status is None:
                await self.up()
            await self.stage.redeliver(delivery)

    async def stop(self) -> None:
        """End it, whichever process it is by now."""
        while True:
            try:
                return await self._stop()
            except OSError:
                await self.up()

    async def _stop(self) -> None:
        await posted(self.host + STOP, {}, b"")


def options_of(stage: Stage) -> dict[str, Any]:
    """What the bot is told of its platform."""
    platform: Any = stage.platform
    if isinstance(platform, SlackWorkspace):
        secret = platform.signing_secret
        return {"token": platform.bot_token, "signing_secret": secret, "api_url": platform.api_url}
    assert isinstance(platform, DiscordServer)
    return {
        "application_id": platform.application_id,
        "public_key": platform.public_key,
        "token": platform.bot_token,
        "api_url": platform.api_url,
    }


@pytest.fixture(params=["slack", "discord"])
async def stage(request: pytest.FixtureRequest, anyio_backend: str) -> AsyncIterator[Stage]:
    ahead = 0.0

    def now() -> float:
        # Somebody whose command was not answered in time waits on; nobody here wants to wait with them.
        nonlocal ahead
        if isinstance(made.platform, DiscordServer):
            ahead = 8.0 * sum(interaction.failed for interaction in made.platform.interactions)
        return time.time() + ahead

    made: Stage = STAGES[request.param]()
    made.platform.now = now
    async with made.platform:
        yield made


def open_question(stage: Stage) -> Shown | None:
    return next((shown for shown in stage.answers() if shown.buttons), None)


async def converse(stage: Stage, bot: Bot) -> None:
    """Ann asks, agrees when she is asked, and reads on until she has the whole answer."""
    begun = len(stage.answers())
    await bot.up()
    await bot.told(await stage.ask("Refund o1"))
    await stage.platform.until(lambda: open_question(stage), within=60)
    while (question := open_question(stage)) is not None:
        pressed = await stage.press(question, "Approve")
        if pressed.status in (200, 202):
            break
        if pressed.status is None:
            await bot.up()
    whole = long_answer(stage.name).replace(" ", "")
    await stage.platform.until(
        lambda: "".join(s.text for s in stage.answers()[begun:]).replace(" ", "").endswith(whole), within=60
    )
    await stage.platform.until(lambda: open_question(stage) is None, within=60)
    await bot.stop()


async def test_a_conversation_is_seen_once_and_whole_whenever_the_process_dies(
    stage: Stage, nursery: Nursery, database: str, tmp_path: Path
) -> None:
    # Given how it looks when nobody dies
    folder = nursery.new_folder("whole")
    expected, _ = await screen_of(stage, nursery, folder, database, None)
    assert [text.partition(" by ")[0] for text in expected[:2]] == ["Let me see.", "✅ Approved"]
    assert len(expected) == 5
    commits = [commit["commit"] for commit in commits_of(folder)]
    points = [f"{commit}:{when}" for commit in commits[1:] for when in ("before", "after")]

    # When the process dies at one of its commits
    deaths = 0
    tried = chosen(points, 4)
    for at in tried:
        folder = nursery.new_folder("killed")
        screen, died = await screen_of(stage, nursery, folder, database, at)
        deaths += died

        # Then it looks the same, and the money was given back once
        assert screen == expected, at
        assert (folder / "effects").read_text() == "refund o1\n", at
    assert deaths >= len(tried) - 1  # what is shown meanwhile may make it a commit less


async def screen_of(
    stage: Stage, nursery: Nursery, folder: Path, database: str, at: str | None
) -> tuple[list[str], int]:
    """What Ann sees of one conversation, in an order of its own: what was late comes where it belongs."""
    store = database or f"sqlite:///{folder}/bot.db"
    before = len(stage.answers())
    bot = Bot(stage, nursery, store, folder, options_of(stage))
    bot.starts = len([asked for asked in stage.platform.log if "at" in asked.body])
    living = asyncio.create_task(bot.live(at))
    try:
        await converse(stage, bot)
    finally:
        await asyncio.wait_for(living, 60)
    return [shown.text for shown in stage.answers()[before:]], bot.deaths


def chosen(points: Sequence[str], few: int) -> Sequence[str]:
    """All of the points, or so many from the first to the last."""
    count = min(sample(few, len(points)), len(points))
    return [points[n * len(points) // count] for n in range(count)]
