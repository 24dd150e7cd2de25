"""docs/howto-children.md: its app over a real socket, and its tables against what there is."""

from __future__ import annotations

import asyncio
import importlib.util
import inspect
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

import pytest

from everthink import Agent, App, agent_tool
from everthink.children import Detached, RunStatus
from everthink.testing import ScriptedModel, calls, says

from ..support.server import served
from .pages import ROOT, written

PAGE = "howto-children.md"
TEXT = (ROOT / "docs" / PAGE).read_text("utf-8")


class Meeting:
    """Two researchers that go on once both have begun: one after the other would wait for ever."""

    def __init__(self, count: int) -> None:
        self._left, self._met = count, asyncio.Event()

    async def come(self) -> None:
        self._left -= 1
        if not self._left:
            self._met.set()
        await self._met.wait()


def imported(path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A file of the page as a module: its dataclasses look for theirs."""
    spec = importlib.util.spec_from_file_location("app_of_the_page", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    return module


@pytest.mark.anyio
async def test_the_app_of_the_page_researches_twice_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = imported(written(PAGE, tmp_path) / "app.py", monkeypatch)
    meeting = Meeting(2)

    class Model(ScriptedModel):
        async def stream(self, request: Any) -> Any:
            await meeting.come()
            async for event in super().stream(request):
                yield event

    page.Researcher.model = Model(
        says('{"answer": "Twice.", "sources": []}'), says('{"answer": "The moon.", "sources": ["a"]}')
    )
    assistant = page.Assistant
    assistant.model = ScriptedModel(
        calls("research", question="How often?").calls("research", question="Why?"), says("Tides.")
    )
    async with served(App(assistant, store=f"sqlite:///{tmp_path}/app.db")) as server:
        tab = await server.connect(assistant)
        await tab.until_done(await tab.say("Tides?"))
        told = [frame["event"] for frame in tab.frames if frame["type"] == "agent-tool-event"]
        begun = [event for event in told if event["kind"] == "started"]
        assert [event["display"] for event in begun] == [{"name": "Researcher", "icon": "🔎"}] * 2
        assert [event["kind"] for event in told].count("finished") == 2
        child = await server.connect(f"/agents/assistant/room/sub/researcher/{begun[0]['runId']}")
        identity = await child.until_frame("cf_agent_identity")
        assert identity["agent"] == "researcher"
    read = str(assistant.model.last_request.messages[-1])
    assert "Twice." in read
    assert "The moon." in read


def test_every_option_method_setting_and_status_is_on_the_page() -> None:
    options = {*inspect.signature(agent_tool).parameters, *inspect.signature(Agent.run_agent_tool).parameters}
    themes = ("sub_agent", "agent_tool", "parent", "destroy", "self_path", "progress")
    methods = [name for name in dir(Agent) if name[0] != "_" and any(theme in name for theme in themes)]
    options |= {field.name for field in fields(Detached)}
    for name in (*(options - {"self", "cls", "unknown"}), *methods, *get_args(RunStatus)):
        assert f"`{name}`" in TEXT or f"`{name}(" in TEXT, name
