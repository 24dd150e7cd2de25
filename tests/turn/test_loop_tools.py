"""Tools as the loop runs them: together, once, and never able to break the turn."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest

from everthink import Think, ToolContext, TurnConfig, tool
from everthink.models.port import (
    AssistantMessage,
    FilePart,
    ModelEvent,
    TextPart,
    ToolCallPart,
    ToolCallReady,
    ToolMessage,
    ToolResultPart,
    UserMessage,
)
from everthink.testing.scripted import ScriptedModel, calls, says
from tests.conftest import OpenApp
from tests.support.agents import assistant, live
from tests.support.hooks import breathe, configured, only, results, script, soon, types, watch

pytestmark = pytest.mark.anyio


@pytest.mark.case(645)
async def test_tools_of_a_step_run_together_stream_as_they_end_and_are_read_in_call_order(
    open_app: OpenApp,
) -> None:
    # Given three tools of one step that can only end in the opposite order
    started: list[str] = []
    ended = {name: asyncio.Event() for name in ("a", "b", "c")}
    waits_for = {"a": "b", "b": "c"}

    @tool
    async def work(name: str) -> str:
        """Work."""
        started.append(name)
        if name in waits_for:
            await ended[waits_for[name]].wait()
        ended[name].set()
        return name

    plays = calls("work", name="a", id="c1").calls("work", name="b", id="c2").calls("work", name="c", id="c3")
    model = ScriptedModel(plays, says("Done."))
    app = await open_app(cls := assistant(model, get_tools=lambda self: [work]))
    handle = app.agent(cls, "room")
    shown = await watch(handle)

    # When they run
    result = await soon(handle.save_messages("Go"))

    # Then all had started before the first could end, and results were shown as they came
    assert started == ["a", "b", "c"]
    assert [chunk.output for chunk in only(shown, "tool-output-available")] == ["c", "b", "a"]
    # And the model, and storage, have them in call order
    assert [(part.id, part.output) for part in results(model.requests[1])] == [
        ("c1", "a"),
        ("c2", "b"),
        ("c3", "c"),
    ]
    assert [part["output"] for part in result.message.tool_parts] == ["a", "b", "c"]
    # And the step ended after all of them
    kinds = types(shown)
    assert kinds.index("finish-step") > max(i for i, k in enumerate(kinds) if k == "tool-output-available")


async def test_the_ledger_knows_of_a_call_before_it_runs_and_of_its_end_with_the_result(
    open_app: OpenApp,
) -> None:
    # Given a tool that reads its own row while it runs
    seen: list[Any] = []

    @tool
    async def peek(ctx: ToolContext) -> str:
        """Peek."""
        seen.extend(await ledger(ctx.agent))
        return "seen"

    async def ledger(agent: Any) -> list[Any]:
        home = agent._home
        return await home.store.fetch("SELECT call_id, tool, state FROM calls WHERE agent = ?", home.id)

    model = ScriptedModel(calls("peek", id="c1"), says("Done."))
    app = await open_app(cls := assistant(model, get_tools=lambda self: [peek]))
    handle = app.agent(cls, "room")

    # When it ran, then the row said `started` meanwhile and `done` afterwards
    await handle.save_messages("Peek")
    assert seen == [("c1", "peek", "started")]
    assert await ledger(await live(handle)) == [("c1", "peek", "done")]


async def test_a_tool_starts_while_the_model_is_still_speaking(open_app: OpenApp) -> None:
    ran = asyncio.Event()

    @tool
    async def look() -> str:
        """Look."""
        ran.set()
        return "seen"

    # The model goes on only once the tool has run.
    model = ScriptedModel(calls("look").waits(ran).says("Looking."), says("Done."))
    app = await open_app(cls := assistant(model, get_tools=lambda self: [look]))
    assert (await soon(app.agent(cls, "room").save_messages("Look"))).status == "completed"


@pytest.mark.case(648)
async def test_a_tool_that_raises_is_a_result_the_model_reads(open_app: OpenApp) -> None:
    # Given a tool that fails with words and one that fails without
    @tool
    async def fall() -> str:
        """Fall."""
        raise ValueError("the floor is wet")

    @tool
    def trip() -> str:
        """Trip."""
        raise KeyError

    model = ScriptedModel(calls("fall").calls("trip"), says("Careful."))
    app = await open_app(cls := assistant(model, get_tools=lambda self: [fall, trip]))
    handle = app.agent(cls, "room")
    shown = await watch(handle)

    # When they are called
    result = await handle.save_messages("Walk")

    # Then the turn goes on; the model reads what they said, and readers that they failed
    assert (result.status, result.text) == ("completed", "Careful.")
    assert [(part.output, part.is_error) for part in results(model.requests[1])] == [
        ("the floor is wet", True),
        ("KeyError", True),
    ]
    assert {chunk.error_text for chunk in only(shown, "tool-output-error")} == {"The tool failed."}
    assert [part["state"] for part in result.message.tool_parts] == ["output-error", "output-error"]


@pytest.mark.case(653)
async def test_a_tool_without_output_sends_null(open_app: OpenApp) -> None:
    @tool
    async def nothing() -> None:
        """Do nothing."""

    model = ScriptedModel(calls("nothing"), says("Done."))
    app = await open_app(cls := assistant(model, get_tools=lambda self: [nothing]))
    handle = app.agent(cls, "room")
    bodies: list[str] = []
    result = await handle.chat("Go", callback=bodies.append)
    assert result.message.tool_parts[0]["output"] is None
    assert any('"type":"tool-output-available"' in body and '"output":null' in body for body in bodies)
    assert results(model.requests[1]) == [ToolResultPart("call_1", "nothing", None)]


async def test_a_result_that_is_not_json_is_that_calls_failure(open_app: OpenApp) -> None:
    outcomes: list[Any] = []

    @tool
    async def peek() -> Any:
        """Peek."""
        return {"at": object()}

    model = ScriptedModel(calls("peek"), says("Hm."))
    cls = assistant(
        model,
        get_tools=lambda self: [peek],
        after_tool_call=lambda self, outcome: outcomes.append(outcome),
    )
    app = await open_app(cls)
    result = await app.agent(cls, "room").save_messages("Peek")
    (part,) = results(model.requests[1])
    assert part.is_error
    assert "Tool 'peek' returned something that is not JSON" in part.output
    assert (outcomes[0].success, result.text) == (False, "Hm.")


async def test_a_tool_that_takes_too_long_is_stopped_and_the_turn_goes_on(open_app: OpenApp) -> None:
    stopped = asyncio.Event()

    @tool(timeout=0.001)
    async def sleep() -> None:
        """Sleep."""
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    model = ScriptedModel(calls("sleep"), says("Never mind."))
    app = await open_app(cls := assistant(model, get_tools=lambda self: [sleep]))
    result = await soon(app.agent(cls, "room").save_messages("Sleep"))
    assert stopped.is_set()
    assert result.text == "Never mind."
    assert result.message.tool_parts[0]["errorText"].startswith(
        "Tool 'sleep' did not finish within 0.001 seconds."
    )


async def test_a_plain_function_runs_in_a_thread_and_two_of_them_side_by_side(open_app: OpenApp) -> None:
    # Given two blocking tools that need each other
    meeting = threading.Barrier(2, timeout=10)
    threads: set[str] = set()

    @tool
    def meet(who: str) -> str:
        """Meet."""
        meeting.wait()
        threads.add(threading.current_thread().name)
        return who

    model = ScriptedModel(calls("meet", who="a").calls("meet", who="b"), says("Met."))
    app = await open_app(cls := assistant(model, get_tools=lambda self: [meet]))
    await soon(app.agent(cls, "room").save_messages("Meet"))
    assert [part.output for part in results(model.requests[1])] == ["a", "b"]
    assert threading.main_thread().name not in threads


async def test_the_context_of_a_call_says_where_it_is(open_app: OpenApp) -> None:
    contexts: list[ToolContext] = []

    class Assistant(Think):
        model = ScriptedModel(
            says("Let me look.").calls("look", id="c1"), calls("look", id="c2"), says("Done.")
        )

        @tool
        async def look(self, ctx: ToolContext) -> str:
            """Look."""
            contexts.append(ctx)
            return "seen"

    app = await open_app(Assistant)
    handle = app.agent(Assistant, "room")
    result = await handle.save_messages("Look")

    first, second = contexts
    assert first.agent is await live(handle)
    assert (first.tool_name, first.tool_call_id, first.step) == ("look", "c1", 0)
    assert (second.tool_call_id, second.step) == ("c2", 1)
    assert first.request_id == result.request_id
    assert first.signal.aborted is False
    # The message with the call itself is not among the messages.
    assert list(first.messages) == [UserMessage([TextPart("Look")])]
    assert list(second.messages) == [
        UserMessage([TextPart("Look")]),
        AssistantMessage([TextPart("Let me look."), ToolCallPart("c1", "look", {})]),
        ToolMessage([ToolResultPart("c1", "look", "seen")]),
    ]


async def test_the_model_may_be_shown_another_form_of_a_result(open_app: OpenApp) -> None:
    # Given a tool whose result is shown to the model as text and a file
    def view(result: dict[str, Any]) -> list[Any]:
        return [
            {"type": "text", "text": f"{result['size']} bytes"},
            {"type": "file", "url": "https://a/b.png", "mediaType": "image/png"},
        ]

    @tool(to_model_output=view)
    async def photo() -> dict[str, Any]:
        """Take a photo."""
        return {"size": 9, "data": "AAAA"}

    model = ScriptedModel(calls("photo", id="c1"), says("Nice."), says("Bye."))
    app = await open_app(cls := assistant(model, get_tools=lambda self: [photo]))
    handle = app.agent(cls, "room")

    # When it runs, and another turn follows
    result = await handle.save_messages("Photo")
    await handle.save_messages("Bye")

    # Then storage has the result, and the model its view, in the next step and in the next turn
    assert result.message.tool_parts[0]["output"] == {"size": 9, "data": "AAAA"}
    content = [TextPart("9 bytes"), FilePart("https://a/b.png", "image/png")]
    for request in model.requests[1:]:
        (part,) = results(request)
        assert part.content == content
        assert "AAAA" not in str(part.output)


async def test_what_the_model_sees_may_be_made_by_an_async_function_that_knows_the_agent(
    open_app: OpenApp,
) -> None:
    # Given a tool whose result only names what the agent keeps
    async def view(result: dict[str, Any], ctx: ToolContext) -> str:
        seen.append(result["name"])
        await breathe()
        return ctx.agent.photos[result["name"]]

    @tool(to_model_output=view)
    async def photo(name: str) -> dict[str, Any]:
        """Take a photo."""
        return {"name": name}

    seen: list[str] = []
    plays = [calls("photo", name="a", id="c1"), says("Nice."), says("Again."), says("Bye.")]
    model = ScriptedModel(*plays)
    cls = assistant(model, get_tools=lambda self: [photo], photos={"a": "a cat"})
    app = await open_app(cls)

    # When it runs, another turn follows, and another process goes on
    await app.agent(cls, "room").save_messages("Photo")
    await app.agent(cls, "room").save_messages("Again")
    await app.close()
    app = await open_app(cls)
    await app.agent(cls, "room").save_messages("Bye")

    # Then the model saw the same each time, and it was made once in each process
    assert [part.output for request in model.requests[1:] for part in results(request)] == ["a cat"] * 3
    assert seen == ["a"] * 2
    messages = await app.agent(cls, "room").get_messages()
    assert messages[1].tool_parts[0]["output"] == {"name": "a"}


async def test_an_async_view_that_fails_shows_the_plain_result(open_app: OpenApp) -> None:
    async def view(result: dict[str, int]) -> int:
        return result["missing"]

    @tool(to_model_output=view)
    async def look() -> dict[str, int]:
        """Look."""
        return {"seen": 1}

    model = ScriptedModel(calls("look"), says("Done."), says("Bye."))
    app = await open_app(cls := assistant(model, get_tools=lambda self: [look]))
    assert (await app.agent(cls, "room").save_messages("Look")).status == "completed"
    await app.agent(cls, "room").save_messages("Bye")
    assert [part.output for request in model.requests[1:] for part in results(request)] == [{"seen": 1}] * 2


async def test_a_view_that_fails_shows_the_plain_result(open_app: OpenApp) -> None:
    @tool(to_model_output=lambda result: result["missing"])
    async def look() -> dict[str, int]:
        """Look."""
        return {"seen": 1}

    model = ScriptedModel(calls("look"), says("Done."))
    app = await open_app(cls := assistant(model, get_tools=lambda self: [look]))
    assert (await app.agent(cls, "room").save_messages("Look")).status == "completed"
    assert [part.output for part in results(model.requests[1])] == [{"seen": 1}]


@pytest.mark.case(652)
async def test_an_abort_reaches_the_tool_and_is_no_error(open_app: OpenApp) -> None:
    # Given a tool that waits for its signal, and another that ignores everything
    signalled, ignoring = asyncio.Event(), asyncio.Event()
    release = threading.Event()

    @tool
    async def attentive(ctx: ToolContext) -> None:
        """Wait."""
        try:
            await asyncio.Event().wait()
        finally:
            assert ctx.signal.aborted
            signalled.set()

    @tool
    def stubborn() -> str:
        """Ignore."""
        loop.call_soon_threadsafe(ignoring.set)
        release.wait(10)
        return "too late"

    loop = asyncio.get_running_loop()
    model = ScriptedModel(says("Half").calls("attentive").calls("stubborn"))
    app = await open_app(cls := assistant(model, get_tools=lambda self: [attentive, stubborn]))
    handle = app.agent(cls, "room")
    shown = await watch(handle)

    # When the turn is cancelled while both run
    turn = asyncio.create_task(handle.save_messages("Go"))
    await soon(ignoring.wait())
    (await live(handle)).abort_all_requests("enough")
    result = await soon(turn)

    # Then it ended at once, without an error, and the late result is dropped
    await soon(signalled.wait())
    release.set()
    await breathe()
    assert (result.status, result.error, result.text) == ("aborted", "enough", "Half")
    assert only(shown, "error") == []
    assert only(shown, "tool-output-available") == []
    stored = (await handle.get_messages())[-1]
    assert [part["state"] for part in stored.tool_parts] == ["input-available", "input-available"]


@pytest.mark.case(652)
async def test_an_abort_closes_the_models_stream(open_app: OpenApp) -> None:
    model = ScriptedModel(says("Half").then_hangs(), says("Whole."))
    app = await open_app(cls := assistant(model))
    handle = app.agent(cls, "room")
    turn = asyncio.create_task(handle.save_messages("Go"))
    await soon(model.until_silent())
    (await live(handle)).abort_all_requests()
    assert (await soon(turn)).status == "aborted"
    assert model.cut_off == 1
    assert (await handle.save_messages("Again")).text == "Whole."


async def test_a_failing_answer_lets_running_tools_end_and_keeps_their_results(open_app: OpenApp) -> None:
    # Given a provider that breaks off while a tool runs
    running, go_on = asyncio.Event(), asyncio.Event()

    @tool
    async def work() -> str:
        """Work."""
        running.set()
        await go_on.wait()
        return "worked"

    model = ScriptedModel(calls("work").waits(running).then_fails("overloaded"))
    app = await open_app(cls := assistant(model, get_tools=lambda self: [work]))
    handle = app.agent(cls, "room")
    turn = asyncio.create_task(handle.save_messages("Work"))
    await soon(running.wait())
    await breathe()
    go_on.set()

    # When both are through, then the error is told and the work is not lost
    result = await soon(turn)
    assert (result.status, result.error) == ("error", "overloaded")
    assert result.message.tool_parts[0]["output"] == "worked"


@pytest.mark.case(35)
async def test_nothing_is_read_and_no_tool_starts_after_the_stream_has_failed(open_app: OpenApp) -> None:
    # Given a provider that goes on after it reported an error
    ran: list[int] = []

    @tool
    async def work() -> None:
        """Work."""
        ran.append(1)

    async def careless(events: AsyncIterator[ModelEvent]) -> AsyncIterator[ModelEvent]:
        async for event in events:
            yield event
        yield ToolCallReady("c1", "work", "{}")

    model = ScriptedModel(says("Half").then_fails("overloaded"))
    cls = assistant(
        model,
        get_tools=lambda self: [work],
        before_turn=configured(TurnConfig(experimental_transform=careless)),
    )
    app = await open_app(cls)

    # When it answers, then what follows the error is not taken
    result = await app.agent(cls, "room").save_messages("Work")
    assert (result.status, result.text, result.message.tool_parts) == ("error", "Half", [])
    assert ran == []


@pytest.mark.case(656)
async def test_ids_of_text_and_thinking_are_unique_over_all_steps(open_app: OpenApp) -> None:
    # Given a model that reuses its ids in every answer
    @tool
    async def look() -> str:
        """Look."""
        return "seen"

    again = says("a").thinks("b").calls("look")
    model = ScriptedModel(again, again, says("c").thinks("d"))
    app = await open_app(cls := assistant(model, get_tools=lambda self: [look]))
    handle = app.agent(cls, "room")
    shown = await watch(handle)

    # When three steps stream
    result = await handle.save_messages("Look")

    # Then every block has an id of its own, used by all of its chunks
    for kind in ("text", "reasoning"):
        starts = [chunk.id for chunk in only(shown, f"{kind}-start")]
        assert len(starts) == len(set(starts)) == 3
        assert [chunk.id for chunk in only(shown, f"{kind}-delta")] == starts
        assert [chunk.id for chunk in only(shown, f"{kind}-end")] == starts
    everything = [chunk.id for kind in ("text", "reasoning") for chunk in only(shown, f"{kind}-start")]
    assert len(set(everything)) == 6
    assert [p["text"] for p in result.message.parts if "text" in p] == ["a", "b", "a", "b", "c", "d"]


async def test_a_call_of_an_earlier_step_is_in_the_prompt_of_the_next(open_app: OpenApp) -> None:
    @tool
    async def look(place: str) -> str:
        """Look."""
        return f"nothing in {place}"

    model = ScriptedModel(
        says("First.").calls("look", place="a"), calls("look", place="b"), says("Nothing anywhere.")
    )
    app = await open_app(cls := assistant(model, get_tools=lambda self: [look]))
    await app.agent(cls, "room").save_messages("Look")
    assert script(model.requests[2]) == [
        ("user", "Look"),
        ("assistant", "First."),
        ("ToolCallPart", "look"),
        ("result", "nothing in a"),
        ("ToolCallPart", "look"),
        ("result", "nothing in b"),
    ]
