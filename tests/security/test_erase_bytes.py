"""After an erase, or a clear, no byte of what was said is left in the files of the database."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from everthink import App
from everthink.clock import SystemClock
from everthink.codemode import queries as executions
from everthink.journal.queries import segment
from everthink.runtime.erasing import TABLES
from everthink.store.port import AgentStore
from everthink.testing import ScriptedModel, says
from everthink.workspace import Workspace
from tests.support.agents import live
from tests.support.server import open_app, served

from .lives import SECRET, Keeper, anyio_backend, live_through, quiet, rows_of, traces

__all__ = ["anyio_backend"]

pytestmark = pytest.mark.anyio


async def test_no_byte_of_an_erased_agent_is_left(tmp_path: Path) -> None:
    async with App(Keeper, store=f"sqlite:///{tmp_path}/a.db", grace=0.0) as app:
        # Given an agent with a life, and another one that never heard the secret
        await live_through(app)
        store = AgentStore((await app.open()).store, app.agent(Keeper, "ada").id)
        files = Workspace().bind(store, clock=SystemClock())
        await files.write_file(f"/{SECRET}.txt", SECRET)
        await files.write_file(f"/{SECRET}.txt", f"again {SECRET}")
        code = f"await tools.look_up(what={SECRET!r})"
        call = executions.CallRow(0, "tools.look_up", f'"{SECRET}"', "done", outcome=f'"{SECRET}"')
        begun = executions.began("x", runtime="execute", language="python", turn="t", code=code, now=1)
        await store.apply([begun, executions.made("x", call)])
        await app.agent(Keeper, "bob").add_messages("hello")
        assert traces(tmp_path)["a.db-wal"] > 20
        missing = {table.name for table in TABLES} - set(await rows_of(app))
        of_others = {"incidents", "scheduled_tasks", "sessions", "suspects", "authors", "mcp_servers"}
        learned = {"extensions", "extension_values", "deliveries", "threads"}
        assert missing <= {*of_others, *learned, "child_runs", "milestones"}
        # When it is erased
        assert await app.erase(Keeper, "ada") > 20
        # Then nothing is left, while the app runs and when it is closed
        assert traces(tmp_path) == {}
        assert await rows_of(app) == {}
        assert (await app.agent(Keeper, "bob").get_messages())[0].text == "hello"
    assert traces(tmp_path) == {}


async def test_no_byte_of_a_conversation_is_left_after_a_clear_over_a_socket(tmp_path: Path) -> None:
    app = open_app(tmp_path, Keeper)
    async with served(app) as server:
        chat = await server.connect(Keeper, "ada")
        await chat.until_done(await chat.say(f"My island is {SECRET}"))
        await chat.until_done(await chat.say(f"Look up {SECRET}"))
        assert traces(tmp_path)
        other = await server.connect(Keeper, "ada")
        await chat.clear()
        await other.until_frame("chat_clear")
        await quiet(app)
        assert traces(tmp_path) == {}
        assert await (await live(app.agent(Keeper, "ada"))).session.search(SECRET) == []
    assert traces(tmp_path) == {}


async def test_clearing_again_and_again_owes_one_pass_only(tmp_path: Path) -> None:
    async with open_app(tmp_path, Keeper) as app:
        agent: Any = await live(app.agent(Keeper, "ada"))
        passes = 0
        database: Any = (await app.open()).store
        scrub = database.scrub

        async def counted(**options: Any) -> bool:
            nonlocal passes
            passes += 1
            return await scrub(**options)

        database.scrub = counted
        for number in range(100):
            await agent.add_messages(f"{SECRET} {number}")
            await agent.clear_messages()
            assert len(agent._home._tasks) <= 1
        await quiet(app)
        assert passes < 100
        assert traces(tmp_path) == {}


async def test_what_a_cleared_turn_says_late_is_not_left_either(tmp_path: Path) -> None:
    """The turn that runs when the conversation is cleared may write chunks until it has noticed."""

    class Talker(Keeper):
        model = ScriptedModel(says(*[f"{SECRET} " for _ in range(200)]).then_hangs())

    async with open_app(tmp_path, Talker) as app:
        agent: Any = await live(app.agent(Talker, "ada"))
        home = agent._home
        ask = home.chat.cleaning.ask

        def ask_after_a_late_chunk(running: Any) -> None:
            [turn] = running
            late = segment(turn, first=9_000, last=9_000, chunks=f'["{SECRET}"]', now=0)
            home.store.apply([late])
            ask(running)

        home.chat.cleaning.ask = ask_after_a_late_chunk
        seen = 0
        async for _ in agent.chat(f"Tell me about {SECRET}"):
            seen += 1
            if seen == 50:
                await agent.clear_messages()
        await quiet(app, cls=Talker)
        assert "segments" not in await rows_of(app, "Talker/ada")
        assert traces(tmp_path) == {}
