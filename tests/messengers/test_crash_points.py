"""A story on Telegram, killed at every commit: what a person sees is what they see without a crash."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from everthink.store.crashpoints import COUNT_COMMITS, CRASH_AT
from everthink.testing.node import Node
from everthink.testing.platform import Delivery
from everthink.testing.telegram import TelegramChat, TelegramServer
from tests.support.messengers import SECRET
from tests.support.samples import sample

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


class Person:
    """Somebody who talks with the bot, and whose platform sends again what nobody took."""

    def __init__(self, telegram: TelegramServer, node: Node, chat: TelegramChat) -> None:
        self.telegram, self.node, self.chat = telegram, node, chat
        self.told: list[Delivery] = []

    async def until(self, reached: Callable[[], object]) -> None:
        """Wait for something, and start the bot again when it dies meanwhile."""
        while True:
            seeing = asyncio.ensure_future(self.telegram.until(reached, within=60))
            dying = asyncio.ensure_future(self.node.wait())
            try:
                await asyncio.wait([seeing, dying], return_when=asyncio.FIRST_COMPLETED)
                if seeing.done():
                    return seeing.result()
            finally:
                seeing.cancel()
                dying.cancel()
            await self.again()

    async def again(self) -> None:
        if not self.node.is_running:
            await self.node.start()
        for told in self.told:
            if told.status != 200:
                await self.telegram.redeliver(told)

    async def do(self, told: Delivery) -> None:
        self.told.append(told)
        if told.status != 200:
            await self.node.wait()
            await self.again()
        assert told.status == 200

    async def story(self) -> list[str]:
        chat = self.chat
        await self.do(await chat.say("Refund order 7, please."))
        await self.until(lambda: any(shown.buttons for shown in chat.answers))
        asked = next(shown for shown in chat.answers if shown.buttons)
        await self.do(await chat.press(asked, "Approve"))
        await self.until(
            lambda: (
                chat.answers[-1].text.endswith("so it is sent.") and "Paragraph 19" in chat.answers[-1].text
            )
        )
        await self.until(lambda: any("Approved" in shown.text for shown in chat.answers))
        if not self.node.is_running:
            await self.again()
        return [shown.text.replace(f"by {chat.title}.", "by them.") for shown in chat.answers]


def serving(telegram: TelegramServer, store: str) -> Node:
    known = {"BOT_TOKEN": telegram.token, "BOT_API": telegram.origin}
    return Node("tests.support.story:Clerk", store=store, env=known)


def as_one_sees_it(texts: list[str]) -> list[str]:
    """Without those of which nobody could know: the beginning of the next message, a question asked twice."""
    texts = [text for text in texts if not text.startswith("May I use")]
    return [text for text, after in zip(texts, [*texts[1:], ""], strict=True) if not after.startswith(text)]


async def told(telegram: TelegramServer, store: str, name: str, **env: str) -> list[str]:
    node = serving(telegram, store)
    try:
        await node.start(**env)
        telegram.webhook(f"http://{node.host}/messengers/telegram/webhook", secret=SECRET)
        return await Person(telegram, node, telegram.private(name)).story()
    finally:
        await node.close()


SHARDS = 6
"""A test each, so that all of them may take their time."""


@pytest.mark.parametrize("shard", range(SHARDS))
async def test_a_story_that_dies_at_any_commit_is_told_once_and_whole(
    telegram: TelegramServer, tmp_path: Path, shard: int
) -> None:
    def store(name: object) -> str:
        return f"sqlite:///{tmp_path}/{name}.db"

    counts = tmp_path / "commits"
    whole = await told(telegram, store("whole"), "Ann", **{COUNT_COMMITS: str(counts)})
    commits = len(counts.read_text().splitlines())
    assert len(whole) == 4  # the question, and an answer in three messages
    points = [(number, when) for number in range(1, commits + 1) for when in ("before", "after")][
        shard::SHARDS
    ]
    middle = len(points) // 2
    for number, when in points if sample(0, 1) else points[middle : middle + 1]:
        name = f"{number} {when}"
        texts = await told(telegram, store(name), name, **{CRASH_AT: f"{number}:{when}"})
        assert as_one_sees_it(texts) == whole, (number, when)
        assert len(texts) <= len(whole) + 1, (number, when)


async def test_a_story_that_dies_on_postgres_is_told_once_and_whole(
    telegram: TelegramServer, postgres_url: str
) -> None:
    texts = await told(telegram, postgres_url, "Ann", **{CRASH_AT: "9:after"})
    assert len(as_one_sees_it(texts)) == 4
