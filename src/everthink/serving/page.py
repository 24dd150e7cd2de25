"""What `everthink dev` serves besides the agents: the page, its inspector, and the list of agents.

    request --> is it for this machine? --> the application --404--> a file of the page, the list of agents, …
                                        --> /everthink/inspect, /everthink/events --> devtools/inspector.py

The application goes first, so that its own `/` wins. Whoever asks by another name than localhost or an IP
address is refused, whatever they ask for: a site whose name was made to mean this machine (DNS rebinding)
is, to the browser, a page of ours.
"""

from __future__ import annotations

import json
import mimetypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

from starlette.responses import PlainTextResponse
from starlette.websockets import WebSocket

from ..access.audit import NOBODY
from ..access.origins import Hosts
from ..address import kebab
from ..children.declared import with_children
from ..devtools.inspector import Inspector
from ..models.demo import DemoModel
from ..server.answers import with_headers
from ..server.asgi import deny
from ..think import Think
from .sign_in import TOKEN, SignIn
from .target import Loaded

__all__ = ["AGENTS_LIST", "STATIC", "Broken", "WithPage"]

STATIC = Path(__file__).parent.parent / "devtools" / "static"
AGENTS_LIST = "/everthink/agents"

# The system's own table differs from machine to machine, and a wrong type keeps a page from starting.
TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".ico": "image/x-icon",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".map": "application/json",
    ".mjs": "text/javascript; charset=utf-8",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
    ".wasm": "application/wasm",
    ".webmanifest": "application/manifest+json",
    ".woff2": "font/woff2",
}


PAGE = [
    (b"cache-control", b"no-cache"),
    # As in the file itself, and what only a header can say: nobody shows this page inside of theirs.
    (
        b"content-security-policy",
        b"default-src 'self'; img-src 'self' data: blob:; base-uri 'none'; form-action 'none'; "
        b"object-src 'none'; frame-ancestors 'none'",
    ),
    (b"cross-origin-opener-policy", b"same-origin"),
]
"""What the files of the page say besides what every answer does."""


class WithPage:
    """An application with the page where it has nothing itself. `hosts` are further names of it."""

    def __init__(self, loaded: Loaded, static: Path = STATIC, *, hosts: Sequence[str] = ()) -> None:
        self._loaded, self._static = loaded, static
        self._hosts = (loaded.app.hosts if loaded.app else Hosts()).and_local(
            *hosts, *(loaded.app.origins.hosts if loaded.app else ())
        )
        for _, app in loaded.mounts:
            app.hosts = self._hosts if app is loaded.app else app.hosts.and_local(*hosts, *app.origins.hosts)
            app.network.loopback = True  # who develops has MCP servers on this machine
            app.polls_messengers = True  # and no address that a platform could send to
        self._inspectors = [Inspector(app) for _, app in loaded.mounts]
        self._sign_in = SignIn(loaded.app) if loaded.app else None
        # The page knows agents by their names alone, wherever they are.
        self._elsewhere: dict[str, str] = {}
        for cls, address in loaded.chatting:
            if "{" not in address:
                self._elsewhere.setdefault(f"/agents/{kebab(cls.__name__)}/", f"{address}/")

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve one request."""
        if scope["type"] != "lifespan" and not self._hosts.allows(_hosts_of(scope)):
            if self._loaded.app:
                address = scope["client"][0] if scope.get("client") else None
                audit = self._loaded.app.access.audit
                audit.refused(NOBODY, "connect", "host not allowed", address=address)
            await _refuse(scope, receive, send)
            return
        if scope["type"] != "lifespan" and self._sign_in is not None and self._sign_in.is_needed:
            if scope["type"] == "http" and scope["path"] == TOKEN:
                response = await self._sign_in.answer(scope, receive)
                await response(scope, receive, with_headers(send))
                return
            scope = self._sign_in.carried(scope)
        inspector = self._inspector(scope)
        if inspector is not None:
            await inspector(scope, receive, send)
            return
        answer = self._answer(scope) if scope["type"] == "http" else None
        if answer is None:
            await self._loaded.asgi(self._led(scope), receive, send)
            return
        replaced = False

        async def send_or_replace(message: Any) -> None:
            nonlocal replaced
            if message["type"] == "http.response.start" and message["status"] == 404:
                replaced = True
                await self._page(scope, receive, send, *answer)
            elif not replaced:
                await send(message)

        await self._loaded.asgi(scope, receive, send_or_replace)

    async def _page(self, scope: Any, receive: Any, send: Any, content_type: str, body: bytes) -> None:
        """A file of the page; for the page itself, those whom the app does not know are asked first."""
        refused = None
        if self._sign_in is not None and scope["path"] == "/":
            refused = await self._sign_in.refusal(scope)
        if refused is not None:
            await refused(scope, receive, with_headers(send))
        else:
            await _respond(send, 200, content_type, body, head=scope["method"] == "HEAD")

    def _inspector(self, scope: Any) -> Inspector | None:
        asked = [one for one in self._inspectors if one.handles(scope)]
        return next((one for one in asked if one.knows(scope)), asked[0] if asked else None)

    def _led(self, scope: Any) -> Any:
        """A request for an agent as the page knows it, led to where the agent is."""
        if scope["type"] == "lifespan":
            return scope
        for asked, there in self._elsewhere.items():
            if asked != there and scope["path"].startswith(asked):
                raw: bytes = scope.get("raw_path") or quote(scope["path"]).encode()
                return {
                    **scope,
                    "path": there + scope["path"][len(asked) :],
                    "raw_path": quote(there).encode() + raw[len(asked) :],
                }
        return scope

    def _answer(self, scope: Any) -> tuple[str, bytes] | None:
        if scope["method"] not in ("GET", "HEAD"):
            return None
        path: str = scope["path"]
        if path == AGENTS_LIST:
            return TYPES[".json"], json.dumps(self._agents()).encode()
        file = self._file(path)
        if file is not None:
            return _type_of(file), file.read_bytes()
        return (TYPES[".txt"], self._words(scope).encode()) if path == "/" else None

    def _file(self, path: str) -> Path | None:
        """The file of the page at a path, which anybody may have written."""
        try:
            file = (self._static / (path.strip("/") or "index.html")).resolve()
            is_one = file.is_relative_to(self._static.resolve()) and file.is_file()
        except (OSError, ValueError):  # longer than names of files are, or with a NUL
            return None
        return file if is_one else None

    def _agents(self) -> list[dict[str, Any]]:
        """All agent classes, and whether they chat: the page shows those that do."""
        return [
            {
                "class": cls.__name__,
                "kebab": kebab(cls.__name__),
                "prefix": address.rpartition("/")[0].lstrip("/"),
                "chats": (chats := issubclass(cls, Think)),
                "children": [kebab(child.__name__) for child in with_children([cls])[1:]],
                **_introduction(cls),
                **(self._stand_in(cls) if chats else {}),
            }
            for cls, address in self._loaded.agents
        ]

    def _stand_in(self, cls: type) -> dict[str, str]:
        """Words for the page when the demo model answers: what is said then is no language model's."""
        why = self._loaded.stand_ins.get(cls.__name__)
        if why is not None:
            return {"stand_in": f"The demo model stands in and answers by a few rules. {why}"}
        model = getattr(cls, "model", None)
        if model == "demo" or isinstance(model, DemoModel):
            return {"stand_in": "The demo model answers, by a few rules. No language model is asked."}
        return {}

    def _words(self, scope: Any) -> str:
        host = dict(scope["headers"]).get(b"host", b"127.0.0.1:8787").decode("latin-1")
        routes = self._loaded.routes or ["/agents/<agent>"]
        lines = [f"everthink serves {self._loaded.source}.", ""]
        for route in routes:
            lines += [f"  ws://{host}{route}/<name>", f"  http://{host}{route}/<name>/get-messages"]
        chatting = [address for _, address in self._loaded.chatting]
        if chatting or not self._loaded.routes:
            talks = f"  everthink chat http://{host}{(chatting or routes)[0]}/default"
            lines += ["", "Talk to it in a terminal:", talks]
        lines += [
            "",
            "or in a page of yours, with the published hooks:",
            f'  useAgent({{ agent: "{routes[0].rpartition("/")[2]}", host: "{host}" }})',
        ]
        return "\n".join(lines) + "\n"


def _introduction(cls: type) -> dict[str, Any]:
    """What an agent class says of itself for the page: `about`, and `examples` of what to say."""
    about, examples = getattr(cls, "about", None), getattr(cls, "examples", None)
    said: dict[str, Any] = {"about": about} if isinstance(about, str) else {}
    if isinstance(examples, list | tuple):
        said["examples"] = [str(example) for example in cast("Sequence[Any]", examples)]
    return said


class Broken:
    """Stands in for an application that could not be loaded, until its files change."""

    def __init__(self, text: str) -> None:
        self._text = text

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Say what is wrong."""
        if scope["type"] == "lifespan":
            while (await receive())["type"] == "lifespan.startup":
                await send({"type": "lifespan.startup.complete"})
            await send({"type": "lifespan.shutdown.complete"})
            return
        text = f"{self._text}\n\nSave a file when it is mended: the server starts again by itself.\n"
        if scope["type"] == "websocket":
            # Not the 403 of a socket that is merely closed: clients would stay away for good.
            await deny(WebSocket(scope, receive, send), receive, PlainTextResponse(text, 503))
        else:
            await _respond(send, 503, TYPES[".txt"], text.encode(), head=scope["method"] == "HEAD")


def _hosts_of(scope: Any) -> list[str]:
    return [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]


async def _refuse(scope: Any, receive: Any, send: Any) -> None:
    """Refuse a request for another name, be it a socket or not."""
    asked = ", ".join(_hosts_of(scope))
    text = (
        f"everthink dev answers to localhost and IP addresses; this request is for {asked!r}."
        " Nothing was shown. To allow a name: everthink dev --allow-host NAME, or App(allow_hosts=[…]).\n"
    )
    if scope["type"] == "http":
        await _respond(send, 403, TYPES[".txt"], text.encode(), head=scope["method"] == "HEAD")
    else:
        await receive()
        await send({"type": "websocket.close", "code": 1008})  # before it is accepted: 403


def _type_of(file: Path) -> str:
    return TYPES.get(file.suffix) or mimetypes.guess_type(file.name)[0] or "application/octet-stream"


async def _respond(send: Any, status: int, content_type: str, body: bytes, *, head: bool) -> None:
    headers = [
        (b"content-type", content_type.encode()),
        (b"content-length", str(len(body)).encode()),
    ]
    if content_type not in (TYPES[".txt"], TYPES[".json"]):
        headers += PAGE
    await with_headers(send)({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if head else body})
