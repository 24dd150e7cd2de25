"""A folder of agents, written for a test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Makes a folder of agents in the working directory."""
    import sys

    monkeypatch.chdir(tmp_path)
    for name in [one for one in sys.modules if one.partition(".")[0] in ("agents", "_everthink_agents")]:
        monkeypatch.delitem(sys.modules, name)  # those of another test's folder
    known, paths = set(sys.modules), list(sys.path)

    def write_(**files: str) -> Path:
        for name, text in files.items():
            path = tmp_path / "agents" / name.replace("__", "/").replace("9", "-")
            path = path.with_name(path.name + ".py")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return tmp_path / "agents"

    yield write_
    sys.path[:] = paths
    for name in set(sys.modules) - known:
        if name.startswith(("agents", "_everthink_agents")):
            del sys.modules[name]
