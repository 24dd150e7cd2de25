"""Shortening in the middle of a turn, before a step that would come too close to the model's limit."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from everthink import Message, StepConfig, Think, TurnConfig, tool
from everthink.hooks import StepContext
from everthink.models.port import Usage
from everthink.session.summary import Compaction
from everthink.testing.scripted import Play, ScriptedModel, calls, overflows, says
from everthink.turn.overflow import ContextOverflow, Proactive, is_near
from tests.conftest import OpenApp
from tests.support.overflow import NOTE, SUMMARY, Shortener, pairs, roomy, talk
from tests.support.turns import Database, all_over, home_of, prompt, record_events

pytestmark = pytest.mark.anyio

OLD = talk("What is a bee?", "An insect, and a long story about it.", "And a wasp?", "Its cousin.")
COMPACTED = "chat:context:compacted"


@tool
def count(upto: int) -> str:
    """Count."""
    return f"counted to {upto}"


def tools(self: Any) -> list[Any]:
    return [count]


def counting(upto: int, tokens: int) -> Play:
    return calls("count", upto=upto, id=f"c{upto}").uses(tokens, 10)


def careful(model: ScriptedModel, fn: Any, *, reactive: bool = False, **options: Any) -> type[Think]:
    setting = ContextOverflow(reactive=reactive, proactive=Proactive(1000, **options))
    return roomy(model, fn, overflow=setting, get_tools=tools)


def talked(count: int) -> list[tuple[str, str, Any]]:
    """The pairs of the first `count` calls."""
    return [
        pair
        for n in range(1, count + 1)
        for pair in [("call", f"c{n}", {"upto": n}), ("result", f"c{n}", f"counted to {n}")]
    ]


@pytest.mark.case(391)
async def test_the_conversation_is_shortened_between_two_steps(open_app: OpenApp, tmp_path: Path) -> None:
    # Given a step that took nine tenths of what the model takes
    model, fn = ScriptedModel(counting(1, 900), says("One.")), Shortener()
    cls = careful(model, fn)
    app = await open_app(cls)
    await app.agent(cls).add_messages(OLD)
    events = record_events(app, COMPACTED)

    result = await app.agent(cls).save_messages("Count!")

    # Then the next one is asked with a summary, followed by what this turn did
    assert (result.status, result.text, fn.asked) == ("completed", "One.", 1)
    assert prompt(model.requests[0])[0] == ("user", "What is a bee?")
    assert prompt(model.requests[1]) == [
        NOTE,
        ("assistant", SUMMARY),
        ("user", "Count!"),
        ("assistant", ""),
        ("tool", ""),
    ]
    assert pairs(model.requests[1]) == talked(1)
    (event,) = events
    told = (event.body.reason, event.body.shortened, event.body.request_id, event.body.attempt)
    assert told == ("proactive", True, None, None)
    assert Database(tmp_path).texts() == [*(m.text for m in OLD), "Count!", "One."]


@pytest.mark.case(392)
async def test_it_may_happen_twice_and_calls_stay_paired(open_app: OpenApp) -> None:
    # Given a function that leaves three messages at first, and one the second time
    fn = Shortener(tail=3)

    def second(request: Any) -> Play:
        fn.tail = 1
        return counting(2, 950)

    model = ScriptedModel(counting(1, 950), second, says("Two."))
    cls = careful(model, fn, max_compactions=2)
    app = await open_app(cls)
    await app.agent(cls).add_messages(OLD)
    events = record_events(app, COMPACTED)

    result = await app.agent(cls).save_messages("Count!")

    assert result.text == "Two."
    first, *later = map(prompt, model.requests)
    assert [first, *(said[:-2] for said in later)] == [
        [*(("assistant" if n % 2 else "user", m.text) for n, m in enumerate(OLD)), ("user", "Count!")],
        [
            NOTE,
            ("assistant", SUMMARY),
            ("user", "And a wasp?"),
            ("assistant", "Its cousin."),
            ("user", "Count!"),
        ],
        [NOTE, ("assistant", f"{SUMMARY} (2)"), ("user", "Count!"), ("assistant", ""), ("tool", "")],
    ]
    assert [pairs(request) for request in model.requests] == [talked(0), talked(1), talked(2)]
    assert [e.body.shortened for e in events] == [True, True]
    assert [m.text for m in await app.agent(cls).get_messages()] == [f"{SUMMARY} (2)", "Count!", "Two."]


@pytest.mark.case(396)
async def test_the_shortened_head_holds_for_all_later_steps(open_app: OpenApp) -> None:
    model = ScriptedModel(counting(1, 950), counting(2, 950), counting(3, 20), says("Three."))
    fn = Shortener()
    cls = careful(model, fn)
    app = await open_app(cls)
    await app.agent(cls).add_messages(OLD)

    assert (await app.agent(cls).save_messages("Count!")).text == "Three."

    assert fn.asked == 1
    for number, request in enumerate(model.requests[1:], 1):
        assert prompt(request)[:3] == [NOTE, ("assistant", SUMMARY), ("user", "Count!")]
        assert pairs(request) == talked(number)


@pytest.mark.case(393)
@pytest.mark.parametrize("how", ["nothing", "raises"])
async def test_a_compaction_without_effect_uses_its_slot(open_app: OpenApp, how: str) -> None:
    asked = 0

    def fn(messages: list[Message], context: Any) -> Compaction | None:
        nonlocal asked
        asked += 1
        if how == "raises":
            raise RuntimeError("no summary today")
        return None

    model = ScriptedModel(counting(1, 950), counting(2, 950), says("Two."))
    cls = careful(model, fn)
    app = await open_app(cls)
    await app.agent(cls).add_messages(OLD)
    events = record_events(app, COMPACTED)

    result = await app.agent(cls).save_messages("Count!")

    assert (result.text, asked) == ("Two.", 1)
    assert [e.body.shortened for e in events] == [False]
    assert prompt(model.last_request)[0] == ("user", "What is a bee?")
    assert pairs(model.last_request) == talked(2)


@pytest.mark.case(390)
async def test_both_ways_work_in_one_turn(open_app: OpenApp) -> None:
    # Given a guard that was not enough: the provider still refuses
    fn = Shortener(tail=3)

    def refuses(request: Any) -> Play:
        fn.tail = 1
        return overflows()

    model = ScriptedModel(counting(1, 950), refuses, says("One."))
    cls = careful(model, fn, reactive=True)
    app = await open_app(cls)
    await app.agent(cls).add_messages(OLD)
    events = record_events(app, COMPACTED)

    result = await app.agent(cls).save_messages("Count!")

    assert (result.text, model.asked) == ("One.", 3)
    assert [e.body.reason for e in events] == ["proactive", "reactive"]
    assert prompt(model.last_request)[:3] == [NOTE, ("assistant", f"{SUMMARY} (2)"), ("user", "Count!")]
    assert pairs(model.last_request) == talked(1)


@pytest.mark.parametrize("tokens", [0, 899, None])
async def test_a_step_that_stayed_away_from_the_limit_shortens_nothing(
    open_app: OpenApp, tokens: int | None
) -> None:
    step = calls("count", upto=1) if tokens is None else counting(1, tokens)
    model, fn = ScriptedModel(step, says("One.")), Shortener()
    cls = careful(model, fn)
    app = await open_app(cls)
    await app.agent(cls).add_messages(OLD)
    await app.agent(cls).save_messages("Count!")
    assert fn.asked == 0
    assert prompt(model.last_request)[0] == ("user", "What is a bee?")


async def test_the_last_step_of_a_turn_shortens_nothing_ahead(open_app: OpenApp) -> None:
    model, fn = ScriptedModel(says("Done.").uses(999, 1), says("Again.").uses(999, 1)), Shortener()
    cls = careful(model, fn)
    app = await open_app(cls)
    await app.agent(cls).add_messages(OLD)
    await app.agent(cls).save_messages("One?")
    await app.agent(cls).save_messages("Two?")
    assert fn.asked == 0


@pytest.mark.parametrize(
    ("usage", "setting", "near"),
    [
        (Usage(900), Proactive(1000), True),
        (Usage(899), Proactive(1000), False),
        (Usage(None, None, 900), Proactive(1000), True),
        (Usage(1, None, 900), Proactive(1000), False),
        (Usage(500), Proactive(1000, headroom=0.5), True),
        (Usage(900), Proactive(0), False),
        (Usage(900), Proactive(-1), False),
        (Usage(float("nan")), Proactive(1000), False),  # type: ignore[arg-type]
        (Usage(float("inf")), Proactive(1000), False),  # type: ignore[arg-type]
        (Usage(), Proactive(1000), False),
        (None, Proactive(1000), False),
        (Usage(900), None, False),
    ],
)
def test_what_counts_as_near(usage: Usage | None, setting: Proactive | None, near: bool) -> None:
    assert is_near(setting, usage) is near


async def test_the_hook_before_a_step_has_the_last_word_about_its_messages(open_app: OpenApp) -> None:
    shown: list[Any] = []

    def before_step(self: Think, step: StepContext) -> StepConfig | None:
        shown.append(len(step.messages))
        return StepConfig(messages=list(step.messages)[-3:]) if step.step_number == 1 else None

    model = ScriptedModel(counting(1, 950), says("One."))
    setting = ContextOverflow(proactive=Proactive(1000))
    cls = roomy(model, Shortener(), overflow=setting, get_tools=tools, before_step=before_step)
    app = await open_app(cls)
    await app.agent(cls).add_messages(OLD)
    await app.agent(cls).save_messages("Count!")
    assert shown == [5, 5]
    assert prompt(model.last_request) == [("user", "Count!"), ("assistant", ""), ("tool", "")]


async def test_what_was_said_meanwhile_is_not_in_the_shortened_head(open_app: OpenApp) -> None:
    # Given a message that somebody adds while the turn runs
    model = ScriptedModel()
    cls = careful(model, Shortener(tail=2))
    app = await open_app(cls)
    agent = app.agent(cls)
    await agent.add_messages(OLD)

    async def interrupt() -> None:
        await agent.add_messages(Message("later", "user", [{"type": "text", "text": "By the way."}]))

    model.add(counting(1, 950).waits(interrupt), says("One."))
    await agent.save_messages("Count!")

    # Then this turn still answers what it was asked
    assert prompt(model.last_request)[:3] == [NOTE, ("assistant", SUMMARY), ("user", "Count!")]
    assert "By the way." not in str(model.last_request.messages)


async def test_a_shortened_head_takes_the_place_of_messages_that_before_turn_chose(open_app: OpenApp) -> None:
    # Given a hook that shows the model only the question
    def before_turn(self: Think, turn: Any) -> TurnConfig:
        return TurnConfig(messages=list(turn.messages)[-1:])

    model = ScriptedModel(counting(1, 950), says("One."))
    setting = ContextOverflow(proactive=Proactive(1000))
    cls = roomy(model, Shortener(), overflow=setting, get_tools=tools, before_turn=before_turn)
    app = await open_app(cls)
    await app.agent(cls).add_messages(OLD)
    await app.agent(cls).save_messages("Count!")
    assert prompt(model.requests[0]) == [("user", "Count!")]
    assert prompt(model.requests[1]) == [
        NOTE, ("assistant", SUMMARY), ("user", "Count!"), ("assistant", ""), ("tool", ""),
    ]  # fmt: skip


async def test_an_abort_while_it_shortens_ahead_keeps_what_the_tool_did(
    open_app: OpenApp, tmp_path: Path
) -> None:
    begun, gate = asyncio.Event(), asyncio.Event()

    async def fn(messages: list[Message], context: Any) -> Compaction | None:
        begun.set()
        await gate.wait()
        return Compaction(messages[0].id, messages[1].id, SUMMARY)

    model = ScriptedModel(counting(1, 950))
    cls = careful(model, fn)
    app = await open_app(cls)
    await app.agent(cls).add_messages(OLD)
    asking = asyncio.ensure_future(app.agent(cls).save_messages("Count!"))
    await begun.wait()
    (await home_of(app, cls)).chat.host.aborts.destroy_all()
    result = await asking
    gate.set()
    await all_over(app, cls)

    assert (result.status, model.asked) == ("aborted", 1)
    assert [row["state"] for row in Database(tmp_path).calls().values()] == ["done"]
    answer = Database(tmp_path).messages()[-1]
    assert [part["output"] for part in answer["parts"] if "output" in part] == ["counted to 1"]
    assert Database(tmp_path).rows("SELECT * FROM compactions") == []
