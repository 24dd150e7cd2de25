"""A Discord server for tests: the API, interactions, and what a person sees in its channels.

    async with DiscordServer() as discord:
        await discord.set_endpoint(f"http://{server.host}/messengers/discord/webhook")
        await discord.command("ask", {"question": "What is due?"}, by="ann", channel="general")
        await discord.until(lambda: discord.answers("general"))

It signs interactions as Discord does, tries an endpoint with a wrong signature before it registers it, shows
what was deferred as a loading message, and forgets an interaction's token after 15 minutes. Our adapter, or
any client of Discord, is pointed at `api_url`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any, Literal, cast

from starlette.requests import Request
from starlette.responses import Response

from ..errors import MissingExtra
from .discord_rest import EPHEMERAL, LOADING, No, checked, route, show, wrong_in
from .platform import Delivery, Fault, Platform, Shown, json_answer

__all__ = ["DiscordChannel", "DiscordInteraction", "DiscordServer"]

JSON = dict[str, Any]

NONCE_LASTS = 5 * 60.0
_BEGINNING_OF_TIME = 1_420_070_400_000
_GUILD_TEXT, _DM, _THREAD = 0, 1, 11


@dataclass(slots=True)
class DiscordChannel:
    """Where people talk."""

    id: str
    name: str
    type: int
    lets_in: bool = True
    """Whether the bot may read and write here. Whoever has blocked the bot lets nothing in."""
    messages: list[Shown] = field(default_factory=list[Shown])


@dataclass(slots=True)
class DiscordInteraction:
    """Somebody used a command, or pressed a button."""

    id: str
    token: str
    at: float
    user: str
    channel: DiscordChannel
    pressed: Shown | None = None
    """The message whose button was pressed."""
    answered: bool = False
    failed: bool = False
    """True when the person was shown that the application did not respond."""
    original: Shown | None = None
    """What `@original` is."""


class DiscordServer(Platform):
    """A server with one app in it. `now` is its clock."""

    def __init__(
        self, *, bot_name: str = "helper", bot_token: str = "test-token", now: Callable[[], float] = time.time
    ) -> None:
        super().__init__(now=now)
        self.bot_name, self.bot_token = bot_name, bot_token
        self._key = _private_key()
        self._count = 0
        self.application_id = self.bot_user_id = self._snowflake()
        self.guild_id = self._snowflake()
        self.endpoint = ""
        """Where interactions go. `set_endpoint` checks it first, as Discord does."""
        self.commands: list[JSON] = []
        """The commands that the app has registered."""
        self.interactions: list[DiscordInteraction] = []
        self.typed: list[str] = []
        """The channels in which the bot has shown that it writes."""
        self._people: dict[str, str] = {bot_name: self.bot_user_id}
        self._channels: dict[str, DiscordChannel] = {}
        self.token_lasts = 15 * 60.0
        """Seconds for which an interaction may be answered by its token."""
        self._files: dict[str, tuple[str, bytes]] = {}
        self._nonces: dict[tuple[str, str], tuple[float, Shown]] = {}

    @property
    def api_url(self) -> str:
        """The API's address."""
        return f"{self.origin}/api/v10"

    @property
    def public_key(self) -> str:
        """The key with which an app verifies, as the developer's portal shows it."""
        return self._key.public_key().public_bytes_raw().hex()

    # Who is there, and where.

    def person(self, name: str) -> str:
        """The id of somebody."""
        return self._people.setdefault(name, self._snowflake())

    def channel(self, name: str, *, type: int = _GUILD_TEXT) -> DiscordChannel:
        """A channel, by name or id; it is opened when it is not there. `@ann`: Ann and the bot alone."""
        for known in self._channels.values():
            if name in (known.id, known.name):
                return known
        if name.startswith("@"):
            self.person(name[1:])
            type = _DM
        made = DiscordChannel(self._snowflake(), name, type)
        self._channels[made.id] = made
        return made

    def direct(self, name: str) -> DiscordChannel:
        """Where `name` and the bot talk alone."""
        return self.channel(f"@{name}")

    def thread(self, name: str) -> DiscordChannel:
        """A thread of a channel: for Discord, a channel of its own."""
        return self.channel(name, type=_THREAD)

    def forget_nonces(self) -> None:
        """The minutes are over in which a message with the same nonce is the same message."""
        self._nonces.clear()

    # What people see and do.

    def seen(self, channel: str, *, by: str | None = None) -> list[Shown]:
        """The messages of a channel, oldest first, as `by` sees them: notices for others are not shown."""
        return [
            shown
            for shown in self.channel(channel).messages
            if not shown.is_deleted and shown.only_for in (None, by)
        ]

    def answers(self, channel: str) -> list[Shown]:
        """What the bot says to everybody, without what is only being thought about."""
        return [
            shown for shown in self.seen(channel) if shown.author == self.bot_name and not shown.is_loading
        ]

    async def command(
        self,
        name: str,
        options: Mapping[str, str] | None = None,
        *,
        by: str = "ann",
        channel: str | None = None,
        files: Mapping[str, tuple[str, str, bytes]] | None = None,
    ) -> Delivery:
        """Somebody uses a slash command, in a channel or with the bot alone. `files`: name, type, bytes."""
        given: list[JSON] = [{"name": key, "type": 3, "value": text} for key, text in (options or {}).items()]
        data: JSON = {"id": self._snowflake(), "name": name, "type": 1}
        for key, file in (files or {}).items():
            attachment = self._attachment(*file)
            given.append({"name": key, "type": 11, "value": attachment["id"]})
            data.setdefault("resolved", {"attachments": {}})["attachments"][attachment["id"]] = attachment
        if given:
            data["options"] = given
        place = self.channel(channel) if channel is not None else self.direct(by)
        return await self._interact(2, data, by, place)

    async def command_on(self, name: str, message: str, *, channel: str, by: str = "ann") -> Delivery:
        """Somebody uses a command of a message's menu."""
        place = self.channel(channel)
        shown = self._find(place, message)
        data = {
            "id": self._snowflake(),
            "name": name,
            "type": 3,
            "target_id": message,
            "resolved": {"messages": {message: shown.raw}},
        }
        return await self._interact(2, data, by, place)

    async def press(self, message: str, button: str, *, channel: str, by: str = "ann") -> Delivery:
        """Somebody presses a button, by its label."""
        place = self.channel(channel)
        shown = self._find(place, message)
        found = shown.button(button)
        return await self._interact(3, {"custom_id": found.id, "component_type": 2}, by, place, pressed=shown)

    async def say(self, text: str, *, by: str = "ann", channel: str) -> Shown:
        """Somebody writes. The app is not told: that takes a gateway."""
        return self._message(self.channel(channel), by, {"content": text})

    async def tell(self, payload: JSON, *, kind: str = "raw") -> Delivery:
        """Tell the app anything, signed."""
        delivery = Delivery(kind=kind, body=json.dumps(payload).encode(), told=payload)
        return await self.deliver(delivery, self.endpoint)

    async def redeliver(self, delivery: Delivery) -> Delivery:
        """Tell the app the same again. Discord never does; whoever has seen a request may try to."""
        return await self.deliver(delivery, self.endpoint)

    async def set_endpoint(self, url: str) -> None:
        """Register the app's address, as the developer's portal does.

        It must answer a ping, and refuse one whose signature is wrong. Raises `RuntimeError` otherwise.
        """
        ping = {"type": 1, "id": self._snowflake(), "application_id": self.application_id, "version": 1}
        right = Delivery(kind="ping", body=json.dumps(ping).encode(), told=ping)
        answer = (await self.deliver(right, url)).answer
        wrong = Delivery(kind="forged ping", body=right.body, told=ping)
        refused = (await self.deliver(wrong, url)).answer
        if answer is None or answer.status != 200 or answer.json != {"type": 1}:
            got = "nothing" if answer is None else f"{answer.status} {answer.text[:200]}"
            raise RuntimeError(f"The specified interactions endpoint url could not be verified: {got}")
        if refused is None or refused.status != 401:
            raise RuntimeError("The specified interactions endpoint url accepts a wrong signature.")
        self.endpoint = url

    def sign(self, body: bytes, timestamp: int | None = None) -> dict[str, str]:
        """The headers with which Discord sends a body, at a time."""
        at = str(int(self.now()) if timestamp is None else timestamp)
        return {
            "x-signature-timestamp": at,
            "x-signature-ed25519": self._key.sign(at.encode() + body).hex(),
        }

    def _signed(self, delivery: Delivery) -> dict[str, str]:
        headers = self.sign(delivery.body)
        if delivery.kind == "forged ping":
            headers["x-signature-ed25519"] = _private_key().sign(delivery.body).hex()
        return headers

    # Interactions.

    async def _interact(
        self, type: int, data: JSON, by: str, place: DiscordChannel, *, pressed: Shown | None = None
    ) -> Delivery:
        id = self._snowflake()
        made = DiscordInteraction(id, f"aW50ZXJhY3Rpb246{id}", self.now(), by, place, pressed)
        self.interactions.append(made)
        user = self._user(by)
        is_direct = place.type == _DM
        payload: JSON = {
            "id": id,
            "application_id": self.application_id,
            "type": type,
            "data": data,
            "channel_id": place.id,
            "channel": self._described(place),
            "token": made.token,
            "version": 1,
            "locale": "en-US",
            "entitlements": [],
            "authorizing_integration_owners": {"0": "0" if is_direct else self.guild_id},
            "context": 1 if is_direct else 0,
            "attachment_size_limit": 10_485_760,
        }
        if is_direct:
            payload["user"] = user
        else:
            payload |= {"guild_id": self.guild_id, "guild": {"id": self.guild_id, "locale": "en-US"}}
            member: JSON = {
                "nick": None,
                "roles": [],
                "permissions": "0",
                "joined_at": self._time(),
                "flags": 0,
            }
            payload["member"] = {"user": user, "deaf": False, "mute": False, **member}
        if pressed is not None:
            payload["message"] = pressed.raw
        delivery = await self.tell(payload, kind="command" if type == 2 else "press")
        self._answered(made, delivery)
        return delivery

    def _answered(self, made: DiscordInteraction, delivery: Delivery) -> None:
        """What the webhook's answer makes a person see."""
        if made.answered:
            return
        answer = delivery.answer
        if answer is not None and answer.status == 202:
            return  # it answers by the API, and has until the end of the test
        if answer is not None and answer.status == 200:
            said = cast("JSON", answer.json)
            try:
                return self._respond(made, said.get("type"), said.get("data") or {})
            except No as no:
                self.notices.append(str(no))
        made.failed = True
        raw = {"content": "The application did not respond", "flags": EPHEMERAL}
        self._message(made.channel, self.bot_name, raw, only_for=made.user)

    def _respond(self, made: DiscordInteraction, type: Any, data: JSON) -> None:
        secret = made.user if int(data.get("flags", 0)) & EPHEMERAL else None
        more: JSON = {"application_id": self.application_id, "type": 20, "flags": int(data.get("flags", 0))}
        match type:
            case 4:
                body = {**checked(data), **more}
                made.original = self._message(made.channel, self.bot_name, body, only_for=secret)
            case 5:
                body = {"content": "", **more, "flags": more["flags"] | LOADING}
                made.original = self._message(made.channel, self.bot_name, body, only_for=secret)
            case 6 if made.pressed is not None:
                made.original = made.pressed
            case 7 if made.pressed is not None:
                self._change(made.pressed, checked(data, is_edit=True))
                made.original = made.pressed
            case _:
                raise No(400, 50035, "Invalid Form Body")
        made.answered = True
        self._happened()

    # Messages.

    def _message(
        self, place: DiscordChannel, author: str, body: JSON, *, only_for: str | None = None
    ) -> Shown:
        raw: JSON = {
            "id": self._snowflake(),
            "type": 0,
            "channel_id": place.id,
            "author": self._user(author),
            "content": "",
            "timestamp": self._time(),
            "edited_timestamp": None,
            "tts": False,
            "mention_everyone": False,
            "mentions": [],
            "mention_roles": [],
            "attachments": [],
            "embeds": [],
            "components": [],
            "pinned": False,
            "flags": 0,
            **body,
        }
        shown = Shown(id=raw["id"], channel=place.id, author=author, text="", only_for=only_for, raw=raw)
        shown.reply_to = cast("JSON", raw.get("message_reference") or {}).get("message_id")
        show(shown)
        place.messages.append(shown)
        self._happened()
        return shown

    def _change(self, shown: Shown, body: JSON) -> JSON:
        was, was_loading = shown.text, shown.is_loading
        shown.raw |= {**body, "edited_timestamp": self._time(), "flags": shown.raw["flags"] & ~LOADING}
        show(shown)
        if not was_loading:
            shown.before.append(was)
        self._happened()
        return shown.raw

    def _find(self, place: DiscordChannel, message: str) -> Shown:
        found = next((s for s in place.messages if s.id == message and not s.is_deleted), None)
        if found is None:
            raise No(404, 10008, "Unknown Message")
        return found

    def _user(self, name: str) -> JSON:
        is_bot = name == self.bot_name
        more = {"bot": True} if is_bot else {}
        shown = {"username": name, "global_name": name.title(), "discriminator": "0", "avatar": None}
        return {"id": self.person(name), **shown, **more}

    def _attachment(self, name: str, media_type: str, data: bytes) -> JSON:
        id = self._snowflake()
        self._files[id] = (media_type, data)
        url = f"{self.origin}/ephemeral-attachments/{self.application_id}/{id}/{name}"
        described = {"filename": name, "content_type": media_type, "size": len(data)}
        return {"id": id, **described, "url": url, "proxy_url": url, "ephemeral": True}

    def _time(self) -> str:
        return datetime.fromtimestamp(self.now(), UTC).isoformat()

    def _snowflake(self) -> str:
        self._count += 1
        return str((int(self.now() * 1000) - _BEGINNING_OF_TIME << 22) + self._count)

    # The API.

    def _refusal(self, kind: Literal["429", "500"], fault: Fault) -> Response:
        if kind == "500":
            return json_answer({"message": "500: Internal Server Error", "code": 0}, 500)
        body = {"message": "You are being rate limited.", "retry_after": fault.retry_after, "global": False}
        headers = {
            "retry-after": str(max(1, round(fault.retry_after))),
            "x-ratelimit-limit": "5",
            "x-ratelimit-remaining": "0",
            "x-ratelimit-reset-after": f"{fault.retry_after:.3f}",
            "x-ratelimit-bucket": "abcd1234",
            "x-ratelimit-scope": "user",
            "via": "1.1 google",
        }
        return json_answer(body, 429, headers)

    def _faulty(self) -> list[str]:
        does = (name.removeprefix("_do_") for name in vars(DiscordServer) if name.startswith("_do_"))
        return [*does, "file"]

    async def _api(self, request: Request, body: JSON) -> tuple[str, Callable[[], Response]]:
        path = request.url.path
        if path.startswith("/ephemeral-attachments/"):
            return "file", partial(self._download, path)
        if not path.startswith("/api/v10/"):
            return "unknown", lambda: json_answer({"message": "404: Not Found", "code": 0}, 404)
        name, found = route(request.method, path.removeprefix("/api/v10"))
        return name, partial(
            self._called, name, request.headers.get("authorization"), {**body, "_path": found}
        )

    def _called(self, name: str, authorization: str | None, body: JSON) -> Response:
        path = cast("dict[str, str]", body.pop("_path"))
        try:
            if "token" not in path and authorization != f"Bot {self.bot_token}":
                raise No(401, 0, "401: Unauthorized")
            does: Callable[[dict[str, str], JSON], Any] | None = getattr(self, f"_do_{name}", None)
            if does is None:
                raise No(404, 0, "404: Not Found")
            answer = does(path, body)
        except No as no:
            return json_answer(no.answer, no.status)
        limits = {"x-ratelimit-limit": "5", "x-ratelimit-remaining": "4", "x-ratelimit-reset-after": "1.000"}
        return json_answer(answer, 204 if answer is None else 200, limits)

    def _do_get_me(self, path: dict[str, str], body: JSON) -> JSON:
        return {**self._user(self.bot_name), "verified": True, "mfa_enabled": False, "flags": 0}

    def _do_get_application(self, path: dict[str, str], body: JSON) -> JSON:
        return {
            "id": self.application_id,
            "name": self.bot_name,
            "verify_key": self.public_key,
            "description": "",
            "icon": None,
            "bot_public": True,
            "bot_require_code_grant": False,
            "summary": "",
            "owner": self._user("owner"),
            "flags": 0,
            "interactions_endpoint_url": self.endpoint or None,
        }

    def _do_get_commands(self, path: dict[str, str], body: JSON) -> list[JSON]:
        return self.commands

    def _do_create_command(self, path: dict[str, str], body: JSON) -> JSON:
        return self._register(body)

    def _do_set_commands(self, path: dict[str, str], body: JSON) -> list[JSON]:
        given = cast("list[JSON]", body.get("_list") or [])
        refused = {str(at): errors for at, one in enumerate(given) if (errors := wrong_in(one))}
        if refused:
            raise No(400, 50035, "Invalid Form Body", errors=refused)
        self.commands = []
        for command in given:
            self._register(command)
        return self.commands

    def _register(self, command: JSON) -> JSON:
        name = str(command.get("name", ""))
        if errors := wrong_in(command):
            raise No(400, 50035, "Invalid Form Body", errors=errors)
        made = {"id": self._snowflake(), "application_id": self.application_id, "version": "1", "type": 1}
        made |= {"default_member_permissions": None, "description": "", **command}
        self.commands = [known for known in self.commands if known["name"] != name] + [made]
        return made

    def _do_create_dm(self, path: dict[str, str], body: JSON) -> JSON:
        name = next((n for n, id in self._people.items() if id == str(body.get("recipient_id"))), None)
        if name is None:
            raise No(400, 50033, "Invalid Recipient(s)")
        return self._described(self.direct(name))

    def _do_get_channel(self, path: dict[str, str], body: JSON) -> JSON:
        return self._described(self._place(path))

    def _described(self, place: DiscordChannel) -> JSON:
        last = place.messages[-1].id if place.messages else None
        common: JSON = {"id": place.id, "type": place.type, "last_message_id": last, "flags": 0}
        if place.type == _DM:
            return {**common, "recipients": [self._user(place.name.removeprefix("@"))]}
        common |= {"name": place.name, "guild_id": self.guild_id, "parent_id": None, "permissions": "0"}
        if place.type == _THREAD:
            archived = {"archived": False, "auto_archive_duration": 1440, "locked": False}
            begun = {"archive_timestamp": self._time(), "create_timestamp": self._time()}
            return {**common, "owner_id": self.bot_user_id, "thread_metadata": {**archived, **begun}}
        return {**common, "position": 0, "nsfw": False, "topic": None, "rate_limit_per_user": 0}

    def _do_typing(self, path: dict[str, str], body: JSON) -> None:
        self.typed.append(self._place(path).name)

    def _do_create_message(self, path: dict[str, str], body: JSON) -> JSON:
        place = self._place(path)
        if not place.lets_in and place.type == _DM:
            raise No(403, 50007, "Cannot send messages to this user")
        given = checked(body)
        nonce = str(given["nonce"]) if body.get("enforce_nonce") and "nonce" in given else None
        at, known = self._nonces.get((place.id, nonce or ""), (0.0, None))
        if known is not None and self.now() - at < NONCE_LASTS:
            return known.raw
        reference = cast("JSON | None", body.get("message_reference"))
        if reference is not None:
            self._refer(place, reference)
            given |= {"message_reference": reference, "type": 19}
        shown = self._message(place, self.bot_name, given)
        if nonce is not None:
            self._nonces[place.id, nonce] = (self.now(), shown)
        return shown.raw

    def _refer(self, place: DiscordChannel, reference: JSON) -> None:
        is_there = any(s.id == reference.get("message_id") and not s.is_deleted for s in place.messages)
        if not is_there and reference.get("fail_if_not_exists", True):
            raise No(400, 50035, "Invalid Form Body", errors={"message_reference": {"_errors": []}})

    def _do_get_messages(self, path: dict[str, str], body: JSON) -> list[JSON]:
        found = [s.raw for s in self._place(path).messages if not s.is_deleted and s.only_for is None]
        return found[::-1][: int(body.get("limit", 50))]

    def _do_get_message(self, path: dict[str, str], body: JSON) -> JSON:
        return self._public(path).raw

    def _do_edit_message(self, path: dict[str, str], body: JSON) -> JSON:
        shown = self._public(path)
        if shown.author != self.bot_name:
            raise No(403, 50005, "Cannot edit a message authored by another user")
        return self._change(shown, checked(body, is_edit=True))

    def _do_delete_message(self, path: dict[str, str], body: JSON) -> None:
        self._public(path).is_deleted = True
        self._happened()

    def _public(self, path: dict[str, str]) -> Shown:
        shown = self._find(self._place(path), path["message"])
        if shown.only_for is not None:
            raise No(404, 10008, "Unknown Message")
        return shown

    def _place(self, path: dict[str, str]) -> DiscordChannel:
        place = self._channels.get(path["channel"])
        if place is None:
            raise No(404, 10003, "Unknown Channel")
        if not place.lets_in and place.type != _DM:
            raise No(403, 50001, "Missing Access")
        return place

    def _do_callback(self, path: dict[str, str], body: JSON) -> JSON | None:
        made = self._interaction(path, must_be_answered=False)
        if made.answered:
            raise No(400, 40060, "Interaction has already been acknowledged.")
        self._respond(made, body.get("type"), cast("JSON", body.get("data") or {}))
        if str(body.get("with_response")).lower() not in ("1", "true"):
            return None
        told: JSON = {"id": made.id, "type": 2 if made.pressed is None else 3}
        if made.original is not None and made.pressed is None:
            told |= {
                "response_message_id": made.original.id,
                "response_message_loading": made.original.is_loading,
                "response_message_ephemeral": made.original.only_for is not None,
            }
        return {"interaction": told, "resource": {"type": body.get("type")}}

    def _interaction(self, path: dict[str, str], *, must_be_answered: bool = True) -> DiscordInteraction:
        made = next((known for known in self.interactions if known.token == path["token"]), None)
        if made is None or made.failed or (must_be_answered and not made.answered):
            raise No(404, 10015, "Unknown Webhook")
        if self.now() - made.at > self.token_lasts:
            raise No(401, 50027, "Invalid Webhook Token")
        return made

    def _original(self, path: dict[str, str]) -> Shown:
        original = self._interaction(path).original
        if original is None or original.is_deleted:
            raise No(404, 10008, "Unknown Message")
        return original

    def _do_get_original(self, path: dict[str, str], body: JSON) -> JSON:
        return self._original(path).raw

    def _do_edit_original(self, path: dict[str, str], body: JSON) -> JSON:
        return self._change(self._original(path), checked(body, is_edit=True))

    def _do_delete_original(self, path: dict[str, str], body: JSON) -> None:
        self._original(path).is_deleted = True
        self._happened()

    def _do_create_followup(self, path: dict[str, str], body: JSON) -> JSON:
        made = self._interaction(path)
        given = checked(body)
        if made.original is not None and made.original.is_loading:
            return self._change(made.original, given)
        flags = int(body.get("flags", 0))
        more = {"application_id": self.application_id, "webhook_id": self.application_id, "flags": flags}
        secret = made.user if flags & EPHEMERAL else None
        return self._message(made.channel, self.bot_name, {**given, **more}, only_for=secret).raw

    def _followup(self, path: dict[str, str]) -> Shown:
        return self._find(self._interaction(path).channel, path["message"])

    def _do_get_followup(self, path: dict[str, str], body: JSON) -> JSON:
        return self._followup(path).raw

    def _do_edit_followup(self, path: dict[str, str], body: JSON) -> JSON:
        return self._change(self._followup(path), checked(body, is_edit=True))

    def _do_delete_followup(self, path: dict[str, str], body: JSON) -> None:
        self._followup(path).is_deleted = True
        self._happened()

    def _download(self, path: str) -> Response:
        found = self._files.get(path.split("/")[3])
        return Response(status_code=404) if found is None else Response(found[1], media_type=found[0])


def _private_key() -> Any:
    try:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    except ImportError as error:
        raise MissingExtra(
            "Discord signs with Ed25519, for which the package cryptography is missing.",
            next_step='Run: pip install "everthink[discord]"',
        ) from error
    return Ed25519PrivateKey.generate()
