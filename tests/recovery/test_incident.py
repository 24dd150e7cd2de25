"""How often a turn may be cut off: the decision, without a database or a clock."""

from __future__ import annotations

import math
import sys
from typing import Any

import pytest

from everthink import chunks as ui
from everthink.errors import InvalidSettings
from everthink.recovery import ChatRecovery
from everthink.recovery.incident import (
    DELTA_WINDOW_MS,
    TERMINAL_MESSAGE,
    Assessment,
    Incident,
    Kind,
    evaluate,
    incident_id,
    progress_of,
    settings_of,
)


class Log:
    """One turn's interruptions, told in seconds."""

    def __init__(self, **settings: Any) -> None:
        self.settings = ChatRecovery(**settings)
        self.known: Incident | None = None

    def cut(
        self, at: float, progress: int = 0, *, kind: Kind = "continue", awaiting: bool = False
    ) -> Assessment:
        """The turn was cut off, having produced so much."""
        found = evaluate(
            self.known,
            id="r:u",
            request_id="r",
            kind=kind,
            progress=progress,
            now=round(at * 1000),
            settings=self.settings,
            awaiting=awaiting,
        )
        self.known = found.incident
        return found

    def attempts(self, *times: float, progress: int = 0) -> list[int | str]:
        """The number of each attempt, or the reason why it is none."""
        found = [self.cut(at, progress) for at in times]
        return [assessment.exhausted or assessment.incident.attempt for assessment in found]


# --- names and settings


@pytest.mark.case(406)
def test_an_incident_is_named_after_the_turn_and_the_question() -> None:
    assert incident_id("r1", "u1") == "r1:u1"
    assert incident_id("r1", None) == "r1:"
    # How the turn is recovered is no part of it
    assert Log().cut(0, kind="retry").incident.id == Log().cut(0, kind="continue").incident.id


@pytest.mark.case(407)
def test_true_and_unset_are_the_defaults_and_false_is_off() -> None:
    defaults = ChatRecovery()
    assert settings_of(True) == settings_of(None) == defaults
    assert settings_of(False) is None
    assert (defaults.max_attempts, defaults.no_progress_timeout, defaults.stable_timeout) == (10, 300.0, 10.0)
    assert (defaults.max_recovery_work, defaults.terminal_message) == (math.inf, TERMINAL_MESSAGE)
    assert (defaults.should_keep_recovering, defaults.on_exhausted) == (None, None)
    assert settings_of(ChatRecovery(max_attempts=3)) == settings_of({"max_attempts": 3})


@pytest.mark.case(408)
@pytest.mark.parametrize(
    ("given", "meant"),
    [
        (6, 6),
        (2.9, 2),
        (0, 1),
        (-5, 1),
        (math.nan, 10),
        (None, 10),
        (math.inf, sys.maxsize),
        (-math.inf, 1),
    ],
)
def test_attempts_are_whole_and_at_least_one(given: Any, meant: int) -> None:
    found = ChatRecovery(max_attempts=given).max_attempts
    assert (found, type(found)) == (meant, int)


@pytest.mark.case(408)
@pytest.mark.parametrize(
    ("given", "meant"),
    [(0.5, 0.5), (0, 0.0), (-1, 0.0), (math.nan, None), (None, None), (math.inf, math.inf)],
)
def test_times_are_not_negative(given: Any, meant: float | None) -> None:
    settings = ChatRecovery(no_progress_timeout=given, stable_timeout=given)
    assert settings.no_progress_timeout == (300.0 if meant is None else meant)
    assert settings.stable_timeout == (10.0 if meant is None else meant)


@pytest.mark.case(409)
@pytest.mark.parametrize(
    ("given", "meant"),
    [(-1, math.inf), (math.nan, math.inf), (None, math.inf), (0, 0), (1000, 1000), (math.inf, math.inf)],
)
def test_a_negative_budget_of_work_is_none(given: Any, meant: float) -> None:
    assert ChatRecovery(max_recovery_work=given).max_recovery_work == meant


@pytest.mark.parametrize(
    "name", ["max_attempts", "no_progress_timeout", "stable_timeout", "max_recovery_work"]
)
@pytest.mark.parametrize("given", ["many", True, [1]])
def test_what_is_no_number_is_refused(name: str, given: Any) -> None:
    with pytest.raises(InvalidSettings, match=rf"ChatRecovery\.{name} is .*It takes a number"):
        ChatRecovery(**{name: given})


@pytest.mark.case(410)
def test_callbacks_and_words_are_kept() -> None:
    settings = ChatRecovery(should_keep_recovering=bool, on_exhausted=print, terminal_message="Sorry.")
    assert settings.should_keep_recovering is bool
    assert settings.on_exhausted is print
    assert settings.terminal_message == "Sorry."


# --- counting


@pytest.mark.case(411)
def test_the_first_cut_opens_an_incident_and_later_ones_only_attempt() -> None:
    log = Log()
    first = log.cut(100, 5)
    assert (first.is_new, first.exhausted) == (True, None)
    assert first.incident == Incident(
        id="r:u",
        request_id="r",
        kind="continue",
        attempt=1,
        max_attempts=10,
        status="attempting",
        first_seen_at=100_000,
        last_attempt_at=100_000,
        last_progress_at=100_000,
        progress=5,
        work_baseline=5,
    )
    assert first.incident.work == 0
    assert log.cut(150, 5).is_new is False


@pytest.mark.case(411, 413, 414)
def test_the_worked_example() -> None:
    log = Log()
    # The first wake; another one right after it, which counts as one a while later does
    assert log.cut(0, 5).incident.attempt == 1
    assert log.cut(10, 5).incident.attempt == 2
    assert log.cut(50, 5).incident.attempt == 3
    # Something was produced: the count starts again
    progressed = log.cut(90, 9).incident
    assert (progressed.attempt, progressed.last_progress_at, progressed.work) == (1, 90_000, 4)
    # and then nothing any more
    times = range(120, 361, 30)
    assert log.attempts(*times, progress=9) == [2, 3, 4, 5, 6, 7, 8, 9, 10]
    assert log.attempts(390, progress=9) == ["max_attempts_exceeded"]


@pytest.mark.case(420)
def test_of_two_bounds_hit_at_once_the_missing_progress_is_the_reason() -> None:
    log = Log()
    log.cut(90, 9)
    times = [90 + 31 * n for n in range(1, 11)]
    assert log.attempts(*times, progress=9) == [2, 3, 4, 5, 6, 7, 8, 9, 10, "no_progress_timeout"]


@pytest.mark.case(412)
def test_a_retry_and_a_continuation_share_one_record() -> None:
    log = Log()
    assert log.cut(0, kind="retry").incident.attempt == 1
    found = log.cut(40, kind="continue")
    assert (found.is_new, found.incident.attempt, found.incident.kind) == (False, 2, "continue")


@pytest.mark.case(413)
def test_attempts_without_progress_count_however_close_together_they_are() -> None:
    """The original counts those within thirty seconds once: then a process that dies every two seconds, or a
    provider that hangs with a short window, is asked for ever. One process owns an agent here, so that no
    two wakes are about the same cut."""
    log = Log(max_attempts=3)
    assert log.attempts(0, 2, 4, 6) == [1, 2, 3, "max_attempts_exceeded"]


def test_a_deploy_loop_whose_processes_get_on_is_never_given_up() -> None:
    log = Log(max_attempts=3)
    for life in range(100):
        at = life * 8
        # Each process is cut off three times before it has said a little more.
        assert log.attempts(at, at + 2, at + 4, progress=life) == [1, 2, 3]


@pytest.mark.case(414)
def test_progress_starts_the_count_again_and_then_it_goes_on_to_the_end() -> None:
    log = Log(max_attempts=2)
    assert log.attempts(0, 40) == [1, 2]
    assert log.attempts(80, 120, 160, progress=1) == [1, 2, "max_attempts_exceeded"]


@pytest.mark.case(414)
def test_progress_right_after_an_attempt_is_progress_too() -> None:
    log = Log()
    assert log.attempts(0, 40) == [1, 2]
    found = log.cut(41, 1).incident
    assert (found.attempt, found.last_attempt_at, found.last_progress_at) == (1, 41_000, 41_000)


def test_progress_never_goes_back() -> None:
    log = Log()
    log.cut(0, 9)
    found = log.cut(40, 3).incident
    assert (found.attempt, found.progress, found.work) == (2, 9, 0)


@pytest.mark.case(419)
def test_too_many_attempts_end_it() -> None:
    log = Log(max_attempts=3)
    assert log.attempts(0, 40, 80, 120) == [1, 2, 3, "max_attempts_exceeded"]
    assert log.known is not None
    assert (log.known.attempt, log.known.max_attempts) == (4, 3)


@pytest.mark.case(419)
def test_none_allowed_means_one() -> None:
    assert Log(max_attempts=0).attempts(0, 10) == [1, "max_attempts_exceeded"]


@pytest.mark.case(420)
def test_five_minutes_without_progress_end_it_below_the_cap() -> None:
    assert Log().attempts(0, 300, 300.001) == [1, 2, "no_progress_timeout"]
    assert Log().attempts(0, 301) == [1, "no_progress_timeout"]


@pytest.mark.case(421)
@pytest.mark.parametrize("timeout", [0, 0.5, 45.0])
def test_how_long_that_is_can_be_set(timeout: float) -> None:
    log = Log(no_progress_timeout=timeout)
    assert log.attempts(0, timeout) == [1, 2]
    assert log.attempts(timeout + 0.001) == ["no_progress_timeout"]


@pytest.mark.case(422)
def test_a_finite_budget_of_work_ends_a_turn_that_never_stops_producing() -> None:
    log = Log(max_recovery_work=3)
    found = [log.cut(n * 31, 100 + n).exhausted for n in range(5)]
    # What it had produced before the first cut is not counted
    assert found == [None, None, None, None, "work_budget_exceeded"]


@pytest.mark.case(422)
def test_a_budget_of_nothing_ends_it_with_the_first_progress() -> None:
    log = Log(max_recovery_work=0)
    assert log.attempts(0, 40, progress=7) == [1, 2]
    assert log.attempts(80, progress=8) == ["work_budget_exceeded"]


@pytest.mark.case(422, 423)
def test_a_turn_that_keeps_producing_outlives_any_time() -> None:
    log, two_hours = Log(), 2 * 3600
    found = [log.cut(at, progress) for progress, at in enumerate(range(0, two_hours, 31))]
    assert {assessment.exhausted for assessment in found} == {None}
    assert {assessment.incident.attempt for assessment in found} == {1}


def test_work_counts_before_missing_progress() -> None:
    log = Log(max_recovery_work=0, no_progress_timeout=0)
    log.cut(0, 1)
    assert log.cut(40, 2).exhausted == "work_budget_exceeded"
    assert log.cut(80, 2).exhausted == "work_budget_exceeded"


def test_settings_are_read_anew_each_time() -> None:
    log = Log(max_attempts=1)
    log.cut(0)
    log.settings = ChatRecovery(max_attempts=2)
    found = log.cut(40)
    assert (found.exhausted, found.incident.max_attempts) == (None, 2)


# --- who has a say


@pytest.mark.case(424)
def test_the_policy_has_no_say_the_first_time() -> None:
    log = Log(should_keep_recovering=lambda ctx: False)
    assert log.cut(0).asks_policy is False
    assert log.cut(10).asks_policy is True
    assert Log().cut(0).asks_policy is False


@pytest.mark.case(424)
def test_without_a_policy_nobody_is_asked() -> None:
    log = Log()
    log.cut(0)
    assert log.cut(40).asks_policy is False


@pytest.mark.case(427)
@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"no_progress_timeout": 10}, "no_progress_timeout"),
        ({"max_attempts": 1}, "max_attempts_exceeded"),
        ({"max_recovery_work": 0}, "work_budget_exceeded"),
    ],
)
def test_hard_bounds_come_before_the_policy(settings: dict[str, Any], reason: str) -> None:
    log = Log(should_keep_recovering=lambda ctx: True, **settings)
    log.cut(0)
    found = log.cut(40, 1 if "max_recovery_work" in settings else 0)
    assert (found.exhausted, found.asks_policy) == (reason, False)


@pytest.mark.case(428)
def test_a_turn_that_waits_for_a_person_is_never_given_up() -> None:
    # Given every bound as tight as it goes
    log = Log(
        max_attempts=1, no_progress_timeout=0, max_recovery_work=0, should_keep_recovering=lambda ctx: False
    )
    log.cut(0)

    # When it is cut off again and again for a day
    found = [log.cut(at, 1, awaiting=True) for at in range(60, 24 * 3600, 600)]

    # Then no bound is hit and nobody is asked, and waiting is no lack of progress
    assert {(a.exhausted, a.asks_policy) for a in found} == {(None, False)}
    assert all(a.incident.last_progress_at == a.incident.last_attempt_at for a in found)
    # but once it does not wait any more they hold again
    assert log.cut(24 * 3600 + 60, 1).exhausted == "work_budget_exceeded"


# --- progress


def journal(*written: tuple[float, list[ui.Chunk]]) -> list[tuple[int, list[ui.Chunk]]]:
    """Segments, each with the second in which it was written."""
    return [(round(at * 1000), chunks) for at, chunks in written]


@pytest.mark.case(434)
@pytest.mark.parametrize(
    "chunk",
    [
        ui.TextStart("t"),
        ui.ReasoningStart("r"),
        ui.ToolInputAvailable("c", "dig", {}),
        ui.ToolOutputAvailable("c", 1),
        ui.ToolOutputError("c", "no"),
        ui.ToolOutputDenied("c"),
    ],
)
def test_beginnings_and_outcomes_always_count(chunk: ui.Chunk) -> None:
    assert progress_of(journal((0, [chunk, chunk]), (0, [chunk]))) == 3


@pytest.mark.case(434)
@pytest.mark.parametrize(
    "chunk", [ui.TextDelta("t", "a"), ui.ReasoningDelta("r", "a"), ui.ToolInputDelta("c", "{")]
)
def test_what_grows_counts_once_in_five_seconds(chunk: ui.Chunk) -> None:
    assert DELTA_WINDOW_MS == 5000
    assert progress_of(journal((0, [chunk] * 3), (4.9, [chunk]))) == 1
    assert progress_of(journal((0, [chunk]), (5, [chunk]), (9.9, [chunk]), (10, [chunk]))) == 3


@pytest.mark.case(434)
def test_one_very_long_block_is_progress_all_along() -> None:
    minutes = [(float(second), [ui.TextDelta("t", "word ")]) for second in range(601)]
    assert progress_of(journal((0, [ui.TextStart("t")]), *minutes)) == 1 + 121


@pytest.mark.case(434)
@pytest.mark.parametrize(
    "chunk",
    [
        ui.Start(message_id="m"),
        ui.StartStep(),
        ui.FinishStep(),
        ui.Finish("stop"),
        ui.TextEnd("t"),
        ui.ReasoningEnd("r"),
        ui.ToolInputStart("c", "dig"),
        ui.ToolApprovalRequest("a", "c"),
    ],
)
def test_beginning_and_ending_a_step_is_no_progress(chunk: ui.Chunk) -> None:
    assert progress_of(journal((0, [chunk]), (60, [chunk]))) == 0


@pytest.mark.case(418)
def test_reading_a_journal_again_is_no_progress() -> None:
    said = journal((0, [ui.Start(message_id="m"), ui.StartStep(), ui.TextStart("t"), ui.TextDelta("t", "a")]))
    assert progress_of(said) == progress_of(said) == 2
    assert progress_of([]) == 0
