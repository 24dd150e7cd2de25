"""The system prompt: frozen, kept, refreshed."""

from __future__ import annotations

import asyncio

import pytest

from everthink.errors import ContextUnavailable, InvalidContext
from tests.support.context import Index, Library, Notes, OpenContext, Sign, texts

pytestmark = pytest.mark.anyio


@pytest.mark.memory_case(85)
async def test_the_prompt_is_the_same_each_time(open_context: OpenContext) -> None:
    context = open_context()
    context.declare("soul", provider="Be kind.")
    context.declare("memory", provider=Notes("Likes tea."))
    prompt = await context.freeze()
    assert await context.freeze() == prompt == await context.peek()
    for said in ("SOUL", "Be kind.", "MEMORY", "Likes tea."):
        assert said in prompt


@pytest.mark.memory_case(86, 87)
async def test_a_write_reaches_the_provider_and_shows_after_a_refresh(open_context: OpenContext) -> None:
    context = open_context()
    notes = Notes("old")
    context.declare("memory", provider=notes)
    before = await context.freeze()

    await context.replace("memory", "new")

    assert notes.text == "new"
    assert texts(context) == {"memory": "new"}
    assert await context.freeze() == before
    after = await context.refresh("a test")
    assert "new" in after
    assert "old" not in after
    assert await context.freeze() == after
    assert context.last_refresh is not None
    assert context.last_refresh[0] == "a test"


@pytest.mark.memory_case(119, 121)
async def test_added_and_removed_blocks_show_after_a_refresh(open_context: OpenContext) -> None:
    context = open_context()
    context.declare("soul", provider="Be kind.")
    before = await context.freeze()

    await context.add("notes", provider="Milk.")
    assert await context.freeze() == before
    assert "NOTES" in await context.refresh()

    context.remove("notes")
    assert "NOTES" in await context.freeze()
    assert await context.refresh() == before


async def test_removing_the_last_block_leaves_the_prompt_until_a_refresh(open_context: OpenContext) -> None:
    context = open_context()
    context.declare("soul", provider="Be kind.")
    before = await context.freeze()
    context.remove("soul")
    assert await context.freeze() == before
    assert await context.refresh() == ""
    assert await context.freeze() == ""


@pytest.mark.memory_case(97)
async def test_nothing_from_a_provider_is_an_empty_block(open_context: OpenContext) -> None:
    context = open_context()
    context.declare("memory", provider=Notes(None))
    context.declare("soul", provider=Sign(None))
    prompt = await context.freeze()
    assert texts(context) == {"memory": "", "soul": ""}
    assert "MEMORY [writable]" in prompt
    assert "SOUL" not in prompt


@pytest.mark.memory_case(91, 92, 96)
async def test_documents_and_entries_are_shown_by_what_there_is_of_them(open_context: OpenContext) -> None:
    context = open_context()
    context.declare("skills", provider=Library(pirate="Arr.", polite="Please."))
    context.declare("empty", provider=Library())
    context.declare("facts", description="Learned", provider=Index(tea="likes tea"))
    prompt = await context.freeze()
    assert "SKILLS [loadable]" in prompt
    assert "- pirate\n- polite" in prompt
    assert "EMPTY [loadable]" in prompt
    assert "FACTS (Learned) [searchable]" in prompt
    assert "1 entries in facts" in prompt
    assert "Arr." not in prompt


@pytest.mark.memory_case(100, 101, 111)
async def test_a_kept_prompt_survives_restarts_whatever_its_blocks_say_now(open_context: OpenContext) -> None:
    first = open_context()
    first.declare("soul", provider="Be kind.")
    first.cache_prompt()
    prompt = await first.freeze()

    # When another process asks, whose block says something else
    sign = Sign("Be rude.")
    second = open_context()
    second.cache_prompt()
    second.declare("soul", provider=sign)

    # Then it gets the kept text, and the block is not even read
    assert await second.peek() == await second.freeze() == prompt
    assert second.is_frozen
    assert sign.asked == []
    # And neither another session nor another agent gets it
    for elsewhere in (open_context(session="other"), open_context("Assistant/other")):
        elsewhere.declare("soul", provider=sign)
        elsewhere.cache_prompt()
        assert "Be rude." in await elsewhere.freeze()


@pytest.mark.memory_case(102)
async def test_a_refresh_is_kept(open_context: OpenContext) -> None:
    sign = Sign("Be kind.")
    first = open_context()
    first.declare("soul", provider=sign)
    first.cache_prompt()
    await first.freeze()
    sign.text = "Be brief."
    refreshed = await first.refresh()
    assert "Be brief." in refreshed
    assert await first.freeze() == refreshed

    second = open_context()
    second.declare("soul", provider="Be rude.")
    second.cache_prompt()
    assert await second.freeze() == refreshed


@pytest.mark.memory_case(98, 99)
async def test_an_empty_prompt_is_kept_as_one(open_context: OpenContext) -> None:
    first = open_context()
    first.declare("soul", provider=Sign(None))
    first.cache_prompt()
    assert await first.freeze() == ""
    second = open_context()
    second.declare("soul", provider="Be kind.")
    second.cache_prompt()
    assert await second.freeze() == ""
    assert second.is_frozen


async def test_a_prompt_that_is_not_kept_is_frozen_for_the_life_of_the_process(
    open_context: OpenContext,
) -> None:
    sign = Sign("Be kind.")
    first = open_context()
    first.declare("soul", provider=sign)
    prompt = await first.freeze()
    sign.text = "Be brief."
    assert await first.freeze() == prompt
    second = open_context()
    second.declare("soul", provider=sign)
    assert "Be brief." in await second.freeze()


async def test_peeking_neither_freezes_nor_keeps(open_context: OpenContext) -> None:
    sign = Sign("Be kind.")
    context = open_context()
    context.declare("soul", provider=sign)
    context.cache_prompt()
    assert "Be kind." in await context.peek()
    assert not context.is_frozen

    later = open_context()
    later.declare("soul", provider="Be brief.")
    later.cache_prompt()
    assert "Be brief." in await later.freeze()


@pytest.mark.memory_case(103)
async def test_freezes_at_the_same_time_give_one_text(open_context: OpenContext) -> None:
    count = iter(range(100))

    async def counted() -> str:
        number = next(count)
        await asyncio.sleep(0)
        return f"call {number}"

    for is_kept in (True, False):
        context = open_context(session=str(is_kept))
        context.declare("soul", provider=counted)
        if is_kept:
            context.cache_prompt()
        prompts = await asyncio.gather(*(context.freeze() for _ in range(5)))
        assert len(set(prompts)) == 1


async def test_a_store_of_ones_own_is_asked_each_time_and_told_what_is_new(open_context: OpenContext) -> None:
    kept = Notes(None)
    context = open_context()
    context.declare("soul", provider="Be kind.")
    context.cache_prompt(kept)
    prompt = await context.freeze()
    assert kept.text == prompt
    kept.text = "From elsewhere."
    assert await context.freeze() == "From elsewhere."
    assert await context.refresh() == kept.text == prompt
    assert kept.asked.count("init _system_prompt") == 1


async def test_a_prompt_needs_a_store_that_can_be_written(open_context: OpenContext) -> None:
    with pytest.raises(InvalidContext, match=r"get\(\) and set\(prompt\)"):
        open_context().cache_prompt(Sign())


async def test_a_prompt_is_not_frozen_while_a_block_cannot_be_read(open_context: OpenContext) -> None:
    # Given a block whose provider fails at first
    answers = iter([OSError("disk on fire"), "Be kind."])

    def flaky() -> str:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    context = open_context()
    context.declare("soul", provider=flaky)
    context.cache_prompt()

    # Then the failure is told, without its words, and nothing is frozen
    with pytest.raises(ContextUnavailable, match="'soul' could not be read") as caught:
        await context.freeze()
    assert "fire" not in str(caught.value)
    assert isinstance(caught.value.__cause__, OSError)
    assert not context.is_frozen
    # And the next try succeeds
    assert "Be kind." in await context.freeze()


async def test_a_failed_refresh_leaves_the_prompt(open_context: OpenContext) -> None:
    kept = Notes(None)
    context = open_context()
    sign = Sign("Be kind.")
    context.declare("soul", provider=sign)
    context.cache_prompt(kept)
    prompt = await context.freeze()
    sign.text = "Be brief."
    kept.broken = OSError("disk full")
    with pytest.raises(ContextUnavailable, match="kept system prompt could not be written"):
        await context.refresh()
    assert await context.freeze() == prompt
    assert context.last_refresh is None


async def test_something_else_than_text_is_told(open_context: OpenContext) -> None:
    context = open_context()
    context.declare("soul", provider=lambda: 7)
    with pytest.raises(ContextUnavailable, match="'soul' gave a int"):
        await context.freeze()


async def test_a_prompt_dropped_with_a_commit_is_made_anew_by_the_next_process(
    open_context: OpenContext,
) -> None:
    first = open_context()
    first.declare("soul", provider="Be kind.")
    first.cache_prompt()
    await first.freeze()
    await first._store.apply(first.unfrozen())
    second = open_context()
    second.declare("soul", provider="Be brief.")
    second.cache_prompt()
    assert "Be brief." in await second.freeze()


async def test_the_weight_of_the_prompt_follows_it(open_context: OpenContext) -> None:
    context = open_context()
    assert context.prompt_tokens == 0
    sign = Sign("x" * 400)
    context.declare("soul", provider=sign)
    await context.freeze()
    short = context.prompt_tokens
    assert short > 100
    sign.text = "x" * 800
    await context.refresh()
    assert context.prompt_tokens == short + 100


async def test_a_refresh_during_the_first_freeze_is_what_stays(open_context: OpenContext) -> None:
    # Given a first freeze that is still being kept
    class Slow(Notes):
        def __init__(self) -> None:
            super().__init__(None)
            self.begun, self.may_end = asyncio.Event(), asyncio.Event()

        async def set(self, content: str) -> None:
            self.begun.set()
            await self.may_end.wait()
            self.text = content

    kept, sign = Slow(), Sign("old")
    context = open_context()
    context.declare("soul", provider=sign)
    context.cache_prompt(kept)
    freezing = asyncio.ensure_future(context.freeze())
    await kept.begun.wait()

    # When the block changes and a refresh begins before that is done
    sign.text = "new"
    refreshing = asyncio.ensure_future(context.refresh())
    for _ in range(10):
        await asyncio.sleep(0)
    assert sign.asked.count("get") == 1  # it waits for the freeze
    kept.may_end.set()

    # Then the later one is what stays
    assert "old" in await freezing
    assert "new" in await refreshing
    assert await context.freeze() == kept.text == await refreshing
