"""What a tool raises is for the model. People read it only when the tool said so, with a `ToolError`."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from everthink import Think, ToolError, tool
from everthink.journal.tool_errors import UNTOLD_TOOL, ToolErrors
from everthink.models.port import ToolMessage
from everthink.testing import ScriptedModel, calls, says
from everthink.testing.client import Client
from tests.support.agents import live

from ..support.postgres import postgres_database, postgres_server, postgres_url
from ..support.server import Served, open_app, served

pytestmark = pytest.mark.anyio

__all__ = ["postgres_database", "postgres_server", "postgres_url"]

SECRET = "no row 17 in orders_2026 at 10.0.0.7 (/srv/app/orders.py)"
KEY = "sk-proj-abcdefgh12345678"


class Desk(Think):
    """Its tool fails, once for the model alone and once for everybody."""

    def __init__(self) -> None:
        self.model = models[0]

    @tool
    async def look(self) -> str:
        """Look."""
        try:
            raise LookupError("the cause")
        except LookupError as cause:
            raise RuntimeError(f"{SECRET} with {KEY}") from cause

    @tool
    async def tell(self) -> str:
        """Tell."""
        raise ToolError("There is no order 17.")

    @tool(needs_approval=True)
    async def wipe(self) -> str:
        """Wipe."""
        raise OSError(SECRET)

    @tool
    async def stream(self) -> AsyncIterator[str]:
        """Stream."""
        yield "half"
        raise ValueError(SECRET)


models: list[ScriptedModel] = []


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgres":
        return request.getfixturevalue("postgres_url")
    return f"sqlite:///{tmp_path}/everthink.db"


def plays(*plays: Any) -> ScriptedModel:
    models[:] = [ScriptedModel(*plays)]
    return models[0]


def read(model: ScriptedModel, turn: int = -1) -> list[str]:
    """The failures that the model was shown in a request."""
    return [
        part.output
        for message in model.requests[turn].messages
        if isinstance(message, ToolMessage)
        for part in message.content
        if getattr(part, "is_error", False)
    ]


async def everything(server: Served, *tabs: Client) -> str:
    """All that a browser can get to see of a conversation."""
    late = await server.connect(Desk, resumes=True)
    await late.settled()
    http = await server.http("/agents/desk/room/get-messages")
    return json.dumps([[*tab.frames, *tab.other] for tab in (*tabs, late)]) + http.text


@pytest.mark.parametrize("name", ["look", "stream"])
async def test_what_a_tool_raises_reaches_the_model_and_no_browser(
    store: str, tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    model = plays(calls(name, id="c1"), says("Sorry."), says("Still sorry."))
    async with served(open_app(tmp_path, Desk, store=store)) as server:
        asking, watching = await server.connect(Desk, id="one"), await server.connect(Desk, id="two")
        await asking.until_done(await asking.say("Look"))
        await watching.until_text("Sorry.")
        seen = await everything(server, asking, watching)
        assert SECRET not in seen
        assert "RuntimeError" not in seen
        assert asking.messages[-1].tool_parts[0]["errorText"] == UNTOLD_TOOL
        # the model reads it in this turn and in the next, without the key
        assert [SECRET in words for words in read(model)] == [True]
        await asking.until_done(await asking.say("Again"))
        assert [SECRET in words for words in read(model)] == [True]
        assert KEY not in str(model.requests)
    assert "Traceback" in caplog.text
    assert SECRET in caplog.text
    assert "tool " + name in caplog.text
    assert KEY not in caplog.text
    assert caplog.text.count("Traceback") == (2 if name == "look" else 1)  # with its cause, once


async def test_after_a_restart_the_model_still_knows_and_browsers_still_do_not(
    store: str, tmp_path: Path
) -> None:
    plays(calls("look", id="c1"), says("Sorry."))
    async with served(open_app(tmp_path, Desk, store=store)) as server:
        tab = await server.connect(Desk)
        await tab.until_done(await tab.say("Look"))
    model = plays(says("Still sorry."))
    async with served(open_app(tmp_path, Desk, store=store)) as server:
        tab = await server.connect(Desk)
        await tab.until_done(await tab.say("And now?"))
        assert [SECRET in words for words in read(model)] == [True]
        assert SECRET not in await everything(server, tab)


async def test_the_words_of_a_tool_error_are_for_everybody(
    store: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    model = plays(calls("tell", id="c1"), says("Sorry."))
    async with served(open_app(tmp_path, Desk, store=store)) as server:
        tab = await server.connect(Desk)
        await tab.until_done(await tab.say("Tell"))
        assert tab.messages[-1].tool_parts[0]["errorText"] == "There is no order 17."
        assert read(model) == ["There is no order 17."]
    assert "Traceback" not in caplog.text  # it was said on purpose


async def test_an_approved_tool_that_raises_tells_no_browser_why(store: str, tmp_path: Path) -> None:
    model = plays(calls("wipe", id="w1"), says("It did not work."), says("No."))
    async with served(open_app(tmp_path, Desk, store=store)) as server:
        tab = await server.connect(Desk)
        await tab.until_done(await tab.say("Wipe"))
        await tab.approve("w1")
        await tab.until_text("It did not work.")
        await tab.until_frame("cf_agent_message_updated")
        assert SECRET not in await everything(server, tab)
        assert read(model) == [SECRET]
        await tab.until_done(await tab.say("Again"))
        assert read(model) == [SECRET]


@pytest.mark.parametrize(
    "broken",
    [
        {"before_tool_call": lambda self, call: _raise()},
        {"get_tools": lambda self: [predicate]},
    ],
    ids=["hook", "predicate"],
)
async def test_what_a_check_of_a_call_raises_is_hidden_as_well(
    tmp_path: Path, broken: dict[str, Callable[..., Any]]
) -> None:
    name = "predicate" if "get_tools" in broken else "tell"
    model = plays(calls(name, id="c1"), says("Sorry."))
    cls = type("Desk", (Desk,), broken)
    async with served(open_app(tmp_path, cls)) as server:
        tab = await server.connect(cls)
        await tab.until_done(await tab.say("Go"))
        assert SECRET not in json.dumps(tab.frames)
        assert tab.messages[-1].tool_parts[0]["errorText"] == UNTOLD_TOOL
        assert read(model) == [SECRET]


def _raise() -> bool:
    raise RuntimeError(SECRET)


@tool(needs_approval=lambda *_: _raise())
def predicate() -> str:
    """Ask."""
    return ""


async def test_clearing_forgets_what_tools_said(store: str, tmp_path: Path) -> None:
    plays(calls("look", id="c1"), says("Sorry."))
    app = open_app(tmp_path, Desk, store=store)
    async with served(app) as server:
        tab = await server.connect(Desk)
        await tab.until_done(await tab.say("Look"))
        agent = await live(app.agent(Desk, "room"))
        count = "SELECT COUNT(*) FROM calls WHERE words IS NOT NULL"
        assert await agent._home.store.fetch(count) == [(1,)]
        await agent.clear_messages()
        assert await agent._home.store.fetch(count) == [(0,)]
        assert agent._home.chat.host.words.of("", "c1") is None


async def test_a_call_id_that_comes_again_keeps_the_words_apart(tmp_path: Path) -> None:
    class Counting(Desk):
        count = 0

        @tool
        async def look(self) -> str:
            """Look."""
            Counting.count += 1
            raise RuntimeError(f"failure number {Counting.count}")

    model = plays(calls("look", id="c"), says("One."), calls("look", id="c"), says("Two."), says("Three."))
    for start in (0, 1):
        async with served(open_app(tmp_path, Counting)) as server:
            tab = await server.connect(Counting)
            for _ in range(2 - start):
                await tab.until_done(await tab.say("Go"))
    assert read(model) == ["failure number 1", "failure number 2"]


async def test_looking_for_words_does_not_read_the_conversation_again_and_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[int] = []
    learn = ToolErrors.learn

    async def counted(self: ToolErrors, messages: Any) -> None:
        found = list(messages)
        looked.append(len(found))
        await learn(self, found)

    monkeypatch.setattr(ToolErrors, "learn", counted)
    plays(*[says("Fine.") for _ in range(12)])
    async with served(open_app(tmp_path, Desk)) as server:
        tab = await server.connect(Desk)
        for _ in range(12):
            await tab.until_done(await tab.say("Go on"))
    assert max(looked) <= 3


async def test_a_turn_that_was_cut_off_after_the_failure_goes_on_with_the_words(
    store: str, tmp_path: Path
) -> None:
    first = plays(calls("look", id="c1"), says("Half ").then_hangs())
    app = open_app(tmp_path, Desk, store=store)
    async with served(app) as server:
        tab = await server.connect(Desk)
        await tab.say("Look")
        await tab.until_text("Half ")
        assert [SECRET in words for words in read(first)] == [True]
    model = plays(says("a sorrow."))
    async with served(open_app(tmp_path, Desk, store=store)) as server:
        tab = await server.connect(Desk, resumes=True)
        await tab.until_text("sorrow.")
        assert [SECRET in words for words in read(model)] == [True]
        assert SECRET not in await everything(server, tab)
