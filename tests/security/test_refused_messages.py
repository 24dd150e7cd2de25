"""What was refused stays in a window's list, and goes with every later request: it stands in nobody's way."""

from __future__ import annotations

from typing import Any

import pytest

from everthink.server import Limits
from everthink.testing import ScriptedModel, says

from .conftest import Serve
from .strangers import by_token, crafted, heard, people, said, shop

pytestmark = pytest.mark.anyio

TOO_LONG = said("long", "9" * 5_000)
NO_URL = crafted("url", "user", {"type": "file", "mediaType": "text/html", "url": "javascript:alert(1)"})


@pytest.mark.parametrize("refused", [TOO_LONG, NO_URL], ids=["too long", "no URL"])
async def test_the_next_message_goes_without_the_one_that_was_refused(serve: Serve, refused: Any) -> None:
    # Given a message that was refused, which its window keeps on the screen
    model = ScriptedModel(says("One."), says("Two."))
    cls = shop(model)
    server = await serve(cls, limits=Limits(text_bytes=1_000))
    one, two = await people(server, cls, "a", "b")
    await one.until_done(await one.request([said("u1", "First")]))
    dropped = heard(server, "chat:client:dropped")
    listed = [*one.messages, refused]
    end = await one.until_done(await one.request(listed))
    assert end["error"] is True
    assert "Nothing was stored" in end["body"]

    # When the person says something else
    end = await one.until_done(await one.request([*listed, said("u2", "Second")]))

    # Then that is answered, and of the other nothing is kept, shown or sent to the model
    assert end["outcome"] == "completed"
    await two.until_text("Two.")
    assert [m.text for m in two.messages] == ["First", "One.", "Second", "Two."]
    stored = await server.app.agent(cls, "room").get_messages()
    assert [m.text for m in stored] == [m.text for m in two.messages]
    assert "999" not in str(model.last_request.messages)
    assert "javascript" not in str(model.last_request.messages)
    assert [event.body.messages for event in dropped] == [1]


async def test_a_window_whose_list_cannot_be_read_is_shown_the_conversation_as_it_is(serve: Serve) -> None:
    cls = shop(ScriptedModel(says("One."), says("Two.")))
    server = await serve(cls, limits=Limits(frame_nodes=1_000))
    one, two = await people(server, cls, "a", "b")
    await one.until_done(await one.request([said("u1", "First")]))
    await two.until_text("One.")
    seen = len(two.frames)
    bomb = crafted("bomb", "user", {"type": "data-x", "data": [[]] * 2_000})
    end = await one.until_done(await one.request([*one.messages, bomb]))
    assert "more than 1000 values" in end["body"]
    # The hooks take over what they are shown, so that the next request can be read.
    assert [frame["type"] for frame in one.frames[-2:]] == ["cf_agent_chat_messages", end["type"]]
    assert [m.text for m in one.messages] == ["First", "One."]
    assert len(two.frames) == seen


async def test_whoever_changes_the_words_of_another_is_shown_them_again(serve: Serve) -> None:
    cls = shop(ScriptedModel(says("One.")))
    server = await serve(cls, authenticate=by_token)
    one, two = await people(server, cls, "ada", "bob")
    await one.until_done(await one.request([said("u1", "First")]))
    await two.until_text("One.")
    end = await two.until_done(await two.request([said("u1", "Something else")]))
    assert "only its author may change" in end["body"]
    assert [frame["type"] for frame in two.frames[-2:]] == ["cf_agent_chat_messages", end["type"]]
    assert [m.text for m in two.messages] == ["First", "One."]
