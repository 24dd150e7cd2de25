"""Wherever a stream is cut, folding the rest onto the first piece gives the same message."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everthink import chunks as ui
from everthink import tool
from everthink.journal.fold import (
    Accumulator,
    fold,
    is_replay,
)
from everthink.messages import copy_json, is_tool_part
from everthink.session.row_size import storable
from everthink.testing.scripted import ScriptedModel, says, thinks
from tests.conftest import OpenApp
from tests.support import journal
from tests.support.agents import assistant, live
from tests.support.conversations import chunk_streams, unhurried

pytestmark = pytest.mark.slow  # by nature: hundreds of cases each


def through_json(chunks: list[ui.Chunk]) -> list[ui.Chunk]:
    return [ui.decode(ui.encode(chunk)) for chunk in chunks]


def check_every_cut(chunks: list[ui.Chunk], *, id: str = "m") -> None:
    whole = fold(chunks, id=id).message()
    so_far = Accumulator(id)
    for place in range(len(chunks) + 1):
        prefix = fold(chunks[:place], id=id)
        before = prefix.message()
        assert fold(chunks[place:], prefix).message() == whole
        # The first piece is left as it was, and equals what a live turn has at that moment.
        assert prefix.message() == before == so_far.message()
        if place < len(chunks):
            so_far.apply(chunks[place])


@pytest.mark.slow
@unhurried
@given(chunk_streams())
def test_a_stream_cut_at_any_chunk_folds_to_the_same_message(chunks: list[ui.Chunk]) -> None:
    check_every_cut(chunks)


@unhurried
@given(chunk_streams())
def test_a_trip_through_json_changes_nothing(chunks: list[ui.Chunk]) -> None:
    stored = through_json(chunks)
    assert stored == chunks
    assert fold(stored, id="m").message() == fold(chunks, id="m").message()
    check_every_cut(stored)


@pytest.mark.slow
@unhurried
@given(chunk_streams(), st.lists(st.integers(0, 60), max_size=4))
def test_any_number_of_cuts_is_as_good_as_none(chunks: list[ui.Chunk], places: list[int]) -> None:
    edges = [0, *sorted(min(place, len(chunks)) for place in places), len(chunks)]
    accumulator = Accumulator("m")
    for first, last in itertools.pairwise(edges):
        accumulator = fold(through_json(chunks[first:last]), accumulator)
    assert accumulator.message() == fold(chunks, id="m").message()


@pytest.mark.slow
@unhurried
@given(chunk_streams())
def test_folding_leaves_the_chunks_as_they_were(chunks: list[ui.Chunk]) -> None:
    before = through_json(chunks)
    message = fold(chunks, id="m").message()
    for part in message.parts:
        part.clear()
    assert chunks == before


@unhurried
@given(chunk_streams())
def test_what_is_left_out_as_a_repetition_changes_no_message(chunks: list[ui.Chunk]) -> None:
    # Given a turn that journals only what is new
    accumulator, journaled = Accumulator("m"), []
    for chunk in chunks:
        if not is_replay(chunk, accumulator):
            accumulator.apply(chunk)
            journaled.append(chunk)

    # Then the whole stream folds to the same
    assert fold(chunks, id="m").message() == fold(journaled, id="m").message()


@unhurried
@given(chunk_streams())
def test_every_message_is_plain_json_with_the_fields_its_parts_need(chunks: list[ui.Chunk]) -> None:
    message = fold(chunks, id="m").message()
    assert message.to_json()["parts"] == copy_json(message.parts)
    known = [part["toolCallId"] for part in message.parts if is_tool_part(part)]
    assert len(known) == len(set(known))
    for part in message.parts:
        assert None not in [part.get(key, "") for key in ("text", "state", "toolName", "errorText")]
        if part["type"] in ("text", "reasoning"):
            assert part["state"] in ("streaming", "done")


# --- the journal of real turns


@tool
async def search(query: str) -> AsyncIterator[str]:
    """Search, telling how far it is."""
    yield "looking"
    yield f"found {query}"


@tool
def divide(a: int, b: int) -> float:
    """Divide."""
    return a / b


@tool(needs_approval=True)
def delete(path: str) -> str:
    """Delete a file."""
    return f"deleted {path}"


def lively_model() -> ScriptedModel:
    return ScriptedModel(
        thinks("First ", "I ", "search.", signature="sig")
        .says("Let me ", "look.")
        .calls("search", query="x")
        .calls("divide", a=1, b=0),
        says("Hm, ", "again.")
        .calls_raw("divide", '{"a": 1')
        .calls("nonsense")
        .calls("web", q=1, provider_executed=True)
        .provider_result({"hits": [1, 2]}),
        thinks("Now ", "delete.").attaches("data:image/png;base64,AA==").calls("delete", path="/tmp/x"),
        says("Done, ", "all of it."),
    )


@pytest.mark.anyio
@pytest.mark.case(220, 252)
async def test_the_journal_of_a_real_turn_folds_to_the_stored_message_at_every_cut(open_app: OpenApp) -> None:
    # Given a conversation with everything in it: thinking, streaming tools, failures, an approval
    model = lively_model()
    app = await open_app(cls := assistant(model, get_tools=lambda self: [search, divide, delete]))
    handle = app.agent(cls, "room")
    home: Any = (await live(handle))._home
    await handle.save_messages("Go")
    call = next(p for p in (await handle.get_messages())[-1].parts if p.get("toolName") == "delete")
    assert await handle.apply_tool_approval(call["toolCallId"], True)
    await handle.continue_last_turn()
    assert model.remaining == 0

    # When each turn's journal is read and cut at every chunk
    first, second = await journal.turns(home)
    asked, answered = [await journal.chunks(home, turn) for turn in (first, second)]
    check_every_cut(asked)
    check_every_cut(answered)

    # Then it folds to the messages that were stored
    _, question, answer = await handle.get_messages()
    folded = storable(fold(asked).message())
    assert folded.id == question.id
    # (the approved call was settled later, by the second turn)
    assert [p for p in folded.parts if p.get("toolName") != "delete"] == [
        p for p in question.parts if p.get("toolName") != "delete"
    ]
    assert storable(fold(answered, id=answer.id).message()) == answer


@pytest.mark.anyio
async def test_what_readers_were_shown_is_what_the_journal_holds(open_app: OpenApp) -> None:
    model = lively_model()
    app = await open_app(cls := assistant(model, get_tools=lambda self: [search, divide, delete]))
    handle = app.agent(cls, "room")
    shown = [chunk async for chunk in handle.chat("Go")]
    home: Any = (await live(handle))._home
    (turn,) = await journal.turns(home)
    assert await journal.chunks(home, turn) == shown


@settings(unhurried, max_examples=25)
@given(
    st.lists(
        st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20), min_size=1, max_size=60
    )
)
def test_many_small_deltas_join_to_their_text(deltas: list[str]) -> None:
    chunks: list[ui.Chunk] = [
        ui.TextStart("t"),
        *(ui.TextDelta("t", delta) for delta in deltas),
        ui.TextEnd("t"),
    ]
    assert fold(chunks).message().text == "".join(deltas)
    check_every_cut(chunks)
