"""The tools with which the model uses context blocks."""

from __future__ import annotations

from typing import Any

import pytest

from everthink.context.context import Context
from everthink.context.providers import SearchableEntries, StoredEntries
from everthink.tools.ask import RERUN
from everthink.tools.tool import Tool, ToolContext
from tests.support.context import Index, Library, Notes, OpenContext, Sign, nothing, texts

pytestmark = pytest.mark.anyio


async def use(context: Context, tool: str, **input: Any) -> Any:
    """What the model reads of a call, made with the tools as they are now."""
    tools = await context.tools(on_unload=nothing)
    return await tools[tool].call(input, ToolContext())


async def tools_of(context: Context) -> dict[str, Tool]:
    return await context.tools(on_unload=nothing)


def labels(tool: Tool) -> list[str]:
    return tool.input_schema["properties"]["label"]["enum"]


@pytest.mark.memory_case(129)
async def test_nothing_to_use_gives_no_tools(open_context: OpenContext) -> None:
    context = open_context()
    context.declare("soul", provider="Be kind.")
    assert await tools_of(context) == {}


@pytest.mark.memory_case(113, 122, 130, 131, 132)
async def test_each_kind_of_block_gives_the_tools_it_has_a_use_for(open_context: OpenContext) -> None:
    class Readable:
        def get(self) -> str:
            return "- a"

        def load(self, key: str) -> str | None:
            return None

    load, write, search = ["load_context", "unload_context"], ["set_context"], ["search_context"]
    for provider, names in [
        (Sign("x"), []),
        (Notes(), write),
        (None, write),
        (Readable(), load),
        (Library(), write + load),
        (StoredEntries(), write + load),
        (Index(), search),
        (SearchableEntries(), write + search),
    ]:
        context = open_context()
        await context.add("block", provider=provider)
        assert list(await tools_of(context)) == names


@pytest.mark.memory_case(124, 125)
async def test_the_tool_to_write_describes_the_blocks_it_can_write(open_context: OpenContext) -> None:
    context = open_context()
    context.declare("soul", provider="Be kind.")
    context.declare("memory", description="What we know")
    tool = (await tools_of(context))["set_context"]
    assert labels(tool) == ["memory"]
    assert "- memory (writable): What we know" in tool.description
    assert "durable" in tool.description
    assert "soul" not in tool.description
    assert "metadata" not in tool.description
    assert set(tool.input_schema["properties"]) == {"label", "content", "action"}
    assert tool.input_schema["required"] == ["label", "content"]

    context.declare("skills", provider=StoredEntries())
    context.declare("facts", description="Learned", provider=SearchableEntries())
    tool = (await tools_of(context))["set_context"]
    assert labels(tool) == ["memory", "skills", "facts"]
    assert "- skills (skill collection, keyed entries): no description" in tool.description
    assert "- facts (searchable, keyed entries): Learned" in tool.description
    assert "metadata: { title, description }" in tool.description
    assert set(tool.input_schema["properties"]["metadata"]["properties"]) == {"title", "description"}


@pytest.mark.memory_case(126, 127)
async def test_writing_is_confirmed_with_what_it_takes_and_is_durable(open_context: OpenContext) -> None:
    context = open_context()
    context.declare("memory", max_tokens=200)
    context.declare("notes")
    said = await use(context, "set_context", label="memory", content="x" * 400)
    assert said == "Written to memory. Usage: 50% (100/200 tokens)."
    said = await use(context, "set_context", label="memory", content="more", action="append")
    assert said == "Written to memory. Usage: 51% (102/200 tokens)."
    said = await use(context, "set_context", label="notes", content="abcd", action="replace")
    assert said == "Written to notes. Usage: 2 tokens."

    again = open_context()
    again.declare("memory")
    again.declare("notes")
    await again.load()
    assert texts(again) == {"memory": "x" * 400 + "\nmore", "notes": "abcd"}


@pytest.mark.memory_case(128)
@pytest.mark.parametrize(
    ("input", "said"),
    [
        ({"label": "soul", "content": "Be rude."}, "label should be one of"),
        ({"label": "nobody", "content": "x"}, "label should be one of"),
        ({"label": "memory"}, "content"),
        ({"label": "memory", "content": 7}, "content should be"),
        ({"label": "memory", "content": "x", "action": "delete"}, "action should be one of"),
        (
            {"label": "memory", "content": "x" * 500},
            "exceeds maxTokens: it takes about 125 tokens, the limit is 100",
        ),
        ({}, "label"),
    ],
)
async def test_a_write_that_is_refused_is_text_for_the_model(
    open_context: OpenContext, input: dict[str, Any], said: str
) -> None:
    context = open_context()
    context.declare("soul", provider="Be kind.")
    context.declare("memory", max_tokens=100)
    told = await use(context, "set_context", **input)
    assert told.startswith("Error:")
    assert said in told
    assert texts(context) == {"soul": "Be kind.", "memory": ""}


async def test_an_input_that_is_no_object_is_told_too(open_context: OpenContext) -> None:
    context = open_context()
    context.declare("memory")
    tool = (await tools_of(context))["set_context"]
    assert (await tool.call("memory", ToolContext())).startswith("Error:")


async def test_a_failing_provider_is_told_with_its_reason(open_context: OpenContext) -> None:
    context = open_context()
    notes = Notes("old")
    context.declare("memory", provider=notes)
    notes.broken = OSError("disk full")
    told = await use(context, "set_context", label="memory", content="new")
    assert told.startswith("Error:")
    assert "disk full" in told


async def test_a_block_that_cannot_be_read_keeps_its_tools_and_the_others_theirs(
    open_context: OpenContext,
) -> None:
    # Given a prompt that is kept, and a library that is closed at the moment
    class Closed(Library):
        is_closed = True

        async def get(self) -> str | None:
            if self.is_closed:
                raise OSError("closed today")
            return await super().get()

    context = open_context()
    context.cache_prompt(Notes("Kept."))
    library = Closed(pirate="Arr.")
    context.declare("skills", provider=library)
    context.declare("memory")

    # Then a turn can go on: the prompt and all tools are there
    assert await context.freeze() == "Kept."
    assert list(await tools_of(context)) == ["set_context", "load_context", "unload_context"]
    assert (await use(context, "set_context", label="memory", content="x")).startswith("Written")
    told = await use(context, "load_context", label="skills", key="pirate")
    assert told.startswith("Error: load_context")
    assert "closed today" in told
    assert (await use(context, "set_context", label="skills", content="y")).startswith("Error:")

    # And when it opens again, everything works
    library.is_closed = False
    assert await use(context, "load_context", label="skills", key="pirate") == "Arr."
    assert (await use(context, "set_context", label="skills", content="y")).startswith("Indexed")


@pytest.mark.memory_case(133, 134, 141)
async def test_a_document_is_loaded_and_noted(open_context: OpenContext) -> None:
    context = open_context()
    context.declare("skills", provider=Library(pirate="Arr."))
    assert await use(context, "load_context", label="skills", key="pirate") == "Arr."
    assert await use(context, "load_context", label="skills", key="nobody") == "Not found: nobody"
    assert context.loaded == {"skills:pirate"}


async def test_loading_from_another_kind_of_block_names_those_that_can(open_context: OpenContext) -> None:
    context = open_context()
    context.declare("skills", provider=Library(pirate="Arr."))
    context.declare("memory")
    told = await use(context, "load_context", label="memory", key="pirate")
    assert told.startswith("Error: load_context")
    assert "skills" in told
    assert context.loaded == set()


async def test_an_empty_document_is_loaded_and_not_missing(open_context: OpenContext) -> None:
    context = open_context()
    context.declare("skills", provider=Library(blank=""))
    assert await use(context, "load_context", label="skills", key="blank") == ""
    assert context.loaded == {"skills:blank"}


@pytest.mark.memory_case(142, 143, 144, 145, 147)
async def test_a_document_is_unloaded_told_about_and_loaded_again(open_context: OpenContext) -> None:
    context = open_context()
    context.declare("skills", provider=Library(pirate="Arr.", polite="Please."))
    unloaded: list[tuple[str, str]] = []

    async def on_unload(label: str, key: str) -> None:
        unloaded.append((label, key))

    async def unload(key: str) -> Any:
        tools = await context.tools(on_unload=on_unload)
        return await tools["unload_context"].call({"label": "skills", "key": key}, ToolContext())

    await use(context, "load_context", label="skills", key="pirate")
    await use(context, "load_context", label="skills", key="polite")
    description = (await tools_of(context))["unload_context"].description
    assert "skills:pirate, skills:polite" in description

    assert "not currently loaded" in await unload("nobody")
    assert unloaded == []
    assert await unload("pirate") == 'Unloaded "pirate" from skills. Load it again when you need it.'
    assert unloaded == [("skills", "pirate")]
    assert context.loaded == {"skills:polite"}
    assert "not currently loaded" in await unload("pirate")
    assert unloaded == [("skills", "pirate")]
    assert await use(context, "load_context", label="skills", key="pirate") == "Arr."
    assert context.loaded == {"skills:pirate", "skills:polite"}


@pytest.mark.memory_case(146)
async def test_clearing_forgets_what_was_loaded(open_context: OpenContext) -> None:
    context = open_context()
    context.declare("skills", provider=Library(pirate="Arr."))
    await use(context, "load_context", label="skills", key="pirate")
    context.forget_loaded()
    assert context.loaded == set()
    assert "Currently loaded: none." in (await tools_of(context))["unload_context"].description


async def test_a_document_that_stays_in_the_history_still_counts_as_loaded(open_context: OpenContext) -> None:
    context = open_context()
    context.declare("skills", provider=Library(pirate="Arr."))
    await use(context, "load_context", label="skills", key="pirate")

    async def broken(label: str, key: str) -> None:
        raise OSError("no")

    tools = await context.tools(on_unload=broken)
    told = await tools["unload_context"].call({"label": "skills", "key": "pirate"}, ToolContext())
    assert told.startswith("Error:")
    assert context.loaded == {"skills:pirate"}


@pytest.mark.memory_case(135, 136, 138, 139, 140)
async def test_documents_are_written_under_keys_of_their_titles(open_context: OpenContext) -> None:
    context = open_context()
    context.declare("skills", provider=StoredEntries())

    async def write(content: str, **metadata: str) -> Any:
        return await use(context, "set_context", label="skills", content=content, metadata=metadata)

    assert (
        await write("Arr.", title="Pirate style", description="Talk") == 'Indexed "pirate-style" in skills.'
    )
    assert await write("Please.", title="用户") == 'Indexed "entry-1in002o" in skills.'
    assert await write("no key") == 'Indexed "no-key-1nprufp" in skills.'
    assert (
        await write("Ahoy!", title="Pirate style", description="Talk") == 'Indexed "pirate-style" in skills.'
    )

    assert texts(context) == {"skills": "- pirate-style: Talk\n- entry-1in002o: 用户\n- no-key-1nprufp"}
    for key, content in {
        "pirate-style": "Ahoy!",
        "entry-1in002o": "Please.",
        "no-key-1nprufp": "no key",
    }.items():
        assert await use(context, "load_context", label="skills", key=key) == content


@pytest.mark.memory_case(148, 149, 150, 151, 152)
async def test_what_is_written_to_a_searchable_block_is_found(open_context: OpenContext) -> None:
    context = open_context()
    context.declare("facts", provider=SearchableEntries())
    tool = (await tools_of(context))["search_context"]
    assert "Only these blocks can be searched:\n- facts: no description" in tool.description
    assert await use(context, "search_context", label="facts", query="tea") == "No results found."

    said = await use(context, "set_context", label="facts", content="用户喜欢咖啡 and green tea")
    assert said.startswith('Indexed "and-green-tea-')
    assert texts(context) == {"facts": "1 entries indexed."}
    found = await use(context, "search_context", label="facts", query="tea and green")
    assert found.startswith("[and-green-tea-")
    assert found.endswith("\n用户喜欢咖啡 and green tea")


async def test_searching_another_kind_of_block_is_told(open_context: OpenContext) -> None:
    context = open_context()
    context.declare("facts", provider=Index())
    context.declare("memory")
    told = await use(context, "search_context", label="memory", query="x")
    assert told.startswith("Error:")
    assert "facts" in told


async def test_what_a_crash_cut_off_is_done_again_unless_it_was_done(open_context: OpenContext) -> None:
    # Given a block that a call has appended to, just before its process died
    context = open_context()
    context.declare("memory")
    context.declare("skills", provider=StoredEntries())
    await context.replace("memory", "Likes tea.\nHas a cat.")
    tools = await tools_of(context)

    async def found(**input: Any) -> Any:
        return await tools["set_context"].find_out(input, ToolContext())

    # Then an append that is there is not repeated, and everything else can be
    assert await found(label="memory", content="Has a cat.", action="append") == (
        "Written to memory. Usage: 7 tokens."
    )
    assert await found(label="memory", content="Has a dog.", action="append") is RERUN
    assert await found(label="memory", content="cat.", action="append") is RERUN
    assert await found(label="memory", content="Has a cat.") is RERUN
    assert await found(label="skills", content="x", metadata={"title": "t"}) is RERUN
    for name in ("load_context", "unload_context"):
        assert await tools[name].find_out({"label": "skills", "key": "x"}, ToolContext()) is RERUN
