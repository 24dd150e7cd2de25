"""Two apps on one database, in one process: who has an agent, and what the other one says."""

from __future__ import annotations

import pytest

from everthink import App, Think
from everthink.errors import AgentElsewhere, StoreClosed
from everthink.testing import ScriptedModel, says
from tests.support.agents import assistant, live
from tests.support.server import served

pytestmark = pytest.mark.anyio


def app_of(url: str, agent: type[Think], **options: object) -> App:
    return App(agent, store=url, grace=0.0, idle_after=None, **options)  # type: ignore[arg-type]


async def test_the_second_app_is_told_who_has_the_agent_and_both_serve_their_own(postgres_url: str) -> None:
    agent = assistant(ScriptedModel(says("One."), says("Two.")))
    async with app_of(postgres_url, agent) as first, app_of(postgres_url, agent) as second:
        assert (await first.agent(agent, "a").save_messages("Hello?")).text == "One."
        # When the other one is asked for it
        with pytest.raises(AgentElsewhere, match="'Assistant/a' lives in another process") as told:
            await second.agent(agent, "a").save_messages("Hello?")
        # Then it says who has it and changes nothing, and serves what nobody has
        assert (await first.open()).membership.id in str(told.value)  # type: ignore[union-attr]
        assert len(await first.agent(agent, "a").get_messages()) == 2
        assert (await second.agent(agent, "b").save_messages("Hello?")).text == "Two."
        with pytest.raises(AgentElsewhere):
            await first.agent(agent, "b").get_messages()


async def test_an_agent_that_left_memory_is_anybodys(postgres_url: str) -> None:
    agent = assistant(ScriptedModel(says("One."), says("Two."), says("Three.")))
    async with app_of(postgres_url, agent) as first, app_of(postgres_url, agent) as second:
        await first.agent(agent, "a").save_messages("Hello?")
        kept = await live(first.agent(agent, "a"))
        await first.evict(agent, "a")
        assert (await second.agent(agent, "a").save_messages("Again?")).text == "Two."
        # And code that kept the instance there can write nothing any more
        with pytest.raises(StoreClosed, match="has left memory"):
            await kept.set_state({"stale": True})
        assert [m.text for m in await second.agent(agent, "a").get_messages()] == [
            "Hello?",
            "One.",
            "Again?",
            "Two.",
        ]
    async with app_of(postgres_url, agent) as third:
        assert (await third.agent(agent, "a").save_messages("And?")).text == "Three."


async def test_a_start_that_fails_gives_the_agent_back(postgres_url: str) -> None:
    is_broken = [True]

    def on_start(self: Think, props: object = None) -> None:
        if is_broken.pop():
            raise ValueError("not today")

    agent = assistant(ScriptedModel(), on_start=on_start)
    async with app_of(postgres_url, agent) as first, app_of(postgres_url, agent) as second:
        with pytest.raises(ValueError, match="not today"):
            await live(first.agent(agent, "a"))
        is_broken.append(False)
        assert await second.agent(agent, "a").get_messages() == []


async def test_an_agent_is_erased_where_it_lives_and_nothing_says_that_it_was_ever_run(
    postgres_url: str,
) -> None:
    agent = assistant(ScriptedModel(says("One."), says("Two.")))
    async with app_of(postgres_url, agent) as first, app_of(postgres_url, agent) as second:
        await first.agent(agent, "a").save_messages("Hello?")
        with pytest.raises(AgentElsewhere):
            await second.erase(agent, "a")
        with pytest.raises(AgentElsewhere):
            await second.release(agent, "a")
        assert await first.erase(agent, "a") > 0
        store = (await first.open()).store
        assert await store.fetch("SELECT * FROM claims") == []
        # And whoever is asked next begins from nothing
        assert await second.agent(agent, "a").get_messages() == []
        assert await second.erase(agent, "a") == 0


async def test_http_says_503_and_when_to_come_back_and_a_socket_is_closed_with_1013(
    postgres_url: str,
) -> None:
    agent = assistant(ScriptedModel(says("One.")))
    async with app_of(postgres_url, agent) as first, app_of(postgres_url, agent) as second:
        await first.agent(agent, "room").save_messages("Hello?")
        async with served(second) as server:
            answer = await server.http("/agents/assistant/room/get-messages")
            assert (answer.status, answer.headers["retry-after"]) == (503, "1")
            assert "Another server process has this conversation" in answer.text
            chat = await server.connect(agent)
            code, reason = await chat.until_closed()
            assert code == 1013
            assert "Another server process" in reason
