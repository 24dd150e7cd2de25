"""A prompt that is too long, as real provider adapters report it over real HTTP: the turn makes room."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from everthink import App, Think, tool
from everthink.errors import ModelError
from everthink.memory import default_context_overflow_classifier
from everthink.models.classify import classify
from everthink.models.port import Model, Request
from everthink.testing.scripted import Play, ScriptedModel, calls, fails, overflows, says
from everthink.testing.served import Endpoint, served
from tests.support.overflow import NOTE, SUMMARY, Shortener, pairs, roomy, talk
from tests.support.turns import prompt

pytestmark = pytest.mark.anyio

OLD = talk("What is a bee?", "An insect, and a long story about it.")
ADAPTERS: dict[str, Callable[[Endpoint], Model]] = {
    "chat": lambda endpoint: endpoint.openai_model(),
    "responses": lambda endpoint: endpoint.openai_responses_model(),
    "anthropic": lambda endpoint: endpoint.anthropic_model(),
}
WORDS = {
    "chat": "This model's maximum context length is 128000 tokens. Your messages resulted in 130000.",
    "responses": "Your input exceeds the context window of this model. Please adjust it and try again.",
    "anthropic": "prompt is too long: 200001 tokens > 200000 maximum",
}


@pytest.fixture(params=ADAPTERS)
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


async def asked(folder: Path, cls: type[Think], question: str) -> Any:
    async with App(cls, store=f"sqlite:///{folder}/everthink.db", grace=0.0, idle_after=None) as app:
        await app.agent(cls).add_messages(OLD)
        return await app.agent(cls).save_messages(question)


@pytest.mark.case(381, 387)
@pytest.mark.parametrize("how", ["as HTTP 400", "inside the stream", "as a plain 400 of these words"])
async def test_an_overflow_of_a_provider_is_shortened_and_asked_again(
    tmp_path: Path, kind: str, how: str
) -> None:
    refused = {
        "as HTTP 400": overflows(WORDS[kind]),
        "inside the stream": says("A wa").then_overflows(WORDS[kind]),
        "as a plain 400 of these words": fails(WORDS[kind], status=400),
    }[how]
    scripted, fn = ScriptedModel(refused, says("A cousin.")), Shortener()
    async with served(scripted) as endpoint:
        model = ADAPTERS[kind](endpoint)
        result = await asked(tmp_path, roomy(model, fn), "And a wasp?")

    # Then the provider was asked twice, the second time with the summary; an overflow is never just retried
    assert (result.status, result.text, fn.asked, len(endpoint.bodies)) == ("completed", "A cousin.", 1, 2)
    assert prompt(scripted.last_request) == [NOTE, ("assistant", SUMMARY), ("user", "And a wasp?")]


async def test_a_call_and_its_result_survive_the_shortening(tmp_path: Path, kind: str) -> None:
    done: list[str] = []

    @tool
    def cook(dish: str) -> str:
        """Cook."""
        done.append(dish)
        return f"{dish}, hot"

    scripted = ScriptedModel(
        calls("cook", dish="soup", id="call_1"), says("The ").then_overflows(), says("soup is served.")
    )
    async with served(scripted) as endpoint:
        cls = roomy(ADAPTERS[kind](endpoint), Shortener(), get_tools=lambda self: [cook])
        result = await asked(tmp_path, cls, "Soup!")

    assert (result.status, done) == ("completed", ["soup"])
    assert result.text.startswith("The ")
    assert result.text.endswith("soup is served.")
    assert pairs(scripted.last_request) == [
        ("call", "call_1", {"dish": "soup"}),
        ("result", "call_1", "soup, hot"),
    ]


async def test_a_result_that_is_left_out_is_still_a_result_for_the_provider(
    tmp_path: Path, kind: str
) -> None:
    @tool
    def look() -> str:
        """Look."""
        return "x" * 20_000

    scripted = ScriptedModel(calls("look", id="call_1"), overflows(), says("Much."))
    async with served(scripted) as endpoint:
        cls = roomy(ADAPTERS[kind](endpoint), None, get_tools=lambda self: [look])
        result = await asked(tmp_path, cls, "Look.")

    assert result.text == "Much."
    assert pairs(scripted.last_request)[-1][2].startswith("[This result of")


async def test_too_many_requests_are_no_overflow(tmp_path: Path, kind: str) -> None:
    def busy(request: Request) -> Play:
        return fails("Too many tokens per minute, please wait.", kind="rate_limit", retry_after=0)

    scripted, fn = ScriptedModel(busy, says("Now.")), Shortener()
    async with served(scripted) as endpoint:
        result = await asked(tmp_path, roomy(ADAPTERS[kind](endpoint), fn), "And a wasp?")
    assert (result.text, fn.asked) == ("Now.", 0)


@pytest.mark.case(394)
@pytest.mark.parametrize(
    "text",
    [
        # Google
        "The input token count (1048577) exceeds the maximum number of tokens allowed (1048576).",
        "400 INVALID_ARGUMENT. {'error': {'message': 'The input token count exceeds the maximum.'}}",
        # Bedrock
        "ValidationException: Input is too long for requested model.",
        "The model returned the following errors: prompt is too long: 210000 tokens > 200000 maximum",
        "ValidationException: Too many input tokens. Max input tokens: 128000, request input token count: 9",
        # Others
        "Please reduce the length of the messages or completion.",
        '{"code": "context_length_exceeded"}',
    ],
)
def test_how_google_bedrock_and_others_say_it(text: str) -> None:
    for error in (text, Exception(text), {"error": {"message": text}}, classify(Exception(text), model="m")):
        assert default_context_overflow_classifier(error) == "context_overflow"


@pytest.mark.case(394)
@pytest.mark.parametrize(
    "error",
    [
        None, "", 0, object(), [], {"error": None}, "The service is overloaded.", Exception(),
        "max_tokens: 9000 > 8192, which is the maximum allowed number of output tokens", ModelError("no"),
    ],
)  # fmt: skip
def test_other_things_are_no_overflow(error: object) -> None:
    assert default_context_overflow_classifier(error) is None
