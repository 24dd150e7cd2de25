"""The machines of this computer pass the contract of machines."""

from __future__ import annotations

import pytest

from everthink.machines.bubblewrap import Bubblewrap
from everthink.machines.locked import Locked
from everthink.machines.port import Machine
from everthink.testing.contracts.machine import MachineContract
from everthink.testing.contracts.machine.endings import EndingsContract
from everthink.testing.contracts.machine.jobs import JobsContract
from tests.machines.here import runs_here
from tests.support.samples import sample

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


class TestBubblewrap(MachineContract):
    many = sample(20, 1_500)

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def here(cls) -> None:
        runs_here(Bubblewrap())

    async def machine(self) -> Machine:
        return Bubblewrap()


class TestLocked(MachineContract):
    many = sample(20, 1_500)

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def here(cls) -> None:
        runs_here(Locked())

    async def machine(self) -> Machine:
        return Locked()


class TestBubblewrapOnUvloop(JobsContract, EndingsContract):
    """The loop that `everthink serve` runs on handles pipes in its own way."""

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def here(cls) -> None:
        runs_here(Bubblewrap())

    @pytest.fixture
    def anyio_backend(self) -> tuple[str, dict[str, bool]]:
        return "asyncio", {"use_uvloop": True}

    async def machine(self) -> Machine:
        return Bubblewrap()
