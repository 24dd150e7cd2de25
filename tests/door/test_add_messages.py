"""`add_messages`: write to the conversation without a turn."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from everthink import Message, Think, tool
from everthink.errors import InvalidTurn, UnknownMessage
from everthink.journal.feed import HistoryChanged
from everthink.testing.scripted import ScriptedModel, calls, says
from tests.conftest import OpenApp
from tests.support.agents import assistant, live
from tests.support.turns import Database, Witness, home_of, prompt, record_events

pytestmark = pytest.mark.anyio


def said(text: str, id: str, role: Any = "user") -> Message:
    return Message(id, role, [{"type": "text", "text": text}])


def parents(folder: Path) -> dict[str, str | None]:
    return {
        r["id"]: r["parent"] for r in Database(folder).rows("SELECT id, parent FROM messages ORDER BY seq")
    }


@pytest.mark.case(119)
async def test_no_model_is_asked_and_no_turn_is_made(open_app: OpenApp, tmp_path: Path) -> None:
    model = ScriptedModel()
    app = await open_app(cls := assistant(model))
    events = record_events(app)

    await app.agent(cls).add_messages(["hello", said("hi", "a", "assistant")])

    assert (model.requests, Database(tmp_path).turns(), events) == ([], [], [])
    assert Database(tmp_path).texts() == ["hello", "hi"]


@pytest.mark.case(120)
async def test_memory_and_storage_agree(open_app: OpenApp, tmp_path: Path) -> None:
    app = await open_app(cls := assistant(ScriptedModel(says("one"))))
    agent = await live(app.agent(cls))
    await agent.save_messages("first")

    await agent.add_messages(said("note", "n"))
    assert [m.text for m in agent.messages] == Database(tmp_path).texts() == ["first", "one", "note"]

    await agent.add_messages(lambda messages: [said(f"after {messages[-1].text}", "m")])
    assert (
        [m.text for m in agent.messages]
        == Database(tmp_path).texts()
        == [
            "first",
            "one",
            "note",
            "after note",
        ]
    )
    before = agent.messages
    await app.evict(cls, "default")
    assert await app.agent(cls).get_messages() == before


@pytest.mark.case(121)
async def test_appending_a_known_id_does_nothing(open_app: OpenApp, tmp_path: Path) -> None:
    app = await open_app(cls := assistant(ScriptedModel()))
    await app.agent(cls).add_messages([said("a", "a"), said("b", "b")])
    await app.agent(cls).add_messages(said("changed", "a"))
    assert Database(tmp_path).texts() == [m.text for m in await app.agent(cls).get_messages()] == ["a", "b"]


@pytest.mark.memory_case(207)
@pytest.mark.case(122, 123)
async def test_upserting_a_known_id_replaces_it_where_it_is(open_app: OpenApp, tmp_path: Path) -> None:
    app = await open_app(cls := assistant(ScriptedModel()))
    agent = app.agent(cls)
    await agent.add_messages([said("a", "a"), said("b", "b"), said("c", "c")])
    before = parents(tmp_path)

    await agent.add_messages(said("A", "a"), mode="upsert", parent_id="c")

    assert [m.text for m in await agent.get_messages()] == ["A", "b", "c"]
    assert parents(tmp_path) == before == {"a": None, "b": "a", "c": "b"}


@pytest.mark.case(122)
async def test_upserting_takes_known_and_new_messages_in_one_list(open_app: OpenApp, tmp_path: Path) -> None:
    app = await open_app(cls := assistant(ScriptedModel()))
    agent = app.agent(cls)
    await agent.add_messages([said("a", "a"), said("b", "b")])

    await agent.add_messages([said("B", "b"), said("c", "c")], mode="upsert")

    assert [m.text for m in await agent.get_messages()] == ["a", "B", "c"]
    assert parents(tmp_path) == {"a": None, "b": "a", "c": "b"}


@pytest.mark.case(124)
async def test_a_list_becomes_one_path(open_app: OpenApp, tmp_path: Path) -> None:
    app = await open_app(cls := assistant(ScriptedModel()))
    await app.agent(cls).add_messages([said(id, id) for id in "abcd"])
    assert parents(tmp_path) == {"a": None, "b": "a", "c": "b", "d": "c"}


@pytest.mark.case(124)
async def test_what_follows_a_known_message_in_a_list_hangs_below_it(
    open_app: OpenApp, tmp_path: Path
) -> None:
    app = await open_app(cls := assistant(ScriptedModel()))
    agent = app.agent(cls)
    await agent.add_messages([said(id, id) for id in "abc"])

    await agent.add_messages([said("a", "a"), said("x", "x")])

    assert parents(tmp_path)["x"] == "a"
    assert [m.id for m in await agent.get_messages()] == ["a", "x"]


@pytest.mark.case(125)
async def test_an_unknown_parent_is_refused_and_nothing_is_stored(open_app: OpenApp, tmp_path: Path) -> None:
    app = await open_app(cls := assistant(ScriptedModel()))
    with pytest.raises(UnknownMessage, match='parent_id "nobody" does not exist in this session'):
        await app.agent(cls).add_messages("hello", parent_id="nobody")
    assert Database(tmp_path).messages() == []


@pytest.mark.case(125)
async def test_the_message_of_another_agent_is_no_parent(open_app: OpenApp) -> None:
    app = await open_app(cls := assistant(ScriptedModel()))
    await app.agent(cls, "a").add_messages(said("mine", "m"))
    with pytest.raises(UnknownMessage):
        await app.agent(cls, "b").add_messages("hello", parent_id="m")


@pytest.mark.memory_case(205)
@pytest.mark.case(126)
@pytest.mark.parametrize("nothing", [[], (), lambda messages: []])
async def test_nothing_to_add_is_nothing_done(open_app: OpenApp, tmp_path: Path, nothing: Any) -> None:
    app = await open_app(cls := assistant(ScriptedModel()))
    witness = Witness(await home_of(app, cls))
    await app.agent(cls).add_messages(nothing)
    assert (Database(tmp_path).messages(), witness.shown) == ([], [])


async def test_an_unknown_mode_is_refused(open_app: OpenApp) -> None:
    app = await open_app(cls := assistant(ScriptedModel()))
    with pytest.raises(InvalidTurn, match="mode must be 'append' or 'upsert'"):
        await app.agent(cls).add_messages("hello", mode="replace")


@pytest.mark.memory_case(204)
@pytest.mark.case(127)
async def test_added_messages_are_visible_to_the_next_turn(open_app: OpenApp) -> None:
    model = ScriptedModel(says("ok"))
    app = await open_app(cls := assistant(model))
    await app.agent(cls).add_messages([said("What I said", "q"), said("What you said", "a", "assistant")])
    await app.agent(cls).save_messages("Go on")
    assert prompt(model.last_request) == [
        ("user", "What I said"),
        ("assistant", "What you said"),
        ("user", "Go on"),
    ]


@pytest.mark.memory_case(206)
@pytest.mark.case(128)
async def test_an_explicit_parent_branches_and_the_view_follows_the_newest_leaf(open_app: OpenApp) -> None:
    app = await open_app(cls := assistant(ScriptedModel()))
    agent = app.agent(cls)
    await agent.add_messages([said(id, id) for id in "abc"])

    await agent.add_messages([said("x", "x"), said("y", "y")], parent_id="a")
    assert [m.id for m in await agent.get_messages()] == ["a", "x", "y"]
    session = (await live(agent)).session
    assert [m.id for m in await session.get_branches("a")] == ["b", "x"]
    assert [m.id for m in await session.get_history("c")] == ["a", "b", "c"]

    await agent.add_messages(said("new root", "r"), parent_id=None)
    assert [m.id for m in await agent.get_messages()] == ["r"]


@pytest.mark.memory_case(208)
@pytest.mark.case(129)
async def test_messages_added_while_a_turn_runs_are_durable_and_stay(
    open_app: OpenApp, tmp_path: Path
) -> None:
    # Given a turn in mid-answer
    gate = asyncio.Event()
    model = ScriptedModel(says("The ").waits(gate).says("answer."), says("ok"))
    app = await open_app(cls := assistant(model))
    agent = app.agent(cls)
    turn = asyncio.create_task(agent.save_messages("first"))
    await model.until_silent()

    # When a message is added
    await agent.add_messages(said("by the way", "w"))
    assert Database(tmp_path).texts() == ["first", "by the way"]
    gate.set()
    await turn

    # Then both are in the conversation, and the next turn sees them
    texts = [m.text for m in await agent.get_messages()]
    assert texts == Database(tmp_path).texts() == ["first", "by the way", "The answer."]
    await agent.save_messages("next")
    assert [text for _, text in prompt(model.last_request)] == [*texts, "next"]


@pytest.mark.memory_case(208)
@pytest.mark.case(130)
async def test_a_tool_may_add_messages_and_readers_hear_of_them_at_the_end(
    open_app: OpenApp, tmp_path: Path
) -> None:
    class Writer(Think):
        model = ScriptedModel(calls("note", text="buy milk"), says("Noted."))

        @tool
        async def note(self, text: str) -> str:
            """Take a note."""
            before = len([s for s in witness.shown if isinstance(s, HistoryChanged)])
            await self.add_messages(said(text, "note"))
            after = len([s for s in witness.shown if isinstance(s, HistoryChanged)])
            stored.append(Database(tmp_path).texts())
            return "told at once" if after > before else "told later"

    stored: list[list[str]] = []
    app = await open_app(Writer)
    witness = Witness(await home_of(app, Writer))

    result = await app.agent(Writer).save_messages("Milk!")

    assert stored == [["Milk!", "buy milk"]]
    assert result.message is not None
    assert result.message.tool_parts[0]["output"] == "told later"
    assert [m.text for m in await app.agent(Writer).get_messages()] == ["Milk!", "buy milk", "Noted."]
    assert isinstance([s for s in witness.shown if isinstance(s, HistoryChanged)][-1], HistoryChanged)


@pytest.mark.parametrize(("broadcast", "times"), [(True, 1), (False, 0)])
async def test_readers_are_told_unless_asked_not_to(open_app: OpenApp, broadcast: bool, times: int) -> None:
    app = await open_app(cls := assistant(ScriptedModel()))
    witness = Witness(await home_of(app, cls))
    await app.agent(cls).add_messages("hello", broadcast=broadcast)
    assert [type(s) for s in witness.shown] == [HistoryChanged] * times


async def test_callers_that_add_at_the_same_time_all_end_on_one_path(
    open_app: OpenApp, tmp_path: Path
) -> None:
    app = await open_app(cls := assistant(ScriptedModel()))
    agent = app.agent(cls)
    await asyncio.gather(*(agent.add_messages(said(f"m{i}", f"m{i}")) for i in range(20)))
    assert sorted(m.id for m in await agent.get_messages()) == sorted(f"m{i}" for i in range(20))
    assert len(set(parents(tmp_path).values())) == 20
