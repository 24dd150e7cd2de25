"""Kill the process in the middle of a turn, again and again: the next one goes on, without a client."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.crash.process import Child
from tests.crash.recovery_child import HOLES, WORDS
from tests.crash.wreck import Survivor, Wreck

pytestmark = pytest.mark.anyio

SCRIPT = Path(__file__).with_name("recovery_child.py")
BOTH = pytest.mark.parametrize("url", ["sqlite", "postgres"], indirect=True)


@pytest.fixture
def effects(tmp_path: Path) -> Path:
    return tmp_path / "effects"


@pytest.fixture
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if getattr(request, "param", "sqlite") == "sqlite":
        return f"sqlite:///{tmp_path}/everthink.db"
    found: str = request.getfixturevalue("postgres_url")
    return found


def lines_of(effects: Path) -> list[str]:
    """What tools did to the world."""
    return effects.read_text().splitlines() if effects.exists() else []


class Story:
    """A turn told by one process after the other."""

    def __init__(self, url: str, name: str, effects: Path) -> None:
        self.url, self.name, self.effects = url, name, effects
        self.lines: list[dict[str, Any]] = []
        self.processes = 0

    def go_on(self, until: Any = None) -> bool:
        """Run a process, and kill it at the first line for which `until` is true. True: the turn is over."""
        scenario = self.name if self.processes == 0 else f"{self.name}-again"
        self.processes += 1
        with Child(self.url, scenario, self.effects, script=SCRIPT) as child:
            while (line := child.read()) is not None:
                if line["kind"] == "over" or (until is not None and until(line)):
                    break
            said = child.kill()
        self.lines += said
        return any(line["kind"] == "over" for line in said)

    @property
    def shown(self) -> list[dict[str, Any]]:
        """What readers of all processes have seen: each chunk once, in order."""
        chunks = [line for line in self.lines if line["kind"] == "chunk"]
        assert [chunk["seq"] for chunk in chunks] == list(range(len(chunks)))
        return [json.loads(chunk["body"]) for chunk in chunks]

    @property
    def text(self) -> str:
        return "".join(chunk["delta"] for chunk in self.shown if chunk["type"] == "text-delta")

    async def end(self) -> Any:
        """The conversation that the last process left. Nothing is left to do in it."""
        async with Survivor(self.url, self.effects) as survivor:
            await survivor.at_rest()
            assert survivor.model.asked == 0
            assert set((await survivor.statuses()).values()) == {"completed"}
            assert await survivor.agent._home.store.fetch("SELECT * FROM incidents") == []
            return survivor.agent


def is_text(line: dict[str, Any]) -> bool:
    return "text-delta" in line.get("body", "")


@pytest.mark.case(452)
@BOTH
async def test_a_turn_is_finished_by_as_many_processes_as_it_takes_without_a_client(
    url: str, effects: Path
) -> None:
    # Given processes that live for a word each
    story = Story(url, "words", effects)
    while not story.go_on(is_text):
        assert story.processes <= len(WORDS) + 1

    # Then a reader of all of them has seen one stream, with the whole answer in it
    assert story.processes > 1
    assert story.text == "".join(WORDS)
    agent = await story.end()
    assert [m.text for m in agent.messages] == ["Go on, then.", "".join(WORDS)]


@pytest.mark.case(452)
@BOTH
async def test_a_turn_of_a_child_is_finished_so_too_and_nobody_reaches_its_parent(
    url: str, effects: Path
) -> None:
    story = Story(url, "below", effects)
    while not story.go_on(is_text):
        assert story.processes <= len(WORDS) + 1
    assert story.processes > 1
    assert story.text == "".join(WORDS)
    assert len({chunk["turn"] for chunk in story.lines if chunk["kind"] == "chunk"}) == 1


@pytest.mark.case(453)
@pytest.mark.parametrize("story", ["digs", "holds"])
async def test_a_long_loop_of_tools_does_nothing_twice_and_loses_nothing(
    url: str, effects: Path, story: str
) -> None:
    # Given processes that die after a tool's result, or while the tool runs
    told = Story(url, story, effects)
    dies = "tool-output-available" if story == "digs" else '"tool"'
    while not told.go_on(lambda line: dies in json.dumps(line)):
        assert told.processes <= HOLES + 1
    assert told.processes > HOLES

    # Each hole was dug once: a result that was stored is not asked for again, and a call that was cut off
    # is reported to the model, which reads that it may have run
    assert lines_of(effects) == [f"hole {n}" for n in range(HOLES)]
    agent = await told.end()
    calls = agent.messages[1].tool_parts
    assert [part["input"] for part in calls] == [{"n": n} for n in range(HOLES)]
    state = "output-available" if story == "digs" else "output-error"
    assert {part["state"] for part in calls} == {state}
    assert agent.messages[1].text == "is done."


@pytest.mark.case(454)
async def test_what_a_tool_did_is_kept_though_the_hook_wants_nothing_kept(url: str, effects: Path) -> None:
    story = Story(url, "forgets", effects)
    assert not story.go_on(is_text)
    assert story.go_on()
    assert lines_of(effects) == ["hole 0"]
    agent = await story.end()
    assert [part["state"] for part in agent.messages[1].tool_parts] == ["output-available"]
    assert agent.messages[1].text == story.text == "There is done."


@pytest.mark.case(456)
async def test_a_kill_before_the_first_word_is_followed_by_an_answer(url: str, effects: Path) -> None:
    story = Story(url, "silent", effects)
    assert not story.go_on(lambda line: "start-step" in line.get("body", ""))
    assert story.go_on()
    assert [line["kind_"] for line in story.lines if line["kind"] == "recovers"] == ["retry"]
    agent = await story.end()
    assert [m.text for m in agent.messages] == ["Go on, then.", "is done."]


@pytest.mark.case(457)
async def test_a_kill_during_a_regeneration_leaves_the_old_answer_beside_the_new_one(
    url: str, effects: Path
) -> None:
    story = Story(url, "regenerates", effects)
    while not story.go_on(is_text):
        assert story.processes <= len(WORDS) + 1
    agent = await story.end()
    assert [m.text for m in agent.messages] == ["Go on, then.", "".join(WORDS)]
    async with Survivor(url, effects) as survivor:
        branches = await survivor.agent.session.get_branches("u1")
        assert [m.text for m in branches] == ["Old.", "".join(WORDS)]


@pytest.mark.case(55)
async def test_a_stalled_turn_of_a_killed_process_is_finished_by_the_next(url: str, effects: Path) -> None:
    # Given a turn that has stalled and waits for its next attempt
    story = Story(url, "stalls", effects)
    assert not story.go_on(lambda line: line["kind"] == "recovers")
    wreck = await Wreck.inspect(url)
    assert await wreck.turns() == {"r": "interrupted"}
    await wreck.close()

    # When that process is gone
    assert story.go_on()

    # Then the next one has finished it
    assert [line["text"] for line in story.lines if line["kind"] == "recovers"] == ["The rest "] * 2
    assert story.text == "The rest is done."
    agent = await story.end()
    assert [m.text for m in agent.messages] == ["Go on, then.", "The rest is done."]
