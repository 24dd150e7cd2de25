"""`useAgent` and `useAgentChat` as they are published, in headless Chromium, against our server.

page/ --vite--> a page of nothing but the hooks <--Chromium-- journeys.mjs --a JSON line each--> one test each
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.chromium import shared_chromium
from tests.support.node import free_port, judge, needs, packages_of, serving, walk, workbench

HERE = Path(__file__).parent
ROOT = HERE.parents[2]

JOURNEYS = [
    "connect_and_identity",
    "send_and_stream",
    "reload_in_the_middle",
    "dropped_socket",
    "dropped_socket_until_the_end",
    "two_tabs",
    "stop",
    "regenerate",
    "edit_an_earlier_message",
    "too_long",
    "server_tool",
    "client_tool",
    "approval_accepted",
    "approval_denied",
    "question_answered",
    "question_declined",
    "mcp_servers",
    "forged_history",
    "forged_answers",
    "refused",
    "reader",
    "client_tool_by_hand",
    "error_then_reload",
    "clear",
    "server_started_turn",
    "submitted_turn",
    "state_from_the_server",
    "state_from_the_client",
    "state_refused",
    "callable",
    "callable_timeout",
    "callable_and_a_lost_line",
    "streaming_callable",
]

WATCHING = [
    "watching_an_approval_by_who_asked",
    "watching_an_approval_by_the_other",
    "watching_a_denial_by_who_asked",
    "watching_a_denial_by_the_other",
    "watching_a_question_by_who_asked",
    "watching_a_question_by_the_other",
    "watching_one_question_after_another",
    "watching_a_browser_tool",
    "watching_a_browser_tool_of_the_other",
    "watching_a_browser_tool_of_both",
    "watching_a_tool_after_an_approval",
    "watching_one_approval_after_another",
    "watching_from_the_middle",
    "watching_with_a_lost_line",
    "approving_with_a_lost_line",
    "watching_what_is_stopped",
    "watching_what_fails",
    "watching_an_early_approval",
    "watching_while_somebody_asks_more",
    "watching_while_the_other_asks_more",
    "too_long_and_watched",
]
"""One tab asks or answers, others watch: what is said is on every screen once, at every moment."""


def built(bench: Path, out: Path) -> Path:
    """The page, made from the packages of this folder."""
    node = needs("node", "Node.js 20 or newer is needed to build the page.")
    vite = bench / "node_modules" / "vite" / "bin" / "vite.js"
    command = [node, str(vite), "build", "--logLevel", "error", "--outDir", str(out)]
    done = subprocess.run(command, cwd=bench, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return out


@pytest.fixture(scope="module")
def walked(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """How every journey went."""
    chromium = shared_chromium()
    folder = tmp_path_factory.mktemp("hooks")
    files = [HERE / name for name in ("page", "package.json", "vite.config.js")]
    bench = workbench(folder / "bench", packages_of(HERE), *files, *HERE.glob("*.mjs"))
    page, port, mcp = built(bench, folder / "page"), free_port(), free_port()
    store, host = f"sqlite:///{folder}/hooks.db", f"127.0.0.1:{mcp}"
    command = [sys.executable, "-m", "tests.journeys.hooks.stage", str(port), store, str(page), host]
    library = [sys.executable, "-m", "tests.journeys.page.library", str(mcp)]
    with (
        serving(library, mcp, folder / "library.log") as other,
        serving(command, port, folder / "hooks.log") as address,
    ):
        return walk(bench, {"page": address, "chromium": chromium, "mcp": f"{other}/mcp"})


@pytest.mark.case(536, 537, 538, 539)
@pytest.mark.parametrize("name", JOURNEYS)
def test_journey(walked: dict[str, dict[str, Any]], name: str) -> None:
    judge(walked[name])


@pytest.mark.parametrize("name", WATCHING)
def test_a_tab_that_watches_shows_an_answer_once(walked: dict[str, dict[str, Any]], name: str) -> None:
    judge(walked[name])


def test_no_journey_is_left_out(walked: dict[str, dict[str, Any]]) -> None:
    assert sorted(walked) == sorted([*JOURNEYS, *WATCHING])


@pytest.mark.parametrize("folder", [HERE, HERE.parent / "node", ROOT / "ui"], ids=lambda folder: folder.name)
def test_the_packages_have_the_versions_that_the_docs_name(folder: Path) -> None:
    rows = re.findall(r"^\| `([\w@/-]+)` \| (\d[\d.]+) \|", (ROOT / "docs" / "wire.md").read_text(), re.M)
    assert len(rows) == 4
    locked = json.loads((folder / "package-lock.json").read_text())["packages"]
    versions = {name: entry["version"] for name, entry in locked.items() if name}
    used = [(name, version) for name, version in rows if f"node_modules/{name}" in versions]
    assert used
    assert used == [(name, versions[f"node_modules/{name}"]) for name, _ in used]
