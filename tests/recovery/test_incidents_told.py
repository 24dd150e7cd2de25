"""An incident from its first report to its end: what is stored, reported and told, in which order."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from everthink import Think, tool
from everthink.journal.feed import RecoveryChanged, TurnEnded
from everthink.recovery import ChatRecovery, RecoveryDecision
from everthink.recovery.incident import TERMINAL_MESSAGE, Exhausted
from everthink.testing import ManualClock, ScriptedModel, calls, hangs, says
from tests.conftest import OpenApp
from tests.support.agents import assistant
from tests.support.cuts import Reports, cut, incidents, pull
from tests.support.turns import Database, Witness, all_over, home_of

pytestmark = pytest.mark.anyio

HALF = says("Half ").then_hangs()


@pytest.mark.case(476, 477)
async def test_a_recovery_is_announced_and_its_record_deleted_when_it_succeeds(
    open_app: OpenApp, tmp_path: Path
) -> None:
    go = asyncio.Event()
    model = ScriptedModel(HALF, says("who").waits(go).says("le."))
    app = await open_app(cls := assistant(model))
    reports = Reports(app)
    await app.agent(cls, "room").submit_messages("Hi")
    await model.until_silent()
    await pull(app, cls)
    home = await home_of(app, cls, "room")
    witness = Witness(home)
    await model.until_silent()

    # While it goes on it is recovering
    assert [row["status"] for row in incidents(tmp_path)] == ["scheduled"]
    assert home.chat.recovery.recovering is not None
    assert home.chat.recovery.recovering.request_id == Database(tmp_path).turns()[0]["request_id"]
    go.set()
    await all_over(app, cls, "room")

    # and then there is nothing left of it
    assert (incidents(tmp_path), home.chat.recovery.recovering) == ([], None)
    assert [s.recovering for s in witness.shown if isinstance(s, RecoveryChanged)][-1:] == [False]
    assert reports.names == ["detected", "attempt", "scheduled", "completed"]
    (same,) = {(e["incidentId"], e["requestId"], e["recoveryKind"]) for e in (x.payload for x in reports.all)}
    assert same[2] == "continue"


@pytest.mark.case(478)
async def test_a_turn_that_is_not_continued_is_skipped_with_its_reason(
    open_app: OpenApp, tmp_path: Path
) -> None:
    model = ScriptedModel(HALF)

    def on_chat_recovery(agent: Think, ctx: Any) -> RecoveryDecision:
        return RecoveryDecision(continue_=False)

    app = await open_app(cls := assistant(model, on_chat_recovery=on_chat_recovery))
    reports = Reports(app)
    await app.agent(cls, "room").submit_messages("Hi")
    await model.until_silent()
    await cut(app, cls)
    await all_over(app, cls, "room")
    assert reports.names == ["detected", "attempt", "skipped"]
    assert reports.of("skipped")[0]["reason"] == "continue_disabled"
    assert [(row["status"], row["reason"]) for row in incidents(tmp_path)] == [
        ("skipped", "continue_disabled")
    ]
    assert (await home_of(app, cls, "room")).chat.recovery.recovering is None
    assert Database(tmp_path).texts() == ["Hi", "Half "]


@pytest.mark.case(490)
async def test_a_stall_inside_a_recovery_leaves_everything_as_it_is(
    open_app: OpenApp, tmp_path: Path
) -> None:
    clock, go = ManualClock(), asyncio.Event()
    model = ScriptedModel(HALF, hangs(), says("who").waits(go).says("le."))
    cls = assistant(model, chat_stream_stall_timeout=5.0)
    app = await open_app(cls, clock=clock)
    reports = Reports(app)
    agent = app.agent(cls, "room")
    await agent.submit_messages("Hi", submission_id="job")
    await model.until_silent()
    await pull(app, cls)
    home = await home_of(app, cls, "room")
    witness = Witness(home)
    await model.until_silent()

    # When the recovery stalls
    await clock.advance(5.1)
    await model.until_silent()

    # Then the incident is scheduled, the turn recovering, the submission running; nobody heard an end
    assert [row["status"] for row in incidents(tmp_path)] == ["scheduled"]
    assert home.chat.recovery.recovering is not None
    assert (await agent.inspect_submission("job")).status == "running"
    assert not [s for s in witness.shown if isinstance(s, TurnEnded)]
    assert False not in [s.recovering for s in witness.shown if isinstance(s, RecoveryChanged)]
    go.set()
    await all_over(app, cls, "room")
    assert (await agent.inspect_submission("job")).status == "completed"
    assert Database(tmp_path).texts() == ["Hi", "Half whole."]
    assert reports.names == ["detected", *["attempt", "scheduled"] * 2, "completed"]


@pytest.mark.case(475, 485, 488)
async def test_a_turn_cut_off_too_often_is_given_up_and_its_submission_fails(
    open_app: OpenApp, tmp_path: Path
) -> None:
    # Given a tool that has run, half an answer, and a bound of two attempts
    clock, order = ManualClock(), list[Any]()

    @tool
    def look() -> str:
        """Look."""
        return "nice"

    model = ScriptedModel(calls("look", id="c1"), HALF, hangs(), hangs())
    recovery = ChatRecovery(
        max_attempts=2, terminal_message="Sorry.", no_progress_timeout=3600, on_exhausted=order.append
    )
    cls = assistant(model, chat_recovery=recovery, get_tools=lambda self: [look])
    app = await open_app(cls, clock=clock)
    app.events.subscribe(order.append, type="chat:recovery:exhausted")
    agent = app.agent(cls, "room")
    created = (await agent.submit_messages("Hi", submission_id="job")).created_at

    # When it is cut off three times without a new word
    for _ in range(3):
        await model.until_silent()
        await clock.advance(31)
        await cut(app, cls)
    await all_over(app, cls, "room")

    # Then the event came first, then the hook, and both know everything
    event, told = order
    incident = f"job:{(await agent.get_messages())[0].id}"
    assert event.payload["reason"] == "max_attempts_exceeded"
    assert event.payload["incidentId"] == told.incident_id == incident
    assert (told.request_id, told.recovery_root_request_id, told.stream_id) == ("job", "job", "job")
    assert (told.attempt, told.max_attempts, told.recovery_kind) == (3, 2, "continue")
    assert (told.reason, told.terminal_message) == ("max_attempts_exceeded", "Sorry.")
    assert (told.partial_text, told.created_at) == ("Half ", created)
    assert [part["type"] for part in told.partial_parts] == ["step-start", "tool-look", "step-start", "text"]

    # and the submission has failed, keeping what was said
    job = await agent.inspect_submission("job")
    assert (job.status, job.error) == ("error", "Sorry.")
    assert Database(tmp_path).texts() == ["Hi", "Half "]


@pytest.mark.case(466, 481)
async def test_a_turn_that_was_given_up_stays_so(open_app: OpenApp, tmp_path: Path) -> None:
    clock, gone = ManualClock(), list[Exhausted]()
    model = ScriptedModel(HALF, hangs())
    recovery = ChatRecovery(no_progress_timeout=60, on_exhausted=gone.append)
    app = await open_app(cls := assistant(model, chat_recovery=recovery), clock=clock)
    reports = Reports(app)
    await app.agent(cls, "room").submit_messages("Hi", submission_id="job")
    for _ in range(2):
        await model.until_silent()
        await clock.advance(61)
        await cut(app, cls)
    await all_over(app, cls, "room")
    assert [told.reason for told in gone] == ["no_progress_timeout"]
    before = (Database(tmp_path).turns(), Database(tmp_path).messages(), incidents(tmp_path), reports.names)

    # However often it starts again
    for _ in range(2):
        await cut(app, cls)
        await all_over(app, cls, "room")
    after = (Database(tmp_path).turns(), Database(tmp_path).messages(), incidents(tmp_path), reports.names)
    assert (after, len(gone)) == (before, 1)


@pytest.mark.case(486)
async def test_a_hook_that_raises_is_reported_and_the_end_comes_all_the_same(
    open_app: OpenApp, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock, model = ManualClock(), ScriptedModel(HALF, hangs())

    async def on_exhausted(told: Exhausted) -> None:
        raise RuntimeError("the pager is broken")

    recovery = ChatRecovery(no_progress_timeout=60, on_exhausted=on_exhausted)
    app = await open_app(cls := assistant(model, chat_recovery=recovery), clock=clock)
    await app.agent(cls, "room").submit_messages("Hi", submission_id="job")
    for _ in range(2):
        await model.until_silent()
        await clock.advance(61)
        await cut(app, cls)
    await all_over(app, cls, "room")
    job = await app.agent(cls, "room").inspect_submission("job")
    assert (job.status, job.error) == ("error", TERMINAL_MESSAGE)
    assert incidents(tmp_path)[0]["status"] == "exhausted"
    assert "on_exhausted" in caplog.text
    assert "the pager is broken" in caplog.text
