"""What code looks for in files, and what it changes in many at once."""

# ruff: noqa: E501 - programs stand as they are

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
from typing import Any

import pytest

from everthink.errors import WorkspaceError
from everthink.workspace.memory import MemoryFiles
from everthink.workspace.port import WorkspaceLimits
from everthink.workspace.workspace import Workspace
from tests.codemode.support import Coder, MakeCoder

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


SURFACE = (
    "read_file read_file_bytes write_file write_file_bytes append_file exists stat lstat read_dir rm mkdir"
    " glob cp mv diff diff_content symlink readlink"
)


class OwnFiles:
    """Something that looks like a workspace: each call goes through a step of its own."""

    def __init__(self) -> None:
        self._inner = Workspace(MemoryFiles())
        self.fails_at: str | None = None

    def __getattr__(self, name: str) -> Any:
        if f" {name} " not in f" {SURFACE} ":
            raise AttributeError(name)
        found = getattr(self._inner, name)

        async def hop(*args: Any, **kwargs: Any) -> Any:
            if name == "write_file_bytes" and args[0] == self.fails_at:
                raise WorkspaceError(f"{args[0]} is full.", code="EFBIG", path=args[0])
            return await found(*args, **kwargs)

        return hop


@pytest.fixture(params=["the agent's own", "something like a workspace"])
async def agent(request: pytest.FixtureRequest, coder: MakeCoder) -> Coder:
    """An agent with some files, in its own rows or in an object of another kind."""
    found = await (coder() if request.param == "the agent's own" else coder(workspace=OwnFiles()))
    files = await workspace_of(found)
    await files.write_file("/a/one.txt", "Foo bar\nfoobar foo\nlast FOO\n")
    await files.write_file("/a/deep/two.md", "no\nfoo\n")
    await files.write_file("/a/deep/empty.md", "")
    await files.mkdir("/a/nothing")
    return found


async def workspace_of(agent: Coder) -> Any:
    return (await agent.agent()).workspace


async def given(agent: Coder, code: str) -> Any:
    """What code gives."""
    output = await agent.run(code)
    assert output["status"] == "completed", output
    return output["result"]


async def refused(agent: Coder, code: str) -> str:
    """With which words it fails."""
    output = await agent.run(code)
    assert output["status"] == "error", output
    return output["error"]


# --- looking


@pytest.mark.memory_case(293)
async def test_places_of_a_text_have_lines_and_columns_from_1_on(agent: Coder) -> None:
    look = "[[m['line'], m['column'], m['match']] for m in await state.search_text(path='/a/one.txt', {})]"
    for how, expected in {
        "query='foo'": [[2, 1, "foo"], [2, 8, "foo"]],
        "query='foo', case_sensitive=False": [[1, 1, "Foo"], [2, 1, "foo"], [2, 8, "foo"], [3, 6, "FOO"]],
        "query='foo', whole_word=True": [[2, 8, "foo"]],
        "query='f.*r', regex=True": [[2, 1, "foobar"]],
        "query='f.*r'": [],
    }.items():
        assert await given(agent, look.format(how)) == expected
    assert "EINVAL: There is nothing to look for" in await refused(agent, look.format("query=''"))
    assert "is no regular expression" in await refused(agent, look.format("query='(', regex=True"))


@pytest.mark.memory_case(294)
async def test_lines_around_a_place_and_a_most_of_places_can_be_asked_for(agent: Coder) -> None:
    found = await given(
        agent,
        "await state.search_text(path='/a/one.txt', query='foo', context_before=1, context_after=1, max_matches=1)",
    )
    assert found == [
        {
            "line": 2,
            "column": 1,
            "match": "foo",
            "lineText": "foobar foo",
            "beforeLines": ["Foo bar"],
            "afterLines": ["last FOO"],
        }
    ]


@pytest.mark.memory_case(298)
async def test_places_in_several_files_are_grouped_by_file(agent: Coder) -> None:
    found = await given(agent, "await state.search_files(pattern='/a/**', query='foo')")
    assert [(one["path"], [m["line"] for m in one["matches"]]) for one in found] == [
        ("/a/deep/two.md", [2]),
        ("/a/one.txt", [2, 2]),
    ]
    most = await given(agent, "await state.search_files(query='foo', max_matches=2)")
    assert [(one["path"], len(one["matches"])) for one in most] == [("/a/deep/two.md", 1), ("/a/one.txt", 1)]


@pytest.mark.memory_case(295)
async def test_entries_are_found_by_what_they_are(agent: Coder) -> None:
    look = "[[e['path'], e['type'], e['depth'], e['size']] for e in await state.find(path='/a', {})]"
    one, two, empty = (
        ["/a/one.txt", "file", 1, 28],
        ["/a/deep/two.md", "file", 2, 7],
        ["/a/deep/empty.md", "file", 2, 0],
    )
    for how, expected in {
        "type='file'": [empty, two, one],
        "type='directory'": [["/a/deep", "directory", 1, 0], ["/a/nothing", "directory", 1, 0]],
        "name='*.md'": [empty, two],
        "path_pattern='/a/*/t*'": [two],
        "empty=True": [empty, ["/a/nothing", "directory", 1, 0]],
        "type='file', empty=False, max_depth=1": [one],
        "min_depth=2, size_min=1": [two],
        "size_max=0, type='file'": [empty],
        "mtime_before=1": [],
    }.items():
        assert sorted(await given(agent, look.format(how))) == sorted(expected), how
    assert "ENOENT" in await refused(agent, "await state.find(path='/none')")


@pytest.mark.memory_case(306)
async def test_a_tree_is_walked_and_summed_up(agent: Coder) -> None:
    tree = await given(agent, "await state.walk_tree(path='/a')")
    assert [(one["name"], one["type"]) for one in tree["children"]] == [
        ("deep", "directory"),
        ("nothing", "directory"),
        ("one.txt", "file"),
    ]
    assert [(one["path"], one["size"]) for one in tree["children"][0]["children"]] == [
        ("/a/deep/empty.md", 0),
        ("/a/deep/two.md", 7),
    ]
    assert len((await given(agent, "await state.walk_tree(max_depth=1)"))["children"]) == 1
    assert await given(agent, "await state.summarize_tree(path='/a')") == {
        "files": 3,
        "directories": 2,
        "symlinks": 0,
        "totalBytes": 35,
        "maxDepth": 2,
    }


@pytest.mark.memory_case(308)
async def test_links_are_read_described_and_followed_to_their_ends(agent: Coder) -> None:
    assert await given(
        agent,
        "await state.symlink(target='one.txt', link_path='/a/first')\n"
        "await state.symlink(target='/a/first', link_path='/second')\n"
        "[await state.readlink(path='/a/first'), await state.realpath(path='/second'),"
        " (await state.lstat(path='/second'))['type'], (await state.stat(path='/second'))['type'],"
        " await state.resolve_path(base='/a/deep', path='../one.txt'),"
        " await state.resolve_path(base='/a', path='/b'), await state.get_capabilities()]",
    ) == [
        "one.txt",
        "/a/one.txt",
        "symlink",
        "file",
        "/a/one.txt",
        "/b",
        {"chmod": False, "utimes": False, "hardLinks": False},
    ]


# --- JSON


@pytest.mark.memory_case(291)
async def test_an_error_about_json_names_the_file(agent: Coder) -> None:
    for code in (
        "await state.read_json(path='/a/one.txt')",
        "await state.query_json(path='/a/one.txt', query='x')",
        "await state.update_json(path='/a/one.txt', operations=[])",
    ):
        assert "/a/one.txt is no JSON" in await refused(agent, code)


@pytest.mark.memory_case(296)
async def test_values_in_json_are_asked_for_set_added_and_deleted_by_their_places(agent: Coder) -> None:
    assert await given(
        agent,
        "await state.write_json(path='/c.json', value={'users': [{'name': 'ada', 'a.b': 1}], 'n': None})\n"
        "ask = ['users[0].name', 'users[0][\"a.b\"]', 'users[3].name', 'n.x', '.', '']\n"
        "[await state.query_json(path='/c.json', query=q) for q in ask]",
    ) == ["ada", 1, None, None, *[{"users": [{"name": "ada", "a.b": 1}], "n": None}] * 2]
    told = await given(
        agent,
        "await state.update_json(path='/c.json', operations=["
        "{'op': 'set', 'path': 'users[1].name', 'value': 'bob'}, {'op': 'set', 'path': 'deep.er[0]', 'value': 1},"
        "{'op': 'delete', 'path': 'users[0]'}, {'op': 'delete', 'path': 'n'}, {'op': 'delete', 'path': 'not.there'}])",
    )
    assert (told["value"], told["operationsApplied"]) == (
        {"users": [{"name": "bob"}], "deep": {"er": [1]}},
        5,
    )
    assert '-      "name": "ada",' in told["diff"]
    text = '{\n  "users": [\n    {\n      "name": "bob"\n    }\n  ],\n  "deep": {\n    "er": [\n      1\n    ]\n  }\n}\n'
    assert await (await workspace_of(agent)).read_file("/c.json") == text
    for operation, words in {
        "{'op': 'set', 'path': 'users.x', 'value': 1}": "'x' is a name, and there is a list",
        "{'op': 'set', 'path': 'deep[0]', 'value': 1}": "[0] is a place in a list, and there is an object",
        "{'op': 'set', 'path': 'users[5]', 'value': 1}": "[5] is beyond the end: the list has 1 items",
        "{'op': 'set', 'path': 'users[', 'value': 1}": "cannot be read at '['",
        "{'op': 'set', 'path': 'x'}": "An operation is",
        "{'op': 'delete', 'path': '.'}": "All of it cannot be deleted",
    }.items():
        code = f"await state.update_json(path='/c.json', operations=[{operation}])"
        assert words in await refused(agent, code), operation
    assert await (await workspace_of(agent)).read_file("/c.json") == text


# --- texts in files


@pytest.mark.memory_case(297)
async def test_whole_words_are_replaced_in_a_file_and_counted(agent: Coder) -> None:
    code = (
        "await state.replace_in_file(path='/a/one.txt', search='foo', replacement='\\\\1$&', whole_word=True)"
    )
    assert await given(agent, code) == {"replaced": 1}
    assert await (await workspace_of(agent)).read_file("/a/one.txt") == "Foo bar\nfoobar \\1$&\nlast FOO\n"
    assert await given(agent, code) == {"replaced": 0}


@pytest.mark.memory_case(299)
async def test_replacing_in_several_files_is_shown_or_done(agent: Coder) -> None:
    code = (
        "await state.replace_in_files(pattern='/a/**', search='foo', replacement='x', case_sensitive=False{})"
    )
    shown = await given(agent, code.format(", dry_run=True"))
    assert (shown["dryRun"], shown["totalFiles"], shown["totalReplacements"]) == (True, 2, 5)
    assert [(one["path"], one["replaced"]) for one in shown["files"]] == [
        ("/a/deep/two.md", 1),
        ("/a/one.txt", 4),
    ]
    assert "-foobar foo\n-last FOO\n+x bar\n+xbar x" in shown["files"][1]["diff"]
    files = await workspace_of(agent)
    assert await files.read_file("/a/deep/two.md") == "no\nfoo\n"
    done = await given(agent, code.format(""))
    assert done == {**shown, "dryRun": False}
    assert await files.read_file("/a/deep/two.md") == "no\nx\n"
    assert await files.read_file("/a/one.txt") == "x bar\nxbar x\nlast x\n"


# --- several edits


@pytest.mark.memory_case(300)
async def test_several_edits_say_what_changed_and_what_did_not(agent: Coder) -> None:
    code = (
        "await state.apply_edits(edits=[{'path': '/new.md', 'content': 'new\\n'},"
        " {'path': '/a/deep/two.md', 'content': 'no\\nfoo\\n'}, {'path': '/a/one.txt', 'content': 'short'}]%s)"
    )
    shown = await given(agent, code % ", dry_run=True")
    assert [(one["path"], one["changed"]) for one in shown["edits"]] == [
        ("/new.md", True),
        ("/a/deep/two.md", False),
        ("/a/one.txt", True),
    ]
    assert (shown["dryRun"], shown["totalChanged"]) == (True, 2)
    files = await workspace_of(agent)
    assert not await files.exists("/new.md")
    assert await given(agent, code % "") == {**shown, "dryRun": False}
    assert (await files.read_file("/new.md"), await files.read_file("/a/one.txt")) == ("new\n", "short")


@pytest.mark.memory_case(301)
async def test_edits_are_planned_and_shown_and_then_made(agent: Coder) -> None:
    files = await workspace_of(agent)
    plan = await given(
        agent,
        "plan = await state.plan_edits(instructions=["
        "{'kind': 'write', 'path': '/w.txt', 'content': 'one two'},"
        "{'kind': 'replace', 'path': '/w.txt', 'search': 'two', 'replacement': 'three'},"
        "{'kind': 'replace', 'path': '/a/one.txt', 'search': 'FOO', 'replacement': 'x', 'options': {'case_sensitive': False}},"
        "{'kind': 'writeJson', 'path': '/j.json', 'value': {'a': 1}}])\nplan",
    )
    assert [(one["path"], one["changed"], one["content"]) for one in plan["edits"]] == [
        ("/w.txt", True, "one two"),
        ("/w.txt", True, "one three"),
        ("/a/one.txt", True, "x bar\nxbar x\nlast x\n"),
        ("/j.json", True, '{\n  "a": 1\n}\n'),
    ]
    assert (plan["totalChanged"], plan["totalInstructions"]) == (4, 4)
    assert not await files.exists("/w.txt")
    made = await given(
        agent,
        "plan = await state.plan_edits(instructions=[{'kind': 'write', 'path': '/w.txt', 'content': 'one'},"
        " {'kind': 'replace', 'path': '/a/one.txt', 'search': 'Foo', 'replacement': 'Fu'}])\n"
        "await state.apply_edit_plan(plan)",
    )
    assert made["totalChanged"] == 2
    assert (await files.read_file("/w.txt"), (await files.read_file("/a/one.txt"))[:6]) == ("one", "Fu bar")


@pytest.mark.memory_case(302)
async def test_a_plan_to_replace_in_a_file_that_is_not_there_is_refused(agent: Coder) -> None:
    instruction = "{'kind': 'replace', 'path': '/none', 'search': 'a', 'replacement': 'b'}"
    words = await refused(agent, f"await state.plan_edits(instructions=[{instruction}])")
    assert "ENOENT: There is no file /none to replace something in." in words
    words = await refused(agent, "await state.plan_edits(instructions=[{'kind': 'sing', 'path': '/x'}])")
    assert "There is no edit 'sing': kind is write, replace or writeJson." in words


@pytest.mark.memory_case(303)
@pytest.mark.parametrize("is_own", [True, False])
async def test_when_a_later_edit_fails_the_earlier_ones_are_not_there(coder: MakeCoder, is_own: bool) -> None:
    own = OwnFiles()
    own.fails_at = "/full"
    limits = Workspace(limits=WorkspaceLimits(file_bytes=20))
    agent = await coder(workspace=limits if is_own else own)
    files = await workspace_of(agent)
    await files.write_file("/old", "as it was")
    words = await refused(
        agent,
        "await state.apply_edits(edits=[{'path': '/old', 'content': 'changed'}, {'path': '/new', 'content': 'new'},"
        " {'path': '/full', 'content': 'far too much for it'}, {'path': '/last', 'content': '"
        + "x" * 30
        + "'}])",
    )
    assert "apply_edits failed, and no file was changed" in words
    assert ("/last" if is_own else "/full is full") in words
    assert await files.read_file("/old") == "as it was"
    assert not await files.exists("/new")


async def test_several_edits_are_one_commit_with_their_call_and_told_as_writes(coder: MakeCoder) -> None:
    agent = await coder()
    told: list[Any] = []
    agent.app.events.subscribe(told.append, type="workspace:write")
    output = await agent.run(
        "await state.apply_edits(edits=[{'path': '/a', 'content': '1'}, {'path': '/b', 'content': '22'}])"
    )
    changes = await (await workspace_of(agent)).changes()
    assert [(one.path, one.call_id) for one in changes] == [
        ("/a", f"{output['executionId']}/1"),
        ("/b", f"{output['executionId']}/1"),
    ]
    assert [(event.body.path, event.body.size, event.body.update) for event in told] == [
        ("/a", 1, False),
        ("/b", 2, False),
    ]


async def test_what_is_no_text_is_not_spoilt_by_edits(agent: Coder) -> None:
    files = await workspace_of(agent)
    await files.write_file_bytes("/b.bin", b"foo\xff\x00foo")
    for code in (
        "state.replace_in_file(path='/b.bin', search='foo', replacement='x')",
        "state.plan_edits(instructions=[{'kind': 'replace', 'path': '/b.bin', 'search': 'foo', 'replacement': 'x'}])",
        "state.update_json(path='/b.bin', operations=[])",
    ):
        assert "EINVAL: /b.bin is no text. Read and write its bytes." in await refused(agent, f"await {code}")
    code = "await state.replace_in_files(pattern='/**', search='foo', replacement='x')"
    assert "/b.bin" not in [one["path"] for one in (await given(agent, code))["files"]]
    assert await files.read_file_bytes("/b.bin") == b"foo\xff\x00foo"
    # What is written as a whole takes its place
    code = "await state.apply_edits(edits=[{'path': 'b.bin', 'content': '1'}, {'path': '/b.bin', 'content': '2'}])"
    assert [one["changed"] for one in (await given(agent, code))["edits"]] == [True, True]
    assert await files.read_file_bytes("/b.bin") == b"2"


async def test_edits_of_one_file_at_once_all_count(coder: MakeCoder) -> None:
    agent = await coder()
    assert await given(
        agent,
        "import asyncio\n"
        "await state.write_json(path='/n.json', value={})\n"
        "await asyncio.gather(*[state.update_json(path='/n.json',"
        " operations=[{'op': 'set', 'path': 'k' + str(n), 'value': n}]) for n in range(5)])\n"
        "await state.read_json(path='/n.json')",
    ) == {f"k{n}": n for n in range(5)}


@pytest.mark.memory_case(305)
async def test_trees_are_copied_moved_and_removed(agent: Coder) -> None:
    assert await given(
        agent,
        "await state.copy_tree(source='/a', destination='/b')\n"
        "await state.move_tree(source='/b/deep', destination='/c')\n"
        "await state.remove_tree(path='/a')\n"
        "sorted(e['path'] for e in await state.find(type='file'))",
    ) == ["/b/one.txt", "/c/empty.md", "/c/two.md"]


# --- archives


@pytest.mark.memory_case(307)
async def test_archives_hashes_and_kinds_of_files_give_what_others_give(agent: Coder) -> None:
    files = await workspace_of(agent)
    made = await given(
        agent,
        "await state.create_archive(path='/out.tar', sources=['/a/deep', '/a/one.txt'])\n"
        "await state.extract_archive(path='/out.tar', destination='/x')\n"
        "await state.compress_file(path='/a/one.txt')\n"
        "await state.decompress_file(path='/a/one.txt.gz', destination='/y.txt')\n"
        "[await state.list_archive(path='/out.tar'), await state.read_file(path='/x/a/deep/two.md'),"
        " await state.read_file(path='/y.txt'), await state.hash_file(path='/a/one.txt'),"
        " await state.detect_file(path='/out.tar'), await state.detect_file(path='/a/one.txt.gz'),"
        " await state.detect_file(path='/a/one.txt')]",
    )
    text = "Foo bar\nfoobar foo\nlast FOO\n"
    assert made == [
        [
            {"path": "a/deep", "type": "directory", "size": 0},
            {"path": "a/deep/empty.md", "type": "file", "size": 0},
            {"path": "a/deep/two.md", "type": "file", "size": 7},
            {"path": "a/one.txt", "type": "file", "size": 28},
        ],
        "no\nfoo\n",
        text,
        hashlib.sha256(text.encode()).hexdigest(),
        {"mime": "application/x-tar", "description": "tar archive", "extension": "tar", "binary": True},
        {
            "mime": "application/gzip",
            "description": "gzip-compressed data",
            "extension": "gz",
            "binary": True,
        },
        {"mime": "text/plain", "description": "text", "extension": "txt", "binary": False},
    ]
    # and others read it
    with tarfile.open(fileobj=io.BytesIO(await files.read_file_bytes("/out.tar"))) as archive:
        assert archive.getnames() == [one["path"] for one in made[0]]
    assert gzip.decompress(await files.read_file_bytes("/a/one.txt.gz")).decode() == text


@pytest.mark.parametrize(
    ("name", "kind", "words"),
    [
        ("../out", tarfile.REGTYPE, "'../out' would leave the folder"),
        ("/etc/x", tarfile.REGTYPE, "'/etc/x' would leave the folder"),
        ("link", tarfile.SYMTYPE, "'link' is neither a file nor a folder"),
        ("link", tarfile.LNKTYPE, "'link' is neither a file nor a folder"),
    ],
)
async def test_what_would_leave_its_folder_is_not_unpacked(
    agent: Coder, name: str, kind: bytes, words: str
) -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("good"))
        bad = tarfile.TarInfo(name)
        bad.type, bad.linkname = kind, "/etc/passwd"
        archive.addfile(bad)
    files = await workspace_of(agent)
    await files.write_file_bytes("/bad.tar", out.getvalue())
    assert words in await refused(agent, "await state.extract_archive(path='/bad.tar', destination='/x')")
    assert not await files.exists("/x")


async def test_what_is_no_archive_or_too_large_is_told(agent: Coder) -> None:
    files = await workspace_of(agent)
    await files.write_file_bytes("/bomb.gz", gzip.compress(bytes(40 << 20)))
    await files.write_file_bytes("/cut.gz", gzip.compress(b"x" * 1000)[:-10])
    for code, words in {
        "state.decompress_file(path='/bomb.gz')": "EFBIG: /bomb.gz holds more than",
        "state.decompress_file(path='/cut.gz')": "is cut off",
        "state.decompress_file(path='/a/one.txt', destination='/x')": "was not compressed with gzip",
        "state.decompress_file(path='/a/one.txt')": "does not end with .gz",
        "state.list_archive(path='/a/one.txt')": "That is no tar, or a broken one",
        "state.create_archive(path='/t', sources=['/none'])": "ENOENT: There is no /none",
    }.items():
        assert words in await refused(agent, f"await {code}")


# --- ways of calling


@pytest.mark.memory_case(311)
async def test_what_looks_like_a_workspace_can_stand_behind_it(coder: MakeCoder) -> None:
    agent = await coder(workspace=OwnFiles())
    assert await given(
        agent,
        "await state.write_file(path='/x/a.txt', content='one')\n"
        "await state.append_file(path='/x/a.txt', content=' two')\n"
        "open('/x/b', 'wb').write(b'\\xff')\n"
        "[await state.read_file(path='/x/a.txt'), await state.read_file_bytes(path='/x/b'),"
        " await state.readdir(path='/x'), await state.glob(pattern='**/*.txt'), open('/x/a.txt').read()]",
    ) == ["one two", {"__bytes__": "/w=="}, ["a.txt", "b"], ["/x/a.txt"], "one two"]


@pytest.mark.memory_case(318)
@pytest.mark.parametrize("language", ["python", "javascript"])
async def test_arguments_are_given_by_place_and_as_the_language_names_them(
    coder: MakeCoder, language: str
) -> None:
    agent = await coder(options={"language": language})
    await (await workspace_of(agent)).write_file("/a.md", "text")
    plan = "{'edits': [{'path': '/p.txt', 'content': 'planned'}]}"
    named = "state.read_file(path='/a.md')" if language == "python" else "state.readFile({path: '/a.md'})"
    read, make = ("read_file", "apply_edit_plan") if language == "python" else ("readFile", "applyEditPlan")
    true, let = ("True", "") if language == "python" else ("true", "const ")
    whole = f"plan={plan}" if language == "python" else f"{{plan: {plan}}}"
    assert await given(
        agent,
        f"{let}one = await {named}\n{let}two = await state.{read}('/a.md')\n"
        f"{let}three = await state.{make}({plan}, {true})\n{let}four = await state.{make}({plan})\n"
        f"{let}five = await state.{make}({whole});\n"
        "[one, two, three['dryRun'], four['dryRun'], four['totalChanged'], five['totalChanged']]",
    ) == ["text", "text", True, False, 1, 0]
    assert await (await workspace_of(agent)).read_file("/p.txt") == "planned"
