"""An agent whose tools ask a person: whoever says a tool's name has it called."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any, Literal

from everthink import Think, ToolContext, tool
from everthink.messages import encode_json
from everthink.models import port as model
from everthink.tools.question import Form, Given, Question

__all__ = ["Concierge", "Desk"]

TABLE: dict[str, Any] = {
    "type": "object",
    "properties": {
        "guests": {"type": "integer", "title": "How many of you?", "minimum": 1, "maximum": 12, "default": 2},
        "day": {"type": "string", "format": "date", "title": "Which day?"},
        "where": {
            "type": "string",
            "oneOf": [
                {"const": "in", "title": "Inside"},
                {"const": "out", "title": "On the terrace"},
                {"const": "any", "title": "Either"},
            ],
        },
        "occasion": {
            "type": "string",
            "enum": ["none", "birthday", "wedding", "work", "other"],
            "enumNames": ["Nothing special", "A birthday", "A wedding", "Work", "Something else"],
            "description": "The kitchen likes to know.",
        },
        "diets": {
            "type": "array",
            "title": "What should the kitchen look out for?",
            "items": {"anyOf": [{"const": d, "title": d.capitalize()} for d in ("vegan", "nuts", "gluten")]},
            "maxItems": 2,
        },
        "email": {
            "type": "string",
            "format": "email",
            "title": "E-mail",
            "description": "For the confirmation.",
        },
        "remind": {"type": "boolean", "title": "Remind me a day before", "default": True},
    },
    "required": ["guests", "day", "where", "email"],
}

PLACES: dict[str, Any] = {
    "type": "object",
    "properties": {
        "site": {"type": "string", "format": "uri"},
        "at": {"type": "string", "format": "date-time"},
        "firstName": {"type": "string", "minLength": 2, "maxLength": 5},
        "ratio": {"type": "number", "minimum": -1.5},
        "nick": {"anyOf": [{"type": "string"}, {"type": "null"}], "title": "Nickname"},
        "size": {"$ref": "#/$defs/Size"},
        "more": {"type": "object", "properties": {"number": {"type": "integer"}}},
    },
    "required": ["firstName", "nick", "size"],
    "$defs": {"Size": {"enum": [1, 2, 3, 4, 5]}},
}

SAID = {"A table at the Osteria, please": "book_table", "I would like to pay": "pay"}
"""For the pictures."""
PAY = "https://pay.example/checkout/4711?for=desk"


class Caller:
    """Calls the tool that is named, with the JSON behind it, and says what came out."""

    name = "caller"
    continues: Literal["prefill", "prompt"] = "prompt"

    async def stream(self, request: model.Request) -> AsyncGenerator[model.ModelEvent, None]:
        yield model.Opened()
        last = request.messages[-1]
        if isinstance(last, model.UserMessage):
            said = "".join(part.text for part in last.content if isinstance(part, model.TextPart))
            name, _, given = SAID.get(said, said).partition(" ")
            yield model.ToolCallReady(f"{name}-{len(request.messages)}", name, given or "{}")
            yield model.Finish("tool-calls", model.Usage(20, 5, 25))
            return
        results = [part for part in last.content if isinstance(part, model.ToolResultPart)]
        yield model.TextStart("t")
        yield model.TextDelta("t", "; ".join(_words(part.output) for part in results))
        yield model.TextEnd("t")
        yield model.Finish("stop", model.Usage(20, 5, 25))


def _words(output: Any) -> str:
    return output if isinstance(output, str) else encode_json(output).decode()


def _told(forms: dict[str, Given]) -> str:
    """What the tool was told, form by form."""
    return "; ".join(
        f"{name} {one.action} {encode_json(one.content or {}).decode()}" for name, one in forms.items()
    )


class Desk(Think):
    """Takes bookings."""

    model = Caller()
    about = "Takes bookings, and asks what it needs to know."
    examples = tuple(SAID)

    @tool
    def book_table(self, ctx: ToolContext) -> str:
        """Book a table, which takes a form."""
        if ctx.answer is None:
            raise Question({"table": Form("When do you come, and who is with you?", TABLE)}, asks="Osteria")
        return f"Told: {_told(ctx.answer.forms)}"

    @tool
    def describe(self, ctx: ToolContext) -> str:
        """Ask for the rarer kinds of fields."""
        if ctx.answer is None:
            raise Question({"place": Form("Tell me more.", PLACES)})
        return f"Told: {_told(ctx.answer.forms)}"

    @tool
    def pay(self, ctx: ToolContext) -> str:
        """Send the person somewhere."""
        if ctx.answer is None:
            raise Question({"pay": Form("Please pay for the table.", url=PAY)}, asks="Osteria")
        return f"Told: {_told(ctx.answer.forms)}"

    @tool
    def lure(self, ctx: ToolContext) -> str:
        """Send the person to an address that no page should open."""
        if ctx.answer is None:
            raise Question({"go": Form("Click here.", url="javascript:alert(document.cookie)")})
        return f"Told: {_told(ctx.answer.forms)}"

    @tool
    def plan(self, ctx: ToolContext) -> str:
        """Ask several things at once."""
        if ctx.answer is None:
            name = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
            forms = {
                "who": Form("In whose name?", name),
                "pay": Form("Please pay.", url=PAY),
                "sure": Form("Are you sure?"),
            }
            raise Question(forms, asks="Osteria")
        return f"Told: {_told(ctx.answer.forms)}"

    @tool
    def twice(self, ctx: ToolContext) -> str:
        """Ask, and ask again."""
        if ctx.answer is None:
            name = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
            raise Question({"who": Form("In whose name?", name)}, state="named")
        if ctx.answer.state == "named":
            first = ctx.answer.forms["who"].content or {}
            raise Question({"sure": Form(f"Is {first.get('name')} right?")}, state=f"{first.get('name')}")
        return f"Told: {ctx.answer.state}, {_told(ctx.answer.forms)}"

    @tool
    async def hurry(self, ctx: ToolContext) -> str:
        """Ask in the middle, as older MCP servers do."""
        assert ctx.ask is not None
        name = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
        return f"Told: {_told(await ctx.ask(Question({'who': Form('Who is it?', name)}, asks='old'), 300))}"


class Concierge(Desk):
    """The same for the pictures, in which nobody else is."""
