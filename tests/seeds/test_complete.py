"""Every example of the documents is ported, or waits for an issue that is named."""

from __future__ import annotations

import ast
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
LIST: dict[str, Any] = tomllib.loads((HERE / "examples.toml").read_text("utf-8"))
LATER: dict[str, str] = LIST.pop("later")

Example = tuple[str, int]


def claimed() -> list[Example]:
    """What the marks of the tests claim."""
    return [
        ast.literal_eval(ast.Tuple(node.args))
        for path in sorted(HERE.glob("test_*.py"))
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.example"
    ]


def listed() -> list[Example]:
    """The examples, by document and number."""
    return [(name, place) for name, page in LIST.items() for place in range(1, len(page["examples"]) + 1)]


def left() -> dict[Example, list[int]]:
    """Which of them wait, and for which issues."""
    return {
        (name, int(place)): issues
        for name, page in LIST.items()
        for place, issues in page.get("later", {}).items()
    }


def test_every_example_is_ported_or_waits_for_an_issue() -> None:
    known = {*claimed(), *left()}
    assert [example for example in listed() if example not in known] == []


def test_the_list_has_as_many_examples_as_the_documents() -> None:
    counts = {"hooks": 17, "hooks-earlier": 14, "hooks-repository": 28, "recovery": 9, "readme": 28}
    assert Counter(name for name, _ in listed()) == counts


def test_what_is_claimed_or_left_is_on_the_list() -> None:
    assert {*claimed(), *left()} - {*listed()} == set()
    assert {str(issue) for issues in left().values() for issue in issues} == set(LATER)


def test_what_waits_is_not_claimed() -> None:
    assert {*claimed()} & {*left()} == set()
