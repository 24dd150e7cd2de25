"""A travel agent and a long conversation with it, told in scenes between which the process may restart."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from everthink import App, Submission, Think, ToolContext, tool
from everthink.hooks import TurnContext
from everthink.journal.turn_rows import all_turns
from everthink.messages import Message
from everthink.testing.clock import ManualClock
from everthink.testing.scripted import ScriptedModel, calls, says, thinks
from tests.conftest import OpenApp
from tests.support.agents import live
from tests.support.turns import prompt
from tests.support.window import Window

__all__ = ["SCENES", "Journey"]

LOCATE = {"name": "locate", "description": "Where the person is.", "parameters": {"type": "object"}}


CALLS = (
    "SELECT call_id, tool, step, state, on_interrupt, input, asked_at, started_at, settled_at, words"
    " FROM calls WHERE agent = :agent AND turn = ? ORDER BY asked_at, call_id"
)


class Travel(Think):
    """Plans journeys. Everything it was told outside its conversation is kept in `notes`."""

    notes: list[Any]
    script: ScriptedModel

    def get_model(self) -> ScriptedModel:
        return self.script

    def get_system_prompt(self) -> str:
        config = self.get_config() or {}
        return f"You plan journeys. Tone: {config.get('tone', 'plain')}."

    @tool
    def weather(self, city: str) -> dict[str, Any]:
        """The weather in a city."""
        return {"city": city, "sky": "rain" if city == "Paris" else "sun"}

    @tool
    async def search(self, question: str) -> AsyncIterator[dict[str, Any]]:
        """Search for trains."""
        yield {"found": 0}
        yield {"found": 2, "trains": ["08:00", "09:00"]}

    @tool(needs_approval=True)
    async def book(self, city: str, ctx: ToolContext) -> str:
        """Book a journey."""
        self.notes.append(("booked", city))
        return f"booked {city}"

    @tool
    def cancel_journey(self, city: str) -> str:
        """Cancel a journey."""
        raise LookupError(f"there is no journey to {city}")

    def before_turn(self, turn: TurnContext) -> None:
        self.notes.append(("turn", turn.trigger, turn.body, sorted(turn.tools)))

    def on_submission_status(self, submission: Submission) -> None:
        self.notes.append(("submission", submission.submission_id, submission.status))


class Journey:
    """One conversation: the app (again after each restart), the model, the window."""

    def __init__(self, open_app: OpenApp, url: str) -> None:
        self._open_app, self._url = open_app, url
        self.clock, self.model, self.notes = ManualClock(), ScriptedModel(), []
        numbers = itertools.count(1)
        self._new_id = lambda: f"id-{next(numbers):04}"
        self.cls = type("Travel", (Travel,), {"notes": self.notes, "script": self.model})
        self.known: dict[str, str] = {}
        """Ids a scene wants to remember."""

    async def open(self) -> None:
        options = {"store": self._url, "clock": self.clock, "new_id": self._new_id}
        self.app: App = await self._open_app(self.cls, **options)
        self.agent: Any = await live(self.app.agent(self.cls, "room"))
        self.window = Window(self.agent._home)
        self.window.messages = self.agent.messages

    async def restart(self) -> None:
        tools = self.window.client_tools
        await self.app.close()
        await self.open()
        self.window.client_tools = tools  # a page declares them with every request

    async def settle(self) -> None:
        """Return once no turn runs or waits, and readers and hooks were told."""
        home = self.agent._home
        while not home.chat.door.queue.is_idle or home.chat.door._open:
            await home.chat.door.queue.wait_for_idle()
            await asyncio.sleep(0)

    async def snapshot(self) -> dict[str, Any]:
        """Everything the database and the agent know."""
        home = self.agent._home
        session, store = home.chat.session, home.store
        stored: list[Message] = [message.copy() for message in session.path]
        turns = await all_turns(store)
        return {
            "path": [message.to_json() for message in stored],
            "branches": {
                m.id: [child.to_json() for child in await session.get_branches(m.id)] for m in stored
            },
            "turns": [tuple(row[:13]) for row in turns],  # all but the number they are ordered by
            "calls": {turn.id: [tuple(call) for call in await store.fetch(CALLS, turn.id)] for turn in turns},
            "submissions": await self.agent.list_submissions(limit=100),
            "config": self.agent.get_config(),
            "body": home.chat.browser.body,
            "client tools": home.chat.browser.tools,
            "waits for a person": self.agent.has_pending_interaction(),
        }

    @property
    def prompts(self) -> list[Any]:
        """What the model was shown, request by request."""
        return [(r.system, prompt(r), sorted(t.name for t in r.tools)) for r in self.model.requests]


# --- the scenes: each leaves the agent idle, so that a restart may follow


async def configure(j: Journey) -> None:
    await j.agent.configure({"tone": "dry", "limits": [1, 2.5, None, {"ü": "é"}]})


async def ask_with_tools(j: Journey) -> None:
    j.model.add(
        thinks("Two cities.", signature="sig").calls("weather", city="Paris").calls("weather", city="Nice"),
        says("Paris: rain. ", "Nice: sun."),
    )
    taken = await j.window.send("u1", "Paris or Nice? 🌦", body={"lang": "en"}, channel="web")
    assert (await taken.result()).text == "Paris: rain. Nice: sun."


async def stream_with_a_streaming_tool(j: Journey) -> None:
    j.model.add(calls("search", question="trains to Nice"), says("At ", "08:00 ", "and 09:00."))
    pieces = [piece async for piece in j.agent.chat("Trains to Nice?", metadata={"from": "code"}).text()]
    assert "".join(pieces) == "At 08:00 and 09:00."


async def ask_for_approval(j: Journey) -> None:
    j.model.add(says("Shall I? ").calls("book", city="Nice"))
    result = await j.agent.save_messages("Book it.")
    (call,) = result.message.tool_parts
    assert call["state"] == "approval-requested"
    j.known["booking"] = call["toolCallId"]
    assert j.agent.has_pending_interaction()


async def approve(j: Journey) -> None:
    j.model.add(says("Booked."))
    assert await j.agent.apply_tool_approval(j.known["booking"], True)
    assert not await j.agent.apply_tool_approval(j.known["booking"], False)
    assert (await j.agent.continue_last_turn()).text == "Booked."
    assert j.notes.count(("booked", "Nice")) == 1


async def ask_the_browser(j: Journey) -> None:
    j.model.add(calls("locate"))
    taken = await j.window.send("u2", "How far is it?", client_tools=[LOCATE], body={"lang": "fr"})
    result = await taken.result()
    (call,) = result.message.tool_parts
    assert call["state"] == "input-available"
    j.known["place"] = call["toolCallId"]
    assert j.agent.has_pending_interaction()


async def answer_from_the_browser(j: Journey) -> None:
    j.model.add(says("Lyon to Nice: 470 km."))
    assert await j.agent.apply_tool_result(j.known["place"], {"city": "Lyon"})
    assert (await j.agent.continue_last_turn()).text == "Lyon to Nice: 470 km."


async def deny(j: Journey) -> None:
    j.model.add(calls("book", city="Rome"), says("Then not."))
    result = await j.agent.save_messages("And Rome?")
    await j.agent.apply_tool_approval(result.message.tool_parts[0]["toolCallId"], False, reason="too far")
    assert (await j.agent.continue_last_turn()).text == "Then not."
    assert ("booked", "Rome") not in j.notes


async def fail_in_a_tool(j: Journey) -> None:
    j.model.add(calls("cancel_journey", city="Rome").calls("fly", to="Mars"), says("That did not work."))
    assert (await j.agent.save_messages("Cancel Rome.")).status == "completed"


async def break_off(j: Journey) -> None:
    j.model.add(says("The hotel is ").then_fails("overloaded"))
    result = await j.agent.save_messages("A hotel?")
    assert (result.status, result.error) == ("error", "overloaded")


async def stop(j: Journey) -> None:
    j.model.add(thinks("Let me see").says("The best hotel ").then_hangs())
    turn = asyncio.create_task(j.agent.run_turn("Again, please."))
    await j.model.until_silent()
    j.agent.abort_all_requests("enough")
    assert (await turn).status == "aborted"


async def regenerate(j: Journey) -> None:
    j.model.add(says("Hotel Azur."), says("Hotel Bellevue."))
    await j.agent.regenerate()
    j.known["branching"] = j.agent.messages[-2].id
    j.window.messages = j.agent.messages
    taken = await j.window.regenerate("again")
    assert (await taken.result()).text == "Hotel Bellevue."
    assert len(await j.agent.session.get_branches(j.known["branching"])) == 3


async def submit(j: Journey) -> None:
    j.model.add(says("Noted."), calls("weather", city="Nice"), says("Sun."))
    busy = j.agent._home.chat.door.queue.reserve("somebody")  # all are accepted before the first one runs
    for id, text in (("note", "Note: window seat."), ("check", "Check the weather.")):
        taken = await j.agent.submit_messages(
            text, submission_id=id, idempotency_key=f"key-{id}", metadata={"n": id}
        )
        assert taken.accepted
    again = await j.agent.submit_messages("Note: aisle seat.", idempotency_key="key-note")
    assert not again.accepted
    busy.release()
    await j.settle()


async def write_without_a_turn(j: Journey) -> None:
    await j.agent.add_messages(
        [{"id": "memo", "role": "assistant", "parts": [{"type": "text", "text": "Memo."}]}]
    )
    await j.agent.add_messages(
        [{"id": "memo", "role": "assistant", "parts": [{"type": "text", "text": "Memo, corrected."}]}],
        mode="upsert",
    )


async def say_goodbye(j: Journey) -> None:
    j.model.add(says("Bon voyage!"))
    assert (await j.agent.save_messages(lambda messages: f"Bye after {len(messages)}.")).text == "Bon voyage!"


SCENES: list[Callable[[Journey], Awaitable[None]]] = [
    configure,
    ask_with_tools,
    stream_with_a_streaming_tool,
    ask_for_approval,
    approve,
    ask_the_browser,
    answer_from_the_browser,
    deny,
    fail_in_a_tool,
    break_off,
    stop,
    regenerate,
    submit,
    write_without_a_turn,
    say_goodbye,
]
