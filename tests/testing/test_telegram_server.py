"""Our stand-in of Telegram, judged by python-telegram-bot."""

from __future__ import annotations

import asyncio

import pytest

from everthink.testing.telegram import TelegramServer
from tests.support.clients import judged, own_python

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

PACKAGE = "python-telegram-bot~=22.3"

CLIENT = r"""
import asyncio, json, sys
import telegram
from telegram import Bot, InlineKeyboardButton, InlineKeyboardMarkup, ReplyParameters
from telegram.constants import ChatAction, ParseMode

origin, token, chat, group, file_id = sys.argv[1:]

async def refusal(call):
    try:
        await call
    except telegram.error.TelegramError as error:
        return f"{type(error).__name__}: {error.message}"
    return None

async def main():
    heard = {}
    async with Bot(token, base_url=f"{origin}/bot", base_file_url=f"{origin}/file/bot") as bot:
        heard["me"] = (await bot.get_me()).username
        sent = await bot.send_message(int(chat), "<b>Hello</b> &amp; bye", parse_mode=ParseMode.HTML)
        heard["sent"] = [sent.text, sent.chat.type, sent.from_user.is_bot]
        keys = InlineKeyboardMarkup([[InlineKeyboardButton("Yes", callback_data="y")]])
        asked = await bot.send_message(int(chat), "Sure?", reply_markup=keys,
            reply_parameters=ReplyParameters(sent.message_id))
        heard["keys"] = asked.reply_markup.inline_keyboard[0][0].callback_data
        edited = await bot.edit_message_text("Yes.", int(chat), asked.message_id)
        heard["edited"] = [edited.text, edited.reply_markup is None]
        heard["typing"] = await bot.send_chat_action(int(chat), ChatAction.TYPING)
        file = await bot.get_file(file_id)
        heard["file"] = (await file.download_as_bytearray()).decode()
        updates = await bot.get_updates(timeout=5)
        heard["updates"] = [[u.message.text, u.message.from_user.first_name] for u in updates]
        heard["after"] = len(await bot.get_updates(offset=updates[-1].update_id + 1, timeout=0))
        heard["hook"] = await bot.set_webhook(f"{origin}/nobody", secret_token="s3cret")
        heard["info"] = (await bot.get_webhook_info()).url.endswith("/nobody")
        heard["refusals"] = [
            await refusal(bot.edit_message_text("Yes.", int(chat), asked.message_id)),
            await refusal(bot.edit_message_text("No.", int(chat), 1)),
            await refusal(bot.send_message(12345, "x")),
            await refusal(bot.send_message(int(chat), "x" * 4097)),
            await refusal(bot.send_message(int(chat), "<b>open", parse_mode=ParseMode.HTML)),
            await refusal(bot.send_message(int(group), "moved")),
            await refusal(bot.get_updates(timeout=0)),
            await refusal(bot.answer_callback_query("1")),
        ]
    heard["other"] = await refusal(Bot("1:other", base_url=f"{origin}/bot").get_me())
    print(json.dumps(heard))

asyncio.run(main())
"""


async def test_python_telegram_bot_finds_nothing_wrong_with_the_stand_in() -> None:
    python = await asyncio.to_thread(own_python, "telegram", PACKAGE)
    async with TelegramServer() as telegram:
        ann, team = telegram.private("Ann"), telegram.group("Team", kind="group")
        file = telegram.file("a.txt", b"bytes")
        await ann.say("Hi there")
        team.moved_to = -100123

        heard = await judged(
            python, CLIENT, telegram.origin, telegram.token, str(ann.id), str(team.id), file["file_id"]
        )

        assert heard["me"] == "test_bot"
        assert heard["sent"] == ["Hello & bye", "private", True]
        assert heard["keys"] == "y"
        assert heard["edited"] == ["Yes.", True]
        assert heard["typing"] is heard["hook"] is heard["info"] is True
        assert heard["file"] == "bytes"
        assert (heard["updates"], heard["after"]) == ([["Hi there", "Ann"]], 0)
        kinds = [refusal.partition(":")[0] for refusal in heard["refusals"]]
        assert kinds == [
            "BadRequest",
            "BadRequest",
            "BadRequest",
            "BadRequest",
            "BadRequest",
            "ChatMigrated",
            "Conflict",
            "BadRequest",
        ]
        assert "not modified" in heard["refusals"][0]
        assert heard["other"].startswith("InvalidToken")
        assert [shown.text for shown in ann.answers] == ["Hello & bye", "Yes."]


FLOODED = r"""
import asyncio, json, sys
import telegram

async def main():
    async with telegram.Bot(sys.argv[2], base_url=f"{sys.argv[1]}/bot") as bot:
        try:
            await bot.send_message(int(sys.argv[3]), "Hi")
        except telegram.error.RetryAfter as error:
            print(json.dumps(str(error)))

asyncio.run(main())
"""


async def test_python_telegram_bot_hears_how_long_it_is_to_wait() -> None:
    python = await asyncio.to_thread(own_python, "telegram", PACKAGE)
    async with TelegramServer() as telegram:
        ann = telegram.private("Ann")
        telegram.fault("sendMessage", "429", retry_after=7)
        said = await judged(python, FLOODED, telegram.origin, telegram.token, str(ann.id))
    assert "7" in said
