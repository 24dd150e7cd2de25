"""A prompt that is too long after a tool has run: the turn goes on from its journal, no tool runs twice."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from everthink import chunks as ui
from everthink import tool
from everthink.journal.feed import TurnRewound
from everthink.models.port import Request
from everthink.prompt.wording import CONTINUE_NUDGE
from everthink.testing.scripted import Play, ScriptedModel, calls, opens, overflows, says
from everthink.turn.overflow import ContextOverflow
from tests.conftest import OpenApp
from tests.support.overflow import NOTE, SUMMARY, Shortener, pairs, roomy, talk
from tests.support.turns import Database, Witness, home_of, prompt, record_events

pytestmark = pytest.mark.anyio

OLD = talk("What is a bee?", "An insect, and a long story about it.")


class Kitchen:
    """Tools that leave a trace each time they run."""

    def __init__(self) -> None:
        self.done: list[str] = []
        kitchen = self

        @tool
        async def cook(dish: str) -> str:
            """Cook a dish."""
            kitchen.done.append(dish)
            return f"{dish}, hot"

        @tool
        async def burn(dish: str) -> str:
            """Burn a dish."""
            kitchen.done.append(f"burnt {dish}")
            raise ValueError("smoke")

        self.tools = [cook, burn]


REFUSALS = pytest.mark.parametrize(
    "refused",
    [overflows(), opens().then_overflows()],
    ids=["before it opens", "before the first word"],
)


@pytest.mark.case(381, 382)
@REFUSALS
async def test_a_tool_that_has_run_does_not_run_again(
    open_app: OpenApp, tmp_path: Path, refused: Play
) -> None:
    kitchen = Kitchen()
    model = ScriptedModel(says("Let me see. ").calls("cook", dish="soup"), refused, says("Served."))
    cls = roomy(model, Shortener(), get_tools=lambda self: kitchen.tools)
    app = await open_app(cls)
    await app.agent(cls).add_messages(OLD)
    witness = Witness(await home_of(app, cls))

    result = await app.agent(cls).save_messages("Soup, please.")

    # Then the soup was cooked once, and the last prompt is the summary with the call and its result
    assert (result.status, kitchen.done, model.asked) == ("completed", ["soup"], 3)
    assert prompt(model.last_request) == [
        NOTE,
        ("assistant", SUMMARY),
        ("user", "Soup, please."),
        ("assistant", "Let me see. "),
        ("tool", ""),
    ]
    assert pairs(model.last_request) == [
        ("call", "call_1", {"dish": "soup"}),
        ("result", "call_1", "soup, hot"),
    ]
    # And readers saw one stream, without anything taken back
    assert not any(isinstance(shown, TurnRewound) for shown in witness.shown)
    assert sum(isinstance(chunk, ui.Start) for chunk in witness.chunks) == 1
    assert sum(isinstance(chunk, ui.ToolOutputAvailable) for chunk in witness.chunks) == 1
    assert [chunk.delta for chunk in witness.chunks if isinstance(chunk, ui.TextDelta)] == [
        "Let me see. ",
        "Served.",
    ]
    answer = Database(tmp_path).messages()[-1]
    assert [part["type"] for part in answer["parts"]] == [
        "step-start", "text", "tool-cook", "step-start", "text",
    ]  # fmt: skip
    assert [row["state"] for row in Database(tmp_path).calls().values()] == ["done"]


async def test_text_after_a_settled_tool_stays_and_is_gone_on_from(open_app: OpenApp) -> None:
    kitchen = Kitchen()
    model = ScriptedModel(calls("cook", dish="soup"), says("The soup ").then_overflows(), says("is served."))
    cls = roomy(model, Shortener(), get_tools=lambda self: kitchen.tools)
    app = await open_app(cls)
    await app.agent(cls).add_messages(OLD)

    result = await app.agent(cls).save_messages("Soup, please.")

    assert (result.text, kitchen.done) == ("The soup is served.", ["soup"])
    assert prompt(model.last_request)[-2:] == [("assistant", "The soup "), ("user", CONTINUE_NUDGE)]


async def test_a_refusal_in_the_middle_of_a_step_lets_its_tools_finish_first(open_app: OpenApp) -> None:
    # Given a provider that refuses right after it has asked for a call
    kitchen = Kitchen()
    model = ScriptedModel(calls("cook", dish="soup").then_overflows(), says("Served."))
    cls = roomy(model, Shortener(), get_tools=lambda self: kitchen.tools)
    app = await open_app(cls)
    await app.agent(cls).add_messages(OLD)

    result = await app.agent(cls).save_messages("Soup, please.")

    assert (result.status, kitchen.done) == ("completed", ["soup"])
    assert pairs(model.last_request) == [
        ("call", "call_1", {"dish": "soup"}),
        ("result", "call_1", "soup, hot"),
    ]


async def test_parallel_tools_run_once_each_whatever_came_of_them(open_app: OpenApp, tmp_path: Path) -> None:
    # Given three calls at once of which one fails, and a refusal after them
    kitchen, gate = Kitchen(), asyncio.Event()

    @tool
    async def slow(dish: str) -> str:
        """Cook a dish slowly."""
        await gate.wait()
        kitchen.done.append(f"slow {dish}")
        return f"{dish}, at last"

    step = calls("slow", dish="roast", id="a").calls("cook", dish="soup", id="b").calls("burn", dish="fish")
    model = ScriptedModel(step, overflows(), says("Served."))
    cls = roomy(model, Shortener(), get_tools=lambda self: [*kitchen.tools, slow])
    app = await open_app(cls)
    await app.agent(cls).add_messages(OLD)
    witness = Witness(await home_of(app, cls))
    turn = asyncio.ensure_future(app.agent(cls).save_messages("All of it."))
    await witness.until(lambda: any(isinstance(c, ui.ToolOutputError) for c in witness.chunks))
    gate.set()
    result = await turn

    assert result.status == "completed"
    assert sorted(kitchen.done) == ["burnt fish", "slow roast", "soup"]
    asked = [pair[:2] for pair in pairs(model.last_request)]
    assert [id for kind, id in asked if kind == "call"] == ["a", "b", "call_1"]
    assert sorted(id for kind, id in asked if kind == "result") == ["a", "b", "call_1"]
    assert {id: row["state"] for id, row in Database(tmp_path).calls().items()} == {
        "a": "done",
        "b": "done",
        "call_1": "failed",
    }


async def test_a_turn_may_be_too_long_after_each_of_its_tools(open_app: OpenApp) -> None:
    # Given a function that leaves three messages at first, and one the next time
    kitchen, fn = Kitchen(), Shortener(tail=3)

    def refuses(request: Request) -> Play:
        fn.tail = 1
        return overflows()

    model = ScriptedModel(
        calls("cook", dish="soup"), overflows(), calls("cook", dish="fish"), refuses, says("Served.")
    )
    setting = ContextOverflow(reactive=True, max_retries=2)
    cls = roomy(model, fn, overflow=setting, get_tools=lambda self: kitchen.tools)
    app = await open_app(cls)
    await app.agent(cls).add_messages(talk("A bee?", "A long story.", "A wasp?", "A story as long as that."))
    events = record_events(app, "chat:context:compacted")

    result = await app.agent(cls).save_messages("Soup and fish.")

    assert (result.status, result.text, kitchen.done) == ("completed", "Served.", ["soup", "fish"])
    assert [(e.body.attempt, e.body.shortened) for e in events] == [(1, True), (2, True)]
    assert prompt(model.requests[2])[:4] == [
        NOTE,
        ("assistant", SUMMARY),
        ("user", "A wasp?"),
        ("assistant", "A story as long as that."),
    ]
    assert prompt(model.last_request)[:3] == [
        NOTE,
        ("assistant", f"{SUMMARY} (2)"),
        ("user", "Soup and fish."),
    ]
    assert [pair[:2] for pair in pairs(model.last_request)] == [
        ("call", "call_1"), ("result", "call_1"), ("call", "call_2"), ("result", "call_2"),
    ]  # fmt: skip


async def test_a_refusal_without_retries_left_keeps_what_the_tools_did(open_app: OpenApp) -> None:
    kitchen = Kitchen()
    model = ScriptedModel(calls("cook", dish="soup"), overflows(), calls("cook", dish="fish"), overflows())
    cls = roomy(model, Shortener(), get_tools=lambda self: kitchen.tools)
    app = await open_app(cls)
    await app.agent(cls).add_messages(OLD)

    result = await app.agent(cls).save_messages("Soup and fish.")

    assert (result.status, kitchen.done) == ("error", ["soup", "fish"])
    assert result.message is not None
    assert [part["output"] for part in result.message.tool_parts] == ["soup, hot", "fish, hot"]


async def test_a_call_that_waits_for_a_person_is_asked_for_anew(open_app: OpenApp, tmp_path: Path) -> None:
    # Given a call that needs a yes, and a refusal before anybody could say it
    done: list[str] = []

    @tool(needs_approval=True)
    async def pay(amount: int) -> str:
        """Pay."""
        done.append(f"{amount}")
        return "paid"

    model = ScriptedModel(calls("pay", amount=1).then_overflows(), calls("pay", amount=2, id="again"))
    cls = roomy(model, Shortener(), get_tools=lambda self: [pay])
    app = await open_app(cls)
    await app.agent(cls).add_messages(OLD)

    await app.agent(cls).save_messages("Pay the bill.")

    # Then only the new call waits, and saying yes to it pays once
    answer = Database(tmp_path).messages()[-1]
    parts = [part for part in answer["parts"] if part["type"] == "tool-pay"]
    assert [(part["toolCallId"], part["state"]) for part in parts] == [("again", "approval-requested")]
    assert list(Database(tmp_path).calls()) == ["again"]
    assert done == []
