"""The extensions of an agent, as the page sees, loads and unloads them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from everthink.access.permissions import Permission
from everthink.extensions import Extension, TrustedExtension, installed
from everthink.extensions.values import Permissions
from everthink.testing import ScriptedModel, calls, says
from everthink.tools.tool import tool

from ..support.agents import assistant, live
from ..support.server import Served
from .conftest import ROOM, Develop

pytestmark = pytest.mark.anyio

EXTENSIONS = f"{ROOM}/extensions"
WORDS = """({
  tools: {
    count: {
      description: "Count words",
      parameters: { text: { type: "string" } },
      required: ["text"],
      execute: async ({ text }) => text.trim().split(/\\s+/).length,
    },
  },
  hooks: { afterToolCall: async (call) => console.log(`${call.toolName} was called`) },
})"""
BROKEN = "({ count: async () => 1 })"


class Sums(TrustedExtension):
    """Adds up."""

    @tool
    def add(self, a: int, b: int) -> int:
        """Add two numbers."""
        self.log("adding", a, "and", b)
        return a + b

    def before_turn(self, turn: Any) -> None:
        raise RuntimeError("out of numbers")


async def begun(server: Served) -> Any:
    """See that the agent exists: looking does not make it."""
    app = server.app._loaded.app
    return await live(app.agent(app.classes[0], "room"))


async def post(server: Served, deed: str, **fields: Any) -> Any:
    return await server.http(f"{EXTENSIONS}/{deed}", method="POST", body=json.dumps(fields).encode())


async def shown(server: Served) -> dict[str, Any]:
    return {one["name"]: one for one in (await server.http(EXTENSIONS)).json["extensions"]}


async def test_looking_makes_no_agent_and_one_without_extensions_has_none(develop: Develop) -> None:
    server = await develop(assistant(ScriptedModel()))
    assert (await server.http(EXTENSIONS)).json is None
    assert not (await server.http("/everthink/conversations/assistant")).json["conversations"]
    agent = await begun(server)
    assert (await server.http(EXTENSIONS)).json == {"extensions": [], "failed": []}
    assert agent._home.chat.extensions.loaded is None  # looking made no manager
    for nowhere in ("elsewhere", "source?name=words"):
        assert (await server.http(f"{EXTENSIONS}/{nowhere}")).status == 404
    assert (await post(server, "unload", name="words")).status == 404


async def test_one_of_this_process_is_shown_with_what_it_said_and_what_failed(develop: Develop) -> None:
    model = ScriptedModel(calls("sums_add", a=1, b=2), says("Three."))
    server = await develop(assistant(model, extensions=[Sums]))
    agent = await begun(server)
    await agent.save_messages("How much is it?")

    one = (await shown(server))["sums"]

    assert (one["origin"], one["language"], one["permissions"]) == ("package", None, None)
    assert (one["description"], one["hooks"]) == ("Adds up.", ["before_turn"])
    [adds] = one["tools"]
    assert (adds["name"], adds["description"]) == ("sums_add", "[sums] Add two numbers.")
    assert set(adds["schema"]["properties"]) == {"a", "b"}
    assert one["log"][0] == "before_turn failed: out of numbers"
    assert "adding 1 and 2" in one["log"]
    assert (await server.http(f"{EXTENSIONS}/source?name=sums")).status == 404


async def test_why_others_are_not_there_is_said(develop: Develop) -> None:
    server = await develop(assistant(ScriptedModel(), extensions=[installed("nowhere"), Sums]))
    await begun(server)
    told = (await server.http(EXTENSIONS)).json
    [failed] = told["failed"]
    assert failed["what"] == "the extension 'nowhere'"
    assert "No installed package has the extension 'nowhere'" in failed["error"]
    assert [one["name"] for one in told["extensions"]] == ["sums"]


async def test_one_that_the_program_names_comes_back_and_says_so(develop: Develop) -> None:
    server = await develop(assistant(ScriptedModel(), extensions=[Sums]))
    await begun(server)
    assert (await post(server, "unload", name="sums")).json == {
        "name": "sums",
        "comes_back": True,
        "values_deleted": 0,
    }
    assert await shown(server) == {}
    assert (await post(server, "unload", name="sums")).status == 404
    app = server.app._loaded.app
    await app.evict(app.classes[0], "room")
    assert list(await shown(server)) == ["sums"]


async def test_what_logs_say_like_a_credential_is_masked(develop: Develop) -> None:
    class Chatty(TrustedExtension):
        async def on_load(self) -> None:
            self.log("Authorization: Bearer sk-ant-REDACTED")

    server = await develop(assistant(ScriptedModel(), extensions=[Chatty]))
    await begun(server)
    assert "sk-ant-REDACTED" not in str((await shown(server))["chatty"]["log"])


@pytest.mark.slow
async def test_a_person_loads_a_source_with_rights_and_unloads_it(develop: Develop) -> None:
    model = ScriptedModel(calls("word_tools_count", text="one two three"), says("Three."))
    server = await develop(assistant(model))
    agent = await begun(server)

    loaded = await post(
        server,
        "load",
        name="word-tools",
        source=WORDS,
        workspace="read",
        network="api.example.com, *.wiki.org",
    )

    assert (loaded.status, loaded.json["version"], loaded.json["language"]) == (200, "1.0.0", "javascript")
    assert loaded.json["permissions"]["workspace"] == "read"
    assert loaded.json["permissions"]["network"] == ["api.example.com", "*.wiki.org"]
    await agent.save_messages("How many?")
    one = (await shown(server))["word-tools"]
    assert (one["origin"], one["hooks"], one["log"]) == (
        "code",
        ["after_tool_call"],
        ["word_tools_count was called"],
    )

    assert (await server.http(f"{EXTENSIONS}/source?name=word-tools")).json == {"source": WORDS}

    # It is there after a restart, and gone for good when it is unloaded
    app = server.app._loaded.app
    await app.evict(app.classes[0], "room")
    assert list(await shown(server)) == ["word-tools"]
    assert (await post(server, "unload", name="word-tools")).json == {
        "name": "word-tools",
        "comes_back": False,
        "values_deleted": 0,
    }
    await app.evict(app.classes[0], "room")
    assert await shown(server) == {}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"name": "", "source": WORDS}, "name"),
        ({"name": "…", "source": WORDS}, "no letter and no digit"),
        ({"name": "words", "source": ""}, "has no source"),
        ({"name": "words", "source": BROKEN}, "Invalid extension source format"),
        ({"name": "words", "source": WORDS, "language": "cobol"}, "language"),
        ({"name": "words", "source": WORDS, "workspace": "all"}, "workspace"),
        ({"name": "words", "source": WORDS, "network": "https://example.com/"}, "host"),
        ({"name": "words", "source": WORDS, "rights": "all"}, "'rights' is not known"),
    ],
)
async def test_what_cannot_be_loaded_is_refused_in_words(develop: Develop, fields: Any, words: str) -> None:
    server = await develop(assistant(ScriptedModel()))
    await begun(server)
    refused = await post(server, "load", **fields)
    assert (refused.status, words in refused.json["error"]) == (400, True), refused.json
    assert await shown(server) == {}


@pytest.mark.slow
async def test_one_of_the_program_in_a_sandbox_is_shown_with_its_rights(develop: Develop) -> None:
    manifest: Any = {"name": "words", "version": "2.1", "permissions": Permissions(storage=True)}
    server = await develop(assistant(ScriptedModel(), extensions=[Extension(manifest, WORDS)]))
    await begun(server)
    one = (await shown(server))["words"]
    assert (one["origin"], one["version"], one["permissions"]["storage"]) == ("declared", "2.1", True)


async def test_who_may_only_look_changes_nothing(develop: Develop) -> None:
    def permissions(identity: Any, action: str) -> Any:
        return action == "inspect" or frozenset[Permission]()

    server = await develop(assistant(ScriptedModel(), extensions=[Sums]), authorize=permissions)
    await begun(server)
    for deed in ("load", "unload"):
        refused = await post(server, deed, name="sums", source=WORDS)
        assert (refused.status, "not change it" in refused.json["error"]) == (403, True)
    assert list(await shown(server)) == ["sums"]


async def test_another_site_changes_nothing(develop: Develop) -> None:
    server = await develop(assistant(ScriptedModel(), extensions=[Sums]))
    await begun(server)
    for deed in ("load", "unload"):
        body = json.dumps({"name": "sums", "source": WORDS}).encode()
        headers = {"Origin": "http://evil.example"}
        sent = await server.http(f"{EXTENSIONS}/{deed}", method="POST", headers=headers, body=body)
        assert sent.status == 403
    assert list(await shown(server)) == ["sums"]


async def test_a_source_that_is_too_long_is_refused(develop: Develop) -> None:
    server = await develop(assistant(ScriptedModel()))
    await begun(server)
    refused = await post(server, "load", name="words", source="x" * 500_001)
    assert (refused.status, "may have 500,000" in refused.json["error"]) == (400, True)
