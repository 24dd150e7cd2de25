"""Why the prompt of the next turn looks as it does, piece by piece.

    an agent's session --> explained --JSON--> the page's Memory tab

It asks what a turn would ask (turn/assemble.py), and `get_system_prompt()` even where a turn would not
need it. It freezes nothing: looking at a prompt does not change it.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from ..calling import call_hook
from ..context.blocks import (
    RULE,
    ContextBlock,
    render,
)
from ..context.context import Context
from ..errors import ContextUnavailable
from ..masking import masked
from ..models.tokens import estimate_tokens
from ..prompt.wording import with_blocks
from ..runtime.chat import Chat
from ..turn.assemble import offered, prompt_with

__all__ = ["behind", "explained"]

log = logging.getLogger("everthink.devtools")

Json = dict[str, Any]


async def explained(chat: Chat) -> Json:
    """The prompt of the next turn, where each piece of it comes from, and why it is as it is."""
    session, context = chat.session, chat.session.context
    trouble: str | None = None
    made = ""
    try:
        if not context.is_empty:
            await context.load()
            made = await context.peek()
    except ContextUnavailable as error:
        log.warning("%s: the prompt cannot be shown: %s", chat.host.id, error)
        trouble = f"The next turn would fail: {error}"
    blocks = session.get_context_blocks()
    late = behind(made, blocks) if made else []
    own, own_trouble = await _asked(chat, "get_system_prompt")
    of_agent = own if isinstance(own, str) else ""
    base = with_blocks(of_agent, made) if context.is_beside else made or of_agent
    whole, tools_trouble = await _with_tools(chat, base)
    added = whole.removeprefix(base.rstrip()).strip() if whole.startswith(base.rstrip()) else ""
    pieces = [
        _piece(
            "blocks",
            made,
            bool(made),
            [trouble] if trouble else _why_blocks(context, blocks, made, late),
        ),
        _piece(
            "get_system_prompt",
            own if isinstance(own, str) else "",
            (not made or context.is_beside) and trouble is None,
            [own_trouble or _why_own(context, has_blocks=bool(made or trouble))],
        ),
        _piece("capabilities", added, bool(added), [_why_added(chat, added, tools_trouble)]),
    ]
    if chat.host.hooks.hears("before_turn"):
        pieces.append(
            _piece("before_turn", "", True, ["before_turn() runs last and may change all of this."])
        )
    return {
        "text": masked(whole),
        "tokens": estimate_tokens(whole),
        "pieces": pieces,
        "is_frozen": context.is_frozen,
        "is_kept": context.keeps_prompt,
        "last_refresh": _refreshed(context),
        "behind": late,
        "trouble": trouble,
    }


def behind(prompt: str, blocks: Sequence[ContextBlock]) -> list[str]:
    """The labels of blocks that `prompt` does not show as they are now."""
    return [block.label for block in blocks if not _is_shown(prompt, block)]


def _is_shown(prompt: str, block: ContextBlock) -> bool:
    text = render([block])
    if not text:  # it is left out, and must not stand there from before
        return f"{RULE}\n{block.label.upper()} " not in prompt
    return prompt.endswith(text) or f"{text}\n\n{RULE}" in prompt


async def _with_tools(chat: Chat, base: str) -> tuple[str, str | None]:
    """The prompt with what the tools add to it, and a word about what stands in the way."""
    hook = "get_tools"
    try:
        tools = await offered(chat.host, chat.browser.client_tools())
        hook = "get_capability_prompt"
        return await prompt_with(chat.host, base, tools), None
    except Exception as error:
        log.exception("%s: %s() raised while the page looked at the prompt", chat.host.id, hook)
        return base, _raised(hook, error)


async def _asked(chat: Chat, hook: str) -> tuple[Any, str | None]:
    """What a function of the agent gives, and a word about it when it raises."""
    try:
        return await call_hook(getattr(chat.host.hooks.agent, hook)), None
    except Exception as error:
        log.exception("%s: %s() raised while the page looked at the prompt", chat.host.id, hook)
        return None, _raised(hook, error)


def _raised(hook: str, error: Exception) -> str:
    return f"{hook}() raised {type(error).__name__}, so the next turn would fail; the terminal says why."


def _piece(name: str, text: str, is_used: bool, why: list[str]) -> Json:
    return {
        "name": name,
        "is_used": is_used,
        "text": masked(text),
        "tokens": estimate_tokens(text),
        "why": why,
    }


def _why_blocks(
    context: Context, blocks: Sequence[ContextBlock], prompt: str, late: Sequence[str]
) -> list[str]:
    if context.is_empty:
        return ["This session has no memory blocks: configure_session() adds none."]
    if not prompt:
        return ["The blocks have nothing to show."]
    shown = [block.label for block in blocks if render([block])]
    left_out = [block.label for block in blocks if not render([block])]
    lines = [f"Made of {_listing(shown)}." if shown else "Made of blocks that are gone by now."]
    if left_out:
        lines.append(f"Left out because empty and not writable: {_listing(left_out)}.")
    if not context.is_frozen:
        lines.append("Rendered now from the blocks as they are. The next turn fixes it until a refresh.")
    elif context.last_refresh is not None:
        lines.append("Fixed since its last refresh, so that the provider's cache of it stays warm.")
    elif context.rendered_at is not None:
        lines.append("Fixed since its first use, so that the provider's cache of it stays warm.")
    else:
        lines.append("Kept from before this process started, so that the provider's cache of it stays warm.")
    lines.append(
        "Kept across restarts (with_cached_prompt)."
        if context.keeps_prompt
        else "Not kept across restarts: the next process renders it anew."
    )
    if late:
        lines.append(f"Written since, shows after the next refresh: {_listing(late)}.")
    return lines


def _why_own(context: Context, *, has_blocks: bool) -> str:
    if has_blocks and context.is_beside:
        return "Used as it is; the blocks of extensions stand behind it."
    if has_blocks:
        return "Not used: a session with blocks writes the prompt from them alone."
    return "Used as it is, because no block has anything to show."


def _why_added(chat: Chat, added: str, trouble: str | None) -> str:
    if trouble:
        return trouble
    own = (
        chat.host.hooks.overrides("get_capability_prompt")
        or chat.host.hooks.agent.capability_prompt is not True
    )
    if own:
        return "As capability_prompt says." if added else "Not added: capability_prompt is switched off."
    if added:
        return "Added to every prompt: what a step can do, from the tools it is offered."
    return "Not added: the prompt has such lines of its own."


def _refreshed(context: Context) -> Json | None:
    if context.last_refresh is not None:
        reason, at = context.last_refresh
        return {"reason": reason, "at": at}
    if context.rendered_at is not None:
        return {"reason": "first use", "at": context.rendered_at}
    return None


def _listing(labels: Sequence[str]) -> str:
    return ", ".join(labels)
