"""The ready-made compaction function: which messages it takes, and what it asks."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everthink.clock import EPOCH
from everthink.messages import Message, copy_json
from everthink.models.tokens import TokenCount, estimate_messages
from everthink.session.overlay import Overlay, applied, is_overlay
from everthink.session.summary import CompactContext, Compaction, create_compact_function
from tests.support.conversations import unhurried

pytestmark = pytest.mark.anyio

PLAIN = CompactContext()


class Summarizer:
    """Remembers what it was asked, and numbers its answers."""

    def __init__(self, *answers: str) -> None:
        self.prompts: list[str] = []
        self._answers = list(answers)

    def __call__(self, prompt: str) -> str:
        self.prompts.append(prompt)
        return self._answers.pop(0) if self._answers else f"summary {len(self.prompts)}"


def said(id: str, text: str = "hello", role: Any = None) -> Message:
    role = role or ("user" if int(id[1:]) % 2 else "assistant")
    return Message(id, role, [{"type": "text", "text": text}])


def talk(count: int, text: str = "hello") -> list[Message]:
    """m1, m2, … from user and assistant by turns."""
    return [said(f"m{n}", text) for n in range(1, count + 1)]


def overlay(id: str, text: str) -> Message:
    return Message(f"compaction_{id}", "assistant", [{"type": "text", "text": text}])


def tool(id: str, **more: Any) -> dict[str, Any]:
    return {"type": "tool-read", "toolCallId": id, "state": "input-available", "input": {"path": id}, **more}


def result(id: str) -> dict[str, Any]:
    return {"type": "tool-result", "toolCallId": id, "output": "done"}


async def compacted(
    messages: Sequence[Message], context: CompactContext = PLAIN, **options: Any
) -> tuple[Compaction | None, list[str]]:
    summarize = Summarizer()
    compact = create_compact_function(summarize=summarize, **options)
    return await compact(messages, context), summarize.prompts


async def ends(messages: Sequence[Message], **options: Any) -> tuple[str, str] | None:
    found, _ = await compacted(messages, **options)
    return (found.from_message_id, found.to_message_id) if found else None


# --- head and tail


@pytest.mark.memory_case(79)
async def test_too_few_messages_for_head_and_tail_are_left_and_nobody_is_asked() -> None:
    for count in range(6):
        assert await compacted(talk(count), tail_token_budget=0) == (None, [])
    assert await compacted(talk(9), protect_head=4, min_tail_messages=5, tail_token_budget=0) == (None, [])


@pytest.mark.memory_case(80)
async def test_what_lies_between_head_and_tail_is_summarized() -> None:
    found, prompts = await compacted(talk(10), tail_token_budget=0)
    assert found == Compaction("m4", "m8", "summary 1")
    assert len(prompts) == 1
    assert await ends(talk(6), tail_token_budget=0) == ("m4", "m4")
    assert await ends(talk(10), protect_head=0, min_tail_messages=0, tail_token_budget=0) == ("m1", "m9")


async def test_the_tail_holds_what_its_budget_allows() -> None:
    # Each message is 4 + 2 tokens.
    assert await ends(talk(10), tail_token_budget=17) == ("m4", "m8")
    assert await ends(talk(10), tail_token_budget=18) == ("m4", "m7")
    assert await ends(talk(10), tail_token_budget=36) == ("m4", "m4")
    assert await ends(talk(10), tail_token_budget=42) is None


async def test_the_last_message_stays_however_large_it_is() -> None:
    messages = [*talk(9), said("m10", "x" * 100_000)]
    assert await ends(messages, tail_token_budget=100, min_tail_messages=0) == ("m4", "m9")
    assert await ends(messages, tail_token_budget=100) == ("m4", "m8")


async def test_by_default_the_tail_has_twenty_thousand_tokens() -> None:
    # A message of 16,000 characters is 4,004 tokens: four of them fit, five do not.
    assert await ends(talk(10, "x" * 16_000)) == ("m4", "m6")


@pytest.mark.memory_case(608)
async def test_of_twelve_messages_six_or_more_are_taken() -> None:
    messages = [
        said(f"m{n}", f"message number {n} " + "w " * 20, role="assistant" if n % 2 else "user")
        for n in range(12)
    ]
    found, prompts = await compacted(messages, tail_token_budget=60)
    assert found == Compaction("m3", "m9", "summary 1")
    assert "about 100 tokens" in prompts[0]
    # and with a summary of three of them in their place
    found, prompts = await compacted(
        [*messages[:3], overlay("1", "so far"), *messages[6:]], tail_token_budget=60
    )
    assert found == Compaction("m6", "m9", "summary 1")
    assert "SUMMARY SO FAR:\n\nso far" in prompts[0]


@pytest.mark.memory_case(81)
async def test_a_tail_that_only_seems_to_fit_is_kept_and_nobody_is_asked() -> None:
    # Given results whose files weigh far more than the estimate can see
    heavy = {"type": "file", "url": "data:image/png;base64," + "A" * 90_000, "mediaType": "image/png"}
    messages = [Message(m.id, m.role, [*m.parts, heavy]) for m in talk(20)]
    assert await compacted(messages) == (None, [])

    # When a counter knows what they weigh, they are compacted
    assert await ends(messages, token_counter=lambda some: 9000 * len(some)) == ("m4", "m18")


# --- counting


@pytest.mark.memory_case(82)
async def test_a_counter_of_its_own_moves_the_cut() -> None:
    asked: list[list[str]] = []

    async def counter(messages: Sequence[Message]) -> float:
        asked.append([message.id for message in messages])
        return 9999.5

    assert await ends(talk(10)) is None
    assert await ends(talk(10), token_counter=counter) == ("m4", "m8")
    # one message at a time, from the end, and no more than needed
    assert asked == [["m10"], ["m9"], ["m8"]]


@pytest.mark.memory_case(83)
async def test_without_one_the_session_counts() -> None:
    asked: list[TokenCount] = []

    def counter(count: TokenCount) -> int:
        asked.append(count)
        return 7000

    found, _ = await compacted(talk(10), CompactContext(counter))
    assert found is not None
    assert (found.from_message_id, found.to_message_id) == ("m4", "m8")
    assert [(m.messages[0].id, len(m.messages), m.system_prompt, len(m.context_blocks)) for m in asked] == [
        ("m10", 1, "", 0),
        ("m9", 1, "", 0),
        ("m8", 1, "", 0),
    ]
    # and its own goes before the session's
    found, _ = await compacted(talk(10), CompactContext(counter), token_counter=lambda _: 1)
    assert found is None
    assert len(asked) == 3


async def test_a_counter_that_always_counts_the_whole_prompt_leaves_the_smallest_tail() -> None:
    assert await ends(talk(10), token_counter=lambda _: 1_000_000) == ("m4", "m8")


async def test_a_counter_that_fails_is_heard() -> None:
    def counter(_: Sequence[Message]) -> int:
        raise RuntimeError("no tokenizer")

    with pytest.raises(RuntimeError, match="no tokenizer"):
        await compacted(talk(10), token_counter=counter)


# --- calls and their results


async def test_results_of_the_heads_last_call_stay_with_it() -> None:
    messages = talk(12)
    messages[2] = Message("m3", "assistant", [tool("a"), tool("b")])
    messages[3] = Message("m4", "assistant", [result("a")])
    messages[4] = Message("m5", "assistant", [result("b")])
    assert await ends(messages, tail_token_budget=0) == ("m6", "m10")


async def test_a_result_at_the_tails_beginning_takes_its_call_along() -> None:
    messages = talk(12)
    messages[8] = Message("m9", "assistant", [tool("a"), tool("b")])
    messages[9] = Message("m10", "assistant", [result("a")])
    messages[10] = Message("m11", "assistant", [result("b")])
    assert await ends(messages, tail_token_budget=0) == ("m4", "m8")


async def test_nothing_is_left_to_summarize_when_one_call_spans_the_middle() -> None:
    messages = [
        *talk(3),
        Message("m4", "assistant", [tool("a")]),
        Message("m5", "assistant", [tool("b")]),
        Message("m6", "assistant", [result("a"), result("b")]),
        said("m7"),
    ]
    assert await ends(messages, tail_token_budget=0) is None


async def test_ids_that_repeat_in_settled_calls_tie_nothing_together() -> None:
    # Given an agent that works alone, with a provider that gives every call the same id
    settled = tool("call_0", state="output-available", output="done")
    messages = [said("m1"), *(Message(f"m{n}", "assistant", [settled]) for n in range(2, 21))]
    assert await ends(messages, tail_token_budget=0) == ("m4", "m18")


@st.composite
def toolful(draw: st.DrawFn) -> list[Message]:
    """A conversation whose results stand somewhere after their calls, before a person speaks again."""
    made: list[Message] = []
    open_calls: list[str] = []
    for number in range(draw(st.integers(0, 30))):
        kind = draw(st.sampled_from(["text", "call", "call", "result", "result", "user"]))
        if kind == "user" and not open_calls:
            made.append(said(f"m{number}", role="user"))
        elif kind == "call":
            ids = [f"c{number}-{n}" for n in range(draw(st.integers(1, 3)))]
            open_calls += ids
            made.append(Message(f"m{number}", "assistant", [tool(id) for id in ids]))
        elif kind == "result" and open_calls:
            answered = draw(st.lists(st.sampled_from(open_calls), min_size=1, max_size=2, unique=True))
            open_calls = [id for id in open_calls if id not in answered]
            made.append(Message(f"m{number}", "assistant", [result(id) for id in answered]))
        else:
            made.append(said(f"m{number}", "x" * draw(st.integers(0, 400)), role="assistant"))
    if made and draw(st.booleans()):
        made.insert(draw(st.integers(0, len(made))), overlay("old", "before that"))
    return made


@unhurried
@given(toolful(), st.integers(0, 5), st.integers(0, 4), st.integers(0, 300))
async def test_no_cut_ever_parts_a_call_from_its_result(
    messages: list[Message], head: int, tail: int, budget: int
) -> None:
    before = copy_json([message.to_json() for message in messages])
    found, _ = await compacted(messages, protect_head=head, min_tail_messages=tail, tail_token_budget=budget)
    assert [message.to_json() for message in messages] == before
    if found is None:
        return

    # Then both ends are real messages, in order, and the head and the tail are outside
    places = {message.id: place for place, message in enumerate(messages) if not is_overlay(message)}
    first, last = places[found.from_message_id], places[found.to_message_id]
    assert first <= last <= len(messages) - max(1, tail) - 1
    if not any(map(is_overlay, messages)):
        assert first >= head

    # and each call is on the side of its result
    inside = {p["toolCallId"] for m in messages[first : last + 1] for p in m.tool_parts}
    outside = {p["toolCallId"] for m in [*messages[:first], *messages[last + 1 :]] for p in m.tool_parts}
    assert not inside & outside


# --- summaries of summaries


async def test_a_second_summary_is_told_the_first_and_ends_at_real_messages() -> None:
    messages = [*talk(3), overlay("1", "They met in Rome."), *talk(16)[9:]]
    found, prompts = await compacted(messages, tail_token_budget=0)
    assert found is not None
    assert (found.from_message_id, found.to_message_id) == ("m10", "m14")
    assert "SUMMARY SO FAR:\n\nThey met in Rome.\n\nNEW TURNS:" in prompts[0]
    assert prompts[0].count("They met in Rome.") == 1


async def test_overlays_alone_are_nothing_to_summarize() -> None:
    messages = [*talk(3), overlay("1", "a"), overlay("2", "b"), *talk(9)[7:]]
    assert await compacted(messages, tail_token_budget=0) == (None, [])


async def test_all_summaries_that_are_replaced_live_on_in_the_new_one() -> None:
    messages = [
        *talk(3),
        overlay("1", "They met."),
        said("m10"),
        overlay("2", "They parted."),
        *talk(24)[19:],
    ]
    _, prompts = await compacted(messages, tail_token_budget=0)
    assert "SUMMARY SO FAR:\n\nThey met.\n\nThey parted.\n\nNEW TURNS:" in prompts[0]


async def test_a_summary_that_stays_in_view_is_not_told_twice() -> None:
    messages = [*talk(8), overlay("1", "They parted."), *talk(24)[22:]]
    found, prompts = await compacted(messages, tail_token_budget=0, min_tail_messages=3)
    assert found == Compaction("m4", "m8", "summary 1")
    assert "They parted." not in prompts[0]


async def test_what_stands_after_a_summary_in_the_head_is_not_lost_under_the_next() -> None:
    # Given a summary among the messages that are protected: the next one will reach back over it
    messages = [said("m1"), overlay("1", "They met."), *talk(20)[9:]]
    found, prompts = await compacted(messages, tail_token_budget=0)
    assert found is not None
    # Then what follows the former summary is part of the new one
    assert (found.from_message_id, found.to_message_id) == ("m10", "m18")
    assert "They met." in prompts[0]


@pytest.mark.memory_case(84)
async def test_compacting_again_and_again_never_uses_an_overlay_as_an_end() -> None:
    messages, overlays = talk(8, "x" * 400), list[Overlay]()
    compact = create_compact_function(summarize=Summarizer(), tail_token_budget=150)
    for round in range(1, 20):
        shown = applied(messages, overlays)
        found = await compact(shown, PLAIN)
        assert found is not None
        places = {message.id: place for place, message in enumerate(messages)}
        assert {found.from_message_id, found.to_message_id} <= set(places)
        assert places[found.from_message_id] <= places[found.to_message_id]
        # As a session stores it: from where the earliest one in view begins.
        begins = overlays[0].from_message_id if overlays else found.from_message_id
        ends = found.to_message_id
        overlays.append(Overlay(str(round), begins, ends, found.summary, "asked", 0, EPOCH, round))
        assert [m.id for m in applied(messages, overlays)[:4]] == ["m1", "m2", "m3", f"compaction_{round}"]
        grown = len(messages)
        messages += [said(f"m{n}", "x" * 400) for n in range(grown + 1, grown + 5)]


# --- what is asked


async def prompt_for(*parts: dict[str, Any], role: Any = "assistant", **options: Any) -> str:
    messages = [*talk(3), Message("m4", role, list(parts)), *talk(6)[4:]]
    found, prompts = await compacted(messages, tail_token_budget=0, **options)
    assert found is not None
    return prompts[0]


async def test_a_prompt_has_its_four_sections_its_budget_and_only_asks_for_facts() -> None:
    prompt = await prompt_for({"type": "text", "text": "the red one"})
    assert re.findall(r"^## (.*)$", prompt, re.M) == ["Topic", "Key Points", "Current State", "Open Items"]
    assert "about 100 tokens" in prompt
    assert "SUMMARY SO FAR" not in prompt
    assert "TURNS:\n\n[assistant]\nthe red one\n\n(end of turns)" in prompt


async def test_the_budget_is_a_fifth_of_what_is_summarized() -> None:
    messages = talk(20, "x" * 4000)
    _, prompts = await compacted(messages, tail_token_budget=0)
    assert f"about {estimate_messages(messages[3:18]) // 5} tokens" in prompts[0]


async def test_an_update_leaves_room_for_what_was_known() -> None:
    messages = [*talk(3), overlay("1", "x" * 4000), *talk(16)[9:]]
    _, prompts = await compacted(messages, tail_token_budget=0)
    assert "about 1000 tokens" in prompts[0]


async def test_turns_are_shown_in_order_set_apart_by_lines() -> None:
    _, prompts = await compacted(talk(7), tail_token_budget=0)
    assert "[assistant]\nhello\n\n---\n\n[user]\nhello\n\n(end of turns)" in prompts[0]


async def test_trap_outputs_are_shown_as_json_and_tools_by_their_names() -> None:
    prompt = await prompt_for(
        {"type": "text", "text": "I looked."},
        tool("c", state="output-available", output={"rows": [1, {"deep": "käse"}]}),
    )
    assert (
        "[assistant]\nI looked.\n[Tool: read]\n"
        'Input: {"path":"c"}\n'
        'Output: {"rows":[1,{"deep":"käse"}]}\n\n(end of turns)'
    ) in prompt
    assert "unknown" not in prompt
    assert "[object" not in prompt


@pytest.mark.parametrize(
    ("part", "shown"),
    [
        (
            {"type": "dynamic-tool", "toolName": "look", "toolCallId": "c", "output": "x"},
            "[Tool: look]\nOutput: x\n",
        ),
        (tool("c", output="x" * 501), f"Output: {'x' * 500}…\n"),
        (tool("c", output="x" * 500), f"Output: {'x' * 500}\n"),
        (tool("c", input={"q": "y" * 600}), f'Input: {{"q":"{"y" * 494}…\n'),
        (tool("c", state="output-error", errorText="no such file"), "Error: no such file\n"),
        (tool("c", state="output-denied"), "A person did not allow this call.\n"),
        (
            {"type": "tool-result", "toolCallId": "c", "toolName": "look", "result": 7},
            "[Tool: look]\nOutput: 7\n",
        ),
        (
            {"type": "file", "url": "data:,x", "mediaType": "image/png", "filename": "a.png"},
            "[File: a.png]\n",
        ),
        ({"type": "file", "url": "data:,x", "mediaType": "image/png"}, "[File: image/png]\n"),
    ],
)
async def test_each_part_is_shown_short(part: dict[str, Any], shown: str) -> None:
    assert shown in await prompt_for(part)


async def test_thinking_and_the_contents_of_files_are_not_shown() -> None:
    prompt = await prompt_for(
        {"type": "reasoning", "text": "secretly"},
        {"type": "file", "url": "data:image/png;base64,AAAA", "mediaType": "image/png"},
    )
    assert "secretly" not in prompt
    assert "AAAA" not in prompt


# --- what is answered


@pytest.mark.parametrize("blank", ["", "  \n"])
async def test_a_blank_summary_is_none(blank: str) -> None:
    compact = create_compact_function(summarize=lambda _: blank, tail_token_budget=0)
    assert await compact(talk(10), PLAIN) is None


async def test_a_summarizer_may_take_its_time() -> None:
    async def summarize(_: str) -> str:
        return "\n## Topic\nRome\n"

    compact = create_compact_function(summarize=summarize, tail_token_budget=0)
    assert await compact(talk(10), PLAIN) == Compaction("m4", "m8", "## Topic\nRome")


async def test_what_a_summarizer_raises_is_for_the_caller() -> None:
    def summarize(_: str) -> str:
        raise RuntimeError("no model")

    compact = create_compact_function(summarize=summarize, tail_token_budget=0)
    with pytest.raises(RuntimeError, match="no model"):
        await compact(talk(10), PLAIN)


async def test_a_summarizer_that_gives_no_text_is_told_so() -> None:
    nothing: Callable[[str], Any] = lambda _: None  # noqa: E731
    compact = create_compact_function(summarize=nothing, tail_token_budget=0)
    with pytest.raises(TypeError, match=r"summarize returned a NoneType, not text\. Nothing was compacted"):
        await compact(talk(10), PLAIN)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"protect_head": -1}, "a protect_head of at least 0, not -1"),
        ({"tail_token_budget": -1}, "a tail_token_budget of at least 0"),
        ({"min_tail_messages": -1}, "a min_tail_messages of at least 0"),
        ({"max_prompt_tokens": 999}, "a max_prompt_tokens of at least 1000, not 999"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        create_compact_function(summarize=str, **options)
