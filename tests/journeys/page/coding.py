"""An agent that writes code and looks at pages. What it is told names the calls that it makes."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator
from typing import Any, Literal

from everthink import Think, tool
from everthink.browser import create_browser_tools
from everthink.codemode import create_execute_tool
from everthink.errors import ToolError
from everthink.messages import encode_json
from everthink.models import port as model

__all__ = ["Dispatcher"]

REMINDS = """orders = await tools.orders(since="2026-11-01")
late = [order for order in orders if order["days"] > 5]
for order in late:
    print(order["id"], "is late by", order["days"], "days")
    await tools.remind(order=order["id"])
{"late": len(late), "of": len(orders)}
"""
REFUNDS = """order = (await tools.orders(since="2026-11-01"))[0]
print("paying back", order["id"])
await tools.refund(order=order["id"], euros=30)
"""
FAILS = """print("so far so good")
await tools.remind(order="nowhere")
"""
LOOKS = """ask = {"expression": "document.querySelectorAll('body').length", "returnByValue": True}
(await cdp.send("Runtime.evaluate", ask))["result"]["value"]
"""
SAID: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "Remind everybody whose order is late": [("execute", {"code": REMINDS})],
    "Pay the first one back": [("execute", {"code": REFUNDS})],
    "Remind nobody": [("execute", {"code": FAILS})],
    "Look at our page": [
        ("browser_open", {"url": "{page}"}),
        ("browser_screenshot", {}),
        ("browser_execute", {"code": LOOKS}),
        ("browser_markdown", {"html": "<h1>Opening hours</h1><p>From nine to five.</p>"}),
    ],
}


class Doer:
    """Does what it is asked for, one call a step, and says that it is done."""

    name = "doer"
    continues: Literal["prefill", "prompt"] = "prompt"

    async def stream(self, request: model.Request) -> AsyncGenerator[model.ModelEvent, None]:
        asked = max(n for n, m in enumerate(request.messages) if isinstance(m, model.UserMessage))
        done = sum(isinstance(m, model.ToolMessage) for m in request.messages[asked:])
        message = request.messages[asked]
        assert isinstance(message, model.UserMessage)
        said = "".join(part.text for part in message.content if isinstance(part, model.TextPart))
        calls = SAID.get(said, [])
        yield model.Opened()
        if done < len(calls):
            name, given = calls[done]
            text = encode_json(given).decode().replace("{page}", f"http://127.0.0.1:{sys.argv[1]}/")
            yield model.ToolCallReady(f"{name}-{asked}-{done}", name, text)
            yield model.Finish("tool-calls", model.Usage(20, 5, 25))
            return
        yield model.TextStart("t")
        yield model.TextDelta("t", "That is done.")
        yield model.TextEnd("t")
        yield model.Finish("stop", model.Usage(20, 5, 25))


class Dispatcher(Think):
    """Looks after orders. A reminder waits for `POST …/go`."""

    model = Doer()
    about = "Looks after orders by writing code that calls its tools, and looks at pages of the web."
    examples = tuple(SAID)

    def get_tools(self) -> dict[str, Any]:
        near = [f"127.0.0.1:{sys.argv[1]}"] if len(sys.argv) > 1 else []
        return {"execute": create_execute_tool(), **create_browser_tools(allow_addresses=near)}

    async def on_start(self, props: Any = None) -> None:
        self.go = asyncio.Event()

    async def on_request(self, request: Any) -> Any:
        self.go.set()
        return {}

    @tool
    def orders(self, since: str) -> list[dict[str, Any]]:
        """The orders since a day."""
        return [{"id": "A-17", "days": 9}, {"id": "A-18", "days": 2}, {"id": "B-3", "days": 6}]

    @tool
    async def remind(self, order: str) -> str:
        """Write to whoever should deliver an order."""
        if order == "nowhere":
            raise ToolError("There is no order nowhere.")
        await self.go.wait()
        return f"A letter about {order} is on its way."

    @tool(needs_approval=True)
    def refund(self, order: str, euros: float) -> str:
        """Pay for an order."""
        return f"{euros:.0f} EUR for {order}"
