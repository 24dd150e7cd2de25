"""One process owns a SQLite file; whoever comes second is told who does."""

from __future__ import annotations

from pathlib import Path

import pytest

from everthink import App, Think
from everthink.errors import StoreLocked
from tests.crash.process import Child

pytestmark = pytest.mark.anyio


class Idle(Think):
    """Is never asked anything."""


async def test_a_second_process_is_told_who_holds_the_database(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/everthink.db"
    with Child(url, "hold", tmp_path / "effects") as first:
        holder = first.until("ready")["pid"]
        assert holder == first.pid

        # When another process opens it, and then this one
        with Child(url, "hold", tmp_path / "effects") as second:
            refused = second.until("refused")
        with pytest.raises(StoreLocked) as told:
            await App(Idle, store=url).open()

        # Then both are refused with a text that names the first one
        assert refused["error"] == "StoreLocked"
        for text in (refused["text"], str(told.value)):
            assert f"process {holder}" in text
            assert str(tmp_path / "everthink.db") in text
            assert f"kill {holder}" in text

    # And when that one is dead, however it died, the file is free
    async with App(Idle, store=url) as app:
        assert await app.agent(Idle, "room").get_messages() == []


async def test_a_second_process_that_was_refused_left_the_first_one_alone(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/everthink.db"
    with Child(url, "story", tmp_path / "effects") as first:
        first.until("ready")
        with Child(url, "hold", tmp_path / "effects") as second:
            second.until("refused")
        first.until("over")
        assert [line["status"] for line in first.lines if line["kind"] == "ended"] == ["completed"] * 3
