"""A file that outgrows this is usually two concepts sharing a name; a room that does, two rooms."""

from __future__ import annotations

from .source import modules

LONGEST = 900

MOST_LINES, MOST_MODULES = 4_000, 18
"""What a room has at most: what one can know by heart."""

# Rooms that are larger, with their size in lines and modules as it is. These numbers only ever go down, and a
# room that has shrunk to the size of the others leaves the list.
LARGER: dict[str, tuple[int, int]] = {}

# A box of tools for others; nobody has to know all of it.
FREE = {"testing"}


def sizes() -> dict[str, tuple[int, int]]:
    """Lines and modules of every room that is a folder. A package's empty file is no module."""
    found: dict[str, tuple[int, int]] = {}
    for module in modules():
        lines = len(module.path.read_text(encoding="utf-8").splitlines())
        if lines and "." in module.short:
            before = found.get(module.room, (0, 0))
            found[module.room] = (before[0] + lines, before[1] + 1)
    return found


def is_large(size: tuple[int, int]) -> bool:
    return size[0] > MOST_LINES or size[1] > MOST_MODULES


def test_no_module_is_longer_than_one_can_read() -> None:
    lines = {module.place: len(module.path.read_text(encoding="utf-8").splitlines()) for module in modules()}
    assert {place: count for place, count in lines.items() if count > LONGEST} == {}


def test_no_room_is_larger_than_one_can_know() -> None:
    large = {room: size for room, size in sizes().items() if is_large(size) and room not in FREE}
    grown = {
        room: size
        for room, size in large.items()
        if any(now > bound for now, bound in zip(size, LARGER.get(room, (0, 0)), strict=True))
    }
    assert grown == {}, f"a room is over {MOST_LINES} lines or {MOST_MODULES} modules, or has grown: {grown}"


def test_no_room_is_excused_that_has_become_small() -> None:
    found = sizes()
    small = {room: found.get(room) for room in LARGER if room not in found or not is_large(found[room])}
    assert small == {}, f"take them out of LARGER: {small}"
