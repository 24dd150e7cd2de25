"""The seam: the words of a model that goes on, joined to those that readers have."""

from __future__ import annotations

import itertools
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everthink.errors import ModelError
from everthink.models import port as model
from everthink.turn.rejoin import (
    CUT,
    LOOKS_BACK,
    SURE,
    Seam,
    made_again,
    rejoin,
)

pytestmark = pytest.mark.anyio

quickly = settings(max_examples=150, deadline=None, database=None)


def joined(said: str, *deltas: str, trims: bool = True) -> str:
    """The whole text a reader ends up with."""
    seam = Seam(said, trims=trims)
    return said + "".join(seam.take(delta) for delta in deltas) + seam.close()


# Every word occurs once, so that a repetition is one.
WORD = st.sampled_from(["Paris", "is", "the", "Hauptstadt", "größe", "a1", "日本語", "don't", "ok", "x_y"])
GAP = st.sampled_from([" ", "\n", ", ", "\n\n", ". ", " — "])


@st.composite
def texts(draw: st.DrawFn) -> str:
    pieces = draw(st.lists(st.tuples(WORD, GAP), min_size=1, max_size=14))
    return "".join(f"{number:02d}{word}{gap}" for number, (word, gap) in enumerate(pieces, 10))


@st.composite
def cut_texts(draw: st.DrawFn) -> tuple[str, str]:
    """A text, in two: what was said, and the rest."""
    text = draw(texts())
    place = draw(st.integers(1, len(text)))
    return text[:place], text[place:]


@st.composite
def deltas_of(draw: st.DrawFn, text: str) -> list[str]:
    """The text in pieces of any size."""
    places = sorted(draw(st.sets(st.integers(0, len(text)), max_size=12)))
    edges = [0, *places, len(text)]
    return [text[start:end] for start, end in itertools.pairwise(edges)]


# --- properties


@quickly
@given(cut_texts(), st.data())
def test_a_model_that_goes_on_exactly_loses_nothing(cut: tuple[str, str], data: st.DataObject) -> None:
    said, rest = cut
    assert joined(said, *data.draw(deltas_of(rest))) == said + rest


@quickly
@given(cut_texts(), st.data())
def test_a_model_that_starts_from_the_beginning_is_heard_once(
    cut: tuple[str, str], data: st.DataObject
) -> None:
    said, rest = cut
    assert joined(said, *data.draw(deltas_of(said + rest))) == said + rest


@quickly
@given(cut_texts(), st.integers(1, 8), st.data())
def test_a_model_that_repeats_its_last_words_is_heard_once(
    cut: tuple[str, str], back: int, data: st.DataObject
) -> None:
    said, rest = cut
    begins = [found.start() for found in re.finditer(r"\S+", said)][-back:]
    again = said[begins[0] :]
    if re.search(r"\w{2}", again) is None:
        return  # one letter of a word: nothing to be sure of
    assert joined(said, *data.draw(deltas_of(again + rest))) == said + rest


@quickly
@given(st.text("ab \n.", min_size=1, max_size=30), st.text("ab \n.", max_size=30), st.data())
def test_whatever_is_taken_out_is_no_small_coincidence(said: str, rest: str, data: st.DataObject) -> None:
    # Given texts that repeat themselves all the time
    whole = joined(said, *data.draw(deltas_of(rest)))

    # Then what follows is the end of the new text, and what is missing had been said just before
    assert whole.startswith(said)
    shown = whole[len(said) :]
    assert rest.endswith(shown)
    trimmed = rest[: len(rest) - len(shown)]
    assert said.endswith(trimmed)
    # all of it, a long piece of it, or whole words
    before = said[: len(said) - len(trimmed)]
    in_word = bool(before) and before[-1].isalnum() and trimmed[:1].isalnum()
    is_words = not in_word and re.search(r"\w{2}", trimmed) is not None
    assert trimmed == "" or trimmed == said or len(trimmed) >= SURE or is_words


@quickly
@given(st.text("ab \n.", min_size=1, max_size=30), st.text("ab \n.", max_size=60), st.data())
def test_how_the_text_is_cut_into_deltas_changes_nothing(said: str, rest: str, data: st.DataObject) -> None:
    assert joined(said, *data.draw(deltas_of(rest))) == joined(said, rest) == joined(said, *rest)


@quickly
@given(cut_texts(), st.data())
def test_a_model_that_continues_by_itself_is_only_relieved_of_white_space(
    cut: tuple[str, str], data: st.DataObject
) -> None:
    said, rest = cut
    ended = said[len(said.rstrip()) :]
    # It says the white space again that had to be taken off its end, or does not
    for again in (ended, "") if rest[:1].strip() or not rest else (ended,):
        assert joined(said, *data.draw(deltas_of(again + rest)), trims=False) == said + rest


# --- examples


@pytest.mark.parametrize(
    ("said", "deltas", "whole"),
    [
        ("The capital is ", ["Paris."], "The capital is Paris."),
        ("The capital is ", ["The capital", " is Paris."], "The capital is Paris."),
        ("The capital is Par", ["is Paris."], "The capital is Paris."),
        ("The capital is Par", ["is."], "The capital is Paris."),
        ("The capital is Paris.", ["The capital is Paris."], "The capital is Paris."),
        # A letter or a mark is no repetition
        ("It is a", ["a-ha moment"], "It is aa-ha moment"),
        ("Well.", [".."], "Well..."),
        ("1, 2, 3, ", ["4, 5"], "1, 2, 3, 4, 5"),
        # nor is the end of one word the beginning of another
        ("a banana", ["na split"], "a bananana split"),
        ("", ["Paris."], "Paris."),
        ("Paris", [], "Paris"),
        ("Paris", ["", ""], "Paris"),
    ],
)
def test_what_readers_end_up_with(said: str, deltas: list[str], whole: str) -> None:
    assert joined(said, *deltas) == whole


def test_text_is_held_back_only_while_it_may_be_a_repetition() -> None:
    seam = Seam("The capital of France is ")
    assert seam.take("The cap") == ""
    assert seam.take("tain says") == "The captain says"
    assert seam.take(" The capital") == " The capital"
    assert seam.close() == ""


def test_what_is_held_back_at_the_end_is_shown_when_it_is_none() -> None:
    seam = Seam("The capital of France is ")
    assert (seam.take("The cap"), seam.close()) == ("", "The cap")


def test_a_repetition_is_found_in_a_very_long_answer_at_its_end_and_from_its_start() -> None:
    said = "".join(f"word {number} " for number in range(3000))
    assert len(said) > 5 * LOOKS_BACK
    assert joined(said, said[-LOOKS_BACK + 10 :] + "and on") == said + "and on"
    assert joined(said, *[said[i : i + 7] for i in range(0, len(said), 7)], "and on") == said + "and on"


# --- among a model's events


async def events_of(*events: Any) -> AsyncIterator[Any]:
    for event in events:
        yield event


async def through(said: str, *events: Any, is_open: bool = True, trims: bool = True) -> tuple[list[Any], int]:
    """What comes out, and how often something was heard that does not."""
    heard: list[None] = []
    out = rejoin(events_of(*events), said, is_open=is_open, trims=trims, heard=lambda: heard.append(None))
    return [event async for event in out], len(heard)


START, END = model.TextStart("t"), model.TextEnd("t")


def delta(text: str, id: str = "t") -> model.TextDelta:
    return model.TextDelta(id, text)


FINISH = model.Finish("stop")


async def test_the_first_block_goes_on_with_the_one_that_was_cut_off() -> None:
    out, _ = await through("One two ", START, delta("two "), delta("three"), END, FINISH)
    assert out == [delta("three", CUT), model.TextEnd(CUT), FINISH]


async def test_blocks_after_the_first_are_left_alone() -> None:
    more = [model.TextStart("u"), delta("two ", "u"), model.TextEnd("u")]
    out, _ = await through("One two ", START, delta("three"), END, *more, FINISH)
    assert out == [delta("three", CUT), model.TextEnd(CUT), *more, FINISH]


async def test_a_block_that_is_complete_is_followed_by_one_of_its_own() -> None:
    out, _ = await through("One two ", START, delta("two three"), END, FINISH, is_open=False)
    assert out == [START, delta("three"), END, FINISH]


@pytest.mark.parametrize("is_open", [True, False])
async def test_a_model_that_only_repeats_adds_nothing(is_open: bool) -> None:
    out, heard = await through("One two ", START, delta("One "), delta("two "), END, FINISH, is_open=is_open)
    assert out == ([model.TextEnd(CUT)] if is_open else []) + [FINISH]
    assert heard == 2


async def test_a_model_that_says_nothing_more_ends_the_block() -> None:
    assert (await through("One two ", FINISH))[0] == [model.TextEnd(CUT), FINISH]


async def test_thinking_about_how_to_go_on_is_heard_and_not_shown() -> None:
    thinking = [model.ReasoningStart("r"), model.ReasoningDelta("r", "hm"), model.ReasoningEnd("r")]
    out, heard = await through("One ", *thinking, START, delta("two"), END, *thinking, FINISH)
    assert out == [delta("two", CUT), model.TextEnd(CUT), *thinking, FINISH]
    assert heard == 3


async def test_a_call_ends_the_block_before_it_begins() -> None:
    call = model.ToolCallReady("c", "look", "{}")
    out, _ = await through("One two ", START, delta("two "), END, call, FINISH)
    assert out == [model.TextEnd(CUT), call, FINISH]
    assert (await through("One two ", call, FINISH))[0] == [model.TextEnd(CUT), call, FINISH]


async def test_a_failure_shows_what_was_held_back_and_leaves_the_block_open() -> None:
    failed = model.Failed(ModelError("no more", kind="fatal"))
    out, _ = await through("One two ", START, delta("On"), failed)
    assert out == [delta("On", CUT), failed]


# --- calls that were half made


def half(name: str, id: str) -> dict[str, Any]:
    return {"type": f"tool-{name}", "toolCallId": id, "toolName": name, "state": "input-streaming"}


async def test_a_call_that_is_made_again_takes_the_place_of_the_one_half_made() -> None:
    left, heard = [half("look", "old"), half("dig", "other")], list[None]()
    events = [
        model.ToolInputStart("new", "look"),
        model.ToolInputDelta("new", "{}"),
        model.ToolCallReady("new", "look", "{}"),
        model.ToolCallReady("more", "look", "{}"),
        FINISH,
    ]
    out = [e async for e in made_again(events_of(*events), left, heard=lambda: heard.append(None))]
    # The first of that name is the one; the next one is new; what is not made again is left
    assert out == [model.ToolCallReady("old", "look", "{}"), events[3], FINISH]
    assert [part["toolCallId"] for part in left] == ["other"]
    assert len(heard) == 2
