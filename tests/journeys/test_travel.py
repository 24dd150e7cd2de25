"""One long conversation, on both engines, with and without restarts in between."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from everthink import tool
from everthink.testing.scripted import ScriptedModel, calls, says
from tests.conftest import OpenApp
from tests.journeys.travel import SCENES, Journey
from tests.support.agents import assistant, live
from tests.support.turns import Witness

pytestmark = pytest.mark.anyio

STORY = [
    ("user", "Paris or Nice? 🌦"),
    ("assistant", "Paris: rain. Nice: sun."),
    ("user", "Trains to Nice?"),
    ("assistant", "At 08:00 and 09:00."),
    ("user", "Book it."),
    ("assistant", "Shall I? "),
    ("assistant", "Booked."),
    ("user", "How far is it?"),
    ("assistant", ""),
    ("assistant", "Lyon to Nice: 470 km."),
    ("user", "And Rome?"),
    ("assistant", ""),
    ("assistant", "Then not."),
    ("user", "Cancel Rome."),
    ("assistant", "That did not work."),
    ("user", "A hotel?"),
    ("assistant", "The hotel is "),
    ("user", "Again, please."),
    ("assistant", "Hotel Bellevue."),
    ("user", "Note: window seat."),
    ("assistant", "Noted."),
    ("user", "Check the weather."),
    ("assistant", "Sun."),
    ("assistant", "Memo, corrected."),
    ("user", "Bye after 24."),
    ("assistant", "Bon voyage!"),
]


async def play(journey: Journey, *, restarts: bool) -> None:
    await journey.open()
    for scene in SCENES:
        await scene(journey)
        await journey.settle()
        await journey.clock.advance(1)
        if restarts:
            before = await journey.snapshot()
            await journey.restart()
            assert await journey.snapshot() == before, scene.__name__
    assert journey.model.remaining == 0


@pytest.mark.case(22, 563)
async def test_a_long_conversation_is_the_same_after_reopening(open_app: OpenApp, store_url: str) -> None:
    journey = Journey(open_app, store_url)
    await play(journey, restarts=False)

    # The whole story is there, with every call settled
    assert [(m.role, m.text) for m in journey.agent.messages] == STORY
    states = {
        (part["type"], part["state"]) for message in journey.agent.messages for part in message.tool_parts
    }
    assert states == {
        ("tool-weather", "output-available"),
        ("tool-search", "output-available"),
        ("tool-book", "output-available"),
        ("tool-book", "output-denied"),
        ("tool-locate", "output-available"),
        ("tool-cancel_journey", "output-error"),
        ("tool-fly", "output-error"),
    }
    snapshot = await journey.snapshot()
    assert [row[3] for row in snapshot["turns"]].count("completed") == len(snapshot["turns"]) - 2
    assert {row[3] for row in snapshot["turns"]} == {"completed", "error", "aborted"}
    ledger = [call[3] for rows in snapshot["calls"].values() for call in rows]
    assert set(ledger) == {"done", "failed", "denied"}

    # And when it is opened again everything is as it was
    await journey.restart()
    assert await journey.snapshot() == snapshot


async def test_restarts_between_the_scenes_change_nothing(
    open_app: OpenApp, store_url: str, tmp_path: Any
) -> None:
    # Given the story told in one go, on a database of its own
    whole = Journey(open_app, f"sqlite:///{tmp_path}/other.db")
    await play(whole, restarts=False)

    # When it is told with a restart after every scene
    torn = Journey(open_app, store_url)
    await play(torn, restarts=True)

    # Then conversation, journal and hooks are the same, and the model was shown the same
    assert await torn.snapshot() == await whole.snapshot()
    assert torn.prompts == whole.prompts
    assert torn.notes == whole.notes


async def test_clearing_forgets_the_conversation_and_nothing_else(open_app: OpenApp, store_url: str) -> None:
    journey = Journey(open_app, store_url)
    await play(journey, restarts=False)
    before = await journey.snapshot()
    await journey.agent.clear_messages()
    for _ in range(2):
        after = await journey.snapshot()
        assert after["path"] == []
        assert after["submissions"] == before["submissions"]
        assert after["config"] == before["config"]
        # Of a question its id stays, so that nothing else is ever taken for it
        left = [call for rows in after["calls"].values() for call in rows]
        assert {(call[1], call[5], call[9]) for call in left} <= {("", None, None)}
        await journey.restart()
    # A new conversation begins with what the agent still knows
    journey.model.add(calls("weather", city="Nice"), says("Sun."))
    await journey.agent.save_messages("Weather in Nice?")
    assert [(m.role, m.text) for m in journey.agent.messages] == [
        ("user", "Weather in Nice?"),
        ("assistant", "Sun."),
    ]
    assert journey.prompts[-2][0].startswith("You plan journeys. Tone: dry.")
    assert journey.prompts[-2][1] == [("user", "Weather in Nice?")]


async def test_a_conversation_goes_on_from_where_the_process_stopped(
    open_app: OpenApp, store_url: str
) -> None:
    # Given a turn that streams, a message and a submission that wait, when the process stops
    journey = Journey(open_app, store_url)
    await journey.open()
    journey.model.add(calls("weather", city="Paris"), says("Rain, and ").then_hangs())
    asyncio.create_task(journey.agent.save_messages("Paris?")).add_done_callback(
        lambda task: task.exception()
    )
    await Witness(journey.agent._home).until_text("Rain, and ")
    await journey.window.send("u2", "And Nice?")
    await journey.agent.submit_messages("Compare.", submission_id="compare")

    # When it starts again
    journey.model.add(says("wind."), says("Sun."), says("Nice wins."))
    await journey.restart()
    await journey.settle()

    # Then what was shown goes on to its end, and what waited is answered, in order
    texts = [(m.role, m.text) for m in journey.agent.messages]
    assert texts == [
        ("user", "Paris?"),
        ("assistant", "Rain, and wind."),
        ("user", "And Nice?"),
        ("assistant", "Sun."),
        ("user", "Compare."),
        ("assistant", "Nice wins."),
    ]
    assert journey.agent.messages[1].tool_parts[0]["output"] == {"city": "Paris", "sky": "rain"}
    assert (await journey.agent.inspect_submission("compare")).status == "completed"
    rows = (await journey.snapshot())["turns"]
    assert [row[3] for row in rows] == ["completed", "completed", "completed"]
    before = await journey.snapshot()
    await journey.restart()
    assert await journey.snapshot() == before


async def test_many_rooms_share_a_database_and_nothing_else(open_app: OpenApp, store_url: str) -> None:
    rooms, turns = 20, 3

    def answer(request: Any) -> Any:
        question = request.messages[-1]
        if type(question).__name__ == "ToolMessage":
            return says("Looked up.")
        text = question.content[0].text
        return calls("look_up", what=text) if text.endswith("0") else says(f"Answer to {text}")

    @tool
    def look_up(what: str) -> str:
        """Look something up."""
        return what

    model = ScriptedModel.forever(answer)
    app = await open_app(cls := assistant(model, get_tools=lambda self: [look_up]), store=store_url)

    async def talk(room: str) -> None:
        for turn in range(turns):
            await app.agent(cls, room).save_messages(f"{room}/{turn}")
        await app.agent(cls, room).submit_messages(f"{room}/{turns}", submission_id="same-id-everywhere")

    names = [f"room-{n}" for n in range(rooms)]
    await asyncio.gather(*(talk(name) for name in names))
    for name in names:
        await (await live(app.agent(cls, name)))._home.chat.door.queue.wait_for_idle()
    await app.close()

    app = await open_app(cls, store=store_url)
    for name in names:
        messages = await app.agent(cls, name).get_messages()
        assert [m.text for m in messages if m.role == "user"] == [f"{name}/{n}" for n in range(turns + 1)]
        assert [m.text for m in messages if m.role == "assistant"] == [
            "Looked up.",
            *(f"Answer to {name}/{n}" for n in range(1, turns + 1)),
        ]
        (submission,) = await app.agent(cls, name).list_submissions()
        assert (submission.submission_id, submission.status) == ("same-id-everywhere", "completed")
