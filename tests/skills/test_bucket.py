"""Skills in a bucket: what is read when, and what its fingerprint tells."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from everthink import skills
from everthink.errors import SkillError
from everthink.testing import ManualClock

from .build import BYTES, text

pytestmark = pytest.mark.anyio

obstore = pytest.importorskip("obstore")
from obstore.store import MemoryStore  # noqa: E402 - only where there is one


class Bucket:
    """A bucket in memory that remembers what was read of it."""

    def __init__(self, **files: str | bytes) -> None:
        self.store = MemoryStore()
        self.read: list[str] = []

    def put(self, path: str, content: str | bytes) -> None:
        obstore.put(self.store, path, content.encode() if isinstance(content, str) else content)


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Bucket:
    made = Bucket()
    get = obstore.get_async

    async def watched(store: Any, path: str, **options: Any) -> Any:
        made.read.append(path)
        return await get(store, path, **options)

    monkeypatch.setattr(obstore, "get_async", watched)
    made.put("skills/beta/SKILL.md", text("beta", "About beta."))
    made.put("skills/alpha/SKILL.md", text("alpha", "About alpha."))
    made.put("skills/alpha/references/guide.md", "# Guide\n")
    made.put("skills/alpha/assets/logo.png", BYTES)
    made.put("skills/deep/er/SKILL.md", text("er"))
    made.put("skills/SKILL.md", text("root"))
    made.put("other/gamma/SKILL.md", text("gamma"))
    made.put("skillset/delta/SKILL.md", text("delta"))
    return made


@pytest.mark.memory_case(529)
async def test_folders_below_the_prefix_are_listed_reading_their_skill_files_alone(bucket: Bucket) -> None:
    source = skills.object_store(bucket.store, prefix="skills")

    assert [one.name for one in await source.list()] == ["alpha", "beta"]
    assert sorted(bucket.read) == ["skills/alpha/SKILL.md", "skills/beta/SKILL.md"]
    assert source.id == "objects:skills/"
    assert skills.object_store(bucket.store).id == "objects:/"


@pytest.mark.memory_case(530)
async def test_a_skill_has_its_instructions_and_its_files_in_order(bucket: Bucket) -> None:
    source = skills.object_store(bucket.store, prefix="skills/")

    loaded = await source.load("alpha")

    assert loaded is not None
    assert loaded.body == "Say arr.\n"
    assert [(one.path, one.kind, one.size, one.encoding, one.media_type) for one in loaded.resources] == [
        ("assets/logo.png", "asset", 256, "base64", "image/png"),
        ("references/guide.md", "reference", 8, "text", "text/markdown"),
    ]


@pytest.mark.memory_case(531)
@pytest.mark.memory_case(532)
async def test_files_are_fetched_when_they_are_asked_for(bucket: Bucket) -> None:
    source = skills.object_store(bucket.store, prefix="skills/")
    await source.list()
    bucket.read.clear()

    guide = await source.read_resource("alpha", "references/guide.md")
    logo = await source.read_resource("alpha", "assets/logo.png")

    assert guide is not None
    assert guide.content == "# Guide\n"
    assert logo is not None
    assert (logo.encoding, base64.b64decode(logo.content)) == ("base64", BYTES)
    assert await source.read_resource("alpha", "references/none.md") is None
    assert await source.read_resource("alpha", "../beta/SKILL.md") is None
    assert bucket.read == ["skills/alpha/references/guide.md", "skills/alpha/assets/logo.png"]


@pytest.mark.memory_case(533)
async def test_an_allowlist_is_about_the_names_that_the_skills_say(bucket: Bucket) -> None:
    bucket.put("skills/folder/SKILL.md", text("named-otherwise"))

    source = skills.object_store(bucket.store, prefix="skills/", skills=["named-otherwise", "beta"])

    assert [one.name for one in await source.list()] == ["beta", "named-otherwise"]
    assert await source.load("alpha") is None
    assert await source.read_resource("alpha", "references/guide.md") is None


@pytest.mark.memory_case(534)
async def test_the_fingerprint_tells_of_what_metadata_tells(bucket: Bucket) -> None:
    source = skills.object_store(bucket.store, prefix="skills/", refresh_interval=0)
    assert source.fingerprint == source.id
    await source.list()
    first = source.fingerprint
    await source.refresh()
    assert source.fingerprint == first

    bucket.put("skills/alpha/references/guide.md", "# Guide 2\n")
    await source.refresh()

    assert source.fingerprint != first
    assert first.startswith(f"{source.id}:")


@pytest.mark.memory_case(535)
async def test_it_is_looked_at_again_after_a_while(bucket: Bucket) -> None:
    clock = ManualClock()
    source = skills.object_store(bucket.store, prefix="skills/", clock=clock)
    await source.list()
    bucket.put("skills/alpha/SKILL.md", text("alpha", "Another.", "Other words."))

    await clock.advance(59)
    await source.refresh()
    before = await source.load("alpha")
    await clock.advance(1)
    bucket.read.clear()
    after = await source.load("alpha")

    assert before is not None
    assert after is not None
    assert (before.body, after.body) == ("Say arr.\n", "Other words.")
    assert bucket.read == ["skills/alpha/SKILL.md"]


@pytest.mark.memory_case(536)
async def test_contents_tell_where_metadata_does_not(bucket: Bucket) -> None:
    source = skills.object_store(bucket.store, prefix="skills/", fingerprint="content", refresh_interval=0)
    await source.list()
    first = source.fingerprint
    bucket.put("skills/alpha/references/guide.md", "# Guide\n")  # the same, at another time
    await source.refresh()
    assert source.fingerprint == first

    bucket.put("skills/alpha/assets/logo.png", BYTES[::-1])
    await source.refresh()
    second = source.fingerprint
    bucket.put("skills/alpha/references/guide.md", "# Guido\n")
    await source.refresh()

    assert len({first, second, source.fingerprint}) == 3


async def test_a_bucket_that_cannot_be_asked_is_said_in_our_words(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = skills.object_store(bucket.store, prefix="skills/", refresh_interval=0)
    await source.list()

    def broken(*args: Any, **options: Any) -> Any:
        raise RuntimeError("token=secret")

    monkeypatch.setattr(obstore, "list", broken)

    with pytest.raises(SkillError, match=r"could not be listed \(RuntimeError\)"):
        await source.refresh()
    assert await source.load("alpha") is not None


async def test_more_objects_than_are_looked_at_are_said(bucket: Bucket) -> None:
    source = skills.object_store(bucket.store, bounds=skills.Bounds(entries=3))

    await source.list()

    assert "more than 3 objects" in source.diagnostics[0].what
