"""on_chat_response: once per turn that ended, after its answer is stored."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from everthink import Message, Think, TurnConfig, tool
from everthink.door.chat_request import ChatRequest, Dropped
from everthink.hooks import ChatResponse
from everthink.messages import user_message
from everthink.testing.scripted import Play, ScriptedModel, calls, fails, opens, says
from tests.conftest import OpenApp
from tests.support.agents import assistant, live
from tests.support.hooks import ask, configured, soon, until
from tests.support.turns import accept_request

pytestmark = pytest.mark.anyio


def responder(model: ScriptedModel, heard: list[ChatResponse], **members: Any) -> type[Think]:
    return assistant(model, on_chat_response=lambda self, response: heard.append(response), **members)


@pytest.mark.case(138)
async def test_a_good_turn_tells_its_message_id_and_status(open_app: OpenApp) -> None:
    heard: list[ChatResponse] = []
    app = await open_app(cls := responder(ScriptedModel(says("Hello.")), heard))
    result = await app.agent(cls, "room").save_messages("Hi")
    (response,) = heard
    assert (response.status, response.error, response.continuation) == ("completed", None, False)
    assert response.request_id == result.request_id
    assert response.message == (await app.agent(cls, "room").get_messages())[-1]
    assert response.message.role == "assistant"


@pytest.mark.case(138)
async def test_the_value_of_structured_output_comes_along(open_app: OpenApp) -> None:
    heard: list[ChatResponse] = []
    model = ScriptedModel(says('{"a": 1}'))
    cls = responder(model, heard, before_turn=configured(TurnConfig(output={"type": "object"})))
    app = await open_app(cls)
    await app.agent(cls, "room").save_messages("Hi")
    assert heard[0].output == {"a": 1}


@pytest.mark.case(139)
async def test_an_answer_without_parts_is_told_and_not_stored(open_app: OpenApp) -> None:
    heard: list[ChatResponse] = []
    done: list[str] = []

    class Callback:
        def on_start(self, request_id): ...
        def on_event(self, json): ...
        def on_done(self):
            done.append("done")

        def on_error(self, error):
            done.append(error)

    app = await open_app(cls := responder(ScriptedModel(opens()), heard))
    await app.agent(cls, "room").chat("Hi", callback=Callback())
    assert [(response.status, response.message.parts) for response in heard] == [("completed", [])]
    assert done == ["done"]
    assert [message.role for message in await app.agent(cls, "room").get_messages()] == ["user"]


@pytest.mark.case(140)
@pytest.mark.parametrize(
    "play",
    [says("Half an ans").then_fails("overloaded"), says("Half an ans").then_raises(ValueError("overloaded"))],
)
async def test_an_error_after_some_parts_tells_status_error_and_the_text(
    open_app: OpenApp, play: Play
) -> None:
    heard: list[ChatResponse] = []
    app = await open_app(cls := responder(ScriptedModel(play), heard))
    await app.agent(cls, "room").save_messages("Hi")
    (response,) = heard
    assert (response.status, response.error, response.message.text) == ("error", "overloaded", "Half an ans")
    assert [message.text for message in await app.agent(cls, "room").get_messages()] == ["Hi", "Half an ans"]


@pytest.mark.case(142)
@pytest.mark.parametrize(
    "play", [fails("refused"), opens().then_fails("refused"), opens().then_raises(ValueError("refused"))]
)
async def test_an_error_before_any_part_goes_to_on_chat_error_alone(open_app: OpenApp, play: Play) -> None:
    heard: list[ChatResponse] = []
    told: list[str] = []
    cls = responder(
        ScriptedModel(play), heard, on_chat_error=lambda self, error, ctx: told.append(str(error))
    )
    app = await open_app(cls)
    result = await app.agent(cls, "room").save_messages("Hi")
    assert (result.status, result.error, result.message) == ("error", "refused", None)
    assert (heard, told) == ([], ["refused"])


@pytest.mark.case(141)
async def test_an_abort_tells_status_aborted_with_what_was_said(open_app: OpenApp) -> None:
    heard: list[ChatResponse] = []
    model = ScriptedModel(says("Half").then_hangs())
    app = await open_app(cls := responder(model, heard))
    handle = app.agent(cls, "room")
    turn = asyncio.create_task(handle.save_messages("Hi"))
    await soon(model.until_silent())
    (await live(handle)).abort_all_requests("enough")
    assert (await soon(turn)).status == "aborted"
    assert [(r.status, r.error, r.message.text) for r in heard] == [("aborted", None, "Half")]


@pytest.mark.case(143)
async def test_many_turns_tell_once_each(open_app: OpenApp) -> None:
    heard: list[ChatResponse] = []
    model = ScriptedModel(*(says(f"{n}.") for n in range(5)))
    app = await open_app(cls := responder(model, heard))
    for number in range(5):
        await app.agent(cls, "room").save_messages(str(number))
    assert [response.message.text for response in heard] == ["0.", "1.", "2.", "3.", "4."]
    assert len({response.request_id for response in heard}) == 5


@pytest.mark.case(144)
async def test_turns_in_quick_succession_lose_none(open_app: OpenApp) -> None:
    # Given a hook that takes its time
    heard: list[str] = []

    async def on_chat_response(self, response):
        await asyncio.sleep(0)
        heard.append(response.message.text)

    model = ScriptedModel(*(says(f"{n}.") for n in range(10)))
    app = await open_app(cls := assistant(model, on_chat_response=on_chat_response))

    # When ten turns are started at once, then each is told, in order
    await asyncio.gather(*(app.agent(cls, "room").save_messages(str(n)) for n in range(10)))
    assert heard == [f"{n}." for n in range(10)]


@pytest.mark.case(145)
async def test_an_async_hook_is_awaited_before_the_call_that_made_the_turn_returns(open_app: OpenApp) -> None:
    diary: list[str] = []
    entered, go_on = asyncio.Event(), asyncio.Event()

    async def on_chat_response(self, response):
        entered.set()
        await go_on.wait()
        diary.append("hook")

    model = ScriptedModel(says("One."), lambda request: diary.append("second turn") or says("Two."))
    app = await open_app(cls := assistant(model, on_chat_response=on_chat_response))
    handle = app.agent(cls, "room")

    async def both() -> None:
        await handle.save_messages("1")
        await handle.save_messages("2")

    work = asyncio.create_task(both())
    await soon(entered.wait())
    assert (diary, model.asked) == ([], 1)
    go_on.set()
    await soon(work)
    assert diary == ["hook", "second turn", "hook"]


@pytest.mark.case(117, 134, 146, 148)
async def test_it_fires_for_every_door_and_says_what_a_continuation_is(open_app: OpenApp) -> None:
    # Given one turn by each door
    heard: list[ChatResponse] = []
    model = ScriptedModel(*(says(f"{n}.") for n in range(6)))
    app = await open_app(cls := responder(model, heard))
    handle = app.agent(cls, "room")
    await handle.save_messages("0")
    await handle.chat("1")
    await ask(handle, "2", request_id="from-the-window")
    await handle.regenerate()
    history = [message for message in await handle.get_messages() if message.role == "user"]
    home = (await live(handle))._home
    again = ChatRequest("again", history[:1], trigger="regenerate-message")
    await (await accept_request(home, again)).result()
    await handle.continue_last_turn()

    # Then each was told
    assert [(response.message.text, response.continuation) for response in heard] == [
        ("0.", False),
        ("1.", False),
        ("2.", False),
        ("3.", False),
        ("4.", False),
        ("5.", True),
    ]
    assert [heard[2].request_id, heard[4].request_id] == ["from-the-window", "again"]


async def request(handle: Any, id: str) -> Any:
    home = (await live(handle))._home
    message = Message(f"user-{id}", "user", [{"type": "text", "text": id}])
    return await accept_request(home, ChatRequest(id, [*home.chat.session.path, message]))


@pytest.mark.case(149)
@pytest.mark.parametrize(
    ("policy", "told"),
    [("queue", ["1", "2", "3"]), ("latest", ["1", "3"]), ("merge", ["1", "3"]), ("drop", ["1"])],
)
async def test_with_overlapping_requests_it_fires_only_for_those_that_ran(
    open_app: OpenApp, policy: str, told: list[str]
) -> None:
    # Given a turn that runs, and two more requests meanwhile
    heard: list[ChatResponse] = []
    model = ScriptedModel(says("Wait").waits(gate := asyncio.Event()), says("Then"), says("Then"))
    app = await open_app(cls := responder(model, heard, message_concurrency=policy))
    handle = app.agent(cls, "room")
    first = await request(handle, "1")
    await soon(model.until_silent())
    later = [await request(handle, id) for id in ("2", "3")]

    # When all have ended
    gate.set()
    taken = [one for one in (first, *later) if not isinstance(one, Dropped)]
    await soon(asyncio.gather(*(one.result() for one in taken)))

    # Then the hook was told of the turns that ran
    assert [response.request_id for response in heard] == told


@pytest.mark.case(150)
async def test_a_turn_saved_inside_the_hook_works_and_is_told_afterwards(open_app: OpenApp) -> None:
    # Given a hook that asks for a summary after the first answer
    diary: list[str] = []

    async def on_chat_response(self, response):
        diary.append(f"told of {response.message.text}")
        if response.message.text == "Found it.":
            result = await self.save_messages("Summarise.")
            diary.append(f"{result.status}: {result.text}")
        diary.append(f"done with {response.message.text}")

    model = ScriptedModel(says("Found it."), says("It was there."))
    app = await open_app(cls := assistant(model, on_chat_response=on_chat_response))
    handle = app.agent(cls, "room")

    # When a turn ends
    await soon(handle.save_messages("Find it"))
    await until(lambda: len(diary) == 5)

    # Then the second turn ran inside, and was told once the first hook was through
    assert diary == [
        "told of Found it.",
        "completed: It was there.",
        "done with Found it.",
        "told of It was there.",
        "done with It was there.",
    ]
    assert [message.text for message in await handle.get_messages()] == [
        "Find it",
        "Found it.",
        "Summarise.",
        "It was there.",
    ]


@pytest.mark.case(151)
@pytest.mark.parametrize("is_async", [False, True])
async def test_a_hook_that_raises_changes_neither_result_nor_storage(
    open_app: OpenApp, is_async: bool
) -> None:
    def sync(self, response):
        raise ValueError("cannot react")

    async def later(self, response):
        raise ValueError("cannot react")

    model = ScriptedModel(says("One."), says("Two."))
    cls = assistant(model, on_chat_response=later if is_async else sync)
    app = await open_app(cls)
    handle = app.agent(cls, "room")
    assert (await handle.save_messages("1")).status == "completed"
    assert (await handle.save_messages("2")).text == "Two."
    assert [message.text for message in await handle.get_messages()] == ["1", "One.", "2", "Two."]


async def test_changing_the_message_it_is_given_changes_nothing(open_app: OpenApp) -> None:
    def on_chat_response(self, response):
        response.message.parts.clear()

    app = await open_app(cls := assistant(ScriptedModel(says("One.")), on_chat_response=on_chat_response))
    result = await app.agent(cls, "room").save_messages(user_message("1", id="m1"))
    assert result.text == "One."
    assert (await app.agent(cls, "room").get_messages())[-1].text == "One."


async def test_a_turn_that_waits_for_a_person_is_told_as_completed(open_app: OpenApp) -> None:
    heard: list[ChatResponse] = []

    @tool(needs_approval=True)
    async def refund() -> None:
        """Refund."""

    model = ScriptedModel(calls("refund"))
    app = await open_app(cls := responder(model, heard, get_tools=lambda self: [refund]))
    await app.agent(cls, "room").save_messages("Refund")
    assert heard[0].status == "completed"
    assert heard[0].message.tool_parts[0]["state"] == "approval-requested"
