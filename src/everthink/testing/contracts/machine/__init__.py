"""What every `Machine` must hold. An adapter passes by subclassing `MachineContract` in its tests:

    pytestmark = [pytest.mark.anyio, pytest.mark.slow]

    class TestMyMachine(MachineContract):
        async def machine(self):
            return MyMachine(...)

It runs jobs through `MachineSandbox`, and with them hostile scripts that try to get out, to stay, or to take
the server down. Needs pytest with the anyio plugin, and Linux where it looks for what was left behind.
"""

from __future__ import annotations

from ..sandbox.calls import CallsContract
from .case import MachineCase
from .endings import EndingsContract
from .floods import FloodsContract
from .jobs import JobsContract
from .liars import LiarsContract
from .trees import TreesContract
from .walls import MachineWallsContract

__all__ = ["MachineContract"]


class MachineContract(
    JobsContract,
    TreesContract,
    CallsContract,
    FloodsContract,
    LiarsContract,
    EndingsContract,
    MachineWallsContract,
    MachineCase,
):
    """All the tests. Override `machine`."""
