"""The page where `authorize` lets people into conversations of their own alone, in headless Chromium."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from tests.support.chromium import shared_chromium
from tests.support.commands import Command
from tests.support.node import needs, packages_of, workbench

HERE = Path(__file__).parent

GUARDED = """
from everthink import App, Think

def who(connection):
    return {"t-ada": "ada"}.get(connection.query_params.get("token"))

def own(user, action, agent):
    return agent.name == user or agent.name.startswith(f"{user}.")

class Assistant(Think):
    model = "demo"

app = App(Assistant, authenticate=who, authorize=own)
"""


def test_the_page_tells_that_a_made_up_name_is_closed_and_takes_another(tmp_path: Path) -> None:
    browser = shared_chromium()
    node = needs("node", "Node.js 20 or newer is needed to walk through the page.")
    place = workbench(tmp_path / "bench", packages_of(HERE), *HERE.glob("*.mjs"))
    (tmp_path / "guarded.py").write_text(GUARDED)
    with Command(tmp_path, "dev", "guarded:app", "--port", "0", "--no-reload") as dev:
        page = dev.until(r"Open (http://\S+)")[1]
        walked = subprocess.run(
            [node, "closed.mjs", json.dumps({"page": page, "chromium": browser})],
            cwd=place,
            capture_output=True,
            text=True,
            timeout=120,
        )
    assert walked.returncode == 0, walked.stderr
    seen = json.loads(walked.stdout)
    assert "does not let you into chat-" in seen["told"]
    assert seen["offered"] == "ada"
    assert (seen["entered"], seen["again"], seen["typed"]) == ("ada", "ada", "ada.trip")
