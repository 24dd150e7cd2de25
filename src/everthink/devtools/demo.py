"""The agent of `everthink dev` in a folder without agents: the first minute with the product.

It needs no key and no network. Each tool shows one thing: a result, progress, an approval, another agent
that does the work, and a question that only the browser can answer. It has a memory, and a window so small
that one can watch a conversation being summarised.
"""

from __future__ import annotations

import ast
import asyncio
import operator
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ..children.tool import agent_tool
from ..errors import ToolError
from ..session.session import Session
from ..session.summary import create_compact_function
from ..think import Think
from ..tools.tool import tool

__all__ = ["Demo", "Researcher"]

BROWSER_TOOL: dict[str, Any] = {
    "name": "browser_language",
    "description": "Which language and time zone the person's browser is set to.",
    "parameters": {"type": "object", "properties": {}},
}
"""What a page sends in `clientTools` to let the demo ask the browser. The page runs it; see docs/cli.md."""

COMPACT_AFTER, TAIL_TOKENS = 1200, 400
"""A real agent would set these near its model's window."""


@dataclass
class Subject:
    """What a researcher is asked."""

    subject: str
    borrow: bool = False


async def library(topic: str) -> AsyncIterator[str]:
    """Search it, shelf by shelf."""
    for shelf in ("A to F", "G to M", "N to Z"):
        await asyncio.sleep(0.4)
        yield f"searching shelf {shelf}"
    yield f"The library has three books about {topic}."


class Researcher(Think):
    """A child of the demo agent, with a conversation of its own for each thing it is asked."""

    model = "demo"
    about = "Works for the demo agent. Each of its tasks is a conversation of its own."
    system_prompt = "You are a thorough researcher. Answer in a few short sentences."

    def format_agent_tool_input(self, input: Any) -> str:
        """The question, as somebody would put it."""
        work = "Research and borrow a book" if input.get("borrow") else "Research the books"
        return f"{work} about {input['subject']}"

    @tool
    async def research(self, topic: str) -> AsyncIterator[str]:
        """Research a topic in the library. Shows how far it is."""
        async for found in library(topic):
            yield found

    @tool(needs_approval=True)
    def borrow(self, topic: str) -> str:
        """Borrow a book. Asks you first. (No book leaves a library.)"""
        return f"The best book about {topic} is yours for four weeks."


class Demo(Think):
    """The demo agent: streams, thinks aloud, uses tools, and asks before it does something."""

    model = "demo"
    about = "A small model that runs right here: no key, no network. Everything around it is real."
    examples = (
        "What can you do?",
        "What is the weather in Paris?",
        "Do some research about lighthouses",
        "Ask the researcher about Whales and Ships",
        "Send a postcard to Ada",
        "Remember that my dog is called Rex",
        "Tell me a story",
    )
    """What the page offers to try: a tool, one that shows its progress, two other agents at once, one
    that asks first, memory."""

    system_prompt = "You are a friendly guide to everthink. Answer in a few short sentences."

    def configure_session(self, session: Session) -> Session:
        """A memory, every session to search, and a summary as soon as the conversation is a page long."""
        compact = create_compact_function(
            summarize=self.generate_text, protect_head=2, tail_token_budget=TAIL_TOKENS, min_tail_messages=4
        )
        return (
            session.with_context("guide", provider=self.system_prompt)
            .with_context("memory", description="What the person asked you to remember", max_tokens=500)
            .with_context(
                "history",
                description="Everything that was said, in all sessions",
                provider=self.sessions.history_provider(),
            )
            .with_cached_prompt()
            .on_compaction(compact)
            .compact_after(COMPACT_AFTER)
        )

    @tool
    def weather(self, city: str) -> str:
        """The weather in a city. Invented, but always the same."""
        mood = sum(map(ord, city))
        sky = ("windy", "sunny", "cloudy", "rainy", "foggy")[mood % 5]
        return f"It is {sky} in {city}, {8 + mood % 20} degrees."

    @tool
    def clock(self) -> str:
        """The time and the date on this machine, now."""
        return f"It is {datetime.now():%H:%M on %A, %d %B %Y}."

    @tool
    def calculate(self, expression: str) -> float:
        """Calculate with + - * / and parentheses, for example 12 * (3 + 4)."""
        return value_of(ast.parse(expression, mode="eval").body)

    @tool
    async def research(self, topic: str) -> AsyncIterator[str]:
        """Research a topic in the library. Shows how far it is."""
        async for found in library(topic):
            yield found

    researcher = agent_tool(
        Researcher,
        description="A researcher that works on a subject for you.",
        input=Subject,
        display_name="Researcher",
    )

    @tool(needs_approval=True)
    def send_postcard(self, to: str) -> str:
        """Send a postcard to somebody. Asks you first. (No postcard leaves this machine.)"""
        return f"The postcard to {to} is on its way."


_OPERATORS: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: lambda a, b: a / b,
}


def value_of(node: ast.expr) -> float:
    """The value of a parsed sum. What is not arithmetic raises, and the model reads why."""
    match node:
        case ast.Constant(value=int() | float() as number):
            return number
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](value_of(left), value_of(right))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -value_of(operand)
        case _:
            raise ToolError(f"I can only calculate with numbers, not with {ast.unparse(node)!r}.")
