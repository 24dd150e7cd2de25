"""Channels of Slack: who is answered there, where, and who is not."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from everthink import App, Think
from everthink.messengers.slack import slack_messenger
from everthink.models.port import TextPart, UserMessage
from everthink.testing import ScriptedModel, says
from everthink.testing.in_process_server import Listening
from everthink.testing.slack import SlackWorkspace

pytestmark = pytest.mark.anyio


@pytest.fixture
async def slack(anyio_backend: str) -> AsyncIterator[SlackWorkspace]:
    """A workspace that tells the app of its own messages, too."""
    async with SlackWorkspace() as workspace:
        yield workspace


@asynccontextmanager
async def talking(slack: SlackWorkspace, tmp_path: Path, **options: Any) -> AsyncIterator[App]:
    """Serve a bot that says what it was told in this conversation."""
    definition = slack_messenger(
        user_name="helper",
        token=slack.bot_token,
        signing_secret=slack.signing_secret,
        api_url=slack.api_url,
        **{"burst": 0.0, **options},
    )
    model = ScriptedModel(lambda request: says(f"[{' / '.join(told(request))}]"), repeat=True)
    names = {"model": model, "messengers": {"slack": definition}, "include_workspace_tools": False}
    app = App(type("Bot", (Think,), names), store=f"sqlite:///{tmp_path}/bot.db", grace=0.0, idle_after=None)
    async with Listening(app) as server:
        await slack.set_request_url(f"http://{server.host}/messengers/slack/webhook")
        yield app


def told(request: Any) -> list[str]:
    return [
        part.text
        for message in request.messages
        if isinstance(message, UserMessage)
        for part in message.content
        if isinstance(part, TextPart)
    ]


async def until_answers(slack: SlackWorkspace, many: int) -> list[tuple[str | None, str]]:
    """What the bot has said in the channel: in which thread, and what."""
    await slack.until(lambda: len(slack.answers("general")) >= many)
    return [(shown.thread, shown.text) for shown in slack.answers("general")]


async def test_a_mention_that_is_told_twice_is_answered_once_in_its_thread(
    slack: SlackWorkspace, tmp_path: Path
) -> None:
    async with talking(slack, tmp_path):
        await slack.say("Hello all", by="bob", channel="general")
        twice = await slack.say("@helper are you there?", by="bob", channel="general")
        first = await until_answers(slack, 1)
        # An answer in the thread that is for nobody here, and one that is for the bot
        question = slack.seen("general")[1].id
        await slack.say("I hope so", by="ann", channel="general", thread=question)
        await slack.say("@helper and you?", by="ann", channel="general", thread=question)
        answers = await until_answers(slack, 2)
    assert [one.status for one in twice] == [200, 200]
    assert first == [(question, f"[{slack.person('bob')}: @helper are you there?]")]
    assert answers == [
        *first,
        (
            question,
            f"[{slack.person('bob')}: @helper are you there? / {slack.person('ann')}: @helper and you?]",
        ),
    ]


async def test_subscribed_thread_in_respond_to_answers_what_follows_in_the_thread_alone(
    slack: SlackWorkspace, tmp_path: Path
) -> None:
    async with talking(slack, tmp_path, respond_to=["mention", "subscribed-thread"]):
        await slack.say("@helper one", channel="general")
        await until_answers(slack, 1)
        thread = slack.seen("general")[0].id
        await slack.say("elsewhere", channel="general")
        await slack.say("two", channel="general", thread=thread)
        answers = await until_answers(slack, 2)
    ann = slack.person("ann")
    assert answers == [(thread, f"[{ann}: @helper one]"), (thread, f"[{ann}: @helper one / {ann}: two]")]


async def test_without_subscribe_on_mention_nobody_listens_in_the_thread(
    slack: SlackWorkspace, tmp_path: Path
) -> None:
    wanted = ["mention", "subscribed-thread"]
    async with talking(slack, tmp_path, respond_to=wanted, subscribe_on_mention=False):
        await slack.say("@helper one", channel="general")
        await until_answers(slack, 1)
        thread = slack.seen("general")[0].id
        await slack.say("two", channel="general", thread=thread)
        await slack.say("@helper three", channel="general", thread=thread)
        answers = await until_answers(slack, 2)
    assert "two" not in answers[1][1]
    assert len(answers) == 2


async def test_other_bots_and_its_own_words_are_not_answered(slack: SlackWorkspace, tmp_path: Path) -> None:
    async with talking(slack, tmp_path, respond_to=["mention", "subscribed-thread"]) as app:
        ignored: list[Any] = []
        app.events.subscribe(ignored.append, type="messenger:ignored")
        await slack.say("@helper one", by="ann", channel="general")
        await until_answers(slack, 1)
        thread = slack.seen("general")[0].id
        await slack.say_as_bot("@helper two", channel="general", thread=thread)
        await slack.until(lambda: "message.own" in [event.payload["what"] for event in ignored])
        await slack.say("@helper three", by="ann", channel="general", thread=thread)
        answers = await until_answers(slack, 2)
    ann = slack.person("ann")
    assert answers[1] == (thread, f"[{ann}: @helper one / {ann}: @helper three]")
    assert len(answers) == 2


async def test_answer_bots_answers_another_bot(slack: SlackWorkspace, tmp_path: Path) -> None:
    async with talking(slack, tmp_path, answer_bots=True):
        await slack.say_as_bot("@helper two", by="other-bot", channel="general")
        answers = await until_answers(slack, 1)
    assert [text for _, text in answers] == ["[other-bot: @helper two]"]


async def test_an_edited_message_is_the_same_message(slack: SlackWorkspace, tmp_path: Path) -> None:
    async with talking(slack, tmp_path):
        await slack.say("@helper Helo", channel="general")
        await until_answers(slack, 1)
        question = slack.seen("general")[0].id
        edited = await slack.rewrite(question, "@helper Hello", channel="general")
        assert {one.status for one in edited} == {200}
        await slack.say("@helper Bye", channel="general", thread=question)
        answers = await until_answers(slack, 2)
    assert len(answers) == 2
    assert answers[1][1].endswith("@helper Bye]")


async def test_a_slash_command_in_a_channel_says_how_a_thread_is_meant(
    slack: SlackWorkspace, tmp_path: Path
) -> None:
    async with talking(slack, tmp_path, commands=["stop", "new"]):
        await slack.say("@helper one", by="ann", channel="general")
        [(thread, _)] = await until_answers(slack, 1)
        await slack.command("/new", channel="general", by="ann")
        (_, (_, said)) = await until_answers(slack, 2)
        assert said.startswith("Let's begin anew.")
        assert said.endswith("to mean one, write there: @helper /new")
        await slack.command("/stop", channel="general", by="ann")
        said = (await until_answers(slack, 3))[-1][1]
        assert said.startswith("There is nothing to stop.")
        assert said.endswith("write there: @helper /stop")

        # And that is what does it
        await slack.say("@helper /new", by="ann", channel="general", thread=thread)
        assert (await until_answers(slack, 4))[-1] == (thread, "Let's begin anew.")
        await slack.say("@helper two", by="ann", channel="general", thread=thread)
        assert "one" not in (await until_answers(slack, 5))[-1][1]
