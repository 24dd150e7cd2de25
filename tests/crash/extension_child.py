"""Processes to be killed while a turn activates a skill, runs its script, calls a tool of an extension and
loads another one.

nursery --> run: two turns in a room of its own, gone on with from wherever an earlier process left them
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from everthink import App, Think, skills
from everthink.extensions import Extension, create_extension_tools
from everthink.models.port import Request, ToolMessage, ToolResultPart, UserMessage
from everthink.testing.scripted import Play, ScriptedModel, calls, says
from tests.crash.nursery import fork_for_each_line
from tests.extensions.sources import WORDS

__all__ = ["Smith", "calls_of", "go_on", "lines_of", "smithy"]

SCRIPT = "export default async (input, ctx) => (await ctx.workspace.readFile(input.path)).split(' ').length"
LEDGER = """({
  tools: {
    add: {
      parameters: { line: { type: 'string' } },
      execute: async ({ line }, host) => {
        const lines = (await host.storage.get('lines')) ?? [];
        await host.storage.set('lines', [...lines, line]);
        return lines.length + 1;
      },
    },
  },
  hooks: { afterToolCall: async ({ toolName }, host) => host.storage.set(`after ${toolName}`, true) },
})"""


def _folder() -> Path:
    place = Path(tempfile.mkdtemp()) / "counting"
    (place / "scripts").mkdir(parents=True)
    (place / "SKILL.md").write_text("---\nname: counting\ndescription: Count.\n---\nRun scripts/count.js.\n")
    (place / "scripts/count.js").write_text(SCRIPT)
    return place.parent


def _play(request: Request) -> Play:
    """What comes next, by what this turn has had answered."""
    last = max(place for place, one in enumerate(request.messages) if isinstance(one, UserMessage))
    answered = [
        part.name
        for one in request.messages[last:]
        if isinstance(one, ToolMessage)
        for part in one.content
        if isinstance(part, ToolResultPart)
    ]
    if "Count" in str(request.messages[last]):
        return says("Three.") if answered else calls("words_count", text="a b c")
    match len(answered):
        case 0:
            return calls("activate_skill", name="counting")
        case 1:
            return calls(
                "run_skill_script", name="counting", path="scripts/count.js", input={"path": "/a.txt"}
            )
        case 2:
            return calls("ledger_add", line="one")
        case 3:
            return calls("load_extension", name="words", version="1.0.0", source=WORDS)
        case _:
            return says("Done.")


class Smith(Think):
    """An agent that learns."""

    model: Any = ScriptedModel(_play, repeat=True, records=False)
    include_workspace_tools = False
    skills = (skills.from_directory(_folder()),)
    extensions = (Extension({"name": "ledger", "version": "1", "permissions": {"storage": True}}, LEDGER),)

    def get_skill_script_runner(self) -> Any:
        """Scripts read the workspace."""
        return skills.runner(workspace_instance=self.workspace)

    def get_tools(self) -> Any:
        """What loads extensions."""
        return create_extension_tools()


def smithy(store: str) -> App:
    """The app of the story."""
    return App(Smith, store=store, grace=0.0, idle_after=None)


async def go_on(app: App, room: str) -> Any:
    """Do what a person would who looks where things stand and asks what has not been asked."""
    agent: Any = await app.agent(Smith, room).__aenter__()
    await agent.wait_until_stable()
    if not await agent.workspace.exists("/a.txt"):
        await agent.workspace.write_file("/a.txt", "two words")
    for text in ("Learn.", "Count."):
        if not any(one.role == "user" and one.text == text for one in await agent.get_messages()):
            await agent.save_messages(text)
    await agent.wait_until_stable()
    return agent


async def calls_of(agent: Any) -> dict[str, dict[str, Any]]:
    """The calls of both turns, by tool."""
    parts = [part for one in await agent.get_messages() for part in one.parts if "toolCallId" in part]
    assert len(parts) == len({part["type"] for part in parts}), "a call was made twice"
    return {part["type"].removeprefix("tool-"): part for part in parts}


async def lines_of(agent: Any) -> list[str]:
    """What the ledger has."""
    sql = "SELECT value FROM extension_values WHERE agent = :agent AND extension = 'ledger' AND key = 'lines'"
    rows = await agent._home.store.fetch(sql)
    return json.loads(rows[0][0]) if rows else []


async def run(store: str, room: str) -> None:
    async with smithy(store) as app:
        await go_on(app, room)


if __name__ == "__main__":
    fork_for_each_line(run)
