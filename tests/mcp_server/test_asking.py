"""An agent as a tool: asked, gone on with, looked into, over real HTTP with the published client."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from everthink import Think, client_tool, tool
from everthink.testing import ScriptedModel, calls, says

from ..support.agents import assistant
from ..support.mcp import ERAS, Words, client_of, texts
from ..support.turns import Database
from .conftest import Serve

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("mode", ERAS)
async def test_an_agent_is_a_tool_that_says_what_the_class_is_for(serve: Serve, mode: str) -> None:
    class TravelAgent(Think):
        """Finds trips.

        And books them."""

        model = ScriptedModel()

    server = await serve(TravelAgent)
    async with client_of(server, mode=mode) as client:
        [offered] = (await client.list_tools()).tools

    assert offered.name == "ask_travel_agent"
    assert (offered.description or "").startswith("Finds trips.\n\nAnd books them.\n\n")
    assert set(offered.input_schema["properties"]) == {"message", "conversation"}
    assert offered.output_schema is not None


@pytest.mark.parametrize("mode", ERAS)
async def test_an_answer_names_its_conversation_so_that_one_can_go_on(serve: Serve, mode: str) -> None:
    model = ScriptedModel(says("Hello Ada."), says("You are Ada."))
    server = await serve(assistant(model))
    async with client_of(server, mode=mode) as client:
        first = await client.call_tool("ask_assistant", {"message": "I am Ada"})
        told: Any = first.structured_content
        again = {"message": "Who am I?", "conversation": told["conversation"]}
        second = await client.call_tool("ask_assistant", again)

    assert texts(first)[0] == "Hello Ada."
    assert told["conversation"] in texts(first)[1]
    assert (told["status"], told["text"]) == ("completed", "Hello Ada.")
    assert texts(second) == ["You are Ada."]
    assert len(model.last_request.messages) == 3


async def test_who_names_no_conversation_begins_one_of_their_own_each_time(serve: Serve) -> None:
    server = await serve(assistant(ScriptedModel(says("One."), says("Two."))))
    async with client_of(server) as client:
        results = [await client.call_tool("ask_assistant", {"message": "Hi"}) for _ in range(2)]

    names = [result.structured_content["conversation"] for result in results if result.structured_content]
    assert len(set(names)) == 2


async def test_a_name_means_the_agent_that_an_address_with_it_means(serve: Serve) -> None:
    cls = assistant(ScriptedModel(says("Here.")))
    server = await serve(cls)
    async with client_of(server) as client:
        result = await client.call_tool("ask_assistant", {"message": "Hi", "conversation": "a/b Jürgen"})

    assert result.structured_content is not None
    assert result.structured_content["conversation"] == "a%2Fb Jürgen"
    read = await server.http("/agents/assistant/a%2Fb%20J%C3%BCrgen/get-messages")
    assert [message["role"] for message in read.json] == ["user", "assistant"]


@pytest.mark.parametrize("mode", ERAS)
async def test_words_are_progress_while_they_stream(serve: Serve, mode: str) -> None:
    server = await serve(assistant(ScriptedModel(says("It ", "rains ", "in ", "Paris."))))
    words = Words()
    async with client_of(server, mode=mode) as client:
        await client.call_tool("ask_assistant", {"message": "Weather?"}, progress_callback=words)

    assert words.said == "It rains in Paris."
    assert words.numbers == sorted(set(words.numbers))


@pytest.mark.parametrize("mode", ERAS)
async def test_a_call_that_waits_for_a_person_is_said_in_words(serve: Serve, mode: str) -> None:
    ran: list[str] = []

    class Shop(Think):
        model = ScriptedModel(says("I ask first. ").calls("refund", order="A1"), says("It is refunded."))

        @tool(needs_approval=True)
        def refund(self, order: str) -> str:
            """Refund an order."""
            ran.append(order)
            return "done"

    server = await serve(Shop)
    async with client_of(server, mode=mode) as client:
        asked = await client.call_tool("ask_shop", {"message": "Refund A1", "conversation": "room"})
        told: Any = asked.structured_content
        page = await server.connect(Shop)
        await page.approve(told["waits_for"][0]["call"])
        await page.until_text("It is refunded.")
        later = await client.call_tool("ask_shop", {"conversation": "room"})

    assert not asked.is_error
    assert (told["status"], told["text"]) == ("waiting", "I ask first. ")
    assert told["waits_for"][0] | {"call": ""} == {
        "tool": "refund",
        "kind": "approval",
        "call": "",
        "input": {"order": "A1"},
    }
    assert "refund" in texts(asked)[1]
    assert "waits until a person allows it" in texts(asked)[1]
    assert ran == ["A1"]
    assert texts(later)[-1].endswith("It is refunded.")


async def test_a_call_that_waits_for_a_browser_is_said_in_words(serve: Serve) -> None:
    where = client_tool("where", "Where are you?", {"type": "object", "properties": {}})
    cls = assistant(ScriptedModel(calls("where")), get_tools=lambda self: {"where": where})
    server = await serve(cls)
    async with client_of(server) as client:
        result = await client.call_tool("ask_assistant", {"message": "Where am I?"})

    assert result.structured_content is not None
    assert [call["kind"] for call in result.structured_content["waits_for"]] == ["client"]
    assert "runs in a person's browser" in texts(result)[0]


async def test_an_agent_that_fails_is_an_error_in_words_that_people_may_read(serve: Serve) -> None:
    def broken(self: Any, turn: Any) -> None:
        raise RuntimeError("password=hunter2 is wrong")

    server = await serve(assistant(ScriptedModel(), before_turn=broken))
    async with client_of(server) as client:
        result = await client.call_tool("ask_assistant", {"message": "Hi", "conversation": "room"})
        later = await client.call_tool("ask_assistant", {"conversation": "room"})

    assert result.is_error
    assert "This did not work: Something went wrong on our side." in texts(result)[0]
    assert "hunter2" not in str(result)
    assert later.is_error
    assert "Something went wrong on our side." in texts(later)[0]


async def test_what_was_said_before_an_answer_broke_off_is_told_with_the_error(serve: Serve) -> None:
    model = ScriptedModel(says("It is ").then_fails("bad_request"))
    server = await serve(assistant(model, on_chat_error=lambda self, error, ctx: "The model is away."))
    async with client_of(server) as client:
        result = await client.call_tool("ask_assistant", {"message": "Hi"})

    assert result.is_error
    assert texts(result)[:2] == ["It is ", "This did not work: The model is away."]


async def test_two_calls_on_one_conversation_are_answered_one_after_the_other(serve: Serve) -> None:
    gate = asyncio.Event()
    model = ScriptedModel(says("One ").waits(gate).says("done."), says("Two done."))
    server = await serve(assistant(model))
    async with client_of(server) as client, client_of(server, mode="legacy") as other:
        asked = {"message": "One?", "conversation": "room"}
        first = asyncio.create_task(client.call_tool("ask_assistant", asked))
        await model.until_silent()
        second = asyncio.create_task(other.call_tool("ask_assistant", {**asked, "message": "Two?"}))
        page = await server.connect("/agents/assistant/room")
        await page.until(lambda: sum(message.role == "user" for message in page.messages) == 2)
        gate.set()
        results = [await first, await second]

    assert [texts(result) for result in results] == [["One done."], ["Two done."]]


async def test_a_message_that_is_dropped_is_told_as_that(serve: Serve) -> None:
    gate = asyncio.Event()
    model = ScriptedModel(says("One ").waits(gate).says("done."))
    server = await serve(assistant(model, message_concurrency="drop"))
    async with client_of(server) as client:
        asked = {"message": "One?", "conversation": "room"}
        first = asyncio.create_task(client.call_tool("ask_assistant", asked))
        await model.until_silent()
        second = await client.call_tool("ask_assistant", {**asked, "message": "Two?"})
        gate.set()
        await first

    assert second.structured_content is not None
    assert second.structured_content["status"] == "skipped"
    assert "another message took its place" in texts(second)[0]


async def test_looking_waits_for_the_answer_that_is_on_its_way(serve: Serve) -> None:
    gate, looked = asyncio.Event(), asyncio.Event()
    model = ScriptedModel(says("One ").waits(gate).says("done."))

    def somebody_comes(self: Any, connection: Any, request: Any) -> bool:
        if request.url.path == "/mcp":
            looked.set()
        return False

    cls = assistant(model, should_connection_be_readonly=somebody_comes)
    server = await serve(cls)
    words = Words()
    async with client_of(server) as client:
        page = await server.connect(cls)
        await page.say("One?")
        await page.until_text("One ")
        look = client.call_tool("ask_assistant", {"conversation": "room"}, progress_callback=words)
        looking = asyncio.create_task(look)
        await looked.wait()
        gate.set()
        result = await looking

    assert texts(result) == ["One done."]
    assert words.said == "done."


async def test_looking_makes_no_conversation(serve: Serve, tmp_path: Any) -> None:
    server = await serve(assistant(ScriptedModel()))
    async with client_of(server) as client:
        result = await client.call_tool("ask_assistant", {"conversation": "nowhere"})

    assert result.is_error
    assert texts(result) == ["There is no such conversation. Give a `message` to begin one."]
    assert Database(tmp_path).rows("SELECT agent FROM agents") == []


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "Say something"),
        ({"message": ""}, "Say something"),
        ({"message": "  \n"}, "says nothing"),
        ({"message": 3}, "`message` is the number 3"),
        ({"message": "Hi", "conversation": ["x"]}, "`conversation` is a list"),
        ({"message": "Hi", "conversation": " "}, "1 to 512 characters"),
        ({"message": "Hi", "conversation": "x" * 513}, "1 to 512 characters"),
        ({"message": "Hi", "conversation": "/" * 512}, "longer than 512 characters"),
        ({"message": "Hi", "conversation": "a\x00b"}, "a character that no name has"),
        ({"message": "Hi", "room": "x"}, "not 'room'"),
    ],
)
async def test_arguments_that_mean_nothing_are_told(serve: Serve, given: Any, words: str) -> None:
    server = await serve(assistant(ScriptedModel()))
    async with client_of(server) as client:
        result = await client.call_tool("ask_assistant", given)

    assert result.is_error
    assert words in texts(result)[0]


async def test_a_conversation_can_be_watched_by_people_while_a_client_asks(serve: Serve) -> None:
    cls = assistant(ScriptedModel(says("Hello.")))
    server = await serve(cls)
    page = await server.connect(cls)
    await page.settled()
    async with client_of(server) as client:
        await client.call_tool("ask_assistant", {"message": "Hi there", "conversation": "room"})
    await page.until_text("Hello.")

    assert [message.text for message in page.messages] == ["Hi there", "Hello."]


async def test_an_agent_that_leaves_memory_in_mid_answer_is_told_and_its_answer_is_there_later(
    serve: Serve,
) -> None:
    model = ScriptedModel(says("It goes ").then_hangs(), says("on."))
    cls = assistant(model)
    server = await serve(cls)
    async with client_of(server) as client:
        given = {"message": "Hi", "conversation": "room"}
        asking = asyncio.create_task(client.call_tool("ask_assistant", given))
        await model.until_silent()
        await server.app.evict(cls, "room")
        cut = await asking
        later = await client.call_tool("ask_assistant", {"conversation": "room"})

    assert cut.structured_content is not None
    assert (cut.structured_content["status"], cut.is_error) == ("interrupted", False)
    assert "goes on by itself" in texts(cut)[-2]
    assert texts(later) == ["It goes on."]


async def test_a_client_is_told_that_an_agent_is_at_it_while_it_says_nothing(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("everthink.mcp_server.asking.SILENCE", 0.01)
    enough = asyncio.Event()

    class Digger(Think):
        model = ScriptedModel(calls("dig"), says("Dug."))

        @tool
        async def dig(self) -> str:
            """Dig until somebody has seen it."""
            await enough.wait()
            return "dug"

    heard: list[tuple[float, str | None]] = []

    async def progress(done: float, total: float | None, message: str | None) -> None:
        heard.append((done, message))
        if len([one for one in heard if one[1] is None]) > 6:
            enough.set()

    server = await serve(Digger)
    async with client_of(server) as client:
        answer = await client.call_tool("ask_digger", {"message": "Dig"}, progress_callback=progress)

    numbers = [done for done, _ in heard]
    assert numbers == sorted(numbers)
    assert texts(answer)[0] == "Dug."
