import pytest

from everthink.tools.context import ToolContext


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def ctx() -> ToolContext:
    return ToolContext(tool_name="t", tool_call_id="call-1")
