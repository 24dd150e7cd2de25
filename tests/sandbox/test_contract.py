"""bash in a locked child passes the contract of sandboxes."""

from __future__ import annotations

import pytest

from everthink.sandbox.bash import BashSandbox
from everthink.testing.contracts.sandbox import BashContract
from everthink.testing.contracts.sandbox.calls import CallsContract
from everthink.testing.contracts.sandbox.limits import LimitsContract

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


class TestBash(BashContract):
    async def open(self) -> BashSandbox:
        return BashSandbox()


class TestBashOnUvloop(CallsContract, LimitsContract):
    """The loop that `everthink serve` runs on starts processes in its own way."""

    @pytest.fixture
    def anyio_backend(self) -> tuple[str, dict[str, bool]]:
        return "asyncio", {"use_uvloop": True}

    async def open(self) -> BashSandbox:
        return BashSandbox()
