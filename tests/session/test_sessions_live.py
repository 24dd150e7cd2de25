"""One session of an agent is live: turns run in it, windows show it, and a restart finds it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from everthink import App, Think
from everthink.errors import SessionBusy, UnknownSession
from everthink.journal.feed import HistoryChanged, SessionTold
from everthink.session.compaction import SessionStatus
from everthink.testing.scripted import ScriptedModel, hangs, says
from tests.conftest import OpenApp
from tests.support.agents import assistant, live
from tests.support.memory import Summarizer, ids, said, texts
from tests.support.turns import Witness, all_over, home_of, prompt
from tests.support.window import Window

pytestmark = pytest.mark.anyio


async def agent_of(app: App, cls: type[Think]) -> Think:
    return await live(app.agent(cls))


async def test_a_turn_runs_in_the_session_that_was_opened(open_app: OpenApp) -> None:
    # Given a conversation, and another session
    model = ScriptedModel(says("one"), says("two"), says("three"))
    Assistant = assistant(model)
    app = await open_app(Assistant)
    agent = await agent_of(app, Assistant)
    await agent.save_messages("first")
    other = await agent.sessions.create("other")

    # When it is opened
    assert (await agent.sessions.open(other.id)).id == other.id
    assert agent.messages == []
    await agent.save_messages("second")

    # Then the model saw that one alone, and the first is untouched
    assert prompt(model.last_request) == [("user", "second")]
    assert texts(agent.messages) == ["second", "two"]
    assert texts(await agent.sessions.get_history("")) == ["first", "one"]
    await agent.sessions.open("")
    await agent.save_messages("third")
    assert texts(agent.messages) == ["first", "one", "third", "three"]
    assert texts(await agent.sessions.get_history(other.id)) == ["second", "two"]


async def test_after_a_restart_the_session_that_was_opened_is_live(open_app: OpenApp) -> None:
    model = ScriptedModel(says("one"), says("two"))
    Assistant = assistant(model)
    app = await open_app(Assistant)
    agent = await agent_of(app, Assistant)
    other = await agent.sessions.create("other")
    await agent.sessions.open(other.id)
    await agent.save_messages("first")
    await app.close()

    again = await agent_of(await open_app(Assistant), Assistant)
    assert again.session.id == other.id
    assert texts(again.messages) == ["first", "one"]
    await again.sessions.open("")
    assert again.messages == []
    await again.save_messages("second")
    assert prompt(model.last_request) == [("user", "second")]


async def test_a_session_that_is_not_there_cannot_be_opened(open_app: OpenApp) -> None:
    Assistant = assistant(ScriptedModel())
    agent = await agent_of(await open_app(Assistant), Assistant)
    with pytest.raises(UnknownSession):
        await agent.sessions.open("nobody")
    assert agent.session.id == ""


async def test_switching_while_a_turn_runs_is_refused(open_app: OpenApp) -> None:
    model = ScriptedModel(hangs(), says("two"))
    Assistant = assistant(model)
    app = await open_app(Assistant)
    agent = await agent_of(app, Assistant)
    other = await agent.sessions.create("other")
    running = asyncio.create_task(agent.save_messages("first"))
    await model.until_silent()
    with pytest.raises(SessionBusy, match="while a turn runs"):
        await agent.sessions.open(other.id)
    assert agent.session.id == ""
    agent.abort_all_requests()
    await running
    await all_over(app, Assistant)
    await agent.sessions.open(other.id)
    assert agent.messages == []


async def test_a_request_that_arrives_with_the_switch_belongs_to_one_session(open_app: OpenApp) -> None:
    # Given a message and a switch in the same moment
    Assistant = assistant(ScriptedModel(says("hi")))
    app = await open_app(Assistant)
    agent = await agent_of(app, Assistant)
    other = await agent.sessions.create("other")
    done = await asyncio.gather(
        agent.save_messages("first"), agent.sessions.open(other.id), return_exceptions=True
    )
    # Then either the switch was refused, or the turn ran in the new one; nothing lies in both
    histories = [texts(await agent.sessions.get_history(id)) for id in ("", other.id)]
    assert sorted(histories) == [[], ["first", "hi"]]
    assert isinstance(done[1], SessionBusy) == (histories[0] != [])


async def test_windows_are_told_and_what_rests_tells_nobody(open_app: OpenApp) -> None:
    def configure_session(self: Think, session: Any) -> Any:
        return session.on_compaction(Summarizer())

    Assistant = assistant(ScriptedModel(), configure_session=configure_session)
    app = await open_app(Assistant)
    agent = await agent_of(app, Assistant)
    witness = Witness(await home_of(app, Assistant))
    other = await agent.sessions.create("other")
    await agent.sessions.append(other.id, said("a"))
    assert [one for one in witness.shown if isinstance(one, SessionTold)] == []
    await agent.sessions.open(other.id)
    assert [type(one) for one in witness.shown] == [HistoryChanged]
    await agent.sessions.append("", said("b"))
    assert [type(one) for one in witness.shown] == [HistoryChanged]
    await agent.sessions.append(other.id, said("c"))
    [told] = [one for one in witness.shown if isinstance(one, SessionTold)]
    assert isinstance(told.news, SessionStatus)


async def test_opening_it_twice_at_once_is_opening_it_once(store_url: str, open_app: OpenApp) -> None:
    def configure_session(self: Think, session: Any) -> Any:
        return session.on_compaction(Summarizer())

    Assistant = assistant(ScriptedModel(), configure_session=configure_session)
    app = await open_app(Assistant, store=store_url)
    agent = await agent_of(app, Assistant)
    witness = Witness(await home_of(app, Assistant))
    other = await agent.sessions.create("other")
    await asyncio.gather(*(agent.sessions.open(other.id) for _ in range(3)))
    assert agent.session is await agent.sessions.session(other.id)
    await agent.add_messages([said("a")])
    assert any(isinstance(one, SessionTold) for one in witness.shown)
    assert await agent.sessions.session("") is await agent.sessions.session("")


async def test_the_object_of_a_session_stays_the_same_whether_it_is_live_or_rests(open_app: OpenApp) -> None:
    Assistant = assistant(ScriptedModel())
    agent = await agent_of(await open_app(Assistant), Assistant)
    other = await agent.sessions.create("other")
    main, second = agent.session, await agent.sessions.session(other.id)
    switching = asyncio.create_task(agent.sessions.open(other.id))
    while agent.session is main:  # noqa: ASYNC110 - the very moment it is switched
        await asyncio.sleep(0)
    assert await agent.sessions.session("") is main
    await switching
    assert agent.session is second
    await asyncio.gather(agent.sessions.append("", said("a")), agent.sessions.append("", said("b")))
    assert sorted(ids(main.path)) == ["a", "b"]


async def test_a_window_of_the_session_before_stores_nothing_twice(open_app: OpenApp) -> None:
    # Given a window that shows the fork of what it had
    model = ScriptedModel(says("one"), says("two"))
    Assistant = assistant(model)
    app = await open_app(Assistant)
    agent = await agent_of(app, Assistant)
    home = await home_of(app, Assistant)
    window = Window(home)
    await (await window.send("q1", "first")).outcome()
    fork = await agent.sessions.fork("", window.messages[-1].id)
    await agent.sessions.open(fork.id)
    window.messages = agent.messages

    # When somebody goes on there
    await (await window.send("q2", "second")).outcome()
    await all_over(app, Assistant)

    # Then both have what they should
    assert texts(agent.messages) == ["first", "one", "second", "two"]
    assert texts(await agent.sessions.get_history("")) == ["first", "one"]
