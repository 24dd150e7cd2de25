"""The demo model remembers, looks things up, and summarises."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from everthink.context.blocks import ContextBlock, render
from everthink.models.demo import DemoModel
from everthink.models.demo_memory import is_summary_wanted, summary_of
from everthink.models.port import (
    AssistantMessage,
    ModelEvent,
    ModelMessage,
    Request,
    TextPart,
    ToolCallPart,
    ToolCallReady,
    ToolMessage,
    ToolResultPart,
    ToolSpec,
    UserMessage,
)
from everthink.session.summary import FIRST, RULES, UPDATE
from everthink.testing.contracts.model import text_of

pytestmark = pytest.mark.anyio


def context_tool(name: str, *labels: str, **more: Any) -> ToolSpec:
    properties = {"label": {"type": "string", "enum": list(labels)}, **more}
    return ToolSpec(
        name,
        "Remember something: write it to one of these blocks. Search and find.",
        {"properties": properties},
    )


SET = context_tool("set_context", "notes", "memory")
SEARCH = context_tool("search_context", "history")
PROMPT = render(
    [
        ContextBlock("soul", content="Be kind."),
        ContextBlock("memory", content="My dog is called Rex.\nI like tea.", writable=True),
        ContextBlock("history", content="2 sessions.", is_searchable=True),
    ]
)


async def say(
    text: str, *before: ModelMessage, system: str = "", tools: Any = (SET, SEARCH)
) -> list[ModelEvent]:
    request = Request(system, [*before, UserMessage([TextPart(text)])], list(tools))
    return [event async for event in DemoModel(pace=0).stream(request)]


def called(events: list[ModelEvent]) -> list[tuple[str, Any]]:
    return [(e.name, msgspec.json.decode(e.input)) for e in events if isinstance(e, ToolCallReady)]


@pytest.mark.parametrize(
    ("text", "content"),
    [
        ("remember that my dog is called Rex", "My dog is called Rex."),
        ("Please remember: I like tea!", "I like tea."),
        ("Don't forget that the door is green.", "The door is green."),
    ],
)
async def test_what_it_is_told_to_remember_is_written_down(text: str, content: str) -> None:
    expected = {"label": "memory", "content": content, "action": "append"}
    assert called(await say(text)) == [("set_context", expected)]
    assert called(await say(text, tools=[])) == []


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("What did we say about lighthouses?", "lighthouses"),
        ("Search our conversations for blue doors", "blue doors"),
        ("Did I ever mention Rex?", "Rex"),
    ],
)
async def test_what_was_said_is_looked_up(text: str, query: str) -> None:
    assert called(await say(text)) == [("search_context", {"label": "history", "query": query})]


@pytest.mark.parametrize(
    "text", ["What do you remember?", "Write something and search for it", "I remember the summer", "hello"]
)
async def test_the_tools_of_memory_are_not_called_by_chance(text: str) -> None:
    assert called(await say(text)) == []


async def test_it_tells_what_its_prompt_and_this_conversation_say() -> None:
    assert "My memory is empty" in text_of(await say("What do you remember?"))
    told = text_of(await say("What do you remember?", system=PROMPT))
    assert told == "My prompt tells me: My dog is called Rex. I like tea."
    call = ToolCallPart("1", "set_context", {"label": "memory", "content": "I sing.", "action": "append"})
    fresh = text_of(await say("What do you remember?", AssistantMessage([call]), system=PROMPT))
    assert fresh == f"{told} I also wrote this down, which my prompt shows after its next refresh: I sing."


async def test_what_it_wrote_and_found_is_told_in_words() -> None:
    async def after(tool: str, output: str, question: str) -> str:
        call = AssistantMessage([ToolCallPart("1", tool, {})])
        result = ToolMessage([ToolResultPart("1", tool, output)])
        request = Request("", [UserMessage([TextPart(question)]), call, result], [SET, SEARCH])
        return text_of([event async for event in DemoModel(pace=0).stream(request)])

    assert (await after("set_context", "Written to memory. Usage: 9 tokens.", "x")).startswith(
        "I wrote that down."
    )
    # The question itself was stored, too, and is no answer
    question = "What did we say about gulls?"
    found = await after("search_context", f"[user] {question}\n---\n[assistant] Gulls are loud.", question)
    assert found == "I looked through everything that was said and found “Gulls are loud.”"
    assert await after("search_context", "No results found.", question) == "No results found."


TURNS = (
    "[user]\nWhat is up?\n\n---\n\n[assistant]\nThe sky.\n[Tool: look]\nInput: {}\n\n---\n\n[user]\nAnd down?"
)


def test_a_compaction_gets_a_line_for_each_question() -> None:
    prompt = "\n\n".join([FIRST, "TURNS:", TURNS, f"(end of turns)\n\n{RULES.format(budget=100)}"])
    assert is_summary_wanted(prompt)
    assert summary_of(prompt) == "Earlier in this conversation:\n\n- What is up? → The sky.\n- And down?"


def test_a_summary_keeps_what_the_one_before_it_said() -> None:
    before = "SUMMARY SO FAR:\n\nEarlier in this conversation:\n\n- Old? → Yes."
    prompt = "\n\n".join(
        [UPDATE, before, "NEW TURNS:", TURNS, f"(end of turns)\n\n{RULES.format(budget=100)}"]
    )
    assert is_summary_wanted(prompt)
    assert summary_of(prompt).splitlines()[2:] == ["- Old? → Yes.", "- What is up? → The sky.", "- And down?"]


def test_other_messages_are_no_wish_for_a_summary() -> None:
    assert not is_summary_wanted("Take TURNS: first you, then me (end of turns)")
