"""The adapter of Discord: what it lets in, what that comes to, and what it makes people see."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from everthink.errors import InvalidSettings, MissingExtra
from everthink.messengers import (
    Button,
    DeliveryError,
    Draft,
    MessengerEvent,
    RateLimited,
    Refused,
    Target,
    Uncertain,
    Unreachable,
)
from everthink.messengers.discord import Discord, discord_messenger, set_discord_commands
from everthink.messengers.values import Arrived, Attachment
from everthink.testing.clock import ManualClock
from everthink.testing.discord import DiscordServer
from everthink.testing.in_process_server import Listening
from everthink.testing.slack import SlackWorkspace

pytestmark = pytest.mark.anyio

RECORDED: dict[str, dict[str, Any]] = json.loads(
    (Path(__file__).parent / "recordings" / "discord.json").read_text(encoding="utf-8")
)
NOW = 1_800_000_000.0
APPLICATION = "775799577604522054"
KEY = "00" * 32


def adapter(public_key: str | None = None) -> Discord:
    return Discord(application_id=APPLICATION, token="t", user_name="helper", public_key=public_key)


def parsed(name: str) -> Arrived:
    return adapter().parse({"content-type": "application/json"}, json.dumps(RECORDED[name]).encode())


def only(name: str) -> MessengerEvent:
    (event,) = parsed(name).events
    return event


def said(name: str) -> str:
    message = only(name).message
    assert message is not None
    return message.text


# --- who may call


def test_what_discord_has_signed_is_let_in_for_five_minutes() -> None:
    discord = DiscordServer(now=lambda: NOW)
    bot, body = adapter(discord.public_key), b'{"type":1}'
    headers = discord.sign(body)

    assert bot.verify(headers, body, now=NOW)
    assert bot.verify(headers, body, now=NOW + 299)
    assert not bot.verify(headers, body, now=NOW + 301)
    assert not bot.verify(headers, body, now=NOW - 301)


def test_a_body_or_a_signature_that_was_changed_by_one_byte_is_not_let_in() -> None:
    discord = DiscordServer(now=lambda: NOW)
    bot, body = adapter(discord.public_key), b'{"type":1}'
    headers = discord.sign(body)

    for place in range(len(body)):
        changed = bytearray(body)
        changed[place] ^= 1
        assert not bot.verify(headers, bytes(changed), now=NOW)
    signature = headers["x-signature-ed25519"]
    for place in range(len(signature)):
        digit = "0" if signature[place] != "0" else "1"
        other = signature[:place] + digit + signature[place + 1 :]
        assert not bot.verify({**headers, "x-signature-ed25519": other}, body, now=NOW)


@pytest.mark.parametrize(
    "changes",
    [
        {"x-signature-ed25519": None},
        {"x-signature-timestamp": None},
        {"x-signature-ed25519": ""},
        {"x-signature-ed25519": "zz" * 64},
        {"x-signature-ed25519": "00" * 63},
        {"x-signature-timestamp": str(int(NOW) + 1)},
        {"x-signature-timestamp": "soon"},
        {"x-signature-timestamp": "-1"},
        {"x-signature-timestamp": "²"},
        {"x-signature-timestamp": "9" * 400},
    ],
)
def test_a_wrong_or_missing_signature_is_not_let_in(changes: dict[str, str | None]) -> None:
    discord = DiscordServer(now=lambda: NOW)
    signed: dict[str, str | None] = {**discord.sign(b"{}")}
    headers = {name: value for name, value in (signed | changes).items() if value is not None}

    assert not adapter(discord.public_key).verify(headers, b"{}", now=NOW)


def test_the_key_of_another_app_or_none_lets_nothing_in() -> None:
    discord, other = DiscordServer(now=lambda: NOW), DiscordServer(now=lambda: NOW)

    assert not adapter(other.public_key).verify(discord.sign(b"{}"), b"{}", now=NOW)
    assert not adapter(None).verify(discord.sign(b"{}"), b"{}", now=NOW)


# --- what it comes to


def test_a_ping_is_answered() -> None:
    arrived = parsed("ping")

    assert arrived.reply is not None
    assert (arrived.reply.body, arrived.reply.status) == ({"type": 1}, 200)
    assert arrived.events == ()


@pytest.mark.agent_case(397)
def test_a_command_is_a_message_whose_answer_is_waited_for() -> None:
    arrived = parsed("command")
    (event,) = arrived.events

    assert (event.kind, event.thread.id) == ("mention", "discord:645027906669510667")
    assert event.thread.channel_name == "general"
    assert arrived.reply is not None
    assert arrived.reply.body == {"type": 5}
    assert event.message is not None
    assert event.message.id == "786008729715212338"
    assert event.message.text == "When is it due, @helper?"
    assert event.message.created_at == pytest.approx(1_607_469_484.5, abs=0.1)
    author = event.author
    assert (author.user_id, author.user_name, author.full_name) == ("53908232506183680", "mason", "Mason")
    assert event.target.more == {
        "interaction": "786008729715212338",
        "token": "A_UNIQUE_TOKEN",
        "waits": True,
    }


def test_a_command_that_takes_nothing_is_its_name() -> None:
    event = only("command_with_the_bot_alone")

    assert (event.kind, event.thread.is_direct_message, event.target.is_direct) == (
        "direct-message",
        True,
        True,
    )
    assert said("command_with_the_bot_alone") == "/stop"


def test_a_thread_is_a_channel_of_its_own() -> None:
    thread = only("command_in_a_thread").thread

    assert (thread.id, thread.channel_id) == ("discord:645027906669510800", "645027906669510667")


def test_a_command_of_several_things_names_them() -> None:
    assert said("command_in_a_thread") == "to: Rome\ndays: 3\nwith: @eva"


def test_a_command_of_a_message_or_a_person_says_which() -> None:
    assert said("message_command") == "/summarise\nsome message"
    assert said("user_command") == "/high-five @victory"


def test_files_are_described_and_not_loaded() -> None:
    message = only("command_with_a_file").message

    assert message is not None
    (file,) = message.attachments
    assert message.text == ""
    assert (file.id, file.name, file.media_type, file.size, file.url) == (
        "990369410344701964",
        "bongo.png",
        "image/png",
        11545,
        None,
    )


def test_a_pressed_button_says_who_where_and_on_which_message() -> None:
    arrived = parsed("press")
    (event,) = arrived.events

    assert (event.kind, event.thread.id) == ("action", "discord:345626669114982999")
    assert event.action is not None
    assert event.action.action_id == "et:000000000000000000000000:y"
    assert (event.action.value, event.action.message_id) == (None, "844397162624450620")
    assert event.action.user.user_name == "mason"
    assert arrived.reply is not None
    assert (arrived.reply.body, arrived.reply.status) == ("", 202)


def test_what_was_chosen_of_a_list_is_the_value() -> None:
    action = only("select").action

    assert action is not None
    assert action.value == "mage, rogue"


@pytest.mark.parametrize(
    ("name", "kind"),
    [("autocomplete", "autocomplete"), ("modal", "interaction 5"), ("of_tomorrow", "interaction 77")],
)
def test_what_means_nothing_to_us_is_named_and_ignored(name: str, kind: str) -> None:
    arrived = parsed(name)

    assert (arrived.events, arrived.ignored) == ((), (kind,))


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"type": "1"}', b'{"type": 2}', b"\xff", b"null"])
def test_what_discord_never_sends_is_no_interaction(body: bytes) -> None:
    with pytest.raises(ValueError, match="Discord"):
        adapter().parse({"content-type": "application/json"}, body)


# --- what people see


class Endpoint:
    """Answers as our webhook does, and keeps what it heard."""

    def __init__(self, bot: Discord) -> None:
        self.bot = bot
        self.events: list[MessengerEvent] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        from starlette.requests import Request
        from starlette.responses import JSONResponse, Response

        if scope["type"] != "http":
            return
        request = Request(scope, receive)
        body = await request.body()
        now = float(request.headers["x-signature-timestamp"])
        if not self.bot.verify(dict(request.headers), body, now=now):
            return await Response(status_code=401)(scope, receive, send)
        arrived = self.bot.parse(dict(request.headers), body)
        self.events.extend(arrived.events)
        if arrived.events and arrived.events[0].action is not None:
            await self.bot.notify(arrived.events[0], self.says)
        reply = arrived.reply
        assert reply is not None
        answer = (
            Response(reply.body, reply.status) if isinstance(reply.body, str) else JSONResponse(reply.body)
        )
        await answer(scope, receive, send)

    says: str | None = None


@pytest.fixture
async def clock(anyio_backend: str) -> ManualClock:
    return ManualClock()


@pytest.fixture
async def discord(clock: ManualClock) -> AsyncIterator[DiscordServer]:
    async with DiscordServer(now=lambda: clock.now_ms() / 1000) as server:
        yield server


@pytest.fixture
async def bot(discord: DiscordServer) -> AsyncIterator[Discord]:
    messenger = Discord(
        application_id=discord.application_id,
        token=discord.bot_token,
        user_name="helper",
        public_key=discord.public_key,
        api_url=discord.api_url,
    )
    yield messenger
    await messenger.close()


@pytest.fixture
async def endpoint(discord: DiscordServer, bot: Discord) -> AsyncIterator[Endpoint]:
    app = Endpoint(bot)
    async with Listening(app) as server:
        await discord.set_endpoint(f"http://{server.host}/discord")
        yield app


QUESTION = Draft(
    text="**May I?**",
    buttons=(
        Button(id="et:1:y", label="Approve", style="primary"),
        Button(id="et:1:n", label="Deny", style="danger"),
    ),
)


def more(target: Target) -> Target:
    return Target(chat=target.chat, user=target.user, more=target.more, is_more=True)


async def test_an_answer_takes_the_place_of_thinking_and_what_follows_is_below(
    discord: DiscordServer, bot: Discord, endpoint: Endpoint
) -> None:
    await discord.command("ask", {"text": "When?"}, channel="general")
    target = endpoint.events[0].target

    ref = await bot.post(target, Draft(text="It is", is_final=False), key="k0")
    await bot.edit(target, ref, Draft(text="It is due."))
    await bot.post(more(target), Draft(text="And more."), key="k1")

    assert [(shown.text, shown.before) for shown in discord.seen("general")] == [
        ("It is due.", ["It is"]),
        ("And more.", []),
    ]


async def test_an_answer_that_is_posted_again_is_the_same_message(
    discord: DiscordServer, bot: Discord, endpoint: Endpoint
) -> None:
    await discord.command("ask", {"text": "When?"}, channel="general")
    target = endpoint.events[0].target

    refs = [await bot.post(target, Draft(text="It is due."), key="k0") for _ in range(2)]
    more_refs = [await bot.post(more(target), Draft(text="More."), key="k1") for _ in range(2)]

    assert refs[0] == refs[1]
    assert more_refs[0] == more_refs[1]
    assert [shown.text for shown in discord.seen("general")] == ["It is due.", "More."]


async def test_an_answer_after_fifteen_minutes_is_a_message_of_the_channel(
    discord: DiscordServer, bot: Discord, endpoint: Endpoint, clock: ManualClock
) -> None:
    await discord.command("ask", {"text": "When?"}, channel="general")
    target = endpoint.events[0].target
    early = await bot.post(target, Draft(text="Let me"), key="k0")
    await clock.advance(15 * 60 + 1)

    await bot.edit(target, early, Draft(text="Let me see."))
    late = await bot.post(target, Draft(text="It is due."), key="k1")
    await bot.edit(target, late, Draft(text="It is due today."))

    assert [shown.text for shown in discord.answers("general")] == ["Let me see.", "It is due today."]


async def test_an_answer_that_is_faster_than_thinking_is_tried_again(
    discord: DiscordServer, bot: Discord, endpoint: Endpoint, clock: ManualClock
) -> None:
    await discord.command("ask", {"text": "When?"}, channel="general")
    target = endpoint.events[0].target
    discord.interactions[0].answered = False  # our yes is still on its way to Discord

    with pytest.raises(Unreachable):
        await bot.post(target, Draft(text="It is due."), key="k0")
    await clock.advance(6)
    await bot.post(target, Draft(text="It is due."), key="k0")

    assert [shown.text for shown in discord.answers("general")] == ["It is due."]


async def test_what_has_no_answer_leaves_no_thinking_behind(
    discord: DiscordServer, bot: Discord, endpoint: Endpoint
) -> None:
    await discord.command("ask", {"text": "When?"}, channel="general")
    target = endpoint.events[0].target

    await bot.withdraw(target)
    await bot.withdraw(target)

    assert discord.seen("general") == []


async def test_a_bot_that_is_not_in_the_channel_answers_whoever_brought_it_along(
    discord: DiscordServer, bot: Discord, endpoint: Endpoint
) -> None:
    discord.channel("elsewhere").lets_in = False
    await discord.command("ask", {"text": "When?"}, channel="elsewhere")
    target = endpoint.events[0].target

    first = await bot.post(target, Draft(text="It is"), key="k0")
    await bot.edit(target, first, Draft(text="It is due."))
    second = await bot.post(more(target), Draft(text="More"), key="k1")
    await bot.edit(target, second, Draft(text="More of it."))

    assert [shown.text for shown in discord.answers("elsewhere")] == ["It is due.", "More of it."]


async def test_a_press_is_confirmed_or_answered_to_whoever_pressed(
    discord: DiscordServer, bot: Discord, endpoint: Endpoint
) -> None:
    ref = await bot.post(Target(chat=discord.channel("general").id), QUESTION, key="k")
    (question,) = discord.answers("general")
    assert [(b.id, b.label, b.style) for b in question.buttons] == [
        ("et:1:y", "Approve", "primary"),
        ("et:1:n", "Deny", "danger"),
    ]

    endpoint.says = "This is not yours to decide."
    await discord.press(ref, "Deny", by="bob", channel="general")
    endpoint.says = None
    await discord.press(ref, "Approve", by="ann", channel="general")
    await bot.edit(endpoint.events[1].target, ref, Draft(text="Approved by Ann."))

    assert not any(interaction.failed for interaction in discord.interactions)
    assert [(s.text, s.only_for) for s in discord.seen("general", by="bob")] == [
        ("Approved by Ann.", None),
        ("This is not yours to decide.", "bob"),
    ]
    (question,) = discord.answers("general")
    assert question.buttons == []


async def test_a_press_that_was_told_twice_is_confirmed_once(
    discord: DiscordServer, bot: Discord, endpoint: Endpoint
) -> None:
    ref = await bot.post(Target(chat=discord.channel("general").id), QUESTION, key="k")
    delivery = await discord.press(ref, "Approve", channel="general")

    await discord.redeliver(delivery)

    assert [one.status for one in discord.asked("callback")] == [204, 400]
    assert delivery.status == 202


async def test_a_model_calls_nobody(discord: DiscordServer, bot: Discord) -> None:
    await bot.post(Target(chat=discord.channel("general").id), Draft(text="@everyone, look"), key="k")

    assert discord.asked("create_message")[0].body["allowed_mentions"] == {"parse": []}


async def test_typing_is_shown_where_nothing_shows_it_yet(
    discord: DiscordServer, bot: Discord, endpoint: Endpoint
) -> None:
    await discord.command("ask", {"text": "When?"}, channel="general")
    target = endpoint.events[0].target

    await bot.typing(target)
    assert discord.typed == []
    await bot.typing(more(target))
    assert discord.typed == ["general"]


async def test_a_file_is_loaded_and_only_when_it_is_small_enough(
    discord: DiscordServer, bot: Discord, endpoint: Endpoint
) -> None:
    await discord.command("read", files={"file": ("a.txt", "text/plain", b"content")})
    message = endpoint.events[0].message
    assert message is not None
    (file,) = message.attachments

    assert await bot.fetch(file, most=100) == b"content"
    with pytest.raises(Refused, match="larger than 3 bytes"):
        await bot.fetch(file, most=3)
    with pytest.raises(Refused, match="none of Discord's"):
        await bot.fetch(Attachment(name="x"), most=3)


async def test_a_file_that_leads_inside_is_not_loaded(bot: Discord) -> None:
    async with SlackWorkspace() as other:
        file = Attachment(fetch_metadata={"url": f"{other.origin}/api/auth.test"})

        with pytest.raises(Exception, match="allow"):
            await bot.fetch(file, most=100)
        assert other.log == []


async def test_discord_is_left_alone_as_long_as_it_asks(discord: DiscordServer, bot: Discord) -> None:
    discord.fault("create_message", "429", retry_after=1.5)

    with pytest.raises(RateLimited) as limited:
        await bot.post(Target(chat=discord.channel("general").id), Draft(text="x"), key="k")
    assert limited.value.after == 1.5


@pytest.mark.parametrize("kind", ["500", "accept_then_drop"])
async def test_a_post_without_an_answer_is_uncertain_and_an_edit_is_made_again(
    discord: DiscordServer, bot: Discord, kind: Any
) -> None:
    target = Target(chat=discord.channel("general").id)
    discord.fault("create_message", kind)
    with pytest.raises(Uncertain):
        await bot.post(target, Draft(text="x"), key="k")
    ref = await bot.post(target, Draft(text="x"), key="k")
    discord.fault("edit_message", kind)

    with pytest.raises(Unreachable):
        await bot.edit(target, ref, Draft(text="z"))
    assert len(discord.answers("general")) == 1


async def test_what_discord_will_never_do_is_refused_with_the_reason(
    discord: DiscordServer, bot: Discord
) -> None:
    place = discord.channel("general")
    target, draft = Target(chat=place.id), Draft(text="x")
    ref = await bot.post(target, draft, key="k")

    async def why(chat: Target, ref: str | None = None, text: str = "x") -> str:
        said = Draft(text=text)
        sending = bot.post(chat, said, key="k2") if ref is None else bot.edit(chat, ref, said)
        with pytest.raises(Refused) as refused:
            await sending
        return refused.value.why

    assert await why(Target(chat="1")) == "gone"
    assert await why(target, "1") == "gone"
    assert await why(target, text="x" * 2001) == "invalid"
    discord.seen("general")[0].is_deleted = True
    assert await why(target, ref) == "gone"
    place.lets_in = False
    assert await why(target) == "blocked"
    dm = discord.direct("ann")
    dm.lets_in = False
    assert await why(Target(chat=dm.id)) == "blocked"
    discord.bot_token = "another"
    assert await why(target) == "unauthorized"


# --- the definition


async def test_commands_are_registered_with_what_they_take(discord: DiscordServer) -> None:
    definition = discord_messenger(
        user_name="helper",
        application_id=discord.application_id,
        token=discord.bot_token,
        public_key=discord.public_key,
        api_url=discord.api_url,
    )

    await set_discord_commands(definition, {"ask": "Ask me anything", "stop": "Stop the answer"})

    assert [(c["name"], len(c["options"])) for c in discord.commands] == [("ask", 1), ("stop", 0)]
    discord.bot_token = "another"
    with pytest.raises(DeliveryError, match="401"):
        await set_discord_commands(definition, {"ask": "Ask me anything"})


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("Ask", "Command name is invalid"),
        ("ask me", "did not match validation regex"),
        ("ask!", "did not match validation regex"),
        ("a" * 33, "between 1 and 32"),
        ("", "required"),
        ("ÄNDERN", "Command name is invalid"),
    ],
)
async def test_a_command_that_discord_does_not_take_is_refused(
    discord: DiscordServer, name: str, why: str
) -> None:
    definition = discord_messenger(
        user_name="helper",
        application_id=discord.application_id,
        token=discord.bot_token,
        public_key=discord.public_key,
        api_url=discord.api_url,
    )
    await set_discord_commands(definition, {"stop": "Stop the answer"})
    with pytest.raises(Refused, match=rf"50035.*1\.name: .*{why}"):
        await set_discord_commands(definition, {"ask": "Ask", name: "Ask me anything"})
    assert [command["name"] for command in discord.commands] == ["stop"]


async def test_command_names_of_all_scripts_are_taken(discord: DiscordServer) -> None:
    definition = discord_messenger(
        user_name="helper",
        application_id=discord.application_id,
        token=discord.bot_token,
        public_key=discord.public_key,
        api_url=discord.api_url,
    )
    names = ["ask-me_2", "ändern", "質問", "สวัสดี", "नमस्ते", "l'aide"]
    await set_discord_commands(definition, dict.fromkeys(names, "Ask me anything"))
    assert [command["name"] for command in discord.commands] == names


def test_an_app_is_defined_by_what_the_portal_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISCORD_APPLICATION_ID", APPLICATION)
    monkeypatch.setenv("DISCORD_PUBLIC_KEY", DiscordServer().public_key)
    monkeypatch.setenv("DISCORD_BOT_TOKEN", "t")

    bot = discord_messenger(user_name="@helper")

    assert (bot.messenger.user_name, bot.verify_webhook, bot.burst) == ("helper", True, 0)
    assert discord_messenger(user_name="helper", burst=1.0).burst == 1.0


@pytest.mark.agent_case(386)
def test_an_app_without_a_key_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DISCORD_PUBLIC_KEY", raising=False)
    given = {"application_id": APPLICATION, "token": "t", "user_name": "helper"}

    with pytest.raises(InvalidSettings, match="requires public_key for webhook verification"):
        discord_messenger(**given)  # pyright: ignore[reportArgumentType]
    assert discord_messenger(verify_webhook=False, **given).verify_webhook is False  # pyright: ignore


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"application_id": ""}, "DISCORD_APPLICATION_ID"),
        ({"application_id": "mine"}, "DISCORD_APPLICATION_ID"),
        ({"token": " "}, "DISCORD_BOT_TOKEN"),
        ({"user_name": ""}, "user_name"),
        ({"public_key": "12"}, "DISCORD_PUBLIC_KEY"),
        ({"public_key": "zz" * 32}, "DISCORD_PUBLIC_KEY"),
    ],
)
def test_what_makes_no_app_is_refused_where_it_is_written(
    options: dict[str, Any], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("APPLICATION_ID", "BOT_TOKEN", "PUBLIC_KEY"):
        monkeypatch.delenv(f"DISCORD_{name}", raising=False)
    given = {"application_id": APPLICATION, "token": "t", "user_name": "helper", "public_key": KEY}

    with pytest.raises(InvalidSettings, match=said):
        discord_messenger(**{**given, **options})


def test_without_cryptography_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "cryptography"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "cryptography", None)

    with pytest.raises(MissingExtra, match=r"everthink\[discord\]"):
        adapter(KEY)
