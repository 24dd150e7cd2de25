"""A shop that talks on Telegram, and its page: `python -m tests.journeys.page.messaging PORT STORE`.

journeys --POST /telegram/say, press, block, fault, go--> a stand-in for Telegram <--polls-- the shop

The journeys are the people who write, and what goes wrong.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator
from typing import Any, Literal
from urllib.parse import parse_qsl

from everthink import App, Think, tool
from everthink.messengers import DeliveryPolicy
from everthink.messengers.telegram import telegram_messenger
from everthink.models import port as model
from everthink.serving.page import WithPage
from everthink.serving.target import Loaded
from everthink.testing.telegram import TelegramServer
from tests.wire.peer import words_of

TOKEN = "4242:AAjourney-token-that-nobody-may-read"
ON_ITS_WAY = "Order 7 left Lisbon this morning. It should be with you on Friday, before noon."
DONE = "Done: 40 EUR are on their way back to you, for order 7."


class Clerk:
    """Says where an order is, slowly when asked to wait, and gives money back."""

    name = "clerk"
    continues: Literal["prefill", "prompt"] = "prompt"

    def __init__(self) -> None:
        self.go = asyncio.Event()

    async def stream(self, request: model.Request) -> AsyncGenerator[model.ModelEvent, None]:
        last = request.messages[-1]
        words = [] if isinstance(last, model.ToolMessage) else [word.lower() for word in words_of(last)]
        yield model.Opened()
        if "refund" in words:
            yield model.ToolCallReady("refund-7", "refund", '{"order": "7", "amount": "40 EUR"}')
            yield model.Finish("tool-calls", model.Usage(210, 20, 230))
            return
        text = DONE if isinstance(last, model.ToolMessage) else ON_ITS_WAY
        yield model.TextStart("t")
        yield model.TextDelta("t", text[:40])
        if "slowly" in words:
            await self.go.wait()
        yield model.TextDelta("t", text[40:])
        yield model.TextEnd("t")
        yield model.Finish("stop", model.Usage(200, 30, 230))


class Shop(Think):
    """Answers for a shop."""

    model = Clerk()
    include_workspace_tools = False

    @tool(needs_approval=True)
    async def refund(self, order: str, amount: str) -> str:
        """Give money back."""
        return f"{amount} for order {order}"


class Controlled:
    """The page, and what the journeys do on Telegram."""

    def __init__(self, page: WithPage, telegram: TelegramServer, clerk: Clerk) -> None:
        self._page, self._telegram, self._clerk = page, telegram, clerk

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or not scope["path"].startswith("/telegram/"):
            await self._page(scope, receive, send)
            return
        given = dict(parse_qsl(scope["query_string"].decode()))
        await self._do(scope["path"].removeprefix("/telegram/"), given)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"ok"})

    async def _do(self, deed: str, given: dict[str, str]) -> None:
        telegram = self._telegram
        chat = telegram.private(given.get("chat", "Ann"))
        match deed:
            case "say":
                await chat.say(given["text"])
            case "press":
                await telegram.until(lambda: any(shown.buttons for shown in chat.answers))
                asked = next(shown for shown in chat.answers if shown.buttons)
                await chat.press(asked, given["button"])
            case "block":
                chat.is_blocked = True
            case "fault":
                telegram.fault(given["method"], "429", retry_after=float(given["after"]))
            case "go":
                self._clerk.go.set()
            case other:
                raise ValueError(other)


async def main(port: int, store: str) -> None:
    import uvicorn

    async with TelegramServer(token=TOKEN, bot_name="shop_bot") as telegram:
        Shop.messengers = {
            "telegram": telegram_messenger(
                token=TOKEN,
                mode="polling",
                api_base_url=telegram.origin,
                burst=0.0,
                delivery=DeliveryPolicy(max_attempts=3),
            )
        }
        app = App(Shop, store=store)
        clerk = Shop.model
        assert isinstance(clerk, Clerk)
        page = Controlled(WithPage(Loaded(app, "the journeys", app)), telegram, clerk)
        config = uvicorn.Config(page, host="127.0.0.1", port=port, log_level="warning")
        await uvicorn.Server(config).serve()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), sys.argv[2]))
