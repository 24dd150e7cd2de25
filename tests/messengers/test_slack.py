"""The adapter of Slack: what it lets in, what that comes to, and what it makes people see."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from everthink.errors import InvalidSettings
from everthink.messengers import (
    Button,
    Draft,
    MessengerEvent,
    RateLimited,
    Refused,
    Target,
    Uncertain,
    Unreachable,
)
from everthink.messengers.slack import Slack, slack_messenger
from everthink.messengers.values import Arrived, Attachment
from everthink.testing.slack import SlackWorkspace

pytestmark = pytest.mark.anyio

RECORDED: dict[str, dict[str, Any]] = json.loads(
    (Path(__file__).parent / "recordings" / "slack.json").read_text(encoding="utf-8")
)
FORMS = {"block_actions", "block_actions_in_a_view", "view_submission", "slash_command"}
NOW = 1_800_000_000.0


def adapter(**options: Any) -> Slack:
    return Slack(token="xoxb-1", user_name="helper", **{"signing_secret": "shh", **options})


def parsed(name: str) -> Arrived:
    told = RECORDED[name]
    if name not in FORMS:
        return adapter().parse({"content-type": "application/json"}, json.dumps(told).encode())
    form = told if name == "slash_command" else {"payload": json.dumps(told)}
    headers = {"content-type": "application/x-www-form-urlencoded"}
    return adapter().parse(headers, urlencode(form).encode())


def only(name: str) -> MessengerEvent:
    (event,) = parsed(name).events
    return event


# --- who may call


def test_what_slack_has_signed_is_let_in_for_five_minutes() -> None:
    slack = SlackWorkspace(signing_secret="shh", now=lambda: NOW)
    body = b'{"type":"event_callback"}'
    headers = slack.sign(body)

    assert adapter().verify(headers, body, now=NOW)
    assert adapter().verify(headers, body, now=NOW + 299)
    assert adapter().verify(headers, body, now=NOW - 299)
    assert not adapter().verify(headers, body, now=NOW + 301)
    assert not adapter().verify(headers, body, now=NOW - 301)


def test_a_body_that_was_changed_by_one_byte_is_not_let_in() -> None:
    body = b'{"type":"event_callback"}'
    headers = SlackWorkspace(signing_secret="shh", now=lambda: NOW).sign(body)

    for place in range(len(body)):
        changed = bytearray(body)
        changed[place] ^= 1
        assert not adapter().verify(headers, bytes(changed), now=NOW)


@pytest.mark.parametrize(
    "changes",
    [
        {"x-slack-signature": None},
        {"x-slack-request-timestamp": None},
        {"x-slack-signature": ""},
        {"x-slack-signature": "v0=" + "0" * 64},
        {"x-slack-signature": "v0=ä"},
        {"x-slack-request-timestamp": str(int(NOW) + 1)},
        {"x-slack-request-timestamp": "soon"},
        {"x-slack-request-timestamp": "-1"},
        {"x-slack-request-timestamp": "²"},
        {"x-slack-request-timestamp": "9" * 400},
    ],
)
def test_a_wrong_or_missing_signature_is_not_let_in(changes: dict[str, str | None]) -> None:
    body = b"{}"
    signed: dict[str, str | None] = {**SlackWorkspace(signing_secret="shh", now=lambda: NOW).sign(body)}
    headers = {name: value for name, value in (signed | changes).items() if value is not None}

    assert not adapter().verify(headers, body, now=NOW)


def test_the_secret_of_another_app_or_none_lets_nothing_in() -> None:
    body = b"{}"
    headers = SlackWorkspace(signing_secret="other", now=lambda: NOW).sign(body)

    assert not adapter().verify(headers, body, now=NOW)
    assert not adapter(signing_secret=None).verify(headers, body, now=NOW)


# --- what it comes to


def test_the_challenge_is_given_back() -> None:
    arrived = parsed("url_verification")

    assert arrived.reply is not None
    assert arrived.reply.body == {"challenge": RECORDED["url_verification"]["challenge"]}
    assert arrived.events == ()


@pytest.mark.agent_case(397)
def test_a_mention_is_answered_in_a_thread_below_it() -> None:
    event = only("app_mention")

    assert event.kind == "mention"
    assert event.thread.id == "slack:C123ABC456:1515449522.000016"
    assert event.thread.is_direct_message is False
    assert event.target == Target(
        chat="C123ABC456", thread="1515449522.000016", user="U123ABC456", is_direct=False
    )
    assert event.message is not None
    assert event.message.id == "C123ABC456:1515449522.000016"
    assert event.message.text == "What is the hour of the pearl, @helper?"
    assert event.message.is_mention is True
    assert event.message.created_at == pytest.approx(1515449522.000016)


def test_a_direct_message_is_one_conversation_and_loses_slacks_marks() -> None:
    event = only("message_im")

    assert (event.kind, event.thread.id) == ("direct-message", "slack:D123ABC456")
    assert event.target == Target(chat="D123ABC456", user="U123ABC456", is_direct=True)
    assert event.message is not None
    assert event.message.text == (
        "Hello hello can you hear me? See [the page](https://example.com/a?b=1&c=2), https://example.com,"
        " ann@example.com and #general, @here. 1 < 2 & 3"
    )


def test_a_thread_in_a_direct_message_is_a_conversation_of_its_own() -> None:
    event = only("message_im_thread")

    assert event.thread.id == "slack:D123ABC456:1355517523.000005"
    assert event.target.thread == "1355517523.000005"


@pytest.mark.agent_case(398)
def test_what_is_said_in_a_thread_without_the_bot_is_a_message_of_that_thread() -> None:
    event = only("message_channel_reply")

    assert (event.kind, event.thread.id) == ("message", "slack:C123ABC456:1482960137.003543")
    assert event.message is not None
    assert event.message.text == "and <@U777> thinks so, too"


def test_an_edited_message_is_the_same_message_with_other_words() -> None:
    event = only("message_changed")

    assert event.kind == "mention"
    assert event.message is not None
    assert event.message.id == "C123ABC456:1355517523.000005"
    assert event.message.text == "@helper what about now?"


def test_another_bot_is_told_apart_from_people() -> None:
    author = only("message_of_another_bot").author

    assert (author.user_id, author.user_name, author.is_bot) == ("BB12033", "github", True)


@pytest.mark.agent_case(400)
def test_files_are_described_and_not_loaded() -> None:
    message = only("file_share").message

    assert message is not None
    assert message.text == "what is this?"
    (file,) = message.attachments
    assert (file.id, file.name, file.media_type, file.size) == (
        "F0S43P1CZ",
        "billair.gif",
        "image/gif",
        144538,
    )
    assert file.fetch_metadata == {"fileId": "F0S43P1CZ"}
    assert file.url == "https://test.slack.com/files/U061F7AUR/F0S43P1CZ/billair.gif"


def test_a_pressed_button_says_who_where_and_on_which_message() -> None:
    event = only("block_actions")

    assert (event.kind, event.thread.id) == ("action", "slack:CBR2V3XEX:1548261200.000100")
    assert event.action is not None
    assert event.action.action_id == "et:000000000000000000000000:y"
    assert (event.action.value, event.action.message_id) == ("click_me_123", "1548261231.000200")
    assert (event.action.user.user_id, event.action.user.user_name) == ("UA8RXUSPL", "jtorrance")


def test_a_slash_command_is_a_message_that_everybody_sees() -> None:
    arrived = parsed("slash_command")
    (event,) = arrived.events

    assert (event.kind, event.thread.id) == ("mention", "slack:C2147483705")
    assert event.message is not None
    assert event.message.text == "/weather 94070"
    assert arrived.reply is not None
    assert arrived.reply.body == {"response_type": "in_channel"}


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("message_deleted", "message.message_deleted"),
        ("message_unfurled", "message.message_changed"),
        ("message_of_our_own", "message.own"),
        ("channel_join", "message.channel_join"),
        ("reaction_added", "reaction_added"),
        ("app_rate_limited", "app_rate_limited"),
        ("block_actions_in_a_view", "block_actions"),
        ("view_submission", "view_submission"),
    ],
)
def test_what_means_nothing_to_us_is_named_and_ignored(name: str, kind: str) -> None:
    assert parsed(name) == Arrived(ignored=(kind,))


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("application/json", b""),
        ("application/json", b"{"),
        ("application/json", b"[]"),
        ("application/json", b'{"type": 7}'),
        ("application/json", b'{"type": "event_callback", "event": []}'),
        ("application/json", b"\xff\xfe"),
        ("application/x-www-form-urlencoded", b""),
        ("application/x-www-form-urlencoded", b"payload=%7B"),
        ("application/x-www-form-urlencoded", b"payload=%5B%5D"),
        ("application/x-www-form-urlencoded", b"command=%2Fx"),
        ("application/x-www-form-urlencoded", b"\xff=\xff"),
    ],
)
def test_what_slack_never_sends_is_no_update(kind: str, body: bytes) -> None:
    with pytest.raises(ValueError, match=r"Slack|form"):
        adapter().parse({"content-type": kind}, body)


# --- what people see


@pytest.fixture
async def slack(anyio_backend: str) -> AsyncIterator[SlackWorkspace]:
    async with SlackWorkspace(echo=False) as workspace:
        yield workspace


@pytest.fixture
async def bot(slack: SlackWorkspace) -> AsyncIterator[Slack]:
    messenger = Slack(
        token=slack.bot_token,
        user_name="helper",
        signing_secret=slack.signing_secret,
        api_url=slack.api_url,
    )
    yield messenger
    await messenger.close()


QUESTION = Draft(
    text="**May I?**",
    buttons=(
        Button(id="et:1:y", label="Approve", style="primary"),
        Button(id="et:1:n", label="Deny", style="danger"),
    ),
)


async def test_a_message_is_posted_edited_and_loses_its_buttons(slack: SlackWorkspace, bot: Slack) -> None:
    target = Target(chat=slack.channel("general").id)

    ref = await bot.post(target, QUESTION, key="k1")
    (shown,) = slack.answers("general")
    assert (shown.text, [b.label for b in shown.buttons]) == ("**May I?**", ["Approve", "Deny"])
    assert [button.style for button in shown.buttons] == ["primary", "danger"]
    await bot.edit(target, ref, Draft(text="Approved by Ann."))
    await bot.edit(target, ref, Draft(text="Approved by Ann."))

    (shown,) = slack.answers("general")
    assert (shown.text, shown.buttons) == ("Approved by Ann.", [])


async def test_an_answer_stands_in_the_thread_of_its_question(slack: SlackWorkspace, bot: Slack) -> None:
    place = slack.channel("general")
    parent = await bot.post(Target(chat=place.id), Draft(text="first"), key="k0")

    await bot.post(Target(chat=place.id, thread=parent), Draft(text="below"), key="k1")

    assert [shown.thread for shown in slack.answers("general")] == [None, parent]


async def test_the_longest_message_is_posted_and_edited(slack: SlackWorkspace, bot: Slack) -> None:
    target = Target(chat=slack.channel("general").id)
    text = "word & <word> " * 850

    ref = await bot.post(target, Draft(text=text), key="k1")
    await bot.edit(target, ref, Draft(text=text + "!"))

    (shown,) = slack.answers("general")
    assert shown.text == text + "!"


async def test_a_model_calls_no_whole_channel(slack: SlackWorkspace, bot: Slack) -> None:
    await bot.post(Target(chat=slack.channel("general").id), Draft(text="<!channel> <!here> <!x"), key="k")

    (shown,) = slack.answers("general")
    assert "<!channel" not in shown.text
    assert "<!here" not in shown.text
    assert "<!x" in shown.text
    assert shown.raw["text"].startswith("&lt;!channel&gt;")


@pytest.mark.parametrize("in_thread", [False, True])
async def test_a_message_is_found_by_its_key(slack: SlackWorkspace, bot: Slack, in_thread: bool) -> None:
    place = slack.channel("general")
    began = time.time()
    parent = await bot.post(Target(chat=place.id), Draft(text="parent"), key="k0")
    target = Target(chat=place.id, thread=parent if in_thread else None)
    refs = [await bot.post(target, Draft(text="x"), key=f"k{number}") for number in range(1, 4)]

    assert await bot.find(target, "k2", since=began) == refs[1]
    assert await bot.find(target, "k9", since=began) is None
    assert await bot.find(target, "k2", since=began + 3600) is None


async def test_who_may_not_read_what_was_said_is_told_which_scope_is_missing(
    slack: SlackWorkspace, bot: Slack
) -> None:
    slack.scopes -= {"channels:history"}

    with pytest.raises(Refused, match="channels:history") as refused:
        await bot.find(Target(chat=slack.channel("general").id), "k", since=0)
    assert refused.value.why == "unauthorized"


async def test_whoever_pressed_a_button_is_told_alone(slack: SlackWorkspace, bot: Slack) -> None:
    ref = await bot.post(Target(chat=slack.channel("general").id), QUESTION, key="k1")
    slack.channel("general").members.add(slack.person("bob"))
    slack.request_url = f"{slack.origin}/nobody"
    delivery = await slack.press(ref, "Approve", channel="general", by="bob")
    (event,) = bot.parse({"content-type": delivery.content_type}, delivery.body).events

    await bot.notify(event, "This is not yours to decide.")
    await bot.notify(event, None)

    assert [shown.only_for for shown in slack.seen("general", by="bob")] == [None, "bob"]
    assert len(slack.seen("general", by="ann")) == 1


async def test_a_file_is_loaded_with_the_token_and_only_from_slack(slack: SlackWorkspace, bot: Slack) -> None:
    slack.request_url = f"{slack.origin}/nobody"
    (told,) = await slack.say("look", by="ann", files=[("a.txt", "text/plain", b"content")])
    (event,) = bot.parse({"content-type": "application/json"}, told.body).events
    assert event.message is not None
    (file,) = event.message.attachments

    assert await bot.fetch(file, most=100) == b"content"
    with pytest.raises(Refused, match="larger than 3 bytes"):
        await bot.fetch(file, most=3)
    with pytest.raises(Refused, match="file_not_found"):
        await bot.fetch(Attachment(fetch_metadata={"fileId": "F9"}), most=100)
    slack.seen("@ann")[0].raw["files"][0]["url_private_download"] = "https://evil.example/slack.com"
    with pytest.raises(Refused, match="not kept by Slack"):
        await bot.fetch(file, most=100)


async def test_slack_is_left_alone_as_long_as_it_asks(slack: SlackWorkspace, bot: Slack) -> None:
    target = Target(chat=slack.channel("general").id)
    slack.fault("chat.postMessage", "429", retry_after=30)

    with pytest.raises(RateLimited) as limited:
        await bot.post(target, Draft(text="x"), key="k")
    assert limited.value.after == 30
    assert slack.answers("general") == []


@pytest.mark.parametrize("kind", ["500", "accept_then_drop"])
async def test_a_post_without_an_answer_is_uncertain_and_an_edit_is_made_again(
    slack: SlackWorkspace, bot: Slack, kind: Any
) -> None:
    target = Target(chat=slack.channel("general").id)
    slack.fault("chat.postMessage", kind)
    with pytest.raises(Uncertain):
        await bot.post(target, Draft(text="x"), key="k")
    ref = await bot.post(target, Draft(text="y"), key="k2")
    slack.fault("chat.update", kind)

    with pytest.raises(Unreachable):
        await bot.edit(target, ref, Draft(text="z"))


async def test_a_slack_that_is_not_there_is_unreachable(slack: SlackWorkspace) -> None:
    bot = Slack(token="xoxb-1", user_name="helper", api_url="http://127.0.0.1:9/api")

    with pytest.raises(Unreachable):
        await bot.post(Target(chat="C1"), Draft(text="x"), key="k")
    await bot.close()


async def test_what_slack_will_never_do_is_refused_with_the_reason(slack: SlackWorkspace, bot: Slack) -> None:
    place = slack.channel("general")
    target, draft = Target(chat=place.id), Draft(text="x")
    ref = await bot.post(target, draft, key="k")

    async def why(chat: Target, ref: str | None = None) -> str:
        sending = bot.post(chat, draft, key="k") if ref is None else bot.edit(chat, ref, draft)
        with pytest.raises(Refused) as refused:
            await sending
        return refused.value.why

    assert await why(Target(chat="C999")) == "blocked"
    assert await why(target, "1.000001") == "gone"
    assert await why(Target(chat=place.id, thread="1.000001")) == "gone"
    await slack.delete(ref, channel="general")
    assert await why(target, ref) == "gone"
    place.is_archived = True
    assert await why(target) == "blocked"
    place.is_archived = False
    place.members.clear()
    assert await why(target) == "blocked"
    slack.bot_token = "xoxb-other"
    assert await why(target) == "unauthorized"


# --- the definition


def test_a_bot_is_defined_by_what_slacks_pages_show(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLACK_BOT_TOKEN", "xoxb-1")
    monkeypatch.setenv("SLACK_SIGNING_SECRET", "shh")

    bot = slack_messenger(user_name="@helper", respond_to=["mention"])

    assert (bot.messenger.user_name, bot.verify_webhook, bot.respond_to) == ("helper", True, ["mention"])
    assert bot.messenger.capabilities.as_json()["supportsEphemeral"] is True
    assert replace(bot, burst=0).burst == 0


@pytest.mark.agent_case(386)
def test_a_bot_without_a_secret_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLACK_SIGNING_SECRET", raising=False)

    with pytest.raises(InvalidSettings, match="requires signing_secret for webhook verification"):
        slack_messenger(token="xoxb-1", user_name="helper")
    assert slack_messenger(token="xoxb-1", user_name="helper", verify_webhook=False).verify_webhook is False


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"token": ""}, "SLACK_BOT_TOKEN"),
        ({"token": "1:abc"}, "xoxb-"),
        ({"token": "xoxb-1", "user_name": " @"}, "user_name"),
        ({"token": "xoxb-1", "respond_to": ["mentions"]}, "mention"),
    ],
)
def test_what_makes_no_bot_is_refused_where_it_is_written(
    options: dict[str, Any], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SLACK_BOT_TOKEN", raising=False)

    with pytest.raises(InvalidSettings, match=said):
        slack_messenger(**{"user_name": "helper", "signing_secret": "shh", **options})
