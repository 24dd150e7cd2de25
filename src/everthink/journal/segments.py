"""A segment's text: the chunks of one commit, packed.

    journal/writer --pack--> segments.chunks (TEXT) --unpack--> replay, recovery, inspector

A run of deltas of one block is kept as one entry with their texts, which takes a third of the
space. Unpacking gives back every chunk as it was shown, so numbers stay dense.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from .. import chunks as ui
from ..messages import decode_json, encode_json

__all__ = ["pack", "readable", "unpack"]

log = logging.getLogger("everthink.turn")

_DELTA = {"t": ui.TextDelta, "r": ui.ReasoningDelta}
_DELTAS = (ui.TextDelta, ui.ReasoningDelta)


def pack(chunks: Sequence[ui.Chunk], bodies: Sequence[str]) -> str:
    """The chunks (and the same as JSON) as one JSON list. A run of deltas is `[kind, id, text, text, …]`."""
    entries: list[str] = []
    run: list[str] | None = None
    run_key: tuple[str, str] | None = None
    for index, chunk in enumerate(chunks):
        if isinstance(chunk, _DELTAS) and chunk.provider_metadata is None:
            key = ("t" if type(chunk) is ui.TextDelta else "r", chunk.id)
            if run is not None and key == run_key:
                run.append(chunk.delta)
                continue
            if run is not None:
                entries.append(encode_json(run).decode())
            run, run_key = [*key, chunk.delta], key
            continue
        if run is not None:
            entries.append(encode_json(run).decode())
            run = run_key = None
        entries.append(bodies[index])
    if run is not None:
        entries.append(encode_json(run).decode())
    return f"[{','.join(entries)}]"


def unpack(text: str) -> list[ui.Chunk]:
    """The chunks of a segment, each as it was put. Raises `msgspec.DecodeError` when it holds none."""
    chunks: list[ui.Chunk] = []
    for entry in decode_json(text, list[msgspec.Raw]):
        raw = bytes(entry)
        if raw.lstrip()[:1] == b"[":
            kind, id, *texts = _run(raw)
            make: Any = _DELTA[kind]
            chunks += [make(id, delta) for delta in texts]
        else:
            chunks.append(ui.decode(raw))
    return chunks


def _run(raw: bytes) -> list[str]:
    run = _decode_run(raw)
    if len(run) < 2 or run[0] not in _DELTA:
        raise msgspec.DecodeError(f"{raw[:40]!r} is no run of deltas")
    return run


def readable(texts: Iterable[str]) -> list[ui.Chunk]:
    """The chunks of a turn's segments up to the first that cannot be read: for whoever only looks."""
    found: list[ui.Chunk] = []
    for number, text in enumerate(texts):
        try:
            found += unpack(text)
        except msgspec.DecodeError as error:
            log.warning("segment %d of a turn and what follows is not shown: %s", number, error)
            break
    return found


_decode_run = msgspec.json.Decoder(list[str]).decode
