"""When messages were made."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from everthink import App, Message, Think
from everthink.messages import encode_json
from everthink.testing import ManualClock, ScriptedModel, says
from tests.support.agents import assistant, live

pytestmark = pytest.mark.anyio

START = datetime.fromtimestamp(1_800_000_000, UTC)


@pytest.fixture(params=["sqlite", "postgres"])
def store_url(request: pytest.FixtureRequest, tmp_path: Any) -> str:
    if request.param == "postgres":
        return request.getfixturevalue("postgres_url")
    return f"sqlite:///{tmp_path}/everthink.db"


def times(messages: list[Message]) -> list[float]:
    made = [message.created_at for message in messages]
    return [(at - START).total_seconds() for at in made if at is not None]


async def test_messages_say_when_they_were_stored_also_after_a_restart(store_url: str) -> None:
    clock, seen = ManualClock(), list[datetime | None]()

    def on_chat_response(self: Think, response: Any) -> None:
        seen.append(response.message.created_at)

    def agents() -> tuple[App, type[Think]]:
        model = ScriptedModel(says("One."), says("Two."))
        cls = assistant(model, on_chat_response=on_chat_response)
        return App(cls, store=store_url, clock=clock, idle_after=None, grace=0.0), cls

    # Given two turns, a minute apart
    app, cls = agents()
    async with app:
        agent = app.agent(cls, "room")
        first = await agent.save_messages("Hi")
        await clock.advance(60)
        await agent.save_messages("And?")
        assert times(await agent.get_messages()) == [0, 0, 60, 60]
        assert times((await live(agent)).messages) == [0, 0, 60, 60]
        assert first.message is not None
        assert first.message.created_at == START
    assert seen == [START, START + timedelta(seconds=60)]

    # When another process reads them, then they are as old as they were
    await clock.advance(3600)
    app, cls = agents()
    async with app:
        room = await live(app.agent(cls, "room"))
        assert times(room.messages) == [0, 0, 60, 60]
        found = await room.session.get_message(room.messages[2].id)
        assert found is not None
        assert times([found]) == [60]
        branches = await room.session.get_branches(room.messages[0].id)
        assert times(branches) == [0]

        # A message that is changed keeps its time
        changed = room.messages[0]
        changed.parts = [{"type": "text", "text": "Hello"}]
        await room.add_messages([Message(changed.id, "user", changed.parts)], mode="upsert")
        assert room.messages[0].text == "Hello"
        assert times(room.messages) == [0, 0, 60, 60]


def test_what_a_message_says_itself_counts_and_a_new_one_has_no_time_yet() -> None:
    assert Message("m", "user", []).created_at is None
    said = Message("m", "user", [], created_text="2026-11-16T10:00:00Z")
    assert said.created_at == datetime(2026, 11, 16, 10, tzinfo=UTC)
    assert Message("m", "user", [], created_text="2026-11-16T10:00:00").created_at == said.created_at
    unreadable = Message("m", "user", [], created_text="yesterday").stored(1000)
    assert unreadable.created_at == datetime.fromtimestamp(1, UTC)


def test_the_time_is_no_part_of_what_clients_are_sent_or_of_what_makes_messages_equal() -> None:
    message = Message("m", "user", []).stored(1000)
    assert message == Message("m", "user", [])
    assert encode_json(message) == b'{"id":"m","role":"user","parts":[]}'
    assert message.copy().created_at == message.created_at
