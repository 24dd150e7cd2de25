"""llms.txt lists every page, as it begins now."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from .script import Ran, run
from .source import ROOT


def llms(*arguments: str) -> Ran:
    return run("llms", *arguments)


def test_it_is_fresh() -> None:
    checked = llms("--check")
    assert checked.returncode == 0, checked.stderr


def test_every_page_of_the_docs_is_in_it_and_every_line_leads_somewhere() -> None:
    listed = re.findall(r"\]\(([\w/.-]+\.md)\)", (ROOT / "llms.txt").read_text("utf-8"))
    assert [page for page in listed if not (ROOT / page).exists()] == []
    pages = {page.relative_to(ROOT).as_posix() for page in (ROOT / "docs").glob("*.md")}
    assert pages - {*listed} == {"docs/index.md"}


def test_a_page_that_begins_otherwise_makes_it_stale(tmp_path: Path) -> None:
    for name in ("README.md", "ARCHITECTURE.md"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(ROOT / "docs", tmp_path / "docs", ignore=shutil.ignore_patterns("images"))
    assert llms("--root", str(tmp_path)).returncode == 0
    assert llms("--check", "--root", str(tmp_path)).returncode == 0
    page = tmp_path / "docs" / "tools.md"
    page.write_text("# Tools\n\nA tool is new. It does things.\n")
    stale = llms("--check", "--root", str(tmp_path))
    assert (stale.returncode, stale.stderr) == (1, "llms.txt is out of date: run scripts/llms.\n")
    assert llms("--root", str(tmp_path)).returncode == 0
    assert "](docs/tools.md): A tool is new.\n" in (tmp_path / "llms.txt").read_text()
