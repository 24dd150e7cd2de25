"""How the inspector answers: JSON that nobody keeps, and refusals in a sentence.

    inspector.py, memory.py --value, refusal--> Response

Every answer is for the page that asked and for no cache on the way.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from ..limits import Limits
from ..messages import encode_json
from ..server.answers import HEADERS
from ..server.bodies import bounded

__all__ = ["as_json", "body_of", "fields_of", "refusal"]

MAX_BODY = 10_000


def as_json(value: Any, status: int = 200) -> Response:
    """An answer."""
    return Response(encode_json(value), status, HEADERS, "application/json")


def refusal(status: int, text: str) -> Response:
    """Why there is no answer."""
    return as_json({"error": text}, status)


async def body_of(request: Request, limits: Limits, most: int = MAX_BODY) -> bytes:
    """What was sent. Raises `HTTPException` (413) when it is longer than `most`."""
    with bounded(request, replace(limits, frame_bytes=most)) as read:
        return await read.body()


def fields_of(body: bytes) -> dict[str, str] | None:
    """A JSON object of texts; `None` when it is something else."""
    try:
        return msgspec.json.decode(body, type=dict[str, str])
    except (msgspec.DecodeError, msgspec.ValidationError):
        return None
