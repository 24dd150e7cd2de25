"""`--shuffle SEED`: another order, the same for the same number, in which files stay whole."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.conftest import pytest_collection_modifyitems


def ordered(seed: int | None) -> list[tuple[str, int]]:
    items: list[Any] = [
        SimpleNamespace(path=Path(file), number=number, get_closest_marker=lambda name: None)
        for file in "abcdef"
        for number in range(6)
    ]
    config: Any = SimpleNamespace(getoption=lambda name: {"--shuffle": seed}[name])
    pytest_collection_modifyitems(config, items)
    return [(str(item.path), item.number) for item in items]


def test_a_number_makes_an_order_of_its_own() -> None:
    plain = ordered(None)
    assert plain == sorted(plain)
    assert ordered(1) == ordered(1)
    assert len({tuple(ordered(seed)) for seed in range(5)}) == 5
    assert sorted(ordered(1)) == plain


def test_the_tests_of_a_file_stay_together() -> None:
    files = [file for file, _ in groupby(ordered(3), key=lambda test: test[0])]
    assert sorted(files) == list("abcdef")
    assert files != list("abcdef")
