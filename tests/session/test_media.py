"""Taking heavy contents out of old messages."""

from __future__ import annotations

import base64
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everthink.messages import Message, copy_json, encode_json, parse_message
from everthink.session.media import Blob, Evicted, MediaEviction, aged, evicted, eviction_of
from tests.support.conversations import json_values, unhurried

LEAST = 32 * 1024
PICTURE = bytes(range(256)) * 160
"""40,960 bytes of no text."""


def data_url(data: bytes, media_type: str = "image/png") -> str:
    return f"data:{media_type};base64,{base64.b64encode(data).decode()}"


def file(url: str, media_type: str = "image/png") -> dict[str, Any]:
    return {"type": "file", "url": url, "mediaType": media_type, "filename": "a.png"}


def call(output: Any, **more: Any) -> dict[str, Any]:
    return {
        "type": "tool-t",
        "toolCallId": "c",
        "state": "output-available",
        "input": {},
        "output": output,
        **more,
    }


def message(*parts: dict[str, Any], id: str = "m1", **more: Any) -> Message:
    return Message(id, "assistant", list(parts), **more)


def taken(given: Message, least: int = LEAST, **more: Any) -> Evicted:
    found = evicted(given, min_part_bytes=least, **more)
    assert found is not None
    return found


# --- files


def test_a_file_becomes_a_marker_and_its_bytes_are_kept_as_trap_bytes_not_as_the_url() -> None:
    given = message(
        {"type": "text", "text": "look"}, file(data_url(PICTURE)), metadata={"k": 1}, created_text="t"
    )
    found = taken(given)
    assert found.message == message(
        {"type": "text", "text": "look"},
        {
            "type": "text",
            "text": "[evicted image/png, 40960 bytes; preserved at /attachments/evicted/m1-0.png]",
        },
        metadata={"k": 1},
        created_text="t",
    )
    assert found.blobs == (Blob("/attachments/evicted/m1-0.png", PICTURE, "image/png"),)
    assert (found.parts, found.bytes, found.externalized_bytes) == (1, len(data_url(PICTURE)), 40_960)


@pytest.mark.parametrize(
    ("url", "media_type", "data", "name", "kind"),
    [
        (data_url(PICTURE, "image/svg+xml"), "image/svg+xml", PICTURE, "m1-0.svgxml", "image/svg+xml"),
        (data_url(PICTURE, "IMAGE/PNG"), "", PICTURE, "m1-0.png", "image/png"),
        (data_url(PICTURE, "image/png;name=a"), "image/jpeg", PICTURE, "m1-0.jpeg", "image/jpeg"),
        (data_url(PICTURE).rstrip("="), "image/png", PICTURE, "m1-0.png", "image/png"),
        ("data:;base64," + "QUJD" * 10_000, "x/---", b"ABC" * 10_000, "m1-0.bin", "x/---"),
        ("data:," + "a%20" * 10_000, "", b"a " * 10_000, "m1-0.plain", "text/plain"),
        (
            "data:text/csv," + quote("ä,b\n" * 5000),
            "text/csv",
            "ä,b\n".encode() * 5000,
            "m1-0.csv",
            "text/csv",
        ),
    ],
)
def test_every_kind_of_data_url_is_decoded(
    url: str, media_type: str, data: bytes, name: str, kind: str
) -> None:
    found = taken(message(file(url, media_type)), least=10_000)
    assert found.blobs == (Blob(f"/attachments/evicted/{name}", data, kind),)


@pytest.mark.parametrize("broken", ["data:image/png;base64," + "?" * 40_000, "data:" + "x" * 40_000])
def test_what_cannot_be_decoded_is_kept_as_the_text_it_is(broken: str) -> None:
    found = taken(message(file(broken)))
    assert found.blobs == (Blob("/attachments/evicted/m1-0.txt", broken.encode(), "text/plain"),)


@pytest.mark.case(559)
@pytest.mark.memory_case(225)
@pytest.mark.parametrize(
    "part",
    [
        file("data:image/png;base64," + "A" * 1000),
        file("https://example.com/" + "x" * LEAST),
        {"type": "text", "text": "x" * 100_000},
        {"type": "reasoning", "text": "x" * 100_000},
        {"type": "data-a", "data": "x" * 100_000},
        call("x" * (LEAST - 1)),
        call({"rows": ["x" * 1000] * 100}),
        call(None),
        {"type": "tool-t", "toolCallId": "c", "state": "input-available", "input": {"text": "x" * 100_000}},
    ],
)
def test_small_ones_links_and_what_somebody_wrote_stay(part: dict[str, Any]) -> None:
    assert evicted(message(part), min_part_bytes=LEAST) is None


def test_the_limit_is_in_bytes_of_the_row() -> None:
    assert evicted(message(call("ä" * 50)), min_part_bytes=101) is None
    assert evicted(message(call("ä" * 500)), min_part_bytes=1000) is not None
    assert taken(message(call("ä" * 500)), least=1000).bytes == 1000


# --- outputs of tools


def test_texts_deep_in_an_output_become_markers_and_its_shape_stays() -> None:
    output = {
        "ok": True,
        "pages": [{"n": 1, "body": "x" * 40_000}, {"n": 2, "body": "short"}],
        "shot": data_url(PICTURE),
    }
    found = taken(message(call(output)))
    assert found.message.parts[0]["output"] == {
        "ok": True,
        "pages": [
            {"n": 1, "body": "[evicted 40000 bytes; preserved at /attachments/evicted/m1-0.txt]"},
            {"n": 2, "body": "short"},
        ],
        "shot": "[evicted image/png, 40960 bytes; preserved at /attachments/evicted/m1-1.png]",
    }
    assert found.blobs == (
        Blob("/attachments/evicted/m1-0.txt", b"x" * 40_000, "text/plain"),
        Blob("/attachments/evicted/m1-1.png", PICTURE, "image/png"),
    )
    assert found.parts == 2


def test_an_output_that_is_one_text_becomes_a_marker() -> None:
    found = taken(message(call("x" * 40_000)))
    assert found.message.parts == [call("[evicted 40000 bytes; preserved at /attachments/evicted/m1-0.txt]")]


def test_text_that_only_begins_like_a_data_url_is_text() -> None:
    said = "data: one, two, three" * 3000
    assert taken(message(call(said))).blobs[0] == Blob(
        "/attachments/evicted/m1-0.txt", said.encode(), "text/plain"
    )


@pytest.mark.case(558)
@pytest.mark.memory_case(226)
def test_dynamic_tools_are_treated_alike() -> None:
    part = {
        "type": "dynamic-tool",
        "toolName": "t",
        **{k: v for k, v in call("x" * 40_000).items() if k != "type"},
    }
    found = taken(message(part)).message.parts[0]
    assert found == {**part, "output": found["output"]}
    assert found["output"].startswith("[evicted 40000 bytes;")


@pytest.mark.case(558)
@pytest.mark.memory_case(226)
def test_what_is_nested_deeper_than_eight_levels_is_left() -> None:
    def nested(levels: int) -> Any:
        value: Any = "x" * 40_000
        for level in range(levels):
            value = [value] if level % 2 else {"in": value}
        return value

    assert evicted(message(call(nested(9))), min_part_bytes=LEAST) is None
    assert evicted(message(call(nested(100))), min_part_bytes=LEAST) is None
    assert taken(message(call(nested(8)))).parts == 1


# --- dropping, twice, and names


def test_dropping_makes_no_files_and_markers_without_a_path() -> None:
    found = taken(message(file(data_url(PICTURE)), call("x" * 40_000)), externalize=False)
    assert found.message.parts == [
        {"type": "text", "text": "[evicted image/png, 40960 bytes]"},
        call("[evicted 40000 bytes]"),
    ]
    assert (found.blobs, found.parts, found.externalized_bytes) == ((), 2, 0)


@pytest.mark.parametrize("least", [1, 60, LEAST])
@pytest.mark.parametrize("externalize", [True, False])
def test_a_second_time_finds_nothing(least: int, externalize: bool) -> None:
    given = message(file(data_url(PICTURE)), call(["x" * 40_000, "y" * 40_000]), file("data:,x"))
    once = taken(given, least=least, externalize=externalize)
    assert evicted(once.message, min_part_bytes=least, externalize=externalize) is None


def test_what_is_shorter_than_its_marker_would_be_stays() -> None:
    assert evicted(message(call("x" * 20), file("data:,short")), min_part_bytes=1) is None
    assert taken(message(call("x" * 30)), least=1, externalize=False).parts == 1


def test_what_is_taken_out_later_does_not_overwrite_what_was_kept_before() -> None:
    first = taken(message(call(["x" * 40_000, "y" * 9_000]))).message
    assert [blob.path for blob in taken(first, least=5000).blobs] == ["/attachments/evicted/m1-1.txt"]


def test_a_message_id_cannot_leave_its_folder_and_different_ids_have_different_files() -> None:
    ids = ["../../etc/passwd", "a/b", "a_b", "a~2fb", "a b", "ä", "..", "x" * 500, "x" * 501, "m-1", "m"]
    paths = [taken(message(call("x" * 40_000), id=id)).blobs[0].path for id in ids]
    assert len(set(paths)) == len(ids)
    for path in paths:
        folder, _, name = path.rpartition("/")
        assert folder == "/attachments/evicted"
        assert name.isascii()
        assert name not in (".", "..")
        assert len(name) < 120
    assert paths[0].endswith("/..~2f..~2fetc~2fpasswd-0.txt")


def test_sessions_may_keep_their_files_in_folders_of_their_own() -> None:
    found = taken(message(call("x" * 40_000)), folder="/attachments/evicted/s1")
    assert found.blobs[0].path == "/attachments/evicted/s1/m1-0.txt"


# --- whatever the message

heavy = st.builds(
    lambda piece, times: piece * times, st.sampled_from(["x", "ä", "ab ", "data:,"]), st.integers(0, 400)
)
urls = heavy.map(lambda said: data_url(said.encode())) | heavy.map(lambda said: "data:," + quote(said))
outputs = st.recursive(
    json_values | heavy | urls,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=12,
).filter(lambda value: b"\\ud" not in encode_json(value))
anything = st.lists(
    urls.map(file) | outputs.map(call) | heavy.map(lambda s: {"type": "text", "text": s}), max_size=5
)


@unhurried
@given(anything, st.integers(1, 800), st.booleans())
@pytest.mark.case(559)
@pytest.mark.memory_case(225)
def test_markers_shrink_any_message_and_never_change_the_given_one(
    parts: list[dict[str, Any]], least: int, externalize: bool
) -> None:
    given = message(*parts)
    before = copy_json(given.parts)
    found = evicted(given, min_part_bytes=least, externalize=externalize)
    assert given.parts == before
    if found is None:
        return
    assert len(encode_json(found.message)) < len(encode_json(given))
    assert [same_shape(a, b) for a, b in zip(found.message.parts, parts, strict=True)] == [True] * len(parts)
    assert len(found.blobs) == (found.parts if externalize else 0)
    assert len({blob.path for blob in found.blobs}) == len(found.blobs)
    written = encode_json(found.message).decode()
    for blob in found.blobs:
        assert f", {len(blob.data)} bytes; preserved at {blob.path}]" in written.replace(
            "[evicted ", "[evicted , "
        )
    assert evicted(found.message, min_part_bytes=least, externalize=externalize) is None
    assert parse_message(found.message, new_id=str) == found.message


def same_shape(after: Any, before: Any) -> bool:
    """The same keys, lengths and values, but for texts; a file may have become text."""
    if isinstance(before, dict):
        if before.get("type") == "file" and after.get("type") == "text":
            return after["text"].startswith("[evicted ")
        return after.keys() == before.keys() and all(same_shape(after[key], before[key]) for key in before)
    if isinstance(before, list):
        return len(after) == len(before) and all(map(same_shape, after, before))
    return after == before or (isinstance(before, str) and after.startswith("[evicted "))


# --- the setting, and which rows


@pytest.mark.case(560)
@pytest.mark.memory_case(224)
def test_the_setting_is_off_on_or_a_part_of_it() -> None:
    assert eviction_of(False) is None
    assert eviction_of(True) == eviction_of({}) == MediaEviction(8, LEAST, True, 64)
    assert eviction_of({"min_part_bytes": 10}) == MediaEviction(min_part_bytes=10)
    own = MediaEviction(externalize_to_workspace=False)
    assert eviction_of(own) is own


def test_at_least_four_messages_count_as_recent() -> None:
    assert [MediaEviction(keep_recent_messages=n).keep_recent_messages for n in (-1, 0, 3, 4, 9)] == [
        4,
        4,
        4,
        4,
        9,
    ]
    assert eviction_of({"keep_recent_messages": 1}) == MediaEviction(keep_recent_messages=4)


@pytest.mark.parametrize(
    ("setting", "problem"),
    [
        ({"keepRecent": 4}, "no field 'keepRecent'. Did you mean 'keep_recent_messages'"),
        ({"min_part_bytes": 0}, "min_part_bytes is 0, an int. It takes a whole number of at least 1"),
        ({"max_rows_per_pass": 0}, "max_rows_per_pass is 0, an int. It takes a whole number of at least 1"),
    ],
)
def test_a_setting_that_makes_no_sense_is_refused(setting: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        eviction_of(setting)


def test_only_large_rows_before_the_recent_ones_are_looked_at() -> None:
    stats = [(f"m{n}", LEAST if n % 2 else LEAST - 1) for n in range(12)]
    assert aged(stats, MediaEviction()) == ["m1", "m3"]
    assert aged(stats, MediaEviction(), seen={"m1"}) == ["m3"]
    assert aged(stats, MediaEviction(keep_recent_messages=0)) == ["m1", "m3", "m5", "m7"]
    assert aged(stats[:8], MediaEviction()) == []
    assert aged([], MediaEviction()) == []
