"""Several processes share the tests by file, and what reads the whole source is one process's."""

from __future__ import annotations

import re

from tests.support.distributing import TOGETHER, unit_of

from .source import ROOT


def test_a_file_goes_to_one_process_and_so_does_this_folder() -> None:
    assert unit_of("tests/turn/test_abort.py::test_a[x::y]") == "tests/turn/test_abort.py"
    assert unit_of("tests/shape/test_arrows.py::test_a") == unit_of("tests/shape/test_docs.py::test_b")
    assert all((ROOT / room).is_dir() for room in TOGETHER)


def test_the_makefile_lets_files_stay_whole() -> None:
    [command] = re.findall(r"^PYTEST = (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert "--dist loadfile" in command
