"""A long middle is summarized in pieces: no prompt is too large, nothing is left out, and it ends."""

from __future__ import annotations

import logging
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everthink.messages import Message
from everthink.models.tokens import estimate_tokens
from everthink.session.summary import CompactContext, Compaction, create_compact_function
from tests.support.conversations import unhurried

pytestmark = pytest.mark.anyio


def talk(texts: list[str]) -> list[Message]:
    """A head of three, the texts, and a tail of two."""
    parts = ["head", "head", "head", *texts, "tail", "tail"]
    return [Message(f"m{n}", "assistant", [{"type": "text", "text": text}]) for n, text in enumerate(parts)]


async def compacted(
    texts: list[str], answer: Any = None, **options: Any
) -> tuple[Compaction | None, list[str]]:
    prompts: list[str] = []

    def summarize(prompt: str) -> str:
        prompts.append(prompt)
        return answer(len(prompts)) if answer else f"summary {len(prompts)}"

    compact = create_compact_function(summarize=summarize, tail_token_budget=0, **options)
    return await compact(talk(texts), CompactContext()), prompts


def turns(prompt: str) -> str:
    found = re.search(r"TURNS:\n\n(.*)\n\n\(end of turns\)", prompt, re.S)
    assert found is not None
    return found[1]


async def test_what_fits_one_prompt_is_asked_for_once() -> None:
    found, prompts = await compacted([f"turn {n}" for n in range(1000)])
    assert found == Compaction("m3", "m1002", "summary 1")
    assert len(prompts) == 1


async def test_five_thousand_messages_are_summarized_piece_by_piece() -> None:
    # Given about 250,000 tokens of turns
    texts = [f"<{n}> " + "word " * 38 for n in range(5000)]
    found, prompts = await compacted(texts)

    # Then several prompts are asked, none of them too large
    assert 4 <= len(prompts) <= 10
    assert max(map(estimate_tokens, prompts)) <= 60_000
    # and each updates the summary of those before it
    assert "SUMMARY SO FAR" not in prompts[0]
    for number, prompt in enumerate(prompts[1:], 1):
        assert f"SUMMARY SO FAR:\n\nsummary {number}\n\nNEW TURNS:" in prompt
    # and every turn was shown once, in order
    shown = [int(n) for prompt in prompts for n in re.findall(r"<(\d+)>", prompt)]
    assert shown == list(range(5000))
    # and the last one counts
    assert found == Compaction("m3", "m5002", f"summary {len(prompts)}")


async def test_a_message_too_long_for_one_prompt_is_read_to_its_end() -> None:
    text = " ".join(f"w{n}" for n in range(3000))
    found, prompts = await compacted(["before", text, "after"], max_prompt_tokens=2000)
    assert found is not None
    assert max(map(estimate_tokens, prompts)) <= 2000
    # Nothing is lost at the seams.
    assert text in "".join(turns(prompt).replace("\n\n---\n\n", "\n") for prompt in prompts)
    assert "after" in prompts[-1]


async def test_scripts_that_take_a_token_for_each_character_are_not_taken_for_short() -> None:
    _, prompts = await compacted(["語" * 30_000], max_prompt_tokens=10_000)
    assert sum(turns(prompt).count("語") for prompt in prompts) == 30_000
    assert max(map(len, prompts)) <= 12_500


async def test_a_summary_that_grows_without_end_is_cut_before_it_is_updated(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING, logger="everthink.session"):
        found, prompts = await compacted(
            ["x" * 2000] * 10, lambda n: f"{n} " + "y" * 100_000, max_prompt_tokens=2000
        )
    assert found is not None
    assert max(map(estimate_tokens, prompts)) <= 2000
    assert "too long to be updated; it is cut" in caplog.text


async def test_the_summary_asked_for_leaves_room_for_turns() -> None:
    _, prompts = await compacted(["x" * 4000] * 1000)
    assert all("about 15000 tokens" in prompt for prompt in prompts)


async def test_a_piece_without_a_summary_leaves_everything_as_it_was() -> None:
    found, prompts = await compacted(
        ["x" * 4000] * 10, lambda n: "" if n == 2 else "so far", max_prompt_tokens=2000
    )
    assert found is None
    assert len(prompts) == 2


texts = st.lists(
    st.builds(
        lambda piece, times: piece * times,
        st.sampled_from(["x", "word ", "語", "😀 ", "\n", "a\n---\nb"]),
        st.integers(0, 2500),
    ),
    min_size=1,
    max_size=12,
)


@unhurried
@given(texts, st.integers(1000, 3000), st.sampled_from([1, 300, 5000, 20_000]))
async def test_whatever_is_said_prompts_stay_small_and_it_ends(
    said: list[str], limit: int, answered: int
) -> None:
    found, prompts = await compacted(said, lambda _: "s" * answered, max_prompt_tokens=limit)
    assert found is not None
    for prompt in prompts:
        assert estimate_tokens(prompt) <= limit
        assert len(prompt.encode()) / 3.5 <= limit
    # Every character was shown, in order.
    shown = "".join(turns(prompt) for prompt in prompts)
    wanted = "".join(f"[assistant]{text}" for text in said)
    assert re.sub(r"\s|---", "", shown) == re.sub(r"\s|---", "", wanted)
