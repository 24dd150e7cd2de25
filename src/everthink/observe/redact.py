"""Keep secrets out of the log: mask what looks like a credential.

    bus --error text--> redact --> logging

A net, not a promise: providers like to repeat the key they refused. Nothing here
replaces not putting secrets into errors.
"""

from __future__ import annotations

import re

__all__ = ["redact"]

# Each pattern keeps its first group and hides the rest.
_SECRETS = (
    re.compile(r"(://[^\s/:@]{0,200}:)[^\s/@]{1,200}(?=@)"),
    re.compile(r"(\b(?:bearer|basic)\s+)[\w.~+/=-]{8,}", re.IGNORECASE),
    re.compile(
        r"((?:api[_-]?key|token|secret|password|authorization)[\"']?\s{0,3}[:=]\s{0,3}[\"']?)"
        r"(?!bearer|basic)[^\s\"',;&]{6,}",
        re.IGNORECASE,
    ),
    re.compile(r"(\b(?:sk|pk|rk|xox[a-z])-)[\w*-]{8,}"),
    re.compile(r"(\bgh[a-z]_|\bAIza|\bAKIA|\beyJ)[\w.-]{16,}"),
)


def redact(text: str) -> str:
    """Return `text` with everything that looks like a credential replaced by `***`."""
    for secret in _SECRETS:
        text = secret.sub(r"\1***", text)
    return text
