"""Every answer tells a browser not to guess its type, not to keep it, and not to frame it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from starlette.responses import HTMLResponse, StreamingResponse
from websockets.exceptions import InvalidStatus

from everthink import App, Think
from everthink.serving.page import WithPage
from everthink.serving.target import Loaded
from everthink.testing import ScriptedModel, says
from tests.support.agents import live

from ..support.server import open_app, served

pytestmark = pytest.mark.anyio

EXPECTED = {
    "x-content-type-options": "nosniff",
    "cache-control": "no-store",
    "content-security-policy": "frame-ancestors 'none'",
    "referrer-policy": "no-referrer",
}


class Desk(Think):
    model = ScriptedModel.forever(says("Hi."))

    def on_request(self, request: Any) -> Any:
        match request.url.path.rpartition("/")[2]:
            case "json":
                return {"it": "works"}
            case "page":
                return HTMLResponse("<p>mine", headers={"Content-Security-Policy": "default-src 'self'"})
            case "kept":
                return HTMLResponse("<p>mine", headers={"Cache-Control": "max-age=60"})
            case "stream":
                return StreamingResponse(iter(["a", "b"]))
            case "broken":
                raise RuntimeError("broken")
            case _:
                return None


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/agents/desk/room/get-messages", 200),
        ("/agents/desk/room/json", 200),
        ("/agents/desk/room/stream", 200),
        ("/agents/desk/room/nothing", 404),
        ("/agents/desk/room/broken", 500),
        ("/agents/nobody/room", 400),
        (f"/agents/desk/{'x' * 3000}", 400),
        ("/elsewhere", 404),
        ("/", 404),
    ],
)
async def test_every_answer_has_them(tmp_path: Path, path: str, status: int) -> None:
    async with served(open_app(tmp_path, Desk)) as server:
        await live(server.app.agent(Desk, "room"))  # looking makes none
        answer = await server.http(path)
    assert answer.status == status
    assert {name: answer.headers.get(name) for name in EXPECTED} == EXPECTED


async def test_refusals_of_the_application_and_of_sockets_have_them_too(tmp_path: Path) -> None:
    async with served(open_app(tmp_path, Desk, authenticate=lambda connection: None)) as server:
        answer = await server.http("/agents/desk/room/get-messages")
        assert answer.status == 401
        assert {name: answer.headers.get(name) for name in EXPECTED} == EXPECTED
        with pytest.raises(InvalidStatus) as refused:
            await server.connect(Desk)
    assert refused.value.response.status_code == 401
    assert {name: refused.value.response.headers.get(name) for name in EXPECTED} == EXPECTED


async def test_an_applications_own_header_wins(tmp_path: Path) -> None:
    class Mine(App):
        async def on_other_request(self, request: Any) -> Any:
            return HTMLResponse("<p>", headers={"Referrer-Policy": "origin"})

    async with served(Mine(Desk, store=f"sqlite:///{tmp_path}/x.db")) as server:
        await live(server.app.agent(Desk, "room"))
        page = await server.http("/agents/desk/room/page")
        assert page.headers["content-security-policy"] == "default-src 'self'"
        assert page.headers["x-content-type-options"] == "nosniff"
        kept = await server.http("/agents/desk/room/kept")
        assert kept.headers["cache-control"] == "max-age=60"
        other = await server.http("/elsewhere")
        assert other.headers["referrer-policy"] == "origin"


async def test_the_page_and_its_inspector_have_them(tmp_path: Path) -> None:
    app = open_app(tmp_path, Desk)
    async with served(WithPage(Loaded(app, "here", app))) as server:
        for path in ("/everthink/agents", "/everthink/inspect/desk/room", "/everthink/inspect/nobody/room"):
            answer = await server.http(path)
            assert {name: answer.headers.get(name) for name in EXPECTED} == EXPECTED, path
        page = await server.http("/")
        policy = page.headers["content-security-policy"]
        assert "default-src 'self'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert page.headers["x-content-type-options"] == "nosniff"
        assert page.headers["referrer-policy"] == "no-referrer"
