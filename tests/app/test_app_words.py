"""An `App` that is used in a way it is not made for says so in words."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from everthink import AgentError, App
from everthink.errors import StoreLocked
from everthink.testing import ScriptedModel, says
from tests.conftest import OpenApp
from tests.support.agents import assistant
from tests.support.server import open_app as made


def test_an_app_whose_event_loop_has_ended_says_so(tmp_path: Path) -> None:
    cls = assistant(ScriptedModel(says("One."), says("Two.")))
    app = made(tmp_path, cls)

    async def ask() -> str:
        return (await app.agent(cls).save_messages("Hi")).text

    async def end() -> None:
        await app.close()

    loop = asyncio.new_event_loop()
    try:
        assert loop.run_until_complete(ask()) == "One."
        with pytest.raises(AgentError, match="was opened in another event loop, of the thread 'MainThread'"):
            asyncio.run(ask())
        with pytest.raises(AgentError, match=r"An App lives in one loop\."):
            asyncio.run(end())
        assert loop.run_until_complete(ask()) == "Two."  # it is as it was
        loop.run_until_complete(app.close())
    finally:
        loop.close()


def test_an_app_in_a_second_run_says_so(tmp_path: Path) -> None:
    cls = assistant(ScriptedModel(says("One.")))
    app = made(tmp_path, cls)

    async def ask() -> str:
        return (await app.agent(cls).save_messages("Hi")).text

    assert asyncio.run(ask()) == "One."
    with pytest.raises(AgentError, match="was opened in an event loop that has ended") as told:
        asyncio.run(ask())
    assert "Call asyncio.run() once" in str(told.value)


@pytest.mark.anyio
async def test_an_app_used_from_another_thread_says_so_and_the_way_it_names_works(tmp_path: Path) -> None:
    cls = assistant(ScriptedModel(says("One."), says("Two.")))
    async with made(tmp_path, cls) as app:
        agent = app.agent(cls)
        await agent.save_messages("Hi")
        home = asyncio.get_running_loop()

        def elsewhere() -> str:
            with pytest.raises(AgentError, match="run_coroutine_threadsafe") as told:
                asyncio.run(agent.save_messages("Again"))
            assert "Nothing was done." in str(told.value)
            return asyncio.run_coroutine_threadsafe(agent.save_messages("Again"), home).result().text

        assert await asyncio.to_thread(elsewhere) == "Two."


@pytest.mark.anyio
async def test_a_second_app_on_the_same_file_says_what_to_do_in_a_notebook(
    open_app: OpenApp, tmp_path: Path
) -> None:
    await open_app(cls := assistant(ScriptedModel()))
    with pytest.raises(StoreLocked, match="already open in this process") as told:
        await made(tmp_path, cls).open()
    for words in ("another App", "await app.close()", "notebook", "restart the kernel"):
        assert words in str(told.value)


@pytest.mark.anyio
@pytest.mark.parametrize("given", ["Assistant", "assistant", "Other", None, 3])
async def test_something_else_than_a_class_is_refused_at_once(given: Any) -> None:
    app = App(assistant(ScriptedModel()))
    with pytest.raises(AgentError, match=r"app\.agent\(\) is given .*in the place of an agent class") as told:
        app.agent(given, "room")
    assert 'Write app.agent(Assistant, "name")' in str(told.value)


def test_an_instance_in_the_place_of_its_class_is_refused() -> None:
    cls = assistant(ScriptedModel())
    with pytest.raises(AgentError, match="in the place of an agent class"):
        App(cls).agent(cls.__new__(cls))  # type: ignore[arg-type] - that is the mistake
