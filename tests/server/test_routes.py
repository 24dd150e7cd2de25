"""Which row of a table a path is for, and the order in which the rows are asked."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.responses import PlainTextResponse

from everthink import Think
from everthink.server.routes import Route, Routes, segments_of
from tests.support.agents import live
from tests.support.server import Served

from .conftest import Serve

pytestmark = pytest.mark.anyio

AGENTS: Routes[str] = Routes(
    Route("agents/{class}/{name}/sub/**", "a child"),
    Route("agents/{class}/{name}/**/get-messages", "the conversation", ("GET",)),
    Route("agents/{class}/{name}/**", "the agent"),
)


def found(path: str, table: Routes[str] = AGENTS) -> tuple[str, dict[str, str]] | None:
    row = table.find(segments_of({"path": path}))
    return row and (row.route.handler, dict(row.values))


ADA = {"class": "desk", "name": "ada"}


@pytest.mark.parametrize(
    ("path", "row"),
    [
        ("/agents/desk/ada", ("the agent", ADA)),
        ("//agents//desk/ada/", ("the agent", ADA)),
        ("/agents/desk/ada/one/two", ("the agent", ADA)),
        ("/agents/desk/ada/get-messages", ("the conversation", ADA)),
        ("/agents/desk/ada/some/where/get-messages", ("the conversation", ADA)),
        ("/agents/desk/ada/get-messages/more", ("the agent", ADA)),
        ("/agents/desk/get-messages", ("the agent", {"class": "desk", "name": "get-messages"})),
        ("/agents/desk/ada/sub", ("a child", ADA)),
        ("/agents/desk/ada/sub/get-messages", ("a child", ADA)),
        ("/agents/desk/ada/one/sub", ("the agent", ADA)),
        ("/agents/desk", None),
        ("/other/desk/ada", None),
        ("/", None),
    ],
)
def test_a_path_is_for_the_first_row_that_fits(path: str, row: Any) -> None:
    assert found(path) == row


def test_the_order_of_the_rows_decides_and_not_how_special_they_look() -> None:
    general, special = Route("{one}/**", "general"), Route("hooks/telegram", "special")

    assert found("/hooks/telegram", Routes(general, special)) == ("general", {"one": "hooks"})
    assert found("/hooks/telegram", Routes(special, general)) == ("special", {})


def test_a_method_that_a_row_does_not_have_finds_no_other_row() -> None:
    row = AGENTS.find(["agents", "desk", "ada", "get-messages"])

    assert row is not None
    assert row.route.has("GET")
    assert not row.route.has("DELETE")


def test_a_path_is_read_as_it_was_sent_below_where_we_are_mounted() -> None:
    scope = {
        "path": "/chat/agents/desk/a/b",
        "raw_path": b"/chat/agents/desk/a%2Fb?x=/y",
        "root_path": "/chat",
    }

    assert segments_of(scope) == ["agents", "desk", "a%2Fb"]


class Clerk(Think):
    model = "demo"

    async def on_request(self, request: Any) -> Any:
        return PlainTextResponse(f"{request.method} for {self.name}")


@pytest.fixture
async def clerk(serve: Serve) -> Served:
    return await serve(Clerk)


@pytest.mark.parametrize(
    ("method", "path", "status", "text"),
    [
        ("POST", "/agents/clerk/ada/any", 200, "POST for ada"),
        ("POST", "/agents/clerk/get-messages", 200, "POST for get-messages"),
        ("PUT", "/agents/clerk/ada/get-messages", 405, "A conversation is read with GET"),
        ("GET", "/agents/clerk/ada/sub/clerk/bob/get-messages", 404, "Not Found"),
        ("GET", "/agents/nobody/ada/sub/clerk/bob", 400, "Invalid request"),
        ("GET", "/agents/clerk", 404, "Not Found"),
    ],
)
async def test_the_rows_of_the_agents_are_asked_in_this_order(
    clerk: Served, method: str, path: str, status: int, text: str
) -> None:
    answer = await clerk.http(path, method=method)

    assert (answer.status, text in answer.body.decode()) == (status, True)


async def test_a_socket_talks_to_the_agent_whatever_follows_its_name(clerk: Served) -> None:
    await clerk.connect("/agents/clerk/room/get-messages")

    agent = await live(clerk.app.agent(Clerk, "room"))
    assert len(agent.connections) == 1


async def test_a_socket_for_an_agent_below_another_one_is_refused(clerk: Served) -> None:
    tab = await clerk.connect("/agents/clerk/room/sub/clerk/bob")

    assert await tab.until_closed() == (4404, "Sub-agent connection rejected (404)")
