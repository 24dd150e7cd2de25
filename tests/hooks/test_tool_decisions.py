"""before_tool_call and after_tool_call: what they see, and what a decision does."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from everthink import Allow, Block, Substitute, Think, ToolContext, tool
from everthink.hooks import ToolCall, ToolOutcome
from everthink.models.port import TextPart, UserMessage
from everthink.testing.clock import ManualClock
from everthink.testing.scripted import ScriptedModel, calls, calls_raw, says
from tests.conftest import OpenApp
from tests.support.agents import assistant, live
from tests.support.hooks import breathe, only, results, soon, types, watch

pytestmark = pytest.mark.anyio


class Search:
    """A tool that remembers its calls, and an agent around it that remembers its hooks."""

    def __init__(self, decide: Any = None, *, plays: Any = None, **members: Any) -> None:
        self.ran: list[tuple[str, int]] = []
        self.before: list[ToolCall] = []
        self.after: list[ToolOutcome] = []
        self.model = ScriptedModel(*(plays or (calls("search", query="cats", id="c1"), says("Done."))))
        self.decide = decide

        @tool
        async def search(query: str, limit: int = 10) -> dict[str, Any]:
            """Search."""
            self.ran.append((query, limit))
            if query == "dogs":
                raise ValueError("no dogs")
            return {"found": query, "limit": limit}

        members.setdefault("get_tools", lambda agent: [search])
        self.cls: type[Think] = assistant(
            self.model,
            before_tool_call=lambda agent, call: self.before.append(call) or (decide and decide(call)),
            after_tool_call=lambda agent, outcome: self.after.append(outcome),
            **members,
        )

    @property
    def read(self) -> list[Any]:
        """What the model read as results, with whether they were errors."""
        return [(part.output, part.is_error) for part in results(self.model.requests[1])]


@pytest.mark.case(176, 177)
async def test_without_a_decision_the_tool_runs_once_with_the_models_input(open_app: OpenApp) -> None:
    # Given hooks that only watch
    it = Search()
    app = await open_app(it.cls)

    # When a tool is called
    result = await app.agent(it.cls, "room").save_messages("Cats?")

    # Then it ran once, and both hooks saw the call from their side
    assert it.ran == [("cats", 10)]
    (call,), (outcome,) = it.before, it.after
    assert (call.type, call.tool_name, call.name, call.tool_call_id) == (
        "tool-call",
        "search",
        "search",
        "c1",
    )
    assert call.input == {"query": "cats", "limit": 10}  # as the body gets it
    assert call.messages == [UserMessage([TextPart("Cats?")])]
    assert call.signal.aborted is False
    assert (call.step_number, call.dynamic, call.provider_metadata) == (None, False, None)
    assert type(call) is ToolCall
    assert (outcome.name, outcome.tool_call_id, outcome.input) == ("search", "c1", {"query": "cats"})
    assert (outcome.success, outcome.output, outcome.error) == (True, {"found": "cats", "limit": 10}, None)
    assert outcome.step_number == 0
    assert outcome.messages == call.messages
    assert outcome.duration >= 0
    assert it.read == [({"found": "cats", "limit": 10}, False)]
    assert result.message.tool_parts[0]["output"] == {"found": "cats", "limit": 10}


@pytest.mark.case(177)
async def test_a_plain_allow_is_the_same_as_no_decision(open_app: OpenApp) -> None:
    it = Search(lambda call: Allow())
    app = await open_app(it.cls)
    await app.agent(it.cls, "room").save_messages("Cats?")
    assert it.ran == [("cats", 10)]
    assert it.after[0].output == {"found": "cats", "limit": 10}


@pytest.mark.case(178)
async def test_allow_with_other_input_runs_with_that_and_shows_the_models(open_app: OpenApp) -> None:
    # Given a hook that clamps the limit
    it = Search(
        lambda call: Allow({**call.input, "limit": min(call.input["limit"], 50)}),
        plays=[calls("search", query="cats", limit=9999), says("Done.")],
    )
    app = await open_app(it.cls)

    # When the model asks for too much
    result = await app.agent(it.cls, "room").save_messages("Cats?")

    # Then the tool ran once with less, while the record keeps what the model asked for
    assert it.ran == [("cats", 50)]
    assert it.after[0].input == {"query": "cats", "limit": 9999}
    assert it.after[0].output == {"found": "cats", "limit": 50}
    assert result.message.tool_parts[0]["input"] == {"query": "cats", "limit": 9999}
    assert it.read == [({"found": "cats", "limit": 50}, False)]


@pytest.mark.case(178)
async def test_other_input_is_not_checked_against_the_schema_again(open_app: OpenApp) -> None:
    it = Search(lambda call: Allow({"query": "cats", "limit": "plenty"}))
    app = await open_app(it.cls)
    await app.agent(it.cls, "room").save_messages("Cats?")
    assert it.ran == [("cats", "plenty")]
    assert it.after[0].success is True


@pytest.mark.parametrize(
    ("input", "words"),
    [
        ({"query": "cats", "limt": 5}, "'limt', which the tool does not take. Did you mean 'limit'?"),
        ({"query": "cats", "x": 5}, "'x', which the tool does not take. It takes: query, limit."),
        ({"limit": 5}, "Allow(input=…) for tool 'search' lacks 'query', which the tool needs."),
    ],
)
async def test_other_input_with_other_keys_is_told_and_runs_nothing(
    open_app: OpenApp, caplog: pytest.LogCaptureFixture, input: Any, words: str
) -> None:
    it = Search(lambda call: Allow(input))
    app = await open_app(it.cls)
    await app.agent(it.cls, "room").save_messages("Cats?")
    ((read, is_error),) = it.read
    assert (it.ran, is_error) == ([], True)
    assert words in read
    assert "before_tool_call failed for tool search" in caplog.text
    assert words in caplog.text


@pytest.mark.case(179, 180, 181)
@pytest.mark.parametrize(
    ("decision", "output"),
    [
        (Block("Search is closed."), "Search is closed."),
        (Block(""), ""),
        (Block(), 'Tool "search" was blocked by before_tool_call.'),
        (Substitute({"found": "cached"}), {"found": "cached"}),
        (Substitute(None), None),
        (Substitute("cached", input={"query": "other"}), "cached"),
    ],
)
async def test_block_and_substitute_answer_instead_of_the_tool(
    open_app: OpenApp, decision: Any, output: Any
) -> None:
    # Given a hook that answers by itself
    it = Search(lambda call: decision)
    app = await open_app(it.cls)
    handle = app.agent(it.cls, "room")
    shown = await watch(handle)

    # When the tool is called
    result = await handle.save_messages("Cats?")

    # Then it never ran, and everybody takes the answer for a good result
    assert it.ran == []
    assert (it.after[0].success, it.after[0].output, it.after[0].error) == (True, output, None)
    assert it.after[0].input == {"query": "cats"}
    assert it.read == [(output, False)]
    part = result.message.tool_parts[0]
    assert (part["state"], part["output"], part["input"]) == ("output-available", output, {"query": "cats"})
    assert [chunk.output for chunk in only(shown, "tool-output-available")] == [output]
    assert result.text == "Done."


@pytest.mark.case(182)
async def test_an_async_decision_is_awaited_before_anything_runs(open_app: OpenApp) -> None:
    entered, go_on = asyncio.Event(), asyncio.Event()

    async def decide(call: ToolCall) -> Block:
        entered.set()
        await go_on.wait()
        return Block("after some thought")

    it = Search(decide)
    app = await open_app(it.cls)
    turn = asyncio.create_task(app.agent(it.cls, "room").save_messages("Cats?"))
    await soon(entered.wait())
    await breathe()
    assert (it.ran, it.model.asked) == ([], 1)
    go_on.set()
    await soon(turn)
    assert it.read == [("after some thought", False)]


@pytest.mark.case(183)
async def test_a_hook_that_raises_is_that_calls_failure_and_the_turn_goes_on(open_app: OpenApp) -> None:
    # Given a hook that breaks
    def broken(call: ToolCall) -> None:
        raise PermissionError("not on my watch")

    it = Search(broken)
    app = await open_app(it.cls)
    handle = app.agent(it.cls, "room")
    shown = await watch(handle)

    # When the tool is called
    result = await handle.save_messages("Cats?")

    # Then the call failed, the tool did not run, and the model went on
    assert it.ran == []
    assert it.after[0].success is False
    assert isinstance(it.after[0].error, PermissionError)
    assert it.after[0].output is None
    assert it.read == [("not on my watch", True)]
    assert [chunk.error_text for chunk in only(shown, "tool-output-error")] == ["The tool failed."]
    assert (result.status, result.text) == ("completed", "Done.")


async def test_an_answer_that_is_no_decision_is_that_calls_failure(open_app: OpenApp) -> None:
    it = Search(lambda call: {"action": "blok"})
    app = await open_app(it.cls)
    await app.agent(it.cls, "room").save_messages("Cats?")
    assert it.ran == []
    assert isinstance(it.after[0].error, TypeError)
    assert "before_tool_call returned {'action': 'blok'}, a dict" in it.read[0][0]


async def test_a_substitute_that_is_not_json_is_that_calls_failure(open_app: OpenApp) -> None:
    it = Search(lambda call: Substitute(object()))
    app = await open_app(it.cls)
    await app.agent(it.cls, "room").save_messages("Cats?")
    assert it.after[0].success is False
    assert it.read[0][1] is True


@pytest.mark.case(176)
async def test_after_tool_call_sees_what_a_failing_tool_raised(open_app: OpenApp) -> None:
    it = Search(plays=[calls("search", query="dogs"), says("Done.")])
    app = await open_app(it.cls)
    await app.agent(it.cls, "room").save_messages("Dogs?")
    outcome = it.after[0]
    assert (outcome.success, outcome.output) == (False, None)
    assert isinstance(outcome.error, ValueError)
    assert it.read == [("no dogs", True)]


@pytest.mark.case(175)
@pytest.mark.parametrize("is_async", [False, True])
async def test_after_tool_call_may_raise_without_any_effect(open_app: OpenApp, is_async: bool) -> None:
    def sync(self, outcome):
        raise ValueError("too late")

    async def later(self, outcome):
        raise ValueError("too late")

    @tool
    async def look() -> str:
        return "seen"

    model = ScriptedModel(calls("look"), says("Done."))
    cls = assistant(model, get_tools=lambda self: [look], after_tool_call=later if is_async else sync)
    app = await open_app(cls)
    result = await app.agent(cls, "room").save_messages("Look")
    assert (result.status, result.text) == ("completed", "Done.")
    assert [part.output for part in results(model.requests[1])] == ["seen"]


async def test_the_next_step_waits_for_after_tool_call(open_app: OpenApp) -> None:
    entered, go_on = asyncio.Event(), asyncio.Event()

    async def after_tool_call(self, outcome):
        entered.set()
        await go_on.wait()

    @tool
    async def look() -> str:
        return "seen"

    model = ScriptedModel(calls("look"), says("Done."))
    app = await open_app(
        cls := assistant(model, get_tools=lambda self: [look], after_tool_call=after_tool_call)
    )
    turn = asyncio.create_task(app.agent(cls, "room").save_messages("Look"))
    await soon(entered.wait())
    await breathe()
    assert model.asked == 1
    go_on.set()
    assert (await soon(turn)).text == "Done."


async def test_the_duration_counts_the_hook_and_the_tool(open_app: OpenApp) -> None:
    # Given a hook that takes two seconds and a tool that takes three
    clock = ManualClock()
    outcomes: list[ToolOutcome] = []

    async def before_tool_call(self, call):
        await clock.advance(2)

    @tool
    async def work() -> None:
        await clock.advance(3)

    model = ScriptedModel(calls("work"), says("Done."))
    cls = assistant(
        model,
        get_tools=lambda self: [work],
        before_tool_call=before_tool_call,
        after_tool_call=lambda self, outcome: outcomes.append(outcome),
    )
    app = await open_app(cls, clock=clock)
    await app.agent(cls, "room").save_messages("Work")
    assert outcomes[0].duration == pytest.approx(5)


async def test_the_step_number_of_an_outcome_is_the_steps(open_app: OpenApp) -> None:
    it = Search(plays=[calls("search", query="a"), calls("search", query="b"), says("Done.")])
    app = await open_app(it.cls)
    await app.agent(it.cls, "room").save_messages("Cats?")
    assert [outcome.step_number for outcome in it.after] == [0, 1]
    assert [call.step_number for call in it.before] == [None, None]


@pytest.mark.case(187)
@pytest.mark.parametrize(
    "play",
    [
        calls("browser"),
        calls("unheard_of"),
        calls_raw("search", "{broken"),
        calls("search", query=3),
        calls("search"),
        calls("search", {"q": "x"}, provider_executed=True).provider_result("hit"),
    ],
)
async def test_calls_that_do_not_run_here_trigger_no_tool_hooks(open_app: OpenApp, play: Any) -> None:
    it = Search(plays=[play, says("Done.")])
    app = await open_app(it.cls)
    result = await app.agent(it.cls, "room").chat("Hi", client_tools=[{"name": "browser"}])
    assert result.status == "completed"
    assert (it.before, it.after, it.ran) == ([], [], [])


async def test_the_hook_may_read_who_else_is_asked_in_the_same_step(open_app: OpenApp) -> None:
    it = Search(
        lambda call: Block("one is enough") if call.tool_call_id != "c1" else None,
        plays=[calls("search", query="a", id="c1").calls("search", query="b", id="c2"), says("Done.")],
    )
    app = await open_app(it.cls)
    await app.agent(it.cls, "room").save_messages("Both?")
    assert it.ran == [("a", 10)]
    assert it.read == [({"found": "a", "limit": 10}, False), ("one is enough", False)]


async def test_the_hooks_signal_is_the_turns_and_fires_when_it_is_cancelled(open_app: OpenApp) -> None:
    # Given a tool that hangs
    running = asyncio.Event()

    @tool
    async def hang(ctx: ToolContext) -> None:
        running.set()
        await asyncio.Event().wait()

    it = Search(plays=[calls("hang")], get_tools=lambda agent: [hang])
    app = await open_app(it.cls)
    handle = app.agent(it.cls, "room")
    shown = await watch(handle)

    # When the turn is cancelled
    turn = asyncio.create_task(handle.save_messages("Hang"))
    await soon(running.wait())
    (await live(handle)).abort_all_requests("enough")

    # Then the call's signal says so, nothing more is shown, and after_tool_call is not told a story
    assert (await soon(turn)).status == "aborted"
    assert (it.before[0].signal.aborted, it.before[0].signal.reason) == (True, "enough")
    assert it.after == []
    assert types(shown)[-1] == "tool-input-available"
