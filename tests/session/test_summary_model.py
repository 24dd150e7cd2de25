"""Summaries by a model, and conversations whose calls lost their results."""

from __future__ import annotations

import asyncio
import logging

import pytest

from everthink.errors import ModelError
from everthink.messages import Message
from everthink.models.port import Settings, TextPart, UserMessage
from everthink.session.summary import (
    CompactContext,
    Compaction,
    create_compact_function,
    model_summarizer,
)
from everthink.testing.scripted import ScriptedModel, fails, says, thinks
from everthink.testing.scripted_plays import Play

pytestmark = pytest.mark.anyio

TALK = [Message(f"m{n}", "user", [{"type": "text", "text": f"turn {n}"}]) for n in range(10)]


async def test_a_model_is_asked_for_the_summary_and_only_its_words_count() -> None:
    model = ScriptedModel(thinks("Let me see.").says("## Topic\n", "Rome"))
    compact = create_compact_function(summarize=model_summarizer(model), tail_token_budget=0)
    assert await compact(TALK, CompactContext()) == Compaction("m3", "m7", "## Topic\nRome")

    # It was shown the turns in one question, with no tools to call.
    request = model.last_request
    [question] = request.messages
    assert isinstance(question, UserMessage)
    [part] = question.content
    assert isinstance(part, TextPart)
    assert "[user]\nturn 3\n" in part.text
    assert "turn 8" not in part.text
    assert (request.tools, request.system) == ([], "You summarize conversations, faithfully and briefly.")


async def test_the_model_may_be_found_when_it_is_needed() -> None:
    model = ScriptedModel(says("one"), says("two"))

    async def found() -> ScriptedModel:
        return model

    assert await model_summarizer(lambda: model)("?") == "one"
    assert await model_summarizer(found)("?") == "two"


async def test_settings_go_to_the_model() -> None:
    model = ScriptedModel(says("one"))
    await model_summarizer(model, settings=Settings(max_output_tokens=500))("?")
    assert model.last_request.settings.max_output_tokens == 500


@pytest.mark.parametrize(
    "play", [fails("Slow down.", kind="rate_limit"), says("half").then_fails("Slow down.", kind="rate_limit")]
)
async def test_the_models_error_is_raised_and_half_a_summary_is_none(play: Play) -> None:
    compact = create_compact_function(summarize=model_summarizer(ScriptedModel(play)), tail_token_budget=0)
    with pytest.raises(ModelError, match=r"Slow down\.") as raised:
        await compact(TALK, CompactContext())
    assert raised.value.kind == "rate_limit"


async def test_a_summary_that_the_provider_filtered_is_an_error() -> None:
    model = ScriptedModel(says("half").finishes("content-filter"), name="careful")
    with pytest.raises(ModelError, match="'careful' ended its answer with 'content-filter'"):
        await model_summarizer(model)("?")


async def test_a_summary_cut_off_by_its_length_is_taken_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING, logger="everthink.session"):
        assert await model_summarizer(ScriptedModel(says("long").finishes("length")))("?") == "long"
    assert "cut off by its own limit" in caplog.text


async def test_cancelling_closes_the_models_answer() -> None:
    model = ScriptedModel(says("so far").then_hangs())
    task = asyncio.ensure_future(model_summarizer(model)("?"))
    await model.until_silent()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await model.until_cut_off()
    assert model.cut_off == 1
