"""When a person is asked first."""

import asyncio
from typing import Any

import pytest

from everthink.errors import AgentError, ToolDefinitionError
from everthink.tools.tool import NeedsApproval, Tool, ToolContext, tool

pytestmark = pytest.mark.anyio


def refund(needs: NeedsApproval) -> Tool:
    @tool(needs_approval=needs)
    def refund(amount: float, reason: str = "none", ctx: ToolContext | None = None) -> None: ...

    return refund


async def from_amount(amount: float) -> bool:
    await asyncio.sleep(0)
    return amount > 100


def from_context_and_amount(amount: float, ctx: ToolContext) -> bool:
    return amount > 100 and ctx.tool_call_id == "call-1"


class Rules:
    limit = 100

    def above(self, input: dict[str, Any]) -> bool:
        return input["amount"] > self.limit


@pytest.mark.parametrize(
    "predicate",
    [
        lambda amount: amount > 100,
        lambda amount, reason: amount > 100 and reason == "none",
        lambda amount, reason="never": amount > 100 and reason == "none",
        lambda **everything: everything["amount"] > 100,
        lambda input: input["amount"] > 100,
        lambda data: data["amount"] > 100,
        lambda input, ctx: input["amount"] > 100 and ctx.tool_call_id == "call-1",
        lambda input, whatever: input["amount"] > 100 and whatever.tool_call_id == "call-1",
        from_amount,
        from_context_and_amount,
        Rules().above,
    ],
)
async def test_a_predicate_asks_for_what_it_wants_to_see(predicate: Any, ctx: ToolContext) -> None:
    made = refund(predicate)
    assert await made.needs_approval_for({"amount": 101}, ctx) is True
    assert await made.needs_approval_for({"amount": 99}, ctx) is False


async def test_a_keyword_only_context_is_filled(ctx: ToolContext) -> None:
    def predicate(input: dict[str, Any], *, context: ToolContext) -> bool:
        return context is ctx and input["amount"] == 1

    assert await refund(predicate).needs_approval_for({"amount": 1}, ctx) is True


async def test_a_predicate_of_the_class_gets_the_agent(ctx: ToolContext) -> None:
    class Agent:
        limit = 100

        def _is_large(self, amount: float) -> bool:
            return amount > self.limit

        @tool(needs_approval=_is_large)
        def refund(self, amount: float) -> None: ...

    ctx.agent = Agent()
    assert await Agent.refund.bind(ctx.agent).needs_approval_for({"amount": 101}, ctx) is True
    assert await Agent.refund.bind(ctx.agent).needs_approval_for({"amount": 1}, ctx) is False


async def test_typed_values_reach_a_predicate_that_names_them(ctx: ToolContext) -> None:
    seen: list[Any] = []

    def predicate(amount: float) -> bool:
        seen.append(amount)
        return False

    await refund(predicate).needs_approval_for({"amount": "12.5"}, ctx)
    assert seen == [12.5]


@pytest.mark.parametrize("answer", [True, False])
async def test_a_fixed_answer_needs_no_predicate(answer: bool, ctx: ToolContext) -> None:
    assert await refund(answer).needs_approval_for({"amount": 1}, ctx) is answer
    assert await refund(lambda: answer).needs_approval_for({"amount": 1}, ctx) is answer
    assert await refund(lambda ctx: answer).needs_approval_for({"amount": 1}, ctx) is answer


async def test_a_forgotten_return_does_not_wave_a_call_through(ctx: ToolContext) -> None:
    def forgetful(amount: float) -> None: ...

    with pytest.raises(
        AgentError, match=r"answered None, which is neither True nor False\. The tool was not run"
    ):
        await refund(forgetful).needs_approval_for({"amount": 1}, ctx)


async def test_a_predicate_that_raises_is_not_a_yes(ctx: ToolContext) -> None:
    with pytest.raises(ZeroDivisionError):
        await refund(lambda amount: 1 / 0).needs_approval_for({"amount": 1}, ctx)


async def test_raw_schema_tools_can_ask_too(ctx: ToolContext) -> None:
    schema = {"type": "object", "properties": {"amount": {"type": "number"}}}
    made = Tool.from_schema("pay", "", schema, lambda input: None, needs_approval=lambda amount: amount > 1)
    assert await made.needs_approval_for({"amount": 2}, ctx) is True
    assert await made.needs_approval_for({"amount": 1}, ctx) is False


# --- names that do not fit


async def test_a_default_of_one_s_own_is_kept(ctx: ToolContext) -> None:
    made = refund(lambda amount, limit=100: amount > limit)
    assert await made.needs_approval_for({"amount": 101}, ctx) is True
    assert await made.needs_approval_for({"amount": 99}, ctx) is False
    whole = refund(lambda input, limit=100: input["amount"] > limit)
    assert await whole.needs_approval_for({"amount": 101}, ctx) is True


async def test_the_context_may_come_first(ctx: ToolContext) -> None:
    made = refund(lambda ctx, input: ctx.tool_call_id == "call-1" and input["amount"] == 1)
    assert await made.needs_approval_for({"amount": 1}, ctx) is True


@pytest.mark.parametrize("option", ["needs_approval", "on_interrupt"])
@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (lambda amuont: True, "takes 'amuont', and the tool has no such parameter: did you mean 'amount'?"),
        (lambda amount, curency: True, "takes 'curency', and the tool has no such parameter"),
        (lambda amount, raeson: True, "did you mean 'reason'?"),
        (lambda one, two, three: True, "takes one, two, three, and is given the whole input and the context"),
        (max, "has no signature to read"),
    ],
)
def test_a_function_whose_parameters_are_none_of_the_tool_s_is_refused_when_it_is_decorated(
    option: str, asked: Any, words: str
) -> None:
    def pay(amount: float, reason: str = "none", ctx: ToolContext | None = None) -> None: ...

    with pytest.raises(ToolDefinitionError) as told:
        tool(pay, **{option: asked})  # type: ignore[call-overload]
    assert words in str(told.value)
    assert f"its {option}, " in str(told.value)
    assert "by name: amount, reason" in str(told.value)


def test_raw_schema_tools_are_held_to_their_properties() -> None:
    schema = {"type": "object", "properties": {"amount": {"type": "number"}}}
    with pytest.raises(ToolDefinitionError, match="did you mean 'amount'"):
        Tool.from_schema("pay", "", schema, lambda input: None, needs_approval=lambda amuont: True)
    Tool.from_schema("pay", "", {"type": "object"}, lambda input: None, needs_approval=lambda amuont: True)


@pytest.mark.parametrize("view", ["short", lambda: 1, lambda result, ctx, more: 1])
def test_a_view_for_the_model_takes_the_result(view: Any) -> None:
    with pytest.raises(ToolDefinitionError, match=r"its to_model_output.* gets the result"):
        tool(view_of, to_model_output=view)
    tool(view_of, to_model_output=str)
    tool(view_of, to_model_output=lambda result, ctx: 1)


@pytest.mark.parametrize("execute", ["run", lambda: 1, lambda input, ctx, more: 1])
def test_the_body_of_a_raw_schema_takes_the_input(execute: Any) -> None:
    with pytest.raises(ToolDefinitionError, match=r"its execute.* gets the input, and the context"):
        Tool.from_schema("pay", "", None, execute)


def view_of() -> None: ...
