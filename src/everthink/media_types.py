"""Which media type a file has that nobody gave one: by its name, or by its bytes.

Pure, and the same on every machine: the tables of the system are not asked.
"""

from __future__ import annotations

__all__ = ["BYTES", "PDF", "PDF_SIGN", "SVG", "TEXT", "media_type_of", "signed_as", "sniffed", "text_of"]

TEXT, BYTES = "text/plain", "application/octet-stream"
PDF, PDF_SIGN, SVG = "application/pdf", b"%PDF-", "image/svg+xml"

_BY_NAME = {
    "bmp": "image/bmp",
    "css": "text/css",
    "csv": "text/csv",
    "gif": "image/gif",
    "gz": "application/gzip",
    "htm": "text/html",
    "html": "text/html",
    "ico": "image/vnd.microsoft.icon",
    "jpeg": "image/jpeg",
    "jpg": "image/jpeg",
    "js": "text/javascript",
    "json": "application/json",
    "md": "text/markdown",
    "mjs": "text/javascript",
    "mp3": "audio/mpeg",
    "mp4": "video/mp4",
    "pdf": "application/pdf",
    "png": "image/png",
    "svg": "image/svg+xml",
    "tar": "application/x-tar",
    "tsv": "text/tab-separated-values",
    "wav": "audio/wav",
    "webp": "image/webp",
    "xml": "application/xml",
    "yaml": "application/yaml",
    "yml": "application/yaml",
    "zip": "application/zip",
}


def media_type_of(path: str, data: bytes) -> str:
    """What the ending of the name says, else whether the bytes are text."""
    _, dot, ending = path.rpartition("/")[2].rpartition(".")
    if dot and (known := _BY_NAME.get(ending.lower())):
        return known
    return BYTES if text_of(data) is None else TEXT


_BY_BEGINNING = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (PDF_SIGN, PDF),
)


def sniffed(data: bytes) -> str:
    """What the bytes themselves say: a picture, a PDF, a text, or just bytes."""
    if (signed := signed_as(data)) is not None:
        return signed
    if b"<svg" in data[:512]:
        return SVG
    start = data[:4096]
    if b"\0" in start:
        return BYTES
    unreadable = start.decode("utf-8", "replace").count("\ufffd")
    return BYTES if unreadable and unreadable * 100 >= len(start) else TEXT


def signed_as(data: bytes) -> str | None:
    """The picture or PDF that the first bytes say it is; `None`: they say nothing of the kind."""
    for beginning, media_type in _BY_BEGINNING:
        if data.startswith(beginning):
            return media_type
    return "image/webp" if data[:4] == b"RIFF" and data[8:12] == b"WEBP" else None


def text_of(data: bytes) -> str | None:
    """The bytes as a text, when they are one: UTF-8 without NUL. A database can keep it as it is."""
    if b"\0" in data:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None
