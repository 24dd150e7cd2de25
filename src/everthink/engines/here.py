"""What runs code and pages for models on this machine, and why the others do not: in each something is run.

doctor --looked--> bash, Python, JavaScript, machines, a browser --> one row each
"""

from __future__ import annotations

import importlib.util
import logging
from dataclasses import dataclass

from ..browser.channels import NoBrowser
from ..browser.chromium import find_chromium, launched, needs_no_sandbox
from ..machines.sandbox import MachineSandbox
from ..machines.strongest import LOCAL
from ..monty.sandbox import MontySandbox
from ..sandbox.bash import BashSandbox
from ..sandbox.engine import ChildSandbox
from ..sandbox.javascript import JavaScriptSandbox

__all__ = ["Found", "looked"]


@dataclass(frozen=True, slots=True)
class Found:
    """How one of them stands."""

    name: str
    text: str
    hint: str | None = None
    """What agents do without it, or how it is had; `None` when it works."""


async def looked() -> list[Found]:
    """Try each of them."""
    return [
        await _locked("code", MontySandbox(), "The tool execute does not run Python. See docs/sandbox.md"),
        await _locked("bash", BashSandbox(), "Agents do without the tool bash. See docs/sandbox.md"),
        await _locked(
            "javascript", JavaScriptSandbox(), "JavaScript and TypeScript do not run. See docs/sandbox.md"
        ),
        await _machine(),
        await _browser(),
    ]


async def _locked(name: str, sandbox: ChildSandbox, without: str) -> Found:
    try:
        if (problem := await sandbox.check()) is not None:
            return Found(name, problem, without)
        missing = [f"{step}: {why}" for step, why in (await sandbox.held()).items() if why]
    finally:
        await sandbox.aclose()
    walls = f", without one of its walls ({'; '.join(missing)})" if missing else ""
    return Found(name, f"scripts run in a locked process{walls}")


async def _machine() -> Found:
    problems: list[str] = []
    for make in LOCAL:
        sandbox = MachineSandbox(make())
        try:
            problem = await sandbox.check()
        finally:
            await sandbox.aclose()
        if problem is None:
            without = f" ({'; '.join(problems)})" if problems else ""
            return Found("machines", f"Python and bash run in a machine: {make.__name__}{without}")
        problems.append(f"{make.__name__}: {problem.rstrip('.')}")
    return Found("machines", "; ".join(problems), "Agents do without real processes. See docs/machines.md")


async def _browser() -> Found:
    found = find_chromium()
    if found is None:
        return Found(
            "browser", "no Chromium is found", "apt install chromium, or cdp_url=… See docs/browser.md"
        )
    if importlib.util.find_spec("html_to_markdown") is None:
        return Found(
            "browser",
            f"there is one ({found}), and what its tools need is not installed",
            'pip install "everthink[browser]"',
        )
    quiet = logging.getLogger("everthink.browser")
    level = quiet.level
    quiet.setLevel(logging.ERROR)  # what it would warn of is in the row
    try:
        async with launched(found) as connection:
            version = await connection.send("Browser.getVersion")
    except NoBrowser as error:
        return Found("browser", error.what, "See docs/browser.md")
    finally:
        quiet.setLevel(level)
    without = ", without its own sandbox since this is root" if needs_no_sandbox() else ""
    return Found("browser", f"{version.get('product', 'Chromium')} ({found}) starts{without}")
