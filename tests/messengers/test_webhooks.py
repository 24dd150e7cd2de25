"""Who may call a webhook, and what it answers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse

from everthink import App, Think
from everthink.errors import InvalidSettings
from everthink.messengers.telegram import telegram_messenger
from everthink.testing import ScriptedModel, says
from everthink.testing.in_process_server import Listening
from everthink.testing.platform import posted
from everthink.testing.telegram import TelegramServer
from tests.support.hooks import until
from tests.support.messengers import SECRET, bot_class, talking

pytestmark = pytest.mark.anyio

PATH = "/messengers/telegram/webhook"
HEADER = "x-telegram-bot-api-secret-token"


def hello() -> ScriptedModel:
    return ScriptedModel(lambda request: says("Hello."), repeat=True)


async def kept(app: App) -> int:
    [(count,)] = await (await app.open()).store.fetch("SELECT COUNT(*) FROM turns")
    return count


@pytest.mark.agent_case(388)
@pytest.mark.parametrize("secret", [None, "", "s3cre", "s3crets", "S3CRET"])
async def test_whoever_does_not_know_the_secret_is_refused_before_anything_is_read(
    telegram: TelegramServer, store: str, secret: str | None
) -> None:
    cls = bot_class(telegram, hello())
    refused: list[Any] = []
    async with talking(telegram, cls, store) as (app, server):
        app.events.subscribe(refused.append, channel="agents:channel")
        headers = {} if secret is None else {HEADER: secret}
        answer = await server.http(PATH, method="POST", headers=headers, body=b"{not json")
        assert answer.status == 401
        assert await kept(app) == 0
        await app.events.drain()
    assert [event.type for event in refused] == ["messenger:refused"]


async def test_what_is_no_update_is_a_bad_request_and_unknown_kinds_are_counted(
    telegram: TelegramServer, store: str
) -> None:
    told: list[Any] = []
    async with talking(telegram, bot_class(telegram, hello()), store) as (app, server):
        app.events.subscribe(told.append, channel="agents:channel")
        headers = {HEADER: SECRET}
        statuses = [
            (await server.http(PATH, method="POST", headers=headers, body=body)).status
            for body in (b"{not json", b"[1]", b'{"update_id": 1, "poll": {}}', b'{"update_id": 2}')
        ]
        assert statuses == [400, 400, 200, 200]
        assert await kept(app) == 0
        await app.events.drain()
    assert [event.payload.get("what") for event in told if event.type == "messenger:ignored"] == [
        "poll",
        "nothing",
    ]


@pytest.mark.agent_case(412)
async def test_messengers_come_after_agents_and_before_on_request(
    telegram: TelegramServer, store: str
) -> None:
    seen: list[str] = []

    class Bot(bot_class(telegram, hello())):
        async def on_request(self, request: Any) -> str:
            seen.append(request.url.path)
            return "mine"

    class Site(App):
        async def on_other_request(self, request: Any) -> str:
            seen.append(request.url.path)
            return "site"

    app = Site(Bot, store=store, grace=0.0, idle_after=None)
    async with Listening(app) as server:
        assert (await server.http(PATH)).status == 405
        assert (await server.http(PATH, method="POST", body=b"{}")).status == 401
        assert (await server.http("/messengers/other/webhook", method="POST")).text == '"site"'
        agent = "/agents/bot/default"
        assert (await server.http(f"{agent}/get-messages")).json == []
        assert (await server.http(f"{agent}{PATH}", method="POST", body=b"{}")).status == 401
        assert (await server.http(f"{agent}/mine", method="POST")).text == '"mine"'
    assert seen == ["/messengers/other/webhook", f"{agent}/mine"]


@pytest.mark.agent_case(387, 389)
async def test_verify_webhook_may_read_the_body_and_answer_itself(
    telegram: TelegramServer, store: str
) -> None:
    read: list[bytes] = []

    async def verify(request: Request) -> Any:
        read.append(await request.body())
        by = request.headers.get("x-by")
        return PlainTextResponse("who?", 418) if by is None else by == "telegram"

    ann = telegram.private("Ann")
    async with talking(telegram, bot_class(telegram, hello(), verify_webhook=verify), store) as (_, server):
        body = (
            b'{"update_id": 1, "message": {"message_id": 1, "chat": {"id": %d, "type": "private"},' % ann.id
        )
        body += b' "from": {"id": %d, "first_name": "Ann"}, "text": "Hi"}}' % ann.id
        assert (await server.http(PATH, method="POST", body=body)).status == 418
        refused = await server.http(PATH, method="POST", headers={"x-by": "x"}, body=body)
        assert (refused.status, refused.text) == (401, "Unauthorized")
        assert not ann.answers
        assert (await server.http(PATH, method="POST", headers={"x-by": "telegram"}, body=body)).status == 200
        await telegram.until(lambda: ann.answers)
    assert read == [body] * 3


@pytest.mark.parametrize("answer", [None, 0, "", "no", [], {"ok": False}, 1])
async def test_a_verify_webhook_that_does_not_say_true_lets_nobody_in(
    telegram: TelegramServer, store: str, answer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async def verify(request: Request) -> Any:
        return answer

    ann = telegram.private("Ann")
    async with talking(telegram, bot_class(telegram, hello(), verify_webhook=verify), store):
        assert (await ann.say("Hi")).status == 401
    assert not ann.answers
    assert "verify_webhook returned" in caplog.text


async def test_path_is_the_developers(telegram: TelegramServer, store: str) -> None:
    ann = telegram.private("Ann")
    async with talking(telegram, bot_class(telegram, hello(), path="/hooks/tg"), store) as (_, server):
        telegram.webhook(f"http://{server.host}/hooks/tg", secret=SECRET)
        assert (await ann.say("Hi")).status == 200
        assert (await server.http(PATH, method="POST")).status == 404


async def test_a_bot_is_reached_though_the_app_asks_who_everybody_is(
    telegram: TelegramServer, store: str
) -> None:
    ann = telegram.private("Ann")
    cls = bot_class(telegram, hello())
    async with talking(telegram, cls, store, authenticate=lambda connection: None) as (_, server):
        assert (await ann.say("Hi")).status == 200
        telegram.webhook(f"http://{server.host}/agents/bot/default{PATH}", secret=SECRET)
        assert (await ann.say("Hi again")).status == 200
        nobody = f"/agents/bot/nobody{PATH}"
        answer = await server.http(nobody, method="POST", headers={HEADER: SECRET}, body=b"{}")
        assert answer.status == 401
        await telegram.until(lambda: ann.answers)


async def test_several_classes_with_messengers_say_whose_are_the_apps(telegram: TelegramServer) -> None:
    one = bot_class(telegram, hello())
    two = type("Second", (Think,), {"messengers": one.messengers, "model": one.model})
    with pytest.raises(InvalidSettings, match="Several classes of the app have messengers: Bot, Second"):
        App(one, two, store="sqlite:///:memory:")
    plain = type("Plain", (Think,), {"model": one.model})
    with pytest.raises(InvalidSettings, match="which has no messengers"):
        App(plain, one, messengers=plain)
    with pytest.raises(InvalidSettings, match="It takes a class of the app"):
        App(one, messengers=plain)
    assert App(one, two, store="sqlite:///:memory:", messengers=(two, "main"))


async def test_polling_needs_no_address_and_goes_on_where_it_was(
    telegram: TelegramServer, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("everthink.messengers.telegram.POLL_SECONDS", 0.1)
    ann = telegram.private("Ann")
    cls = bot_class(telegram, hello(), mode="polling", user_name=None, secret_token=None)
    for number in (1, 2):
        async with Listening(App(cls, store=store, grace=0.0, idle_after=None)):
            await ann.say(f"Hi {number}")
            await telegram.until(lambda number=number: len(ann.answers) == number)
            await telegram.until(lambda: telegram.asked("getUpdates")[-1].body.get("offset"))
    assert len(ann.answers) == 2
    assert telegram.asked("getMe")


async def test_a_bot_that_asks_for_what_is_new_is_answered_when_the_stand_in_ends() -> None:
    begun = asyncio.Event()

    class Watched(TelegramServer):
        async def _until_updates(self, body: Any) -> None:
            begun.set()
            await super()._until_updates(body)

    async with Watched() as telegram:
        url = f"{telegram.origin}/bot{telegram.token}/getUpdates"
        asking = asyncio.create_task(posted(url, {"content-type": "application/json"}, b'{"timeout": 25}'))
        await begun.wait()
    answer = await asking
    assert (answer.status, answer.json["result"]) == (200, [])


async def test_every_class_with_messengers_has_an_agent_for_them_from_the_start(
    telegram: TelegramServer, store: str
) -> None:
    # Given two classes with a bot each; the second one asks its platform for what is new
    class Sales(Think):
        include_workspace_tools = False
        model = ScriptedModel(lambda request: says("Sold."), repeat=True)
        messengers = {  # noqa: RUF012
            "telegram": telegram_messenger(
                token=telegram.token, api_base_url=telegram.origin, mode="polling"
            ),
            "other": telegram_messenger(
                token=telegram.token, user_name="other", secret_token=SECRET, adapter_name="other"
            ),
        }

    support = bot_class(telegram, hello())
    app = App(support, Sales, messengers=support, store=store, grace=0.0)
    async with Listening(app) as server:
        # Then it is asked of its own accord, and its webhook is there for the first who calls
        ann = telegram.private("Ann")
        await ann.say("Anybody?")
        await telegram.until(lambda: ann.answers)
        assert [shown.text for shown in ann.answers] == ["Sold."]
        path = "/agents/sales/default/messengers/other/webhook"
        answer = await server.http(path, method="POST", headers={HEADER: SECRET}, body=b'{"update_id": 1}')
        assert answer.status == 200
        # And nobody makes an agent of another name by writing to it
        answer = await server.http(path.replace("default", "nobody"), method="POST", headers={HEADER: SECRET})
        assert answer.status == 404


async def test_a_webhook_makes_the_agent_that_is_there_for_its_messengers(
    telegram: TelegramServer, store: str
) -> None:
    sales = type("Sales", (bot_class(telegram, hello()),), {})
    support = bot_class(telegram, hello())
    homes = App(support, sales, messengers=support, store=store, grace=0.0)
    async with Listening(homes) as server:
        path = "/agents/sales/default/messengers/telegram/webhook"
        answers = [
            (
                await server.http(path, method="POST", headers={HEADER: SECRET}, body=b'{"update_id": 1}')
            ).status
            for _ in range(2)
        ]
    assert answers == [200, 200]


async def test_messengers_that_make_no_sense_are_told_in_a_line_when_the_app_begins(
    telegram: TelegramServer, store: str, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(Think):
        def get_messengers(self) -> Any:
            return {"no id": bot_class(telegram, hello()).messengers["telegram"]}

    async with Listening(App(Broken, store=store, grace=0.0)):
        await until(lambda: "has no messengers until this is mended" in caplog.text)
    assert "Messenger 'no id' has no usable id." in caplog.text
    assert "Traceback" not in caplog.text
