"""Submissions: accept a turn once, run it later, in order."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from everthink import Submission, Think, tool
from everthink.clock import moment_of
from everthink.door.chat_request import ChatRequest
from everthink.errors import InvalidTurn, SubmissionConflict
from everthink.hooks import TurnContext
from everthink.testing.clock import ManualClock
from everthink.testing.scripted import ScriptedModel, calls, says
from tests.conftest import OpenApp
from tests.support.agents import assistant, live
from tests.support.submissions import Statuses
from tests.support.turns import Database, accept_request, gated_app, home_of, prompt, record_events

pytestmark = pytest.mark.anyio


@pytest.mark.case(95, 562, 563)
async def test_a_submission_is_pending_at_once_and_completed_later(open_app: OpenApp) -> None:
    # Given an agent with a clock that a test moves
    clock, seen, responses = ManualClock(), Statuses(), []
    start = clock.now_ms()
    model = ScriptedModel(says("Done.").waits(goes := asyncio.Event()))
    members: dict[str, Any] = {
        "on_submission_status": seen.hook,
        "on_chat_response": lambda self, response: responses.append(response.message.text),
    }
    app = await open_app(cls := assistant(model, **members), clock=clock)
    agent = await live(app.agent(cls))

    # When a turn is submitted
    given = {"order": 7, "tags": ["a"]}
    submission = await agent.run_turn("Work", mode="submit", submission_id="job-1", metadata=given)

    # Then it is accepted, and nothing has run yet
    assert isinstance(submission, Submission)
    assert (submission.accepted, submission.status, submission.submission_id) == (True, "pending", "job-1")
    assert (submission.metadata, submission.created_at) == (given, moment_of(start))
    assert (submission.started_at, submission.completed_at) == (None, None)
    assert (model.asked, agent.messages) == (0, [])

    # And when its time has come it runs
    await seen.until("job-1", "running")
    await clock.advance(5)
    goes.set()
    ended = await seen.until("job-1", "completed")
    assert (ended.request_id, ended.error, ended.metadata) == ("job-1", None, given)
    assert (ended.created_at, ended.started_at, ended.completed_at) == tuple(
        map(moment_of, (start, start, start + 5000))
    )
    assert seen.of("job-1") == ["pending", "running", "completed"]
    assert [m.text for m in agent.messages] == ["Work", "Done."]
    assert responses == ["Done."]
    # Asked again, the answer is the same
    assert await agent.inspect_submission("job-1") == ended


@pytest.mark.case(113)
async def test_events_tell_of_a_submission_when_it_is_accepted_and_of_its_turn_when_it_runs(
    open_app: OpenApp,
) -> None:
    # Given a turn that runs
    seen, goes = Statuses(), asyncio.Event()
    model = ScriptedModel(says("Hi.").waits(goes), says("Done."))
    app = await open_app(cls := assistant(model, on_submission_status=seen.hook))
    chat = asyncio.create_task(app.agent(cls).save_messages("Hello"))
    await model.until_silent()

    # When another is submitted, observers hear of that alone
    events = record_events(app, "submission:*", "chat:turn:*")
    await app.agent(cls).submit_messages("Work", submission_id="job-1", idempotency_key="key-1")
    assert [event.type for event in events] == ["submission:create", "submission:status"]
    goes.set()
    await chat
    await seen.until("job-1", "completed")

    told = [(event.type, event.payload) for event in events]
    ids = {"submissionId": "job-1", "requestId": "job-1"}
    assert told[0] == ("submission:create", {**ids, "idempotencyKey": "key-1"})
    assert told[1] == ("submission:status", {**ids, "status": "pending"})
    assert [(kind, payload.get("status"), payload.get("admission")) for kind, payload in told[2:]] == [
        ("chat:turn:finish", "completed", "queue"),
        ("chat:turn:start", None, "execute-submission"),
        ("submission:status", "running", None),
        ("chat:turn:finish", "completed", "execute-submission"),
        ("submission:status", "completed", None),
    ]


@pytest.mark.case(564, 566)
@pytest.mark.parametrize("by", [{"idempotency_key": "k"}, {"submission_id": "job"}], ids=["key", "id"])
async def test_the_same_key_or_id_is_accepted_once(open_app: OpenApp, by: dict[str, str]) -> None:
    seen = Statuses()
    app = await open_app(cls := assistant(ScriptedModel(says("Done.")), on_submission_status=seen.hook))
    agent = app.agent(cls)
    events = record_events(app, "submission:create")

    # When a caller retries, before it ran and after, even with another text
    first = await agent.submit_messages("Work", metadata={"try": 1}, **by)
    again = await agent.submit_messages("Work again", metadata={"try": 2}, **by)
    await seen.until(first.submission_id, "completed")
    late = await agent.submit_messages("Work once more", **by)

    # Then it is told how the first one stands, and nothing is doubled
    assert (first.accepted, again.accepted, late.accepted) == (True, False, False)
    assert first.submission_id == again.submission_id == late.submission_id
    assert first.request_id == again.request_id == late.request_id
    assert (late.status, late.metadata) == ("completed", {"try": 1})
    assert [m.text for m in await agent.get_messages()] == ["Work", "Done."]
    assert len(events) == 1
    assert seen.of(first.submission_id) == ["pending", "running", "completed"]


@pytest.mark.case(565, 566)
@pytest.mark.parametrize("by", [{"idempotency_key": "k"}, {"submission_id": "job"}], ids=["key", "id"])
async def test_callers_at_the_same_moment_share_one_submission(
    open_app: OpenApp, tmp_path: Path, by: dict[str, str]
) -> None:
    seen = Statuses()
    model = ScriptedModel(says("Working ").then_hangs())
    app = await open_app(cls := assistant(model, on_submission_status=seen.hook))
    agent = app.agent(cls)

    taken = await asyncio.gather(*(agent.submit_messages(f"Work {n}", **by) for n in range(5)))
    assert sorted(s.accepted for s in taken) == [False] * 4 + [True]
    assert len({s.submission_id for s in taken}) == 1
    assert len(Database(tmp_path).turns()) == 1

    # And it can still be stopped: the losers left the winner's signal alone
    await model.until_silent()
    await agent.cancel_submission(taken[0].submission_id)
    await model.until_cut_off()
    await seen.until(taken[0].submission_id, "aborted")
    assert model.asked == 1


@pytest.mark.case(567)
@pytest.mark.parametrize(
    "submit",
    [
        lambda agent: agent.submit_messages([]),
        lambda agent: agent.run_turn([], mode="submit"),
        lambda agent: agent.run_turn("", mode="submit"),
    ],
    ids=["submit_messages", "run_turn", "run_turn with no text"],
)
async def test_nothing_to_submit_is_an_error(open_app: OpenApp, tmp_path: Path, submit: Any) -> None:
    app = await open_app(cls := assistant(ScriptedModel()))
    agent = app.agent(cls)
    with pytest.raises(InvalidTurn, match="requires at least one message"):
        await submit(agent)
    assert Database(tmp_path).turns() == []
    assert await agent.list_submissions() == []


@pytest.mark.case(107)
@pytest.mark.parametrize(
    "submit",
    [
        lambda agent: agent.submit_messages(lambda messages: ["hi"]),
        lambda agent: agent.run_turn(lambda messages: ["hi"], mode="submit"),
    ],
    ids=["submit_messages", "run_turn"],
)
async def test_a_function_cannot_be_submitted(open_app: OpenApp, tmp_path: Path, submit: Any) -> None:
    app = await open_app(cls := assistant(ScriptedModel()))
    with pytest.raises(InvalidTurn, match="function input"):
        await submit(app.agent(cls))
    assert Database(tmp_path).turns() == []


@pytest.mark.case(568)
@pytest.mark.parametrize(
    "retry",
    [
        {"submission_id": "a", "idempotency_key": "key-b"},
        {"submission_id": "new", "idempotency_key": "key-a"},
        {"submission_id": "a", "idempotency_key": "new"},
    ],
)
async def test_an_id_and_a_key_of_different_submissions_are_refused(
    open_app: OpenApp, tmp_path: Path, retry: dict[str, str]
) -> None:
    model = ScriptedModel(says("A."), says("B."))
    app = await open_app(cls := assistant(model))
    agent = app.agent(cls)
    await agent.submit_messages("A", submission_id="a", idempotency_key="key-a")
    await agent.submit_messages("B", submission_id="b", idempotency_key="key-b")
    with pytest.raises(SubmissionConflict, match="refer to different submissions"):
        await agent.submit_messages("C", **retry)
    assert [row["id"] for row in Database(tmp_path).turns()] == ["a", "b"]


@pytest.mark.case(568)
async def test_a_key_is_not_attached_to_a_submission_that_had_none(open_app: OpenApp) -> None:
    model = ScriptedModel(says("A."), says("B."))
    app = await open_app(cls := assistant(model))
    agent = app.agent(cls)
    await agent.submit_messages("A", submission_id="a")
    again = await agent.submit_messages("A", submission_id="a", idempotency_key="key")
    assert (again.accepted, again.submission_id, again.idempotency_key) == (False, "a", None)
    other = await agent.submit_messages("B", idempotency_key="key")
    assert (other.accepted, other.idempotency_key) == (True, "key")


@pytest.mark.case(569)
async def test_acceptance_waits_for_the_status_hook_and_the_turn_for_acceptance(open_app: OpenApp) -> None:
    # Given a hook that takes its time over a new submission
    told: list[str] = []
    asked, goes, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def on_submission_status(self: Think, submission: Submission) -> None:
        if submission.status == "pending":
            asked.set()
            await goes.wait()
        told.append(submission.status)
        if submission.status == "completed":
            ended.set()

    model = ScriptedModel(says("Done."), says("Hello."))
    app = await open_app(cls := assistant(model, on_submission_status=on_submission_status))
    agent = app.agent(cls)
    accepting = asyncio.create_task(agent.submit_messages("Work", submission_id="job"))

    # When another turn comes and goes meanwhile
    await asked.wait()
    await agent.save_messages("Hi")

    # Then the submission is still being accepted, and has not begun
    assert not accepting.done()
    assert told == []
    assert [m.text for m in await agent.get_messages()] == ["Hi", "Done."]
    goes.set()
    assert (await accepting).accepted
    assert told[0] == "pending"  # and it may have begun since
    await ended.wait()
    assert told == ["pending", "running", "completed"]


@pytest.mark.case(569)
async def test_a_status_hook_that_raises_is_logged_and_changes_nothing(
    open_app: OpenApp, caplog: pytest.LogCaptureFixture
) -> None:
    seen, ended = [], asyncio.Event()

    def on_submission_status(self: Think, submission: Submission) -> None:
        seen.append(submission.status)
        if submission.status == "completed":
            ended.set()
        raise RuntimeError("the hook is broken")

    app = await open_app(
        cls := assistant(ScriptedModel(says("Done.")), on_submission_status=on_submission_status)
    )
    with caplog.at_level(logging.ERROR):
        accepted = await app.agent(cls).submit_messages("Work")
        await ended.wait()
    assert accepted.accepted
    assert seen == ["pending", "running", "completed"]
    assert caplog.text.count("on_submission_status of default raised") >= 2


async def test_the_status_hook_may_submit_and_may_run_a_turn(open_app: OpenApp) -> None:
    # Given a hook that answers a new submission with a turn, and a finished one with another submission
    results: list[Any] = []
    ended = asyncio.Event()

    async def on_submission_status(self: Think, submission: Submission) -> None:
        match submission.submission_id, submission.status:
            case "first", "pending":
                results.append(await self.save_messages("Before the first"))
            case "first", "completed":
                results.append(await self.submit_messages("Second", submission_id="second"))
            case "second", "completed":
                ended.set()

    model = ScriptedModel(says("One."), says("Two."), says("Three."))
    app = await open_app(cls := assistant(model, on_submission_status=on_submission_status))
    agent = app.agent(cls)
    await agent.submit_messages("First", submission_id="first")
    await ended.wait()
    assert [result.status for result in results] == ["completed", "pending"]
    assert [m.text for m in await agent.get_messages()] == [
        "Before the first",
        "One.",
        "First",
        "Two.",
        "Second",
        "Three.",
    ]


@pytest.mark.case(572)
async def test_submissions_run_in_the_order_they_were_accepted(open_app: OpenApp) -> None:
    # Given a chat turn that runs, and submissions accepted at the same moment
    seen, goes = Statuses(), asyncio.Event()
    answers = [says(f"Answer {n}.") for n in range(6)]
    model = ScriptedModel(says("Hello.").waits(goes), *answers)
    app = await open_app(
        cls := assistant(model, on_submission_status=seen.hook), clock=ManualClock()
    )  # one millisecond for all: the order is not that of the clock
    agent = app.agent(cls)
    chat = asyncio.create_task(agent.save_messages("Hi"))
    await model.until_silent()
    ids = [f"job-{n}" for n in (4, 2, 5, 1, 3)]
    await asyncio.gather(*(agent.submit_messages(id, submission_id=id) for id in ids))
    # And a chat turn that comes last
    last = asyncio.create_task(agent.save_messages("Bye"))

    # When the first one ends
    goes.set()
    await asyncio.gather(chat, last)

    # Then they ran one after the other
    completed = [s.submission_id for s in seen.all if s.status == "completed"]
    assert completed == ids
    questions = [m.text for m in await agent.get_messages() if m.role == "user"]
    assert questions == ["Hi", *ids, "Bye"]
    assert [s.submission_id for s in await agent.list_submissions()] == ids[::-1]
    # Each saw those before it answered, and none of those after it
    assert prompt(model.requests[2])[-1] == ("user", "job-2")
    assert ("assistant", "Answer 0.") in prompt(model.requests[2])
    assert ("user", "job-5") not in prompt(model.requests[2])


async def test_a_submission_that_fails_does_not_stop_the_next(open_app: OpenApp) -> None:
    seen = Statuses()
    model = ScriptedModel(says("Half ").then_fails("broke"), says("Whole."))
    app = await open_app(cls := assistant(model, on_submission_status=seen.hook))
    agent = app.agent(cls)
    await agent.submit_messages("A", submission_id="a")
    await agent.submit_messages("B", submission_id="b")
    await seen.until("b", "completed")
    assert [s.status for s in seen.all if s.submission_id == "a"] == ["pending", "running", "error"]


@pytest.mark.case(573)
async def test_a_submission_made_inside_a_turn_runs_after_it(open_app: OpenApp) -> None:
    seen = Statuses()
    inside: list[Any] = []

    class Assistant(Think):
        model = ScriptedModel(calls("later"), says("Noted."), says("Done."))

        @tool
        async def later(self) -> str:
            """Put work off."""
            inside.append(await self.submit_messages("The work", submission_id="job"))
            return "submitted"

        on_submission_status = seen.hook

    app = await open_app(Assistant)
    agent = app.agent(Assistant)
    result = await agent.save_messages("Do it later")
    assert (result.status, result.text) == ("completed", "Noted.")
    assert (inside[0].accepted, inside[0].status) == (True, "pending")
    await seen.until("job", "completed")
    assert [m.text for m in await agent.get_messages()] == ["Do it later", "Noted.", "The work", "Done."]


async def test_a_submission_uses_the_body_of_the_last_request_and_not_its_tools(open_app: OpenApp) -> None:
    seen, contexts = Statuses(), []

    def before_turn(self: Think, turn: TurnContext) -> None:
        contexts.append((turn.trigger, turn.body, sorted(turn.tools)))

    model = ScriptedModel(says("Hi.").waits(goes := asyncio.Event()), says("Hi."), says("Done."))
    app = await open_app(cls := assistant(model, before_turn=before_turn, on_submission_status=seen.hook))
    home = await home_of(app, cls)
    agent = app.agent(cls)

    def window(id: str, size: int) -> ChatRequest:
        message = {"id": id, "role": "user", "parts": [{"type": "text", "text": id}]}
        return ChatRequest(
            id, [_message(message)], body={"size": size}, client_tools=[{"name": f"tool_{size}"}]
        )

    # Given a submission that waits, and a browser that says something new meanwhile
    await accept_request(home, window("u1", 1))
    await model.until_silent()
    second = await accept_request(home, window("u2", 2))
    await agent.submit_messages("Work", submission_id="job")
    goes.set()
    await seen.until("job", "completed")

    assert second.turn.body == {"size": 2}
    assert contexts == [
        ("ws-chat", {"size": 1}, ["tool_1"]),
        ("ws-chat", {"size": 2}, ["tool_2"]),
        ("submission", {"size": 2}, []),
    ]


@pytest.mark.case(206)
async def test_the_channel_is_stamped_on_the_submitted_messages(open_app: OpenApp) -> None:
    seen = Statuses()
    app = await open_app(cls := assistant(ScriptedModel(says("Done.")), on_submission_status=seen.hook))
    agent = app.agent(cls)
    await agent.submit_messages("Work", submission_id="job", channel="email")
    await seen.until("job", "completed")
    assert (await agent.get_messages())[0].metadata == {"channel": "email"}


async def test_a_caller_that_stops_waiting_leaves_a_submission_that_runs(tmp_path: Path) -> None:
    seen = Statuses()
    cls = assistant(ScriptedModel(says("Done.")), on_submission_status=seen.hook)
    async with gated_app(tmp_path, cls) as (app, store):
        agent = app.agent(cls)
        await live(agent)
        # Given a caller that gives up while the row is being written
        store.hold()
        accepting = asyncio.create_task(agent.submit_messages("Work", submission_id="job"))
        await store.until_waiting()
        accepting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await accepting

        # When the row is written all the same
        store.release()
        await seen.until("job", "completed")

        # Then it ran once, and the caller's retry finds it
        again = await agent.submit_messages("Work", submission_id="job")
        assert (again.accepted, again.status) == (False, "completed")
        assert [m.text for m in await agent.get_messages()] == ["Work", "Done."]
        assert seen.of("job") == ["pending", "running", "completed"]


def _message(value: dict[str, Any]) -> Any:
    from everthink.messages import parse_message

    return parse_message(value, new_id=lambda: "unused")
