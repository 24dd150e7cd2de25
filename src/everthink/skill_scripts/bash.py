"""A script in bash: run as a file, with its input, its arguments and the commands that were granted.

    ScriptRequest --bash /skill/scripts/x.sh--> the bash sandbox --Outcome--> stdout, stderr, exitCode, files
                         | workspace-read, tool, fetch …
                     Commands --> the Bridge

A command that was not granted does not exist. An exit code is a result, also that of a script which was
stopped: 124 after its time.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import ToolError
from ..messages import encode_json
from ..sandbox.braces import MOST_WORDS, too_many_words
from ..sandbox.port import HostRefused, Job, Limits, Sandbox, Stream
from ..skill_values import ScriptRequest
from ..words import said as on_one_line
from .bridge import Bridge
from .endings import failure, program
from .rights import Rights
from .tree import OUTPUT, SKILL, artifacts, place_of

__all__ = ["Commands", "run_bash_script"]

BAD_USE = 2
"""The exit code of a command that lacks an argument."""
_ENDED = frozenset({"done", "timeout", "memory", "calls"})
_USES = {
    "workspace-read": "PATH",
    "workspace-write": "PATH < content",
    "workspace-glob": "PATTERN",
    "tool": "NAME [JSON]",
    "fetch": "URL",
}


async def run_bash_script(
    request: ScriptRequest,
    files: Mapping[str, bytes],
    bridge: Bridge,
    sandbox: Sandbox,
    limits: Limits,
    rights: Rights,
) -> dict[str, Any]:
    """Run it; what it printed, how it ended, and what it left in `/output`."""
    if sandbox.isolation == "interpreter" and (word := too_many_words(request.source)) is not None:
        raise ToolError(
            f"{request.path}: {on_one_line(word, 80)} stands for more than {MOST_WORDS:,} words, and so many"
            " are not expanded here.",
            kept="Nothing was run.",
            next_step="Use `seq`, or a loop that counts.",
        )
    commands = Commands(bridge, rights)
    job = Job(
        language="bash",
        path=place_of(request.path),
        source=f'bash {_quoted(place_of(request.path))} "$@"',
        args=request.args,
        stdin=encode_json(request.input),
        cwd=SKILL,
        env={"PWD": SKILL},
        files=files,
        folders=frozenset({OUTPUT}),
        collect=(OUTPUT,),
        commands=commands.names,
        limits=limits,
    )
    outcome = await sandbox.run(job, commands)
    if outcome.status not in _ENDED and outcome.exit_code is None:
        raise failure("Bash", outcome, bridge.written, timeout=limits.wall)
    return program(outcome, artifacts(outcome.changed))


def _quoted(path: str) -> str:
    return "'" + path.replace("'", "'\\''") + "'"


class Commands:
    """What a script can ask for, as commands."""

    def __init__(self, bridge: Bridge, rights: Rights) -> None:
        self._bridge = bridge
        reading = ("workspace-read", "workspace-list", "workspace-glob") if rights.may_read else ()
        writing = ("workspace-write",) if rights.may_write else ()
        calling = ("tool",) if bridge.tools else ()
        opening = ("fetch",) if rights.network is not None else ()
        self.names: tuple[str, ...] = (*reading, *writing, *calling, *opening)

    def output(self, stream: Stream, text: str) -> None:
        """See what the script prints."""
        self._bridge.output(stream, text)

    async def call(self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Answer a command: what it prints, or a refusal, which is exit code 1."""
        if name not in self.names:
            raise HostRefused("there is no such command")
        given, stdin = [str(one) for one in args], str(kwargs.get("stdin") or "")
        if not given and name != "workspace-list":
            return {"stderr": f"{name}: usage: {name} {_USES[name]}\n", "exit_code": BAD_USE}
        match name:
            case "workspace-read":
                text = await self._bridge.read_file(given[0])
                if text is None:
                    raise HostRefused(f"there is no file {given[0]}")
                return text
            case "workspace-list":
                return _line(await self._bridge.list_files(*given[:1]))
            case "workspace-glob":
                return _line(await self._bridge.glob(given[0]))
            case "workspace-write":
                await self._bridge.write_file(given[0], stdin)
                return ""
            case "tool":
                return _line(await self._bridge.tool(given[0], _read(given[1] if len(given) > 1 else stdin)))
            case _:
                return (await self._bridge.fetch(given[0]))["body"]


def _line(value: Any) -> str:
    return f"{encode_json(value).decode()}\n"


def _read(text: str) -> Any:
    if not text.strip():
        return {}
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise HostRefused('its input is no JSON: tool NAME \'{"key": "value"}\'') from None
