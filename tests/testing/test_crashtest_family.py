"""The judge on families: each child is held to what its parent is, and what one answered is read above it."""

from __future__ import annotations

from typing import Any

import pytest

from everthink import Think, agent_tool
from everthink.testing import ScriptedModel, calls, says
from everthink.testing.crashtest.judge import judge
from everthink.testing.crashtest.members import members
from everthink.testing.crashtest.story import Member, SeenRun, Story
from tests.conftest import OpenApp

pytestmark = pytest.mark.anyio

Json = dict[str, Any]

TURN = {"trigger": "agent-tool", "status": "completed", "error": None}
FAILED = {"state": "output-error", "errorText": "interrupted"}
BOTH = [{"tool": "inn", "state": "done"}, {"tool": "walk", "state": "done"}]


def text(words: str) -> Json:
    return {"type": "text", "text": words, "state": "done"}


def call(tool: str, id: str, output: str = "ok") -> Json:
    return {"type": f"tool-{tool}", "toolCallId": id, "state": "output-available", "output": output}


def conversation(question: str, id: str, *parts: Json) -> list[Json]:
    """A question and its answer."""
    return [
        {"id": "q", "role": "user", "parts": [text(question)], "parent": None},
        {"id": id, "role": "assistant", "parts": list(parts), "parent": "q"},
    ]


def run(agent: str, call: str, answer: str) -> SeenRun:
    """A run as it was told."""
    pieces = [f'{{"type":"text-delta","id":"t","delta":"{word}"}}' for word in answer.split()]
    return SeenRun(agent, call, pieces, {"kind": "finished", "summary": answer}, "completed", answer)


def told(p: str = "") -> Story:
    """A parent that asks two children at once, one of which has one of its own."""
    messages = conversation(
        "Plan.", f"{p}a", call("inn", f"{p}1", "Yours."), call("walk", f"{p}2", "A walk."), text("Done.")
    )
    shown = [{key: value for key, value in m.items() if key != "parent"} for m in messages]
    asked = call("reserve", f"{p}3")
    family = [
        Member(
            "Inn 1", f"{p}1", "completed", conversation("Room?", f"{p}b", asked, text("Yours.")), [TURN], []
        ),
        Member(
            "Guide 1",
            f"{p}2",
            "completed",
            conversation("Walk?", f"{p}c", call("look", f"{p}4", "Sun."), text("A walk.")),
            [TURN],
        ),
        Member(
            "Guide 1 > Eye 1", f"{p}4", "completed", conversation("Sky?", f"{p}d", text("Sun.")), [TURN], []
        ),
    ]
    runs = {"1": run("Inn", f"{p}1", "Yours."), "2": run("Guide", f"{p}2", "A walk.")}
    return Story(
        messages=messages,
        turns=[{**TURN, "trigger": "ws-chat"}],
        calls=BOTH,
        family=family,
        path=shown,
        screen=shown,
        runs=runs,
        late_runs=dict(runs),
        effects=["reserve"],
    )


@pytest.fixture
def story() -> Story:
    """The same with other ids."""
    return told("x-")


def faults(story: Story) -> list[tuple[str, str]]:
    return [(failure.kind, failure.what) for failure in judge(told(), story)]


def parts(member: Member) -> list[Json]:
    return member.messages[1]["parts"]


def test_a_family_that_went_as_without_a_crash_passes(story: Story) -> None:
    assert judge(told(), story) == []


def test_what_is_wrong_with_a_child_is_told_with_its_name(story: Story) -> None:
    parts(story.family[2])[0]["text"] = "Su"
    story.family[0].turns.append({**TURN, "status": "running"})
    assert faults(story) == [
        ("transcript", "Guide 1 > Eye 1: message 2 has 'Su' instead of 'Sun.'"),
        ("turn", "Inn 1: a agent-tool turn was left running"),
        (
            "turn",
            "Inn 1: the turns were agent-tool completed, agent-tool running instead of agent-tool completed",
        ),
    ]


def test_a_child_that_is_missing_or_one_too_many_is_found(story: Story) -> None:
    story.family[2].agent = "Guide 1 > Eye 2"
    assert faults(story) == [
        ("child", "Guide 1 > Eye 2 is one too many"),
        ("child", "Guide 1 > Eye 1 is missing"),
    ]


def test_a_child_that_was_only_half_made_is_found(story: Story) -> None:
    half = story.family[2]
    half.run, half.messages, half.turns = None, [], []
    assert [kind for kind, _ in faults(story)] == ["child", "transcript", "transcript", "turn"]
    assert faults(story)[0][1] == "Guide 1 > Eye 1: its run is None instead of completed"


def test_a_report_to_a_child_is_no_failure_and_those_above_it_may_say_something_else(story: Story) -> None:
    inn, guide, eye = story.family
    parts(inn)[0] |= FAILED
    parts(inn)[1]["text"] = story.messages[1]["parts"][0]["output"] = "I cannot tell."
    story.runs["1"] = story.late_runs["1"] = run("Inn", "x-1", "I cannot tell.")
    assert faults(story) == []
    # whether it acted or not
    story.effects.clear()
    assert faults(story) == []
    # and it is told to two above it as well
    parts(eye).insert(0, call("look", "x-5") | FAILED)
    parts(eye)[1]["text"] = parts(guide)[0]["output"] = "No idea."
    parts(guide)[1]["text"] = story.messages[1]["parts"][1]["output"] = "Perhaps a walk."
    story.runs["2"] = story.late_runs["2"] = run("Guide", "x-2", "Perhaps a walk.")
    reference = told()
    parts(reference.family[2]).insert(0, call("look", "5"))
    assert judge(reference, story) == []


def test_an_answer_that_differs_from_its_childs_without_a_report_is_found(story: Story) -> None:
    story.messages[1]["parts"][0]["output"] = "Not yours."
    assert [kind for kind, _ in faults(story)] == ["transcript"]


def test_a_run_is_on_the_screen_as_it_is_told_to_whoever_comes_late(story: Story) -> None:
    whole = story.runs["2"]
    story.runs["2"] = run("Guide", "x-2", "A")
    assert faults(story) == [
        (
            "reader",
            "of the run of Guide there is {'kind': 'finished', 'summary': 'A'} on the screen,"
            f" and {whole.pieces[1]} is told",
        )
    ]
    del story.runs["2"]
    assert faults(story) == [("reader", "the run of Guide is not on the screen")]
    story.runs["2"] = story.late_runs.pop("2")
    assert faults(story) == [
        ("reader", "the run of Guide is only on the screen"),
        ("reader", "nobody is told of the run of Guide 1"),
    ]


def test_a_run_that_is_told_otherwise_than_it_is_stored_is_found(story: Story) -> None:
    for runs in (story.runs, story.late_runs):
        runs["1"] = run("Inn", "x-1", "Yours. Yours.")
        runs["2"].status = "error"
    assert faults(story) == [
        ("reader", "the run of Inn 1 is told as 'Yours. Yours.' and its answer is 'Yours.'"),
        ("reader", "the run of Guide 1 is told as error and stored as completed"),
    ]


# --- which of them is which


class Leaf(Think):
    """The child of a child."""

    model: Any = ScriptedModel(says("leaf"), repeat=True)


class Middle(Think):
    """A child, which has one of its own."""

    model: Any = ScriptedModel(
        *(play for n in "ab" for play in (calls("ask", query="x", id=n), says("middle")))
    )
    ask = agent_tool(Leaf, description="Ask the leaf.")


class Top(Think):
    """The parent."""

    model: Any = ScriptedModel(
        calls("leaf", query="1", id="z").calls("leaf", query="2", id="c").calls("middle", query="3", id="b"),
        says("top"),
        calls("middle", query="4", id="a"),
        says("top"),
    )
    leaf = agent_tool(Leaf, description="A leaf.")
    middle = agent_tool(Middle, description="A middle.")


async def test_children_are_known_by_the_order_of_the_calls_that_asked_for_them(open_app: OpenApp) -> None:
    app = await open_app(Top)
    for _ in range(2):
        await app.agent(Top, "room").save_messages("Go")
    directory = await app.open()
    found = await members(directory, await directory.reach(directory.address(Top, "room")))
    assert {(one["agent"], one["call"]) for one in found} == {
        ("Leaf 1", "z"),
        ("Leaf 2", "c"),
        ("Middle 1", "b"),
        ("Middle 2", "a"),
        ("Middle 1 > Leaf 1", "a"),
        ("Middle 2 > Leaf 1", "b"),
    }
    assert [one["agent"].count(">") for one in found] == [0, 0, 0, 0, 1, 1]
    asked = {one["agent"]: one["messages"][0]["parts"][0]["text"] for one in found}
    assert "1" in asked["Leaf 1"]
    assert "4" in asked["Middle 2"]
    assert all(one["run"] == "completed" and len(one["turns"]) == 1 for one in found)
