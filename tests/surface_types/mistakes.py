"""A user's file with one mistake on each line that ends in `# wrong`. Pyright finds these, and no others."""

from __future__ import annotations

from everthink import App, Think, agent_tool
from everthink.server import Connection


class Assistant(Think):
    model = "demo"

    async def greet(self, who: str) -> str:
        return f"Hello {who}"

    def on_connect(self, connection: int, request: str) -> None:  # wrong
        return None

    def on_close(self, connection: Connection, code: int, reason: str) -> None:
        connection.sned("Bye")  # wrong


async def outside() -> None:
    app = App(Assistant, alow_origins=["https://my.page"])  # wrong
    agent = app.agent(Assistant, "room-1")
    await agent.save_message("Hi")  # wrong
    await agent.save_messages("Hi", metdata={})  # wrong
    await agent.greet(5)  # wrong
    await agent.greet()  # wrong
    (await agent.greet("you")).nothing()  # wrong
    agent.messages = []  # wrong
    agent.greeting("you")  # wrong
    agent.greet("you").upper()  # wrong
    app.agent("Assistant")  # wrong
    await agent.delete_submissions(completed_before=5)  # wrong
    print(agent.chat("Hi").txt)  # wrong
    async with agent as inner:
        await inner.gret("you")  # wrong


class Desk(Think):
    ask = agent_tool(Assistant, descripton="Ask.")  # wrong
    asks = agent_tool("Assistant", description="Ask.")  # wrong

    async def check(self) -> None:
        await self.run_agent_tool(Assistant, input="x", runid="r")  # wrong
        await self.run_agent_tool(Assistant)  # wrong
        child = await self.sub_agent(Assistant, "a")
        await child.gret("you")  # wrong
        await self.clear_agent_tool_runs(status="done")  # wrong
        await self.sub_agent(Assistant, 5)  # wrong
