"""What a socket may be closed with: a code that may be sent, and a reason that fits into its frame.

    connection.close(code, reason) --goodbye--> the same, or what can be sent of it, and a line in the log

Closing never raises: whoever closes a connection wants it closed, whatever else is wrong.
"""

from __future__ import annotations

import logging
from typing import Any

__all__ = ["goodbye"]

log = logging.getLogger("everthink.server")

SENDABLE = frozenset({1000, 1001, 1002, 1003, *range(1007, 1015)})
"""The codes below 3000 that may be sent (RFC 6455, 7.4; 1005, 1006 and 1015 are none)."""
POLICY_VIOLATION = 1008
LONGEST_REASON = 123
"""Bytes: a frame of this kind has 125, and the code takes two."""


def goodbye(code: Any, reason: Any) -> tuple[int, str]:
    """The code and reason that are sent. What cannot be is replaced, and told in the log."""
    is_whole = isinstance(code, int) and not isinstance(code, bool)
    if not is_whole or not (code in SENDABLE or 3000 <= code <= 4999):
        log.error(
            "connection.close(%r) is no code that may be sent; %d is. Use 1000, or one of your own from 3000"
            " to 4999.",
            code,
            POLICY_VIOLATION,
        )
        code = POLICY_VIOLATION
    text = reason if isinstance(reason, str) else "" if reason is None else str(reason)
    data = text.encode(errors="replace")
    if len(data) > LONGEST_REASON:
        log.warning(
            "the reason of connection.close(%d, …) has %d bytes; %d are sent.",
            code,
            len(data),
            LONGEST_REASON,
        )
        text = data[:LONGEST_REASON].decode(errors="ignore")
    return code, text
