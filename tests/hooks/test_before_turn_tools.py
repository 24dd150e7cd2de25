"""Where tools come from, and which of two with one name wins."""

from __future__ import annotations

from typing import Any

import pytest

from everthink import Think, TurnConfig, tool
from everthink.errors import ToolDefinitionError
from everthink.testing.scripted import ScriptedModel, calls, says
from tests.conftest import OpenApp
from tests.support.agents import assistant
from tests.support.hooks import ask, offered, results

pytestmark = pytest.mark.anyio


@tool(name="look")
async def given_look() -> str:
    """From get_tools."""
    return "given"


@tool(name="look")
async def turn_look() -> str:
    """From before_turn."""
    return "turn"


class Own(Think):
    """An agent whose method is the first source of `look`."""

    include_workspace_tools = False

    @tool
    async def look(self) -> str:
        """From the method."""
        return "method"

    @tool
    async def listen(self) -> str:
        """Listen."""
        return "silence"


def own(model: ScriptedModel, **members: Any) -> type[Think]:
    return type("Assistant", (Own,), {"model": model, **members})


@pytest.mark.case(659)
@pytest.mark.parametrize(
    ("members", "description", "output"),
    [
        ({}, "From the method.", "method"),
        ({"get_tools": lambda self: [given_look]}, "From get_tools.", "given"),
        ({"get_tools": lambda self: {"look": given_look}}, "From get_tools.", "given"),
        (
            {
                "get_tools": lambda self: [given_look],
                "before_turn": lambda self, turn: TurnConfig(tools=[turn_look]),
            },
            "From before_turn.",
            "turn",
        ),
    ],
)
async def test_the_later_source_of_a_tool_wins(
    open_app: OpenApp, members: dict[str, Any], description: str, output: str
) -> None:
    # Given several tools of one name
    model = ScriptedModel(calls("look"), says("Done."))
    app = await open_app(cls := own(model, **members))

    # When it is called, then the last source's was offered, once, and it ran
    await app.agent(cls, "room").save_messages("Look")
    assert [spec.description for spec in model.requests[0].tools if spec.name == "look"] == [description]
    assert sorted(offered(model.requests[0])) == ["listen", "look"]
    assert [part.output for part in results(model.requests[1])] == [output]


@pytest.mark.case(659)
async def test_a_browser_tool_never_hides_ours(open_app: OpenApp) -> None:
    """Against the letter of the case: what a client declares may not replace or relax a tool of ours."""
    # Given a window that offers a tool by the name of ours
    model = ScriptedModel(calls("look"), says("Seen."))
    app = await open_app(cls := own(model, get_tools=lambda self: [given_look]))
    handle = app.agent(cls, "room")
    shadow = {"name": "look", "description": "From the browser.", "parameters": {"type": "object"}}

    # When the model calls it
    result = await ask(handle, "Look", client_tools=[shadow])

    # Then ours was offered and ran
    assert "From the browser." not in [spec.description for spec in model.requests[0].tools]
    assert (result.text, model.asked) == ("Seen.", 2)


@pytest.mark.case(659)
async def test_a_browser_tool_of_one_chat_does_not_hide_ours_either(open_app: OpenApp) -> None:
    model = ScriptedModel(says("One."))
    app = await open_app(cls := own(model))
    await app.agent(cls, "room").chat("1", client_tools=[{"name": "look", "description": "Elsewhere."}])
    assert {s.name: s.description for s in model.last_request.tools}["look"] == "From the method."


async def test_two_tools_of_one_name_in_a_list_are_refused_with_both_places(open_app: OpenApp) -> None:
    model = ScriptedModel()
    app = await open_app(cls := assistant(model, get_tools=lambda self: [given_look, turn_look]))
    with pytest.raises(ToolDefinitionError, match=r"Two tools are named 'look'.*given_look.*turn_look"):
        await app.agent(cls, "room").save_messages("Look")
    assert model.asked == 0


@pytest.mark.parametrize(
    "given",
    [
        {"look": given_look},
        [given_look],
        (given_look,),
        given_look,
        {"look": given_look.__wrapped__},
    ],
)
async def test_get_tools_may_return_tools_in_any_of_these_forms(open_app: OpenApp, given: Any) -> None:
    model = ScriptedModel(calls("look"), says("Done."))
    app = await open_app(cls := assistant(model, get_tools=lambda self: given))
    await app.agent(cls, "room").save_messages("Look")
    assert [part.output for part in results(model.requests[1])] == ["given"]


async def test_get_tools_may_be_async_and_is_asked_anew_each_turn(open_app: OpenApp) -> None:
    rounds: list[int] = []

    async def get_tools(self):
        rounds.append(1)
        return [given_look] if len(rounds) == 1 else None

    model = ScriptedModel(says("One."), says("Two."))
    app = await open_app(cls := assistant(model, get_tools=get_tools))
    for text in ("1", "2"):
        await app.agent(cls, "room").save_messages(text)
    assert [offered(request) for request in model.requests] == [["look"], []]


async def test_the_model_is_told_name_description_and_schema(open_app: OpenApp) -> None:
    @tool(strict=True)
    async def refund(order: str, amount: float = 1.0) -> str:
        """Refund an order.

        Args:
            order: The order's number.
        """
        return ""

    model = ScriptedModel(says("Hello."))
    app = await open_app(cls := assistant(model, get_tools=lambda self: [refund]))
    await app.agent(cls, "room").save_messages("Hi")
    (spec,) = model.last_request.tools
    assert (spec.name, spec.strict) == ("refund", True)
    assert spec.description.startswith("Refund an order.")
    assert spec.input_schema["required"] == ["order"]
    assert spec.input_schema["properties"]["order"]["description"] == "The order's number."
    assert spec.input_schema["properties"]["amount"]["default"] == 1.0
