"""How Discord draws messages, what it refuses, and the addresses of its API: for `DiscordServer`."""

from __future__ import annotations

import re
import unicodedata
from typing import Any, cast

from .platform import Shown, ShownButton

__all__ = ["EPHEMERAL", "LOADING", "No", "checked", "route", "show", "wrong_in"]

JSON = dict[str, Any]

EPHEMERAL, LOADING = 1 << 6, 1 << 7
LONGEST_CONTENT = 2_000
LONGEST_NONCE = 25
_STYLES = {1: "primary", 2: "secondary", 3: "success", 4: "danger"}


class No(Exception):
    """The API refuses."""

    def __init__(self, status: int, code: int, message: str, **more: Any) -> None:
        super().__init__(message)
        self.status = status
        self.answer: JSON = {"message": message, "code": code, **more}


def wrong_in(command: JSON) -> JSON:
    """What Discord does not take of a command: its errors, by field, as it writes them."""
    is_slash, wrong = command.get("type", 1) == 1, {}
    name, description = str(command.get("name") or ""), str(command.get("description") or "")
    if error := _of_name(name, is_slash=is_slash):
        wrong["name"] = error
    if is_slash and not 0 < len(description) <= 100:
        wrong["description"] = _length(description, 100)
    options = cast("list[JSON]", command.get("options") or [])
    below = {str(at): errors for at, one in enumerate(options) if (errors := wrong_in({**one, "type": 1}))}
    return {**wrong, "options": below} if below else cast("JSON", wrong)


def _of_name(name: str, *, is_slash: bool) -> JSON | None:
    if not 0 < len(name) <= 32:
        return _length(name, 32)
    if not is_slash:  # those in a menu of people and messages are called as one likes
        return None
    if not all(map(_may_be_in_a_name, name)):
        return _errors("STRING_TYPE_REGEX", "String value did not match validation regex.")
    if name != name.lower():
        return _errors("APPLICATION_COMMAND_INVALID_NAME", "Command name is invalid")
    return None


def _may_be_in_a_name(char: str) -> bool:
    r"""As in `^[-_'\p{L}\p{N}\p{sc=Deva}\p{sc=Thai}]{1,32}$`: the scripts bring their vowel signs."""
    return (
        char in "-_'"
        or unicodedata.category(char)[0] in "LN"
        or unicodedata.name(char, "").startswith(("DEVANAGARI ", "THAI CHARACTER "))
    )


def _length(text: str, most: int) -> JSON:
    if not text:
        return _errors("BASE_TYPE_REQUIRED", "This field is required")
    return _errors("BASE_TYPE_BAD_LENGTH", f"Must be between 1 and {most} in length.")


def _errors(code: str, message: str) -> JSON:
    return {"_errors": [{"code": code, "message": message}]}


_MESSAGES = r"/channels/(?P<channel>\d+)/messages"
_TOKEN = r"/webhooks/(?P<application>\d+)/(?P<token>[^/]+)"
_COMMANDS = r"/applications/(?P<application>\d+)(?:/guilds/(?P<guild>\d+))?/commands"

_ROUTES: list[tuple[str, str, re.Pattern[str]]] = [
    (name, method, re.compile(pattern + r"\Z"))
    for name, method, pattern in (
        ("create_message", "POST", _MESSAGES),
        ("get_messages", "GET", _MESSAGES),
        ("get_message", "GET", _MESSAGES + r"/(?P<message>\d+)"),
        ("edit_message", "PATCH", _MESSAGES + r"/(?P<message>\d+)"),
        ("delete_message", "DELETE", _MESSAGES + r"/(?P<message>\d+)"),
        ("typing", "POST", r"/channels/(?P<channel>\d+)/typing"),
        ("get_channel", "GET", r"/channels/(?P<channel>\d+)"),
        ("create_dm", "POST", r"/users/@me/channels"),
        ("get_me", "GET", r"/users/@me"),
        ("get_application", "GET", r"/(?:oauth2/)?applications/@me"),
        ("get_commands", "GET", _COMMANDS),
        ("create_command", "POST", _COMMANDS),
        ("set_commands", "PUT", _COMMANDS),
        ("callback", "POST", r"/interactions/(?P<interaction>\d+)/(?P<token>[^/]+)/callback"),
        ("create_followup", "POST", _TOKEN),
        ("get_original", "GET", _TOKEN + "/messages/@original"),
        ("edit_original", "PATCH", _TOKEN + "/messages/@original"),
        ("delete_original", "DELETE", _TOKEN + "/messages/@original"),
        ("get_followup", "GET", _TOKEN + r"/messages/(?P<message>\d+)"),
        ("edit_followup", "PATCH", _TOKEN + r"/messages/(?P<message>\d+)"),
        ("delete_followup", "DELETE", _TOKEN + r"/messages/(?P<message>\d+)"),
    )
]


def route(method: str, path: str) -> tuple[str, JSON]:
    """What an address does, and what is in it. `"unknown"` where there is nothing."""
    for name, verb, pattern in _ROUTES:
        if verb == method and (found := pattern.match(path)):
            return name, found.groupdict()
    return "unknown", {}


def checked(body: JSON, *, is_edit: bool = False) -> JSON:
    """What is to be shown, if Discord would show it."""
    content = body.get("content")
    if content is not None and len(str(content)) > LONGEST_CONTENT:
        raise _invalid("content", "BASE_TYPE_MAX_LENGTH", f"Must be {LONGEST_CONTENT} or fewer in length.")
    nonce = body.get("nonce")
    if nonce is not None and len(str(nonce)) > LONGEST_NONCE:
        raise _invalid("nonce", "NONCE_TYPE_TOO_LONG", f"Must be {LONGEST_NONCE} or fewer in length.")
    rows = cast("list[JSON]", body.get("components") or [])
    _check_rows(rows)
    if not is_edit and not str(content or "").strip() and not rows and not body.get("embeds"):
        raise No(400, 50006, "Cannot send an empty message")
    kept = {name: body[name] for name in ("content", "components", "embeds", "tts", "nonce") if name in body}
    return {**kept, "content": content or ""} if not is_edit or "content" in body else kept


def show(shown: Shown) -> None:
    """Draw a message as it is now."""
    rows = cast("list[JSON]", shown.raw.get("components") or [])
    shown.buttons = [
        ShownButton(button["custom_id"], button["label"], _STYLES.get(button.get("style", 2), ""))
        for row in rows
        for button in row["components"]
        if button["type"] == 2
    ]
    shown.text = shown.raw["content"]
    shown.is_loading = bool(shown.raw["flags"] & LOADING)


def _check_rows(rows: list[JSON]) -> None:
    buttons = [button for row in rows for button in cast("list[JSON]", row.get("components") or [])]
    ids = [str(button.get("custom_id", "")) for button in buttons]
    if len(rows) > 5 or any(row.get("type") != 1 or not 0 < len(row["components"]) <= 5 for row in rows):
        raise _invalid("components", "BASE_TYPE_BAD_LENGTH", "Must be between 1 and 5 in length.")
    if len(set(ids)) != len(ids):
        raise _invalid(
            "components", "COMPONENT_CUSTOM_ID_DUPLICATED", "Component custom id cannot be duplicated"
        )
    for button, id in zip(buttons, ids, strict=True):
        if button.get("type") != 2 or button.get("style") not in _STYLES or not 0 < len(id) <= 100:
            raise _invalid("components", "BASE_TYPE_CHOICES", "This is no button that can be pressed.")
        if not 0 < len(str(button.get("label", ""))) <= 80:
            raise _invalid("components", "BASE_TYPE_BAD_LENGTH", "Must be between 1 and 80 in length.")


def _invalid(field: str, code: str, message: str) -> No:
    errors = {field: {"_errors": [{"code": code, "message": message}]}}
    return No(400, 50035, "Invalid Form Body", errors=errors)
