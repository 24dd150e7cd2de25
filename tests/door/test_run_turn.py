"""`run_turn`: one method for the three ways to run a turn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from everthink import Message, Submission
from everthink.chat import AbortController
from everthink.errors import InvalidTurn
from everthink.testing.scripted import ScriptedModel, says
from tests.conftest import OpenApp
from tests.support.agents import assistant
from tests.support.turns import Database, Heard, all_over, home_of, prompt, record_events, roles

pytestmark = pytest.mark.anyio


@pytest.mark.case(89)
async def test_wait_gives_what_save_messages_gives_with_the_message(open_app: OpenApp) -> None:
    app = await open_app(cls := assistant(ScriptedModel(says("Hello"))))

    result = await app.agent(cls).run_turn("Hi")

    assert (result.status, result.continuation, result.text) == ("completed", False, "Hello")
    question, answer = await app.agent(cls).get_messages()
    assert (question.text, answer) == ("Hi", result.message)


@pytest.mark.case(90)
async def test_wait_takes_a_list(open_app: OpenApp) -> None:
    model = ScriptedModel(says("ok"))
    app = await open_app(cls := assistant(model))
    await app.agent(cls).run_turn(["a", Message("b", "user", [{"type": "text", "text": "b"}])], mode="wait")
    assert prompt(model.last_request) == [("user", "a"), ("user", "b")]


@pytest.mark.case(91)
async def test_wait_takes_a_function_called_inside_the_turn(open_app: OpenApp) -> None:
    app = await open_app(cls := assistant(ScriptedModel(says("one"), says("two"))))
    agent = app.agent(cls)
    home, active = await home_of(app, cls), []

    def ask(messages: list[Message]) -> list[str]:
        active.append(home.chat.door.queue.active.request_id)
        return [f"after {len(messages)}"]

    await agent.run_turn("first")
    result = await agent.run_turn(ask)

    assert active == [result.request_id]
    assert [m.text for m in await agent.get_messages()] == ["first", "one", "after 2", "two"]


@pytest.mark.case(92)
@pytest.mark.parametrize("nothing", ["", [], ()])
async def test_wait_with_nothing_to_say_is_skipped(open_app: OpenApp, tmp_path: Path, nothing: Any) -> None:
    app = await open_app(cls := assistant(ScriptedModel()))
    events = record_events(app)

    result = await app.agent(cls).run_turn(nothing)

    assert (result.request_id, result.status, result.continuation, result.message) == (
        "",
        "skipped",
        False,
        None,
    )
    assert (Database(tmp_path).turns(), Database(tmp_path).messages()) == ([], [])
    assert events == []


@pytest.mark.case(94)
async def test_a_continuation_adds_an_assistant_message(open_app: OpenApp) -> None:
    app = await open_app(cls := assistant(ScriptedModel(says("one"), says("two"))))
    agent = app.agent(cls)
    await agent.run_turn("first")

    result = await agent.run_turn(continuation=True)

    assert (result.status, result.continuation, result.text) == ("completed", True, "two")
    assert roles(await agent.get_messages()) == ["user", "assistant", "assistant"]


@pytest.mark.case(94)
@pytest.mark.parametrize("before", [[], ["a question"]])
async def test_a_continuation_is_skipped_when_the_last_message_is_not_the_models(
    open_app: OpenApp, before: list[str]
) -> None:
    model = ScriptedModel()
    app = await open_app(cls := assistant(model))
    await app.agent(cls).add_messages(before)

    result = await app.agent(cls).run_turn(continuation=True)

    assert (result.request_id, result.status, result.message) == ("", "skipped", None)
    assert model.requests == []


@pytest.mark.case(94, 135)
async def test_a_continuation_takes_a_body_and_a_signal(open_app: OpenApp) -> None:
    bodies: list[Any] = []
    app = await open_app(
        cls := assistant(
            ScriptedModel(says("one"), says("two")), before_turn=lambda self, turn: bodies.append(turn.body)
        )
    )
    await app.agent(cls).run_turn("first")
    await app.agent(cls).run_turn(continuation=True, body={"depth": 2})
    assert bodies == [None, {"depth": 2}]


@pytest.mark.case(95)
async def test_submit_is_accepted_at_once_and_runs_later(open_app: OpenApp) -> None:
    app = await open_app(cls := assistant(ScriptedModel(says("done"))))
    agent = app.agent(cls)

    submission = await agent.run_turn(
        "Hi", mode="submit", submission_id="job-1", idempotency_key="k", metadata={"source": "test"}
    )

    assert isinstance(submission, Submission)
    assert (submission.submission_id, submission.status, submission.accepted) == ("job-1", "pending", True)
    assert (submission.metadata, submission.idempotency_key) == ({"source": "test"}, "k")
    await all_over(app, cls)
    assert (await agent.inspect_submission("job-1")).status == "completed"
    assert [m.text for m in await agent.get_messages()] == ["Hi", "done"]


@pytest.mark.case(96)
async def test_stream_speaks_through_the_callback(open_app: OpenApp) -> None:
    app = await open_app(cls := assistant(ScriptedModel(says("Hello ", "there."))))
    heard = Heard()

    await app.agent(cls).run_turn("Hi", mode="stream", callback=heard)

    assert heard.names == ["start", "done"]
    assert heard.text == "Hello there."
    assert [m.text for m in await app.agent(cls).get_messages()] == ["Hi", "Hello there."]


@pytest.mark.case(97)
async def test_stream_takes_a_list(open_app: OpenApp) -> None:
    model = ScriptedModel(says("ok"))
    app = await open_app(cls := assistant(model))
    await app.agent(cls).run_turn(["a", "b"], mode="stream", callback=Heard())
    assert prompt(model.last_request) == [("user", "a"), ("user", "b")]


@pytest.mark.case(98)
async def test_stream_takes_a_function_called_inside_the_turn(open_app: OpenApp) -> None:
    app = await open_app(cls := assistant(ScriptedModel(says("ok"))))
    home, active, heard = await home_of(app, cls), [], Heard()

    async def ask(messages: list[Message]) -> str:
        active.append(home.chat.door.queue.active.request_id)
        return "from a function"

    await app.agent(cls).run_turn(ask, mode="stream", callback=heard)

    assert active == [heard.told[0][1]]
    assert [m.text for m in await app.agent(cls).get_messages()] == ["from a function", "ok"]


@pytest.mark.case(99)
@pytest.mark.parametrize("nothing", ["", []])
async def test_stream_with_nothing_to_say_starts_and_ends(
    open_app: OpenApp, tmp_path: Path, nothing: Any
) -> None:
    app = await open_app(cls := assistant(ScriptedModel()))
    events, heard = record_events(app), Heard()

    await app.agent(cls).run_turn(nothing, mode="stream", callback=heard)

    assert heard.names == ["start", "done"]
    assert heard.chunks == []
    assert (Database(tmp_path).turns(), events) == ([], [])


@pytest.mark.case(99)
async def test_stream_with_a_function_that_returns_nothing_still_runs(open_app: OpenApp) -> None:
    app = await open_app(cls := assistant(ScriptedModel(says("one"), says("two"))))
    await app.agent(cls).run_turn("first")
    heard = Heard()
    await app.agent(cls).run_turn(lambda messages: [], mode="stream", callback=heard)
    assert heard.text == "two"
    assert roles(await app.agent(cls).get_messages()) == ["user", "assistant", "assistant"]


@pytest.mark.case(100)
async def test_stream_stamps_the_channel_on_every_message_of_a_list(open_app: OpenApp) -> None:
    app = await open_app(cls := assistant(ScriptedModel(says("ok"))))
    await app.agent(cls).run_turn(["a", "b"], mode="stream", callback=Heard(), channel="email")
    first, second, answer = await app.agent(cls).get_messages()
    assert (first.metadata, second.metadata, answer.metadata) == ({"channel": "email"},) * 2 + (None,)


WRONG = [
    pytest.param({"input": "x", "mode": "later"}, "mode must be", marks=pytest.mark.case(101), id="mode"),
    pytest.param({"input": "x", "mode": None}, "mode must be", marks=pytest.mark.case(101), id="no mode"),
    pytest.param({}, "either input or continuation", marks=pytest.mark.case(102), id="neither"),
    pytest.param({"input": "x", "continuation": True}, "not both", marks=pytest.mark.case(103), id="both"),
    pytest.param(
        {"mode": "submit"}, "'submit' needs input", marks=pytest.mark.case(104), id="submit nothing"
    ),
    pytest.param(
        {"mode": "stream", "callback": print},
        "'stream' needs input",
        marks=pytest.mark.case(104),
        id="stream nothing",
    ),
    pytest.param(
        {"input": "x", "mode": "stream"}, "needs a callback", marks=pytest.mark.case(105), id="no callback"
    ),
    pytest.param(
        {"mode": "stream", "continuation": True, "callback": print},
        "continuation",
        marks=pytest.mark.case(106),
        id="stream a continuation",
    ),
    pytest.param(
        {"mode": "submit", "continuation": True},
        "continuation",
        marks=pytest.mark.case(106),
        id="submit a continuation",
    ),
    pytest.param(
        {"input": lambda messages: [], "mode": "submit"},
        "function input",
        marks=pytest.mark.case(107),
        id="submit a function",
    ),
]


WRONG += [
    pytest.param({"input": "x", **options}, f"{name} has no effect with .*{needs}", id=f"{name} in vain")
    for name, needs, options in [
        ("idempotency_key", "mode 'submit'", {"idempotency_key": "k"}),
        ("submission_id", "mode 'submit'", {"submission_id": "job", "mode": "stream", "callback": print}),
        ("callback", "mode 'stream'", {"callback": print}),
        ("callback", "mode 'stream'", {"callback": print, "mode": "submit"}),
        ("client_tools", "mode 'stream'", {"client_tools": []}),
        ("on_client_tool_call", "mode 'stream'", {"on_client_tool_call": print}),
        ("body", "continuation=True", {"body": {}}),
        ("signal", "mode 'wait' or 'stream'", {"signal": AbortController().signal, "mode": "submit"}),
        (
            "metadata",
            "mode 'wait' or 'submit' or 'stream'",
            {"input": None, "continuation": True, "metadata": {}},
        ),
    ]
]


@pytest.mark.parametrize(("options", "complaint"), WRONG)
async def test_options_that_make_no_sense_are_a_type_error_and_nothing_happens(
    open_app: OpenApp, tmp_path: Path, options: dict[str, Any], complaint: str
) -> None:
    app = await open_app(cls := assistant(ScriptedModel()))
    events = record_events(app)

    with pytest.raises(InvalidTurn, match=complaint) as refused:
        await app.agent(cls).run_turn(**options)

    assert isinstance(refused.value, TypeError)
    assert (Database(tmp_path).turns(), Database(tmp_path).messages(), events) == ([], [], [])


@pytest.mark.case(104)
@pytest.mark.parametrize("nothing", ["", []])
async def test_submit_with_nothing_to_say_is_refused_like_submit_messages(
    open_app: OpenApp, tmp_path: Path, nothing: Any
) -> None:
    app = await open_app(cls := assistant(ScriptedModel()))
    with pytest.raises(InvalidTurn, match="at least one message"):
        await app.agent(cls).run_turn(nothing, mode="submit")
    assert Database(tmp_path).turns() == []
