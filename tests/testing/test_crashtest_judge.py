"""The judge sees every way in which a crash could have shown, and forgives the two it may."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from everthink.testing.crashtest.judge import judge
from everthink.testing.crashtest.story import Story

Json = dict[str, Any]


def text(words: str) -> Json:
    return {"type": "text", "text": words, "state": "done"}


def thought(words: str) -> Json:
    return {"type": "reasoning", "text": words, "state": "done"}


def call(tool: str, id: str, state: str = "output-available", **fields: Any) -> Json:
    part = {"type": f"tool-{tool}", "toolName": tool, "toolCallId": id, "state": state, "input": {}}
    return part | (fields or {"output": "ok"})


FAILED = {"state": "output-error", "errorText": "interrupted"}


def message(id: str, role: str, *parts: Json, parent: str | None = None) -> Json:
    return {"id": id, "role": role, "parts": list(parts), "parent": parent}


def told(prefix: str = "") -> Story:
    """A question, a thought, two calls, an answer; another question and its answer."""
    p = prefix
    messages = [
        message("q1", "user", text("Weather?")),
        message(
            f"{p}a1",
            "assistant",
            {"type": "step-start"},
            thought("Two tools."),
            call("weather", f"{p}c1"),
            call("trains", f"{p}c2"),
            text("It snows."),
            parent="q1",
        ),
        message("q2", "user", text("Thanks"), parent=f"{p}a1"),
        message(f"{p}a2", "assistant", text("You are welcome."), parent="q2"),
    ]
    turn = {"trigger": "ws-chat", "status": "completed", "error": None}
    shown = [{key: value for key, value in m.items() if key != "parent"} for m in messages]
    return Story(
        messages=messages,
        turns=[turn, turn],
        calls=[{"tool": "weather", "state": "done"}, {"tool": "trains", "state": "done"}],
        path=shown,
        screen=copy.deepcopy(shown),
        effects=["weather", "trains"],
    )


@pytest.fixture
def story() -> Story:
    """The same with other ids, and a restart in the middle of a step."""
    found = told("x-")
    found.messages[1]["parts"].insert(3, {"type": "step-start"})
    return seen(found)


def kinds(story: Story) -> list[str]:
    return [failure.kind for failure in judge(told(), story)]


def parts(story: Story, number: int = 1) -> list[Json]:
    """The parts of a message; on the screen and in the path they are the same."""
    return story.messages[number]["parts"]


def seen(story: Story) -> Story:
    """The reader sees what is stored."""
    shown = [{key: value for key, value in m.items() if key != "parent"} for m in story.messages]
    story.path, story.screen = shown, copy.deepcopy(shown)
    return story


def test_ids_times_and_steps_are_no_difference(story: Story) -> None:
    story.screen[0]["createdAt"] = "yesterday"
    assert judge(told(), story) == []


def test_text_that_is_lost_doubled_or_changed_is_found(story: Story) -> None:
    for wrong in ("It sno", "It snows.It snows.", "It rains.", ""):
        other = copy.deepcopy(story)
        parts(other)[-1]["text"] = wrong
        (failure,) = judge(told(), seen(other))
        assert failure.kind == "transcript"
        assert failure.what == f"message 2 has {wrong!r} instead of 'It snows.'"


def test_a_message_that_is_missing_or_too_many_is_found(story: Story) -> None:
    more = copy.deepcopy(story)
    more.messages.append(message("x-a3", "assistant", text("Again."), parent="q2"))
    (failure,) = judge(told(), seen(more))
    assert failure.what == "message 5, the assistant's ['Again.'], is one too many"
    del story.messages[3]
    (failure,) = judge(told(), seen(story))
    assert failure.what == "message 4, the assistant's ['You are welcome.'], is missing"


def test_a_message_on_another_branch_is_found(story: Story) -> None:
    story.messages[3]["parent"] = "q1"
    (failure,) = judge(told(), seen(story))
    assert failure.what == "message 4 has parent 1 instead of 3"


def test_metadata_belongs_to_the_transcript(story: Story) -> None:
    story.messages[0]["metadata"] = {"channel": "web"}
    (failure,) = judge(told(), seen(story))
    assert "has metadata {'channel': 'web'} instead of None" in failure.what


def test_a_thought_may_be_begun_again_and_no_text_may(story: Story) -> None:
    parts(story).insert(1, thought("Two "))
    parts(story).insert(1, thought(""))
    assert judge(told(), seen(story)) == []
    parts(story)[1:3] = [thought("Three ")]
    assert kinds(seen(story)) == ["transcript"]
    parts(story)[1:2] = []
    parts(story).insert(-1, text("It "))
    assert kinds(seen(story)) == ["transcript"]


def test_a_thought_may_come_again_after_a_call_that_was_half_made(story: Story) -> None:
    parts(story).insert(3, thought("Two tools."))
    assert judge(told(), seen(story)) == []
    parts(story)[1]["text"] = "Two "
    assert judge(told(), seen(story)) == []
    # The whole of it must be there, and no other
    parts(story)[3]["text"] = "Two"
    assert kinds(seen(story)) == ["transcript"]


def test_a_call_may_be_reported_once_and_the_model_may_then_say_something_else(story: Story) -> None:
    parts(story)[2] |= FAILED
    del parts(story)[2]["output"]
    parts(story)[-1]["text"] = "I do not know."
    # whether it ran
    assert judge(told(), seen(story)) == []
    # or not
    story.effects.remove("weather")
    assert judge(told(), seen(story)) == []
    # One report explains one effect
    story.effects.remove("trains")
    (failure,) = judge(told(), story)
    assert failure.kind == "effect"
    assert "weather, trains never happened, and 1 calls were reported" in failure.what
    # and the next answer is what it would have been
    parts(story, 3)[0]["text"] = "You are not."
    assert kinds(seen(story)) == ["transcript", "effect"]


def test_a_report_counts_though_the_answer_to_it_is_another_message() -> None:
    reference, story = told(), told("x-")
    for one, id in ((reference, "a1"), (story, "x-a1")):
        one.messages.insert(2, message(f"{id}-more", "assistant", text("Anything else?"), parent=id))
        seen(one)
    parts(story)[2] |= FAILED
    parts(story, 2)[0]["text"] = "Sorry."
    story.effects.remove("weather")
    assert judge(reference, seen(story)) == []


def code(id: str, *states: str, ms: int) -> Json:
    made = [{"name": f"tools.{number}", "state": state, "ms": ms} for number, state in enumerate(states)]
    ran = {"status": "completed", "executionId": id, "result": [{"size": 3, "mtime": ms}], "calls": made}
    return call("execute", id, output=ran)


def test_a_run_of_code_has_a_name_and_times_of_its_own(story: Story) -> None:
    reference = told()
    parts(reference)[2] = code("c1", "done", ms=1)
    parts(story)[2] = code("x-c1", "done", ms=20)
    assert judge(reference, seen(story)) == []
    # and nothing else
    parts(story)[2]["output"]["result"][0]["size"] = 4
    assert [failure.kind for failure in judge(reference, seen(story))] == ["transcript"]


def test_a_call_of_code_of_which_nobody_knows_is_a_report(story: Story) -> None:
    reference = told()
    parts(reference)[2] = code("c1", "done", "done", ms=1)
    parts(story)[2] = code("x-c1", "done", "unknown", ms=20)
    parts(story)[-1]["text"] = "I do not know."
    story.effects.remove("trains")
    assert judge(reference, seen(story)) == []
    # One report explains one effect
    story.effects.remove("weather")
    assert [failure.kind for failure in judge(reference, story)] == ["effect"]


def test_two_reports_explain_two_effects(story: Story) -> None:
    for number in (2, 4):
        parts(story)[number] |= FAILED
    story.effects.clear()
    assert judge(told(), seen(story)) == []


def test_an_effect_that_happened_twice_is_found_whatever_was_reported(story: Story) -> None:
    parts(story)[2] |= FAILED
    story.effects.append("weather")
    (failure,) = judge(told(), seen(story))
    assert failure.kind == "effect"
    assert failure.what == "'weather' happened 2 times, 1 more than without a crash"


def test_an_effect_that_never_happened_is_found(story: Story) -> None:
    story.effects.remove("trains")
    (failure,) = judge(told(), story)
    assert failure.what == "trains never happened, and 0 calls were reported as interrupted"


def test_a_call_that_fails_without_a_crash_is_no_report() -> None:
    reference, story = told(), told("x-")
    for one in (reference, story):
        parts(one)[2] |= FAILED
        seen(one)
    assert judge(reference, story) == []
    parts(story)[-1]["text"] = "I do not know."
    (failure,) = judge(reference, seen(story))
    assert failure.kind == "transcript"


def test_a_call_is_in_one_place(story: Story) -> None:
    parts(story)[4]["toolCallId"] = "x-c1"
    (failure,) = judge(told(), seen(story))
    assert failure.what == "the call x-c1 is there 2 times"


def test_a_turn_that_is_left_open_or_ends_otherwise_is_found(story: Story) -> None:
    story.turns[1] = {"trigger": "ws-chat", "status": "running", "error": None}
    first, second = judge(told(), story)
    assert first.what == "a ws-chat turn was left running"
    assert "ws-chat completed, ws-chat running instead of ws-chat completed, ws-chat comp" in second.what
    story.turns[1] = {"trigger": "ws-chat", "status": "error", "error": "no"}
    assert kinds(story) == ["turn"]


def test_a_call_whose_end_the_ledger_does_not_know_is_found(story: Story) -> None:
    story.calls[0]["state"] = "started"
    (failure,) = judge(told(), story)
    assert failure.what == "the ledger does not know how a call of weather ended"


def test_a_reader_sees_what_is_stored(story: Story) -> None:
    story.screen[1]["parts"][-1]["text"] = "It snows.It snows."
    (failure,) = judge(told(), story)
    assert failure.kind == "reader"
    assert "'It snows.It snows.'], stored is" in failure.what
    story.screen = story.path[:-1]
    (failure,) = judge(told(), story)
    assert failure.what == "the assistant's ['You are welcome.'] is not on the screen"
    story.screen = [*story.path, message("draft", "assistant", text("left over"))]
    (failure,) = judge(told(), story)
    assert failure.what == "the assistant's ['left over'] is on the screen and nowhere else"


def test_a_difference_that_does_not_show_is_told_in_full(story: Story) -> None:
    parts(story)[2]["title"] = "Weather"
    (failure,) = judge(told(), seen(story))
    assert '"title": "Weather"' in failure.what
    story = told("x-")
    story.screen[3]["parts"][0]["state"] = "streaming"
    (failure,) = judge(told(), story)
    assert '"state": "streaming"' in failure.what


def test_what_the_reader_the_provider_and_the_log_complain_about_is_told(story: Story) -> None:
    story.faults, story.refusals = ["an answer went back"], ["a call without its result"]
    story.errors, story.log = (
        ["Something broke."],
        "WARNING well\nERROR a reader raised\nERROR a reader raised",
    )
    assert [(failure.kind, failure.what) for failure in judge(told(), story)] == [
        ("provider", "a call without its result"),
        ("reader", "an answer went back"),
        ("error", "the reader was shown: Something broke."),
        ("log", "ERROR a reader raised"),
    ]


def test_what_goes_wrong_without_a_crash_as_well_is_not_the_crash() -> None:
    reference, story = told(), told("x-")
    for one in (reference, story):
        one.errors, one.log = ["Something broke."], "ERROR as ever"
    assert judge(reference, story) == []


def test_a_story_without_an_end_is_told_once(story: Story) -> None:
    story.broken, story.messages = "Step 2 was not over after 30 s.", []
    (failure,) = judge(told(), story)
    assert failure.kind == "broken"
