"""Large contents in an object store."""

from __future__ import annotations

import importlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from obstore.store import LocalStore, MemoryStore

from everthink.errors import MissingExtra, StoreFull, WorkspaceError
from everthink.testing.contracts.files.case import gathered, refused
from everthink.workspace import Workspace, WorkspaceLimits

from .support import Desk, desk

pytestmark = pytest.mark.anyio


@pytest.fixture
async def at(tmp_path: Path) -> AsyncIterator[Desk]:
    async with desk(tmp_path) as opened:
        yield opened


@pytest.fixture(params=["memory", "directory"])
def bucket(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    if request.param == "memory":
        return MemoryStore()
    (tmp_path / "bucket").mkdir()
    return LocalStore(tmp_path / "bucket")


def _names(bucket: Any) -> list[str]:
    import obstore

    return sorted(meta["path"] for page in obstore.list(bucket) for meta in page)


@pytest.mark.memory_case(252)
async def test_what_is_large_goes_to_the_object_store(at: Desk, bucket: Any) -> None:
    files = at.workspace(Workspace(objects=bucket, prefix="company/files", spill_from=10))
    small = await files.write_file("/small", "123456789")
    large = await files.write_file("/large", "1234567890")
    assert _names(bucket) == [f"company/files/Assistant%2Froom/{large.hash}"]
    assert small.hash not in _names(bucket)[0]
    assert await files.read_file("/large") == "1234567890"
    assert await files.read_file_bytes("/large", start=3, length=4) == b"4567"
    assert await files.read_file_bytes("/large", start=9, length=40) == b"0"
    assert await files.read_file_bytes("/large", start=90, length=4) == b""
    assert await gathered(await files.read_file_stream("/large")) == b"1234567890"
    assert (await files.get_workspace_info()).object_file_count == 1
    assert [event.payload().get("storage") for event in at.events[:2]] == ["row", "object"]
    hits = await files.grep("890")
    assert [one.path for one in hits.found] == ["/large"]


@pytest.mark.memory_case(614)
async def test_a_file_that_grows_goes_there_and_one_that_shrinks_comes_back(at: Desk, bucket: Any) -> None:
    files = at.workspace(Workspace(objects=bucket, spill_from=10, limits=WorkspaceLimits(history=1)))
    await files.write_file("/a", "12345")
    assert _names(bucket) == []
    await files.append_file("/a", "67890")
    assert len(_names(bucket)) == 1
    assert await files.read_file("/a") == "1234567890"
    for n in range(3):
        await at.clock.advance(1)
        await files.write_file("/a", f"short {n}")
    await files.sweep()
    assert _names(bucket) == []
    assert await files.read_file("/a") == "short 2"


async def test_copies_and_moves_leave_the_object_where_it_is(at: Desk, bucket: Any) -> None:
    files = at.workspace(Workspace(objects=bucket, spill_from=3))
    await files.write_file("/a/x", "content")
    before = _names(bucket)
    await files.cp("/a", "/b", recursive=True)
    await files.mv("/a", "/c")
    await files.rm("/b", recursive=True)
    assert _names(bucket) == before
    assert await files.read_file("/c/x") == "content"


async def test_a_commit_that_fails_leaves_an_object_that_is_swept(at: Desk, bucket: Any) -> None:
    files = at.workspace(Workspace(objects=bucket, spill_from=3))
    await files.write_file("/kept", "kept content")
    at.store.fail(StoreFull("full"))
    with pytest.raises(StoreFull):
        await files.write_file("/a", "content")
    assert len(_names(bucket)) == 2
    assert await files.read_file("/a") is None
    assert await files.sweep() == 1
    assert len(_names(bucket)) == 1
    assert await files.read_file("/kept") == "kept content"
    await files.write_file("/a", "content")
    assert await files.read_file("/a") == "content"


async def test_an_object_that_is_there_already_is_as_good_as_a_new_one(at: Desk, bucket: Any) -> None:
    files = at.workspace(Workspace(objects=bucket, spill_from=3))
    at.store.fail(StoreFull("full"))
    with pytest.raises(StoreFull):
        await files.write_file("/a", "content")
    await files.write_file("/a", "content")
    assert await files.read_file("/a") == "content"


async def test_agents_share_a_bucket_and_no_object(at: Desk, bucket: Any) -> None:
    definition = Workspace(objects=bucket, spill_from=3)
    one, other = at.workspace(definition), at.workspace(definition, agent="Assistant/other")
    await one.write_file("/a", "content")
    await other.write_file("/a", "content")
    await other.rm("/a")
    assert len(_names(bucket)) == 2
    await other.sweep()
    assert await one.read_file("/a") == "content"


async def test_an_object_that_was_lost_is_said_to_be(at: Desk, bucket: Any) -> None:
    import obstore

    files = at.workspace(Workspace(objects=bucket, spill_from=3))
    await files.write_file("/a", "content")
    obstore.delete(bucket, _names(bucket))
    with pytest.raises(WorkspaceError, match=r"not in the object store any more"):
        await files.read_file("/a")
    with refused("EIO"):
        await gathered(await files.read_file_stream("/a"))
    assert await files.exists("/a")


async def test_without_its_object_store_a_file_is_not_taken_for_empty(at: Desk, bucket: Any) -> None:
    await at.workspace(Workspace(objects=bucket, spill_from=3)).write_file("/a", "content")
    with pytest.raises(WorkspaceError, match=r"this workspace has none.*Workspace\(objects="):
        await at.workspace().read_file("/a")


@pytest.mark.memory_case(232)
async def test_another_threshold_is_only_for_what_is_written_from_then_on(at: Desk, bucket: Any) -> None:
    await at.workspace(Workspace(objects=bucket, spill_from=3)).write_file("/a", "content")
    later = at.workspace(Workspace(objects=bucket, spill_from=1_000))
    assert await later.read_file("/a") == "content"
    await later.append_file("/a", " and more")
    assert await later.read_file("/a") == "content and more"
    assert (await later.get_workspace_info()).object_file_count == 0


async def test_the_library_is_asked_for_with_its_install_line(
    at: Desk, bucket: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> Any:
        raise ModuleNotFoundError(name=name)

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(MissingExtra, match=r"everthink\[objects\]"):
        at.workspace(Workspace(objects=bucket))
