"""A call with something of another kind says which of its parameters, what was given, and what it takes."""

from __future__ import annotations

import time
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from everthink.errors import InvalidSettings
from everthink.testing.scripted import ScriptedModel
from tests.conftest import OpenApp
from tests.support.agents import assistant, live

pytestmark = pytest.mark.anyio

WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("start_fiber", {"name": "f", "fn": print, "idempotency_key": 5}, "idempotency_key is 5, an int. .*text"),
    ("start_fiber", {"name": "f", "fn": print, "fiber_id": 5}, "fiber_id is 5, an int"),
    ("list_schedules", {"start": 5}, "start is 5, an int. It takes an aware datetime, or None."),
    ("list_schedules", {"end": "now"}, "end is 'now', a str"),
    ("cancel_schedule", {"id": 5}, "id is 5, an int. It takes text: the `id` of a Schedule."),
    ("get_schedule", {"id": None}, "id is None"),
    ("dequeue", {"id": 5}, "id is 5"),
    ("wait_until_stable", {"timeout": "5"}, "timeout is '5', a str. It takes a number, or None."),
    ("list_submissions", {"limit": "2"}, "limit is '2', a str. It takes a whole number."),
    ("list_fibers", {"limit": "2"}, "limit is '2', a str. It takes a whole number."),
    ("delete_submissions", {"limit": None}, "limit is None"),
    (
        "delete_submissions",
        {"completed_before": datetime(2027, 1, 1)},
        r"completed_before is datetime.*It takes an aware datetime: one with a tzinfo",
    ),
    ("delete_submissions", {"completed_before": time.time()}, "It takes an aware datetime"),
    ("delete_fibers", {"settled_before": 5}, "settled_before is 5"),
    ("submit_messages", {"messages": "Hi", "idempotency_key": 5}, "idempotency_key is 5"),
    ("cancel_submission", {"submission_id": 5}, "the `submission_id` of a Submission"),
    ("apply_tool_approval", {"tool_call_id": {"id": "c"}, "approved": True}, "the `tool_call_id` of a call"),
    ("apply_tool_result", {"tool_call_id": 5}, "tool_call_id is 5"),
    ("retry", {"fn": 5}, "fn is 5, an int. It takes a function."),
]


@pytest.mark.parametrize(("method", "given", "words"), WRONG)
async def test_a_call_with_something_else_is_refused_in_terms_of_its_parameter(
    open_app: OpenApp, method: str, given: dict[str, Any], words: str
) -> None:
    app = await open_app(cls := assistant(ScriptedModel()))
    agent = await live(app.agent(cls))
    with pytest.raises(InvalidSettings, match=f"{method}: .*{words}"):
        await getattr(agent, method)(**given)
    assert (await agent.list_fibers(), await agent.list_submissions(), agent.messages) == ([], [], [])


async def test_a_timer_in_the_place_of_its_id_is_told_and_not_cancelled(open_app: OpenApp) -> None:
    app = await open_app(cls := assistant(ScriptedModel(), remind=lambda self: None))
    agent = await live(app.agent(cls))
    timer = await agent.schedule(60, "remind")
    with pytest.raises(InvalidSettings, match=r"cancel_schedule: id is Schedule.*the `id` of a Schedule"):
        await agent.cancel_schedule(timer)  # type: ignore[arg-type]
    assert await agent.cancel_schedule(timer.id)


async def test_a_search_is_for_text(open_app: OpenApp) -> None:
    app = await open_app(cls := assistant(ScriptedModel()))
    agent = await live(app.agent(cls))
    with pytest.raises(InvalidSettings, match=r"session\.search: query is 5, an int\. It takes text\."):
        await agent.session.search(5)  # type: ignore[arg-type]


async def test_a_moment_has_the_zone_it_has(open_app: OpenApp) -> None:
    app = await open_app(cls := assistant(ScriptedModel()))
    before = datetime.now(timezone(timedelta(hours=3)))
    assert await app.agent(cls).delete_submissions(completed_before=before) == 0
