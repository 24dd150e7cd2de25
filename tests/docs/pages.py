"""The files that a page of the docs shows: a block below a line that ends with `name`: is that file."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

__all__ = ["ROOT", "files", "program", "written"]

ROOT = Path(__file__).resolve().parents[2]
FILE = re.compile(r"`([\w./-]+)`:\n\n(?:<!-- skip -->\n\n)?```\w*\n(.*?)^```$", re.M | re.S)


def files(page: str) -> dict[str, str]:
    """Name and text of every file of a page."""
    found = FILE.findall((ROOT / "docs" / page).read_text("utf-8"))
    assert len({name for name, _ in found}) == len(found), f"{page} shows a file twice"
    return dict(found)


def written(page: str, folder: Path) -> Path:
    """The files of a page, in a folder."""
    for name, text in files(page).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, "utf-8")
    return folder


def program(page: str, name: str) -> dict[str, Any]:
    """What a Python file of a page defines."""
    module: dict[str, Any] = {"__name__": name.removesuffix(".py")}
    exec(compile(files(page)[name], f"docs/{page}", "exec"), module)
    return module
