"""A conversation too large for memory starts with its end; one that cannot be read starts without it."""

from __future__ import annotations

import logging
import math
from pathlib import Path
from typing import Any

import pytest

from everthink import App, Think
from everthink.errors import StoreUnavailable
from everthink.observe.events import ChatHydrationWindowed, ChatOnstartDegraded
from everthink.open_store import open_store
from everthink.runtime.schema import MIGRATIONS
from everthink.session import queries
from everthink.testing import WatchedStore
from everthink.testing.scripted import ScriptedModel, says
from tests.conftest import OpenApp
from tests.support.agents import assistant, live
from tests.support.memory import Summarizer, ids, said, texts
from tests.support.turns import all_over, home_of, prompt, record_events
from tests.support.window import Window

pytestmark = pytest.mark.anyio


async def filled(open_app: OpenApp, Assistant: type[Think], count: int, size: int = 1000) -> None:
    """A conversation that an earlier process left: m0, m1… of so many characters."""
    app = await open_app(Assistant)
    agent = await live(app.agent(Assistant))
    roles = ("user", "assistant")
    await agent.add_messages([said(f"m{n}", f"m{n}" + "x" * size, roles[n % 2]) for n in range(count)])
    await app.close()


@pytest.mark.memory_case(212, 216)
@pytest.mark.case(547, 550)
async def test_a_large_conversation_starts_as_a_window_that_one_can_chat_in(open_app: OpenApp) -> None:
    # Given much more than the budget
    model = ScriptedModel(says("fine"), says("again"))
    Assistant = assistant(model, hydration_byte_budget=6000)
    await filled(open_app, Assistant, 40)

    # When the agent starts
    app = await open_app(Assistant)
    agent = await live(app.agent(Assistant))
    window = ids(agent.messages)

    # Then the end is in memory, and all of it can be read
    assert window == [f"m{n}" for n in range(35, 40)]
    assert ids(await agent.session.get_history()) == ids(await agent.get_messages())
    assert ids(await agent.get_messages()) == [f"m{n}" for n in range(40)]
    assert ids(await agent.session.get_history("m12")) == [f"m{n}" for n in range(13)]

    # And one can go on
    await agent.save_messages("how are you?")
    shown = [text[:3] for _, text in prompt(model.last_request)]
    assert shown[-6:] == ["m35", "m36", "m37", "m38", "m39", "how"]
    assert "m34" not in shown
    assert await agent.session.get_path_length() == 42
    await app.close()
    again = await live((await open_app(Assistant)).agent(Assistant))
    assert texts(again.messages)[-2:] == ["how are you?", "fine"]
    assert len(await again.get_messages()) == 42


@pytest.mark.memory_case(212)
async def test_a_window_has_at_least_four_messages(open_app: OpenApp) -> None:
    Assistant = assistant(ScriptedModel(), hydration_byte_budget=1)
    await filled(open_app, Assistant, 10)
    agent = await live((await open_app(Assistant)).agent(Assistant))
    assert ids(agent.messages) == ["m6", "m7", "m8", "m9"]


@pytest.mark.memory_case(215)
@pytest.mark.case(549)
@pytest.mark.parametrize("budget", [24 * 1024 * 1024, 0, -1, math.inf, math.nan])
async def test_a_small_conversation_or_no_budget_is_in_memory_as_a_whole(
    open_app: OpenApp, budget: float, caplog: pytest.LogCaptureFixture
) -> None:
    Assistant = assistant(ScriptedModel(), hydration_byte_budget=budget)
    await filled(open_app, Assistant, 30)
    app = await open_app(Assistant)
    events = record_events(app, "chat:hydration:windowed")
    agent = await live(app.agent(Assistant))
    assert ids(agent.messages) == [f"m{n}" for n in range(30)]
    assert not agent.session.is_partial
    assert events == []
    assert agent.get_on_start_degradations() == []
    assert "hydration_byte_budget" not in caplog.text


@pytest.mark.memory_case(213)
@pytest.mark.case(548)
async def test_the_event_comes_when_the_window_changes(
    open_app: OpenApp, caplog: pytest.LogCaptureFixture
) -> None:
    Assistant = assistant(ScriptedModel(), hydration_byte_budget=5000)
    await filled(open_app, Assistant, 20)
    caplog.clear()  # the one that filled it has told it too
    app = await open_app(Assistant)
    events = record_events(app, "chat:hydration:windowed")
    agent = await live(app.agent(Assistant))
    total = sum(row.bytes for row in await agent.session.get_history_row_stats())
    expected = ChatHydrationWindowed(total_content_bytes=total, budget_bytes=5000, hydrated_messages=4)
    assert [event.body for event in events] == [expected]

    # Not when the same is read again
    for _ in range(3):
        await agent.session.load()
    assert len(events) == 1
    # But when there is more
    await agent.add_messages([said("more", "x" * 1000)])
    await agent.session.load()
    assert len(events) == 2
    assert [record.levelno for record in caplog.records if "budget" in record.message] == [logging.WARNING]


async def test_a_conversation_that_grows_beyond_the_budget_leaves_memory_from_its_beginning(
    open_app: OpenApp,
) -> None:
    """Every reader is sent what is in memory after each turn, so that has a bound."""
    model = ScriptedModel.forever(says("fine"))
    Assistant = assistant(model, hydration_byte_budget=20_000)
    app = await open_app(Assistant)
    agent = await live(app.agent(Assistant))
    largest = 0
    for number in range(40):
        await agent.save_messages(f"{number} " + "x" * 3000)
        largest = max(largest, sum(len(message.text) for message in agent.messages))
    assert largest <= 1.5 * 20_000 + 3000
    assert texts(agent.messages)[-1] == "fine"
    assert len(await agent.get_messages()) == 80
    assert [text.split()[0] for text in texts(await agent.get_messages())[::2]] == [str(n) for n in range(40)]


async def test_a_summary_brings_a_large_conversation_back_into_memory(open_app: OpenApp) -> None:
    # Given a window
    def configure_session(self: Think, session: Any) -> Any:
        return session.on_compaction(summarizer)

    summarizer = Summarizer(tail=2)
    Assistant = assistant(ScriptedModel(), hydration_byte_budget=6000, configure_session=configure_session)
    await filled(open_app, Assistant, 40)
    agent = await live((await open_app(Assistant)).agent(Assistant))
    assert len(agent.messages) == 5

    # When it is compacted, then the function sees all of it
    await agent.session.compact()
    assert len(summarizer.shown[0]) == 40
    assert ids(agent.messages) == ["*", "m38", "m39"]
    [overlay] = await agent.session.get_compactions()
    assert (overlay.from_message_id, overlay.to_message_id) == ("m0", "m37")


async def test_a_client_with_the_whole_list_stores_nothing_twice_in_a_window(open_app: OpenApp) -> None:
    model = ScriptedModel(says("fine"))
    Assistant = assistant(model, hydration_byte_budget=1)
    await filled(open_app, Assistant, 12)
    app = await open_app(Assistant)
    window = Window(await home_of(app, Assistant))
    agent = await live(app.agent(Assistant))
    window.messages = await agent.get_messages()
    await (await window.send("q", "how are you?")).outcome()
    await all_over(app, Assistant)
    assert await agent.session.get_path_length() == 14
    assert texts(await agent.get_messages())[-2:] == ["how are you?", "fine"]
    assert ids(await agent.session.get_branches("m11")) == ["q"]


# --- a start without history


def bites(sql: str) -> Exception | None:
    return ValueError("a row bites") if sql == queries.BEFORE_WITH_CONTENTS else None


async def counting(tmp_path: Path) -> WatchedStore:
    return WatchedStore(await open_store(f"sqlite:///{tmp_path}/everthink.db", MIGRATIONS))


@pytest.mark.memory_case(214)
@pytest.mark.case(546)
async def test_an_agent_whose_history_cannot_be_read_serves_and_has_it_back_later(
    open_app: OpenApp, tmp_path: Path
) -> None:
    # Given a history that cannot be read for now
    model = ScriptedModel(says("fine"))
    Assistant = assistant(model)
    await filled(open_app, Assistant, 3, size=0)
    store = await counting(tmp_path)
    try:
        store.refuse_reads(
            lambda sql: ValueError("a row bites") if sql == queries.BEFORE_WITH_CONTENTS else None
        )
        async with App(Assistant, store=store, grace=0.0, idle_after=None) as app:
            events = record_events(app, "chat:onstart:degraded")
            agent = await live(app.agent(Assistant))

            # Then the agent is there, with an empty view, and says what failed
            assert agent.messages == []
            assert [(one.step, one.error) for one in agent.get_on_start_degradations()] == [
                ("transcript-hydration", "a row bites")
            ]
            assert [event.body for event in events] == [
                ChatOnstartDegraded(step="transcript-hydration", error="a row bites")
            ]

            # And as soon as it can be read again the conversation goes on where it was
            store.refuse_reads(lambda sql: None)
            await agent.save_messages("hello")
            assert prompt(model.last_request) == [
                ("user", "m0"),
                ("assistant", "m1"),
                ("user", "m2"),
                ("user", "hello"),
            ]
            assert texts(agent.messages) == ["m0", "m1", "m2", "hello", "fine"]
    finally:
        await store.close()
    fresh = await live((await open_app(Assistant)).agent(Assistant))
    assert texts(fresh.messages) == ["m0", "m1", "m2", "hello", "fine"]
    assert fresh.get_on_start_degradations() == []


async def test_a_turn_that_finds_the_history_still_unreadable_loses_nothing(
    open_app: OpenApp, tmp_path: Path
) -> None:
    Assistant = assistant(ScriptedModel(says("fine")))
    await filled(open_app, Assistant, 3, size=0)
    store = await counting(tmp_path)
    try:
        store.refuse_reads(
            lambda sql: ValueError("a row bites") if sql == queries.BEFORE_WITH_CONTENTS else None
        )
        async with App(Assistant, store=store, grace=0.0, idle_after=None) as app:
            agent = await live(app.agent(Assistant))
            with pytest.raises(ValueError, match="a row bites"):
                await agent.save_messages("hello")
            store.refuse_reads(lambda sql: None)
            await agent.save_messages("hello again")
            assert texts(agent.messages) == ["m0", "m1", "m2", "hello again", "fine"]
    finally:
        await store.close()


async def test_a_database_that_is_away_is_no_start(open_app: OpenApp, tmp_path: Path) -> None:
    Assistant = assistant(ScriptedModel())
    await filled(open_app, Assistant, 3)
    store = await counting(tmp_path)
    try:
        away = StoreUnavailable("The database is away.")
        store.refuse_reads(lambda sql: away if sql == queries.BEFORE_WITH_CONTENTS else None)
        async with App(Assistant, store=store, grace=0.0, idle_after=None) as app:
            with pytest.raises(StoreUnavailable):
                await live(app.agent(Assistant))
            store.refuse_reads(lambda sql: None)
            assert len((await live(app.agent(Assistant))).messages) == 3
    finally:
        await store.close()
