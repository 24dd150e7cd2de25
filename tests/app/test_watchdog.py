"""Code that holds the event loop is named while it does, and told afterwards."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from everthink import AgentError, App, Think, tool
from everthink.app import watchdog
from everthink.app.watchdog import Held, Watchdog, held_by
from everthink.observe.events import LoopBlocked
from everthink.testing import ScriptedModel, calls, says

from ..conftest import OpenApp

pytestmark = pytest.mark.anyio


class Idle(Think):
    """Is never asked anything."""


SOON = 0.02
PATIENCE = 20.0


class Noticed(logging.Handler):
    """Set when the warning is written: code can hold the loop exactly that long, on any machine.

    On a busy one other code may be named as well, which is right and of no interest here.
    """

    def __init__(self) -> None:
        super().__init__()
        self.warned = threading.Event()
        self.warnings: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if "event loop is held" in record.getMessage() and ".hold_" in record.getMessage():
            self.warnings.append(record.getMessage())
            self.warned.set()

    def hold_the_loop(self) -> None:
        assert self.warned.wait(PATIENCE)


@pytest.fixture
def noticed() -> Any:
    handler = Noticed()
    logger = logging.getLogger("everthink.runtime")
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)


async def test_a_tool_that_holds_the_loop_is_named(open_app: OpenApp, noticed: Noticed) -> None:
    class Slow(Think):
        model = ScriptedModel(calls("think_hard"), says("Done."))

        @tool
        async def think_hard(self) -> str:
            """Think."""
            noticed.hold_the_loop()
            return "thought"

    app = await open_app(Slow, watchdog=SOON)
    told: list[Any] = []
    app.events.subscribe(told.append, type="loop:blocked")
    await app.agent(Slow, "ada").save_messages("Think!")
    (warning,) = noticed.warnings
    assert "test_watchdog.py:" in warning
    assert "hold_the_loop" in warning
    assert "tool think_hard" in warning
    held = [event for event in told if event.body.function == "Noticed.hold_the_loop"]
    assert [(event.agent, event.name) for event in held] == [("Slow", "ada")]
    assert held[0].body.duration_ms >= SOON * 1e3
    assert held[0].to_json()["payload"]["where"] in warning


async def test_a_hook_that_holds_the_loop_is_named_with_its_agent(
    open_app: OpenApp, noticed: Noticed
) -> None:
    class Slow(Think):
        model = ScriptedModel(says("Done."))

        async def before_turn(self, turn: Any) -> None:
            noticed.hold_the_loop()

    app = await open_app(Slow, watchdog=SOON)
    await app.agent(Slow, "ada").save_messages("Think!")
    (warning,) = noticed.warnings
    assert "'Slow/ada'" in warning


async def test_so_is_a_tool_that_is_no_method(open_app: OpenApp, noticed: Noticed) -> None:
    @tool
    async def think_hard() -> str:
        """Think."""
        noticed.hold_the_loop()
        return "thought"

    class Slow(Think):
        model = ScriptedModel(calls("think_hard"), says("Done."))

        def get_tools(self) -> Any:
            return [think_hard]

    app = await open_app(Slow, watchdog=SOON)
    await app.agent(Slow, "ada").save_messages("Think!")
    (warning,) = noticed.warnings
    assert "'Slow/ada'" in warning


async def test_it_is_told_once_for_each_time_and_warned_of_once_a_minute(noticed: Noticed) -> None:
    told: list[LoopBlocked] = []
    watchdog = Watchdog(lambda _, blocked: told.append(blocked), threshold=SOON)

    def hold_until_found() -> None:
        next(found for found in iter(lambda: watchdog._found, 0) if found)

    watchdog.start()
    try:
        for times in (1, 2, 3):
            hold_until_found()
            await _until(lambda times=times: len([b for b in told if "hold_" in b.function]) == times)
    finally:
        watchdog.stop()
    assert len(noticed.warnings) == 1
    assert len({blocked.where for blocked in told if "hold_" in blocked.function}) == 1


async def test_a_loop_that_waits_is_not_held() -> None:
    class Counting(Watchdog):
        answers = 0

        def _answer(self) -> None:
            super()._answer()
            self.answers += 1

    watchdog = Counting(lambda _, blocked: None, threshold=SOON)
    watchdog.start()
    # Answered again and again, with nothing to do in between. Whether a question waits cannot be watched: an
    # idle loop answers at once.
    await _until(lambda: watchdog.answers >= 3)
    watchdog.stop()
    assert watchdog._thread is not None
    watchdog._thread.join(PATIENCE)
    assert not watchdog._thread.is_alive()


async def test_a_loop_with_too_much_to_do_is_late_and_nobody_is_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    told: list[LoopBlocked] = []
    watchdog = Watchdog(lambda _, blocked: told.append(blocked), threshold=60.0)
    watchdog._loop, watchdog._watched = asyncio.get_running_loop(), threading.get_ident()
    watchdog._asked_at = -1000.0  # long ago
    watchdog._called = 1  # another one than now
    watchdog._look(-1000.0)
    assert "it has more to do than it can" in caplog.text
    assert watchdog._found is None
    watchdog._look(-1000.0)  # the same one as a moment ago
    assert watchdog._found is not None
    assert watchdog._found.function.startswith("test_a_loop_with_too_much")


async def test_it_ends_with_its_app(open_app: OpenApp) -> None:
    app = await open_app(Idle, watchdog=SOON)
    await app.open()
    watchdog = app._watchdog
    assert watchdog is not None
    assert watchdog._thread is not None
    await app.close()
    await asyncio.to_thread(watchdog._thread.join, PATIENCE)
    assert not watchdog._thread.is_alive()


async def test_nobody_watches_an_app_that_does_not_want_it(open_app: OpenApp) -> None:
    app = await open_app(Idle, watchdog=None)
    await app.open()
    assert app._watchdog is None


@pytest.mark.parametrize("value", [0, -1, "1", True])
def test_a_threshold_that_is_no_time_is_refused(value: Any) -> None:
    with pytest.raises(AgentError, match="watchdog"):
        App(Idle, watchdog=value)


def test_the_frame_of_the_application_is_named_not_that_of_the_library_it_called() -> None:
    found: list[Held | None] = []

    def default(value: object) -> str:
        frame = sys._getframe(1)  # inside of the library
        found.append(held_by(frame, "a task"))
        return "x"

    json.dumps({"a": object()}, default=default, indent=1)
    (held,) = found
    assert held is not None
    assert held.task == "a task"
    assert held.where.rpartition(":")[0].endswith("test_watchdog.py")
    assert "test_the_frame_of_the_application" in held.function


def stack(*files: str) -> Any:
    """Frames of these files, the innermost first."""
    back: Any = None
    for file in reversed(files):
        code = SimpleNamespace(co_filename=file, co_qualname=f"in {file}")
        back = SimpleNamespace(f_code=code, f_back=back, f_lineno=1, f_locals={})
    return back


@pytest.mark.parametrize(
    ("frames", "named"),
    [
        (["library", "import", "library", "ours", "theirs", "ours"], "ours"),
        (["library", "import", "theirs", "ours", "theirs"], "theirs"),
        (["theirs", "import", "ours", "theirs"], "theirs"),
        (["library", "ours", "theirs"], "theirs"),
        (["library", "import", "library"], "library"),
    ],
)
def test_a_package_that_is_imported_is_held_against_who_asked_for_it(frames: list[str], named: str) -> None:
    files = {
        "library": json.__file__,
        "import": "<frozen importlib._bootstrap>",
        "ours": watchdog.__file__,
        "theirs": __file__,
    }
    held = held_by(stack(*(files[frame] for frame in frames)))
    assert held is not None
    assert held.where == f"{files[named]}:1"


async def _until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not is_so():  # noqa: ASYNC110 - a thread changes it
            await asyncio.sleep(0.001)
