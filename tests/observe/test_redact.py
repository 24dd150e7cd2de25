from __future__ import annotations

import pytest

from everthink.observe.redact import redact


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("Incorrect API key provided: sk-proj-abcdefgh12345678.", "Incorrect API key provided: sk-***."),
        ("Authorization: Bearer abcdefgh.12345678", "Authorization: Bearer ***"),
        ("api_key=abcdef123456&model=x", "api_key=***&model=x"),
        ('{"password": "hunter2hunter2"}', '{"password": "***"}'),
        ("postgresql://app:hunter2@db/chat refused", "postgresql://app:***@db/chat refused"),
        ("token ghp_abcdefghijklmnop1234 expired", "token ghp_*** expired"),
    ],
)
def test_what_looks_like_a_credential_is_masked(text: str, kept: str) -> None:
    assert redact(text) == kept


@pytest.mark.parametrize(
    "text",
    [
        "maximum context length is 8192 tokens: 9000 given",
        "Tool 'look' raised KeyError: 'city'",
        "asked for skeleton-keys-and-more at 12:30",
        "https://example.com:8080/path",
    ],
)
def test_ordinary_errors_stay_readable(text: str) -> None:
    assert redact(text) == text
