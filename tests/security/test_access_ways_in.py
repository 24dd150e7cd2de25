"""Who may come in: `authenticate`, `authorize` and the checks before, at every way to an agent."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from starlette.exceptions import HTTPException
from starlette.responses import PlainTextResponse

from everthink import App
from everthink.errors import AgentError
from everthink.server import Granted
from everthink.testing import ManualClock, ScriptedModel

from ..support.agents import assistant
from ..support.server import Served
from ..support.turns import record_events
from .doors import WAYS, audits, by_header, develop, knock

pytestmark = pytest.mark.anyio

OPEN = {"connect": 101, "read": 200, "request": 200, "inspect": 200, "events": 101}
NAMES = {"events": "inspect"}


def answering() -> Any:
    return assistant(ScriptedModel(), on_request=lambda self, request: "answered")


class Door:
    """One app whose checks a test chooses; nobody was let in, nothing was started."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.page = develop(folder, answering(), **options)
        self.app: App = self.page._loaded.app  # type: ignore[assignment]
        self.events = record_events(self.app, "audit")

    async def __aenter__(self) -> Door:
        self.server = await Served(self.page).__aenter__()
        return self

    async def __aexit__(self, *given: Any) -> None:
        await self.server.__aexit__(*given)

    async def agents(self) -> list[Any]:
        return await (await self.app.open()).store.fetch("SELECT agent FROM agents")


@pytest.mark.parametrize("said", [None, False, 0, "", [], {}, ()], ids=repr)
async def test_whatever_is_falsy_is_nobody(tmp_path: Path, said: Any) -> None:
    async def who(connection: Any) -> Any:
        return said

    async with Door(tmp_path, authenticate=who) as door:
        for way in WAYS:
            assert await knock(door.server, way) == (401, "Unauthorized")
        assert await door.agents() == []
        assert audits(door.events) == [
            (NAMES.get(way, way), False, "not authenticated", None, "room") for way in WAYS
        ]


async def test_a_response_is_the_refusal_and_a_truthy_one_lets_nobody_in(tmp_path: Path) -> None:
    login = PlainTextResponse("Sign in first", 401, headers={"WWW-Authenticate": "Bearer"})
    async with Door(tmp_path, authenticate=lambda connection: login) as door:
        for way in WAYS:
            assert await knock(door.server, way) == (401, "Sign in first")
        answer = await door.server.http(WAYS["read"])
        assert answer.headers["www-authenticate"] == "Bearer"
        assert await door.agents() == []


async def test_an_error_or_a_function_is_nobody_although_it_is_truthy(tmp_path: Path) -> None:
    async def forgotten(connection: Any) -> Any:
        yield "ada"

    for who, status in (
        (lambda connection: HTTPException(401, "Sign in first"), 401),
        (lambda connection: ValueError("no such token"), 500),
        (lambda connection: by_header, 500),
        (lambda connection: forgotten(connection), 500),
    ):
        async with Door(tmp_path, authenticate=who) as door:
            for way in WAYS:
                assert (await knock(door.server, way))[0] == status
            assert await door.agents() == []


async def test_everybody_who_is_authenticated_comes_in_unless_somebody_decides(tmp_path: Path) -> None:
    async with Door(tmp_path, authenticate=by_header) as door:
        for way, status in OPEN.items():
            assert (await knock(door.server, way, "ada"))[0] == status
        assert audits(door.events) == []


@pytest.mark.parametrize("refusal", [False, None, 0, [], ""], ids=repr)
@pytest.mark.parametrize("way", WAYS)
async def test_authorize_is_asked_for_every_way_in(tmp_path: Path, way: str, refusal: Any) -> None:
    asked: list[Any] = []

    async def authorize(identity: Any, action: str, agent: Any) -> Any:
        asked.append((identity, action, agent.cls.__name__, agent.kind, agent.name, agent.id))
        return identity == "ada" or refusal

    async with Door(tmp_path, authenticate=by_header, authorize=authorize) as door:
        assert await knock(door.server, way, "eve") == (403, "Forbidden")
        assert await door.agents() == []
        assert audits(door.events) == [(NAMES.get(way, way), False, "not authorized", "eve", "room")]
        # Looking makes no agent, so the request of somebody who may is answered with 404.
        assert (await knock(door.server, way, "ada"))[0] == (404 if way == "request" else OPEN[way])
        action = NAMES.get(way, way)
        agent = ("Assistant", "assistant", "room", "Assistant/room")
        assert asked == [("eve", action, *agent), ("ada", action, *agent)]


async def test_authorize_decides_about_strangers_too(tmp_path: Path) -> None:
    async with Door(tmp_path, authorize=lambda identity, action, agent: agent.name == "public") as door:
        for way in WAYS:
            assert (await knock(door.server, way))[0] == 403
        assert (await door.server.http("/agents/assistant/public/get-messages")).status == 200


@pytest.mark.parametrize("way", WAYS)
async def test_what_authorize_says_itself_is_sent(tmp_path: Path, way: str) -> None:
    def authorize(identity: Any, action: str, agent: Any) -> Any:
        if identity == "late":
            raise HTTPException(423, "Closed for today")
        return PlainTextResponse("Pay first", 402)

    async with Door(tmp_path, authenticate=by_header, authorize=authorize) as door:
        assert await knock(door.server, way, "ada") == (402, "Pay first")
        assert await knock(door.server, way, "late") == (423, "Closed for today")
        assert await door.agents() == []
        assert [audit[1] for audit in audits(door.events)] == [False, False]


@pytest.mark.parametrize(
    "said",
    ["yes", 1, {"ask": True}, object(), "ask", ["asks"], [1]],
    ids=["yes", "one", "mapping", "object", "one-word", "misspelt", "number"],
)
async def test_what_we_do_not_understand_lets_nobody_in(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, said: Any
) -> None:
    options: Any = {"authenticate": by_header, "authorize": lambda identity, action, agent: said}
    async with Door(tmp_path, **options) as door:
        for way in WAYS:
            assert await knock(door.server, way, "ada") == (500, "Internal Server Error")
        assert await door.agents() == []
    if said == ["asks"]:
        assert "'asks' is no permission. Nobody was let in. Did you mean 'ask'?" in caplog.text
    elif said == [1]:
        assert "authorize: 1 is no permission" in caplog.text
    else:
        assert "authorize returned" in caplog.text


@pytest.mark.parametrize("check", ["authenticate", "authorize", "on_before_connect", "on_before_request"])
async def test_a_check_that_raises_lets_nobody_in_and_says_nothing(tmp_path: Path, check: str) -> None:
    def broken(*given: Any) -> Any:
        raise RuntimeError("postgresql://me:secret@db is away")

    async with Door(tmp_path, **{check: broken}) as door:
        sockets = {"connect", "events"}
        ways = {
            "on_before_connect": sockets,
            "on_before_request": set(WAYS) - sockets,
        }.get(check, set(WAYS))
        for way in ways:
            assert await knock(door.server, way, "ada") == (500, "Internal Server Error")
        assert await door.agents() == []
        assert {audit[2] for audit in audits(door.events)} == {"a check raised"}


@pytest.mark.parametrize("said", [False, PlainTextResponse("No", 403)], ids=["False", "a response"])
async def test_a_check_before_that_returns_false_refuses(tmp_path: Path, said: Any) -> None:
    options: Any = dict.fromkeys(["on_before_connect", "on_before_request"], lambda *given: said)
    async with Door(tmp_path, **options) as door:
        for way in WAYS:
            assert (await knock(door.server, way))[0] == 403
        assert await door.agents() == []
        assert {audit[2] for audit in audits(door.events)} == {"on_before_connect", "on_before_request"}


async def test_a_check_before_that_returns_something_else_is_an_error_with_its_name(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for hook, way in (("on_before_connect", "connect"), ("on_before_request", "read")):
        async with Door(tmp_path, **{hook: lambda *given: "ok"}) as door:
            assert await knock(door.server, way) == (500, "Internal Server Error")
        assert f"{hook} returned 'ok'" in caplog.text


@pytest.mark.parametrize("said", [None, True])
async def test_a_check_before_that_returns_nothing_or_true_goes_on(tmp_path: Path, said: Any) -> None:
    options: Any = dict.fromkeys(["on_before_connect", "on_before_request"], lambda *given: said)
    async with Door(tmp_path, **options) as door:
        for way, status in OPEN.items():
            assert (await knock(door.server, way))[0] == status


async def test_a_session_that_is_over_is_nobody(tmp_path: Path) -> None:
    clock = ManualClock()
    until = clock.now_ms() / 1000 + 60
    options: Any = {"authenticate": lambda connection: Granted("ada", until=until), "clock": clock}
    async with Door(tmp_path, **options) as door:
        for way, status in OPEN.items():
            assert (await knock(door.server, way))[0] == status
        listening = await door.server.connect(WAYS["events"])
        await clock.advance(60)
        assert await listening.until_closed() == (4401, "Session expired")
        for way in WAYS:
            assert await knock(door.server, way) == (401, "Session expired")
        assert {audit[2] for audit in audits(door.events)} == {"expired"}


async def test_a_guest_may_look_at_the_inspector_and_change_nothing(tmp_path: Path) -> None:
    granted = Granted("guest", permissions=[])
    async with Door(tmp_path, authenticate=lambda connection: granted) as door:
        assert (await knock(door.server, "inspect"))[0] == 200
        changed = await door.server.http(f"{WAYS['inspect']}/leaf", method="POST", body=b'{"message": "m"}')
        assert changed.status == 403
        assert "Nothing was changed" in changed.json["error"]
        assert audits(door.events) == [("inspect", False, "no permission", "guest", "room")]


# --- a warning at the start


async def warnings(caplog: pytest.LogCaptureFixture, folder: Path, **options: Any) -> list[str]:
    caplog.clear()
    async with Served(App(answering(), store=f"sqlite:///{folder}/w.db", **options)) as server:
        await server.http("/")
    return [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]


async def test_who_is_asked_and_nobody_decides_about_agents_is_told_at_the_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def check(*given: Any) -> Any:
        return None

    [said] = await warnings(caplog, tmp_path, authenticate=by_header)
    assert "sockets and HTTP requests are open to everybody who is authenticated" in said
    assert "App(authorize=" in said
    # One of two doors is not enough
    [said] = await warnings(caplog, tmp_path, authenticate=by_header, on_before_connect=check)
    assert ": HTTP requests are open" in said
    both: Any = {"on_before_connect": check, "on_before_request": check}
    assert await warnings(caplog, tmp_path, authenticate=by_header, **both) == []
    assert await warnings(caplog, tmp_path, authenticate=by_header, authorize=check) == []
    assert await warnings(caplog, tmp_path) == []


# --- options that are misspelt check nothing


@pytest.mark.parametrize(
    ("option", "meant"),
    [
        ("alow_origins", "allow_origins"),
        ("authentication", "authenticate"),
        ("authorise", "authorize"),
    ],
)
def test_an_option_that_does_not_exist_is_refused_with_the_nearest(option: str, meant: str) -> None:
    options: Any = {option: ["https://my.page"]}
    with pytest.raises(AgentError, match=rf"no option '{option}'. Did you mean {meant}="):
        App(answering(), **options)


async def test_the_options_of_the_stores_are_known() -> None:
    import inspect

    from everthink.app.options import STORE_OPTIONS
    from everthink.postgres import open_postgres
    from everthink.sqlite import open_sqlite

    for engine, opens in {"SQLite": open_sqlite, "PostgreSQL": open_postgres}.items():
        given = inspect.signature(opens).parameters.values()
        assert set(STORE_OPTIONS[engine]) == {one.name for one in given if one.kind is one.KEYWORD_ONLY}
    App(answering(), store_options={"synchronous": "NORMAL"})
    store = await open_sqlite(":memory:", ())
    with pytest.raises(AgentError, match="this one is open already"):
        App(answering(), store=store, store_options={"synchronous": "NORMAL"})
    await store.close()
