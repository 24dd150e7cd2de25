"""The built page and two agents from one server: `python -m tests.journeys.page.serve PORT STORE`.

/agents/…, lifespan --> PeerApp        /everthink/agents --> a list        anything else --> the page
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, Literal

from starlette.responses import JSONResponse
from starlette.staticfiles import StaticFiles

from everthink import Think, tool
from everthink.models import port as model
from tests.wire.peer import PeerApp, ThinkPeer, words_of

STATIC = Path(__file__).parents[3] / "src" / "everthink" / "devtools" / "static"

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
            yield model.Finish("tool-calls", model.Usage(412, 38, 450))
            return
        yield model.TextStart("t")
        for word in (BOOKED if books else ADVICE).split(" "):
            await asyncio.sleep(0.01)
            yield model.TextDelta("t", word + " ")
        yield model.TextEnd("t")
        yield model.Finish("stop", model.Usage(520, 184, 704))


class TravelGuide(Think):
    model = Travel()

    @tool
    async def forecast(self, city: str, days: int) -> dict[str, Any]:
        """The weather of the next days."""
        await asyncio.sleep(0.4)
        return {"city": city, "highs": [21, 19, 17]}

    @tool(needs_approval=True)
    async def book_hotel(self, hotel: str, nights: int, price: str) -> dict[str, Any]:
        """Book it, for money."""
        return {"hotel": hotel, "nights": nights, "confirmation": "LX-2291"}


class Site:
    def __init__(self, store: str) -> None:
        self.agents = PeerApp(ThinkPeer, TravelGuide, store=store)
        self.page = StaticFiles(directory=STATIC, html=True)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        path = scope.get("path", "")
        if scope["type"] == "lifespan" or path.startswith("/agents"):
            await self.agents(scope, receive, send)
        elif path == "/everthink/agents":
            listed = [
                {"class": "ThinkPeer", "kebab": "think-peer"},
                {
                    "class": "TravelGuide",
                    "kebab": "travel-guide",
                    "about": "Plans a weekend away, looks at the weather and books with your consent.",
                    "examples": ["What should I pack for a weekend in Lisbon?", "Please book it"],
                },
            ]
            await JSONResponse(listed)(scope, receive, send)
        else:
            await self.page(scope, receive, send)


if __name__ == "__main__":
    import uvicorn

    uvicorn.run(Site(sys.argv[2]), host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
