"""Who is offered which stream, and what an ack gets: the first rule that fits."""

from __future__ import annotations

from typing import Any

import pytest

from everthink.wire.resume import (
    Ended,
    Failed,
    Ignore,
    Nothing,
    Offer,
    Replay,
    View,
    Wait,
    answer_ack,
    answer_probe,
)

EVERYTHING = View(active="a", continuation="c", continuation_owner="me", failed="f", accepted="q")


@pytest.mark.parametrize(
    ("view", "expected"),
    [
        pytest.param(View(), Nothing("idle"), marks=pytest.mark.case(517)),
        pytest.param(EVERYTHING, Offer("a"), marks=pytest.mark.case(513)),
        pytest.param(View(active="a", active_owner="me"), Offer("a")),
        pytest.param(
            View(active="a", active_owner="you", failed="f", accepted="q"),
            Nothing("continuation-owned"),
            marks=pytest.mark.case(514),
        ),
        pytest.param(
            View(continuation="c", continuation_owner="me", failed="f", accepted="q"),
            Wait("c"),
            marks=pytest.mark.case(515),
        ),
        (View(continuation="c", failed="f"), Wait("c")),
        (View(continuation="c", continuation_owner="you"), Nothing("idle")),
        (View(continuation="c", continuation_owner="you", accepted="q"), Wait("q")),
        pytest.param(View(failed="f", accepted="q"), Offer("f", holds=False), marks=pytest.mark.case(518)),
        pytest.param(View(accepted="q"), Wait("q"), marks=pytest.mark.case(516)),
    ],
)
def test_a_probe_gets_the_first_answer_that_fits(view: View, expected: Any) -> None:
    assert answer_probe(view, "me") == expected


@pytest.mark.parametrize(
    ("view", "id", "expected"),
    [
        pytest.param(View(active="a"), "a", Replay(), marks=pytest.mark.case(520)),
        pytest.param(View(active="a", failed="f"), "f", Ignore(), marks=pytest.mark.case(521)),
        (View(active="a"), "unknown", Ignore()),
        pytest.param(View(failed="f"), "f", Failed(), marks=pytest.mark.case(518)),
        pytest.param(View(failed="f"), "other", Ended(), marks=pytest.mark.case(518)),
        pytest.param(View(accepted="q"), "q", Ended()),
        pytest.param(View(), "gone", Ended(), marks=pytest.mark.case(523)),
    ],
)
def test_an_ack_gets_the_stream_it_names(view: View, id: str, expected: Any) -> None:
    assert answer_ack(view, id) == expected
