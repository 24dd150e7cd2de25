"""Pull the plug: a process is killed at many points, and another one finds what it left.

What was printed was shown to somebody or acknowledged to somebody: none of it may be lost or doubled, and
the answers are in the end what they would have been.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.crash.process import Child
from tests.crash.wreck import WHOLE, Survivor, Wreck

pytestmark = pytest.mark.anyio

LINES = 51
"""How many lines the story has."""
POINTS = [*range(1, 31), *range(31, LINES, 3)]
"""After which it is killed: each of the first turn, where most happens, and some of the others."""
QUESTIONS = {"u1": "Weather in Paris?", "job": "Do the job.", "u2": "And then?"}


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


def tell(url: str, effects: Path, lines: int) -> list[dict[str, Any]]:
    """Let the story run, and kill it after so many lines. Returns all it said."""
    with Child(url, "story", effects) as child:
        while len(child.lines) < lines and child.read() is not None:
            pass
        return child.kill()


def shown_texts(said: list[dict[str, Any]]) -> dict[str, str]:
    """The text that was shown of each answer, by request."""
    texts: dict[str, str] = {}
    for line in said:
        if line["kind"] == "chunk":
            body = json.loads(line["body"])
            texts.setdefault(line["request"], "")
            if body["type"] == "text-delta":
                texts[line["request"]] += body["delta"]
    return texts


def test_the_story_has_as_many_lines_as_we_kill_it_at(url: str, effects: Path) -> None:
    with Child(url, "story", effects) as child:
        child.until("over")
        assert len(child.lines) == LINES
        assert shown_texts(child.lines) == {id: WHOLE[text] for id, text in QUESTIONS.items()}


@pytest.mark.parametrize(
    ("url", "lines"),
    [*(("sqlite", n) for n in POINTS), *(("postgres", n) for n in (2, 7, 12, 16, 21, 33, 43))],
    indirect=["url"],
)
async def test_what_was_shown_or_acknowledged_survives_a_kill(url: str, effects: Path, lines: int) -> None:
    said = tell(url, effects, lines)
    assert len(said) >= lines

    # What the dead process left: each chunk that was shown, under its number
    wreck = await Wreck.inspect(url)
    journal = {line["turn"]: await wreck.chunks(line["turn"]) for line in said if line["kind"] == "chunk"}
    for line in said:
        if line["kind"] == "chunk":
            assert journal[line["turn"]][line["seq"]] == line["body"]
    # each message and each submission that was acknowledged
    stored, turns = await wreck.message_ids(), await wreck.turns()
    acknowledged = [line["id"] for line in said if line["kind"] in ("acknowledged", "submitted")]
    assert all(id in turns for id in acknowledged)
    assert all(id in stored for id in acknowledged if id != "job")
    # each end that was told
    for line in said:
        if line["kind"] == "ended":
            assert turns[line["request"]] == line["status"]
    # and for each tool that ran, a row that says so
    ran = lines_of(effects)
    ledger = await wreck.calls()
    assert len(ran) <= 1
    if ran:
        assert ledger in ([("weather", "started")], [("weather", "done")])
    if any("tool-output-available" in line.get("body", "") for line in said):
        assert ledger == [("weather", "done")]
    await wreck.close()

    # When the agent wakes in another process
    async with Survivor(url, effects) as survivor:
        await survivor.at_rest()
        messages = [message.copy() for message in survivor.agent.messages]
        statuses = await survivor.statuses()

        # Then every turn is done: what waited was answered, what was interrupted went on
        assert statuses == dict.fromkeys(turns, "completed")
        if "job" in acknowledged:
            assert (await survivor.agent.inspect_submission("job")).status == "completed"
        # the reader finds the whole answers, each once, beginning with what was shown
        texts = [message.text for message in messages if message.role == "assistant"]
        assert sorted(texts) == sorted(WHOLE[QUESTIONS[id]] for id in turns)
        for id, shown in shown_texts(said).items():
            assert WHOLE[QUESTIONS[id]].startswith(shown)
        # nothing is doubled: no message, no question, no effect of a tool
        assert len({message.id for message in messages}) == len(messages)
        asked = [message.text for message in messages if message.role == "user"]
        assert sorted(asked) == sorted(QUESTIONS[id] for id in turns)
        calls = [part for message in messages for part in message.tool_parts]
        assert len(calls) == ("u1" in turns)
        # a tool that had begun and did not end is not run again: the model was told that it may have run
        unsure = ledger == [("weather", "started")]
        assert [part["state"] for part in calls] == ["output-error" if unsure else "output-available"] * len(
            calls
        )
        assert lines_of(effects) == (ran if unsure else ["weather Paris"] * len(calls))

    # And nothing of it changes when it is opened once more
    async with Survivor(url, effects) as survivor:
        await survivor.at_rest()
        assert survivor.agent.messages == messages
        assert await survivor.statuses() == statuses
        assert survivor.model.asked == 0
        # and the conversation goes on
        assert (await survivor.agent.save_messages("Are you there?")).status == "completed"


@pytest.mark.parametrize("url", ["sqlite", "postgres"], indirect=True)
async def test_a_kill_while_a_tool_runs_leaves_a_call_that_started_and_never_runs_again(
    url: str, effects: Path
) -> None:
    with Child(url, "tool", effects) as child:
        child.until("tool")
        child.kill()

    wreck = await Wreck.inspect(url)
    assert await wreck.calls() == [("weather", "started")]
    assert list((await wreck.turns()).values()) == ["running"]
    await wreck.close()

    # The next process tells the model that nobody knows how the call ended, does not run it, and goes on
    async with Survivor(url, effects) as survivor:
        await survivor.at_rest()
        question, answer = survivor.agent.messages
        assert (question.text, answer.text) == (
            "Weather in Paris?",
            "I will look. It rains in Paris, and it will rain tomorrow.",
        )
        (part,) = answer.tool_parts
        assert part["state"] == "output-error"
        assert "may or may not have taken effect" in part["errorText"]
        assert "may or may not have taken effect" in str(survivor.model.last_request.messages)
        rows = await survivor.agent._home.store.fetch("SELECT state FROM calls")
        assert [row[0] for row in rows] == ["unknown"]
        assert await survivor.statuses() == dict.fromkeys(await survivor.statuses(), "completed")
    assert lines_of(effects) == ["weather Paris"]


@pytest.mark.case(598)
@pytest.mark.parametrize("url", ["sqlite", "postgres"], indirect=True)
async def test_work_accepted_and_not_begun_is_done_by_the_next_process(url: str, effects: Path) -> None:
    with Child(url, "queued", effects) as child:
        child.until("acknowledged")
        child.kill()

    wreck = await Wreck.inspect(url)
    assert await wreck.turns() == dict.fromkeys(["job-0", "job-1", "job-2", "u1"], "accepted")
    assert await wreck.message_ids() == ["u1"]
    await wreck.close()

    async with Survivor(url, effects) as survivor:
        await survivor.at_rest()
        assert await survivor.statuses() == dict.fromkeys(["job-0", "job-1", "job-2", "u1"], "completed")
        for number in range(3):
            submission = await survivor.agent.inspect_submission(f"job-{number}")
            assert (submission.status, submission.metadata) == ("completed", {"n": number})
        asked = [message.text for message in survivor.agent.messages if message.role == "user"]
        assert asked == ["Hello?", "Job 0.", "Job 1.", "Job 2."]
        assert survivor.model.asked == 4


@pytest.mark.parametrize("lines", [1, 2, 3])
async def test_a_kill_while_work_is_being_accepted_keeps_what_was_acknowledged(
    url: str, effects: Path, lines: int
) -> None:
    with Child(url, "queued", effects) as child:
        for _ in range(lines):
            child.until("submitted")
        said = child.kill()
    promised = [line["id"] for line in said if line["kind"] == "submitted"]
    async with Survivor(url, effects) as survivor:
        await survivor.at_rest()
        done = [s.submission_id for s in await survivor.agent.list_submissions(status="completed")]
        # Perhaps one more was stored than anybody was told of; never one less
        assert done[::-1][: len(promised)] == promised
        assert len(done) <= len(promised) + 1


async def test_a_kill_while_the_database_is_made_leaves_one_that_opens(url: str, effects: Path) -> None:
    for _ in range(5):
        with Child(url, "hold", effects) as child:
            child.until("opening")
            child.kill()
    async with Survivor(url, effects) as survivor:
        assert (await survivor.agent.save_messages("Hello?")).status == "completed"
