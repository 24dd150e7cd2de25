"""An agent with skills from three places, of which one does not answer until it is mended."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from everthink import Think, skills, tool
from everthink.skills import SkillInfo
from tests.journeys.page.filing import Scribe

__all__ = ["Scholar"]


class Wiki:
    """A source that fails until somebody says `POST …/mend`."""

    id = "team-wiki"
    fingerprint = ""
    is_broken = True

    async def list(self) -> list[SkillInfo]:
        if self.is_broken:
            raise ConnectionError("the wiki does not answer")
        return [SkillInfo("meeting-notes", "Write up a meeting: what was decided, who does what.")]

    async def load(self, name: str) -> None:
        return None

    async def read_resource(self, name: str, path: str) -> None:
        return None

    async def refresh(self) -> None:
        self.fingerprint = "mended" if not self.is_broken else ""


class Scholar(Think):
    """Knows how some things are done here. Each line that it is told is a tool and its input."""

    model = Scribe("activate_skill")
    about = "Knows how things are done here, and reads it up when it has to."
    include_workspace_tools = False

    def get_skills(self) -> Any:
        self.wiki = Wiki()
        return [skills.from_directory(Path(__file__).parent / "shelf", id="handbook"), self.wiki]

    def get_skill_script_runner(self) -> Any:
        return skills.runner(
            workspace_instance=self.workspace, tools=[self.weather], network=["api.example.com"], timeout=10
        )

    async def on_request(self, request: Any) -> Any:
        self.wiki.is_broken = False
        return {}

    @tool
    async def weather(self, city: str) -> str:
        """The weather in a city."""
        return f"It is sunny in {city}."
