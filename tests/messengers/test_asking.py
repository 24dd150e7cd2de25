"""Approvals as buttons, commands, bursts and files."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from everthink import Think, tool
from everthink.models.port import Request, TextPart, ToolMessage, UserMessage
from everthink.testing import ManualClock, ScriptedModel, calls, says
from everthink.testing.scripted import Play
from everthink.testing.telegram import TelegramChat, TelegramServer
from tests.support.hooks import until
from tests.support.messengers import bot_class, talking
from tests.support.platforms import outcome

pytestmark = pytest.mark.anyio


def refunding(request: Request) -> Play:
    has_result = any(isinstance(message, ToolMessage) for message in request.messages)
    return says("It is done.") if has_result else calls("refund", order="7")


class Clerk(Think):
    """It asks before it refunds."""

    include_workspace_tools = False
    refunded: list[str]

    @tool(needs_approval=True)
    async def refund(self, order: str) -> str:
        """Refund an order."""
        self.refunded.append(order)
        return "refunded"


def clerk(telegram: TelegramServer, refunded: list[str], **options: Any) -> type[Think]:
    base = bot_class(telegram, ScriptedModel(refunding, repeat=True), **options)
    return type("Clerk", (Clerk,), {"model": base.model, "messengers": base.messengers, "refunded": refunded})


async def asked_in(telegram: TelegramServer, chat: TelegramChat) -> Any:
    await telegram.until(lambda: any(shown.buttons for shown in chat.answers))
    return next(shown for shown in chat.answers if shown.buttons)


async def test_whoever_asked_approves_with_a_button_and_the_answer_follows(
    telegram: TelegramServer, store: str
) -> None:
    refunded: list[str] = []
    ann = telegram.private("Ann")
    async with talking(telegram, clerk(telegram, refunded), store):
        await ann.say("Refund order 7")
        asked = await asked_in(telegram, ann)
        assert asked.text.startswith("May I use refund?")
        assert '"order": "7"' in asked.text
        assert [button.label for button in asked.buttons] == ["Approve", "Deny"]
        no = asked.buttons[1]
        told = await ann.press(asked, "Approve")
        await telegram.until(lambda: len(ann.answers) == 2 and "Approved" in ann.answers[0].text)
        assert [outcome(shown.text) for shown in ann.answers] == ["✅ Approved by Ann.", "It is done."]
        assert asked.text.startswith("May I use refund?")
        assert '"order": "7"' in asked.text
        assert not asked.buttons
        await telegram.redeliver(told)
        await telegram.press(ann, asked, no.id, ann.person)
    assert refunded == ["7"]
    assert telegram.toasts[-1][1] == "Decided already: ✅ Approved by Ann."


async def test_others_are_told_that_it_is_not_theirs_to_decide(telegram: TelegramServer, store: str) -> None:
    refunded: list[str] = []
    group = telegram.group("Team")
    async with talking(telegram, clerk(telegram, refunded), store):
        await group.say("@test_bot refund 7", by="Ann")
        asked = await asked_in(telegram, group)
        await group.press(asked, "Approve", by="Bob")
        assert telegram.toasts[-1][1] == "This is not yours to decide."
        assert not refunded
        await group.press(asked, "Deny", by="Ann")
        await telegram.until(lambda: "Denied by Ann" in group.answers[0].text)
    assert not refunded


async def test_approvers_decide_for_everybody(telegram: TelegramServer, store: str) -> None:
    refunded: list[str] = []
    group = telegram.group("Team")
    boss = telegram.person("Boss")
    async with talking(telegram, clerk(telegram, refunded, approvers=[str(boss["id"])]), store):
        await group.say("@test_bot refund 7", by="Ann")
        asked = await asked_in(telegram, group)
        await group.press(asked, "Approve", by="Ann")
        assert not refunded
        await group.press(asked, "Approve", by="Boss")
        await telegram.until(lambda: len(group.answers) == 2)
    assert refunded == ["7"]


async def test_a_question_that_is_answered_on_the_page_says_so(telegram: TelegramServer, store: str) -> None:
    refunded: list[str] = []
    ann = telegram.private("Ann")
    cls = clerk(telegram, refunded, conversation="self")
    async with talking(telegram, cls, store) as (app, _):
        await ann.say("Refund order 7")
        asked = await asked_in(telegram, ann)
        agent = app.agent(cls, "default")
        [part] = [
            part
            for message in await agent.get_messages()
            for part in message.parts
            if part.get("state") == "approval-requested"
        ]
        assert await agent.apply_tool_approval(part["toolCallId"], True)
        await telegram.until(lambda: outcome(asked.text) == "✅ Approved.")
        assert not asked.buttons


async def test_an_approval_outlives_a_restart(telegram: TelegramServer, store: str) -> None:
    refunded: list[str] = []
    ann = telegram.private("Ann")
    cls = clerk(telegram, refunded)
    async with talking(telegram, cls, store):
        await ann.say("Refund order 7")
        asked = await asked_in(telegram, ann)
    async with talking(telegram, cls, store):
        await ann.press(asked, "Approve")
        await telegram.until(lambda: len(ann.answers) == 2 and "Approved" in ann.answers[0].text)
    assert refunded == ["7"]


# --- bursts


def said_in(request: Request) -> list[str]:
    return [
        part.text
        for message in request.messages
        if isinstance(message, UserMessage)
        for part in message.content
        if isinstance(part, TextPart)
    ]


async def test_five_messages_in_a_moment_are_answered_together_and_none_is_lost(
    telegram: TelegramServer, store: str
) -> None:
    clock = ManualClock()
    ann = telegram.private("Ann")
    model = ScriptedModel(lambda request: says(" ".join(said_in(request))), repeat=True)
    async with talking(telegram, bot_class(telegram, model, burst=0.6), store, clock=clock):
        for word in ("one", "two", "three", "four", "five"):
            assert (await ann.say(word)).status == 200
        await clock.advance(0.7)
        await telegram.until(lambda: ann.answers)
    assert [shown.text for shown in ann.answers] == ["one two three four five"]
    assert len(model.requests) == 1


async def test_a_burst_that_a_restart_cuts_is_still_one_answer(telegram: TelegramServer, store: str) -> None:
    ann = telegram.private("Ann")
    model = ScriptedModel(lambda request: says(" ".join(said_in(request))), repeat=True)
    cls = bot_class(telegram, model, burst=0.6)
    clock = ManualClock()
    async with talking(telegram, cls, store, clock=clock):
        await ann.say("one")
        await ann.say("two")
    clock = ManualClock()
    async with talking(telegram, cls, store, clock=clock):
        await clock.advance(0.7)
        await telegram.until(lambda: ann.answers)
    assert [shown.text for shown in ann.answers] == ["one two"]


# --- commands


async def test_stop_stops_the_answer_and_new_begins_anew(telegram: TelegramServer, store: str) -> None:
    ann = telegram.private("Ann")
    model = ScriptedModel(
        says("A beginning that is long enough to be shown.").then_hangs(),
        lambda request: says(f"I know of {len(said_in(request))}."),
    )
    cls = bot_class(telegram, model, commands=("stop", "new"))
    async with talking(telegram, cls, store):
        await ann.say("Tell me everything")
        await telegram.until(lambda: ann.answers)
        told = await ann.say("/stop")
        await telegram.until(lambda: len(ann.answers) == 2)
        await telegram.redeliver(told)
        await ann.say("/new")
        await telegram.until(lambda: len(ann.answers) == 3)
        await ann.say("What do you know?")
        await telegram.until(lambda: len(ann.answers) == 4)
    assert [shown.text for shown in ann.answers] == [
        "A beginning that is long enough to be shown.",
        "Stopped.",
        "Let's begin anew.",
        "I know of 1.",
    ]


async def test_commands_that_nobody_asked_for_are_words(telegram: TelegramServer, store: str) -> None:
    ann = telegram.private("Ann")
    model = ScriptedModel(lambda request: says(said_in(request)[-1]), repeat=True)
    async with talking(telegram, bot_class(telegram, model), store):
        await ann.say("/new")
        await telegram.until(lambda: ann.answers)
    assert ann.answers[0].text == "/new"


# --- files


class Reader(Think):
    include_workspace_tools = False
    got: list[bytes]

    @tool
    async def read_it(self) -> str:
        """Read the file that came along."""
        context = self.get_messenger_context()
        assert context is not None
        assert context.message is not None
        self.got.append(await self.fetch_attachment(context.message.attachments[0]))
        return "read"


async def test_a_file_is_described_and_loaded_only_when_somebody_asks(
    telegram: TelegramServer, store: str
) -> None:
    ann = telegram.private("Ann")
    got: list[bytes] = []
    model = ScriptedModel(calls("read_it"), says("Read."))
    base = bot_class(telegram, model)
    cls = type("Reader", (Reader,), {"model": model, "messengers": base.messengers, "got": got})
    async with talking(telegram, cls, store):
        file = telegram.file("a.txt", b"hello") | {"mime_type": "text/plain"}
        await ann.say("Look at this", document=file)
        await telegram.until(lambda: ann.answers)
    assert said_in(model.requests[0]) == ["Look at this\n\nAttachments:\n- a.txt (text/plain, 5 bytes)"]
    assert got == [b"hello"]
    assert len(telegram.asked("getFile")) == 1


async def test_fetch_media_shows_the_model_what_came(telegram: TelegramServer, store: str) -> None:
    ann = telegram.private("Ann")
    model = ScriptedModel(says("A picture."))
    async with talking(telegram, bot_class(telegram, model, fetch_media=["image"]), store):
        photo = telegram.file("p.png", b"\x89PNG\r\n\x1a\n0000")
        await ann.say("", photo=[photo])
        await telegram.until(lambda: ann.answers)
    content: Any = model.requests[0].messages[-1]
    assert [type(part).__name__ for part in content.content] == ["TextPart", "FilePart"]


# --- what becomes of a question that nobody decides


async def test_a_question_that_the_conversation_has_passed_says_so_and_not_that_it_was_denied(
    telegram: TelegramServer, store: str
) -> None:
    group = telegram.group("Team")
    boss = telegram.person("Boss")
    model = ScriptedModel(calls("refund", order="7"), says("Two."))
    base = bot_class(telegram, model, approvers=[str(boss["id"])])
    cls = type("Clerk", (Clerk,), {"model": model, "messengers": base.messengers, "refunded": []})
    async with talking(telegram, cls, store) as (app, _):
        await group.say("@test_bot refund 7", by="Ann")
        asked = await asked_in(telegram, group)
        no = asked.buttons[1]
        await group.say("@test_bot what is 1+1?", by="Bob")
        await telegram.until(lambda: not asked.buttons)
        assert outcome(asked.text) == "⌛ Closed: the conversation went on before anybody decided."
        assert asked.text.startswith("May I use refund?")
        await telegram.press(group, asked, no.id, boss)
        assert await (await app.open()).store.fetch("SELECT state FROM calls") == [("failed",)]
    assert telegram.toasts[-1][1] == outcome(asked.text)


@pytest.mark.parametrize("by", ["/new", "the page"])
async def test_a_question_of_a_conversation_that_is_over_is_closed(
    telegram: TelegramServer, store: str, by: str
) -> None:
    ann = telegram.private("Ann")
    cls = clerk(telegram, [], conversation="self", commands=["new"])
    async with talking(telegram, cls, store) as (_, server):
        await ann.say("Refund order 7")
        asked = await asked_in(telegram, ann)
        yes = asked.buttons[0]
        if by == "/new":
            await ann.say("/new")
        else:
            page = await server.connect(cls, "default")
            await page.clear()
        await telegram.until(lambda: not asked.buttons)
        await telegram.press(ann, asked, yes.id, ann.person)
    assert asked.text == "This question is closed."
    assert telegram.toasts[-1][1] == "This question is closed."


async def test_what_people_have_read_stays_when_the_page_clears_the_conversation(
    telegram: TelegramServer, store: str
) -> None:
    ann = telegram.private("Ann")
    model = ScriptedModel(says("A beginning that is long enough to be shown.").then_hangs())
    cls = bot_class(telegram, model, conversation="self")
    async with talking(telegram, cls, store) as (app, server):
        await ann.say("Hello")
        await telegram.until(lambda: ann.answers)
        page = await server.connect(cls, "default")
        await page.clear()

        async def is_over() -> bool:
            rows = await (await app.open()).store.fetch("SELECT state FROM deliveries")
            return rows == [("done",)]

        await until(is_over)
    assert [shown.text for shown in ann.answers] == ["A beginning that is long enough to be shown."]


# --- what is answered together, and what is not


class Album(Reader):
    @tool
    async def read_all(self) -> str:
        """Read all the files that came along."""
        context = self.get_messenger_context()
        assert context is not None
        assert context.message is not None
        for one in context.message.attachments:
            self.got.append(await self.fetch_attachment(one))
        return "read"


async def test_a_tool_has_the_files_of_all_the_messages_that_are_answered_together(
    telegram: TelegramServer, store: str
) -> None:
    clock = ManualClock()
    ann = telegram.private("Ann")
    got: list[bytes] = []
    model = ScriptedModel(calls("read_all"), says("Read."), calls("read_all"), says("Again."))
    base = bot_class(telegram, model, burst=0.6)
    cls = type("Album", (Album,), {"model": model, "messengers": base.messengers, "got": got})
    async with talking(telegram, cls, store, clock=clock):
        for number in (1, 2):
            await ann.say("", photo=[telegram.file(f"{number}.png", b"%d" % number)])
        await ann.say("What is this?")
        await clock.advance(0.7)
        await telegram.until(lambda: ann.answers)
        assert got == [b"1", b"2"]

        # And what was answered before is not theirs
        await ann.say("And this?", photo=[telegram.file("3.png", b"3")])
        await clock.advance(0.7)
        await telegram.until(lambda: len(ann.answers) == 2)
    assert got == [b"1", b"2", b"3"]


async def test_without_a_burst_what_comes_during_an_answer_is_answered_one_by_one(
    telegram: TelegramServer, store: str
) -> None:
    ann = telegram.private("Ann")
    gate = asyncio.Event()
    model = ScriptedModel(says("").waits(gate).says("One."), says("Two."), says("Three."))
    async with talking(telegram, bot_class(telegram, model, burst=0.0), store):
        await ann.say("1")
        await until(lambda: model.requests)
        await ann.say("2")
        await ann.say("3")
        gate.set()
        await telegram.until(lambda: [one.text for one in ann.answers] == ["One.", "Two.", "Three."])


# --- what comes of the agent's own accord


class Timer(Think):
    include_workspace_tools = False
    channel: str | None = "telegram"
    threads: list[str | None]

    @tool
    async def remind(self) -> str:
        """Remind them."""
        await self.schedule(60, "ring", {})
        return "scheduled"

    async def ring(self, payload: Any = None) -> None:
        await self.submit_messages("The timer rings.", channel=self.channel)

    async def before_turn(self, turn: Any) -> None:
        context = self.get_messenger_context()
        self.threads.append(None if context is None else context.thread.id)


@pytest.mark.parametrize("is_restarted", [False, True])
async def test_a_reminder_is_shown_where_people_have_talked_last(
    telegram: TelegramServer, store: str, is_restarted: bool
) -> None:
    clock = ManualClock()
    ann = telegram.private("Ann")
    model = ScriptedModel(calls("remind"), says("I will."), says("Time to go!"))
    base = bot_class(telegram, model)
    threads: list[str | None] = []
    cls = type("Timer", (Timer,), {"model": model, "messengers": base.messengers, "threads": threads})
    async with talking(telegram, cls, store, clock=clock):
        await ann.say("Remind me")
        await telegram.until(lambda: [one.text for one in ann.answers] == ["I will."])
        if not is_restarted:
            await clock.advance(61)
            await telegram.until(lambda: len(ann.answers) == 2)
    if is_restarted:
        await clock.advance(61)
        async with talking(telegram, cls, store, clock=clock):
            await telegram.until(lambda: len(ann.answers) == 2)
    assert ann.answers[-1].text == "Time to go!"
    assert set(threads) == {f"telegram:{ann.id}"}
