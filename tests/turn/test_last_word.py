"""In which order the reader of `chat()` and the response hook hear of the end."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from everthink import Think
from everthink.hooks import ChatResponse
from everthink.testing.scripted import ScriptedModel, says
from tests.conftest import OpenApp
from tests.support.agents import assistant
from tests.support.turns import Witness, all_over, home_of

pytestmark = pytest.mark.anyio


class Diary:
    """Writes down what a callback and the response hook are told, in order."""

    def __init__(self, *, raises: bool = False) -> None:
        self.pages: list[str] = []
        self._raises = raises

    async def on_done(self) -> None:
        self.pages.append("done begins")
        await asyncio.sleep(0)
        self.pages.append("done")
        if self._raises:
            raise ValueError("no more")

    def on_error(self, error: str) -> None:
        self.pages.append(f"error {error}")

    def agent(self, *plays: Any) -> type[Think]:
        def on_chat_response(agent: Any, response: ChatResponse) -> None:
            self.pages.append(f"response {response.status}")

        return assistant(ScriptedModel(*plays), on_chat_response=on_chat_response)


async def test_whoever_streams_is_told_that_it_is_done_before_the_response_hook(open_app: OpenApp) -> None:
    diary = Diary()
    app = await open_app(cls := diary.agent(says("Hi.")))
    await app.agent(cls).chat("Hello", callback=diary)
    assert diary.pages == ["done begins", "done", "response completed"]


async def test_an_error_is_told_after_the_response_hook(open_app: OpenApp) -> None:
    diary = Diary()
    app = await open_app(cls := diary.agent(says("Half").then_fails("Broke.", kind="fatal")))
    await app.agent(cls).chat("Hello", callback=diary)
    assert diary.pages == ["response error", "error Broke."]


async def test_a_callback_that_raises_when_done_does_not_hold_up_the_response_hook(open_app: OpenApp) -> None:
    diary = Diary(raises=True)
    app = await open_app(cls := diary.agent(says("Hi.")))
    with pytest.raises(ValueError, match="no more"):
        await app.agent(cls).chat("Hello", callback=diary)
    await all_over(app, cls)
    assert diary.pages == ["done begins", "done", "response completed"]


@pytest.mark.parametrize("callback", [True, False])
async def test_a_reader_that_stops_waiting_does_not_hold_up_the_response_hook(
    open_app: OpenApp, callback: bool
) -> None:
    go, diary = asyncio.Event(), Diary()
    app = await open_app(cls := diary.agent(says("Half ").waits(go).says("whole.")))
    witness = Witness(await home_of(app, cls))
    reading = asyncio.ensure_future(app.agent(cls).chat("Hello", callback=diary if callback else None))
    await witness.until_text("Half ")
    reading.cancel()
    await asyncio.wait([reading])
    go.set()
    await all_over(app, cls)
    assert diary.pages == ["response completed"]


async def test_a_loop_that_is_left_does_not_hold_up_the_response_hook(open_app: OpenApp) -> None:
    diary = Diary()
    app = await open_app(cls := diary.agent(says("one ", "two ", "three")))
    stream = app.agent(cls).chat("Hello")
    async for _ in stream:
        break
    await all_over(app, cls)
    assert diary.pages == ["response completed"]
