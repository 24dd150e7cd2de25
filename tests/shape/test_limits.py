"""The table of bounds in docs/security.md is the one in the code."""

from __future__ import annotations

import re
from dataclasses import fields

from everthink.limits import KIB, MIB, Limits

from .source import ROOT


def written(value: float) -> str:
    """A number as the table has it."""
    if value % MIB == 0:
        return f"{int(value // MIB)} MiB"
    if value % KIB == 0 and value >= 64 * KIB:
        return f"{int(value // KIB)} KiB"
    return f"{value:,.0f}"


def test_every_bound_is_in_the_table_with_its_default() -> None:
    page = (ROOT / "docs" / "security.md").read_text()
    section = page.partition("## Bounds\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \| ([^|]+) \| [^|]+ \| [^|]+ \|$", section, re.M)
    assert rows == [(field.name, written(getattr(Limits(), field.name))) for field in fields(Limits)]
