"""A script in JavaScript or TypeScript: a module whose default export is called, in QuickJS.

    ScriptRequest --entry.js, /skill/…--> the JavaScript sandbox --Outcome--> the value, logs, output files

Types are stripped where a module is loaded, and modules of the skill are found beside each other, so nothing
has to be compiled or bundled before; what was bundled runs as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from ..sandbox.port import Job, Limits, Sandbox
from ..skill_values import ScriptRequest
from .bridge import Bridge
from .endings import ENTRY, failure, lines, returned
from .tree import OUTPUT, artifacts, described

__all__ = ["run_javascript"]


async def run_javascript(
    request: ScriptRequest,
    files: Mapping[str, bytes],
    bridge: Bridge,
    sandbox: Sandbox,
    limits: Limits,
    *,
    has_network: bool,
) -> Any:
    """Run it; what it returns."""
    job = Job(
        language="javascript",
        style="function",
        path=ENTRY,
        source=_entry(),
        input={
            "input": request.input,
            "skill": described(request.skill),
            "path": request.path,
            "texts": [one.path for one in request.resources if one.encoding == "text"],
            "args": list(request.args),
            "network": has_network,
        },
        cwd="/skill",
        files=files,
        folders=frozenset({OUTPUT}),
        collect=(OUTPUT,),
        names={"bridge.call": "(what: string, ...given: unknown[]): Promise<unknown>"},
        limits=limits,
    )
    outcome = await sandbox.run(job, bridge)
    language = "TypeScript" if request.path.endswith((".ts", ".tsx", ".mts")) else "JavaScript"
    if outcome.status != "done":
        raise failure(language, outcome, bridge.written, timeout=limits.wall)
    logs = lines(bridge.written, outcome.dropped_bytes)
    found = artifacts(outcome.changed, is_relative=True)
    value = returned(outcome.value)
    if not logs and not found:
        return value
    told: dict[str, Any] = {"result": value}
    if logs:
        told["logs"] = logs
    return told | ({"outputFiles": found} if found else {})


@cache
def _entry() -> str:
    return Path(__file__).with_name("entry.js").read_text("utf-8")
