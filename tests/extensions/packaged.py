"""Packages as pip leaves them: a module, and beside it what is said of the package."""

from __future__ import annotations

from pathlib import Path

__all__ = ["WORDS", "package"]

WORDS = '''
from everthink import tool
from everthink.extensions import TrustedExtension


class Words(TrustedExtension):
    """Counts words.

    And nothing else.
    """

    context = [{"label": "notes", "description": "What was counted"}]

    def __init__(self, *, most: int = 100) -> None:
        self.most = most
        self.heard = []

    async def on_load(self):
        self.agent.loaded = self

    def on_unload(self):
        self.heard.append("on_unload")

    @tool
    async def count(self, text: str) -> int:
        """Count the words of a text."""
        return min(len(text.split()), self.most)

    @tool
    async def slowly(self, text: str):
        """Count them one by one."""
        for number, _ in enumerate(text.split(), 1):
            yield number

    async def before_turn(self, turn):
        self.heard.append(("before_turn", turn))
        return {"max_steps": 4, "system": turn["system"] + " Count well.", "model": "nobody's"}

    def before_tool_call(self, call):
        self.heard.append(("before_tool_call", call))
        return {"action": "block"}

    async def after_tool_call(self, call):
        self.heard.append(("after_tool_call", call))
        self.log(call["tool_name"], "was called")

    async def on_step_finish(self, step):
        self.heard.append(("on_step_finish", step))

    def on_chunk(self, chunk):
        self.heard.append(("on_chunk", chunk))
'''


def package(
    site: Path,
    source: str = WORDS,
    *,
    name: str = "words",
    dist: str = "everthink-words",
    version: str = "1.2",
) -> Path:
    """A package in a directory that Python looks for packages in, with one extension."""
    module = dist.replace("-", "_")
    site.mkdir(exist_ok=True)
    (site / f"{module}.py").write_text(source)
    about = site / f"{module}-{version}.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {dist}\nVersion: {version}\n")
    (about / "entry_points.txt").write_text(f"[everthink.extensions]\n{name} = {module}:Words\n")
    return site
