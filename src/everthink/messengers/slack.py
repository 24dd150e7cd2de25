"""Slack: events, pressed buttons and slash commands in, messages with edits and buttons out.

    POST /messengers/slack/webhook --verify--> parse: an event, a form with a payload, a form of a command
    chat.postMessage, chat.update, chat.postEphemeral                     out, as markdown blocks
    conversations.replies --metadata--> was it sent?                      after a crash
    files.info --> the file                                               only when somebody asks

One address is enough for the Events API, interactivity and commands. A mention is told twice, as
`app_mention` and as `message`: both are the same message, with the same id.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
from collections.abc import Mapping
from typing import Any, NoReturn, TypeVar, Unpack, cast
from urllib.parse import parse_qsl, urlencode, urlsplit

import msgspec

from ..errors import InvalidSettings
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

__all__ = ["Slack", "slack_messenger"]

JSON = dict[str, Any]
T = TypeVar("T")

API = "https://slack.com/api"
WINDOW = 5 * 60
"""Seconds for which a signature is good."""
LONGEST = 11_900
"""Characters of a message: Slack takes 12,000 of markdown."""
_LONGEST_NOTE = 3_000
"""Characters of what notifications and screen readers say; Slack takes 4,000 when a message is edited."""
_SKEW = 60.0
"""Seconds that our clock and Slack's may differ."""
_MOST_PAGES = 3
_LONGEST_FORM, _MOST_FIELDS = 512 * 1024, 100
"""Of a form: Slack's have a message at most, and some twenty fields."""
_METADATA = "everthink_delivery"

_SAID = (None, "file_share", "thread_broadcast", "me_message", "bot_message")
_UNAUTHORIZED = {
    "account_inactive",
    "app_missing_action_url",
    "invalid_auth",
    "missing_scope",
    "no_permission",
    "not_allowed_token_type",
    "not_authed",
    "org_login_required",
    "token_expired",
    "token_revoked",
}
_BLOCKED = {
    "access_denied",
    "cannot_dm_bot",
    "channel_not_found",
    "ekm_access_denied",
    "is_archived",
    "is_inactive",
    "messages_tab_disabled",
    "not_in_channel",
    "restricted_action",
    "restricted_action_read_only_channel",
    "restricted_action_thread_locked",
    "user_disabled",
    "user_not_found",
    "user_not_in_channel",
}
_GONE = {"cant_update_message", "edit_window_closed", "message_not_found", "thread_not_found"}
_DOUBTFUL = {"fatal_error", "internal_error", "request_timeout", "service_unavailable"}


class Slack:
    """A bot of one Slack workspace."""

    provider = "slack"
    longest_body = LONGEST_BODY
    capabilities = Capabilities(ephemeral=True, repeats="findable")
    limits = MessengerLimits(
        visible=LONGEST, follow_up=LONGEST, edit_every=1.2, edit_every_in_groups=1.2, sends_per_second=20.0
    )

    def __init__(
        self, *, token: str, user_name: str, signing_secret: str | None = None, api_url: str = API
    ) -> None:
        if not token.startswith(("xoxb-", "xoxp-")):
            raise InvalidSettings(
                "slack_messenger has no usable token: a bot's begins with xoxb-.",
                next_step="Set SLACK_BOT_TOKEN, or give token=…: the page OAuth & Permissions shows it.",
            )
        if not isinstance(cast("Any", user_name), str) or not user_name.strip("@ "):
            raise InvalidSettings(
                f"slack_messenger: user_name is {shown(user_name)}.",
                next_step="It is the bot's handle, such as helper.",
            )
        self.user_name = user_name.strip("@ ")
        self._secret = signing_secret
        self._headers = {"authorization": f"Bearer {token}"}
        self._rest = Rest(api_url, headers=self._headers)
        self._site = Rest(origin_of(api_url), headers=self._headers)

    def verify(self, headers: Mapping[str, str], body: bytes, *, now: float) -> bool:
        """True when Slack has signed this, in the last five minutes."""
        at, signature = headers.get("x-slack-request-timestamp", ""), headers.get("x-slack-signature", "")
        if self._secret is None or not at.isascii() or not at.isdigit() or abs(now - int(at[:12])) > WINDOW:
            return False
        mac = hmac.new(self._secret.encode(), b"v0:%s:%s" % (at.encode(), body), hashlib.sha256)
        return hmac.compare_digest(f"v0={mac.hexdigest()}".encode(), signature.encode())

    def parse(self, headers: Mapping[str, str], body: bytes) -> Arrived:
        """An envelope of the Events API, what was pressed, or a slash command."""
        # By the body, which is signed. The headers are not: whoever has caught what somebody wrote could send
        # it again as a form, with a pressed button in the words.
        if not body.lstrip().startswith(b"{"):
            form = _form(body)
            if "payload" in form:
                return self._pressed(_read(form["payload"].encode(), _Interaction))
            if "command" in form:
                return self._commanded(_read(msgspec.json.encode(form), _Command))
            raise ValueError("The form has neither a payload nor a command.")
        envelope = _read(body, _Envelope)
        match envelope.type:
            case "url_verification":
                return Arrived(reply=WebhookReply({"challenge": envelope.challenge}))
            case "event_callback" if envelope.event is not None:
                return self._happened(envelope, envelope.event)
            case other:
                return Arrived(ignored=(other,))

    async def post(self, target: Target, draft: Draft, *, key: str) -> str:
        """Show a message. Its metadata has the key, by which `find` knows it."""
        metadata = {"event_type": _METADATA, "event_payload": {"key": key}}
        body = {**_shown(draft), "channel": target.chat, "metadata": metadata, "unfurl_links": False}
        if target.thread is not None:
            body["thread_ts"] = target.thread
        return str((await self._call("chat.postMessage", body))["ts"])

    async def edit(self, target: Target, ref: str, draft: Draft) -> None:
        """Show it in the place of what was there."""
        try:
            await self._call("chat.update", {**_shown(draft), "channel": target.chat, "ts": ref})
        except Uncertain as error:
            raise Unreachable(error.what) from error  # an edit says it all: it is made again

    async def find(self, target: Target, key: str, *, since: float) -> str | None:
        """The message with the key among the newest of the thread, or of the chat."""
        method = "conversations.replies" if target.thread else "conversations.history"
        query = {"channel": target.chat, "oldest": f"{since - _SKEW:.6f}", "limit": "100"}
        query["include_all_metadata"] = "true"
        if target.thread:
            query["ts"] = target.thread
        for _ in range(_MOST_PAGES):
            answer = await self._call(f"{method}?{urlencode(query)}")
            for message in cast("list[JSON]", answer.get("messages") or []):
                metadata: JSON = message.get("metadata") or {}
                payload: JSON = metadata.get("event_payload") or {}
                if metadata.get("event_type") == _METADATA and payload.get("key") == key:
                    return str(message["ts"])
            cursor: JSON = answer.get("response_metadata") or {}
            if not cursor.get("next_cursor"):
                break
            query["cursor"] = str(cursor["next_cursor"])
        return None

    async def typing(self, target: Target) -> None:
        """Nothing: Slack does not show that bots write."""

    async def withdraw(self, target: Target) -> None:
        """Nothing is shown that waits."""

    async def notify(self, event: MessengerEvent, text: str | None) -> None:
        """A word that only whoever pressed the button sees."""
        if text is None:
            return
        body = {"channel": event.target.chat, "user": event.author.user_id, "text": _escaped(text)}
        if event.target.thread is not None:
            body["thread_ts"] = event.target.thread
        await self._call("chat.postEphemeral", body)

    async def fetch(self, attachment: Attachment, *, most: int) -> bytes:
        """A file, from where Slack says that it is. The token goes to Slack alone."""
        id = str(attachment.fetch_metadata.get("fileId") or attachment.id)
        file: JSON = (await self._call(f"files.info?{urlencode({'file': id})}")).get("file") or {}
        url = str(file.get("url_private_download") or file.get("url_private") or "")
        if url.startswith(f"{self._site.base}/"):
            return await self._site.load(url.removeprefix(self._site.base), most=most)
        parts = urlsplit(url)
        if parts.scheme != "https" or not (parts.hostname or "").endswith(".slack.com"):
            raise Refused(f"The file {id} is not kept by Slack.")
        return await fetched(url, most=most, headers=self._headers)

    async def name(self) -> str:
        """The handle that Slack has of the bot."""
        return str((await self._call("auth.test", {})).get("user", ""))

    async def close(self) -> None:
        """Close the connections."""
        await self._rest.close()
        await self._site.close()

    # --- what comes in

    def _happened(self, envelope: _Envelope, event: _Event) -> Arrived:
        kind = event.type if event.subtype is None else f"{event.type}.{event.subtype}"
        said, channel = event, event.channel
        if event.subtype == "message_changed" and event.message is not None:
            before = event.previous_message
            if before is not None and before.text == event.message.text:
                return Arrived(ignored=(kind,))
            said = event.message
        if event.type not in ("app_mention", "message") or said.subtype not in _SAID or not channel:
            return Arrived(ignored=(kind,))
        bot = next((who.user_id for who in envelope.authorizations if who.is_bot), None)
        if (bot is not None and said.user == bot) or (said.app_id and said.app_id == envelope.api_app_id):
            return Arrived(ignored=("message.own",))
        is_direct = event.channel_type == "im" or channel.startswith("D")
        is_mention = event.type == "app_mention" or (bot is not None and f"<@{bot}" in said.text)
        author = Author(
            user_id=said.user or said.bot_id or "",
            user_name=said.username or None,
            is_bot=said.bot_id is not None or said.subtype == "bot_message",
        )
        message = Incoming(
            id=f"{channel}:{said.ts}",
            text=_plain(with_handle(said.text, bot_id=bot, user_name=self.user_name)),
            author=author,
            attachments=tuple(_attachment(file) for file in said.files),
            created_at=float(said.ts) if re.fullmatch(r"\d+\.\d+", said.ts) else None,
            is_mention=is_mention,
        )
        thread, target = _place(channel, said.thread_ts, said.ts, is_direct=is_direct, user=author.user_id)
        named = "direct-message" if is_direct else "mention" if is_mention else "message"
        return Arrived((MessengerEvent(kind=named, thread=thread, target=target, message=message),))

    def _pressed(self, payload: _Interaction) -> Arrived:
        place = payload.container
        if payload.type != "block_actions" or place is None or not payload.channel or not payload.actions:
            return Arrived(ignored=(payload.type,))
        author = Author(user_id=payload.user.id, user_name=payload.user.username or payload.user.name or None)
        channel = payload.channel.id
        thread_ts = place.thread_ts or (payload.message.thread_ts if payload.message else None)
        thread, target = _place(
            channel, thread_ts, place.message_ts, is_direct=channel.startswith("D"), user=author.user_id
        )
        actions = [
            Action(action_id=one.action_id, user=author, value=one.value, message_id=place.message_ts)
            for one in payload.actions
        ]
        shown = {"ref": place.message_ts} if place.message_ts else {}
        events = [
            MessengerEvent(kind="action", thread=thread, target=target, action=one, answering=shown)
            for one in actions
        ]
        return Arrived(tuple(events))

    def _commanded(self, command: _Command) -> Arrived:
        is_direct = command.channel_name == "directmessage" or command.channel_id.startswith("D")
        author = Author(user_id=command.user_id, user_name=command.user_name or None)
        message = Incoming(
            id=f"{command.channel_id}:{command.trigger_id}",
            text=_plain(f"{command.command} {command.text}".strip()),
            author=author,
            is_mention=not is_direct,
        )
        thread = Thread(
            id=f"slack:{command.channel_id}", is_direct_message=is_direct, channel_id=command.channel_id
        )
        more = {} if is_direct else {"is_slash": True}
        target = Target(chat=command.channel_id, is_direct=is_direct, user=author.user_id, more=more)
        kind = "direct-message" if is_direct else "mention"
        return Arrived(
            (MessengerEvent(kind=kind, thread=thread, target=target, message=message),),
            reply=WebhookReply({"response_type": "in_channel"}),
        )

    # --- what goes out

    async def _call(self, method: str, body: JSON | None = None) -> JSON:
        """One method of the Web API. Raises `DeliveryError`s."""
        answer = await self._rest.ask("GET" if body is None else "POST", f"/{method}", body)
        said = answer.json()
        if answer.status == 200 and said.get("ok") is True:
            return said
        _refuse(method.partition("?")[0], answer, said)


@factory
def slack_messenger(
    *,
    user_name: str,
    token: str | None = None,
    signing_secret: str | None = None,
    verify_webhook: Verify | bool | None = None,
    api_url: str = API,
    **common: Unpack[CommonOptions],
) -> MessengerDefinition:
    """A bot of a Slack workspace.

        slack_messenger(user_name="helper")

    `token` is the bot's (`xoxb-…`), `signing_secret` the app's; default: the variables `SLACK_BOT_TOKEN` and
    `SLACK_SIGNING_SECRET`. `common` are the options of `MessengerDefinition`.
    """
    secret = signing_secret or os.environ.get("SLACK_SIGNING_SECRET") or None
    if secret is None and (verify_webhook is None or verify_webhook is True):
        raise InvalidSettings(
            "slack_messenger requires signing_secret for webhook verification,"
            " or verify_webhook=False to opt out explicitly.",
            next_step="Set SLACK_SIGNING_SECRET, or give signing_secret=…: Basic Information shows it.",
        )
    messenger = Slack(
        token=token or os.environ.get("SLACK_BOT_TOKEN") or "",
        user_name=user_name,
        signing_secret=secret,
        api_url=api_url,
    )
    verify = True if verify_webhook is None else verify_webhook
    return MessengerDefinition(messenger=messenger, verify_webhook=verify, **common)


# --- what Slack sends


class _Read(msgspec.Struct, frozen=True):
    pass


class _File(_Read, frozen=True):
    id: str
    name: str | None = None
    mimetype: str | None = None
    size: int | None = None
    permalink: str | None = None


class _Event(_Read, frozen=True):
    type: str = ""
    subtype: str | None = None
    channel: str | None = None
    channel_type: str | None = None
    user: str | None = None
    bot_id: str | None = None
    app_id: str | None = None
    username: str | None = None
    text: str = ""
    ts: str = ""
    thread_ts: str | None = None
    files: tuple[_File, ...] = ()
    message: _Event | None = None
    previous_message: _Event | None = None


class _Authorization(_Read, frozen=True):
    user_id: str | None = None
    is_bot: bool = False


class _Envelope(_Read, frozen=True):
    type: str
    challenge: str = ""
    api_app_id: str | None = None
    event: _Event | None = None
    authorizations: tuple[_Authorization, ...] = ()


class _Person(_Read, frozen=True):
    id: str
    username: str | None = None
    name: str | None = None


class _Container(_Read, frozen=True):
    message_ts: str = ""
    thread_ts: str | None = None


class _Channel(_Read, frozen=True):
    id: str


class _Button(_Read, frozen=True):
    action_id: str
    value: str | None = None


class _Interaction(_Read, frozen=True):
    type: str
    user: _Person
    container: _Container | None = None
    channel: _Channel | None = None
    message: _Event | None = None
    actions: tuple[_Button, ...] = ()


class _Command(_Read, frozen=True):
    command: str
    channel_id: str
    user_id: str
    trigger_id: str
    text: str = ""
    channel_name: str = ""
    user_name: str = ""


def _read(body: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"It is nothing that Slack sends: {error}") from error


def _form(body: bytes) -> dict[str, str]:
    if len(body) > _LONGEST_FORM:
        raise ValueError(f"The form has more than {_LONGEST_FORM} bytes.")
    return dict(parse_qsl(body.decode(errors="replace"), keep_blank_values=True, max_num_fields=_MOST_FIELDS))


def _place(
    channel: str, thread_ts: str | None, ts: str, *, is_direct: bool, user: str
) -> tuple[Thread, Target]:
    """Where it was said, and where the answer goes: in a channel always in a thread."""
    root = thread_ts if is_direct else thread_ts or ts
    id = f"slack:{channel}" if root is None else f"slack:{channel}:{root}"
    thread = Thread(id=id, is_direct_message=is_direct, channel_id=channel)
    return thread, Target(chat=channel, thread=root, is_direct=is_direct, user=user)


def _attachment(file: _File) -> Attachment:
    return Attachment(
        id=file.id,
        name=file.name,
        media_type=file.mimetype,
        size=file.size,
        url=file.permalink,
        fetch_metadata={"fileId": file.id},
    )


def _plain(text: str) -> str:
    """What people have typed, without Slack's marks: links, channels, entities. Who is mentioned stays."""
    # None of them reads on behind the next `<`: a text full of beginnings takes no longer than others.
    text = re.sub(r"<#\w+\|([^<>]*)>", r"#\1", text)
    text = re.sub(r"<!(\w+)(?:\|[^<>]*)?>", r"@\1", text)
    text = re.sub(r"<((?:https?|mailto):[^|<>]+)\|([^<>]+)>", _link, text)
    text = re.sub(r"<((?:https?|mailto):[^<>]+)>", r"\1", text)
    return text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")


def _link(found: re.Match[str]) -> str:
    url, label = found[1], found[2]
    return label if url.removeprefix("mailto:").endswith(label) else f"[{label}]({url})"


# --- what Slack is sent


def _shown(draft: Draft) -> JSON:
    """A message as blocks: what is edited so loses the buttons it had, and has no mark of the edit."""
    blocks: list[JSON] = [{"type": "markdown", "text": _harmless(draft.text)}]
    if draft.buttons:
        elements = [
            {
                "type": "button",
                "action_id": button.id,
                "text": {"type": "plain_text", "text": button.label},
                **({"style": button.style} if button.style else {}),
            }
            for button in draft.buttons
        ]
        blocks.append({"type": "actions", "elements": elements})
    return {"blocks": blocks, "text": _escaped(draft.text)[:_LONGEST_NOTE]}


def _harmless(text: str) -> str:
    """A model calls no whole channel: what would is shown as it is written."""
    return re.sub(r"<!(?=channel|here|everyone|subteam)", "<\u200b!", text, flags=re.I)


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _refuse(method: str, answer: Answer, said: JSON) -> NoReturn:
    """Why Slack has not done it, as what may be done about it."""
    error = str(said.get("error") or f"HTTP {answer.status}")
    what = f"Slack answered {method} with {error}."
    if answer.status == 429 or error in ("ratelimited", "rate_limited"):
        raise RateLimited(what, after=_seconds(answer.headers.get("retry-after")))
    raised: DeliveryError
    if answer.status >= 500 or error in _DOUBTFUL:
        raised = Uncertain(what)
    elif error in _UNAUTHORIZED:
        needed = said.get("needed")
        raised = Refused(f"{what} It needs the scope {needed}." if needed else what, why="unauthorized")
    elif error in _BLOCKED:
        raised = Refused(what, why="blocked")
    elif error in _GONE:
        raised = Refused(what, why="gone")
    else:
        raised = Refused(what)
    raise raised


def _seconds(text: str | None) -> float:
    try:
        return max(0.0, float(text or 1))
    except ValueError:
        return 1.0
