"""Which tests go to the same process of several: those of a file, and of a room that shares what is dear.

    the controller --a file, or a room of TOGETHER--> the next process that has nothing to do

Where each file reads the whole source, every process would parse it and keep it: three seconds and half a
gigabyte each time. The packages of model providers take three seconds to import.
"""

from __future__ import annotations

from typing import Any

import pytest

__all__ = ["TOGETHER", "files_and_rooms", "unit_of"]

TOGETHER = ("tests/shape/", "tests/models/")


def unit_of(nodeid: str) -> str:
    """What a test stays together with."""
    room = next((room for room in TOGETHER if nodeid.startswith(room)), None)
    return room or nodeid.partition("::")[0]


def files_and_rooms(config: pytest.Config, log: Any) -> Any:
    """How pytest-xdist hands them out."""
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return unit_of(nodeid)

    return Scheduling(config, log)
