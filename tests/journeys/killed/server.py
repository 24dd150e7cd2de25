"""A page and an agent that writes notes: `python -m tests.journeys.killed.server PORT STORE NOTES`.

The tool's side effect is a line in the file NOTES. The model has one answer to each question, and when it is
asked to go on it begins again from the start, as the worst of them do.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Literal

from everthink import App, Think, tool
from everthink.models import port as model
from everthink.prompt.wording import CONTINUE_NUDGE
from everthink.serving.page import WithPage
from everthink.serving.target import Loaded

WORDS = [f"w{number}" for number in range(70)]


class Scribe:
    name = "scribe"
    continues: Literal["prefill", "prompt"] = "prompt"

    async def stream(self, request: model.Request) -> AsyncGenerator[model.ModelEvent, None]:
        asked = [
            (place, text)
            for place, message in enumerate(request.messages)
            if isinstance(message, model.UserMessage) and (text := _text(message)) != CONTINUE_NUDGE
        ]
        place, question = asked[-1]
        noted = any(isinstance(message, model.ToolMessage) for message in request.messages[place:])
        if question == "think first":
            await asyncio.sleep(2)
        yield model.Opened()
        if question == "note it" and not noted:
            yield model.ToolCallReady(f"note-{place}", "note", '{"what": "it"}')
            yield model.Finish("tool-calls")
            return
        yield model.TextStart("t")
        for number, word in enumerate(WORDS):
            await asyncio.sleep(0.08)
            yield model.TextDelta("t", word if number == 0 else f" {word}")
        yield model.TextEnd("t")
        yield model.Finish("stop")


def _text(message: model.UserMessage) -> str:
    return "".join(part.text for part in message.content if isinstance(part, model.TextPart))


class Clerk(Think):
    model = Scribe()

    @tool
    def note(self, what: str) -> str:
        """Write a line, and take a while over it."""
        with Path(sys.argv[3]).open("a") as file:
            file.write(f"{what}\n")
        time.sleep(3)
        return "noted"


if __name__ == "__main__":
    import uvicorn

    app = App(Clerk, store=sys.argv[2])
    site = WithPage(Loaded(app, "killed", app))
    uvicorn.run(site, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
