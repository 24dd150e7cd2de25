"""`@exposed` methods as tools."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import Annotated, Any

import pytest
from pydantic import Field

from everthink import Agent, Think, exposed
from everthink.server import Limits, StreamingResponse
from everthink.testing import ScriptedModel

from ..support.agents import live
from ..support.mcp import ERAS, Words, client_of, texts
from ..support.turns import record_events
from .conftest import Serve

pytestmark = pytest.mark.anyio


@dataclass
class Item:
    name: str
    count: int = 1


class Desk(Agent):
    @exposed
    def add(self, a: int, b: int = 3) -> int:
        """Adds two numbers.

        Args:
            a: The first.
        """
        return a + b

    @exposed(description="Give it back.")
    async def give(self, value: Any) -> Any:
        return value

    @exposed
    def order(self, items: list[Item], at: Annotated[int, Field(ge=0)] = 0) -> str:
        return ", ".join(f"{item.count} {item.name}" for item in items)

    @exposed
    def greet(self, name: str) -> str:
        return f"{self.name} greets {name}"

    @exposed
    def untyped(self, value, *rest, more=2):  # type: ignore[no-untyped-def]
        return [value, rest, more]

    @exposed
    def fail(self, text: str) -> None:
        raise RuntimeError(f"{text} password=hunter2")

    @exposed
    def unsayable(self) -> Any:
        return object()

    @exposed(streaming=True)
    async def count(self, stream: StreamingResponse, n: int) -> None:
        for number in range(n):
            stream.send(number)
            await asyncio.sleep(0)
        stream.end("over")

    @exposed
    @staticmethod
    def twice(n: int) -> int:
        return 2 * n

    def hidden(self) -> str:
        return "hidden"


@pytest.fixture
async def desk(serve: Serve) -> Any:
    return await serve(Desk, mcp={"exposed": True})


@pytest.mark.parametrize("mode", ERAS)
async def test_a_method_is_a_tool_with_the_schema_of_its_signature(desk: Any, mode: str) -> None:
    async with client_of(desk, mode=mode) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}

    schema = tools["desk_add"].input_schema
    assert (tools["desk_add"].description or "").startswith("Adds two numbers.")
    assert schema["required"] == ["name", "a"]
    assert schema["properties"]["a"] == {"type": "integer", "description": "The first."}
    assert schema["properties"]["b"] == {"type": "integer", "default": 3}
    assert (tools["desk_give"].description or "").startswith("Give it back.")
    assert "desk_hidden" not in tools
    assert "ask_desk" not in tools


@pytest.mark.parametrize(
    ("tool", "given", "result"),
    [
        ("desk_add", {"a": 1, "b": 2}, 3),
        ("desk_add", {"a": 1}, 4),
        ("desk_give", {"value": {"x": [1, None]}}, {"x": [1, None]}),
        ("desk_give", {"value": None}, None),
        ("desk_order", {"items": [{"name": "tea", "count": 2}, {"name": "cup"}]}, "2 tea, 1 cup"),
        ("desk_untyped", {"value": "x"}, ["x", [], 2]),
        ("desk_twice", {"n": 4}, 8),
    ],
)
async def test_a_method_is_called_with_arguments_by_name(
    desk: Any, tool: str, given: Any, result: Any
) -> None:
    async with client_of(desk) as client:
        called = await client.call_tool(tool, {"name": "x", **given})

    assert not called.is_error
    assert called.structured_content == {"result": result}


async def test_a_method_that_takes_a_name_itself_has_another_word_for_the_agent(desk: Any) -> None:
    async with client_of(desk) as client:
        called = await client.call_tool("desk_greet", {"agent": "the desk", "name": "Ada"})

    assert texts(called) == ["the desk greets Ada"]


async def test_pieces_of_a_streaming_method_are_progress_and_stand_in_the_result(desk: Any) -> None:
    words = Words()
    async with client_of(desk) as client:
        called = await client.call_tool("desk_count", {"name": "x", "n": 3}, progress_callback=words)

    assert called.structured_content == {"result": "over", "pieces": [0, 1, 2]}
    assert (words.said, words.numbers) == ("012", [1, 2, 3])


@pytest.mark.parametrize(
    ("tool", "given", "words"),
    [
        ("desk_add", {"name": "x"}, "a is required but missing"),
        ("desk_add", {"name": "x", "a": "many"}, "a should be a valid integer"),
        ("desk_add", {"name": "x", "a": 1, "c": 1}, "c is not a known field"),
        ("desk_add", {"a": 1}, "`name` is missing"),
        ("desk_order", {"name": "x", "items": [], "at": -1}, "greater than or equal to 0"),
        ("desk_unsayable", {"name": "x"}, "object"),
    ],
)
async def test_what_does_not_fit_is_told_and_nothing_runs(
    desk: Any, tool: str, given: Any, words: str
) -> None:
    async with client_of(desk) as client:
        called = await client.call_tool(tool, given)

    assert called.is_error
    assert words in texts(called)[0]


async def test_what_a_method_raises_is_told_in_its_own_words_with_secrets_masked(desk: Any) -> None:
    seen = record_events(desk.app)
    async with client_of(desk) as client:
        called = await client.call_tool("desk_fail", {"name": "x", "text": "No such order."})

    assert called.is_error
    assert texts(called)[0].startswith("No such order.")
    assert "hunter2" not in texts(called)[0]
    assert [event.type for event in seen if event.type.startswith("rpc")] == ["rpc", "rpc:error"]


async def test_a_method_is_found_beside_the_agent_that_is_asked(serve: Serve) -> None:
    class Assistant(Think):
        model = ScriptedModel()

        @exposed(reads=True)
        def size(self) -> int:
            return 3

    server = await serve(Assistant, mcp={"exposed": True})
    async with client_of(server) as client:
        tools = (await client.list_tools()).tools

    assert [tool.name for tool in tools] == ["ask_assistant", "assistant_size"]
    assert tools[1].annotations is not None
    assert tools[1].annotations.read_only_hint


async def test_methods_are_offered_only_when_that_is_asked_for(serve: Serve) -> None:
    class Assistant(Think):
        model = ScriptedModel()

        @exposed
        def size(self) -> int:
            return 3

    server = await serve(Assistant)
    async with client_of(server) as client:
        tools = (await client.list_tools()).tools

    assert [tool.name for tool in tools] == ["ask_assistant"]


async def test_a_method_that_no_schema_can_describe_is_left_out_and_told(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    class Odd:
        pass

    class Bench(Agent):
        @exposed
        def fine(self) -> int:
            return 1

        @exposed
        def odd(self, value: Odd) -> int:
            return 1

        @exposed
        def nameless(self, value: int, /) -> int:
            return 1

    with caplog.at_level(logging.WARNING):
        server = await serve(Bench, mcp={"exposed": True})
    async with client_of(server) as client:
        tools = (await client.list_tools()).tools

    assert [tool.name for tool in tools] == ["bench_fine"]
    assert "@exposed Bench.odd is no tool for MCP clients" in caplog.text
    assert "@exposed Bench.nameless is no tool for MCP clients" in caplog.text


class Slow(Agent):
    """Has a method that waits."""

    async def on_start(self, props: Any = None) -> None:
        self.go, self.waiting = asyncio.Event(), asyncio.Semaphore(0)

    @exposed
    async def wait(self) -> str:
        self.waiting.release()
        await self.go.wait()
        return "done"


async def test_a_caller_has_so_many_methods_at_once_also_those_it_does_not_wait_for(serve: Serve) -> None:
    # Given somebody who has as many calls as one may have, and has left one of them alone
    who = {"authenticate": lambda connection: connection.headers.get("x-who")}
    server = await serve(Slow, limits=Limits(calls_at_once=2), mcp={"exposed": True}, **who)
    agent: Any = await live(server.app.agent(Slow, "room"))
    async with client_of(server, headers={"X-Who": "ada"}) as left:
        gone = asyncio.create_task(left.call_tool("slow_wait", {"name": "room"}))
        await agent.waiting.acquire()
        gone.cancel()
    async with (
        client_of(server, headers={"X-Who": "ada"}) as ada,
        client_of(server, headers={"X-Who": "bob"}) as bob,
    ):
        second = asyncio.create_task(ada.call_tool("slow_wait", {"name": "room"}))
        await agent.waiting.acquire()

        # When they call once more
        refused = await ada.call_tool("slow_wait", {"name": "room"})

        # Then it is not run, others have their own, and so has another agent
        assert (refused.is_error, texts(refused)) == (
            True,
            ["2 calls of yours run already; wait for one of them"],
        )
        others = asyncio.create_task(bob.call_tool("slow_wait", {"name": "room"}))
        await agent.waiting.acquire()
        elsewhere: Any = await live(server.app.agent(Slow, "other"))
        elsewhere.go.set()
        assert texts(await ada.call_tool("slow_wait", {"name": "other"})) == ["done"]
        # And once they have ended there is room again
        agent.go.set()
        assert [texts(await one) for one in (second, others)] == [["done"], ["done"]]
        assert texts(await ada.call_tool("slow_wait", {"name": "room"})) == ["done"]
