"""A message that is too large for a row is cut, and whoever sent it is told."""

from __future__ import annotations

from typing import Any

import pytest

from everthink import Message, Think, tool
from everthink.server import Limits
from everthink.session.row_size import MAX_ROW_BYTES
from everthink.testing import ScriptedModel, calls, says
from tests.conftest import OpenApp
from tests.support.agents import assistant
from tests.support.turns import record_events

from .conftest import Serve

pytestmark = pytest.mark.anyio

LONG = "x" * (MAX_ROW_BYTES + 1000)


async def test_the_tab_that_sent_it_is_shown_what_was_stored(serve: Serve) -> None:
    cls = assistant(ScriptedModel(says("Much."), says("Less.")))
    server = await serve(cls, limits=Limits(text_bytes=4_000_000))
    sender, other = await server.connect(cls), await server.connect(cls)
    await other.settled()

    # When somebody sends more than a row holds
    await sender.until_done(await sender.say(LONG))

    # Then they see what became of it, and so do the others, who are not told twice
    told = (await sender.until_frame("message_updated"))["message"]
    assert told["role"] == "user"
    assert told["parts"][0]["text"].startswith(f"[Text truncated for storage ({len(LONG)} chars)")
    assert told["metadata"]["compactedTextParts"] == [0]
    await other.until(lambda: len(other.messages) == 2)
    assert [frame for frame in other.frames if frame["type"] == "cf_agent_message_updated"] == []

    # One that fits is left alone
    before = len(sender.frames)
    await sender.until_done(await sender.say("Short"))
    assert not any(frame["type"] == "cf_agent_message_updated" for frame in sender.frames[before:])


async def test_code_that_sent_it_reads_so_in_the_result(open_app: OpenApp) -> None:
    app = await open_app(cls := assistant(ScriptedModel(says("Much."), says("Less."), says("Again."))))
    agent = app.agent(cls)
    result = await agent.save_messages(LONG)
    [asked, _] = await agent.get_messages()
    assert result.cut == (asked.id,)
    assert asked.metadata is not None
    assert asked.metadata["compactedTextParts"] == [0]
    assert (await agent.save_messages("Short")).cut == ()
    computed = await agent.save_messages(lambda messages: LONG)
    assert len(computed.cut) == 1


async def test_messages_that_are_added_or_submitted_are_named_too(open_app: OpenApp) -> None:
    app = await open_app(cls := assistant(ScriptedModel(says("Much."), says("Less."), says("Read."))))
    agent, events = app.agent(cls), record_events(app, "message:cut")

    def told() -> list[Any]:
        return [event.payload for event in events]

    # Given messages that are too large, in each way that code may give them
    [added] = await agent.add_messages(LONG)
    assert (await agent.add_messages("Short")) == ()
    accepted = await agent.submit_messages(LONG)
    [submitted] = accepted.cut
    assert (await agent.submit_messages("Short")).cut == ()
    await agent.wait_until_stable()
    [saved] = (await agent.save_messages(LONG)).cut

    # Then an event tells of each once, and only of those
    assert [payload["messageId"] for payload in told()] == [added, submitted, saved]
    assert all(payload["role"] == "user" and payload["bytes"] > MAX_ROW_BYTES for payload in told())
    stored = {message.id: message for message in await agent.get_messages()}
    assert all("compactedTextParts" in (stored[id].metadata or {}) for id in (added, submitted, saved))

    # And again when it is replaced by something as large
    larger = Message(added, "user", [{"type": "text", "text": LONG * 2}])
    assert await agent.add_messages([larger], mode="upsert") == (added,)
    assert [payload["messageId"] for payload in told()][3:] == [added]


async def test_an_answer_that_is_too_large_is_named_as_well(open_app: OpenApp) -> None:
    class Reader(Think):
        model: Any = ScriptedModel(calls("read"), says("Read."))

        @tool
        def read(self) -> str:
            """Read it all."""
            return LONG

    app = await open_app(Reader)
    events = record_events(app, "message:cut")
    result = await app.agent(Reader).save_messages("Read")
    assert result.message is not None
    assert result.cut == (result.message.id,)
    [told] = [event.payload for event in events]
    assert (told["messageId"], told["role"]) == (result.message.id, "assistant")
