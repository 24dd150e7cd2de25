"""Pages without programs in them: the names they mention are names of the code."""

from __future__ import annotations

import re

import pytest

from .pages import ROOT

CODE = "\n".join(path.read_text("utf-8") for path in sorted((ROOT / "src" / "everthink").rglob("*.py")))
THEIRS = {"native_tools"}
"""Names of others."""


def mentioned(page: str) -> set[str]:
    """The names with an underscore or a colon, and the commands, that stand in code on a page."""
    spans = re.findall(r"`([^`\n]+)`", (ROOT / "docs" / page).read_text("utf-8"))
    names = {name for span in spans for name in re.findall(r"\b[a-z]+(?:_[a-z]+)+\b", span)}
    events = {span for span in spans if re.fullmatch(r"[a-z]+(:[a-z]+)+", span)}
    commands = {f"everthink {word}" for span in spans for word in re.findall(r"^everthink ([a-z]+)$", span)}
    return (names | events | commands) - THEIRS


PAGES = ("choosing.md", "comparison.md", "faq.md", "errors.md")


@pytest.mark.parametrize(
    ("page", "name"), [(page, name) for page in PAGES for name in sorted(mentioned(page))]
)
def test_the_name_is_one_of_the_code(page: str, name: str) -> None:
    if name.startswith("everthink "):
        assert (ROOT / "src" / "everthink" / "cli" / f"{name.split()[1]}.py").exists()
    else:
        assert re.search(rf"\b{re.escape(name)}\b", CODE) is not None
