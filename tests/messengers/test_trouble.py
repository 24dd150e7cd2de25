"""Platforms that are away, adapters that raise: nothing that was said is lost, nobody waits for nothing."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from everthink import tool
from everthink.errors import InvalidSettings
from everthink.messengers import (
    Arrived,
    Capabilities,
    DeliveryPolicy,
    MessengerDefinition,
    MessengerLimits,
    Target,
)
from everthink.messengers.port import DeliveryError, RateLimited, Refused
from everthink.messengers.telegram import Telegram
from everthink.testing import ManualClock, ScriptedModel, calls, says
from everthink.testing.platform import FaultKind, Shown, ShownButton
from everthink.testing.telegram import TelegramServer
from tests.support import platforms
from tests.support.hooks import until
from tests.support.messengers import SECRET, Bot, bot_class, talking
from tests.support.platforms import DiscordStage, outcome, passing, serving

pytestmark = pytest.mark.anyio


async def states(app: Any) -> list[tuple[str, int]]:
    store = (await app.open()).store
    return list(await store.fetch("SELECT state, attempts FROM deliveries ORDER BY created_at, part"))


async def until_states(app: Any, *wanted: str) -> None:
    async def are_so() -> bool:
        return [state for state, _ in await states(app)] == list(wanted)

    await until(are_so)


# --- a platform that is away


async def test_a_platform_that_is_away_for_an_hour_shows_the_answer_when_it_is_back(
    telegram: TelegramServer, store: str
) -> None:
    clock = ManualClock()
    ann = telegram.private("Ann")
    away = telegram.fault("sendMessage", "500", times=60)
    async with talking(telegram, bot_class(telegram, ScriptedModel(says("Here."))), store, clock=clock):
        began = clock.now_ms()
        await ann.say("Hello")
        while not ann.answers:
            await clock.advance(20)
            await asyncio.wait_for(_something(telegram, away.met), 5)
        assert 50 * 60_000 < clock.now_ms() - began < 75 * 60_000
    assert [shown.text for shown in ann.answers] == ["Here."]
    assert away.met == 60


async def _something(telegram: TelegramServer, before: int) -> None:
    try:
        await telegram.until(lambda: len(telegram.asked("sendMessage")) > before, within=0.02)
    except TimeoutError:
        return


async def test_give_up_after_is_for_how_long_a_message_is_tried(telegram: TelegramServer, store: str) -> None:
    clock = ManualClock()
    ann = telegram.private("Ann")
    telegram.fault("sendMessage", "500", times=99)
    policy = DeliveryPolicy(give_up_after=7)
    cls = bot_class(telegram, ScriptedModel(says("Here I am.")), delivery=policy)
    async with talking(telegram, cls, store, clock=clock) as (app, _):
        gone = asyncio.Event()
        app.events.subscribe(lambda event: gone.set(), type="messenger:delivery:failed")
        await ann.say("Hello")
        await passing(telegram, clock, gone.is_set)
    assert len(telegram.asked("sendMessage")) == 4  # at once, after 1, 3 and 7 seconds


@pytest.mark.parametrize("is_restarted", [False, True])
async def test_what_has_failed_is_delivered_again_whole_when_somebody_asks_for_it(
    telegram: TelegramServer, store: str, is_restarted: bool
) -> None:
    clock = ManualClock()
    ann = telegram.private("Ann")
    text = "So it is written. " * 500
    away = telegram.fault("sendMessage", "500", times=99)
    options = {"delivery": DeliveryPolicy(give_up_after=2), "conversation": "self"}
    cls = bot_class(telegram, ScriptedModel(says(text)), **options)
    async with talking(telegram, cls, store, clock=clock) as (app, _):
        gone: list[Any] = []
        app.events.subscribe(gone.append, type="messenger:delivery:failed")
        await ann.say("Tell me all")
        await passing(telegram, clock, lambda: len(gone) == 3)
        await until_states(app, "failed", "failed", "failed")
        away.times = away.met
        if not is_restarted:
            await again_whole(app, cls, telegram, text)
    if is_restarted:
        async with talking(telegram, cls, store) as (app, _):
            await again_whole(app, cls, telegram, text)
    assert len(ann.answers) == 3


async def again_whole(app: Any, cls: Any, telegram: TelegramServer, text: str) -> None:
    ann = telegram.private("Ann")
    agent = app.agent(cls, "default")
    assert await agent.deliver_again() == 3
    await telegram.until(lambda: "".join(one.text for one in ann.answers).count("So it is") == 500)
    await until_states(app, "done", "done", "done")
    assert await agent.deliver_again() == 0


async def test_max_attempts_is_how_often_a_message_is_sent_that_people_may_see_each_time(
    telegram: TelegramServer, store: str
) -> None:
    clock = ManualClock()
    ann = telegram.private("Ann")
    telegram.fault("sendMessage", "accept_then_drop", times=99)
    policy = DeliveryPolicy(max_attempts=3)
    cls = bot_class(telegram, ScriptedModel(says("Here I am.")), delivery=policy)
    async with talking(telegram, cls, store, clock=clock) as (app, _):
        gone = asyncio.Event()
        app.events.subscribe(lambda event: gone.set(), type="messenger:delivery:failed")
        await ann.say("Hello")
        await passing(telegram, clock, gone.is_set)
    assert len(ann.answers) == 3


async def test_typing_that_hangs_does_not_hold_up_the_answer(telegram: TelegramServer, store: str) -> None:
    ann = telegram.private("Ann")
    hangs = telegram.fault("sendChatAction", "hang", times=9)
    gate = asyncio.Event()
    model = ScriptedModel(says("").waits(gate).says("Here I am."))
    async with talking(telegram, bot_class(telegram, model), store):
        await ann.say("Hello")
        await telegram.until(lambda: hangs.met)
        gate.set()
        await telegram.until(lambda: ann.answers, within=10)  # it is waited for 20 seconds


@pytest.mark.parametrize("kind", ["500", "429", "accept_then_drop"])
@pytest.mark.usefixtures("soon")
async def test_thinking_that_cannot_be_taken_back_at_once_is_taken_back_later(
    store: str, kind: FaultKind, anyio_backend: str
) -> None:
    stage = DiscordStage()
    async with stage.platform as discord:
        fault = discord.fault("delete_original", kind, retry_after=0.1)
        model = ScriptedModel(says("").then_hangs())
        async with serving(stage, platforms.bot_class(stage, model, commands=["stop"]), store):
            await stage.ask("How far?")
            await model.until_silent()
            await stage.ask("/stop")
            await discord.until(lambda: fault.met and len(discord.asked("delete_original")) > 1)
            await discord.until(lambda: not any(one.is_loading for one in discord.seen("@ann", by="ann")))


# --- adapters that raise


class Odd(Telegram):
    """An adapter that does things of its own."""

    fails = 0

    async def typing(self, target: Target) -> None:
        raise KeyError("typing")

    async def withdraw(self, target: Target) -> None:
        self.fails += 1
        if self.fails < 3:
            raise KeyError("withdraw")


class Absent(Telegram):
    """One that fails where nobody expects it."""

    left = 0

    @property
    def limits(self) -> MessengerLimits:  # type: ignore[override]
        if self.left:
            self.left -= 1
            raise KeyError("limits")
        return Telegram.limits


class Plain(Telegram):
    """A platform without edits and buttons."""

    capabilities = Capabilities(edit_messages=False, actions=False)


def odd_class(telegram: TelegramServer, model: Any, adapter: type[Telegram], **options: Any) -> Any:
    bot = adapter(
        token=telegram.token, user_name="test_bot", secret_token=SECRET, api_base_url=telegram.origin
    )
    definition = MessengerDefinition(messenger=bot, verify_webhook=True, burst=0.0, **options)
    return bot, type("Bot", (Bot,), {"model": model, "messengers": {"telegram": definition}})


async def test_typing_that_raises_loses_no_answer(
    telegram: TelegramServer, store: str, caplog: pytest.LogCaptureFixture
) -> None:
    ann = telegram.private("Ann")
    gate = asyncio.Event()
    _, cls = odd_class(telegram, ScriptedModel(says("").waits(gate).says("Here I am.")), Odd)
    with caplog.at_level(logging.ERROR, "everthink.messengers"):
        async with talking(telegram, cls, store):
            await ann.say("Hello")
            await until(lambda: "typing of the adapter raised" in caplog.text)
            gate.set()
            await telegram.until(lambda: ann.answers)


@pytest.mark.usefixtures("soon")
async def test_withdraw_that_raises_is_tried_again_and_what_follows_is_shown(
    telegram: TelegramServer, store: str
) -> None:
    ann = telegram.private("Ann")
    model = ScriptedModel(says("").then_hangs(), says("Here I am."))
    bot, cls = odd_class(telegram, model, Odd, commands=["stop"])
    async with talking(telegram, cls, store) as (app, _):
        await ann.say("Hello")
        await model.until_silent()
        await ann.say("/stop")
        await ann.say("And now?")
        await telegram.until(lambda: [shown.text for shown in ann.answers] == ["Stopped.", "Here I am."])
        await until_states(app, "done", "done", "done")
    assert bot.fails == 3


@pytest.mark.usefixtures("soon")
async def test_showing_that_raises_is_tried_again(telegram: TelegramServer, store: str) -> None:
    ann = telegram.private("Ann")
    bot, cls = odd_class(telegram, ScriptedModel(says("Here I am.")), Absent)
    async with talking(telegram, cls, store) as (app, _):
        bot.left = 1
        await ann.say("Hello")
        await telegram.until(lambda: ann.answers)
        await until_states(app, "done")
    assert [shown.text for shown in ann.answers] == ["Here I am."]


async def test_showing_that_raises_for_ever_fails_and_says_so(telegram: TelegramServer, store: str) -> None:
    clock = ManualClock()
    ann = telegram.private("Ann")
    policy = DeliveryPolicy(max_attempts=2)
    bot, cls = odd_class(telegram, ScriptedModel(says("Here I am.")), Absent, delivery=policy)
    async with talking(telegram, cls, store, clock=clock) as (app, _):
        failed: list[Any] = []
        app.events.subscribe(failed.append, type="messenger:delivery:failed")
        bot.left = 999
        await ann.say("Hello")
        await passing(telegram, clock, lambda: failed)
        await until_states(app, "failed")
    assert "KeyError" in failed[0].body.error


async def test_capabilities_without_edits_and_buttons_are_kept_to(
    telegram: TelegramServer, store: str
) -> None:
    class Clerk(Bot):
        @tool(needs_approval=True)
        async def refund(self, order: str) -> str:
            """Refund an order."""
            return "refunded"

    ann = telegram.private("Ann")
    model = ScriptedModel(calls("refund", order="7"), says("It is done."))
    _, base = odd_class(telegram, model, Plain, conversation="self")
    cls = type("Clerk", (Clerk,), {"model": model, "messengers": base.messengers})
    async with talking(telegram, cls, store) as (app, _):
        await ann.say("Refund order 7")
        await telegram.until(lambda: ann.answers)
        assert ann.answers[0].text.endswith("Please answer this on the page.")
        assert not ann.answers[0].buttons
        agent = app.agent(cls, "default")
        part = (await agent.get_messages())[-1].parts[-1]
        assert await agent.apply_tool_approval(part["toolCallId"], True)
        await telegram.until(lambda: len(ann.answers) == 2)
    assert outcome(ann.answers[1].text) == "✅ Approved."
    assert not telegram.asked("editMessageText")


class Slip(Telegram):
    """An adapter with a slip of the pen."""

    def parse(self, headers: Mapping[str, str], body: bytes) -> Arrived:
        found = super().parse(headers, body)
        kind: Any = "dm"
        return Arrived(tuple(msgspec.structs.replace(event, kind=kind) for event in found.events))


async def test_an_event_of_no_kind_is_told_to_whoever_wrote_the_adapter(
    telegram: TelegramServer, store: str, caplog: pytest.LogCaptureFixture
) -> None:
    _, cls = odd_class(telegram, ScriptedModel(), Slip)
    async with talking(telegram, cls, store):
        assert (await telegram.private("Ann").say("Hello")).status == 200
    assert "'dm', which is no kind of event" in caplog.text


async def test_a_button_that_is_gone_is_named_with_those_that_are_there(
    telegram: TelegramServer,
) -> None:
    ann = telegram.private("Ann")
    shown = Shown(id="1", channel="1", author="bot", text="May I?", buttons=[ShownButton("y", "Yes")])
    with pytest.raises(LookupError, match=r"no button 'Approve' on the message 'May I\?'.*buttons: 'Yes'\."):
        await ann.press(shown, "Approve")


@pytest.mark.parametrize("lacks", ["withdraw", "notify", "limits"])
def test_an_adapter_that_lacks_something_is_refused_with_its_name(lacks: str) -> None:
    names = [name for name in vars(Telegram) if not name.startswith("_")] + ["user_name"]
    has = {name: vars(Telegram).get(name, "here") for name in names if name != lacks}
    half = type("Half", (), has)()
    with pytest.raises(InvalidSettings, match=rf"It has no {lacks}\."):
        MessengerDefinition(messenger=half, verify_webhook=True)


@pytest.mark.parametrize("error", [Refused("No."), RateLimited("Later.", after=2.0)])
def test_no_error_of_a_platform_says_of_itself_that_an_answer_is_stored(error: DeliveryError) -> None:
    # A token may be asked for, or a file: only who delivers an answer knows that there is one.
    assert "stored" not in str(error)
