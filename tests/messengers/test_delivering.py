"""What goes out: long answers, limits of the platform, and what is shown when it does not go well."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from everthink.messengers import DeliveryPolicy, Draft, Target
from everthink.messengers.telegram import Telegram
from everthink.store.port import Statement
from everthink.testing import ManualClock, ScriptedModel, says
from everthink.testing.platform import FaultKind
from everthink.testing.scripted import fails, hangs
from everthink.testing.telegram import TelegramServer
from tests.support.hooks import until
from tests.support.messengers import bot_class, talking

pytestmark = pytest.mark.anyio

LONG = "\n\n".join(f"Paragraph {number}. " + "So it is written. " * 30 for number in range(20)).strip()


async def rows(app: Any, state: str | None = None) -> list[Any]:
    store = (await app.open()).store
    found = await store.fetch("SELECT state, attempts, error, part FROM deliveries ORDER BY created_at, part")
    return [row for row in found if state in (None, row[0])]


@pytest.mark.agent_case(408)
async def test_a_long_answer_is_several_messages_and_loses_nothing(
    telegram: TelegramServer, store: str
) -> None:
    ann = telegram.private("Ann")
    async with talking(telegram, bot_class(telegram, ScriptedModel(says(LONG))), store):
        await ann.say("Tell me all")
        await telegram.until(lambda: "Paragraph 19" in ann.answers[-1].text if ann.answers else False)
        await until(lambda: len(ann.answers) == 4)
    assert all(len(shown.text) <= 3500 for shown in ann.answers)
    assert " ".join(" ".join(shown.text for shown in ann.answers).split()) == " ".join(LONG.split())


async def test_visible_soft_limit_and_split_text_are_the_developers(
    telegram: TelegramServer, store: str
) -> None:
    ann = telegram.private("Ann")
    policy = DeliveryPolicy(visible_soft_limit=10, split_text=lambda text: text.split(", "))
    model = ScriptedModel(says("one two three, four, five"))
    async with talking(telegram, bot_class(telegram, model, delivery=policy), store):
        await ann.say("Count")
        await telegram.until(lambda: len(ann.answers) == 4)
    assert [shown.text for shown in ann.answers] == ["one two", "three", "four", "five"]


@pytest.mark.parametrize("kind", ["429", "500"])
async def test_a_platform_that_says_no_for_now_is_asked_again(
    telegram: TelegramServer, store: str, kind: FaultKind
) -> None:
    clock = ManualClock()
    ann = telegram.private("Ann")
    telegram.fault("sendMessage", kind, times=2, retry_after=30)
    cls = bot_class(telegram, ScriptedModel(says("Here I am.")))
    async with talking(telegram, cls, store, clock=clock) as (app, _):
        await ann.say("Hello")
        for asked in (1, 2):
            await telegram.until(lambda asked=asked: len(telegram.asked("sendMessage")) == asked)
            await until_planned(app)
            assert not ann.answers
            await clock.advance(31)
        await telegram.until(lambda: ann.answers)
        await until_done(app)
    assert [shown.text for shown in ann.answers] == ["Here I am."]


async def until_planned(app: Any) -> None:
    async def is_planned() -> bool:
        return any(row[2] for row in await rows(app, "planned"))

    await until(is_planned)


async def until_done(app: Any, *, state: str = "done") -> None:
    async def is_done() -> bool:
        return {row[0] for row in await rows(app)} == {state}

    await until(is_done)


@pytest.mark.parametrize("policy", ["repeat", "skip"])
async def test_on_uncertain_says_whether_what_nobody_knows_is_repeated(
    telegram: TelegramServer, store: str, policy: Any
) -> None:
    ann = telegram.private("Ann")
    telegram.fault("sendMessage", "accept_then_drop")
    delivery = DeliveryPolicy(on_uncertain=policy)
    cls = bot_class(telegram, ScriptedModel(says("Here I am.")), delivery=delivery)
    async with talking(telegram, cls, store) as (app, _):
        await ann.say("Hello")
        await until_done(app, state="done" if policy == "repeat" else "failed")
    many = 2 if policy == "repeat" else 1
    assert [shown.text for shown in ann.answers] == ["Here I am."] * many


@pytest.mark.parametrize("is_streamed", [True, False])
@pytest.mark.usefixtures("soon")
async def test_what_follows_a_message_that_is_not_repeated_is_shown(
    telegram: TelegramServer, store: str, is_streamed: bool
) -> None:
    ann = telegram.private("Ann")
    gate = asyncio.Event()
    model = ScriptedModel(says(LONG[:3000]).waits(gate).says(LONG[3000:]) if is_streamed else says(LONG))
    dropped = telegram.fault("sendMessage", "accept_then_drop")
    cls = bot_class(telegram, model, delivery=DeliveryPolicy(on_uncertain="skip"))
    async with talking(telegram, cls, store) as (app, _):
        await ann.say("Tell me all")
        await telegram.until(lambda: dropped.met)
        gate.set()
        await telegram.until(lambda: "Paragraph 19" in ann.answers[-1].text)
        await until(lambda: len(ann.answers) == 4)
        child = await only_child(app)
        assert await child.fetch("SELECT status FROM turns WHERE agent = :agent") == [("completed",)]

        async def all_settled() -> bool:
            return [row[0] for row in await rows(app)] == ["failed", "done", "done", "done"]

        await until(all_settled)
    assert LONG.startswith(ann.answers[0].text)
    assert not ann.answers[0].before


async def test_what_a_process_that_died_had_still_to_give_up_is_given_up(
    telegram: TelegramServer, store: str
) -> None:
    # Given an answer in four messages, the first of which could not be shown to Ann
    ann = telegram.private("Ann")
    ann.is_blocked = True
    async with talking(telegram, bot_class(telegram, ScriptedModel(says(LONG))), store) as (app, _):
        await ann.say("Tell me all")
        await until_done(app, state="failed")
        # And a process that died before it could say so of the others
        await (await only_child(app)).apply(
            [Statement("UPDATE deliveries SET state = 'planned' WHERE agent = :agent AND part > 1", ())]
        )

    # When the next one starts
    ann.is_blocked = False
    asked = len(telegram.asked("sendMessage"))
    async with talking(telegram, bot_class(telegram, ScriptedModel()), store) as (app, _):
        await until_done(app, state="failed")

    # Then nothing is left, and nothing was shown
    assert len(telegram.asked("sendMessage")) == asked
    assert not ann.answers


@pytest.mark.agent_case(410)
async def test_a_bot_that_is_blocked_stops_its_turn_and_says_so_in_its_row(
    telegram: TelegramServer, store: str
) -> None:
    ann = telegram.private("Ann")
    model = ScriptedModel(says("A beginning that is long enough to be shown.").then_hangs())
    async with talking(telegram, bot_class(telegram, model), store) as (app, _):
        ann.is_blocked = True
        await ann.say("Hello")
        await until_done(app, state="failed")
        [(_, _, error, _)] = await rows(app)
        assert "blocked by the user" in error
        child = await only_child(app)

        async def is_stopped() -> bool:
            [(status,)] = await child.fetch("SELECT status FROM turns WHERE agent = :agent")
            return status == "aborted"

        await until(is_stopped)


async def only_child(app: Any) -> Any:
    directory = await app.open()
    [(agent,)] = await directory.store.fetch("SELECT agent FROM agents WHERE parent IS NOT NULL")
    return (await directory.reach(await directory._address_of(agent))).store


async def test_a_message_that_was_deleted_is_not_written_again(telegram: TelegramServer, store: str) -> None:
    ann = telegram.private("Ann")
    gate = asyncio.Event()
    model = ScriptedModel(says("A beginning that is long enough, ").waits(gate).says("and an end."))
    async with talking(telegram, bot_class(telegram, model), store) as (app, _):
        await ann.say("Hello")
        await telegram.until(lambda: ann.answers)
        ann.delete(ann.answers[0])
        gate.set()
        await until_done(app, state="failed")
        assert "message to edit not found" in (await rows(app))[0][2]
    assert not ann.answers


@pytest.mark.agent_case(409)
async def test_a_failing_turn_says_nothing_of_the_failure(telegram: TelegramServer, store: str) -> None:
    ann = telegram.private("Ann")
    model = ScriptedModel(fails("the password is hunter2"))
    async with talking(telegram, bot_class(telegram, model), store):
        await ann.say("Hello")
        await telegram.until(lambda: ann.answers)
    assert [shown.text for shown in ann.answers] == [
        "Sorry, I couldn't answer that right now. Please try again."
    ]


@pytest.mark.agent_case(407, 418)
async def test_a_reply_that_does_not_go_on_after_a_crash_is_apologised_for(
    telegram: TelegramServer, store: str
) -> None:
    ann = telegram.private("Ann")
    model = ScriptedModel(says("A beginning that is long enough to be seen.").then_hangs())
    cls = type("Bot", (bot_class(telegram, model),), {"chat_recovery": False})
    async with talking(telegram, cls, store):
        await ann.say("Hello")
        await telegram.until(lambda: ann.answers)
    async with talking(telegram, cls, store):
        await telegram.until(lambda: len(ann.answers) == 2)
    assert [shown.text for shown in ann.answers] == [
        "A beginning that is long enough to be seen.",
        "Sorry, my reply was interrupted. Please send your message again if you'd like me to retry.",
    ]


@pytest.mark.agent_case(401, 419)
async def test_a_reply_interrupted_before_its_first_word_is_answered_after_a_restart(
    telegram: TelegramServer, store: str
) -> None:
    ann = telegram.private("Ann")
    model = ScriptedModel(hangs(), says("Now."))
    cls = bot_class(telegram, model)
    async with talking(telegram, cls, store):
        await ann.say("Hello")
        await until(lambda: model.requests)
    async with talking(telegram, cls, store):
        await telegram.until(lambda: ann.answers)
    assert [shown.text for shown in ann.answers] == ["Now."]


async def test_markdown_is_shown_as_telegram_shows_it(telegram: TelegramServer, store: str) -> None:
    ann = telegram.private("Ann")
    said = "# Title\n\n**bold** & <i>`code`</i>\n\n```python\nif a < b:\n    pass\n```\n- one\n"
    said += "- [two](https://a.b/?c=1&d=2)"
    async with talking(telegram, bot_class(telegram, ScriptedModel(says(said))), store):
        await ann.say("Hello")
        await telegram.until(lambda: ann.answers)
    assert ann.answers[0].text == "Title\n\nbold & <i>code</i>\n\nif a < b:\n    pass\n• one\n• two"


@pytest.mark.agent_case(411, 416)
async def test_an_edit_that_changes_nothing_is_no_failure(telegram: TelegramServer) -> None:
    ann = telegram.private("Ann")
    adapter = Telegram(token=telegram.token, user_name="test_bot", api_base_url=telegram.origin)
    target = Target(chat=str(ann.id), is_direct=True)
    try:
        ref = await adapter.post(target, Draft(text="**Hello**"), key="k")
        await adapter.edit(target, ref, Draft(text="**Hello**"))
        await adapter.edit(target, ref, Draft(text="Bye"))
    finally:
        await adapter.close()
    assert [asked.status for asked in telegram.asked("editMessageText")] == [400, 200]
    assert [shown.text for shown in ann.answers] == ["Bye"]
