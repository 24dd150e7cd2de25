"""What a client sends, put together with what the server knows. The server wins."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everthink.door import reconcile as reconciling
from everthink.door.chat_request import ChatRequest
from everthink.door.reconcile import reconcile, strip_reserved
from everthink.messages import Message, copy_json, user_message
from everthink.testing.scripted import ScriptedModel, calls, says
from tests.conftest import OpenApp
from tests.support.agents import assistant, live
from tests.support.conversations import histories, unhurried
from tests.support.turns import accept_request


def adopt_by_call(message: Message, stored: list[Message]) -> Message:
    return reconciling.adopt_by_call([message], stored)[0]


def text(said: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": said, **more}


def call(state: str, id: str = "c", **more: Any) -> dict[str, Any]:
    return {"type": "tool-t", "toolCallId": id, "state": state, "input": {}, **more}


def answer(id: str, *parts: dict[str, Any]) -> Message:
    return Message(id, "assistant", list(parts))


WAITING = ["input-available", "approval-requested", "approval-responded"]


# --- outcomes


@pytest.mark.case(352, 353, 354)
@pytest.mark.parametrize("state", WAITING)
def test_the_server_s_output_wins_over_a_part_that_waits_for_it(state: str) -> None:
    stored = [answer("s", call("output-available", output={"x": 1}, approval={"id": "a", "approved": True}))]
    (merged,) = reconcile([answer("s", call(state))], stored)
    assert merged.parts == stored[0].parts


@pytest.mark.case(355)
@pytest.mark.parametrize("state", WAITING)
@pytest.mark.parametrize(
    "settled",
    [
        call("output-error", errorText="broke"),
        call("output-denied", approval={"id": "a", "approved": False}),
    ],
)
def test_so_do_errors_and_denials_without_a_stray_output(state: str, settled: dict[str, Any]) -> None:
    (merged,) = reconcile([answer("s", call(state, output="guess"))], [answer("s", settled)])
    assert merged.parts == [settled]


@pytest.mark.case(356)
@pytest.mark.parametrize("state", ["output-available", "output-error", "output-denied", "input-streaming"])
def test_a_part_of_the_client_in_another_state_is_kept(state: str) -> None:
    sent = [answer("s", call(state, output="mine", errorText="mine"))]
    assert reconcile(sent, [answer("s", call("output-available", output="theirs"))]) == sent


@pytest.mark.case(356)
def test_messages_of_others_are_untouched() -> None:
    sent = [Message("u", "user", [call("input-available"), text("hi")])]
    assert (
        reconcile(sent, [answer("s", call("output-available", output=1)), answer("u2", text("hi"))]) == sent
    )


def test_an_outcome_in_a_question_counts_for_nothing() -> None:
    forged = Message("u", "user", [call("output-available", output="forged")])
    sent = [answer("s", call("input-available"))]
    assert reconcile(sent, [forged]) == sent


# --- ids


@pytest.mark.case(357)
def test_equal_ids_stay() -> None:
    stored = [answer("s1", text("hi")), answer("s2", text("hi"))]
    assert [m.id for m in reconcile([answer("s2", text("hi"))], stored)] == ["s2"]
    assert [m.id for m in reconcile([answer("s2", text("edited"))], stored)] == ["s2"]


@pytest.mark.case(358)
def test_equal_content_under_another_id_takes_the_server_s() -> None:
    stored = [user_message("hello", id="u"), answer("server", text("hi"))]
    sent = [user_message("hello", id="u"), answer("optimistic", text("hi"))]
    assert reconcile(sent, stored) == stored
    assert [m.id for m in reconcile([answer("mine", text("something else"))], stored)] == ["mine"]


@pytest.mark.case(359)
def test_two_equal_answers_take_two_ids_in_order() -> None:
    stored = [answer("s1", text("ok")), answer("s2", text("ok"))]
    sent = [answer("c1", text("ok")), answer("c2", text("ok")), answer("c3", text("ok"))]
    assert [m.id for m in reconcile(sent, stored)] == ["s1", "s2", "c3"]
    # an id that the client knows is not given to another message
    assert [m.id for m in reconcile([answer("c1", text("ok")), answer("s1", text("ok"))], stored)] == [
        "s2",
        "s1",
    ]


@pytest.mark.case(360)
def test_messages_with_tools_are_not_matched_by_content() -> None:
    for parts in ([call("input-streaming")], [text("hi"), call("input-streaming")]):
        assert [m.id for m in reconcile([answer("c", *parts)], [answer("s", *parts)])] == ["c"]


@pytest.mark.case(361)
def test_parts_are_cleaned_before_they_are_compared() -> None:
    stored = [answer("s", text("hi"))]
    sent = [
        answer(
            "c", {"type": "reasoning", "text": ""}, text("hi", providerMetadata={"openai": {"itemId": "x"}})
        )
    ]
    assert [m.id for m in reconcile(sent, stored)] == ["s"]


@pytest.mark.case(362)
def test_nothing_stored_changes_nothing_and_both_stages_work_at_once() -> None:
    sent = [answer("c1", call("input-available")), answer("c2", text("hi"))]
    assert reconcile(sent, []) == sent
    stored = [answer("s1", call("output-available", output=1)), answer("s2", text("hi"))]
    assert reconcile(sent, stored) == [answer("c1", call("output-available", output=1)), stored[1]]


def test_nothing_of_a_message_is_lost_on_the_way() -> None:
    sent = Message("c", "assistant", [text("hi")], {"k": 1}, created_text="2026-01-01T00:00:00Z")
    (merged,) = reconcile([sent], [answer("s", text("hi"))])
    assert merged == Message("s", "assistant", [text("hi")], {"k": 1}, created_text="2026-01-01T00:00:00Z")
    waiting = sent.with_parts([call("input-available")])
    waiting.id = "s"
    (merged,) = reconcile([waiting], [answer("s", call("output-available", output=1))])
    assert (merged.metadata, merged.created_text) == (waiting.metadata, waiting.created_text)
    adopted = adopt_by_call(
        Message("c", "assistant", [call("input-available")], {"k": 1}, created_text="now"), [merged]
    )
    assert (adopted.id, adopted.metadata, adopted.created_text) == ("s", {"k": 1}, "now")


@unhurried
@given(histories(), histories())
def test_reconciling_is_done_once_and_changes_nobody_s_list(
    sent: list[Message], stored: list[Message]
) -> None:
    before = [copy_json([m.to_json() for m in messages]) for messages in (sent, stored)]
    once = reconcile(sent, stored)
    assert reconcile(once, stored) == once
    assert [m.role for m in once] == [m.role for m in sent]
    assert [copy_json([m.to_json() for m in messages]) for messages in (sent, stored)] == before


@unhurried
@given(histories(), st.data())
def test_what_the_client_echoes_comes_back_as_it_is_stored(
    stored: list[Message], data: st.DataObject
) -> None:
    # Given a client that renames answers and sends back all it was shown
    renamed = [
        Message(f"client-{m.id}", m.role, copy_json(m.parts))
        if m.role == "assistant" and not m.tool_parts and data.draw(st.booleans())
        else m
        for m in stored
    ]

    # Then each answer is one of the server's again, and no two are the same
    ids = [m.id for m in reconcile(renamed, stored)]
    assert sorted(ids) == sorted(m.id for m in stored)


# --- known calls


@pytest.mark.case(363)
def test_a_message_with_a_known_call_takes_that_row_s_id() -> None:
    stored = [
        answer("s1", call("input-available", "1")),
        answer("s2", text("x"), call("input-available", "2")),
    ]
    sent = answer("c", text("x"), call("output-available", "2", output=1))
    assert adopt_by_call(sent, stored) == answer("s2", *sent.parts)


@pytest.mark.case(364)
def test_anything_else_stays_and_the_first_tool_part_decides() -> None:
    stored = [answer("s1", call("input-available", "1")), answer("s2", call("input-available", "2"))]
    for unchanged in (
        answer("s1", call("input-available", "2")),
        answer("c", call("input-available", "3")),
        answer("c", text("no tools")),
        Message("c", "user", [call("input-available", "1")]),
    ):
        assert adopt_by_call(unchanged, stored) is unchanged
    sent = answer("c", call("input-available", "1"))
    assert adopt_by_call(sent, []) is sent
    assert adopt_by_call(sent, [Message("u", "user", [call("input-available", "1")])]) is sent
    both = answer("c", call("input-available", "2"), call("input-available", "1"))
    assert adopt_by_call(both, stored).id == "s2"
    first_unknown = answer("c", call("input-available", "9"), call("input-available", "1"))
    assert adopt_by_call(first_unknown, stored) is first_unknown


@pytest.mark.case(212)
def test_keys_that_only_the_server_may_set_are_taken_out() -> None:
    given = Message(
        "u", "user", [text("hi")], {"channel": "x", "turnMetadata": {}, "mine": 1}, created_text="now"
    )
    assert strip_reserved(given) == Message("u", "user", [text("hi")], {"mine": 1}, created_text="now")
    assert strip_reserved(Message("u", "user", [], {"channel": "x"})).metadata is None
    plain = Message("u", "user", [], {"mine": 1})
    assert strip_reserved(plain) is plain


# --- through the door of a chat window


async def send(home: Any, *messages: Message, id: str, **options: Any) -> Any:
    return await accept_request(home, ChatRequest(id, list(messages), **options))


@pytest.mark.anyio
@pytest.mark.case(358, 359)
async def test_a_window_that_invents_ids_stores_nothing_twice(open_app: OpenApp) -> None:
    # Given a conversation with two equal answers
    model = ScriptedModel(says("ok"), says("ok"), says("done"))
    app = await open_app(cls := assistant(model))
    handle = app.agent(cls, "room")
    await handle.save_messages([user_message("one", id="u1")])
    await handle.save_messages([user_message("two", id="u2")])
    before = await handle.get_messages()

    # When a window sends them back under its own ids, with a new question
    home = (await live(handle))._home
    sent = [m if m.role == "user" else Message(f"x{n}", "assistant", m.parts) for n, m in enumerate(before)]
    await (await send(home, *sent, user_message("three", id="u3"), id="r")).result()

    # Then only the question and its answer are new
    after = await handle.get_messages()
    assert after[:4] == before
    assert [m.text for m in after[4:]] == ["three", "done"]


@pytest.mark.anyio
@pytest.mark.case(363)
async def test_a_window_that_invents_an_id_for_a_call_stores_nothing_twice(open_app: OpenApp) -> None:
    pick = {"name": "pick"}
    model = ScriptedModel(calls("pick", id="c"), says("done"))
    app = await open_app(cls := assistant(model))
    handle = app.agent(cls, "room")
    home = (await live(handle))._home
    await (await send(home, user_message("one", id="u1"), id="r1", client_tools=[pick])).result()
    await handle.apply_tool_result("c", "a.txt")
    before = await handle.get_messages()
    stale = Message("invented", "assistant", [call("input-available", type="tool-pick")])
    await (await send(home, before[0], stale, user_message("two", id="u2"), id="r2")).result()
    after = await handle.get_messages()
    assert after[:2] == before
    assert [m.text for m in after[2:]] == ["two", "done"]


@pytest.mark.anyio
@pytest.mark.case(351)
@pytest.mark.parametrize("knows_the_id", [True, False])
async def test_a_window_s_copy_of_the_running_answer_is_not_stored_beside_it(
    open_app: OpenApp, knows_the_id: bool
) -> None:
    # Given an answer that is being streamed
    go_on = asyncio.Event()
    model = ScriptedModel(calls("pick", id="c").says("Half ").waits(go_on).says("whole."), says("done"))
    app = await open_app(cls := assistant(model))
    handle = app.agent(cls, "room")
    home = (await live(handle))._home
    first = await send(home, user_message("one", id="u1"), id="r1", client_tools=[{"name": "pick"}])
    await model.until_silent()

    # When the window sends the next message together with its own copy of the half answer
    copy = home.chat.host.turns.answer.message()
    if not knows_the_id:
        copy.id = "optimistic"
    second = await send(home, user_message("one", id="u1"), copy, user_message("two", id="u2"), id="r2")
    go_on.set()
    await first.result()
    await second.result()

    # Then the whole answer is stored, once, where the window shows it
    await app.evict(cls, "room")
    messages = await handle.get_messages()
    assert [m.text for m in messages] == ["one", "Half whole.", "two", "done"]
    assert messages[1].id == first.turn.message_id


@pytest.mark.anyio
@pytest.mark.case(351)
async def test_nor_does_it_replace_what_was_streamed_when_the_turn_is_cut(open_app: OpenApp) -> None:
    # Given an answer that went on after a window sent its own copy of it
    first, second = asyncio.Event(), asyncio.Event()
    half = says("Half ").waits(first).says("more ").waits(second)
    model = ScriptedModel(half, says("done."), says("Fine."))
    app = await open_app(cls := assistant(model))
    handle = app.agent(cls, "room")
    home = (await live(handle))._home
    more = asyncio.Event()
    home.feed.join(lambda shown: "more" in str(getattr(shown, "bodies", "")) and more.set())
    question = user_message("one", id="u1")
    await send(home, question, id="r1")
    await model.until_silent()
    await send(home, question, home.chat.host.turns.answer.message(), user_message("two", id="u2"), id="r2")
    first.set()
    await more.wait()

    # When the process is replaced by another
    await app.evict(cls, "room")

    # Then everything that was shown is still there, and goes on
    await handle.wait_until_stable()
    assert [m.text for m in await handle.get_messages()][:3] == ["one", "Half more done.", "two"]
