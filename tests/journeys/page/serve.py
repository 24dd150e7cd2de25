"""The page as `everthink dev` serves it: `python -m tests.journeys.page.serve PORT STORE [KIND]`."""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter
from collections.abc import AsyncGenerator
from typing import Any, ClassVar, Literal

import msgspec

from everthink import App, Message, Think, tool
from everthink.devtools import demo
from everthink.models import port as model
from everthink.models.demo import DemoModel
from everthink.server import Granted, Limits
from everthink.server.batched_websocket import options
from everthink.serving.page import WithPage
from everthink.serving.target import Loaded
from everthink.testing import ManualClock, ScriptedModel, says
from tests.journeys.page.asking import Concierge, Desk
from tests.journeys.page.coding import Dispatcher
from tests.journeys.page.delegating import Office
from tests.journeys.page.filing import Study
from tests.wire import peer
from tests.wire.peer import words_of

LIMITS = Limits(text_bytes=20_000, frame_bytes=2_000_000)

REASONING = "The question is about weather and packing. I should look at the forecast before I say anything."

ADVICE = """Pack for **mild days and cool evenings**. The forecast for Lisbon:

| Day | Weather | High |
|---|---|---|
| Friday | sun | 21° |
| Saturday | clouds | 19° |
| Sunday | light rain | 17° |

So:

- a light jacket and one warm layer
- comfortable shoes, the hills are steep
- a small umbrella for Sunday

If you like to compute things, this is how many shirts you need:

```python
def shirts(days: int, washes: int = 0) -> int:
    return max(3, days - 2 * washes)
```

Shall I book the *Alfama* hotel?"""

BOOKED = "Booked: **Alfama**, three nights. The confirmation is on its way to you."


class Follower(peer.ScriptFollower):
    """Does what the last user message says; asked to go on after a crash, it says that again."""

    async def stream(self, request: model.Request) -> AsyncGenerator[model.ModelEvent, None]:
        told = [m for m in request.messages if not _asks_to_go_on(m)]
        async for event in super().stream(msgspec.structs.replace(request, messages=told)):
            yield event


def _asks_to_go_on(message: model.ModelMessage) -> bool:
    return isinstance(message, model.UserMessage) and words_of(message)[:2] == ["Go", "on"]


class ThinkPeer(peer.ThinkPeer):
    model = Follower()


class Travel:
    """Plays one conversation, for the pictures."""

    name = "travel"
    continues: Literal["prefill", "prompt"] = "prompt"

    async def stream(self, request: model.Request) -> AsyncGenerator[model.ModelEvent, None]:
        last = [m for m in request.messages if isinstance(m, model.UserMessage)][-1]
        answered = any(
            isinstance(m, model.ToolMessage) for m in request.messages[request.messages.index(last) :]
        )
        books = "book" in [word.lower() for word in words_of(last)]
        yield model.Opened()
        if not books and not answered:
            yield model.ReasoningStart("r")
            yield model.ReasoningDelta("r", REASONING)
            yield model.ReasoningEnd("r")
        if not answered:
            name, given = (
                ("book_hotel", '{"hotel": "Alfama", "nights": 3, "price": "312 EUR"}')
                if books
                else ("forecast", '{"city": "Lisbon", "days": 3}')
            )
            yield model.ToolInputStart(name, name)
            yield model.ToolInputDelta(name, given)
            yield model.ToolCallReady(name, name, given)
            yield model.Finish("tool-calls", model.Usage(1412, 38, 1450))
            return
        yield model.TextStart("t")
        for word in (BOOKED if books else ADVICE).split(" "):
            await asyncio.sleep(0.01)
            yield model.TextDelta("t", word + " ")
        yield model.TextEnd("t")
        yield model.Finish("stop", model.Usage(1520, 184, 1704, cached_input_tokens=1408))


class TravelGuide(Think):
    model = Travel()
    about = "Plans a weekend away, looks at the weather and books with your consent."
    examples = ("What should I pack for a weekend in Lisbon?", "Please book it")

    @tool
    async def forecast(self, city: str, days: int) -> dict[str, Any]:
        """The weather of the next days."""
        await asyncio.sleep(0.4)
        return {"city": city, "highs": [21, 19, 17]}

    @tool(needs_approval=True)
    async def book_hotel(self, hotel: str, nights: int, price: str) -> dict[str, Any]:
        """Book it, for money."""
        return {"hotel": hotel, "nights": nights, "confirmation": "LX-2291"}


FILES = {
    "javascript:alert(1)": "text/html",
    "data:text/html,<script>alert(1)</script>": "text/html",
    "data:image/svg+xml,<svg onload='alert(1)'/>": "image/svg+xml",
    "file:///etc/passwd": "text/plain",
    "https://example.com/picture.png": "image/png",
    "data:image/png;base64,iVBORw0KGgo=": "image/png",
}


class Ideas:
    """Has another answer to the same question each time. To `and?` it repeats what it said last.

    Asked for `links` it has some, good ones and bad ones.
    """

    name = "ideas"
    continues: Literal["prefill", "prompt"] = "prompt"

    def __init__(self) -> None:
        self._asked: Counter[str] = Counter()

    async def stream(self, request: model.Request) -> AsyncGenerator[model.ModelEvent, None]:
        question = " ".join(words_of([m for m in request.messages if isinstance(m, model.UserMessage)][-1]))
        self._asked[question] += 1
        said = [
            part.text
            for message in request.messages
            if isinstance(message, model.AssistantMessage)
            for part in message.content
            if isinstance(part, model.TextPart)
        ]
        text = f"You like: {said[-1]}" if question == "and?" else f"Idea number {self._asked[question]}."
        yield model.Opened()
        yield model.TextStart("t")
        yield model.TextDelta("t", text)
        yield model.TextEnd("t")
        for url, media_type in FILES.items() if question == "links" else ():
            yield model.GeneratedFile(url, media_type)
        yield model.Finish("stop", model.Usage(20, 5, 25))


class Muse(Think):
    model = Ideas()


class Demo(demo.Demo):
    """The agent of `everthink dev`, in a hurry."""

    model = DemoModel(pace=0.001)


class Guide(demo.Demo):
    """The same for the pictures, in which nobody else is, at its own pace."""


class Archive(ThinkPeer):
    """Has conversations that one journey finds, names and deletes."""


SQUARE = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAgAAAAICAIAAABLbSncAAAAEUlEQVR42mPQz3+OFTEMLQkAOXp1"
    "QVdTQY0AAAAASUVORK5CYII="
)

SHOWN = f"""1. Lighthouses
  - on rocks
    - of granite
  - on sand
2. Ships

- one
  - inside of one
    1. a number

![a square]({SQUARE})

![a far picture](https://far.example/picture.png)
"""


class Painter:
    """Answers with everything that is not plain text."""

    name = "painter"
    continues: Literal["prefill", "prompt"] = "prompt"

    async def stream(self, request: model.Request) -> AsyncGenerator[model.ModelEvent, None]:
        yield model.Opened()
        yield model.TextStart("t")
        yield model.TextDelta("t", SHOWN)
        yield model.TextEnd("t")
        yield model.GeneratedFile(SQUARE, "image/png")
        yield model.Source("s1", url="https://lights.example/rocks", title="About rocks")
        yield model.Source("s2", title="Sand", media_type="application/pdf", filename="sand.pdf")
        yield model.Source("s3", url="https://lights.example/rocks", title="About rocks")
        yield model.Finish("stop", model.Usage(20, 5, 25))


class Gallery(Think):
    """Shows pictures and sources, and what an earlier server left half."""

    model = Painter()

    async def on_request(self, request: Any) -> Any:
        """`POST …/cut`: an answer that was cut off, of which the journal knows nothing."""
        if request.method != "POST":
            return None
        said = [{"type": "text", "text": "I was just about to", "state": "streaming"}]
        asked = [{"type": "text", "text": "What were you saying?"}]
        await self.add_messages([Message("asked", "user", asked), Message("cut", "assistant", said)])
        return {}


class Walker(Think):
    """Would go on for ever, and may take two steps."""

    max_steps = 2

    def get_model(self) -> ScriptedModel:
        return ScriptedModel.forever(says("One more. ").calls("walk"))

    @tool
    def walk(self) -> str:
        """Walk."""
        return "a step"


class Digger:
    """Uses its tool, then says that it did."""

    name = "digger"
    continues: Literal["prefill", "prompt"] = "prompt"

    async def stream(self, request: model.Request) -> AsyncGenerator[model.ModelEvent, None]:
        yield model.Opened()
        if isinstance(request.messages[-1], model.ToolMessage):
            yield model.TextStart("t")
            yield model.TextDelta("t", "That was deep.")
            yield model.TextEnd("t")
            yield model.Finish("stop", model.Usage(20, 5, 25))
        else:
            name = "rest" if "Rest" in str(request.messages[-1]) else "dig"
            yield model.ToolCallReady(f"{name}-{len(request.messages)}", name, "{}")
            yield model.Finish("tool-calls", model.Usage(20, 5, 25))


class Mine(Think):
    """Has a tool that tells how far it is, one that does not, and both wait for `POST …/go`."""

    model = Digger()

    async def on_start(self, props: Any = None) -> None:
        self.go = asyncio.Event()

    @tool
    async def dig(self) -> AsyncGenerator[str, None]:
        """Dig."""
        yield "one metre"
        await self.go.wait()
        yield "ten metres"

    @tool
    async def rest(self) -> str:
        """Rest."""
        await self.go.wait()
        return "fresh again"

    async def on_request(self, request: Any) -> Any:
        self.go.set()
        return {}


class Guarded(Muse):
    """Knows people by their tokens. `POST …/later`: an hour passes; `POST …/revoke`: bob is nobody now."""

    clock = ManualClock(time.time_ns() // 1_000_000)
    revoked: ClassVar[set[str]] = set()

    async def on_request(self, request: Any) -> Any:
        if request.url.path.endswith("/later"):
            await self.clock.advance(3600)
        else:
            self.revoked.add("bob")
            for connection in self.connections:
                connection.close(1012, "Restarting")
        return {}

    @classmethod
    def who(cls, connection: Any) -> Any:
        """ada for half an hour, bob until he is not, eve for good."""
        name = connection.query_params.get("token")
        known = {"ada", "bob", "eve"} - cls.revoked
        return Granted(name, until=ADA_UNTIL if name == "ada" else None) if name in known else None


ADA_UNTIL = Guarded.clock.now_ms() / 1000 + 1800


def guarded(store: str) -> WithPage:
    """The page of an app that asks who one is."""
    app = App(
        Guarded, store=store, clock=Guarded.clock, authenticate=Guarded.who, authorize=lambda who: bool(who)
    )
    return WithPage(Loaded(app, "the journeys", app))


def site(store: str) -> WithPage:
    """The page, its inspector and the agents."""
    agents = (ThinkPeer, TravelGuide, Muse, Demo, Archive, Gallery, Mine, Walker, Desk, Concierge)
    app = App(*agents, Office, Study, Dispatcher, Guide, store=store, limits=LIMITS)
    return WithPage(Loaded(app, "the journeys", app))


def shared(store: str) -> WithPage:
    """The page of an app with an MCP server for all agents, in its own process."""
    from tests.journeys.page.library import library

    app = App(Desk, store=store, mcp_servers={"library": library()})
    return WithPage(Loaded(app, "the journeys", app))


if __name__ == "__main__":
    import uvicorn

    place: dict[str, Any] = {"host": "127.0.0.1", "port": int(sys.argv[1]), "log_level": "warning"}
    made = {"guarded": guarded, "shared": shared}.get("".join(sys.argv[3:]), site)
    uvicorn.run(made(sys.argv[2]), **place, **options(LIMITS))
