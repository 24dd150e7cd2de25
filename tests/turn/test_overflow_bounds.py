"""Where making room ends: nothing to shorten, results left out, somebody who stops it. Never a loop."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from everthink import Message, Think, tool
from everthink.door.chat_request import ChatRequest
from everthink.errors import StoreError
from everthink.journal.feed import TurnEnded
from everthink.session.summary import Compaction
from everthink.testing.scripted import ScriptedModel, calls, overflows, says
from everthink.turn.overflow import ContextOverflow
from tests.conftest import OpenApp
from tests.support.agents import live
from tests.support.overflow import NOTE, SUMMARY, Shortener, pairs, roomy, talk
from tests.support.turns import (
    Database,
    Heard,
    Witness,
    accept_request,
    all_over,
    gated_app,
    home_of,
    prompt,
    record_events,
)
from tests.support.window import said

pytestmark = pytest.mark.anyio

OLD = talk("What is a bee?", "An insect, and a long story about it.")
TOO_LONG = "prompt is too long: 9 > 8"
REFUSED = says("A wa").then_overflows(TOO_LONG)


def raises(messages: list[Message], context: Any) -> Compaction:
    raise RuntimeError("no summary today")


def longer(messages: list[Message], context: Any) -> Compaction:
    return Compaction(messages[0].id, messages[-2].id, "And so on and so forth. " * 50)


HELPLESS = pytest.mark.parametrize(
    ("fn", "events"),
    [(lambda messages, context: None, 1), (raises, 1), (longer, 1), (None, 0)],
    ids=["nothing to shorten", "raises", "a longer summary", "no function"],
)


@pytest.mark.case(384)
@HELPLESS
async def test_what_cannot_be_shortened_ends_the_turn_through_the_error_hook(
    open_app: OpenApp, tmp_path: Path, fn: Any, events: int
) -> None:
    asked: list[Any] = []

    def on_chat_error(self: Think, error: Exception, context: Any) -> str:
        asked.append((str(error), context.stage, context.messages_persisted, context.classification))
        return "Please start a new conversation."

    model = ScriptedModel(REFUSED)
    cls = roomy(model, fn, on_chat_error=on_chat_error)
    app = await open_app(cls)
    await app.agent(cls).add_messages(OLD)
    told = record_events(app, "chat:context:compacted", "chat:request:failed")
    heard = Heard()

    await app.agent(cls).chat("And a wasp?", callback=heard)

    assert model.asked == 1
    assert asked == [(TOO_LONG, "stream", True, "context_overflow")]
    assert heard.told[-1] == ("error", "Please start a new conversation.")
    assert [e.type for e in told] == ["chat:context:compacted"] * events + ["chat:request:failed"]
    if events:
        assert told[0].body.shortened is False
    # What was shown stays, and nothing that was said before is lost
    assert Database(tmp_path).texts() == [*(m.text for m in OLD), "And a wasp?", "A wa"]
    assert Database(tmp_path).statuses() == ["error"]


@pytest.mark.case(385)
@pytest.mark.parametrize("retries", [1, 2, 3])
async def test_a_prompt_that_stays_too_long_ends_after_the_allowed_retries(
    open_app: OpenApp, retries: int
) -> None:
    # Given a function that finds something to shorten each time
    model = ScriptedModel(overflows(TOO_LONG), repeat=True)
    asked = 0

    def fn(messages: list[Message], context: Any) -> Compaction:
        nonlocal asked
        asked += 1
        return Compaction(messages[0].id, messages[1].id, f"Less{'!' * (40 - 10 * asked)}")

    cls = roomy(model, fn, overflow=ContextOverflow(reactive=True, max_retries=retries))
    app = await open_app(cls)
    await app.agent(cls).add_messages(talk(*(f"Text number {n}, with some words." for n in range(12))))
    events = record_events(app, "chat:context:compacted")

    result = await app.agent(cls).save_messages("And a wasp?")

    assert (result.status, model.asked, asked) == ("error", retries + 1, retries)
    assert [e.body.attempt for e in events] == [*range(1, retries + 1)]


async def test_no_retries_go_straight_to_the_error(open_app: OpenApp) -> None:
    model, fn = ScriptedModel(overflows(TOO_LONG)), Shortener()
    cls = roomy(model, fn, overflow=ContextOverflow(reactive=True, max_retries=0))
    app = await open_app(cls)
    await app.agent(cls).add_messages(heavy([3000, 3100]))
    events = record_events(app, "chat:context:compacted", "chat:context:slimmed")
    result = await app.agent(cls).save_messages("And a wasp?")
    assert (result.status, model.asked, fn.asked, events) == ("error", 1, 0, [])


async def test_trap_a_client_that_comes_later_learns_how_it_ended(open_app: OpenApp) -> None:
    cls = roomy(ScriptedModel(REFUSED), None)
    app = await open_app(cls)
    result = await app.agent(cls).save_messages("And a wasp?")
    assert result.status == "error"

    await app.evict(cls, "default")
    home = await home_of(app, cls)
    assert home.chat.host.last_failure.value is not None
    assert home.chat.host.last_failure.value.request_id == result.request_id
    assert TOO_LONG in home.chat.host.last_failure.value.error


# --- the last resort


def heavy(*steps: list[int]) -> list[Message]:
    """A question and its answer, whose steps got results of these sizes."""
    parts: list[dict[str, Any]] = []
    for step in steps:
        parts.append({"type": "step-start"})
        for size in step:
            parts.append(
                {
                    "type": "tool-look",
                    "toolCallId": f"c{sum(part['type'] == 'tool-look' for part in parts)}",
                    "state": "output-available",
                    "input": {},
                    "output": "x" * size,
                }
            )
    parts += [{"type": "step-start"}, {"type": "text", "text": "Seen."}]
    return [*talk("Look."), Message("seen", "assistant", parts)]


def outputs(request: Any) -> dict[str, int]:
    """The length of each result in a prompt."""
    return {id: len(output) for kind, id, output in pairs(request) if kind == "result"}


async def test_results_are_left_out_the_largest_first_when_no_summary_helps(
    open_app: OpenApp, tmp_path: Path
) -> None:
    # Given a first step with three results, and a second one with the largest but one
    model = ScriptedModel(overflows(), overflows(), says("Fits."), says("Still fits."))
    cls = roomy(model, lambda messages, context: None)
    app = await open_app(cls)
    await app.agent(cls).add_messages(heavy([1000, 3000, 5000], [4000]))
    events = record_events(app, "chat:context:compacted", "chat:context:slimmed")

    result = await app.agent(cls).save_messages("So?")

    # Each time what is asked is at most half of what it was. The old ones go before the recent ones
    assert result.text == "Fits."
    first, second, third = model.requests
    assert outputs(first) == {"c0": 1000, "c1": 3000, "c2": 5000, "c3": 4000}
    note = len("[This result of 5000 characters was left out to make room.]")
    assert outputs(second) == {"c0": 1000, "c1": note, "c2": note, "c3": 4000}
    assert outputs(third) == dict.fromkeys(("c0", "c1", "c2", "c3"), note)
    compacted, *slimmed = events
    assert compacted.body.shortened is False
    assert [e.body.tool_call_ids for e in slimmed] == [("c1", "c2"), ("c0", "c3")]

    # And they stay out of the next prompt, while the conversation holds them
    await app.agent(cls).save_messages("And now?")
    assert outputs(model.last_request) == outputs(third)
    stored = next(m for m in Database(tmp_path).messages() if m["id"] == "seen")
    sizes = [len(part["output"]) for part in stored["parts"] if "output" in part]
    assert sizes == [1000, 3000, 5000, 4000]


async def test_leaving_out_is_bounded_as_well(open_app: OpenApp) -> None:
    model = ScriptedModel(overflows(TOO_LONG), repeat=True)
    cls = roomy(model, None)
    app = await open_app(cls)
    await app.agent(cls).add_messages(heavy([4000] * 16))
    events = record_events(app, "chat:context:slimmed")
    result = await app.agent(cls).save_messages("So?")
    assert (result.status, model.asked, len(events)) == ("error", 3, 2)


async def test_small_results_are_not_worth_it(open_app: OpenApp) -> None:
    model = ScriptedModel(overflows(TOO_LONG))
    cls = roomy(model, None)
    app = await open_app(cls)
    await app.agent(cls).add_messages(heavy([200] * 40))
    assert (await app.agent(cls).save_messages("So?")).status == "error"


async def test_what_a_tool_gave_in_this_very_turn_may_be_left_out(open_app: OpenApp) -> None:
    @tool
    def look() -> str:
        """Look."""
        return "x" * 50_000

    model = ScriptedModel(calls("look"), overflows(), says("Too much to read."))
    cls = roomy(model, Shortener(tail=9), get_tools=lambda self: [look])
    app = await open_app(cls)
    result = await app.agent(cls).save_messages("Look.")
    assert (result.text, model.asked) == ("Too much to read.", 3)
    assert outputs(model.requests[1])["call_1"] > 1000
    assert outputs(model.requests[2])["call_1"] < 100


async def test_what_was_left_out_comes_back_when_the_conversation_is_cleared(open_app: OpenApp) -> None:
    model = ScriptedModel(overflows(), says("Fits."), says("Fresh."))
    cls = roomy(model, None)
    app = await open_app(cls)
    await app.agent(cls).add_messages(heavy([3000, 3100]))
    await app.agent(cls).save_messages("So?")
    await app.agent(cls).clear_messages()
    await app.agent(cls).add_messages(heavy([3000, 3100]))
    await app.agent(cls).save_messages("So?")
    assert outputs(model.last_request) == {"c0": 3000, "c1": 3100}


# --- somebody stops it


class Held(Shortener):
    """A compaction that waits to be let go."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.gate = asyncio.Event(), asyncio.Event()

    async def __call__(self, messages: list[Message], context: Any) -> Compaction | None:
        self.begun.set()
        await self.gate.wait()
        return await super().__call__(messages, context)


@pytest.mark.case(386)
@pytest.mark.parametrize("door", ["chat", "save", "window"])
async def test_an_abort_while_the_conversation_is_shortened_ends_the_turn(
    open_app: OpenApp, tmp_path: Path, door: str
) -> None:
    model, fn = ScriptedModel(REFUSED), Held()
    cls = roomy(model, fn)
    app = await open_app(cls)
    agent = app.agent(cls)
    await agent.add_messages(OLD)
    home = await home_of(app, cls)
    witness, events = Witness(home), record_events(app, "chat:context:compacted")

    async def ask() -> None:
        if door == "chat":
            await agent.chat("And a wasp?", callback=Heard())
        elif door == "save":
            await agent.save_messages("And a wasp?")
        else:
            await accept_request(home, ChatRequest("r", [*OLD, said("new", "And a wasp?")]))

    asking = asyncio.ensure_future(ask())
    await fn.begun.wait()
    home.chat.host.aborts.destroy_all()
    await asking
    await witness.until(lambda: any(isinstance(shown, TurnEnded) for shown in witness.shown))
    fn.gate.set()
    await all_over(app, cls)

    assert (model.asked, fn.asked, events) == (1, 0, [])
    assert Database(tmp_path).statuses() == ["aborted"]
    assert Database(tmp_path).texts()[-1] == "A wa"
    assert Database(tmp_path).rows("SELECT * FROM compactions") == []


@pytest.mark.case(386)
async def test_an_abort_that_came_with_the_refusal_shortens_nothing(open_app: OpenApp) -> None:
    model, fn = ScriptedModel(), Shortener()
    cls = roomy(model, fn)
    app = await open_app(cls)
    agent = app.agent(cls)
    await agent.add_messages(OLD)
    home = await home_of(app, cls)

    async def stop() -> None:
        home.chat.host.aborts.destroy_all()

    model.add(says("A wa").waits(stop).then_overflows())
    result = await agent.save_messages("And a wasp?")
    assert (result.status, model.asked, fn.asked) == ("aborted", 1, 0)


async def test_a_clear_while_the_conversation_is_shortened_leaves_nothing(
    open_app: OpenApp, tmp_path: Path
) -> None:
    model, fn = ScriptedModel(REFUSED, says("Fresh.")), Held()
    cls = roomy(model, fn)
    app = await open_app(cls)
    agent = app.agent(cls)
    await agent.add_messages(OLD)
    asking = asyncio.ensure_future(agent.save_messages("And a wasp?"))
    await fn.begun.wait()

    await agent.clear_messages()
    fn.gate.set()
    result = await asking

    assert result.status == "skipped"
    assert Database(tmp_path).messages() == []
    assert Database(tmp_path).rows("SELECT * FROM compactions") == []
    assert (await agent.save_messages("Anew?")).text == "Fresh."
    assert prompt(model.last_request) == [("user", "Anew?")]


async def test_an_abort_while_the_summary_is_stored_leaves_memory_and_database_agreed(tmp_path: Path) -> None:
    # Given a turn that is stopped while the overlay is being committed
    model = ScriptedModel(REFUSED, says("Next."))
    cls = roomy(model, Shortener(tail=1))
    async with gated_app(tmp_path, cls) as (app, store):
        agent = app.agent(cls)
        await agent.add_messages(OLD)
        home = await home_of(app, cls)
        events = asyncio.Event()

        def watch(commit: Any) -> None:
            if any("INSERT INTO compactions" in statement.sql for statement in commit):
                home.chat.host.aborts.destroy_all()
                events.set()

        store.refuse(watch)
        result = await agent.save_messages("And a wasp?")
        assert events.is_set()
        assert result.status == "aborted"
        store.refuse(lambda commit: None)

        # Then the next turn is asked with the summary that the database holds
        await agent.save_messages("And a hornet?")
        assert len(Database(tmp_path).rows("SELECT * FROM compactions")) == 1
        assert prompt(model.last_request)[:2] == [NOTE, ("assistant", SUMMARY)]


async def test_a_store_that_fails_while_room_is_made_ends_the_turn_and_loses_nothing(tmp_path: Path) -> None:
    model = ScriptedModel(REFUSED, says("Next."))
    cls = roomy(model, Shortener(tail=1))
    async with gated_app(tmp_path, cls) as (app, store):
        agent = app.agent(cls)
        await agent.add_messages(OLD)

        def full(commit: Any) -> Exception | None:
            is_it = any("INSERT INTO compactions" in statement.sql for statement in commit)
            return StoreError("The disk is full.") if is_it else None

        store.refuse(full)
        result = await agent.save_messages("And a wasp?")
        assert result.status == "error"
        store.refuse(lambda commit: None)
        assert (await agent.save_messages("And a hornet?")).text == "Next."
        assert Database(tmp_path).texts() == [
            *(m.text for m in OLD), "And a wasp?", "A wa", "And a hornet?", "Next.",
        ]  # fmt: skip


async def test_rewinding_that_fails_ends_the_turn_with_what_was_shown(tmp_path: Path) -> None:
    model = ScriptedModel(REFUSED, says("Next."))
    cls = roomy(model, Shortener(tail=1))
    async with gated_app(tmp_path, cls) as (app, store):
        agent = app.agent(cls)
        await agent.add_messages(OLD)

        def full(commit: Any) -> Exception | None:
            is_it = any("DELETE FROM calls" in statement.sql for statement in commit)
            return StoreError("The disk is full.") if is_it else None

        store.refuse(full)
        result = await agent.save_messages("And a wasp?")
        assert result.status == "error"
        assert "The disk is full." in str(result.error)
        store.refuse(lambda commit: None)
        assert (await agent.save_messages("And a hornet?")).text == "Next."
        assert Database(tmp_path).texts()[2:] == ["And a wasp?", "A wa", "And a hornet?", "Next."]


async def test_a_block_that_cannot_be_read_does_not_undo_a_compaction(open_app: OpenApp) -> None:
    # Given a block whose provider breaks after the first turn
    class Weather:
        is_down = False

        async def get(self) -> str:
            if self.is_down:
                raise ConnectionError("no network")
            return "Rain."

    weather, model = Weather(), ScriptedModel(says("Hello."), overflows(), says("A cousin."))

    def configure_session(self: Think, session: Any) -> Any:
        return session.with_context("weather", provider=weather).on_compaction(Shortener())

    cls = roomy(model, configure_session=configure_session)
    app = await open_app(cls)
    await app.agent(cls).save_messages("Hi, and a rather long greeting to go with it.")
    weather.is_down = True

    result = await app.agent(cls).save_messages("And a wasp?")

    assert (result.status, result.text) == ("completed", "A cousin.")
    assert prompt(model.last_request)[1:] == [("assistant", SUMMARY), ("user", "And a wasp?")]
    assert "Rain." in model.last_request.system


async def test_what_the_refused_attempt_used_is_counted_as_well(open_app: OpenApp) -> None:
    @tool
    def look() -> str:
        """Look."""
        return "seen"

    model = ScriptedModel(calls("look").uses(100, 10), overflows(), says("Done.").uses(50, 5))
    cls = roomy(model, Shortener(), get_tools=lambda self: [look])
    app = await open_app(cls)
    agent: Any = await live(app.agent(cls))
    await agent.add_messages(OLD)
    await agent.save_messages("Look.")
    (main,) = await agent.sessions.list()
    assert (main.input_tokens, main.output_tokens) == (150, 15)
