"""Families and several processes: one claim for all of a family, which moves as one."""

from __future__ import annotations

import asyncio
import os
import random
from typing import Any

import pytest

from everthink import App, Think, agent_tool
from everthink.errors import AgentElsewhere, AgentError, LeaseLost, StoreClosed, TurnInterrupted
from everthink.models.port import Request, ToolMessage
from everthink.store.port import Statement
from everthink.testing import ScriptedModel, calls, says
from everthink.testing.scripted import Play
from tests.support.agents import live
from tests.support.server import served

pytestmark = pytest.mark.anyio

RACES = int(os.environ.get("EVERTHINK_RACES", "40"))


def delegated(request: Request) -> Play:
    """Ask the child, then answer."""
    last = request.messages[-1]
    return says("Done.") if isinstance(last, ToolMessage) else calls("ask", query="go on")


class Helper(Think):
    """The child."""

    model: Any = ScriptedModel(says("Help", "ed."), repeat=True, records=False, strict=False)


class Head(Think):
    """The parent."""

    model: Any = ScriptedModel(delegated, repeat=True, records=False, strict=False)
    ask = agent_tool(Helper, description="Ask.")


def app_of(url: str) -> App:
    return App(Head, store=url, grace=0.0, idle_after=None)


async def test_a_child_is_where_its_family_is(postgres_url: str) -> None:
    async with app_of(postgres_url) as first, app_of(postgres_url) as second:
        child: Any = await first.agent(Head, "a").sub_agent(Helper, "h")
        assert (await child.save_messages("Hello?")).text == "Helped."
        # Only the child is in memory there
        await first.evict(Head, "a")
        with pytest.raises(AgentElsewhere, match="'Head/a' lives in another process"):
            await second.agent(Head, "a").get_messages()
        with pytest.raises(AgentElsewhere):
            await second.agent(Head, "a").sub_agent(Helper, "h")
        async with served(second) as server:
            answer = await server.http("/agents/head/a/sub/helper/h/get-messages")
            assert (answer.status, answer.headers["retry-after"]) == (503, "1")
            assert (await (await server.connect("/agents/head/a/sub/helper/h")).until_closed())[0] == 1013
        store = (await first.open()).store
        assert await store.fetch("SELECT agent FROM claims") == [("Head/a",)]


async def test_a_family_moves_when_its_last_member_has_left(postgres_url: str) -> None:
    async with app_of(postgres_url) as first, app_of(postgres_url) as second:
        child: Any = await first.agent(Head, "a").sub_agent(Helper, "h")
        await child.save_messages("Hello?")
        kept = await live(child)
        await first.evict(Head, "a")
        await first.agent(Head, "a").abort_sub_agent(Helper, "h")
        await first.evict(Head, "a")
        moved: Any = await second.agent(Head, "a").sub_agent(Helper, "h")
        assert [message.text for message in await moved.get_messages()] == ["Hello?", "Helped."]
        with pytest.raises(StoreClosed, match="has left memory"):
            await kept.set_state({"stale": True})
        with pytest.raises(AgentElsewhere):
            await child.get_messages()


async def test_all_members_leave_when_the_lease_is_lost(postgres_url: str) -> None:
    async with app_of(postgres_url) as first:
        child: Any = await first.agent(Head, "a").sub_agent(Helper, "h")
        kept = [await live(child), await live(first.agent(Head, "a"))]
        directory = await first.open()
        # Another process has found this one dead and claimed the family
        store = directory.store
        await store.apply([Statement("UPDATE claims SET epoch = epoch + 1, owner = 'other'")])
        with pytest.raises(LeaseLost):
            await kept[0].set_state({"stale": True})
        with pytest.raises((LeaseLost, StoreClosed)):
            await kept[1].set_state({"stale": True})
        assert await store.fetch("SELECT 1 FROM kv WHERE name = 'state'") == []


async def test_a_turn_of_a_family_is_taken_up_by_the_other_when_its_owner_dies(postgres_url: str) -> None:
    """The owner is killed for good in tests/crash/test_children_killed.py; here it closes in the middle."""
    async with app_of(postgres_url) as second:
        first = app_of(postgres_url)
        await first.open()
        await first.agent(Head, "a").submit_messages("Go", submission_id="s")
        await first.close()
        await until_over(second)
        (run,) = await second.agent(Head, "a").list_agent_tool_runs()
        assert run.status == "completed"
        assert (await second.agent(Head, "a").get_messages())[-1].text == "Done."


async def until_over(app: App) -> None:
    """Return once the submission is over, wherever it is run."""
    async with asyncio.timeout(30):
        while True:
            try:
                found = await app.agent(Head, "a").wait_for_submission("s")
                assert found is not None
                assert found.status == "completed"
                return
            except AgentElsewhere:
                await (await app.open()).store.fetch("SELECT pg_sleep(0.02)")


async def test_families_are_never_in_two_places(postgres_url: str) -> None:
    """Two apps use the same families as chance has it: all that was said to be kept is there, once."""
    dice = random.Random(13)
    async with app_of(postgres_url) as first, app_of(postgres_url) as second:
        kept: dict[str, list[str]] = {}
        refused, broken = 0, list[str]()

        async def deed(number: int) -> None:
            nonlocal refused
            app, root = dice.choice((first, second)), f"r{dice.randrange(4)}"
            what = dice.choice(("root", "child", "run", "evict", "abort", "delete"))
            name = f"c{dice.randrange(2)}"
            try:
                head: Any = app.agent(Head, root)
                if what == "root":
                    await head.save_messages(f"u{number}")
                    kept.setdefault(root, []).append(f"u{number}")
                elif what == "child":
                    child = await head.sub_agent(Helper, name)
                    await child.add_messages([f"u{number}"])
                elif what == "run":
                    result = await head.run_agent_tool(Helper, input="x", run_id=f"run{number}")
                    assert result.status == "completed", result
                    kept.setdefault(f"{root}/runs", []).append(f"run{number}")
                elif what == "evict":
                    await app.evict(Head, root)
                elif what == "abort":
                    await head.abort_sub_agent(Helper, name)
                else:
                    await head.delete_sub_agent(Helper, name)
            except AgentElsewhere:
                refused += 1
            except (TurnInterrupted, StoreClosed, AgentError):
                broken.append(what)  # it was told so: another deed took the agent from memory

        for _ in range(RACES):
            await asyncio.gather(*(deed(dice.randrange(10**9)) for _ in range(5)))
        for root in range(4):
            app = first
            try:
                texts = [message.text for message in await app.agent(Head, f"r{root}").get_messages()]
            except AgentElsewhere:
                app = second
                texts = [message.text for message in await app.agent(Head, f"r{root}").get_messages()]
            for text in kept.get(f"r{root}", []):
                assert texts.count(text) == 1
            runs = [run.run_id for run in await app.agent(Head, f"r{root}").list_agent_tool_runs()]
            assert set(kept.get(f"r{root}/runs", [])) <= set(runs)
            assert len(runs) == len(set(runs))
        assert refused > 0
        store = (await first.open()).store
        assert await store.fetch("SELECT agent FROM claims WHERE agent LIKE '%/sub/%'") == []
