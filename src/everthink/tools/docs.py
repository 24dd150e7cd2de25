"""Docstrings, as the model reads them.

    docstring --> what the tool does, and what each argument means

Google, NumPy and reST styles. A docstring that no style can read is used as it stands.
"""

from __future__ import annotations

import inspect
import re

from docstring_parser import ParseError, parse

__all__ = ["in_words", "read_docstring"]


def read_docstring(text: str | None) -> tuple[str, dict[str, str]]:
    """The description (summary and long text) and the help of each argument."""
    cleaned = inspect.cleandoc(text or "").strip()
    if not cleaned:
        return "", {}
    try:
        parsed = parse(cleaned)
    except ParseError:
        return cleaned, {}
    texts = [parsed.short_description, parsed.long_description]
    gap = "\n\n" if parsed.blank_after_short_description else "\n"
    description = gap.join(part.strip() for part in texts if part and part.strip())
    help_: dict[str, str] = {}
    for param in parsed.params:
        if param.description and param.description.strip():
            name = param.arg_name.lstrip("*").strip()
            help_[name] = " ".join(param.description.split())
    return description, help_


def in_words(name: str) -> str:
    """`get_weather` as a sentence, for tools without a docstring."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name)
    words = " ".join(re.split(r"[_\-\s]+", words)).strip().lower()
    return f"{words[:1].upper()}{words[1:]}." if words else name
