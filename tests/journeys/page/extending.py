"""An agent with extensions: one in a sandbox, one in this process, one whose package is not installed."""

from __future__ import annotations

from typing import Any

from everthink import Think, tool
from everthink.extensions import Extension, Permissions, TrustedExtension, installed
from tests.journeys.page.filing import Scribe

__all__ = ["Workshop"]

GLOSSARY = """({
  tools: {
    explain: {
      description: "Explain a word that is used in this house",
      parameters: { word: { type: "string" } },
      required: ["word"],
      execute: async ({ word }) => {
        console.log(`somebody asked for ${word}`);
        return { word, means: "what we make of it" };
      },
    },
  },
  hooks: { afterToolCall: async (call) => { throw new Error(`no room for ${call.toolName}`); } },
})"""


class Stopwatch(TrustedExtension):
    """Says how long calls take."""

    version = "3.1.0"

    @tool
    def seconds(self, minutes: float) -> float:
        """How many seconds so many minutes have."""
        return minutes * 60

    async def after_tool_call(self, call: dict[str, Any]) -> None:
        self.log(f"{call['tool_name']}: success is {call['success']}")


class Workshop(Think):
    """Each line that it is told is a tool and its input."""

    model = Scribe("glossary_explain", "stopwatch_seconds", "word_tools_count")
    about = "Has tools that others have made."
    include_workspace_tools = False
    extensions = (
        Extension(
            {
                "name": "glossary",
                "version": "1.4.0",
                "description": "Knows the words of this house.",
                "permissions": Permissions(
                    workspace="read", network=("api.example.com",), messages="read", storage=True
                ),
                "context": [{"label": "words", "description": "What was explained"}],
            },
            GLOSSARY,
        ),
        Stopwatch,
        installed("translator"),
    )
