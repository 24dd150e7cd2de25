"""Heavy contents leave old messages: what goes where, what stays, who is told, and when it happens."""

from __future__ import annotations

import asyncio
import base64
import re
from collections.abc import Sequence
from typing import Any

import pytest

from everthink import App, Think, tool
from everthink.journal.feed import SessionTold
from everthink.messages import Message, Role
from everthink.observe.events import ChatMediaEvicted, Event
from everthink.runtime.actor import Actor
from everthink.session.media import MediaEviction, eviction_of
from everthink.testing.scripted import ScriptedModel, calls, says
from tests.conftest import OpenApp
from tests.support.agents import assistant, live
from tests.support.memory import Summarizer, said, texts
from tests.support.turns import Witness, home_of, record_events

pytestmark = pytest.mark.anyio

PICTURE = bytes(range(256)) * 200
URL = "data:image/png;base64," + base64.b64encode(PICTURE).decode()
LONG = "line of a log\n" * 4000


def picture(id: str, role: Role = "user", url: str = URL) -> Message:
    return Message(
        id, role, [{"type": "text", "text": id}, {"type": "file", "mediaType": "image/png", "url": url}]
    )


def fetched(id: str, output: Any) -> Message:
    part = {"type": "tool-fetch", "toolCallId": f"call-{id}", "state": "output-available", "input": {}}
    return Message(id, "assistant", [{**part, "output": output}])


def small(count: int) -> list[Message]:
    return [said(f"s{n}") for n in range(count)]


def settings_of(home: Actor) -> MediaEviction:
    settings = eviction_of(home.agent.media_eviction)
    assert settings is not None
    return settings


async def opened(open_app: OpenApp, store_url: str, setting: Any = True, **members: Any) -> tuple[App, Actor]:
    Assistant = assistant(ScriptedModel(), media_eviction=setting, **members)
    app = await open_app(Assistant, store=store_url)
    return app, await home_of(app, Assistant)


async def put(home: Actor, messages: Sequence[Message]) -> None:
    """Store messages without setting a pass going."""
    await home.chat.session.write(home.chat.session.plan_append(messages))


async def quiet(home: Actor) -> None:
    """Return once nothing is done in the background."""
    while home._tasks:
        await asyncio.wait(set(home._tasks))
        await asyncio.sleep(0)  # those that ended are taken off the list


@pytest.mark.memory_case(217)
@pytest.mark.case(551)
async def test_trap_old_files_and_long_outputs_become_markers_and_their_bytes_are_kept(
    store_url: str, open_app: OpenApp
) -> None:
    # Given an old picture and an old output with a long text inside
    _, home = await opened(open_app, store_url)
    agent: Think = home.agent  # type: ignore[assignment]
    await put(home, [picture("p"), fetched("f", {"page": {"log": [LONG, "short"]}}), *small(8)])

    # When a pass runs
    assert not await home.chat.evictor.run_pass(settings_of(home))

    # Then markers stand in their place, in memory and in storage, and the shape is kept
    for messages in (home.chat.session.path, [await agent.session.get_message(id) for id in ("p", "f")]):
        first, second = messages[:2]
        assert first is not None
        assert second is not None
        assert [part["type"] for part in first.parts] == ["text", "text"]
        marker = first.parts[1]["text"]
        path = "/attachments/evicted/p-0.png"
        assert marker == f"[evicted image/png, {len(PICTURE)} bytes; preserved at {path}]"
        output = second.parts[0]["output"]
        log = "/attachments/evicted/f-0.txt"
        assert output == {"page": {"log": [f"[evicted {len(LONG)} bytes; preserved at {log}]", "short"]}}
    # And the files are what they were: bytes, not the text of a URL
    assert await agent.read_attachment(path) == PICTURE
    assert await agent.read_attachment(log) == LONG.encode()
    assert await agent.read_attachment("/attachments/evicted/nobody.png") is None


async def test_files_of_one_agent_are_read_by_no_other(store_url: str, open_app: OpenApp) -> None:
    app, home = await opened(open_app, store_url)
    await put(home, [picture("p"), *small(8)])
    await home.chat.evictor.run_pass(settings_of(home))
    stranger = await live(app.agent(type(home.agent), "elsewhere"))  # type: ignore[type-var]
    assert await stranger.read_attachment("/attachments/evicted/p-0.png") is None


@pytest.mark.memory_case(218)
@pytest.mark.case(553)
@pytest.mark.parametrize(("keep", "kept"), [(8, 8), (5, 5), (4, 4), (1, 4), (0, 4), (-3, 4)])
async def test_recent_messages_keep_what_they_have_and_four_is_the_fewest(
    store_url: str, open_app: OpenApp, keep: int, kept: int
) -> None:
    _, home = await opened(open_app, store_url, {"keep_recent_messages": keep})
    await put(home, [picture(f"p{n}") for n in range(10)])
    await home.chat.evictor.run_pass(settings_of(home))
    has_file = [any(part["type"] == "file" for part in message.parts) for message in home.chat.session.path]
    assert has_file == [False] * (10 - kept) + [True] * kept


@pytest.mark.memory_case(219)
@pytest.mark.case(552)
async def test_rows_are_rewritten_silently_and_one_event_has_the_totals(
    store_url: str, open_app: OpenApp
) -> None:
    def configure_session(self: Think, session: Any) -> Any:
        return session.on_compaction(Summarizer(tail=100))

    app, home = await opened(open_app, store_url, configure_session=configure_session)
    await put(home, [picture("p0"), picture("p1"), fetched("f", [LONG, LONG]), *small(8)])
    witness, events = Witness(home), record_events(app, "chat:media:evicted")
    await home.chat.evictor.run_pass(settings_of(home))
    assert [event.body for event in events] == [
        ChatMediaEvicted(
            messages=3,
            parts=4,
            bytes=2 * len(URL) + 2 * len(LONG),
            externalized_bytes=2 * len(PICTURE) + 2 * len(LONG),
        )
    ]
    assert witness.shown == []
    # while an update is told
    await home.chat.session.update_message(said("s0", "x"))
    assert [type(one) for one in witness.shown] == [SessionTold]


@pytest.mark.memory_case(220)
@pytest.mark.case(554)
async def test_a_pass_that_reached_its_limit_is_followed_by_the_next(
    store_url: str, open_app: OpenApp
) -> None:
    app, home = await opened(open_app, store_url, {"max_rows_per_pass": 2, "keep_recent_messages": 4})
    events = record_events(app, "chat:media:evicted")
    await put(home, [*(picture(f"p{n}") for n in range(5)), *small(4)])
    home.chat.host.start_eviction()
    await quiet(home)
    assert [messages_of(event) for event in events] == [2, 2, 1]
    assert not any(part["type"] == "file" for message in home.chat.session.path for part in message.parts)


def messages_of(event: Event) -> int:
    assert isinstance(event.body, ChatMediaEvicted)
    return event.body.messages


@pytest.mark.memory_case(221)
@pytest.mark.case(555)
async def test_a_second_pass_finds_nothing(store_url: str, open_app: OpenApp) -> None:
    app, home = await opened(open_app, store_url)
    await put(home, [picture("p"), fetched("f", LONG), said("long", "w" * 100_000), *small(8)])
    await home.chat.evictor.run_pass(settings_of(home))
    before, events = list(home.chat.session.path), record_events(app, "chat:media:evicted")
    assert not await home.chat.evictor.run_pass(settings_of(home))
    assert (list(home.chat.session.path), events) == (before, [])
    # nor does one after a restart
    await app.close()
    again, home = await opened(open_app, store_url)
    events = record_events(again, "chat:media:evicted")
    assert not await home.chat.evictor.run_pass(settings_of(home))
    assert (list(home.chat.session.path), events) == (before, [])
    # and what somebody wrote stays
    assert "w" * 100_000 in texts(before)


@pytest.mark.memory_case(222)
@pytest.mark.case(556)
async def test_dropped_contents_leave_their_size_and_no_file(store_url: str, open_app: OpenApp) -> None:
    app, home = await opened(open_app, store_url, {"externalize_to_workspace": False})
    events = record_events(app, "chat:media:evicted")
    await put(home, [picture("p"), *small(8)])
    await home.chat.evictor.run_pass(settings_of(home))
    assert home.chat.session.path[0].parts[1] == {
        "type": "text",
        "text": f"[evicted image/png, {len(PICTURE)} bytes]",
    }
    assert await home.store.fetch("SELECT path FROM files") == []
    [event] = events
    assert event.body == ChatMediaEvicted(messages=1, parts=1, bytes=len(URL), externalized_bytes=0)


@pytest.mark.memory_case(222)
@pytest.mark.case(556)
async def test_switched_off_nothing_happens(store_url: str, open_app: OpenApp) -> None:
    app, home = await opened(open_app, store_url, False)
    events = record_events(app, "chat:media:evicted")
    await put(home, [picture("p"), *small(20)])
    home.chat.host.start_eviction()
    assert not home._tasks
    assert (home.chat.session.path[0], events) == (picture("p"), [])


# --- by itself


@pytest.mark.memory_case(223)
@pytest.mark.case(557)
async def test_a_conversation_that_grows_sets_it_going(open_app: OpenApp) -> None:
    # Given an agent whose tool brings a lot
    class Assistant(Think):
        model = ScriptedModel(calls("read_log"), says("Done."), *(says(f"answer {n}") for n in range(5)))

        @tool
        def read_log(self) -> dict[str, str]:
            "Read the log."
            return {"log": LONG}

    app = await open_app(Assistant)
    home = await home_of(app, Assistant)
    events = record_events(app, "chat:media:evicted")
    agent = app.agent(Assistant)
    await agent.save_messages("read it")

    # When the conversation goes on
    for n in range(4):
        await agent.save_messages(f"question {n}")
        await quiet(home)
        [part] = home.chat.session.path[1].tool_parts
        is_old = len(home.chat.session.path) > 8 + 1
        # Then the result leaves its message once that is old, and not before
        assert (part["output"]["log"] != LONG) == is_old == bool(events)
    [part] = home.chat.session.path[1].tool_parts
    found = re.search(r"preserved at (\S+)\]", part["output"]["log"])
    assert found is not None
    assert await home.agent.read_attachment(found[1]) == LONG.encode()  # type: ignore[attr-defined]
    await agent.save_messages("one more")
    assert len(events) == 1


async def test_a_conversation_that_was_opened_as_a_window_is_looked_at_as_a_whole(
    store_url: str, open_app: OpenApp
) -> None:
    _, home = await opened(open_app, store_url, hydration_byte_budget=1)
    await put(home, [picture("p"), *small(20)])
    await home.chat.session.load()
    assert len(home.chat.session.path) == 4
    await home.chat.evictor.run_pass(settings_of(home))
    row = await home.chat.session.get_message("p")
    assert row is not None
    assert row.parts[1]["type"] == "text"
    assert len(home.chat.session.path) == 4


async def test_what_a_summary_covers_becomes_lighter_too(store_url: str, open_app: OpenApp) -> None:
    _, home = await opened(open_app, store_url)
    await put(home, [picture("p"), *small(20)])
    await home.chat.session.add_compaction("in short", "p", "s5")
    await home.chat.evictor.run_pass(settings_of(home))
    row = await home.chat.session.get_message("p")
    assert row is not None
    assert row.parts[1]["type"] == "text"
    assert texts(home.chat.session.path)[0] == "in short"


@pytest.mark.parametrize("after", ["clear", "switch"])
async def test_a_conversation_that_ends_while_a_pass_runs_is_left_alone(
    store_url: str, open_app: OpenApp, after: str
) -> None:
    _, home = await opened(open_app, store_url)
    agent: Think = home.agent  # type: ignore[assignment]
    await put(home, [picture("p"), *small(10)])
    home.chat.host.start_eviction()
    assert home._tasks
    if after == "clear":
        await agent.clear_messages()
    else:
        await agent.sessions.open((await agent.sessions.create("other")).id)
    await quiet(home)
    assert agent.messages == []
    assert await agent.session.get_path_length() == 0


async def test_messages_of_the_same_id_in_two_sessions_keep_files_of_their_own(
    store_url: str, open_app: OpenApp
) -> None:
    _, home = await opened(open_app, store_url)
    agent: Think = home.agent  # type: ignore[assignment]
    await put(home, [fetched("f", LONG), *small(8)])
    await home.chat.evictor.run_pass(settings_of(home))
    await agent.sessions.open((await agent.sessions.create("other")).id)
    await put(home, [fetched("f", LONG.upper()), *small(8)])
    await home.chat.evictor.run_pass(settings_of(home))
    for id, expected in [("", LONG), (agent.session.id, LONG.upper())]:
        message = (await agent.sessions.get_history(id))[0]
        found = re.search(r"preserved at (\S+)\]", message.parts[0]["output"])
        assert found is not None
        assert await agent.read_attachment(found[1]) == expected.encode()


async def test_a_result_that_arrives_while_its_message_becomes_lighter_is_not_lost(
    store_url: str, open_app: OpenApp
) -> None:
    # Given an old message, out of view, with a heavy result and a call that waits for a person
    _, home = await opened(open_app, store_url)
    agent: Think = home.agent  # type: ignore[assignment]
    waits = {"type": "tool-ask", "toolCallId": "c1", "state": "input-available", "input": {}}
    await put(home, [Message("f", "assistant", [*fetched("f", LONG).parts, waits]), *small(10)])
    await home.chat.session.add_compaction("in short", "f", "s0")

    # When both happen at once
    _, taken = await asyncio.gather(
        home.chat.evictor.run_pass(settings_of(home)), agent.apply_tool_result("c1", "yes")
    )

    # Then both have happened
    row = await home.chat.session.get_message("f")
    assert taken
    assert row is not None
    assert row.parts[0]["output"].startswith("[evicted ")
    assert row.parts[1]["output"] == "yes"
