"""Kill the process at every commit while code calls tools: nothing is done twice, doubts are told."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from everthink import App
from everthink.codemode import Executions
from everthink.recovery.aside import SET_ASIDE_TEXT
from everthink.testing.node import Node, NodeFailed
from tests.crash.code_child import call_of, go_on, shop
from tests.crash.code_poison_child import Till
from tests.crash.nursery import Nursery, commits_of
from tests.support.samples import sample

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[2]


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    is_sqlite = request.param == "sqlite"
    return f"sqlite:///{tmp_path}/everthink.db" if is_sqlite else request.getfixturevalue("postgres_url")


@pytest.fixture
def nursery(tmp_path: Path) -> Iterator[Nursery]:
    found = Nursery("tests.crash.code_child", tmp_path)
    yield found
    found.close()


async def test_code_with_five_calls_is_done_once_whenever_the_process_dies(
    nursery: Nursery, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = await ends_of("five", nursery, store, monkeypatch)
    for at, (effects, part, files) in ends.items():
        assert part["state"] == "output-available", (at, part)
        assert part["output"]["status"] == "completed", (at, part)
        assert part["output"]["result"] == ["charge o1", "charge o2"], (at, part)
        assert sorted(effects) == ["charge o1", "charge o2", "sent 2 orders"], (at, effects)
        assert files == {"/done.txt": b"charge o1, charge o2"}, at


async def test_code_that_waited_for_a_person_goes_on_once_whenever_the_process_dies(
    nursery: Nursery, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = await ends_of("approval", nursery, store, monkeypatch)
    for at, (effects, part, files) in ends.items():
        assert part["state"] == "output-available", (at, part)
        assert len(effects) == len(set(effects)), (at, effects)
        if part["output"]["status"] == "completed":
            assert effects == ["sent o1", "refund o1", "sent refund o1"], (at, effects)
            assert files == {"/log.txt": b"refund o1"}, at
        else:  # the refund was cut off, before it did anything or after, and the code did not look
            assert effects in (["sent o1"], ["sent o1", "refund o1"]), (at, effects)
            assert "may or may not have taken effect" in part["output"]["error"], (at, part)


async def test_what_must_not_be_repeated_is_not_whenever_the_process_dies(
    nursery: Nursery, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = await ends_of("once", nursery, store, monkeypatch)
    doubts = 0
    for at, (effects, part, _) in ends.items():
        assert effects in ([], ["charge o1"], ["charge o1", "charge o2"]), (at, effects)
        if part["output"]["status"] == "completed":
            assert effects == ["charge o1", "charge o2"], (at, effects)
        else:
            doubts += 1
            assert "may or may not have taken effect" in part["output"]["error"], (at, part)
    assert doubts


async def ends_of(
    story: str, nursery: Nursery, store: str, monkeypatch: pytest.MonkeyPatch
) -> dict[str, tuple[list[str], dict[str, Any], dict[str, bytes]]]:
    """What was done, shown and written in the end, by the commit at which the first process died."""
    whole = nursery.new_folder("whole")
    nursery.is_killed(whole, None, store=store, room=whole.name, story=story)
    commits = [commit["commit"] for commit in commits_of(whole)]
    assert len(commits) >= 8
    points = [f"{commit}:{when}" for commit in commits[1:] for when in ("before", "after")]
    ends: dict[str, tuple[list[str], dict[str, Any], dict[str, bytes]]] = {}
    deaths = 0
    for at in chosen(points, 10):
        folder = nursery.new_folder(story)
        deaths += nursery.is_killed(folder, at, store=store, room=folder.name, story=story)
        monkeypatch.setenv("EFFECTS", str(folder / "effects"))
        ends[at] = await end_of(story, store, folder)
    assert deaths >= len(ends) - 4  # what is shown meanwhile may make it a commit less
    return ends


async def end_of(story: str, store: str, folder: Path) -> tuple[list[str], dict[str, Any], dict[str, bytes]]:
    async with shop(store) as app:
        agent = await go_on(app, folder.name, story)
        assert await Executions.of(agent).pending() == []
        [past] = await Executions.of(agent).list()
        assert past.state in ("completed", "error")
        effects = folder / "effects"
        files = {
            entry.path: data
            async for entry, data in agent.workspace.files.scan("/", contents=True)
            if entry.kind == "file" and data is not None
        }
        return effects.read_text().splitlines() if effects.exists() else [], await call_of(agent), files


def chosen(points: Sequence[str], few: int) -> Sequence[str]:
    """All of the points, or so many from the first to the last."""
    count = min(sample(few, len(points)), len(points))
    return [points[n * len(points) // count] for n in range(count)]


async def is_told(node: Node) -> bool:
    """True when the turn is over in words, and false when the process dies first."""
    died = asyncio.ensure_future(node.wait())
    told = asyncio.ensure_future(_told(node))
    await asyncio.wait([died, told], return_when=asyncio.FIRST_COMPLETED)
    died.cancel()
    told.cancel()
    return told.done() and not told.cancelled() and told.exception() is None


async def _told(node: Node) -> None:
    tab = await node.connect("/agents/till/room", resumes=True)
    await tab.until(lambda: SET_ASIDE_TEXT in str(tab.frames), timeout=30)


async def test_what_code_has_done_is_known_when_its_turn_is_set_aside(tmp_path: Path) -> None:
    bites, ledger = tmp_path / "bites", tmp_path / "ledger"
    bites.touch()
    url = f"sqlite:///{tmp_path}/everthink.db"
    given = {"BITES": str(bites), "LEDGER": str(ledger)}
    async with AsyncExitStack() as stack:
        # Given code that has taken money, and then ends the process again and again
        node = Node("tests.crash.code_poison_child:Till", store=url, folder=ROOT, env=given)
        stack.push_async_callback(node.close)
        await node.start()
        await (await node.connect("/agents/till/room")).say("Go")
        await asyncio.wait_for(node.wait(), 60)
        for _ in range(10):
            with suppress(NodeFailed):
                await node.start()
            if node.is_running and await is_told(node):
                break
            await asyncio.wait_for(node.wait(), 60)

        # When its turn is set aside
        tab = await node.connect("/agents/till/room")
        await tab.settled()
        assert [part["toolCallId"] for message in tab.messages for part in message.tool_parts]
        assert ledger.read_text() == "charged ann\n"

        # Then the next turn knows of the money, and nothing runs for ever
        await tab.until_done(await tab.say("What is done?"))
        assert "KNOWS" in tab.messages[-1].text
        assert "tools.charge" in tab.messages[-1].text
        assert "): done" in tab.messages[-1].text
        assert "tools.report({}): may have run" in tab.messages[-1].text
    bites.unlink()
    async with App(Till, store=url) as app, app.agent(Till, "room") as till:
        [past] = await Executions.of(till).list()
        assert past.state == "error"
        # … and it is over when it is released: what was closed is not begun again
        await app.release(Till, "room")
        await till.wait_until_stable()
        assert ledger.read_text() == "charged ann\n"
