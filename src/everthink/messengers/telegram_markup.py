"""Markdown, as models write it, in the HTML that Telegram takes; also while it is being written.

    "**bold** and `code`" --as_html--> "<b>bold</b> and <code>code</code>"

Pure. What is not closed yet is closed at the end, so every prefix of a text can be shown.
"""

from __future__ import annotations

import html
import re

__all__ = ["as_html"]

_FENCE = re.compile(r"^\s*```(\w[\w+#.-]*)?\s*$")
_BULLET = re.compile(r"^(\s*)[-*+]\s+")
_HEADING = re.compile(r"^#{1,6}\s+(.*?)\s*#*$")
_INLINE = re.compile(
    r"(?<!`)(?P<code>`{1,9})(?!`)(?P<verbatim>.+?)(?<!`)(?P=code)(?!`)"
    r"|\[(?P<label>[^\]\n]+)\]\((?P<url>https?://[^\s)]+|tg://[^\s)]+|mailto:[^\s)]+)\)"
    r"|\*\*(?P<bold>\S(?:.*?\S)?)\*\*"
    r"|__(?P<strong>\S(?:.*?\S)?)__"
    r"|~~(?P<struck>\S(?:.*?\S)?)~~"
    r"|(?<![\w*])\*(?P<em>[^\s*](?:[^*]*?[^\s*])?)\*(?![\w*])"
    r"|(?<!\w)_(?P<emphasis>[^\s_](?:[^_]*?[^\s_])?)_(?!\w)"
)


def as_html(text: str) -> str | None:
    """The HTML of a text; `None` when it is plain text as it is."""
    lines: list[str] = []
    code: list[str] | None = None
    language = ""
    for line in text.split("\n"):
        fence = _FENCE.match(line)
        if code is not None:
            if fence is not None and not fence[1]:
                lines.append(_block(code, language))
                code = None
            else:
                code.append(line)
        elif fence is not None:
            code, language = [], fence[1] or ""
        else:
            lines.append(_line(line))
    if code is not None:
        lines.append(_block(code, language))
    made = "\n".join(lines)
    return None if made == text else made


def _block(code: list[str], language: str) -> str:
    body = html.escape("\n".join(code), quote=False)
    if language:
        return f'<pre><code class="language-{html.escape(language)}">{body}</code></pre>'
    return f"<pre>{body}</pre>"


def _line(line: str) -> str:
    if (heading := _HEADING.match(line)) is not None:
        return f"<b>{_inline(heading[1])}</b>"
    if line.startswith("> "):
        return f"<blockquote>{_inline(line[2:])}</blockquote>"
    bullet = _BULLET.match(line)
    if bullet is not None:
        return f"{bullet[1]}• {_inline(line[bullet.end() :])}"
    return _inline(line)


def _inline(text: str) -> str:
    found: list[str] = []
    at = 0
    for match in _INLINE.finditer(text):
        found.append(html.escape(text[at : match.start()], quote=False))
        found.append(_marked(match))
        at = match.end()
    found.append(html.escape(text[at:], quote=False))
    return "".join(found)


def _marked(match: re.Match[str]) -> str:
    if match["verbatim"] is not None:
        return f"<code>{html.escape(match['verbatim'].strip(), quote=False)}</code>"
    if match["label"] is not None:
        return f'<a href="{html.escape(match["url"])}">{_inline(match["label"])}</a>'
    for tag, names in (("b", ("bold", "strong")), ("s", ("struck",)), ("i", ("em", "emphasis"))):
        for name in names:
            if match[name] is not None:
                return f"<{tag}>{_inline(match[name])}</{tag}>"
    return html.escape(match[0], quote=False)
