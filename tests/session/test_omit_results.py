"""Leaving tool results out of a prompt that does not fit."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everthink.messages import encode_json
from everthink.models import port as model
from everthink.prompt.convert import paired
from everthink.session.omit_results import choose, slimmed
from everthink.testing.scripted_rules import check
from tests.support.conversations import prompts, unhurried

QUESTION = model.UserMessage([model.TextPart("go on")])


def step(id: str, output: Any, **more: Any) -> list[model.ModelMessage]:
    """A call and its result."""
    return [
        model.AssistantMessage([model.ToolCallPart(id, "read", {"path": id})]),
        model.ToolMessage([model.ToolResultPart(id, "read", output, **more)]),
    ]


def conversation(*sizes: int) -> list[model.ModelMessage]:
    """A question, and a call for each size, named 0, 1, 2…"""
    made: list[model.ModelMessage] = [QUESTION]
    for number, size in enumerate(sizes):
        made += step(str(number), "x" * size)
    return made


def weight(messages: list[model.ModelMessage]) -> int:
    return sum(len(encode_json(message)) for message in messages)


def results(messages: list[model.ModelMessage]) -> dict[str, model.ToolResultPart]:
    return {
        part.id: part
        for message in messages
        if isinstance(message, model.ToolMessage)
        for part in message.content
        if isinstance(part, model.ToolResultPart)
    }


# --- showing


def test_without_anything_to_omit_the_prompt_is_the_very_same_list() -> None:
    messages = conversation(1000, 2000)
    assert slimmed(messages, omitted=set()) is messages
    assert slimmed(tuple(messages), omitted=set()) == messages


def test_an_omitted_result_says_how_large_it_was_and_its_call_stays() -> None:
    messages = conversation(12_345, 2000)
    shown = slimmed(messages, omitted={"0"})
    note = results(shown)["0"].output
    assert note == "[This result of 12345 characters was left out to make room.]"
    assert results(shown)["1"].output == "x" * 2000
    # the call, and messages without such a result, are the same objects
    assert [a is b for a, b in zip(shown, messages, strict=True)] == [True, True, False, True, True]
    # and what was given is as it was
    assert messages == conversation(12_345, 2000)


def test_files_in_a_result_are_left_out_with_it() -> None:
    picture = model.FilePart("data:image/png;base64," + "A" * 9000, "image/png")
    messages = [QUESTION, *step("0", "[file: image/png]", content=[model.TextPart("seen"), picture])]
    result = results(slimmed(messages, omitted={"0"}))["0"]
    assert result.content is None
    assert "9026 characters" in result.output


def test_an_error_stays_an_error_and_keeps_what_its_provider_needs() -> None:
    messages = step("0", "x" * 9000, is_error=True, provider_metadata={"anthropic": {"k": 1}})
    result = results(slimmed(messages, omitted={"0"}))["0"]
    assert (result.is_error, result.name, result.provider_metadata) == (
        True,
        "read",
        {"anthropic": {"k": 1}},
    )


def test_a_result_shorter_than_the_note_stays() -> None:
    messages = conversation(10)
    assert slimmed(messages, omitted={"0"}) == messages


def test_objects_are_measured_by_their_json() -> None:
    messages = [QUESTION, *step("0", {"rows": ["y" * 1000] * 3})]
    assert "3019 characters" in results(slimmed(messages, omitted={"0"}))["0"].output


def test_what_the_provider_ran_itself_is_given_back_as_it_was() -> None:
    messages: list[model.ModelMessage] = [
        QUESTION,
        model.AssistantMessage(
            [
                model.ToolCallPart("0", "web_search", {}, provider_executed=True),
                model.ToolResultPart("0", "web_search", ["x" * 9000], provider_executed=True),
            ]
        ),
    ]
    assert choose(messages, omitted=set()) == set()
    assert slimmed(messages, omitted={"0"}) == messages


# --- choosing


def test_the_largest_old_results_go_first_until_half_is_gone() -> None:
    # Given old results of which the two largest are more than half
    messages = conversation(4000, 9000, 3000, 8000, 2000, 600, 600)
    assert choose(messages, omitted=set()) == {"1", "3"}
    # and of which one is
    assert choose(conversation(1000, 90_000, 3000, 8000, 600, 600), omitted=set()) == {"1"}


def test_recent_results_stay_while_old_ones_suffice() -> None:
    # The last four messages are the two last calls with their results.
    messages = conversation(5000, 5000, 5000, 5000, 4000, 4000)
    assert choose(messages, omitted=set()) == {"0", "1", "2"}
    messages = conversation(6000, 6000, 500, 9000, 900)
    assert choose(messages, omitted=set()) == {"0", "1"}


def test_recent_results_follow_when_old_ones_do_not_suffice() -> None:
    messages = conversation(800, 700, 700, 50_000, 2000)
    assert choose(messages, omitted=set()) == {"0", "1", "2", "3"}
    assert choose(messages, omitted=set(), keep=0) == {"3"}


def test_only_results_worth_it_are_chosen() -> None:
    assert choose(conversation(500, 500, 500), omitted=set()) == set()
    assert choose(conversation(501, 500, 500), omitted=set()) == {"0"}
    assert choose([QUESTION], omitted=set()) == set()
    assert choose([], omitted=set()) == set()


def test_what_is_omitted_already_is_not_chosen_again_and_no_longer_counts() -> None:
    messages = conversation(90_000, 9000, 4000, 3000, 600, 600)
    assert choose(messages, omitted={"0"}) == {"1"}
    assert choose(messages, omitted={"0", "1"}) == {"2", "3"}


def test_choosing_again_and_again_comes_to_an_end() -> None:
    messages = conversation(9000, 8000, 7000, 6000, 5000, 4000, 3000)
    omitted: set[str] = set()
    sizes = [weight(messages)]
    while more := choose(messages, omitted=omitted):
        assert not more & omitted
        omitted |= more
        sizes.append(weight(slimmed(messages, omitted=omitted)))
    assert omitted == set("0123456")
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] < 2500


def test_equal_results_go_from_the_oldest_on() -> None:
    assert choose(conversation(*[1000] * 6), omitted=set()) == {"0", "1", "2", "3"}


def test_results_that_share_an_id_go_together_and_count_together() -> None:
    # Given a provider that gave three calls the same id, the last of them just now
    messages = [
        QUESTION,
        *step("0", "x" * 3000),
        *step("1", "y" * 4000),
        *step("0", "x" * 3000),
        *step("2", "z"),
    ]
    # Then they are recent: the other one goes first
    assert choose(messages, omitted=set()) == {"0", "1"}
    assert choose(messages, omitted=set(), keep=0) == {"0"}


def test_files_count_when_choosing() -> None:
    picture = model.FilePart("data:image/png;base64," + "A" * 9000, "image/png")
    messages = [QUESTION, *step("pic", "[file]", content=[picture]), *conversation(2000, 600, 600)]
    assert choose(messages, omitted=set()) == {"pic"}


# --- whatever the prompt

ids = st.sampled_from(["call_1", "call_2", "call_3"])
sizes = st.integers(0, 3000)


@st.composite
def heavy_prompts(draw: st.DrawFn) -> list[model.ModelMessage]:
    """Prompts of any kind whose results may be large."""
    made: list[model.ModelMessage] = []
    for message in draw(prompts):
        if isinstance(message, model.ToolMessage):
            message = model.ToolMessage(
                [
                    model.ToolResultPart(part.id, part.name, "x" * draw(sizes))
                    if isinstance(part, model.ToolResultPart)
                    else part
                    for part in message.content
                ]
            )
        made.append(message)
    return made


def shape(messages: list[model.ModelMessage]) -> list[Any]:
    """Who says what kind of thing about which call, in order."""
    return [
        (type(m).__name__, [(type(p).__name__, getattr(p, "id", None)) for p in getattr(m, "content", [])])
        for m in messages
    ]


@unhurried
@given(heavy_prompts(), st.sets(ids))
def test_a_slim_prompt_is_paired_as_the_full_one_was(
    messages: list[model.ModelMessage], omitted: set[str]
) -> None:
    shown = slimmed(messages, omitted=omitted)
    assert shape(paired(shown)) == shape(paired(messages))
    assert weight(shown) <= weight(messages)
    check(model.Request("", [*paired(shown), QUESTION]))


@unhurried
@given(heavy_prompts(), st.sets(ids), st.integers(0, 5))
def test_what_is_chosen_makes_any_prompt_smaller_until_nothing_is_left(
    messages: list[model.ModelMessage], omitted: set[str], keep: int
) -> None:
    chosen = choose(messages, omitted=omitted, keep=keep)
    assert not chosen & omitted
    assert choose(list(messages), omitted=omitted, keep=keep) == chosen
    if chosen:
        assert weight(slimmed(messages, omitted=omitted | chosen)) < weight(
            slimmed(messages, omitted=omitted)
        )
    else:
        large = [p for p in results(slimmed(messages, omitted=omitted)).values() if len(p.output) > 500]
        assert not large


@pytest.mark.parametrize("keep", [0, 4])
def test_at_least_half_goes_when_there_is_that_much(keep: int) -> None:
    messages = conversation(700, 2500, 1300, 900, 4100, 600, 5000)
    chosen = choose(messages, omitted=set(), keep=keep)
    assert weight(slimmed(messages, omitted=chosen)) < weight(messages) * 0.6
