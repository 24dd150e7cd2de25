"""How blocks read in the system prompt."""

from __future__ import annotations

from typing import Any

import pytest

from everthink.context.blocks import (
    Abilities,
    ContextBlock,
    abilities_of,
    read_block,
    render,
    usage,
)
from tests.support.context import Index, Library, Notes, Sign

RULE = "═" * 46


def block(content: str = "", **options: Any) -> ContextBlock:
    return ContextBlock("memory", content=content, **options)


@pytest.mark.memory_case(85, 90)
def test_a_block_is_plain_text_between_rules() -> None:
    made = block("Likes tea.", description="What we know", tokens=11, max_tokens=1100, writable=True)
    assert render([made]) == (
        f"{RULE}\nMEMORY (What we know) [1% — 11/1100 tokens] [writable]\n{RULE}\nLikes tea."
    )


def test_blocks_stand_in_their_order_with_one_blank_line_between() -> None:
    made = [ContextBlock("soul", content="Be kind."), block("Likes tea.", writable=True)]
    assert render(made) == (
        f"{RULE}\nSOUL [readonly]\n{RULE}\nBe kind.\n\n{RULE}\nMEMORY [writable]\n{RULE}\nLikes tea."
    )


@pytest.mark.memory_case(91, 92, 93, 94)
@pytest.mark.parametrize(
    ("options", "tag"),
    [
        ({"writable": True}, "writable"),
        ({"is_skill": True}, "loadable"),
        ({"is_skill": True, "writable": True}, "loadable"),
        ({"is_searchable": True}, "searchable"),
        ({"is_searchable": True, "is_skill": True, "writable": True}, "searchable"),
    ],
)
def test_an_empty_block_that_can_be_used_is_shown_with_its_one_tag(options: Any, tag: str) -> None:
    assert render([block(**options)]) == f"{RULE}\nMEMORY [{tag}]\n{RULE}\n"


@pytest.mark.memory_case(94)
def test_an_empty_block_that_can_only_be_read_is_left_out() -> None:
    assert render([block()]) == ""
    assert "[readonly]" in render([block("x")])


@pytest.mark.memory_case(95)
def test_a_searchable_header_has_label_description_and_tag() -> None:
    assert "\nMEMORY (Facts) [searchable]\n" in render([block(description="Facts", is_searchable=True)])


@pytest.mark.parametrize(
    ("tokens", "most", "percent"),
    [(0, 10, 0), (1, 200, 1), (1, 201, 0), (5, 1000, 1), (25, 1000, 3), (2, 3, 67), (3, 2, 150)],
)
def test_percentages_are_rounded_half_up(tokens: int, most: int, percent: int) -> None:
    made = block("x", tokens=tokens, max_tokens=most)
    assert f"[{percent}% — {tokens}/{most} tokens]" in render([made])
    assert usage(made) == f"{percent}% ({tokens}/{most} tokens)"


def test_without_a_limit_usage_is_a_number() -> None:
    assert usage(block("x", tokens=7)) == "7 tokens"


@pytest.mark.parametrize(
    ("provider", "abilities"),
    [
        ("text", Abilities()),
        (lambda: "text", Abilities()),
        (Sign(), Abilities()),
        (Notes(), Abilities(can_set=True)),
        (Library(), Abilities(can_set=True, can_load=True)),
        (Index(), Abilities(can_search=True)),
    ],
)
def test_what_a_provider_can_do_is_read_off_its_methods(provider: Any, abilities: Abilities) -> None:
    assert abilities_of(provider) == abilities


def test_a_provider_may_say_that_its_set_is_not_for_the_model() -> None:
    notes = Notes()
    notes.writable = False  # type: ignore[attr-defined]
    assert abilities_of(notes) == Abilities()


def test_a_block_knows_its_tokens() -> None:
    made = read_block("memory", "x" * 400, Abilities(can_set=True), max_tokens=200)
    assert (made.tokens, made.max_tokens, made.writable, made.is_keyed) == (100, 200, True, False)
