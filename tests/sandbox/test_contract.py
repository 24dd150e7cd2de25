"""bash in a locked child passes the contract of sandboxes."""

from __future__ import annotations

import pytest

from everthink.sandbox.bash import BashSandbox
from everthink.testing.contracts.sandbox import BashContract

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


class TestBash(BashContract):
    async def open(self) -> BashSandbox:
        return BashSandbox()
