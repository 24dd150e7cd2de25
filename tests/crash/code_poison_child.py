"""An agent whose code takes money, and then calls what ends the process, as long as a file says so."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

from everthink import Think, tool
from everthink.codemode import create_execute_tool
from everthink.models.port import Request, ToolMessage
from everthink.testing.scripted import Play, ScriptedModel, calls, says

__all__ = ["Till"]

CODE = "await tools.charge(customer='ann')\nawait tools.report()"


def play(request: Request) -> Play:
    asked = str(request.messages[-1].content)
    if "Go" in asked:
        return calls("execute", {"code": CODE})
    results: list[Any] = [m.content for m in request.messages if isinstance(m, ToolMessage)]
    return says("KNOWS " + json.dumps(str(results)))


class Till(Think):
    """Charges, and bites."""

    model = ScriptedModel.forever(play)

    def get_tools(self) -> Any:
        return [create_execute_tool()]

    @tool
    def charge(self, customer: str) -> str:
        """Take money."""
        with open(os.environ["LEDGER"], "a") as ledger:
            ledger.write(f"charged {customer}\n")
        return "charged"

    @tool(on_interrupt="rerun")
    def report(self) -> str:
        """Take too much memory."""
        if Path(os.environ["BITES"]).exists():
            os.kill(os.getpid(), signal.SIGKILL)
        return "report"
