"""ARCHITECTURE.md is what happens: messages are followed through the package, by socket and by code."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest

from everthink import App, Think, tool
from everthink.testing import ScriptedModel, calls, says
from everthink.testing.in_process_server import Listening

from .source import PACKAGE, ROOT, modules

PAGE = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
FILE = re.compile(r"[a-z_/]+\.py")


class Guide(Think):
    @tool
    def weather(self, city: str) -> str:
        """The weather in a city."""
        return "Rain."


@pytest.fixture(autouse=True)
def model(monkeypatch: pytest.MonkeyPatch) -> None:
    # The first turn loads what is loaded once; the second one is followed.
    plays = [says("Hello."), calls("weather", city="Oslo"), says("Take ", "an umbrella.")]
    monkeypatch.setattr(Guide, "model", ScriptedModel(*plays))


@contextmanager
def followed() -> Iterator[list[str]]:
    """The files that are called into, in order; a file once for each time that one comes to it."""
    met: list[str] = []

    def see(frame: FrameType, event: str, arg: Any) -> None:
        name = str(frame.f_globals.get("__name__", ""))
        if event == "call" and name.startswith("everthink.") and not name.startswith("everthink.testing"):
            file = name.removeprefix("everthink.").replace(".", "/") + ".py"
            if met[-1:] != [file]:
                met.append(file)

    before = sys.getprofile()
    sys.setprofile(see)
    try:
        yield met
    finally:
        sys.setprofile(before)


async def by_socket() -> list[str]:
    async with Listening(App(Guide, store=":memory:")) as server:
        tab = await server.connect(Guide, "room")
        await tab.until_done(await tab.say("Hello"))
        await tab.settled()
        with followed() as met:
            await tab.until_done(await tab.say("Do I need an umbrella?"))
    return met[next(at for at, file in enumerate(met) if file.startswith("server/")) :]


async def by_code() -> list[str]:
    async with App(Guide, store=":memory:") as app:
        agent = app.agent(Guide)
        await agent.save_messages("Hello")
        with followed() as met:
            await agent.chat("Do I need an umbrella?")
    return met


def columns() -> dict[str, list[str]]:
    """The columns of the page's drawing: the files of both doors, and of what follows."""
    drawing = PAGE.split("```text\n", 1)[1].split("```", 1)[0]
    doors, both = drawing.split("\n\nboth\n")
    head, *rows = doors.splitlines()
    middle = head.index("code")

    def first(cells: list[str]) -> list[str]:
        return [found[0] for cell in cells if (found := FILE.match(cell))]

    return {
        "socket": first(rows),
        "code": first([row[middle:] for row in rows]),
        "both": first(both.splitlines()),
    }


def check_order(column: list[str], met: list[str]) -> list[str]:
    """Each file of the column is met behind the one before it. Returns what was met after the last."""
    for file in column:
        assert file in met, f"{file} is not met here; the next ones are {list(dict.fromkeys(met))[:12]}"
        met = met[met.index(file) :]
    return met


@pytest.mark.anyio
@pytest.mark.parametrize(("door", "walk"), [("socket", by_socket), ("code", by_code)])
async def test_a_message_meets_the_files_in_the_order_of_the_page(door: str, walk: Any) -> None:
    drawn = columns()
    assert drawn[door][-1] == drawn["both"][0] == "door/admission.py"
    rest = check_order(drawn[door], await walk())
    check_order(drawn["both"], rest)


@pytest.mark.anyio
async def test_the_page_says_how_many_modules_there_are_before_the_first_commit() -> None:
    met = await by_socket()
    stored = next(at for at, file in enumerate(met) if file.startswith("store/"))
    count = len(set(met[: stored + 1]))
    (said,) = re.findall(r"a message meets (\w+) modules", PAGE)
    assert said == str(count), f"write {count} on the page: {list(dict.fromkeys(met[: stored + 1]))}"


def test_every_file_on_the_page_is_there() -> None:
    named = {name for name in FILE.findall(PAGE) if "/" in name and not name.startswith(("tests/", "src/"))}
    assert {name for name in named if not (PACKAGE / name).exists()} == set()


def test_every_room_is_on_the_page() -> None:
    rooms = {module.room for module in modules() if "." in module.short}
    drawn = PAGE.split("## The rooms")[1].split("## ")[0]
    assert {room for room in rooms if not re.search(rf"\b{room}\b", drawn)} == set()


def test_the_page_knows_who_owns_which_table() -> None:
    said: dict[str, str] = {}
    for tables, owner in re.findall(r"^\| (`[^|]+) \| `(\w+)/` \|", PAGE, re.MULTILINE):
        said |= dict.fromkeys(re.findall(r"\w+", tables), owner)
    made = {
        table: module.room
        for module in modules()
        if module.room != "testing"
        for table in re.findall(
            r"CREATE TABLE (?:IF NOT EXISTS )?(\w+)", module.path.read_text(encoding="utf-8")
        )
    }
    dropped = {
        table
        for module in modules()
        for table in re.findall(r"DROP TABLE (\w+)", module.path.read_text(encoding="utf-8"))
    }
    assert said == {table: owner for table, owner in made.items() if table not in dropped}
