"""Files that the providers' libraries refuse, sent to real adapters over HTTP: one turn fails, no other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from everthink import Message, Think
from everthink.errors import ModelError
from everthink.models import provider_model
from everthink.models.port import FilePart, Request, TextPart, UserMessage
from everthink.models.provider_model import ProviderModel
from everthink.testing import ScriptedModel, says
from everthink.testing.served import served
from tests.conftest import OpenApp

pytestmark = pytest.mark.anyio

ZIP = ("application/zip", "data:application/zip;base64,AAAA")
VIDEO = ("video/mp4", "data:video/mp4;base64,AAAA")
AUDIO = ("audio/wav", "data:audio/wav;base64,AAAA")
REFUSED = [
    ("openai_model", *ZIP),
    ("openai_model", *VIDEO),
    ("openai_model", "text/csv", "data:text/csv,%ff"),
    ("openai_model", "audio/mpeg", "https://nowhere.invalid/a.mp3"),
    ("openai_responses_model", *ZIP),
    ("openai_responses_model", *VIDEO),
    ("openai_responses_model", *AUDIO),
    ("anthropic_model", *ZIP),
    ("anthropic_model", *AUDIO),
    ("anthropic_model", "text/html", "data:text/html,<b>hi"),
    ("anthropic_model", "text/plain", "data:text/plain,%ff%fe"),
    ("anthropic_model", "audio/mpeg", "https://nowhere.invalid/a.mp3"),
    ("anthropic_model", "x/y", "https://nowhere.invalid/a"),
]


@pytest.mark.parametrize(("adapter", "media_type", "url"), REFUSED)
async def test_a_file_that_is_refused_fails_the_turn_that_sent_it_alone(
    open_app: OpenApp, adapter: str, media_type: str, url: str
) -> None:
    file: Any = {"type": "file", "url": url, "mediaType": media_type}
    async with served(scripted := ScriptedModel(says("Hello."), says("Still here."))) as endpoint:
        app = await open_app(cls := type("Room", (Think,), {"model": getattr(endpoint, adapter)()}))
        room = app.agent(cls, "room")
        sent = await room.save_messages(
            [Message(id="m1", role="user", parts=[file, {"type": "text", "text": "See?"}])]
        )
        assert sent.status == "error"
        assert (await room.save_messages("Hi")).text == "Hello."
        assert (await room.save_messages("And now?")).text == "Still here."
    for request in scripted.requests:
        assert f"[A file that the model does not take: {media_type}]" in str(request.messages[0])


class Slow:
    """A library that waits for a file before it asks the provider."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self.gave_up = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    @asynccontextmanager
    async def request_stream(self, *args: Any) -> AsyncGenerator[Any, None]:
        try:
            await asyncio.Event().wait()
        finally:
            self.gave_up = True
        yield


@pytest.mark.parametrize("media_type", ["audio/mpeg", "application/pdf", "text/plain"])
async def test_a_file_that_comes_drop_by_drop_does_not_hold_a_turn(
    monkeypatch: pytest.MonkeyPatch, media_type: str
) -> None:
    monkeypatch.setattr(provider_model, "_LONGEST_FETCH", 0.0)
    async with served(ScriptedModel()) as endpoint:
        real: Any = endpoint.openai_model()
        library: Any = Slow(real.model)
        model = ProviderModel(library, name="slow")
        asked = Request("", [UserMessage([FilePart("https://example.com/a", media_type), TextPart("See?")])])
        with pytest.raises(ModelError, match="did not begin within 0 s") as caught:
            await anext(model.stream(asked))
    assert (caught.value.kind, library.gave_up) == ("unknown", True)


@pytest.mark.parametrize("url", ["https://example.com/a.png", "data:image/png;base64,AAAA"])
async def test_what_is_not_fetched_from_here_has_all_the_time_it_needs(
    monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    monkeypatch.setattr(provider_model, "_LONGEST_FETCH", 0.0)
    async with served(ScriptedModel(says("A bee."))) as endpoint:
        asked = Request("", [UserMessage([FilePart(url, "image/png"), TextPart("See?")])])
        events = [event async for event in endpoint.openai_model().stream(asked)]
    assert len(events) > 1
