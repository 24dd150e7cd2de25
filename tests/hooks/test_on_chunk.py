"""on_chunk: each piece of the answer, as the model gave it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from everthink import Think, ToolContext, tool
from everthink.hooks.values import CalledTool, ToolResult
from everthink.models.port import Raw, ReasoningDelta, Source, TextDelta, ToolInputDelta, ToolInputStart
from everthink.testing.scripted import ScriptedModel, attaches, calls, calls_raw, says, thinks
from tests.conftest import OpenApp
from tests.support.agents import assistant, live
from tests.support.hooks import breathe, only, soon, watch

pytestmark = pytest.mark.anyio


@tool
async def look(place: str = "here") -> str:
    """Look."""
    return f"nothing {place}"


def listener(model: ScriptedModel, heard: list[Any], *tools: Any) -> type[Think]:
    return assistant(
        model,
        get_tools=lambda self: list(tools or [look]),
        on_chunk=lambda self, context: heard.append(context.chunk),
    )


@pytest.mark.case(174)
async def test_every_documented_kind_of_chunk_arrives_and_no_other(open_app: OpenApp) -> None:
    # Given a model that streams something of every kind
    heard: list[Any] = []
    play = (
        thinks("Hm")
        .says("Let me ", "look.")
        .cites("https://example.org")
        .streams_raw({"ping": 1})
        .attaches("data:image/png;base64,AA==")
        .calls("look", place="x", id="c1")
    )
    app = await open_app(cls := listener(ScriptedModel(play, says("Done.")), heard))

    # When it answers
    await app.agent(cls, "room").save_messages("Look")

    # Then the hook heard these, in order; starts, ends, files and finishes are not told
    assert [chunk.type for chunk in heard] == [
        "reasoning-delta",
        "text-delta",
        "text-delta",
        "source",
        "raw",
        "tool-input-start",
        "tool-input-delta",
        "tool-input-delta",
        "tool-call",
        "tool-result",
        "text-delta",
    ]
    kinds = [
        ReasoningDelta,
        TextDelta,
        TextDelta,
        Source,
        Raw,
        ToolInputStart,
        ToolInputDelta,
        ToolInputDelta,
    ]
    assert [type(chunk) for chunk in heard] == [*kinds, CalledTool, ToolResult, TextDelta]
    assert [chunk.text for chunk in heard if chunk.type == "text-delta"] == ["Let me ", "look.", "Done."]
    assert heard[0].text == "Hm"
    assert heard[3].url == "https://example.org"
    assert heard[4].value == {"ping": 1}
    assert (heard[5].id, heard[5].name) == ("c1", "look")
    assert heard[6].delta + heard[7].delta == '{"place": "x"}'
    assert (heard[8].tool_call_id, heard[8].tool_name, heard[8].input) == ("c1", "look", {"place": "x"})
    assert (heard[9].tool_call_id, heard[9].output, heard[9].is_error) == ("c1", "nothing x", False)


async def test_an_answer_of_files_alone_tells_nothing(open_app: OpenApp) -> None:
    heard: list[Any] = []
    app = await open_app(cls := listener(ScriptedModel(attaches("data:image/png;base64,AA==")), heard))
    result = await app.agent(cls, "room").save_messages("Draw")
    assert heard == []
    assert result.message.parts[-1]["url"] == "data:image/png;base64,AA=="


async def test_preliminary_results_arrive_before_the_final_one(open_app: OpenApp) -> None:
    heard: list[Any] = []

    @tool
    async def count() -> Any:
        """Count."""
        yield 1
        yield 2

    @tool
    async def work(ctx: ToolContext) -> str:
        """Work."""
        await ctx.progress("half way")
        return "done"

    model = ScriptedModel(calls("count"), calls("work"), says("Done."))
    app = await open_app(cls := listener(model, heard, count, work))
    await app.agent(cls, "room").save_messages("Go")
    told = [(chunk.output, chunk.preliminary) for chunk in heard if chunk.type == "tool-result"]
    assert told == [(1, True), (2, True), (2, False), ("half way", True), ("done", False)]


@pytest.mark.case(174)
async def test_counting_the_streamed_text_is_a_one_liner(open_app: OpenApp) -> None:
    class Assistant(Think):
        model = ScriptedModel(says("It ", "rains", "."))
        streamed = 0

        def on_chunk(self, ctx):
            if ctx.chunk.type == "text-delta":
                self.streamed += len(ctx.chunk.text)

    app = await open_app(Assistant)
    await app.agent(Assistant, "room").save_messages("Weather?")
    assert (await live(app.agent(Assistant, "room"))).streamed == 9


async def test_empty_pieces_of_text_are_not_told(open_app: OpenApp) -> None:
    heard: list[Any] = []
    app = await open_app(cls := listener(ScriptedModel(says("", "a", "", "b")), heard))
    handle = app.agent(cls, "room")
    shown = await watch(handle)
    await handle.save_messages("Hi")
    assert [chunk.text for chunk in heard] == ["a", "b"]
    assert [chunk.delta for chunk in only(shown, "text-delta")] == ["a", "b"]


@pytest.mark.case(175)
@pytest.mark.parametrize("is_async", [False, True])
async def test_raising_changes_nothing(open_app: OpenApp, is_async: bool) -> None:
    heard: list[Any] = []

    def sync(self, context):
        heard.append(context.chunk)
        raise ValueError("cannot listen")

    async def later(self, context):
        heard.append(context.chunk)
        raise ValueError("cannot listen")

    model = ScriptedModel(calls("look"), says("Do", "ne."))
    cls = assistant(model, get_tools=lambda self: [look], on_chunk=later if is_async else sync)
    app = await open_app(cls)
    result = await app.agent(cls, "room").save_messages("Look")
    assert (result.status, result.text) == ("completed", "Done.")
    assert result.message.tool_parts[0]["output"] == "nothing here"
    assert [chunk.text for chunk in heard if chunk.type == "text-delta"] == ["Do", "ne."]


async def test_a_slow_hook_slows_the_model_down(open_app: OpenApp) -> None:
    # Given a hook that holds on to the first piece, and a model that tells when it is asked for more
    entered, go_on, asked_for_more = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def on_chunk(self, context):
        if context.chunk.text == "a":
            entered.set()
            await go_on.wait()

    async def more() -> None:
        asked_for_more.set()

    model = ScriptedModel(says("a").waits(more).says("b"))
    app = await open_app(cls := assistant(model, on_chunk=on_chunk))
    handle = app.agent(cls, "room")
    shown = await watch(handle)

    # When the answer streams
    turn = asyncio.create_task(handle.save_messages("Hi"))
    await soon(entered.wait())
    await breathe()

    # Then nothing more is taken from the model until the hook returned
    assert not asked_for_more.is_set()
    go_on.set()
    await soon(turn)
    assert asked_for_more.is_set()
    assert [chunk.delta for chunk in only(shown, "text-delta")] == ["a", "b"]


async def test_a_turn_can_be_cancelled_while_the_hook_holds_it(open_app: OpenApp) -> None:
    entered = asyncio.Event()

    async def on_chunk(self, context):
        entered.set()
        await asyncio.Event().wait()

    app = await open_app(cls := assistant(ScriptedModel(says("a", "b")), on_chunk=on_chunk))
    handle = app.agent(cls, "room")
    turn = asyncio.create_task(handle.save_messages("Hi"))
    await soon(entered.wait())
    (await live(handle)).abort_all_requests()
    result = await soon(turn)
    assert (result.status, result.text) == ("aborted", "a")


async def test_an_invalid_call_is_told_as_invalid(open_app: OpenApp) -> None:
    heard: list[Any] = []
    model = ScriptedModel(calls_raw("look", "{broken", id="c1"), says("Sorry."))
    app = await open_app(cls := listener(model, heard))
    await app.agent(cls, "room").save_messages("Look")
    told = [chunk for chunk in heard if chunk.type == "tool-call"]
    assert [(call.tool_call_id, call.input, call.invalid) for call in told] == [("c1", "{broken", True)]
