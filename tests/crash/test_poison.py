"""A poisoned agent among eleven others: at most three deaths, then everybody else is served."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from everthink.recovery.aside import SET_ASIDE_TEXT
from everthink.testing.node import Node, NodeFailed
from tests.crash.poison_child import Patient
from tests.security.poisoned import Poisoned
from tests.support.commands import Command

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[2]
TARGET = "tests.crash.poison_child:Patient"
OTHERS = [f"room-{number}" for number in range(11)]
CALLED = json.dumps(
    [
        {"type": "start", "messageId": "answer-t"},
        {"type": "start-step"},
        {"type": "tool-input-start", "toolCallId": "c", "toolName": "bite"},
        {"type": "tool-input-available", "toolCallId": "c", "toolName": "bite", "input": {}},
    ]
)


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgres":
        return request.getfixturevalue("postgres_url")
    return f"sqlite:///{tmp_path}/everthink.db"


async def left_behind(url: str, poisoned: str) -> None:
    """Twelve agents whose turns a process has left in the middle; one of them had begun to bite."""
    async with Poisoned.at(url, "Patient") as rows:
        for name in [*OTHERS, poisoned]:
            await rows.agent(name)
            await rows.said(name, "q", "Hello" if name != poisoned else "Bite!")
            await rows.turn(name, "t")
        await rows.segment(poisoned, "t", CALLED)
        await rows.run(
            "INSERT INTO calls (agent, turn, call_id, tool, step, state, on_interrupt, asked_at, started_at)"
            " VALUES (?, 't', 'c', 'bite', 0, 'started', 'rerun', 1, 1)",
            f"Patient/{poisoned}",
        )


async def everybody(node: Node) -> None:
    """Return once all the others have their answers."""
    for name in OTHERS:
        tab = await node.connect(Patient, name, resumes=True)
        await tab.until(lambda tab=tab: "Done." in tab.text or tab.closed is not None, timeout=30)
        assert "Done." in tab.text, tab.closed


async def and_is_told(node: Node) -> None:
    """Return once the others have their answers, and whoever comes to the poisoned agent is told."""
    await everybody(node)
    tab = await node.connect(Patient, "poisoned", resumes=True)
    await tab.until(lambda: any(frame.get("error") for frame in tab.responses("r-t")), timeout=30)


async def restarted_until_all_are_served(
    node: Node, serving: Callable[[Node], Coroutine[Any, Any, None]] = everybody
) -> int:
    """Start it as often as it dies, as a supervisor does. How often it died."""
    for deaths in range(10):
        try:
            await node.start()
        except NodeFailed:
            continue  # it did not even come to serve
        died = asyncio.ensure_future(node.wait())
        served = asyncio.ensure_future(serving(node))
        await asyncio.wait([died, served], return_when=asyncio.FIRST_COMPLETED)
        died.cancel()
        if served.done() and served.exception() is None:
            return deaths
        served.cancel()
        with contextlib.suppress(asyncio.CancelledError, AssertionError, OSError, Exception):
            await served
        await node.leave()
        await node.wait()
    raise AssertionError(f"still dying:\n{node.log}")


def cli(*args: str) -> dict[str, object]:
    with Command(ROOT, *args) as command:
        command.process.wait(60)
        assert command.ended() == 0, command.seen
        return json.loads("\n".join(command.seen))


async def test_a_turn_that_ends_the_process_is_set_aside_and_can_be_released(store: str) -> None:
    # Given a turn whose tool ends the process each time it is run again
    await left_behind(store, "poisoned")
    async with contextlib.AsyncExitStack() as stack:
        node = Node(TARGET, store=store, folder=ROOT)
        stack.push_async_callback(node.close)

        # When it is started again and again
        deaths = await restarted_until_all_are_served(node, and_is_told)

        # Then everybody else has an answer, and whoever comes to the poisoned agent is told, and can go on
        assert 1 <= deaths <= 3
        tab = await node.connect(Patient, "poisoned", resumes=True)
        await tab.until(lambda: any(frame.get("error") for frame in tab.responses("r-t")))
        assert tab.responses("r-t")[-1]["body"] == SET_ASIDE_TEXT
        assert not (await tab.until_done(await tab.say("Are you there?"))).get("error")

        # And an operator sees what it is, and has it tried again once it is cured
        seen = await asyncio.to_thread(cli, "inspect", "--store", store, "--json")
        [aside] = seen["set_aside"]
        assert (aside["name"], aside["turn"], aside["strikes"]) == ("poisoned", "t", 3)
        released = await asyncio.to_thread(cli, "release", "patient/poisoned", "--store", store, "--json")
        assert released == {
            "released": [{"class": "Patient", "name": "poisoned", "parents": [], "turn": "t"}]
        }
        await node.restart(POISON_CURED="1")
        tab = await node.connect(Patient, "poisoned")
        await tab.until(lambda: [m.text for m in tab.messages].count("Done.") == 2)
        assert (await asyncio.to_thread(cli, "inspect", "--store", store, "--json"))["set_aside"] == []


async def test_an_agent_whose_start_ends_the_process_is_set_aside(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/everthink.db"
    await left_behind(store, "start")
    async with contextlib.AsyncExitStack() as stack:
        node = Node(TARGET, store=store, folder=ROOT)
        stack.push_async_callback(node.close)
        deaths = await restarted_until_all_are_served(node)
        assert 1 <= deaths <= 3

        # Whoever comes is refused in words, as often as they come, and the others do not notice
        tab = await node.connect(Patient, "start")
        code, reason = await tab.until_closed()
        assert (code, "set aside" in reason) == (1013, True)
        answer = await node.http("/agents/patient/start/get-messages")
        assert (answer.status, "everthink release Patient/start" in answer.text) == (503, True)
        await everybody(node)

        # Released, and with the cure, it is there again
        await asyncio.to_thread(cli, "release", "patient/start", "--store", store, "--json")
        await node.restart(POISON_CURED="1")
        tab = await node.connect(Patient, "start", resumes=True)
        await tab.until_text("Done.")


async def test_a_turn_that_holds_the_process_for_ever_is_set_aside(tmp_path: Path) -> None:
    store, pipe = f"sqlite:///{tmp_path}/everthink.db", tmp_path / "pipe"
    os.mkfifo(pipe)
    await left_behind(store, "hang")
    async with contextlib.AsyncExitStack() as stack:
        node = Node(TARGET, store=store, folder=ROOT, env={"POISON_PIPE": str(pipe)})
        stack.push_async_callback(node.close)
        # Given a supervisor that kills what stands still
        for _ in range(3):
            starting = asyncio.ensure_future(node.start())
            assert await asyncio.to_thread(pipe.read_text) == "I stand still."
            await node.kill()
            with contextlib.suppress(NodeFailed):
                await starting
        # When it starts once more, then it does not stand still again
        await node.start()
        await everybody(node)
        tab = await node.connect(Patient, "hang", resumes=True)
        await tab.until(lambda: any(frame.get("error") for frame in tab.responses("r-t")))


async def test_a_process_that_is_stopped_on_purpose_leaves_nobody_suspected(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/everthink.db"
    await left_behind(store, "poisoned")
    async with Node(TARGET, store=store, folder=ROOT, env={"POISON_CURED": "1"}) as node:
        await everybody(node)
        assert await node.term() == 0
    async with Poisoned.at(store, "Patient") as rows:
        assert await rows.rows("SELECT * FROM suspects") == []
        assert await rows.rows("SELECT * FROM turns WHERE ended_at IS NULL") == []
