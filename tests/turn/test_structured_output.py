"""Answers that follow a schema."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, Literal

import pytest
from pydantic import BaseModel

from everthink import Think, TurnConfig, tool
from everthink.models.port import OutputSchema
from everthink.testing.scripted import ScriptedModel, says, thinks
from tests.conftest import OpenApp
from tests.support.agents import assistant, live
from tests.support.hooks import configured, offered, soon, types, watch

pytestmark = pytest.mark.anyio


class Report(BaseModel):
    """How bad it is."""

    severity: Literal["low", "high"]
    count: int = 0


@dataclass
class Point:
    x: int
    y: int


def structured(model: ScriptedModel, output: Any, **members: Any) -> type[Think]:
    return assistant(model, before_turn=configured(TurnConfig(output=output, active_tools=[])), **members)


@pytest.mark.case(159)
@pytest.mark.parametrize(
    ("output", "said", "value", "name"),
    [
        (Report, '{"severity": "high"}', Report(severity="high", count=0), "Report"),
        (Point, '{"x": 1, "y": 2}', Point(1, 2), "Point"),
        (list[int], "[1, 2]", [1, 2], "list"),
        (
            {"type": "object", "title": "Anything", "properties": {"a": {"type": "integer"}}},
            '{"a": 1}',
            {"a": 1},
            "Anything",
        ),
        (OutputSchema({"type": "object"}, name="own"), '{"a": [null]}', {"a": [None]}, "own"),
    ],
)
async def test_a_schema_is_passed_on_and_the_value_comes_back(
    open_app: OpenApp, output: Any, said: str, value: Any, name: str
) -> None:
    # Given a turn that wants an answer of this form
    model = ScriptedModel(says(said[:3], said[3:]), says("Just text."))
    app = await open_app(cls := structured(model, output))
    handle = app.agent(cls, "room")

    # When the model follows it
    result = await handle.save_messages("Report")

    # Then it was told the schema, the result has the value, and the text is stored as it came
    schema = model.requests[0].output
    assert schema is not None
    assert schema.name == name
    assert schema.json_schema.get("type") in ("object", "array")
    assert (result.status, result.output, result.text) == ("completed", value, said)
    assert (await handle.get_messages())[-1].text == said

    # And the next turn is free again
    later = await handle.save_messages("Talk")
    assert (later.text, later.output) == ("Just text.", None)
    assert model.requests[1].output is None


@pytest.mark.case(159)
async def test_a_model_class_gives_the_model_its_schema(open_app: OpenApp) -> None:
    model = ScriptedModel(says('{"severity": "low", "count": 3}'))
    app = await open_app(cls := structured(model, Report))
    result = await app.agent(cls, "room").chat("Report")
    assert result.output == Report(severity="low", count=3)
    assert model.last_request.output.json_schema == Report.model_json_schema()
    assert offered(model.last_request) == []


@pytest.mark.parametrize(
    "said",
    ['```json\n{"severity": "low"}\n```', '```\n{"severity": "low"}\n```\n', '  {"severity": "low"}  '],
)
async def test_a_fence_around_the_json_is_forgiven(open_app: OpenApp, said: str) -> None:
    app = await open_app(cls := structured(ScriptedModel(says(said)), Report))
    result = await app.agent(cls, "room").save_messages("Report")
    assert (result.status, result.output) == ("completed", Report(severity="low"))
    assert result.text == said


@pytest.mark.parametrize(
    "said", ["It is bad.", '{"severity": "medium"}', '{"severity": "low"', '{"severity": "low"} and more', ""]
)
async def test_an_answer_that_does_not_fit_is_an_error_that_keeps_the_answer(
    open_app: OpenApp, said: str
) -> None:
    # Given a model that does not follow the schema
    app = await open_app(cls := structured(ScriptedModel(thinks("hm").says(said)), Report))
    handle = app.agent(cls, "room")
    shown = await watch(handle)

    # When it answers
    result = await handle.save_messages("Report")

    # Then the turn failed, without a value, and what was said is stored
    assert (result.status, result.output) == ("error", None)
    assert result.error.startswith("Structured output error")
    assert (await handle.get_messages())[-1].text == said
    assert "finish" not in types(shown)


@pytest.mark.parametrize("said", ["nonsense", '{"a": NaN}'])
async def test_plain_schemas_ask_for_json_too(open_app: OpenApp, said: str) -> None:
    app = await open_app(cls := structured(ScriptedModel(says(said)), {"type": "object"}))
    result = await app.agent(cls, "room").save_messages("Report")
    assert result.status == "error"
    assert result.error.startswith("Structured output error")


@pytest.mark.case(655)
async def test_the_value_is_read_from_the_last_steps_text(open_app: OpenApp) -> None:
    # Given a model that talks, uses a tool, and then answers in form
    class Assistant(Think):
        model = ScriptedModel(
            says('{"severity": "low"}').calls("look"), says('{"severity": ', '"high", "count": 2}')
        )

        def before_turn(self, turn):
            return TurnConfig(output=Report)

        @tool
        async def look(self) -> str:
            """Look."""
            return "fire"

    app = await open_app(Assistant)

    # When it runs, then the last step counts, and every step was told the schema
    result = await app.agent(Assistant, "room").save_messages("Look")
    assert result.output == Report(severity="high", count=2)
    assert [request.output.name for request in Assistant.model.requests] == ["Report", "Report"]


async def test_a_turn_that_waits_for_the_browser_has_no_value_yet(open_app: OpenApp) -> None:
    model = ScriptedModel(says("One moment.").calls("cursor"))
    app = await open_app(cls := assistant(model, before_turn=configured(TurnConfig(output=Report))))
    result = await app.agent(cls, "room").chat("Where?", client_tools=[{"name": "cursor"}])
    assert (result.status, result.output) == ("completed", None)


async def test_an_aborted_turn_has_no_value(open_app: OpenApp) -> None:
    model = ScriptedModel(says('{"severity": "low"}').then_hangs())
    app = await open_app(cls := structured(model, Report))
    handle = app.agent(cls, "room")
    turn = asyncio.create_task(handle.save_messages("Report"))
    await soon(model.until_silent())
    (await live(handle)).abort_all_requests()
    result = await soon(turn)
    assert (result.status, result.output) == ("aborted", None)


async def test_only_turns_that_ask_for_it_are_structured(open_app: OpenApp) -> None:
    def before_turn(self, turn):
        if (turn.body or {}).get("mode") == "structured-answer":
            return TurnConfig(output=Report, active_tools=[])

    model = ScriptedModel(says("Hello."), says('{"severity": "low"}'))
    app = await open_app(cls := assistant(model, before_turn=before_turn))
    handle = app.agent(cls, "room")
    assert (await handle.save_messages("Hi")).output is None
    result = await handle.continue_last_turn({"mode": "structured-answer"})
    assert result.output == Report(severity="low")


async def test_a_type_nobody_understands_fails_before_the_model_is_asked(open_app: OpenApp) -> None:
    class Opaque: ...

    model = ScriptedModel()
    app = await open_app(cls := structured(model, Opaque))
    with pytest.raises(Exception, match="Opaque"):
        await app.agent(cls, "room").save_messages("Report")
    assert model.asked == 0
