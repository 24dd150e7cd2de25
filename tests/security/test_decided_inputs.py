"""Who decides about a call sees what will run: checked, converted, with its defaults."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from everthink import Block, Think, tool
from everthink.hooks import ToolCall
from everthink.testing import Play, ScriptedModel, calls, says

from ..support.turns import Database
from .conftest import Serve, ServeOn
from .strangers import people

pytestmark = pytest.mark.anyio


class Post(Think):
    """Pays and sends; large amounts and what leaves the house are asked about."""

    done: list[Any]

    @tool(needs_approval=lambda input: input["amount"] > 10)
    async def refund(self, order: str, amount: float = 500) -> str:
        """Pay back."""
        self.done.append(amount)
        return "paid"

    @tool(needs_approval=lambda input: input.get("to") == "outside")
    async def send(self, text: str, to: str = "outside") -> str:
        """Send."""
        self.done.append(to)
        return "sent"

    @tool
    async def post(self, text: str, to: str = "outside", copies: int = 1) -> str:
        """Post."""
        self.done.append((to, copies))
        return "posted"


def post(*plays: Play, **members: Any) -> type[Post]:
    return type("Post", (Post,), {"model": ScriptedModel(*plays), "done": [], **members})


@pytest.mark.parametrize(
    "play",
    [
        calls("refund", order="A"),
        calls("refund", order="A", amount="500"),
        calls("send", text="x"),
    ],
    ids=["a default", "a text for a number", "another default"],
)
async def test_an_approval_is_asked_for_what_would_run(serve: Serve, play: Play) -> None:
    cls = post(play)
    server = await serve(cls)
    (one,) = await people(server, cls, "a")
    await one.until_done(await one.say("Go"))
    (part,) = one.messages[-1].tool_parts
    assert (part["state"], cls.done) == ("approval-requested", [])


@pytest.mark.parametrize("amount", ["nan", "-inf", "NaN", "-Infinity"])
async def test_an_amount_that_compares_with_nothing_is_refused(serve_on: ServeOn, amount: str) -> None:
    cls = post(calls("refund", order="A", amount=amount), says("Sorry."))
    server = await serve_on(cls)
    (one,) = await people(server, cls, "a")
    await one.until_done(await one.say("Go"))
    (part,) = one.messages[-1].tool_parts
    assert "amount should be a finite number" in part["errorText"]
    assert cls.done == []


async def test_before_tool_call_sees_what_would_run(serve: Serve) -> None:
    seen: list[Any] = []

    async def before_tool_call(self: Any, call: ToolCall) -> Any:
        seen.append(call.input)
        return Block("not outside") if call.input["to"] == "outside" else None

    cls = post(
        calls("post", text="x", copies="3"),
        calls("post", text="x", to="us"),
        says("Done."),
        before_tool_call=before_tool_call,
    )
    server = await serve(cls)
    (one,) = await people(server, cls, "a")
    await one.until_done(await one.say("Go"))
    assert seen == [
        {"text": "x", "to": "outside", "copies": 3},
        {"text": "x", "to": "us", "copies": 1},
    ]
    assert cls.done == [("us", 1)]


async def test_the_ledger_keeps_what_the_model_wrote_and_that_is_what_runs(
    serve: Serve, tmp_path: Path
) -> None:
    cls = post(calls("refund", id="c1", order="A", amount="500"), says("Paid."))
    server = await serve(cls)
    (one,) = await people(server, cls, "a")
    await one.until_done(await one.say("Go"))
    assert Database(tmp_path).calls()["c1"]["input"] == '{"order":"A","amount":"500"}'
    await one.approve("c1")
    await one.until_text("Paid.")
    assert cls.done == [500.0]
