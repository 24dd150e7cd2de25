"""What an answer rests on reaches whoever reads it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Literal

import pytest

from everthink.models import port as model
from tests.conftest import OpenApp
from tests.support.agents import assistant
from tests.support.hooks import only, watch

pytestmark = pytest.mark.anyio


class Scholar:
    """Cites a page, a document, and something without a name."""

    name = "scholar"
    continues: Literal["prefill", "prompt"] = "prompt"

    async def stream(self, request: model.Request) -> AsyncGenerator[model.ModelEvent, None]:
        yield model.Opened()
        yield model.TextStart("t")
        yield model.TextDelta("t", "Bees dance.")
        yield model.TextEnd("t")
        yield model.Source("s1", url="https://bees.example/dance", title="The dance")
        yield model.Source("s2", media_type="application/pdf", filename="bees.pdf")
        yield model.Source("s3")
        yield model.Finish("stop", model.Usage(1, 1, 2))


async def test_sources_are_streamed_and_stored_in_the_order_in_which_they_came(open_app: OpenApp) -> None:
    app = await open_app(cls := assistant(Scholar()))
    agent = app.agent(cls, "room")
    seen = await watch(agent)
    await agent.save_messages("How do bees talk?")

    pages, documents = only(seen, "source-url"), only(seen, "source-document")
    assert [(one.url, one.title) for one in pages] == [("https://bees.example/dance", "The dance")]
    assert [(one.title, one.filename) for one in documents] == [("bees.pdf", "bees.pdf"), ("s3", None)]
    assert [part for part in (await agent.get_messages())[-1].parts if part["type"].startswith("source")] == [
        {
            "type": "source-url",
            "sourceId": "s1",
            "url": "https://bees.example/dance",
            "title": "The dance",
        },
        {
            "type": "source-document",
            "sourceId": "s2",
            "mediaType": "application/pdf",
            "title": "bees.pdf",
            "filename": "bees.pdf",
        },
        {
            "type": "source-document",
            "sourceId": "s3",
            "mediaType": "application/octet-stream",
            "title": "s3",
        },
    ]
