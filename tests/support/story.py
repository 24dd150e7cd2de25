"""A bot with a story for tests that kill it at every commit: a question, a yes, an answer in parts."""

from __future__ import annotations

import os
from typing import Any

from everthink import Think, tool
from everthink.messengers.telegram import telegram_messenger
from everthink.models.port import Request, ToolMessage
from everthink.testing import ScriptedModel, calls, says
from everthink.testing.scripted import Play

PARAGRAPHS = [f"Paragraph {number}. " + "So it is written, and so it is sent. " * 12 for number in range(20)]
LONG = "\n\n".join(paragraph.strip() for paragraph in PARAGRAPHS)
"""An answer of three messages."""


def play(request: Request) -> Play:
    """It asks for the refund, and tells all about it when it is done."""
    has_result = any(isinstance(message, ToolMessage) for message in request.messages)
    return says(LONG) if has_result else calls("refund", order="7")


class Clerk(Think):
    model = ScriptedModel(play, repeat=True)
    include_workspace_tools = False

    @tool(needs_approval=True)
    async def refund(self, order: str) -> str:
        """Refund an order."""
        return f"refunded {order}"

    def get_messengers(self) -> Any:
        return {
            "telegram": telegram_messenger(
                token=os.environ["BOT_TOKEN"],
                user_name="test_bot",
                secret_token="s3cret",
                api_base_url=os.environ["BOT_API"],
                burst=0.0,
            )
        }
