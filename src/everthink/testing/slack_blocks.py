"""How Slack draws messages, and what it refuses to draw: for `SlackWorkspace`."""

from __future__ import annotations

import json
from typing import Any, cast

from .platform import Shown, ShownButton

__all__ = ["LONGEST_TEXT", "LONGEST_UPDATE", "No", "as_read", "content", "metadata", "show", "value"]

JSON = dict[str, Any]

LONGEST_TEXT = 40_000
LONGEST_UPDATE = 4_000
LONGEST_MARKDOWN = 12_000
LONGEST_BLOCKS = 13_200
LARGEST_METADATA = 8_000


class No(Exception):
    """The API refuses: Slack says so with status 200 and a word."""

    def __init__(self, error: str, **more: Any) -> None:
        super().__init__(error)
        self.answer: JSON = {"ok": False, "error": error, **more}


def content(body: JSON, *, longest: int) -> JSON:
    """What is to be shown, if Slack would show it."""
    text, blocks, markdown = body.get("text"), body.get("blocks"), body.get("markdown_text")
    if markdown is not None and (text is not None or blocks is not None):
        raise No("markdown_text_conflict")
    if markdown is not None:
        if len(str(markdown)) > LONGEST_MARKDOWN:
            raise No("msg_too_long")
        return {"text": str(markdown)}
    if not text and not blocks:
        raise No("no_text")
    if text is not None and len(str(text)) > longest:
        raise No("msg_too_long")
    found: JSON = {"text": "" if text is None else str(text)}
    if blocks is not None:
        _check_blocks(blocks)
        found["blocks"] = blocks
    return found


def show(shown: Shown) -> None:
    """Draw a message as it is now."""
    blocks = cast("list[JSON]", shown.raw.get("blocks") or [])
    shown.buttons = [
        ShownButton(e["action_id"], e["text"]["text"], e.get("style", ""))
        for block in blocks
        if block["type"] == "actions"
        for e in block["elements"]
    ]
    words: list[str] = []
    for block in blocks:
        match block["type"]:
            case "markdown":
                words.append(block["text"])
            case "section":
                words.append(block["text"]["text"])
            case _:
                pass
    shown.text = "\n".join(words) if blocks else shown.raw["text"]


def as_read(raw: JSON, *, full: bool) -> JSON:
    """A message as history has it: metadata only for whoever asks."""
    return raw if full else {key: value for key, value in raw.items() if key != "metadata"}


def metadata(body: JSON) -> JSON | None:
    """What is to be kept with the message, if Slack would keep it."""
    given = body.get("metadata")
    if given is None:
        return None
    if not isinstance(given, dict) or not {"event_type", "event_payload"} <= set(cast("JSON", given)):
        raise No("invalid_metadata_format")
    if len(json.dumps(given)) > LARGEST_METADATA:
        raise No("metadata_too_large")
    return cast("JSON", given)


def _check_blocks(blocks: Any) -> None:
    if not isinstance(blocks, list) or len(cast("list[Any]", blocks)) > 50:
        raise No("invalid_blocks")
    length = 0
    for block in cast("list[JSON]", blocks):
        match block.get("type"):
            case "markdown":
                if not block.get("text") or len(str(block["text"])) > LONGEST_MARKDOWN:
                    raise No("invalid_blocks")
                length += len(str(block["text"]))
            case "section":
                if not 0 < len(block["text"]["text"]) <= 3_000:
                    raise No("invalid_blocks")
                length += len(block["text"]["text"])
            case "actions":
                _check_buttons(cast("list[JSON]", block.get("elements") or []))
            case "divider" | "context" | "header" | "rich_text":
                pass
            case _:
                raise No("invalid_blocks")
    if length > LONGEST_BLOCKS:
        raise No("msg_blocks_too_long")


def _check_buttons(elements: list[JSON]) -> None:
    ids = [str(e.get("action_id", "")) for e in elements]
    for element in elements:
        label = cast("JSON", element.get("text") or {})
        is_button = element.get("type") == "button" and label.get("type") == "plain_text"
        is_styled = element.get("style") in (None, "primary", "danger")
        if not is_button or not is_styled or not 0 < len(label.get("text", "")) <= 75:
            raise No("invalid_blocks")
    if not 0 < len(elements) <= 25 or len(set(ids)) != len(ids) or any(not 0 < len(id) <= 255 for id in ids):
        raise No("invalid_blocks")


def value(given: Any) -> Any:
    """A value of a form: clients put JSON into it."""
    if isinstance(given, str) and given[:1] in ("{", "["):
        try:
            return json.loads(given)
        except ValueError:
            return given
    return given
