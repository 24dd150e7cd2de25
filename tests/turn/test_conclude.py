"""Tools whose own rows are durable together with their result, or not at all."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from everthink import Think, ToolContext, tool
from everthink.errors import StoreFull
from everthink.store.port import Statement
from everthink.testing.scripted import ScriptedModel, calls, says
from tests.conftest import OpenApp
from tests.support.agents import assistant
from tests.support.hooks import soon
from tests.support.turns import gated_app

pytestmark = pytest.mark.anyio

KEPT = "conclude-kept"


def row() -> Statement:
    """What the tool of these tests keeps."""
    sql = "INSERT INTO kv (agent, name, value) VALUES (:agent, ?, ?)"
    return Statement(sql, (KEPT, '"yes"'))


def keeper(**attributes: Any) -> type[Think]:
    """An agent whose tool keeps something of its own."""
    model = ScriptedModel(calls("keep", id="c1"), says("Done."), repeat=True)
    return assistant(model, **attributes)


@tool
async def keep(ctx: ToolContext) -> str:
    """Keep something."""
    assert ctx.conclude is not None
    await ctx.conclude("kept", [row()], None)
    return "what counts no more"


async def test_the_rows_the_ledger_and_the_result_are_one_commit(tmp_path: Path) -> None:
    cls = keeper(get_tools=lambda self: [keep])
    async with gated_app(tmp_path, cls) as (app, store):
        result = await soon(app.agent(cls).save_messages("Go"))
        assert result.status == "completed"
        [commit] = [one for one in store.commits if any(KEPT in map(str, s.params) for s in one)]
        texts = " ".join(statement.sql for statement in commit)
        assert "UPDATE calls" in texts
        assert "INSERT INTO segments" in texts
        messages = await app.agent(cls).get_messages()
        [part] = [part for part in messages[-1].parts if "toolCallId" in part]
        assert (part["state"], part["output"]) == ("output-available", "kept")


async def test_it_returns_once_all_of_it_is_durable(tmp_path: Path) -> None:
    seen: list[list[Any]] = []

    @tool(name="keep")
    async def look(ctx: ToolContext) -> None:
        """Keep something and look."""
        assert ctx.conclude is not None
        told: list[str] = []
        await ctx.conclude("kept", [row()], lambda: told.append("stored"))
        store = ctx.agent._home.store
        seen.append(
            [*told, *await store.fetch("SELECT value FROM kv WHERE agent = :agent AND name = ?", KEPT)]
        )

    cls = keeper(get_tools=lambda self: [look])
    async with gated_app(tmp_path, cls) as (app, _):
        await soon(app.agent(cls).save_messages("Go"))
    assert seen == [["stored", ('"yes"',)]]


async def test_what_cannot_be_committed_is_neither_a_result_nor_a_row(tmp_path: Path) -> None:
    raised: list[Exception] = []

    @tool(name="keep")
    async def fails(ctx: ToolContext) -> None:
        """Keep something in vain."""
        assert ctx.conclude is not None
        try:
            await ctx.conclude("kept", [row()], None)
        except Exception as error:
            raised.append(error)
            raise

    cls = keeper(get_tools=lambda self: [fails])
    async with gated_app(tmp_path, cls) as (app, store):
        store.fail(StoreFull("full"), matching=lambda commit: any(KEPT in map(str, s.params) for s in commit))
        result = await soon(app.agent(cls).save_messages("Go"))
        assert result.status == "error"
        assert [type(error) for error in raised] == [StoreFull]
        assert not await store.fetch("SELECT value FROM kv WHERE name = ?", KEPT)
        messages = await app.agent(cls).get_messages()
        assert not any(part.get("output") for part in messages[-1].parts)


async def test_a_tool_that_raises_after_its_result_is_stored_has_that_result(
    open_app: OpenApp, caplog: pytest.LogCaptureFixture
) -> None:
    @tool(name="keep")
    async def raises(ctx: ToolContext) -> None:
        """Keep something, then fail."""
        assert ctx.conclude is not None
        await ctx.conclude("kept", [row()], None)
        raise RuntimeError("too late")

    app = await open_app(cls := keeper(get_tools=lambda self: [raises]))
    result = await soon(app.agent(cls).save_messages("Go"))
    assert result.status == "completed"
    [part] = [part for part in result.message.parts if "toolCallId" in part]
    assert part["output"] == "kept"
    assert "raised after its result was stored" in caplog.text


@pytest.mark.parametrize("clears", [False, True])
async def test_a_tool_that_concludes_while_its_turn_is_stopped_hears_what_became_of_it(
    tmp_path: Path, clears: bool
) -> None:
    """Stopped, the result goes into the last commit; cleared, nothing of the turn does."""
    begun, ended = asyncio.Event(), asyncio.Event()
    became: list[str] = []

    @tool(name="keep")
    async def waits(ctx: ToolContext) -> None:
        """Conclude when the turn is being stopped."""
        assert ctx.conclude is not None
        try:
            begun.set()
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            try:
                await ctx.conclude("kept", [row()], None)
                became.append("kept")
            except Exception as error:
                became.append(type(error).__name__)
            finally:
                ended.set()
            raise

    cls = keeper(get_tools=lambda self: [waits])
    async with gated_app(tmp_path, cls) as (app, store):
        agent: Any = app.agent(cls)
        asked = asyncio.ensure_future(agent.save_messages("Go"))
        await soon(begun.wait())
        await (agent.clear_messages() if clears else agent.abort_all_requests())
        await soon(ended.wait())
        await soon(asyncio.wait([asked]))
        rows = await store.fetch("SELECT value FROM kv WHERE name = ?", KEPT)
        assert (became == ["kept"]) == bool(rows), (became, rows)
