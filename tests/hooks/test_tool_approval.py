"""Tools that ask a person first: the request, the answer, and the turn that goes on."""

from __future__ import annotations

from typing import Any

import pytest

from everthink import Allow, Block, Message, Think, ToolContext, tool
from everthink.models.port import TextPart, UserMessage
from everthink.testing.scripted import ScriptedModel, calls, says
from tests.conftest import OpenApp
from tests.support.agents import assistant, live
from tests.support.hooks import only, results, types, watch

pytestmark = pytest.mark.anyio


class Bank:
    """An agent whose refunds need a person's yes."""

    def __init__(self, *plays: Any, decide: Any = None, **members: Any) -> None:
        self.asks: Any = True
        self.ran: list[str] = []
        self.hooks: list[str] = []
        self.model = ScriptedModel(*(plays or (calls("refund", order="7", id="c1"), says("Refunded."))))

        def needs_approval(order: str) -> bool:
            if isinstance(self.asks, Exception):
                raise self.asks
            return self.asks

        @tool(needs_approval=needs_approval)
        async def refund(order: str) -> str:
            """Refund an order."""
            self.ran.append(order)
            if order == "13":
                raise ValueError("unlucky")
            return f"refunded {order}"

        @tool
        async def balance() -> int:
            """The balance."""
            self.ran.append("balance")
            return 5

        self.tools = [refund, balance]
        self.cls: type[Think] = assistant(
            self.model,
            get_tools=lambda agent: self.tools,
            before_tool_call=lambda agent, call: self.hooks.append(f"before {call.name}") or decide,
            after_tool_call=lambda agent, outcome: self.hooks.append(f"after {outcome.name}"),
            **members,
        )

    @property
    def read(self) -> list[Any]:
        return [(part.id, part.output, part.is_error) for part in results(self.model.last_request)]


async def ledger(handle: Any) -> dict[str, str]:
    """What the ledger says of each call."""
    home = (await live(handle))._home
    rows = await home.store.fetch("SELECT call_id, state FROM calls WHERE agent = ?", home.id)
    return dict(rows)


@pytest.mark.case(186)
async def test_asking_runs_nothing_and_ends_the_turn(open_app: OpenApp) -> None:
    # Given a tool that needs approval, called beside one that does not
    bank = Bank(calls("refund", order="7", id="c1").calls("balance", id="c2"))
    app = await open_app(bank.cls)
    handle = app.agent(bank.cls, "room")
    shown = await watch(handle)

    # When the model calls both
    result = await handle.save_messages("Refund order 7")

    # Then only the harmless one ran, the other waits, and the model was not asked again
    assert (bank.ran, bank.hooks) == (["balance"], ["before balance", "after balance"])
    assert (result.status, bank.model.asked) == ("completed", 1)
    (request,) = only(shown, "tool-approval-request")
    assert request.tool_call_id == "c1"
    refund, balance = result.message.tool_parts
    assert (refund["state"], refund["approval"]) == ("approval-requested", {"id": request.approval_id})
    assert balance["output"] == 5
    assert (await live(handle)).has_pending_interaction() is True
    assert await ledger(handle) == {"c1": "asked", "c2": "done"}


@pytest.mark.case(186, 654)
async def test_an_approved_tool_runs_once_before_the_first_step(open_app: OpenApp) -> None:
    # Given a call that was approved
    bank = Bank()
    app = await open_app(bank.cls)
    handle = app.agent(bank.cls, "room")
    await handle.save_messages("Refund order 7")
    assert await handle.apply_tool_approval("c1", True)
    assert bank.ran == []

    # When the turn goes on
    shown = await watch(handle)
    result = await handle.continue_last_turn()

    # Then it ran once, between its hooks, before the model was asked with its result
    assert (bank.ran, bank.hooks) == (["7"], ["before refund", "after refund"])
    assert bank.read == [("c1", "refunded 7", False)]
    assert types(shown)[:3] == ["start", "tool-output-available", "start-step"]
    assert (result.text, result.continuation) == ("Refunded.", True)

    # And the result is stored where the call is, in the earlier message
    _, earlier, later = await handle.get_messages()
    assert earlier.tool_parts[0]["state"] == "output-available"
    assert earlier.tool_parts[0]["output"] == "refunded 7"
    assert earlier.tool_parts[0]["approval"]["approved"] is True
    assert later.tool_parts == []
    assert (await live(handle)).has_pending_interaction() is False
    assert await ledger(handle) == {"c1": "done"}


@pytest.mark.case(186)
async def test_going_on_twice_does_not_run_it_twice(open_app: OpenApp) -> None:
    bank = Bank(calls("refund", order="7", id="c1"), says("Refunded."), says("Anything else?"))
    app = await open_app(bank.cls)
    handle = app.agent(bank.cls, "room")
    await handle.save_messages("Refund order 7")
    await handle.apply_tool_approval("c1", True)
    assert await handle.apply_tool_approval("c1", True) is False
    await handle.continue_last_turn()
    await handle.continue_last_turn()
    assert bank.ran == ["7"]
    assert await handle.apply_tool_approval("c1", False) is False


@pytest.mark.case(186)
async def test_the_hook_may_still_block_what_a_person_approved(open_app: OpenApp) -> None:
    bank = Bank(decide=Block("closed for today"))
    app = await open_app(bank.cls)
    handle = app.agent(bank.cls, "room")
    await handle.save_messages("Refund order 7")
    await handle.apply_tool_approval("c1", True)
    await handle.continue_last_turn()
    assert (bank.ran, bank.hooks) == ([], ["before refund", "after refund"])
    assert bank.read == [("c1", "closed for today", False)]
    assert (await handle.get_messages())[1].tool_parts[0]["output"] == "closed for today"


async def test_the_hook_may_change_the_input_of_what_a_person_approved(open_app: OpenApp) -> None:
    bank = Bank(decide=Allow({"order": "8"}))
    app = await open_app(bank.cls)
    handle = app.agent(bank.cls, "room")
    await handle.save_messages("Refund order 7")
    await handle.apply_tool_approval("c1", True)
    await handle.continue_last_turn()
    assert bank.ran == ["8"]


@pytest.mark.parametrize(
    ("reason", "read"), [("too much money", "too much money"), (None, "Tool call execution denied.")]
)
async def test_a_refusal_runs_nothing_and_is_told_to_the_model(
    open_app: OpenApp, reason: str | None, read: str
) -> None:
    # Given a call that was refused
    bank = Bank()
    app = await open_app(bank.cls)
    handle = app.agent(bank.cls, "room")
    await handle.save_messages("Refund order 7")
    assert await handle.apply_tool_approval("c1", False, reason=reason)

    # When the turn goes on
    await handle.continue_last_turn()

    # Then nothing ran, no tool hook fired, and the model reads why
    assert (bank.ran, bank.hooks) == ([], [])
    assert bank.read == [("c1", read, True)]
    assert (await handle.get_messages())[1].tool_parts[0]["state"] == "output-denied"
    assert await ledger(handle) == {"c1": "denied"}


def answered(id: str, order: str, approved: bool, **more: Any) -> dict[str, Any]:
    """A call that a person has answered, as a browser sends it back."""
    return {
        "type": "tool-refund",
        "toolCallId": id,
        "toolName": "refund",
        "state": "approval-responded",
        "input": {"order": order},
        "approval": {"id": f"approval-{id}", "approved": approved, **more},
    }


async def with_answers(handle: Any, *parts: dict[str, Any]) -> None:
    await handle.add_messages(
        [
            Message("q", "user", [{"type": "text", "text": "Refund"}]),
            Message("a", "assistant", [{"type": "step-start"}, *parts]),
        ]
    )


@pytest.mark.case(654)
async def test_of_several_answers_each_call_gets_its_own(open_app: OpenApp) -> None:
    # Given three calls: approved, refused and approved
    bank = Bank(says("One refused."))
    app = await open_app(bank.cls)
    handle = app.agent(bank.cls, "room")
    await with_answers(
        handle,
        answered("c1", "1", True),
        answered("c2", "2", False, reason="not this one"),
        answered("c3", "3", True),
    )

    # When the turn goes on
    shown = await watch(handle)
    await handle.continue_last_turn()

    # Then two ran, one is told as denied, and the model reads all three in call order
    assert sorted(bank.ran) == ["1", "3"]
    assert [chunk.tool_call_id for chunk in only(shown, "tool-output-denied")] == ["c2"]
    assert types(shown).index("start-step") > types(shown).index("tool-output-denied")
    assert bank.read == [
        ("c1", "refunded 1", False),
        ("c2", "not this one", True),
        ("c3", "refunded 3", False),
    ]
    states = [part["state"] for part in (await handle.get_messages())[1].tool_parts]
    assert states == ["output-available", "output-denied", "output-available"]


@pytest.mark.case(654)
async def test_a_yes_to_a_question_no_longer_asked_is_not_a_yes(open_app: OpenApp) -> None:
    # Given a tool that stopped asking after it was approved
    bank = Bank()
    app = await open_app(bank.cls)
    handle = app.agent(bank.cls, "room")
    await handle.save_messages("Refund order 7")
    await handle.apply_tool_approval("c1", True, reason="go ahead")
    bank.asks = False

    # When the turn goes on
    shown = await watch(handle)
    await handle.continue_last_turn()

    # Then it is denied, and nobody takes the person's yes for the reason
    assert bank.ran == []
    assert [chunk.tool_call_id for chunk in only(shown, "tool-output-denied")] == ["c1"]
    assert bank.read == [("c1", "Tool call execution denied.", True)]
    assert (await handle.get_messages())[1].tool_parts[0]["state"] == "output-denied"

    # And later turns read the same
    bank.model.add(says("Bye."))
    await handle.save_messages("Bye")
    assert bank.read == [("c1", "Tool call execution denied.", True)]


async def test_approved_input_that_no_longer_fits_is_that_calls_failure(open_app: OpenApp) -> None:
    bank = Bank()
    app = await open_app(bank.cls)
    handle = app.agent(bank.cls, "room")
    await handle.save_messages("Refund order 7")
    await handle.apply_tool_approval("c1", True)

    @tool(name="refund", needs_approval=True)
    async def newer(order: int, amount: float) -> str:
        """Refund an order."""
        raise AssertionError("must not run")

    bank.tools = [newer]
    await handle.continue_last_turn()
    ((id, text, is_error),) = bank.read
    assert (id, is_error) == ("c1", True)
    assert "amount" in text
    assert bank.hooks == []


async def test_an_approved_tool_that_is_gone_is_that_calls_failure(open_app: OpenApp) -> None:
    bank = Bank()
    app = await open_app(bank.cls)
    handle = app.agent(bank.cls, "room")
    await handle.save_messages("Refund order 7")
    await handle.apply_tool_approval("c1", True)
    bank.tools = []
    result = await handle.continue_last_turn()
    assert bank.read[0][1].startswith("There is no tool 'refund'.")
    assert result.status == "completed"


async def test_an_approved_tool_that_raises_is_a_result_the_model_reads(open_app: OpenApp) -> None:
    bank = Bank(calls("refund", order="13", id="c1"), says("Sorry."))
    app = await open_app(bank.cls)
    handle = app.agent(bank.cls, "room")
    await handle.save_messages("Refund order 13")
    await handle.apply_tool_approval("c1", True)
    assert (await handle.continue_last_turn()).text == "Sorry."
    assert bank.read == [("c1", "unlucky", True)]
    part = (await handle.get_messages())[1].tool_parts[0]
    assert (part["state"], part["errorText"]) == ("output-error", "The tool failed.")


async def test_a_question_that_breaks_lets_nothing_through(open_app: OpenApp) -> None:
    bank = Bank()
    bank.asks = ValueError("cannot decide")
    app = await open_app(bank.cls)
    result = await app.agent(bank.cls, "room").save_messages("Refund order 7")
    assert bank.ran == []
    assert bank.read == [("c1", "cannot decide", True)]
    assert result.text == "Refunded."


async def test_a_question_that_breaks_after_the_yes_lets_nothing_through_either(open_app: OpenApp) -> None:
    bank = Bank()
    app = await open_app(bank.cls)
    handle = app.agent(bank.cls, "room")
    await handle.save_messages("Refund order 7")
    await handle.apply_tool_approval("c1", True)
    bank.asks = ValueError("cannot decide")
    assert (await handle.continue_last_turn()).status == "completed"
    assert bank.ran == []
    assert bank.read == [("c1", "cannot decide", True)]


async def test_a_function_may_ask_for_some_calls_only(open_app: OpenApp) -> None:
    asked: list[Any] = []

    async def above_100(input: dict[str, Any], ctx: ToolContext) -> bool:
        asked.append((input, ctx.tool_name, list(ctx.messages)))
        return input["amount"] > 100

    @tool(needs_approval=above_100)
    async def refund(amount: int) -> str:
        """Refund."""
        return f"refunded {amount}"

    model = ScriptedModel(calls("refund", amount=5), calls("refund", amount=500, id="big"))
    app = await open_app(cls := assistant(model, get_tools=lambda self: [refund]))
    result = await app.agent(cls, "room").save_messages("Refund")
    assert [part["state"] for part in result.message.tool_parts] == [
        "output-available",
        "approval-requested",
    ]
    assert asked[0] == ({"amount": 5}, "refund", [UserMessage([TextPart("Refund")])])


async def test_an_approved_generator_shows_its_progress_in_the_earlier_message(open_app: OpenApp) -> None:
    @tool(needs_approval=True)
    async def count() -> Any:
        """Count."""
        for number in (1, 2):
            yield number

    model = ScriptedModel(calls("count", id="c1"), says("Two."), says("Bye."))
    app = await open_app(cls := assistant(model, get_tools=lambda self: [count]))
    handle = app.agent(cls, "room")
    await handle.save_messages("Count")
    await handle.apply_tool_approval("c1", True)
    shown = await watch(handle)
    await handle.continue_last_turn()

    outputs = [(chunk.output, chunk.preliminary) for chunk in only(shown, "tool-output-available")]
    assert outputs == [(1, True), (2, True), (2, False)]
    part = (await handle.get_messages())[1].tool_parts[0]
    assert (part["state"], part["output"], part.get("preliminary", False)) == ("output-available", 2, False)
    await handle.save_messages("Bye")
    assert [part.output for part in results(model.last_request)] == [2]


async def test_an_unanswered_question_is_closed_by_the_next_turn(open_app: OpenApp) -> None:
    bank = Bank(calls("refund", order="7", id="c1"), says("Never mind."))
    app = await open_app(bank.cls)
    handle = app.agent(bank.cls, "room")
    await handle.save_messages("Refund order 7")
    await handle.save_messages("Forget it")
    assert bank.ran == []
    assert bank.read[0][0] == "c1"
    assert bank.read[0][2] is True
    assert (await live(handle)).has_pending_interaction() is False


async def test_the_question_survives_a_restart(open_app: OpenApp) -> None:
    bank = Bank()
    app = await open_app(bank.cls)
    await app.agent(bank.cls, "room").save_messages("Refund order 7")
    await app.evict(bank.cls, "room")
    handle = app.agent(bank.cls, "room")
    assert (await live(handle)).has_pending_interaction() is True
    await handle.apply_tool_approval("c1", True)
    await app.evict(bank.cls, "room")
    assert (await handle.continue_last_turn()).text == "Refunded."
    assert bank.ran == ["7"]
