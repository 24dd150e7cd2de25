"""A user's file: strict pyright finds nothing in it, and sees the types that are asserted. Never run."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, assert_type

from starlette.requests import HTTPConnection, Request

from everthink import App, Message, Submission, Think, TurnResult
from everthink.chat import ChatStream
from everthink.memory import Session
from everthink.server import Connection


class Assistant(Think):
    model = "demo"
    visits: int = 0

    async def greet(self, who: str) -> str:
        return f"Hello {who}"

    async def letters(self, word: str) -> AsyncIterator[str]:
        for letter in word:
            yield letter

    def mood(self) -> str:
        return "fine"

    async def on_connect(self, connection: Connection, request: HTTPConnection) -> None:
        assert_type(request.headers.get("x-room"), str | None)
        connection.send(f"Hello {connection.id}")

    def on_message(self, connection: Connection, message: str | bytes) -> None:
        connection.close(4000, "Not here")

    async def on_request(self, request: Request) -> dict[str, str]:
        return {"path": request.url.path}

    def should_connection_be_readonly(self, connection: Connection, request: HTTPConnection) -> bool:
        return not connection.may("ask")

    @property
    def size(self) -> int:
        return len(self.messages)


async def outside(app: App) -> None:
    agent = app.agent(Assistant, "room-1")
    assert_type(agent, Assistant)
    assert_type(agent.name, str)
    assert_type(agent.id, str)
    assert_type(await agent.save_messages("Hi"), TurnResult)
    assert_type(agent.chat("Hi"), ChatStream)
    assert_type(await agent.chat("Hi"), TurnResult)
    assert_type(await agent.submit_messages("Hi"), Submission)
    assert_type(await agent.get_messages(), list[Message])
    assert_type(await agent.greet("you"), str)
    async for letter in agent.letters("abc"):
        assert_type(letter, str)
    assert_type(agent.mood(), str)
    assert_type(agent.size, int)
    assert_type(agent.visits, int)
    state: Any = agent.state
    assert_type(agent.messages, list[Message])
    assert_type(agent.session, Session)
    assert_type(await agent.cancel_chat("r1"), bool)
    print(state)


async def inside(app: App) -> None:
    async with app.agent(Assistant, "room-1") as agent:
        assert_type(agent, Assistant)
        assert_type(agent.mood(), str)
        assert_type(agent.messages, list[Message])
        agent.visits += 1
