"""Submissions that are cancelled, reset, or fail: one end, told once, never overwritten."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from everthink import Think, tool
from everthink.testing.scripted import ScriptedModel, calls, says
from tests.conftest import OpenApp
from tests.support.agents import assistant, live
from tests.support.submissions import Statuses
from tests.support.turns import all_over, gated_app, home_of, record_events

pytestmark = pytest.mark.anyio


# --- cancelling


@pytest.mark.case(577)
@pytest.mark.parametrize(
    ("reason", "error"),
    [("not needed any more", "not needed any more"), (ValueError("too late"), "too late"), (None, None)],
)
async def test_a_running_submission_is_cancelled_with_its_reason(
    open_app: OpenApp, reason: Any, error: str | None
) -> None:
    seen = Statuses()
    model = ScriptedModel(says("Half an ans").then_hangs())
    app = await open_app(cls := assistant(model, on_submission_status=seen.hook))
    agent = app.agent(cls)
    await agent.submit_messages("Work", submission_id="job")
    await model.until_silent()

    await agent.cancel_submission("job", reason)
    await all_over(app, cls)

    # The row says so, the stream stopped, and what was said is kept
    ended = await agent.inspect_submission("job")
    assert (ended.status, ended.error) == ("aborted", error)
    assert ended.completed_at is not None
    assert model.cut_off == 1
    assert [m.text for m in await agent.get_messages()] == ["Work", "Half an ans"]
    assert seen.of("job") == ["pending", "running", "aborted"]


@pytest.mark.case(577)
async def test_a_turn_that_completes_after_its_submission_was_cancelled_changes_nothing(
    tmp_path: Path,
) -> None:
    seen, goes = Statuses(), asyncio.Event()
    model = ScriptedModel(says("The whole answer.").waits(goes))
    cls = assistant(model, on_submission_status=seen.hook)
    async with gated_app(tmp_path, cls) as (app, store):
        agent = app.agent(cls)
        await agent.submit_messages("Work", submission_id="job")
        await model.until_silent()

        # When the cancellation is being written while the model says its last word
        store.hold()
        cancelling = asyncio.create_task(agent.cancel_submission("job", "stop"))
        await store.until_waiting()
        goes.set()
        for _ in range(20):
            await asyncio.sleep(0)  # as far as the turn gets: its end waits behind the cancellation
        store.release()
        await cancelling
        await all_over(app, cls)

        # Then it is cancelled, and told once
        ended = await agent.inspect_submission("job")
        assert (ended.status, ended.error) == ("aborted", "stop")
        assert seen.of("job") == ["pending", "running", "aborted"]


@pytest.mark.case(577)
async def test_a_cancellation_that_comes_after_the_end_changes_nothing(tmp_path: Path) -> None:
    seen = Statuses()
    cls = assistant(ScriptedModel(says("Done.")), on_submission_status=seen.hook)
    async with gated_app(tmp_path, cls) as (app, store):
        agent = app.agent(cls)
        cancelling: list[asyncio.Task[None]] = []

        # When it comes while the end is being written
        def at(commit: Any) -> None:
            if any("completed" in statement.params for statement in commit):
                cancelling.append(asyncio.create_task(agent.cancel_submission("job", "stop")))

        store.refuse(at)
        await agent.submit_messages("Work", submission_id="job")
        done = await seen.until("job", "completed")
        await cancelling[0]

        assert await agent.inspect_submission("job") == done
        assert seen.of("job") == ["pending", "running", "completed"]


@pytest.mark.case(578, 579, 580)
@pytest.mark.parametrize("messages", ["One", ["One", "Two"]], ids=["one message", "several"])
async def test_a_submission_cancelled_before_it_began_never_does(
    open_app: OpenApp, messages: str | list[str]
) -> None:
    # Given a submission that waits behind a chat turn
    seen, goes = Statuses(), asyncio.Event()
    model = ScriptedModel(says("Hello.").waits(goes), says("Later."))
    app = await open_app(cls := assistant(model, on_submission_status=seen.hook))
    agent = app.agent(cls)
    events = record_events(app, "chat:turn:start")
    chat = asyncio.create_task(agent.save_messages("Hi"))
    await model.until_silent()
    await agent.submit_messages(messages, submission_id="job")
    await agent.submit_messages("Later", submission_id="next")

    # When it is cancelled
    await agent.cancel_submission("job", "changed my mind")
    assert (await agent.inspect_submission("job")).status == "aborted"
    goes.set()
    await chat
    await seen.until("next", "completed")

    # Then none of it reached the conversation or the model, and the next one ran
    assert [m.text for m in await agent.get_messages()] == ["Hi", "Hello.", "Later", "Later."]
    assert model.asked == 2
    assert [event.payload["requestId"] for event in events].count("job") == 0
    ended = await agent.inspect_submission("job")
    assert (ended.status, ended.error, ended.started_at) == ("aborted", "changed my mind", None)
    assert seen.of("job") == ["pending", "aborted"]


@pytest.mark.case(578, 579)
async def test_a_submission_cancelled_at_the_very_moment_it_begins_appends_nothing(tmp_path: Path) -> None:
    seen, errors = Statuses(), []
    model = ScriptedModel(says("Next."))
    members: dict[str, Any] = {
        "on_submission_status": seen.hook,
        "on_chat_error": lambda self, error, ctx: errors.append(error),
    }
    cls = assistant(model, **members)
    async with gated_app(tmp_path, cls) as (app, store):
        agent = app.agent(cls)
        home = await home_of(app, cls)
        front = home.chat.door.queue.reserve("somebody")
        await agent.submit_messages(["One", "Two"], submission_id="job")

        # When its turn comes while the cancellation is being written
        store.hold()
        cancelling = asyncio.create_task(agent.cancel_submission("job", "stop"))
        await store.until_waiting()
        front.release()
        for _ in range(20):
            await asyncio.sleep(0)  # as far as the turn gets: its commit waits behind the cancellation's
        store.release()
        await cancelling
        await home.chat.door.queue.wait_for_idle()

        # Then nothing was appended, nobody was asked, and it is no error
        assert await agent.get_messages() == []
        assert (model.asked, errors) == (0, [])
        assert (await agent.inspect_submission("job")).status == "aborted"
        assert seen.of("job") == ["pending", "aborted"]
        # and the agent goes on
        assert (await agent.save_messages("Hi")).text == "Next."


async def test_cancelling_a_submission_that_is_over_or_unknown_does_nothing(open_app: OpenApp) -> None:
    seen = Statuses()
    app = await open_app(cls := assistant(ScriptedModel(says("Done.")), on_submission_status=seen.hook))
    agent = app.agent(cls)
    events = record_events(app, "submission:*")
    await agent.cancel_submission("nobody")
    assert events == []
    await agent.submit_messages("Work", submission_id="job")
    done = await seen.until("job", "completed")
    await agent.cancel_submission("job", "late")
    assert await agent.inspect_submission("job") == done
    assert len(seen.all) == 3


@pytest.mark.case(577)
async def test_one_that_was_cancelled_deleted_and_submitted_again_runs(open_app: OpenApp) -> None:
    seen = Statuses()
    model = ScriptedModel(says("Half ").then_hangs(), says("Whole."))
    app = await open_app(cls := assistant(model, on_submission_status=seen.hook))
    agent = app.agent(cls)
    await agent.submit_messages("Work", submission_id="job")
    await model.until_silent()
    await agent.cancel_submission("job")
    assert await agent.delete_submission("job")
    again = await agent.submit_messages("Work again", submission_id="job")
    assert again.accepted
    await seen.until("job", "completed")
    assert seen.of("job") == ["pending", "running", "aborted", "pending", "running", "completed"]
    assert [m.text for m in await agent.get_messages()] == ["Work", "Half ", "Work again", "Whole."]


async def test_a_running_submission_can_be_stopped_as_a_chat_turn_too(open_app: OpenApp) -> None:
    seen = Statuses()
    model = ScriptedModel(says("Half ").then_hangs())
    app = await open_app(cls := assistant(model, on_submission_status=seen.hook))
    agent = app.agent(cls)
    submission = await agent.submit_messages("Work")
    await model.until_silent()
    assert await agent.cancel_chat(submission.request_id, "enough")
    ended = await seen.until(submission.submission_id, "aborted")
    assert (ended.status, ended.error) == ("aborted", "enough")


# --- reset and clear


@pytest.mark.case(581, 582)
@pytest.mark.parametrize("how", ["reset_turn_state", "clear_messages"])
async def test_a_reset_skips_the_pending_submissions_and_later_ones_still_run(
    open_app: OpenApp, how: str
) -> None:
    # Given one that runs and two that wait
    seen = Statuses()
    model = ScriptedModel(says("Half ").then_hangs(), says("Later."))
    app = await open_app(cls := assistant(model, on_submission_status=seen.hook))
    agent = app.agent(cls)
    for id in ("runs", "waits-1", "waits-2"):
        await agent.submit_messages(id, submission_id=id)
    await model.until_silent()

    # When the agent is reset
    await getattr(agent, how)()
    rows = {s.submission_id: s for s in await agent.list_submissions()}
    for id in ("waits-1", "waits-2"):
        assert (rows[id].status, rows[id].error) == ("skipped", "Submission was skipped by turn reset.")
        assert rows[id].completed_at is not None

    # Then they never run, and one that comes later does
    await agent.submit_messages("later", submission_id="later")
    await seen.until("later", "completed")
    texts = [m.text for m in await agent.get_messages()]
    assert texts == (["runs"] if how == "reset_turn_state" else []) + ["later", "Later."]
    assert model.asked == 2
    assert seen.of("waits-1") == seen.of("waits-2") == ["pending", "skipped"]
    # and what ran belongs to the past
    assert seen.of("runs") == ["pending", "running", "skipped"]


@pytest.mark.case(581)
async def test_a_reset_while_a_submission_is_being_accepted_skips_it(open_app: OpenApp) -> None:
    asked, goes = asyncio.Event(), asyncio.Event()
    told: list[str] = []

    async def on_submission_status(self: Think, submission: Any) -> None:
        told.append(submission.status)
        if submission.status == "pending":
            asked.set()
            await goes.wait()

    app = await open_app(cls := assistant(ScriptedModel(), on_submission_status=on_submission_status))
    agent = app.agent(cls)
    accepting = asyncio.create_task(agent.submit_messages("Work", submission_id="job"))
    await asked.wait()
    await agent.reset_turn_state()
    goes.set()
    await accepting
    await all_over(app, cls)
    assert (await agent.inspect_submission("job")).status == "skipped"
    assert await agent.get_messages() == []
    assert told == ["pending", "skipped"]


# --- failing


@pytest.mark.case(583)
@pytest.mark.parametrize("where", ["get_model", "before_turn"])
async def test_a_submission_that_cannot_be_set_up_is_an_error_with_its_text(
    open_app: OpenApp, where: str
) -> None:
    seen = Statuses()

    def fail(self: Think, *args: Any) -> Any:
        raise RuntimeError(f"{where} is broken")

    app = await open_app(cls := assistant(ScriptedModel(), on_submission_status=seen.hook, **{where: fail}))
    agent = app.agent(cls)
    events = record_events(app, "submission:*")
    await agent.submit_messages("Work", submission_id="job", metadata={"order": 7})
    ended = await seen.until("job", "error")
    assert (ended.status, ended.error, ended.metadata) == ("error", f"{where} is broken", {"order": 7})
    assert [m.text for m in await agent.get_messages()] == ["Work"]
    assert [event.payload for event in events if event.type == "submission:error"] == [
        {"submissionId": "job", "requestId": "job", "error": f"{where} is broken"}
    ]
    assert seen.of("job") == ["pending", "running", "error"]


@pytest.mark.case(584)
@pytest.mark.parametrize(
    "play",
    [
        says("Half ").then_fails("The provider broke off."),
        says("Half ").then_raises(OSError("reset by peer")),
    ],
    ids=["reported", "raised"],
)
async def test_an_answer_that_breaks_off_is_an_error_with_its_text(open_app: OpenApp, play: Any) -> None:
    seen = Statuses()
    app = await open_app(cls := assistant(ScriptedModel(play), on_submission_status=seen.hook))
    agent = app.agent(cls)
    await agent.submit_messages("Work", submission_id="job")
    ended = await seen.until("job", "error")
    assert ended.error in ("The provider broke off.", "reset by peer")
    assert [m.text for m in await agent.get_messages()] == ["Work", "Half "]


@pytest.mark.case(584)
async def test_the_error_is_what_on_chat_error_says(open_app: OpenApp) -> None:
    seen = Statuses()
    app = await open_app(
        cls := assistant(
            ScriptedModel(says("Half ").then_fails("quota of key sk-1 exceeded")),
            on_submission_status=seen.hook,
            on_chat_error=lambda self, error, ctx: "Please try again later.",
        )
    )
    await app.agent(cls).submit_messages("Work", submission_id="job")
    assert (await seen.until("job", "error")).error == "Please try again later."


@pytest.mark.case(585)
@pytest.mark.parametrize(("how", "status"), [("cancel", "aborted"), ("reset", "skipped")])
async def test_an_error_while_stopping_leaves_the_submission_stopped(
    open_app: OpenApp, how: str, status: str
) -> None:
    # Given a model whose connection breaks when it is told to stop
    async def breaks() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            raise ConnectionError("broken while closing") from None

    seen = Statuses()
    model = ScriptedModel(says("Half ").waits(breaks))
    app = await open_app(cls := assistant(model, on_submission_status=seen.hook))
    agent = app.agent(cls)
    events = record_events(app, "submission:error")
    await agent.submit_messages("Work", submission_id="job")
    await model.until_silent()
    if how == "cancel":
        await agent.cancel_submission("job", "stop")
    else:
        await agent.reset_turn_state()
    await seen.until("job", status)
    await all_over(app, cls)
    assert (await agent.inspect_submission("job")).status == status
    assert seen.of("job") == ["pending", "running", status]
    assert events == []


@pytest.mark.case(586)
async def test_an_error_of_one_turn_is_not_kept_for_another(open_app: OpenApp) -> None:
    # Given a chat turn and a submission that failed, each under the id that comes back
    seen = Statuses()
    model = ScriptedModel(fails := says("a").then_fails("broke"), fails, says("Well."), says("Fine."))
    app = await open_app(cls := assistant(model, on_submission_status=seen.hook))
    agent = app.agent(cls)
    assert (await agent.save_messages("Hi")).error == "broke"
    await agent.submit_messages("One", submission_id="job")
    await seen.until("job", "error")
    await agent.delete_submission("job")

    # When others follow, one of them under the same id
    assert (await agent.save_messages("Hi again")).error is None
    await agent.submit_messages("Two", submission_id="job")
    done = await seen.until("job", "completed")
    assert done.error is None
    # Then nothing is remembered of those that are over
    home = await home_of(app, cls)
    assert len(home.chat.host.aborts) == 0
    assert home.chat.submissions._open == {}


async def test_a_submission_that_waits_for_an_approval_is_completed(open_app: OpenApp) -> None:
    seen = Statuses()

    class Assistant(Think):
        model = ScriptedModel(calls("refund", amount=5))
        on_submission_status = seen.hook

        @tool(needs_approval=True)
        def refund(self, amount: int) -> str:
            """Give money back."""
            return "done"

    app = await open_app(Assistant)
    agent = app.agent(Assistant)
    await agent.submit_messages("Refund", submission_id="job")
    assert (await seen.until("job", "completed")).status == "completed"
    assert (await live(agent)).has_pending_interaction()
