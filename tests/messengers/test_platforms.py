"""Whole conversations on every platform: asked once, answered once, whole, whatever happens."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from everthink import App, tool
from everthink.errors import InvalidSettings
from everthink.messengers import DeliveryPolicy
from everthink.models.port import TextPart, UserMessage
from everthink.testing import ManualClock, ScriptedModel, calls, says
from everthink.testing.platform import posted
from tests.support.platforms import (
    STAGES,
    Bot,
    DiscordStage,
    SlackStage,
    Stage,
    bot_class,
    outcome,
    passing,
    serving,
)

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("soon")]


@pytest.mark.parametrize("made", list(STAGES.values()), ids=list(STAGES))
async def test_a_fault_that_would_never_strike_is_refused(made: Callable[..., Stage]) -> None:
    stage = made()
    near = stage.first[:-1]
    with pytest.raises(InvalidSettings, match=f"Did you mean '{stage.first}'"):
        stage.platform.fault(near, "500")
    with pytest.raises(InvalidSettings, match="'503' is no kind of fault"):
        stage.platform.fault(stage.first, "503")  # pyright: ignore[reportArgumentType]
    assert stage.platform.faults == []


@pytest.fixture(params=["telegram", "slack", "discord"])
async def stage(request: pytest.FixtureRequest, anyio_backend: str) -> AsyncIterator[Stage]:
    made = STAGES[request.param]()
    async with made.platform:
        yield made


knowing = pytest.mark.parametrize("stage", ["slack", "discord"], indirect=True)
"""Platforms that sign what they send, and can say whether a message is there."""


@pytest.fixture
def store(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/bot.db"


def rows(tmp_path: Path, sql: str) -> list[tuple[Any, ...]]:
    with sqlite3.connect(tmp_path / "bot.db") as database:
        return database.execute(sql).fetchall()


async def settled(stage: Stage, texts: list[str]) -> None:
    """Wait until Ann sees these messages."""
    await stage.platform.until(lambda: [shown.text for shown in stage.answers()] == texts)


# --- who is let in


@pytest.mark.agent_case(388)
@knowing
async def test_a_body_that_was_changed_or_is_old_is_refused_and_nothing_of_it_is_kept(
    stage: Stage, store: str, tmp_path: Path
) -> None:
    model = ScriptedModel(says("Paris."))
    async with serving(stage, bot_class(stage, model), store):
        told = await stage.ask("Capital of France?")
        await settled(stage, ["Paris."])
        url = getattr(stage.platform, "request_url", None) or stage.platform.endpoint  # type: ignore[attr-defined]
        before = rows(tmp_path, "SELECT COUNT(*) FROM turns")

        headers = stage.headers(told)
        changed = told.body.replace(b"France", b"Frence")
        unsigned = {"content-type": told.content_type}
        late = dict(headers)
        for name in ("x-slack-request-timestamp", "x-signature-timestamp"):
            if name in late:
                late[name] = str(int(late[name]) - 3600)
        refused = [
            await posted(url, headers, changed),
            await posted(url, unsigned, told.body),
            await posted(url, late, told.body),
            await posted(url, unsigned, b"{"),
        ]

    assert changed != told.body
    assert [answer.status for answer in refused] == [401, 401, 401, 401]
    assert rows(tmp_path, "SELECT COUNT(*) FROM turns") == before
    assert len(model.requests) == 1


async def test_what_was_sent_before_is_the_same_message(stage: Stage, store: str) -> None:
    model = ScriptedModel(says("Paris."))
    cls = bot_class(stage, model)
    async with serving(stage, cls, store):
        told = await stage.ask("Capital of France?")
        await settled(stage, ["Paris."])
        again = await asyncio.gather(*(stage.redeliver(told) for _ in range(4)))
        assert {delivery.status for delivery in again} == {200}
    async with serving(stage, cls, store):
        assert (await stage.redeliver(told)).status == 200

    assert len(model.requests) == 1
    assert [shown.text for shown in stage.answers()] == ["Paris."]


async def test_what_means_nothing_is_answered_and_counted(stage: Stage, store: str) -> None:
    async with serving(stage, bot_class(stage, ScriptedModel()), store) as app:
        ignored: list[Any] = []
        app.events.subscribe(ignored.append, type="messenger:ignored")

        assert (await stage.tell(stage.unknown())).status == 200

        assert len(ignored) == 1


# --- what is shown


async def test_a_long_answer_comes_in_parts_that_are_the_whole_of_it(stage: Stage, store: str) -> None:
    words = " ".join(f"word{number}" for number in range(stage.limit * 5 // 2 // 8))
    async with serving(stage, bot_class(stage, ScriptedModel(says(words))), store):
        await stage.ask("Tell me everything")
        await stage.platform.until(
            lambda: sum(len(shown.text) for shown in stage.answers()) >= len(words) - 4
        )

    texts = [shown.text for shown in stage.answers()]
    assert len(texts) == 3
    assert all(len(text) <= stage.limit for text in texts)
    assert "".join(texts).split() == words.split() or " ".join(texts).split() == words.split()


async def test_an_answer_is_shown_while_it_is_written_in_one_message(stage: Stage, store: str) -> None:
    go = asyncio.Event()
    model = ScriptedModel(says("It is a long way to the ").waits(go).says("next town."))
    async with serving(stage, bot_class(stage, model), store):
        await stage.ask("How far?")
        await settled(stage, ["It is a long way to the"])
        go.set()
        await settled(stage, ["It is a long way to the next town."])

    (shown,) = stage.answers()
    assert shown.before[0] == "It is a long way to the"


class Clerk(Bot):
    """Does what must be agreed to."""

    done: list[str] = []  # noqa: RUF012

    @tool(needs_approval=True)
    async def refund(self, order: str) -> str:
        """Give the money back."""
        self.done.append(order)
        return f"refunded {order}"


@knowing
async def test_an_approval_is_a_question_with_buttons_for_whoever_asked(stage: Stage, store: str) -> None:
    model = ScriptedModel(says("Let me see.").calls("refund", order="o1"), says("The money is back."))
    cls = type("Clerk", (Clerk,), {"done": []})
    async with serving(stage, bot_class(stage, model, base=cls), store):
        await stage.ask("Refund o1")
        await stage.platform.until(lambda: any(shown.buttons for shown in stage.answers()))
        question = stage.answers()[-1]
        assert "refund" in question.text
        assert [button.label for button in question.buttons] == ["Approve", "Deny"]

        await stage.press(question, "Approve", by="bob")
        assert cls.done == []
        await stage.press(question, "Approve", by="ann")
        await stage.platform.until(lambda: stage.answers()[-1].text == "The money is back.")
        await stage.platform.until(lambda: not question.buttons)

    assert cls.done == ["o1"]
    assert [outcome(shown.text) for shown in stage.answers()] == [
        "Let me see.",
        "✅ Approved by ann." if stage.name == "slack" else "✅ Approved by Ann.",
        "The money is back.",
    ]
    assert stage.told("bob") == ["This is not yours to decide."]
    assert stage.told("ann") == []


@knowing
async def test_a_call_that_waits_without_a_word_leaves_nothing_else_on_the_screen(
    stage: Stage, store: str
) -> None:
    model = ScriptedModel(calls("refund", order="o1"), says("As you wish."))
    cls = type("Clerk", (Clerk,), {"done": []})
    async with serving(stage, bot_class(stage, model, base=cls), store):
        await stage.ask("Refund o1")
        await stage.platform.until(lambda: any(shown.buttons for shown in stage.answers()))
        question = stage.answers()[-1]
        await stage.press(question, "Deny")
        await stage.platform.until(lambda: stage.answers()[-1].text == "As you wish.")
        await stage.platform.until(lambda: not question.buttons)

    assert cls.done == []
    assert [outcome(shown.text).partition(" by")[0] for shown in stage.answers()] == [
        "🚫 Denied",
        "As you wish.",
    ]
    assert not any(shown.is_loading for shown in every(stage))


async def test_a_button_that_is_pressed_before_we_know_that_it_is_there_is_answered(
    stage: Stage, store: str
) -> None:
    go = asyncio.Event()
    model = ScriptedModel(
        says("Let me see whether I may. ").waits(go).calls("refund", order="o1"), says("The money is back.")
    )
    cls = type("Clerk", (Clerk,), {"done": []})
    async with serving(stage, bot_class(stage, model, base=cls), store):
        # Given a question that Ann sees, while the platform's yes to it is still on its way
        await stage.ask("Refund o1")
        await stage.platform.until(stage.answers)
        slow = stage.platform.fault(stage.follow, "slow")
        go.set()
        await stage.platform.until(lambda: stage.answers()[-1].buttons)
        question = stage.answers()[-1]

        # When she presses
        pressing = asyncio.create_task(stage.press(question, "Approve"))
        await stage.platform.until(lambda: stage.platform.deliveries[-1].attempts)
        slow.release()
        await pressing

        # Then the question says so, and is no second message
        await stage.platform.until(lambda: stage.answers()[-1].text == "The money is back.")
        await stage.platform.until(lambda: not question.buttons)
    assert [outcome(shown.text).partition(" by")[0] for shown in stage.answers()] == [
        "Let me see whether I may.",
        "✅ Approved",
        "The money is back.",
    ]
    assert cls.done == ["o1"]


async def test_commands_that_are_answered_together_leave_nobody_waiting(
    store: str, anyio_backend: str
) -> None:
    stage = DiscordStage()
    async with stage.platform:
        cls = bot_class(stage, ScriptedModel(says("Both.")), burst=0.3)
        async with serving(stage, cls, store):
            await asyncio.gather(stage.ask("One"), stage.ask("Two"))
            await settled(stage, ["Both."])
            await stage.platform.until(lambda: not any(shown.is_loading for shown in every(stage)))


def every(stage: Stage) -> list[Any]:
    """All that is on Ann's screen."""
    return stage.platform.seen("@ann", by="ann")  # type: ignore[attr-defined]


@knowing
async def test_an_answer_that_is_stopped_leaves_nobody_waiting(stage: Stage, store: str) -> None:
    model = ScriptedModel(says("").then_hangs())
    async with serving(stage, bot_class(stage, model, commands=["stop"]), store):
        await stage.ask("How far?")
        await model.until_silent()
        await stage.ask("/stop")
        await settled(stage, ["Stopped."])
        await stage.platform.until(lambda: not any(shown.is_loading for shown in every(stage)))


# --- many


async def test_fifty_people_at_once_are_each_answered_once(stage: Stage, store: str) -> None:
    people = [f"p{number}" for number in range(50)]
    model = ScriptedModel(lambda request: says(f"Hello, {said_in(request)[-1]}."), repeat=True)
    async with serving(stage, bot_class(stage, model), store):
        told = await asyncio.gather(*(stage.ask(f"I am {name}", by=name) for name in people))
        await stage.platform.until(lambda: all(stage.answers(name) for name in people))
    assert {one.status for one in told} == {200}
    assert [[shown.text for shown in stage.answers(name)] for name in people] == [
        [f"Hello, I am {name}."] for name in people
    ]


async def test_a_burst_of_five_is_answered_once_and_for_all_of_it(stage: Stage, store: str) -> None:
    clock = ManualClock()
    stage.platform.now = lambda: clock.now_ms() / 1000
    model = ScriptedModel(lambda request: says(" ".join(said_in(request))), repeat=True)
    async with serving(stage, bot_class(stage, model, burst=0.6), store, clock=clock):
        for word in ("one", "two", "three", "four", "five"):
            assert (await stage.ask(word)).status == 200
        await clock.advance(0.7)
        await settled(stage, ["one two three four five"])
    assert len(model.requests) == 1


def said_in(request: Any) -> list[str]:
    """What people have said, oldest first."""
    return [
        part.text
        for message in request.messages
        if isinstance(message, UserMessage)
        for part in message.content
        if isinstance(part, TextPart)
    ]


# --- what goes wrong


async def test_a_platform_that_wants_to_be_left_alone_is_left_alone(
    request: pytest.FixtureRequest, store: str, stage: Stage
) -> None:
    clock = ManualClock()
    stage.platform.now = lambda: clock.now_ms() / 1000
    stage.platform.fault(stage.first, "429", times=3, retry_after=30)
    async with serving(stage, bot_class(stage, ScriptedModel(says("Paris."))), store, clock=clock):
        await stage.ask("Capital of France?")
        for refused in (1, 2, 3):
            await stage.platform.until(
                lambda refused=refused: len(stage.platform.asked(stage.first)) == refused
            )
            await clock.until_waiting()
            assert stage.answers() == []
            await clock.advance(29)
            assert len(stage.platform.asked(stage.first)) == refused
            await clock.advance(2)
        await settled(stage, ["Paris."])


async def test_an_answer_that_is_shown_already_waits_only_with_its_end_while_the_platform_is_left_alone(
    stage: Stage, store: str
) -> None:
    # Given an answer of which Ann sees the beginning, and a platform that has had enough
    clock = ManualClock()
    stage.platform.now = lambda: clock.now_ms() / 1000
    middle, end = asyncio.Event(), asyncio.Event()
    model = ScriptedModel(
        says("It is a long way to the ").waits(middle).says("next ").waits(end).says("town, but not too far.")
    )
    async with serving(stage, bot_class(stage, model), store, clock=clock):
        await stage.ask("How far?")
        await passing(stage.platform, clock, stage.answers)
        edit = edits(stage)
        stage.platform.fault(edit, "429", times=2, retry_after=30)

        # When there is more to be shown, and more again
        middle.set()
        await passing(stage.platform, clock, lambda: stage.platform.asked(edit))
        end.set()
        await passing(stage.platform, clock, lambda: len(stage.answers()[0].before) == 1)

    # Then it was left alone as long as it asked, and is told the end of it, not what came between
    (shown,) = stage.answers()
    assert (shown.before, shown.text) == (
        ["It is a long way to the"],
        "It is a long way to the next town, but not too far.",
    )
    times = [asked.at for asked in stage.platform.asked(edit)]
    assert [later - earlier >= 30 for earlier, later in pairwise(times)] == [True, True]


def edits(stage: Stage) -> str:
    return "edit_followup" if stage.name == "discord" else stage.edit


@pytest.mark.parametrize("kind", ["500", "hang", "accept_then_hang", "accept_then_drop"])
async def test_an_edit_that_goes_wrong_is_made_again(stage: Stage, store: str, kind: Any) -> None:
    go = asyncio.Event()
    model = ScriptedModel(says("It is a long way to the ").waits(go).says("next town."))
    cls = bot_class(stage, model)
    adapter: Any = cls.messengers[stage.name].messenger  # type: ignore[attr-defined]
    adapter._rest._timeout = 0.2
    async with serving(stage, cls, store):
        await stage.ask("How far?")
        await settled(stage, ["It is a long way to the"])
        fault = stage.platform.fault(edits(stage), kind, times=2)
        go.set()
        await stage.platform.until(lambda: len(stage.platform.asked(edits(stage))) == 3)
        await settled(stage, ["It is a long way to the next town."])
    assert fault.met == 2


@pytest.mark.parametrize("kind", ["accept_then_drop", "500"])
async def test_a_message_of_which_nobody_knows_is_shown_once(stage: Stage, store: str, kind: Any) -> None:
    fault = stage.platform.fault(stage.first, kind, times=2)
    if stage.name == "slack":
        stage.platform.fault("conversations.history", "500", times=1)
    async with serving(stage, bot_class(stage, ScriptedModel(says("Paris."))), store):
        await stage.ask("Capital of France?")
        await settled(stage, ["Paris."])
        await stage.platform.until(lambda: fault.met == (1 if kind != "500" and stage.name == "slack" else 2))


@knowing
async def test_a_message_whose_answer_means_nothing_to_the_adapter_is_shown_once(
    stage: Stage, store: str
) -> None:
    cls = bot_class(stage, ScriptedModel(says("Paris.")))
    adapter: Any = cls.messengers[stage.name].messenger  # type: ignore[attr-defined]
    post = adapter.post

    async def fails_once(*args: Any, **options: Any) -> str:
        adapter.post = post
        await post(*args, **options)
        raise KeyError("ts")

    adapter.post = fails_once
    async with serving(stage, cls, store) as app:
        await stage.ask("Capital of France?")
        await all_over(app)
    assert [shown.text for shown in stage.answers()] == ["Paris."]
    assert adapter.post == post


@pytest.mark.agent_case(403)
@knowing
async def test_a_message_that_was_shown_before_the_process_died_is_found_again(
    stage: Stage, store: str
) -> None:
    # Given a first part that Ann sees, of which the process never heard
    model = ScriptedModel(says("It is a long way to the ").then_hangs(), says("next town."))
    cls = bot_class(stage, model)
    hanging = stage.platform.fault(stage.first, "accept_then_hang")
    async with serving(stage, cls, store):
        await stage.ask("How far?")
        await stage.platform.until(lambda: hanging.met)
        assert [shown.text for shown in stage.answers()] == ["It is a long way to the"]

    # When another process goes on
    async with serving(stage, cls, store):
        await settled(stage, ["It is a long way to the next town."])


@knowing
async def test_what_follows_and_was_shown_before_the_process_died_is_not_shown_twice(
    stage: Stage, store: str
) -> None:
    words = " ".join(f"word{number}" for number in range(stage.limit * 3 // 2 // 8))
    cls = bot_class(stage, ScriptedModel(says(words)))
    async with serving(stage, cls, store):
        await stage.ask("Tell me everything")
        if stage.first == stage.follow:
            await stage.platform.until(stage.answers)
        hanging = stage.platform.fault(stage.follow, "accept_then_hang")
        await stage.platform.until(lambda: hanging.met)
        assert len(stage.answers()) == 2

    async with serving(stage, cls, store) as app:
        await all_over(app)

    assert len(stage.answers()) == 2


async def all_over(app: App) -> None:
    """Return once a message is shown, or is not to be."""
    delivered = asyncio.Event()
    app.events.subscribe(
        lambda event: delivered.set(), type=("messenger:delivered", "messenger:delivery:failed")
    )
    await asyncio.wait_for(delivered.wait(), 20)


async def test_a_bot_that_is_not_let_in_any_more_stops_talking(
    stage: Stage, store: str, tmp_path: Path
) -> None:
    model = ScriptedModel(says("It is a long way to the ").then_hangs())
    async with serving(stage, bot_class(stage, model), store) as app:
        ended = over(app)
        stage.block()
        await stage.ask("How far?")
        await ended()

    assert stage.answers() == []
    assert rows(tmp_path, "SELECT state FROM deliveries") == [("failed",)]
    ((error,),) = rows(tmp_path, "SELECT error FROM deliveries")
    assert stage.name.title() in error


async def test_an_answer_that_somebody_has_deleted_is_not_written_any_further(
    stage: Stage, store: str, tmp_path: Path
) -> None:
    go = asyncio.Event()
    model = ScriptedModel(says("It is a long way to the ").waits(go).says("next ").then_hangs())
    async with serving(stage, bot_class(stage, model), store) as app:
        ended = over(app)
        await stage.ask("How far?")
        await stage.platform.until(stage.answers)
        stage.answers()[0].is_deleted = True
        go.set()
        await ended()

    assert stage.answers() == []
    assert rows(tmp_path, "SELECT state FROM deliveries") == [("failed",)]


def over(app: App) -> Callable[[], Awaitable[object]]:
    """Waits until a turn has ended."""
    ended = asyncio.Event()
    app.events.subscribe(lambda event: ended.set(), type="chat:turn:finish")
    return lambda: asyncio.wait_for(ended.wait(), 20)


# --- Slack, where the bot may not read what was said


@pytest.mark.parametrize(("how", "shown"), [("repeat", 2), ("skip", 1)])
async def test_where_nobody_can_look_the_developer_says_whether_it_is_shown_again(
    store: str, how: Any, shown: int, anyio_backend: str
) -> None:
    stage = SlackStage()
    async with stage.platform as slack:
        slack.scopes -= {"im:history"}
        cls = bot_class(stage, ScriptedModel(says("Paris.")), delivery=DeliveryPolicy(on_uncertain=how))
        hanging = slack.fault("chat.postMessage", "accept_then_hang")
        async with serving(stage, cls, store):
            await stage.ask("Capital of France?")
            await slack.until(lambda: hanging.met)
        async with serving(stage, cls, store) as app:
            await all_over(app)

        assert [answer.text for answer in stage.answers()] == ["Paris."] * shown
