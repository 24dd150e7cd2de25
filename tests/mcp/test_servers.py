"""The MCP servers of one agent: added, found again, replaced, renamed, removed, bounded."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.request_state import RequestStateSecurity
from mcp_types import ElicitRequest, ElicitRequestFormParams, InputRequiredResult
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from tests.support.mcp_stack import Assistant, Serving, Stack, calculator, state_of

from everthink import App
from everthink.errors import AgentError, InvalidSettings, NotJson, ToolError
from everthink.mcp.servers import MOST_SERVERS
from everthink.testing import ManualClock, ScriptedModel, calls, says

pytestmark = pytest.mark.anyio


@pytest.fixture
async def stack(tmp_path: Path, anyio_backend: str) -> AsyncIterator[Stack]:
    async with Stack(f"sqlite:///{tmp_path}/app.db", ManualClock()) as stack:
        yield stack


@pytest.fixture
async def serving(anyio_backend: str) -> AsyncIterator[Serving]:
    async with Serving() as serving:
        yield serving


async def unavailable(request: Request, said: dict[str, Any]) -> Response:
    return Response("away", 503)


# --- adding


@pytest.mark.agent_case(203, 211, 217)
async def test_a_server_that_is_added_is_ready_kept_and_used(stack: Stack, serving: Serving) -> None:
    agent = await stack.live()

    server = await agent.add_mcp_server("My Sums", serving.url)

    assert (server.state, server.tools, server.auth_url, server.is_shared) == (
        "ready",
        ("my-sums_add",),
        None,
        False,
    )
    assert await agent.call_mcp_tool(server.id, "add", {"a": 1, "b": 2}) == {"result": 3}
    [row] = await stack.rows()
    assert row[:5] == ("Assistant/room", server.id, "My Sums", "my-sums", serving.url)


@pytest.mark.agent_case(206)
async def test_the_same_name_and_address_are_one_server_and_anything_else_is_another(
    stack: Stack, serving: Serving
) -> None:
    agent = await stack.live()
    first = await agent.add_mcp_server("sums", serving.url)
    asked = len(serving.asked)

    again = await agent.add_mcp_server(" sums ", serving.url.replace("http:", "HTTP:") + "#top")
    assert (again, len(serving.asked)) == (first, asked)

    by_name = await agent.add_mcp_server("other sums", serving.url)
    by_url = await agent.add_mcp_server("sums", serving.url + "?v=2")
    assert len({first.id, by_name.id, by_url.id}) == 3
    assert [one.tools for one in await agent.list_mcp_servers()] == [
        ("sums_add",),
        ("other-sums_add",),
        ("sums_2_add",),
    ]


async def test_adding_the_same_server_at_once_makes_one(stack: Stack, serving: Serving) -> None:
    agent = await stack.live()

    added = await asyncio.gather(*(agent.add_mcp_server("sums", serving.url) for _ in range(5)))

    assert len({server.id for server in added}) == 1
    assert len(await stack.rows()) == 1
    assert serving.asked.count("tools/list") == 1


@pytest.mark.agent_case(205, 208)
async def test_an_id_is_taken_in_its_normal_form_and_begins_the_names_of_tools(
    stack: Stack, serving: Serving
) -> None:
    agent = await stack.live()

    server = await agent.add_mcp_server("Sums of everything", serving.url, id="My Sums!")

    assert (server.id, server.tools) == ("my-sums", ("my-sums_add",))
    assert (await agent.add_mcp_server("Sums of everything", serving.url, id="my-sums")).id == "my-sums"
    assert len(await stack.rows()) == 1


@pytest.mark.agent_case(208, 238)
async def test_another_id_for_the_same_server_moves_it_with_all_that_is_kept(
    stack: Stack, serving: Serving
) -> None:
    # Given a server with a secret, which a conversation has used
    agent = await stack.live()
    before = await agent.add_mcp_server("sums", serving.url, headers={"X-Team": "blue"})

    # When it is added under an id
    after = await agent.add_mcp_server("sums", serving.url, id="calc", headers={"X-Team": "blue"})

    # Then it is the same one, and its tools keep their names
    assert (after.id, after.tools) == ("calc", before.tools)
    assert [row[1] for row in await stack.rows()] == ["calc"]
    assert await agent.call_mcp_tool("calc", "add", {"a": 1, "b": 2}) == {"result": 3}
    assert serving.heads[-1]["x-team"] == "blue"
    with pytest.raises(AgentError, match="no MCP server"):
        await agent.call_mcp_tool(before.id, "add", {})

    await stack.restart()
    [kept] = await (await stack.settled()).list_mcp_servers()
    assert (kept.id, kept.tools) == ("calc", before.tools)


@pytest.mark.agent_case(208)
async def test_an_id_that_another_server_has_is_refused_and_nothing_moves(
    stack: Stack, serving: Serving
) -> None:
    agent = await stack.live()
    await agent.add_mcp_server("sums", serving.url, id="calc")
    other = await agent.add_mcp_server("other", serving.url)
    before = await stack.rows()

    for name in ("third", "other"):
        with pytest.raises(AgentError, match="MCP server id \"calc\" is already in use by server 'sums'"):
            await agent.add_mcp_server(name, serving.url, id="calc")

    assert await stack.rows() == before
    assert (await agent.list_mcp_servers(id=other.id))[0].state == "ready"


async def test_an_id_of_a_server_of_the_app_is_refused(tmp_path: Path, serving: Serving) -> None:
    shared = {"calc": calculator()}
    async with Stack(f"sqlite:///{tmp_path}/app.db", mcp_servers=shared) as stack:
        agent = await stack.live()

        with pytest.raises(AgentError, match='"calc" is already in use'):
            await agent.add_mcp_server("mine", serving.url, id="calc")

        mine = await agent.add_mcp_server("calc", serving.url)
        assert mine.tools == ("calc_2_add",)
        with pytest.raises(AgentError, match="one of the app"):
            await agent.remove_mcp_server("calc")


@pytest.mark.agent_case(239)
async def test_other_options_replace_those_before_and_the_connection_with_them(
    stack: Stack, serving: Serving
) -> None:
    agent = await stack.live()
    before = await agent.add_mcp_server("sums", serving.url, headers={"X-Key": "old"}, approval="always")

    after = await agent.add_mcp_server("sums", serving.url, headers={"X-Key": "new"}, tools=[])

    assert (after.id, after.state, after.tools) == (before.id, "ready", ())
    assert serving.heads[-1]["x-key"] == "new"
    await stack.restart()
    [kept] = await (await stack.settled()).list_mcp_servers()
    assert kept.tools == ()


@pytest.mark.agent_case(211)
async def test_a_server_that_does_not_answer_is_kept_told_and_tried_again(
    stack: Stack, serving: Serving
) -> None:
    # Given a server that is away
    serving.before = unavailable
    chat = await stack.connect()
    agent = await stack.live()

    # When it is added, and added once more
    with pytest.raises(AgentError, match=r"Failed to connect to MCP server at http://127.*is kept as"):
        await agent.add_mcp_server("sums", serving.url, id="sums")
    with pytest.raises(AgentError, match='MCP server "sums" is in failed state: '):
        await agent.add_mcp_server("sums", serving.url)

    # Then it is there once it answers
    await chat.until(lambda: state_of(chat, "sums") == "failed")
    serving.before = None
    await stack.clock.advance(5)
    await chat.until(lambda: state_of(chat, "sums") == "ready")
    assert (await agent.add_mcp_server("sums", serving.url)).tools == ("sums_add",)


@pytest.mark.agent_case(242)
async def test_an_error_is_shown_on_one_line_of_at_most_500_characters(
    stack: Stack, serving: Serving
) -> None:
    async def long(request: Request, said: dict[str, Any]) -> Response:
        error = {"code": -32000, "message": "no\n\x1b[2J" + "x" * 2_000}
        return JSONResponse({"jsonrpc": "2.0", "id": said.get("id"), "error": error})

    serving.before = long
    chat = await stack.connect()
    agent = await stack.live()

    with pytest.raises(AgentError):
        await agent.add_mcp_server("sums", serving.url, id="sums")
    await chat.until(lambda: state_of(chat, "sums") == "failed")

    [listed] = await agent.list_mcp_servers()
    told = chat.of("mcp_servers")[-1]["mcp"]["servers"]["sums"]["error"]
    assert told == listed.error
    assert told.startswith("no [2Jxxx")
    assert len(told) <= 503


async def test_an_agent_has_a_bounded_number_of_servers(stack: Stack, serving: Serving) -> None:
    agent = await stack.live()
    for number in range(MOST_SERVERS):
        await agent.add_mcp_server(f"sums {number}", serving.url, tools=[])

    with pytest.raises(AgentError, match=r"has 32 MCP servers already.*Remove one.*App\(mcp_servers"):
        await agent.add_mcp_server("one more", serving.url)

    assert len(await stack.rows()) == MOST_SERVERS
    assert (await agent.add_mcp_server("sums 7", serving.url, tools=[])).state == "ready"


# --- what cannot be added


@pytest.mark.agent_case(250)
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"name": ""}, "name is ''.*text with something in it"),
        ({"name": 7}, "name is 7"),
        ({"name": "x" * 101}, "more than 100 characters"),
        ({"name": "sums\u202e"}, "some that nobody sees"),
        ({"url": None}, "url is None"),
        ({"id": 7}, "id is 7"),
        ({"transport": "smoke"}, "transport is 'smoke'"),
        ({"headers": "Authorization"}, "headers is 'Authorization'.*dict"),
        ({"headers": {"X-Key": 7}}, "headers is .*dict of texts"),
        ({"headers": {"X-Key": "a\r\nHost: b"}}, "'X-Key' cannot be sent"),
        ({"headers": {"X Key": "a"}}, "'X Key' cannot be sent"),
        ({"headers": {"X-Key": "ü"}}, "plain ASCII"),
        ({"headers": {"Host": "inner"}}, "'Host' is the transport's own"),
        ({"headers": {"X-Key": "a" * 20_000}}, "more than 16000 bytes"),
        ({"approval": "sometimes"}, "approval is 'sometimes'"),
        ({"approval": lambda tool, input: True}, r"approval is a function.*App\(mcp_servers="),
        ({"tools": "add"}, "tools is 'add'.*list of texts"),
        ({"tools": [1]}, "tools is"),
        ({"timeout": 0}, "timeout is 0"),
        ({"timeout": "long"}, "timeout is 'long'"),
        ({"timeout": float("inf")}, "timeout is inf"),
        ({"timeout": True}, "timeout is True"),
        ({"total_timeout": -1}, "total_timeout is -1"),
        ({"callback_host": ""}, "callback_host is ''"),
        ({"callback_host": 7}, "callback_host is 7"),
        ({"callback_host": "https://"}, "no address"),
        ({"callback_host": "https://my.page", "callback_path": 7}, "callback_path is 7"),
        ({"client_id": 7}, "client_id is 7"),
        ({"client_secret": ["hush"]}, "client_secret is"),
        ({"scope": ["use"]}, "scope is"),
    ],
)
async def test_what_makes_no_sense_is_refused_in_words_and_nothing_is_kept(
    stack: Stack, serving: Serving, options: dict[str, Any], words: str
) -> None:
    agent = await stack.live()

    with pytest.raises(InvalidSettings, match=words):
        await agent.add_mcp_server(**{"name": "sums", "url": serving.url, **options})

    assert (await stack.rows(), serving.asked) == ([], [])
    assert await agent.list_mcp_servers() == []


@pytest.mark.parametrize(
    ("method", "given", "words"),
    [
        ("remove_mcp_server", (None,), "id is None"),
        ("remove_mcp_server", (7,), "id is 7"),
        ("call_mcp_tool", (7, "add"), "server is 7"),
        ("call_mcp_tool", ("sums", ""), "tool is ''"),
        ("call_mcp_tool", ("sums", "add", [1, 2]), r"input is \[1, 2\]"),
        ("call_mcp_tool", ("sums", "add", {"a": {1}}), "which JSON does not have"),
        ("call_mcp_tool", ("nobody", "add"), "There is no MCP server 'nobody'.*There are: sums"),
        ("get_mcp_prompt", ("sums", None), "name is None"),
        ("get_mcp_prompt", ("sums", "hello", {"who": 7}), "arguments is"),
        ("get_mcp_prompt", ("nobody", "hello"), "There is no MCP server 'nobody'"),
        ("read_mcp_resource", ("sums", 7), "uri is 7"),
        ("read_mcp_resource", ("nobody", "file:///x"), "There is no MCP server 'nobody'"),
    ],
)
async def test_the_other_methods_say_what_they_take(
    stack: Stack, serving: Serving, method: str, given: tuple[Any, ...], words: str
) -> None:
    agent = await stack.live()
    await agent.add_mcp_server("my sums", serving.url, id="sums")
    asked = len(serving.asked)

    with pytest.raises((InvalidSettings, NotJson, AgentError), match=words):
        await getattr(agent, method)(*given)

    assert len(serving.asked) == asked


@pytest.mark.parametrize("filters", [{"id": 7}, {"name": [7]}, {"state": "redy"}, {"state": ["ready", "no"]}])
async def test_filters_that_can_fit_nothing_are_refused(stack: Stack, filters: dict[str, Any]) -> None:
    agent = await stack.live()

    for method in (agent.list_mcp_servers, agent.get_mcp_servers):
        with pytest.raises(InvalidSettings):
            await method(**filters)


@pytest.mark.agent_case(217)
async def test_a_tool_a_prompt_or_a_resource_that_is_not_there_is_an_error_in_words(
    stack: Stack, serving: Serving
) -> None:
    agent = await stack.live()
    await agent.add_mcp_server("sums", serving.url)

    with pytest.raises(ToolError, match="subtract"):
        await agent.call_mcp_tool("sums", "subtract", {})
    with pytest.raises(ToolError):
        await agent.get_mcp_prompt("sums", "hello")
    with pytest.raises(ToolError, match="nothing"):
        await agent.read_mcp_resource("sums", "file:///nothing")

    assert (await agent.list_mcp_servers())[0].state == "ready"


# --- looking


@pytest.mark.agent_case(242, 243)
async def test_filters_are_one_value_or_several_and_all_of_them_count(stack: Stack, serving: Serving) -> None:
    async with Serving() as away:
        away.before = unavailable
        agent = await stack.live()
        await agent.add_mcp_server("sums", serving.url, id="one")
        await agent.add_mcp_server("more sums", serving.url, id="two")
        with pytest.raises(AgentError):
            await agent.add_mcp_server("sums", away.url, id="three")

        async def found(**filters: Any) -> list[str]:
            listed = [server.id for server in await agent.list_mcp_servers(**filters)]
            offered = await agent.get_mcp_servers(**filters)
            assert list(offered["servers"]) == listed
            assert [tool["serverId"] for tool in offered["tools"]] == [id for id in listed if id != "three"]
            return listed

        assert await found() == ["one", "two", "three"]
        assert await found(id="two") == ["two"]
        assert await found(id=["two", "three", "nobody"]) == ["two", "three"]
        assert await found(name="sums") == ["one", "three"]
        assert await found(name="sums", state="ready") == ["one"]
        assert await found(state=["ready", "authenticating"]) == ["one", "two"]
        assert await found(id=[]) == []


@pytest.mark.agent_case(243)
async def test_everything_that_servers_offer_is_told_with_whose_it_is(stack: Stack) -> None:
    server = calculator()

    @server.prompt()
    def greet(name: str) -> str:
        """Greet."""
        return f"Hello {name}"

    @server.resource("notes://today")
    def today() -> str:
        """Today."""
        return "Nothing."

    @server.resource("notes://{day}")
    def day(day: str) -> str:
        """A day."""
        return f"Nothing on {day}."

    async with Serving(server) as serving:
        agent = await stack.live()
        await agent.add_mcp_server("notes", serving.url, id="notes")

        offered = await agent.get_mcp_servers()

        kinds = [kind for kind in offered if kind != "servers"]
        assert {kind: [one["serverId"] for one in offered[kind]] for kind in kinds} == {
            "tools": ["notes"],
            "prompts": ["notes"],
            "resources": ["notes"],
            "resourceTemplates": ["notes"],
        }
        assert offered["resourceTemplates"][0]["uriTemplate"] == "notes://{day}"
        [message] = await agent.get_mcp_prompt("notes", "greet", {"name": "Ada"})
        assert (message["role"], message["content"]["text"]) == ("user", "Hello Ada")
        [content] = await agent.read_mcp_resource("notes", "notes://monday")
        assert (content["uri"], content["text"]) == ("notes://monday", "Nothing on monday.")


async def test_a_server_is_found_by_its_id_before_another_by_its_name(stack: Stack, serving: Serving) -> None:
    async with Serving(calculator("second")) as second:
        agent = await stack.live()
        await agent.add_mcp_server("calc", serving.url, id="first")
        await agent.add_mcp_server("second", second.url, id="calc")

        await agent.call_mcp_tool("calc", "add", {"a": 1, "b": 2})

        assert (serving.asked.count("tools/call"), second.asked.count("tools/call")) == (0, 1)


# --- removing, leaving, coming back


@pytest.mark.agent_case(220)
async def test_a_server_that_is_removed_is_gone_with_its_secrets_and_its_tools(
    stack: Stack, serving: Serving
) -> None:
    chat = await stack.connect()
    agent = await stack.live()
    server = await agent.add_mcp_server("sums", serving.url, headers={"X-Key": "hush"})

    assert await agent.remove_mcp_server(server.id) is True
    assert await agent.remove_mcp_server(server.id) is False

    assert (await stack.rows(), await agent.list_mcp_servers()) == ([], [])
    await chat.until(lambda: chat.of("mcp_servers")[-1]["mcp"]["servers"] == {})
    closed = [event.payload for event in stack.events if event.type == "mcp:client:close"]
    assert closed == [{"serverId": server.id}]
    await stack.restart()
    assert await (await stack.live()).list_mcp_servers() == []


async def test_removing_a_server_ends_a_call_that_waits_for_it(stack: Stack) -> None:
    slow, began, goes_on = calculator(), asyncio.Event(), asyncio.Event()

    @slow.tool()
    async def wait() -> str:
        """Wait."""
        began.set()
        await goes_on.wait()
        return "done"

    async with Serving(slow) as serving:
        agent = await stack.live()
        server = await agent.add_mcp_server("slow", serving.url)
        call = asyncio.create_task(agent.call_mcp_tool(server.id, "wait"))
        await began.wait()

        assert await agent.remove_mcp_server("slow") is True

        with pytest.raises(ToolError, match=r"It was removed\. It may or may not have taken effect"):
            await call
        assert not [task for task in asyncio.all_tasks() if task.get_name() == "mcp server slow"]
        goes_on.set()


async def test_of_two_servers_of_one_name_the_id_says_which(stack: Stack, serving: Serving) -> None:
    agent = await stack.live()
    first = await agent.add_mcp_server("sums", serving.url)
    second = await agent.add_mcp_server("sums", serving.url + "?v=2")

    with pytest.raises(AgentError, match=f"several MCP servers named 'sums'.*{first.id}.*{second.id}"):
        await agent.call_mcp_tool("sums", "add", {"a": 1, "b": 2})
    assert await agent.remove_mcp_server("sums") is False

    assert await agent.remove_mcp_server(second.id) is True
    assert await agent.call_mcp_tool("sums", "add", {"a": 1, "b": 2}) == {"result": 3}


async def test_a_name_that_nearly_is_one_of_the_server_is_told_the_nearest(
    stack: Stack, serving: Serving
) -> None:
    agent = await stack.live()
    await agent.add_mcp_server("sums", serving.url)

    with pytest.raises(ToolError, match=r"has no tool 'ad'\. Nothing was run\. Did you mean 'add'\?"):
        await agent.call_mcp_tool("sums", "ad", {"a": 1, "b": 2})


async def test_removing_a_server_while_it_is_added_tells_whoever_adds_it(
    stack: Stack, serving: Serving
) -> None:
    asked, goes_on = asyncio.Event(), asyncio.Event()

    async def late(request: Request, said: dict[str, Any]) -> None:
        asked.set()
        await goes_on.wait()

    serving.before = late
    agent = await stack.live()
    adding = asyncio.create_task(agent.add_mcp_server("sums", serving.url, id="sums"))
    await asked.wait()

    removing = asyncio.create_task(agent.remove_mcp_server("sums"))
    while await stack.rows():
        pass
    goes_on.set()

    assert await removing is True
    with pytest.raises(AgentError, match=r"was removed while it was added\. It is not kept"):
        await adding
    assert await stack.rows() == []


async def test_erasing_an_agent_hangs_up_and_leaves_no_row(stack: Stack, serving: Serving) -> None:
    await (await stack.live("other")).add_mcp_server("sums", serving.url)
    await (await stack.live()).add_mcp_server("sums", serving.url, headers={"X-Key": "hush"})

    assert await stack.app.erase(Assistant, "room") > 0

    assert [row[0] for row in await stack.rows()] == ["Assistant/other"]
    assert len([task for task in asyncio.all_tasks() if task.get_name() == "mcp server sums"]) == 1


async def test_an_agent_that_leaves_memory_hangs_up_and_its_next_turn_connects_again(
    tmp_path: Path, serving: Serving
) -> None:
    clock = ManualClock()
    async with Stack(f"sqlite:///{tmp_path}/app.db", clock, idle_after=60) as stack:
        await (await stack.live()).add_mcp_server("sums", serving.url)
        directory = await stack.app.open()
        await _until(lambda: _is_idle(directory))

        for _ in range(4):
            await clock.advance(60)
        await _until(lambda: len(directory) == 0)
        await _until(lambda: not [task for task in asyncio.all_tasks() if "mcp server" in task.get_name()])

        Assistant.script = ScriptedModel(calls("sums_add", a=1, b=2), says("Three."))
        result = await stack.app.agent(Assistant, "room").save_messages("1 + 2?")

        assert result.status == "completed"
        assert serving.asked.count("tools/call") == 1


def _is_idle(directory: Any) -> bool:
    return directory.live(directory.address(Assistant, "room")).is_idle


async def _until(condition: Any) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - nobody tells of it
            await asyncio.sleep(0.001)


@pytest.mark.agent_case(219)
async def test_a_session_is_ended_when_the_connection_is_and_one_that_cannot_be_stops_no_other(
    tmp_path: Path,
) -> None:
    async with (
        Serving(stateless=False) as one,
        Serving(stateless=False) as other,
        Stack(f"sqlite:///{tmp_path}/app.db") as stack,
    ):

        async def no_goodbye(request: Request, said: dict[str, Any]) -> Response | None:
            return Response(status_code=500) if request.method == "DELETE" else _legacy(said)

        async def old(request: Request, said: dict[str, Any]) -> Response | None:
            return _legacy(said)

        one.before, other.before = no_goodbye, old
        agent = await stack.live()
        await agent.add_mcp_server("one", one.url)
        await agent.add_mcp_server("other", other.url)

        await stack.app.evict(Assistant, "room")

        assert (one.asked[-1], other.asked[-1]) == ("DELETE", "DELETE")
        assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("mcp server")]


def _legacy(said: dict[str, Any]) -> Response | None:
    """What a server says that knows the handshake of before 2026 alone."""
    if said.get("method") != "server/discover":
        return None
    error = {"code": -32601, "message": "Method not found"}
    return JSONResponse({"jsonrpc": "2.0", "id": said["id"], "error": error})


# --- a tool that asks


@pytest.mark.agent_case(248, 249)
async def test_a_tool_that_asks_a_person_fails_in_words_when_there_is_none(stack: Stack) -> None:
    asking = MCPServer[Any]("asking", request_state_security=RequestStateSecurity(keys=[b"k" * 32]))
    form = ElicitRequestFormParams(
        message="Who are you?", requested_schema={"type": "object", "properties": {}}
    )

    @asking.tool()
    async def greet(ctx: Context[Any, Any]) -> str | InputRequiredResult:
        """Greet."""
        return InputRequiredResult(input_requests={"who": ElicitRequest(params=form)}, request_state="")

    async with Serving(asking) as serving:
        agent = await stack.live()
        await agent.add_mcp_server("asking", serving.url)

        with pytest.raises(ToolError, match=r"'greet' of .* 'asking' asks a person.*Who are you\?"):
            await agent.call_mcp_tool("asking", "greet")

        offered = serving.bodies[-1]["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"]
        assert offered == {"elicitation": {"form": {}, "url": {}}}
        assert (await agent.list_mcp_servers())[0].state == "ready"


def test_an_app_says_what_is_wrong_with_its_servers() -> None:
    for wrong in ("https://x", ["https://x"], {"": "https://x"}, {"x": 7}, {"x": "smoke"}, {"x": {"urk": 1}}):
        with pytest.raises(InvalidSettings, match="mcp_servers"):
            App(Assistant, mcp_servers=wrong)  # type: ignore[arg-type]
