"""Telegram for tests: the Bot API, people who write and press buttons, and what they see in their chats.

    async with TelegramServer() as telegram:
        ann = telegram.private("Ann")
        telegram.webhook(f"http://{server.host}/messengers/telegram/webhook", secret="s3cret")
        await ann.say("Hello")
        await telegram.until(lambda: ann.answers and ann.answers[-1].text == "Hi.")

Updates go to the webhook, again and again until it answers 200 (`redeliver`), or wait for `getUpdates`.
Our adapter, or any client of the Bot API, is pointed at `origin`.
"""

from __future__ import annotations

import html
import json
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from html.parser import HTMLParser
from inspect import signature
from typing import Any, Literal

from starlette.requests import Request
from starlette.responses import Response

from .platform import Delivery, Fault, Platform, Shown, ShownButton, json_answer

__all__ = ["TelegramChat", "TelegramServer"]

JSON = dict[str, Any]
LONGEST_TEXT = 4096
LONGEST_DATA = 64
TAGS = {"b", "strong", "i", "em", "u", "s", "code", "pre", "a", "blockquote", "tg-spoiler"}


@dataclass(slots=True)
class TelegramChat:
    """A chat, with whoever is in it."""

    server: TelegramServer
    id: int
    kind: Literal["private", "group", "supergroup"]
    title: str
    person: JSON
    """Who writes here, unless it is somebody else."""
    messages: list[Shown] = field(default_factory=list[Shown])
    is_blocked: bool = False
    """True when the person has blocked the bot, or has thrown it out."""
    moved_to: int | None = None
    """The supergroup that it has become."""
    typing: int = 0
    """How often the bot showed that it writes."""

    @property
    def seen(self) -> list[Shown]:
        """What people see, oldest first."""
        return [shown for shown in self.messages if not shown.is_deleted]

    @property
    def answers(self) -> list[Shown]:
        """The messages of the bot."""
        return [shown for shown in self.seen if shown.author == self.server.bot_name]

    async def say(self, text: str, *, by: str | None = None, **more: Any) -> Delivery:
        """Somebody writes. `more` are fields of the message: `photo`, `message_thread_id`, …"""
        return await self.server.tell({"message": self.written(text, by=by, **more)})

    def written(self, text: str, *, by: str | None = None, **more: Any) -> JSON:
        """The message that somebody writes, as an update has it; it is on the screen."""
        person = self.person if by is None else self.server.person(by)
        message = self.server.message_of(self, person, text, more)
        return message

    async def rewrite(self, shown: Shown, text: str) -> Delivery:
        """Whoever wrote a message edits it."""
        shown.before.append(shown.text)
        shown.text = shown.raw["text"] = text
        shown.raw["edit_date"] = int(self.server.now())
        return await self.server.tell({"edited_message": shown.raw})

    async def press(self, shown: Shown, button: str, *, by: str | None = None) -> Delivery:
        """Somebody presses a button, by its label."""
        found = shown.button(button)
        person = self.person if by is None else self.server.person(by)
        return await self.server.press(self, shown, found.id, person)

    def delete(self, shown: Shown) -> None:
        """Somebody deletes a message. Bots are not told."""
        shown.is_deleted = True

    async def become_supergroup(self) -> TelegramChat:
        """The group becomes a supergroup: it has another id from now on."""
        return await self.server.migrate(self)


class TelegramServer(Platform):
    """Telegram with one bot. `now` is its clock."""

    def __init__(
        self,
        *,
        bot_name: str = "test_bot",
        token: str = "4242:AAtest-token",
        now: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(now=now)
        self.bot_name, self.token = bot_name, token
        self.bot: JSON = {
            "id": int(token.partition(":")[0]),
            "is_bot": True,
            "first_name": bot_name,
            "username": bot_name,
        }
        self.url, self.secret = "", ""
        """Where updates go, and the secret that goes with them."""
        self.toasts: list[tuple[str, str | None]] = []
        """What whoever pressed a button was told: the id of the press, the words."""
        self.presses: list[JSON] = []
        """The buttons that were pressed, as the bot is told."""
        self._chats: dict[int, TelegramChat] = {}
        self._people: dict[str, JSON] = {}
        self._files: dict[str, tuple[str, bytes]] = {}
        self._updates: list[JSON] = []
        self._last_message, self._last_update = 100, 1000

    # --- who is there

    def person(self, name: str, *, is_bot: bool = False) -> JSON:
        """Somebody, by name."""
        if name not in self._people:
            handle = re.sub(r"\W", "_", name).lower()
            self._people[name] = {
                "id": 500 + len(self._people),
                "is_bot": is_bot,
                "first_name": name,
                "username": handle,
            }
        return self._people[name]

    def private(self, name: str) -> TelegramChat:
        """Where somebody talks with the bot alone."""
        person = self.person(name)
        chat = self._chats.get(person["id"])
        if chat is None:
            chat = self._chats[person["id"]] = TelegramChat(self, person["id"], "private", name, person)
        return chat

    def group(
        self, title: str, *, id: int | None = None, kind: Literal["group", "supergroup"] = "supergroup"
    ) -> TelegramChat:
        """A group with the bot in it."""
        for chat in self._chats.values():
            if chat.title == title and chat.kind != "private" and chat.moved_to is None:
                return chat
        number = id or -(1000 + len(self._chats))
        chat = TelegramChat(self, number, kind, title, self.person("Ann"))
        self._chats[number] = chat
        return chat

    def chat(self, id: int) -> TelegramChat:
        """The chat with this id."""
        return self._chats[id]

    def webhook(self, url: str, *, secret: str = "") -> None:
        """Send updates to `url` from now on."""
        self.url, self.secret = url, secret

    def file(self, name: str, data: bytes) -> JSON:
        """A file that somebody can send: `await ann.say("", document=telegram.file("a.txt", b"…"))`."""
        id = f"file-{len(self._files)}"
        self._files[id] = (f"documents/{id}/{name}", data)
        return {"file_id": id, "file_unique_id": f"u{id}", "file_name": name, "file_size": len(data)}

    # --- what people do

    def message_of(self, chat: TelegramChat, person: JSON, text: str, more: JSON) -> JSON:
        """A message that is on the screen from now on."""
        message: JSON = {
            "message_id": self._next_message(),
            "from": person,
            "chat": self._as_json(chat),
            "date": int(self.now()),
            **more,
        }
        if text:
            media = next(
                (key for key in more if key in ("photo", "document", "video", "audio", "voice")), None
            )
            message["caption" if media else "text"] = text
            entities = _entities(text)
            if entities:
                message["caption_entities" if media else "entities"] = entities
        shown = Shown(
            id=str(message["message_id"]),
            channel=str(chat.id),
            author=person["first_name"],
            text=text,
            raw=message,
        )
        chat.messages.append(shown)
        self._happened()
        return message

    async def tell(self, update: JSON) -> Delivery:
        """Tell the bot of an update: at its webhook, or when it asks for what is new."""
        self._last_update += 1
        update = {"update_id": self._last_update, **update}
        kind = next(key for key in update if key != "update_id")
        delivery = Delivery(kind=kind, body=json.dumps(update).encode(), told=update)
        if self.url:
            return await self.deliver(delivery, self.url)
        self._updates.append(update)
        self._happened()
        return delivery

    async def redeliver(self, delivery: Delivery) -> Delivery:
        """Tell the webhook the same once more, as Telegram does until it is answered 200."""
        return await self.deliver(delivery, self.url)

    async def press(self, chat: TelegramChat, shown: Shown, data: str, person: JSON) -> Delivery:
        """Somebody presses a button."""
        query: JSON = {
            "id": str(9000 + len(self.presses)),
            "from": person,
            "chat_instance": "1",
            "data": data,
            "message": shown.raw,
        }
        self.presses.append(query)
        return await self.tell({"callback_query": query})

    async def migrate(self, chat: TelegramChat) -> TelegramChat:
        """A group becomes a supergroup."""
        after = self.group(f"{chat.title} ", id=-1_000_000_000_000 + chat.id)
        after.title = chat.title
        chat.moved_to = after.id
        service = self.message_of(chat, chat.person, "", {"migrate_to_chat_id": after.id})
        await self.tell({"message": service})
        return after

    # --- the API

    def _signed(self, delivery: Delivery) -> dict[str, str]:
        return {"x-telegram-bot-api-secret-token": self.secret} if self.secret else {}

    def _refusal(self, kind: Literal["429", "500"], fault: Fault) -> Response:
        if kind == "500":
            return _error(500, "Internal Server Error")
        seconds = round(fault.retry_after) or 1
        return _error(429, f"Too Many Requests: retry after {seconds}", retry_after=seconds)

    def _faulty(self) -> list[str]:
        return [_camel(name) for name, does in vars(TelegramServer).items() if _is_method(does)] + ["file"]

    async def _api(self, request: Request, body: JSON) -> tuple[str, Callable[[], Response]]:
        path = request.url.path
        if path.startswith("/file/"):
            return "file", lambda: self._file(path)
        found = re.fullmatch(r"/bot([^/]+)/(\w+)", path)
        if found is None or found[1] != self.token:
            return "unauthorized", lambda: _error(401, "Unauthorized")
        method = found[2]
        given = {key: _value(value) for key, value in body.items()}
        if method == "getUpdates":
            await self._until_updates(given)
        act = getattr(self, f"_{_snake(method)}", None)
        if act is None:
            return method, lambda: _error(404, "Not Found")
        return method, lambda: act(given)

    def _get_me(self, body: JSON) -> Response:
        return _ok({**self.bot, "can_join_groups": True, "supports_inline_queries": False})

    def _set_webhook(self, body: JSON) -> Response:
        self.webhook(str(body.get("url", "")), secret=str(body.get("secret_token", "")))
        return _ok(True)

    def _delete_webhook(self, body: JSON) -> Response:
        self.webhook("")
        return _ok(True)

    def _get_webhook_info(self, body: JSON) -> Response:
        return _ok(
            {"url": self.url, "has_custom_certificate": False, "pending_update_count": len(self._updates)}
        )

    async def _until_updates(self, body: JSON) -> None:
        offset = body.get("offset")
        if isinstance(offset, int):
            self._updates = [update for update in self._updates if update["update_id"] >= offset]
        if self._updates or self.url or not body.get("timeout"):
            return
        try:
            await self.until(lambda: self._updates or self._closing.is_set(), within=float(body["timeout"]))
        except TimeoutError:
            return

    def _get_updates(self, body: JSON) -> Response:
        if self.url:
            what = "Conflict: can't use getUpdates method while webhook is active;"
            what += " use deleteWebhook to delete the webhook first"
            return _error(409, what)
        return _ok(self._updates[: int(body.get("limit", 100))])

    def _send_message(self, body: JSON) -> Response:
        chat, text, problem = self._checked(body)
        if chat is None or problem is not None:
            return problem or _error(400, "Bad Request: chat not found")
        message: JSON = {
            "message_id": self._next_message(),
            "from": self.bot,
            "chat": self._as_json(chat),
            "date": int(self.now()),
            "text": text,
        }
        reply: Any = body.get("reply_parameters") or {}
        answered = next((one for one in chat.seen if one.id == str(reply.get("message_id"))), None)
        if reply and answered is None and not reply.get("allow_sending_without_reply"):
            return _error(400, "Bad Request: message to be replied not found")
        if "message_thread_id" in body:
            message |= {"message_thread_id": body["message_thread_id"], "is_topic_message": True}
        buttons, problem = _buttons(body)
        if problem is not None:
            return problem
        message |= _reply_markup(body)
        shown = Shown(
            id=str(message["message_id"]),
            channel=str(chat.id),
            author=self.bot_name,
            text=text,
            thread=None if "message_thread_id" not in body else str(body["message_thread_id"]),
            reply_to=None if answered is None else answered.id,
            buttons=buttons,
            raw=message,
        )
        chat.messages.append(shown)
        return _ok(message)

    def _edit_message_text(self, body: JSON) -> Response:
        chat, text, problem = self._checked(body)
        if chat is None or problem is not None:
            return problem or _error(400, "Bad Request: chat not found")
        shown = next((one for one in chat.answers if one.id == str(body.get("message_id"))), None)
        if shown is None:
            return _error(400, "Bad Request: message to edit not found")
        buttons, problem = _buttons(body)
        if problem is not None:
            return problem
        if shown.text == text and shown.buttons == buttons:
            what = (
                "Bad Request: message is not modified: specified new message content and reply markup"
                " are exactly the same as a current content and reply markup of the message"
            )
            return _error(400, what)
        shown.before.append(shown.text)
        shown.text, shown.buttons = text, buttons
        shown.raw.pop("reply_markup", None)  # an edit that says nothing of buttons takes them away
        shown.raw = {**shown.raw, "text": text, "edit_date": int(self.now()), **_reply_markup(body)}
        return _ok(shown.raw)

    def _send_chat_action(self, body: JSON) -> Response:
        chat = self._chats.get(int(body.get("chat_id", 0)))
        if chat is None:
            return _error(400, "Bad Request: chat not found")
        if chat.is_blocked:
            return _error(403, "Forbidden: bot was blocked by the user")
        chat.typing += 1
        return _ok(True)

    def _answer_callback_query(self, body: JSON) -> Response:
        id = str(body.get("callback_query_id"))
        if all(press["id"] != id for press in self.presses):
            return _error(
                400, "Bad Request: query is too old and response timeout expired or query ID is invalid"
            )
        self.toasts.append((id, body.get("text")))
        return _ok(True)

    def _get_file(self, body: JSON) -> Response:
        found = self._files.get(str(body.get("file_id")))
        if found is None:
            return _error(400, "Bad Request: invalid file_id")
        path, data = found
        return _ok(
            {"file_id": body["file_id"], "file_unique_id": "u", "file_size": len(data), "file_path": path}
        )

    def _file(self, path: str) -> Response:
        wanted = path.removeprefix(f"/file/bot{self.token}/")
        data = next((data for known, data in self._files.values() if known == wanted), None)
        return _error(404, "Not Found") if data is None else Response(data)

    # ---

    def _checked(self, body: JSON) -> tuple[TelegramChat | None, str, Response | None]:
        """The chat and the visible text of what is to be shown; or why it is not."""
        chat = self._chats.get(int(body.get("chat_id") or 0))
        if chat is None:
            return None, "", _error(400, "Bad Request: chat not found")
        if chat.moved_to is not None:
            what = "Bad Request: group chat was upgraded to a supergroup chat"
            return chat, "", _error(400, what, migrate_to_chat_id=chat.moved_to)
        if chat.is_blocked:
            private = chat.kind == "private"
            what = "bot was blocked by the user" if private else "bot was kicked from the supergroup chat"
            return chat, "", _error(403, f"Forbidden: {what}")
        text = str(body.get("text") or "")
        if body.get("parse_mode") == "HTML":
            reader = _Html()
            reader.feed(text)
            reader.close()
            if reader.problem is not None:
                return chat, "", _error(400, f"Bad Request: can't parse entities: {reader.problem}")
            text = "".join(reader.text)
        text = text.strip()
        if not text:
            return chat, "", _error(400, "Bad Request: message text is empty")
        if len(text.encode("utf-16-le")) // 2 > LONGEST_TEXT:
            return chat, "", _error(400, "Bad Request: message is too long")
        return chat, text, None

    def _as_json(self, chat: TelegramChat) -> JSON:
        if chat.kind == "private":
            return {"id": chat.id, "type": "private", "first_name": chat.title}
        return {"id": chat.id, "type": chat.kind, "title": chat.title}

    def _next_message(self) -> int:
        self._last_message += 1
        return self._last_message


class _Html(HTMLParser):
    """Reads the HTML that Telegram takes, and is as strict."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.text: list[str] = []
        self.problem: str | None = None
        self._open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in TAGS:
            self.problem = self.problem or f'unsupported start tag "{html.escape(tag)}"'
        self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if not self._open or self._open.pop() != tag:
            self.problem = self.problem or f'unexpected end tag "{tag}"'

    def handle_data(self, data: str) -> None:
        self.text.append(data)

    def close(self) -> None:
        super().close()
        if self._open:
            self.problem = (
                self.problem or f'can\'t find end tag corresponding to start tag "{self._open[-1]}"'
            )


def _ok(result: Any) -> Response:
    return json_answer({"ok": True, "result": result})


def _error(code: int, what: str, **parameters: Any) -> Response:
    more = {"parameters": parameters} if parameters else {}
    return json_answer({"ok": False, "error_code": code, "description": what, **more}, code)


def _value(value: Any) -> Any:
    """Clients may send forms, with JSON inside."""
    if not isinstance(value, str) or not re.fullmatch(r"-?\d{1,18}|true|false|[\[{].*[\]}]", value, re.S):
        return value
    try:
        return json.loads(value)
    except ValueError:
        return value


def _is_method(does: Any) -> bool:
    """True for what answers a request of the Bot API."""
    return callable(does) and list(signature(does).parameters) == ["self", "body"]


def _camel(name: str) -> str:
    first, *rest = name.removeprefix("_").split("_")
    return first + "".join(map(str.capitalize, rest))


def _snake(method: str) -> str:
    return re.sub(r"(?<=[a-z])([A-Z])", lambda found: "_" + found[1].lower(), method)


def _reply_markup(body: JSON) -> JSON:
    markup: Any = body.get("reply_markup") or {}
    return {"reply_markup": markup} if markup.get("inline_keyboard") else {}


def _buttons(body: JSON) -> tuple[list[ShownButton], Response | None]:
    markup: Any = body.get("reply_markup") or {}
    found: list[ShownButton] = []
    for row in markup.get("inline_keyboard", []):
        for button in row:
            data = str(button.get("callback_data", ""))
            if not 1 <= len(data.encode()) <= LONGEST_DATA:
                return [], _error(400, "Bad Request: BUTTON_DATA_INVALID")
            found.append(ShownButton(data, str(button.get("text", ""))))
    return found, None


def _entities(text: str) -> list[JSON]:
    """What Telegram marks in a text by itself: mentions and commands. It counts in UTF-16."""
    found: list[JSON] = []
    for match in re.finditer(r"(?<!\w)@\w{3,}|(?<!\S)/\w+(?:@\w+)?", text):
        offset = len(text[: match.start()].encode("utf-16-le")) // 2
        length = len(match[0].encode("utf-16-le")) // 2
        kind = "mention" if match[0].startswith("@") else "bot_command"
        found.append({"type": kind, "offset": offset, "length": length})
    return found
