"""Agents of which one is deadly: in a tool that is run again, in its start, or by standing still.

everthink serve tests.crash.poison_child:Patient
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from everthink import Think, tool
from everthink.models.port import Request, ToolMessage
from everthink.testing.scripted import Play, ScriptedModel, calls, says

__all__ = ["Patient"]


def is_cured() -> bool:
    return "POISON_CURED" in os.environ


def answered(request: Request) -> Play:
    asked = str(request.messages[-1])
    has_bitten = isinstance(request.messages[-1], ToolMessage)
    return calls("bite") if "Bite" in asked and not has_bitten else says("Done.")


def stand_still() -> None:
    """Hold the event loop. Nothing inside the process can help it."""
    Path(os.environ["POISON_PIPE"]).write_text("I stand still.")
    time.sleep(3600)


class Patient(Think):
    """Harmless, unless its name says otherwise."""

    model = ScriptedModel(answered, repeat=True, strict=False)

    async def on_start(self, props: Any = None) -> None:
        if self.name.startswith("start") and not is_cured():
            os._exit(7)

    @tool(on_interrupt="rerun")
    async def bite(self) -> str:
        """End the process, or hold it for ever."""
        if is_cured():
            return "It did not hurt."
        if self.name.startswith("hang"):
            stand_still()
        os._exit(7)
