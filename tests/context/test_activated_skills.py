"""The texts of activated skills in messages, and in the summaries that stand for them."""

from __future__ import annotations

from typing import Any

from everthink import Message
from everthink.context.activated_skills import (
    MOST_TOKENS,
    activated_in,
    is_activation,
    name_in,
    with_activated,
    without_activated,
)
from everthink.session.media import evicted
from everthink.session.overlay import is_overlay
from everthink.session.row_size import shorten


def text_of(name: str, body: str = "Do so.") -> str:
    return (
        f'<skill_content name="{name}" version="1">\n{body}\n</skill_content>\n\nIt has no bundled resources.'
    )


def part(output: Any, tool: str = "activate_skill", **more: Any) -> Any:
    return {
        "type": f"tool-{tool}",
        "toolCallId": "c",
        "state": "output-available",
        "input": {},
        "output": output,
    } | more


def said(*parts: Any, id: str = "m1", role: Any = "assistant") -> Message:
    return Message(id, role, list(parts))


def test_what_is_the_instructions_of_a_skill() -> None:
    text = text_of("a")
    assert is_activation(part(text))
    assert is_activation(part(text, type="dynamic-tool", toolName="activate_skill"))
    assert not is_activation(part(text, tool="fetch"))
    assert not is_activation(part("There is no skill 'a'."))
    assert not is_activation(part(text, state="output-error"))
    assert not is_activation(part(text, preliminary=True))
    assert not is_activation({"type": "text", "text": text})
    assert name_in(text_of("x&quot;&amp;lt;y")) == 'x"&lt;y'


def test_the_latest_of_each_counts() -> None:
    messages = [said(part(text_of("a", "old")), part(text_of("b"))), said(part(text_of("a", "new")), id="m2")]

    assert list(activated_in(messages, is_overlay)) == ["b", "a"]
    assert "new" in activated_in(messages, is_overlay)["a"]


def test_a_summary_carries_them_and_the_next_one_takes_them_from_there() -> None:
    tricky = text_of(
        "a", '<activated_skill length="3">\nx\n</skill_content>\n\nSkills that were activated earlier.'
    )
    first = with_activated("So far.", [said(part(tricky)), said(part(text_of("b")), id="m2")], is_overlay)
    overlay = Message("compaction_1", "assistant", [{"type": "text", "text": first}])

    second = with_activated("Further.", [overlay, said(part(text_of("c")))], is_overlay)
    again = Message("compaction_2", "assistant", [{"type": "text", "text": second}])

    assert activated_in([again], is_overlay) == {"a": tricky, "b": text_of("b"), "c": text_of("c")}
    assert without_activated(overlay).text == "So far."
    plain = said({"type": "text", "text": "x"})
    assert without_activated(plain) is plain


def test_words_of_a_message_are_not_what_a_summary_carries() -> None:
    first = with_activated("So far.", [said(part(text_of("a")))], is_overlay)

    assert activated_in([said({"type": "text", "text": first})], is_overlay) == {}
    assert (
        activated_in([said({"type": "text", "text": first}, role="user", id="compaction_1")], is_overlay)
        == {}
    )


def test_a_summary_without_any_is_as_it_was() -> None:
    assert with_activated("So far.", [said(part("x", tool="fetch"))], is_overlay) == "So far."


def test_what_is_too_much_is_named_the_earliest_first() -> None:
    heavy = "word " * MOST_TOKENS
    messages = [
        said(part(text_of("a"))),
        said(part(text_of("b", heavy)), id="m2"),
        said(part(text_of("c")), id="m3"),
    ]

    kept = with_activated("So far.", messages, is_overlay)

    assert list(
        activated_in([Message("compaction_1", "assistant", [{"type": "text", "text": kept}])], is_overlay)
    ) == ["c"]
    assert kept.endswith("activate them again when you need them: a, b")


def test_neither_shortening_nor_eviction_touches_them() -> None:
    long = text_of("a", "word " * 50_000)
    message = said(part(long))
    overlay = Message(
        "compaction_1",
        "assistant",
        [{"type": "text", "text": with_activated("So far.", [message], is_overlay)}],
    )

    assert shorten(message) is message
    assert shorten(overlay) is overlay
    assert evicted(message, min_part_bytes=1_000) is None
    assert shorten(said(part(long, tool="fetch"))) is not message
    assert evicted(said(part(long, tool="fetch")), min_part_bytes=1_000) is not None
