"""The browser's own package reads our chunks: its schema takes every one, its fold makes our message."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from everthink import chunks as ui
from everthink import tool
from everthink.journal.fold import fold
from everthink.messages import Message, is_tool_part
from everthink.testing.scripted import ScriptedModel, says, thinks
from tests.conftest import OpenApp
from tests.support.agents import assistant
from tests.support.conversations import any_chunks
from tests.support.node import run_node


def read_in_browser(*streams: list[ui.Chunk], folds: bool = False) -> list[dict[str, Any]]:
    """What the package `ai` says of each stream."""
    given = [{"chunks": [json.loads(ui.encode(c)) for c in chunks], "folds": folds} for chunks in streams]
    return run_node("read_chunks.mjs", given)


EVERY_FIELD: list[ui.Chunk] = [
    ui.Start(),
    ui.Start("m", {"a": 1}),
    ui.StartStep(),
    ui.FinishStep(),
    ui.TextStart("1", {"p": {"k": 1}}),
    ui.TextDelta("1", "hi", {"p": {"k": 1}}),
    ui.TextEnd("1", {"p": {"k": 1}}),
    ui.ReasoningStart("1", {"p": {"k": 1}}),
    ui.ReasoningDelta("1", "hm", {"p": {"k": 1}}),
    ui.ReasoningEnd("1", {"p": {"k": 1}}),
    ui.ToolInputStart("c", "t", True, {"p": {"k": 1}}, {"m": 1}, True, "T"),
    ui.ToolInputDelta("c", "{"),
    ui.ToolInputAvailable("c", "t", {"a": 1}, True, {"p": {"k": 1}}, {"m": 1}, True, "T"),
    ui.ToolInputAvailable("c", "t", None),
    ui.ToolInputError("c", "t", "{", "broken", True, {"p": {"k": 1}}, {"m": 1}, True, "T"),
    ui.ToolApprovalRequest("a", "c", "signature", {"title": "Sure?"}),
    ui.ToolOutputAvailable("c", {"x": [1]}, True, {"p": {"k": 1}}, {"m": 1}, True, True),
    ui.ToolOutputAvailable("c", None),
    ui.ToolOutputError("c", "no", True, {"p": {"k": 1}}, True),
    ui.ToolOutputDenied("c"),
    ui.SourceUrl("s", "https://example.com", "T", {"p": {"k": 1}}),
    ui.SourceDocument("s", "application/pdf", "T", "f.pdf", {"p": {"k": 1}}),
    ui.File("data:,x", "text/plain", {"p": {"k": 1}}),
    ui.MessageMetadata({"a": 1}),
    ui.Data("data-x", {"a": None}, "i", True),
    ui.Data("data-x", None),
    ui.Error("no"),
    ui.Abort(),
    ui.Abort("enough"),
    ui.Finish(),
    *(
        ui.Finish(reason, {"a": 1})
        for reason in ("stop", "length", "content-filter", "tool-calls", "error", "other")
    ),
]


def test_the_schema_takes_every_chunk_with_every_field() -> None:
    known = {type(chunk) for chunk in EVERY_FIELD}
    ours = {kind for kind in vars(ui).values() if isinstance(kind, type) and kind.__name__ in ui.__all__}
    assert ours - known == {ui.Other}
    (read,) = read_in_browser(EVERY_FIELD)
    assert read["refused"] == []


def test_the_schema_refuses_what_is_no_chunk() -> None:
    # The test above would also pass if nothing were checked.
    (read,) = read_in_browser([ui.Other({"type": "text-delta", "id": None, "delta": 1}), ui.TextStart("1")])
    assert [refusal["chunk"]["type"] for refusal in read["refused"]] == ["text-delta"]


def test_the_schema_takes_chunks_with_any_content() -> None:
    collected: list[list[ui.Chunk]] = []

    @settings(
        max_examples=60, phases=[Phase.generate], database=None, suppress_health_check=list(HealthCheck)
    )
    @given(st.lists(any_chunks, min_size=20, max_size=40))
    def collect(chunks: list[ui.Chunk]) -> None:
        collected.append([chunk for chunk in chunks if type(chunk) is not ui.Other])

    collect()
    # One process for all of them: starting Node takes longer than reading.
    assert [read["refused"] for read in read_in_browser(*collected)] == [[]] * len(collected)


# --- a whole conversation


@tool
async def search(query: str) -> AsyncIterator[str]:
    """Search, telling how far it is."""
    yield "looking"
    yield f"found {query}"


@tool(title="Division")
def divide(a: int, b: int) -> float:
    """Divide."""
    return a / b


@tool(needs_approval=True)
def delete(path: str) -> str:
    """Delete a file."""
    return f"deleted {path}"


def shown(message: dict[str, Any]) -> list[tuple[Any, ...]]:
    """What a reader sees of each part, in the words both sides share."""
    seen: list[tuple[Any, ...]] = []
    for part in message["parts"]:
        if part["type"] in ("text", "reasoning"):
            seen.append((part["type"], part["text"], part["state"], part.get("providerMetadata")))
        elif is_tool_part(part):
            name = part.get("toolName") or part["type"].removeprefix("tool-")
            keys = ("toolCallId", "state", "output", "errorText", "title", "approval")
            seen.append((name, *(part.get(key) for key in keys), bool(part.get("providerExecuted"))))
        else:
            seen.append(tuple(sorted((key, str(value)) for key, value in part.items())))
    return seen


@pytest.mark.anyio
async def test_the_browser_folds_a_whole_answer_into_the_message_we_store(open_app: OpenApp) -> None:
    # Given an answer with everything in it
    model = ScriptedModel(
        thinks("First ", "I search.", signature="sig")
        .says("Let me ", "look.")
        .calls("search", query="x")
        .calls("divide", a=1, b=0),
        says("Hm.")
        .calls("nonsense", x=1)
        .calls("web", q=1, provider_executed=True)
        .provider_result({"hits": [1, 2]}),
        says("Now delete.").attaches("data:image/png;base64,AA==").calls("delete", path="/tmp/x"),
    )
    app = await open_app(cls := assistant(model, get_tools=lambda self: [search, divide, delete]))
    handle = app.agent(cls, "room")

    # When the browser's package reads what a reader was sent
    chunks = [chunk async for chunk in handle.chat("Go")]
    (read,) = read_in_browser(chunks, folds=True)
    assert (read["refused"], read["errors"]) == ([], [])

    # Then both sides have the same message
    stored: Message = (await handle.get_messages())[-1]
    assert read["message"]["id"] == stored.id == fold(chunks).message().id
    assert shown(read["message"]) == shown(stored.to_json())
