"""Options of a messenger, each by its name: what a bot does otherwise when it is set."""

from __future__ import annotations

import asyncio
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from everthink import App, Think
from everthink.deliveries.delivery import Following
from everthink.errors import InvalidSettings
from everthink.messengers import (
    Capabilities,
    DeliveryPolicy,
    MessengerDefinition,
    MessengerLimits,
    SubAgentConversation,
    define_messengers,
)
from everthink.messengers.discord import discord_messenger
from everthink.messengers.slack import slack_messenger
from everthink.messengers.telegram import telegram_messenger
from everthink.testing import ScriptedModel, says
from everthink.testing.in_process_server import Listening
from everthink.testing.scripted import fails
from everthink.testing.telegram import TelegramServer
from tests.support.messengers import SECRET, bot_class, talking

pytestmark = pytest.mark.anyio


def test_every_option_is_named_by_a_test() -> None:
    options = {field.name for kind in (MessengerDefinition, DeliveryPolicy) for field in fields(kind)}
    options -= {"messenger", "delivery"}  # what the others are options of
    names = [
        name
        for file in Path(__file__).parent.glob("test_*.py")
        for name in re.findall(r"^(?:async )?def test_(\w+)", file.read_text(), re.M)
    ]
    assert {option for option in options if not any(f"_{option}_" in f"_{name}_" for name in names)} == set()


MISSPELT: list[tuple[Any, str, str]] = [
    (telegram_messenger, "respond_too", "respond_to"),
    (telegram_messenger, "user_nme", "user_name"),
    (slack_messenger, "signing_secrt", "signing_secret"),
    (slack_messenger, "usr_name", "user_name"),
    (discord_messenger, "aproovers", "approvers"),
    (MessengerDefinition, "respond_too", "respond_to"),
    (DeliveryPolicy, "give_up_afer", "give_up_after"),
    (SubAgentConversation, "agent_cls", "agent_class"),
    (Capabilities, "edit_mesages", "edit_messages"),
    (MessengerLimits, "visble", "visible"),
]


@pytest.mark.parametrize(("made", "written", "meant"), MISSPELT)
def test_an_option_that_is_misspelt_is_refused_with_the_nearest(made: Any, written: str, meant: str) -> None:
    with pytest.raises(InvalidSettings, match=f"has no option '{written}'. Did you mean '{meant}'?"):
        made(**{written: 1})


def test_define_messengers_takes_one_dict() -> None:
    wrong: Any = define_messengers
    with pytest.raises(InvalidSettings, match=r'It takes one dict: define_messengers\({"telegram": …}\)'):
        wrong(telegram=None)


# --- what is answered, and by whom


async def test_respond_to_without_direct_messages_answers_mentions_alone(
    telegram: TelegramServer, store: str
) -> None:
    ann, group = telegram.private("Ann"), telegram.group("Team")
    cls = bot_class(telegram, ScriptedModel(says("Here.")), respond_to=["mention"])
    async with talking(telegram, cls, store):
        assert (await ann.say("Hello?")).status == 200
        await group.say("@test_bot hello?")
        await telegram.until(lambda: group.answers)
    assert not ann.answers


async def test_respond_to_action_answers_a_button_of_the_developers(
    telegram: TelegramServer, store: str
) -> None:
    model = ScriptedModel(lambda request: says(request.messages[-1].content[0].text), repeat=True)  # type: ignore[union-attr]
    ann = telegram.private("Ann")
    async with talking(telegram, bot_class(telegram, model, respond_to=["action"]), store):
        await ann.say("Which colour?")
        (shown,) = ann.seen
        told = await telegram.press(ann, shown, 'chat:{"a":"pick","v":"red"}', ann.person)
        await telegram.until(lambda: ann.answers)
    assert told.status == 200
    assert [answer.text for answer in ann.answers] == [
        f"Action selected: pick\nValue: red\nSource message: {ann.id}:{shown.id}"
    ]
    assert telegram.toasts == [(telegram.presses[0]["id"], None)]


async def test_adapter_name_lets_two_bots_of_one_platform_answer(store: str, anyio_backend: str) -> None:
    async with (
        TelegramServer(bot_name="one_bot", token="1:one") as one,
        TelegramServer(bot_name="two_bot", token="2:two") as two,
    ):

        def bot(telegram: TelegramServer, **options: Any) -> MessengerDefinition:
            return telegram_messenger(
                token=telegram.token,
                user_name=telegram.bot_name,
                secret_token=SECRET,
                api_base_url=telegram.origin,
                burst=0.0,
                **options,
            )

        class Bot(Think):
            include_workspace_tools = False
            model = ScriptedModel(says("Hello."), says("Hello."))
            messengers = {"one": bot(one), "two": bot(two, adapter_name="second")}  # noqa: RUF012

        async with Listening(App(Bot, store=store, grace=0.0, idle_after=None)) as server:
            for id, telegram in (("one", one), ("two", two)):
                telegram.webhook(f"http://{server.host}/messengers/{id}/webhook", secret=SECRET)
                await telegram.private("Ann").say("Hi")
                await telegram.until(lambda telegram=telegram: telegram.private("Ann").answers)
        answers = [[shown.text for shown in each.private("Ann").answers] for each in (one, two)]
    assert answers == [["Hello."], ["Hello."]]


# --- what is shown when it does not go well


async def test_empty_response_text_is_shown_for_an_answer_without_words(
    telegram: TelegramServer, store: str
) -> None:
    ann = telegram.private("Ann")
    policy = DeliveryPolicy(empty_response_text="Nothing to say.")
    async with talking(telegram, bot_class(telegram, ScriptedModel(says("")), delivery=policy), store):
        await ann.say("Hello")
        await telegram.until(lambda: ann.answers)
    assert [shown.text for shown in ann.answers] == ["Nothing to say."]


@pytest.mark.agent_case(411)
@pytest.mark.parametrize("said", ["", "A beginning that is long enough to be seen."])
async def test_error_response_text_is_shown_when_a_turn_fails_with_text_and_without(
    telegram: TelegramServer, store: str, said: str
) -> None:
    ann = telegram.private("Ann")
    policy = DeliveryPolicy(error_response_text="That went wrong.")
    model = ScriptedModel(says(said).then_fails("hunter2") if said else fails("hunter2"))
    async with talking(telegram, bot_class(telegram, model, delivery=policy), store):
        await ann.say("Hello")
        await telegram.until(lambda: ann.answers and ann.answers[-1].text == "That went wrong.")
    assert [shown.text for shown in ann.answers] == [*([said] if said else []), "That went wrong."]


@pytest.mark.agent_case(411)
async def test_interrupted_response_text_is_shown_when_an_answer_was_cut_off_and_does_not_go_on(
    telegram: TelegramServer, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ann = telegram.private("Ann")
    # Given an answer that is cut off
    policy = DeliveryPolicy(interrupted_response_text="I was cut off.")
    model = ScriptedModel(says("A beginning that is long enough to be seen.").then_hangs())
    cls = type("Bot", (bot_class(telegram, model, delivery=policy),), {"chat_recovery": False})
    async with talking(telegram, cls, store):
        await ann.say("Hello")
        await telegram.until(lambda: ann.answers)

    # When the turn has failed before the delivery looks how it stands
    gate, look = asyncio.Event(), Following.catch_up

    async def late(following: Following) -> None:
        await gate.wait()
        await look(following)

    monkeypatch.setattr(Following, "catch_up", late)
    app = App(cls, store=store, grace=0.0, idle_after=None)
    app.events.subscribe(lambda event: gate.set(), type="chat:request:failed")
    async with app:
        await telegram.until(lambda: len(ann.answers) == 2)
    assert ann.answers[1].text == "I was cut off."
