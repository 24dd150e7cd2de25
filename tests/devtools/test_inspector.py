"""The journal of an agent as the page of `everthink dev` reads it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from everthink import Allow, tool
from everthink.testing import ManualClock, ScriptedModel, calls, fails, says

from ..support.agents import assistant
from ..support.server import Served, open_app, served
from .conftest import EVENTS, ROOM, Develop

pytestmark = pytest.mark.anyio


@tool
async def weather(city: str) -> dict[str, Any]:
    """The weather in a city."""
    if city == "Atlantis":
        raise RuntimeError("no such place")
    return {"city": city, "degrees": 21}


def with_weather(*plays: Any) -> Any:
    return assistant(ScriptedModel(*plays), get_tools=lambda self: [weather])


async def ask(server: Served, cls: Any, *questions: str) -> Any:
    chat = await server.connect(cls)
    for question in questions:
        await chat.until_done(await chat.say(question))
    return chat


# --- turns and calls


async def test_turns_that_did_not_end_well_are_told_with_what_they_said_or_were_to_answer(
    develop: Develop,
) -> None:
    go = asyncio.Event()
    cls = assistant(
        ScriptedModel(
            says("Half").then_fails("it broke"), fails("down"), says("One ").waits(go), says("Fine.")
        )
    )
    server = await develop(cls)
    chat = await ask(server, cls, "first", "second")
    stopped = await chat.say("third")
    await chat.until_text("One ")
    await chat.cancel(stopped)
    await chat.until_done(stopped)
    await chat.until_done(await chat.say("fourth"))

    told = (await server.http(ROOM)).json["endings"]
    asked = {message.text: message.id for message in chat.messages if message.role == "user"}
    said = {message.text: message.id for message in chat.messages if message.role == "assistant"}
    assert [(one["status"], one["error"]) for one in told] == [
        ("aborted", None),
        ("error", "down"),
        ("error", "it broke"),
    ]
    assert [one["question"] for one in told] == [asked["third"], asked["second"], asked["first"]]
    assert (told[0]["message_id"], told[2]["message_id"]) == (said["One "], said["Half"])


async def test_a_turn_is_shown_with_its_steps_and_what_they_took(develop: Develop) -> None:
    # Given a turn of two steps
    cls = with_weather(
        calls("weather", city="Paris").uses(input_tokens=100, output_tokens=10, cached_input_tokens=80),
        says("Sunny.").uses(input_tokens=120, output_tokens=5),
    )
    server = await develop(cls)
    await ask(server, cls, "Weather in Paris?")

    # Then it is there with its state, its steps and their tokens together
    [turn] = (await server.http(ROOM)).json["turns"]
    assert (turn["trigger"], turn["status"], turn["error"]) == ("ws-chat", "completed", None)
    assert [(step["number"], step["finish_reason"]) for step in turn["steps"]] == [
        (0, "tool-calls"),
        (1, "stop"),
    ]
    assert turn["steps"][0]["usage"]["cached_input_tokens"] == 80
    took = {"input_tokens": 220, "output_tokens": 15, "total_tokens": 235, "cached_input_tokens": 80}
    assert turn["usage"] == took


async def test_the_ledger_is_shown_with_what_went_in_and_came_out(develop: Develop) -> None:
    cls = with_weather(
        calls("weather", id="c1", city="Paris").calls("weather", id="c2", city="Atlantis"), says("Well.")
    )
    server = await develop(cls)
    await ask(server, cls, "Weather?")
    found = {call["call_id"]: call for call in (await server.http(ROOM)).json["calls"]}
    done, failed = found["c1"], found["c2"]
    assert (done["tool"], done["state"], done["step"]) == ("weather", "done", 0)
    assert done["input"] == {"city": "Paris"}
    assert done["output"] == {"city": "Paris", "degrees": 21}
    assert (failed["state"], failed["error"]) == ("failed", "no such place")
    assert "output" not in failed


async def test_a_turn_is_seen_while_it_runs_and_before_it(develop: Develop) -> None:
    go = asyncio.Event()
    cls = assistant(ScriptedModel(says("So far ").waits(go).says("so good."), says("Next.")))
    server = await develop(cls)
    chat = await server.connect(cls)
    first = await chat.say("One")
    await chat.until_text("So far ")
    second = await chat.say("Two")
    await chat.settled()
    waiting, running = (await server.http(ROOM)).json["turns"]
    assert (running["status"], running["ended_at"]) == ("running", None)
    assert running["steps"] == [{"number": 0, "model": "scripted"}]
    assert (waiting["status"], waiting["started_at"], waiting["steps"]) == ("accepted", None, None)
    shown = (await server.http(f"{ROOM}/turns/{running['id']}")).json["chunks"]
    assert (shown[-1]["chunk"]["type"], shown[-1]["chunk"]["delta"]) == ("text-delta", "So far ")
    go.set()
    await chat.until_done(first)
    await chat.until_done(second)
    assert [turn["status"] for turn in (await server.http(ROOM)).json["turns"]] == ["completed"] * 2


async def test_a_failed_turn_says_why(develop: Develop) -> None:
    cls = assistant(ScriptedModel(fails("no paper")))
    server = await develop(cls)
    await ask(server, cls, "Print it")
    [turn] = (await server.http(ROOM)).json["turns"]
    assert turn["status"] == "error"
    assert "no paper" in turn["error"]


async def test_turns_of_an_earlier_process_are_there_without_their_steps(develop: Develop) -> None:
    cls = with_weather(calls("weather", city="Paris"), says("Sunny."))
    server = await develop(cls)
    await ask(server, cls, "Weather?")
    await server.stop()
    again = await develop(cls)
    shown = (await again.http(ROOM)).json
    assert [(turn["status"], turn["steps"], turn["usage"]) for turn in shown["turns"]] == [
        ("completed", None, None)
    ]
    assert [call["output"]["degrees"] for call in shown["calls"]] == [21]


# --- chunks


async def test_chunks_are_numbered_as_the_browser_saw_them(develop: Develop) -> None:
    cls = with_weather(calls("weather", city="Paris"), says("It ", "is ", "sunny."))
    server = await develop(cls)
    chat = await ask(server, cls, "Weather?")
    [turn] = (await server.http(ROOM)).json["turns"]
    found = (await server.http(f"{ROOM}/turns/{turn['id']}")).json
    assert {name: found[name] for name in turn} == turn
    assert [one["seq"] for one in found["chunks"]] == chat.seqs(turn["request_id"])
    assert [one["chunk"]["type"] for one in found["chunks"]][:2] == ["start", "start-step"]
    assert "".join(one["chunk"].get("delta", "") for one in found["chunks"]) == "It is sunny."
    # Each belongs to a commit, which is called after its first chunk
    commits = [one["commit"] for one in found["chunks"]]
    assert commits == sorted(commits)
    assert set(commits) <= {one["seq"] for one in found["chunks"]}
    assert all(one["commit"] <= one["seq"] for one in found["chunks"])


async def test_it_says_when_everything_happened(develop: Develop) -> None:
    # Given a tool that takes two seconds
    clock = ManualClock()
    start, end = clock.now_ms(), clock.now_ms() + 2000

    @tool
    async def dig() -> str:
        """Dig."""
        await clock.advance(2)
        return "gold"

    cls = assistant(ScriptedModel(calls("dig"), says("Found.")), get_tools=lambda self: [dig])
    server = await develop(cls, clock=clock)
    page = await server.connect(EVENTS)
    await ask(server, cls, "Dig")
    await page.until(lambda: page.frames[-1:] and page.frames[-1]["type"] == "chat:turn:finish")

    # Then turn, call, chunks and events tell it
    shown = (await server.http(ROOM)).json
    [turn], [call] = shown["turns"], shown["calls"]
    assert (turn["created_at"], turn["started_at"], turn["ended_at"]) == (start, start, end)
    assert [step["duration_ms"] for step in turn["steps"]] == [2000, 0]
    assert (call["asked_at"], call["started_at"], call["settled_at"]) == (start, start, end)
    chunks = (await server.http(f"{ROOM}/turns/{turn['id']}")).json["chunks"]
    times = [one["written_at"] for one in chunks]
    assert (times[0], times[-1], times) == (start, end, sorted(times))
    assert {event["type"]: event["timestamp"] for event in page.frames}["chat:turn:finish"] == end


# --- looking changes nothing


async def test_looking_at_an_agent_does_not_start_it(develop: Develop) -> None:
    started: list[str] = []
    cls = assistant(ScriptedModel(), on_start=lambda self, props=None: started.append(self.name))
    server = await develop(cls)
    shown = (await server.http(ROOM)).json
    assert shown.pop("now") > 0
    assert shown == {
        "agent": "Assistant/room",
        "runs": [],
        "turns": [],
        "calls": [],
        "messages": [],
        "leaf": None,
        "forks": {},
        "endings": [],
        "set_aside": [],
        "messenger": None,
        "deliveries": [],
    }
    assert started == []


async def test_names_are_taken_as_they_are_in_the_address(develop: Develop) -> None:
    cls = assistant(ScriptedModel(says("Hi.")))
    server = await develop(cls)
    chat = await server.connect("/agents/assistant/my%20room")
    await chat.until_done(await chat.say("Hello"))
    shown = (await server.http("/everthink/inspect/assistant/my%20room")).json
    assert [turn["status"] for turn in shown["turns"]] == ["completed"]


async def test_it_says_what_it_does_not_know(develop: Develop) -> None:
    server = await develop(assistant(ScriptedModel()))
    for path, status, text in (
        ("/everthink/inspect/nobody/room", 404, "There are: assistant."),
        ("/everthink/inspect/assistant", 404, "Name an agent"),
        (f"{ROOM}/turns/t9", 404, "has no turn 't9'"),
        (f"{ROOM}/elsewhere", 404, "nothing at this address"),
    ):
        answer = await server.http(path)
        assert answer.status == status
        assert text in answer.json["error"]
    assert (await server.http(ROOM, method="DELETE")).status == 405


async def test_an_app_that_is_served_for_good_has_no_inspector(tmp_path: Path) -> None:
    # `everthink serve` and uvicorn serve the app itself
    cls = assistant(ScriptedModel())
    async with served(open_app(tmp_path, cls)) as server:
        for path in (ROOM, "/everthink/agents", "/everthink/events/assistant/room"):
            assert (await server.http(path)).status == 404


async def test_it_reads_postgresql_too(postgres_url: str, develop: Develop) -> None:
    cls = with_weather(calls("weather", city="Paris"), says("Sunny."), says("Still sunny."))
    server = await develop(cls, store=postgres_url)
    chat = await ask(server, cls, "Weather?")
    await chat.until_done(await chat.request(chat.messages[:1], trigger="regenerate-message"))
    shown = (await server.http(ROOM)).json
    assert [turn["status"] for turn in shown["turns"]] == ["completed", "completed"]
    assert [call["state"] for call in shown["calls"]] == ["done"]
    [question] = shown["forks"]
    versions = (await server.http(f"{ROOM}/answers/{question}")).json["versions"]
    assert [version["messages"][-1]["parts"][-1]["text"] for version in versions] == [
        "Sunny.",
        "Still sunny.",
    ]


async def test_a_call_is_seen_while_it_runs_with_what_went_in(develop: Develop) -> None:
    go, running = asyncio.Event(), asyncio.Event()

    @tool
    async def dig(depth: int) -> str:
        """Dig."""
        running.set()
        await go.wait()
        return "gold"

    def before(self: Any, call: Any) -> Any:
        return Allow({"depth": 3}) if call.input["depth"] == 2 else None

    plays = (calls("dig", id="c1", depth=1).calls("dig", id="c2", depth=2), says("Found."))
    cls = assistant(ScriptedModel(*plays), get_tools=lambda self: [dig], before_tool_call=before)
    server = await develop(cls)
    chat = await server.connect(cls)
    request = await chat.say("Dig")
    await running.wait()
    found = {call["call_id"]: call for call in (await server.http(ROOM)).json["calls"]}
    assert (found["c1"]["state"], found["c1"]["input"], found["c1"]["settled_at"]) == (
        "started",
        {"depth": 1},
        None,
    )
    go.set()
    await chat.until_done(request)
    found = {call["call_id"]: call for call in (await server.http(ROOM)).json["calls"]}
    assert (found["c1"]["state"], found["c1"]["output"]) == ("done", "gold")
    # What a hook put in place of the model's input is what went in
    assert found["c2"]["input"] == {"depth": 3}
