"""Every engine passes the contract of sandboxes, in each of its languages."""

from __future__ import annotations

import pytest

from everthink.sandbox.bash import BashSandbox
from everthink.sandbox.javascript import JavaScriptSandbox
from everthink.testing.contracts.sandbox import BashContract, CodeContract
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


class TestJavaScript(CodeContract):
    language = "javascript"

    async def open(self) -> JavaScriptSandbox:
        return JavaScriptSandbox()


class TestTypeScript(CodeContract):
    language = "typescript"

    async def open(self) -> JavaScriptSandbox:
        return JavaScriptSandbox()
