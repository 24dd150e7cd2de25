"""A Slack workspace for tests: Web API, events and buttons, and what a person sees in its channels.

    async with SlackWorkspace() as slack:
        slack.request_url = f"http://{server.host}/messengers/slack/webhook"
        await slack.say("@helper What is due?", by="ann", channel="general")
        await slack.until(lambda: slack.answers("general"))

It signs what it sends as Slack does, sends again what was not answered when it is told to, and tells the
app of its own messages, too.
Our adapter, or any client of Slack, is pointed at `api_url`.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response

from .platform import Delivery, Fault, Platform, Shown, json_answer
from .slack_blocks import (
    LONGEST_TEXT,
    LONGEST_UPDATE,
    No,
    as_read,
    content,
    metadata,
    show,
    value,
)

__all__ = ["SlackChannel", "SlackWorkspace"]

JSON = dict[str, Any]
Kind = Literal["channel", "group", "im", "mpim"]

SCOPES = frozenset(
    {"chat:write", "channels:history", "groups:history", "im:history", "mpim:history", "files:read"}
)
EVENTS = frozenset({"app_mention", "message.channels", "message.groups", "message.im", "message.mpim"})


@dataclass(slots=True)
class SlackChannel:
    """Where people talk."""

    id: str
    name: str
    kind: Kind
    members: set[str] = field(default_factory=set[str])
    """Ids of people and bots."""
    is_archived: bool = False
    messages: list[Shown] = field(default_factory=list[Shown])


class SlackWorkspace(Platform):
    """A workspace with one app in it. `now` is its clock."""

    def __init__(
        self,
        *,
        bot_name: str = "helper",
        bot_token: str = "xoxb-test-token",
        signing_secret: str = "8f742231b10e8888abcd99yyyzzz85a5",
        scopes: Sequence[str] = tuple(SCOPES),
        events: Sequence[str] = tuple(EVENTS),
        echo: bool = True,
        now: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(now=now)
        self.bot_name, self.bot_token, self.signing_secret = bot_name, bot_token, signing_secret
        self.scopes, self.events, self.echo = set(scopes), set(events), echo
        self.team_id, self.app_id = "T0001", "A0001"
        self.bot_user_id, self.bot_id = "U0BOT", "B0BOT"
        self.request_url = ""
        """Where events and pressed buttons go. `set_request_url` checks it first, as Slack does."""
        self.statuses: list[tuple[str, str | None, str]] = []
        """What the bot showed while it was thinking: channel, thread, status."""
        self._people: dict[str, str] = {bot_name: self.bot_user_id}
        self._channels: dict[str, SlackChannel] = {}
        self._files: dict[str, tuple[JSON, bytes]] = {}
        self._count = 0
        self._last = 0.0

    @property
    def api_url(self) -> str:
        """The Web API's address, as clients take it."""
        return f"{self.origin}/api/"

    # Who is there, and where.

    def person(self, name: str) -> str:
        """The id of somebody; they join the workspace with their first word."""
        if name not in self._people:
            self._people[name] = f"U{len(self._people):04d}{name.upper()[:6]}"
        return self._people[name]

    def channel(self, name: str, *, kind: Kind = "channel") -> SlackChannel:
        """A channel, by name or id. It is opened with the bot in it when it is not there.

        `@ann` is where Ann and the bot talk alone.
        """
        for known in self._channels.values():
            if name in (known.id, known.name):
                return known
        if name.startswith("@"):
            kind = "im"
        self._count += 1
        letter = {"channel": "C", "group": "G", "im": "D", "mpim": "G"}[kind]
        made = SlackChannel(f"{letter}{self._count:04d}", name, kind, {self.bot_user_id})
        if kind == "im":
            made.members.add(self.person(name.removeprefix("@")))
        self._channels[made.id] = made
        return made

    def direct(self, name: str) -> SlackChannel:
        """Where `name` and the bot talk alone."""
        return self.channel(f"@{name}")

    # What people see and do.

    def seen(self, channel: str, *, by: str | None = None) -> list[Shown]:
        """The messages of a channel, oldest first, as `by` sees them: notices for others are not shown."""
        return [
            shown
            for shown in self.channel(channel).messages
            if not shown.is_deleted and shown.only_for in (None, by)
        ]

    def answers(self, channel: str) -> list[Shown]:
        """The bot's messages that everybody sees."""
        return [shown for shown in self.seen(channel) if shown.author == self.bot_name]

    async def say(
        self,
        text: str,
        *,
        by: str = "ann",
        channel: str | None = None,
        thread: str | None = None,
        files: Sequence[tuple[str, str, bytes]] = (),
    ) -> list[Delivery]:
        """Somebody writes, in a channel or to the bot alone. `@helper` mentions the bot.

        `files`: name, type, bytes.
        Returns what the app was told: a mention in a channel is told twice, as Slack does it.
        """
        place = self.channel(channel) if channel is not None else self.direct(by)
        user = self.person(by)
        place.members.add(user)
        told: JSON = {"client_msg_id": f"{self._next():08x}-0000-4000-8000-000000000000"}
        if files:
            told = {
                "subtype": "file_share",
                "files": [self._upload(*file) for file in files],
                "upload": False,
            }
        message = self._message(place, user, by, self._typed(text), thread, told)
        return await self._tell(place, message.raw)

    async def say_as_bot(
        self, text: str, *, by: str = "other-bot", channel: str, thread: str | None = None
    ) -> list[Delivery]:
        """Another app's bot writes in a channel."""
        place = self.channel(channel)
        told: JSON = {"subtype": "bot_message", "bot_id": "B0OTHER", "app_id": "A0OTHER", "username": by}
        message = self._message(place, None, by, self._typed(text), thread, told)
        return await self._tell(place, message.raw)

    async def rewrite(self, message: str, text: str, *, channel: str) -> list[Delivery]:
        """Whoever wrote a message edits it."""
        place = self.channel(channel)
        shown = self._find(place, message)
        before = dict(shown.raw)
        shown.before.append(shown.text)
        shown.text = shown.raw["text"] = self._typed(text)
        shown.raw["edited"] = {"user": shown.raw.get("user"), "ts": self._ts()}
        return await self._tell_changed(place, shown.raw, before)

    async def delete(self, message: str, *, channel: str) -> list[Delivery]:
        """Whoever wrote a message, or an admin, deletes it."""
        place = self.channel(channel)
        shown = self._find(place, message)
        shown.is_deleted = True
        event = {
            "type": "message",
            "subtype": "message_deleted",
            "hidden": True,
            "deleted_ts": shown.id,
            "previous_message": shown.raw,
        }
        return await self._tell(place, {**event, "ts": self._ts()})

    async def press(self, message: str, button: str, *, channel: str, by: str = "ann") -> Delivery:
        """Somebody presses a button, by its label."""
        place = self.channel(channel)
        shown = self._find(place, message)
        found = shown.button(button)
        container = {"type": "message", "message_ts": shown.id, "channel_id": place.id, "is_ephemeral": False}
        if shown.thread:
            container["thread_ts"] = shown.thread
        payload: JSON = {
            "type": "block_actions",
            "user": {
                "id": self.person(by),
                "username": by,
                "name": by,
                "team_id": self.team_id,
            },
            "api_app_id": self.app_id,
            "token": "verification-token",
            "container": container,
            "trigger_id": f"{self._next()}.{self._next()}.abc",
            "team": {"id": self.team_id, "domain": "test"},
            "enterprise": None,
            "is_enterprise_install": False,
            "channel": {"id": place.id, "name": "directmessage" if place.kind == "im" else place.name},
            "message": shown.raw,
            "state": {"values": {}},
            "response_url": f"{self.origin}/actions/{place.id}/{self.person(by)}",
            "actions": [
                {
                    "action_id": found.id,
                    "block_id": "b1",
                    "text": {"type": "plain_text", "text": found.label, "emoji": True},
                    "type": "button",
                    "action_ts": self._ts(),
                }
            ],
        }
        return await self._tell_form("block_actions", {"payload": json.dumps(payload)}, payload)

    async def command(
        self, command: str, text: str = "", *, channel: str | None = None, by: str = "ann"
    ) -> Delivery:
        """Somebody uses a slash command that the app has registered."""
        place = self.channel(channel) if channel is not None else self.direct(by)
        user = self.person(by)
        place.members.add(user)
        form = {
            "token": "verification-token",
            "team_id": self.team_id,
            "team_domain": "test",
            "channel_id": place.id,
            "channel_name": "directmessage" if place.kind == "im" else place.name,
            "user_id": user,
            "user_name": by,
            "command": command,
            "text": text,
            "api_app_id": self.app_id,
            "is_enterprise_install": "false",
            "response_url": f"{self.origin}/actions/{place.id}/{user}",
            "trigger_id": f"{self._next()}.{self._next()}.def",
        }
        return await self._tell_form("slash_command", form, form)

    async def tell(self, event: JSON, *, authorized: bool = True) -> Delivery:
        """Tell the app of any event, in its envelope."""
        envelope: JSON = {
            "token": "verification-token",
            "team_id": self.team_id,
            "context_team_id": self.team_id,
            "api_app_id": self.app_id,
            "event": event,
            "type": "event_callback",
            "event_id": f"Ev{self._next():08d}",
            "event_time": int(self.now()),
            "is_ext_shared_channel": False,
            "event_context": "4-context",
        }
        if authorized:
            envelope["authorizations"] = [
                {
                    "enterprise_id": None,
                    "team_id": self.team_id,
                    "user_id": self.bot_user_id,
                    "is_bot": True,
                    "is_enterprise_install": False,
                }
            ]
        return await self.tell_raw(envelope, kind=str(event.get("type")))

    async def tell_raw(self, body: JSON, *, kind: str = "raw") -> Delivery:
        """Tell the app anything, signed."""
        delivery = Delivery(kind=kind, body=json.dumps(body).encode(), told=body)
        return await self.deliver(delivery, self.request_url)

    async def redeliver(self, delivery: Delivery) -> Delivery:
        """Tell the app the same again, as Slack does when it got no answer."""
        return await self.deliver(delivery, self.request_url)

    async def set_request_url(self, url: str) -> None:
        """Register the app's address. Raises `RuntimeError` when it does not answer the challenge."""
        challenge = f"challenge-{self._next()}"
        body = {"token": "verification-token", "challenge": challenge, "type": "url_verification"}
        delivery = Delivery(kind="url_verification", body=json.dumps(body).encode(), told=body)
        answer = (await self.deliver(delivery, url)).answer
        if answer is None or answer.status != 200 or challenge not in answer.text:
            got = "nothing" if answer is None else f"{answer.status} {answer.text[:200]}"
            raise RuntimeError(f"Your URL didn't respond with the value of the challenge parameter: {got}")
        self.request_url = url

    # What the app is told.

    def sign(self, body: bytes, timestamp: int | None = None) -> dict[str, str]:
        """The headers with which Slack sends a body, at a time."""
        at = str(int(self.now()) if timestamp is None else timestamp)
        mac = hmac.new(self.signing_secret.encode(), f"v0:{at}:".encode() + body, hashlib.sha256)
        return {"x-slack-request-timestamp": at, "x-slack-signature": f"v0={mac.hexdigest()}"}

    def _signed(self, delivery: Delivery) -> dict[str, str]:
        headers = self.sign(delivery.body)
        if delivery.attempts > 1:
            headers["x-slack-retry-num"] = str(delivery.attempts - 1)
            headers["x-slack-retry-reason"] = "http_timeout" if delivery.answer is None else "http_error"
        return headers

    async def _tell(self, place: SlackChannel, event: JSON) -> list[Delivery]:
        kind = {"channel": "message.channels", "group": "message.groups"}.get(
            place.kind, f"message.{place.kind}"
        )
        more = {"channel": place.id, "event_ts": event["ts"]}
        told: list[Delivery] = []
        mentioned = f"<@{self.bot_user_id}>" in str(event.get("text", ""))
        mine = event.get("user") == self.bot_user_id
        is_new = event.get("subtype") in (None, "file_share")
        if mentioned and is_new and not mine and place.kind != "im" and "app_mention" in self.events:
            plain = {key: given for key, given in event.items() if key != "subtype"}
            told.append(await self.tell({**plain, **more, "type": "app_mention"}))
        if kind in self.events:
            told.append(await self.tell({**event, **more, "channel_type": place.kind}))
        return told

    async def _tell_changed(self, place: SlackChannel, message: JSON, before: JSON) -> list[Delivery]:
        event = {
            "type": "message",
            "subtype": "message_changed",
            "hidden": True,
            "message": message,
            "previous_message": before,
            "ts": self._ts(),
        }
        return await self._tell(place, event)

    async def _tell_form(self, kind: str, form: JSON, told: JSON) -> Delivery:
        delivery = Delivery(
            kind=kind,
            body=urlencode(form).encode(),
            content_type="application/x-www-form-urlencoded",
            told=told,
        )
        return await self.deliver(delivery, self.request_url)

    # Messages.

    def _typed(self, text: str) -> str:
        """What Slack makes of what somebody types."""
        text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        for name, id in self._people.items():
            text = re.sub(rf"(?<!\w)@{re.escape(name)}\b", f"<@{id}>", text)
        return re.sub(r"https?://\S+", lambda found: f"<{found[0]}>", text)

    def _message(
        self, place: SlackChannel, user: str | None, name: str, text: str, thread: str | None, more: JSON
    ) -> Shown:
        ts = self._ts()
        raw: JSON = {"type": "message", "ts": ts, "text": text, "team": self.team_id, **more}
        if user is not None:
            raw["user"] = user
        if thread is not None:
            raw |= {"thread_ts": thread, "parent_user_id": self._find(place, thread).raw.get("user")}
        shown = Shown(id=ts, channel=place.id, author=name, text=text, thread=thread, raw=raw)
        place.messages.append(shown)
        self._happened()
        return shown

    def _find(self, place: SlackChannel, ts: str) -> Shown:
        return next(shown for shown in place.messages if shown.id == ts)

    def _upload(self, name: str, media_type: str, data: bytes) -> JSON:
        id = f"F{self._next():04d}"
        file = {
            "id": id,
            "name": name,
            "title": name,
            "mimetype": media_type,
            "filetype": name.rpartition(".")[2],
            "size": len(data),
            "mode": "hosted",
            "is_external": False,
            "url_private": f"{self.origin}/files-pri/{self.team_id}-{id}/{name}",
            "url_private_download": f"{self.origin}/files-pri/{self.team_id}-{id}/download/{name}",
            "permalink": f"https://test.slack.com/files/{id}/{name}",
        }
        self._files[id] = (file, data)
        return file

    def _next(self) -> int:
        self._count += 1
        return self._count

    def _ts(self) -> str:
        """The time as Slack's ids have it: never the same twice."""
        self._last = max(round(self.now(), 6), round(self._last + 0.000_1, 6))
        return f"{self._last:.6f}"

    # The Web API.

    def _refusal(self, kind: Literal["429", "500"], fault: Fault) -> Response:
        if kind == "429":
            headers = {"retry-after": str(max(1, round(fault.retry_after)))}
            return json_answer({"ok": False, "error": "ratelimited"}, 429, headers)
        return Response("Internal Server Error", 500)

    def _faulty(self) -> list[str]:
        return [*self._methods(), "files", "response_url"]

    async def _api(self, request: Request, body: JSON) -> tuple[str, Callable[[], Response]]:
        path = request.url.path
        authorization = request.headers.get("authorization", "")
        token = authorization.removeprefix("Bearer ") or str(body.pop("token", ""))
        if path.startswith("/files-pri/"):
            return "files", partial(self._download, path, token)
        if path.startswith("/actions/"):
            _, _, channel, user = path.split("/")
            return "response_url", partial(self._respond, channel, user, body)
        method = path.removeprefix("/api/")
        return method, partial(self._called, method, token, {k: value(v) for k, v in body.items()})

    def _called(self, method: str, token: str, body: JSON) -> Response:
        does = self._methods().get(method)
        try:
            if does is None:
                raise No("unknown_method", req_method=method)
            if not token:
                raise No("not_authed")
            if token != self.bot_token:
                raise No("invalid_auth")
            answer = {"ok": True, **does(body)}
        except No as no:
            answer = no.answer
        return json_answer(answer, headers={"x-oauth-scopes": ",".join(sorted(self.scopes))})

    def _methods(self) -> dict[str, Callable[[JSON], JSON]]:
        return {
            "auth.test": self._auth_test,
            "chat.postMessage": self._post_message,
            "chat.update": self._update,
            "chat.delete": self._delete,
            "chat.postEphemeral": self._post_ephemeral,
            "conversations.history": self._history,
            "conversations.replies": self._replies,
            "conversations.open": self._open,
            "conversations.info": self._info,
            "users.info": self._user,
            "files.info": self._file,
            "assistant.threads.setStatus": self._status,
        }

    def _auth_test(self, body: JSON) -> JSON:
        names = {"team": "Test", "user": self.bot_name, "url": "https://test.slack.com/"}
        return {**names, "team_id": self.team_id, "user_id": self.bot_user_id, "bot_id": self.bot_id}

    def _post_message(self, body: JSON) -> JSON:
        place = self._place(body, write=True)
        found = content(body, longest=LONGEST_TEXT)
        given = metadata(body)
        thread = body.get("thread_ts")
        if thread is not None and not any(shown.id == thread for shown in place.messages):
            raise No("thread_not_found")
        profile = {"id": self.bot_id, "app_id": self.app_id, "name": self.bot_name, "team_id": self.team_id}
        more = {**found, "bot_id": self.bot_id, "app_id": self.app_id, "bot_profile": profile}
        if given is not None:
            more["metadata"] = given
        shown = self._message(place, self.bot_user_id, self.bot_name, found["text"], thread, more)
        show(shown)
        if self.echo and self.request_url:
            self._later(self._tell(place, dict(shown.raw)))
        return {"channel": place.id, "ts": shown.id, "message": shown.raw}

    def _update(self, body: JSON) -> JSON:
        place = self._place(body, write=True)
        shown = next((s for s in place.messages if s.id == body.get("ts") and not s.is_deleted), None)
        if shown is None or shown.only_for is not None:
            raise No("message_not_found")
        if shown.raw.get("user") != self.bot_user_id:
            raise No("cant_update_message")
        found = content(body, longest=LONGEST_UPDATE)
        given = metadata(body)
        before = dict(shown.raw)
        shown.raw |= found
        if "blocks" not in found and "blocks" in shown.raw:
            del shown.raw["blocks"]
        if given is not None:
            shown.raw["metadata"] = given
        was = shown.text
        show(shown)
        shown.before.append(was)
        self._happened()
        if self.echo and self.request_url:
            self._later(self._tell_changed(place, dict(shown.raw), before))
        return {"channel": place.id, "ts": shown.id, "text": shown.raw["text"], "message": shown.raw}

    def _delete(self, body: JSON) -> JSON:
        place = self._place(body, write=True)
        shown = next((s for s in place.messages if s.id == body.get("ts") and not s.is_deleted), None)
        if shown is None:
            raise No("message_not_found")
        if shown.raw.get("user") != self.bot_user_id:
            raise No("cant_delete_message")
        shown.is_deleted = True
        self._happened()
        return {"channel": place.id, "ts": shown.id}

    def _post_ephemeral(self, body: JSON) -> JSON:
        place = self._place(body, write=True)
        user = str(body.get("user"))
        if user not in place.members:
            raise No("user_not_in_channel")
        found = content(body, longest=LONGEST_TEXT)
        return {"message_ts": self._notice(place, user, found, body.get("thread_ts"))}

    def _notice(self, place: SlackChannel, user: str, found: JSON, thread: Any) -> str:
        name = next(name for name, id in self._people.items() if id == user)
        shown = Shown(
            id=self._ts(),
            channel=place.id,
            author=self.bot_name,
            text="",
            thread=thread,
            only_for=name,
            raw={"type": "message", "user": self.bot_user_id, **found},
        )
        show(shown)
        place.messages.append(shown)
        self._happened()
        return shown.id

    def _respond(self, channel: str, user: str, body: JSON) -> Response:
        """What is posted to the `response_url` of a press, or of a command."""
        place = self._channels.get(channel)
        if place is None:
            return Response("used_url", 404)
        found = content(body, longest=LONGEST_TEXT)
        if body.get("response_type") == "in_channel":
            self._message(place, self.bot_user_id, self.bot_name, found["text"], None, found)
        else:
            self._notice(place, user, found, body.get("thread_ts"))
        return Response("ok")

    def _history(self, body: JSON) -> JSON:
        place = self._place(body)
        self._needs_history(place)
        return self._page([s for s in place.messages if s.thread is None], body, newest_first=True)

    def _replies(self, body: JSON) -> JSON:
        place = self._place(body)
        self._needs_history(place)
        thread = body.get("ts")
        if not any(shown.id == thread for shown in place.messages):
            raise No("thread_not_found")
        found = [shown for shown in place.messages if shown.id == thread or shown.thread == thread]
        return self._page(found, body, newest_first=False)

    def _page(self, found: list[Shown], body: JSON, *, newest_first: bool) -> JSON:
        limit = int(body.get("limit") or 100)
        oldest, latest = float(body.get("oldest") or 0), float(body.get("latest") or 1e12)
        inclusive = body.get("inclusive") in (True, 1, "1", "true")
        chosen = [
            shown
            for shown in found
            if not shown.is_deleted
            and shown.only_for is None
            and (oldest < float(shown.id) < latest or (inclusive and float(shown.id) in (oldest, latest)))
        ]
        if newest_first:
            chosen.reverse()
        start = int(body.get("cursor") or 0)
        rest = len(chosen) > start + limit
        full = body.get("include_all_metadata") in (True, 1, "1", "true")
        messages = [as_read(shown.raw, full=full) for shown in chosen[start : start + limit]]
        answer: JSON = {"messages": messages, "has_more": rest}
        return answer | ({"response_metadata": {"next_cursor": str(start + limit)}} if rest else {})

    def _needs_history(self, place: SlackChannel) -> None:
        scope = f"{ {'channel': 'channels', 'group': 'groups'}.get(place.kind, place.kind) }:history"
        if scope not in self.scopes:
            raise No("missing_scope", needed=scope, provided=",".join(sorted(self.scopes)))

    def _open(self, body: JSON) -> JSON:
        user = str(body.get("users"))
        name = next((name for name, id in self._people.items() if id == user), None)
        if name is None:
            raise No("user_not_found")
        return {"channel": {"id": self.direct(name).id}}

    def _info(self, body: JSON) -> JSON:
        place = self._place(body)
        return {"channel": {"id": place.id, "name": place.name, f"is_{place.kind}": True}}

    def _user(self, body: JSON) -> JSON:
        for name, id in self._people.items():
            if id == body.get("user"):
                return {
                    "user": {
                        "id": id,
                        "name": name,
                        "real_name": name.title(),
                        "is_bot": name == self.bot_name,
                    }
                }
        raise No("user_not_found")

    def _file(self, body: JSON) -> JSON:
        if "files:read" not in self.scopes:
            raise No("missing_scope", needed="files:read", provided=",".join(sorted(self.scopes)))
        if str(body.get("file")) not in self._files:
            raise No("file_not_found")
        return {"file": self._files[str(body["file"])][0]}

    def _download(self, path: str, token: str) -> Response:
        id = path.split("/")[2].rpartition("-")[2]
        if token != self.bot_token or id not in self._files:
            return Response("<!DOCTYPE html><html>Sign in</html>", 200, media_type="text/html")
        file, data = self._files[id]
        return Response(data, media_type=file["mimetype"])

    def _status(self, body: JSON) -> JSON:
        self.statuses.append((str(body.get("channel_id")), body.get("thread_ts"), str(body.get("status"))))
        return {}

    def _place(self, body: JSON, *, write: bool = False) -> SlackChannel:
        if write and "chat:write" not in self.scopes:
            raise No("missing_scope", needed="chat:write", provided=",".join(sorted(self.scopes)))
        place = self._channels.get(str(body.get("channel")))
        if place is None:
            raise No("channel_not_found")
        if self.bot_user_id not in place.members:
            raise No("channel_not_found" if place.kind != "channel" else "not_in_channel")
        if write and place.is_archived:
            raise No("is_archived")
        return place
