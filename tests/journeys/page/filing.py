"""An agent with files: each line that it is told is a tool and its input, and it calls them in this order."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncGenerator
from typing import Any, Literal

from everthink import Think, tool
from everthink.messages import encode_json
from everthink.models import port as model
from everthink.workspace import Workspace, WorkspaceLimits

__all__ = ["Study"]

PICTURE = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAgAAAAICAIAAABLbSncAAAAEUlEQVR42mPQz3+OFTEMLQkAOXp1QVdTQY0AAAAASUVORK5CYII="
)


PLAN = """# A weekend in Lisbon

## Friday
- arrive at six, keys at the hotel
- walk up to the castle

## Saturday
- walk to Belem
- cakes
"""
BETTER = "- take the tram 28 to Graca\n- dinner at eight, table for two"
SAID = {
    "Plan our weekend in Lisbon": [
        ("write", {"path": "/trips/lisbon/plan.md", "content": PLAN}),
        ("write", {"path": "/trips/lisbon/packing.csv", "content": "what,how many\numbrella,1\nshirts,3\n"}),
    ],
    "We would rather take the tram, and eat well": [
        (
            "edit",
            {"path": "/trips/lisbon/plan.md", "old_string": "- walk up to the castle", "new_string": BETTER},
        ),
        ("grep", {"query": "walk|tram"}),
    ],
    "How many things are on it?": [("bash", {"script": "grep -c '^- ' trips/lisbon/*.md | sort -n"})],
}
"""For the pictures."""


class Scribe:
    """Does what the lines say, one call a step, and says that it is done."""

    name = "scribe"
    continues: Literal["prefill", "prompt"] = "prompt"

    def __init__(self, *more: str) -> None:
        self._tools = (*TOOLS, *(f"{name} " for name in more))

    async def stream(self, request: model.Request) -> AsyncGenerator[model.ModelEvent, None]:
        asked = max(n for n, m in enumerate(request.messages) if isinstance(m, model.UserMessage))
        done = sum(isinstance(m, model.ToolMessage) for m in request.messages[asked:])
        said = _said(request.messages[asked])
        lines = [line for line in said if line.startswith(self._tools)]
        for name, given in SAID.get(said[0] if said else "", []):
            lines.append(f"{name} {encode_json(given).decode()}")
        yield model.Opened()
        if done < len(lines):
            name, _, given = lines[done].partition(" ")
            yield model.ToolCallReady(f"{name}-{asked}-{done}", name, given)
            yield model.Finish("tool-calls", model.Usage(20, 5, 25))
            return
        yield model.TextStart("t")
        yield model.TextDelta("t", _answer(said, request.messages[asked]))
        yield model.TextEnd("t")
        yield model.Finish("stop", model.Usage(20, 5, 25))


TOOLS = ("write ", "edit ", "read ", "list ", "find ", "grep ", "delete ", "bash ")


def _answer(said: list[str], message: model.ModelMessage) -> str:
    if said and said[0] in SAID:
        return "It is in your files."
    return f"Done. I was shown {_files(message)}."


def _said(message: model.ModelMessage) -> list[str]:
    assert isinstance(message, model.UserMessage)
    texts = [part.text for part in message.content if isinstance(part, model.TextPart)]
    return "\n".join(texts).splitlines()


def _files(message: model.ModelMessage) -> str:
    assert isinstance(message, model.UserMessage)
    found = [part.media_type for part in message.content if isinstance(part, model.FilePart)]
    return ", ".join(found) or "no file"


class Study(Think):
    """Reads and writes. A script waits in its middle for `POST …/go`; `POST …/paint` makes a picture."""

    model = Scribe()
    workspace = Workspace(limits=WorkspaceLimits(file_bytes=20_000))
    workspace_bash = False  # it has one that waits
    about = "Keeps notes in files, which you can look at, change and bring back."
    examples = tuple(SAID)

    async def on_start(self, props: Any = None) -> None:
        self.go = asyncio.Event()

    async def on_request(self, request: Any) -> Any:
        if request.url.path.endswith("/paint"):
            await self.workspace.write_file_bytes("/pictures/square.png", PICTURE)
        else:
            self.go.set()
        return {}

    @tool
    async def bash(self, script: str) -> AsyncGenerator[dict[str, Any], None]:
        """Run a script."""
        yield {"stdout": "counting…\n", "stderr": ""}
        await self.go.wait()
        await self.workspace.write_file("/count.txt", "2\n")
        changed = {"created": ["/count.txt"], "updated": [], "deleted": []}
        yield {"stdout": "counting…\n2\n", "stderr": "done\n", "exitCode": 0, "changedFiles": changed}
