"""What a person fills in is held to the form: its bounds, and how its texts are written."""

from __future__ import annotations

from typing import Any

import pytest

from everthink.tools.question import Form, Given, read_answer

FIELDS: dict[str, Any] = {
    "guests": {"type": "integer", "minimum": 1, "maximum": 9},
    "share": {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
    "name": {"type": "string", "minLength": 2, "maxLength": 5},
    "wishes": {"type": "array", "minItems": 1, "maxItems": 2, "items": {"type": "string"}},
    "mail": {"type": "string", "format": "email"},
    "page": {"type": "string", "format": "uri"},
    "day": {"type": "string", "format": "date"},
    "at": {"type": "string", "format": "date-time"},
    "strange": {"type": "string", "format": "phone"},
}
FORM = {"form": Form("Who comes?", {"type": "object", "properties": FIELDS})}

FITS = {
    "guests": 9,
    "share": 0.5,
    "name": "Ada",
    "wishes": ["quiet"],
    "mail": "ada@my.page",
    "page": "https://my.page",
    "day": "2026-12-24",
    "at": "2026-12-24T18:30:00+01:00",
    "strange": "anything",
}


def answered(**content: Any) -> Any:
    return read_answer(FORM, {"action": "accept", "content": content})


def test_what_fits_is_taken() -> None:
    assert answered(**FITS) == {"form": Given("accept", FITS)}


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("guests", 0, "guests should be at least 1 (got the number 0)"),
        ("guests", 99, "guests should be at most 9 (got the number 99)"),
        ("share", 0, "share should be above 0"),
        ("share", 1, "share should be below 1"),
        ("name", "A", "name should have at least 2 characters"),
        ("name", "Adalbert", "name should have at most 5 characters"),
        ("wishes", [], "wishes should have at least 1 entries"),
        ("wishes", ["a", "b", "c"], "wishes should have at most 2 entries"),
        ("mail", "not-an-email", "mail should be an e-mail address"),
        ("mail", "a b@c", "mail should be an e-mail address"),
        ("page", "nowhere", "page should be a web address"),
        ("day", "yesterday", "day should be a day, such as 2026-12-24"),
        ("at", "noon", "at should be a time"),
    ],
)
def test_what_does_not_is_told_in_words(field: str, value: Any, words: str) -> None:
    assert words in answered(**{field: value})
