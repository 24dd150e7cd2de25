"""A file that outgrows this is usually two concepts sharing a name."""

from __future__ import annotations

from .source import modules

LONGEST = 900


def test_no_module_is_longer_than_one_can_read() -> None:
    lines = {module.place: len(module.path.read_text(encoding="utf-8").splitlines()) for module in modules()}
    assert {place: count for place, count in lines.items() if count > LONGEST} == {}
