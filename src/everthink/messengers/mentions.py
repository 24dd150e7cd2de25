"""How a platform writes the name of a bot, and how people do. Pure."""

from __future__ import annotations

import re

__all__ = ["with_handle"]


def with_handle(text: str, *, bot_id: str | None, user_name: str) -> str:
    """A text in which the bot is called by its handle, not by the platform's id of it."""
    if not bot_id:
        return text
    id = re.escape(bot_id)
    return re.sub(rf"<@!?{id}(?:\|[^<>]*)?>|@{id}\b", f"@{user_name}", text)
