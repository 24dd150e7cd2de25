from __future__ import annotations

import asyncio
import contextvars
import logging
from typing import Any

import pytest

from everthink.observe import Event, EventBody, EventBus, event
from everthink.observe.events import (
    ChatRecoveryExhausted,
    ChatRequestFailed,
    ChatTranscriptRepaired,
    ChatTurnFinish,
    ChatTurnStart,
    Connect,
    MessageError,
    ToolCallFinish,
)

pytestmark = pytest.mark.anyio

START = ChatTurnStart(request_id="r1", trigger="rpc", admission="queue")
FINISH = ChatTurnFinish(request_id="r1", trigger="rpc", admission="queue", status="completed", duration_ms=7)
REPAIRED = ChatTranscriptRepaired(removed_tool_calls=1, normalized_inputs=0)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def bus() -> EventBus:
    return EventBus(now_ms=lambda: 1234)


def test_a_subscriber_gets_the_whole_envelope(bus: EventBus) -> None:
    seen: list[Event] = []
    bus.subscribe(seen.append)

    bus.emit("Support", "room-1", START)

    [event] = seen
    assert (event.type, event.channel, event.agent, event.name) == (
        "chat:turn:start",
        "agents:chat",
        "Support",
        "room-1",
    )
    assert event.timestamp == 1234
    assert event.body is START
    assert event.payload["requestId"] == "r1"


@pytest.mark.parametrize("channel", ["agents:chat", "chat", ["chat", "state"], ("agents:chat",)])
def test_a_channel_may_be_named_in_full_or_short_alone_or_among_others(
    bus: EventBus, channel: str | list[str]
) -> None:
    seen: list[str] = []
    bus.subscribe(lambda event: seen.append(event.type), channel=channel)

    for body in (START, REPAIRED, Connect(connection_id="c")):
        bus.emit("Support", "room-1", body)

    assert seen == ["chat:turn:start"]


def test_types_are_matched_exactly_or_by_prefix(bus: EventBus) -> None:
    exact: list[str] = []
    prefix: list[str] = []
    bus.subscribe(lambda event: exact.append(event.type), type="chat:turn:finish")
    bus.subscribe(lambda event: prefix.append(event.type), type=["chat:turn:*", "connect"])

    for body in (START, FINISH, REPAIRED, Connect(connection_id="c")):
        bus.emit("Support", "room-1", body)

    assert exact == ["chat:turn:finish"]
    assert prefix == ["chat:turn:start", "chat:turn:finish", "connect"]


def test_a_misspelt_channel_or_type_is_refused_with_the_nearest_name(bus: EventBus) -> None:
    with pytest.raises(ValueError, match="'agents:schedule'"):
        bus.subscribe(print, channel="shedule")
    with pytest.raises(ValueError, match="'chat:turn:finish'"):
        bus.subscribe(print, type="chat:turn:finished")
    with pytest.raises(ValueError, match="No event has the type"):
        bus.subscribe(print, type="nobody:*")


def test_a_subscriber_that_yields_is_refused(bus: EventBus) -> None:
    async def pieces(event: Any) -> Any:
        yield event

    with pytest.raises(TypeError, match=r"pieces.* has a `yield`.*events\.listen\(\)"):
        bus.subscribe(pieces)


def test_a_type_that_is_never_on_the_channel_is_refused(bus: EventBus) -> None:
    with pytest.raises(ValueError, match=r"'schedule:error' are on agents:schedule, not on agents:chat"):
        bus.subscribe(print, channel="chat", type="schedule:error")
    with pytest.raises(ValueError, match="would never be called"):
        bus.subscribe(channel=["chat"], type=["chat:turn:start", "schedule:*"])
    bus.subscribe(print, channel=["chat", "schedule"], type=["schedule:error", "chat:*"])


def test_unsubscribing_stops_delivery_even_while_an_event_is_being_delivered(bus: EventBus) -> None:
    seen: list[str] = []
    bus.subscribe(lambda event: unsubscribe())
    unsubscribe = bus.subscribe(lambda event: seen.append(event.type))

    bus.emit("Support", "room-1", START)
    unsubscribe()
    bus.emit("Support", "room-1", FINISH)

    assert seen == []


def test_subscribe_is_a_decorator_that_leaves_the_function_alone(bus: EventBus) -> None:
    seen: list[str] = []

    @bus.subscribe(channel="chat")
    def note(event: Event) -> None:
        seen.append(event.type)

    bus.emit("Support", "room-1", START)
    assert seen == ["chat:turn:start"]
    assert note.__name__ == "note"


def test_a_raising_subscriber_is_logged_and_reaches_neither_agent_nor_others(
    bus: EventBus, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[str] = []

    def broken(event: Event) -> None:
        raise RuntimeError("observer broke")

    bus.subscribe(broken)
    bus.subscribe(lambda event: seen.append(event.type))

    bus.emit("Support", "room-1", START)

    assert seen == ["chat:turn:start"]
    assert "A subscriber raised on chat:turn:start." in caplog.text
    assert "observer broke" in caplog.text


async def test_async_subscribers_run_beside_the_agent_and_their_errors_are_logged(
    bus: EventBus, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[str] = []

    @bus.subscribe()
    async def slow(event: Event) -> None:
        await asyncio.sleep(0)
        seen.append(event.type)

    @bus.subscribe()
    async def broken(event: Event) -> None:
        raise RuntimeError("late observer broke")

    bus.emit("Support", "room-1", START)
    assert seen == []

    await bus.drain()
    assert seen == ["chat:turn:start"]
    assert "late observer broke" in caplog.text


async def test_async_subscribers_do_not_inherit_the_context_of_the_emitting_task(bus: EventBus) -> None:
    inside_a_turn = contextvars.ContextVar("inside_a_turn", default=False)
    seen: list[bool] = []

    @bus.subscribe()
    async def note(event: Event) -> None:
        seen.append(inside_a_turn.get())

    inside_a_turn.set(True)
    bus.emit("Support", "room-1", START)
    await bus.drain()
    assert seen == [False]


def test_an_async_subscriber_outside_a_loop_is_skipped_with_a_word(
    bus: EventBus, caplog: pytest.LogCaptureFixture
) -> None:
    @bus.subscribe()
    async def note(event: Event) -> None: ...

    bus.emit("Support", "room-1", START)
    assert "outside the event loop" in caplog.text


async def test_a_listener_iterates_over_its_channel(bus: EventBus) -> None:
    async with bus.listen(channel="chat") as events:
        bus.emit("Support", "room-1", START)
        bus.emit("Support", "room-1", Connect(connection_id="c"))
        bus.emit("Support", "room-1", FINISH)
        types = [(await anext(events)).type, (await anext(events)).type]
    assert types == ["chat:turn:start", "chat:turn:finish"]


async def test_a_listener_that_waits_is_woken_and_ends_with_its_block(bus: EventBus) -> None:
    seen: list[str] = []
    listener = bus.listen()

    async def follow() -> None:
        async for happened in listener:
            seen.append(happened.type)

    async with listener:
        following = asyncio.create_task(follow())
        await asyncio.sleep(0)
        bus.emit("Support", "room-1", START)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    await asyncio.wait_for(following, 5)

    bus.emit("Support", "room-1", FINISH)
    assert seen == ["chat:turn:start"]


async def test_a_listener_that_falls_behind_loses_the_oldest_and_says_how_many(bus: EventBus) -> None:
    async with bus.listen(buffer=2) as events:
        for body in (START, REPAIRED, FINISH):
            bus.emit("Support", "room-1", body)
        assert events.dropped == 1
        assert (await anext(events)).type == "chat:transcript:repaired"
        assert (await anext(events)).type == "chat:turn:finish"


def test_a_listener_needs_room_for_one_event(bus: EventBus) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        bus.listen(buffer=0)


def test_nothing_is_built_when_nobody_listens() -> None:
    def no_clock() -> int:
        raise AssertionError("the envelope was built")

    class Unread(ChatTurnStart):
        def payload(self) -> dict[str, object]:
            raise AssertionError("the payload was built")

    logging.getLogger("everthink").setLevel(logging.WARNING)
    try:
        bus = EventBus(now_ms=no_clock)
        bus.subscribe(print, channel="state")
        bus.emit("Support", "room-1", Unread(request_id="r", trigger="rpc", admission="queue"))
    finally:
        logging.getLogger("everthink").setLevel(logging.NOTSET)


@pytest.mark.parametrize(
    ("body", "logger", "level"),
    [
        (START, "everthink.chat", logging.DEBUG),
        (FINISH, "everthink.chat", logging.INFO),
        (ChatRequestFailed(stage="stream", error="boom"), "everthink.chat", logging.WARNING),
        (
            ChatRecoveryExhausted(
                incident_id="i",
                request_id="r",
                attempt=3,
                max_attempts=3,
                recovery_kind="retry",
                reason="max_attempts_exceeded",
            ),
            "everthink.chat",
            logging.WARNING,
        ),
        (MessageError(error="boom"), "everthink.message", logging.DEBUG),
        (REPAIRED, "everthink.transcript", logging.INFO),
        (Connect(connection_id="c"), "everthink.lifecycle", logging.DEBUG),
    ],
)
def test_every_event_is_a_log_record_as_loud_as_it_deserves(
    bus: EventBus, caplog: pytest.LogCaptureFixture, body: EventBody, logger: str, level: int
) -> None:
    with caplog.at_level(logging.DEBUG, logger="everthink"):
        bus.emit("Support", "room-1", body)

    [record] = caplog.records
    assert (record.name, record.levelno) == (logger, level)
    assert record.getMessage().startswith(f"{body.type} Support/room-1")
    assert vars(record)["event"]["payload"] == body.payload()


def test_a_log_line_reads_well(bus: EventBus, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, logger="everthink"):
        bus.emit("Support", "room-1", ChatRequestFailed(request_id="r1", stage="turn", error="no such model"))
    assert caplog.messages == [
        'chat:request:failed Support/room-1 requestId=r1 stage=turn error="no such model"'
    ]


def test_the_log_holds_neither_what_was_said_nor_secrets_nor_endless_text(
    bus: EventBus, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, logger="everthink"):
        bus.emit(
            "Support",
            "room-1",
            ToolCallFinish(
                request_id="r1",
                tool_call_id="c1",
                tool_name="look",
                success=False,
                duration_ms=1,
                error="401: bad key sk-live-0123456789abcdef " + "x" * 2000,
                output="what the tool said",
            ),
        )
    [record] = caplog.records
    shown = record.getMessage() + repr(vars(record)["event"])
    assert "what the tool said" not in shown
    assert "0123456789" not in shown
    assert len(record.getMessage()) < 1000


def test_an_event_that_cannot_be_shown_as_json_is_reported_and_dropped(
    bus: EventBus, caplog: pytest.LogCaptureFixture
) -> None:
    @event("test:unserialisable")
    class Unserialisable(EventBody):
        value: object

    seen: list[Event] = []
    bus.subscribe(seen.append)
    bus.emit("Support", "room-1", Unserialisable(value=object()))
    assert seen == []
    assert "test:unserialisable could not be reported." in caplog.text


def test_an_application_may_declare_events_of_its_own(bus: EventBus) -> None:
    @event("shop:order")
    class ShopOrder(EventBody):
        order_id: str

    seen: list[Event] = []
    bus.subscribe(seen.append, type="shop:*")
    bus.emit("Support", "room-1", ShopOrder(order_id="o1"))
    assert seen[0].channel == "agents:lifecycle"
    assert seen[0].payload == {"orderId": "o1"}
