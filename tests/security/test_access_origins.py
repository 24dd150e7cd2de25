"""Pages of other sites, and names of other sites that were made to mean us."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from everthink import App
from everthink.access.origins import (
    Hosts,
    Origins,
    read_origin,
)
from everthink.errors import AgentError
from everthink.testing import ScriptedModel

from ..support.agents import assistant
from ..support.server import Served, open_app
from ..support.turns import record_events
from .conftest import Serve
from .doors import READ, REQUEST, ROOM, WAYS, audits, develop, knock, socket, upgrade

pytestmark = pytest.mark.anyio


def answering() -> Any:
    return assistant(ScriptedModel(), on_request=lambda self, request: "answered")


# --- origins


@pytest.mark.parametrize("option", ["allow_origins", "allow_hosts"])
@pytest.mark.parametrize("given", ["https://my.page", "*", "my.page", b"my.page", ""])
def test_one_text_is_an_error_where_it_was_written(option: str, given: Any) -> None:
    options: Any = {option: given}
    text = given.decode() if isinstance(given, bytes) else given
    with pytest.raises(AgentError) as raised:
        App(answering(), **options)
    assert f"Write a list: {option}=[{text!r}]." in str(raised.value)


@pytest.mark.parametrize(
    ("entry", "hint"),
    [
        ("my.page", '"https://my.page"'),
        ("https://my.page/", '"https://my.page"'),
        ("http://my.page/app", '"http://my.page"'),
        ("//my.page", '"https://my.page"'),
        ("https://*.my.page", "Name each origin"),
        ("null", "Name each origin"),
        ("", "Name each origin"),
        ("https://my.page:99999999", '"https://my.page:99999999"'),
        (7, "is not a text"),
    ],
)
def test_what_is_not_an_origin_is_an_error_with_what_to_write(entry: Any, hint: str) -> None:
    with pytest.raises(AgentError) as raised:
        App(answering(), allow_origins=[entry])
    assert "allow_origins: " in str(raised.value)
    assert hint in str(raised.value)


@pytest.mark.parametrize(
    ("origin", "scheme", "host", "is_foreign"),
    [
        ("http://my.page", "ws", "my.page", False),
        ("http://my.page:80", "http", "my.page", False),
        ("HTTP://MY.PAGE", "ws", "my.page:80", False),
        ("https://my.page", "wss", "my.page:443", False),
        ("http://[::1]:8787", "ws", "[::1]:8787", False),
        ("https://my.page", "ws", "my.page", True),
        ("http://my.page", "wss", "my.page", True),
        ("http://my.page:8080", "ws", "my.page", True),
        ("http://my.page", "ws", "my.page:8080", True),
        ("http://my.page.evil.example", "ws", "my.page", True),
        ("http://evil.example#my.page", "ws", "my.page", True),
        ("http://my.page@evil.example", "ws", "my.page", True),
        ("http://my.page/", "ws", "my.page", True),
        ("null", "ws", "my.page", True),
        ("null", "ws", "null", True),
        ("", "ws", "my.page", True),
        ("http://", "ws", "", True),
        ("file://", "ws", "", True),
        ("https://app.example", "ws", "my.page", False),
        ("https://app.example:443", "ws", "my.page", False),
        ("http://app.example", "ws", "my.page", True),
        ("https://app.example:8443", "ws", "my.page", True),
        ("https://sub.app.example", "ws", "my.page", True),
        ("capacitor://localhost", "wss", "my.page", False),
    ],
)
def test_origins_compare_scheme_host_and_port(origin: str, scheme: str, host: str, is_foreign: bool) -> None:
    named = Origins(["https://app.example", "capacitor://localhost"])
    assert named.are_foreign([origin], scheme=scheme, host=host) is is_foreign


def test_nobody_is_less_foreign_for_saying_two_origins() -> None:
    assert Origins().are_foreign(["http://my.page", "http://evil.example"], scheme="ws", host="my.page")
    assert not Origins().are_foreign([], scheme="ws", host="my.page")
    assert read_origin("http://bücher.example") == read_origin("http://xn--bcher-kva.example")


async def test_a_page_of_another_port_or_scheme_stays_outside(serve: Serve) -> None:
    server = await serve(answering())
    events = record_events(server.app, "audit")
    for origin in (f"https://{server.host}", f"http://127.0.0.1:{server.port + 1}", "null"):
        assert await socket(server, ROOM, origin=origin) == (403, "Origin not allowed")
        for path in (READ, REQUEST):
            posted = await server.http(path, method="POST", headers={"Origin": origin})
            assert (posted.status, posted.text) == (403, "Origin not allowed")
    assert {audit[:3] for audit in audits(events)} == {
        (action, False, "origin not allowed") for action in ("connect", "read", "request")
    }
    assert await (await server.app.open()).store.fetch("SELECT agent FROM agents") == []
    assert (await socket(server, ROOM, origin=f"http://{server.host}"))[0] == 101


async def test_behind_a_proxy_the_scheme_is_the_one_that_people_see(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    app = open_app(tmp_path, answering())
    https = {"Host": "my.page", "X-Forwarded-Proto": "https"}
    trusting: Any = {"proxy_headers": True, "forwarded_allow_ips": "127.0.0.1"}
    async with Served(app, **trusting) as server:
        assert await upgrade(server, ROOM, **https, Origin="https://my.page") == 101
        assert await upgrade(server, ROOM, **https, Origin="http://my.page") == 403
        posted = await server.http(REQUEST, method="POST", headers={**https, "Origin": "https://my.page"})
        assert posted.status == 200
    app = open_app(tmp_path, answering())
    async with Served(app, proxy_headers=False) as server:
        assert await upgrade(server, ROOM, **https, Origin="https://my.page") == 403
    assert "let it send X-Forwarded-Proto, and trust it" in caplog.text


# --- hosts


@pytest.mark.parametrize(
    "entry", ["https://my.page", "my.page:80", "my.page/", "a*b", "*.*.my.page", " my.page"]
)
def test_what_is_not_a_host_is_an_error_with_what_to_write(entry: str) -> None:
    with pytest.raises(AgentError, match="without scheme, port and path"):
        App(answering(), allow_hosts=[entry])


@pytest.mark.parametrize(
    ("hosts", "is_allowed"),
    [
        (["my.page"], True),
        (["MY.PAGE:8787"], True),
        (["my.page."], True),
        (["app.my.page"], False),
        (["a.our.page"], True),
        (["a.b.our.page:1"], True),
        (["our.page"], False),
        (["xour.page"], False),
        (["[::1]:80"], True),
        (["127.0.0.1"], False),
        (["localhost"], False),
        (["my.page.evil.example"], False),
        (["evil.example"], False),
        ([""], False),
        ([], False),
        (["my.page", "evil.example"], False),
        (["my.page@evil.example"], False),
        (["my.page evil.example"], False),
    ],
)
def test_only_the_names_that_were_given_are_ours(hosts: list[str], is_allowed: bool) -> None:
    assert Hosts(["my.page", "*.our.page", "::1"]).allows(hosts) is is_allowed
    assert Hosts().allows(hosts)
    assert Hosts(["*"]).allows(hosts)


async def test_a_request_for_another_name_is_refused_whatever_it_asks_for(serve: Serve) -> None:
    server = await serve(answering(), allow_hosts=["my.page"])
    events = record_events(server.app, "audit")
    for path in (READ, REQUEST, "/", "/agents/nobody/x"):
        answer = await server.http(path, headers={"Host": "evil.example"})
        assert answer.status == 403
        assert "does not answer to the name" in answer.text
    assert await upgrade(server, ROOM, Host="evil.example") == 403
    assert {audit[:3] for audit in audits(events)} == {("connect", False, "host not allowed")}
    assert await (await server.app.open()).store.fetch("SELECT agent FROM agents") == []
    assert (await server.http(READ, headers={"Host": "my.page"})).status == 200
    assert await upgrade(server, ROOM, Host="my.page") == 101


async def test_in_development_a_name_that_was_made_to_mean_this_machine_is_refused(tmp_path: Path) -> None:
    # A page of evil.example, whose name now means 127.0.0.1, is to the browser of the same origin
    async with Served(develop(tmp_path, answering())) as server:
        for host in ("evil.example", f"evil.example:{server.port}", "localhost.evil.example"):
            lured = {"Host": host, "Origin": f"http://{host}"}
            for way in WAYS:
                assert (await knock(server, way, **lured))[0] == 403
            for path in ("/", "/index.html", "/everthink/agents"):
                answer = await server.http(path, headers=lured)
                assert answer.status == 403
                assert "Nothing was shown" in answer.text
        for host in ("localhost", "me.localhost:1", "[::1]:8787", "192.168.1.7"):
            assert (await server.http("/everthink/agents", headers={"Host": host})).status == 200
            assert await upgrade(server, ROOM, Host=host) == 101


async def test_an_app_may_have_further_names_in_development(tmp_path: Path) -> None:
    named = develop(
        tmp_path, answering(), allow_hosts=["box.example"], allow_origins=["https://page.example"]
    )
    async with Served(named) as server:
        for host in ("box.example", "localhost", "page.example"):
            assert (await server.http(READ, headers={"Host": host})).status == 200
        assert (await server.http(READ, headers={"Host": "evil.example"})).status == 403
