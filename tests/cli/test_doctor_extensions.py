"""`everthink doctor` on extensions of packages: which there are, and which agents name in vain."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.extensions.packaged import package

pytestmark = pytest.mark.slow

AGENT = """
from everthink import App, Think
from everthink.extensions import TrustedExtension, installed

class Own(TrustedExtension):
    pass

class Assistant(Think):
    model = "demo"
    extensions = [
        installed("words"), installed("wrods"), installed("broken"), installed("words", mots=3), Own
    ]

app = App(Assistant, store=":memory:")
"""


def rows(folder: Path, *target: str) -> tuple[int, list[dict[str, Any]]]:
    """What it says of extensions, and how it ends."""
    environment = {**os.environ, "PYTHONPATH": str(folder / "site")}
    done = subprocess.run(
        [sys.executable, "-m", "everthink.cli", "doctor", "--json", *target],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    checks = json.loads(done.stdout)["checks"]
    return done.returncode, [one for one in checks if one["name"] == "extensions"]


def test_packages_are_listed_and_those_that_agents_cannot_have_are_problems(tmp_path: Path) -> None:
    package(tmp_path / "site")
    package(tmp_path / "site", "raise ValueError('half written')", name="broken", dist="everthink-broken")

    # Nothing of what nobody names is run
    code, [listed] = rows(tmp_path)
    assert (code, listed["state"]) == (0, "ok")
    assert "broken 1.2 (everthink-broken), words 1.2 (everthink-words)" in listed["found"]

    # What is named is loaded, in ./agents as in an app
    (tmp_path / "shop.py").write_text(AGENT)
    (tmp_path / "agents").mkdir()
    (tmp_path / "agents" / "assistant.py").write_text(AGENT.partition("app = ")[0])
    for target in ((), ("shop:app",)):
        code, [_, missing, broken, mistaken] = rows(tmp_path, *target)
        assert (code, missing["state"], broken["state"], mistaken["state"]) == (1, *["problem"] * 3)
        assert "No installed package has the extension 'wrods'" in missing["found"]
        assert missing["mend"] == "Did you mean 'words'?"
        assert "everthink-broken 1.2" in broken["found"]
        assert f"ValueError: half written ({tmp_path / 'site' / 'everthink_broken.py'}:1)" in broken["found"]
        assert "installed('words') (everthink-words 1.2)" in mistaken["found"]
        assert "'mots'" in mistaken["found"]
        assert mistaken["mend"] == "Did you mean 'most'?"
