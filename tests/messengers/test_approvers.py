"""What an approved call knows of who said yes, in a messenger and on a page."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from everthink import App, Think, ToolContext, tool
from everthink.hooks import Approver, ToolCall
from everthink.observe import Event
from everthink.testing import ScriptedModel, calls, says
from everthink.testing.in_process_server import Listening
from everthink.testing.platform import Shown
from tests.security.strangers import by_token, people
from tests.support.platforms import STAGES, Bot, Stage, TelegramStage, bot_class, serving

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["telegram", "slack", "discord"])
async def stage(request: pytest.FixtureRequest, anyio_backend: str) -> AsyncIterator[Stage]:
    made = STAGES[request.param]()
    async with made.platform:
        yield made


@pytest.fixture
def store(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/bot.db"


class Till(Bot):
    """Asks before it refunds, and notes who said yes."""

    heard: list[Any] = []  # noqa: RUF012
    running = asyncio.Event()

    @tool(needs_approval=True, on_interrupt="rerun")
    async def refund(self, order: str, ctx: ToolContext) -> str:
        """Refund an order."""
        self.heard.append((ctx.approved_by, ctx.identity))
        if order == "slow" and len(self.heard) == 1:
            self.running.set()
            await asyncio.Event().wait()
        return "refunded"


class Looking(Till):
    """The same with a hook."""

    async def before_tool_call(self, call: ToolCall) -> None:
        self.heard.append(call.approved_by)


def till(stage: Stage, base: type[Till] = Till, order: str = "7", **options: Any) -> type[Think]:
    made = type("Till", (base,), {"heard": [], "running": asyncio.Event()})
    model = ScriptedModel(calls("refund", order=order), says("It is done."), says("It is done."))
    return bot_class(stage, model, base=made, **options)


async def asked(stage: Stage) -> Shown:
    await stage.platform.until(lambda: any(shown.buttons for shown in stage.answers()))
    return next(shown for shown in stage.answers() if shown.buttons)


async def done(stage: Stage) -> None:
    await stage.platform.until(lambda: any(shown.text == "It is done." for shown in stage.answers()))


async def test_a_tool_and_a_hook_know_who_has_pressed_the_button(stage: Stage, store: str) -> None:
    cls = till(stage, Looking)
    events: list[Event] = []
    async with serving(stage, cls, store) as app:
        app.events.subscribe(events.append, type="audit")
        await stage.ask("Refund order 7")
        question = await asked(stage)
        await stage.press(question, "Approve", by="bob")
        await stage.press(question, "Approve")
        await done(stage)
    in_hook, (in_tool, identity) = cls.heard  # type: ignore[attr-defined]
    assert in_hook == in_tool
    assert identity is None
    assert (in_tool.messenger, in_tool.provider, in_tool.identity) == (stage.name, stage.name, None)
    assert in_tool.user_id
    assert "ann" in {
        str(in_tool.user_name).lower(),
        str(in_tool.full_name).lower(),
        in_tool.user_id.lower()[-3:],
    }
    told = [event.payload for event in events if event.payload.get("action") == "approval"]
    refused, allowed = told
    assert (refused["allowed"], allowed["allowed"]) == (False, True)
    assert refused["person"]["user_id"] != allowed["person"]["user_id"] == in_tool.user_id


async def test_who_said_yes_is_known_after_a_restart(store: str, anyio_backend: str) -> None:
    stage = TelegramStage()
    async with stage.platform:
        cls = till(stage, order="slow")
        async with serving(stage, cls, store):
            await stage.ask("Refund order 7")
            await stage.press(await asked(stage), "Approve")
            await asyncio.wait_for(cls.running.wait(), 20)  # type: ignore[attr-defined]
        async with serving(stage, cls, store):
            await done(stage)
    (before, _), (after, _) = cls.heard  # type: ignore[attr-defined]
    assert before == after
    assert after.full_name == "ann"


async def test_a_yes_on_the_page_has_the_identity_of_who_gave_it(store: str, anyio_backend: str) -> None:
    stage = TelegramStage()
    cls = till(stage)
    app = App(cls, store=store, authenticate=by_token)
    async with stage.platform, Listening(app) as server:
        ann, bob = await people(server, cls, "ann", "bob")
        await ann.say("Refund order 7")
        await bob.until(lambda: "approval-requested" in str(bob.messages))
        (part,) = [part for message in bob.messages for part in message.parts if "toolCallId" in part]
        await bob.approve(str(part["toolCallId"]))
        await bob.until_text("It is done.")
    assert cls.heard == [(Approver(identity="bob"), "bob")]  # type: ignore[attr-defined]


async def test_a_yes_of_code_is_nobodys(store: str, anyio_backend: str) -> None:
    stage = TelegramStage()
    cls = till(stage)
    async with stage.platform, App(cls, store=store) as app:
        agent = app.agent(cls, "a")
        result = await agent.save_messages("Refund order 7")
        await agent.apply_tool_approval(result.message.tool_parts[0]["toolCallId"], True)
        await agent.continue_last_turn()
    assert cls.heard == [(None, None)]  # type: ignore[attr-defined]
