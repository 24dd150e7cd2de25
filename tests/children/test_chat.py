"""chat() on a child: streamed to callbacks, stopped by its request, interrupted when it is to go on."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from everthink import Agent, Think
from everthink.testing import ScriptedModel, fails, says, waits
from tests.conftest import OpenApp
from tests.support.hooks import until

pytestmark = pytest.mark.anyio


class Desk(Agent):
    """A parent."""


class Heard:
    """Callbacks that keep what they were told."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.request = ""

    def on_start(self, start: Any) -> None:
        self.request = getattr(start, "request_id", start)
        self.told.append("start")

    def on_event(self, event: Any) -> None:
        if "text-delta" in str(event):
            self.told.append("delta")

    def on_done(self, *result: Any) -> None:
        self.told.append("done")

    def on_error(self, error: Any) -> None:
        self.told.append("error")

    def on_interrupted(self, *why: Any) -> None:
        self.told.append("interrupted")


def helper(*plays: Any) -> type[Think]:
    """A child that follows a script."""

    class Helper(Think):
        model = ScriptedModel(*plays)

    return Helper


async def child_of(open_app: OpenApp, cls: type[Think]) -> Any:
    return await (await open_app(Desk)).agent(Desk, "d").sub_agent(cls, "h")


@pytest.mark.agent_case(292)
async def test_a_childs_answer_is_streamed_to_callbacks(open_app: OpenApp) -> None:
    child, heard = await child_of(open_app, helper(says("Hel", "lo"))), Heard()
    await child.chat("Hi", heard)
    assert heard.told == ["start", "delta", "delta", "done"]
    assert [message.text for message in await child.get_messages()] == ["Hi", "Hello"]


@pytest.mark.agent_case(297)
async def test_a_failing_child_is_told_and_answers_the_next_time(open_app: OpenApp) -> None:
    child, heard = await child_of(open_app, helper(fails("broken"), says("Better."))), Heard()
    await child.chat("Hi", heard)
    assert heard.told[-1] == "error"
    assert "done" not in heard.told
    assert (await child.chat("Again")).text == "Better."


@pytest.mark.agent_case(299, 300)
async def test_a_childs_answer_is_stopped_by_its_request(open_app: OpenApp) -> None:
    cls = helper(says("Half ").then_hangs(), says("Whole."))
    child, heard = await child_of(open_app, cls), Heard()
    asked = asyncio.ensure_future(child.chat("Hi", heard))
    await until(lambda: "delta" in heard.told)
    await child.cancel_chat(heard.request, "enough")
    assert (await asked).status == "aborted"
    assert not {"done", "error", "interrupted"} & set(heard.told)
    assert (await child.get_messages())[-1].text == "Half "
    assert (await child.chat("Again")).text == "Whole."


@pytest.mark.agent_case(301)
async def test_a_child_that_stalls_and_is_to_go_on_is_interrupted_and_not_done(open_app: OpenApp) -> None:
    gate = asyncio.Event()

    class Stalls(Think):
        model = ScriptedModel(says("Half ").then_hangs(), waits(gate).says("an answer."))
        chat_stream_stall_timeout = 0.05

    child, heard = await child_of(open_app, Stalls), Heard()
    asked = asyncio.ensure_future(child.chat("Hi", heard))
    await until(lambda: "interrupted" in heard.told)
    assert "done" not in heard.told
    gate.set()
    await asyncio.wait([asked])
    assert "done" not in heard.told
    await child.wait_until_stable()
    assert (await child.get_messages())[-1].text == "Half an answer."
