"""The examples about files, ported as they stand."""

from __future__ import annotations

from typing import Any

import pytest

from everthink import Think
from everthink.file_tools import create_workspace_tools
from everthink.testing import ScriptedModel, calls, says
from everthink.workspace import MemoryFiles, Workspace
from tests.conftest import OpenApp
from tests.support.agents import live
from tests.support.hooks import offered

pytestmark = pytest.mark.anyio

EIGHT = {"read", "write", "edit", "list", "find", "grep", "delete", "bash"}


@pytest.mark.example("readme", 5)
async def test_files_are_there_without_any_setup(open_app: OpenApp) -> None:
    pytest.importorskip("bashkit")
    model = ScriptedModel(calls("write", path="/hello.txt", content="Hello"), says("Written."))

    class MyAgent(Think):
        def get_model(self):
            return model

    app = await open_app(MyAgent)
    await app.agent(MyAgent).save_messages("Write something")
    assert set(offered(model.last_request)) == EIGHT
    agent = await live(app.agent(MyAgent))
    assert await agent.workspace.read_file("/hello.txt") == "Hello"


@pytest.mark.example("readme", 6)
async def test_large_files_go_to_a_bucket(open_app: OpenApp) -> None:
    pytest.importorskip("obstore")
    from obstore.store import MemoryStore

    bucket = MemoryStore()

    class MyAgent(Think):
        model = ScriptedModel(calls("write", path="/large.txt", content="x" * 20_000), says("Written."))
        workspace = Workspace(objects=bucket, prefix="files", spill_from=10_000)

    app = await open_app(MyAgent)
    await app.agent(MyAgent).save_messages("Write something large")
    agent = await live(app.agent(MyAgent))
    assert (await agent.workspace.get_workspace_info()).object_file_count == 1
    assert await agent.workspace.read_file("/large.txt") == "x" * 20_000
    assert [len(page) for page in bucket.list()] == [1]


@pytest.mark.example("readme", 26)
async def test_the_same_tools_work_over_a_storage_of_ones_own(open_app: OpenApp) -> None:
    pytest.importorskip("bashkit")
    my_custom_storage: Any = Workspace(MemoryFiles({"/a.txt": "mine"}))

    tools = create_workspace_tools(my_custom_storage)
    tools_without_bash = create_workspace_tools(my_custom_storage, bash=False)

    class MyAgent(Think):
        model = ScriptedModel(calls("read", path="/a.txt"), says("Read."))
        include_workspace_tools = False

        def get_tools(self):
            return tools

    assert set(tools) == EIGHT
    assert set(tools_without_bash) == EIGHT - {"bash"}
    app = await open_app(MyAgent)
    result = await app.agent(MyAgent).save_messages("Read it")
    assert result.message.tool_parts[0]["output"]["content"] == "1\tmine"
