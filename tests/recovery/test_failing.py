"""A turn that was failing when its process died: what it said is stored, and only the words are missing."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from everthink.errors import UNTOLD, EarlierFailure, TurnFailed
from everthink.testing.scripted import fails, says
from tests.support.recovery import Room
from tests.support.turns import Database

pytestmark = pytest.mark.anyio


class Hook:
    """An `on_chat_error` that is asked in one process, which dies, and answers in the next one."""

    def __init__(self) -> None:
        self.asked: list[tuple[BaseException, Any]] = []
        self.begun, self.answers = asyncio.Event(), asyncio.Event()

    def member(self) -> Any:
        async def on_chat_error(agent: Any, error: BaseException, ctx: Any) -> Any:
            self.asked.append((error, ctx))
            self.begun.set()
            await self.answers.wait()
            return None if self.says is None else self.says

        return on_chat_error

    says: str | None = "Sorry."


async def die_failing(open_app: Any, hook: Hook, *plays: Any, **members: Any) -> Room:
    """A room whose last turn has failed, in a process that is gone before anybody was told."""
    room = await Room.open(open_app, *plays, on_chat_error=hook.member(), **members)
    asking = asyncio.create_task(room.agent.submit_messages("Hi", submission_id="s"))
    await asking
    await hook.begun.wait()
    return room


@pytest.mark.parametrize("says_it", ["Sorry.", None])
async def test_the_next_process_asks_for_the_words_and_nothing_else(
    open_app: Any, tmp_path: Path, says_it: str | None
) -> None:
    hook = Hook()
    hook.says = says_it
    room = await die_failing(open_app, hook, says("Half ").then_raises(RuntimeError("the disk is on fire")))
    (row,) = Database(tmp_path).turns()
    assert (row["status"], row["ended_at"], row["error"]) == ("failing", None, None)
    assert Database(tmp_path).texts() == ["Hi", "Half "]
    await room.cut()
    hook.answers.set()
    await room.wake()
    await room.agent.wait_for_submission("s")

    # The model is not asked again, and what it said is there once
    assert room.model.asked == 1
    assert Database(tmp_path).texts() == ["Hi", "Half "]
    (row,) = Database(tmp_path).turns()
    assert (row["status"], row["failing"]) == ("error", None)
    assert row["error"] == (says_it or "the disk is on fire")
    # The hook is told what it was told before, and people what it says, or that something failed
    (first, before), (second, after) = hook.asked
    assert (str(first), str(second)) == ("the disk is on fire", "the disk is on fire")
    assert isinstance(second, EarlierFailure)
    assert (before.stage, after.stage, after.messages_persisted) == ("stream", "stream", True)
    home = await room.home()
    assert home.chat.host.last_failure.value.error == (says_it or UNTOLD)
    assert home.chat.recovery.recovering is None


async def test_words_of_our_own_are_shown_as_they_would_have_been(open_app: Any, tmp_path: Path) -> None:
    hook = Hook()
    hook.says = None
    room = await die_failing(open_app, hook, fails("The model is away."))
    await room.cut()
    hook.answers.set()
    await room.wake()
    await room.agent.wait_for_submission("s")
    assert isinstance(hook.asked[-1][0], TurnFailed)
    (row,) = Database(tmp_path).turns()
    assert (row["status"], row["error"]) == ("error", "The model is away.")
    assert (await room.home()).chat.host.last_failure.value.error == "The model is away."


async def test_one_that_dies_again_and_again_is_asked_for_its_words_each_time(
    open_app: Any, tmp_path: Path
) -> None:
    hook = Hook()
    room = await die_failing(open_app, hook, says("Half ").then_raises(RuntimeError("no")))
    for _ in range(2):
        hook.begun.clear()
        await room.cut()
        await room.home()
        await hook.begun.wait()
    assert [row["status"] for row in Database(tmp_path).turns()] == ["failing"]
    hook.answers.set()
    await room.agent.wait_for_submission("s")
    assert [row["status"] for row in Database(tmp_path).turns()] == ["error"]
    assert room.model.asked == 1


async def test_one_that_was_cleared_meanwhile_says_nothing(open_app: Any, tmp_path: Path) -> None:
    hook = Hook()
    room = await die_failing(open_app, hook, says("Half ").then_raises(RuntimeError("no")))
    await room.agent.clear_messages()
    hook.answers.set()
    await room.agent.wait_until_stable()
    assert Database(tmp_path).texts() == []
    assert all(row["ended_at"] is not None for row in Database(tmp_path).turns())
