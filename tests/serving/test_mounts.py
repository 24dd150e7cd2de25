"""Agents inside another application: `dev` finds them, and `dev` and `serve` open and close them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fastapi import APIRouter, FastAPI
from fastapi.middleware.cors import CORSMiddleware
from starlette.applications import Starlette
from starlette.routing import Host, Mount, Router

from everthink import App, Think
from everthink.serving.missing_models import use_demo_models
from everthink.serving.mounts import mounts_in
from everthink.serving.page import WithPage
from everthink.serving.target import load
from everthink.testing import ScriptedModel, says
from everthink.testing.in_process_server import Listening
from tests.support.agents import assistant

from ..support.commands import Command

SITE = """
from fastapi import FastAPI
from everthink import App, Think

class Helper(Think):
    model = "openai:gpt-5"

class Clerk(Think):
    model = "demo"

site = FastAPI()

@site.get("/healthz")
def health():
    return {"ok": True}

inner = FastAPI()
inner.mount("/help", App(Helper, store="sqlite:///helper.db"))
site.mount("/api", inner)
site.mount("/desk", App(Clerk, store="sqlite:///clerk.db", prefix="clerks"))
"""


def agents(folder: Path, *classes: type[Think], **options: Any) -> App:
    return App(*classes, store=f"sqlite:///{folder}/agents.db", **options)


def test_apps_are_found_wherever_they_are_mounted(tmp_path: Path) -> None:
    app = agents(tmp_path, assistant(ScriptedModel()))
    fast, inner = FastAPI(), FastAPI()
    inner.mount("/chat", app)
    fast.mount("/api", inner)
    assert mounts_in(fast) == [("/api/chat", app)]
    assert mounts_in(CORSMiddleware(fast)) == [("/api/chat", app)]
    assert mounts_in(Starlette(routes=[Mount("/", app)])) == [("", app)]
    assert mounts_in(Starlette(routes=[Mount("/a", routes=[Mount("/b/", app)])])) == [("/a/b", app)]
    assert mounts_in(Starlette(routes=[Host("chat.example", app)])) == [("", app)]
    assert mounts_in(Starlette(routes=[Mount("/a", app), Mount("/b", app)])) == [("/a", app)]
    assert mounts_in(Router([Mount("/a", app)])) == [("/a", app)]


def test_an_application_without_agents_has_none() -> None:
    fast = FastAPI()
    fast.include_router(APIRouter())
    loop = CORSMiddleware(fast)
    fast.state.self = fast.mount("/again", loop)  # one that holds itself
    assert mounts_in(loop) == []
    assert mounts_in(lambda scope, receive, send: None) == []


@pytest.mark.slow
def test_dev_shows_the_agents_of_a_fastapi_application_and_talks_to_them(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text(SITE)
    with Command(tmp_path, "dev", "main:site", "--port", "0", "--no-reload") as dev:
        # It says where they are, and which of them has no key
        dev.until(r"ws://.*/api/help/agents/helper/<name>")
        dev.until(r"ws://.*/desk/clerks/clerk/<name>")
        dev.until("Helper answers with the demo model")
        base = dev.until(r"Open (http://127\.0\.0\.1:\d+)")[1]

        # The page has all of them, and so has the terminal
        from urllib.request import urlopen

        with urlopen(f"{base}/everthink/agents", timeout=10) as answer:
            listed = json.load(answer)
        assert [(one["kebab"], one["prefix"]) for one in listed] == [
            ("helper", "api/help/agents"),
            ("clerk", "desk/clerks"),
        ]
        for whom in (base, f"{base}/api/help/agents/helper/x", f"{base}/desk/clerks/clerk/x"):
            with Command(tmp_path, "chat", whom, "-m", "hello") as chat:
                assert chat.ended() == 0, chat.seen
        assert dev.interrupt() == 0
        assert "Traceback" not in "\n".join(dev.seen)


@pytest.mark.anyio
async def test_the_page_reaches_them_by_their_names_alone(tmp_path: Path) -> None:
    # Given an app with a prefix of its own, below a path
    cls = assistant(ScriptedModel(says("Hello."), says("Again.")))
    site = FastAPI()
    site.mount("/chat", app := agents(tmp_path, cls, prefix="bots", idle_after=None, grace=0.0))
    loaded = load_value(site, "site")
    async with Listening(WithPage(loaded)) as server:
        # When the page opens a socket at its usual address, then it is the same agent as at the real one
        chat = await server.connect("/agents/assistant/J%C3%BCrgen")
        await chat.until_done(await chat.say("Hi"))
        stored = await server.http("/chat/bots/assistant/J%C3%BCrgen/get-messages")
        assert [m["role"] for m in stored.json] == ["user", "assistant"]
        assert (await server.http("/agents/assistant/J%C3%BCrgen/get-messages")).json == stored.json
        shown = (await server.http("/everthink/inspect/assistant/J%C3%BCrgen")).json
        assert [turn["status"] for turn in shown["turns"]] == ["completed"]
        assert (await server.http("/docs")).status == 200  # its own pages stay
    assert app.classes == [cls]


@pytest.mark.anyio
async def test_what_is_mounted_is_opened_and_closed_with_the_server(tmp_path: Path) -> None:
    happened: list[str] = []

    class Watched(App):
        async def open(self) -> Any:
            happened.append("open")
            return await super().open()

        async def close(self) -> None:
            happened.append("close")
            await super().close()

    app = Watched(assistant(ScriptedModel()), store=f"sqlite:///{tmp_path}/agents.db")
    loaded = load_value(Starlette(routes=[Mount("/chat", app)]), "site")
    async with Listening(loaded.asgi):
        assert happened == ["open"]
    assert happened == ["open", "close"]


@pytest.mark.anyio
async def test_a_mounted_app_that_cannot_be_opened_keeps_the_server_from_starting(tmp_path: Path) -> None:
    app = App(assistant(ScriptedModel()), store=tmp_path)
    loaded = load_value(Starlette(routes=[Mount("/chat", app)]), "site")
    said: list[Any] = []

    async def receive() -> Any:
        return {"type": "lifespan.startup"} if not said else {"type": "lifespan.shutdown"}

    async def send(message: Any) -> None:
        said.append(message)

    await loaded.asgi({"type": "lifespan"}, receive, send)
    assert said[0]["type"] == "lifespan.startup.failed"
    assert str(tmp_path) in said[0]["message"]


LOCKED = """
from contextlib import asynccontextmanager
from everthink import App, Think
from fastapi import FastAPI

class Helper(Think):
    model = "demo"

class Clerk(Think):
    model = "demo"

app = App(Helper, store="sqlite:///agents.db")

@asynccontextmanager
async def lifespan(site):
    async with app:
        yield

site = FastAPI(lifespan=lifespan)
site.mount("/chat", app)

two = FastAPI()
two.mount("/one", App(Helper, store="sqlite:///two.db"))
two.mount("/two", App(Clerk, store="sqlite:///two.db"))
"""


@pytest.mark.slow
@pytest.mark.parametrize("command", ["serve", "dev"])
@pytest.mark.parametrize("target", ["main:site", "main:two"])
def test_a_database_that_is_held_is_told_in_sentences_however_the_app_is_opened(
    tmp_path: Path, command: str, target: str
) -> None:
    (tmp_path / "main.py").write_text(LOCKED)
    words = [command, target, "--port", "0", *(["--no-reload"] if command == "dev" else [])]
    with Command(tmp_path, "serve", "main:site", "--port", "0") as holder:
        holder.until("everthink serves")
        with Command(tmp_path, *words) as second:
            assert second.ended() != 0
        holder.interrupt()
    said = "\n".join(second.seen)
    assert "is held by" in said or "is already open in" in said
    assert "Traceback" not in said
    assert "CancelledError" not in said


def load_value(site: Any, name: str) -> Any:
    """What `load` makes of an application in a module."""
    import sys
    import types

    module = types.ModuleType("a_site_of_the_tests")
    setattr(module, name, site)
    sys.modules[module.__name__] = module
    try:
        loaded = load(f"{module.__name__}:{name}")
        use_demo_models(loaded)
        return loaded
    finally:
        del sys.modules[module.__name__]
