"""docs/observability.md: its tables have every event, and a star where nothing emits it yet."""

from __future__ import annotations

import re

import pytest

from everthink.observe.events import EVENTS

from .pages import ROOT

PACKAGE = ROOT / "src" / "everthink"
SOURCE = "\n".join(
    path.read_text("utf-8") for path in PACKAGE.rglob("*.py") if path != PACKAGE / "observe" / "events.py"
)
PAGE = (ROOT / "docs" / "observability.md").read_text("utf-8")


# Tests and applications may have added their own.
OURS = [kind for kind, body in EVENTS.items() if body.__module__ == "everthink.observe.events"]


@pytest.mark.parametrize("kind", OURS)
def test_the_event_is_listed_with_a_star_while_nothing_emits_it(kind: str) -> None:
    is_emitted = re.search(rf"\b{EVENTS[kind].__name__}\(", SOURCE) is not None
    [star] = set(re.findall(rf"^\|.*?`{kind}`( \*)?[, |]", PAGE, re.M))
    assert bool(star) != is_emitted, f"{kind} is {'' if is_emitted else 'not '}emitted"
