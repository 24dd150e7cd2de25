"""An agent with files: each line of what it is told is a tool and its input, and it calls them in this order."""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections.abc import AsyncGenerator
from typing import Any, Literal, cast

from everthink import Think, tool
from everthink.devtools.files import workspace_of
from everthink.models import port as model
from everthink.workspace import Workspace, WorkspaceLimits

__all__ = ["Study"]

PICTURE = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAgAAAAICAIAAABLbSncAAAAEUlEQVR42mPQz3+OFTEMLQkAOXp1QVdTQY0AAAAASUVORK5CYII="
)


class Scribe:
    """Does what the lines say, one call a step, and says that it is done."""

    name = "scribe"
    continues: Literal["prefill", "prompt"] = "prompt"

    async def stream(self, request: model.Request) -> AsyncGenerator[model.ModelEvent, None]:
        asked = max(n for n, m in enumerate(request.messages) if isinstance(m, model.UserMessage))
        done = sum(isinstance(m, model.ToolMessage) for m in request.messages[asked:])
        lines = [line for line in _said(request.messages[asked]) if line.startswith(TOOLS)]
        yield model.Opened()
        if done < len(lines):
            name, _, given = lines[done].partition(" ")
            yield model.ToolCallReady(f"{name}-{asked}-{done}", name, given)
            yield model.Finish("tool-calls", model.Usage(20, 5, 25))
            return
        yield model.TextStart("t")
        yield model.TextDelta("t", f"Done. I was shown {_files(request.messages[asked])}.")
        yield model.TextEnd("t")
        yield model.Finish("stop", model.Usage(20, 5, 25))


TOOLS = ("write ", "edit ", "read ", "list ", "find ", "grep ", "delete ", "bash ")


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

    async def on_start(self, props: Any = None) -> None:
        self.go = asyncio.Event()

    async def on_request(self, request: Any) -> Any:
        if request.url.path.endswith("/paint"):
            await self._files.write_file_bytes("/pictures/square.png", PICTURE)
        else:
            self.go.set()
        return {}

    @property
    def _files(self) -> Workspace:
        return workspace_of(cast("Any", self)._home)

    @tool
    async def write(self, path: str, content: str) -> dict[str, Any]:
        """Write a file."""
        await self._files.write_file(path, content)
        return {"path": path, "bytesWritten": len(content.encode()), "lines": content.count("\n") + 1}

    @tool
    async def edit(self, path: str, old_string: str, new_string: str) -> dict[str, Any]:
        """Replace a text in a file."""
        await self._files.rewrite_file(path, lambda text: text.replace(old_string, new_string))
        return {"path": path, "replaced": True, "lines": 3}

    @tool
    async def read(self, path: str) -> dict[str, Any]:
        """Read a file."""
        data = await self._files.read_file_bytes(path)
        if data is None:
            return {"error": f"There is no file {path}."}
        if data == PICTURE:
            seen = hashlib.sha256(data).hexdigest()
            about = {"name": path.rpartition("/")[2], "mediaType": "image/png", "sizeBytes": len(data)}
            return {"kind": "image", "path": path, "hash": seen, **about}
        lines = data.decode().split("\n")
        numbered = "\n".join(f"{n}\t{line}" for n, line in enumerate(lines, 1))
        return {"path": path, "content": numbered, "totalLines": len(lines)}

    @tool
    async def list(self, path: str = "/") -> dict[str, Any]:
        """List a folder."""
        found = await self._files.read_dir(path)
        names = [f"{one.name}/" if one.kind == "directory" else f"{one.name} ({one.size} B)" for one in found]
        return {"path": path, "count": len(names), "entries": names}

    @tool
    async def find(self, pattern: str) -> dict[str, Any]:
        """Find files."""
        found = [one.path for one in await self._files.glob(pattern)]
        return {"pattern": pattern, "count": len(found), "files": found}

    @tool
    async def grep(self, query: str) -> dict[str, Any]:
        """Search files."""
        found = ["/plan.md:2: - pack", "/plan.md:3: - walk"]
        return {"query": query, "filesSearched": 2, "filesWithMatches": 1, "totalMatches": 2, "matches": found}

    @tool
    async def delete(self, path: str) -> dict[str, Any]:
        """Delete a file."""
        await self._files.rm(path, recursive=True, force=True)
        return {"deleted": path}

    @tool
    async def bash(self, script: str) -> AsyncGenerator[dict[str, Any], None]:
        """Run a script."""
        yield {"stdout": "counting…\n", "stderr": ""}
        await self.go.wait()
        await self._files.write_file("/count.txt", "2\n")
        changed = {"created": ["/count.txt"], "updated": [], "deleted": []}
        yield {"stdout": "counting…\n2\n", "stderr": "done\n", "exitCode": 0, "changedFiles": changed}
