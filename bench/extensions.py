"""What an agent pays for what it has learned: a turn with 50 skills and 5 extensions against one without, and
a call of an extension's tool once its sandbox is warm."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from everthink import App, Think, skills
from everthink.extensions import Extension, ExtensionManager
from everthink.testing.scripted import ScriptedModel, says
from everthink.tools.tool import ToolContext

from .by_turns import cpu_of_turns
from .measure import Row
from .sandbox import middle
from .work import SHORT

SKILLS, EXTENSIONS = 50, 5
SOURCE = """({
  tools: {
    count: { description: 'Count words', parameters: { text: { type: 'string' } }, required: ['text'],
             execute: async ({ text }) => ({ words: text.split(' ').length }) },
    shout: { parameters: { text: { type: 'string' } }, execute: async ({ text }) => text.toUpperCase() },
    read: { execute: async ({ path }, host) => host.readFile(path) },
  },
  hooks: { beforeTurn: async ({ toolNames }) => ({ maxSteps: 5 + toolNames.length }) },
})"""
PYTHON = """
async def count(args, host):
    return {"words": len(args["text"].split(" "))}

tools = {"count": {"parameters": {"text": {"type": "string"}}, "required": ["text"], "execute": count}}
"""
TEXT = {"text": "to be or not to be"}


class Plain(Think):
    """Has learned nothing."""

    model = ScriptedModel.forever(says(*SHORT.text))


async def learned(folder: Path, *, turns: int) -> list[Row]:
    """CPU of a turn, with and without, by turns: our process's, without that of sandboxes."""
    with tempfile.TemporaryDirectory(dir=folder) as place:
        for number in range(SKILLS):
            home = Path(place) / f"skill-{number}"
            home.mkdir()
            about = f"What to do in case {number}, step by step, and whom to ask."
            (home / "SKILL.md").write_text(f"---\nname: skill-{number}\ndescription: {about}\n---\nDo it.\n")

        class Learned(Plain):
            """Has learned a lot."""

            skills = (skills.from_directory(place),)
            extensions = tuple(
                Extension({"name": f"words{number}", "version": "1"}, SOURCE.partition("hooks:")[0] + "})")
                for number in range(EXTENSIONS)
            )

        async with App(Learned, Plain, store=f"sqlite:///{folder / 'learned.db'}") as app:
            much, nothing = await cpu_of_turns(app, (Learned, Plain), turns=turns)
            async with app.agent(Learned, "room-0") as agent:
                assert len(agent.extension_manager.get_tools()) == 3 * EXTENSIONS
                rows = await _calls(agent, repetitions=max(20, turns // 4))
    what = f"CPU of a turn with {SKILLS} skills and {EXTENSIONS} extensions against one without"
    row = Row(what, "×", {"everthink": much / nothing})
    return [*rows, row.held_to("≤ 1.3 ×", much <= 1.3 * nothing)]


async def _calls(agent: Any, *, repetitions: int) -> list[Row]:
    """Wall time of single calls, in ms, medians."""
    manager: ExtensionManager = agent.extension_manager
    await agent.workspace.write_file("/a.txt", "Hello")
    may = {"workspace": "read"}
    await manager.load({"name": "js", "version": "1", "permissions": may}, SOURCE)
    await manager.load({"name": "py", "version": "1"}, PYTHON, language="python")
    [hooked] = manager.get_hook_subscribers("before_turn")

    def call(tool: str, **given: Any) -> Any:
        return lambda: manager.get_tools()[tool].call(given, ToolContext())

    named = {
        "a call of an extension's tool: JavaScript": call("js_count", **TEXT),
        "a call of an extension's tool that reads a file: JavaScript": call("js_read", path="/a.txt"),
        "a call of an extension's tool: Python": call("py_count", **TEXT),
        "a hook of an extension: JavaScript": lambda: hooked.hook("before_turn", {"tool_names": []}),
    }
    rows: list[Row] = []
    for what, work in named.items():
        for _ in range(3):
            await work()
        row = Row(what, "ms", {"everthink": (taken := await middle(work, repetitions))})
        rows.append(row.held_to("≤ 5 ms", taken <= 5))
    return rows
