"""`list`, `find` and `grep`."""

from __future__ import annotations

import pytest

from everthink.testing.scripted import calls
from tests.file_tools.support import MakeDesk

pytestmark = pytest.mark.anyio


@pytest.mark.memory_case(350)
async def test_a_folder_is_listed_with_sizes_and_slashes(desk: MakeDesk) -> None:
    agent = await desk()
    files = await agent.files()
    await files.write_file("/b.txt", "x" * 2_048)
    await files.write_file("/folder/c.txt", "")
    await files.symlink("/b.txt", "/link")
    assert await agent.call("list") == {
        "path": "/",
        "count": 3,
        "entries": ["folder/", "b.txt (2.0 KB)", "link"],
    }
    assert (await agent.call("list", path="/", limit=1, offset=1))["entries"] == ["b.txt (2.0 KB)"]
    assert (await agent.call("list", path="/nothing"))["count"] == 0
    assert (await agent.call("list", path="/b.txt"))["count"] == 0


async def test_why_nothing_is_listed_is_said_unless_the_folder_is_empty(desk: MakeDesk) -> None:
    agent = await desk()
    files = await agent.files()
    await files.write_file("/b.txt", "x")
    await files.mkdir("/empty")
    empty = {"count": 0, "entries": []}
    missing, file, folder, root, behind = await agent.turn(
        calls("list", path="/nothing"),
        calls("list", path="/b.txt"),
        calls("list", path="/empty"),
        calls("list", path="/", offset=9),
        calls("list", path="/nothing", offset=9),
    )
    assert missing == {"path": "/nothing", **empty, "note": "There is no folder /nothing."}
    assert file == {"path": "/b.txt", **empty, "note": "/b.txt is a file: read it."}
    assert folder == {"path": "/empty", **empty}
    assert root == {"path": "/", **empty}
    assert behind == {"path": "/nothing", **empty}


async def test_a_pattern_for_the_root_alone_that_finds_nothing_says_so(desk: MakeDesk) -> None:
    agent = await desk()
    await (await agent.files()).write_file("/notes/plan.md", "x")
    told = await agent.call("find", pattern="*.md")
    assert told["count"] == 0
    assert told["note"] == "That is for what is in the root folder: **/*.md looks in all of them."
    assert "note" not in await agent.call("find", pattern="/nothing/*.md")
    assert "note" not in await agent.call("find", pattern="not*")


async def test_what_stands_in_the_way_is_said_in_words_that_the_tool_has(desk: MakeDesk) -> None:
    agent = await desk()
    await (await agent.files()).write_file("/notes/plan.md", "x")
    assert (await agent.call("grep", query="("))["error"].endswith(
        "Escape its signs, or look for it as a fixed text."
    )
    assert (await agent.call("delete", path="/notes")).endswith(
        "With `recursive` it is removed with all that is in it."
    )


@pytest.mark.memory_case(351, 600)
async def test_paths_are_found_by_pattern_and_the_root_never_is(desk: MakeDesk) -> None:
    agent = await desk()
    files = await agent.files()
    for path in ("/a.md", "/notes/b.md", "/notes/c.txt"):
        await files.write_file(path, "x")
    md, every, top, none, broken = await agent.turn(
        calls("find", pattern="**/*.md"),
        calls("find", pattern="**/*"),
        calls("find", pattern="*"),
        calls("find", pattern="/nothing/**"),
        calls("find", pattern="{" * 200),
    )
    assert md == {"pattern": "**/*.md", "count": 2, "files": ["/a.md", "/notes/b.md"]}
    assert every["files"] == ["/a.md", "/notes/", "/notes/b.md", "/notes/c.txt"]
    assert top["files"] == ["/a.md", "/notes/"]
    assert none["count"] == 0
    assert broken.get("count") == 0 or "error" in broken


async def test_more_than_two_hundred_are_counted_and_not_all_shown(desk: MakeDesk) -> None:
    agent = await desk()
    files = await agent.files()
    for n in range(205):
        await files.write_file(f"/{n:03}", "hit")
    found = await agent.call("find", pattern="*")
    assert (found["count"], len(found["files"]), found["truncated"], found["showing"]) == (
        205,
        200,
        True,
        200,
    )
    hits = await agent.call("grep", query="hit")
    assert (hits["totalMatches"], hits["truncated"]) == (200, True)


@pytest.mark.memory_case(352, 353, 354)
async def test_lines_are_found_by_expression_and_by_text_in_any_case(desk: MakeDesk) -> None:
    agent = await desk()
    files = await agent.files()
    await files.write_file("/a.py", "def One():\n    pass\ndef two(): # a.b\n")
    await files.write_file("/b.md", "DEF of a-b\n")
    default, exact, fixed, dotted, only = await agent.turn(
        calls("grep", query=r"^def \w+"),
        calls("grep", query="One", caseSensitive=True),
        calls("grep", query="a.b", fixedString=True),
        calls("grep", query="a.b"),
        calls("grep", query="def", include="*.md"),
    )
    assert default == {
        "query": r"^def \w+",
        "filesSearched": 2,
        "filesWithMatches": 2,
        "totalMatches": 3,
        "matches": ["/a.py:1: def One():", "/a.py:3: def two(): # a.b", "/b.md:1: DEF of a-b"],
    }
    assert exact["matches"] == ["/a.py:1: def One():"]
    assert fixed["matches"] == ["/a.py:3: def two(): # a.b"]
    assert dotted["filesWithMatches"] == 2
    assert (only["filesSearched"], only["totalMatches"]) == (1, 1)


@pytest.mark.memory_case(355)
async def test_lines_around_a_hit_are_shown_with_it(desk: MakeDesk) -> None:
    agent = await desk()
    await (await agent.files()).write_file("/a.txt", f"one\ntwo\nthree\n{'x' * 5_000}")
    hits = await agent.call("grep", query="two", contextLines=1)
    assert hits["matches"] == [{"file": "/a.txt", "line": 2, "context": "  1\tone\n> 2\ttwo\n  3\tthree"}]
    wide = await agent.call("grep", query="three", contextLines=10)
    assert len(wide["matches"][0]["context"]) < 2_100


@pytest.mark.memory_case(356)
async def test_large_files_are_skipped_and_it_says_so(desk: MakeDesk) -> None:
    agent = await desk()
    files = await agent.files()
    await files.write_file("/large.txt", "hit" * 400_000)
    await files.write_file("/small.txt", "hit")
    hits = await agent.call("grep", query="hit")
    assert (hits["filesSearched"], hits["filesSkipped"], hits["totalMatches"]) == (1, 1, 1)
    assert "1.0 MB" in hits["note"]


async def test_expressions_that_are_none_or_take_for_ever_are_errors(
    desk: MakeDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    from everthink.workspace.grep import Search

    begin = Search.__post_init__

    def hurried(self: Search) -> None:
        self.seconds = 0.05
        begin(self)

    monkeypatch.setattr(Search, "__post_init__", hurried)
    agent = await desk(workspace_bash=False)
    await (await agent.files()).write_file("/a.txt", "a" * 60 + "b")
    broken, endless, empty = await agent.turn(
        calls("grep", query="("), calls("grep", query="(a|aa)+$"), calls("grep", query="")
    )
    assert "no regular expression" in broken["error"]
    assert "took longer" in endless["error"]
    assert "error" in empty
