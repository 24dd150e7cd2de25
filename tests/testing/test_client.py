"""The chat window for tests does not wait for what cannot come."""

from __future__ import annotations

from pathlib import Path

import pytest

from everthink.testing import ScriptedModel
from tests.support.agents import assistant
from tests.support.server import open_app, served

pytestmark = pytest.mark.anyio


async def test_waiting_on_a_closed_socket_ends_at_once_with_words(tmp_path: Path) -> None:
    cls = assistant(ScriptedModel())
    async with served(open_app(tmp_path, cls)) as server:
        chat = await server.connect(cls)
        await chat.until_frame("identity")
        await chat.close(4000, "enough")
        with pytest.raises(
            ConnectionError, match=r"closed, with 4000 \(enough\); last frames:\n(.*\n)*.*identity"
        ):
            await chat.until(lambda: False, timeout=None)
        await chat.until(lambda: True)  # what was seen before stays seen


async def test_whoever_waits_when_the_socket_closes_is_told(tmp_path: Path) -> None:
    cls = assistant(ScriptedModel(), on_message=lambda self, connection: connection.close(4001, "no"))
    async with served(open_app(tmp_path, cls)) as server:
        chat = await server.connect(cls)
        await chat.send("hello")
        with pytest.raises(ConnectionError, match=r"with 4001 \(no\)"):
            await chat.until_text("never")
