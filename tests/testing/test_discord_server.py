"""Our stand-in of Discord, judged by discord.py and by what Discord's documentation shows."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from everthink.testing.clock import ManualClock
from everthink.testing.discord import DiscordServer
from everthink.testing.in_process_server import Listening
from everthink.testing.server_address import Answer, Place
from tests.support.clients import judged, own_python

pytestmark = pytest.mark.anyio

CLIENT = r"""
import asyncio, json, sys
import discord
from discord.http import Route, handle_message_parameters

url, channel, ann, command, press = sys.argv[1:]
Route.BASE = url
heard = {}

async def refusal(call):
    try:
        await call
    except discord.HTTPException as error:
        return [error.status, error.code]
    return None

class Buttons(discord.ui.View):
    @discord.ui.button(label="Yes", style=discord.ButtonStyle.primary, custom_id="yes")
    async def yes(self, interaction, button): ...
    @discord.ui.button(label="No", style=discord.ButtonStyle.danger, custom_id="no")
    async def no(self, interaction, button): ...

async def send(http, to, content, **more):
    with handle_message_parameters(content=content, **more) as params:
        return await http.send_message(to, params=params)

async def main():
    client = discord.Client(intents=discord.Intents.none())
    async with client:
        await client.login("test-token")
        http = client.http
        heard["me"] = client.user.name
        heard["app"] = (await client.application_info()).verify_key
        first = await send(http, channel, "May I?", nonce="row-1", view=Buttons())
        heard["posted"] = [row["type"] for row in first["components"]]
        again = await send(http, channel, "May I?", nonce="row-1")
        heard["same"] = again["id"] == first["id"]
        with handle_message_parameters(content="Ann agreed", view=None) as params:
            edited = await http.edit_message(channel, first["id"], params=params)
        heard["edited"] = edited["edited_timestamp"] is not None
        heard["read"] = (await http.get_message(channel, first["id"]))["content"]
        answer = await send(http, channel, "an answer", message_reference={"message_id": first["id"]})
        heard["reply"] = answer["message_reference"]["message_id"] == first["id"]
        await http.send_typing(channel)
        dm = await http.start_private_message(ann)
        heard["dm"] = (await send(http, dm["id"], "hello"))["channel_id"] == dm["id"]
        slip = await send(http, channel, "a slip")
        await http.delete_message(channel, slip["id"])
        heard["registered"] = [c["name"] for c in await http.bulk_upsert_global_commands(
            client.application_id, [{"name": "ask", "type": 1, "description": "Ask me"}])]
        with handle_message_parameters(content="x") as params:
            heard["refusals"] = [
                await refusal(http.send_message("1", params=params)),
                await refusal(http.edit_message(channel, slip["id"], params=params)),
                await refusal(send(http, channel, "")),
                await refusal(send(http, channel, "x" * 2001)),
                await refusal(send(http, channel, "x", nonce="n" * 26)),
                await refusal(send(http, channel, "x", message_reference={"message_id": slip["id"]})),
            ]

        state = client._connection
        asked = discord.Interaction(data=json.loads(command), state=state)
        option = asked.data["options"][0]["value"]
        heard["command"] = [asked.user.name, asked.channel_id == int(channel), option]
        await asked.response.defer(thinking=True)
        heard["again"] = await refusal(state.http.request(
            Route("POST", "/interactions/{i}/{t}/callback", i=asked.id, t=asked.token), json={"type": 5}))
        await asked.edit_original_response(content="It is due on Monday.")
        heard["original"] = (await asked.original_response()).content
        more = await asked.followup.send("And more.", wait=True)
        await more.edit(content="And much more.")
        await asked.followup.send("Only you.", ephemeral=True)

        pressed = discord.Interaction(data=json.loads(press), state=state)
        heard["press"] = [pressed.data["custom_id"], pressed.message.content]
        await pressed.response.defer()
        await pressed.followup.send("Noted.", ephemeral=True)
    print(json.dumps(heard))

asyncio.run(main())
"""
PACKAGES = ("discord", "discord.py>=2.7,<3")


class App:
    """Somebody's bot: it answers as it is told to, and keeps what it heard."""

    def __init__(self, key: str) -> None:
        self.key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(key))
        self.heard: list[dict[str, Any]] = []
        self.bodies: list[bytes] = []
        self.response: Response = JSONResponse({"type": 5})
        self.verifies = True

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        request = Request(scope, receive)
        body = await request.body()
        signature = bytes.fromhex(request.headers["x-signature-ed25519"])
        response = self.response
        try:
            self.key.verify(signature, request.headers["x-signature-timestamp"].encode() + body)
        except InvalidSignature:
            if self.verifies:
                return await Response(status_code=401)(scope, receive, send)
        self.bodies.append(body)
        self.heard.append(json.loads(body))
        if self.heard[-1]["type"] == 1:
            response = JSONResponse({"type": 1})
        await response(scope, receive, send)


async def ask(discord: DiscordServer, method: str, path: str, **body: Any) -> Answer:
    """What the app asks of the API."""
    place = Place()
    place.port = int(discord.origin.rpartition(":")[2])
    headers = {"authorization": f"Bot {discord.bot_token}", "content-type": "application/json"}
    return await place.http(f"/api/v10{path}", method=method, headers=headers, body=json.dumps(body).encode())


@pytest.fixture
async def clock(anyio_backend: str) -> ManualClock:
    return ManualClock()


@pytest.fixture
async def bot(clock: ManualClock) -> AsyncIterator[tuple[DiscordServer, App]]:
    async with DiscordServer(now=lambda: clock.now_ms() / 1000) as discord:
        app = App(discord.public_key)
        async with Listening(app) as server:
            await discord.set_endpoint(f"http://{server.host}/discord")
            app.heard.clear()
            yield discord, app


@pytest.mark.slow
async def test_discord_py_finds_nothing_wrong_with_the_stand_in() -> None:
    python = await asyncio.to_thread(own_python, *PACKAGES)
    async with DiscordServer() as discord:
        app = App(discord.public_key)
        app.response = Response(status_code=202)
        async with Listening(app) as server:
            await discord.set_endpoint(f"http://{server.host}/discord")
            channel = discord.channel("general")
            await discord.command("ask", {"question": "When is it due?"}, channel="general")
            question = discord._message(  # pyright: ignore[reportPrivateUsage]
                channel,
                discord.bot_name,
                {
                    "content": "Send it?",
                    "components": [
                        {"type": 1, "components": [{"type": 2, "style": 1, "custom_id": "go", "label": "Go"}]}
                    ],
                },
            )
            await discord.press(question.id, "Go", channel="general")
            command, press = (body.decode() for body in app.bodies[1:])

            heard = await judged(
                python, CLIENT, discord.api_url, channel.id, discord.person("ann"), command, press
            )

        assert heard["me"] == "helper"
        assert heard["app"] == discord.public_key
        assert heard["posted"] == [1]
        assert heard["same"] is heard["edited"] is heard["reply"] is heard["dm"] is True
        assert heard["read"] == "Ann agreed"
        assert heard["registered"] == ["ask"] == [command["name"] for command in discord.commands]
        assert heard["refusals"] == [
            [404, 10003],
            [404, 10008],
            [400, 50006],
            [400, 50035],
            [400, 50035],
            [400, 50035],
        ]
        assert heard["command"] == ["ann", True, "When is it due?"]
        assert heard["again"] == [400, 40060]
        assert heard["original"] == "It is due on Monday."
        assert heard["press"] == ["go", "Send it?"]
        assert [shown.text for shown in discord.answers("general")] == [
            "Send it?",
            "Ann agreed",
            "an answer",
            "It is due on Monday.",
            "And much more.",
        ]
        assert [shown.text for shown in discord.seen("general", by="ann") if shown.only_for] == [
            "Only you.",
            "Noted.",
        ]
        assert discord.typed == ["general"]


@pytest.mark.slow
async def test_discord_py_waits_as_long_as_the_stand_in_asks_it_to() -> None:
    python = await asyncio.to_thread(own_python, *PACKAGES)
    script = r"""
import asyncio, json, sys, discord
from discord.http import Route, handle_message_parameters
Route.BASE = sys.argv[1]
async def main():
    async with discord.Client(intents=discord.Intents.none()) as client:
        await client.login("test-token")
        with handle_message_parameters(content="after two refusals") as params:
            print(json.dumps((await client.http.send_message(sys.argv[2], params=params))["content"]))
asyncio.run(main())
"""
    async with DiscordServer() as discord:
        channel = discord.channel("general")
        discord.fault("create_message", "429", times=2, retry_after=0.5)

        assert await judged(python, script, discord.api_url, channel.id) == "after two refusals"

        asked = discord.asked("create_message")
        assert [one.status for one in asked] == [429, 429, 200]
        assert asked[2].at - asked[0].at >= 1.0


async def test_an_endpoint_that_accepts_a_wrong_signature_is_not_registered() -> None:
    async with DiscordServer() as discord:
        app = App(discord.public_key)
        app.verifies = False
        async with Listening(app) as server:
            with pytest.raises(RuntimeError, match="wrong signature"):
                await discord.set_endpoint(f"http://{server.host}/discord")

        assert discord.endpoint == ""


async def test_a_deferred_command_is_shown_as_loading_until_it_is_answered(
    bot: tuple[DiscordServer, App], clock: ManualClock
) -> None:
    discord, app = bot

    await discord.command("ask", {"question": "Why?"}, by="ann", channel="general")

    (shown,) = discord.seen("general")
    assert (shown.is_loading, discord.answers("general")) == (True, [])
    assert app.heard[0]["member"]["user"]["username"] == "ann"
    assert app.heard[0]["context"] == 0
    original = f"/webhooks/{discord.application_id}/{discord.interactions[0].token}/messages/@original"
    assert (await ask(discord, "PATCH", original, content="So.")).status == 200
    assert [shown.text for shown in discord.answers("general")] == ["So."]
    await clock.advance(15 * 60 + 1)
    late = await ask(discord, "PATCH", original, content="late")
    assert (late.status, late.json["code"]) == (401, 50027)


async def test_somebody_who_gets_no_answer_is_told_so_and_the_token_is_gone(
    bot: tuple[DiscordServer, App],
) -> None:
    discord, app = bot
    app.response = Response(status_code=500)

    await discord.command("ask", {"question": "Why?"}, by="ann")

    (shown,) = discord.seen("@ann", by="ann")
    assert (shown.text, shown.only_for) == ("The application did not respond", "ann")
    assert discord.seen("@ann", by="bob") == []
    original = f"/webhooks/{discord.application_id}/{discord.interactions[0].token}/messages/@original"
    refused = await ask(discord, "PATCH", original, content="x")
    assert (refused.status, refused.json["code"]) == (404, 10015)


async def test_a_nonce_is_known_for_some_minutes_and_in_its_channel(
    bot: tuple[DiscordServer, App], clock: ManualClock
) -> None:
    discord, _ = bot

    async def post(channel: str) -> str:
        path = f"/channels/{discord.channel(channel).id}/messages"
        return (await ask(discord, "POST", path, content="x", nonce="row-1", enforce_nonce=True)).json["id"]

    first = await post("general")
    assert await post("general") == first
    assert await post("random") != first
    await clock.advance(10 * 60)
    assert await post("general") != first


async def test_a_channel_that_lets_the_bot_not_in_says_so(bot: tuple[DiscordServer, App]) -> None:
    discord, _ = bot
    discord.channel("secret").lets_in = False
    discord.direct("ann").lets_in = False

    async def post(channel: str) -> tuple[int, int]:
        answer = await ask(discord, "POST", f"/channels/{discord.channel(channel).id}/messages", content="x")
        return answer.status, answer.json["code"]

    assert await post("secret") == (403, 50001)
    assert await post("@ann") == (403, 50007)
