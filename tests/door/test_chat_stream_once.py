"""A stream asks once, however often it is read or awaited."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from everthink import App, Think, tool
from everthink.chat import ChatStream
from everthink.errors import InvalidTurn, TurnFailed
from everthink.testing.scripted import ScriptedModel, calls, says
from tests.conftest import OpenApp
from tests.support.agents import assistant, live
from tests.support.turns import Heard

pytestmark = pytest.mark.anyio

Reach = Callable[[App, type[Think]], Awaitable[Any]]
Use = Callable[[ChatStream], Awaitable[Any]]


async def by_handle(app: App, cls: type[Think]) -> Any:
    return app.agent(cls)


async def by_itself(app: App, cls: type[Think]) -> Any:
    return await live(app.agent(cls))


async def read(stream: ChatStream) -> None:
    async for _ in stream:
        pass


async def read_text(stream: ChatStream) -> None:
    async for _ in stream.text():
        pass


async def read_a_little(stream: ChatStream) -> None:
    async for _ in stream:
        break


async def awaited(stream: ChatStream) -> Any:
    return await stream


async def awaited_in_vain(stream: ChatStream) -> None:
    task = asyncio.ensure_future(awaited(stream))
    while not stream.request_id:  # noqa: ASYNC110 - it has no event for that
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])


def paying() -> tuple[type[Think], list[str]]:
    """An agent that pays when asked, and would pay once more; and what it paid."""
    paid: list[str] = []

    class Paying(Think):
        model = ScriptedModel(calls("pay"), says("Paid."), calls("pay"), says("Paid again."))

        @tool
        def pay(self) -> str:
            """Pay."""
            paid.append("100")
            return "done"

    return Paying, paid


@pytest.mark.parametrize("reach", [by_handle, by_itself])
@pytest.mark.parametrize("first", [read, read_text, read_a_little, awaited, awaited_in_vain])
async def test_a_stream_that_is_awaited_later_gives_the_result_of_its_turn(
    open_app: OpenApp, reach: Reach, first: Use
) -> None:
    cls, paid = paying()
    app = await open_app(cls)
    stream = (await reach(app, cls)).chat("Pay Ada 100")

    await first(stream)
    result = await stream

    assert (result.status, result.text, result.request_id) == ("completed", "Paid.", stream.request_id)
    assert stream.result is result is await stream
    assert paid == ["100"]
    assert [m.text for m in await app.agent(cls).get_messages()] == ["Pay Ada 100", "Paid."]


@pytest.mark.parametrize("reach", [by_handle, by_itself])
@pytest.mark.parametrize("first", [read, read_a_little, awaited])
@pytest.mark.parametrize("second", [read, read_text])
async def test_the_chunks_of_a_stream_come_once(
    open_app: OpenApp, reach: Reach, first: Use, second: Use
) -> None:
    cls, paid = paying()
    app = await open_app(cls)
    stream = (await reach(app, cls)).chat("Pay Ada 100")

    await first(stream)
    with pytest.raises(InvalidTurn, match=r"chunks of this chat\(\) were read already.*Await the stream"):
        await second(stream)

    assert (await stream).text == "Paid."
    assert paid == ["100"]


@pytest.mark.parametrize("reach", [by_handle, by_itself])
@pytest.mark.parametrize("method", ["regenerate", "continue_last_turn"])
async def test_an_answer_is_made_again_or_gone_on_with_once(
    open_app: OpenApp, reach: Reach, method: str
) -> None:
    model = ScriptedModel(says("One"), says("Two"), says("Three"))
    app = await open_app(cls := assistant(model))
    await app.agent(cls).save_messages("Count")

    stream = getattr(await reach(app, cls), method)()
    await read(stream)

    assert ((await stream).text, (await stream).text) == ("Two", "Two")
    assert len(model.requests) == 2


async def test_those_who_await_a_stream_together_get_one_turn(open_app: OpenApp) -> None:
    app = await open_app(cls := assistant(model := ScriptedModel(says("One"), says("Two"))))
    stream = app.agent(cls).chat("Hi", heard := Heard())

    results = await asyncio.gather(awaited(stream), awaited(stream), awaited(stream))

    assert [result.text for result in results] == ["One"] * 3
    assert (len(model.requests), heard.names) == (1, ["start", "done"])


async def test_a_failed_turn_is_not_asked_again_by_awaiting_its_stream(open_app: OpenApp) -> None:
    app = await open_app(cls := assistant(ScriptedModel(says("Half ").then_fails("overloaded"), says("Two"))))
    stream = app.agent(cls).chat("Hi")

    with pytest.raises(TurnFailed):
        await read(stream)

    result = await stream
    assert (result.status, result.error, result.text) == ("error", "overloaded", "Half ")
    assert [m.text for m in await app.agent(cls).get_messages()] == ["Hi", "Half "]


async def test_a_stream_that_was_refused_has_asked_nothing_and_may_be_awaited_again(
    open_app: OpenApp,
) -> None:
    # Given a stream whose callback cannot take its beginning at first
    app = await open_app(cls := assistant(model := ScriptedModel(says("One"))))
    told: list[str] = []

    class Late:
        def on_start(self, request_id: str) -> None:
            told.append(request_id)
            if len(told) == 1:
                raise OSError("not yet")

    stream = app.agent(cls).chat("Hi", Late())
    with pytest.raises(OSError, match="not yet"):
        await stream
    assert model.requests == []

    # Then it is asked when it is awaited again
    assert (await stream).text == "One"
    assert len(set(told)) == 2
