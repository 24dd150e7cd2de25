"""One name is one agent, from wherever it is written."""

from __future__ import annotations

import unicodedata
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from everthink import AgentError
from everthink.address import canonical, from_address, in_address
from everthink.cli.chat import address_of
from everthink.cli.main import cli
from everthink.client import connect
from everthink.serving.page import WithPage
from everthink.serving.target import Loaded
from everthink.testing import ScriptedModel, says
from tests.conftest import OpenApp
from tests.support.agents import assistant, live
from tests.support.server import open_app as made
from tests.support.server import served

ONE, TWO = "Jürgen", unicodedata.normalize("NFD", "Jürgen")
WRITTEN = ("J%C3%BCrgen", "J%c3%bcrgen", "Ju%CC%88rgen", "%4A%C3%BCrgen")


def test_the_two_ways_to_write_it_are_two_texts_and_one_name() -> None:
    assert ONE != TWO
    assert canonical(TWO) == ONE
    assert {from_address(written) for written in (*WRITTEN, ONE, TWO)} == {ONE}


@pytest.mark.anyio
async def test_it_is_one_agent_over_http_sockets_and_from_code(tmp_path: Path) -> None:
    # Given conversations with Jürgen from everywhere
    asked: list[str] = []

    def authorize(identity: Any, action: str, agent: Any) -> bool:
        asked.append(agent.name)
        return True

    model = ScriptedModel(*(says(f"{number}.") for number in range(8)))
    cls = assistant(model, on_request=lambda self, request: self.name)
    app = made(tmp_path, cls, authenticate=lambda connection: "ada", authorize=authorize)
    async with served(WithPage(Loaded(app, "the tests", app))) as server:
        for name in (ONE, TWO):
            await app.agent(cls, name).save_messages("From code")
        for written in WRITTEN:
            chat = await server.connect(f"/agents/assistant/{written}")
            await chat.until_done(await chat.say("From a socket"))
            assert chat.identity is not None
            assert chat.identity["name"] == written  # as the protocol has it
            assert (await server.http(f"/agents/assistant/{written}/x", method="POST")).json == ONE

        # Then all of it is one conversation, for every reader
        for written in WRITTEN:
            stored = await server.http(f"/agents/assistant/{written}/get-messages")
            assert len(stored.json) == 12
            shown = await server.http(f"/everthink/inspect/assistant/{written}")
            assert len(shown.json["turns"]) == 6
        assert (await live(app.agent(cls, TWO))).name == app.agent(cls, TWO).name == ONE
        assert set(asked) == {ONE}


@pytest.mark.anyio
async def test_what_an_app_does_with_it_is_done_with_one_agent(open_app: OpenApp) -> None:
    app = await open_app(cls := assistant(ScriptedModel(says("One."))))
    agent = await live(app.agent(cls, ONE))
    await agent.save_messages("Hi")
    await app.evict(cls, TWO)
    assert await live(app.agent(cls, TWO)) is not agent
    assert len(await app.agent(cls, TWO).get_messages()) == 2
    assert [line["kind"] async for line in app.export(cls, TWO)]
    assert await app.release(cls, TWO) == []
    assert await app.erase(cls, TWO) > 0


@pytest.mark.parametrize("name", [ONE, TWO, "J%C3%BCrgen"])
def test_the_terminal_finds_it(tmp_path: Path, name: str) -> None:
    import asyncio

    cls, store = assistant(ScriptedModel(says("One."))), f"sqlite:///{tmp_path}/everthink.db"

    async def talk() -> None:
        async with made(tmp_path, cls) as app:
            await app.agent(cls, ONE).save_messages("Hi")

    asyncio.run(talk())
    run = CliRunner()
    inspected = run.invoke(cli, ["inspect", "--agent", f"assistant/{name}", "--json", "--store", store])
    assert '"messages": 2' in inspected.output
    assert "One." in run.invoke(cli, ["export", f"assistant/{name}", "--store", store]).output
    erased = run.invoke(cli, ["erase", f"assistant/{name}", "--store", store], input=f"{TWO}\n")
    assert "Assistant/Jürgen is erased" in erased.output


@pytest.mark.parametrize("whom", [f"assistant/{ONE}", f"assistant/{TWO}", "assistant/J%C3%BCrgen"])
def test_chat_asks_for_it_by_one_address(whom: str) -> None:
    meant = "ws://127.0.0.1:1/agents/assistant/J%C3%BCrgen"
    assert address_of(whom, "http://127.0.0.1:1", None) == meant
    whole = address_of("http://127.0.0.1:1/agents/" + whom, "", None)
    assert from_address(whole.rpartition("/")[2]) == ONE
    assert whole.isascii()


def test_what_separates_stays_escaped_and_what_makes_no_name_stays_as_it_is() -> None:
    assert from_address("a%2fb%2Fc") == "a%2Fb%2Fc"
    assert from_address("a%3fb%23c%20d") == "a%3Fb%23c d"
    for segment in ("a%ff", "a%00", "a%0d%0ab", "a%1b[0m"):
        assert from_address(segment) == segment


SAYABLE = ("room-1", ONE, TWO, "50% off", "a%2Fb", "a%252Fb", "a+b", "a:b@c", "a&b=c;d", "..", "Ω")


@pytest.mark.anyio
async def test_clients_reach_the_agent_of_that_very_name(tmp_path: Path) -> None:
    cls = assistant(ScriptedModel())
    app = made(tmp_path, cls)
    async with served(app) as server:
        for number, name in enumerate(SAYABLE):
            await app.agent(cls, name).set_state({"number": number})
            async with connect(f"http://{server.host}", cls, name) as room:
                assert (room.name, room.state) == (canonical(name), {"number": number})
            tab = await server.connect(cls, name)
            assert (await tab.until_frame("cf_agent_state"))["state"] == {"number": number}


@pytest.mark.parametrize("name", ["shop/berlin", "a?b", "a#b", "a\nb", "\x00", "\ud800"])
def test_clients_refuse_a_name_that_no_address_can_say(name: str) -> None:
    with pytest.raises(AgentError, match="a name that no address can say"):
        in_address(name)
    with pytest.raises(AgentError, match="a name that no address can say"):
        connect("http://127.0.0.1:1", "assistant", name)


def test_chat_refuses_it_too_and_takes_a_name_as_it_is_shown() -> None:
    with pytest.raises(AgentError, match="rather than shop/berlin"):
        address_of("assistant/shop/berlin", "http://127.0.0.1:1", None)
    shown = address_of("assistant/shop%2Fberlin", "http://127.0.0.1:1", None)
    assert from_address(shown.rpartition("/")[2]) == "shop%2Fberlin"
