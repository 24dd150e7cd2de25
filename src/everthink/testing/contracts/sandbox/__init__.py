"""What every `Sandbox` must do. An adapter passes by subclassing `BashContract`, or `CodeContract` once for
each of its languages, in its tests:

    pytestmark = [pytest.mark.anyio, pytest.mark.slow]

    class TestMyPython(CodeContract):
        language = "python"

        async def open(self):
            return MySandbox(...)

`HOSTILE` are bash scripts that try to take a server down, by kind; `HOSTILE_CODE` the same in other
languages. Needs pytest with the anyio plugin.
"""

from __future__ import annotations

from .calls import CallsContract
from .code import CodeContract
from .files import FilesContract
from .hostile import HOSTILE
from .hostile_code import HOSTILE_CODE
from .limits import LimitsContract
from .scripts import ScriptsContract
from .walls import WallsContract

__all__ = ["HOSTILE", "HOSTILE_CODE", "BashContract", "CodeContract"]


class BashContract(ScriptsContract, FilesContract, CallsContract, LimitsContract, WallsContract):
    """All the tests. Override `open`."""
