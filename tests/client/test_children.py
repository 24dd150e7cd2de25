"""Children and their runs, as a program sees them: at their own addresses, over lost connections, once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from everthink import Think, agent_tool, tool
from everthink.client import connect
from everthink.client.address import is_of_child, misled, socket_address
from everthink.client.received import check_frame
from everthink.client.runs import Runs
from everthink.errors import AgentError, NoSuchChild, NotConnected
from everthink.testing import ScriptedModel, calls, says
from everthink.wire.codec import decode_told
from everthink.wire.frames import AgentToolEvent
from tests.client.conftest import Enter, Serve
from tests.client.test_resuming import Notices
from tests.support.cable import Cable
from tests.support.server import Served

pytestmark = pytest.mark.anyio

HERE = "http://127.0.0.1:8000"


# --- addresses


@pytest.mark.parametrize(
    ("sub", "path"),
    [
        ([("Researcher", "notes")], "/agents/a/r/sub/researcher/notes"),
        ([("researcher", "a/b 100%")], "/agents/a/r/sub/researcher/a%2Fb%20100%25"),
        (
            [("MyHelper", "x"), ("deep", "agent-tool:c1")],
            "/agents/a/r/sub/my-helper/x/sub/deep/agent-tool%3Ac1",
        ),
    ],
    ids=["class", "escaped", "two"],
)
def test_the_address_of_a_child(sub: Any, path: str) -> None:
    assert socket_address(HERE, "a", "r", None, sub) == f"ws://127.0.0.1:8000{path}"
    assert socket_address(f"{HERE}/agents/a/r", None, "", "t", sub) == f"ws://127.0.0.1:8000{path}?token=t"


@pytest.mark.parametrize(
    "sub",
    [[("helper", "")], [("helper", "a\0")], [("helper",)], ["helper/x"], [("helper", 3)]],
    ids=["empty", "nul", "no-name", "text", "number"],
)
def test_what_is_no_child_is_refused_before_anything_is_sent(sub: Any) -> None:
    with pytest.raises(AgentError):
        connect(HERE, "assistant", sub=sub)


def test_the_name_of_a_child_is_told_as_it_is() -> None:
    assert is_of_child("ws://h/agents/a/r/sub/helper/a%2520b?x=1", "a%20b")
    assert not is_of_child("ws://h/agents/a/a%20b", "a%20b")
    assert not is_of_child("ws://h", "h")


# --- runs, as they are told


def told(sequence: int, kind: str, replay: bool = False, **fields: Any) -> AgentToolEvent:
    return AgentToolEvent(sequence, {"kind": kind, "runId": "r", **fields}, "c", replay)


def said(sequence: int, text: str, replay: bool = False) -> AgentToolEvent:
    body = f'{{"type":"text-delta","id":"t","delta":"{text}"}}'
    return told(sequence, "chunk", replay, body=body)


BEGUN = told(0, "started", agentType="Helper", order=2, inputPreview="x", display={"name": "H"})
OPEN = told(1, "chunk", body='{"type":"text-start","id":"t"}')


@pytest.mark.agent_case(375)
def test_a_run_is_folded_from_what_is_told_of_it_each_piece_once() -> None:
    runs = Runs()
    frames = [BEGUN, OPEN, said(2, "a"), BEGUN, OPEN, said(2, "a"), said(3, "b")]
    kinds = [event.kind for frame in frames if (event := runs.take(frame)) is not None]
    assert kinds == ["started", "chunk", "chunk", "chunk"]
    (run,) = runs.all
    assert (run.text, run.status, run.order, run.call_id) == ("ab", "running", 2, "c")
    assert (run.display, run.input_preview, run.sub) == ({"name": "H"}, "x", ("Helper", "r"))
    end = told(4, "finished", summary="ab")
    ended = runs.take(end)
    assert ended is not None
    assert (ended.run.status, ended.run.summary) == ("completed", "ab")
    assert runs.take(end) is None


@pytest.mark.agent_case(375)
def test_what_was_handed_out_stays_as_it_was() -> None:
    runs = Runs()
    events = [runs.take(frame) for frame in (BEGUN, OPEN, said(2, "a"), said(3, "b"))]
    before = runs.all
    events += [runs.take(frame) for frame in (said(4, "c"), told(5, "finished", summary="abc"))]
    assert [event.run.text for event in events if event] == ["", "", "a", "ab", "abc", "abc"]
    assert [(run.text, run.status) for run in before] == [("ab", "running")]
    # And once more, in whichever order somebody looks
    assert [event.run.text for event in reversed(events) if event] == ["abc", "abc", "ab", "a", "", ""]


def test_a_child_that_begins_its_answer_anew_has_said_what_it_says_then() -> None:
    def starts(sequence: int, message: str | None) -> AgentToolEvent:
        body = {"type": "start"} if message is None else {"type": "start", "messageId": message}
        return told(sequence, "chunk", body=json.dumps(body))

    def opens(sequence: int) -> AgentToolEvent:
        return told(sequence, "chunk", body='{"type":"text-start","id":"t"}')

    runs = Runs()
    first = [BEGUN, starts(1, "m1"), opens(2), said(3, "wrong")]
    anew = [starts(4, "m2"), opens(5), said(6, "right")]
    for frame in (*first, *anew):
        runs.take(frame)
    assert [run.text for run in runs.all] == ["right"]
    # Told again after a lost connection there is nothing new in it
    assert [runs.take(frame) for frame in (BEGUN, *anew)] == [None] * 4
    # What follows a person's answer goes on from there
    for frame in (starts(7, None), opens(8), said(9, " now")):
        runs.take(frame)
    assert [run.text for run in runs.all] == ["right now"]


@pytest.mark.agent_case(374)
def test_the_runs_of_a_call_are_together_in_their_order_and_those_of_code_apart() -> None:
    runs = Runs()
    begun = [("a", "c1", 1), ("b", "c1", 0), ("d", None, 0), ("e", "c2", 0), ("f", "c1", 0)]
    for run_id, call, order in begun:
        event = {"kind": "started", "runId": run_id, "agentType": "Helper", "order": order}
        runs.take(AgentToolEvent(0, event, call))
    assert [run.run_id for run in runs.all] == ["a", "b", "d", "e", "f"]
    assert [run.run_id for run in runs.of_call("c1")] == ["b", "f", "a"]
    assert [run.run_id for run in runs.of_call(None)] == ["d"]
    assert runs.of_call("c9") == []


@pytest.mark.agent_case(376)
def test_reports_make_no_part_and_milestones_are_each_there_once_in_order() -> None:
    def data(sequence: int, kind: str, given: Any) -> AgentToolEvent:
        body = {"type": f"data-agent-{kind}", "data": given, "transient": True}
        return told(sequence, "chunk", body=json.dumps(body))

    runs = Runs()
    for frame in (BEGUN, OPEN, said(2, "a")):
        runs.take(frame)
    half = data(2, "progress", {"fraction": 0.5, "message": "half"})
    assert runs.take(half) is not None
    assert runs.take(half) is None  # how far it is, is known
    second = data(3, "milestone", {"name": "read", "sequence": 2, "at": 5})
    for frame in (second, data(4, "milestone", {"name": "found", "sequence": 1, "at": 4})):
        event = runs.take(frame)
        assert event is not None
        assert event.chunk is not None
    assert runs.take(second) is None
    assert runs.take(said(5, "b")) is not None  # nothing that follows is hidden by it
    (run,) = runs.all
    assert run.progress == {"fraction": 0.5, "message": "half"}
    assert [(one["sequence"], one["name"]) for one in run.milestones] == [(1, "found"), (2, "read")]
    assert [part["type"] for part in run.message.parts] == ["text"]
    assert run.text == "ab"
    # What is called so and is none is a chunk like any other
    for given in ("soon", {"name": "x"}, {"name": "x", "sequence": "1"}):
        assert runs.take(data(runs._seen["r"].last + 1, "milestone", given)) is not None
    assert len(runs.all[0].milestones) == 2


@pytest.mark.agent_case(377)
@pytest.mark.parametrize(
    ("kind", "fields", "shown"),
    [
        ("finished", {"summary": "ab"}, ("completed", "ab", None, None, False)),
        ("error", {"error": "broken"}, ("error", None, "broken", None, False)),
        ("aborted", {"reason": "enough"}, ("aborted", None, None, "enough", False)),
        ("aborted", {}, ("aborted", None, None, None, False)),
        (
            "interrupted",
            {"error": "quiet", "reason": "no-progress", "childStillRunning": True},
            ("interrupted", None, "quiet", "no-progress", True),
        ),
        (
            "interrupted",
            {"error": "long", "reason": "window-exceeded", "childStillRunning": False},
            ("interrupted", None, "long", "window-exceeded", False),
        ),
        ("interrupted", {"error": "left"}, ("interrupted", None, "left", None, False)),
    ],
)
def test_each_end_has_its_own_state(kind: str, fields: dict[str, Any], shown: tuple[Any, ...]) -> None:
    runs = Runs()
    for frame in (BEGUN, OPEN, said(2, "ab")):
        runs.take(frame)
    event = runs.take(told(3, kind, **fields))
    assert event is not None
    run = event.run
    assert (run.status, run.summary, run.error, run.reason, run.child_still_running) == shown
    assert run.text == "ab"
    # A start that is told again changes nothing of it
    assert runs.take(BEGUN) is None
    assert runs.all == [run]


@pytest.mark.agent_case(377)
def test_a_run_that_was_interrupted_goes_on() -> None:
    runs = Runs()
    for frame in (BEGUN, OPEN, said(2, "a")):
        runs.take(frame)
    runs.take(told(3, "interrupted", error="quiet", reason="no-progress", childStillRunning=True))
    (run,) = runs.all
    assert (run.status, run.reason, run.child_still_running) == ("interrupted", "no-progress", True)
    runs.take(said(3, "b"))  # with the number that the end had
    (run,) = runs.all
    assert (run.status, run.text, run.reason) == ("running", "ab", None)
    assert not run.child_still_running


def test_what_is_of_an_unknown_run_or_kind_is_passed_over() -> None:
    runs = Runs()
    assert runs.take(said(1, "a")) is None
    assert runs.take(told(0, "sighed")) is None
    assert runs.all == []


@pytest.mark.parametrize(
    "event",
    [
        "{}",
        '{"kind":"chunk","runId":"r","body":"no"}',
        '{"kind":"chunk","runId":"r","body":{}}',
        '{"kind":"started","runId":"r"}',
        '{"kind":"finished","runId":3}',
        '{"kind":"error","runId":"r","error":{}}',
        "[]",
    ],
    ids=["empty", "no-json", "no-text", "no-class", "no-id", "no-words", "list"],
)
def test_a_misshapen_event_of_a_server_is_told_as_that(event: str) -> None:
    with pytest.raises(AgentError, match="no frame of a conversation"):
        check_frame(f'{{"type":"agent-tool-event","sequence":0,"event":{event}}}')
    fine = '{"type":"agent-tool-event","sequence":0,"event":{"kind":"aborted","runId":"r"}}'
    check_frame(fine)
    assert isinstance(decode_told(fine), AgentToolEvent)


# --- against a server


def family(*child: Any, parent: tuple[Any, ...] = ()) -> type[Think]:
    class Helper(Think):
        model = ScriptedModel(*child)

    class Assistant(Think):
        model = ScriptedModel(*parent)
        delegate = agent_tool(Helper, description="Ask the helper.")

    return Assistant


async def test_a_child_is_talked_to_at_its_own_address(serve: Serve, enter: Enter) -> None:
    cls = family(says("I am the child."))
    server = await serve(cls)
    room = await enter(server, cls, sub=[("Helper", "a/b %20")])
    assert (room.agent, room.name) == ("helper", "a/b %20")
    assert (await room.ask("Hi")).text == "I am the child."
    children = await server.app.agent(cls, "room").list_sub_agents()
    assert [child.name for child in children] == ["a/b %20"]


async def test_a_parent_that_refuses_is_told_of(serve: Serve, enter: Enter) -> None:
    class Helper(Think):
        model = ScriptedModel()

    class Strict(Think):
        model = ScriptedModel()
        sub_agents = (Helper,)

        def on_before_sub_agent(self, request: Any, cls: type[Any], name: str) -> bool:
            return False

    server = await serve(Strict)
    with pytest.raises(NotConnected) as refused:
        await enter(server, Strict, sub=[(Helper, "x")])
    assert refused.value.code == 4403


@pytest.mark.agent_case(374, 376)
async def test_how_far_a_child_is_comes_with_its_run(serve: Serve, enter: Enter) -> None:
    class Helper(Think):
        model = ScriptedModel(calls("work"), says("Done."))

        @tool
        async def work(self) -> str:
            """Work."""
            await self.report_progress(fraction=0.5, message="half", milestone="found")
            return "worked"

    class Assistant(Think):
        model = ScriptedModel(calls("delegate", query="x", id="c1"), says("ok"))
        delegate = agent_tool(Helper, description="Ask the helper.")

    server = await serve(Assistant)
    room = await enter(server, Assistant)
    await room.ask("Go")
    (run,) = room.runs_of("c1")
    assert run.progress == {"fraction": 0.5, "message": "half"}
    assert [one["name"] for one in run.milestones] == ["found"]
    assert room.runs_of(None) == []
    late = await enter(server, Assistant)
    (again,) = late.runs
    assert (again.message, again.milestones, again.status) == (run.message, run.milestones, "completed")


async def test_a_run_is_told_once_over_a_lost_connection(
    serve: Serve, enter: Enter, cable_to: Callable[[Served], Cable]
) -> None:
    # Given a child that has said half of what it has to say
    gate, notices, kinds = asyncio.Event(), Notices(), list[str]()
    half = asyncio.Event()
    parent = (calls("delegate", query="x", id="c1"), says("Done."))
    cls = family(says("one ").waits(gate).says("two"), parent=parent)
    server = await serve(cls)
    cable = cable_to(server)
    room = await enter(cable, cls, notice=notices)

    async def watch() -> None:
        async for event in room.run_events():
            kinds.append(event.kind)
            if event.run.text == "one ":
                half.set()
            if event.kind == "finished":
                return

    watching = asyncio.create_task(watch())
    asked = room.say("Go")
    await asyncio.wait_for(half.wait(), 20)

    # When the connection is lost, and the rest is said after it was found again
    cable.pull()
    await notices.until("connection lost")
    cable.plug()
    await notices.until("connected again")
    gate.set()
    await asyncio.wait_for(watching, 20)

    # Then everything was told once
    assert (await asked).text == "Done."
    assert (kinds[0], kinds[-1], set(kinds[1:-1])) == ("started", "finished", {"chunk"})
    (run,) = room.runs
    assert (run.text, run.summary, run.status) == ("one two", "one two", "completed")
    late = await enter(server, cls)
    assert late.runs == room.runs


# --- whom the address of a child leads to


@pytest.mark.parametrize("name", ["notes", "room"])
async def test_a_misspelt_child_is_refused_and_its_parent_hears_nothing(
    serve: Serve, enter: Enter, name: str
) -> None:
    class Researcher(Think):
        model = ScriptedModel(says("I am the researcher."))

    class Assistant(Think):
        model = ScriptedModel()
        sub_agents = (Researcher,)

    server = await serve(Assistant)
    with pytest.raises(NoSuchChild, match="assistant/room answers there: it has no children 'resercher'"):
        await enter(server, Assistant, sub=[("resercher", name)])
    child = await enter(server, Assistant, sub=[("researcher", name)])
    assert (await child.ask("Who are you?")).text == "I am the researcher."
    assert (await enter(server, Assistant)).messages == []


def test_a_child_may_be_called_otherwise_than_its_class() -> None:
    assert misled(f"{HERE}/agents/a/r/sub/notes/x", "note-keeper", "x") is None
    assert misled(f"{HERE}/agents/a/x/sub/note/x", "a", "x") == ("note", "x")
    assert misled(f"{HERE}/agents/a/r/sub/note/x%2Fy", "a", "r") == ("note", "x/y")
    assert misled(f"{HERE}/agents/a/r", "b", "r") is None
