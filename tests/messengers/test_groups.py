"""Groups: who is answered there, and who is not."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

import pytest

from everthink import App, Think
from everthink.messengers.telegram import telegram_messenger
from everthink.models.port import TextPart, UserMessage
from everthink.testing import ScriptedModel, says
from everthink.testing.in_process_server import Listening
from everthink.testing.telegram import TelegramServer
from tests.support.messengers import bot_class, talking

pytestmark = pytest.mark.anyio


def echo() -> ScriptedModel:
    """Says what it was asked last."""
    return ScriptedModel(lambda request: says(f"[{last(request)}]"), repeat=True)


def last(request: Any) -> str:
    return " / ".join(
        part.text
        for message in request.messages
        if isinstance(message, UserMessage)
        for part in message.content
        if isinstance(part, TextPart)
    )


async def test_a_mention_is_answered_and_other_words_are_not(telegram: TelegramServer, store: str) -> None:
    group = telegram.group("Team")
    async with talking(telegram, bot_class(telegram, echo()), store):
        await group.say("Hello all")
        await group.say("@test_bot are you there?", by="Bob")
        await telegram.until(lambda: group.answers)
        await group.say("Thanks", by="Bob")
        await group.say("Hi @test_bot", by="Ann")
        await telegram.until(lambda: len(group.answers) == 2)
    assert [shown.text for shown in group.answers] == [
        "[Bob: @test_bot are you there?]",
        "[Bob: @test_bot are you there? / Ann: Hi @test_bot]",
    ]
    asked = next(shown for shown in group.seen if shown.author == "Bob")
    assert group.answers[0].reply_to == asked.id


@pytest.mark.agent_case(421)
async def test_subscribed_thread_in_respond_to_answers_what_follows_a_mention(
    telegram: TelegramServer, store: str
) -> None:
    group = telegram.group("Team")
    wanted = ["mention", "subscribed-thread"]
    cls = bot_class(telegram, echo(), respond_to=wanted)
    async with talking(telegram, cls, store):
        await group.say("Hello all")
        await group.say("@test_bot hi")
        await telegram.until(lambda: group.answers)
    async with talking(telegram, cls, store):
        await group.say("And what else?")
        await telegram.until(lambda: len(group.answers) == 2)
    assert "Hello all" not in group.answers[1].text


async def test_without_subscribe_on_mention_nobody_listens_afterwards(
    telegram: TelegramServer, store: str
) -> None:
    group = telegram.group("Team")
    wanted = ["mention", "subscribed-thread"]
    cls = bot_class(telegram, echo(), respond_to=wanted, subscribe_on_mention=False)
    async with talking(telegram, cls, store):
        await group.say("@test_bot hi")
        await telegram.until(lambda: group.answers)
        await group.say("And what else?")
        await group.say("@test_bot bye")
        await telegram.until(lambda: len(group.answers) == 2)
    assert "what else" not in group.answers[1].text


async def test_other_bots_and_its_own_messages_are_not_answered(telegram: TelegramServer, store: str) -> None:
    group = telegram.group("Team")
    telegram.person("Robot", is_bot=True)
    async with talking(telegram, bot_class(telegram, echo()), store):
        await group.say("@test_bot hi", by="Robot")
        mine = {"message_id": 1, "from": telegram.bot, "chat": {"id": group.id, "type": "supergroup"}}
        await telegram.tell({"message": {**mine, "date": 1, "text": "@test_bot hi"}})
        await group.say("@test_bot hello", by="Ann")
        await telegram.until(lambda: group.answers)
    assert [shown.text for shown in group.answers] == ["[Ann: @test_bot hello]"]


async def test_an_edited_message_is_the_same_message(telegram: TelegramServer, store: str) -> None:
    ann = telegram.private("Ann")
    model = echo()
    async with talking(telegram, bot_class(telegram, model), store):
        await ann.say("Hello")
        await telegram.until(lambda: ann.answers)
        told = await ann.rewrite(ann.seen[0], "Hello!")
        assert told.status == 200
        await ann.say("Bye")
        await telegram.until(lambda: len(ann.answers) == 2)
    assert [shown.text for shown in ann.answers] == ["[Hello]", "[Hello / Bye]"]


async def test_each_topic_is_a_conversation_of_its_own(telegram: TelegramServer, store: str) -> None:
    group = telegram.group("Forum")
    async with talking(telegram, bot_class(telegram, echo()), store):
        for topic in (7, 8):
            await group.say(f"@test_bot {topic}", message_thread_id=topic, is_topic_message=True)
        await telegram.until(lambda: len(group.answers) == 2)
    assert {shown.thread: shown.text for shown in group.answers} == {
        "7": "[Ann: @test_bot 7]",
        "8": "[Ann: @test_bot 8]",
    }


async def test_a_group_that_becomes_a_supergroup_keeps_its_conversation(
    telegram: TelegramServer, store: str
) -> None:
    group = telegram.group("Team", kind="group")
    async with talking(telegram, bot_class(telegram, echo()), store):
        await group.say("@test_bot one")
        await telegram.until(lambda: group.answers)
        after = await group.become_supergroup()
        await after.say("@test_bot two")
        await telegram.until(lambda: after.answers)
    assert after.answers[0].text == "[Ann: @test_bot one / Ann: @test_bot two]"


async def test_an_answer_goes_on_in_the_supergroup_that_its_group_has_become(
    telegram: TelegramServer, store: str
) -> None:
    # Given an answer that a group has seen the beginning of
    group = telegram.group("Team", kind="group")
    gate = asyncio.Event()
    model = ScriptedModel(
        says("A beginning that is long enough, ").waits(gate).says("and an end."), says("As before.")
    )
    cls = bot_class(telegram, model)
    async with talking(telegram, cls, store) as (app, _):
        await group.say("@test_bot one")
        await telegram.until(lambda: group.answers)

        # When the group becomes another one, and the answer goes on
        after = await group.become_supergroup()
        gate.set()
        await telegram.until(lambda: after.answers)
        assert [shown.text for shown in after.answers] == ["A beginning that is long enough, and an end."]

        # Then it is the same conversation
        await after.say("@test_bot two")
        await telegram.until(lambda: len(after.answers) == 2)
        async with app.agent(cls, "default") as root:
            assert len(await root.list_sub_agents()) == 1
    assert [shown.text for shown in group.answers] == ["A beginning that is long enough,"]


async def test_conversation_self_shares_one_memory(telegram: TelegramServer, store: str) -> None:
    ann, bob = telegram.private("Ann"), telegram.private("Bob")
    async with talking(telegram, bot_class(telegram, echo(), conversation="self"), store):
        await ann.say("I am Ann")
        await telegram.until(lambda: ann.answers)
        await bob.say("I am Bob")
        await telegram.until(lambda: bob.answers)
    assert bob.answers[0].text == "[I am Ann / I am Bob]"


async def test_conversation_thread_keeps_people_apart(telegram: TelegramServer, store: str) -> None:
    ann, bob = telegram.private("Ann"), telegram.private("Bob")
    async with talking(telegram, bot_class(telegram, echo()), store) as (app, _):
        await ann.say("I am Ann")
        await bob.say("I am Bob")
        await telegram.until(lambda: ann.answers and bob.answers)
        [cls] = app.classes
        async with app.agent(cls, "default") as root:
            names = [child.name for child in await root.list_sub_agents()]
    assert bob.answers[0].text == "[I am Bob]"
    assert sorted(names) == [f"messenger:telegram:telegram:{chat.id}" for chat in (ann, bob)]


async def test_conversation_as_a_function_of_the_context_names_the_child(
    telegram: TelegramServer, store: str
) -> None:
    ann, bob = telegram.private("Ann"), telegram.private("Bob")
    cls = bot_class(telegram, echo(), conversation=lambda context: f"team-{context.provider}")
    async with talking(telegram, cls, store) as (app, _):
        await ann.say("one")
        await telegram.until(lambda: ann.answers)
        await bob.say("two")
        await telegram.until(lambda: bob.answers)
        async with app.agent(app.classes[0], "default") as root:
            assert [child.name for child in await root.list_sub_agents()] == ["team-telegram"]
    assert bob.answers[0].text == "[one / two]"


async def test_conversation_agent_is_a_top_level_agent_for_each_chat(
    telegram: TelegramServer, store: str
) -> None:
    ann = telegram.private("Ann")
    async with talking(telegram, bot_class(telegram, echo(), conversation="agent"), store) as (app, _):
        await ann.say("one")
        await telegram.until(lambda: ann.answers)
        name = f"messenger:telegram:telegram:{ann.id}"
        assert len(await app.agent(app.classes[0], name).get_messages()) == 2


class Aware(Think):
    include_workspace_tools = False
    seen: ClassVar[list[Any]] = []

    async def before_turn(self, turn: Any) -> None:
        self.seen.append(self.get_messenger_context())

    async def on_chat_response(self, response: Any) -> None:
        self.seen.append(self.get_messenger_context())


@pytest.mark.agent_case(408)
async def test_the_messenger_context_says_whom_a_turn_answers(telegram: TelegramServer, store: str) -> None:
    group = telegram.group("Team")
    definition = telegram_messenger(
        token=telegram.token,
        user_name="test_bot",
        secret_token="s3cret",
        api_base_url=telegram.origin,
        burst=0,
    )
    seen: list[Any] = []
    cls = type("Aware", (Aware,), {"model": echo(), "messengers": {"tg": definition}, "seen": seen})
    async with talking(telegram, cls, store) as (app, server):
        telegram.webhook(f"http://{server.host}/messengers/tg/webhook", secret="s3cret")
        await group.say("@test_bot hi", by="Bob")
        await telegram.until(lambda: group.answers)
        assert (await app.agent(cls, "default").save_messages("from code")).status == "completed"
    before, after = seen[0], seen[1]
    assert (before.messenger_id, before.provider, before.kind) == ("tg", "telegram", "mention")
    assert (before.author.full_name, before.thread.id) == ("Bob", f"telegram:{group.id}")
    assert after == before
    assert seen[2] is None


async def test_an_answer_that_is_streamed_goes_on_in_the_supergroup(
    telegram: TelegramServer, store: str
) -> None:
    group = telegram.group("Team", kind="group")
    first, second = asyncio.Event(), asyncio.Event()
    model = ScriptedModel(
        says("A beginning that is long enough, ").waits(first).says("a middle, ").waits(second).says("an end")
    )
    async with talking(telegram, bot_class(telegram, model), store):
        await group.say("@test_bot one")
        await telegram.until(lambda: group.answers)
        after = await group.become_supergroup()
        first.set()
        await telegram.until(lambda: after.answers)
        second.set()
        await telegram.until(lambda: after.answers[0].text.endswith("an end"))
    assert [one.text for one in after.answers] == ["A beginning that is long enough, a middle, an end"]


# --- what the bot is called


async def test_a_bot_whose_name_is_written_wrong_is_mentioned_by_its_own(
    telegram: TelegramServer, store: str, caplog: pytest.LogCaptureFixture
) -> None:
    # Given a class that says that the bot is called otherwise than Telegram does
    group = telegram.group("Team")
    model = ScriptedModel(lambda request: says("Here."), repeat=True)
    cls = bot_class(telegram, model, user_name="old_bot", commands=["stop"])
    async with talking(telegram, cls, store):
        # When it is mentioned in the very first message, by its own name
        await group.say(f"@{telegram.bot_name} are you there?", by="Ann")
        await telegram.until(lambda: len(group.answers) == 1)

        # Then it listens to that one, in commands, too, and to the other no longer
        await group.say(f"/stop@{telegram.bot_name}", by="Ann")
        await telegram.until(lambda: len(group.answers) == 2)
        await group.say("@old_bot are you there?", by="Ann")
        await group.say(f"@{telegram.bot_name} again?", by="Ann")
        await telegram.until(lambda: len(group.answers) == 3)

    # And both names are said, once
    told = [r.getMessage() for r in caplog.records if "user_name" in r.getMessage()]
    assert told == [
        f"messenger telegram: user_name is 'old_bot', and telegram calls the bot {telegram.bot_name!r}. It"
        f" listens to @{telegram.bot_name} from now on: write user_name={telegram.bot_name!r}."
    ]
    assert len(telegram.asked("getMe")) == 1


async def test_a_bot_that_asks_for_what_is_new_says_that_its_name_is_another(
    telegram: TelegramServer, store: str, caplog: pytest.LogCaptureFixture
) -> None:
    group = telegram.group("Team")
    model = ScriptedModel(lambda request: says("Here."), repeat=True)
    cls = bot_class(telegram, model, user_name="old_bot", mode="polling", secret_token=None)
    async with Listening(App(cls, store=store, grace=0.0, idle_after=None)):
        await group.say(f"@{telegram.bot_name} are you there?", by="Ann")
        await telegram.until(lambda: group.answers)
    assert "user_name is 'old_bot'" in caplog.text


async def test_a_bot_answers_though_nobody_says_what_it_is_called(
    telegram: TelegramServer, store: str
) -> None:
    group = telegram.group("Team")
    telegram.fault("getMe", "500", times=100)
    model = ScriptedModel(lambda request: says("Here."), repeat=True)
    async with talking(telegram, bot_class(telegram, model), store):
        await group.say("what does bob@example.com mean?", by="Ann")
        await group.say(f"@{telegram.bot_name} are you there?", by="Ann")
        await telegram.until(lambda: group.answers)
    assert len(telegram.asked("getMe")) == 1
