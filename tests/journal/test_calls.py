"""The ledger of tool calls: in which world is each of them?"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from everthink import Block, Message, Substitute, Think, ToolContext, tool
from everthink import chunks as ui
from everthink.door.chat_request import ChatRequest
from everthink.errors import StoreFull
from everthink.hooks import ToolCall
from everthink.journal.segments import unpack
from everthink.store.port import Commit
from everthink.testing.scripted import ScriptedModel, calls, says
from tests.conftest import OpenApp
from tests.support.agents import assistant
from tests.support.turns import Database, Witness, accept_request, all_over, gated_app, home_of

pytestmark = pytest.mark.anyio


def acting(seen: list[Any], db: Database) -> Any:
    @tool
    async def act(what: str, ctx: ToolContext) -> str:
        """Do something."""
        seen.append(db.calls()[ctx.tool_call_id])
        if what == "fail":
            raise LookupError("fell")
        return f"did {what}"

    return act


async def test_started_is_durable_before_the_body_runs_and_done_after_it(
    open_app: OpenApp, tmp_path: Path
) -> None:
    # Given a tool that looks itself up in the database
    db, seen = Database(tmp_path), []
    model = ScriptedModel(calls("act", what="dig", id="call-1"), says("ok"))
    app = await open_app(cls := assistant(model, get_tools=lambda self: [acting(seen, db)]))

    # When it runs
    await app.agent(cls).save_messages("Dig!")

    # Then it found its call started; now the call is done
    (during,) = seen
    assert (during["state"], during["tool"], during["step"]) == ("started", "act", 0)
    assert during["started_at"] is not None
    assert during["settled_at"] is None
    after = db.calls()["call-1"]
    assert after["state"] == "done"
    assert after["settled_at"] >= after["started_at"] >= after["asked_at"]
    assert after["turn"] == db.turns()[0]["id"]


async def test_a_tool_that_raises_has_failed(open_app: OpenApp, tmp_path: Path) -> None:
    db, seen = Database(tmp_path), []
    model = ScriptedModel(calls("act", what="fail", id="call-1"), says("ok"))
    app = await open_app(cls := assistant(model, get_tools=lambda self: [acting(seen, db)]))
    await app.agent(cls).save_messages("Dig!")
    assert [row["state"] for row in seen] == ["started"]
    assert db.calls()["call-1"]["state"] == "failed"


async def test_each_call_of_each_step_has_its_row(open_app: OpenApp, tmp_path: Path) -> None:
    db, seen = Database(tmp_path), []
    model = ScriptedModel(
        calls("act", what="a", id="c1").calls("act", what="fail", id="c2"),
        calls("act", what="b", id="c3"),
        says("ok"),
    )
    app = await open_app(cls := assistant(model, get_tools=lambda self: [acting(seen, db)]))
    await app.agent(cls).save_messages("Dig!")
    assert {id: (row["state"], row["step"]) for id, row in db.calls().items()} == {
        "c1": ("done", 0),
        "c2": ("failed", 0),
        "c3": ("done", 1),
    }


@pytest.mark.parametrize(("what", "state"), [("dig", "done"), ("fail", "failed")])
async def test_the_outcome_is_committed_together_with_the_chunk_that_shows_it(
    tmp_path: Path, what: str, state: str
) -> None:
    db, seen = Database(tmp_path), []
    model = ScriptedModel(calls("act", what=what, id="call-1"), says("ok"))
    cls = assistant(model, get_tools=lambda self: [acting(seen, db)])
    async with gated_app(tmp_path, cls) as (app, store):
        await app.agent(cls).save_messages("Dig!")

        def settles(commit: Commit) -> bool:
            return any("UPDATE calls" in s.sql and state in s.params for s in commit)

        def shows(commit: Commit) -> bool:
            return any(
                isinstance(chunk, ui.ToolOutputAvailable | ui.ToolOutputError)
                for s in commit
                if "INSERT INTO segments" in s.sql
                for chunk in unpack(s.params[3])
            )

        (one,) = [commit for commit in store.commits if settles(commit)]
        assert [commit for commit in store.commits if shows(commit)] == [one]


async def test_a_body_never_runs_when_its_start_cannot_be_written(tmp_path: Path) -> None:
    ran: list[str] = []

    @tool
    def launch() -> str:
        """Not twice, please."""
        ran.append("launched")
        return "gone"

    model = ScriptedModel(calls("launch", id="call-1"), says("ok"))
    async with gated_app(tmp_path, cls := assistant(model, get_tools=lambda self: [launch])) as (app, store):
        store.refuse(
            lambda commit: StoreFull("No space left.") if any("INTO calls" in s.sql for s in commit) else None
        )
        result = await app.agent(cls).save_messages("Go!")
        assert (result.status, ran) == ("error", [])
        assert Database(tmp_path).calls() == {}


async def test_a_call_left_to_the_browser_is_asked_until_its_result_comes(
    open_app: OpenApp, tmp_path: Path
) -> None:
    db = Database(tmp_path)
    model = ScriptedModel(calls("locate", id="call-1").calls("locate", id="call-2"))
    app = await open_app(cls := assistant(model))
    question = Message("q", "user", [{"type": "text", "text": "Where?"}])
    admitted: Any = await accept_request(
        await home_of(app, cls), ChatRequest("r", [question], client_tools=[{"name": "locate"}])
    )
    await admitted.result()
    assert [row["state"] for row in db.calls().values()] == ["asked", "asked"]

    assert await app.agent(cls).apply_tool_result("call-1", {"city": "Paris"}) is True
    assert await app.agent(cls).apply_tool_result("call-2", is_error=True, error_text="No GPS.") is True

    assert {id: row["state"] for id, row in db.calls().items()} == {"call-1": "done", "call-2": "failed"}
    # ... and a late one changes nothing
    assert await app.agent(cls).apply_tool_result("call-2", "late") is False
    assert db.calls()["call-2"]["state"] == "failed"


@pytest.mark.parametrize(("approved", "state", "ran"), [(True, "done", ["wiped"]), (False, "denied", [])])
async def test_a_call_that_asks_a_person_is_asked_and_then_done_or_denied(
    open_app: OpenApp, tmp_path: Path, approved: bool, state: str, ran: list[str]
) -> None:
    # Given a call that waits for a yes
    db, wiped = Database(tmp_path), []

    @tool(needs_approval=True)
    def wipe() -> str:
        """Wipe everything."""
        wiped.append("wiped")
        return "gone"

    model = ScriptedModel(calls("wipe", id="call-1"), says("ok"))
    app = await open_app(cls := assistant(model, get_tools=lambda self: [wipe]))
    await app.agent(cls).save_messages("Wipe!")
    assert (db.calls()["call-1"]["state"], wiped) == ("asked", [])

    # When a person answers and the model goes on
    await app.agent(cls).apply_tool_approval("call-1", approved)
    await app.agent(cls).continue_last_turn()

    # Then the ledger says what became of it
    assert wiped == ran
    rows = db.rows("SELECT state FROM calls WHERE call_id = 'call-1'")
    assert {row["state"] for row in rows} == {state}


@pytest.mark.parametrize("decision", [Block("not today"), Substitute("something else")])
async def test_a_call_that_a_hook_answers_never_starts(
    open_app: OpenApp, tmp_path: Path, decision: Any
) -> None:
    db, seen = Database(tmp_path), []

    async def before_tool_call(self: Think, call: ToolCall) -> Any:
        return decision

    model = ScriptedModel(calls("act", what="dig", id="call-1"), says("ok"))
    app = await open_app(
        cls := assistant(model, get_tools=lambda self: [acting(seen, db)], before_tool_call=before_tool_call)
    )
    await app.agent(cls).save_messages("Dig!")
    row = db.calls()["call-1"]
    assert (row["state"], row["started_at"], seen) == ("done", None, [])


async def test_a_call_whose_hook_still_thinks_is_asked(open_app: OpenApp, tmp_path: Path) -> None:
    gate, db, seen = asyncio.Event(), Database(tmp_path), []

    async def before_tool_call(self: Think, call: ToolCall) -> None:
        await gate.wait()

    model = ScriptedModel(calls("act", what="dig", id="call-1"), says("ok"))
    app = await open_app(
        cls := assistant(model, get_tools=lambda self: [acting(seen, db)], before_tool_call=before_tool_call)
    )
    witness = Witness(await home_of(app, cls))
    turn = asyncio.create_task(app.agent(cls).save_messages("Dig!"))
    await witness.until(lambda: any(isinstance(c, ui.ToolInputAvailable) for c in witness.chunks))
    assert (db.calls()["call-1"]["state"], seen) == ("asked", [])
    gate.set()
    await turn
    assert [row["state"] for row in seen] == ["started"]
    assert db.calls()["call-1"]["state"] == "done"


async def test_calls_that_cannot_run_are_not_in_the_ledger_as_open(open_app: OpenApp, tmp_path: Path) -> None:
    db, seen = Database(tmp_path), []
    model = ScriptedModel(calls("act", wrong=1, id="c1").calls("nobody", id="c2"), says("ok"))
    app = await open_app(cls := assistant(model, get_tools=lambda self: [acting(seen, db)]))
    await app.agent(cls).save_messages("Dig!")
    assert seen == []
    assert [row for row in db.calls().values() if row["state"] in ("asked", "started")] == []


@pytest.mark.parametrize("how", ["evicted", "closed"])
async def test_of_a_call_cut_off_by_a_restart_the_model_is_told_that_nobody_knows(
    open_app: OpenApp, tmp_path: Path, how: str
) -> None:
    # Given a tool in the middle of its work
    db, began, digs = Database(tmp_path), asyncio.Event(), list[str]()

    @tool
    async def dig() -> str:
        """Dig for ever."""
        digs.append("dig")
        began.set()
        await asyncio.Event().wait()
        return "never"

    model = ScriptedModel(says("I dig.").calls("dig", id="call-1"), says("I was interrupted."))
    cls = assistant(model, get_tools=lambda self: [dig])
    app = await open_app(cls)
    turn = asyncio.create_task(app.agent(cls).save_messages("Dig!"))
    await began.wait()

    # When the agent is restarted
    if how == "evicted":
        await app.evict(cls, "default")
    else:
        await app.close()
        app = await open_app(cls)
    with pytest.raises(Exception, match="interrupted"):
        await turn

    # Then it does not run again: the model reads that it may have run, and the turn goes on
    await all_over(app, cls)
    _, answer = await app.agent(cls).get_messages()
    assert answer.text == "I dig.I was interrupted."
    assert [part["state"] for part in answer.tool_parts] == ["output-error"]
    assert (db.calls()["call-1"]["state"], digs) == ("unknown", ["dig"])
    assert db.statuses() == ["completed"]
    (result,) = next(m for m in model.last_request.messages if type(m).__name__ == "ToolMessage").content
    assert (result.id, result.is_error) == ("call-1", True)
    assert "may or may not have taken effect" in result.output
