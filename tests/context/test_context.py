"""Blocks as a session uses them: declared, read, written, added, removed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from everthink.context.providers import StoredBlock, StoredEntries
from everthink.errors import ContextRefused, ContextUnavailable, InvalidContext
from tests.support.context import Index, Library, Notes, OpenContext, Sign, texts

pytestmark = pytest.mark.anyio


@pytest.mark.memory_case(109, 115)
async def test_a_block_without_a_provider_is_empty_writable_and_kept(open_context: OpenContext) -> None:
    context = open_context()
    context.declare("memory", description="What we know", max_tokens=100)
    await context.load()
    block = context.get_block("memory")
    assert block is not None
    assert (block.content, block.writable, block.tokens) == ("", True, 0)

    await context.replace("memory", "Likes tea.")

    later = open_context()
    later.declare("memory")
    await later.load()
    assert texts(later) == {"memory": "Likes tea."}


@pytest.mark.memory_case(110, 172)
async def test_blocks_of_the_same_label_are_apart_in_every_session_and_agent(
    open_context: OpenContext,
) -> None:
    # Given one provider that serves several places, and one text in each of them
    shared = StoredBlock()
    places = {
        ("Assistant/a", ""): "one",
        ("Assistant/a", "s2"): "two",
        ("Assistant/b", ""): "three",
    }
    contexts = {place: open_context(*place) for place in places}
    for place, text in places.items():
        contexts[place].declare("memory", provider=shared)
        await contexts[place].replace("memory", text)

    # Then each place has its own, also after a restart
    for place, text in places.items():
        again = open_context(*place)
        again.declare("memory", provider=shared)
        await again.load()
        assert texts(again) == texts(contexts[place]) == {"memory": text}


async def test_nothing_declared_is_nothing_done(open_context: OpenContext) -> None:
    context = open_context()
    assert context.is_empty
    assert await context.freeze() == await context.peek() == await context.refresh() == ""
    assert await context.tools(on_unload=never) == {}
    assert not context.is_frozen


async def never(label: str, key: str) -> None:
    raise AssertionError(f"{label}:{key} was unloaded")


@pytest.mark.memory_case(116)
async def test_blocks_are_replaced_added_to_read_and_listed(open_context: OpenContext) -> None:
    context = open_context()
    context.declare("soul", provider="Be kind.")
    context.declare("memory")
    await context.load()

    replaced = await context.replace("memory", "Likes tea.")
    appended = await context.append("memory", "Has a cat.")

    assert replaced.content == "Likes tea."
    assert appended == context.get_block("memory")
    assert [(block.label, block.content) for block in context.get_blocks()] == [
        ("soul", "Be kind."),
        ("memory", "Likes tea.\nHas a cat."),
    ]
    assert context.get_block("nobody") is None


@pytest.mark.parametrize(
    ("before", "added", "after"),
    [
        ("", "b", "b"),
        ("a", "b", "a\nb"),
        ("a", "\nb", "a\nb"),
        ("a\n", "b", "a\n\nb"),
    ],
)
async def test_what_is_appended_begins_on_its_own_line(before: str, added: str, after: str) -> None:
    context = in_memory_context()
    context.declare("memory", provider=Notes(before))
    assert (await context.append("memory", added)).content == after


def in_memory_context() -> Any:
    """A context whose blocks all have providers of their own, so that it needs no database."""
    from everthink.context.context import Context

    return Context(None, "", now=lambda: 1)  # type: ignore[arg-type]


async def test_blocks_are_unknown_until_they_are_read() -> None:
    context = in_memory_context()
    notes = Notes("Likes tea.")
    context.declare("memory", provider=notes)
    assert context.get_block("memory") is None
    assert context.get_blocks() == []
    assert notes.asked == []


@pytest.mark.memory_case(88)
async def test_a_readonly_block_refuses_writes() -> None:
    context = in_memory_context()
    context.declare("soul", provider=Sign("Be kind."))
    for write in (context.replace, context.append):
        with pytest.raises(ContextRefused, match="readonly"):
            await write("soul", "Be rude.")
    await context.load()
    assert texts(context) == {"soul": "Be kind."}


async def test_an_unknown_label_is_not_found_and_the_writable_ones_are_told() -> None:
    context = in_memory_context()
    context.declare("memory", provider=Notes())
    with pytest.raises(ContextRefused, match=r"'nobody' was not found.*'memory'"):
        await context.replace("nobody", "x")
    with pytest.raises(ContextRefused, match="'nobody' was not found"):
        await context.append("nobody", "x")


@pytest.mark.memory_case(89)
async def test_too_many_tokens_are_refused_with_both_numbers(open_context: OpenContext) -> None:
    context = open_context()
    context.declare("memory", max_tokens=100)
    await context.replace("memory", "x" * 400)

    with pytest.raises(ContextRefused, match=r"exceeds maxTokens.* 101 tokens.* 100\..*Shorten"):
        await context.append("memory", "yyy")

    assert texts(context) == {"memory": "x" * 400}
    again = open_context()
    again.declare("memory")
    await again.load()
    assert texts(again) == {"memory": "x" * 400}


async def test_keyed_blocks_are_written_entry_by_entry_and_others_are_not() -> None:
    context = in_memory_context()
    context.declare("skills", provider=Library())
    context.declare("facts", provider=Index())
    context.declare("memory", provider=Notes())
    with pytest.raises(ContextRefused, match="keyed entries"):
        await context.replace("skills", "x")
    with pytest.raises(ContextRefused, match="keyed entries"):
        await context.append("facts", "x")
    with pytest.raises(ContextRefused, match="not loadable or searchable"):
        await context.set_entry("memory", "key", "x")
    with pytest.raises(ContextRefused, match="readonly"):
        await context.set_entry("facts", "key", "x")
    with pytest.raises(ContextRefused, match="key of an entry"):
        await context.set_entry("skills", "two\nlines", "x")


async def test_what_a_block_cannot_do_names_the_blocks_that_can() -> None:
    context = in_memory_context()
    context.declare("skills", provider=Library())
    context.declare("facts", provider=Index())
    with pytest.raises(ContextRefused, match=r"'facts' is not loadable.*'skills'"):
        await context.load_document("facts", "x")
    with pytest.raises(ContextRefused, match=r"'skills' is not searchable.*'facts'"):
        await context.search("skills", "x")


@pytest.mark.memory_case(117, 118)
async def test_a_block_added_later_stands_beside_the_others_and_can_be_written(
    open_context: OpenContext,
) -> None:
    context = open_context()
    context.declare("memory")

    added = await context.add("notes", description="User notes")
    assert (added.content, added.writable, added.description) == ("", True, "User notes")
    await context.replace("notes", "Remember the milk.")

    assert texts(context) == {"memory": "", "notes": "Remember the milk."}
    again = open_context()
    assert (await again.add("notes")).content == "Remember the milk."


async def test_adding_a_label_twice_is_refused() -> None:
    context = in_memory_context()
    context.declare("memory", provider=Notes("first"))
    with pytest.raises(InvalidContext, match="already exists"):
        await context.add("memory", provider=Notes("second"))
    assert texts(context) == {"memory": "first"}


async def test_a_block_that_cannot_be_read_is_not_added() -> None:
    def broken() -> str:
        raise OSError("no such disk")

    context = in_memory_context()
    with pytest.raises(ContextUnavailable, match="'notes' could not be read"):
        await context.add("notes", provider=broken)
    assert context.is_empty


@pytest.mark.memory_case(120)
async def test_a_block_is_removed_once_and_what_it_kept_stays(open_context: OpenContext) -> None:
    context = open_context()
    await context.add("notes")
    await context.replace("notes", "Remember the milk.")

    assert context.remove("notes") is True
    assert context.get_block("notes") is None
    assert context.remove("notes") is False
    assert context.remove("nobody") is False
    assert (await context.add("notes")).content == "Remember the milk."


async def test_removing_a_block_forgets_its_documents_and_no_others() -> None:
    context = in_memory_context()
    for label in ("a", "ab"):
        context.declare(label, provider=Library(x="text"))
        await context.load_document(label, "x")
    assert context.loaded == {"a:x", "ab:x"}
    context.remove("a")
    assert context.loaded == {"ab:x"}


async def test_the_same_label_declared_again_replaces_the_block() -> None:
    context = in_memory_context()
    context.declare("soul", provider="Be kind.")
    context.declare("soul", provider="Be brief.", description="Manner")
    await context.load()
    assert [(block.content, block.description) for block in context.get_blocks()] == [("Be brief.", "Manner")]


@pytest.mark.parametrize("label", ["", "  ", "a:b", "two\nlines", "x" * 101, None, 7])
async def test_a_label_that_cannot_stand_in_a_header_is_refused(label: Any) -> None:
    context = in_memory_context()
    with pytest.raises(InvalidContext, match="cannot be the label"):
        context.declare(label, provider="x")
    assert context.is_empty


@pytest.mark.parametrize("limit", [0, -1, 1.5, "100", True, float("inf")])
async def test_a_limit_that_is_none_is_refused(limit: Any) -> None:
    with pytest.raises(InvalidContext, match="max_tokens"):
        in_memory_context().declare("memory", provider="x", max_tokens=limit)


@pytest.mark.parametrize(
    ("provider", "said"),
    [
        (StoredEntries, r"StoredEntries\(\.\.\.\)"),
        (7, "a int without a method get"),
        ({"text": "Be kind."}, "a dict"),
    ],
)
async def test_what_cannot_be_read_is_no_provider(provider: Any, said: str) -> None:
    context = in_memory_context()
    with pytest.raises(InvalidContext, match=said):
        context.declare("memory", provider=provider)
    assert context.is_empty


async def test_concurrent_uses_read_each_block_once() -> None:
    context = in_memory_context()
    sign = Sign("Be kind.")
    context.declare("soul", provider=sign)
    await asyncio.gather(*(context.load() for _ in range(5)))
    assert sign.asked == ["init soul", "get"]


async def test_appends_at_the_same_time_are_all_kept(open_context: OpenContext) -> None:
    context = open_context()
    context.declare("memory")
    lines = [f"fact {number}" for number in range(10)]

    await asyncio.gather(*(context.append("memory", line) for line in lines))

    again = open_context()
    again.declare("memory")
    await again.load()
    assert texts(again)["memory"].splitlines() == lines


async def test_deleting_a_session_for_good_removes_its_rows_and_nobody_elses(
    open_context: OpenContext,
) -> None:
    # Given two sessions with a block, an entry and a kept prompt each
    kept = [open_context(session="a"), open_context(session="b")]
    for context in kept:
        context.declare("memory")
        context.declare("skills", provider=StoredEntries())
        context.cache_prompt()
        await context.replace("memory", "Likes tea.")
        await context.set_entry("skills", "k", "text")
        await context.freeze()

    # When one is cleared
    await kept[0]._store.apply(kept[0].cleared())

    # Then only the other is found again
    for session, expected in (
        ("a", {"memory": "", "skills": ""}),
        ("b", {"memory": "Likes tea.", "skills": "- k"}),
    ):
        again = open_context(session=session)
        again.declare("memory")
        again.declare("skills", provider=StoredEntries())
        again.cache_prompt()
        await again.load()
        assert texts(again) == expected
        assert ("Likes tea." in await again.freeze()) == (session == "b")


async def test_a_provider_may_be_a_dict_of_functions() -> None:
    kept = {"text": "Likes tea."}

    async def get() -> str:
        return kept["text"]

    def set(text: str) -> None:
        kept["text"] = text

    context = in_memory_context()
    context.declare("soul", provider={"get": lambda: "Be kind."})
    context.declare("memory", provider={"get": get, "set": set})
    await context.load()
    await context.replace("memory", "Likes cake.")
    assert [(block.content, block.writable) for block in context.get_blocks()] == [
        ("Be kind.", False),
        ("Likes cake.", True),
    ]
    assert kept == {"text": "Likes cake."}
