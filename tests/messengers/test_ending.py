"""What `/stop` and `/new` end that waits for a person's answer, in the chat and below it."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from everthink import App, Think, tool
from everthink.models.port import Request, ToolMessage, UserMessage
from everthink.testing import ScriptedModel, calls, says
from everthink.testing.platform import Shown
from everthink.testing.scripted import Play
from tests.support.platforms import STAGES, Bot, Stage, TelegramStage, bot_class, outcome, serving

pytestmark = pytest.mark.anyio

STOPPED = "⌛ Closed: stopped before anybody decided."


@pytest.fixture(params=["telegram", "slack", "discord"])
async def stage(request: pytest.FixtureRequest, anyio_backend: str) -> AsyncIterator[Stage]:
    made = STAGES[request.param]()
    async with made.platform:
        yield made


@pytest.fixture
async def telegram(anyio_backend: str) -> AsyncIterator[TelegramStage]:
    made = TelegramStage()
    async with made.platform:
        yield made


@pytest.fixture
def store(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/bot.db"


def ledger(store: str) -> dict[str, str]:
    with sqlite3.connect(store.removeprefix("sqlite:///")) as database:
        return dict(database.execute("SELECT tool, state FROM calls"))


def runs(store: str) -> list[tuple[str, str]]:
    with sqlite3.connect(store.removeprefix("sqlite:///")) as database:
        return database.execute("SELECT class, status FROM child_runs ORDER BY class").fetchall()


async def asked(stage: Stage) -> Shown:
    """The question that Ann sees."""
    await stage.platform.until(lambda: any(shown.buttons for shown in stage.answers()))
    return next(shown for shown in stage.answers() if shown.buttons)


async def said(stage: Stage, text: str) -> None:
    await stage.platform.until(lambda: any(shown.text == text for shown in stage.answers()))


class Till(Bot):
    """Asks before it refunds."""

    done: list[str] = []  # noqa: RUF012

    @tool(needs_approval=True)
    async def refund(self, order: str) -> str:
        """Refund an order."""
        self.done.append(order)
        return "refunded"


def refunding(request: Request) -> Play:
    """Refunds what was asked for last, unless that was done, or was denied."""
    last = request.messages[-1]
    if isinstance(last, UserMessage) and "refund" in str(last).lower():
        return calls("refund", order="7")
    return says("I hear you.")


def till(stage: Stage, *plays: Any, **options: Any) -> type[Think]:
    model = ScriptedModel(*plays) if plays else ScriptedModel(refunding, repeat=True)
    return bot_class(stage, model, base=type("Till", (Till,), {"done": []}), **options)


async def test_stop_ends_what_waits_for_an_answer(stage: Stage, store: str) -> None:
    cls = till(stage, commands=["stop"])
    async with serving(stage, cls, store):
        # Given a call that asks, and whose turn is over
        await stage.ask("Refund order 7")
        question = await asked(stage)
        buttons = list(question.buttons)

        # When somebody stops it
        await stage.ask("/stop")
        await said(stage, "Stopped.")
        await stage.platform.until(lambda: not question.buttons)

        # Then the question says so, and nobody can answer it
        assert outcome(question.text) == STOPPED
        assert '"order": "7"' in question.text
        question.buttons[:] = buttons
        await stage.press(question, "Approve")
        assert stage.told("ann") == [STOPPED]

        # And the conversation goes on with what is said next
        question.buttons.clear()
        await stage.ask("Are you there?")
        await said(stage, "I hear you.")
    assert cls.done == []  # type: ignore[attr-defined]
    assert ledger(store)["refund"] == "denied"


async def test_a_question_that_was_stopped_cannot_be_answered_on_the_page(
    telegram: TelegramStage, store: str
) -> None:
    cls = till(telegram, commands=["stop"], conversation="self")
    async with serving(telegram, cls, store) as app:
        await telegram.ask("Refund order 7")
        question = await asked(telegram)
        agent = app.agent(cls, "default")
        (call,) = [
            part for message in await agent.get_messages() for part in message.parts if "toolCallId" in part
        ]
        await telegram.ask("/stop")
        await telegram.platform.until(lambda: not question.buttons)
        assert not await agent.apply_tool_approval(call["toolCallId"], True)
    assert cls.done == []  # type: ignore[attr-defined]


async def test_a_yes_that_waits_for_another_answer_is_stopped_with_it(
    telegram: TelegramStage, store: str
) -> None:
    plays = [calls("refund", order="7").then(calls("refund", order="8")), says("I hear you.")]
    cls = till(telegram, *plays, commands=["stop"])
    async with serving(telegram, cls, store):
        # Given two calls that ask together, and a yes to one of them
        await telegram.ask("Refund both")
        await telegram.platform.until(lambda: sum(bool(shown.buttons) for shown in telegram.answers()) == 2)
        first, second = [shown for shown in telegram.answers() if shown.buttons]
        await telegram.press(first, "Approve")
        await telegram.platform.until(lambda: not first.buttons)

        # When somebody stops what waits for the other
        await telegram.ask("/stop")
        await said(telegram, "Stopped.")
        await telegram.platform.until(lambda: not second.buttons)
        assert outcome(second.text) == STOPPED

        # Then nothing goes on by itself
        await telegram.ask("Are you there?")
        await said(telegram, "I hear you.")


async def test_where_nothing_waits_there_is_nothing_to_stop(telegram: TelegramStage, store: str) -> None:
    cls = till(telegram, commands=["stop"])
    async with serving(telegram, cls, store):
        await telegram.ask("Refund order 7")
        question = await asked(telegram)
        await telegram.press(question, "Deny")
        await said(telegram, "I hear you.")
        await telegram.ask("/stop")
        await said(telegram, "There is nothing to stop.")
    assert outcome(question.text).startswith("🚫 Denied by")


# --- below


def on_its_own(request: Request) -> Play:
    done = request.messages[-1]
    return says("It is on its way.") if isinstance(done, ToolMessage) else calls("send_clerk", query="Refund")


class Clerk(Think):
    """Works for others, and asks before it refunds."""

    include_workspace_tools = False
    refunded: list[str] = []  # noqa: RUF012
    model = ScriptedModel(refunding, repeat=True)

    @tool(needs_approval=True)
    async def refund(self, order: str) -> str:
        """Refund an order."""
        self.refunded.append(order)
        return "refunded"


class Office(Bot):
    """Sends a clerk, and waits for nobody."""

    sub_agents = (Clerk,)

    @tool
    async def send_clerk(self, query: str) -> str:
        """Send the clerk."""
        return (await self.run_agent_tool(Clerk, input=query, detached=True)).status


def office(stage: Stage, **options: Any) -> type[Think]:
    Clerk.refunded.clear()
    return bot_class(stage, ScriptedModel(on_its_own, repeat=True), base=Office, **options)


@pytest.mark.parametrize(("command", "answer"), [("/new", "Let's begin anew."), ("/stop", "Stopped.")])
async def test_a_child_that_nobody_waits_for_asks_no_more(
    stage: Stage, store: str, command: str, answer: str
) -> None:
    cls = office(stage, commands=["stop", "new"])
    async with serving(stage, cls, store):
        # Given a child that asks, long after the answer that has sent it
        await stage.ask("Send the clerk")
        question = await asked(stage)
        buttons = list(question.buttons)

        # When somebody ends it
        await stage.ask(command)
        await said(stage, answer)
        await stage.platform.until(lambda: not question.buttons)

        # Then the question is closed, for those who press on a screen that is old, too
        assert question.text == "This question is closed."
        question.buttons[:] = buttons
        await stage.press(question, "Approve")
        assert stage.told("ann") == ["This question is closed."]
    assert Clerk.refunded == []
    assert runs(store) == [("Clerk", "aborted")]
    assert ledger(store)["refund"] == "denied"


async def test_a_child_that_asks_is_ended_after_a_restart(telegram: TelegramStage, store: str) -> None:
    cls = office(telegram, commands=["new"])
    async with serving(telegram, cls, store):
        await telegram.ask("Send the clerk")
        question = await asked(telegram)
    async with serving(telegram, cls, store):
        await telegram.ask("/new")
        await telegram.platform.until(lambda: not question.buttons)
    assert question.text == "This question is closed."
    assert runs(store) == [("Clerk", "aborted")]


async def test_a_question_below_that_is_closed_cannot_be_answered_elsewhere(
    telegram: TelegramStage, store: str
) -> None:
    cls = office(telegram, commands=["new"], conversation="self")
    async with serving(telegram, cls, store) as app:
        await telegram.ask("Send the clerk")
        question = await asked(telegram)
        await telegram.ask("/new")
        await telegram.platform.until(lambda: not question.buttons)
        assert not await approved_below(app, cls)
    assert Clerk.refunded == []


async def approved_below(app: App, cls: type[Think]) -> bool:
    """Whether somebody can still say yes in the conversation of the child."""
    agent = app.agent(cls, "default")
    (run,) = await agent.list_sub_agents()
    clerk = await agent.sub_agent(Clerk, run.name)
    (part,) = [
        part for message in await clerk.get_messages() for part in message.parts if "toolCallId" in part
    ]
    return await clerk.apply_tool_approval(part["toolCallId"], True)
