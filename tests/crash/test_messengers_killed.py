"""Kill the process of a bot at every commit of a whole conversation: people see the conversation, once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from everthink.testing.discord import DiscordServer
from everthink.testing.platform import Fault, Shown
from tests.crash.messenger_bot import Bot
from tests.crash.messenger_child import long_answer, short_answer
from tests.crash.nursery import Nursery, commits_of
from tests.support.platforms import STAGES, Stage
from tests.support.samples import sample

pytestmark = pytest.mark.anyio

SHARES = sample(1, 8)
"""A test for each share of the points, so that all of them may take their time."""


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest) -> str:
    return "" if request.param == "sqlite" else request.getfixturevalue("postgres_url")


@pytest.fixture
def nursery(tmp_path: Path) -> Iterator[Nursery]:
    found = Nursery("tests.crash.messenger_child", tmp_path)
    yield found
    found.close()


@pytest.fixture(params=["telegram", "slack", "discord"])
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


def bot_of(stage: Stage, nursery: Nursery, folder: Path, database: str, **more: Any) -> Bot:
    return Bot(stage, nursery, database or f"sqlite:///{folder}/bot.db", folder, **more)


def questions(stage: Stage) -> list[Shown]:
    """Those that nobody has answered."""
    return [shown for shown in stage.answers() if shown.buttons]


async def converse(stage: Stage, bot: Bot) -> None:
    """Ann asks, agrees when she is asked, and reads on until she has the whole answer."""
    before = {shown.id for shown in questions(stage)}  # of a conversation before this one

    def open_questions() -> list[Shown]:
        return [shown for shown in questions(stage) if shown.id not in before]

    await bot.told(await stage.ask("Refund o1"))
    await bot.until(open_questions)
    await bot.pressed(lambda: next(iter(open_questions()), None), "Approve")
    end = long_answer(stage.name)[-100:]
    await bot.until(lambda: stage.answers()[-1].text.endswith(end))
    # Of a question that was shown twice only one is known.
    await bot.until(lambda: len(open_questions()) <= len(bot.in_doubt))


async def screen_of(stage: Stage, bot: Bot, at: str | None = None) -> list[str]:
    """What Ann sees of one conversation."""
    before = len(stage.answers())
    async with bot.living(at):
        await converse(stage, bot)
    return [shown.text for shown in stage.answers()[before:]]


def check_is_told(stage: Stage, bot: Bot, screen: list[str], expected: list[str], at: object) -> None:
    """It looks as if nobody had died. Only where a platform cannot say whether a message is there, one that
    was on its way when the process died may be there twice."""
    if stage.name == "telegram" and len(screen) == len(expected) + 1:
        assert len(bot.in_doubt) == 1, at
        repeated = [n for n in range(len(screen)) if [*screen[:n], *screen[n + 1 :]] == expected]
        assert repeated, at
        assert any(text.startswith(screen[repeated[0]]) for text in expected) or questions(stage), at
    else:
        assert screen == expected, at


@pytest.mark.parametrize("share", range(SHARES))
async def test_a_conversation_is_seen_once_and_whole_whenever_the_process_dies(
    stage: Stage, nursery: Nursery, database: str, share: int
) -> None:
    # Given how it looks when nobody dies
    folder = nursery.new_folder("whole")
    bot = bot_of(stage, nursery, folder, database)
    expected = await screen_of(stage, bot)
    assert [text.rpartition("\n\n")[2].partition(" by")[0] for text in expected[:2]] == [
        "Let me see.",
        "✅ Approved",
    ]
    assert len(expected) == 5
    assert (bot.deaths, bot.in_doubt) == (0, [])
    assert UNDISTURBED.setdefault(stage.name, expected) == expected
    commits = [commit["commit"] for commit in commits_of(folder)]
    points = [f"{commit}:{when}" for commit in commits[1:] for when in ("before", "after")]

    # When the process dies at one of its commits
    deaths = 0
    tried = chosen(points[share::SHARES], 1)
    for at in tried:
        folder = nursery.new_folder("killed")
        bot = bot_of(stage, nursery, folder, database)
        screen = await screen_of(stage, bot, at)
        deaths += bot.deaths

        # Then it looks the same, and the money was given back once
        check_is_told(stage, bot, screen, expected, at)
        assert (folder / "effects").read_text() == "refund o1\n", at
    assert deaths >= max(1, len(tried) - 1)  # what is shown meanwhile may make it a commit less


# --- the moment in which nobody can know

UNDISTURBED: dict[str, list[str]] = {}
"""How the conversation looks on each platform when nobody dies: always the same, and it takes its time."""


def hold(stage: Stage, post: int) -> Fault:
    """Let the platform show the message number `post` of the bot, and say nothing."""
    if stage.first == stage.follow:
        return stage.platform.fault(stage.follow, "accept_then_hang", after=post - 1)
    if post == 1:
        return stage.platform.fault(stage.first, "accept_then_hang")
    return stage.platform.fault(stage.follow, "accept_then_hang", after=post - 2)


async def dying_in(stage: Stage, bot: Bot, post: int) -> list[str]:
    """What Ann sees when the process dies after a message is there, and before it has heard of it."""
    before, held = len(stage.answers()), hold(stage, post)
    async with bot.living():
        talk = asyncio.create_task(converse(stage, bot))
        try:
            await bot.until(lambda: held.met)
            await bot.kill()
            await bot.start()
            await talk
        finally:
            talk.cancel()
    assert (bot.deaths, len(bot.in_doubt)) == (1, 1)
    return [shown.text for shown in stage.answers()[before:]]


WINDOWS = [
    (name, database, how, post)
    for name, how in (
        ("telegram", "repeat"),
        ("telegram", "skip"),
        ("slack", "repeat"),
        ("discord", "repeat"),
    )
    for database in ("sqlite", "postgres")
    for post in (1, 2, 3, 4, 5)
]
"""A platform, a database, what is done about a message of which nobody knows, and which of five it is."""
SOME = [
    ("telegram", "sqlite", "repeat", 3),
    ("telegram", "postgres", "skip", 1),
    ("slack", "postgres", "repeat", 4),
    ("discord", "sqlite", "repeat", 4),
]


@pytest.mark.parametrize(
    ("stage", "database", "how", "post"), WINDOWS if sample(0, 1) else SOME, indirect=["stage", "database"]
)
async def test_a_message_that_is_there_when_the_process_dies_is_what_its_platform_makes_of_it(
    stage: Stage, nursery: Nursery, database: str, how: str, post: int
) -> None:
    # Given how it looks when nobody dies
    expected = UNDISTURBED.get(stage.name)
    if expected is None:
        bot = bot_of(stage, nursery, nursery.new_folder("whole"), database)
        expected = UNDISTURBED[stage.name] = await screen_of(stage, bot)

    # When the process dies without knowing of a message that Ann sees
    folder = nursery.new_folder("killed")
    bot = bot_of(stage, nursery, folder, database, on_uncertain=how)
    screen = await dying_in(stage, bot, post)

    # Then it is found, or is the same; or it is there twice, or stays as it was
    doubtful = screen[post - 1]
    if stage.name != "telegram":
        assert screen == expected
    elif how == "repeat":
        assert [*screen[: post - 1], *screen[post:]] == expected
        assert expected[post - 1].startswith(doubtful) or doubtful.startswith("May I use")
    else:
        assert [*screen[: post - 1], *screen[post:]] == [*expected[: post - 1], *expected[post:]]
        assert expected[post - 1].startswith(doubtful)
    assert (folder / "effects").read_text() == "refund o1\n"


@pytest.mark.agent_case(403)
@pytest.mark.parametrize(
    ("stage", "database"),
    [("telegram", "sqlite"), ("slack", "postgres"), ("discord", "sqlite")],
    indirect=True,
)
async def test_an_answer_goes_on_in_the_same_message_after_a_kill(
    stage: Stage, nursery: Nursery, database: str
) -> None:
    bot = bot_of(stage, nursery, nursery.new_folder("talks"), database, talks=True)
    async with bot.living():
        await bot.told(await stage.ask("Why"))
        await bot.until(lambda: stage.answers() and stage.answers()[0].before)  # its id is known
        await bot.kill()
        begun = stage.answers()[0].text
        await bot.start()
        await bot.until(lambda: stage.answers()[-1].text == short_answer("Why"))
    (shown,) = stage.answers()
    assert short_answer("Why").startswith(begun)
    assert begun != shown.text


def chosen(points: Sequence[str], few: int) -> Sequence[str]:
    """All of the points, or so many from the first to the last."""
    count = min(sample(few, len(points)), len(points))
    return [points[(2 * n + 1) * len(points) // (2 * count)] for n in range(count)]
