"""Resetting and clearing: nothing of the turns they stop comes afterwards."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from everthink import tool
from everthink.journal.feed import Cleared
from everthink.testing.scripted import ScriptedModel, says
from tests.conftest import OpenApp
from tests.support.agents import assistant, live
from tests.support.turns import Database, Witness, all_over, home_of, prompt

pytestmark = pytest.mark.anyio


async def test_a_reset_stops_the_running_turn_skips_the_waiting_and_stores_nothing_of_them(
    open_app: OpenApp, tmp_path: Path
) -> None:
    # Given a turn that runs, and two that wait: one of them a submission
    model, told = ScriptedModel(says("Half").then_hangs(), says("Fresh.")), []
    app = await open_app(
        cls := assistant(model, on_chat_response=lambda self, response: told.append(response.status))
    )
    agent, witness = app.agent(cls), Witness(await home_of(app, cls))
    first = asyncio.create_task(agent.save_messages("first"))
    await model.until_silent()
    second = asyncio.create_task(agent.save_messages("second"))
    await witness.until_accepted(2)
    await agent.submit_messages("third", submission_id="job")

    # When the turns are reset
    await agent.reset_turn_state()

    # Then nothing of what they would have said is stored, and the next one works
    assert [(await first).status, (await second).status] == ["skipped", "skipped"]
    assert (await agent.inspect_submission("job")).status == "skipped"
    assert Database(tmp_path).texts() == ["first"]
    assert Database(tmp_path).statuses() == ["skipped"] * 3
    assert (await agent.save_messages("fourth")).text == "Fresh."
    assert told == ["completed"]
    assert model.asked == 2


@pytest.mark.case(6)
async def test_clearing_while_a_turn_runs_leaves_nothing_of_it(open_app: OpenApp, tmp_path: Path) -> None:
    # Given a turn in the middle of a tool, with another one behind it
    began, let_go = asyncio.Event(), asyncio.Event()

    @tool
    async def work() -> str:
        """Work for a long time."""
        began.set()
        await let_go.wait()
        return "done"

    model = ScriptedModel(says("Let me work.").calls("work"), says("Fresh."))
    app = await open_app(cls := assistant(model, get_tools=lambda self: [work]))
    agent, witness = app.agent(cls), Witness(await home_of(app, cls))
    first = asyncio.create_task(agent.save_messages("first"))
    await began.wait()
    second = asyncio.create_task(agent.save_messages("second"))
    await witness.until_accepted(2)

    # When the conversation is cleared
    await agent.clear_messages()
    assert [(await first).status, (await second).status] == ["skipped", "skipped"]
    let_go.set()
    await all_over(app, cls)

    # Then there is nothing in memory or in storage, and nothing comes later
    db = Database(tmp_path)
    assert await agent.get_messages() == []
    assert (db.messages(), db.segments(), db.calls()) == ([], [], {})
    assert (await agent.save_messages("new")).text == "Fresh."
    assert db.texts() == ["new", "Fresh."]
    assert prompt(model.last_request) == [("user", "new")]


@pytest.mark.case(7)
async def test_every_reader_is_told_of_a_clear_once_it_is_done(open_app: OpenApp, tmp_path: Path) -> None:
    app = await open_app(cls := assistant(ScriptedModel(says("one"))))
    await app.agent(cls).save_messages("first")
    home, left = await home_of(app, cls), []
    readers = [
        Witness(home, lambda shown: left.append(Database(tmp_path).messages())),
        Witness(home),
    ]

    await app.agent(cls).clear_messages()

    assert [reader.shown for reader in readers] == [[Cleared()], [Cleared()]]
    assert left == [[]]


@pytest.mark.case(6)
async def test_a_clear_keeps_the_configuration_and_other_conversations(open_app: OpenApp) -> None:
    app = await open_app(cls := assistant(ScriptedModel(says("one"), says("two"))))
    for name in ("a", "b"):
        await app.agent(cls, name).configure({"tone": "dry"})
        await app.agent(cls, name).save_messages("first")

    await app.agent(cls, "a").clear_messages()

    assert await app.agent(cls, "a").get_messages() == []
    assert (await live(app.agent(cls, "a"))).get_config() == {"tone": "dry"}
    assert [m.text for m in await app.agent(cls, "b").get_messages()] == ["first", "two"]


@pytest.mark.case(6)
async def test_a_clear_of_nothing_is_harmless(open_app: OpenApp) -> None:
    app = await open_app(cls := assistant(ScriptedModel(says("one"))))
    await app.agent(cls).clear_messages()
    await app.agent(cls).clear_messages()
    assert (await app.agent(cls).save_messages("first")).text == "one"


@pytest.mark.case(6)
async def test_messages_cleared_stay_cleared_after_a_restart(open_app: OpenApp) -> None:
    model = ScriptedModel(says("Half").then_hangs())
    app = await open_app(cls := assistant(model))
    turn = asyncio.create_task(app.agent(cls).save_messages("first"))
    await model.until_silent()
    await app.agent(cls).clear_messages()
    await turn
    await app.evict(cls, "default")
    assert await app.agent(cls).get_messages() == []
