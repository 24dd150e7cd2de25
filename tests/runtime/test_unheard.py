"""Work that nobody waits for: what it raises is in the log, with its traceback, and told."""

from __future__ import annotations

import pytest

from everthink.store.port import Store
from everthink.testing import ManualClock, ScriptedModel
from tests.conftest import OpenApp
from tests.support.agents import assistant
from tests.support.turns import home_of, record_events

pytestmark = pytest.mark.anyio


async def test_background_work_that_raises_is_told_and_logged(
    open_app: OpenApp, caplog: pytest.LogCaptureFixture
) -> None:
    app = await open_app(cls := assistant(ScriptedModel()))
    events, home = record_events(app, "task:failed"), await home_of(app, cls, "room")

    async def work() -> None:
        raise LookupError("nothing there")

    home.background(work())
    while not events:
        await home.clock.sleep(0)
    assert [(one.agent, one.name, one.payload) for one in events] == [
        (
            "Assistant",
            "room",
            {
                "task": "background work of Assistant/room",
                "error": "nothing there",
                "errorType": "LookupError",
            },
        )
    ]
    assert "LookupError: nothing there" in caplog.text
    assert "in work" in caplog.text


async def test_tidying_up_that_raises_is_told_and_does_not_end_the_process(
    open_app: OpenApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock()
    app = await open_app(cls := assistant(ScriptedModel()), clock=clock)
    events, home = record_events(app, "task:failed"), await home_of(app, cls, "room")

    def broken(*_: object) -> object:
        raise LookupError("no such thing")

    store: Store = (await app.open()).store
    monkeypatch.setattr(type(store), "apply", broken)
    await clock.advance(601)
    while not events:
        await clock.sleep(0)
    assert [one.payload["task"] for one in events] == ["tidying up"]
    monkeypatch.undo()
    await home.store.fetch("SELECT 1")
