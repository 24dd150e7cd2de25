"""Methods that clients call."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from everthink import Think
from everthink.errors import InvalidSettings
from everthink.runtime.rpc import (
    StreamingResponse,
    exposed,
    exposed_method,
)
from everthink.testing import ScriptedModel
from tests.support.agents import live

from ..support.turns import record_events
from .conftest import Serve

pytestmark = pytest.mark.anyio


class Base(Think):
    model = ScriptedModel()

    @exposed
    def overridden(self) -> str:
        return "base"

    @exposed
    def withdrawn(self) -> str:
        return "base"


class Desk(Base):
    gates: dict[str, asyncio.Event]
    log: list[Any]

    def __init__(self) -> None:
        self.gates, self.log = {"slow": asyncio.Event()}, []

    @exposed(description="Adds.")
    def add(self, a: int, b: int) -> int:
        return a + b

    @exposed
    def overridden(self) -> str:
        return "desk"

    def withdrawn(self) -> str:
        return "desk"

    @exposed
    async def give(self, value: Any) -> Any:
        return value

    @exposed
    async def wait_in_vain(self) -> None:
        task = asyncio.create_task(asyncio.Event().wait())
        task.cancel()
        await task

    @exposed
    def fail(self, text: str) -> None:
        raise RuntimeError(text)

    @exposed
    def unsayable(self) -> Any:
        return object()

    @exposed
    async def wait(self, gate: str) -> str:
        await self.gates[gate].wait()
        return gate

    @exposed
    def open(self, gate: str) -> None:
        self.gates[gate].set()

    @exposed(streaming=True)
    async def count(self, stream: StreamingResponse, n: int) -> None:
        for i in range(n):
            stream.send(i)
            await asyncio.sleep(0)
        stream.end("over")
        self.log += [stream.is_closed, stream.send("late"), stream.end(), stream.error("late")]

    @exposed(streaming=True)
    def break_off(self, stream: StreamingResponse, *, closed: bool = False) -> None:
        stream.send("one")
        raise RuntimeError("broke off")

    @exposed(streaming=True)
    def give_up(self, stream: StreamingResponse) -> None:
        stream.error("gave up")

    @exposed(streaming=True)
    async def forget_the_end(self, stream: StreamingResponse) -> str:
        stream.send("one")
        return "all"

    @exposed(streaming=True)
    def fail_late(self, stream: StreamingResponse) -> None:
        stream.end()
        raise RuntimeError("too late to tell")

    def hidden(self) -> None:
        self.log.append("hidden")

    def _private(self) -> None:
        self.log.append("private")


def bare(frames: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: value for key, value in f.items() if key not in ("type", "id")} for f in frames]


@pytest.fixture
async def desk(serve: Serve) -> Any:
    server = await serve(Desk)
    chat = await server.connect(Desk)
    chat.server = server  # type: ignore[attr-defined]
    return chat


async def test_a_result_comes_back_done(desk: Any) -> None:
    assert bare(await desk.call("add", 2, 3)) == [{"success": True, "done": True, "result": 5}]


@pytest.mark.parametrize("value", [0, "", False, [], {}, "text", [None], {"a": 1.5}])
async def test_any_json_value_comes_back_as_it_is(desk: Any, value: Any) -> None:
    assert bare(await desk.call("give", value)) == [{"success": True, "done": True, "result": value}]


async def test_nothing_comes_back_as_no_result(desk: Any) -> None:
    assert bare(await desk.call("give", None)) == [{"success": True, "done": True}]


@pytest.mark.parametrize(
    ("method", "args", "error"),
    [
        ("fail", ["told so"], "told so"),
        ("fail", [""], "Unknown error occurred"),
        ("nope", [], "Method nope does not exist"),
        ("_private", [], "Method _private does not exist"),
        ("__class__", [], "Method __class__ does not exist"),
        ("hidden", [], "Method hidden is not callable"),
        ("set_state", [1], "Method set_state is not callable"),
        ("withdrawn", [], "Method withdrawn is not callable"),
    ],
)
async def test_an_error_is_its_text(desk: Any, method: str, args: list[Any], error: str) -> None:
    assert bare(await desk.call(method, *args)) == [{"success": False, "error": error}]
    assert (await live(desk.server.app.agent(Desk, "room"))).log == []


async def test_wrong_arguments_and_results_that_are_no_json_are_errors(desk: Any) -> None:
    for method in ("add", "unsayable"):
        [answer] = bare(await desk.call(method))
        assert answer["success"] is False
        assert answer["error"]


async def test_the_most_derived_definition_counts(desk: Any) -> None:
    assert (await desk.call("overridden"))[-1]["result"] == "desk"
    added, withdrawn = exposed_method(Desk, "add"), exposed_method(Desk, "withdrawn")
    assert added is not None
    assert (added.description, withdrawn) == ("Adds.", None)


async def test_a_stream_of_pieces_ends_with_its_last(desk: Any) -> None:
    assert bare(await desk.call("count", 3)) == [
        {"success": True, "done": False, "result": 0},
        {"success": True, "done": False, "result": 1},
        {"success": True, "done": False, "result": 2},
        {"success": True, "done": True, "result": "over"},
    ]
    await desk.settled()
    # and nothing can be sent after that
    assert (await live(desk.server.app.agent(Desk, "room"))).log == [True, False, False, False]
    assert len(desk.of("rpc")) == 4


async def test_a_stream_that_fails_keeps_its_pieces(desk: Any) -> None:
    assert bare(await desk.call("break_off")) == [
        {"success": True, "done": False, "result": "one"},
        {"success": False, "error": "broke off"},
    ]
    assert bare(await desk.call("give_up")) == [{"success": False, "error": "gave up"}]
    assert bare(await desk.call("fail_late")) == [{"success": True, "done": True}]
    await desk.settled()
    assert len(desk.of("rpc")) == 4


async def test_a_streaming_method_that_returns_has_ended_its_stream(desk: Any) -> None:
    assert bare(await desk.call("forget_the_end")) == [
        {"success": True, "done": False, "result": "one"},
        {"success": True, "done": True, "result": "all"},
    ]


def test_a_streaming_method_that_yields_is_refused_where_it_is_decorated() -> None:
    async def pieces(self: Any, stream: StreamingResponse) -> Any:
        yield 1

    with pytest.raises(InvalidSettings, match=r"pieces is @exposed\(streaming=True\) and has a `yield`"):
        exposed(streaming=True)(pieces)


@pytest.mark.parametrize("wrong", [{"reads": "no"}, {"streaming": 1}, {"reads": None}, {"description": 5}])
def test_an_option_of_another_kind_is_refused_where_it_is_written(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidSettings, match=rf"@exposed: {next(iter(wrong))} is .*\. It takes"):
        exposed(**wrong)


async def test_calls_overtake_each_other(desk: Any) -> None:
    slow = await desk.start_call("wait", "slow")
    await desk.call("add", 1, 1)
    assert desk.answers(slow) == []
    await desk.call("open", "slow")
    await desk.until(lambda: desk.answers(slow))
    assert desk.answers(slow)[0]["result"] == "slow"


async def test_only_the_caller_gets_the_answer_and_a_caller_that_left_hurts_nobody(desk: Any) -> None:
    other = await desk.server.connect(Desk)
    await other.start_call("wait", "slow")
    await other.settled()
    await other.drop()
    await desk.call("open", "slow")
    assert (await desk.call("add", 1, 2))[-1]["result"] == 3
    assert len(desk.of("rpc")) == 2


@pytest.mark.parametrize(
    "frame",
    [
        '{"type":"rpc","id":"x","method":"hidden"}',
        '{"type":"rpc","id":1,"method":"add","args":[1,2]}',
        '{"type":"rpc","id":"x","method":"add","args":{}}',
        '{"type":"rpc","method":"add","args":[]}',
    ],
)
async def test_a_malformed_call_is_not_answered(desk: Any, frame: str) -> None:
    await desk.send(frame)
    await desk.settled()
    assert desk.of("rpc") == []


async def test_observers_hear_of_calls(desk: Any) -> None:
    events = record_events(desk.server.app, "rpc", "rpc:error")
    await desk.call("add", 1, 2)
    await desk.call("fail", "no")
    await desk.server.app.events.drain()
    assert [event.type for event in events] == ["rpc", "rpc", "rpc:error"]


async def test_a_method_that_waits_for_what_is_cancelled_has_failed(
    desk: Any, caplog: pytest.LogCaptureFixture
) -> None:
    (answer,) = await desk.call("wait_in_vain")
    assert answer["success"] is False
    assert answer["error"] == "Something that wait_in_vain waited for was cancelled"
    assert "@exposed wait_in_vain, which a client called, raised" in caplog.text
