"""chat() on a child: streamed to callbacks, stopped by its request, interrupted when it is to go on."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from everthink import Agent, Think, tool
from everthink.errors import InvalidTurn, TurnInterrupted
from everthink.hooks import ChatErrorContext, ChatResponse
from everthink.recovery import ChatRecovery, ChatRecoveryContext
from everthink.testing import ScriptedModel, calls, fails, says, waits
from everthink.testing.clock import ManualClock
from everthink.testing.scripted import hangs
from tests.conftest import OpenApp
from tests.support.hooks import until
from tests.support.server import served
from tests.support.turns import Heard as Listener
from tests.support.turns import record_events

pytestmark = pytest.mark.anyio


class Desk(Agent):
    """A parent."""


class Heard:
    """Callbacks that keep what they were told."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.request = ""

    def on_start(self, start: Any) -> None:
        self.request = getattr(start, "request_id", start)
        self.told.append("start")

    def on_event(self, event: Any) -> None:
        if "text-delta" in str(event):
            self.told.append("delta")

    def on_done(self, *result: Any) -> None:
        self.told.append("done")

    def on_error(self, error: Any) -> None:
        self.told.append("error")

    def on_interrupted(self, *why: Any) -> None:
        self.told.append("interrupted")


def helper(*plays: Any, **members: Any) -> type[Think]:
    """A child that follows a script."""
    return type("Helper", (Think,), {"model": ScriptedModel(*plays), **members})


async def child_of(open_app: OpenApp, cls: type[Think]) -> Any:
    return await (await open_app(Desk)).agent(Desk, "d").sub_agent(cls, "h")


@pytest.mark.agent_case(292)
async def test_a_childs_answer_is_streamed_to_callbacks(open_app: OpenApp) -> None:
    child, heard = await child_of(open_app, helper(says("Hel", "lo"))), Heard()
    await child.chat("Hi", heard)
    assert heard.told == ["start", "delta", "delta", "done"]
    assert [message.text for message in await child.get_messages()] == ["Hi", "Hello"]


@pytest.mark.agent_case(297)
async def test_a_failing_child_is_told_and_answers_the_next_time(open_app: OpenApp) -> None:
    child, heard = await child_of(open_app, helper(fails("broken"), says("Better."))), Heard()
    await child.chat("Hi", heard)
    assert heard.told[-1] == "error"
    assert "done" not in heard.told
    assert (await child.chat("Again")).text == "Better."


@pytest.mark.agent_case(299, 300)
async def test_a_childs_answer_is_stopped_by_its_request(open_app: OpenApp) -> None:
    cls = helper(says("Half ").then_hangs(), says("Whole."))
    child, heard = await child_of(open_app, cls), Heard()
    asked = asyncio.ensure_future(child.chat("Hi", heard))
    await until(lambda: "delta" in heard.told)
    await child.cancel_chat(heard.request, "enough")
    assert (await asked).status == "aborted"
    assert not {"done", "error", "interrupted"} & set(heard.told)
    assert (await child.get_messages())[-1].text == "Half "
    assert (await child.chat("Again")).text == "Whole."


@pytest.mark.agent_case(301)
async def test_a_child_that_stalls_and_is_to_go_on_is_interrupted_and_not_done(open_app: OpenApp) -> None:
    gate = asyncio.Event()

    class Stalls(Think):
        model = ScriptedModel(says("Half ").then_hangs(), waits(gate).says("an answer."))
        chat_stream_stall_timeout = 0.05

    child, heard = await child_of(open_app, Stalls), Heard()
    asked = asyncio.ensure_future(child.chat("Hi", heard))
    await until(lambda: "interrupted" in heard.told)
    assert "done" not in heard.told
    gate.set()
    await asyncio.wait([asked])
    assert "done" not in heard.told
    await child.wait_until_stable()
    assert (await child.get_messages())[-1].text == "Half an answer."


# --- what it says and stores


@pytest.mark.agent_case(293)
async def test_windows_of_the_child_see_the_turn_and_those_of_its_parent_do_not(open_app: OpenApp) -> None:
    class Talker(Think):
        model = ScriptedModel(says("Hel", "lo"))

    class Host(Think):
        model = ScriptedModel()
        sub_agents = (Talker,)

    app = await open_app(Host)
    async with served(app, lifespan="off") as server:
        child = await server.connect("/agents/host/h/sub/talker/t")
        parent = await server.connect(Host, name="h")
        for tab in (child, parent):
            await tab.until_frame("cf_agent_identity")
        handle: Any = await app.agent(Host, "h").sub_agent(Talker, "t")
        heard = Listener()
        await handle.chat("Hi", heard)
        await child.until(lambda: child.text == "Hello" and len(child.messages) == 2)
        assert [message.role for message in child.messages] == ["user", "assistant"]
        assert (heard.text, heard.names) == ("Hello", ["start", "done"])
        await parent.probe("p")
        await parent.until_frame("cf_agent_stream_resume_none")
        assert (parent.text, parent.messages) == ("", [])


@pytest.mark.agent_case(294)
async def test_turns_of_a_child_pile_up_whatever_is_said(open_app: OpenApp) -> None:
    cls = helper(says("one"), says("two"), says("three"))
    child, heard = await child_of(open_app, cls), Listener()
    parts = [{"type": "text", "text": "A"}, {"type": "text", "text": "B"}]
    for said in ("Hi", "", {"id": "m3", "role": "user", "parts": parts}):
        await child.chat(said, heard)
    assert [message.text for message in await child.get_messages()] == ["Hi", "one", "", "two", "AB", "three"]
    assert heard.names == ["start", "done"] * 3
    assert len(cls.model.last_request.messages) == 5  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.agent_case(295)
async def test_tools_that_a_caller_gives_are_ignored_with_a_warning(
    open_app: OpenApp, caplog: pytest.LogCaptureFixture
) -> None:
    @tool
    def mine() -> str:
        """A tool of the parent."""
        return "mine"

    cls = helper(says("Hello"))
    child = await child_of(open_app, cls)
    assert (await child.chat("Hi", tools=[mine])).text == "Hello"
    assert not {"mine", "pick"} & {spec.name for spec in cls.model.last_request.tools}  # pyright: ignore
    assert "tools" in caplog.text


@pytest.mark.agent_case(296)
async def test_an_empty_answer_of_a_child_is_done_all_the_same(open_app: OpenApp) -> None:
    responses: list[ChatResponse] = []
    cls = helper(says(), on_chat_response=lambda self, response: responses.append(response))
    child, heard = await child_of(open_app, cls), Listener()
    result = await child.chat("Hi", heard)
    assert (result.status, heard.names, [one.status for one in responses]) == (
        "completed",
        ["start", "done"],
        ["completed"],
    )


# --- what goes wrong


@pytest.mark.agent_case(297, 298)
@pytest.mark.parametrize("told", ["heard", "raised"])
async def test_an_error_in_the_answer_of_a_child_ends_it_and_is_told_once(
    open_app: OpenApp, told: str
) -> None:
    hooks: list[Any] = []

    def on_chat_error(self: Think, error: Exception, ctx: ChatErrorContext) -> None:
        hooks.append(("error", ctx.stage))

    class Grumpy(Listener):
        def on_error(self, error: str) -> None:
            super().on_error(error)
            if told == "raised":
                raise LookupError(f"I was told {error}")

    cls = helper(
        says("Half").then_fails("no").says(" and more"),
        says("Whole."),
        on_chat_error=on_chat_error,
        on_chat_response=lambda self, response: hooks.append((response.status, response.message.text)),
    )
    app = await open_app(Desk)
    events, heard = record_events(app, "chat:request:failed"), Grumpy()
    child: Any = await app.agent(Desk, "d").sub_agent(cls, "h")
    if told == "raised":
        with pytest.raises(LookupError, match="I was told no"):
            await child.chat("Hi", heard)
    else:
        assert (await child.chat("Hi", heard)).status == "error"
    assert (heard.text, heard.names, heard.told[-1]) == ("Half", ["start", "error"], ("error", "no"))
    assert sorted(hooks) == [("error", "Half"), ("error", "stream")]
    assert [(event.id, event.payload["stage"]) for event in events] == [(child.id, "stream")]
    assert [message.text for message in await child.get_messages()] == ["Hi", "Half"]
    assert (await child.chat("Again")).text == "Whole."


@pytest.mark.agent_case(299)
async def test_the_hook_of_a_child_hears_that_it_was_stopped(open_app: OpenApp) -> None:
    ended: list[tuple[str, str]] = []
    cls = helper(
        says("Half").then_hangs(),
        says("Whole."),
        on_chat_response=lambda self, response: ended.append((response.status, response.message.text)),
    )
    child, heard = await child_of(open_app, cls), Listener()
    asked = asyncio.ensure_future(child.chat("Hi", heard))
    await until(lambda: heard.text == "Half")
    await child.abort_all_requests("enough")
    assert (await asked).status == "aborted"
    assert heard.names == ["start"]
    assert (await child.chat("Again")).text == "Whole."
    assert ended == [("aborted", "Half"), ("completed", "Whole.")]


@pytest.mark.agent_case(302)
async def test_a_child_that_stalls_again_and_again_is_given_up(open_app: OpenApp) -> None:
    clock, model = ManualClock(), ScriptedModel(says("Half ").then_hangs(), *[hangs()] * 2)
    cls = type(
        "Helper",
        (Think,),
        {
            "model": model,
            "chat_stream_stall_timeout": 40.0,
            "chat_recovery": ChatRecovery(max_attempts=2, no_progress_timeout=3600),
        },
    )
    app = await open_app(Desk, clock=clock)
    events = record_events(app, "chat:recovery:exhausted")
    child: Any = await app.agent(Desk, "d").sub_agent(cls, "h")
    asked = asyncio.ensure_future(child.chat("Hi"))
    for _ in range(3):
        await model.until_silent()
        await clock.advance(40.1)
    assert (await asked).status == "error"
    assert [event.id for event in events] == [child.id]
    assert [message.text for message in await child.get_messages()] == ["Hi", "Half "]
    # And nothing of it is still to come
    assert await child.wait_until_stable()
    assert (clock.waiting, model.asked) == (0, 3)


@pytest.mark.agent_case(303)
@pytest.mark.parametrize("how", ["aborted", "reopened"])
async def test_a_turn_of_a_child_goes_on_from_what_it_said_and_its_checkpoint(
    open_app: OpenApp, how: str
) -> None:
    found: list[ChatRecoveryContext] = []

    class Careful(Think):
        model = ScriptedModel(calls("note").says("Half "), says("").then_hangs(), says("an answer."))

        @tool
        async def note(self) -> str:
            """Keep a checkpoint."""
            await self.stash({"page": 7})
            return "noted"

        def on_chat_recovery(self, ctx: ChatRecoveryContext) -> None:
            found.append(ctx)

    class Host(Agent):
        sub_agents = (Careful,)

    app = await open_app(Host)
    child: Any = await app.agent(Host, "d").sub_agent(Careful, "c")
    heard = Listener()
    asked = asyncio.ensure_future(child.chat("Hi", heard))
    await until(lambda: Careful.model.asked == 2)
    # When the child is cut off in the middle of its turn
    if how == "aborted":
        await app.agent(Host, "d").abort_sub_agent(Careful, "c")
    else:
        await app.close()
        app = await open_app(Host)
    with pytest.raises(TurnInterrupted):
        await asked
    assert heard.names == ["start"]
    # Then it goes on where it was, whoever reaches it
    child = await app.agent(Host, "d").sub_agent(Careful, "c")
    assert await child.wait_until_stable()
    assert [ctx.recovery_data for ctx in found] == [{"page": 7}]
    messages = await child.get_messages()
    assert [message.text for message in messages] == ["Hi", "Half an answer."]
    assert [part["output"] for part in messages[1].tool_parts] == ["noted"]


# --- tools that the caller runs

PICK = {"name": "pick", "description": "Pick a file."}
LOCATE = {"name": "locate"}


@pytest.mark.case(328)
@pytest.mark.agent_case(304)
async def test_tools_of_whoever_calls_a_child_run_there_and_its_turn_goes_on(open_app: OpenApp) -> None:
    ran: list[str] = []
    together = asyncio.Barrier(2)

    class Asker(Agent):
        """A parent that runs tools for its child."""

        async def ask(self, cls: type[Think]) -> Any:
            async def run(name: str, given: Any, call_id: str) -> Any:
                if len(ran) < 2:
                    ran.append(f"{self.name}: {call_id}")
                    await together.wait()  # both of a step run at the same time
                    return {"by": self.name}
                raise RuntimeError("the camera is off")

            child: Any = await self.sub_agent(cls, "h")
            return await child.chat("Go", client_tools=[PICK, LOCATE], on_client_tool_call=run)

    cls = helper(calls("pick", id="a").calls("locate", id="b"), calls("pick", id="c"), says("Then without."))
    app = await open_app(Asker)
    result = await app.agent(Asker, "boss").ask(cls)
    assert (result.status, result.text) == ("completed", "Then without.")
    assert sorted(ran) == ["boss: a", "boss: b"]
    child: Any = await app.agent(Asker, "boss").sub_agent(cls, "h")
    messages = await child.get_messages()
    assert [(p["toolCallId"], p["state"]) for p in messages[-1].tool_parts] == [
        ("a", "output-available"),
        ("b", "output-available"),
        ("c", "output-error"),
    ]


@pytest.mark.agent_case(305)
async def test_tools_of_whoever_calls_a_child_are_gone_with_the_turn(open_app: OpenApp) -> None:
    cls = helper(calls("pick", id="a"), says("Next."))
    app = await open_app(Desk)
    desk: Any = app.agent(Desk, "d")
    child = await desk.sub_agent(cls, "h")
    assert (await child.chat("Go", client_tools=[PICK])).status == "completed"
    (part,) = (await child.get_messages())[-1].tool_parts
    assert part["state"] == "input-available"
    # Nobody waits for an answer to it, now or later, and the next turn does not offer it
    for _ in range(2):
        async with child as agent:
            assert not agent.has_pending_interaction()
        await desk.abort_sub_agent(cls, "h")
    assert (await child.chat("And now?")).text == "Next."
    assert not {"mine", "pick"} & {spec.name for spec in cls.model.last_request.tools}  # pyright: ignore


@pytest.mark.case(331)
@pytest.mark.agent_case(305)
async def test_a_tool_of_the_caller_that_was_cut_off_is_told_as_that_and_waits_for_nobody(
    open_app: OpenApp,
) -> None:
    began = asyncio.Event()

    async def run(name: str, given: Any, call_id: str) -> Any:
        began.set()
        await asyncio.Event().wait()

    cls = helper(calls("pick", id="a"), says("Without it, then."))
    app = await open_app(Desk)
    desk: Any = app.agent(Desk, "d")
    child = await desk.sub_agent(cls, "h")
    asked = asyncio.ensure_future(child.chat("Go", client_tools=[PICK], on_client_tool_call=run))
    await began.wait()
    await desk.abort_sub_agent(cls, "h")
    with pytest.raises(TurnInterrupted):
        await asked
    child = await desk.sub_agent(cls, "h")
    assert await child.wait_until_stable()
    messages = await child.get_messages()
    assert messages[-1].text == "Without it, then."
    assert [part["state"] for part in messages[-1].tool_parts] == ["output-error"]


# --- run_turn


@pytest.mark.agent_case(306)
async def test_run_turn_of_a_child_does_what_its_modes_say(open_app: OpenApp) -> None:
    cls = helper(says("one"), says("more"), says("two"), says("three"), says("four"))
    child, heard = await child_of(open_app, cls), Listener()
    assert (await child.run_turn("Hi")).text == "one"
    assert (await child.run_turn(continuation=True)).text == "more"
    submitted = await child.run_turn("Later", mode="submit")
    assert (await child.wait_for_submission(submitted.submission_id)).status == "completed"
    await child.run_turn("Stream", mode="stream", callback=heard)
    assert (heard.text, heard.names) == ("three", ["start", "done"])
    assert (await child.run_turn([])).status == "skipped"
    seen: list[int] = []

    def prepared(messages: Any) -> str:
        seen.append(len(messages))
        return "So many"

    assert (await child.run_turn(prepared)).text == "four"
    assert seen == [len(await child.get_messages()) - 2]
    for wrong in (
        {},
        {"input": "Hi", "continuation": True},
        {"input": "Hi", "mode": "stream"},
        {"input": "Hi", "mode": "sing"},
    ):
        with pytest.raises(InvalidTurn):
            await child.run_turn(**wrong)


@pytest.mark.agent_case(307)
async def test_turns_of_a_child_wait_for_each_other_and_none_for_itself(open_app: OpenApp) -> None:
    class Busy(Think):
        model = ScriptedModel(says("1"), says("2"), calls("nest"), says("3"), says("4"))

        @tool
        async def nest(self) -> str:
            """Ask itself."""
            await self.add_messages("a note")
            await self.run_turn("later", mode="submit")
            return (await self.parent_agent(Boss).ask("now")).text

    class Boss(Agent):
        async def ask(self, text: str) -> Any:
            child = await self.sub_agent(Busy, "b")
            return await child.run_turn(text)

    boss: Any = (await open_app(Boss)).agent(Boss, "b")
    both = await asyncio.gather(boss.ask("first"), boss.ask("second"))
    assert sorted(result.text for result in both) == ["1", "2"]
    # A turn that would wait for itself, be it by way of its parent, is refused
    async with asyncio.timeout(10):
        result = await boss.ask("third")
    assert (result.status, result.text) == ("completed", "3")
    child = await boss.sub_agent(Busy, "b")
    assert await child.wait_until_stable()
    messages = await child.get_messages()
    (part,) = [part for message in messages for part in message.tool_parts]
    assert part["state"] == "output-error"
    assert "cannot be called from inside an active turn" in str(Busy.model.requests[3])
    said = [message.text for message in messages if message.role == "user"]
    assert sorted(said[:2]) == ["first", "second"]
    assert said[2:] == ["third", "a note", "later"]
