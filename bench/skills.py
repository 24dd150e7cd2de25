"""What a script of a skill costs through its runner, once its engine is warm: in each language."""

from __future__ import annotations

from everthink import skills, tool
from everthink.errors import ToolError
from everthink.skills import Resource, ScriptRequest, Skill

from .measure import Row
from .sandbox import middle

SKILL = Skill("bench", "Measures.", body="", raw="")
GUIDE = Resource("references/guide.md", "reference", content="Be brief.")

SCRIPTS = {
    "JavaScript": ("scripts/a.js", "export default (input, ctx) => ctx.files['references/guide.md']"),
    "TypeScript of two files": (
        "scripts/a.ts",
        "import { b } from './b'; export default (input: number): number => input + b",
    ),
    "a function in Python": (
        "scripts/a.py",
        "def run(input, ctx):\n    return open('references/guide.md').read()",
    ),
    "a program in Python": ("scripts/a.py", "import sys\nprint(sys.stdin.read())"),
    "bash": ("scripts/a.sh", "cat references/guide.md"),
}
ASKING = {
    "JavaScript": (
        "scripts/a.js",
        "export default async (input, {tools}) => { for (let n = 0; n < 100; n++) await tools.add({n}) }",
    ),
    "Python": (
        "scripts/a.py",
        "async def run(input):\n    for n in range(100):\n        await tools.add(n=n)",
    ),
    "bash": ("scripts/a.sh", "for n in $(seq 100); do tool add '{\"n\": 1}'; done"),
}


@tool
async def add(n: int) -> int:
    """Add one."""
    return n + 1


async def scripts(*, repetitions: int) -> list[Row]:
    """Wall time of scripts, medians. What does not run here is said and left out."""
    runner, rows = skills.runner(tools=[add]), list[Row]()
    helper = Resource("scripts/b.ts", "script", content="export const b: number = 1")

    async def run(path: str, source: str) -> None:
        await runner.run(ScriptRequest(SKILL, path, source, input=1, resources=(GUIDE, helper)))

    named = {f"a script of a skill: {name}": script for name, script in SCRIPTS.items()}
    named |= {f"a script of a skill with 100 calls of a tool: {name}": one for name, one in ASKING.items()}
    for name, (path, source) in named.items():
        try:
            await run(path, source)
        except ToolError as error:
            print(f"{name}: {error}")
            continue
        taken = await middle(lambda path=path, source=source: run(path, source), repetitions)
        rows.append(Row(name, "ms", {"everthink": taken}))
    await runner.aclose()
    return rows
