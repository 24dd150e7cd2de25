"""The demo agent remembers: across restarts, beyond its small window, and in every session."""

from __future__ import annotations

import pytest

from everthink.devtools import demo
from everthink.models.demo import DemoModel

from .conftest import Develop

pytestmark = pytest.mark.anyio


class Demo(demo.Demo):
    """In a hurry."""

    model = DemoModel(pace=0)


async def test_what_it_was_told_is_remembered_after_a_restart_and_a_summary(develop: Develop) -> None:
    server = await develop(Demo)
    chat = await server.connect(Demo)
    await chat.until_done(await chat.say("Hello"))
    await chat.until_done(await chat.say("Remember that my dog is called Rex"))
    assert "I wrote that down." in chat.messages[-1].text
    for _ in range(4):
        await chat.until_done(await chat.say("count to 200"))
    await chat.until(lambda: any(m.id.startswith("compaction_") for m in chat.messages))
    [summary] = [m for m in chat.messages if m.id.startswith("compaction_")]
    assert "Remember that my dog is called Rex" in summary.text
    await server.stop()

    again = await develop(Demo)
    chat = await again.connect(Demo)
    await chat.until_done(await chat.say("What do you remember?"))
    assert chat.messages[-1].text == "My prompt tells me: My dog is called Rex."


async def test_it_looks_up_what_a_summary_hides(develop: Develop) -> None:
    server = await develop(Demo)
    chat = await server.connect(Demo)
    await chat.until_done(await chat.say("my name is Ada"))
    for _ in range(4):
        await chat.until_done(await chat.say("count to 200"))
    await chat.until_done(await chat.say("What did we say about Ada?"))
    assert "“Nice to meet you, Ada." in chat.messages[-1].text
