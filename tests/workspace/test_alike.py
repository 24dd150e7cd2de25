"""Random edits on several backends at once: they refuse the same ones, and end with the same tree."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from everthink.errors import WorkspaceError
from everthink.workspace import (
    Copy,
    DiskFiles,
    Edit,
    Files,
    Link,
    MakeFolder,
    MemoryFiles,
    MountedFiles,
    Move,
    Put,
    Remove,
)

from .support import Desk, desk

pytestmark = pytest.mark.anyio

NAMES = ["a", "b", "c", "a.b", "a0", "é"]


def _path(dice: random.Random) -> str:
    return "/" + "/".join(dice.choices(NAMES, k=dice.randint(0 if dice.random() < 0.1 else 1, 3)))


def _edit(dice: random.Random) -> Edit:
    path, other = _path(dice), _path(dice)
    return dice.choice(
        [
            Put(path, dice.choice([b"x", b"\0", b"", other.encode()])),
            Put(path, other.encode(), if_hash=""),
            MakeFolder(path, dice.random() < 0.7),
            Remove(path, dice.random() < 0.5),
            Move(path, other),
            Copy(path, other),
            Link(path, dice.choice([other, "a", "../b"])),
        ]
    )


async def _said(files: Files, edits: list[Edit]) -> object:
    try:
        changes = await files.apply(edits)
    except WorkspaceError as error:
        return error.code, str(error)
    return [(change.change, change.path, change.kind) for change in changes]


async def _tree(files: Files) -> list[tuple[str, str, str | None, bytes | None]]:
    return [
        (entry.path, entry.kind, entry.target, data) async for entry, data in files.scan("/", contents=True)
    ]


@pytest.fixture
async def at(tmp_path: Path) -> AsyncIterator[Desk]:
    async with desk(tmp_path) as opened:
        yield opened


@pytest.mark.parametrize("seed", range(16))
async def test_backends_agree(seed: int, at: Desk, tmp_path: Path) -> None:
    dice = random.Random(seed)
    memory = MemoryFiles()
    others: dict[str, Files] = {
        "stored": at.workspace().files,
        "disk": DiskFiles(tmp_path / "one"),
        "part by part": DiskFiles(tmp_path / "other", openat2=False),
        "mounted": MountedFiles({"/": MemoryFiles()}),
    }
    for number in range(60):
        edits = [_edit(dice) for _ in range(dice.choice([1, 1, 1, 2, 4]))]
        said = await _said(memory, edits)
        for name, files in others.items():
            assert await _said(files, edits) == said, (name, number, edits)
        tree = await _tree(memory)
        for name, files in others.items():
            assert await _tree(files) == tree, (name, number, edits)


@pytest.mark.parametrize("seed", range(8))
async def test_every_state_on_the_way_can_be_restored(seed: int, at: Desk) -> None:
    dice = random.Random(seed)
    memory, stored = MemoryFiles(), at.workspace().files
    states = {0: await _tree(memory)}
    for _ in range(16):
        edits = [_edit(dice)]
        await _said(memory, edits)
        await _said(stored, edits)
        changes = await memory.changes()
        states[changes[-1].seq if changes else 0] = await _tree(memory)
    assert hasattr(stored, "restore")
    for seq in dice.sample(sorted(states), min(len(states), 15)):
        for files in (memory, stored):
            await files.restore(seq)  # type: ignore[union-attr]
            assert await _tree(files) == states[seq], seq
