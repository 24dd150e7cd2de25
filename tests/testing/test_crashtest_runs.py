"""The runs of children on the screen of somebody who stays: told in their numbers, and the same again."""

from __future__ import annotations

import json
from typing import Any

import pytest

from everthink.testing.crashtest.run_screen import RunScreen
from everthink.wire.frames import AgentToolEvent

END = {"kind": "finished", "summary": "One two."}


class Window:
    """A screen, and what a reader of it complains about."""

    def __init__(self) -> None:
        self.faults: list[str] = []
        self.screen = RunScreen(self.faults.append)

    def tell(self, sequence: int, event: dict[str, Any], run: str = "r") -> None:
        self.screen.take(AgentToolEvent(sequence, {"runId": run, **event}, "call"))

    def start(self, agent: str = "Guide") -> None:
        self.tell(0, {"kind": "started", "agentType": agent, "order": 0})

    def say(self, *words: str, first: int = 1) -> None:
        for number, word in enumerate(words, first):
            self.tell(number, piece(word))


def piece(word: str) -> dict[str, Any]:
    return {"kind": "chunk", "body": json.dumps({"type": "text-delta", "id": "t", "delta": word})}


@pytest.fixture
def window() -> Window:
    """A run has begun, and said two words."""
    found = Window()
    found.start()
    found.tell(1, {"kind": "chunk", "body": '{"type":"text-start","id":"t"}'})
    found.say("One ", "two.", first=2)
    return found


def again(window: Window) -> None:
    """The same over another connection."""
    window.screen.connected()
    window.start()
    window.tell(1, {"kind": "chunk", "body": '{"type":"text-start","id":"t"}'})
    window.say("One ", "two.", first=2)


def test_a_run_that_is_told_again_and_goes_on_is_there_once(window: Window) -> None:
    again(window)
    window.tell(4, END)
    again(window)
    window.tell(4, END)
    seen = window.screen.seen["r"]
    assert (seen.agent, seen.call, seen.status, seen.text) == ("Guide", "call", "completed", "One two.")
    assert len(seen.pieces) == 3
    assert window.faults == []


def test_a_report_has_no_number(window: Window) -> None:
    report = {"type": "data-agent-progress", "data": {"fraction": 0.5}, "id": "p", "transient": True}
    window.tell(3, {"kind": "chunk", "body": json.dumps(report)})
    window.tell(4, END)
    assert window.faults == []
    assert len(window.screen.seen["r"].pieces) == 3


def test_a_run_that_was_interrupted_may_go_on(window: Window) -> None:
    window.tell(4, {"kind": "interrupted", "error": "Too long."})
    window.say(" Three.", first=4)
    window.tell(5, END)
    assert window.faults == []
    assert window.screen.seen["r"].text == "One two. Three."


def test_a_piece_that_is_lost_or_comes_twice_is_noticed(window: Window) -> None:
    window.say("four", first=5)
    assert window.faults == ["piece 5 of Guide came when piece 4 was due"]
    window.faults.clear()
    window.say("five", first=5)
    assert window.faults == ["piece 5 of Guide came twice over one connection"]


def test_a_piece_that_is_told_otherwise_is_noticed(window: Window) -> None:
    window.screen.connected()
    window.start()
    window.say("One ")
    (fault,) = window.faults
    assert fault.startswith("piece 1 of Guide was ")


def test_a_run_that_is_told_from_its_middle_or_from_its_start_twice_is_noticed(window: Window) -> None:
    window.start()
    assert window.faults == ["the run of Guide began twice over one connection"]
    window.faults.clear()
    window.screen.connected()
    window.say("three", first=4)
    (fault,) = window.faults
    assert fault.startswith("a run was told of without its beginning")


def test_another_child_under_the_same_name_is_noticed(window: Window) -> None:
    window.screen.connected()
    window.start("Innkeeper")
    assert window.faults == ["the run of Guide began otherwise when it was told again"]


def test_an_end_is_an_end(window: Window) -> None:
    window.tell(4, END)
    window.tell(4, END)
    assert window.faults == ["the run of Guide ended twice over one connection"]
    window.faults.clear()
    window.say("more", first=4)
    assert window.faults == ["the run of Guide went on after its end"]


def test_another_end_is_noticed(window: Window) -> None:
    window.tell(4, END)
    again(window)
    window.tell(4, {"kind": "error", "error": "It broke."})
    (fault,) = window.faults
    assert fault.startswith("the run of Guide had ended with ")


def test_an_end_before_what_was_told_is_noticed(window: Window) -> None:
    window.screen.connected()
    window.start()
    window.tell(1, END)
    assert window.faults == ["the run of Guide ended before piece 3, which was told"]
