"""Tools that show how far they are: generators, and ctx.progress."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from everthink import Allow, Block, Substitute, Tool, ToolContext, tool
from everthink.chunks import encode
from everthink.journal.tool_errors import UNTOLD_TOOL
from everthink.testing.scripted import ScriptedModel, calls, says
from tests.conftest import OpenApp
from tests.support.agents import assistant, live
from tests.support.hooks import only, results, soon, watch

pytestmark = pytest.mark.anyio


@tool
async def count(to: int = 3) -> AsyncIterator[dict[str, int]]:
    """Count."""
    for number in range(1, to + 1):
        yield {"at": number}


async def numbers() -> AsyncIterator[int]:
    for number in (1, 2, 3):
        yield number


@tool
async def awaited_generator() -> Any:
    """Return an async generator after awaiting."""
    await asyncio.sleep(0)
    return numbers()


@tool
def direct_generator() -> Any:
    """Return an async generator at once."""
    return numbers()


@tool
def plain_generator() -> Iterator[int]:
    """Return a plain generator."""
    return generator_function.__wrapped__()  # type: ignore[attr-defined]


@tool
def generator_function() -> Iterator[int]:
    """Be a plain generator."""
    yield from (1, 2, 3)


def shown_outputs(chunks: list[Any]) -> list[tuple[Any, bool]]:
    return [(chunk.output, bool(chunk.preliminary)) for chunk in only(chunks, "tool-output-available")]


@pytest.mark.case(185)
@pytest.mark.parametrize("hooks", [{}, {"before_tool_call": lambda self, call: None}])
async def test_a_generator_shows_every_value_and_its_last_one_is_the_result(
    open_app: OpenApp, hooks: dict[str, Any]
) -> None:
    # Given a tool that is an async generator
    outcomes: list[Any] = []
    model = ScriptedModel(calls("count"), says("Three."), says("Bye."))
    cls = assistant(
        model,
        get_tools=lambda self: [count],
        after_tool_call=lambda self, outcome: outcomes.append(outcome.output),
        **hooks,
    )
    app = await open_app(cls)
    handle = app.agent(cls, "room")
    shown = await watch(handle)

    # When it runs
    result = await handle.save_messages("Count")

    # Then each value was shown as preliminary, and the last one again as final
    assert shown_outputs(shown) == [
        ({"at": 1}, True),
        ({"at": 2}, True),
        ({"at": 3}, True),
        ({"at": 3}, False),
    ]
    # And storage, hooks, the next step and the next turn have the final one
    part = result.message.tool_parts[0]
    assert (part["state"], part["output"]) == ("output-available", {"at": 3})
    assert "preliminary" not in part
    assert outcomes == [{"at": 3}]
    assert [part.output for part in results(model.requests[1])] == [{"at": 3}]
    await handle.save_messages("Bye")
    assert [part.output for part in results(model.requests[2])] == [{"at": 3}]


@pytest.mark.case(184)
@pytest.mark.parametrize("made", [awaited_generator, direct_generator, plain_generator, generator_function])
async def test_an_iterable_from_a_plain_tool_gives_its_last_value(open_app: OpenApp, made: Tool) -> None:
    model = ScriptedModel(calls(made.name), says("Three."))
    app = await open_app(cls := assistant(model, get_tools=lambda self: [made]))
    handle = app.agent(cls, "room")
    shown = await watch(handle)
    await handle.save_messages("Count")
    assert shown_outputs(shown) == [(3, False)]
    assert [part.output for part in results(model.requests[1])] == [3]


@pytest.mark.case(185)
async def test_a_plain_tool_shows_its_result_once(open_app: OpenApp) -> None:
    @tool
    async def look() -> list[int]:
        """Look."""
        return [1, 2]

    model = ScriptedModel(calls("look"), says("Done."))
    app = await open_app(cls := assistant(model, get_tools=lambda self: [look]))
    handle = app.agent(cls, "room")
    shown = await watch(handle)
    await handle.save_messages("Look")
    assert shown_outputs(shown) == [([1, 2], False)]


async def test_a_generator_that_yields_nothing_gives_null(open_app: OpenApp) -> None:
    model = ScriptedModel(calls("count", to=0), says("None."))
    app = await open_app(cls := assistant(model, get_tools=lambda self: [count]))
    handle = app.agent(cls, "room")
    shown = await watch(handle)
    await handle.save_messages("Count")
    assert shown_outputs(shown) == [(None, False)]


async def test_each_value_is_shown_when_it_comes(open_app: OpenApp) -> None:
    # Given a generator that waits between its values
    go_on = asyncio.Event()

    @tool
    async def slow() -> AsyncIterator[str]:
        """Slow."""
        yield "half"
        await go_on.wait()
        yield "whole"

    model = ScriptedModel(calls("slow"), says("Done."))
    app = await open_app(cls := assistant(model, get_tools=lambda self: [slow]))

    # When it is read while it works, then the first value is there before the second was made
    seen: list[Any] = []

    async def read() -> None:
        async for chunk in app.agent(cls, "room").chat("Go"):
            if chunk.type == "tool-output-available":
                seen.append((chunk.output, chunk.preliminary, go_on.is_set()))
                go_on.set()

    await soon(read())
    assert seen == [("half", True, False), ("whole", True, True), ("whole", False, True)]


async def test_a_generator_that_raises_half_way_is_a_failure_without_a_half_result(open_app: OpenApp) -> None:
    @tool
    async def breaks() -> AsyncIterator[int]:
        """Break."""
        yield 1
        raise ValueError("broke")

    model = ScriptedModel(calls("breaks"), says("Oh."))
    app = await open_app(cls := assistant(model, get_tools=lambda self: [breaks]))
    result = await app.agent(cls, "room").save_messages("Go")
    part = result.message.tool_parts[0]
    assert (part["state"], part["errorText"]) == ("output-error", UNTOLD_TOOL)
    assert "output" not in part
    assert "preliminary" not in part
    assert [(part.output, part.is_error) for part in results(model.requests[1])] == [("broke", True)]


@pytest.mark.parametrize(
    ("decision", "outputs"),
    [
        (Block("no"), [("no", False)]),
        (Substitute(7), [(7, False)]),
        (Allow({"to": 1}), [({"at": 1}, True), ({"at": 1}, False)]),
    ],
)
async def test_decisions_hold_for_generators_too(
    open_app: OpenApp, decision: Any, outputs: list[Any]
) -> None:
    model = ScriptedModel(calls("count"), says("Done."))
    cls = assistant(model, get_tools=lambda self: [count], before_tool_call=lambda self, call: decision)
    app = await open_app(cls)
    handle = app.agent(cls, "room")
    shown = await watch(handle)
    await handle.save_messages("Count")
    assert shown_outputs(shown) == outputs


async def test_a_plain_tool_may_show_progress(open_app: OpenApp) -> None:
    # Given a tool that reports how far it is
    @tool
    async def work(ctx: ToolContext) -> str:
        """Work."""
        await ctx.progress({"percent": 50})
        await ctx.progress({"percent": 90})
        return "done"

    model = ScriptedModel(calls("work"), says("Done."))
    app = await open_app(cls := assistant(model, get_tools=lambda self: [work]))
    handle = app.agent(cls, "room")
    shown = await watch(handle)

    # When it runs, then readers saw it, and the result replaced it
    result = await handle.save_messages("Work")
    assert shown_outputs(shown) == [({"percent": 50}, True), ({"percent": 90}, True), ("done", False)]
    part = result.message.tool_parts[0]
    assert part["output"] == "done"
    assert "preliminary" not in part
    assert [part.output for part in results(model.requests[1])] == ["done"]


async def test_progress_that_is_not_json_is_the_tools_own_error(open_app: OpenApp) -> None:
    @tool
    async def work(ctx: ToolContext) -> str:
        """Work."""
        await ctx.progress(object())
        return "done"

    model = ScriptedModel(calls("work"), says("Hm."))
    app = await open_app(cls := assistant(model, get_tools=lambda self: [work]))
    await app.agent(cls, "room").save_messages("Work")
    (part,) = results(model.requests[1])
    assert part.is_error
    assert "not JSON" in part.output


async def test_progress_of_an_aborted_turn_is_not_shown(open_app: OpenApp) -> None:
    # Given a tool that holds on to its context and reports long after the turn was stopped
    contexts: list[ToolContext] = []
    running = asyncio.Event()

    @tool
    async def work(ctx: ToolContext) -> None:
        """Work."""
        contexts.append(ctx)
        await ctx.progress("begun")
        running.set()
        await asyncio.Event().wait()

    model = ScriptedModel(calls("work"))
    app = await open_app(cls := assistant(model, get_tools=lambda self: [work]))
    handle = app.agent(cls, "room")
    shown = await watch(handle)
    turn = asyncio.create_task(handle.save_messages("Work"))
    await soon(running.wait())
    (await live(handle)).abort_all_requests()
    assert (await soon(turn)).status == "aborted"

    # When it reports now, then nobody sees it
    await contexts[0].progress("late")
    assert shown_outputs(shown) == [("begun", True)]


async def test_an_interrupted_generators_half_result_is_mended_in_the_next_turn(open_app: OpenApp) -> None:
    shown_first = asyncio.Event()

    @tool
    async def endless() -> AsyncIterator[int]:
        """Never end."""
        yield 1
        shown_first.set()
        await asyncio.Event().wait()

    model = ScriptedModel(calls("endless", id="c1"), says("Bye."))
    app = await open_app(cls := assistant(model, get_tools=lambda self: [endless]))
    handle = app.agent(cls, "room")
    turn = asyncio.create_task(handle.save_messages("Go"))
    await soon(shown_first.wait())
    (await live(handle)).abort_all_requests()
    await soon(turn)
    await handle.save_messages("Bye")
    (part,) = results(model.last_request)
    assert (part.id, part.is_error) == ("c1", True)
    assert "interrupted" in part.output


async def test_the_result_after_progress_says_that_it_is_not_preliminary(open_app: OpenApp) -> None:
    # The published hook of a tab that watches keeps the mark until a chunk takes it away
    @tool
    def at_once() -> str:
        """Answer at once."""
        return "done"

    model = ScriptedModel(calls("count", to=1).calls("at_once"), says("So."))
    app = await open_app(cls := assistant(model, get_tools=lambda self: [count, at_once]))
    seen = await watch(agent := app.agent(cls, "room"))
    await agent.save_messages("Count")
    told = {
        json.dumps(chunk.output): json.loads(encode(chunk)) for chunk in only(seen, "tool-output-available")
    }
    assert told['{"at": 1}']["preliminary"] is False
    assert "preliminary" not in told['"done"']
    assert all("preliminary" not in part for part in (await agent.get_messages())[-1].tool_parts)
