"""Threads of plain tools: used again, never waited for, given back."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading

import pytest
from tests.support.hooks import until

from everthink.tools import threads
from everthink.tools.run import run

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def none_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever other tests left is not taken."""
    monkeypatch.setattr(threads, "_idle", [])


async def called(body: object) -> object:
    return await run("look", body, is_async=False, timeout=None)  # type: ignore[arg-type]


async def until_idle(count: int) -> None:
    await until(lambda: len(threads._idle) >= count)  # pyright: ignore[reportPrivateUsage]


async def test_a_thread_that_is_done_takes_the_next_tool() -> None:
    first = await called(threading.get_ident)
    await until_idle(1)
    assert await called(threading.get_ident) == first


async def test_a_tool_that_does_not_return_keeps_nobody_waiting() -> None:
    stuck = threading.Event()
    waiting = asyncio.create_task(called(stuck.wait))
    others = [await called(threading.get_ident) for _ in range(3)]
    assert len(others) == 3
    assert not waiting.done()
    stuck.set()
    await waiting


async def test_a_thread_bears_the_name_of_its_tool() -> None:
    assert await called(lambda: threading.current_thread().name) == "tool look"


async def test_an_idle_thread_goes_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "_IDLE_SECONDS", 0.01)
    found: list[threading.Thread] = []
    await called(lambda: found.append(threading.current_thread()))
    await asyncio.to_thread(found[0].join, 10)
    assert not found[0].is_alive()
    assert await called(lambda: "again") == "again"


async def test_only_so_many_threads_wait_for_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "_MOST_IDLE", 2)
    together = threading.Barrier(5)
    found: list[threading.Thread] = []

    def meet() -> None:
        found.append(threading.current_thread())
        together.wait(10)

    await asyncio.gather(*(called(meet) for _ in range(5)))
    await until_idle(2)
    for thread in set(found) - {*threads._idle}:  # pyright: ignore[reportPrivateUsage]
        await asyncio.to_thread(thread.join, 10)
    assert len(threads._idle) == 2  # pyright: ignore[reportPrivateUsage]


@pytest.mark.slow
def test_a_forked_child_starts_threads_of_its_own() -> None:
    program = """
import asyncio, os, threading
from everthink.tools.run import run

def ask():
    return asyncio.run(run("look", lambda: "ok", is_async=False, timeout=5))

ask()
child = os.fork()
if child == 0:
    os._exit(0 if ask() == "ok" else 1)
raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
