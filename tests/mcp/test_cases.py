"""Promises about MCP servers that several modules keep: restoring, waiting, discovering, offering."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from tests.support.authorization import Locked
from tests.support.mcp_stack import Assistant, Serving, Stack, calculator, state_of

from everthink.errors import AgentError, ToolError
from everthink.testing import ManualClock, ScriptedModel, calls, says

pytestmark = pytest.mark.anyio


@pytest.fixture
async def locked(anyio_backend: str) -> AsyncIterator[Locked]:
    async with Locked(ManualClock()) as locked:
        yield locked


@pytest.fixture
async def stack(tmp_path: Path, locked: Locked) -> AsyncIterator[Stack]:
    async with Stack(f"sqlite:///{tmp_path}/app.db", locked.clock) as stack:
        yield stack


@pytest.fixture
async def serving(anyio_backend: str) -> AsyncIterator[Serving]:
    async with Serving() as serving:
        yield serving


async def unavailable(request: Request, said: dict[str, Any]) -> Response:
    return Response("away", 503)


def failing(method: str, code: int, message: str = "no") -> Any:
    """Answer one method with an error of JSON-RPC."""

    async def before(request: Request, said: dict[str, Any]) -> Response | None:
        if said.get("method") != method:
            return None
        return JSONResponse({"jsonrpc": "2.0", "id": said["id"], "error": {"code": code, "message": message}})

    return before


# --- in this process


@pytest.mark.agent_case(209)
async def test_a_server_in_this_process_is_connected_listed_called_and_there_again_after_a_restart(
    tmp_path: Path,
) -> None:
    async with Stack(f"sqlite:///{tmp_path}/app.db", mcp_servers={"My sums": calculator()}) as stack:
        for _ in range(2):
            agent = await stack.settled()

            [server] = await agent.list_mcp_servers()

            assert (server.id, server.state, server.is_shared) == ("my-sums", "ready", True)
            assert server.tools == ("my-sums_add",)
            assert await agent.call_mcp_tool("My sums", "add", {"a": 1, "b": 2}) == {"result": 3}
            assert await stack.rows() == []
            await stack.restart()


# --- connecting and discovering


@pytest.mark.agent_case(210)
async def test_what_a_server_does_not_have_or_does_not_know_is_an_empty_list(
    stack: Stack, serving: Serving
) -> None:
    serving.before = failing("prompts/list", -32601, "Method not found")
    agent = await stack.live()

    server = await agent.add_mcp_server("sums", serving.url)

    offered = await agent.get_mcp_servers()
    assert (server.state, offered["prompts"], offered["resources"]) == ("ready", [], [])
    assert [tool["name"] for tool in offered["tools"]] == ["add"]
    assert "tools" in offered["servers"][server.id]["capabilities"]


@pytest.mark.agent_case(212)
async def test_an_error_of_a_call_that_is_numbered_404_is_no_end_of_the_session(
    stack: Stack, serving: Serving
) -> None:
    agent = await stack.live()
    server = await agent.add_mcp_server("sums", serving.url)
    serving.before = failing("tools/call", 404, "There is no such sum")
    listed = serving.asked.count("tools/list")

    with pytest.raises(ToolError, match="There is no such sum"):
        await agent.call_mcp_tool(server.id, "add", {"a": 1, "b": 2})

    assert (await agent.list_mcp_servers())[0].state == "ready"
    assert (serving.asked.count("tools/call"), serving.asked.count("tools/list")) == (1, listed)


@pytest.mark.agent_case(213)
@pytest.mark.parametrize(
    "method", ["tools/list", "prompts/list", "resources/list", "resources/templates/list"]
)
async def test_a_list_that_cannot_be_had_fails_the_server_until_it_can(
    stack: Stack, serving: Serving, method: str
) -> None:
    serving.before = failing(method, -32000, "the list is torn")
    chat = await stack.connect()
    agent = await stack.live()

    with pytest.raises(AgentError, match="the list is torn"):
        await agent.add_mcp_server("sums", serving.url)

    serving.before = None
    await locked_time(stack)
    await chat.until(lambda: state_of(chat) == "ready")


async def locked_time(stack: Stack) -> None:
    """So long until a server that failed is tried again."""
    clock = stack.clock
    assert isinstance(clock, ManualClock)
    await clock.until_waiting()
    await clock.advance(5)


@pytest.mark.agent_case(213)
async def test_a_server_that_wants_a_person_when_it_is_listed_is_waited_for(
    stack: Stack, serving: Serving, locked: Locked
) -> None:
    here = serving.url.removesuffix("/mcp")

    async def locked_list(request: Request, said: dict[str, Any]) -> Response | None:
        if "oauth-protected-resource" in request.url.path:
            return JSONResponse({"resource": serving.url, "authorization_servers": [f"{locked.issuer}/"]})
        if said.get("method") == "tools/list":
            where = f'Bearer resource_metadata="{here}/.well-known/oauth-protected-resource/mcp"'
            return Response(status_code=401, headers={"WWW-Authenticate": where})
        return None

    serving.before = locked_list
    chat = await stack.connect()

    server = await stack.add(chat, "sums", serving.url)

    assert server["state"] == "authenticating"
    assert server["auth_url"].startswith(f"{locked.issuer}/authorize?")


@pytest.mark.agent_case(214)
async def test_events_tell_how_a_server_stood_in_order(stack: Stack, serving: Serving) -> None:
    agent = await stack.live()

    server = await agent.add_mcp_server("sums", serving.url)

    told = [event.payload for event in stack.events if event.type == "mcp:client:connect"]
    assert [one["state"] for one in told][-2:] == ["discovering", "ready"]
    assert {(one["serverId"], one["url"]) for one in told} == {(server.id, serving.url)}


@pytest.mark.agent_case(215)
@pytest.mark.parametrize(
    ("status", "falls_back"), [(404, True), (405, True), (501, True), (500, False), (403, False)]
)
async def test_server_sent_events_are_tried_when_a_server_knows_no_other_way(
    stack: Stack, serving: Serving, status: int, falls_back: bool
) -> None:
    async def old(request: Request, said: dict[str, Any]) -> Response:
        return Response("Not found", status if request.method == "POST" else 404)

    serving.before = old
    agent = await stack.live()

    with pytest.raises(AgentError, match="Failed to connect"):
        await agent.add_mcp_server("sums", serving.url)

    assert ("GET" in serving.asked) is falls_back


@pytest.mark.agent_case(215)
async def test_words_that_something_was_not_found_are_no_reason_to_try_another_way(
    stack: Stack, serving: Serving
) -> None:
    async def old(request: Request, said: dict[str, Any]) -> Response:
        error = {"code": -32000, "message": "not found"}
        return JSONResponse({"jsonrpc": "2.0", "id": said.get("id"), "error": error})

    serving.before = old
    agent = await stack.live()

    with pytest.raises(AgentError, match="not found"):
        await agent.add_mcp_server("sums", serving.url)

    assert "GET" not in serving.asked


@pytest.mark.agent_case(216)
async def test_a_server_that_does_not_take_our_header_says_so_and_sends_nobody_away(
    stack: Stack, locked: Locked
) -> None:
    agent = await stack.live()

    with pytest.raises(AgentError, match="401"):
        await agent.add_mcp_server(
            "locked", locked.url, headers={"authorization": "Bearer no"}, callback_host=stack.origin
        )

    assert locked.events == []
    assert (await agent.list_mcp_servers())[0].state == "failed"


# --- after a restart


@pytest.mark.agent_case(207, 235, 236)
async def test_every_kind_of_server_is_restored_once_as_it_was(
    stack: Stack, serving: Serving, locked: Locked
) -> None:
    # Given a plain server, one that let us in, one that waits for a person, one that is away
    async with Serving() as away:
        away.before = unavailable
        chat = await stack.connect()
        await stack.add(chat, "plain", serving.url, id="plain")
        await stack.add(chat, "in", locked.url, id="in")
        await stack.allowed(chat, "in")
        waiting = await stack.add(chat, "waiting", locked.url, id="waiting")
        await chat.call("add", "away", away.url, {"id": "away"})
        ids = [row[1] for row in await stack.rows()]
        registered = len(locked.clients)

        # When the process is another one
        await stack.restart()
        before = len(away.asked)
        chat = await stack.connect()
        await chat.until(lambda: [state_of(chat, id) for id in ("plain", "in")] == ["ready", "ready"])
        await chat.until(lambda: state_of(chat, "away") == "failed")

        # Then each of them is there, and who waited waits at the same place
        servers = {one["id"]: one for one in (await chat.call("servers"))[-1]["result"]}
        assert sorted(servers) == sorted(ids) == ["away", "in", "plain", "waiting"]
        assert (servers["waiting"]["state"], servers["waiting"]["auth_url"]) == (
            "authenticating",
            waiting["auth_url"],
        )
        assert (len(locked.clients), len(away.asked) > before) == (registered, True)
        assert locked.events.count("exchange") == 1


@pytest.mark.agent_case(237)
async def test_a_server_that_is_away_at_a_restart_is_tried_on_and_one_that_waits_for_a_person_is_not(
    stack: Stack, serving: Serving, locked: Locked
) -> None:
    chat = await stack.connect()
    await stack.add(chat, "plain", serving.url, id="plain")
    await stack.add(chat, "waiting", locked.url, id="waiting")
    serving.before = unavailable
    await stack.restart()
    chat = await stack.connect()
    await chat.until(lambda: state_of(chat, "plain") == "failed")
    asked_of_issuer = len(locked.forms), len(locked.clients)

    for _ in range(3):
        before = len(serving.asked)
        await locked_time(stack)
        await locked.clock.until_waiting()
        assert len(serving.asked) > before
    serving.before = None
    await locked_time(stack)
    await chat.until(lambda: state_of(chat, "plain") == "ready")

    assert state_of(chat, "waiting") == "authenticating"
    assert (len(locked.forms), len(locked.clients)) == asked_of_issuer


@pytest.mark.agent_case(208, 238)
async def test_another_id_is_given_while_the_server_is_still_being_restored(
    stack: Stack, serving: Serving
) -> None:
    await stack.add(await stack.connect(), "sums", serving.url, id="old")
    await stack.restart()
    agent = await stack.live()

    server = await agent.add_mcp_server("sums", serving.url, id="new")

    assert (server.id, server.state) == ("new", "ready")
    assert [row[1] for row in await stack.rows()] == ["new"]
    assert [one.id for one in await agent.list_mcp_servers()] == ["new"]
    assert len([task for task in asyncio.all_tasks() if task.get_name() == "mcp server sums"]) == 1


@pytest.mark.agent_case(208, 232)
async def test_a_person_who_waits_for_a_server_with_another_id_is_sent_away_anew(
    stack: Stack, locked: Locked
) -> None:
    chat = await stack.connect()
    before = await stack.add(chat, "locked", locked.url, id="old")

    after = await stack.add(chat, "locked", locked.url, id="new")

    assert (after["id"], after["state"]) == ("new", "authenticating")
    assert after["auth_url"] != before["auth_url"]
    await stack.allowed(chat, "new")
    assert len(locked.clients) == 1


@pytest.mark.agent_case(208)
async def test_what_a_person_allowed_stays_with_the_server_under_another_id(
    stack: Stack, locked: Locked
) -> None:
    chat = await stack.connect()
    await stack.add(chat, "locked", locked.url, id="old")
    await stack.allowed(chat, "old")

    after = await stack.add(chat, "locked", locked.url, id="new")

    assert (after["id"], after["state"]) == ("new", "ready")
    assert locked.events.count("authorize") == 1


@pytest.mark.agent_case(240)
async def test_adding_a_server_again_that_waits_for_a_person_gives_its_address_as_long_as_that_is_good(
    stack: Stack, locked: Locked
) -> None:
    chat = await stack.connect()
    first = await stack.add(chat, "locked", locked.url)
    assert (await stack.add(chat, "locked", locked.url))["auth_url"] == first["auth_url"]
    await stack.restart()
    chat = await stack.connect()

    again = await stack.add(chat, "locked", locked.url)
    await locked.clock.advance(601)
    later = await stack.add(chat, "locked", locked.url)

    assert again == first
    assert (later["id"], later["state"]) == (first["id"], "authenticating")
    assert later["auth_url"] != first["auth_url"]
    await stack.allowed(chat, first["id"])


@pytest.mark.agent_case(240)
async def test_who_is_let_in_meanwhile_by_a_token_that_is_kept_is_ready_when_it_is_added_again(
    stack: Stack, locked: Locked
) -> None:
    chat = await stack.connect()
    server = await stack.add(chat, "locked", locked.url)
    await stack.allowed(chat, server["id"])

    assert (await stack.add(chat, "locked", locked.url))["state"] == "ready"

    assert locked.events.count("authorize") == 1


@pytest.mark.agent_case(241)
async def test_adding_a_restored_server_waits_until_it_is_ready_or_says_why_it_is_not(
    stack: Stack, locked: Locked, serving: Serving
) -> None:
    chat = await stack.connect()
    server = await stack.add(chat, "locked", locked.url)
    await stack.allowed(chat, server["id"])
    await stack.add(chat, "sums", serving.url)
    serving.before = failing("tools/list", -32000, "the list is torn")
    await stack.restart()
    chat = await stack.connect()

    again = await stack.add(chat, "locked", locked.url)
    [refused] = await chat.call("add", "sums", serving.url, {})

    assert (again["id"], again["state"], again["tools"]) == (server["id"], "ready", ["locked_add"])
    assert "the list is torn" in refused["error"]


@pytest.mark.agent_case(244)
async def test_tools_are_made_once_for_what_a_server_offers(stack: Stack, serving: Serving) -> None:
    agent = await stack.live()
    server = await agent.add_mcp_server("sums", serving.url)
    servers = agent._home.mcp

    first = servers.find(server.id).tools()

    assert servers.find(server.id).tools() is first
    assert (await servers.tools())["sums_add"] is first["sums_add"]


# --- waiting


async def test_a_server_that_hangs_is_waited_for_once_in_each_attempt(stack: Stack, serving: Serving) -> None:
    await stack.add(await stack.connect(), "slow", serving.url)

    async def hangs(request: Request, said: dict[str, Any]) -> None:
        await asyncio.Event().wait()

    serving.before = hangs
    await stack.restart()
    servers = (await stack.live())._home.mcp
    first = asyncio.create_task(servers.wait(10))
    await stack.clock.until_waiting()
    await stack.clock.advance(10)
    await first

    # When the next turn waits, no time passes
    await servers.wait(10)


@pytest.mark.agent_case(246, 247)
async def test_waiting_ends_when_all_have_answered_in_whichever_way_or_in_time(
    stack: Stack, serving: Serving
) -> None:
    # Given three servers at a restart: one is there, one is away, one takes its time
    async with Serving() as away, Serving() as slow:
        chat = await stack.connect()
        await stack.add(chat, "there", serving.url, id="there")
        await stack.add(chat, "away", away.url, id="away")
        await stack.add(chat, "slow", slow.url, id="slow")
        goes_on = asyncio.Event()

        async def late(request: Request, said: dict[str, Any]) -> None:
            await goes_on.wait()

        away.before, slow.before = unavailable, late
        await stack.restart()
        chat = await stack.connect()
        servers = (await stack.live())._home.mcp
        clock = stack.clock
        assert isinstance(clock, ManualClock)

        # When several wait, one of them for two seconds
        await servers.wait(0)
        await servers.wait(-1)
        patient = [asyncio.create_task(servers.wait(None)) for _ in range(2)]
        hurried = asyncio.create_task(servers.wait(2))
        for _ in range(12):
            await clock.advance(1)
            await asyncio.sleep(0.01)

        # Then that one has gone, and the others go when the last server has answered
        await hurried
        assert not any(one.done() for one in patient)
        goes_on.set()
        await asyncio.wait_for(asyncio.gather(*patient), 5)
        await chat.until(lambda: (state_of(chat, "there"), state_of(chat, "slow")) == ("ready", "ready"))
        await servers.wait(None)


async def test_waiting_for_nothing_is_over_at_once(stack: Stack) -> None:
    servers = (await stack.live())._home.mcp

    await asyncio.wait_for(servers.wait(None), 1)


class Waiting(Assistant):
    """Waits for its servers before each turn."""

    wait_for_mcp_connections = True
    seen: list[str] = []  # noqa: RUF012

    async def before_turn(self, turn: Any) -> None:
        self.seen.extend(server.state for server in await self.list_mcp_servers())


@pytest.mark.agent_case(247)
@pytest.mark.parametrize("waits", [True, 5.0, False])
async def test_a_turn_waits_for_servers_that_are_being_restored_if_it_is_told_to(
    tmp_path: Path, serving: Serving, monkeypatch: pytest.MonkeyPatch, waits: bool | float
) -> None:
    monkeypatch.setattr(Waiting, "wait_for_mcp_connections", waits)
    monkeypatch.setattr(Waiting, "seen", seen := [])
    asked, goes_on = asyncio.Event(), asyncio.Event()

    async def late(request: Request, said: dict[str, Any]) -> None:
        asked.set()
        await goes_on.wait()

    async with Stack(f"sqlite:///{tmp_path}/app.db", ManualClock(), agent=Waiting) as stack:
        await stack.add(await stack.connect(), "sums", serving.url)
        serving.before = late
        await stack.restart()
        Waiting.script = ScriptedModel(says("Hi."))

        turn = asyncio.create_task(stack.app.agent(Waiting, "room").save_messages("Hello"))
        await asked.wait()
        if not waits:
            await turn
        goes_on.set()
        await turn

        assert seen == (["ready"] if waits else ["connecting"])
        await stack.settled()


# --- offering


class Hiding(Assistant):
    """Keeps its servers from the model."""

    include_mcp_tools = False


@pytest.mark.agent_case(251)
@pytest.mark.case(208)
@pytest.mark.parametrize(("agent", "offered"), [(Assistant, ["sums_add"]), (Hiding, [])])
async def test_tools_of_servers_are_offered_unless_that_is_switched_off_and_code_uses_them_anyway(
    tmp_path: Path, serving: Serving, agent: type[Any], offered: list[str]
) -> None:
    async with Stack(f"sqlite:///{tmp_path}/app.db", agent=agent) as stack:
        live = await stack.live()
        await live.add_mcp_server("sums", serving.url)
        agent.script = model = ScriptedModel(says("Hi."))

        await stack.app.agent(agent, "room").save_messages("Hello")

        assert [tool.name for tool in model.requests[0].tools if tool.name.startswith("sums")] == offered
        assert await live.call_mcp_tool("sums", "add", {"a": 1, "b": 2}) == {"result": 3}


@pytest.mark.agent_case(242)
async def test_the_tools_of_all_servers_are_offered_together_and_each_call_goes_to_its_own(
    stack: Stack, serving: Serving
) -> None:
    async with Serving() as other:
        live = await stack.live()
        await live.add_mcp_server("one", serving.url)
        await live.add_mcp_server("two", other.url, tools=["add"])
        Assistant.script = ScriptedModel(calls("two_add", a=1, b=2), says("Three."))

        await stack.app.agent(Assistant, "room").save_messages("1 + 2?")

        assert (serving.asked.count("tools/call"), other.asked.count("tools/call")) == (0, 1)


class Recovering(Assistant):
    """Looks at its servers when a fiber is recovered."""

    found: list[Any] = []  # noqa: RUF012

    async def on_fiber_recovered(self, ctx: Any) -> None:
        self.found.append([server.id for server in await self.list_mcp_servers()])


@pytest.mark.agent_case(168)
async def test_servers_are_known_when_a_fiber_is_recovered(tmp_path: Path, serving: Serving) -> None:
    async with Stack(f"sqlite:///{tmp_path}/app.db", agent=Recovering, grace=0) as stack:
        live = await stack.live()
        await live.add_mcp_server("sums", serving.url, id="sums")
        began = asyncio.Event()

        async def never(ctx: Any) -> None:
            began.set()
            await asyncio.Event().wait()

        fiber = live.run_fiber("never", never)
        await began.wait()

        await stack.restart()
        await stack.settled()

        assert Recovering.found == [["sums"]]
        await asyncio.gather(fiber, return_exceptions=True)
