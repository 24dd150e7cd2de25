"""Say what kind of failure a provider's exception is: once, here.

    provider_model --exception--> classify --ModelError--> turn/loop, recovery/

Works on the shape of an exception (status, body, headers, the names of its classes), so no
provider library is imported and the errors of all of them are understood. What it writes
never holds a key or a header.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from typing import Any, Literal, cast
from urllib.parse import urlsplit

from ..errors import ErrorKind, ModelError
from ..masking import mask

__all__ = ["classify", "default_context_overflow_classifier"]

_OVERFLOW_TEXTS = (
    "prompt is too long",
    "context length exceeded",
    "context_length_exceeded",
    "maximum context length",
    "exceeds the maximum number of tokens",
    "input token count",
    "reduce the length of",
    "input is too long",
    "too many tokens",
    "too many input tokens",
    "context window",
    "exceed context limit",  # Anthropic, when the answer would not fit any more
    "available context size",  # llama.cpp
    "exceed_context_size_error",
    "when context the overflows",  # LM Studio
    "greater than the context length",
    "maximum model length",  # vLLM
    "too long to fit into the model",
    "exceeded max context length",  # Ollama
    "exceeds the context length",
    "input length exceeds",
)

_NETWORK = frozenset(
    {
        "ModelConnectionError",
        "ModelTimeoutError",
        "ModelRequestTimeout",
        "TransportError",
        "APIConnectionError",
        "TimeoutError",
        "ConnectionError",
        "EndpointConnectionError",
    }
)
_OUT_OF_CREDIT = frozenset({"ModelQuotaExceededError"})
_RATE_LIMIT = frozenset({"ModelRateLimitError"})
_UNAVAILABLE = frozenset({"ModelUnavailableError", "ModelServerError"})
_REFUSED = frozenset({"UserError", "ContentFilterError", "ModelRequestRejectedError", "NotImplementedError"})


def default_context_overflow_classifier(
    error: object, ctx: object = None
) -> Literal["context_overflow"] | None:
    """`"context_overflow"` when the error says that the conversation is too long for the model.

    Takes an exception, a text, or anything JSON; knows the wording of Anthropic, OpenAI, Google,
    Bedrock and the servers that speak like them. Assign it to `classify_chat_error`.
    """
    if isinstance(error, ModelError) and error.kind != "unknown":
        # A limit per minute may speak of too many tokens, and is none of this.
        return "context_overflow" if error.kind == "context_overflow" else None
    return "context_overflow" if _says_overflow(_any_text(error)) else None


def classify(
    error: BaseException,
    *,
    model: str,
    address: str | None = None,
    secrets: Iterable[str] = (),
    now: float | None = None,
) -> ModelError:
    """The `ModelError` for a provider's exception, which becomes its cause.

    `address` is where the provider was asked; `secrets` are texts to leave out of the message; `now` is the
    clock for `retry-after` dates.
    """
    if isinstance(error, ModelError):
        return error
    error = _most_telling(error)
    status = _status(error)
    text = mask(_message(error), secrets)
    kind = _kind(error, status, text)
    retry_after = _retry_after(error, time.time() if now is None else now)
    result = ModelError(
        f"{model} {_what_happened(error, status, address)}: {text}",
        kind=kind,
        status=status,
        retry_after=retry_after,
        next_step=_next_step(error, kind, status, retry_after),
    )
    result.__cause__ = error
    return result


def _kind(error: BaseException, status: int | None, text: str) -> ErrorKind:
    names = {cls.__name__ for cls in type(error).__mro__}
    if "ModelContextWindowExceededError" in names:
        return "context_overflow"
    if names & _OUT_OF_CREDIT:
        return "fatal"  # sent as 429 by some, but waiting does not help
    if status == 429 or names & _RATE_LIMIT:
        return "rate_limit"  # before the texts: "too many tokens, please wait" is a limit per minute
    if _says_overflow(text):
        return "context_overflow"
    if status is not None:
        if status in (408, 409) or status >= 500:
            return "transient"
        if status >= 400:
            return "fatal"
    if names & _NETWORK or names & _UNAVAILABLE:
        return "transient"
    if names & _REFUSED:
        return "fatal"
    return "unknown"


def _says_overflow(text: str) -> bool:
    lowered = text.lower()
    return any(phrase in lowered for phrase in _OVERFLOW_TEXTS)


def _most_telling(error: BaseException) -> BaseException:
    """Of several attempts, the last: it is the one that decided."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[-1]
    return error


def _status(error: BaseException) -> int | None:
    status = getattr(error, "status_code", None)
    return status if isinstance(status, int) and status >= 400 else None


def _message(error: BaseException) -> str:
    """The provider's own sentence where its body has one, else the exception's text."""
    body = getattr(error, "body", None)
    if isinstance(body, dict):
        inner: Any = cast("dict[str, Any]", body)
        for _ in range(3):
            if not isinstance(inner, dict):
                break
            holder = cast("dict[str, Any]", inner)
            code = holder.get("code")
            if isinstance(said := holder.get("message"), str) and said:
                return f"{said} ({code})" if isinstance(code, str) and code not in said else said
            inner = holder.get("error")
        if isinstance(inner, str) and inner:
            return inner
    elif isinstance(body, str) and body.strip():
        return body.strip()[:2000]
    return str(error) or type(error).__name__


def _any_text(error: object) -> str:
    if isinstance(error, str):
        return error
    if isinstance(error, BaseException):
        return f"{error} {_message(error)}"
    try:
        return json.dumps(error, default=str)
    except (TypeError, ValueError):
        return str(error)


def _retry_after(error: BaseException, now: float) -> float | None:
    """Seconds the provider asks to wait: its header in ms, in seconds, or as a date."""
    headers = getattr(error, "headers", None) or getattr(getattr(error, "response", None), "headers", None)
    if isinstance(headers, Mapping):
        lowered = {str(k).lower(): str(v) for k, v in cast("Mapping[Any, Any]", headers).items()}
        if (milliseconds := _number(lowered.get("retry-after-ms"))) is not None:
            return milliseconds / 1000
        after = lowered.get("retry-after")
        if (seconds := _number(after)) is not None:
            return seconds
        if after:
            # Here, because it costs a tenth of our import and is needed once in a while.
            from email.utils import parsedate_to_datetime

            try:
                return max(0.0, parsedate_to_datetime(after).timestamp() - now)
            except (ValueError, TypeError):
                pass
    known = getattr(error, "retry_after", None)
    return float(known) if isinstance(known, int | float) else None


def _number(text: str | None) -> float | None:
    try:
        number = float(text) if text else None
    except ValueError:
        return None
    return number if number is not None and 0 <= number < float("inf") else None


def _what_happened(error: BaseException, status: int | None, address: str | None) -> str:
    if getattr(error, "in_stream", False):
        return "broke off its answer"
    if status is not None:
        return f"refused the call (HTTP {status})"
    if not _is_unreachable(error):
        return "failed"
    return f"could not be reached at {_plain(address)}" if address else "could not be reached"


def _is_unreachable(error: BaseException) -> bool:
    return bool({cls.__name__ for cls in type(error).__mro__} & _NETWORK)


def _plain(address: str) -> str:
    """An address without what may be secret in it."""
    parts = urlsplit(address)
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{host}{parts.path}".rstrip("/") if host else mask(address)


def _next_step(error: BaseException, kind: ErrorKind, status: int | None, retry_after: float | None) -> str:
    if kind == "rate_limit" and retry_after is not None:
        return f"It asks to wait {retry_after:g} s."
    if status in (401, 403):
        return "Check the API key and what it may use."
    if suggestion := getattr(error, "suggested_model_id", None):
        return f"Did you mean {suggestion!r}?"
    if status is None and _is_unreachable(error):
        return "Check that something answers at this address, and that this machine may reach it."
    return ""
