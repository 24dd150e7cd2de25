"""The registry: the catalogue, the three tools, and what they say when something is not so."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import pytest

from everthink import ToolContext, ToolError, skills
from everthink.errors import InvalidSettings, MissingExtra
from everthink.models.port import AssistantMessage, TextPart, ToolMessage, ToolResultPart
from everthink.skills import SkillInfo, SkillRegistry
from everthink.skills.registry import REST
from everthink.testing import ManualClock

from .build import BYTES

pytestmark = pytest.mark.anyio

PNG = base64.b64encode(BYTES).decode()
PIRATE: dict[str, Any] = {
    "name": "pirate-style",
    "description": "Talk like\n a pirate.",
    "version": "1.0",
    "body": "\nSay arr.\n\n",
    "allowed_tools": "Bash",
    "metadata": {"author": "ada"},
    "resources": [
        {"path": "references/guide.md", "content": "# Guide\n"},
        {"path": "scripts/run.py", "content": "print(1)"},
        {"path": "scripts/run.rb", "content": "puts 1"},
        {"path": "scripts/notes.py", "content": "x", "kind": "file"},
        {"path": "scripts/packed.py", "content": PNG, "encoding": "base64"},
        {"path": "assets/logo.png", "content": PNG, "encoding": "base64"},
    ],
}
PLAIN: dict[str, Any] = {"name": "plain", "description": "Nothing special.", "body": "Be plain."}


class Runner:
    """Remembers what it was asked to run."""

    def __init__(self, answer: Any = "ran") -> None:
        self.requests: list[skills.ScriptRequest] = []
        self.answer = answer

    async def run(self, request: skills.ScriptRequest) -> Any:
        self.requests.append(request)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


class Source:
    """A source whose skills and failures a test chooses."""

    def __init__(self, id: str, *names: str) -> None:
        self.id, self.names, self.fingerprint = id, list(names), "1"
        self.broken: Exception | None = None
        self.asked = 0

    async def list(self) -> Sequence[SkillInfo]:
        self.asked += 1
        if self.broken is not None:
            raise self.broken
        return [SkillInfo(name, f"From {self.id}.", source_id=self.id) for name in self.names]

    async def load(self, name: str) -> skills.Skill | None:
        if self.broken is not None:
            raise self.broken
        return (
            skills.Skill(name, f"From {self.id}.", body=f"{name} of {self.id}", raw="")
            if name in self.names
            else None
        )

    async def read_resource(self, name: str, path: str) -> skills.Resource | None:
        return None

    async def refresh(self) -> None:
        if self.broken is not None:
            raise self.broken


async def registry_of(*entries: dict[str, Any], runner: Any = None) -> SkillRegistry:
    made = SkillRegistry(skills.from_manifest(id="made", skills=entries or (PIRATE, PLAIN)), runner)
    await made.load()
    return made


async def use(registry: SkillRegistry, tool: str, context: ToolContext | None = None, **given: Any) -> Any:
    return await registry.tools()[tool].call(given, context or ToolContext())


# --- the catalogue


@pytest.mark.memory_case(514)
async def test_the_catalogue_names_every_skill_and_no_instructions() -> None:
    registry = await registry_of()

    said = registry.catalogue()

    assert said is not None
    intro, _, lines = said.partition("\n\n")
    assert "activate_skill" in intro
    assert lines == "- pirate-style: Talk like a pirate.\n- plain: Nothing special."
    assert "Say arr" not in said


async def test_without_skills_there_is_no_catalogue_and_no_tool() -> None:
    registry = SkillRegistry([], Runner())
    await registry.load()

    assert registry.catalogue() is None
    assert registry.tools() == {}
    assert registry.fingerprint == ""


async def test_what_nobody_sees_and_what_is_too_long_is_not_in_the_catalogue() -> None:
    registry = await registry_of({"name": "a", "description": "hid\u202eden " + "d" * 2_000})

    said = registry.catalogue()

    assert said is not None
    assert "\u202e" not in said
    assert len(said.splitlines()[-1]) < 1_100


# --- the tools


@pytest.mark.memory_case(515)
@pytest.mark.memory_case(519)
async def test_the_tools_are_three_at_most_and_none_takes_a_skill_away() -> None:
    without, with_runner = await registry_of(), await registry_of(runner=Runner())

    assert list(without.tools()) == ["activate_skill", "read_skill_resource"]
    assert list(with_runner.tools()) == ["activate_skill", "read_skill_resource", "run_skill_script"]
    for tool in with_runner.tools().values():
        assert tool.input_schema["properties"]["name"]["enum"] == ["pirate-style", "plain"]


@pytest.mark.memory_case(516)
async def test_instructions_come_in_a_tag_with_the_list_of_files() -> None:
    registry = await registry_of({**PIRATE, "resources": PIRATE["resources"][:1]}, PLAIN)

    assert await use(registry, "activate_skill", name="pirate-style") == (
        '<skill_content name="pirate-style" version="1.0">\n'
        "Say arr.\n"
        "\n"
        "<skill_resources>\n"
        '<file kind="reference" encoding="text" size="8">references/guide.md</file>\n'
        "</skill_resources>\n"
        "</skill_content>\n"
        "\n"
        "Bundled resources (read them with read_skill_resource):\n"
        "- references/guide.md (reference, text, text/markdown, 8 bytes)"
    )
    assert await use(registry, "activate_skill", name="plain") == (
        '<skill_content name="plain">\nBe plain.\n</skill_content>\n\nIt has no bundled resources.'
    )


async def test_names_and_paths_cannot_break_out_of_their_tags() -> None:
    path = 'a"/><file>.md'
    registry = await registry_of(
        {"name": 'x"><y', "description": "d", "body": "b", "resources": [{"path": path, "content": "c"}]}
    )

    said = await use(registry, "activate_skill", name='x"><y')
    read = await use(registry, "read_skill_resource", name='x"><y', path=path)

    assert said.startswith('<skill_content name="x&quot;&gt;&lt;y">')
    assert "<file>.md" not in said.partition("</skill_resources>")[0]
    assert 'path="a&quot;/&gt;&lt;file&gt;.md"' in read


@pytest.mark.memory_case(517)
@pytest.mark.memory_case(518)
async def test_a_file_is_read_by_name_or_by_a_path_that_begins_with_the_skill() -> None:
    registry = await registry_of()

    guide = (
        '<skill_resource name="pirate-style" path="references/guide.md" kind="reference" encoding="text"'
        ' mimeType="text/markdown">\n# Guide\n\n</skill_resource>'
    )
    read = "read_skill_resource"
    assert await use(registry, read, name="pirate-style", path="references/guide.md") == guide
    assert await use(registry, read, path="pirate-style/references/guide.md") == guide
    assert await use(registry, read, path="pirate-style/assets/logo.png") == (
        '<skill_resource name="pirate-style" path="assets/logo.png" kind="asset" encoding="base64"'
        f' mimeType="image/png">\n{PNG}\n</skill_resource>'
    )


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"path": "../plain/x.md"}, "other-skill/references/file.md"),
        ({"name": "plain", "path": "/etc/passwd"}, "is no path of a file"),
        ({"name": "plain", "path": "a/../b"}, "is no path of a file"),
        ({"path": "guide.md"}, "names no skill"),
        ({"path": "nobody/guide.md"}, "There is no skill 'nobody'. There are: pirate-style, plain."),
        ({"name": "plain", "path": "guide.md"}, "The skill 'plain' has no file 'guide.md'."),
    ],
)
async def test_a_file_that_cannot_be_read_is_a_text_that_says_why(given: Any, words: str) -> None:
    assert words in await use(await registry_of(), "read_skill_resource", **given)


async def test_a_file_that_is_too_long_is_not_shown() -> None:
    registry = await registry_of({**PLAIN, "resources": [{"path": "a.txt", "content": "x" * 500_000}]})

    assert "too long to be shown: 500,000 bytes" in await registry.read_resource("a.txt", "plain")


async def test_a_skill_that_is_gone_is_a_text() -> None:
    registry = await registry_of()

    assert "There is no skill 'gone'" in await registry.activate("gone")


async def test_what_a_source_raises_when_a_skill_is_used_is_the_tools_error() -> None:
    source = Source("s", "a")
    registry = SkillRegistry([source])
    await registry.load()
    source.broken = ToolError("The bucket is closed.")

    with pytest.raises(ToolError, match="bucket is closed"):
        await use(registry, "activate_skill", name="a")


# --- once is enough


async def test_instructions_that_the_model_sees_are_not_said_again() -> None:
    registry = await registry_of()
    text = await registry.activate("plain")
    result = ToolMessage([ToolResultPart("1", "activate_skill", text)])
    summary = AssistantMessage([TextPart(f"So far so good.\n{text}\n")])
    shortened = ToolMessage([ToolResultPart("1", "activate_skill", text[:20])])

    async def again(*messages: Any) -> str:
        return await use(registry, "activate_skill", ToolContext(messages=messages), name="plain")

    active = "The skill 'plain' is active already: its instructions are above, and have not changed."
    assert [await again(result), await again(summary)] == [active, active]
    assert await again(shortened) == text
    assert await again(ToolMessage([ToolResultPart("1", "fetch", text)])) == text
    assert await again() == text


# --- scripts


@pytest.mark.memory_case(519)
@pytest.mark.memory_case(520)
async def test_a_script_gets_its_skill_its_source_its_input_and_all_files() -> None:
    runner = Runner({"ok": True})
    registry = await registry_of(runner=runner)
    context = ToolContext(tool_call_id="c1")
    run = "run_skill_script"

    given = {"name": "pirate-style", "path": "scripts/run.py"}
    assert await use(registry, run, context, **given, input=[1], args=["--all"]) == {"ok": True}
    await use(registry, run, **given)

    first, second = runner.requests
    assert (first.skill.name, first.path, first.source) == ("pirate-style", "scripts/run.py", "print(1)")
    assert (first.input, first.args, first.context) == ([1], ("--all",), context)
    assert (second.input, second.args) == ({}, ())
    assert {one.path: one.content for one in first.resources} == {
        one["path"]: one["content"] for one in PIRATE["resources"]
    }


@pytest.mark.parametrize(
    ("path", "words"),
    [
        pytest.param("references/guide.md", "scripts are below scripts/", marks=pytest.mark.memory_case(521)),
        pytest.param("/scripts/run.py", "scripts are below scripts/", marks=pytest.mark.memory_case(521)),
        pytest.param(
            "scripts/none.py", "has no script 'scripts/none.py'", marks=pytest.mark.memory_case(522)
        ),
        ("scripts/none.py", "There are: scripts/"),
        ("run.py", "There are: scripts/"),
        pytest.param("scripts/run.rb", "scripts end with .js, .mjs", marks=pytest.mark.memory_case(523)),
        pytest.param("scripts/run", "scripts end with", marks=pytest.mark.memory_case(523)),
        pytest.param("scripts/../run.py", "empty, `.` or `..` parts", marks=pytest.mark.memory_case(524)),
        pytest.param("scripts//run.py", "empty, `.` or `..` parts", marks=pytest.mark.memory_case(524)),
        pytest.param("scripts/notes.py", "is no script but a file", marks=pytest.mark.memory_case(525)),
        pytest.param("scripts/packed.py", "is no text", marks=pytest.mark.memory_case(525)),
    ],
)
async def test_a_script_that_cannot_be_run_is_a_text_that_says_why(path: str, words: str) -> None:
    runner = Runner()
    registry = await registry_of(runner=runner)

    assert words in await use(registry, "run_skill_script", name="pirate-style", path=path)
    assert runner.requests == []


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ToolError("It exits with 3."), "Skill script failed: It exits with 3."),
        (MissingExtra("There is no engine."), "Skill script failed: There is no engine."),
        (
            RuntimeError("secret path /srv"),
            "Skill script failed: It could not be run because of a failure on our side.",
        ),
    ],
)
async def test_a_script_that_fails_is_a_text(error: Exception, words: str) -> None:
    registry = await registry_of(runner=Runner(error))

    assert await use(registry, "run_skill_script", name="pirate-style", path="scripts/run.py") == words


async def test_scripts_are_not_run_without_a_runner() -> None:
    assert (
        await (await registry_of()).run_script("pirate-style", "scripts/run.py")
        == "Scripts of skills are not run here."
    )


# --- several sources


@pytest.mark.memory_case(526)
async def test_the_first_source_to_have_a_name_has_it() -> None:
    registry = SkillRegistry([Source("one", "a", "b"), Source("two", "b", "c")])
    await registry.load()

    assert [(info.name, info.source_id) for info in registry.skills] == [
        ("a", "one"),
        ("b", "one"),
        ("c", "two"),
    ]
    assert await registry.activate("b") == await registry.activate("b")
    assert "b of one" in await registry.activate("b")
    [warning] = registry.warnings
    assert "'one' and 'two' both have it" in warning


@pytest.mark.memory_case(527)
async def test_a_source_that_cannot_be_listed_is_left_out() -> None:
    broken = Source("broken", "a")
    broken.broken = OSError(5, "Input/output error")
    registry = SkillRegistry([broken, Source("two", "b")])

    await registry.load()

    assert [info.name for info in registry.skills] == ["b"]
    [warning] = registry.warnings
    assert "'broken' could not be read, it is left out: [Errno 5] Input/output error." in warning


@pytest.mark.memory_case(528)
async def test_warnings_are_those_of_the_last_look() -> None:
    broken = Source("broken", "a")
    broken.broken = OSError("no")
    registry = SkillRegistry([broken])
    await registry.load()
    assert len(registry.warnings) == 1

    broken.broken = None
    await registry.load()

    assert registry.warnings == ()
    assert [info.name for info in registry.skills] == ["a"]


async def test_a_source_that_fails_later_keeps_its_skills() -> None:
    source, other = Source("s", "a"), Source("o", "b")
    registry = SkillRegistry([source, other])
    await registry.load()
    source.broken, other.names = RuntimeError("gone"), ["b", "c"]

    await registry.refresh()

    assert [info.name for info in registry.skills] == ["a", "b", "c"]
    [warning] = registry.warnings
    assert "its skills stay as they were: RuntimeError: gone." in warning


async def test_a_source_whose_failure_took_long_is_left_alone_for_a_while() -> None:
    clock, source = ManualClock(), Source("slow", "a")
    registry = SkillRegistry([source], clock=clock)
    await registry.load()

    async def slow() -> None:
        await clock.advance(5)
        raise RuntimeError("nobody answers")

    source.refresh = slow  # type: ignore[method-assign]
    await registry.refresh()
    asked = source.asked
    await registry.refresh()
    assert source.asked == asked
    assert len(registry.warnings) == 1

    del source.refresh  # type: ignore[misc]
    await clock.advance(REST)
    await registry.refresh()
    assert source.asked == asked + 1
    assert registry.warnings == ()


async def test_the_fingerprint_is_that_of_every_source() -> None:
    one, two = Source("one", "a"), Source("two", "b")
    registry = SkillRegistry([one, two])
    await registry.load()
    assert registry.fingerprint == "one:1|two:1"

    two.fingerprint = "2"
    await registry.refresh()

    assert registry.fingerprint == "one:1|two:2"


async def test_a_source_that_lists_something_else_is_left_out() -> None:
    source = Source("s")
    source.names = []

    async def wrong() -> Any:
        return ["a"]

    source.list = wrong  # type: ignore[method-assign]
    registry = SkillRegistry([source])
    await registry.load()

    assert registry.skills == ()
    assert "which is no SkillInfo" in registry.warnings[0]


@pytest.mark.parametrize(
    ("sources", "runner", "words"),
    [
        ("skills", None, "no source of skills"),
        (["skills"], None, "no source of skills"),
        (Source, None, "no source of skills"),
        ([Source("a"), Source("a")], None, "have the id 'a'"),
        ([], object(), "runs no scripts"),
        ([], Runner, "runs no scripts"),
    ],
)
def test_what_is_no_source_and_no_runner_is_refused(sources: Any, runner: Any, words: str) -> None:
    with pytest.raises(InvalidSettings, match=words):
        SkillRegistry(sources, runner)


async def test_a_panel_is_shown_plain_values() -> None:
    import json

    broken = Source("broken", "a")
    broken.broken = OSError("no")
    registry = SkillRegistry([skills.from_manifest(id="made", skills=[PIRATE]), broken], Runner())
    await registry.load()

    shown = json.loads(json.dumps(skills.view(registry)))

    assert shown["sources"][0] == {
        "id": "made",
        "fingerprint": shown["sources"][0]["fingerprint"],
        "skills": ["pirate-style"],
        "error": None,
    }
    assert "left out: no" in shown["sources"][1]["error"]
    assert shown["skills"][0]["allowedTools"] == "Bash"
    assert shown["diagnostics"][0]["level"] == "error"
    assert (shown["active"], shown["runsScripts"]) == ([], True)
    assert skills.view(None)["sources"] == []
