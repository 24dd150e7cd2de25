"""Submissions whose turns are cut off: their status is always true, and they end once."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Literal

import pytest

from everthink import Think, tool
from everthink.errors import StoreUnavailable
from everthink.journal.feed import RecoveryChanged, TurnEnded
from everthink.recovery import RecoveryDecision
from everthink.recovery.recover import SUBMISSION_TEXT
from everthink.store.port import Commit
from everthink.testing import ManualClock, ScriptedModel, calls, hangs, says
from tests.conftest import OpenApp
from tests.crash.process import Child
from tests.crash.wreck import Wreck
from tests.support.agents import assistant
from tests.support.cuts import Reports, cut, kept, pull
from tests.support.submissions import Statuses
from tests.support.turns import Database, Witness, all_over, gated_app, home_of

pytestmark = pytest.mark.anyio

SCRIPT = Path(__file__).with_name("submission_child.py")
HALF = says("Half ").then_hangs()


def run_child(folder: Path, scenario: str) -> Child:
    """A process that works on the submission `job` of the database in `folder`."""
    return Child(f"sqlite:///{folder}/everthink.db", scenario, folder / "effects", script=SCRIPT)


# --- it goes on


@pytest.mark.case(592)
async def test_a_recovered_turn_completes_its_submission(open_app: OpenApp, tmp_path: Path) -> None:
    # Given a submission that was cut off in the middle of its answer
    seen, go = Statuses(), asyncio.Event()
    model = ScriptedModel(HALF, says("who").waits(go).says("le."))
    app = await open_app(cls := assistant(model, on_submission_status=seen.hook))
    agent = app.agent(cls, "room")
    before = await agent.submit_messages("Hi", submission_id="job", metadata={"n": 1})
    await model.until_silent()

    # When it goes on in the next life of the agent
    await cut(app, cls)
    await model.until_silent()
    known = await agent.submit_messages("ignored", submission_id="job")
    assert (known.status, known.accepted) == ("running", False)
    go.set()
    done = await seen.until("job", "completed")

    # Then it is done, under its own id, and that was told once
    assert (done.request_id, done.metadata, done.error) == ("job", {"n": 1}, None)
    assert done.created_at == before.created_at
    assert done.completed_at is not None
    await all_over(app, cls, "room")
    assert (seen.of("job")[0], seen.of("job").count("completed")) == ("pending", 1)
    assert set(seen.of("job")) == {"pending", "running", "completed"}
    assert Database(tmp_path).texts() == ["Hi", "Half whole."]


@pytest.mark.case(596)
async def test_the_error_of_the_second_half_is_the_error_of_the_submission(
    open_app: OpenApp, tmp_path: Path
) -> None:
    model = ScriptedModel(HALF, says("more ").then_fails("the model is tired"))
    app = await open_app(cls := assistant(model))
    await app.agent(cls, "room").submit_messages("Hi", submission_id="job")
    await model.until_silent()
    await cut(app, cls)
    await all_over(app, cls, "room")
    job = await app.agent(cls, "room").inspect_submission("job")
    assert (job.status, job.error) == ("error", "the model is tired")
    assert Database(tmp_path).texts() == ["Hi", "Half more "]


@pytest.mark.case(597)
async def test_a_database_lost_after_a_tool_keeps_its_result_and_the_tool_runs_once(tmp_path: Path) -> None:
    # Given a tool whose result is stored, and a database that is gone right after it
    ran: list[str] = []

    @tool
    def pay() -> str:
        """Pay."""
        ran.append("pay")
        return "paid"

    model = ScriptedModel(calls("pay", id="c1"), HALF, says("It is paid."))
    cls = assistant(model, get_tools=lambda self: [pay])

    def refuses(commit: Commit) -> Exception | None:
        is_late = model.asked >= 2
        return StoreUnavailable("The database is gone.") if is_late else None

    async with gated_app(tmp_path, cls) as (app, store):
        store.refuse(refuses)
        await app.agent(cls, "room").submit_messages("Pay", submission_id="job")
        await all_over(app, cls, "room")
        assert Database(tmp_path).calls()["c1"]["state"] == "done"
        assert Database(tmp_path).statuses() == ["running"]

        # When it is back
        store.refuse(lambda commit: None)
        await cut(app, cls)
        await all_over(app, cls, "room")

        # Then the turn goes on from the result
        assert (await app.agent(cls, "room").inspect_submission("job")).status == "completed"
        (answer,) = [m for m in await app.agent(cls, "room").get_messages() if m.role == "assistant"]
        assert [part["output"] for part in answer.tool_parts] == ["paid"]
        assert answer.text.endswith("It is paid.")
    assert ran == ["pay"]


async def test_a_submission_that_woke_and_stalls_knows_when_it_was_accepted(open_app: OpenApp) -> None:
    # Given one that waited when its process ended
    clock, asked = ManualClock(), list[Any]()
    model = ScriptedModel(hangs(), says("Fine."), hangs(), says("Done."))

    def on_chat_recovery(agent: Think, ctx: Any) -> None:
        asked.append((ctx.request_id, ctx.created_at))

    cls = assistant(model, on_chat_recovery=on_chat_recovery, chat_stream_stall_timeout=5.0)
    app = await open_app(cls, clock=clock)
    agent = app.agent(cls, "room")
    await agent.submit_messages("Hi", submission_id="first")
    await model.until_silent()
    job = await agent.submit_messages("Work", submission_id="job")
    await cut(app, cls, said="")

    # When it begins, and stalls
    await model.until_silent()
    await clock.advance(5.1)
    await all_over(app, cls, "room")
    assert asked[-1] == ("job", job.created_at)
    assert (await agent.inspect_submission("job")).status == "completed"


# --- it is cancelled meanwhile


@pytest.mark.case(594, 595)
async def test_one_cancelled_while_it_goes_on_stays_aborted_and_keeps_what_it_said(
    open_app: OpenApp, tmp_path: Path
) -> None:
    seen, model = Statuses(), ScriptedModel(HALF, says("more ").then_hangs())
    app = await open_app(cls := assistant(model, on_submission_status=seen.hook))
    reports = Reports(app)
    await app.agent(cls, "room").submit_messages("Hi", submission_id="job")
    await model.until_silent()
    await cut(app, cls)
    await model.until_silent()
    await kept(app, cls, "Half more ")
    await app.agent(cls, "room").cancel_submission("job", "enough")
    await all_over(app, cls, "room")
    await _is_aborted(app, cls, tmp_path, "Half more ")
    assert seen.of("job").count("aborted") == 1
    assert reports.names[-1] == "failed"


class Waiting:
    """An `on_chat_recovery` that takes its time."""

    def __init__(self, decision: RecoveryDecision | None = None) -> None:
        self.arrived, self.go, self.decision = asyncio.Event(), asyncio.Event(), decision

    @property
    def hook(self) -> Any:
        async def on_chat_recovery(agent: Think, ctx: Any) -> RecoveryDecision | None:
            self.arrived.set()
            await self.go.wait()
            return self.decision

        return on_chat_recovery


@pytest.mark.case(594)
@pytest.mark.parametrize("continues", [True, False])
async def test_one_cancelled_while_the_hook_decides_ends_at_once_and_keeps_what_it_said(
    open_app: OpenApp, tmp_path: Path, continues: bool
) -> None:
    # Given a submission that was cut off, about which the agent thinks
    waiting, model = Waiting(RecoveryDecision(continue_=continues)), ScriptedModel(HALF)
    app = await open_app(cls := assistant(model, on_chat_recovery=waiting.hook))
    await app.agent(cls, "room").submit_messages("Hi", submission_id="job")
    await model.until_silent()
    await pull(app, cls)
    witness = Witness(await home_of(app, cls, "room"))
    await waiting.arrived.wait()

    # When somebody cancels it
    await app.agent(cls, "room").cancel_submission("job", "enough")
    waiting.go.set()
    await all_over(app, cls, "room")

    # Then it is over for everybody, and the model is not asked
    await _is_aborted(app, cls, tmp_path, "Half ")
    assert [s.status for s in witness.shown if isinstance(s, TurnEnded)] == ["aborted"]
    assert [s.recovering for s in witness.shown if isinstance(s, RecoveryChanged)][-1] is False
    assert model.asked == 1


@pytest.mark.case(594)
async def test_one_cancelled_while_it_is_put_off_ends_at_once_and_keeps_what_it_said(
    open_app: OpenApp, tmp_path: Path
) -> None:
    clock, model = ManualClock(), ScriptedModel(HALF)

    def on_chat_recovery(agent: Think, ctx: Any) -> None:
        raise RuntimeError("not now")

    app = await open_app(cls := assistant(model, on_chat_recovery=on_chat_recovery), clock=clock)
    reports = Reports(app)
    await app.agent(cls, "room").submit_messages("Hi", submission_id="job")
    await model.until_silent()
    await cut(app, cls)
    await reports.until("failed")
    await clock.until_waiting()
    assert (await app.agent(cls, "room").inspect_submission("job")).status == "running"
    await app.agent(cls, "room").cancel_submission("job", "enough")
    await all_over(app, cls, "room")
    await _is_aborted(app, cls, tmp_path, "Half ")
    assert clock.waiting == 0


async def _is_aborted(app: Any, cls: type[Think], folder: Path, text: str) -> None:
    job = await app.agent(cls, "room").inspect_submission("job")
    assert (job.status, job.error) == ("aborted", "enough")
    assert (await home_of(app, cls, "room")).chat.recovery.recovering is None
    assert Database(folder).texts() == ["Hi", text]
    # and nothing of it comes back
    await cut(app, cls)
    await all_over(app, cls, "room")
    assert (await app.agent(cls, "room").inspect_submission("job")).status == "aborted"
    assert Database(folder).texts() == ["Hi", text]


@pytest.mark.parametrize("how", ["clear_messages", "reset_turn_state"])
@pytest.mark.parametrize("continues", [True, False])
async def test_a_conversation_cleared_while_the_hook_decides_gets_nothing_of_it(
    open_app: OpenApp, tmp_path: Path, continues: bool, how: Literal["clear_messages", "reset_turn_state"]
) -> None:
    waiting, model = Waiting(RecoveryDecision(continue_=continues)), ScriptedModel(HALF)
    app = await open_app(cls := assistant(model, on_chat_recovery=waiting.hook))
    await app.agent(cls, "room").submit_messages("Hi", submission_id="job")
    await model.until_silent()
    await cut(app, cls)
    await waiting.arrived.wait()
    agent = app.agent(cls, "room")
    await (agent.clear_messages() if how == "clear_messages" else agent.reset_turn_state())
    waiting.go.set()
    await all_over(app, cls, "room")
    assert (await agent.inspect_submission("job")).status == "skipped"
    assert Database(tmp_path).texts() == ([] if how == "clear_messages" else ["Hi"])
    assert (await home_of(app, cls, "room")).chat.recovery.recovering is None
    assert model.asked == 1


# --- a killed process


async def _status_left(folder: Path) -> list[str]:
    wreck = await Wreck.inspect(f"sqlite:///{folder}/everthink.db")
    try:
        return list((await wreck.turns()).values())
    finally:
        await wreck.close()


@pytest.mark.slow
@pytest.mark.case(571, 587, 598)
async def test_work_that_had_not_begun_when_the_process_was_killed_is_done(
    open_app: OpenApp, tmp_path: Path
) -> None:
    with run_child(tmp_path, "waiting") as child:
        child.until("submitted")
        child.kill()
    assert await _status_left(tmp_path) == ["accepted"]
    assert Database(tmp_path).texts() == []
    seen = Statuses()
    model = ScriptedModel(says("It is done now."))
    await open_app(assistant(model, on_submission_status=seen.hook))
    # Nobody asks for the agent: it wakes by itself
    await seen.until("job", "completed")
    assert Database(tmp_path).texts() == ["Do it.", "It is done now."]
    assert model.asked == 1


@pytest.mark.slow
@pytest.mark.case(600)
@pytest.mark.parametrize("words", [1, 2, 3])
async def test_work_killed_in_flight_is_running_and_goes_on_to_its_end(
    open_app: OpenApp, tmp_path: Path, words: int
) -> None:
    with run_child(tmp_path, "speaking") as child:
        shown = 0
        while shown < words:
            line = child.until("chunk")
            shown += "text-delta" in line["body"]
        child.kill()
    assert await _status_left(tmp_path) == ["running"]

    seen, go = Statuses(), asyncio.Event()
    model = ScriptedModel(lambda request: says("It is ").waits(go).says("done now."))
    app = await open_app(cls := assistant(model, on_submission_status=seen.hook))
    await model.until_silent()
    job = await app.agent(cls, "room").inspect_submission("job")
    assert (job.status, job.metadata) == ("running", {"n": 1})
    go.set()
    await seen.until("job", "completed")
    assert Database(tmp_path).texts() == ["Do it.", "It is done now."]
    assert seen.of("job").count("completed") == 1


@pytest.mark.slow
@pytest.mark.case(588, 599)
@pytest.mark.parametrize(("scenario", "kept"), [("silent", []), ("speaking", ["It "])])
async def test_work_killed_in_flight_that_is_not_recovered_is_an_error_and_not_repeated(
    open_app: OpenApp, tmp_path: Path, scenario: str, kept: list[str]
) -> None:
    # Given a process killed after the messages were stored, and an agent that wants no recovery
    with run_child(tmp_path, scenario) as child:
        child.until("chunk" if kept else "started")
        while kept and "text-delta" not in child.lines[-1].get("body", ""):
            child.until("chunk")
        child.kill()
    seen, model = Statuses(), ScriptedModel()
    app = await open_app(cls := assistant(model, chat_recovery=False, on_submission_status=seen.hook))

    # Then the submission has failed, and says why; what was shown is kept
    failed = await seen.until("job", "error")
    assert failed.error == SUBMISSION_TEXT
    await all_over(app, cls, "room")
    texts = Database(tmp_path).texts()
    assert texts[0] == "Do it."
    assert [text.startswith(part) for text, part in zip(texts[1:], kept, strict=True)] == [True] * len(kept)
    assert (model.asked, seen.of("job")) == (0, ["error"])
