"""Directories as the field has them: which skills there are, and what is said of the others."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from everthink.skills.directory import DirectoryTree
from everthink.skills.tree import Bounds, Index, index_of

from .build import BYTES, FOUR, skill, text, write

pytestmark = pytest.mark.anyio

Files = dict[str, str | bytes]
SMALL = Bounds(
    skill_bytes=4_000,
    file_bytes=2_000,
    tree_bytes=5_000,
    files=3,
    skills=3,
    depth=2,
    path_bytes=60,
    entries=200,
)


@dataclass
class Found:
    """A directory, and what is to come of it."""

    files: Files | Callable[[Path], object]
    skills: list[str]
    said: list[tuple[str, str]] = field(default_factory=list)
    """Level and some of the words of each diagnostic, in order."""
    resources: list[str] | None = None
    bounds: Bounds = field(default_factory=Bounds)
    check: Callable[[Index], bool] | None = None


def one(content: str | bytes, folder: str = "pirate-style", **files: str | bytes) -> Files:
    return {f"{folder}/SKILL.md": content} | {f"{folder}/{path}": data for path, data in files.items()}


def front(fields: str, body: str = "Say arr.\n") -> Files:
    return one(f"---\nname: pirate-style\ndescription: Talk like a pirate.\n{fields}---\n{body}")


def of(index: Index, name: str = "pirate-style"):
    return index.skills[name]


def links(root: Path) -> None:
    skill(root)
    write(root.parent, {"secret.txt": "hush"})
    os.symlink(root.parent / "secret.txt", root / "pirate-style" / "notes.txt")


def linked_folder(root: Path) -> None:
    outside = skill(root.parent / "elsewhere", "far")
    os.symlink(outside, root / "far")
    skill(root)


def pipe(root: Path) -> None:
    os.mkfifo(skill(root) / "pipe")


def strange_names(root: Path) -> None:
    skill(root)
    place = os.fsencode(root / "pirate-style") + b"/bad\xff.md"
    with open(place, "wb") as file:
        file.write(b"x")


BOMB = "a: &a [x,x,x]\nb: &b [*a,*a,*a]\nc: &c [*b,*b,*b]\nmetadata: *c\n"
NO, LATER = "SKILL.md has no", "read line by line"

CASES: dict[str, Found] = {
    # --- as it should be
    "a skill": Found({"pirate-style/SKILL.md": text()}, ["pirate-style"]),
    "no skill at all": Found({}, []),
    "several, in the order of their names": Found(
        {"b/SKILL.md": text("b"), "a/SKILL.md": text("a")}, ["a", "b"]
    ),
    "every kind of file": Found(
        lambda root: skill(root, files=FOUR), ["pirate-style"], resources=sorted(FOUR)
    ),
    "folders of other names": Found(
        one(text(), **{"rules/a.md": "a", "examples/b.md": "b", "reference/c.md": "c"}),
        ["pirate-style"],
        resources=["examples/b.md", "reference/c.md", "rules/a.md"],
    ),
    "a body is kept as it is": Found(
        one(text(body="\n  one\n\n---\ntwo\n\n")),
        ["pirate-style"],
        check=lambda i: of(i).body == "\n  one\n\n---\ntwo\n\n",
    ),
    "letters of other scripts": Found(one(text("größe"), "größe"), ["größe"]),
    "a block of text": Found(
        one("---\nname: pirate-style\ndescription: >\n  Talk like\n  a pirate.\n---\nx"),
        ["pirate-style"],
        check=lambda i: of(i).description == "Talk like a pirate.",
    ),
    # --- how it is saved
    "CRLF": Found(
        one(text().replace("\n", "\r\n")), ["pirate-style"], check=lambda i: of(i).body == "Say arr.\r\n"
    ),
    "a byte order mark": Found(one(b"\xef\xbb\xbf" + text().encode()), ["pirate-style"]),
    "spaces after the fences": Found(one(text().replace("---\n", "---  \n")), ["pirate-style"]),
    "no newline at the end": Found(
        one(text(body="").rstrip("\n")), ["pirate-style"], [("warning", "no instructions")]
    ),
    "latin-1": Found(
        one(text(body="caf\xe9\n").encode("latin-1")), ["pirate-style"], [("warning", "not UTF-8")]
    ),
    "UTF-16": Found(one(text().encode("utf-16")), [], [("error", "NUL")]),
    "NUL": Found(one(text(body="a\0b")), [], [("error", "NUL")]),
    "an empty file": Found(one(""), [], [("error", "does not begin with a frontmatter")]),
    "a replacement character that was meant": Found(one(text(body="\ufffd\n")), ["pirate-style"]),
    # --- the frontmatter
    "no frontmatter": Found(one("# Pirate\n"), [], [("error", "does not begin")]),
    "text before it": Found(one("\n" + text()), [], [("error", "does not begin")]),
    "it never ends": Found(one("---\nname: x\n"), [], [("error", "does not begin")]),
    "an empty one": Found(one("---\n---\nx"), [], [("error", f"{NO} name"), ("error", f"{NO} description")]),
    "a list": Found(
        one("---\n- a\n- b\n---\nx"),
        [],
        [("warning", "no mapping"), ("error", f"{NO} name"), ("error", f"{NO} description")],
    ),
    "no name": Found(one("---\ndescription: d\n---\nx"), [], [("error", f"{NO} name")]),
    "no description": Found(one("---\nname: pirate-style\n---\nx"), [], [("error", f"{NO} description")]),
    "blank ones": Found(
        one('---\nname: " "\ndescription: ""\n---\nx'),
        [],
        [("error", f"{NO} name"), ("error", f"{NO} description")],
    ),
    "a name that is a list": Found(
        one("---\nname: [a]\ndescription: d\n---\nx"), [], [("error", f"{NO} name")]
    ),
    "a colon in the description": Found(
        one(text(description="Pirates: how they talk")),
        ["pirate-style"],
        [("warning", LATER)],
        check=lambda i: of(i).description == "Pirates: how they talk",
    ),
    "tabs": Found(
        front("metadata:\n\tauthor: ada\n"),
        ["pirate-style"],
        [("warning", LATER)],
        check=lambda i: of(i).metadata == {"author": "ada"},
    ),
    "a star at the beginning": Found(
        one(text(description="*bold* words")),
        ["pirate-style"],
        [("warning", LATER)],
        check=lambda i: of(i).description == "*bold* words",
    ),
    "a bomb of aliases": Found(
        front(BOMB),
        ["pirate-style"],
        [("warning", "alias"), ("warning", "no mapping"), *[("note", "none of the format")] * 3],
    ),
    "a deep nest": Found(
        front(f"metadata: {'[' * 400}{']' * 400}\n"),
        ["pirate-style"],
        [("warning", "too deep"), ("warning", "no mapping")],
    ),
    "a tag that would make an object": Found(
        front("metadata:\n  x: !!python/object/apply:os.system ['true']\n"),
        ["pirate-style"],
        [("note", "no texts")],
    ),
    "keys that are there twice": Found(
        front("name: pirate-style\nlicense: a\nlicense: b\n"),
        ["pirate-style"],
        [("warning", "name is there twice"), ("warning", "license is there twice")],
        check=lambda i: of(i).license == "b",
    ),
    "words that YAML takes for others": Found(
        front("license: no\ncompatibility: 1.10\nmetadata:\n  version: 2.0\n  on: 2024-01-01\n"),
        ["pirate-style"],
        check=lambda i: (
            (of(i).license, of(i).compatibility, of(i).version, of(i).metadata["on"])
            == ("no", "1.10", "2.0", "2024-01-01")
        ),
    ),
    "a name that is a number": Found(one(text("007"), "007"), ["007"]),
    "unknown fields": Found(
        front("author: ada\n"), ["pirate-style"], [("note", "'author' is none of the format")]
    ),
    "slips in fields": Found(
        one("---\nname: pirate-style\ndescripton: d\n---\nx"), [], [("error", "did you mean `description:`")]
    ),
    "slips in others": Found(
        front("allowed_tools: Read\nlicence: MIT\n"),
        ["pirate-style"],
        [("warning", "Did you mean `allowed-tools:`"), ("warning", "Did you mean `license:`")],
    ),
    "allowed-tools as a list": Found(
        front("allowed-tools:\n  - Bash\n  - Read\n"),
        ["pirate-style"],
        [("note", "allowed-tools are a list")],
        check=lambda i: of(i).allowed_tools == "Bash Read",
    ),
    "allowed-tools as a text": Found(
        front("allowed-tools: Bash(git:*) Read\n"),
        ["pirate-style"],
        check=lambda i: of(i).allowed_tools == "Bash(git:*) Read",
    ),
    "a license that is a mapping": Found(
        front("license:\n  a: b\n"), ["pirate-style"], [("warning", "license is no text")]
    ),
    "metadata that is a text": Found(
        front("metadata: hello\n"), ["pirate-style"], [("warning", "metadata is no mapping")]
    ),
    "metadata in metadata": Found(
        front("metadata:\n  a:\n    b: c\n"), ["pirate-style"], [("note", "no texts")]
    ),
    "a frontmatter without end": Found(
        front(f"license: {'x' * 70_000}\n"), [], [("error", "frontmatter of SKILL.md has")]
    ),
    # --- names
    "another name than its folder": Found(
        one(text("other")), ["other"], [("warning", "not that of its folder")]
    ),
    "capital letters": Found(one(text("Pirate"), "Pirate"), ["Pirate"], [("warning", "small letters")]),
    "an underscore": Found(one(text("a_b"), "a_b"), ["a_b"], [("warning", "small letters")]),
    "a long name": Found(one(text("a" * 65), "a" * 65), ["a" * 65], [("warning", "65 characters")]),
    "a name that is far too long": Found(one(text("a" * 300)), [], [("error", "cannot be the name")]),
    "a name with a slash": Found(one(text("a/b")), [], [("error", "cannot be the name")]),
    "a name of two lines": Found(
        one('---\nname: "a\\nb"\ndescription: d\n---\nx'), [], [("error", "cannot be the name")]
    ),
    "two of one name": Found(
        {"a/SKILL.md": text("same"), "b/SKILL.md": text("same")},
        ["same"],
        [
            ("warning", "not that of its folder"),
            ("warning", "not that of its folder"),
            ("warning", "folders 'a' and 'b'"),
        ],
    ),
    # --- too much
    "a long description": Found(
        one(text(description="d" * 1_100)), ["pirate-style"], [("warning", "1,100 characters")]
    ),
    "a long compatibility": Found(
        front(f"compatibility: {'c' * 501}\n"), ["pirate-style"], [("warning", "501 characters")]
    ),
    "a long body": Found(one(text(body="x\n" * 501)), ["pirate-style"], [("warning", "501 lines")]),
    "a heavy body": Found(one(text(body="word " * 4_000)), ["pirate-style"], [("warning", "tokens")]),
    "a SKILL.md that is too large": Found(
        one(text(body="x" * 4_000)), [], [("error", "more than 4,000 bytes")], bounds=SMALL
    ),
    "a file that is too large": Found(
        one(text(), **{"big.bin": b"x" * 3_000, "small.txt": "x"}),
        ["pirate-style"],
        [("warning", "has 3,000 bytes")],
        resources=["small.txt"],
        bounds=SMALL,
    ),
    "too many files": Found(
        one(text(), **{f"{n}.txt": "x" for n in range(5)}),
        ["pirate-style"],
        [("warning", "more than 3 files")],
        resources=["0.txt", "1.txt", "2.txt"],
        bounds=SMALL,
    ),
    "too many bytes": Found(
        one(text(), **{f"{n}.txt": "x" * 2_000 for n in range(3)}),
        ["pirate-style"],
        [("warning", "more than 5,000 bytes")],
        resources=["0.txt", "1.txt"],
        bounds=SMALL,
    ),
    "too deep a file": Found(
        one(text(), **{"a/b/c/d.txt": "x", "a/b/c.txt": "x"}),
        ["pirate-style"],
        [("warning", "2 folders deep")],
        resources=["a/b/c.txt"],
        bounds=SMALL,
    ),
    "far too deep a file": Found(
        one(text(), **{"a/b/c/d/e/f.txt": "x"}),
        ["pirate-style"],
        [("warning", "too deep to be read")],
        resources=[],
        bounds=SMALL,
    ),
    "too long a path": Found(
        one(text(), **{f"{'p' * 61}": "x"}),
        ["pirate-style"],
        [("warning", "more than 60 bytes")],
        resources=[],
        bounds=SMALL,
    ),
    "too many skills": Found(
        {f"{n}/SKILL.md": text(str(n)) for n in range(5)},
        ["0", "1", "2"],
        [("warning", "5 skills; 3 are read")],
        bounds=SMALL,
    ),
    "too many files in all": Found(
        {f"a/{n:03}.txt": "x" for n in range(250)},
        [],
        [("warning", "more than 200 files and folders")],
        bounds=SMALL,
    ),
    # --- what is left out
    "folders of tools": Found(
        one(
            text(),
            **{
                ".git/config": "x",
                "node_modules/a.js": "x",
                "__pycache__/a.pyc": "x",
                "a.pyc": "x",
                ".DS_Store": "x",
            },
        ),
        ["pirate-style"],
        resources=[],
    ),
    "hidden files": Found(
        one(text(), **{".env": "KEY=1", "a/.secret/b": "x"}),
        ["pirate-style"],
        [("warning", "'.env' is left out: it is hidden"), ("warning", "hidden")],
        resources=[],
    ),
    "hidden folders beside skills": Found(one(text(), ".hidden"), []),
    "a link that leads out": Found(
        links, ["pirate-style"], [("warning", "'notes.txt' is a link")], resources=[]
    ),
    "a folder that is a link": Found(linked_folder, ["pirate-style"], [("warning", "It is a link")]),
    "a pipe": Found(pipe, ["pirate-style"], [("warning", "no file that can be read")], resources=[]),
    "a name that is no text": Found(
        strange_names, ["pirate-style"], [("warning", "characters that paths")], resources=[]
    ),
    "names with a backslash": Found(
        one(text(), **{"a\\b.txt": "x"}),
        ["pirate-style"],
        [("warning", "characters that paths")],
        resources=[],
    ),
    "twins in small and capital letters": Found(
        one(text(), **{"Guide.md": "a", "guide.md": "b"}),
        ["pirate-style"],
        [("note", "capital letters only")],
        resources=["Guide.md", "guide.md"],
    ),
    # --- where it is
    "skill.md": Found({"a/skill.md": text("a")}, [], [("error", "called 'skill.md'")]),
    "the root is a skill": Found({"SKILL.md": text()}, [], [("warning", "root is a skill itself")]),
    "one level too deep": Found({"group/a/SKILL.md": text("a")}, [], [("warning", "too deep to be found")]),
    "a skill within a skill is a file of it": Found(
        {"a/SKILL.md": text("a"), "a/b/SKILL.md": text("b")},
        ["a"],
    ),
    "a folder without a skill": Found({"docs/readme.md": "x"}, []),
    "characters that nobody sees": Found(
        one(text(body="Say arr.\u202e\n")), ["pirate-style"], [("note", "characters that nobody sees")]
    ),
    "bytes behind an ending of texts": Found(
        one(text(), **{"data.csv": BYTES}), ["pirate-style"], resources=["data.csv"]
    ),
}


@pytest.mark.memory_case(539)
@pytest.mark.parametrize("name", CASES)
async def test_a_directory_as_the_field_has_them(name: str, tmp_path: Path) -> None:
    case, root = CASES[name], tmp_path / "skills"
    root.mkdir()
    if callable(case.files):
        case.files(root)
    else:
        write(root, case.files)

    index = await index_of(DirectoryTree(root), case.bounds, "here")

    assert list(index.skills) == case.skills
    said = [(one.level, one.what) for one in index.diagnostics]
    assert len(said) == len(case.said), said
    for (level, what), (expected, words) in zip(said, case.said, strict=True):
        assert (level, words in what) == (expected, True), said
    assert all(one.source_id == "here" for one in index.diagnostics)
    if case.resources is not None:
        [skill_] = index.skills.values()
        assert [one.path for one in skill_.resources] == case.resources
    assert case.check is None or case.check(index)


async def test_what_may_not_be_read_is_said(tmp_path: Path) -> None:
    skill(tmp_path)
    skill(tmp_path, "secret")

    class Locked(DirectoryTree):  # root reads everything, so that no mode of a file would do
        async def read(self, path: str, most: int) -> bytes | None:
            if path.startswith("secret/"):
                raise PermissionError(13, "Permission denied")
            return await super().read(path, most)

    index = await index_of(Locked(tmp_path), Bounds())

    assert list(index.skills) == ["pirate-style"]
    [said] = index.diagnostics
    assert (said.level, said.skill) == ("error", "secret")
    assert said.what == "SKILL.md cannot be read: Permission denied."


async def test_a_directory_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        await index_of(DirectoryTree(tmp_path / "nowhere"), Bounds())
    assert not (tmp_path / "nowhere").exists()


async def test_only_files_that_changed_are_read_again(tmp_path: Path) -> None:
    skill(tmp_path, "a")
    skill(tmp_path, "b")
    read: list[str] = []

    class Watched(DirectoryTree):
        async def read(self, path: str, most: int) -> bytes | None:
            read.append(path)
            return await super().read(path, most)

    tree = Watched(tmp_path)
    first = await index_of(tree, Bounds())
    skill(tmp_path, "b", description="Something else entirely.")
    second = await index_of(tree, Bounds(), known=first.texts)

    assert read == ["a/SKILL.md", "b/SKILL.md", "b/SKILL.md"]
    assert second.skills["b"].description == "Something else entirely."
    assert second.marks != first.marks
