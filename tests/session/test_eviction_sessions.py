"""Files that leave messages of several sessions do not get mixed up."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path

import pytest

from everthink import App, Message, Think
from everthink.memory import MediaEviction
from everthink.testing import ScriptedModel, says
from tests.support.agents import live

pytestmark = pytest.mark.anyio


class Viewer(Think):
    media_eviction = MediaEviction(keep_recent_messages=4, min_part_bytes=1000)

    def get_model(self) -> ScriptedModel:
        return ScriptedModel(says("I see."))


async def shown(app: App, picture: bytes) -> str:
    """Show a picture in a new session and talk until it has left its message. The path of its file."""
    gone = asyncio.Event()
    stop = app.events.subscribe(lambda _: gone.set(), type="chat:media:evicted")
    agent = await live(app.agent(Viewer))
    await agent.sessions.open((await agent.sessions.create("A picture")).id)
    url = "data:image/png;base64," + base64.b64encode(picture).decode()
    await agent.save_messages(Message("m1", "user", [{"type": "file", "mediaType": "image/png", "url": url}]))
    for _ in range(3):
        await agent.save_messages("And now?")
    await gone.wait()
    stop()
    return agent.messages[0].text.removesuffix("]").rpartition(" ")[2]


async def test_messages_of_two_sessions_with_one_id_keep_their_own_files(tmp_path: Path) -> None:
    # Given two pictures whose messages have the same id, in two sessions
    first, second = b"first" + bytes(4000), b"second" + bytes(4000)
    store = f"sqlite:///{tmp_path / 'pictures.db'}"

    # When both have left their messages, one before and one after a restart
    async with App(Viewer, store=store) as app:
        path = await shown(app, first)
    async with App(Viewer, store=store) as app:
        paths = [path, await shown(app, second)]

        # Then each has its own file
        agent = await live(app.agent(Viewer))
        assert [await agent.read_attachment(path) for path in paths] == [first, second]
