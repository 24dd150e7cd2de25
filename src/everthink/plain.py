r"""Text of strangers, made harmless for a terminal or a line of a log.

    model, client, exception --text--> plain --> cli/, logs

A terminal obeys control characters: they move the cursor, change its title, write to the clipboard, or
turn the direction of reading around. Here each becomes visible as Python writes it, `\x1b`, and does nothing.
"""

from __future__ import annotations

__all__ = ["cut", "in_json", "plain"]

_BIDI = (0x061C, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
_SEPARATORS = (0x2028, 0x2029)
_CONTROLS = (*range(0x20), *range(0x7F, 0xA0))


def _visible(code: int) -> str:
    return chr(code).encode("unicode_escape").decode("ascii")


_HARMFUL = {code: _visible(code) for code in (*_CONTROLS, *_BIDI, *_SEPARATORS)}
_IN_JSON = {code: f"\\u{code:04x}" for code in _HARMFUL if code >= 0x20}
_IN_LINES = {code: shown for code, shown in _HARMFUL.items() if chr(code) not in "\n\t"}


def plain(text: object, *, lines: bool = False) -> str:
    """`text` without power over a terminal, on one line; with `lines`, its line breaks and tabs stay."""
    said = text if isinstance(text, str) else str(text)
    if said.isprintable():
        return said
    said = said.replace("\r\n", "\n").translate(_IN_LINES) if lines else said.translate(_HARMFUL)
    # A surrogate alone is no text at all: printing it raises.
    return said.encode(errors="backslashreplace").decode()


def in_json(text: str) -> str:
    """The same JSON with such characters as escapes of JSON's own. It has escaped those of ASCII already."""
    return text.translate(_IN_JSON).encode(errors="backslashreplace").decode()


def cut(text: str, longest: int) -> str:
    """`text` up to `longest` characters, and how many there were."""
    return text if len(text) <= longest else f"{text[:longest]}… ({len(text)} characters)"
