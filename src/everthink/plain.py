r"""Text of strangers, made harmless for a terminal or a line of a log.

    model, client, exception --text--> plain --> cli/, logs

A terminal obeys control characters: they move the cursor, change its title, write to the clipboard, or
turn the direction of reading around. Here each becomes visible as Python writes it, `\x1b`, and does nothing.
"""

from __future__ import annotations

__all__ = ["cut", "plain"]

_BIDI = (0x061C, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
_SEPARATORS = (0x2028, 0x2029)
_CONTROLS = (*range(0x20), *range(0x7F, 0xA0))


def _visible(code: int) -> str:
    return chr(code).encode("unicode_escape").decode("ascii")


# A surrogate alone is no text at all: printing it raises.
_HARMFUL = {code: _visible(code) for code in (*_CONTROLS, *_BIDI, *_SEPARATORS, *range(0xD800, 0xE000))}
_IN_LINES = {code: shown for code, shown in _HARMFUL.items() if chr(code) not in "\n\t"}


def plain(text: object, *, lines: bool = False) -> str:
    """`text` without power over a terminal, on one line; with `lines`, its line breaks and tabs stay."""
    said = text if isinstance(text, str) else str(text)
    if said.isprintable():
        return said
    if lines:
        return said.replace("\r\n", "\n").translate(_IN_LINES)
    return said.translate(_HARMFUL)


def cut(text: str, longest: int) -> str:
    """`text` up to `longest` characters, and how many there were."""
    return text if len(text) <= longest else f"{text[:longest]}… ({len(text)} characters)"
