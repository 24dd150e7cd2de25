"""An agent that lets children work for it: `python -m tests.journeys.children.server PORT STORE PAGE`.

/agents/assistant/ROOM --> Assistant --delegate--> Researcher, which waits for its cue      else --> the page

`ask 5 hold 5` lets one child say five words, wait until somebody posts to its own address (`…/release`), and
say five more; with ` & ` between them there are as many children as scripts. A model that is asked to go on
begins again from the start, as the worst of them do.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, Literal

import msgspec
from starlette.staticfiles import StaticFiles

from everthink import App, Think, agent_tool
from everthink.models import port as model
from everthink.prompt.wording import CONTINUE_NUDGE
from everthink.server.batched_websocket import options
from tests.journeys.hooks.stage import Cue
from tests.wire.peer import text_of


def _asked(request: model.Request) -> tuple[int, str]:
    """The last question, and where it stands."""
    return [
        (place, text)
        for place, message in enumerate(request.messages)
        if isinstance(message, model.UserMessage) and (text := text_of(message)) != CONTINUE_NUDGE
    ][-1]


class Speaker:
    """Says so many words, and waits where it is told to."""

    name = "speaker"
    continues: Literal["prefill", "prompt"] = "prompt"

    def __init__(self) -> None:
        self.cue = Cue()

    async def stream(self, request: model.Request) -> AsyncGenerator[model.ModelEvent, None]:
        said = 0
        yield model.Opened()
        yield model.TextStart("t")
        for word in _asked(request)[1].split():
            if word == "hold":
                await self.cue.hold()
                continue
            for _ in range(int(word)):
                yield model.TextDelta("t", f"w{said} ")
                said += 1
        yield model.TextEnd("t")
        yield model.Finish("stop")


class Researcher(Think):
    """A child."""

    async def on_start(self, props: Any = None) -> None:
        self.speaker = Speaker()

    def get_model(self) -> Any:
        return self.speaker

    def format_agent_tool_input(self, input: Any) -> str:
        return input["query"]

    async def on_request(self, request: Any) -> Any:
        match request.url.path:
            case "/release":
                await self.speaker.cue.release()
            case "/held":
                await self.speaker.cue.until_held()
            case _:
                return None
        return {"name": self.name}


class Chief:
    """Asks children, and says what they answered."""

    name = "chief"
    continues: Literal["prefill", "prompt"] = "prompt"

    async def stream(self, request: model.Request) -> AsyncGenerator[model.ModelEvent, None]:
        place, question = _asked(request)
        results = [
            part
            for message in request.messages[place:]
            if isinstance(message, model.ToolMessage)
            for part in message.content
            if isinstance(part, model.ToolResultPart)
        ]
        yield model.Opened()
        if not results:
            for number, script in enumerate(question.removeprefix("ask ").split(" & ")):
                given = msgspec.json.encode({"query": script}).decode()
                yield model.ToolCallReady(f"call-{place}-{number}", "delegate", given)
            yield model.Finish("tool-calls")
            return
        yield model.TextStart("t")
        yield model.TextDelta("t", f"{len(results)} answered.")
        yield model.TextEnd("t")
        yield model.Finish("stop")


class Assistant(Think):
    """A parent."""

    model = Chief()
    delegate = agent_tool(Researcher, description="Let somebody look into it.", display_name="Researcher")


class House(App):
    """Serves the family and the page."""

    def __init__(self, store: str, page: Path) -> None:
        super().__init__(Assistant, store=store)
        self._page = StaticFiles(directory=page, html=True)

    async def on_other_request(self, request: Any) -> Any:
        return await self._page.get_response(request.url.path.strip("/") or ".", request.scope)


if __name__ == "__main__":
    import uvicorn

    house = House(sys.argv[2], Path(sys.argv[3]))
    uvicorn.run(house, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning", **options(house.limits))
