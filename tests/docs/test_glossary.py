"""docs/glossary.md: its words are those of the code."""

from __future__ import annotations

import re

import pytest

from .pages import ROOT

PAGE = (ROOT / "docs" / "glossary.md").read_text("utf-8")
CODE = "\n".join(
    path.read_text("utf-8") for path in sorted((ROOT / "src" / "everthink").rglob("*.py"))
).lower()
WORDS = sorted(
    {
        re.sub(r" \(.*", "", word).strip()
        for cell in re.findall(r"^\| ([^|]+) \|", PAGE, re.M)
        if cell not in ("Word", "---")
        for word in cell.split(",")
    }
)
OURS_ALONE = {"edge", "core", "room"}
"""How we speak of the tree of folders; ARCHITECTURE.md draws it."""


@pytest.mark.parametrize("word", WORDS)
def test_the_word_is_one_that_the_code_uses(word: str) -> None:
    assert word in OURS_ALONE or re.search(rf"\b{re.escape(word)}", CODE.replace("_", " ")) is not None


def test_a_word_stands_there_once() -> None:
    cells = re.findall(r"^\| ([^|]+) \|", PAGE, re.M)
    words = [cell for cell in cells if cell not in ("Word", "---")]
    assert sorted(words) == sorted(set(words))
