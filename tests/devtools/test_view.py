"""What follows from the rows of the journal, without a database."""

from __future__ import annotations

from typing import Any

from everthink import chunks as ui
from everthink.devtools import view
from everthink.journal.facts import CallFacts, Span
from everthink.journal.segments import pack


def tree(*messages: str) -> view.Tree:
    """Messages as `id<parent`, in the order they were stored; `q` asks, everything else answers."""
    rows: list[tuple[Any, ...]] = []
    for seq, text in enumerate(messages, 1):
        id, _, parent = text.partition("<")
        rows.append((id, parent or None, "user" if id.startswith("q") else "assistant", seq, seq))
    return view.Tree(reversed(rows))


def test_an_empty_conversation_has_no_leaf_and_no_fork() -> None:
    empty = tree()
    assert (empty.leaf, empty.path(), empty.forks(), empty.to_json()) == (None, [], {}, [])
    assert empty.tip_below("x") is None


def test_the_newest_message_is_the_leaf_and_its_ancestors_the_path() -> None:
    found = tree("q1", "a1<q1", "q2<a1", "a2<q2", "b1<q1")
    assert (found.leaf, found.path()) == ("b1", ["q1", "b1"])


def test_forks_are_those_of_the_active_path() -> None:
    found = tree("q1", "a1<q1", "q2<a1", "a2<q2", "b2<q2", "b1<q1", "q3<b1", "a3<q3")
    assert found.forks() == {"q1": {"versions": ["a1", "b1"], "active": 1}}
    assert found.versions("q2") == ["a2", "b2"]


def test_a_version_is_its_branch_up_to_the_next_question() -> None:
    found = tree("q1", "a1<q1", "c1<a1", "q2<c1", "a2<q2", "b1<q1")
    assert found.answer("a1") == ["a1", "c1"]
    assert found.answer("b1") == ["b1"]
    assert found.answer("nobody") == []


def test_a_branch_ends_at_its_newest_end() -> None:
    found = tree("q1", "a1<q1", "q2<a1", "a2<q2", "q3<a1", "b1<q1", "a3<q3", "c2<q2")
    assert found.tip_below("a1") == "c2"
    assert found.tip_below("q3") == "a3"
    assert found.tip_below("b1") == "b1"


def test_an_ancestor_that_is_too_old_to_be_shown_ends_the_path() -> None:
    found = tree("a2<gone", "q3<a2", "a3<q3")
    assert found.path() == ["a2", "q3", "a3"]


def test_the_tokens_of_a_turn_are_those_of_its_steps_as_far_as_they_are_known() -> None:
    assert view.usage([]) is None
    assert view.usage([{"usage": {}}, {}]) is None
    steps = [{"usage": {"input_tokens": 3, "output_tokens": 1}}, {}, {"usage": {"input_tokens": 4}}]
    assert view.usage(steps) == {"input_tokens": 7, "output_tokens": 1}


def packed(first: int, *chunks: ui.Chunk) -> Span:
    return Span(first, 1000 + first, pack(chunks, [ui.encode(chunk) for chunk in chunks]))


def test_chunks_keep_their_numbers_across_commits() -> None:
    rows = [
        packed(0, ui.Start("m1"), ui.TextStart("t"), ui.TextDelta("t", "a"), ui.TextDelta("t", "b")),
        packed(4, ui.TextDelta("t", "c"), ui.TextEnd("t")),
    ]
    found = view.chunks(rows)
    assert [(one["seq"], one["commit"]) for one in found] == [(0, 0), (1, 0), (2, 0), (3, 0), (4, 4), (5, 4)]
    assert [one["written_at"] for one in found] == [1000] * 4 + [1004] * 2
    assert found[3]["chunk"] == {"type": "text-delta", "id": "t", "delta": "b"}


def test_a_secret_that_came_in_pieces_is_masked() -> None:
    pieces = [ui.ToolInputDelta("c", piece) for piece in ('{"pass', 'word": "cor', "rect-hor", 'se"}')]
    other = [ui.TextDelta("t", piece) for piece in ("pass", "ing ", "words")]
    found = [one["chunk"] for one in view.chunks([packed(0, *pieces, *other)])]
    assert [chunk["inputTextDelta"] for chunk in found[:4]] == ['{"password": "***"}', "", "", ""]
    assert [chunk["delta"] for chunk in found[4:]] == ["pass", "ing ", "words"]


def test_what_is_too_long_is_cut_and_says_how_long_it_is() -> None:
    facts = CallFacts("t", "c", "dig", 0, "done", "report", '"' + "x" * 20_000 + '"', 1, 2, 3, None)
    [call] = view.calls([facts], {})
    assert len(call["input"]) < 11_000
    assert call["input"].endswith("… (20000 characters)")


def test_an_input_that_is_no_json_is_shown_as_it_is() -> None:
    facts = CallFacts(
        "t", "c", "dig", 0, "failed", "report", "{broken", 1, None, 3, "key sk-proj-abcdefgh12345678"
    )
    [call] = view.calls([facts], {"c": {"error": "The tool failed."}})
    assert call["input"] == "{broken"
    # what the model was told is shown to the developer, masked
    assert call["error"] == "key sk-***"
    assert "words" not in call
