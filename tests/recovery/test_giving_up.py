"""Turns that are put off, go on, or are given up where everybody sees it."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from everthink import App, Think, client_tool
from everthink.errors import LeaseLost, StoreUnavailable
from everthink.journal.feed import TurnEnded
from everthink.recovery import ChatRecovery
from everthink.recovery.incident import TERMINAL_MESSAGE, Exhausted
from everthink.store.port import Commit
from everthink.testing import ManualClock, Play, ScriptedModel, calls, hangs, says
from tests.conftest import OpenApp
from tests.support.agents import assistant, live
from tests.support.cuts import Reports, cut, incidents, kept, pull
from tests.support.turns import Database, Witness, all_over, gated_app, home_of

pytestmark = pytest.mark.anyio

HALF, NOTHING = says("Half ").then_hangs(), hangs()
SAID = pytest.mark.parametrize(
    ("play", "kind", "partial"),
    [(HALF, "continue", "Half "), (NOTHING, "retry", "")],
    ids=["continue", "retry"],
)


class Raises:
    """An `on_chat_recovery` that raises the first time."""

    def __init__(self, times: int = 1) -> None:
        self.left = times

    @property
    def hook(self) -> Any:
        async def on_chat_recovery(agent: Think, ctx: Any) -> None:
            if self.left:
                self.left -= 1
                raise RuntimeError("not now")

        return on_chat_recovery


class Crowded:
    """A submission that was cut off and put off, with another turn in its place."""

    def __init__(
        self, app: App, cls: type[Think], clock: ManualClock, model: ScriptedModel, said: str
    ) -> None:
        self.app, self.cls, self.clock, self.model, self.said = app, cls, clock, model, said
        self.reports = Reports(app)
        self.go = asyncio.Event()
        self.agent = app.agent(cls, "room")

    async def begin(self) -> None:
        await self.agent.submit_messages("Hi", submission_id="job")
        await self.model.until_silent()
        await cut(self.app, self.cls, said=self.said)
        self.witness = Witness(await home_of(self.app, self.cls, "room"))
        await self.reports.until("failed")
        await self.clock.until_waiting()
        # It has given up its place for half a minute
        await self.agent.submit_messages("And you?", submission_id="other")
        await self.model.until_silent()
        await self.clock.advance(30)
        await self.clock.until_waiting()

    async def be_patient(self, count: int) -> None:
        """Let an attempt wait in vain; returns when the next one waits for its time."""
        await self.clock.advance(10)
        await self.reports.until("scheduled", count)
        await self.clock.until_waiting()

    async def until_over(self, request: str) -> None:
        """Return once everybody knows that the turn is over."""
        await self.witness.until(
            lambda: any(isinstance(s, TurnEnded) and s.turn.request_id == request for s in self.witness.shown)
        )

    async def status(self) -> tuple[str, str | None]:
        job = await self.agent.inspect_submission("job")
        return job.status, job.error


async def crowded(open_app: OpenApp, play: Play, **recovery: Any) -> Crowded:
    clock, go = ManualClock(), asyncio.Event()
    model = ScriptedModel(play, says("Fine").waits(go).says("."), says("whole."))
    cls = assistant(model, on_chat_recovery=Raises().hook, chat_recovery=ChatRecovery(**recovery))
    said = "Half " if play is HALF else ""
    room = Crowded(await open_app(cls, clock=clock), cls, clock, model, said)
    room.go = go
    await room.begin()
    return room


# --- its place is taken


@SAID
@pytest.mark.case(460, 593, 601)
async def test_a_turn_that_does_not_get_its_place_comes_again(
    open_app: OpenApp, tmp_path: Path, play: Play, kind: str, partial: str
) -> None:
    # Given a turn that was cut off, behind one that takes its time
    room = await crowded(open_app, play)

    # When it has waited for ten seconds
    await room.be_patient(1)

    # Then it is put off, and is running for whoever asks
    (incident,) = incidents(tmp_path)
    assert (incident["attempt"], incident["status"]) == (2, "scheduled")
    assert (incident["kind"], incident["reason"]) == (kind, "stable_timeout_retry")
    assert await room.status() == ("running", None)
    assert (await home_of(room.app, room.cls, "room")).chat.recovery.recovering is not None

    # And when the other one is done it goes on
    room.go.set()
    await room.until_over("other")
    await room.clock.advance(3)
    await all_over(room.app, room.cls, "room")
    assert await room.status() == ("completed", None)
    assert partial + "whole." in Database(tmp_path).texts()
    assert incidents(tmp_path) == []


@SAID
@pytest.mark.case(462, 463)
async def test_one_that_never_gets_its_place_is_given_up_once(
    open_app: OpenApp, tmp_path: Path, play: Play, kind: str, partial: str
) -> None:
    # Given three attempts, and a place that stays taken
    gone: list[Exhausted] = []
    room = await crowded(open_app, play, max_attempts=3, on_exhausted=gone.append)
    for attempt in (1, 2):
        await room.be_patient(attempt)
        await room.clock.advance(3)
        await room.clock.until_waiting()

    # When the last of them waits in vain
    await room.clock.advance(10)
    exhausted = await room.reports.until("exhausted")

    # Then the turn ends with words for people, while the other one still runs
    await room.until_over("job")
    await asyncio.sleep(0)  # the flag is taken down in the same breath
    assert await room.status() == ("error", TERMINAL_MESSAGE)
    assert (await room.agent.inspect_submission("other")).status == "running"
    assert [(told.reason, told.recovery_kind, told.partial_text) for told in gone] == [
        ("stable_timeout", kind, partial)
    ]
    assert gone[0].terminal_message == TERMINAL_MESSAGE
    assert (exhausted["reason"], exhausted["attempt"]) == ("stable_timeout", 4)
    home = await home_of(room.app, room.cls, "room")
    assert home.chat.host.last_failure.value is not None
    assert (home.chat.host.last_failure.value.error, home.chat.recovery.recovering) == (
        TERMINAL_MESSAGE,
        None,
    )
    room.go.set()
    await all_over(room.app, room.cls, "room")
    assert (len(gone), room.model.asked) == (1, 2)


@pytest.mark.case(464)
async def test_a_record_that_is_gone_is_made_anew_and_the_bound_holds(
    open_app: OpenApp, tmp_path: Path
) -> None:
    room = await crowded(open_app, HALF, max_attempts=1)
    with contextlib.closing(sqlite3.connect(tmp_path / "everthink.db")) as database, database:
        database.execute("DELETE FROM incidents")
    await room.be_patient(1)
    assert (await room.reports.until("scheduled"))["attempt"] == 1
    await room.clock.advance(3)
    await room.clock.until_waiting()
    await room.clock.advance(10)
    assert (await room.reports.until("exhausted"))["reason"] == "stable_timeout"
    room.go.set()
    await all_over(room.app, room.cls, "room")
    assert await room.status() == ("error", TERMINAL_MESSAGE)


@pytest.mark.case(461)
async def test_a_turn_that_waits_for_a_browser_is_over_and_its_question_stays(open_app: OpenApp) -> None:
    # Given a turn with a call for the browser that is cut off while it still streams
    model = ScriptedModel(calls("pick", id="c1").says("and ").then_hangs())
    app = await open_app(cls := assistant(model, get_tools=lambda self: [client_tool("pick", "")]))
    reports = Reports(app)
    await app.agent(cls, "room").submit_messages("Pick", submission_id="job")
    await model.until_silent()

    # When the process is gone
    await cut(app, cls, said="and ")
    await all_over(app, cls, "room")

    # Then nobody is asked again: the person is
    agent = await live(app.agent(cls, "room"))
    assert (await agent.inspect_submission("job")).status == "completed"
    assert (model.asked, agent.has_pending_interaction()) == (1, True)
    assert (await home_of(app, cls, "room")).chat.recovery.recovering is None
    assert reports.names == ["detected", "attempt", "scheduled", "completed"]
    # and so it is after another restart
    await cut(app, cls)
    await all_over(app, cls, "room")
    assert (await app.agent(cls, "room").inspect_submission("job")).status == "completed"
    assert model.asked == 1


# --- it fails while it is recovered


@pytest.mark.case(467, 473, 478)
@pytest.mark.parametrize(
    "error", [RuntimeError("broken"), sqlite3.OperationalError("no such table: mine")], ids=["code", "sql"]
)
async def test_an_error_of_the_application_ends_it_and_is_shown(
    open_app: OpenApp, tmp_path: Path, error: Exception
) -> None:
    # Given a turn that was cut off, and code that fails when it goes on
    model, turns = ScriptedModel(HALF), list[None]()

    def before_turn(agent: Think, turn: Any) -> None:
        turns.append(None)
        if len(turns) > 1:
            raise error

    app = await open_app(cls := assistant(model, before_turn=before_turn))
    reports = Reports(app)
    await app.agent(cls, "room").submit_messages("Hi", submission_id="job")
    await model.until_silent()
    await pull(app, cls)
    witness = Witness(await home_of(app, cls, "room"))
    await all_over(app, cls, "room")

    # Then it ended with that error, and is not tried again
    job = await app.agent(cls, "room").inspect_submission("job")
    assert (job.status, job.error) == ("error", str(error))
    assert [s.status for s in witness.shown if isinstance(s, TurnEnded)] == ["error"]
    assert reports.names == ["detected", "attempt", "scheduled", "failed"]
    assert reports.of("failed")[0]["reason"] == "error"
    (incident,) = incidents(tmp_path)
    assert (incident["status"], incident["reason"]) == ("failed", "error")
    assert (await home_of(app, cls, "room")).chat.recovery.recovering is None
    await cut(app, cls)
    await all_over(app, cls, "room")
    assert len(turns) == 2
    # What it had said is kept
    assert Database(tmp_path).texts() == ["Hi", "Half "]


@pytest.mark.case(468, 469)
async def test_a_recovery_that_is_cut_off_itself_is_no_end(open_app: OpenApp, tmp_path: Path) -> None:
    model = ScriptedModel(HALF, says("and ").then_hangs(), hangs(), says("whole."))
    app = await open_app(cls := assistant(model))
    reports = Reports(app)
    await app.agent(cls, "room").submit_messages("Hi", submission_id="job")
    for said in ("Half ", "Half and ", "Half and "):
        await model.until_silent()
        await cut(app, cls, said=said)
        assert (await app.agent(cls, "room").inspect_submission("job")).status == "running"
    await all_over(app, cls, "room")
    assert (await app.agent(cls, "room").inspect_submission("job")).status == "completed"
    assert Database(tmp_path).texts() == ["Hi", "Half and whole."]
    assert reports.names == ["detected", *["attempt", "scheduled"] * 3, "completed"]


def unavailable(commit: Commit) -> Exception:
    return StoreUnavailable("The database is gone.")


@pytest.mark.case(470)
@pytest.mark.parametrize("comes_back", [True, False])
async def test_a_database_that_is_away_is_tried_again_and_then_everybody_is_told(
    tmp_path: Path, comes_back: bool, caplog: pytest.LogCaptureFixture
) -> None:
    # Given a turn that was cut off, and a database that goes away as soon as it is looked at
    model, told = ScriptedModel(HALF, says("whole.")), list[Any]()
    arrived, goes = asyncio.Event(), asyncio.Event()

    async def on_chat_recovery(agent: Think, ctx: Any) -> None:
        arrived.set()
        await goes.wait()

    def on_chat_error(agent: Think, error: Exception, ctx: Any) -> str:
        told.append(ctx.stage)
        return "Sorry."

    cls, clock = (
        assistant(
            model,
            on_chat_recovery=on_chat_recovery,
            on_chat_error=on_chat_error,
            chat_recovery=ChatRecovery(max_attempts=2),
        ),
        ManualClock(),
    )
    async with gated_app(tmp_path, cls, clock=clock) as (app, store):
        await app.agent(cls, "room").submit_messages("Hi", submission_id="job")
        await model.until_silent()
        await cut(app, cls)
        await arrived.wait()
        witness = Witness(await home_of(app, cls, "room"))
        reports = Reports(app)
        store.refuse(unavailable)
        goes.set()

        # Then it comes again, twice, a while later
        for number in (1, 2):
            await reports.until("failed", number)
            await clock.until_waiting()
            if comes_back and number == 2:
                store.refuse(lambda commit: None)
            await clock.advance(number)
        await all_over(app, cls, "room")
        ended = [(shown.status, shown.error) for shown in witness.shown if isinstance(shown, TurnEnded)]
        assert (await home_of(app, cls, "room")).chat.recovery.recovering is None
        assert "StoreUnavailable" in caplog.text
        if comes_back:
            # and goes on
            assert (ended, len(reports.of("failed"))) == ([("completed", None)], 2)
            assert Database(tmp_path).texts() == ["Hi", "Half whole."]
            return
        # or nothing is sealed, everybody is told, and whoever waits for it need not wait any more
        assert (ended, told, len(reports.of("failed"))) == ([("error", "Sorry.")], ["recovery"], 3)
        assert Database(tmp_path).statuses() == ["running"]
        store.refuse(lambda commit: None)
        assert await app.agent(cls, "room").wait_for_submission("job") is not None

        # And the next start brings it to its end
        await cut(app, cls)
        await all_over(app, cls, "room")
        assert (await app.agent(cls, "room").inspect_submission("job")).status == "completed"
    assert Database(tmp_path).texts() == ["Hi", "Half whole."]


async def test_a_turn_of_an_agent_that_another_process_has_is_not_told_as_failed(tmp_path: Path) -> None:
    model, told = ScriptedModel(HALF), list[Any]()
    arrived, goes = asyncio.Event(), asyncio.Event()

    async def on_chat_recovery(agent: Think, ctx: Any) -> None:
        arrived.set()
        await goes.wait()

    cls = assistant(
        model, on_chat_recovery=on_chat_recovery, on_chat_error=lambda self, error: told.append(error)
    )
    async with gated_app(tmp_path, cls, clock=ManualClock()) as (app, store):
        await app.agent(cls, "room").submit_messages("Hi", submission_id="job")
        await model.until_silent()
        await cut(app, cls)
        await arrived.wait()
        witness, reports = Witness(await home_of(app, cls, "room")), Reports(app)
        store.refuse(lambda commit: LeaseLost("It is not run by this instance any more."))
        goes.set()
        await all_over(app, cls, "room")
        # It goes on there: nobody here is told of an end, and nothing is tried again
        assert [shown for shown in witness.shown if isinstance(shown, TurnEnded)] == []
        assert (reports.of("failed"), told) == ([], [])
        store.refuse(lambda commit: None)
    assert Database(tmp_path).statuses() == ["running"]


async def test_a_hook_that_returns_nonsense_is_named_and_does_not_hold_the_turn_for_ever(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model, clock = ScriptedModel(HALF), ManualClock()
    cls = assistant(model, on_chat_recovery=lambda self, ctx: 7, chat_recovery=ChatRecovery(max_attempts=2))
    async with gated_app(tmp_path, cls, clock=clock) as (app, _):
        await app.agent(cls, "room").submit_messages("Hi", submission_id="job")
        await model.until_silent()
        reports = Reports(app)
        await cut(app, cls)
        for number in (1, 2):
            await reports.until("failed", number)
            await clock.until_waiting()
            await clock.advance(30 * number)
        await all_over(app, cls, "room")
        job = await app.agent(cls, "room").inspect_submission("job")
        assert (job.status, job.error) == ("error", TERMINAL_MESSAGE)
        assert (await home_of(app, cls, "room")).chat.recovery.recovering is None
    assert "What on_chat_recovery returned" in caplog.text
    assert Database(tmp_path).texts() == ["Hi", "Half "]


@pytest.mark.case(474, 487)
async def test_an_end_that_cannot_be_written_is_no_end_and_comes_at_the_next_start(tmp_path: Path) -> None:
    # Given a turn whose work budget is spent, and a database that takes everything but its end
    model, gone = ScriptedModel(HALF, says("more ").then_hangs()), list[Exhausted]()
    recovery = ChatRecovery(max_recovery_work=0, max_attempts=1, on_exhausted=gone.append)
    cls, clock = assistant(model, chat_recovery=recovery), ManualClock()
    async with gated_app(tmp_path, cls, clock=clock) as (app, store):
        await app.agent(cls, "room").submit_messages("Hi", submission_id="job")
        await model.until_silent()
        await cut(app, cls)
        await model.until_silent()
        await kept(app, cls, "Half more ")
        # so much later that another window of text has begun
        store.refuse(
            lambda commit: unavailable(commit) if any("ended_at = ?" in s.sql for s in commit) else None
        )
        await _age(tmp_path)
        reports = Reports(app)
        await cut(app, cls)
        witness = Witness(await home_of(app, cls, "room"))
        await reports.until("failed")
        await clock.until_waiting()  # it is tried once more
        await clock.advance(1)
        await all_over(app, cls, "room")
        # Then people are told, once, and nobody waits
        assert [told.reason for told in gone] == ["work_budget_exceeded"]
        assert [shown.status for shown in witness.shown if isinstance(shown, TurnEnded)] == ["error"]
        assert (await home_of(app, cls, "room")).chat.recovery.recovering is None
        assert Database(tmp_path).statuses() == ["running"]
        assert Database(tmp_path).texts() == ["Hi"]

        # When it can be written
        store.refuse(lambda commit: None)
        await cut(app, cls)
        await all_over(app, cls, "room")

        # Then it is, with everything that belongs to it
        job = await app.agent(cls, "room").inspect_submission("job")
        assert (job.status, job.error) == ("error", TERMINAL_MESSAGE)
        assert Database(tmp_path).texts() == ["Hi", "Half more "]
        assert incidents(tmp_path)[0]["status"] == "exhausted"
        # The hook is told at least once: it was told before what failed
        assert len(gone) == 2


async def _age(folder: Path) -> None:
    """Let the first words of the turn be a minute older, so that the later ones count as new work."""
    with contextlib.closing(sqlite3.connect(folder / "everthink.db")) as database, database:
        database.execute("UPDATE segments SET written_at = written_at - 60000 WHERE first_seq < 4")
