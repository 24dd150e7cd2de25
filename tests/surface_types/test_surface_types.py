"""What editors and type checkers know of an agent: pyright, strict, over two files of a user."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[int, str]]:
    """The errors of each file, by line."""
    project = tmp_path_factory.mktemp("project")
    errors: dict[str, dict[int, str]] = {}
    for name in ("fine.py", "mistakes.py"):
        shutil.copy(HERE / name, project)
        errors[name] = {}
    (project / "pyrightconfig.json").write_text(json.dumps({"typeCheckingMode": "strict"}))
    command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "-p", str(project)]
    ran = subprocess.run([*command, "--outputjson"], capture_output=True, text=True, check=False)
    for one in json.loads(ran.stdout)["generalDiagnostics"]:
        errors[Path(one["file"]).name][one["range"]["start"]["line"] + 1] = one["message"]
    return errors


def test_a_users_file_has_the_types_it_says(found: dict[str, dict[int, str]]) -> None:
    assert found["fine.py"] == {}


def test_mistakes_are_errors_where_they_are_written(found: dict[str, dict[int, str]]) -> None:
    lines = (HERE / "mistakes.py").read_text(encoding="utf-8").splitlines()
    wrong = [number for number, line in enumerate(lines, 1) if line.endswith("# wrong")]
    assert sorted(found["mistakes.py"]) == wrong, found["mistakes.py"]
