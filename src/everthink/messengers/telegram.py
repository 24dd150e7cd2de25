"""Telegram, by its Bot API: webhooks with a secret, or polling; messages that are edited; buttons; files.

    telegram_messenger(token=…, secret_token=…) --> MessengerDefinition --> Telegram, the adapter

A chat is a thread, `telegram:{chat}`, and so is each topic of one, `telegram:{chat}:{topic}`.
"""

from __future__ import annotations

import hmac
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Unpack, cast

import msgspec

from ..errors import InvalidSettings
from ..kinds import shown
from .definition import CommonOptions, MessengerDefinition, Verify, factory
from .port import LONGEST_BODY, DeliveryError, Moved, RateLimited, Refused, Unreachable
from .rest import Answer, Rest
from .telegram_markup import as_html
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
    decode,
    encode,
)

__all__ = ["Telegram", "is_expected_delivery_completion", "telegram_messenger"]

API = "https://api.telegram.org"
SECRET_HEADER = "x-telegram-bot-api-secret-token"
HARD_LIMIT = 4096
_LONGEST_HANDLE = 128
POLL_SECONDS = 25
UPDATES = ("message", "edited_message", "callback_query")
"""The kinds of updates that mean something to us."""
_BLOCKED = re.compile(r"blocked by the user|user is deactivated|kicked|not a member|can't initiate", re.I)
_GONE = re.compile(
    r"message to (edit|be replied|delete) not found|message can't be edited|chat not found", re.I
)
_MEDIA: dict[str, str | None] = {
    "photo": "image/jpeg",
    "document": None,
    "audio": "audio/mpeg",
    "voice": "audio/ogg",
    "video": "video/mp4",
    "video_note": "video/mp4",
    "animation": "video/mp4",
    "sticker": "image/webp",
}


@factory
def telegram_messenger(
    *,
    token: str | None = None,
    user_name: str | None = None,
    secret_token: str | None = None,
    verify_webhook: Verify | bool | None = None,
    mode: Literal["webhook", "polling"] = "webhook",
    api_base_url: str | None = None,
    **common: Unpack[CommonOptions],
) -> MessengerDefinition:
    """A bot of Telegram. `token`: from @BotFather; default: the variable `TELEGRAM_BOT_TOKEN`.

    `secret_token` is what `setWebhook` was told, and comes back with every webhook. `mode="polling"` asks
    Telegram for what is new, and needs no public address, no secret, and no name. `api_base_url` is a Bot API
    server of your own; default: the variable `TELEGRAM_API_BASE_URL`, then Telegram's. `common` are the
    options of `MessengerDefinition`.
    """
    bot = Telegram(
        token=token or os.environ.get("TELEGRAM_BOT_TOKEN") or "",
        user_name=user_name,
        secret_token=secret_token,
        mode=mode,
        api_base_url=api_base_url or os.environ.get("TELEGRAM_API_BASE_URL") or API,
    )
    if verify_webhook is None or verify_webhook is True:
        if mode == "polling":
            verify_webhook = True  # without a secret nobody passes: nothing is taken but what was asked for
        elif secret_token is None:
            raise InvalidSettings(
                "telegram_messenger requires secret_token for webhook verification,"
                " or verify_webhook=False to opt out explicitly.",
                next_step="Make one up, and tell it to Telegram with setWebhook; mode='polling' needs none.",
            )
        else:
            verify_webhook = True
    return MessengerDefinition(messenger=bot, verify_webhook=verify_webhook, **common)


class Telegram:
    """The adapter: see `messengers/port.py`."""

    provider = "telegram"
    longest_body = LONGEST_BODY
    capabilities = Capabilities()
    limits = MessengerLimits(
        visible=3400,
        follow_up=3500,
        edit_every=1.1,
        edit_every_in_groups=3.1,
        most=HARD_LIMIT,
        counts="utf-16",
    )

    def __init__(
        self,
        *,
        token: str,
        user_name: str | None = None,
        secret_token: str | None = None,
        mode: Literal["webhook", "polling"] = "webhook",
        api_base_url: str = API,
    ) -> None:
        if not re.fullmatch(r"\d+:[\w-]+", token):
            raise InvalidSettings(
                "telegram_messenger has no usable token: one is digits, a colon, and letters.",
                next_step="Set TELEGRAM_BOT_TOKEN, or give token=…: @BotFather tells it.",
            )
        is_named = isinstance(cast("Any", user_name), str) and bool((user_name or "").strip("@ "))
        if not is_named and (user_name is not None or mode != "polling"):
            raise InvalidSettings(
                f"telegram_messenger: user_name is {shown(user_name)}.",
                next_step="It is the bot's handle, such as support_bot.",
            )
        if mode not in ("webhook", "polling"):
            raise InvalidSettings(
                f"telegram_messenger: mode is {shown(mode)}.", next_step="It takes 'webhook' or 'polling'."
            )
        if secret_token is not None and not re.fullmatch(r"[\w-]{1,256}", secret_token):
            raise InvalidSettings(
                "telegram_messenger: secret_token is none that Telegram takes.",
                next_step="It has 1 to 256 letters, digits, _ and -.",
            )
        self.user_name = (user_name or "").strip("@ ")
        self.polls = mode == "polling"
        """True when the bot asks for what is new."""
        self.bot_id = token.partition(":")[0]
        self._secret, self._token = secret_token, token
        self._rest = Rest(api_base_url)

    # --- in

    def verify(self, headers: Mapping[str, str], body: bytes, *, now: float) -> bool:
        """True when the secret is ours."""
        given = headers.get(SECRET_HEADER, "")
        return self._secret is not None and hmac.compare_digest(given.encode(), self._secret.encode())

    def parse(self, headers: Mapping[str, str], body: bytes) -> Arrived:
        """What an update comes to."""
        try:
            update: Any = msgspec.json.decode(body)
        except msgspec.DecodeError as error:
            raise ValueError(str(error)) from error
        if not isinstance(update, dict):
            raise ValueError("it is no object")
        return self._read(cast("dict[str, Any]", update))

    def _read(self, update: dict[str, Any]) -> Arrived:
        """The same. Raises `ValueError` for what has not the shape of an update."""
        try:
            arrived = self._arrived(update)
            for event in arrived.events:
                decode(MessengerEvent, encode(event))
        except (ArithmeticError, AttributeError, LookupError, TypeError, msgspec.MsgspecError) as error:
            raise ValueError(f"it has not the shape of an update ({type(error).__name__})") from error
        return arrived

    def _arrived(self, update: dict[str, Any]) -> Arrived:
        kind = next((key for key in update if key != "update_id"), "nothing")
        said: Any = update.get(kind)
        if kind not in UPDATES or not isinstance(said, dict):
            return Arrived(ignored=(kind,))
        given = cast("dict[str, Any]", said)
        if kind == "callback_query":
            return self._pressed(given)
        if (to := given.get("migrate_to_chat_id")) is not None:
            return Arrived(moved=((_thread_id(given["chat"]["id"], None), _thread_id(to, None)),))
        return self._said(given)

    def _said(self, message: dict[str, Any]) -> Arrived:
        author = self._author(message.get("from") or message.get("sender_chat"))
        text = str(message.get("text") or message.get("caption") or "")
        attachments = _attachments(message)
        if author is None or not (text or attachments):
            return Arrived(ignored=("message:service",))
        chat = cast("dict[str, Any]", message["chat"])
        is_direct = chat.get("type", "private") == "private"
        is_mention = self._is_mentioned(message, text)
        topic = _topic(message)
        incoming = Incoming(
            id=f"{chat['id']}:{message['message_id']}",
            text=self._plain(text),
            author=author,
            attachments=attachments,
            created_at=message.get("date"),
            is_mention=is_mention,
        )
        event = MessengerEvent(
            kind="direct-message" if is_direct else "mention" if is_mention else "message",
            thread=_thread(chat, topic),
            target=Target(
                chat=str(chat["id"]),
                thread=topic,
                reply_to=None if is_direct else str(message["message_id"]),
                is_direct=is_direct,
                user=author.user_id,
            ),
            message=incoming,
        )
        return Arrived(events=(event,))

    def _pressed(self, query: dict[str, Any]) -> Arrived:
        message: Any = query.get("message")
        user, data = self._author(query.get("from")), query.get("data")
        if user is None or not isinstance(message, dict) or not isinstance(data, str):
            return Arrived(ignored=("callback_query",))
        on = cast("dict[str, Any]", message)
        chat = cast("dict[str, Any]", on["chat"])
        id, value = _action(data)
        topic = _topic(on)
        is_direct = chat.get("type", "private") == "private"
        event = MessengerEvent(
            kind="action",
            thread=_thread(chat, topic),
            target=Target(chat=str(chat["id"]), thread=topic, is_direct=is_direct, user=user.user_id),
            action=Action(
                action_id=id, value=value, message_id=f"{chat['id']}:{on['message_id']}", user=user
            ),
            answering={"callback": query["id"], "ref": str(on["message_id"])},
        )
        return Arrived(events=(event,))

    def _author(self, given: Any) -> Author | None:
        if not isinstance(given, dict):
            return None
        who = cast("dict[str, Any]", given)
        names = [who.get("first_name"), who.get("last_name")]
        id = str(who.get("id", ""))
        return Author(
            user_id=id,
            user_name=who.get("username") or None,
            full_name=" ".join(name for name in names if name) or who.get("title") or None,
            is_bot=bool(who.get("is_bot")),
            is_me=id == self.bot_id,
        )

    def _is_mentioned(self, message: dict[str, Any], text: str) -> bool:
        handle = f"@{self.user_name}".lower()
        replied: dict[str, Any] = message.get("reply_to_message") or {}
        if _id_in(replied.get("from")) == self.bot_id:
            return True
        entities: list[dict[str, Any]] = message.get("entities") or message.get("caption_entities") or []
        units = text.encode("utf-16-le", "surrogatepass")
        for entity in entities:
            said, kind, user = _entity(units, entity).lower(), entity.get("type"), entity.get("user")
            if (kind == "mention" and said == handle) or (kind == "bot_command" and said.endswith(handle)):
                return True
            if kind == "text_mention" and _id_in(user) == self.bot_id:
                return True
        return re.search(rf"(?<![\w@]){re.escape(handle)}\b", text.lower()) is not None

    def _plain(self, text: str) -> str:
        """The bot's id in a text is its handle."""
        from .mentions import with_handle

        return with_handle(text, bot_id=self.bot_id, user_name=self.user_name)

    # --- out

    async def post(self, target: Target, draft: Draft, *, key: str) -> str:
        """Send a message."""
        more: dict[str, Any] = {}
        if target.reply_to is not None:
            more["reply_parameters"] = {
                "message_id": int(target.reply_to),
                "allow_sending_without_reply": True,
            }
        if target.thread is not None:
            more["message_thread_id"] = int(target.thread)
        sent = await self._show("sendMessage", target, draft, more)
        return str(sent["message_id"])

    async def edit(self, target: Target, ref: str, draft: Draft) -> None:
        """Change a message. One that is as it should be is no error."""
        await self._show("editMessageText", target, draft, {"message_id": int(ref)})

    async def _show(self, method: str, target: Target, draft: Draft, more: dict[str, Any]) -> dict[str, Any]:
        body: dict[str, Any] = {"chat_id": _chat(target.chat), **more, **_markup(draft)}
        text = _fitting(draft.text)
        html = as_html(text)
        body |= {"text": html, "parse_mode": "HTML"} if html is not None else {"text": text}
        body["link_preview_options"] = {"is_disabled": True}
        try:
            return await self._call(method, body, target)
        except _NotModified:
            return {}
        except Refused as error:
            if html is None or "can't parse entities" not in error.what:
                raise
            plain = {name: value for name, value in body.items() if name != "parse_mode"}
            try:
                return await self._call(method, {**plain, "text": text}, target)
            except _NotModified:
                return {}

    async def find(self, target: Target, key: str, *, since: float) -> str | None:
        """Bots cannot read what is in a chat."""
        return None

    async def typing(self, target: Target) -> None:
        """Show that the bot writes."""
        body: dict[str, Any] = {"chat_id": _chat(target.chat), "action": "typing"}
        if target.thread is not None:
            body["message_thread_id"] = int(target.thread)
        await self._call("sendChatAction", body, target)

    async def withdraw(self, target: Target) -> None:
        """Nothing is shown that waits."""

    async def notify(self, event: MessengerEvent, text: str | None) -> None:
        """Answer whoever pressed a button."""
        callback = event.answering.get("callback")
        if callback is not None:
            body = {"callback_query_id": callback, **({"text": text[:200]} if text else {})}
            await self._call("answerCallbackQuery", body, event.target)

    async def fetch(self, attachment: Attachment, *, most: int) -> bytes:
        """Load a file. Its address has the token in it, so nobody else sees it."""
        file_id = attachment.fetch_metadata.get("fileId")
        if not isinstance(file_id, str):
            raise Refused(f"The file {attachment.name or attachment.id!r} is none of Telegram's.")
        found = await self._call("getFile", {"file_id": file_id}, Target(chat=""))
        path = str(found.get("file_path", ""))
        if not path or ".." in path.split("/"):
            raise Refused("Telegram names no path of the file.")
        return await self._rest.load(f"/file/bot{self._token}/{path}", most=most)

    async def close(self) -> None:
        """Close the connections."""
        await self._rest.close()

    # --- asking for what is new

    async def poll(self, offset: int | None) -> tuple[int | None, list[Arrived]]:
        """What is new since `offset`, as soon as there is something. And from where to ask next."""
        body = {"timeout": POLL_SECONDS, "allowed_updates": list(UPDATES)}
        if offset is not None:
            body["offset"] = offset
        updates: Any = await self._call("getUpdates", body, Target(chat=""), timeout=POLL_SECONDS + 10)
        found: list[Arrived] = []
        for update in cast("Sequence[dict[str, Any]]", updates):
            offset = max(offset or 0, int(update["update_id"]) + 1)
            found.append(self._polled(update))
        return offset, found

    def _polled(self, update: dict[str, Any]) -> Arrived:
        try:
            return self._read(update)
        except ValueError:
            return Arrived(ignored=("unreadable",))  # it would come again and again, before all others

    async def meet(self) -> str | None:
        """Learn what Telegram calls the bot: it is mentioned by that, whatever `user_name` was. What that
        was, if it was another name."""
        before, self.user_name = self.user_name, await self.name() or self.user_name
        return before if before and before.lower() != self.user_name.lower() else None

    async def name(self) -> str:
        """The handle that Telegram has of the bot."""
        return str((await self._call("getMe", {}, Target(chat=""))).get("username", ""))

    # --- the API

    async def _call(
        self, method: str, body: dict[str, Any], target: Target, *, timeout: float | None = None
    ) -> Any:
        answer = await self._rest.ask("POST", f"/bot{self._token}/{method}", body, timeout=timeout)
        said = answer.json()
        if said.get("ok") is True:
            return said.get("result")
        raise self._error(method, answer, said, target)

    def _error(self, method: str, answer: Answer, said: dict[str, Any], target: Target) -> DeliveryError:
        code, text = answer.status, str(said.get("description", ""))
        more = cast("dict[str, Any]", said.get("parameters") or {})
        what = f"Telegram answers {method} with {code}: {text or 'no words'}."
        if code == 429:
            return RateLimited(what, after=float(more.get("retry_after", 1)))
        if (to := more.get("migrate_to_chat_id")) is not None:
            moved = msgspec.structs.replace(target, chat=str(to))
            before, after = _thread_id(target.chat, target.thread), _thread_id(to, target.thread)
            return Moved(what, to=moved, before=before, after=after)
        if "message is not modified" in text:
            return _NotModified(what)
        if code >= 500:
            return Unreachable(what)
        if code == 401 or (code == 404 and text == "Not Found"):
            return Refused(what, why="unauthorized")
        if code == 403 or _BLOCKED.search(text):
            return Refused(what, why="blocked")
        return Refused(what, why="gone" if _GONE.search(text) else "invalid")


class _NotModified(DeliveryError):
    """The message is as it should be."""


def is_expected_delivery_completion(error: BaseException) -> bool:
    """True for the answer of Telegram to an edit that changes nothing: the message is as it should be."""
    return isinstance(error, _NotModified)


# --- reading updates


def _thread_id(chat: Any, topic: str | None) -> str:
    if not isinstance(chat, int | str) or isinstance(chat, bool):
        raise TypeError("a chat has a number, or a name")
    return f"telegram:{chat}" if topic is None else f"telegram:{chat}:{topic}"


def _thread(chat: Mapping[str, Any], topic: str | None) -> Thread:
    return Thread(
        id=_thread_id(chat["id"], topic),
        is_direct_message=chat.get("type", "private") == "private",
        channel_id=str(chat["id"]),
        channel_name=chat.get("title") or None,
    )


def _topic(message: Mapping[str, Any]) -> str | None:
    """The topic of a forum. What only answers a message in a group has a number, and is no topic."""
    id = message.get("message_thread_id")
    return str(id) if id is not None and message.get("is_topic_message") else None


def _id_in(user: Any) -> str:
    return str(cast("dict[str, Any]", user).get("id", "")) if isinstance(user, dict) else ""


def _chat(id: str) -> int | str:
    return int(id) if re.fullmatch(r"-?\d+", id) else id


def _entity(units: bytes, entity: Mapping[str, Any]) -> str:
    """The part of a text that an entity marks, as far as it may be a handle. Telegram counts in UTF-16."""
    start, length = int(entity.get("offset", 0)), min(int(entity.get("length", 0)), _LONGEST_HANDLE)
    return units[2 * start : 2 * (start + length)].decode("utf-16-le", errors="ignore")


def _fitting(text: str) -> str:
    """A text, as far as Telegram takes it."""
    return text.encode("utf-16-le", "replace")[: 2 * HARD_LIMIT].decode("utf-16-le", errors="ignore")


def _attachments(message: Mapping[str, Any]) -> tuple[Attachment, ...]:
    found: list[Attachment] = []
    for kind, media_type in _MEDIA.items():
        given: Any = message.get(kind)
        if kind == "document" and message.get("animation"):
            continue  # Telegram says an animation twice
        if isinstance(given, list) and given:
            given = cast("list[Any]", given)[-1]  # a photo in several sizes: the largest is the last
        if isinstance(given, dict):
            file = cast("dict[str, Any]", given)
            found.append(
                Attachment(
                    id=file.get("file_unique_id") or file.get("file_id"),
                    name=file.get("file_name") or kind,
                    media_type=file.get("mime_type") or media_type,
                    size=file.get("file_size"),
                    fetch_metadata={"fileId": file.get("file_id")},
                )
            )
    return tuple(found)


def _action(data: str) -> tuple[str, str | None]:
    """What a button says: ours, or whatever its maker wrote."""
    if data.startswith("chat:"):
        try:
            said: Any = msgspec.json.decode(data[5:])
        except msgspec.DecodeError:
            said = None
        if isinstance(said, dict):
            given = cast("dict[str, Any]", said)
            if isinstance(given.get("a"), str):
                value = given.get("v")
                return given["a"], None if value is None else str(value)
    return data, None


def _markup(draft: Draft) -> dict[str, Any]:
    row = [{"text": button.label, "callback_data": button.id} for button in draft.buttons]
    return {"reply_markup": {"inline_keyboard": [row] if row else []}} if row or draft.is_final else {}
