"""Declared tasks: rows, timers and what happens when they are due."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from everthink import App, Retry, ScheduledTask, Think
from everthink.errors import InvalidRetry, InvalidScheduledTask
from everthink.schedules import queries
from everthink.schedules.queries import TaskRow
from everthink.testing import ManualClock, ScriptedModel, says
from everthink.timers import TaskContext
from tests.conftest import OpenApp
from tests.support.agents import assistant, live

pytestmark = pytest.mark.anyio

MORNING = round(datetime(2026, 1, 5, 8, 0, tzinfo=UTC).timestamp() * 1000)  # a Monday
DAY = 86_400


class Stage:
    """An agent whose declarations a test may change, on a clock of its own."""

    def __init__(self, open_app: OpenApp, **tasks: Any) -> None:
        self._open_app, self.tasks, self.clock = open_app, tasks, ManualClock(MORNING)
        self.zone: str | None = "Europe/London"
        self.model = ScriptedModel(*[says(f"Answer {n}.") for n in range(9)])
        self.errors: list[str] = []
        self.cls: type[Think] = assistant(
            self.model,
            get_scheduled_tasks=lambda agent: self.declared(),
            get_default_timezone=lambda agent: self.zone,
            on_error=lambda agent, error: self.errors.append(str(error)),
            remind=lambda self, payload: None,
        )
        self.app: App

    def declared(self) -> Any:
        return self.tasks() if callable(self.tasks) else self.tasks

    async def start(self) -> Any:
        self.app = await self._open_app(self.cls, clock=self.clock)
        self.agent = self.app.agent(self.cls, "room")
        return await live(self.agent)

    async def restart(self) -> Any:
        await self.app.close()
        return await self.start()

    async def passes(self, seconds: float) -> None:
        await self.clock.advance(seconds)
        await (await self.app.open()).waker.idle()
        await self.agent.wait_until_stable()

    async def goes_by(self, *, until: Callable[[], bool]) -> None:
        """Let little bits of time pass while the agent works."""
        while not until():
            await asyncio.sleep(0)
            await self.clock.advance(0.01)
        await self.passes(0)

    async def rows(self) -> dict[str, TaskRow]:
        home = (await live(self.agent))._home
        return {row[0]: TaskRow.of(row) for row in await home.store.fetch(queries.ALL)}

    async def due(self) -> list[tuple[str, str]]:
        found = await self.agent.list_schedules()
        return [(s.payload["taskId"], s.time.strftime("%dT%H:%M")) for s in found]

    async def said(self) -> list[str]:
        return [message.text for message in await self.agent.get_messages()]


def news(prompt: str = "What is new?", **fields: Any) -> ScheduledTask:
    return ScheduledTask(schedule=fields.pop("schedule", "every day at 09:00"), prompt=prompt, **fields)


async def test_a_task_written_as_a_dict_may_have_its_retry_as_one_and_a_slip_in_it_is_named(
    open_app: OpenApp,
) -> None:
    stage = Stage(open_app, news={"schedule": "every day at 09:00", "prompt": "What is new?"})
    stage.tasks["news"]["retry"] = {"maxAttempts": 2}
    agent = await stage.start()
    assert await stage.due() == [("news", "05T09:00")]
    stage.tasks["news"]["retry"] = {"max_attempt": 2}
    with pytest.raises(
        InvalidRetry, match=r'retry of the scheduled task "news".*Did you mean .max_attempts.'
    ):
        await agent.reconcile_scheduled_tasks()


@pytest.mark.case(616)
async def test_a_declared_task_has_a_row_and_one_timer(open_app: OpenApp) -> None:
    stage = Stage(open_app, news=news())
    await stage.start()
    assert await stage.due() == [("news", "05T09:00")]
    row = (await stage.rows())["news"]
    (timer,) = await stage.agent.list_schedules()
    assert (row.alarm_id, row.next_run_at) == (timer.id, MORNING + 3_600_000)


@pytest.mark.case(561)
async def test_a_restart_neither_doubles_nor_moves_a_timer(open_app: OpenApp) -> None:
    stage = Stage(open_app, news=news(), tick=ScheduledTask(schedule="every 7 minutes", handler=print))
    await stage.start()
    before, rows = await stage.agent.list_schedules(), await stage.rows()
    await stage.clock.advance(60)
    await stage.restart()
    assert await stage.agent.list_schedules() == before
    assert await stage.rows() == rows


@pytest.mark.case(617)
async def test_another_prompt_keeps_the_timer_and_is_the_one_that_is_asked(open_app: OpenApp) -> None:
    stage = Stage(open_app, news=news())
    await stage.start()
    before, row = await stage.agent.list_schedules(), (await stage.rows())["news"]
    stage.tasks["news"] = news("Anything new?", metadata={"a": 1})
    await stage.restart()
    assert await stage.agent.list_schedules() == before
    assert (await stage.rows())["news"].task_hash != row.task_hash
    await stage.passes(3600)
    assert await stage.said() == ["Anything new?", "Answer 0."]


@pytest.mark.case(618)
async def test_another_schedule_replaces_the_timer(open_app: OpenApp) -> None:
    stage = Stage(open_app, news=news())
    await stage.start()
    row = (await stage.rows())["news"]
    stage.tasks["news"] = news(schedule="every day at 10:00")
    await stage.restart()
    assert await stage.due() == [("news", "05T10:00")]
    assert (await stage.rows())["news"].schedule_hash != row.schedule_hash


@pytest.mark.case(619)
async def test_a_task_that_is_gone_takes_its_timer_along_and_nothing_else(open_app: OpenApp) -> None:
    stage = Stage(open_app, news=news(), other=news(schedule="every day at 10:00"))
    await stage.start()
    mine = await stage.agent.schedule(500, "remind", "x")
    del stage.tasks["news"]
    await stage.restart()
    assert (await stage.agent.list_schedules())[0].id == mine.id
    assert list(await stage.rows()) == ["other"]
    assert len(await stage.agent.list_schedules()) == 2


@pytest.mark.case(620)
async def test_another_default_zone_moves_the_times_that_name_none(open_app: OpenApp) -> None:
    stage = Stage(open_app, own=news(schedule="every day at 09:00 in UTC"), default=news())
    await stage.start()
    stage.zone = "America/New_York"
    await stage.restart()
    assert await stage.due() == [("own", "05T09:00"), ("default", "05T14:00")]


@pytest.mark.case(545)
async def test_declarations_that_raise_leave_an_agent_that_serves(open_app: OpenApp) -> None:
    stage = Stage(open_app, news=news())
    await stage.start()
    before = await stage.agent.list_schedules()
    events: list[dict[str, Any]] = []

    def broken() -> Any:
        raise RuntimeError("no calendar")

    stage.tasks = broken  # type: ignore[assignment]
    await stage.app.close()
    stage.app = await open_app(stage.cls, clock=stage.clock)
    stage.app.events.subscribe(lambda e: events.append(e.payload), type="chat:onstart:degraded")
    stage.agent = stage.app.agent(stage.cls, "room")
    agent = await live(stage.agent)
    step = {"step": "scheduled-task-reconcile", "error": "no calendar"}
    assert [(d.step, d.error) for d in agent.get_on_start_degradations()] == [tuple(step.values())]
    assert events == [step]
    assert await stage.agent.list_schedules() == before
    assert (await stage.agent.save_messages("Hi")).text == "Answer 0."
    with pytest.raises(RuntimeError, match="no calendar"):
        await agent.reconcile_scheduled_tasks()


async def test_one_mistake_keeps_every_declaration_out(open_app: OpenApp) -> None:
    stage = Stage(open_app, good=news(), bad=news(schedule="now and then"))
    agent = await stage.start()
    assert await stage.due() == []
    with pytest.raises(InvalidScheduledTask, match="now and then"):
        await agent.reconcile_scheduled_tasks()
    del stage.tasks["bad"]
    await agent.reconcile_scheduled_tasks()
    assert await stage.due() == [("good", "05T09:00")]


@pytest.mark.case(630, 631)
async def test_a_prompt_is_answered_when_it_is_due_and_the_next_is_put_on(open_app: OpenApp) -> None:
    stage = Stage(open_app, news=news(metadata={"source": "mine", "topic": "x"}))
    await stage.start()
    await stage.passes(3599)
    assert await stage.said() == []
    await stage.passes(1)
    assert await stage.said() == ["What is new?", "Answer 0."]
    (submission,) = await stage.agent.list_submissions()
    due = MORNING + 3_600_000
    assert submission.idempotency_key == f"think-schedule:Assistant/room:news:{due}"
    assert submission.metadata == {
        "topic": "x",
        "source": "scheduled-task",
        "ownerKey": "Assistant/room",
        "taskId": "news",
        "scheduledFor": due,
        "schedule": "every day at 09:00",
    }
    assert await stage.due() == [("news", "06T09:00")]
    assert (await stage.rows())["news"].next_run_at == due + DAY * 1000


@pytest.mark.case(629)
async def test_an_occurrence_that_runs_twice_is_one_submission(open_app: OpenApp) -> None:
    stage = Stage(open_app, news=news())
    agent = await stage.start()
    (timer,) = await stage.agent.list_schedules()
    home = agent._home
    # The process dies after the action and before the next timer: the same timer comes again
    await home.declared._act((await home.declared._declared())["news"], timer.payload["scheduledFor"])
    await stage.passes(3600)
    assert await stage.said() == ["What is new?", "Answer 0."]
    assert len(await stage.agent.list_submissions()) == 1


@pytest.mark.case(633)
async def test_a_handler_gets_its_occurrence_and_no_turn_runs(open_app: OpenApp) -> None:
    seen: list[TaskContext] = []
    stage = Stage(
        open_app,
        tick=ScheduledTask(schedule="every 1 hour", handler=seen.append, metadata={"a": 1}),
        clock=ScheduledTask(schedule="every weekday at 09:30", handler=seen.append),
    )
    await stage.start()
    await stage.passes(3600)
    await stage.passes(1800)
    hour, half = MORNING + 3_600_000, MORNING + 5_400_000
    assert seen[0] == TaskContext(
        task_id="tick",
        scheduled_for=datetime(2026, 1, 5, 9, 0, tzinfo=UTC),
        occurrence_key=f"tick:{hour}",
        idempotency_key=f"think-schedule:Assistant/room:tick:{hour}",
        schedule="every 1 hour",
        schedule_kind="interval",
        metadata={"a": 1},
    )
    assert (seen[1].occurrence_key, seen[1].schedule_kind, seen[1].timezone) == (
        f"clock:{half}",
        "wall-clock",
        "Europe/London",
    )
    assert await stage.agent.list_submissions() == []
    assert await stage.due() == [("tick", "05T10:00"), ("clock", "06T09:30")]


@pytest.mark.case(632, 635)
async def test_a_handler_may_be_the_name_of_a_method(open_app: OpenApp) -> None:
    class Clock(Think):
        model = ScriptedModel()
        seen: list[str] = []  # noqa: RUF012

        def tick(self, task: TaskContext) -> None:
            self.seen.append(task.task_id)

        def get_scheduled_tasks(self) -> Any:
            return {"t": {"schedule": "every 1 hour", "handler": "tick"}}

    clock = ManualClock(MORNING)
    app = await open_app(Clock, clock=clock)
    await live(app.agent(Clock))
    await clock.advance(3600)
    await (await app.open()).waker.idle()
    assert Clock.seen == ["t"]


def yielding() -> Any:
    yield "What is new?"


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"handler": "get_scheduled_tsks"}, r"has no such method\. Did you mean 'get_scheduled_tasks'"),
        (
            {"handler": "tick"},
            r'handler of .* "t" is .tick., and Assistant has no such method',
        ),
        ({"handler": 5}, r"ScheduledTask.handler is 5, an int"),
        (
            {"handler": lambda ctx, more: None},
            r'"t", .* cannot be called\. It is given a TaskContext',
        ),
        ({"prompt": lambda ctx: "x"}, r'scheduled task "t", .* cannot be called\. It is given nothing'),
        ({"prompt": 5}, r"ScheduledTask.prompt is 5, an int"),
        ({"handler": yielding}, r'handler of the scheduled task "t", .* has a `yield`'),
        ({"prompt": yielding}, r'prompt of the scheduled task "t", .* has a `yield`'),
    ],
)
async def test_an_action_that_cannot_be_called_is_told_when_the_tasks_are_read(
    open_app: OpenApp, fields: dict[str, Any], words: str
) -> None:
    stage = Stage(open_app)
    agent = await stage.start()
    stage.tasks["t"] = {"schedule": "every 1 hour", **fields}
    with pytest.raises(InvalidScheduledTask, match=words):
        await agent.reconcile_scheduled_tasks()


@pytest.mark.parametrize("field", ["prompt", "handler"])
async def test_a_failing_task_is_tried_three_times_and_never_blocks_the_next(
    open_app: OpenApp, field: str
) -> None:
    calls: list[int] = []

    def fails(*_: Any) -> str:
        calls.append(1)
        raise RuntimeError("no paper")

    fields: dict[str, Any] = {field: fails}
    stage = Stage(open_app, news=ScheduledTask(schedule="every day at 09:00", **fields))
    await stage.start()
    await stage.clock.advance(3600)
    await stage.goes_by(until=lambda: bool(stage.errors))
    assert (len(calls), stage.errors) == (3, ["no paper"])
    assert await stage.due() == [("news", "06T09:00")]
    assert await stage.agent.list_submissions() == []


@pytest.mark.parametrize("said", [None, 5, ["What is new?"], " "], ids=repr)
async def test_a_prompt_that_is_no_text_asks_nothing_and_is_told(open_app: OpenApp, said: Any) -> None:
    task = ScheduledTask(schedule="every day at 09:00", prompt=lambda: said, retry=Retry(max_attempts=1))
    stage = Stage(open_app, news=task)
    await stage.start()
    await stage.clock.advance(3600)
    await stage.goes_by(until=lambda: bool(stage.errors))
    assert f'The prompt of the scheduled task "news" returned {said!r}' in stage.errors[0]
    assert await stage.agent.list_submissions() == []
    assert await stage.due() == [("news", "06T09:00")]


async def test_declarations_that_return_nothing_keep_the_timers_and_name_the_hook(open_app: OpenApp) -> None:
    stage = Stage(open_app, news=news())
    agent = await stage.start()
    before = await stage.due()
    stage.tasks = lambda: None  # type: ignore[assignment]
    with pytest.raises(InvalidScheduledTask, match=r"get_scheduled_tasks returned None.*\{\} for none"):
        await agent.reconcile_scheduled_tasks()
    assert await stage.due() == before != []
    stage.tasks = {}
    await agent.reconcile_scheduled_tasks()
    assert await stage.due() == []


@pytest.mark.case(634)
async def test_a_task_may_say_how_often_it_is_tried(open_app: OpenApp) -> None:
    calls: list[int] = []

    def second_time(_: TaskContext) -> None:
        calls.append(1)
        if len(calls) == 1:
            raise RuntimeError("not yet")

    stage = Stage(
        open_app,
        t=ScheduledTask(schedule="every 1 hour", handler=second_time, retry=Retry(2, 1.0, 1.0)),
    )
    await stage.start()
    await stage.clock.advance(3600)
    await stage.goes_by(until=lambda: len(calls) == 2)
    assert (len(calls), stage.errors) == (2, [])


@pytest.mark.case(643)
@pytest.mark.parametrize(
    ("schedule", "late", "meant", "next_"),
    [
        ("every day at 09:00", 3 * DAY, "05T09:00", "09T09:00"),
        ("every 7 minutes", 3600, "05T08:07", "05T09:03"),
    ],
)
async def test_a_late_task_runs_once_for_the_time_it_was_meant_for(
    open_app: OpenApp, schedule: str, late: int, meant: str, next_: str
) -> None:
    seen: list[TaskContext] = []
    stage = Stage(open_app, t=ScheduledTask(schedule=schedule, handler=seen.append))
    await stage.start()
    await stage.app.close()
    await stage.clock.advance(late)
    await stage.start()
    await stage.passes(0)
    assert [c.scheduled_for.strftime("%dT%H:%M") for c in seen] == [meant]
    assert (await stage.due())[0] == ("t", next_ if schedule != "every day at 09:00" else "08T09:00")


@pytest.mark.case(644)
@pytest.mark.parametrize("change", ["schedule", "removed", "advanced"])
async def test_a_timer_of_another_declaration_does_nothing(open_app: OpenApp, change: str) -> None:
    stage = Stage(open_app, news=news())
    agent = await stage.start()
    (timer,) = await stage.agent.list_schedules()
    payload = dict(timer.payload)
    match change:
        case "schedule":
            payload["scheduleHash"] = "another"
        case "removed":
            payload["taskId"] = "gone"
        case _:
            payload["scheduledFor"] -= 1
    await agent._run_scheduled_task(payload)
    assert await stage.said() == []
    assert await stage.agent.list_schedules() == [timer]


async def test_a_payload_of_somebody_else_is_refused(open_app: OpenApp) -> None:
    agent = await Stage(open_app, news=news()).start()
    with pytest.raises(InvalidScheduledTask, match="Invalid declared scheduled task payload"):
        await agent._run_scheduled_task({"taskId": 1})


@pytest.mark.case(642)
async def test_declarations_that_raise_when_a_task_is_due_do_not_break_the_chain(open_app: OpenApp) -> None:
    stage = Stage(open_app, news=news())
    await stage.start()
    declared, fails = dict(stage.tasks), [True]

    def sometimes() -> Any:
        if fails:
            raise RuntimeError("no calendar")
        return declared

    stage.tasks = sometimes  # type: ignore[assignment]
    await stage.passes(3600)
    assert (await stage.said(), stage.errors) == ([], ["no calendar"])
    fails.clear()
    await stage.passes(60)
    assert await stage.said() == ["What is new?", "Answer 0."]
    assert await stage.due() == [("news", "06T09:00")]


@pytest.mark.case(639)
@pytest.mark.parametrize("loss", ["row", "timer"])
async def test_a_start_cut_off_between_row_and_timer_is_repaired(open_app: OpenApp, loss: str) -> None:
    stage = Stage(open_app, news=news())
    agent = await stage.start()
    row, home = (await stage.rows())["news"], agent._home
    if loss == "timer":
        await stage.agent.cancel_schedule(row.alarm_id)
    else:
        sql = "UPDATE scheduled_tasks SET alarm_id = NULL WHERE agent = ?"
        from everthink.store.port import Statement

        await home.store.apply([Statement(sql, (home.id,))])
    await stage.clock.advance(60)
    await stage.restart()
    assert await stage.due() == [("news", "05T09:00")]
    mended = (await stage.rows())["news"]
    assert (mended.next_run_at, mended.alarm_id is not None) == (row.next_run_at, True)


@pytest.mark.case(640)
async def test_an_agent_that_declares_nothing_has_no_rows_and_no_timers(open_app: OpenApp) -> None:
    stage = Stage(open_app)
    await stage.start()
    assert (await stage.rows(), await stage.due(), stage.clock.waiting) == ({}, [], 0)


@pytest.mark.parametrize("jump", [-3 * 3600, 3 * 3600])
async def test_a_clock_that_jumps_neither_skips_nor_repeats(open_app: OpenApp, jump: int) -> None:
    seen: list[str] = []
    stage = Stage(
        open_app,
        t=ScheduledTask(schedule="every day at 09:00", handler=lambda c: seen.append(c.occurrence_key)),
    )
    await stage.start()
    await stage.passes(3600)
    # When the clock is set, and a day passes on it
    stage.clock._now += jump
    await stage.restart()
    for _ in range(28):
        await stage.passes(3600)
    hour = MORNING + 3_600_000
    assert seen == [f"t:{hour}", f"t:{hour + DAY * 1000}"]
