"""What an agent remembers, as the page sees and changes it: blocks, prompt, summaries."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from everthink import Think
from everthink.context.blocks import ContextBlock, render
from everthink.devtools.prompt import behind
from everthink.memory import Session
from everthink.messages import Message
from everthink.session.summary import Compaction
from everthink.testing import ScriptedModel, says
from tests.support.agents import live

from ..support.agents import assistant
from ..support.server import Served
from .conftest import ROOM, Develop

pytestmark = pytest.mark.anyio

MEMORY = f"{ROOM}/memory"


def remembering(model: ScriptedModel, **members: Any) -> type[Think]:
    """An agent with a text of its own, one that the model may write, and one that nobody may."""

    def configure(self: Think, session: Session) -> Session:
        return (
            session.with_context("soul", provider="Be kind.")
            .with_context("memory", description="What you learned", max_tokens=20)
            .with_context("weather", provider=lambda: "")
            .with_cached_prompt()
        )

    return assistant(model, **{"configure_session": configure, **members})


def shortening(model: ScriptedModel, **members: Any) -> type[Think]:
    """An agent whose compaction keeps the last two messages."""

    def shorten(messages: list[Message], context: Any) -> Compaction | None:
        if len(messages) <= 2:
            return None
        return Compaction(messages[0].id, messages[-3].id, f"{len(messages) - 2} of them.")

    def configure(self: Think, session: Session) -> Session:
        return session.on_compaction(shorten).compact_after(100_000)

    return assistant(model, **{"configure_session": configure, **members})


async def begun(server: Served) -> None:
    """See that the agent exists: looking at its memory does not make it."""
    app = server.app._loaded.app
    await live(app.agent(app.classes[0], "room"))


async def memory(server: Served) -> Any:
    await begun(server)
    answer = await server.http(MEMORY)
    assert answer.status == 200, answer.json
    return answer.json


async def post(server: Served, rest: str, **fields: Any) -> Any:
    return await server.http(f"{ROOM}/{rest}", method="POST", body=json.dumps(fields).encode())


async def say(server: Served, cls: type[Think], *texts: str) -> Any:
    chat = await server.connect(cls)
    for text in texts:
        await chat.until_done(await chat.say(text))
    await chat.settled()
    return chat


# --- the prompt, and why


def piece(shown: Any, name: str) -> Any:
    [found] = [one for one in shown["prompt"]["pieces"] if one["name"] == name]
    return found


async def test_a_session_without_blocks_uses_the_prompt_of_the_agent(develop: Develop) -> None:
    server = await develop(assistant(ScriptedModel(), system_prompt="Be brief."))
    shown = await memory(server)
    assert shown["session"] == {"id": "", "name": ""}
    assert shown["tokens"]["threshold"] is None
    assert (shown["blocks"], shown["compactions"], shown["omitted"]) == ([], [], [])
    own = piece(shown, "get_system_prompt")
    assert (own["is_used"], own["text"]) == (True, "Be brief.")
    assert not piece(shown, "blocks")["is_used"]
    assert shown["prompt"]["text"].startswith("Be brief.\n\nYou are running inside a Think agent.")


async def test_looking_shows_the_prompt_that_the_next_turn_sends(develop: Develop) -> None:
    model = ScriptedModel(says("One."))
    cls = remembering(model, system_prompt="Unused.")
    server = await develop(cls)
    before = await memory(server)
    assert not before["prompt"]["is_frozen"]
    assert "Rendered now" in " ".join(piece(before, "blocks")["why"])
    await say(server, cls, "Hello")
    assert model.last_request.system == before["prompt"]["text"]

    # Then it is fixed, and says since when
    after = await memory(server)
    assert (after["prompt"]["is_frozen"], after["prompt"]["is_kept"]) == (True, True)
    assert after["prompt"]["last_refresh"]["reason"] == "first use"
    own = piece(after, "get_system_prompt")
    assert (own["is_used"], own["text"]) == (False, "Unused.")
    why = piece(after, "blocks")["why"]
    assert why[0] == "Made of soul, memory."
    assert "Left out because empty and not writable: weather." in why


async def test_a_prompt_from_an_earlier_process_is_told_as_such(develop: Develop) -> None:
    cls = remembering(ScriptedModel(says("One.")))
    server = await develop(cls)
    await say(server, cls, "Hello")
    await server.stop()
    again = await memory(await develop(remembering(ScriptedModel())))
    assert again["prompt"]["last_refresh"] is None
    assert "Kept from before this process started" in " ".join(piece(again, "blocks")["why"])


@pytest.mark.parametrize("given", [RuntimeError("no database"), 7])
async def test_functions_that_fail_are_named_and_the_rest_is_shown(develop: Develop, given: Any) -> None:
    def broken(self: Think) -> Any:
        if isinstance(given, Exception):
            raise given
        return given

    shown = await memory(await develop(remembering(ScriptedModel(), get_tools=broken)))
    assert "get_tools() raised" in piece(shown, "capabilities")["why"][0]
    assert "no database" not in str(shown)
    assert [block["label"] for block in shown["blocks"]] == ["soul", "memory", "weather"]


async def test_a_block_that_cannot_be_read_is_told_and_the_rest_is_shown(develop: Develop) -> None:
    def broken() -> str:
        raise OSError("gone")

    def configure(self: Think, session: Session) -> Session:
        return session.with_context("soul", provider="Be kind.").with_context("news", provider=broken)

    shown = await memory(await develop(assistant(ScriptedModel(), configure_session=configure)))
    assert "'news' could not be read" in shown["prompt"]["trouble"]
    assert [one["is_used"] for one in shown["prompt"]["pieces"]] == [False, False, True]
    assert [block["label"] for block in shown["blocks"]] == ["soul"]


async def test_before_turn_is_named_when_it_may_change_the_prompt(develop: Develop) -> None:
    shown = await memory(await develop(remembering(ScriptedModel(), before_turn=lambda self, turn: None)))
    assert shown["prompt"]["pieces"][-1]["name"] == "before_turn"


async def test_secrets_of_the_prompt_are_masked_and_those_of_a_block_to_edit_are_not(
    develop: Develop,
) -> None:
    secret = "sk-abcdefghijklmnop"

    def configure(self: Think, session: Session) -> Session:
        return session.with_context("keys", provider=f"Use {secret}.").with_context("memory")

    server = await develop(assistant(ScriptedModel(), configure_session=configure))
    await post(server, "memory/blocks", label="memory", content=f"Mine is {secret}.")
    shown = await memory(server)
    assert secret not in str(shown["prompt"])
    keys, own = shown["blocks"]
    assert secret not in keys["content"]
    assert own["content"] == f"Mine is {secret}."  # or the mask would be saved in its place


def test_a_block_is_behind_unless_the_prompt_shows_all_of_it() -> None:
    block = ContextBlock("memory", content="Tea.", writable=True)
    after = ContextBlock("news", content="Rain.")
    prompt = render([block, after])
    assert behind(prompt, [block, after]) == []
    for content in ("Te", "Tea", "Tea.\nMilk.", ""):
        assert behind(prompt, [ContextBlock("memory", content=content, writable=True), after]) == ["memory"]
    assert behind(prompt, [block, ContextBlock("news", content="")]) == ["news"]
    assert behind(prompt, [block, ContextBlock("else", content="")]) == []


# --- writing


async def test_a_block_is_written_and_shows_after_a_refresh(develop: Develop) -> None:
    model = ScriptedModel(says("One."), says("Two."), says("Three."))
    cls = remembering(model)
    server = await develop(cls)
    chat = await say(server, cls, "Hello")

    # When it is written the prompt stays as it is
    answer = await post(server, "memory/blocks", label="memory", content="Likes tea.", was="")
    assert (answer.status, answer.json["block"]["content"]) == (200, "Likes tea.")
    shown = await memory(server)
    assert shown["prompt"]["behind"] == ["memory"]
    assert [block["is_behind"] for block in shown["blocks"]] == [False, True, False]
    assert "Written since, shows after the next refresh: memory." in piece(shown, "blocks")["why"]
    await chat.until_done(await chat.say("And?"))
    assert "Likes tea." not in model.last_request.system

    # And after a refresh the model reads it
    answer = await post(server, "memory/refresh")
    assert answer.json["prompt"]["last_refresh"]["reason"] == "asked"
    assert answer.json["prompt"]["behind"] == []
    await chat.until_done(await chat.say("And now?"))
    assert "Likes tea." in model.last_request.system


@pytest.mark.parametrize(
    ("fields", "status", "sentence"),
    [
        ({"label": "soul", "content": "Be rude."}, 400, "readonly"),
        ({"label": "nothing", "content": "x"}, 400, "was not found"),
        ({"label": "memory", "content": "word " * 100}, 400, "exceeds maxTokens"),
        ({"label": "memory", "content": "x", "was": "something else"}, 409, "written meanwhile"),
        ({"label": "memory"}, 400, "Nothing was written"),
        ({"label": "memory", "content": 7}, 400, "Nothing was changed"),
    ],
)
async def test_what_cannot_be_written_is_refused_with_a_letter(
    develop: Develop, fields: dict[str, Any], status: int, sentence: str
) -> None:
    server = await develop(remembering(ScriptedModel()))
    before = (await memory(server))["blocks"]
    answer = await post(server, "memory/blocks", **fields)
    assert answer.status == status
    assert sentence in answer.json["error"]
    assert (await memory(server))["blocks"] == before


# --- summaries


async def test_a_summary_says_what_it_stands_for_and_why(develop: Develop) -> None:
    cls = shortening(ScriptedModel(*(says(f"Answer {n}.") for n in range(4))))
    server = await develop(cls)
    chat = await say(server, cls, "One", "Two", "Three")
    assert (await memory(server))["compactions"] == []
    answer = await post(server, "memory/compact")
    assert (answer.status, answer.json["is_shorter"]) == (200, True)
    assert answer.json["tokens"] < answer.json["tokens_before"]

    # Every window shows the summary, and the list says of what
    await chat.until(lambda: chat.messages[0].id.startswith("compaction_"))
    assert [m.text for m in chat.messages] == ["4 of them.", "Three", "Answer 2."]
    [row] = (await memory(server))["compactions"]
    assert (row["messages"], row["reason"], row["state"]) == (4, "asked", "shown")
    assert (row["message_id"], row["summary"]) == (chat.messages[0].id, "4 of them.")

    # The messages are all there
    for id in (row["id"], row["message_id"]):
        found = (await server.http(f"{ROOM}/compacted/{id}")).json
        assert found["left_out"] == 0
        texts = [part["text"] for m in found["messages"] for part in m["parts"] if part["type"] == "text"]
        assert texts == ["One", "Answer 0.", "Two", "Answer 1."]

    # And a later one that grows over it leaves it in the list
    await chat.until_done(await chat.say("Four"))
    assert (await post(server, "memory/compact")).json["is_shorter"]
    newer, older = (await memory(server))["compactions"]
    assert (newer["messages"], newer["state"], older["state"]) == (6, "shown", "covered")


async def test_there_may_be_nothing_to_shorten(develop: Develop) -> None:
    server = await develop(shortening(ScriptedModel()))
    assert (await post(server, "memory/compact")).json["is_shorter"] is False
    assert (await server.http(f"{ROOM}/compacted/nothing")).status == 404


async def test_without_a_compaction_function_nothing_can_be_shortened(develop: Develop) -> None:
    server = await develop(remembering(ScriptedModel()))
    answer = await post(server, "memory/compact")
    assert answer.status == 409
    assert "on_compaction" in answer.json["error"]


async def test_nothing_is_shortened_while_a_turn_runs(develop: Develop) -> None:
    go = asyncio.Event()
    cls = shortening(ScriptedModel(says("One."), says("Slowly ").waits(go).says("does it.")))
    server = await develop(cls)
    chat = await say(server, cls, "Hello")
    request = await chat.say("Go on")
    await chat.until_text("Slowly ")
    answer = await post(server, "memory/compact")
    assert answer.status == 409
    assert "Nothing was changed" in answer.json["error"]
    go.set()
    await chat.until_done(request)
    assert (await memory(server))["compactions"] == []


async def test_versions_below_a_summary_are_found_and_chosen(develop: Develop) -> None:
    # Given a question that a summary ends with, and two answers to it
    cls = shortening(ScriptedModel(says("A."), says("First."), says("Second.")))
    server = await develop(cls)
    chat = await server.connect(cls)
    await chat.until_done(await chat.say("One"))
    await chat.until_done(await chat.say("Two", message_id="q"))
    await chat.until_done(await chat.request(chat.messages[:3], trigger="regenerate-message"))
    await chat.settled()
    agent = await live(server.app._loaded.app.agent(cls, "room"))
    overlay = await agent.session.add_compaction("Until the question.", chat.messages[0].id, "q")
    assert overlay is not None

    # Then they are known under the id that the page knows
    shown = (await server.http(ROOM)).json
    fork = shown["forks"][overlay.message_id]
    assert (len(fork["versions"]), fork["active"]) == (2, 1)
    answers = (await server.http(f"{ROOM}/answers/{overlay.message_id}")).json
    assert [v["messages"][0]["parts"][-1]["text"] for v in answers["versions"]] == ["First.", "Second."]
    assert (await post(server, "leaf", message=fork["versions"][0])).status == 200
    await chat.until(lambda: [m.text for m in chat.messages] == ["Until the question.", "First."])


# --- results that are left out


async def test_results_left_out_of_the_prompt_are_listed(develop: Develop) -> None:
    cls = remembering(ScriptedModel())
    server = await develop(cls)
    agent = await live(server.app._loaded.app.agent(cls, "room"))
    part = {
        "type": "tool-look",
        "toolCallId": "c1",
        "state": "output-available",
        "input": {},
        "output": "much",
    }
    await agent.session.append_message(Message("a", "assistant", [part]))
    agent.session.omitted |= {"c1", "c2"}
    assert (await memory(server))["omitted"] == [
        {"call_id": "c1", "tool": "look"},
        {"call_id": "c2", "tool": None},
    ]


# --- who may


async def test_looking_makes_no_agent(develop: Develop) -> None:
    server = await develop(remembering(ScriptedModel()))
    for rest in ("", "/memory", "/sessions", "/search?q=x", "/compacted/x", "/turns/x", "/answers/x"):
        assert (await server.http(f"{ROOM}{rest}")).status in (200, 404)
    directory = await server.app._loaded.app.open()
    assert len(directory) == 0
    assert await directory.store.fetch("SELECT agent FROM agents") == []


async def test_an_agent_that_does_not_exist_yet_remembers_nothing(develop: Develop) -> None:
    """The page may ask before its socket is there, and a failure would stand in the browser's console."""
    server = await develop(remembering(ScriptedModel()))
    for rest in ("memory", "sessions", "search?q=x"):
        answer = await server.http(f"{ROOM}/{rest}")
        assert (answer.status, answer.json) == (200, None)


async def test_a_body_that_is_too_long_is_refused(develop: Develop) -> None:
    server = await develop(remembering(ScriptedModel()))
    for rest, size in (("leaf", 10_001), ("memory/blocks", 1_000_001)):
        headers = {"Content-Length": str(size)}
        answer = await server.http(f"{ROOM}/{rest}", method="POST", headers=headers)
        assert answer.status == 413
        assert str(size - 1) in answer.json["error"]


async def test_memory_has_the_same_guard_as_the_rest(develop: Develop) -> None:
    server = await develop(remembering(ScriptedModel()))
    foreign = {"Origin": "http://evil.example"}
    for rest in ("memory", "sessions", "search?q=x", "compacted/x"):
        assert (await server.http(f"{ROOM}/{rest}", headers=foreign)).status == 403
    body = json.dumps({"label": "memory", "content": "owned"}).encode()
    for rest in ("memory/blocks", "memory/refresh", "memory/compact", "sessions", "sessions/open"):
        answer = await server.http(f"{ROOM}/{rest}", method="POST", headers=foreign, body=body)
        assert answer.status == 403
    assert all("owned" not in block["content"] for block in (await memory(server))["blocks"])
    assert (await server.http(MEMORY, method="DELETE")).status == 405
    for rest in ("memory/nothing", "sessions/nothing"):
        assert (await server.http(f"{ROOM}/{rest}")).status == 404
        assert (await post(server, rest)).status == 404
