"""Objects in a bucket as documents, on obstore's memory and local stores."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from everthink.context.object_store import ObjectStoreProvider
from everthink.errors import ContextRefused, ContextUnavailable, InvalidContext, MissingExtra

obstore = pytest.importorskip("obstore")

pytestmark = pytest.mark.anyio


@pytest.fixture
def bucket() -> Any:
    """A bucket with skills and other things."""
    from obstore.store import MemoryStore

    store = MemoryStore()
    for path, description in {
        "skills/pirate": "Speak like a pirate",
        "skills/deep/polite": None,
        "skills/brief": None,
        "skills-old/gone": None,
        "other": None,
    }.items():
        attributes = {"description": description} if description else None
        obstore.put(store, path, f"text of {path}".encode(), attributes=attributes)
    return store


@pytest.mark.memory_case(154)
async def test_the_list_has_what_is_allowed_below_the_prefix(bucket: Any) -> None:
    provider = ObjectStoreProvider(
        bucket, prefix="skills/", keys=["pirate", "deep/polite", "skills/brief", "other"]
    )
    assert await provider.get() == "- deep/polite\n- pirate: Speak like a pirate"


@pytest.mark.memory_case(156)
@pytest.mark.parametrize("keys", [None, [], ()])
async def test_without_a_list_of_keys_all_are_there(bucket: Any, keys: Any) -> None:
    provider = ObjectStoreProvider(bucket, prefix="skills/", keys=keys)
    assert await provider.get() == "- brief\n- deep/polite\n- pirate: Speak like a pirate"
    assert await provider.load("deep/polite") == "text of skills/deep/polite"


async def test_a_prefix_need_not_be_a_folder(bucket: Any) -> None:
    assert await ObjectStoreProvider(bucket, prefix="skills/d").get() == "- eep/polite"
    assert await ObjectStoreProvider(bucket, prefix="skills-").get() == "- old/gone"
    everything = await ObjectStoreProvider(bucket).get()
    assert everything is not None
    assert "- other" in everything


async def test_an_empty_bucket_has_no_list(bucket: Any) -> None:
    assert await ObjectStoreProvider(bucket, prefix="nothing/").get() is None


@pytest.mark.memory_case(155)
async def test_a_key_that_is_not_allowed_is_not_fetched(bucket: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    # Given a provider that notes what it fetches
    fetched: list[str] = []
    fetch = obstore.get_async

    async def noted(store: Any, path: str, **options: Any) -> Any:
        fetched.append(path)
        return await fetch(store, path, **options)

    monkeypatch.setattr(obstore, "get_async", noted)
    provider = ObjectStoreProvider(bucket, prefix="skills/", keys=["pirate"])

    assert await provider.load("brief") is None
    assert fetched == []
    assert await provider.load("pirate") == "text of skills/pirate"
    assert fetched == ["skills/pirate"]


@pytest.mark.parametrize("key", ["nobody", "../other", "/pirate", "", "deep//polite", "deep", "."])
async def test_what_is_not_there_gives_nothing(bucket: Any, key: str) -> None:
    assert await ObjectStoreProvider(bucket, prefix="skills/").load(key) is None


@pytest.mark.memory_case(157)
@pytest.mark.parametrize("description", ["Few words", "Grüße, 用户: 100% =? ok", "two\nlines"])
async def test_a_write_ignores_the_list_and_keeps_the_description(bucket: Any, description: str) -> None:
    await ObjectStoreProvider(bucket, prefix="skills/", keys=["pirate"]).set("new", "Hm. é", description)
    provider = ObjectStoreProvider(bucket, prefix="skills/", keys=["new"])
    assert await provider.get() == f"- new: {' '.join(description.split())}"
    assert await provider.load("new") == "Hm. é"
    raw = (await obstore.get_async(bucket, "skills/new")).attributes["description"]
    assert raw.isascii()
    assert raw.isprintable()


async def test_a_local_store_has_documents_without_descriptions(tmp_path: Path) -> None:
    from obstore.store import LocalStore

    provider = ObjectStoreProvider(LocalStore(tmp_path), prefix="skills/")
    await provider.set("a/b.md", "text", "about")
    await provider.set("c.md", "more")
    assert await provider.get() == "- a/b.md\n- c.md"
    assert await provider.load("a/b.md") == "text"
    assert await provider.load("a") is None


async def test_more_objects_than_a_page_are_all_listed() -> None:
    from obstore.store import MemoryStore

    store = MemoryStore()
    for number in range(120):
        obstore.put(store, f"k{number:03}", b"x")
    told = await ObjectStoreProvider(store).get()
    assert told is not None
    assert told.splitlines() == [f"- k{number:03}" for number in range(120)]


@pytest.mark.parametrize("key", ["", "/", "a//b", "../x"])
async def test_a_key_that_no_object_can_have_is_refused(bucket: Any, key: str) -> None:
    with pytest.raises(ContextRefused, match="cannot be the key"):
        await ObjectStoreProvider(bucket).set(key, "x")


async def test_what_is_too_long_or_not_text_is_told(bucket: Any) -> None:
    obstore.put(bucket, "picture", b"\xff\xfe")
    with pytest.raises(ContextUnavailable, match="not UTF-8"):
        await ObjectStoreProvider(bucket).load("picture")
    with pytest.raises(ContextRefused, match="longer than 3 bytes"):
        await ObjectStoreProvider(bucket, max_bytes=3).load("other")


async def test_a_store_that_cannot_be_reached_is_told_without_its_address() -> None:
    from obstore.store import HTTPStore

    store = HTTPStore.from_url(
        "http://127.0.0.1:9/bucket", client_options={"allow_http": True}, retry_config={"max_retries": 0}
    )
    provider = ObjectStoreProvider(store)
    with pytest.raises(ContextUnavailable, match="could not be read") as caught:
        await provider.load("x")
    assert "127.0.0.1" not in str(caught.value)
    assert caught.value.__cause__ is not None


def test_one_text_is_no_list_of_keys(bucket: Any) -> None:
    with pytest.raises(InvalidContext, match="list of keys"):
        ObjectStoreProvider(bucket, keys="pirate")


def test_without_the_package_the_line_that_installs_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(MissingExtra, match=r"pip install \"everthink\[objects\]\""):
        ObjectStoreProvider(object())
