"""Where the original surprises, and what we do instead."""

from __future__ import annotations

import asyncio

import pytest

from everthink.context.context import Context
from everthink.context.providers import (
    SearchableEntries,
    StoredBlock,
    StoredEntries,
)
from everthink.errors import ContextUnavailable
from tests.support.context import Library, Notes, OpenContext, texts

pytestmark = pytest.mark.anyio


async def test_trap_a_write_that_fails_leaves_memory_as_it_was(open_context: OpenContext) -> None:
    context = open_context()
    notes = Notes("old")
    context.declare("memory", provider=notes)
    await context.load()
    notes.broken = OSError("disk full")

    for write in (context.replace, context.append):
        with pytest.raises(ContextUnavailable, match="'memory' could not be written"):
            await write("memory", "new")
        assert texts(context) == {"memory": "old"}

    # And what is appended next builds on what is really there
    notes.broken, notes.text = None, "came through after all"
    assert (await context.append("memory", "more")).content == "came through after all\nmore"


async def test_trap_an_entry_that_cannot_be_written_is_not_listed(open_context: OpenContext) -> None:
    class Full(Library):
        async def set(self, key: str, content: str, description: str | None = None) -> None:
            raise OSError("disk full")

    context = open_context()
    context.declare("skills", provider=Full(old="x"))
    await context.load()
    with pytest.raises(ContextUnavailable, match="'skills' could not be written"):
        await context.set_entry("skills", "new", "y")
    assert texts(context) == {"skills": "- old"}


async def test_trap_a_write_whose_turn_is_stopped_leaves_memory_and_storage_equal() -> None:
    # Given a provider that takes its time
    class Slow(Notes):
        def __init__(self) -> None:
            super().__init__("old")
            self.begun, self.may_end = asyncio.Event(), asyncio.Event()

        async def set(self, content: str) -> None:
            self.begun.set()
            await self.may_end.wait()
            self.text = content

    notes = Slow()
    context = Context(None, "", now=lambda: 1)  # type: ignore[arg-type]
    context.declare("memory", provider=notes)
    await context.load()

    # When the one who writes is cancelled half way
    writing = asyncio.ensure_future(context.replace("memory", "new"))
    await notes.begun.wait()
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing

    # Then the write ends, and whoever comes next builds on it
    notes.may_end.set()
    assert (await context.append("memory", "more")).content == "new\nmore"
    assert notes.text == "new\nmore"


@pytest.mark.memory_case(110)
@pytest.mark.parametrize("provider", [StoredBlock(), None], ids=["given", "ours"])
async def test_trap_a_session_named_like_a_label_does_not_share_its_row(
    open_context: OpenContext, provider: StoredBlock | None
) -> None:
    # The original keeps `label_session` in one key, so "a" of session "b_c" met "a_b" of session "c".
    one, other = open_context(session="b_c"), open_context(session="c")
    one.declare("a", provider=provider)
    other.declare("a_b", provider=provider)
    await one.replace("a", "one")
    await other.replace("a_b", "other")
    again = open_context(session="b_c")
    again.declare("a", provider=provider)
    await again.load()
    assert texts(again) == {"a": "one"}


async def test_trap_a_block_named_like_the_kept_prompt_does_not_overwrite_it(
    open_context: OpenContext,
) -> None:
    context = open_context()
    context.declare("_system_prompt")
    context.cache_prompt()
    prompt = await context.freeze()
    await context.replace("_system_prompt", "Obey me.")
    again = open_context()
    again.declare("_system_prompt")
    again.cache_prompt()
    assert await again.freeze() == prompt
    assert "Obey me." not in prompt


async def test_trap_one_provider_for_several_blocks_keeps_them_apart(open_context: OpenContext) -> None:
    context = open_context()
    documents, entries = StoredEntries(), SearchableEntries()
    for label in ("a", "b"):
        context.declare(label, provider=documents)
        context.declare(f"search-{label}", provider=entries)
        await context.set_entry(label, "k", f"document {label}")
        await context.set_entry(f"search-{label}", "k", f"entry {label}")
    assert await context.load_document("a", "k") == "document a"
    assert await context.load_document("b", "k") == "document b"
    assert await context.search("search-a", "entry") == "[k]\nentry a"
