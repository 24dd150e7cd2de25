"""A bot on a stand-in for Telegram: the agent class, the app that serves it, and people who write to it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from everthink import App, Think
from everthink.messengers.telegram import telegram_messenger
from everthink.models.port import Model
from everthink.testing.in_process_server import Listening
from everthink.testing.telegram import TelegramServer

SECRET = "s3cret"


def bot_class(telegram: TelegramServer, model: Model, **options: Any) -> type[Think]:
    """A bot that answers with `model`. `options` are those of `telegram_messenger`."""
    said: dict[str, Any] = {"secret_token": SECRET, "burst": 0.0} | options
    said = {"user_name": telegram.bot_name} | said
    definition = telegram_messenger(token=telegram.token, api_base_url=telegram.origin, **said)
    return type("Bot", (Bot,), {"model": model, "messengers": {"telegram": definition}})


class Bot(Think):
    include_workspace_tools = False


@asynccontextmanager
async def talking(
    telegram: TelegramServer, cls: type[Think], store: Any, **options: Any
) -> AsyncIterator[tuple[App, Listening]]:
    """Serve the bot, and let Telegram know where."""
    options = {"grace": 0.0, "idle_after": None} | options
    app = App(cls, store=store, **options)
    async with Listening(app) as server:
        telegram.webhook(f"http://{server.host}/messengers/telegram/webhook", secret=SECRET)
        yield app, server
