"""Discord, by its interactions endpoint: slash commands and buttons in, messages with edits and buttons out.

    POST /messengers/discord/webhook --verify, Ed25519--> parse --> a question, or a pressed button
    PATCH @original                        the answer to a command: idempotent, for 15 minutes
    POST /channels/…/messages with a nonce all that follows: the same again is the same message, for minutes

A command is answered by "thinking…" at once, and by its answer in the same message. What is only written in a
channel is not told to a bot without a gateway.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, Unpack, cast

import msgspec

from ..errors import InvalidSettings, MissingExtra
from ..kinds import shown
from .definition import CommonOptions, MessengerDefinition, Verify, factory
from .mentions import with_handle
from .port import LONGEST_BODY, DeliveryError, RateLimited, Refused, Uncertain, Unreachable
from .rest import Answer, Rest, fetched, origin_of
from .values import (
    Action,
    Arrived,
    Attachment,
    Author,
    Capabilities,
    Draft,
    Incoming,
    MessengerEvent,
    MessengerLimits,
    Target,
    Thread,
    WebhookReply,
)

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

__all__ = ["Discord", "discord_messenger", "set_discord_commands"]

JSON = dict[str, Any]
T = TypeVar("T")

API = "https://discord.com/api/v10"
WINDOW = 5 * 60
"""Seconds for which a signature is good."""
LONGEST = 1_990
"""Characters of a message: Discord takes 2,000."""
_PONG, _MESSAGE, _DEFERRED, _NOTHING, _CHOICES = 1, 4, 5, 6, 8
_EPHEMERAL = 1 << 6
_DM = 1
_STYLES = {"primary": 1, "danger": 4, None: 2}
_BEGINNING_OF_TIME = 1_420_070_400
_FRESH = 5.0
"""Seconds in which Discord may not know yet that an interaction was answered: it gives us three."""
_NO_TOKEN = {10015, 10062, 50027}
_NOT_LET_IN = {10003, 50001, 50013}
_UNKNOWN_MESSAGE = 10008
_GONE = {10003, _UNKNOWN_MESSAGE}


class Discord:
    """The adapter: see `messengers/port.py`."""

    provider = "discord"
    longest_body = LONGEST_BODY
    capabilities = Capabilities(ephemeral=True, repeats="keyed")
    limits = MessengerLimits(
        visible=LONGEST, follow_up=LONGEST, edit_every=1.2, edit_every_in_groups=1.2, typing_for=9.0
    )

    def __init__(
        self,
        *,
        application_id: str,
        token: str,
        user_name: str,
        public_key: str | None = None,
        api_url: str = API,
    ) -> None:
        if not re.fullmatch(r"\d+", application_id):
            raise InvalidSettings(
                f"discord_messenger: application_id is {shown(application_id)}.",
                next_step="Set DISCORD_APPLICATION_ID: the page General Information shows it, a number.",
            )
        if not token.strip():
            raise InvalidSettings(
                "discord_messenger has no token.",
                next_step="Set DISCORD_BOT_TOKEN, or give token=…: the app's page Bot makes one.",
            )
        if not isinstance(cast("Any", user_name), str) or not user_name.strip("@ "):
            raise InvalidSettings(
                f"discord_messenger: user_name is {shown(user_name)}.",
                next_step="It is the bot's name, such as helper.",
            )
        self.user_name, self.application_id = user_name.strip("@ "), application_id
        self._key = None if public_key is None else _key(public_key)
        headers = {
            "authorization": f"Bot {token.removeprefix('Bot ')}",
            "user-agent": "DiscordBot (everthink, 1)",
        }
        self._rest = Rest(api_url, headers=headers)
        self._site = Rest(origin_of(api_url))

    # --- in

    def verify(self, headers: Mapping[str, str], body: bytes, *, now: float) -> bool:
        """True when Discord has signed this, in the last five minutes."""
        at, signature = headers.get("x-signature-timestamp", ""), headers.get("x-signature-ed25519", "")
        if self._key is None or not re.fullmatch(r"[0-9]{1,12}", at) or abs(now - int(at)) > WINDOW:
            return False
        if not re.fullmatch(r"[0-9a-f]{128}", signature):
            return False
        from cryptography.exceptions import InvalidSignature

        try:
            self._key.verify(bytes.fromhex(signature), at.encode() + body)
        except InvalidSignature:
            return False
        return True

    def parse(self, headers: Mapping[str, str], body: bytes) -> Arrived:
        """What an interaction comes to."""
        try:
            told = msgspec.json.decode(body, type=_Interaction)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ValueError(f"it is nothing that Discord sends: {error}") from error
        match told.type:
            case 1:
                return Arrived(reply=WebhookReply({"type": _PONG}))
            case 2 if told.person is not None and told.channel_id:
                return self._commanded(told, told.person, told.channel_id)
            case 3 if told.person is not None and told.channel_id:
                return self._pressed(told, told.person, told.channel_id)
            case 4:
                choices = WebhookReply({"type": _CHOICES, "data": {"choices": []}})
                return Arrived(reply=choices, ignored=("autocomplete",))
            case other:
                return Arrived(ignored=(f"interaction {other}",))

    def _commanded(self, told: _Interaction, person: _User, channel: str) -> Arrived:
        text, attachments = _asked(told.data)
        incoming = Incoming(
            id=told.id,
            text=with_handle(text, bot_id=self.application_id, user_name=self.user_name),
            author=_author(person, told),
            attachments=attachments,
            created_at=_made_at(told.id),
            is_mention=not told.is_direct,
        )
        event = MessengerEvent(
            kind="direct-message" if told.is_direct else "mention",
            thread=_thread(told, channel),
            target=Target(
                chat=channel,
                is_direct=told.is_direct,
                user=person.id,
                more={"interaction": told.id, "token": told.token, "waits": True},
            ),
            message=incoming,
        )
        return Arrived((event,), reply=WebhookReply({"type": _DEFERRED}))

    def _pressed(self, told: _Interaction, person: _User, channel: str) -> Arrived:
        given = {"interaction": told.id, "token": told.token}
        action = Action(
            action_id=told.data.custom_id,
            user=_author(person, told),
            value=", ".join(told.data.values) if told.data.values else None,
            message_id=None if told.message is None else told.message.id,
        )
        event = MessengerEvent(
            kind="action",
            thread=_thread(told, channel),
            target=Target(chat=channel, is_direct=told.is_direct, user=person.id, more=given),
            action=action,
            answering=given if told.message is None else given | {"ref": self._ref(told.message)},
        )
        # Discord is answered by `notify`: a press is confirmed, or whoever pressed is told why not.
        return Arrived((event,), reply=WebhookReply("", 202))

    def _ref(self, message: _Said) -> str:
        """The id of a message, as `post` has returned it."""
        is_by_token = message.webhook_id == self.application_id
        return f"{_TOKENS}{message.id}" if is_by_token else message.id

    # --- out

    async def post(self, target: Target, draft: Draft, *, key: str) -> str:
        """Show a message: in the place of "thinking…" where that waits, else in the channel."""
        body = _drawn(draft)
        if target.more.get("waits") and not target.is_more:
            answer = await self._ask("PATCH", f"{self._webhook(target)}/messages/@original", body)
            if answer.status == 200:
                return _TOKENS + str(answer.json()["id"])
            self._check_token(answer, target)
        keyed = {**body, "nonce": key, "enforce_nonce": True}
        answer = await self._ask("POST", f"/channels/{target.chat}/messages", keyed)
        if answer.status == 200:
            said = answer.json()
            if str(said.get("content", "")).strip() != draft.text.strip():
                await self.edit(target, str(said["id"]), draft)  # it was there, and said less
            return str(said["id"])
        if "token" not in target.more or answer.json().get("code") not in _NOT_LET_IN:
            _refuse("a message", answer)
        # The bot is not in there: it was asked by somebody who has brought it along.
        followed = await self._ask("POST", self._webhook(target), body)
        if followed.status == 200:
            return _TOKENS + str(followed.json()["id"])
        _refuse("a message", answer if followed.json().get("code") in _NO_TOKEN else followed)

    async def edit(self, target: Target, ref: str, draft: Draft) -> None:
        """Show it in the place of what was there."""
        body, id = _drawn(draft), ref.removeprefix(_TOKENS)
        paths = [f"/channels/{target.chat}/messages/{id}"]
        if ref.startswith(_TOKENS) and "token" in target.more:
            paths.insert(0, f"{self._webhook(target)}/messages/{id}")
        answer: Answer | None = None
        for path in paths:
            try:
                answer = await self._ask("PATCH", path, body)
            except Uncertain as error:
                raise Unreachable(error.what) from error  # an edit says it all: it is made again
            if answer.json().get("code") not in _NO_TOKEN:
                break
        assert answer is not None
        if answer.status >= 500:
            raise Unreachable(_words("an edit", answer))
        if answer.status != 200:
            _refuse("an edit", answer)

    async def withdraw(self, target: Target) -> None:
        """There is no answer: "thinking…" goes away."""
        if target.more.get("waits") and not target.is_more:
            answer = await self._ask("DELETE", f"{self._webhook(target)}/messages/@original")
            if answer.status >= 300 and answer.json().get("code") != _UNKNOWN_MESSAGE:
                self._check_token(answer, target)

    async def find(self, target: Target, key: str, *, since: float) -> str | None:
        """Nobody asks: posting with the same key is the same message."""
        return None

    async def typing(self, target: Target) -> None:
        """Show that the bot writes, where nothing shows it yet."""
        if not target.more.get("waits") or target.is_more:
            await self._ask("POST", f"/channels/{target.chat}/typing", {})

    async def notify(self, event: MessengerEvent, text: str | None) -> None:
        """Answer a press: with a word that only whoever pressed sees, or with nothing to be seen."""
        if event.action is None:
            return
        answer: JSON = {"type": _NOTHING}
        if text is not None:
            data: JSON = {"content": text[:LONGEST], "flags": _EPHEMERAL, "allowed_mentions": {"parse": []}}
            answer = {"type": _MESSAGE, "data": data}
        id, token = event.answering["interaction"], event.answering["token"]
        said = await self._ask("POST", f"/interactions/{id}/{token}/callback", answer)
        if said.status >= 300 and said.json().get("code") != 40060:  # acknowledged: it was told twice
            _refuse("a pressed button", said)

    async def fetch(self, attachment: Attachment, *, most: int) -> bytes:
        """A file, from Discord's own addresses or through the guard."""
        url = attachment.fetch_metadata.get("url")
        if not isinstance(url, str):
            raise Refused(f"The file {attachment.name or attachment.id!r} is none of Discord's.")
        if url.startswith(f"{self._site.base}/"):
            return await self._site.load(url.removeprefix(self._site.base), most=most)
        return await fetched(url, most=most)

    async def name(self) -> str:
        """The name that Discord has of the bot."""
        answer = await self._ask("GET", "/users/@me")
        if answer.status != 200:
            _refuse("who the bot is", answer)
        return str(answer.json().get("username", ""))

    async def close(self) -> None:
        """Close the connections."""
        await self._rest.close()
        await self._site.close()

    # --- the API

    async def set_commands(self, commands: Mapping[str, str]) -> None:
        """Register slash commands in the place of those there were: name and description.

        `stop` and `new` take nothing; the others take one text.
        """
        text = {"type": 3, "name": "text", "description": "What you want to say", "required": True}
        body = [
            {
                "name": name,
                "type": 1,
                "description": description,
                "options": [] if name in ("stop", "new") else [text],
            }
            for name, description in commands.items()
        ]
        answer = await self._ask("PUT", f"/applications/{self.application_id}/commands", body)
        if answer.status != 200:
            _refuse("the commands", answer)

    async def _ask(self, method: str, path: str, body: Any = None) -> Answer:
        answer = await self._rest.ask(method, path, body)
        if answer.status == 429:
            after = answer.json().get("retry_after", answer.headers.get("retry-after", 1))
            raise RateLimited(_words("a request", answer), after=float(after))
        return answer

    def _webhook(self, target: Target) -> str:
        return f"/webhooks/{self.application_id}/{target.more['token']}"

    def _check_token(self, answer: Answer, target: Target) -> None:
        """Return when the token of an interaction is good for nothing any more."""
        if answer.json().get("code") not in _NO_TOKEN and answer.status != 404:
            _refuse("an answer", answer)
        age = _server_time(answer) - _made_at(str(target.more["interaction"]))
        if age < _FRESH:
            raise Unreachable("Discord does not know yet that the command was answered.")


_TOKENS = "t"
"""Before the id of a message that was made with the token of an interaction: it is edited with that."""


@factory
def discord_messenger(
    *,
    user_name: str,
    application_id: str | None = None,
    public_key: str | None = None,
    token: str | None = None,
    verify_webhook: Verify | bool | None = None,
    api_url: str = API,
    **common: Unpack[CommonOptions],
) -> MessengerDefinition:
    """An app of Discord that is asked by slash commands.

        discord_messenger(user_name="helper")

    `application_id`, `public_key` and `token` are shown by the developer's portal; default: the variables
    `DISCORD_APPLICATION_ID`, `DISCORD_PUBLIC_KEY` and `DISCORD_BOT_TOKEN`. Commands are answered one by one
    (`burst=0`), unless you say otherwise. `common` are the options of `MessengerDefinition`.
    """
    key = public_key or os.environ.get("DISCORD_PUBLIC_KEY") or None
    if key is None and (verify_webhook is None or verify_webhook is True):
        raise InvalidSettings(
            "discord_messenger requires public_key for webhook verification,"
            " or verify_webhook=False to opt out explicitly.",
            next_step="Set DISCORD_PUBLIC_KEY, or give public_key=…: General Information shows it.",
        )
    messenger = Discord(
        application_id=application_id or os.environ.get("DISCORD_APPLICATION_ID") or "",
        token=token or os.environ.get("DISCORD_BOT_TOKEN") or "",
        user_name=user_name,
        public_key=key,
        api_url=api_url,
    )
    verify = True if verify_webhook is None else verify_webhook
    options: CommonOptions = {"burst": 0.0, **common}
    return MessengerDefinition(messenger=messenger, verify_webhook=verify, **options)


async def set_discord_commands(definition: MessengerDefinition, commands: Mapping[str, str]) -> None:
    """Register the slash commands of a bot, in the place of those there were: name and description.

        await set_discord_commands(bot, {"ask": "Ask me anything", "stop": "Stop the answer"})

    `stop` and `new` take nothing; the others take one text. Discord shows them at once to whoever
    reloads it.
    """
    messenger = definition.messenger
    if not isinstance(messenger, Discord):
        raise InvalidSettings(f"{shown(messenger)} has no slash commands: it is no bot of Discord.")
    try:
        await messenger.set_commands(commands)
    finally:
        await messenger.close()


# --- what Discord sends


class _Read(msgspec.Struct, frozen=True):
    pass


class _User(_Read, frozen=True):
    id: str
    username: str | None = None
    global_name: str | None = None
    bot: bool = False


class _Member(_Read, frozen=True):
    user: _User
    nick: str | None = None


class _Option(_Read, frozen=True):
    name: str
    type: int
    value: str | int | float | bool | None = None
    options: tuple[_Option, ...] = ()


class _File(_Read, frozen=True):
    id: str
    filename: str | None = None
    content_type: str | None = None
    size: int | None = None
    url: str | None = None


class _Said(_Read, frozen=True):
    id: str
    webhook_id: str | None = None
    content: str = ""
    attachments: tuple[_File, ...] = ()


class _Resolved(_Read, frozen=True):
    users: dict[str, _User] = {}
    messages: dict[str, _Said] = {}
    attachments: dict[str, _File] = {}


class _Data(_Read, frozen=True):
    name: str = ""
    type: int = 1
    options: tuple[_Option, ...] = ()
    target_id: str | None = None
    resolved: _Resolved = _Resolved()
    custom_id: str = ""
    values: tuple[str, ...] = ()


class _Channel(_Read, frozen=True):
    type: int = 0
    name: str | None = None
    parent_id: str | None = None


class _Interaction(_Read, frozen=True):
    id: str
    type: int
    token: str = ""
    data: _Data = _Data()
    channel_id: str | None = None
    channel: _Channel = _Channel()
    guild_id: str | None = None
    member: _Member | None = None
    user: _User | None = None
    message: _Said | None = None
    context: int | None = None

    @property
    def person(self) -> _User | None:
        """Who did it."""
        return self.user if self.member is None else self.member.user

    @property
    def is_direct(self) -> bool:
        """True with the bot alone."""
        return self.context == 1 if self.context is not None else self.channel.type == _DM


def _author(person: _User, told: _Interaction) -> Author:
    nick = None if told.member is None else told.member.nick
    return Author(
        user_id=person.id,
        user_name=person.username or None,
        full_name=nick or person.global_name or None,
        is_bot=person.bot,
    )


def _thread(told: _Interaction, channel: str) -> Thread:
    return Thread(
        id=f"discord:{channel}",
        is_direct_message=told.is_direct,
        channel_id=told.channel.parent_id if told.channel.type in (10, 11, 12) else channel,
        channel_name=None if told.is_direct else told.channel.name or None,
    )


def _asked(data: _Data) -> tuple[str, tuple[Attachment, ...]]:
    """What a command says, and the files that come with it. One that takes nothing is `/name`."""
    resolved = data.resolved
    if data.type == 3 and data.target_id in resolved.messages:
        said = resolved.messages[data.target_id]
        return f"/{data.name}\n{said.content}".strip(), tuple(map(_attachment, said.attachments))
    if data.type == 2 and data.target_id in resolved.users:
        return f"/{data.name} @{resolved.users[data.target_id].username}", ()
    name, options = data.name, data.options
    while options and options[0].type in (1, 2):  # a command of a command
        name, options = f"{name} {options[0].name}", options[0].options
    files = [
        resolved.attachments[str(one.value)] for one in options if str(one.value) in resolved.attachments
    ]
    texts = [one for one in options if str(one.value) not in resolved.attachments]
    if not texts:
        return ("" if files else f"/{name}"), tuple(map(_attachment, files))
    if len(texts) == 1:
        return _value(texts[0], resolved), tuple(map(_attachment, files))
    lines = [f"{one.name}: {_value(one, resolved)}" for one in texts]
    return "\n".join(lines), tuple(map(_attachment, files))


def _value(option: _Option, resolved: _Resolved) -> str:
    person = resolved.users.get(str(option.value))
    return str(option.value) if person is None else f"@{person.username}"


def _attachment(file: _File) -> Attachment:
    return Attachment(
        id=file.id,
        name=file.filename,
        media_type=(file.content_type or "").partition(";")[0] or None,
        size=file.size,
        fetch_metadata={"url": file.url},
    )


def _made_at(id: str) -> float:
    """When something was made, in seconds since 1970: Discord's ids say it."""
    return (int(id) >> 22) / 1000 + _BEGINNING_OF_TIME if re.fullmatch(r"\d{1,20}", id) else 0.0


# --- what Discord is sent


def _drawn(draft: Draft) -> JSON:
    """A message that calls nobody: a model is not to wake a whole server."""
    row: Sequence[JSON] = [
        {"type": 2, "style": _STYLES[button.style], "label": button.label, "custom_id": button.id}
        for button in draft.buttons
    ]
    components = [{"type": 1, "components": row}] if row else []
    return {"content": draft.text, "components": components, "allowed_mentions": {"parse": []}}


def _words(what: str, answer: Answer) -> str:
    said = answer.json()
    code = f" ({said['code']})" if said.get("code") else ""
    words = "; ".join([str(said.get("message") or "no words"), *_wrong_fields(said.get("errors"))])
    return f"Discord answered {what} with {answer.status}{code}: {words.rstrip('.')}."


def _wrong_fields(errors: Any, path: str = "") -> list[str]:
    """What Discord says of fields of a body: `0.name: Command name is invalid`."""
    if not isinstance(errors, dict):
        return []
    found: list[str] = []
    for key, below in cast("dict[str, Any]", errors).items():
        if key == "_errors" and isinstance(below, list):
            found += [
                f"{path}: {cast('dict[str, Any]', one).get('message')}"
                for one in cast("list[Any]", below)
                if isinstance(one, dict)
            ]
        else:
            found += _wrong_fields(below, f"{path}.{key}".lstrip("."))
    return found


def _refuse(what: str, answer: Answer) -> NoReturn:
    """Why Discord has not done it, as what may be done about it."""
    words, code = _words(what, answer), answer.json().get("code")
    raised: DeliveryError
    if answer.status >= 500:
        raised = Uncertain(words)
    elif code in _GONE:
        raised = Refused(words, why="gone")
    elif answer.status == 401:
        raised = Refused(words, why="unauthorized")
    elif answer.status == 403:
        raised = Refused(words, why="blocked")
    else:
        raised = Refused(words)
    raise raised


def _server_time(answer: Answer) -> float:
    """When Discord answered, by its own clock."""
    try:
        return parsedate_to_datetime(answer.headers.get("date", "")).astimezone(UTC).timestamp()
    except ValueError:
        return float("inf")


def _key(public_key: str) -> Ed25519PublicKey:
    try:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    except ImportError as error:
        raise MissingExtra(
            "Discord signs with Ed25519, for which the package cryptography is missing.",
            kept="Nothing was accepted.",
            next_step='Run: pip install "everthink[discord]"',
        ) from error
    try:
        return Ed25519PublicKey.from_public_bytes(bytes.fromhex(public_key))
    except ValueError as error:
        raise InvalidSettings(
            "discord_messenger: public_key is none: one is 64 hexadecimal digits.",
            next_step="Set DISCORD_PUBLIC_KEY: the page General Information shows it.",
        ) from error
