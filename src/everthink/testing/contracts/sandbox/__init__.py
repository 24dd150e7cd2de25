"""What every `Sandbox` that runs bash must do. An adapter passes by subclassing `BashContract` in its tests:

    pytestmark = [pytest.mark.anyio, pytest.mark.slow]

    class TestMySandbox(BashContract):
        async def open(self):
            return MySandbox(...)

`HOSTILE` are scripts that try to take a server down, by kind. Needs pytest with the anyio plugin.
"""

from __future__ import annotations

from .calls import CallsContract
from .files import FilesContract
from .hostile import HOSTILE
from .limits import LimitsContract
from .scripts import ScriptsContract
from .walls import WallsContract

__all__ = ["HOSTILE", "BashContract"]


class BashContract(ScriptsContract, FilesContract, CallsContract, LimitsContract, WallsContract):
    """All the tests. Override `open`."""
