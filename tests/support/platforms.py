"""One bot on each platform: what people do there, and what they see, in the same words."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Protocol

from everthink import App, Think
from everthink.messengers import MessengerDefinition
from everthink.messengers.discord import discord_messenger
from everthink.messengers.slack import slack_messenger
from everthink.messengers.telegram import telegram_messenger
from everthink.testing import ManualClock
from everthink.testing.discord import DiscordServer
from everthink.testing.in_process_server import Listening
from everthink.testing.platform import Delivery, Platform, Shown
from everthink.testing.slack import SlackWorkspace
from everthink.testing.telegram import TelegramServer

__all__ = [
    "STAGES",
    "DiscordStage",
    "SlackStage",
    "Stage",
    "TelegramStage",
    "bot_class",
    "outcome",
    "passing",
    "serving",
]


class Stage(Protocol):
    """A platform with people who talk with the bot, each of them alone."""

    name: str
    first: str
    """The method that shows the first message of an answer."""
    follow: str
    """The method that shows what follows."""
    edit: str
    """The method that changes the first message."""
    limit: int
    """Characters of one message."""

    @property
    def platform(self) -> Platform: ...

    def definition(self, **options: Any) -> MessengerDefinition: ...

    async def register(self, host: str) -> None:
        """Tell the platform where the bot is."""

    async def ask(self, text: str, *, by: str = "ann") -> Delivery:
        """Somebody asks the bot alone."""
        ...

    async def press(self, question: Shown, label: str, *, by: str = "ann") -> Delivery: ...

    def answers(self, who: str = "ann") -> list[Shown]:
        """What the bot says to somebody."""
        ...

    def told(self, who: str) -> list[str]:
        """What only one person sees."""
        ...

    async def redeliver(self, delivery: Delivery) -> Delivery: ...

    def unknown(self) -> dict[str, Any]:
        """Something that means nothing to us."""
        ...

    async def tell(self, body: dict[str, Any]) -> Delivery: ...

    def headers(self, delivery: Delivery) -> dict[str, str]:
        """Those with which a delivery is sent now."""
        ...

    def block(self) -> None:
        """Let the bot in no longer."""

    def forget_token(self) -> None:
        """The bot has another token from now on."""


class TelegramStage:
    """Telegram: messages to the bot alone."""

    name, first, follow, edit = "telegram", "sendMessage", "sendMessage", "editMessageText"
    limit = 3_500
    secret = "s3cret"

    def __init__(self, now: Callable[[], float] | None = None) -> None:
        self.platform = TelegramServer(bot_name="helper", **({} if now is None else {"now": now}))

    def definition(self, **options: Any) -> MessengerDefinition:
        telegram = self.platform
        given = {"burst": 0.0, "secret_token": self.secret} | options
        return telegram_messenger(
            user_name="helper", token=telegram.token, api_base_url=telegram.origin, **given
        )

    async def register(self, host: str) -> None:
        self.platform.webhook(f"http://{host}/messengers/telegram/webhook", secret=self.secret)

    async def ask(self, text: str, *, by: str = "ann") -> Delivery:
        return await self.platform.private(by).say(text)

    async def press(self, question: Shown, label: str, *, by: str = "ann") -> Delivery:
        return await self.platform.private("ann").press(question, label, by=by)

    def answers(self, who: str = "ann") -> list[Shown]:
        return self.platform.private(who).answers

    def told(self, who: str) -> list[str]:
        presses = {press["id"]: press["from"]["first_name"] for press in self.platform.presses}
        return [text for press, text in self.platform.toasts if text and presses[press] == who]

    async def redeliver(self, delivery: Delivery) -> Delivery:
        return await self.platform.redeliver(delivery)

    def unknown(self) -> dict[str, Any]:
        return {"poll": {"id": "1"}}

    async def tell(self, body: dict[str, Any]) -> Delivery:
        return await self.platform.tell(body)

    def headers(self, delivery: Delivery) -> dict[str, str]:
        return {"content-type": delivery.content_type, "x-telegram-bot-api-secret-token": self.secret}

    def block(self) -> None:
        self.platform.private("ann").is_blocked = True

    def forget_token(self) -> None:
        self.platform.token = "4242:another"


class SlackStage:
    """Slack: messages to the bot alone."""

    name, first, follow, edit = "slack", "chat.postMessage", "chat.postMessage", "chat.update"
    limit = 11_900

    def __init__(self, now: Callable[[], float] | None = None) -> None:
        more = {} if now is None else {"now": now}
        self.platform = SlackWorkspace(echo=False, **more)

    def definition(self, **options: Any) -> MessengerDefinition:
        slack = self.platform
        given = {"burst": 0.0, "signing_secret": slack.signing_secret} | options
        return slack_messenger(user_name="helper", token=slack.bot_token, api_url=slack.api_url, **given)

    async def register(self, host: str) -> None:
        await self.platform.set_request_url(f"http://{host}/messengers/slack/webhook")

    async def ask(self, text: str, *, by: str = "ann") -> Delivery:
        (told,) = await self.platform.say(text, by=by)
        return told

    async def press(self, question: Shown, label: str, *, by: str = "ann") -> Delivery:
        self.platform.direct("ann").members.add(self.platform.person(by))
        return await self.platform.press(question.id, label, channel="@ann", by=by)

    def answers(self, who: str = "ann") -> list[Shown]:
        return self.platform.answers(f"@{who}")

    def told(self, who: str) -> list[str]:
        return [shown.text for shown in self.platform.seen("@ann", by=who) if shown.only_for == who]

    async def redeliver(self, delivery: Delivery) -> Delivery:
        return await self.platform.redeliver(delivery)

    def unknown(self) -> dict[str, Any]:
        return {"type": "event_callback", "event": {"type": "reaction_added"}}

    async def tell(self, body: dict[str, Any]) -> Delivery:
        return await self.platform.tell_raw(body)

    def headers(self, delivery: Delivery) -> dict[str, str]:
        return {"content-type": delivery.content_type, **self.platform.sign(delivery.body)}

    def block(self) -> None:
        self.platform.direct("ann").is_archived = True

    def forget_token(self) -> None:
        self.platform.bot_token = "xoxb-another"


class DiscordStage:
    """Discord: commands to the bot alone."""

    name, first, follow, edit = "discord", "edit_original", "create_message", "edit_followup"
    limit = 1_990

    def __init__(self, now: Callable[[], float] | None = None) -> None:
        self.platform = DiscordServer() if now is None else DiscordServer(now=now)

    def definition(self, **options: Any) -> MessengerDefinition:
        discord = self.platform
        return discord_messenger(
            user_name="helper",
            application_id=discord.application_id,
            public_key=discord.public_key,
            token=discord.bot_token,
            api_url=discord.api_url,
            **options,
        )

    async def register(self, host: str) -> None:
        await self.platform.set_endpoint(f"http://{host}/messengers/discord/webhook")

    async def ask(self, text: str, *, by: str = "ann") -> Delivery:
        if text.startswith("/"):
            return await self.platform.command(text[1:], by=by)
        return await self.platform.command("ask", {"text": text}, by=by)

    async def press(self, question: Shown, label: str, *, by: str = "ann") -> Delivery:
        return await self.platform.press(question.id, label, channel="@ann", by=by)

    def answers(self, who: str = "ann") -> list[Shown]:
        return [shown for shown in self.platform.answers(f"@{who}") if shown.only_for is None]

    def told(self, who: str) -> list[str]:
        return [shown.text for shown in self.platform.seen("@ann", by=who) if shown.only_for == who]

    async def redeliver(self, delivery: Delivery) -> Delivery:
        return await self.platform.redeliver(delivery)

    def unknown(self) -> dict[str, Any]:
        return {"type": 77, "id": "1"}

    async def tell(self, body: dict[str, Any]) -> Delivery:
        return await self.platform.tell(body)

    def headers(self, delivery: Delivery) -> dict[str, str]:
        return {"content-type": delivery.content_type, **self.platform.sign(delivery.body)}

    def block(self) -> None:
        self.platform.direct("ann").lets_in = False
        self.platform.token_lasts = -1.0

    def forget_token(self) -> None:
        self.platform.bot_token = "another"


STAGES: dict[str, Callable[..., Stage]] = {
    "telegram": TelegramStage,
    "slack": SlackStage,
    "discord": DiscordStage,
}


class Bot(Think):
    """A bot without tools of its own."""

    include_workspace_tools = False


def bot_class(stage: Stage, model: Any, *, base: type[Think] = Bot, **options: Any) -> type[Think]:
    """A bot that answers with `model`. `options` are those of the messenger."""
    return type("Bot", (base,), {"model": model, "messengers": {stage.name: stage.definition(**options)}})


@asynccontextmanager
async def serving(stage: Stage, cls: type[Think], store: str, **options: Any) -> AsyncIterator[App]:
    """Serve the bot, and let the platform know where."""
    app = App(cls, store=store, **{"grace": 0.0, "idle_after": None, **options})
    async with Listening(app) as server:
        await stage.register(server.host)
        yield app


def outcome(text: str) -> str:
    """What became of a question: the last that its message says."""
    return text.rpartition("\n\n")[2]


async def passing(platform: Platform, clock: ManualClock, reached: Callable[[], object]) -> None:
    """Return once the platform has come so far: whenever nothing happens there, time passes."""
    while not reached():
        await clock.advance(0.5)
        with contextlib.suppress(TimeoutError):
            await platform.until(reached, within=0.02)
