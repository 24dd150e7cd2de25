"""What kind of failure an exception is, and what its text may say."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_ai.exceptions import (
    FallbackExceptionGroup,
    ModelAPIError,
    ModelConnectionError,
    ModelContextWindowExceededError,
    ModelHTTPError,
    ModelOverloadedError,
    ModelQuotaExceededError,
    ModelRateLimitError,
    UserError,
)

from everthink.errors import ModelError
from everthink.masking import mask
from everthink.models.classify import classify, default_context_overflow_classifier


def http(status: int, message: str = "no", **headers: str) -> ModelHTTPError:
    return ModelHTTPError(
        status,
        "m",
        {"error": {"message": message}},
        headers={k.replace("_", "-"): v for k, v in headers.items()},
    )


@pytest.mark.parametrize(
    ("error", "kind", "status"),
    [
        (http(400), "fatal", 400),
        (http(401), "fatal", 401),
        (http(403), "fatal", 403),
        (http(404), "fatal", 404),
        (http(408), "transient", 408),
        (http(409), "transient", 409),
        (http(422), "fatal", 422),
        (http(429), "rate_limit", 429),
        (http(500), "transient", 500),
        (http(529), "transient", 529),
        (http(400, "prompt is too long: 9 > 8"), "context_overflow", 400),
        (http(500, "the context window is full"), "context_overflow", 500),
        (http(429, "Too many tokens, please wait before trying again."), "rate_limit", 429),
        (ModelContextWindowExceededError("m", "too much"), "context_overflow", None),
        (ModelRateLimitError("m", "slow"), "rate_limit", None),
        (ModelQuotaExceededError("m", "pay"), "fatal", None),
        (ModelOverloadedError("m", "busy"), "transient", None),
        (ModelConnectionError("m", "gone"), "transient", None),
        (httpx2.ReadTimeout("slow"), "transient", None),
        (httpx2.ConnectError("gone"), "transient", None),
        (ConnectionResetError("gone"), "transient", None),
        (TimeoutError(), "transient", None),
        (UserError("no"), "fatal", None),
        (NotImplementedError("no video"), "fatal", None),
        (ModelAPIError("m", "odd"), "unknown", None),
        (ValueError("odd"), "unknown", None),
        (FallbackExceptionGroup("all", [http(400), http(503)]), "transient", 503),
    ],
)
def test_kinds(error: BaseException, kind: str, status: int | None) -> None:
    classified = classify(error, model="openai:gpt")
    assert (classified.kind, classified.status) == (kind, status)
    assert str(classified).startswith("openai:gpt ")
    assert classified.is_retryable == (kind in ("rate_limit", "transient"))


def test_the_raw_error_is_the_cause_and_our_own_pass_through() -> None:
    raw = http(500)
    assert classify(raw, model="m").__cause__ is raw
    ours = ModelError("x", kind="fatal")
    assert classify(ours, model="m") is ours


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry_after": "3"}, 3.0),
        ({"retry_after": "0.5"}, 0.5),
        ({"retry_after_ms": "250", "retry_after": "9"}, 0.25),
        ({"retry_after": "Thu, 01 Jan 1970 00:01:40 GMT"}, 90.0),
        ({"retry_after": "Thu, 01 Jan 1970 00:00:01 GMT"}, 0.0),
        ({"retry_after": "soon"}, None),
        ({"retry_after": "-1"}, None),
        ({}, None),
    ],
)
def test_how_long_to_wait(headers: dict[str, str], seconds: float | None) -> None:
    assert classify(http(429, **headers), model="m", now=10.0).retry_after == seconds


def test_letters_say_what_to_do() -> None:
    assert "It asks to wait 3 s." in str(classify(http(429, retry_after="3"), model="m"))
    assert "Check the API key" in str(classify(http(401), model="m"))
    unknown = ModelHTTPError(404, "m", {"message": "gone"}, suggested_model_id="openai:gpt-5")
    assert "Did you mean 'openai:gpt-5'?" in str(classify(unknown, model="m"))


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"error": {"message": "Bad.", "code": "bad_thing"}}, "Bad. (bad_thing)"),
        ({"message": "Plain."}, "Plain."),
        ({"error": "Just text."}, "Just text."),
        ("<html>no</html>", "<html>no</html>"),
    ],
)
def test_the_providers_own_sentence_is_kept(body: Any, said: str) -> None:
    assert said in str(classify(ModelHTTPError(400, "m", body), model="m"))


@pytest.mark.parametrize(
    "leak",
    [
        "Incorrect API key provided: sk-proj-abcdefgh12345678.",
        "key sk-ant-api03-ABCDEFGH_ijklmnop",
        "Authorization: Bearer abcdefgh12345678",
        "https://x.example/v1?key=abcdefgh12345678&alt=sse",
        "{'x-api-key': 'abcdefgh12345678'}",
        "api_key=abcdefgh12345678",
        "AIzaSyabcdefgh12345678",
        "gsk_abcdefgh12345678",
    ],
)
def test_keys_are_left_out(leak: str) -> None:
    said = str(classify(http(401, leak), model="m"))
    assert "abcdefgh12345678" not in said
    assert "ABCDEFGH" not in said


@given(st.text(min_size=8, alphabet=st.characters(codec="ascii", exclude_characters=" ")), st.text())
def test_a_known_secret_never_appears(secret: str, around: str) -> None:
    assert secret not in mask(f"{around} {secret} {around}", [secret]).replace(around, "")


@pytest.mark.parametrize(
    "text",
    [
        "prompt is too long: 210000 tokens > 200000 maximum",
        "This model's maximum context length is 128000 tokens.",
        "Error code: context_length_exceeded",
        "CONTEXT LENGTH EXCEEDED",
        "The input token count (1) exceeds the maximum number of tokens allowed (2)",
        "Please reduce the length of the messages",
        "Input is too long for requested model.",
        "input length and `max_tokens` exceed context limit: 178959 + 64000 > 200000",
        "the request exceeds the available context size, try increasing it.",
        "exceed_context_size_error",
        "Trying to keep the first 111490 tokens when context the overflows.",
        "The number of tokens to keep from the initial prompt is greater than the context length.",
        "The decoder prompt (length 21535) is longer than the maximum model length of 16384",
        "The prompt (total length 25938) is too long to fit into the model (context length 4096).",
        "prompt too long; exceeded max context length by 12 tokens",
        "the input length exceeds the context length",
        "too many tokens",
        "Too many input tokens",
        "exceeds the context window",
    ],
)
def test_overflow_texts_are_known_in_every_shape(text: str) -> None:
    for error in (text, Exception(text), {"error": {"message": text}}, http(400, text), ModelError(text)):
        assert default_context_overflow_classifier(error) == "context_overflow"
        assert default_context_overflow_classifier(error, {"stage": "stream"}) == "context_overflow"


@pytest.mark.parametrize("error", ["overloaded", "", None, 17, Exception("no"), object(), {"a": 1}])
def test_other_errors_are_no_overflow(error: object) -> None:
    assert default_context_overflow_classifier(error) is None


def test_an_error_that_was_classified_is_believed() -> None:
    assert default_context_overflow_classifier(ModelError("x", kind="context_overflow")) == "context_overflow"


@pytest.mark.parametrize("kind", ["rate_limit", "transient", "fatal"])
def test_the_kind_of_an_error_counts_more_than_its_words(kind: Any) -> None:
    said = ModelError("Too many tokens per minute; the context window is large.", kind=kind)
    assert default_context_overflow_classifier(said) is None
