"""What the package's README says of messengers: its example, as one writes it here."""

from __future__ import annotations

import os
from typing import Any

import pytest

from everthink import App, Think
from everthink.messengers import define_messengers
from everthink.messengers.telegram import telegram_messenger
from everthink.testing import ScriptedModel, says
from everthink.testing.in_process_server import Listening
from everthink.testing.telegram import TelegramServer

pytestmark = pytest.mark.anyio


class SupportAgent(Think):
    model = ScriptedModel(lambda request: says("How can I help?"), repeat=True)

    def get_messengers(self) -> Any:
        return define_messengers(
            {
                "telegram": telegram_messenger(
                    token=os.environ["TELEGRAM_BOT_TOKEN"],
                    user_name="support_bot",
                    secret_token=os.environ["TELEGRAM_WEBHOOK_SECRET_TOKEN"],
                )
            }
        )


@pytest.mark.example("readme", 3)
async def test_a_support_bot_answers_direct_messages_at_the_default_path(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    async with TelegramServer(bot_name="support_bot") as telegram:
        monkeypatch.setenv("TELEGRAM_BOT_TOKEN", telegram.token)
        monkeypatch.setenv("TELEGRAM_WEBHOOK_SECRET_TOKEN", "s3cret")
        monkeypatch.setenv("TELEGRAM_API_BASE_URL", telegram.origin)
        app = App(SupportAgent, store=f"sqlite:///{tmp_path}/support.db", idle_after=None)
        async with Listening(app) as server:
            telegram.webhook(f"http://{server.host}/messengers/telegram/webhook", secret="s3cret")
            ann = telegram.private("Ann")
            await ann.say("Hello")
            await telegram.until(lambda: ann.answers)
    assert ann.answers[0].text == "How can I help?"
