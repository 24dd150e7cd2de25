"""The way from the page to an authorization server and back, in Chromium; the OAuth server is the SDK's."""

from __future__ import annotations

import asyncio
import json
import subprocess
from pathlib import Path

import pytest

from everthink.testing import ManualClock
from tests.support.authorization import Locked
from tests.support.chromium import shared_chromium
from tests.support.commands import Command
from tests.support.node import needs, packages_of, workbench

pytestmark = pytest.mark.anyio

HERE = Path(__file__).parent
PAGE = HERE.parent / "page"

APP = """
import json

from everthink import App, Think
from everthink.models.port import ToolMessage
from everthink.testing import ScriptedModel, calls, says

def answer(request):
    last = request.messages[-1]
    if isinstance(last, ToolMessage):
        return says(str(last.content[0].output))
    name, _, given = last.content[0].text.partition(" ")
    return calls(name, **json.loads(given))

class Clerk(Think):
    model = ScriptedModel.forever(answer)

app = App(Clerk)
"""


async def test_a_server_is_authorised_used_and_removed_on_the_page(tmp_path: Path) -> None:
    browser = shared_chromium()
    node = needs("node", "Node.js 20 or newer is needed to walk through the page.")
    scripts = [*PAGE.glob("*.mjs"), HERE / "authorising.mjs"]
    scripts.remove(PAGE / "journeys.mjs")
    place = workbench(tmp_path / "bench", packages_of(PAGE), *scripts)
    (tmp_path / "clerk.py").write_text(APP)

    async with Locked(ManualClock(), asks=True) as locked:
        with Command(tmp_path, "dev", "clerk:app", "--port", "0", "--no-reload") as dev:
            page = await asyncio.to_thread(lambda: dev.until(r"Open (http://\S+)")[1])
            given = {"page": page.rstrip("/"), "server": locked.url, "chromium": browser}
            walked = await asyncio.to_thread(
                subprocess.run,
                [node, "authorising.mjs", json.dumps(given)],
                cwd=place,
                capture_output=True,
                text=True,
                timeout=120,
            )
    assert walked.returncode == 0, walked.stderr
    seen = json.loads(walked.stdout)

    # The person was at the authorization server both times, and brought its no along
    issuer = locked.issuer.removeprefix("http://")
    assert (seen["refused"]["host"], seen["allowed"]["host"]) == (issuer, issuer)
    assert "access_denied" in seen["refused"]["words"]
    assert "access_denied" in seen["refusal"]
    # With their yes nothing was left of it
    assert (seen["allowed"]["words"], seen["troubles"], seen["console"]) == (None, 0, [])
    assert seen["before"] == locked.url
    assert locked.events.count("exchange") == 1
