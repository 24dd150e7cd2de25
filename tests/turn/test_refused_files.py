"""A file that the model refuses fails the turn that sent it, and no later one."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from everthink import Message
from everthink.models.port import FilePart, Request, UserMessage
from everthink.testing.scripted import Play, ScriptedModel, fails, opens, overflows, says
from tests.conftest import OpenApp
from tests.support.agents import assistant
from tests.support.turns import prompt, record_events

pytestmark = pytest.mark.anyio

ZIP = ("data:application/zip;base64,AAAA", "application/zip", "a.zip")
IMAGE = ("data:image/png;base64,AAAA", "image/png", "bee.png")
NOTE = "[A file that the model does not take: a.zip, application/zip]"
REFUSED = fails("No zip, please.", status=400)


def with_file(url: str, media_type: str, filename: str) -> Message:
    file: Any = {"type": "file", "url": url, "mediaType": media_type, "filename": filename}
    return Message(id=str(uuid4()), role="user", parts=[file, {"type": "text", "text": "See?"}])


def files(request: Request) -> list[str | None]:
    return [
        part.filename
        for message in request.messages
        if isinstance(message, UserMessage)
        for part in message.content
        if isinstance(part, FilePart)
    ]


@pytest.mark.parametrize("kind", ["fatal", "unknown"])
async def test_only_the_turn_that_sent_it_fails(open_app: OpenApp, kind: Any) -> None:
    refused = fails(words := "No zip, please.", kind=kind)
    model = ScriptedModel(refused, refused, says("Hello."), says("Still here."))
    app = await open_app(cls := assistant(model))
    told, room = record_events(app, "chat:files:left_out"), app.agent(cls, "room")

    # The sender is told, without another call: there is nothing older to leave out
    sent = await room.save_messages([with_file(*ZIP)])
    assert (sent.status, model.asked) == ("error", 1)
    assert "The message holds a file, which this model may not take" in (sent.error or "")

    # Somebody else is answered, after one refusal
    result = await room.save_messages("Hi")
    assert (result.status, result.text, model.asked) == ("completed", "Hello.", 3)
    assert files(model.requests[1]) == ["a.zip"]
    assert prompt(model.requests[2]) == [("user", NOTE + "See?"), ("user", "Hi")]

    # And from then on nothing is tried in vain, nor told again
    assert (await room.save_messages("And now?")).text == "Still here."
    assert (model.asked, files(model.requests[3])) == (4, [])
    assert [(event.payload["files"], event.payload["error"]) for event in told] == [(1, words)]

    # The conversation keeps it
    assert (await room.get_messages())[0].parts[0]["url"] == ZIP[0]


async def test_a_file_that_was_taken_before_is_shown_on(open_app: OpenApp) -> None:
    """Whoever sends a bad file does not take the good ones of others away."""
    model = ScriptedModel(says("A bee."), REFUSED, REFUSED, REFUSED, says("Hello."), says("Yes."))
    app = await open_app(cls := assistant(model))
    room = app.agent(cls, "room")
    await room.save_messages([with_file(*IMAGE)])
    assert (await room.save_messages([with_file(*ZIP)])).status == "error"
    assert (await room.save_messages("Hi")).text == "Hello."
    assert (await room.save_messages("The bee?")).text == "Yes."
    assert [files(request) for request in model.requests[3:]] == [
        ["bee.png", "a.zip"],
        ["bee.png"],
        ["bee.png"],
    ]


async def test_every_older_file_goes_when_one_that_was_taken_is_refused_now(open_app: OpenApp) -> None:
    """An address that is dead by now."""
    model = ScriptedModel(says("A bee."), *[REFUSED] * 4, says("Hello."))
    app = await open_app(cls := assistant(model))
    room = app.agent(cls, "room")
    await room.save_messages([with_file(*IMAGE)])
    await room.save_messages([with_file(*ZIP)])
    assert (await room.save_messages("Hi")).text == "Hello."
    assert [files(request) for request in model.requests[3:]] == [["bee.png", "a.zip"], ["bee.png"], []]


async def test_the_first_error_is_told_when_leaving_files_out_does_not_help(open_app: OpenApp) -> None:
    model = ScriptedModel(REFUSED, fails("First."), fails("Second."), fails("Third."), says("Hello."))
    app = await open_app(cls := assistant(model))
    told, room = record_events(app, "chat:files:left_out"), app.agent(cls, "room")
    await room.save_messages([with_file(*ZIP)])
    result = await room.save_messages("Hi")
    assert (result.status, result.error, model.asked, told) == ("error", "First.", 3, [])
    # Nothing is remembered of it: the next prompt is whole again
    await room.save_messages("Hi?")
    assert files(model.requests[3]) == ["a.zip"]


@pytest.mark.parametrize(
    "refusal",
    [
        *(fails("No.", status=status) for status in (401, 402, 403, 404)),
        overflows(),
        opens().then_fails("No.", kind="fatal"),
    ],
    ids=["401", "402", "403", "404", "too long", "after it opened"],
)
async def test_what_is_not_about_a_file_is_not_asked_again(open_app: OpenApp, refusal: Play) -> None:
    model = ScriptedModel(REFUSED, refusal, says("Never asked."))
    app = await open_app(cls := assistant(model))
    room = app.agent(cls, "room")
    await room.save_messages([with_file(*ZIP)])
    assert (await room.save_messages("Hi")).status == "error"
    assert model.asked == 2


async def test_a_conversation_without_files_is_not_asked_again(open_app: OpenApp) -> None:
    model = ScriptedModel(REFUSED, REFUSED, says("Never asked."))
    app = await open_app(cls := assistant(model))
    room = app.agent(cls, "room")
    assert (await room.save_messages("Hi")).error == "No zip, please."
    assert (await room.save_messages("Hi")).error == "No zip, please."
    assert model.asked == 2


async def test_a_file_that_is_sent_again_is_asked_with_again(open_app: OpenApp) -> None:
    model = ScriptedModel(REFUSED, REFUSED, says("Hello."), says("Oh, a zip."))
    app = await open_app(cls := assistant(model))
    room = app.agent(cls, "room")
    await room.save_messages([with_file(*ZIP)])
    await room.save_messages("Hi")
    assert (await room.save_messages([with_file(*ZIP)])).text == "Oh, a zip."
    assert files(model.requests[3]) == ["a.zip"]


async def test_it_is_learned_again_after_the_agent_left_memory(open_app: OpenApp) -> None:
    model = ScriptedModel(REFUSED, REFUSED, says("Hello."), REFUSED, says("Again."))
    app = await open_app(cls := assistant(model))
    room = app.agent(cls, "room")
    await room.save_messages([with_file(*ZIP)])
    await room.save_messages("Hi")
    await app.evict(cls, "room")
    assert (await room.save_messages("Hi")).text == "Again."
