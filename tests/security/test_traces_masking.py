"""Made-up keys of many services, wherever they turn up; and what must stay readable."""

from __future__ import annotations

import json
import re
from typing import Any, ClassVar

import pytest

from everthink import App, Think
from everthink.errors import ModelError, StoreError
from everthink.logs import cleaned_traceback
from everthink.masking import KINDS, LONGEST, Kind, mask, masked, shortened
from everthink.models.classify import classify
from everthink.observe.bus import EventBus
from everthink.observe.events import Event, MessageError

HEX = "0123456789abcdef"
LONG = "aB3dE5gH7jK9mN1pQ3sT5vW7yZ"

SECRETS = {
    "OpenAI": f"sk-{LONG}{LONG}",
    "OpenAI project": f"sk-proj-{LONG}_{LONG}",
    "Anthropic": f"sk-ant-api03-{LONG}-{LONG}",
    "OpenRouter": f"sk-or-v1-{HEX * 4}",
    "Google": f"AIzaSy{LONG}{HEX}"[:39],
    "Google OAuth": f"ya29.{LONG}{LONG}",
    "Google client": f"GOCSPX-{LONG}",
    "AWS": "AKIA2E0A8F3B244C9986",
    "AWS session": "ASIA2E0A8F3B244C9986",
    "Azure": f"abc8Q~{LONG}abcdefgh",
    "GitHub": f"ghp_{LONG}0123456789",
    "GitHub fine-grained": f"github_pat_11ABCDEFG0{LONG}_{LONG}",
    "GitLab": "glpat-xYz12_abCDEFghijklmn",
    "Slack bot": "xoxb-123456789012-1234567890123-aBcDeFgHiJkLmNoPqRsTuVwX",
    "Slack app": "xapp-1-A012B3C4D5E-1234567890123-0123456789abcdef",
    "Stripe": f"sk_live_{LONG}",
    "Stripe restricted": f"rk_live_{LONG}",
    "Stripe webhook": f"whsec_{LONG}{LONG}",
    "Twilio": f"SK{HEX * 2}",
    "SendGrid": f"SG.{LONG[:22]}.{LONG}{HEX}a",
    "Telegram": "123456789:AAabcdefghijklmnopqrstuvwxyz0123456",
    "Discord": "MTIzNDU2Nzg5MDEyMzQ1Njc4.GabcDe.abcdefghijklmnopqrstuvwxyz0123456789ab",
    "Hugging Face": f"hf_{LONG}01234567",
    "Groq": f"gsk_{LONG}{LONG}",
    "xAI": f"xai-{LONG}{LONG}",
    "Perplexity": f"pplx-{LONG}{HEX}",
    "Replicate": f"r8_{LONG}0123456789a",
    "npm": f"npm_{LONG}0123456789",
    "PyPI": f"pypi-AgEIcHlwaS5vcmcCJ{LONG}{LONG}",
    "DigitalOcean": f"dop_v1_{HEX * 4}",
    "Mailgun": f"key-{HEX * 2}",
    "Shopify": f"shpat_{HEX * 2}",
    "Databricks": f"dapi{HEX * 2}",
    "Linear": f"lin_api_{LONG}0123456789abcd",
    "Vault": f"hvs.CAESI{LONG}",
    "JSON web token": f"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.{LONG}",
}

# What stands around them, as libraries and people write it.
AROUND = [
    "Incorrect API key provided: {}.",
    "401 Unauthorized for {} (check your plan)",
    "Authorization: Bearer {}",
    "GET https://api.example.com/v1/x?alt=sse&key={}&page=2",
    "{{'x-api-key': '{}', 'accept': '*/*'}}",
    '{{"error": {{"message": "bad key \\"{}\\""}}}}',
    "token={}",
    "<{}>",
    "\n{}\n",
]

CONNECTIONS = [
    ("postgresql://app:{}@db.internal:5432/chat", "hunter2"),
    ("postgres://app:{}@db/chat?sslmode=require", "p@ss/w0rd"),
    ("redis://:{}@cache:6379/0", "hunter2"),
    ("rediss://default:{}@cache:6379", "a/b@c"),
    ("mongodb+srv://me:{}@cluster0.example.net/test", "hunter2"),
    ("amqp://guest:{}@queue:5672/%2f", "hunter2"),
    ("mysql+pymysql://root:{}@localhost/app", "hunter2"),
    ("https://me:{}@git.example.com/repo.git", "hunter2"),
    ("https://{}@github.com/me/repo.git", "ghp_abcdefghijklmnop1234"),
]

UNDER_A_NAME = [
    ("MISTRAL_API_KEY={}", "aBcDeFgHiJkLmNoP"),
    ("COHERE_API_KEY: {}", "aBcDeFgHiJkLmNoP"),
    ("aws_secret_access_key = {}", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"),
    ("DefaultEndpointsProtocol=https;AccountName=x;AccountKey={};EndpointSuffix=y", "aBc+/dEf012345=="),
    ("api-key: {}", HEX * 2),
    ("password={}", "abc"),
    ("password: {}", "correcthorse"),
    ("pwd='{}'", "tiger"),
    ('{{"client_secret": "{}"}}', "s3cr3t"),
    ("{{'apiKey': '{}'}}", "s3cr3t"),
    ("proxy-authorization: Basic {}", "QWxhZGRpbjpvcGVu"),
    ("Basic {} was refused", "QWxhZGRpbjpvcGVuIHNlc2FtZQ=="),
    ("authorization: {}", "whatever-it-is"),
    ("Cookie: session={}; theme=dark", "abcdef"),
    ("set-cookie: id={}; Path=/; HttpOnly", "abcdef"),
    ("https://x.example/cb?state=1&token={}", "abcdef"),
    ("https://x.example/cb?access_token={}#top", "abcdef"),
    ("https://s3.example/o?X-Amz-Signature={}&x=1", HEX * 4),
    ("https://b.example/o?sv=1&sig={}", "aBc%2Bd%3D"),
    ("https://hooks.slack.com/services/{}", "T00000000/B00000000/aBcDeFgHiJkLmNoPqRsTuVwX"),
    ("https://discord.com/api/webhooks/{}", f"123456789012345678/{LONG}"),
    ("https://api.telegram.org/bot123456789:{}/getMe", "AAabcdefghijklmnopqrstuvwxyz0123456"),
    ("-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----", "MIIEvQIBADANBg\nkqhkiG9w0BAQEF"),
    ("-----BEGIN OPENSSH PRIVATE KEY-----\\n{}\\n", "b3BlbnNzaC1rZXktdjEA"),
]

READABLE = [
    "maximum context length is 8192 tokens: 9000 given",
    "input_tokens=12345 max_tokens: 100000 total_tokens: 1234567",
    "Tool 'look' raised KeyError: 'city'",
    "asked for skeleton-keys-and-more at 12:30",
    "https://example.com:8080/path",
    "https://example.com:8080/@somebody",
    "see http://localhost:8787/agents/assistant/room-1?limit=20000000&after=msg_0123456789",
    "id 123e4567-e89b-12d3-a456-426614174000 of 2026-11-16T10:30:00+00:00",
    f"sha256:{HEX * 4}",
    f"https://cdn.example.com/{HEX * 2}/picture.png?w=200&h=1000000",
    "msg_01ABCdefGHIjklMNOpqr, req_011CSHoEeqs5C35K2UUqR7Fy and call_abc123DEF456",
    "a basic understanding of bearer authentication; Basic Authentication. basic input/output",
    "password: required, token: expired, api_key=None, password='', secret: missing",
    "The secret of a good soup: patience. A token of love. Cookies: chocolate",
    "sk-learn and pk-less tables; scikit-learn",
    "Set it with: export OPENAI_API_KEY=… or another",
    "everthink.server.chat_sockets.ChatSockets.receive, everthink.testing.contracts.store.searches",
    "AC/DC, SKU 12345678, Asia and Acca",
    "10.0.0.7:5432 refused; [::1]:8787",
]


@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("service", SECRETS)
def test_a_key_of_a_known_service_is_masked_wherever_it_stands(service: str, around: str) -> None:
    secret = SECRETS[service]
    said = mask(around.format(secret))
    assert secret not in said
    # not even most of it
    assert secret[len(secret) // 2 :] not in said
    assert "***" in said


@pytest.mark.parametrize(("text", "secret"), [*CONNECTIONS, *UNDER_A_NAME])
def test_what_stands_in_the_place_of_a_secret_is_masked(text: str, secret: str) -> None:
    said = mask(text.format(secret))
    assert secret not in said
    assert "***" in said


@pytest.mark.parametrize("text", READABLE)
def test_ordinary_text_stays_readable(text: str) -> None:
    assert mask(text) == text


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_each_kind_of_the_table_knows_its_own_example(kind: Kind) -> None:
    said = kind.hide(kind.example)
    assert said != kind.example
    assert "***" in said
    assert any(hint in kind.example.lower() for hint in kind.hints)
    assert all(hint == hint.lower() for hint in kind.hints)


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("Incorrect API key provided: sk-proj-abcdefgh12345678.", "Incorrect API key provided: sk-***."),
        ("Authorization: Bearer abcdefgh.12345678", "Authorization: Bearer ***"),
        ("api_key=abcdef123456&model=x", "api_key=***&model=x"),
        ('{"password": "hunter2hunter2"}', '{"password": "***"}'),
        ("postgresql://app:hunter2@db/chat refused", "postgresql://app:***@db/chat refused"),
        ("token ghp_abcdefghijklmnop1234 expired", "token ghp_*** expired"),
    ],
)
def test_what_is_left_says_what_it_was(text: str, kept: str) -> None:
    assert mask(text) == kept
    assert mask(kept) == kept


def test_a_name_that_tells_hides_what_stands_under_it_whole() -> None:
    given = {
        "db_password": "correct horse battery staple",
        "clientSecret": "x y",
        "pin_pwd": 1234,
        "tokens": "many of them",
        "inputTokens": 12,
        "sessionId": "s-1",
        "deep": [{"headers": {"Cookie": "a=b"}}],
        "nothing": {"password": None, "token": ""},
    }
    assert masked(given) == {
        "db_password": "***",
        "clientSecret": "***",
        "pin_pwd": "***",
        "tokens": "many of them",
        "inputTokens": 12,
        "sessionId": "s-1",
        "deep": [{"headers": {"Cookie": "***"}}],
        "nothing": {"password": None, "token": ""},
    }


def test_a_value_a_thousand_levels_deep_is_hidden_and_not_followed() -> None:
    value: Any = "sk-abcdefgh12345678"
    for _ in range(1000):
        value = [value]
    assert "abcdefgh" not in json.dumps(masked(value))


# --- long and hostile text


def test_every_repetition_in_the_table_has_a_bound() -> None:
    """A pattern without `*`, `+` or `{n,}` tries each place a bounded number of times: time is linear."""
    for kind in KINDS:
        bare = re.sub(r"\\.|\[(?:\\.|[^\]\\])*\]", "x", kind.pattern)
        assert not re.search(r"(?<!\()[*+](?!\?)|\{\d*,\}", bare), kind.name
        # and none repeats a group that itself repeats, but for a few bounded times
        for times in re.findall(r"\)\{\d*,?(\d+)\}", bare):
            assert int(times) <= 4 or "(?!" in bare, kind.name


def test_a_long_text_is_cut_before_it_is_searched_and_not_in_the_middle_of_a_key() -> None:
    key = "sk-proj-abcdefgh12345678"
    for before in range(LONGEST - 30, LONGEST + 2):
        said = mask("x" * 100 + " " + "y" * (before - 102) + " " + key + " " + "z" * 1000)
        assert "sk-proj-a" not in said
        assert len(said) < LONGEST + 100
    assert shortened("a b" * 10, 12).startswith("a ba ba ")


# --- where it is used


@pytest.mark.anyio
@pytest.mark.parametrize(
    "url",
    [
        "postgresql://app:hunter2@127.0.0.1:1/x",
        "postgresql://app:hunter2@127.0.0.1:port/x",
        "postgresql://app:1/hunter2@127.0.0.1:1/x",
        "mysql://app:hunter2@127.0.0.1/x",
        "sqlite://app:hunter2@x",
    ],
)
async def test_a_database_that_cannot_be_opened_is_told_without_its_password(url: str) -> None:
    pytest.importorskip("asyncpg")

    class Idle(Think):
        """Is never asked anything."""

    async def opened() -> None:
        app = App(Idle, store=url)  # refused here, or when it is opened
        assert "hunter2" not in repr(app)
        await app.open()

    with pytest.raises(StoreError) as refused:
        await opened()
    assert "hunter2" not in str(refused.value)
    assert "hunter2" not in repr(refused.value)
    assert "hunter2" not in cleaned_traceback(refused.value)


def test_a_providers_error_that_repeats_the_key_is_masked() -> None:
    class Refused(Exception):
        status_code = 401
        body: ClassVar[Any] = {"error": {"message": "Incorrect API key provided: sk-proj-abcdefgh12345678."}}

    error = classify(Refused("x"), model="openai:x")
    assert isinstance(error, ModelError)
    assert "abcdefgh" not in str(error)
    url = classify(ValueError("GET https://h.example/v1?key=0a1b2c3d4e5f failed"), model="google:x")
    assert "0a1b2c3d4e5f" not in str(url)


def test_an_event_carries_no_key_to_its_subscribers() -> None:
    seen: list[Event] = []
    bus = EventBus(now_ms=lambda: 0)
    bus.subscribe(seen.append)
    bus.emit("Assistant", "room", MessageError(error="postgresql://app:hunter2@db/x refused"))
    [event] = seen
    assert "hunter2" not in json.dumps(event.to_json())
    assert "hunter2" not in repr(event)
