"""Two hundred answers under random kills, redeliveries and faults: each is there, whole, and once."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from everthink.open_store import open_store
from everthink.runtime.schema import MIGRATIONS
from everthink.testing.platform import Delivery, FaultKind
from tests.crash.messenger_bot import YES, Bot
from tests.crash.messenger_child import short_answer
from tests.crash.nursery import Nursery
from tests.support.platforms import STAGES, Stage
from tests.support.samples import sample

pytestmark = pytest.mark.anyio

CROWD = 10
"""So many people ask at about the same time."""
SHARES = sample(1, 4)
CROWDS = sample(1, 5)
"""A test for each share: 4 times 5 times 10 are two hundred."""
FAULTS: tuple[FaultKind, ...] = ("429", "500", "hang", "accept_then_hang", "accept_then_drop")


PAIRS = [("telegram", "sqlite"), ("slack", "postgres"), ("discord", "sqlite")]
OTHERS = [("telegram", "postgres"), ("slack", "sqlite"), ("discord", "postgres")]
NOTICED = 6.0
"""Seconds after which Discord knows of a command that nobody has answered it."""


@pytest.fixture
def store(database: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/bot.db" if database == "sqlite" else request.getfixturevalue("postgres_url")


@pytest.fixture
def nursery(tmp_path: Path) -> Iterator[Nursery]:
    found = Nursery("tests.crash.messenger_child", tmp_path)
    yield found
    found.close()


@pytest.fixture
async def stage(platform: str, anyio_backend: str) -> AsyncIterator[Stage]:
    made = STAGES[platform]()
    async with made.platform:
        yield made


class Crowd:
    """People who ask at about the same time, and whose words arrive when and as often as chance has it."""

    def __init__(self, bot: Bot, dice: random.Random, people: list[str]) -> None:
        self.bot, self.stage, self.people = bot, bot.stage, people
        self._dice, self._told = dice, dict[str, Delivery]()

    async def ask(self) -> None:
        """Return once everybody has the whole answer."""
        dice = self._dice
        mail = [name for name in self.people for _ in range(dice.randint(1, 3))]
        dice.shuffle(mail)
        parts = [mail[n::3] for n in range(3)]
        arrives_nowhere = dice.randrange(3)
        for number, part in enumerate(parts):
            self._go_wrong()
            if number == arrives_nowhere:
                await self._some_time()
                await self.bot.kill()
                await self._deliver(part)
                pass_time(self.stage, NOTICED)
                await self.bot.start()
            else:
                await self._deliver(part)
        await asyncio.gather(*map(self.bot.told, self._told.values()))
        self._go_wrong()
        await self._some_time()
        await self.bot.kill()
        await self.bot.start()
        await self.bot.until(self._is_over, within=120)
        await asyncio.gather(*map(self.stage.redeliver, self._told.values()))
        assert {told.status for told in self._told.values()} <= {*YES}

    def _go_wrong(self) -> None:
        """Let something go wrong, soon."""
        methods = [self.stage.first, self.stage.follow, self.stage.edit]
        if self.stage.name == "slack":
            methods.append("conversations.history")
        for _ in range(self._dice.randint(1, 3)):
            method, kind = self._dice.choice(methods), self._dice.choice(FAULTS)
            self.stage.platform.fault(method, kind, after=self._dice.randrange(6))

    async def _some_time(self) -> None:
        """Return when the platform was asked for so many more things, or for nothing any more."""
        many = len(self.stage.platform.log) + self._dice.randint(1, 60)
        await self.bot.until(lambda: len(self.stage.platform.log) > many or self._is_over())

    async def _deliver(self, names: list[str]) -> None:
        async def arrive(name: str, times: int) -> None:
            for _ in range(times):
                if name in self._told:
                    await self.stage.redeliver(self._told[name])
                else:
                    self._told[name] = await self.stage.ask(name, by=name)

        await asyncio.gather(*(arrive(name, times) for name, times in Counter(names).items()))

    def _is_over(self) -> bool:
        """True when whoever has asked and was heard has the answer."""
        heard = [name for name, told in self._told.items() if told.status in YES]
        return all(has_whole(self.stage, name) for name in heard)


def pass_time(stage: Stage, seconds: float) -> None:
    """The clock of the platform goes on."""
    before = stage.platform.now
    stage.platform.now = lambda: before() + seconds


def has_whole(stage: Stage, name: str) -> bool:
    answers = stage.answers(name)
    return bool(answers) and answers[-1].text == short_answer(name)


def doubts_of(bot: Bot) -> Counter[str]:
    """How many messages to each chat were on their way when a process died, or were never answered for."""
    unanswered = [str(asked.body.get("chat_id")) for asked in bot.stage.platform.log if asked.status is None]
    return Counter([*bot.in_doubt, *unanswered])


@pytest.mark.parametrize("share", range(SHARES))
@pytest.mark.parametrize(("platform", "database"), [*PAIRS, *OTHERS[: sample(0, 3)]])
async def test_whatever_dies_and_goes_wrong_everybody_is_answered_once_and_whole(
    stage: Stage, nursery: Nursery, store: str, share: int
) -> None:
    # Given a bot that is killed at random, mail that comes at random, and a platform that fails at random
    dice = random.Random(f"{stage.name} {share}")
    bot = Bot(stage, nursery, store, nursery.new_folder("talks"), talks=True)
    people = [f"p{share}x{number}" for number in range(CROWDS * CROWD)]

    # When many people ask
    async with bot.living():
        for first in range(0, len(people), CROWD):
            await Crowd(bot, dice, people[first : first + CROWD]).ask()
    assert bot.deaths == 2 * CROWDS

    # Then each has one message, and the whole of it
    doubts = doubts_of(bot)
    for name in people:
        *more, last = stage.answers(name)
        assert last.text == short_answer(name)
        if stage.name == "telegram":  # what nobody could know is there twice, as it was
            assert all(short_answer(name).startswith(shown.text) for shown in more)
            assert len(more) <= doubts[last.channel]
        else:
            assert more == []
    assert await states(store) == {"done": len(people)}


async def states(url: str) -> dict[str, int]:
    """How many messages are how far."""
    store = await open_store(url, MIGRATIONS)
    try:
        return dict(await store.fetch("SELECT state, COUNT(*) FROM deliveries GROUP BY state"))
    finally:
        await store.close()
