"""docs/migrating.md: every name it gives exists, and what it calls "not yet" does not."""

from __future__ import annotations

import inspect
import re

import pytest

from everthink import Agent, Think
from everthink.chat import StreamCallback
from everthink.settings import hooks_of, snake

from ..support.public import PUBLIC
from .pages import ROOT

PAGE = (ROOT / "docs" / "migrating.md").read_text("utf-8")
NAMES, NOT_YET = PAGE.split("## Names")[1].split("### What is not here yet")
HOMES = (Think, Agent, StreamCallback)
ELSEWHERE = {
    "telegram_messenger",  # in everthink.messengers.telegram
    "on_interrupted",  # optional, so no part of the protocol of a callback
    *("input_tokens", "datetime", "scheduledForDate"),  # said beside a name
}


def rows(text: str) -> list[list[str]]:
    """The cells of each row of the tables in a text, without their heads."""
    lines = [line.strip("| \n").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    return [cells for cells in lines if cells[0] != "Think (JS)"]


def names(cell: str) -> list[str]:
    """The names in a cell, without what is written in parentheses behind them."""
    return [re.sub(r"\(.*", "", name).lstrip("@") for name in re.findall(r"`([^`]+)`", cell)]


OURS = sorted({name for row in rows(NAMES) for name in names(row[1])})
THEIRS = sorted({name for row in rows(NOT_YET.split("\n## ")[0]) for name in names(row[0])})


def exists(name: str) -> bool:
    home, _, member = name.rpartition(".")
    if home:
        cls = PUBLIC.get(home)
        made = inspect.getsource(cls) if inspect.isclass(cls) else ""
        return (
            hasattr(cls, member)
            or member in getattr(cls, "__dataclass_fields__", {})
            or f"self.{member} = " in made
        )
    return name in PUBLIC or any(hasattr(home, name) for home in HOMES) or name in ELSEWHERE


@pytest.mark.parametrize("name", OURS)
def test_the_name_it_gives_exists(name: str) -> None:
    assert exists(name)


@pytest.mark.parametrize("name", THEIRS)
def test_what_it_calls_not_yet_does_not_exist(name: str) -> None:
    assert not exists(snake(name))


def test_the_names_that_live_elsewhere_do() -> None:
    assert "on_interrupted" in (StreamCallback.__doc__ or "")


@pytest.mark.parametrize("hook", sorted(hooks_of(Think)))
def test_every_hook_is_in_the_table(hook: str) -> None:
    assert hook in OURS
