"""Every link in the docs that leads into this repository leads somewhere."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from urllib.parse import unquote

import pytest

from .pages import ROOT

LINK = re.compile(r"(?<!\\)\]\(([^)\s]+)\)")
FENCED = re.compile(r"^( *)(`{3,}).*?^\1\2`*\s*$", re.M | re.S)
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "ui" / "README.md"])


def prose(page: Path) -> str:
    """A page without its blocks of code."""
    return FENCED.sub("", page.read_text("utf-8"))


@cache
def anchors(page: Path) -> set[str]:
    """Where one can link to in a page, as forges make them from headings."""
    found: set[str] = set()
    seen: Counter[str] = Counter()
    for title in re.findall(r"^#+ (.+?)\s*$", prose(page), re.M):
        text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", title)
        slug = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
        found.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
        seen[slug] += 1
    return found


def broken(page: Path) -> Iterator[str]:
    text = re.sub(r"`[^`\n]*`", lambda code: re.sub(r"[\[\]()]", "", code[0]), prose(page))
    for link in LINK.findall(text):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = unquote(link).partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists():
            yield f"{link}: there is no such file"
        elif anchor and anchor not in anchors(target):
            yield f"{link}: {target.name} has no such heading"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_link_leads_somewhere(page: Path) -> None:
    assert list(broken(page)) == []


def test_every_page_can_be_reached_from_the_index() -> None:
    start = ROOT / "docs" / "index.md"
    reached, ahead = {start}, [start]
    while ahead:
        page = ahead.pop()
        for link in LINK.findall(prose(page)):
            target = (page.parent / unquote(link).partition("#")[0]).resolve()
            if target.suffix == ".md" and target.exists() and target not in reached:
                reached.add(target)
                ahead.append(target)
    assert [page.name for page in (ROOT / "docs").rglob("*.md") if page not in reached] == []


def test_a_link_that_leads_nowhere_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# A title\n\n## Two `words`\n\n[a](#two-words) [b](#three) [c](other.md) [d](https://x.example)\n"
        "\n```md\n# not a title\n[e](nowhere.md)\n```\n"
    )
    assert list(broken(page)) == ["#three: page.md has no such heading", "other.md: there is no such file"]
    assert anchors(page) == {"a-title", "two-words"}
