"""What somebody must know who begins to read in the middle, from the events alone."""

from __future__ import annotations

from typing import Any

import pytest

from everthink.abort import AbortController
from everthink.journal.feed import (
    ChunksStored,
    Cleared,
    FeedEvent,
    HistoryChanged,
    TurnAccepted,
    TurnEnded,
    TurnRewound,
    TurnStarted,
)
from everthink.journal.feed_state import MAX_OVER, Ended, FeedState, Rewound, Said
from everthink.journal.turn import Turn


def turn(id: str, **fields: Any) -> Turn:
    options: dict[str, Any] = {"trigger": "ws-chat", "message_id": f"answer to {id}", "generation": 0}
    return Turn(id=id, request_id=f"request {id}", signal=AbortController().signal, **(options | fields))


def said(turn: Turn, *bodies: str, first: int = 0) -> ChunksStored:
    return ChunksStored(turn, first, bodies, ())


def after(*events: FeedEvent) -> FeedState:
    state = FeedState()
    for event in events:
        state.apply(event)
    return state


def test_an_accepted_turn_waits_until_it_speaks() -> None:
    one = turn("1")

    state = after(TurnAccepted(one), TurnStarted(one), HistoryChanged(one, "input"))
    assert (list(state.accepted), state.active) == (["request 1"], None)
    change = state.apply(said(one, "a"))

    assert change == Said(one, 0, ("a",), has_begun=True, is_anew=False)
    assert (list(state.accepted), state.active, state.bodies) == ([], one, ["a"])


def test_the_chunks_of_a_turn_are_kept_in_their_places() -> None:
    one = turn("1")
    state = after(said(one, "a", "b"))

    change = state.apply(said(one, "c", first=2))

    assert change == Said(one, 2, ("c",), has_begun=False, is_anew=False)
    assert state.bodies == ["a", "b", "c"]


def test_what_was_said_before_anybody_listened_is_filled_in() -> None:
    one = turn("1")
    state = after(TurnAccepted(one), said(one, "c", first=2))
    assert state.bodies == ["", "", "c"]

    has_begun = state.catch_up(one, ["a", "b"])

    assert not has_begun
    assert state.bodies == ["a", "b", "c"]


def test_chunks_that_are_known_already_are_not_news() -> None:
    one = turn("1")
    state = FeedState([one])
    assert state.catch_up(one, ["a", "b"])

    change = state.apply(said(one, "b", "c", first=1))

    assert change == Said(one, 2, ("c",), has_begun=False, is_anew=False)
    assert state.bodies == ["a", "b", "c"]


def test_a_turn_that_was_overtaken_streams_again_when_the_other_ends() -> None:
    one, two = turn("1"), turn("2")
    state = after(said(one, "a"), said(two, "x"))
    assert (state.active, state.bodies) == (two, ["x"])

    state.apply(TurnEnded(two, "completed", stored=True))

    assert (state.active, state.bodies) == (one, ["a"])


def test_a_turn_that_was_overtaken_goes_on_where_it_was() -> None:
    one, two = turn("1"), turn("2")
    state = after(said(one, "a"), said(two, "x"))

    state.apply(said(one, "b", first=1))

    assert (state.active, state.bodies) == (one, ["a", "b"])


def test_a_turn_that_ended_is_remembered_for_those_who_ask_late() -> None:
    one = turn("1", answers=["u1"], continuation=True)
    state = after(TurnAccepted(one), said(one, "a"))

    change = state.apply(event := TurnEnded(one, "completed", stored=True))

    assert change == Ended(event, "completed", was_active=True, was_restarted=False)
    assert (state.active, state.bodies, state.accepted) == (None, [], {})
    over = state.over["request 1"]
    assert (over.turn, over.answers, over.continuation, over.is_stored) == ("1", ["u1"], True, True)
    assert over.outcome is None


@pytest.mark.parametrize(("streams", "outcome"), [(True, "aborted"), (False, "skipped")])
def test_a_turn_that_is_cleared_away_was_stopped_for_those_who_watched(streams: bool, outcome: str) -> None:
    one = turn("1")
    state = after(TurnAccepted(one), *([said(one, "a")] if streams else []), Cleared())
    assert not state.accepted

    change = state.apply(TurnEnded(one, "skipped"))

    assert isinstance(change, Ended)
    assert (change.outcome, change.was_active) == (outcome, streams)
    assert state.over["request 1"].outcome == outcome


def test_only_the_latest_ends_are_remembered() -> None:
    ends = [TurnEnded(turn(str(number)), "completed") for number in range(MAX_OVER + 3)]

    state = after(*ends)

    assert list(state.over) == [end.turn.request_id for end in ends[3:]]


def test_a_turn_that_starts_over_later_is_silent_until_then() -> None:
    one = turn("1")
    state = after(said(one, "a"))

    change = state.apply(TurnRewound(one))

    assert change == Rewound(one, was_active=True, at_once=False)
    assert (state.active, state.bodies, list(state.accepted)) == (None, [], ["request 1"])
    again = state.apply(said(one, "b"))
    assert again == Said(one, 0, ("b",), has_begun=True, is_anew=False)


def test_a_turn_that_starts_over_at_once_stays_the_one_that_streams() -> None:
    one = turn("1")
    state = after(said(one, "a"), TurnRewound(one, at_once=True))
    assert (state.active, state.bodies) == (one, [])

    first, second = state.apply(said(one, "b")), state.apply(said(one, "c", first=1))
    ended = state.apply(TurnEnded(one, "completed", stored=True))

    assert first == Said(one, 0, ("b",), has_begun=False, is_anew=True)
    assert second == Said(one, 1, ("c",), has_begun=False, is_anew=False)
    assert isinstance(ended, Ended)
    assert ended.was_restarted


def test_a_turn_that_was_overtaken_and_starts_over_has_said_nothing() -> None:
    one, two = turn("1"), turn("2")
    state = after(said(one, "a"), said(two, "x"))

    change = state.apply(TurnRewound(one))
    state.apply(TurnEnded(two, "completed"))

    assert change == Rewound(one, was_active=False, at_once=False)
    assert (state.active, state.bodies) == (None, [])
