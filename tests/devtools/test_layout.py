"""Where messages are when summaries lie over them."""

from __future__ import annotations

from everthink.clock import moment_of
from everthink.devtools.layout import Layout
from everthink.devtools.view import Tree
from everthink.session.overlay import Overlay

# 1 - 2 - 3 - 4 - 5 - 6, and 4' - 5' below 3.
ROWS = [
    ("1", None, "user", 1, 1),
    ("2", "1", "assistant", 2, 2),
    ("3", "2", "user", 3, 3),
    ("4'", "3", "assistant", 4, 4),
    ("5'", "4'", "user", 5, 5),
    ("4", "3", "assistant", 6, 6),
    ("5", "4", "user", 7, 7),
    ("6", "5", "assistant", 8, 8),
]


def overlay(id: str, first: str, last: str, *, seq: int) -> Overlay:
    from_seq = next(row[4] for row in ROWS if row[0] == first)
    return Overlay(id, first, last, f"Summary {id}.", "threshold", 100, moment_of(seq), seq, from_seq)


def test_the_summary_that_ends_last_covers_those_before_it() -> None:
    older, newer = overlay("a", "1", "2", seq=1), overlay("b", "1", "4", seq=2)
    layout = Layout(Tree(ROWS), [older, newer])
    assert [layout.state(one) for one in (older, newer)] == ["covered", "shown"]
    assert [(row["id"], row["messages"]) for row in layout.compactions()] == [("b", 4), ("a", 2)]
    assert {id for id in "123456" if layout.where(id)["summary"] == "compaction_b"} == set("1234")
    assert layout.where("5") == {"where": "shown", "summary": None}
    assert layout.where("4'") == {"where": "branch", "summary": None}


def test_a_summary_of_another_branch_is_told_as_such() -> None:
    elsewhere = overlay("c", "2", "5'", seq=1)
    layout = Layout(Tree(ROWS), [elsewhere])
    assert layout.state(elsewhere) == "branch"
    assert layout.messages_of(elsewhere) == ["2", "3", "4'", "5'"]
    assert layout.where("2")["where"] == "shown"


def test_the_id_of_a_summary_means_its_last_message() -> None:
    layout = Layout(Tree(ROWS), [overlay("d", "1", "3", seq=1)])
    assert [layout.row(id) for id in ("compaction_d", "d", "5")] == ["3", "3", "5"]
    assert layout.forks()["compaction_d"] == {"versions": ["4'", "4"], "active": 1}
    assert layout.overlay("nothing") is None


def test_rows_too_far_back_to_be_seen_make_no_wrong_number() -> None:
    # Given only the newest rows, as with a very long session
    long = overlay("e", "1", "4", seq=1)
    layout = Layout(Tree(ROWS[3:]), [long])
    assert layout.messages_of(long) is None
    assert (layout.compactions()[0]["messages"], layout.state(long)) == (None, "shown")
