"""Folders of skills, as the field has them, made on the spot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

__all__ = ["BYTES", "FOUR", "skill", "text", "write"]

BYTES = bytes(range(256))


def text(
    name: str = "pirate-style",
    description: str = "Talk like a pirate.",
    body: str = "Say arr.\n",
    **more: Any,
) -> str:
    """A `SKILL.md` as it should be."""
    fields = "".join(f"{key.replace('_', '-')}: {value}\n" for key, value in more.items())
    return f"---\nname: {name}\ndescription: {description}\n{fields}---\n{body}"


def write(root: Path, files: dict[str, str | bytes]) -> Path:
    """Write files below a folder, byte by byte."""
    for path, content in files.items():
        place = root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content.encode() if isinstance(content, str) else content)
    return root


def skill(root: Path, name: str = "pirate-style", **more: Any) -> Path:
    """A skill in its folder, with these files besides."""
    files = more.pop("files", {})
    write(
        root,
        {f"{name}/SKILL.md": text(name, **more)} | {f"{name}/{path}": data for path, data in files.items()},
    )
    return root / name


FOUR: dict[str, str | bytes] = {
    "references/guide.md": "# Guide\n",
    "scripts/run.py": "print('hello')\n",
    "assets/logo.png": BYTES,
    "LICENSE.txt": "MIT\n",
}
"""A file of every kind."""
