"""The examples about agents that have agents, MCP and code, ported as they stand."""

from __future__ import annotations

import asyncio
import sys
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field

from everthink import Agent, Think, agent_tool
from everthink.codemode import create_execute_tool
from everthink.file_tools import create_workspace_tools
from everthink.testing import ManualClock, ScriptedModel, calls, says
from everthink.testing.in_process_server import Listening
from everthink.workspace import MemoryFiles, Workspace
from tests.conftest import OpenApp
from tests.mcp.small_server import SmallServer
from tests.support.hooks import offered, results

pytestmark = pytest.mark.anyio


class Query(BaseModel):
    query: Annotated[str, Field(min_length=3)]


@pytest.mark.example("readme", 4)
async def test_an_agent_is_another_ones_tool(open_app: OpenApp) -> None:
    class Researcher(Think):
        model = ScriptedModel(says("Bergen is rainy."))

        def get_system_prompt(self):
            return "Research the requested topic and end with a concise summary."

    class Assistant(Think):
        model = ScriptedModel(
            calls("research", query="B"), calls("research", query="Bergen"), says("It rains there.")
        )

        def get_tools(self):
            return {
                "research": agent_tool(
                    Researcher,
                    description="Research one topic in depth.",
                    input=Query,
                    display_name="Researcher",
                )
            }

    app = await open_app(Assistant)
    assistant = app.agent(Assistant)
    result = await assistant.save_messages("How is the weather in Bergen?")
    assert result.text == "It rains there."
    # What is too short is told to the model, and no child is made for it
    too_short, found = result.message.tool_parts
    assert "query" in too_short["errorText"]
    assert found["output"] == "Bergen is rainy."
    (run,) = await assistant.list_agent_tool_runs()
    assert (run.agent_type, run.status) == ("Researcher", "completed")
    assert run.display == {"name": "Researcher"}
    assert "concise summary" in str(Researcher.model.last_request)
    # The child stays until its run is cleared
    assert len(await assistant.list_sub_agents()) == 1
    assert await assistant.clear_agent_tool_runs() == 1
    assert await assistant.list_sub_agents() == []


@pytest.mark.example("readme", 23)
async def test_a_turn_waits_for_mcp_connections_and_has_their_tools(open_app: OpenApp) -> None:
    async with Listening(SmallServer()) as place:

        class MyAgent(Think):
            wait_for_mcp_connections = True  # or 10.0
            model = ScriptedModel(calls("docs_act"), says("Done."))

        # A clock that stands still: however slow this computer is, it is waited for
        app = await open_app(
            MyAgent, clock=ManualClock(), mcp_servers={"docs": f"http://127.0.0.1:{place.port}/mcp"}
        )
        result = await app.agent(MyAgent).save_messages("Act")
    assert "docs_act" in offered(MyAgent.model.last_request)
    assert (result.text, results(MyAgent.model.last_request)[-1].output) == ("Done.", "acted")


@pytest.mark.example("readme", 24)
async def test_a_child_streams_to_a_callback_and_is_stopped_by_its_request(open_app: OpenApp) -> None:
    told: list[Any] = []

    class Relay:
        async def on_start(self, request_id):
            told.append(request_id)

        async def on_event(self, json):
            told.append("event")

        async def on_done(self):
            told.append("done")

        async def on_error(self, error):
            told.append(("error", error))

        async def on_interrupted(self):
            told.append("interrupted")

    class MyAgent(Think):
        model = ScriptedModel(says("It is a library."), says("Half ").then_hangs())

    class Parent(Agent):
        sub_agents = (MyAgent,)

        async def summarize(self, relay):
            agent = await self.sub_agent(MyAgent, "thread-1")
            return await agent.chat("Summarize the project", relay)

        async def stop(self, request_id):
            agent = await self.sub_agent(MyAgent, "thread-1")
            await agent.cancel_chat(request_id, "Enough")

    app = await open_app(Parent)
    parent = app.agent(Parent, "p")
    assert (await parent.summarize(Relay())).text == "It is a library."
    assert (set(told[1:-1]), told[-1]) == ({"event"}, "done")
    told.clear()
    asked = asyncio.ensure_future(parent.summarize(Relay()))
    await MyAgent.model.until_silent()
    await parent.stop(told[0])
    assert (await asked).status == "aborted"


@pytest.mark.slow
@pytest.mark.example("readme", 27)
@pytest.mark.skipif(sys.platform != "linux", reason="code runs in a locked process, which needs Linux")
async def test_code_in_a_sandbox_calls_the_tools_that_it_is_given(open_app: OpenApp) -> None:
    ws_tools = create_workspace_tools(Workspace(MemoryFiles({"/a.txt": "one\ntwo\n"})), bash=False)
    code = 'const read = await tools.read({ path: "/a.txt" });\nread.totalLines'

    class MyAgent(Think):
        model = ScriptedModel(calls("execute", code=code), says("Three lines."))

        def get_tools(self):
            return {"execute": create_execute_tool(tools=ws_tools, language="javascript")}

    app = await open_app(MyAgent)
    result = await app.agent(MyAgent).save_messages("How long is it?")
    (part,) = result.message.tool_parts
    assert (part["output"]["status"], part["output"]["result"]) == ("completed", 3), part
