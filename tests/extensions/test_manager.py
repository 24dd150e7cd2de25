"""Loading, listing, unloading and restoring extensions, without an agent."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import pytest

from everthink.engines.sandboxes import Sandboxes
from everthink.errors import ExtensionError, ToolError
from everthink.extensions import Extension, ExtensionManager, Manifest, StoredExtension
from everthink.extensions.values import prefix_of
from everthink.tools.tool import ToolContext

from .sources import LOGGER, WORDS, WORDS_IN_PYTHON, call, hooks, managing, one_tool, words

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


class Kept:
    """Storage in memory, of the shape that an application may have."""

    def __init__(self) -> None:
        self.rows: dict[str, StoredExtension] = {}

    async def entries(self) -> Sequence[StoredExtension]:
        return list(self.rows.values())

    async def save(self, entry: StoredExtension, commit: Any = None) -> None:
        self.rows[entry.extension.manifest.name] = entry

    async def remove(self, name: str) -> None:
        self.rows.pop(name, None)


# --- loading


@pytest.mark.memory_case(567)
async def test_loading_finds_the_tools_and_says_name_and_version(manager: ExtensionManager) -> None:
    several = await manager.load({"name": "words", "version": "1.2.3", "description": "Words."}, WORDS)
    one = await manager.load(one_tool("async () => 1"))

    assert (several.name, several.version, several.description) == ("words", "1.2.3", "Words.")
    assert several.tools == ("words_count", "words_shout")
    assert one.tools == ("one_run",)


@pytest.mark.memory_case(568)
async def test_a_name_is_loaded_once(manager: ExtensionManager) -> None:
    await manager.load(words())

    with pytest.raises(ExtensionError, match=r"'words' is already loaded.*Unload it first"):
        await manager.load(one_tool("async () => 1", name="words"))

    assert await call(manager, "words_count", text="a b") == {"words": 2}


@pytest.mark.memory_case(569, 575)
async def test_unloading_takes_an_extension_and_its_tools_away_and_knows_no_others(
    manager: ExtensionManager,
) -> None:
    await manager.load(words())
    gone: list[Any] = []
    manager.on_unload = lambda name, labels: gone.append((name, labels))

    assert await manager.unload("nobody") is False
    assert await manager.unload("words") is True
    assert await manager.unload("words") is False

    assert manager.list() == []
    assert manager.get_tools() == {}
    assert gone == [("words", ())]


@pytest.mark.memory_case(570, 571)
async def test_a_manager_is_empty_then_lists_all_with_the_tools_of_each(manager: ExtensionManager) -> None:
    assert (manager.list(), manager.get_tools()) == ([], {})

    await manager.load(words())
    await manager.load(one_tool("async () => 1"))

    assert [info.name for info in manager.list()] == ["words", "one"]
    assert list(manager.get_tools()) == ["words_count", "words_shout", "one_run"]


@pytest.mark.memory_case(572)
@pytest.mark.parametrize(("language", "source"), [("javascript", WORDS), ("python", WORDS_IN_PYTHON)])
async def test_a_tool_gets_its_arguments_and_gives_its_value(
    manager: ExtensionManager, language: Any, source: str
) -> None:
    await manager.load({"name": "words", "version": "1"}, source, language=language)

    assert await call(manager, "words_count", text="a b  c") == {"words": 3}
    assert await call(manager, "words_shout", text="hey") == "HEY"
    tool = manager.get_tools()["words_count"]
    assert tool.description == "[words] Count words"
    assert tool.input_schema["properties"] == {"text": {"type": "string"}}
    assert tool.input_schema["required"] == ["text"]


async def test_a_tool_without_a_description_is_described_by_its_name_and_may_give_nothing(
    manager: ExtensionManager,
) -> None:
    await manager.load(one_tool("async () => undefined"))

    assert await call(manager, "one_run") is None
    assert manager.get_tools()["one_run"].description == "[one] run"


@pytest.mark.memory_case(573)
async def test_what_a_tool_throws_is_told_in_its_words(manager: ExtensionManager) -> None:
    await manager.load(one_tool("async () => { throw new Error('The stars are wrong.') }"))
    await manager.load(one_tool("() => { throw 'plain' }", name="two"))
    failing = "def run(args, host):\n    raise ValueError('bad')\ntools = {'run': {'execute': run}}\n"
    await manager.load({"name": "py", "version": "1"}, failing, language="python")

    for tool, said in (("one_run", "The stars are wrong."), ("two_run", "plain"), ("py_run", "bad")):
        with pytest.raises(ToolError) as raised:
            await call(manager, tool)
        assert str(raised.value) == said


@pytest.mark.memory_case(574)
async def test_there_is_no_network_unless_it_is_granted(manager: ExtensionManager) -> None:
    await manager.load(
        one_tool("async (_, host) => [typeof fetch, typeof XMLHttpRequest, typeof WebSocket, host]")
    )

    assert await call(manager, "one_run") == ["undefined", "undefined", "undefined", None]


@pytest.mark.memory_case(576)
async def test_a_tool_of_an_unloaded_extension_that_somebody_has_kept_says_so(
    manager: ExtensionManager,
) -> None:
    await manager.load(words())
    kept = manager.get_tools()["words_count"]
    await manager.unload("words")
    await manager.load(words())

    with pytest.raises(ToolError, match="'words' has been unloaded"):
        await kept.call({"text": "a"}, ToolContext())


@pytest.mark.memory_case(577)
async def test_an_unloaded_extension_can_be_loaded_again_and_otherwise(manager: ExtensionManager) -> None:
    await manager.load(words())
    await manager.unload("words")

    await manager.load(one_tool("async () => 'new'", name="words"))

    assert await call(manager, "words_run") == "new"


# --- storage


@pytest.mark.memory_case(578)
async def test_another_manager_restores_what_was_stored_and_its_tools_work(engines: Sandboxes) -> None:
    kept = Kept()
    async with managing(engines, storage=kept) as first:
        await first.load(words())

    async with managing(engines, storage=kept) as second:
        [info] = await second.restore()

        assert (info.name, info.version, info.origin) == ("words", "1.0.0", "code")
        assert await call(second, "words_count", text="a b") == {"words": 2}


@pytest.mark.memory_case(579)
async def test_what_was_unloaded_is_not_restored(engines: Sandboxes) -> None:
    kept = Kept()
    async with managing(engines, storage=kept) as first:
        await first.load(words())
        await first.unload("words")

    async with managing(engines, storage=kept) as second:
        assert await second.restore() == []
        assert second.list() == []


@pytest.mark.memory_case(580)
async def test_restoring_twice_is_restoring_once(engines: Sandboxes) -> None:
    kept = Kept()
    async with managing(engines, storage=kept) as first:
        await first.load(words())
        await first.restore()
        assert [info.name for info in first.list()] == ["words"]

    async with managing(engines, storage=kept) as second:
        await second.restore()
        await second.restore()
        assert [info.name for info in second.list()] == ["words"]


async def test_without_storage_there_is_nothing_to_restore(manager: ExtensionManager) -> None:
    await manager.load(words())
    assert await manager.restore() == []


async def test_what_fails_to_load_is_neither_there_nor_stored(engines: Sandboxes) -> None:
    kept = Kept()
    async with managing(engines, storage=kept) as manager:
        with pytest.raises(ExtensionError, match="cannot be loaded: SyntaxError"):
            await manager.load({"name": "broken", "version": "1"}, "({ tools: { ")

        assert (manager.list(), kept.rows) == ([], {})


async def test_storage_that_fails_leaves_nothing_loaded(engines: Sandboxes) -> None:
    class Full(Kept):
        async def save(self, entry: StoredExtension, commit: Any = None) -> None:
            raise OSError("no space left")

    async with managing(engines, storage=Full()) as manager:
        with pytest.raises(OSError, match="no space left"):
            await manager.load(words())

        assert manager.list() == []
        assert manager.get_tools() == {}


# --- names


@pytest.mark.memory_case(581)
async def test_a_hyphen_in_a_name_is_an_underscore_before_its_tools(manager: ExtensionManager) -> None:
    info = await manager.load(words("word-tools"))

    assert (info.name, info.prefix) == ("word-tools", "word_tools")
    assert info.tools == ("word_tools_count", "word_tools_shout")
    assert list(manager.get_tools()) == ["word_tools_count", "word_tools_shout"]


@pytest.mark.memory_case(582)
@pytest.mark.parametrize(
    ("name", "prefix"),
    [("a-b.c d", "a_b_c_d"), ("a--..b", "a_b"), ("-a-", "a"), ("Größe", "Gr_e"), ("x1", "x1")],
)
def test_a_name_becomes_letters_digits_and_single_underscores(name: str, prefix: str) -> None:
    assert prefix_of(name) == prefix
    assert Manifest(name=name, version="1").prefix == prefix


@pytest.mark.memory_case(582)
@pytest.mark.parametrize("name", ["", "   ", "--", "…", "日本"])
def test_a_name_of_signs_alone_is_refused(name: str) -> None:
    with pytest.raises(ExtensionError, match="it has no letter and no digit"):
        prefix_of(name)


async def test_names_that_become_the_same_are_refused_and_so_are_tools_that_would(
    manager: ExtensionManager,
) -> None:
    await manager.load(words("a-b"))
    for same in ("a.b", "A_B"):
        with pytest.raises(ExtensionError, match="both begin with"):
            await manager.load(words(same))
    await manager.load(Extension({"name": "a", "version": "1"}, "({ tools: { c_run: { execute() {} } } })"))
    with pytest.raises(ExtensionError, match="has a tool 'a_c_run' already"):
        await manager.load(one_tool("() => 1", name="a_c"))


# --- the source


@pytest.mark.memory_case(583)
@pytest.mark.parametrize(
    "source",
    [
        "({ tools: { t: { execute: async () => 1 } }, hooks: { beforeTurn: async () => ({}) } })",
        "// as in the docs\n({ tools: { t: { execute: async () => 1 } }, hooks: { beforeTurn() {} } });\n",
        "{ tools: { t: { execute: async () => 1 } }, hooks: { beforeTurn() {} } }",
    ],
)
async def test_a_source_is_one_object_with_tools_and_hooks(manager: ExtensionManager, source: str) -> None:
    info = await manager.load({"name": "x", "version": "1"}, source)

    assert (info.tools, info.hooks) == (("x_t",), ("before_turn",))
    assert await call(manager, "x_t") == 1


@pytest.mark.memory_case(583)
@pytest.mark.parametrize("source", ["({ count: { execute: async () => 1 } })", "null", "42", "() => ({})"])
async def test_a_flat_source_is_refused_with_what_it_should_be(
    manager: ExtensionManager, source: str
) -> None:
    with pytest.raises(ExtensionError, match=r"Invalid extension source format.*Put tools below `tools`"):
        await manager.load({"name": "x", "version": "1"}, source)


async def test_types_of_typescript_are_taken_away(manager: ExtensionManager) -> None:
    source = "({ tools: { add: { execute: async ({ a }: { a: number }): Promise<number> => a + 1 } } })"
    await manager.load({"name": "ts", "version": "1"}, source, language="typescript")

    assert await call(manager, "ts_add", a=41) == 42


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("({ tools: { 'a b': { execute() {} } } })", "Names of tools are letters"),
        ("({ tools: { a: {} } })", "has no function `execute`"),
        ("({ tools: { a: { parameters: 'text', execute() {} } } })", "cannot be read"),
        ("{ tools: Object.fromEntries([...Array(60).keys()].map((n) => [n, { execute() {} }])) }", "60 tool"),
        (f"({{ tools: {{ {'x' * 63}: {{ execute() {{}} }} }} }})", "may have 64"),
        ("({ tools: { a: { description: 'x'.repeat(300000), execute() {} } } })", "more than 200,000 bytes"),
        ("({ get tools() { throw new Error('not today') } })", "not today"),
    ],
)  # fmt: skip
async def test_what_a_source_says_of_itself_is_looked_over(
    manager: ExtensionManager, source: str, said: str
) -> None:
    with pytest.raises(ExtensionError, match=said):
        await manager.load({"name": "x", "version": "1"}, source)


async def test_parameters_may_be_a_whole_schema(manager: ExtensionManager) -> None:
    schema = "{ type: 'object', properties: { n: { type: 'integer' } }, required: ['n'] }"
    await manager.load(one_tool("async ({ n }) => n * 2", parameters=schema))

    assert manager.get_tools()["one_run"].input_schema["required"] == ["n"]
    assert await call(manager, "one_run", n=21) == 42


# --- hooks


@pytest.mark.memory_case(584)
async def test_hooks_are_found_in_the_source(manager: ExtensionManager) -> None:
    await manager.load(words())
    await manager.load(Extension({"name": "logger", "version": "1"}, LOGGER))

    assert [info.hooks for info in manager.list()] == [
        (),
        ("before_tool_call", "after_tool_call", "on_step_finish", "on_chunk"),
    ]
    assert [one.manifest.name for one in manager.get_hook_subscribers("on_chunk")] == ["logger"]


async def test_of_the_hooks_of_a_source_those_are_heard_that_the_manifest_names(
    manager: ExtensionManager, caplog: pytest.LogCaptureFixture
) -> None:
    both = "beforeTurn() {}, onChunk() {}"

    with caplog.at_level(logging.WARNING):
        info = await manager.load(hooks(both, hooks=["beforeTurn", "afterToolCall"]))
        await manager.load(hooks("beforeStep() {}", name="step"))

    assert info.hooks == ("before_turn",)
    assert "names hooks that its source has not: after_tool_call" in caplog.text
    assert "its manifest does not name; they are left out: on_chunk" in caplog.text
    assert "'step': it has hooks that extensions do not hear: beforeStep" in caplog.text


async def test_of_the_tools_of_a_source_those_are_offered_that_the_manifest_names(
    manager: ExtensionManager,
) -> None:
    assert (await manager.load(words(tools=["shout"]))).tools == ("words_shout",)


@pytest.mark.memory_case(585)
async def test_a_hook_gets_the_snapshot_and_may_answer_from_it(manager: ExtensionManager) -> None:
    await manager.load(hooks("beforeTurn: async ({ toolNames }) => ({ maxSteps: toolNames.length })"))
    python = "def before_turn(turn, host):\n    return {'max_steps': len(turn['tool_names'])}\nhooks = {'before_turn': before_turn}\n"  # noqa: E501
    await manager.load({"name": "py", "version": "1"}, python, language="python")

    for one in manager.get_hook_subscribers("before_turn"):
        assert await one.hook("before_turn", {"tool_names": ["a", "b"]}) == {"max_steps": 2}


@pytest.mark.memory_case(586)
async def test_a_hook_that_nobody_hears_has_no_subscribers_and_one_that_throws_is_an_error(
    manager: ExtensionManager,
) -> None:
    await manager.load(hooks("beforeTurn() { throw new Error('broken hook') }"))

    assert manager.get_hook_subscribers("after_tool_call") == ()
    [one] = manager.get_hook_subscribers("before_turn")
    with pytest.raises(ToolError, match="broken hook"):
        await one.hook("before_turn", {})


async def test_all_pieces_that_have_gathered_reach_a_hook_though_one_of_them_fails(
    manager: ExtensionManager,
) -> None:
    body = "onChunk: async ({ text }) => { console.log(text); if (text === 'b') throw new Error('b') }"
    await manager.load(hooks(body))
    [one] = manager.get_hook_subscribers("on_chunk")

    with pytest.raises(ToolError, match="b"):
        await one.chunks([{"type": "text-delta", "text": text} for text in "abc"])

    assert list(one.printed) == ["a", "b", "c"]  # pyright: ignore[reportAttributeAccessIssue]


# --- what is kept between calls


async def test_an_extension_keeps_its_variables_as_long_as_its_context_is_there(
    manager: ExtensionManager,
) -> None:
    source = "(() => { let n = 0; return { tools: { next: { execute: async () => ++n } } } })()"
    await manager.load({"name": "counter", "version": "1"}, source)
    await manager.load({"name": "other", "version": "1"}, source)

    assert [await call(manager, "counter_next") for _ in range(3)] == [1, 2, 3]
    assert await call(manager, "other_next") == 1
    await manager.unload("counter")
    await manager.load({"name": "counter", "version": "1"}, source)
    assert await call(manager, "counter_next") == 1
