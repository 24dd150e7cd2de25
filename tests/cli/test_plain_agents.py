"""Agents that do not chat, in the terminal and in the list of a server: named, and marked as such."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from everthink import Agent, App, Think
from everthink.cli.main import cli
from everthink.serving.page import WithPage
from everthink.serving.target import Loaded
from everthink.testing import ScriptedModel, says
from everthink.testing.in_process_server import Listening

pytestmark = pytest.mark.anyio


class Counter(Agent):
    """It has a state, and no conversation."""

    async def add(self) -> None:
        """Count."""
        await self.set_state({"n": 1})


class Assistant(Think):
    """It chats."""

    model = ScriptedModel(says("Hello."), repeat=True)
    sub_agents = (Counter,)


@pytest.fixture
def store(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/agents.db"


def dev(store: str, *agents: type[Agent]) -> Listening:
    """What `everthink dev` serves."""
    app = App(*agents, store=store, grace=0.0)
    return Listening(WithPage(Loaded(app, "these", app)))


async def chat(run: CliRunner, server: Listening, *whom: str) -> Any:
    """What the command says."""
    line = ["chat", *whom, "--server", f"http://{server.host}", "-m", "Hi"]
    return await asyncio.to_thread(run.invoke, cli, line)


async def test_they_are_shown_by_inspect_and_marked(run: CliRunner, store: str) -> None:
    async with App(Assistant, Counter, store=store, grace=0.0) as app:
        await app.agent(Counter, "one").add()
        await app.agent(Assistant, "talkative").save_messages("Hi")
        await app.agent(Assistant, "silent").set_state({"n": 1})
        await (await app.agent(Assistant, "talkative").sub_agent(Counter, "below")).add()
    shown = (await asyncio.to_thread(run.invoke, cli, ["inspect", "--store", store])).stdout
    lines = {line.split()[0]: line.split()[1:] for line in shown.splitlines() if "/" in line}
    assert lines["Counter/one"] == ["no", "chat"]
    assert lines["Counter/below"] == ["no", "chat"]
    assert lines["Assistant/silent"][:2] == ["0", "0"]  # nobody has said anything to it yet
    told = await asyncio.to_thread(run.invoke, cli, ["inspect", "--store", store, "--json"])
    chats = {(one["class"], one["name"]): one["chats"] for one in json.loads(told.stdout)["agents"]}
    assert chats == {
        ("Assistant", "talkative"): True,
        ("Assistant", "silent"): True,
        ("Counter", "one"): False,
        ("Counter", "below"): False,
    }


async def test_a_server_lists_them_and_says_that_they_do_not_chat(store: str) -> None:
    async with dev(store, Counter, Assistant) as server:
        listed = (await server.http("/everthink/agents")).json
        assert [(one["class"], one["kebab"], one["chats"]) for one in listed] == [
            ("Counter", "counter", False),
            ("Assistant", "assistant", True),
        ]
        looked = await server.http("/everthink/inspect/counter/one")
        assert looked.status == 404
        assert looked.json["error"] == "A Counter does not chat: it has no journal to look at."


async def test_who_wants_to_talk_to_one_hears_why_not(run: CliRunner, store: str) -> None:
    async with dev(store, Counter, Assistant) as server:
        for whom in ("counter/one", "assistant/room/sub/counter/below"):
            shown = await chat(run, server, whom)
            assert shown.exit_code == 1
            assert f"counter/{whom.rpartition('/')[2]} does not chat: it is a plain Agent" in shown.output
            assert f"everthink chat http://{server.host}/agents/assistant/default" in shown.output
            assert "Traceback" not in shown.output


async def test_who_names_nobody_talks_to_the_first_that_chats(run: CliRunner, store: str) -> None:
    async with dev(store, Counter, Assistant) as server:
        shown = await chat(run, server)
        assert (shown.exit_code, "Hello." in shown.output) == (0, True), shown.output
        # Nor is a slip led to one that does not
        shown = await chat(run, server, "assistent/room")
        assert "agents/assistant/room" in shown.output
        assert "agents/counter" not in shown.output


async def test_where_none_chats_that_is_said(run: CliRunner, store: str) -> None:
    async with dev(store, Counter) as server:
        shown = await chat(run, server)
        assert shown.exit_code == 1
        assert f"None of the agents at http://{server.host} chats: counter." in shown.output
