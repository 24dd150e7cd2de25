"""Media types, by name and by bytes."""

from __future__ import annotations

import pytest

from everthink.media_types import media_type_of, sniffed


@pytest.mark.parametrize(
    ("path", "data", "media_type"),
    [
        ("/a.md", b"x", "text/markdown"),
        ("/A.JSON", b"\0", "application/json"),
        ("/a.b/c", b"text", "text/plain"),
        ("/noext", b"a\0b", "application/octet-stream"),
        ("/a.unknown", "ü".encode(), "text/plain"),
        ("/.png", b"x", "image/png"),
    ],
)
def test_a_name_tells_else_the_bytes(path: str, data: bytes, media_type: str) -> None:
    assert media_type_of(path, data) == media_type


@pytest.mark.parametrize(
    ("data", "media_type"),
    [
        (b"\x89PNG\r\n\x1a\nrest", "image/png"),
        (b"\xff\xd8\xff\xe0", "image/jpeg"),
        (b"GIF87a", "image/gif"),
        (b"GIF89a...", "image/gif"),
        (b"RIFF\0\0\0\0WEBPVP8 ", "image/webp"),
        (b"RIFF\0\0\0\0WAVE", "application/octet-stream"),
        (b"%PDF-1.7", "application/pdf"),
        (b"<?xml version='1.0'?><svg>", "image/svg+xml"),
        (b" " * 600 + b"<svg>", "text/plain"),
        (b"", "text/plain"),
        ("ä".encode() * 3_000, "text/plain"),
        (b"x" * 1_000 + b"\xff", "text/plain"),
        (b"x" * 10 + b"\xff", "application/octet-stream"),
        (b"x\0", "application/octet-stream"),
    ],
)
def test_bytes_tell(data: bytes, media_type: str) -> None:
    assert sniffed(data) == media_type
