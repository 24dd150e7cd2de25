"""What children ask, asked in the chat of whom they work for, and questions that people see twice."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from everthink import App, Think, agent_tool, tool
from everthink.messengers import DeliveryPolicy
from everthink.models.port import Request, ToolMessage
from everthink.observe import Event
from everthink.testing import ManualClock, ScriptedModel, calls, says
from everthink.testing.discord import DiscordServer
from everthink.testing.platform import Shown
from everthink.testing.scripted import Play
from everthink.testing.slack import SlackWorkspace
from tests.support.platforms import STAGES, Bot, Stage, TelegramStage, bot_class, outcome, serving

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["telegram", "slack", "discord"])
async def stage(request: pytest.FixtureRequest, anyio_backend: str) -> AsyncIterator[Stage]:
    made = STAGES[request.param]()
    async with made.platform:
        yield made


@pytest.fixture
def store(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/bot.db"


def has_result(request: Request) -> bool:
    return isinstance(request.messages[-1], ToolMessage)


def refunding(request: Request) -> Play:
    return says("The clerk is done.") if has_result(request) else calls("refund", order="7")


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


def asking(tool_name: str) -> Callable[[Request], Play]:
    def play(request: Request) -> Play:
        done = request.messages[-1]
        if not isinstance(done, ToolMessage):
            return calls(tool_name, query="Refund order 7")
        return says(f"I was told: {done.content[-1].output}")

    return play


class Office(Bot):
    """Asks a clerk."""

    clerk = agent_tool(Clerk, description="Ask the clerk.")


class Middle(Think):
    """Passes on what it is asked."""

    include_workspace_tools = False
    model = ScriptedModel(asking("clerk"), repeat=True)
    clerk = agent_tool(Clerk, description="Ask the clerk.")


class Tower(Bot):
    """Asks somebody who asks a clerk."""

    middle = agent_tool(Middle, description="Ask the one below.")


def office(stage: Stage, base: type[Think] = Office, calling: str = "clerk", **options: Any) -> type[Think]:
    Clerk.refunded.clear()
    return bot_class(stage, ScriptedModel(asking(calling), repeat=True), base=base, **options)


async def asked(stage: Stage) -> Shown:
    """The question that Ann sees."""
    await stage.platform.until(lambda: any(shown.buttons for shown in stage.answers()))
    return next(shown for shown in stage.answers() if shown.buttons)


async def over(stage: Stage) -> None:
    """Wait until Ann has her answer, and no button is left."""
    await stage.platform.until(lambda: any("I was told" in shown.text for shown in stage.answers()))
    await stage.platform.until(lambda: not any(shown.buttons for shown in stage.answers()))


def ann(stage: Stage) -> str:
    return "Ann" if stage.name == "discord" else "ann"


async def test_what_a_child_asks_is_decided_in_the_chat_of_its_parent(stage: Stage, store: str) -> None:
    async with serving(stage, office(stage), store):
        # Given a child that asks, whose parent is talked to in a chat
        await stage.ask("Refund order 7")
        question = await asked(stage)
        assert question.text.replace("*", "").replace("`", "").startswith("Clerk asks: may it use refund?")
        assert '"order": "7"' in question.text
        assert [button.label for button in question.buttons] == ["Approve", "Deny"]

        # When somebody else presses, and then whoever asked
        await stage.press(question, "Approve", by="bob")
        assert Clerk.refunded == []
        await stage.press(question, "Approve")

        # Then the child goes on, its parent answers, and the question says who decided
        await over(stage)
    assert Clerk.refunded == ["7"]
    assert stage.told("bob") == ["This is not yours to decide."]
    texts = [shown.text for shown in stage.answers()]
    assert f"✅ Approved by {ann(stage)}." in [outcome(text) for text in texts]
    assert len(texts) == 2
    (answer,) = [text for text in texts if "I was told" in text]
    assert "The clerk is done." in answer


async def test_a_no_to_a_child_is_a_no(stage: Stage, store: str) -> None:
    async with serving(stage, office(stage), store):
        await stage.ask("Refund order 7")
        await stage.press(await asked(stage), "Deny")
        await over(stage)
    assert Clerk.refunded == []
    assert any(outcome(shown.text).startswith("🚫 Denied by") for shown in stage.answers())


async def test_a_child_of_a_child_is_heard_as_well(stage: Stage, store: str) -> None:
    async with serving(stage, office(stage, Tower, "middle"), store):
        await stage.ask("Refund order 7")
        question = await asked(stage)
        assert "Clerk asks" in question.text
        await stage.press(question, "Approve")
        await over(stage)
    assert Clerk.refunded == ["7"]
    assert len(stage.answers()) == 2


async def test_what_a_child_asks_outlives_a_restart(stage: Stage, store: str) -> None:
    cls = office(stage)
    async with serving(stage, cls, store):
        await stage.ask("Refund order 7")
        question = await asked(stage)
    async with serving(stage, cls, store):
        await stage.press(question, "Approve")
        await over(stage)
    assert Clerk.refunded == ["7"]
    assert sum("Approved" in shown.text for shown in stage.answers()) == 1


async def test_what_a_child_asks_is_found_on_postgresql(postgres_url: str, anyio_backend: str) -> None:
    stage = TelegramStage()
    async with stage.platform:
        cls = office(stage, Tower, "middle")
        async with serving(stage, cls, postgres_url):
            await stage.ask("Refund order 7")
            question = await asked(stage)
        async with serving(stage, cls, postgres_url):
            await stage.press(question, "Approve")
            await over(stage)
    assert Clerk.refunded == ["7"]


async def test_what_waits_below_goes_with_the_answer_that_is_stopped(
    stage: Stage, store: str, tmp_path: Path
) -> None:
    cls = office(stage, commands=["stop"])
    async with serving(stage, cls, store):
        # Given a child that asks, and whose parent is stopped
        await stage.ask("Refund order 7")
        question = await asked(stage)
        buttons = list(question.buttons)
        await stage.ask("/stop")
        await stage.platform.until(lambda: any(shown.text == "Stopped." for shown in stage.answers()))
        await stage.platform.until(lambda: not question.buttons)
        assert question.text == "This question is closed."

        # When somebody presses on a screen that is old
        question.buttons[:] = buttons
        await stage.press(question, "Approve")

    # Or in another process, which does not know that it is closed
    with sqlite3.connect(tmp_path / "bot.db") as database:
        database.execute("UPDATE deliveries SET body = NULL WHERE call_id IS NOT NULL")
    async with serving(stage, cls, store):
        await stage.press(question, "Approve")
        await stage.platform.until(lambda: not question.buttons)

    # Then nothing happens
    assert Clerk.refunded == []
    assert stage.told("ann") == ["This question is closed."] * 2


async def test_a_child_that_was_cut_off_asks_after_the_restart(stage: Stage, store: str) -> None:
    # Given a child that has begun to work, and has asked nothing yet
    thinks = ScriptedModel(says("Let me see. ").then_hangs(), refunding, refunding)
    clerk = type("Clerk", (Clerk,), {"model": thinks})
    base = type("Office", (Bot,), {"clerk": agent_tool(clerk, description="Ask the clerk.")})
    cls = office(stage, base)
    async with serving(stage, cls, store):
        await stage.ask("Refund order 7")
        await thinks.until_silent()

    # When another process takes it up
    async with serving(stage, cls, store):
        await stage.press(await asked(stage), "Approve")
        await over(stage)

    # Then it has asked, and what it says itself is not shown
    assert Clerk.refunded == ["7"]
    assert not any("Let me see" in shown.text for shown in stage.answers() if "I was told" not in shown.text)


async def test_nobody_is_shown_to_write_while_a_child_waits_for_an_answer(
    store: str, anyio_backend: str
) -> None:
    stage, clock = TelegramStage(), ManualClock()
    async with stage.platform as telegram, serving(stage, office(stage), store, clock=clock):
        await stage.ask("Refund order 7")
        question = await asked(stage)
        before = len(telegram.asked("sendChatAction"))
        for _ in range(6):
            await clock.advance(6)
            await clock.until_waiting()
            await stage.press(question, "Approve", by="bob")
        assert len(telegram.asked("sendChatAction")) == before


async def test_what_is_decided_on_the_page_is_said_in_the_chat(stage: Stage, store: str) -> None:
    cls = office(stage, conversation="self")
    async with serving(stage, cls, store) as app:
        await stage.ask("Refund order 7")
        question = await asked(stage)
        await approve_below(app, cls)
        await stage.platform.until(lambda: outcome(question.text) == "✅ Approved.")
        assert not question.buttons


async def approve_below(app: App, cls: type[Think]) -> None:
    """Somebody says yes in the conversation of the child."""
    agent = app.agent(cls, "default")
    (run,) = await agent.list_sub_agents()
    clerk = await agent.sub_agent(Clerk, run.name)
    (part,) = [
        part
        for message in await clerk.get_messages()
        for part in message.parts
        if part.get("state") == "approval-requested"
    ]
    assert await clerk.apply_tool_approval(part["toolCallId"], True)


async def test_a_child_of_somebody_whom_no_messenger_asked_is_asked_nowhere_else(
    stage: Stage, store: str, tmp_path: Path
) -> None:
    cls = office(stage, conversation="self")
    async with serving(stage, cls, store) as app:
        rests = asyncio.Event()

        def ended(event: Event) -> None:
            if event.agent == "Clerk":
                rests.set()

        app.events.subscribe(ended, type="chat:turn:finish")
        await app.agent(cls, "default").submit_messages("Refund order 7")
        await asyncio.wait_for(rests.wait(), 20)
    with sqlite3.connect(tmp_path / "bot.db") as database:
        assert database.execute("SELECT COUNT(*) FROM deliveries").fetchone() == (0,)
    assert stage.answers() == []


# --- a question that people see twice


class Till(Bot):
    """Asks before it refunds."""

    done: list[str] = []  # noqa: RUF012

    @tool(needs_approval=True)
    async def refund(self, order: str) -> str:
        """Refund an order."""
        self.done.append(order)
        return "refunded"


def till(stage: Stage, **options: Any) -> type[Think]:
    plays = [calls("refund", order="7"), says("I was told to.")]
    base = type("Till", (Till,), {"done": []})
    return bot_class(stage, ScriptedModel(*plays), base=base, **options)


async def seen_twice(stage: Stage, cls: type[Think], store: str) -> tuple[Shown, Shown]:
    """A question of which nobody wrote down that it is shown, so that it was shown once more."""
    hanging = stage.platform.fault(stage.follow, "accept_then_hang")
    async with serving(stage, cls, store):
        await stage.ask("Refund order 7")
        await stage.platform.until(lambda: hanging.met)
    match stage.platform:
        case SlackWorkspace() as slack:
            slack.scopes -= {"im:history"}
        case DiscordServer() as discord:
            discord.forget_nonces()
        case _:
            pass
    async with serving(stage, cls, store) as app:
        recorded = asyncio.Event()
        app.events.subscribe(lambda event: recorded.set(), type="messenger:delivered")
        await asyncio.wait_for(recorded.wait(), 20)
    first, second = [shown for shown in stage.answers() if shown.buttons]
    return first, second


@pytest.mark.usefixtures("soon")
async def test_the_second_of_two_questions_is_closed_when_it_is_pressed_too_late(
    stage: Stage, store: str
) -> None:
    cls = till(stage)
    stale, question = await seen_twice(stage, cls, store)
    async with serving(stage, cls, store):
        await stage.press(question, "Approve")
        await stage.platform.until(lambda: not question.buttons)
        assert stale.buttons

        late = await stage.press(stale, "Deny")
        await stage.platform.until(lambda: not stale.buttons)
        await stage.redeliver(late)
        await stage.platform.until(lambda: any("I was told" in shown.text for shown in stage.answers()))

    said = f"✅ Approved by {ann(stage)}."
    assert [outcome(question.text), outcome(stale.text)] == [said, said]
    assert set(stage.told("ann")) == {f"Decided already: {said}"}
    assert cls.done == ["7"]  # type: ignore[attr-defined]
    assert len(stage.answers()) == 3


@pytest.mark.usefixtures("soon")
async def test_a_question_of_which_nobody_knows_may_be_answered_and_both_say_so(
    stage: Stage, store: str
) -> None:
    cls = till(stage)
    stale, question = await seen_twice(stage, cls, store)
    async with serving(stage, cls, store):
        await stage.press(stale, "Approve")
        await stage.platform.until(lambda: not question.buttons and not stale.buttons)
        await stage.platform.until(lambda: any("I was told" in shown.text for shown in stage.answers()))
        await stage.platform.until(lambda: question.text == stale.text)

    assert outcome(question.text) == f"✅ Approved by {ann(stage)}."
    assert cls.done == ["7"]  # type: ignore[attr-defined]
    assert stage.told("ann") == []


@pytest.mark.usefixtures("soon")
async def test_two_questions_that_were_decided_say_so_after_a_restart(stage: Stage, store: str) -> None:
    cls = till(stage)
    stale, question = await seen_twice(stage, cls, store)
    # Given both are to be edited, and the process dies before it can
    refusing = stage.platform.fault("*", "hang", times=100)
    async with serving(stage, cls, store):
        pressing = asyncio.create_task(stage.press(stale, "Approve"))
        await stage.platform.until(lambda: refusing.met)
    await pressing
    refusing.times = 0
    refusing.release()
    async with serving(stage, cls, store):
        await stage.platform.until(lambda: not question.buttons and not stale.buttons)
        await stage.platform.until(lambda: any("I was told" in shown.text for shown in stage.answers()))
    assert question.text == stale.text


async def test_a_question_that_could_not_be_edited_is_when_somebody_presses_it_again(
    stage: Stage, store: str
) -> None:
    cls = till(stage, delivery=DeliveryPolicy(give_up_after=0.5))
    async with serving(stage, cls, store) as app:
        failed = asyncio.Event()
        app.events.subscribe(lambda event: failed.set(), type="messenger:delivery:failed")
        await stage.ask("Refund order 7")
        question = await asked(stage)
        stage.platform.fault("edit_message" if stage.name == "discord" else stage.edit, "500", times=2)
        await stage.press(question, "Approve")
        await asyncio.wait_for(failed.wait(), 20)
        assert question.buttons

        await stage.press(question, "Deny")
        await over(stage)
    assert outcome(question.text) == f"✅ Approved by {ann(stage)}."
    assert stage.told("ann") == [f"Decided already: {outcome(question.text)}"]
    assert cls.done == ["7"]  # type: ignore[attr-defined]
