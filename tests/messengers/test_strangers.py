"""Strangers at the door of a messenger: bodies, names, texts and presses that are meant to do harm."""

from __future__ import annotations

import json
import time
from typing import Any
from urllib.parse import quote

import pytest

from everthink import App
from everthink.messengers.discord import Discord
from everthink.messengers.slack import Slack, slack_messenger
from everthink.messengers.telegram import telegram_messenger
from everthink.messengers.telegram_markup import as_html
from everthink.server import Limits
from everthink.testing import ScriptedModel, says
from everthink.testing.in_process_server import Listening
from everthink.testing.slack import SlackWorkspace
from everthink.testing.telegram import TelegramServer
from tests.support.messengers import SECRET, bot_class, talking

pytestmark = pytest.mark.anyio

PATH = "/messengers/telegram/webhook"
HEADER = {"x-telegram-bot-api-secret-token": SECRET}


def hello() -> ScriptedModel:
    return ScriptedModel(lambda request: says("Hello."), repeat=True)


def update(**message: Any) -> dict[str, Any]:
    said = {"message_id": 7, "chat": {"id": 500, "type": "private"}, "from": {"id": 500, "first_name": "Ann"}}
    return {"update_id": 1, "message": {**said, "date": 1, "text": "Hi", **message}}


async def posted(server: Listening, body: Any) -> int:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return (await server.http(PATH, method="POST", headers=HEADER, body=data)).status


# --- bodies


@pytest.mark.parametrize(
    "body",
    [
        b"[" + b"1e300," * 30_000 + b"1]",
        b'{"update_id":' * 5_000 + b"1" + b"}" * 5_000,
        b'{"update_id":' + b"9" * 1_000 + b"}",
        json.dumps({str(number): 0 for number in range(60_000)}).encode(),
    ],
    ids=["numbers that are slow to read", "levels", "a long number", "many values"],
)
async def test_a_body_is_bounded_before_it_is_read(telegram: TelegramServer, store: str, body: bytes) -> None:
    refused: list[Any] = []
    async with talking(telegram, bot_class(telegram, hello()), store) as (app, server):
        app.events.subscribe(refused.append, type="messenger:refused")
        assert await posted(server, body) == 413
        await app.events.drain()
    assert len(refused) == 1


async def test_a_text_is_as_long_as_that_of_any_client(telegram: TelegramServer, store: str) -> None:
    limits = Limits(text_bytes=1_000)
    async with talking(telegram, bot_class(telegram, hello()), store, limits=limits) as (app, server):
        assert await posted(server, update(text="ü" * 501)) == 413
        assert await (await app.open()).store.fetch("SELECT id FROM turns") == []
        assert await posted(server, update(text="ü" * 500)) == 200


async def test_no_text_is_longer_than_any_of_the_platform(telegram: TelegramServer, store: str) -> None:
    async with talking(telegram, bot_class(telegram, hello()), store) as (_, server):
        assert await posted(server, update(text="x" * (256 * 1024 + 1))) == 413
        assert await posted(server, update(text="x" * (256 * 1024))) == 200


@pytest.mark.parametrize("value", [None, True, 1.5, "\x00", "x", [], {}, [1], [[]], {"id": [1]}], ids=repr)
async def test_what_has_another_shape_is_refused_and_is_no_failure_of_ours(
    telegram: TelegramServer, store: str, value: Any, caplog: pytest.LogCaptureFixture
) -> None:
    fields = ("chat", "from", "message_id", "entities", "document", "photo", "reply_to_message", "caption")
    async with talking(telegram, bot_class(telegram, hello()), store) as (_, server):
        bodies = [update(**{field: value}) for field in fields]
        bodies += [update(chat={"id": value, "type": "private"}), update(**{"from": {"first_name": value}})]
        bodies += [
            {"update_id": 1, "callback_query": {"id": "1", "from": {"id": 5}, "data": "x", "message": value}}
        ]
        bodies += [update(entities=[{"type": "mention", "offset": value, "length": value}])]
        statuses = [await posted(server, body) for body in bodies]
    assert set(statuses) <= {200, 400}
    assert "Traceback" not in caplog.text


async def test_an_update_that_cannot_be_read_does_not_keep_those_behind_it(
    telegram: TelegramServer, store: str
) -> None:
    ann = telegram.private("Ann")
    cls = bot_class(telegram, hello(), mode="polling", user_name=None, secret_token=None)
    await telegram.tell({"message": {"message_id": 1, "chat": [], "from": {"id": 1}, "text": "x"}})
    await ann.say("Hi")
    async with Listening(App(cls, store=store, grace=0.0, idle_after=None)):
        await telegram.until(lambda: ann.answers)


async def test_words_that_were_signed_are_no_pressed_button_under_another_content_type() -> None:
    # Given an event of Slack with words that look like a form with a button, pressed by somebody else
    async with SlackWorkspace() as slack:
        press = {"type": "block_actions", "user": {"id": "U0BOSS"}, "container": {"message_ts": "1.1"}}
        press |= {"channel": {"id": "D9"}, "actions": [{"action_id": "agree"}]}
        words = f"&payload={quote(json.dumps(press))}&"
        event = {"type": "message", "channel": "D9", "channel_type": "im", "user": "U1", "text": words}
        body = json.dumps({"type": "event_callback", "event": {**event, "ts": "1.2"}}).encode()
        definition = slack_messenger(
            user_name="helper", token=slack.bot_token, signing_secret=slack.signing_secret, burst=0.0
        )
        headers = {**slack.sign(body), "content-type": "application/x-www-form-urlencoded"}
        assert definition.messenger.verify(headers, body, now=time.time())
        # When whoever has caught it sends it as a form, then it is what Slack has signed: words
        (told,) = definition.messenger.parse(headers, body).events
        assert (told.kind, told.author.user_id) == ("direct-message", "U1")


# --- what reading and showing texts takes


def quickest(work: Any) -> float:
    """Seconds of the processor, the least of three."""
    taken: list[float] = []
    for _ in range(3):
        begun = time.process_time()
        work()
        taken.append(time.process_time() - begun)
    return min(taken)


@pytest.mark.parametrize("piece", ["`", "``a ", "`a``b", "**a ", "[a](https://x ", "[", "~~a __b "])
def test_no_answer_takes_long_to_be_drawn(piece: str) -> None:
    assert quickest(lambda: as_html((piece * 4_096)[:4_096])) < 0.1


@pytest.mark.parametrize("piece", ["<#a|", "<!a|", "<http:a|", "<http:", "<http:a|b", "<@U0BOT|"])
def test_no_message_of_slack_takes_long_to_be_read(piece: str) -> None:
    slack = Slack(token="xoxb-1", user_name="helper")
    event = {"type": "message", "channel": "D1", "user": "U1", "text": (piece * 40_000)[:40_000], "ts": "1.1"}
    told = {
        "type": "event_callback",
        "authorizations": [{"user_id": "U0BOT", "is_bot": True}],
        "event": event,
    }
    body = json.dumps(told).encode()
    assert quickest(lambda: slack.parse({}, body)) < 0.1


def test_no_form_of_slack_takes_long_to_be_read() -> None:
    slack = Slack(token="xoxb-1", user_name="helper")
    for body in (b"&".join([b"a=1"] * 200_000), b"payload=" + b"%41" * 400_000):
        with pytest.raises(ValueError, match=r"more than|[Mm]ax number"):
            slack.parse({}, body)


def test_marks_of_a_long_text_are_looked_at_once() -> None:
    bot = telegram_messenger(token="1:a", user_name="bot", secret_token="x").messenger
    marks = [{"type": "mention", "offset": 0, "length": 900_000}] * 1_000
    body = json.dumps(update(text="x" * 900_000, entities=marks)).encode()
    assert quickest(lambda: bot.parse({}, body)) < 0.1


def test_what_is_nested_too_deep_is_no_interaction() -> None:
    bot = Discord(application_id="77", token="t", user_name="helper")
    with pytest.raises(ValueError, match="nothing that Discord sends"):
        bot.parse({}, b'{"id":"1","type":2,"data":' + b'{"options":[' * 3_000 + b"]}" * 3_000 + b"}")
