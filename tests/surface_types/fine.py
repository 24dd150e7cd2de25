"""A user's file: strict pyright finds nothing in it, and sees the types that are asserted. Never run."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, assert_type

from pydantic import BaseModel
from starlette.requests import HTTPConnection, Request
from starlette.responses import PlainTextResponse

from everthink import App, Message, Submission, Think, TurnResult, agent_tool, tool
from everthink.chat import AbortController, ChatStream
from everthink.children import (
    AgentToolProgress,
    AgentToolResult,
    AgentToolRun,
    Detached,
    SubAgent,
    build_path,
    parse_path,
)
from everthink.errors import AgentErased, RunConflict
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


# --- children


@dataclass
class Topic:
    question: str


class Report(BaseModel):
    answer: str
    sources: list[str] = []


class Researcher(Think):
    model = "demo"

    @tool
    async def look_up(self, words: str) -> str:
        """Look something up."""
        await self.report_progress(fraction=0.5, message=words, milestone="found")
        return words

    async def rename(self, title: str) -> int:
        desk = self.parent_agent(Desk)
        assert_type(desk, Desk)
        assert_type(await desk.check(title), str)
        assert_type(self.parent_path, list[tuple[str, str]])
        return len(title)

    def get_agent_tool_summary(self, run_id: str) -> str | None:
        return None


class Printer:
    def on_start(self, *_: Any) -> None: ...

    def on_event(self, event: str) -> None:
        print(event)

    def on_done(self) -> None: ...

    def on_error(self, message: str) -> None:
        print(message)

    def on_interrupted(self) -> None: ...


class Desk(Think):
    model = "demo"
    sub_agents = (Researcher,)
    max_concurrent_agent_tools = 4

    research = agent_tool(
        Researcher, description="Research.", input=Topic, output=Report, display_name="R", icon="R"
    )
    ask = agent_tool(
        Researcher, description="Ask.", input={"type": "object", "properties": {}}, name="ask_it"
    )

    async def check(self, claim: str) -> str:
        result = await self.run_agent_tool(Researcher, input=Topic(claim), run_id=claim, output=Report)
        assert_type(result, AgentToolResult)
        assert_type(result.summary, str | None)
        if result.status != "completed":
            return result.error or ""
        return Report.model_validate(result.output).answer

    async def begin(self, stop: AbortController) -> str:
        plan = Detached(on_finish="heard", notify=True, max_budget=60, on_milestones=["found"])
        try:
            begun = await self.run_agent_tool(Researcher, input="x", detached=plan, signal=stop.signal)
        except RunConflict:
            return ""
        await self.cancel_agent_tool(begun.run_id, "enough")
        assert_type(await self.clear_agent_tool_runs(status=["completed", "error"]), int)
        return begun.run_id

    def heard(self, run: AgentToolRun, result: AgentToolResult) -> None:
        print(run.agent_type, result.is_retryable)

    async def on_agent_tool_start(self, run: AgentToolRun) -> None:
        print(run.input_preview)

    async def on_agent_tool_finish(self, run: AgentToolRun, result: AgentToolResult) -> None:
        print(run.completed_at, result.child_still_running)

    def on_progress(self, run: AgentToolRun, progress: AgentToolProgress) -> None:
        assert_type(progress.fraction, float | None)

    def format_detached_completion(self, run: AgentToolRun, result: AgentToolResult) -> str:
        return f"{run.agent_type} is {result.status}"

    async def on_before_sub_agent(
        self, request: HTTPConnection, cls: type[Any], name: str
    ) -> PlainTextResponse | None:
        return None if await self.has_sub_agent(cls, name) else PlainTextResponse("No", 404)


async def family(app: App) -> None:
    desk = app.agent(Desk, "d")
    child = await desk.sub_agent(Researcher, "notes")
    assert_type(child, Researcher)
    assert_type(await child.rename("Tides"), int)
    assert_type(child.chat("Hi", Printer()), ChatStream)
    assert_type(child.chat("Hi", print), ChatStream)
    try:
        assert_type(await child.chat("Hi"), TurnResult)
    except AgentErased:
        pass
    assert_type(await desk.list_sub_agents(Researcher), list[SubAgent])
    assert_type(await desk.list_agent_tool_runs(), list[AgentToolRun])
    assert_type(await desk.has_sub_agent("Researcher", "notes"), bool)
    await desk.abort_sub_agent(Researcher, "notes")
    await desk.delete_sub_agent(Researcher, "notes")
    assert_type(build_path((Desk, "d"), (Researcher, "notes")), str)
    assert_type(parse_path("/agents/desk/d", [Desk, Researcher]), list[tuple[str, str]])
