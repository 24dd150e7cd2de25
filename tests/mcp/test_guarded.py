"""The guard in front of everything that is opened for an MCP server."""

from __future__ import annotations

import ast
import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from tests.support.commands import Command
from tests.support.mcp_stack import Serving, Stack, state_of

import everthink.mcp
from everthink.errors import AgentError, BlockedAddress
from everthink.testing.client import Client

pytestmark = pytest.mark.anyio

ROOM = Path(everthink.mcp.__file__).parent

INNER = [
    "http://10.0.0.1/mcp",
    "http://172.16.0.1/mcp",
    "http://192.168.1.1:8080/mcp",
    "http://169.254.169.254/latest/meta-data",
    "http://0.0.0.0/mcp",
    "http://[::]/mcp",
    "http://[::ffff:10.0.0.1]/mcp",
    "http://[fd00::1]/mcp",
    "http://[fe80::1]/mcp",
    "http://2130706433/mcp",
    "http://017700000001/mcp",
    "http://0x7f.1/mcp",
    "http://127.1/mcp",
    "http://①②⑦.0.0.1/mcp",
    "http://localhost:3000/mcp",
    "http://LOCALHOST./mcp",
    "http://any.localhost/mcp",
    "http://metadata.google.internal/computeMetadata/v1",
    "http://mcp.lan/mcp",
    "http://intranet/mcp",
    "https://me:secret@example.com/mcp",
    "https://me@example.com/mcp",
]


@pytest.fixture
async def stack(tmp_path: Path, anyio_backend: str) -> AsyncIterator[Stack]:
    async with Stack(f"sqlite:///{tmp_path}/app.db") as stack:
        stack.app.network.loopback = False
        yield stack


# --- adding


@pytest.mark.agent_case(245)
@pytest.mark.parametrize("url", INNER)
async def test_a_server_near_us_cannot_be_added_and_nothing_is_kept_of_it(stack: Stack, url: str) -> None:
    agent = await stack.live()

    with pytest.raises(BlockedAddress, match=r"^Blocked URL: ") as caught:
        await agent.add_mcp_server("inner", url)

    assert "secret" not in str(caught.value)
    assert await stack.rows() == []
    assert await agent.list_mcp_servers() == []


@pytest.mark.agent_case(245)
@pytest.mark.parametrize(
    "url", ["http://10.0.0.1/mcp", "http://169.254.169.254/", "http://[::ffff:10.0.0.1]/"]
)
async def test_that_this_machine_may_be_used_opens_nothing_else(stack: Stack, url: str) -> None:
    stack.app.network.loopback = True
    agent = await stack.live()

    with pytest.raises(BlockedAddress):
        await agent.add_mcp_server("inner", url)

    assert await stack.rows() == []


@pytest.mark.parametrize(
    "url", ["", "mcp.example.com", "ftp://example.com/mcp", "file:///etc/passwd", "https://", 7]
)
async def test_what_is_no_address_is_refused_in_words(stack: Stack, url: Any) -> None:
    agent = await stack.live()

    with pytest.raises(AgentError, match=r"no address of an MCP server|takes text"):
        await agent.add_mcp_server("nowhere", url)

    assert await stack.rows() == []


async def test_an_application_lets_one_host_near_it_pass_and_no_other(tmp_path: Path) -> None:
    async with Serving() as serving, Serving() as other:
        host = serving.url.removeprefix("http://").removesuffix("/mcp")
        async with Stack(f"sqlite:///{tmp_path}/app.db", allow_addresses=[host]) as stack:
            stack.app.network.loopback = False
            agent = await stack.live()

            server = await agent.add_mcp_server("known", serving.url)

            assert server.state == "ready"
            with pytest.raises(BlockedAddress):
                await agent.add_mcp_server("other", other.url)
            assert other.asked == []


async def test_a_server_that_was_added_while_it_was_allowed_is_not_opened_when_it_is_not_any_more(
    stack: Stack,
) -> None:
    async with Serving() as serving:
        stack.app.network.loopback = True
        chat = await stack.connect()
        await stack.add(chat, "near", serving.url)
        stack.is_near = False

        await stack.restart()
        serving.asked.clear()
        chat = await stack.connect()
        await chat.until(lambda: state_of(chat) == "failed")

        assert serving.asked == []
        assert "Blocked URL" in str(chat.of("mcp_servers")[-1])


# --- where servers send us


@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_a_server_that_sends_us_to_an_inner_address_is_not_followed(stack: Stack, status: int) -> None:
    async with Serving() as outside, Serving() as inside:
        host = outside.url.removeprefix("http://").removesuffix("/mcp")
        stack.app.network.allow = [host]

        async def redirected(request: Request, said: dict[str, Any]) -> Response:
            return RedirectResponse(inside.url, status)

        outside.before = redirected
        agent = await stack.live()

        with pytest.raises(AgentError, match="Failed to connect"):
            await agent.add_mcp_server("outside", outside.url)

        assert inside.asked == []


@pytest.mark.parametrize("what", ["resource metadata", "authorization server", "token endpoint"])
async def test_an_authorization_server_at_an_inner_address_is_not_asked(stack: Stack, what: str) -> None:
    # Given a server outside, which wants us to ask somebody inside
    async with Serving() as outside, Serving() as inside:
        host = outside.url.removeprefix("http://").removesuffix("/mcp")
        there, here = inside.url.removesuffix("/mcp"), outside.url.removesuffix("/mcp")
        stack.app.network.allow = [host]
        metadata = there if what == "resource metadata" else here
        issuer = there if what == "authorization server" else here

        async def locked(request: Request, said: dict[str, Any]) -> Response:
            path = request.url.path
            if "oauth-protected-resource" in path:
                return JSONResponse({"resource": outside.url, "authorization_servers": [issuer]})
            if "oauth-authorization-server" in path or "openid-configuration" in path:
                return JSONResponse(
                    {
                        "issuer": issuer,
                        "authorization_endpoint": f"{here}/authorize",
                        "token_endpoint": f"{there}/token",
                        "registration_endpoint": f"{there}/register",
                        "code_challenge_methods_supported": ["S256"],
                    }
                )
            where = f'Bearer resource_metadata="{metadata}/.well-known/oauth-protected-resource"'
            return Response(status_code=401, headers={"WWW-Authenticate": where})

        outside.before = locked
        agent = await stack.live()

        # When it is added
        with pytest.raises(AgentError, match="Failed to connect"):
            await agent.add_mcp_server("outside", outside.url, callback_host="https://my.page")

        # Then nobody inside was asked anything
        assert inside.asked == []
        assert outside.asked != []


async def test_a_token_endpoint_at_an_inner_address_gets_no_code(stack: Stack) -> None:
    # Given somebody who is on the way back from a server that names an endpoint inside
    async with Serving() as outside, Serving() as inside:
        here, there = outside.url.removesuffix("/mcp"), inside.url.removesuffix("/mcp")
        stack.app.network.allow = [here.removeprefix("http://")]

        async def locked(request: Request, said: dict[str, Any]) -> Response:
            path = request.url.path
            if "oauth-protected-resource" in path:
                return JSONResponse({"resource": outside.url, "authorization_servers": [here]})
            if "oauth-authorization-server" in path:
                return JSONResponse(
                    {
                        "issuer": here,
                        "authorization_endpoint": f"{here}/authorize",
                        "token_endpoint": f"{there}/token",
                        "code_challenge_methods_supported": ["S256"],
                    }
                )
            where = f'Bearer resource_metadata="{here}/.well-known/oauth-protected-resource"'
            return Response(status_code=401, headers={"WWW-Authenticate": where})

        outside.before = locked
        chat = await stack.connect()
        server = await stack.add(chat, "outside", outside.url, client_id="ours")
        state = server["auth_url"].partition("state=")[2].partition("&")[0]

        # When they come back
        callback = f"{stack.origin}/agents/assistant/room/callback?code=secret-code&state={state}"
        answer = await stack.open(callback)

        # Then nobody inside is told the code
        assert "error=Blocked%20URL" in answer.headers["location"]
        assert inside.asked == []


# --- dev


AGENT = """
from everthink import App, Think, exposed


class Assistant(Think):
    model = "demo"

    @exposed
    async def add(self, url: str) -> str:
        return (await self.add_mcp_server("near", url)).state


app = App(Assistant, store="sqlite:///near.db")
"""


async def _added(folder: Path, command: str, url: str) -> dict[str, Any]:
    (folder / "near.py").write_text(AGENT)
    options = ["--no-reload"] if command == "dev" else []
    with Command(folder, command, "near:app", "--port", "0", *options) as process:
        pattern = r"http://127\.0\.0\.1:(\d+)"
        found = await asyncio.to_thread(process.until, pattern)
        client = await Client.connect(f"ws://127.0.0.1:{found[1]}/agents/assistant/room")
        [answer] = await client.call("add", url)
        await client.close()
        await asyncio.to_thread(process.interrupt)
    return answer


@pytest.mark.slow
async def test_dev_lets_servers_on_this_machine_be_added_and_serve_does_not(tmp_path: Path) -> None:
    async with Serving() as serving:
        in_dev = await _added(tmp_path, "dev", serving.url)
        serving.asked.clear()
        served = await _added(tmp_path, "serve", serving.url)

    assert in_dev["result"] == "ready"
    assert "Blocked URL" in json.dumps(served)
    assert serving.asked == []


# --- the room


def _made_in(path: Path) -> list[ast.Call]:
    """The calls that make HTTP clients: of the class itself, or in what is made of it."""
    tree = ast.parse(path.read_text())
    ours = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        and any(ast.unparse(base).endswith("AsyncClient") for base in node.bases)
    ]
    inits = [node for one in ours for node in ast.walk(one) if isinstance(node, ast.Call)]
    made = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return [
        *(node for node in inits if ast.unparse(node.func) == "super().__init__"),
        *(node for node in made if ast.unparse(node.func).endswith(("AsyncClient", "httpx2.Client"))),
    ]


def test_every_client_that_the_room_makes_goes_through_the_guard_and_no_proxy() -> None:
    made = {path.name: _made_in(path) for path in sorted(ROOM.glob("*.py"))}

    assert {name for name, calls in made.items() if calls} == {"http.py", "own_server.py"}
    for name, calls in made.items():
        source = (ROOM / name).read_text()
        for call in calls:
            given = {word.arg: ast.unparse(word.value) for word in call.keywords}
            assert f"{given['transport']} = GuardedTransport(" in source, name
            assert given["trust_env"] == "False"


def test_nothing_else_in_the_room_opens_addresses() -> None:
    openers = ("urlopen", "open_connection", "create_connection", "httpx2.get", "httpx2.post")
    made = ("create_mcp_http_client", "ClientSessionGroup")

    for path in ROOM.glob("*.py"):
        source = path.read_text()
        assert not [word for word in (*openers, *made) if word in source], path.name
