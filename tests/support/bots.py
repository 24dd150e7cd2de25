"""A bot for tests that kill its process: `everthink serve tests.support.bots:Bot`."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator
from typing import Any

from everthink import Think
from everthink.messengers.telegram import telegram_messenger
from everthink.models.port import (
    AssistantMessage,
    Finish,
    ModelEvent,
    Opened,
    Request,
    TextDelta,
    TextEnd,
    TextPart,
    TextStart,
)

WORDS = 60
WHOLE = " ".join(f"w{number}" for number in range(WORDS))


class Words:
    """Says sixty words, one after the other, and goes on where it was cut off."""

    name = "words"
    continues = "prefill"

    async def stream(self, request: Request) -> AsyncIterator[ModelEvent]:
        last = request.messages[-1]
        said = ""
        if isinstance(last, AssistantMessage):
            said = "".join(part.text for part in last.content if isinstance(part, TextPart))
        first = len(re.findall(r"w\d+", said))
        yield Opened(model_id="words")
        yield TextStart("t")
        for number in range(first, WORDS):
            await asyncio.sleep(float(os.environ.get("WORD_SECONDS", "0.01")))
            between = " " if number == first and first and not said.endswith(" ") else ""
            yield TextDelta("t", f"{between}w{number} ")
        yield TextEnd("t")
        yield Finish("stop")


class Bot(Think):
    model = Words()
    include_workspace_tools = False

    def get_messengers(self) -> Any:
        definition = telegram_messenger(
            token=os.environ["BOT_TOKEN"],
            user_name="test_bot",
            secret_token="s3cret",
            api_base_url=os.environ["BOT_API"],
            burst=0.0,
        )
        adapter: Any = definition.messenger
        adapter.limits = type(adapter.limits)(
            visible=3400, follow_up=3500, edit_every=0.05, edit_every_in_groups=0.05, sends_per_second=1000
        )
        return {"telegram": definition}
