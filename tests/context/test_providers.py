"""Providers: those of an application, and those that keep their content in the agent's database."""

from __future__ import annotations

from typing import Any

import pytest

from everthink.context.providers import (
    SearchableEntries,
    StoredBlock,
    StoredEntries,
)
from everthink.errors import ContextUnavailable, InvalidContext
from tests.support.context import Index, Library, Notes, OpenContext, Sign, nothing, texts

pytestmark = pytest.mark.anyio


@pytest.mark.memory_case(104, 105)
async def test_every_kind_is_told_its_label_once_and_before_it_is_read(open_context: OpenContext) -> None:
    context = open_context()
    providers = {"sign": Sign("a"), "notes": Notes("b"), "library": Library(), "index": Index(x="y")}
    for label, provider in providers.items():
        context.declare(label, provider=provider)
    for _ in range(3):
        await context.tools(on_unload=nothing)
    assert providers["sign"].asked == ["init sign", "get"]
    assert providers["notes"].asked == ["init notes", "get"]
    assert (providers["library"].label, providers["index"].label) == ("library", "index")


async def test_a_refresh_tells_the_label_again(open_context: OpenContext) -> None:
    context = open_context()
    sign = Sign("a")
    context.declare("sign", provider=sign)
    await context.freeze()
    await context.refresh()
    assert sign.asked == ["init sign", "get"] * 2


@pytest.mark.memory_case(106)
async def test_providers_without_init_work(open_context: OpenContext) -> None:
    class Bare:
        text = "a"

        def get(self) -> str:
            return self.text

    class Writable(Bare):
        def set(self, content: str) -> None:
            self.text = content

    context = open_context()
    context.declare("soul", provider=Bare())
    context.declare("memory", provider=Writable())
    await context.replace("memory", "b")
    await context.load()
    assert texts(context) == {"soul": "a", "memory": "b"}


@pytest.mark.memory_case(107)
async def test_a_provider_may_use_its_label(open_context: OpenContext) -> None:
    context = open_context()
    context.declare("facts", provider=Index(tea="likes tea"))
    assert await context.search("facts", "tea") == "facts/tea: likes tea"
    assert texts(context) == {"facts": "1 entries in facts"}


@pytest.mark.memory_case(112, 113)
async def test_a_provider_that_can_only_be_read_is_shown_and_gives_no_tool(open_context: OpenContext) -> None:
    async def mood() -> str:
        return "Cheerful."

    context = open_context()
    context.declare("soul", provider="Be kind.")
    context.declare("mood", provider=mood)
    prompt = await context.freeze()
    assert "Be kind." in prompt
    assert "Cheerful." in prompt
    assert await context.tools(on_unload=nothing) == {}


async def test_a_description_is_given_to_those_who_take_one(open_context: OpenContext) -> None:
    class Plain:
        def __init__(self) -> None:
            self.kept: dict[str, str] = {}

        def get(self) -> str:
            return ""

        def load(self, key: str) -> str | None:
            return self.kept.get(key)

        def set(self, key: str, content: str) -> None:
            self.kept[key] = content

    plain, library = Plain(), Library()
    context = open_context()
    context.declare("plain", provider=plain)
    context.declare("library", provider=library)
    await context.set_entry("plain", "k", "text", "about")
    await context.set_entry("library", "k", "text", "about")
    assert plain.kept == {"k": "text"}
    assert library.descriptions == {"k": "about"}


@pytest.mark.memory_case(172)
async def test_a_stored_block_may_have_a_label_of_its_own(open_context: OpenContext) -> None:
    context = open_context()
    context.declare("memory", provider=StoredBlock("shared"))
    context.declare("other", provider=StoredBlock("shared"))
    context.declare("apart")
    await context.replace("memory", "one")
    await context.load()
    assert texts(context) == {"memory": "one", "other": "one", "apart": ""}


@pytest.mark.parametrize("provider", [StoredBlock(), StoredEntries(), SearchableEntries()])
async def test_a_stored_provider_that_belongs_nowhere_says_so(provider: Any) -> None:
    with pytest.raises(InvalidContext, match="belongs to no session"):
        await provider.get()


async def test_the_row_of_the_prompt_cannot_be_taken() -> None:
    with pytest.raises(InvalidContext, match="label"):
        StoredBlock("")


@pytest.mark.memory_case(96, 139, 140)
async def test_stored_documents_are_listed_loaded_and_replaced(open_context: OpenContext) -> None:
    # Given three documents, one of them written twice
    context = open_context()
    context.declare("skills", provider=StoredEntries())
    await context.load()
    assert texts(context) == {"skills": ""}
    await context.set_entry("skills", "pirate", "Arr.", "Speak like\na pirate")
    await context.set_entry("skills", "polite", "Please.")
    await context.set_entry("skills", "brief", "Hm.", "Few words")
    await context.set_entry("skills", "pirate", "Ahoy!")

    # Then the catalogue is fresh, in the order of arrival, and the second text is the one that counts
    catalogue = "- pirate: Speak like a pirate\n- polite\n- brief: Few words"
    assert texts(context) == {"skills": catalogue}
    again = open_context()
    again.declare("skills", provider=StoredEntries())
    assert await again.load_document("skills", "pirate") == "Ahoy!"
    assert await again.load_document("skills", "polite") == "Please."
    assert await again.load_document("skills", "nobody") is None
    assert texts(again) == {"skills": catalogue}


@pytest.mark.memory_case(173)
async def test_entries_of_different_labels_sessions_and_agents_are_apart(open_context: OpenContext) -> None:
    places = [("Assistant/a", "", "facts"), ("Assistant/a", "", "more"), ("Assistant/a", "s2", "facts")]
    places.append(("Assistant/b", "", "facts"))
    provider = SearchableEntries()
    contexts = []
    for number, (agent, session, label) in enumerate(places):
        context = open_context(agent, session)
        context.declare(label, provider=provider)
        await context.set_entry(label, "tea", f"likes tea number{number}")
        contexts.append((context, label, f"[tea]\nlikes tea number{number}"))
    for context, label, found in contexts:
        assert await context.search(label, "tea") == found
        assert texts(context) == {label: "1 entries indexed."}


@pytest.mark.memory_case(148, 150, 152, 153)
async def test_entries_are_found_by_all_their_words_and_only_by_their_newest(
    open_context: OpenContext,
) -> None:
    context = open_context()
    context.declare("facts", provider=SearchableEntries())
    await context.set_entry("facts", "tea", "The user drinks green tea in the morning.")
    await context.set_entry("facts", "cat", "The cat drinks milk.")
    assert texts(context) == {"facts": "2 entries indexed."}

    found = await context.search("facts", "morning tea")
    assert found == "[tea]\nThe user drinks green tea in the morning."
    both = await context.search("facts", "drinking")
    assert both is not None
    assert sorted(both.split("\n\n")) == [
        "[cat]\nThe cat drinks milk.",
        "[tea]\nThe user drinks green tea in the morning.",
    ]

    await context.set_entry("facts", "tea", "The user prefers coffee.")
    assert await context.search("facts", "tea") is None
    assert await context.search("facts", "coffee") == "[tea]\nThe user prefers coffee."
    assert texts(context) == {"facts": "2 entries indexed."}


@pytest.mark.parametrize("query", ["", "  ", "nothing-like-it", '"', "tea OR cat", 'a"b NEAR(c', "*", "-tea"])
async def test_a_search_without_hits_finds_nothing_whatever_its_signs(
    open_context: OpenContext, query: str
) -> None:
    context = open_context()
    context.declare("facts", provider=SearchableEntries())
    await context.set_entry("facts", "x", "milk and honey")
    assert await context.search("facts", query) is None


async def test_at_most_ten_entries_are_given(open_context: OpenContext) -> None:
    context = open_context()
    context.declare("facts", provider=SearchableEntries())
    for number in range(12):
        await context.set_entry("facts", f"k{number}", f"tea {number}")
    found = await context.search("facts", "tea")
    assert found is not None
    assert len(found.split("\n\n")) == 10


async def test_an_entry_that_cannot_be_listed_afterwards_is_stored_all_the_same() -> None:
    from everthink.context.context import Context

    class Forgetful(Library):
        is_broken = False

        async def get(self) -> str | None:
            if self.is_broken:
                raise OSError("no list")
            return await super().get()

    library = Forgetful(old="x")
    context = Context(None, "", now=lambda: 1)  # type: ignore[arg-type]
    context.declare("skills", provider=library)
    await context.load()
    library.is_broken = True
    with pytest.raises(ContextUnavailable):
        await context.set_entry("skills", "new", "text")
    assert texts(context) == {"skills": "- old"}
    # And the next use reads the list again
    library.is_broken = False
    await context.load()
    assert texts(context) == {"skills": "- old\n- new"}
