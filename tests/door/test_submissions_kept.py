"""Submissions that are over: listed, inspected, deleted; and those found when an agent wakes."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from everthink import Submission
from everthink.clock import moment_of
from everthink.store.port import Statement
from everthink.testing.clock import ManualClock
from everthink.testing.scripted import ScriptedModel, says
from tests.conftest import OpenApp
from tests.support.agents import assistant, live
from tests.support.submissions import Statuses
from tests.support.turns import Database, Witness, all_over, home_of, prompt, record_events

pytestmark = pytest.mark.anyio


# --- listing and deleting


class Office:
    """An agent with submissions in several states: one a second came, and `done-1` ended in the first."""

    def __init__(self, agent: Any, clock: ManualClock, home: Any) -> None:
        self.agent, self.clock, self.home = agent, clock, home

    async def ids(self, **filters: Any) -> list[str]:
        return [s.submission_id for s in await self.agent.list_submissions(**filters)]


@pytest.fixture
async def office(open_app: OpenApp) -> Office:
    clock, seen = ManualClock(), Statuses()
    model = ScriptedModel(says("One."), says("Two."), says("x").then_fails("broke"), says("Hm").then_hangs())
    app = await open_app(cls := assistant(model, on_submission_status=seen.hook), clock=clock)
    agent, home = app.agent(cls), await home_of(app, cls)
    for id, status in (("done-1", "completed"), ("done-2", "completed"), ("broken", "error")):
        await agent.submit_messages(id, submission_id=id)
        await seen.until(id, status)
        await clock.advance(1)
    # One runs, and behind it one was cancelled, one waits
    for id in ("running", "cancelled", "pending"):
        await agent.submit_messages(id, submission_id=id)
        await clock.advance(1)
    await agent.cancel_submission("cancelled")
    await model.until_silent()
    return Office(agent, clock, home)


ALL = ["pending", "cancelled", "running", "broken", "done-2", "done-1"]


@pytest.mark.case(602)
@pytest.mark.parametrize(
    ("status", "found"),
    [
        (None, ALL),
        ("completed", ["done-2", "done-1"]),
        ("error", ["broken"]),
        ("aborted", ["cancelled"]),
        ("running", ["running"]),
        ("pending", ["pending"]),
        ("skipped", []),
        (["completed", "pending"], ["pending", "done-2", "done-1"]),
        ([], []),
    ],
)
async def test_submissions_are_listed_newest_first_by_status(
    office: Office, status: Any, found: list[str]
) -> None:
    assert await office.ids(status=status) == found


@pytest.mark.case(606)
@pytest.mark.parametrize(
    ("filters", "found"),
    [
        ({"limit": 2}, ALL[:2]),
        ({"limit": 0}, ALL[:1]),
        ({"limit": -5}, ALL[:1]),
        ({"limit": 1000}, ALL),
        ({"status": "completed", "limit": 1}, ["done-2"]),
        ({"status": ["error", "completed"], "limit": 2}, ["broken", "done-2"]),
    ],
)
async def test_the_list_is_filtered_before_it_is_cut(
    office: Office, filters: dict[str, Any], found: list[str]
) -> None:
    assert await office.ids(**filters) == found


async def test_at_most_a_hundred_are_listed_and_fifty_unless_asked(open_app: OpenApp) -> None:
    app = await open_app(cls := assistant(ScriptedModel(says("Hm").then_hangs())))
    agent = app.agent(cls)
    await asyncio.gather(*(agent.submit_messages("Work") for _ in range(105)))
    assert len(await agent.list_submissions()) == 50
    assert len(await agent.list_submissions(limit=101)) == 100


@pytest.mark.case(603)
@pytest.mark.parametrize("id", ["done-1", "broken", "cancelled"])
async def test_a_submission_that_is_over_can_be_deleted(office: Office, id: str) -> None:
    assert await office.agent.delete_submission(id) is True
    assert await office.agent.inspect_submission(id) is None
    assert await office.ids() == [other for other in ALL if other != id]
    assert await office.agent.delete_submission(id) is False


@pytest.mark.case(603)
async def test_the_conversation_outlives_a_deleted_submission(office: Office) -> None:
    before = [m.text for m in await office.agent.get_messages()]
    await office.agent.delete_submissions()
    assert [m.text for m in await office.agent.get_messages()] == before
    assert before[:4] == ["done-1", "One.", "done-2", "Two."]


@pytest.mark.case(604)
@pytest.mark.parametrize("id", ["pending", "running", "nobody"])
async def test_a_submission_that_is_not_over_or_unknown_cannot_be_deleted(office: Office, id: str) -> None:
    assert await office.agent.delete_submission(id) is False
    assert await office.ids() == ALL


@pytest.mark.case(604)
async def test_a_chat_turn_is_not_a_submission(open_app: OpenApp, tmp_path: Path) -> None:
    app = await open_app(cls := assistant(ScriptedModel(says("Hi."))))
    agent = app.agent(cls)
    await agent.save_messages("Hello")
    (turn,) = Database(tmp_path).turns()
    assert await agent.inspect_submission(turn["id"]) is None
    assert await agent.list_submissions() == []
    assert await agent.delete_submission(turn["id"]) is False
    assert await agent.delete_submissions() == 0
    assert Database(tmp_path).turns() == [turn]


@pytest.mark.case(605)
@pytest.mark.parametrize(
    ("status", "count", "left"),
    [
        (None, 4, ["pending", "running"]),
        ("completed", 2, ["pending", "cancelled", "running", "broken"]),
        (["error", "aborted"], 2, ["pending", "running", "done-2", "done-1"]),
        (["running", "pending", "error"], 1, ["pending", "cancelled", "running", "done-2", "done-1"]),
        ("pending", 0, ALL),
        ([], 0, ALL),
    ],
)
async def test_many_are_deleted_by_status_but_never_those_that_are_not_over(
    office: Office, status: Any, count: int, left: list[str]
) -> None:
    assert await office.agent.delete_submissions(status=status) == count
    assert await office.ids() == left


@pytest.mark.case(606)
@pytest.mark.parametrize(
    ("filters", "count", "left"),
    [
        # the first to end goes first
        ({"limit": 1}, 1, ["pending", "cancelled", "running", "broken", "done-2"]),
        ({"limit": 0}, 1, ["pending", "cancelled", "running", "broken", "done-2"]),
        (
            {"status": ["error", "aborted"], "limit": 1},
            1,
            ["pending", "cancelled", "running", "done-2", "done-1"],
        ),
        # `completed_before` is strict, and comes before the limit
        ({"before": 0}, 0, ALL),
        ({"before": 1}, 1, ["pending", "cancelled", "running", "broken", "done-2"]),
        ({"before": 1001}, 2, ["pending", "cancelled", "running", "broken"]),
        ({"before": 1001, "status": "error"}, 0, ALL),
        ({"before": 2001, "status": "error"}, 1, ["pending", "cancelled", "running", "done-2", "done-1"]),
    ],
)
async def test_many_are_deleted_oldest_first_within_the_limits(
    office: Office, filters: dict[str, Any], count: int, left: list[str]
) -> None:
    start = office.clock.now_ms() - 6000
    if "before" in filters:
        filters = {**filters, "completed_before": moment_of(start + filters["before"])}
        del filters["before"]
    assert await office.agent.delete_submissions(**filters) == count
    assert await office.ids() == left


async def test_after_deletion_the_id_and_the_key_are_new_again(open_app: OpenApp) -> None:
    seen = Statuses()
    model = ScriptedModel(says("One."), says("Two."))
    app = await open_app(cls := assistant(model, on_submission_status=seen.hook))
    agent = app.agent(cls)
    names = {"submission_id": "job", "idempotency_key": "key"}
    await agent.submit_messages("First", **names)
    await seen.until("job", "completed")
    assert await agent.delete_submission("job")
    again = await agent.submit_messages("Second", **names)
    assert again.accepted
    await seen.until("job", "completed", times=2)
    assert seen.of("job") == ["pending", "running", "completed"] * 2
    assert [m.text for m in await agent.get_messages()] == ["First", "One.", "Second", "Two."]


@pytest.mark.parametrize("stored", ["{not json", '"a text"', "[1]", "null", None])
async def test_stored_metadata_that_is_no_object_reads_as_absent(office: Office, stored: str | None) -> None:
    change = Statement("UPDATE turns SET metadata = ? WHERE id = ?", (stored, "done-1"))
    await office.home.store.apply([change])
    found = await office.agent.inspect_submission("done-1")
    assert (found.status, found.metadata) == ("completed", None)


# --- waking

REST = says("cut off.")


async def _left_waiting(open_app: OpenApp, *ids: str) -> None:
    """Submit behind a turn that hangs, and stop the process. `REST` is what that turn has left to say."""
    model = ScriptedModel(says("I was ").then_hangs())
    app = await open_app(cls := assistant(model))
    agent = app.agent(cls)
    asyncio.create_task(agent.save_messages("Hi")).add_done_callback(lambda task: task.exception())
    await model.until_silent()
    for id in ids:
        await agent.submit_messages(
            [f"{id} a", f"{id} b"], submission_id=id, idempotency_key=f"key-{id}", metadata={"of": id}
        )
    await app.close()


@pytest.mark.case(571, 572, 587)
async def test_submissions_that_waited_when_the_process_stopped_run_when_the_agent_wakes(
    open_app: OpenApp, tmp_path: Path
) -> None:
    # Given a process that stopped while one turn ran and three submissions waited
    ids = ["c", "a", "b"]
    await _left_waiting(open_app, *ids)
    rows = {row["id"]: row for row in Database(tmp_path).turns()}

    # When the agent wakes in another
    seen = Statuses()
    model = ScriptedModel(REST, *(says(f"Answer {n}.") for n in range(3)))
    app = await open_app(cls := assistant(model, on_submission_status=seen.hook))
    await live(app.agent(cls))
    await seen.until("b", "completed")

    # Then they run to the end, in their order, each once
    texts = [m.text for m in await app.agent(cls).get_messages()]
    asked = ["c a", "c b", "Answer 0.", "a a", "a b", "Answer 1.", "b a", "b b", "Answer 2."]
    assert texts == ["Hi", "I was cut off.", *asked]
    for id in ids:
        assert seen.of(id) == ["running", "completed"]
        done = await app.agent(cls).inspect_submission(id)
        assert (done.metadata, done.idempotency_key) == ({"of": id}, f"key-{id}")
        assert done.created_at == moment_of(rows[id]["created_at"])
    # under the ids that their rows had
    answers = [m.id for m in await app.agent(cls).get_messages() if m.text.startswith("Answer")]
    assert answers == [rows[id]["message_id"] for id in ids]
    assert ("user", "a b") in prompt(model.requests[2])


@pytest.mark.case(570)
async def test_retrying_a_submission_of_a_stopped_process_makes_it_run(open_app: OpenApp) -> None:
    await _left_waiting(open_app, "job")
    seen = Statuses()
    app = await open_app(cls := assistant(ScriptedModel(REST, says("Done.")), on_submission_status=seen.hook))
    again = await app.agent(cls).submit_messages("ignored", idempotency_key="key-job")
    assert (again.accepted, again.submission_id) == (False, "job")
    await seen.until("job", "completed")
    assert [m.text for m in await app.agent(cls).get_messages()][2:] == ["job a", "job b", "Done."]


@pytest.mark.case(594)
async def test_one_cancelled_before_the_process_stopped_stays_cancelled(open_app: OpenApp) -> None:
    model = ScriptedModel(says("I was ").then_hangs())
    app = await open_app(cls := assistant(model))
    await app.agent(cls).submit_messages("Runs", submission_id="runs")
    await app.agent(cls).submit_messages("Waits", submission_id="waits")
    await model.until_silent()
    for id in ("waits", "runs"):
        await app.agent(cls).cancel_submission(id, "enough")
    await app.close()

    app = await open_app(cls := assistant(ScriptedModel()))
    rows = await app.agent(cls).list_submissions()
    assert [(s.submission_id, s.status, s.error) for s in rows] == [
        ("waits", "aborted", "enough"),
        ("runs", "aborted", "enough"),
    ]
    assert [m.text for m in await app.agent(cls).get_messages()] == ["Runs", "I was "]


@pytest.mark.case(594)
async def test_one_cancelled_while_it_waits_again_never_begins(open_app: OpenApp) -> None:
    await _left_waiting(open_app, "first", "second")
    seen = Statuses()
    model = ScriptedModel(REST, says("Done.").waits(goes := asyncio.Event()))
    app = await open_app(cls := assistant(model, on_submission_status=seen.hook))
    agent = app.agent(cls)
    await live(agent)
    await model.until_silent()
    await agent.cancel_submission("second", "enough")
    goes.set()
    await seen.until("first", "completed")
    await all_over(app, cls)
    assert (await agent.inspect_submission("second")).status == "aborted"
    assert model.asked == 2
    assert seen.of("second") == ["aborted"]


@pytest.mark.case(590)
@pytest.mark.parametrize(
    "stored", ["{not json", '{"messages": "no list"}', '{"messages": [{"id": 7}]}', "{}"]
)
async def test_a_submission_whose_messages_cannot_be_read_is_an_error(
    open_app: OpenApp, tmp_path: Path, stored: str
) -> None:
    # Given a stored submission that somebody damaged, and a good one behind it
    await _left_waiting(open_app, "bad", "good")
    with sqlite3.connect(tmp_path / "everthink.db") as connection:
        connection.execute("UPDATE turns SET input = ? WHERE id = ?", (stored, "bad"))
    connection.close()

    # When the agent wakes
    seen = Statuses()
    app = await open_app(cls := assistant(ScriptedModel(REST, says("Fine.")), on_submission_status=seen.hook))
    events = record_events(app, "submission:*")
    await live(app.agent(cls))
    await seen.until("good", "completed")

    # Then it says so, and the other one ran
    bad = await app.agent(cls).inspect_submission("bad")
    assert (bad.status, bad.error) == ("error", "Stored submission messages are invalid")
    assert bad.completed_at is not None
    assert seen.of("bad") == ["error"]
    assert [(e.type, e.payload["submissionId"]) for e in events][:2] == [
        ("submission:status", "bad"),
        ("submission:error", "bad"),
    ]
    assert [m.text for m in await app.agent(cls).get_messages()][2:] == ["good a", "good b", "Fine."]


async def test_a_submission_cut_off_by_the_end_of_its_process_goes_on_when_the_agent_wakes(
    open_app: OpenApp,
) -> None:
    model = ScriptedModel(says("I was ").then_hangs())
    app = await open_app(cls := assistant(model))
    witness = Witness(await home_of(app, cls))
    await app.agent(cls).submit_messages("Work", submission_id="job")
    await witness.until_text("I was ")
    await app.close()

    seen = Statuses()
    app = await open_app(cls := assistant(ScriptedModel(REST), on_submission_status=seen.hook))
    await live(app.agent(cls))
    await seen.until("job", "completed")
    found: Submission = await app.agent(cls).inspect_submission("job")
    assert (found.status, found.request_id, found.error) == ("completed", "job", None)
    assert seen.of("job") == ["running", "completed"]
    assert [m.text for m in await app.agent(cls).get_messages()] == ["Work", "I was cut off."]
