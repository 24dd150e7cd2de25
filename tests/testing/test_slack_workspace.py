"""Our stand-in of Slack, judged by Slack's own client and by what Slack's documentation shows."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from everthink.testing.in_process_server import Listening
from everthink.testing.platform import posted
from everthink.testing.slack import SlackWorkspace
from tests.support.clients import judged, own_python

pytestmark = pytest.mark.anyio

CLIENT = r"""
import json, sys
from slack_sdk import WebClient
from slack_sdk.errors import SlackApiError
from slack_sdk.models.blocks import ActionsBlock, ButtonElement, MarkdownBlock
from slack_sdk.models.metadata import Metadata

url, channel, dm, ann, file_id = sys.argv[1:]
client = WebClient("xoxb-test-token", base_url=url, timeout=10)
heard = {"auth": client.auth_test().data}

def refusal(call, **given):
    try:
        call(**given)
    except SlackApiError as error:
        return error.response["error"]
    return None

blocks = [MarkdownBlock(text="May I?"), ActionsBlock(elements=[
    ButtonElement(text="Yes", action_id="yes", style="primary"), ButtonElement(text="No", action_id="no")])]
posted = client.chat_postMessage(
    channel=channel, text="May I?", blocks=blocks, metadata=Metadata("row", {"key": "k1"}))
heard["posted"] = posted["message"]
reply = client.chat_postMessage(channel=channel, thread_ts=posted["ts"], text="in the thread",
    metadata=Metadata("row", {"key": "k2"}))
heard["thread"] = reply["message"]["thread_ts"] == posted["ts"]
client.chat_update(channel=channel, ts=posted["ts"], text="Ann agreed",
    blocks=[MarkdownBlock(text="**Ann** agreed")])
client.chat_postMessage(channel=channel, markdown_text="# A title")
found = client.conversations_replies(channel=channel, ts=posted["ts"], include_all_metadata=True, oldest="0")
heard["keys"] = [m.get("metadata", {}).get("event_payload", {}).get("key") for m in found["messages"]]
plain = client.conversations_replies(channel=channel, ts=posted["ts"])
heard["without"] = [m.get("metadata") for m in plain["messages"]]
heard["history"] = [m["text"] for m in client.conversations_history(channel=channel, limit=1)["messages"]]
pages = client.conversations_history(channel=channel, limit=1)
heard["pages"] = sum(len(page["messages"]) for page in pages)
heard["ephemeral"] = bool(client.chat_postEphemeral(channel=channel, user=ann, text="only you")["message_ts"])
heard["opened"] = client.conversations_open(users=[ann])["channel"]["id"] == dm
heard["file"] = client.files_info(file=file_id)["file"]["mimetype"]
gone = client.chat_postMessage(channel=channel, text="a slip")
client.chat_delete(channel=channel, ts=gone["ts"])
heard["refusals"] = [
    refusal(client.chat_postMessage, channel="C999", text="x"),
    refusal(client.chat_postMessage, channel=channel, text=""),
    refusal(client.chat_postMessage, channel=channel, thread_ts="1.000001", text="x"),
    refusal(client.chat_update, channel=channel, ts=gone["ts"], text="x"),
    refusal(client.chat_update, channel=channel, ts=posted["ts"], text="x" * 4001),
    refusal(client.chat_postMessage, channel=channel, text="x",
        blocks=[{"type": "markdown", "text": "x" * 12001}]),
    refusal(client.chat_postMessage, channel=channel, text="x", metadata={"event_type": "row"}),
    refusal(client.chat_postEphemeral, channel=channel, user="U999", text="x"),
    refusal(WebClient("xoxb-other", base_url=url).auth_test),
    refusal(WebClient(base_url=url).auth_test),
    refusal(client.api_call, api_method="chat.nonsense"),
]
print(json.dumps(heard))
"""


@pytest.mark.slow
async def test_slacks_own_client_finds_nothing_wrong_with_the_stand_in() -> None:
    python = await asyncio.to_thread(own_python, "slack", "slack-sdk>=3.40,<4")
    async with SlackWorkspace() as slack:
        channel, dm = slack.channel("general"), slack.direct("ann")
        slack.request_url = f"{slack.origin}/nobody"
        await slack.say("look", by="ann", channel="general", files=[("a.png", "image/png", b"png")])
        file = slack.seen("general")[0].raw["files"][0]["id"]
        ann = slack.person("ann")

        heard = await judged(python, CLIENT, slack.api_url, channel.id, dm.id, ann, file)

        assert heard["auth"]["user_id"] == slack.bot_user_id
        assert heard["posted"]["metadata"]["event_payload"] == {"key": "k1"}
        assert heard["thread"] is True
        assert heard["keys"] == ["k1", "k2"]
        assert heard["without"] == [None, None]
        assert heard["history"] == ["# A title"]
        assert heard["pages"] == 3
        assert heard["ephemeral"] is heard["opened"] is True
        assert heard["file"] == "image/png"
        assert heard["refusals"] == [
            "channel_not_found",
            "no_text",
            "thread_not_found",
            "message_not_found",
            "msg_too_long",
            "invalid_blocks",
            "invalid_metadata_format",
            "user_not_in_channel",
            "invalid_auth",
            "not_authed",
            "unknown_method",
        ]
        question = slack.answers("general")[0]
        assert (question.text, question.before, question.buttons) == ("**Ann** agreed", ["May I?"], [])
        assert [shown.text for shown in slack.answers("general")][1:] == ["in the thread", "# A title"]
        assert "only you" in [shown.text for shown in slack.seen("general", by="ann")]
        assert "only you" not in [shown.text for shown in slack.seen("general", by="bob")]


LIMITED = r"""
import json, sys
from slack_sdk import WebClient
from slack_sdk.http_retry.builtin_handlers import RateLimitErrorRetryHandler

client = WebClient("xoxb-test-token", base_url=sys.argv[1])
client.retry_handlers.append(RateLimitErrorRetryHandler(max_retry_count=2))
print(json.dumps(client.chat_postMessage(channel=sys.argv[2], text="after two refusals")["ok"]))
"""


@pytest.mark.slow
async def test_slacks_own_client_waits_as_long_as_the_stand_in_asks_it_to() -> None:
    python = await asyncio.to_thread(own_python, "slack", "slack-sdk>=3.40,<4")
    async with SlackWorkspace() as slack:
        channel = slack.channel("general")
        slack.fault("chat.postMessage", "429", times=2)

        assert await judged(python, LIMITED, slack.api_url, channel.id) is True

        asked = slack.asked("chat.postMessage")
        assert [one.status for one in asked] == [429, 429, 200]
        assert asked[2].at - asked[0].at >= 2.0
        assert [shown.text for shown in slack.answers("general")] == ["after two refusals"]


SIGNED = r"""
import json, sys
from slack_sdk.signature import SignatureVerifier

secret, body, headers = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
verifier = SignatureVerifier(secret)
print(json.dumps([verifier.is_valid_request(body, headers), verifier.is_valid_request(body + " ", headers)]))
"""


@pytest.mark.slow
async def test_slacks_own_verifier_accepts_what_the_stand_in_signs() -> None:
    python = await asyncio.to_thread(own_python, "slack", "slack-sdk>=3.40,<4")
    slack = SlackWorkspace()
    body = '{"type":"event_callback"}'
    headers = {name.title(): value for name, value in slack.sign(body.encode()).items()}

    assert await judged(python, SIGNED, slack.signing_secret, body, json.dumps(headers)) == [True, False]


class App:
    """Somebody's bot: it answers as it is told to, and keeps what it heard."""

    def __init__(self) -> None:
        self.heard: list[tuple[dict[str, str], bytes]] = []
        self.status = 200

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        request = Request(scope, receive)
        body = await request.body()
        self.heard.append((dict(request.headers), body))
        response: Response = Response(status_code=self.status)
        if body.startswith(b"{") and "challenge" in json.loads(body):
            response = JSONResponse({"challenge": json.loads(body)["challenge"]}, self.status)
        await response(scope, receive, send)

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(body)["event"] for _, body in self.heard if b'"event"' in body]


@pytest.fixture
async def bot(anyio_backend: str) -> AsyncIterator[tuple[SlackWorkspace, App]]:
    app = App()
    async with Listening(app) as server, SlackWorkspace() as slack:
        await slack.set_request_url(f"http://{server.host}/slack")
        app.heard.clear()
        yield slack, app


async def test_an_address_that_does_not_answer_the_challenge_is_not_registered() -> None:
    app = App()
    app.status = 500
    async with Listening(app) as server, SlackWorkspace() as slack:
        with pytest.raises(RuntimeError, match="challenge"):
            await slack.set_request_url(f"http://{server.host}/slack")

        assert slack.request_url == ""


async def test_a_mention_in_a_channel_is_told_twice_and_one_word_alone_once(
    bot: tuple[SlackWorkspace, App],
) -> None:
    slack, app = bot

    told = await slack.say("@helper is 1 < 2 & 3?", by="ann", channel="general")
    await slack.say("hello", by="ann")

    assert [event["type"] for event in app.events] == ["app_mention", "message", "message"]
    assert [event.get("channel_type") for event in app.events] == [None, "channel", "im"]
    assert app.events[0]["ts"] == app.events[1]["ts"]
    assert app.events[0]["text"] == f"<@{slack.bot_user_id}> is 1 &lt; 2 &amp; 3?"
    assert [delivery.status for delivery in told] == [200, 200]


async def test_what_is_sent_is_signed_anew_each_time_and_says_that_it_is_sent_again(
    bot: tuple[SlackWorkspace, App],
) -> None:
    slack, app = bot
    app.status = 503

    (delivery,) = await slack.say("hello", by="ann")
    app.status = 200
    await slack.redeliver(delivery)

    (first, body), (second, again) = app.heard
    assert body == again
    assert "x-slack-retry-num" not in first
    assert (second["x-slack-retry-num"], second["x-slack-retry-reason"]) == ("1", "http_error")
    base = f"v0:{second['x-slack-request-timestamp']}:".encode() + body
    mac = hmac.new(slack.signing_secret.encode(), base, hashlib.sha256).hexdigest()
    assert second["x-slack-signature"] == f"v0={mac}"
    assert slack.notices == ["message: HTTP 503"]


async def test_the_app_is_told_of_its_own_messages_and_of_edits_and_deletions(
    bot: tuple[SlackWorkspace, App],
) -> None:
    slack, app = bot
    headers = {"authorization": f"Bearer {slack.bot_token}", "content-type": "application/json"}
    place = slack.channel("general")

    body = json.dumps({"channel": place.id, "text": "mine"}).encode()
    answer = await posted(f"{slack.api_url}chat.postMessage", headers, body)
    await slack.until(lambda: len(app.events) == 1)
    (theirs,) = await slack.say("theirs", by="ann", channel="general")
    await slack.rewrite(theirs.told["event"]["ts"], "theirs, edited", channel="general")
    await slack.delete(theirs.told["event"]["ts"], channel="general")

    assert answer.json["ok"] is True
    assert app.events[0]["bot_id"] == slack.bot_id
    assert [event.get("subtype") for event in app.events[1:]] == [None, "message_changed", "message_deleted"]
    assert app.events[2]["message"]["text"] == "theirs, edited"
    assert [shown.text for shown in slack.seen("general")] == ["mine"]


async def test_faults_refuse_hang_or_do_it_without_a_word() -> None:
    async with SlackWorkspace() as slack:
        headers = {"authorization": f"Bearer {slack.bot_token}", "content-type": "application/json"}
        place = slack.channel("general")

        async def post(text: str) -> Any:
            body = json.dumps({"channel": place.id, "text": text}).encode()
            return await posted(f"{slack.api_url}chat.postMessage", headers, body)

        slack.fault("chat.postMessage", "429", retry_after=30)
        limited = await post("one")
        slack.fault("*", "500")
        broken = await post("two")
        slow = slack.fault("chat.postMessage", "slow")
        late = asyncio.create_task(post("three"))
        await slack.until(lambda: slow.met)
        assert not late.done()
        slow.release()
        answered = await late
        slack.fault("chat.postMessage", "accept_then_drop")
        dropped = await post("four")
        hanging = slack.fault("chat.postMessage", "accept_then_hang")
        never = asyncio.create_task(post("five"))
        await slack.until(lambda: hanging.met)
        never.cancel()
        silent = slack.fault("chat.postMessage", "hang")
        nothing = asyncio.create_task(post("six"))
        await slack.until(lambda: silent.met)
        nothing.cancel()

        assert (limited.status, limited.headers["retry-after"], limited.json["error"]) == (
            429,
            "30",
            "ratelimited",
        )
        assert broken.status == 500
        assert answered.json["ok"] is True
        assert dropped.body == b""
        assert [shown.text for shown in slack.answers("general")] == ["three", "four", "five"]
        assert [asked.status for asked in slack.log] == [429, 500, 200, None, None, None]


async def test_a_fault_may_let_some_requests_go_well_first() -> None:
    async with SlackWorkspace() as slack:
        slack.fault("auth.test", "500", after=2, times=2)
        statuses = [(await posted(f"{slack.api_url}auth.test", {}, b"")).status for _ in range(5)]

    assert statuses == [200, 200, 500, 500, 200]


async def test_a_wait_that_is_not_met_says_what_was_asked_instead() -> None:
    async with SlackWorkspace() as slack:
        await posted(f"{slack.api_url}auth.test", {}, b"")

        with pytest.raises(TimeoutError, match=r"auth\.test 200"):
            await slack.until(lambda: False, within=0.01)
