"""Files below a directory as documents: what is listed, and that nothing else can be reached."""

from __future__ import annotations

from pathlib import Path

import pytest

from everthink.context.directory import MAX_FILES
from everthink.context.providers import DirectoryProvider
from everthink.errors import ContextRefused, ContextUnavailable, InvalidContext

pytestmark = pytest.mark.anyio


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A directory of guides, with secrets beside it."""
    guides = tmp_path / "guides"
    (guides / "deep" / "er").mkdir(parents=True)
    (guides / ".hidden").mkdir()
    (tmp_path / "secret.md").write_text("# Secret\n")
    (tmp_path / "guides-too").mkdir()
    (tmp_path / "guides-too" / "near.md").write_text("# Near\n")
    (guides / "style.md").write_text("Intro.\n\n## House style ##\n\nShort words.\n")
    (guides / "deep" / "tone.md").write_text("---\ntitle: Tone\ndescription: 'No: shouting'\n---\n# Tone\n")
    (guides / "deep" / "er" / "bare.md").write_text("no heading")
    (guides / "notes.txt").write_text("# Not a guide")
    (guides / ".hidden" / "x.md").write_text("# Hidden")
    (guides / ".draft.md").write_text("# Draft")
    return guides


CATALOGUE = "- deep/er/bare.md\n- deep/tone.md: No: shouting\n- style.md: House style"


async def test_the_catalogue_has_the_matching_files_with_what_they_are_about(folder: Path) -> None:
    assert await DirectoryProvider(folder).get() == CATALOGUE


@pytest.mark.parametrize(
    ("pattern", "keys"),
    [
        ("*.md", ["style.md"]),
        ("**/*.txt", ["notes.txt"]),
        ("deep/**/*.md", ["deep/er/bare.md", "deep/tone.md"]),
        ("deep/**", ["deep/er/bare.md", "deep/tone.md"]),
        ("*/t?ne.md", ["deep/tone.md"]),
        ("**/*", ["deep/er/bare.md", "deep/tone.md", "notes.txt", "style.md"]),
    ],
)
async def test_a_pattern_chooses(folder: Path, pattern: str, keys: list[str]) -> None:
    told = await DirectoryProvider(folder, pattern).get()
    assert told is not None
    assert [line.removeprefix("- ").partition(":")[0] for line in told.splitlines()] == keys


async def test_a_document_is_its_whole_text_and_may_be_named_without_its_ending(folder: Path) -> None:
    provider = DirectoryProvider(folder)
    assert await provider.load("deep/er/bare.md") == "no heading"
    assert await provider.load("deep/er/bare") == "no heading"
    assert await provider.load("nobody.md") is None


@pytest.mark.parametrize(
    "key",
    [
        "../secret.md",
        "../secret",
        "deep/../../secret.md",
        "deep/../style.md",
        "./style.md",
        "deep//tone.md",
        "/style.md",
        "../guides-too/near.md",
        ".hidden/x.md",
        ".draft.md",
        "notes.txt",
        "deep",
        "",
        ".",
        "style.md\0",
        "a" * 5000,
        "out.md",
        "out/secret.md",
        "circle.md",
        "deep\\..\\..\\secret.md",
    ],
)
async def test_nothing_but_a_document_is_given_out(folder: Path, key: str) -> None:
    # Given links that lead out, and one that leads nowhere
    (folder / "out.md").symlink_to(folder.parent / "secret.md")
    (folder / "out").symlink_to(folder.parent)
    (folder / "circle.md").symlink_to(folder / "circle.md")
    provider = DirectoryProvider(folder)
    assert await provider.load(key) is None
    assert await provider.get() == CATALOGUE


async def test_an_absolute_key_is_no_key(folder: Path) -> None:
    for path in (folder / "style.md", folder.parent / "secret.md"):
        assert await DirectoryProvider(folder).load(str(path)) is None


async def test_a_link_within_the_directory_is_followed(folder: Path) -> None:
    (folder / "same.md").symlink_to(folder / "style.md")
    provider = DirectoryProvider(folder)
    assert "- same.md: House style" in (await provider.get() or "")
    assert await provider.load("same.md") == (folder / "style.md").read_text()


async def test_the_directory_itself_may_be_a_link(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(folder)
    provider = DirectoryProvider(tmp_path / "link")
    assert await provider.get() == CATALOGUE
    assert await provider.load("deep/er/bare.md") == "no heading"


async def test_what_is_too_long_or_not_text_is_told(folder: Path) -> None:
    (folder / "long.md").write_text("x" * 101)
    (folder / "picture.md").write_bytes(b"\xff\xfe\x00")
    provider = DirectoryProvider(folder, max_bytes=100)
    with pytest.raises(ContextRefused, match="longer than 100 bytes"):
        await provider.load("long.md")
    with pytest.raises(ContextUnavailable, match="not UTF-8"):
        await provider.load("picture.md")


async def test_broken_front_matter_costs_nothing_but_the_description(folder: Path) -> None:
    (folder / "odd.md").write_text("---\n: [\n---\n# Odd one\n")
    (folder / "open.md").write_text("---\ndescription: never closed\n")
    told = await DirectoryProvider(folder).get() or ""
    assert "- odd.md: Odd one" in told
    assert "- open.md\n" in told


async def test_too_many_files_are_told(tmp_path: Path) -> None:
    for number in range(MAX_FILES + 1):
        (tmp_path / f"{number}.md").touch()
    with pytest.raises(ContextUnavailable, match=f"More than {MAX_FILES} files"):
        await DirectoryProvider(tmp_path).get()


async def test_a_directory_that_is_not_there_is_told_unless_it_may_be_made(tmp_path: Path) -> None:
    with pytest.raises(ContextUnavailable, match="does not exist"):
        await DirectoryProvider(tmp_path / "no").get()
    provider = DirectoryProvider(tmp_path / "new", writable=True)
    assert await provider.get() is None
    await provider.set("first", "Hello.")
    assert await provider.get() == "- first.md"


@pytest.mark.parametrize("pattern", ["", "/etc/*", "../*.md", "a/../b"])
def test_a_pattern_that_leads_out_is_refused(tmp_path: Path, pattern: str) -> None:
    with pytest.raises(InvalidContext, match="no pattern"):
        DirectoryProvider(tmp_path, pattern)


async def test_a_written_document_is_listed_with_its_description_and_loaded(folder: Path) -> None:
    provider = DirectoryProvider(folder, writable=True)
    await provider.set("pirate-style", "Arr.", "Speak: like\na pirate")
    await provider.set("new/place.md", "# Place")
    await provider.set("style.md", "# Other style")

    told = await provider.get() or ""
    assert "- pirate-style.md: Speak: like a pirate" in told
    assert "- new/place.md: Place" in told
    assert "- style.md: Other style" in told
    loaded = await provider.load("pirate-style")
    assert loaded is not None
    assert loaded.endswith("---\n\nArr.")
    assert sorted(hidden_in(folder)) == [".draft.md", ".hidden"]


def hidden_in(folder: Path) -> list[str]:
    """What a write might have left behind, among what was there."""
    return [path.name for path in folder.iterdir() if path.name.startswith(".")]


@pytest.mark.parametrize(
    "key", ["../evil", "/evil", "out/evil", ".evil", "a/../../evil", "", "evil.sh/..", "out.md"]
)
async def test_nothing_is_written_outside(folder: Path, key: str) -> None:
    (folder / "out").symlink_to(folder.parent)
    (folder / "out.md").symlink_to(folder.parent / "secret.md")
    provider = DirectoryProvider(folder, writable=True)
    with pytest.raises(ContextRefused, match="cannot be the key"):
        await provider.set(key, "evil")
    assert (folder.parent / "secret.md").read_text() == "# Secret\n"
    assert not list(folder.parent.rglob("*evil*"))


async def test_a_directory_is_readonly_unless_it_is_said_otherwise(folder: Path) -> None:
    from everthink.context.blocks import abilities_of

    assert abilities_of(DirectoryProvider(folder)).can_set is False
    assert abilities_of(DirectoryProvider(folder, writable=True)).can_set is True
    with pytest.raises(ContextRefused, match="readonly"):
        await DirectoryProvider(folder).set("style.md", "x")


async def test_a_document_that_would_be_too_long_leaves_the_old_one(folder: Path) -> None:
    provider = DirectoryProvider(folder, writable=True, max_bytes=100)
    before = (folder / "style.md").read_text()
    with pytest.raises(ContextRefused, match="longer than 100 bytes"):
        await provider.set("style.md", "ü" * 51)
    assert (folder / "style.md").read_text() == before
