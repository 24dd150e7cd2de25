"""docs/observability.md: its tables have every event, and the package emits each of them."""

from __future__ import annotations

import ast
import re

import pytest

from everthink.observe.events import EVENTS

from .pages import ROOT

PACKAGE = ROOT / "src" / "everthink"


def made() -> set[str]:
    """The names of what is called in the package, or handed to what is called there."""
    found: set[str] = set()
    for path in PACKAGE.rglob("*.py"):
        if path == PACKAGE / "observe" / "events.py":
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) != "isinstance":
                parts = [node.func, *node.args]
                found |= {ast.unparse(part).rpartition(".")[2] for part in parts}
    return found


MADE = made()
PAGE = (ROOT / "docs" / "observability.md").read_text("utf-8")


# Tests and applications may have added their own.
OURS = [kind for kind, body in EVENTS.items() if body.__module__ == "everthink.observe.events"]


@pytest.mark.parametrize("kind", OURS)
def test_the_event_is_listed_and_emitted(kind: str) -> None:
    assert re.search(rf"^\|.*?`{kind}`[, |]", PAGE, re.M)
    assert EVENTS[kind].__name__ in MADE, f"nothing emits {kind}"
