"""How long answers become several messages: as each platform counts, and code as code."""

from __future__ import annotations

import logging
import random
import re
from collections.abc import Sequence

import pytest

from everthink.deliveries.spoken import pieces, visible_part
from everthink.messengers import DeliveryPolicy
from everthink.messengers.telegram import Telegram
from everthink.testing import ScriptedModel, says
from everthink.testing.telegram import TelegramServer
from tests.support.messengers import bot_class, talking

pytestmark = pytest.mark.anyio

CODE = "\n".join(f"# comment {number}\nx_{number} = __a__ * {number}" for number in range(400))


def fences(text: str) -> list[str]:
    return re.findall(r"^```.*$", text, flags=re.M)


def test_a_code_block_that_is_cut_is_closed_and_goes_on_in_its_language() -> None:
    shown = pieces(f"Here:\n\n```python\n{CODE}\n```\nThat is all.", visible=3400, follow_up=3500)
    assert len(shown) > 3
    for one in shown:
        assert fences(one) == ["```python", "```"]
        assert len(one) <= 3500
    blocks = [re.search(r"```python\n(.*?)\n```", one, flags=re.S) for one in shown]
    assert "\n".join(found[1] for found in blocks if found) == CODE
    assert shown[0].startswith("Here:\n\n```python\n")
    assert shown[-1].endswith("\n```\nThat is all.")


def test_a_cut_makes_no_block_of_nothing() -> None:
    # Wherever the cut falls: before a block, after its first line, before its last one
    for before in range(60, 110):
        text = "w" * before + "\n```python\nsome_code()\n```\n" + "v" * 60
        for one in pieces(text, visible=120, follow_up=120):
            assert len(one) <= 120
            assert len(fences(one)) % 2 == 0
            assert not re.search(r"```\w*\n+```", one)


@pytest.mark.parametrize("seed", range(20))
def test_whatever_is_cut_fits_and_has_all_its_words(seed: int) -> None:
    dice = random.Random(seed)
    words = ["🚀", "👩‍💻", "word", "\n", "\n\n", "\n```py\n", "\n```\n", "~~~\n", "long" * 30, " "]
    text = "".join(dice.choice(words) + dice.choice(["", " "]) for _ in range(400))
    length = Telegram.limits.length
    shown = pieces(text, visible=200, follow_up=150, length=length)
    assert all(length(one) <= (200 if number == 0 else 150) for number, one in enumerate(shown))
    left = re.compile(r"\s|```(py)?|~~~")
    assert left.sub("", "".join(shown)) == left.sub("", text)
    assert shown[0] == visible_part(text, 200, length=length)


def test_telegram_counts_in_utf_16() -> None:
    limits = Telegram.limits
    assert limits.length("a🚀👩‍💻") == 8
    assert limits.longest == 4096


@pytest.mark.parametrize("is_streamed", [True, False])
async def test_an_answer_with_many_emoji_is_shown_whole(
    telegram: TelegramServer, store: str, is_streamed: bool
) -> None:
    ann = telegram.private("Ann")
    line = "✅ item 🚀🎉😀🔥 done 👍🏽👩‍💻\n"
    text = "Your list:\n" + line * 180
    play = says(text)
    if is_streamed:
        play = says(text[:2000])
        for at in range(2000, len(text), 500):
            play = play.says(text[at : at + 500])
    async with talking(telegram, bot_class(telegram, ScriptedModel(play)), store):
        await ann.say("List them")
        await telegram.until(lambda: "".join(one.text for one in ann.answers).count("item") == 180)
    shown = "".join("".join(one.text for one in ann.answers).split())
    assert shown == "".join(text.split())
    assert {asked.status for asked in telegram.asked("sendMessage")} == {200}


async def test_code_is_code_in_every_message(telegram: TelegramServer, store: str) -> None:
    ann = telegram.private("Ann")
    model = ScriptedModel(says(f"Here:\n\n```python\n{CODE}\n```\n"))
    async with talking(telegram, bot_class(telegram, model), store):
        await ann.say("Code")
        await telegram.until(lambda: ann.answers and "x_399" in ann.answers[-1].text)
    text = "\n".join(one.text for one in ann.answers)
    assert text.count("# comment") == 400
    assert text.count("__a__") == 400


def fails(text: str) -> Sequence[str]:
    raise KeyError("separator")


@pytest.mark.parametrize("split", [fails, lambda text: [], lambda text: [text], lambda text: None])
async def test_split_text_that_does_not_do_its_work_loses_nothing(
    telegram: TelegramServer, store: str, split: object, caplog: pytest.LogCaptureFixture
) -> None:
    ann = telegram.private("Ann")
    text = "So it is written. " * 800
    policy = DeliveryPolicy(split_text=split)  # pyright: ignore[reportArgumentType]
    with caplog.at_level(logging.ERROR, "everthink.messengers"):
        async with talking(telegram, bot_class(telegram, ScriptedModel(says(text)), delivery=policy), store):
            await ann.say("Tell me all")
            await telegram.until(lambda: " ".join(one.text for one in ann.answers).count("So it is") == 800)
    assert ("split_text raised" in caplog.text) == (split is fails or split("") is None)  # pyright: ignore
