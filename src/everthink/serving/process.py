"""One serving process: uvicorn with our own beginning and end.

    serve ------------------------------> run
    dev --starts a process, socket open--> python -m everthink.serving.process < settings --> run

A signal closes the sockets with 1012 (clients come back), gives turns their grace, cuts the rest at
a chunk, closes the database and ends the process with 0.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ipaddress
import json
import logging
import os
import re
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator
from typing import Any, TextIO

import uvicorn

from ..errors import AgentError
from ..limits import Limits
from ..logs import CLEAN
from ..masking import mask
from ..plain import plain
from ..server.batched_websocket import options
from .missing_models import use_demo_models
from .output import (
    EXIT_WRITTEN_WRONGLY,
    WrittenWrongly,
    print_error,
    say,
    say_error,
)
from .page import Broken, WithPage
from .request_log import Requests
from .target import Asked, Loaded, load

__all__ = ["DID_NOT_START", "Server", "describe", "listen", "quiet_logs", "run", "tell", "warn_when_open"]

DID_NOT_START = 3
"""The exit code for `dev` of a process that said why it could not begin; others were running and ended."""


class Server(uvicorn.Server):
    """uvicorn's server, told to stop by signals or by the end of its parent."""

    def __init__(self, config: uvicorn.Config, *, ready: Callable[[], None], parent: bool = False) -> None:
        super().__init__(config)
        self._ready, self._parent = ready, parent

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, then say so."""
        await super().startup(sockets)
        if self.started:
            self._ready()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Stop on the first signal, at once on the second. The exit code is ours to choose."""
        loop = asyncio.get_running_loop()
        # Ctrl-C reaches a whole group of processes: under a parent, only the parent's word counts.
        heard = (signal.SIGTERM,) if self._parent else (signal.SIGTERM, signal.SIGINT)
        for sign in heard:
            loop.add_signal_handler(sign, self._stop)
        if self._parent:
            loop.add_signal_handler(signal.SIGINT, lambda: None)
            # Our end of a pipe that only the parent holds: it closes however the parent ends.
            loop.add_reader(sys.stdin.fileno(), self._orphaned)
        try:
            yield
        finally:
            for sign in heard:
                loop.remove_signal_handler(sign)

    def _stop(self) -> None:
        # Impatience is for people; a parent kills what does not stop.
        self.force_exit = self.should_exit and not self._parent
        self.should_exit = True

    def _orphaned(self) -> None:
        asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
        self.should_exit = True


def run(
    asgi: Any,
    listener: socket.socket,
    *,
    ready: Callable[[], None],
    parent: bool = False,
    graceful_timeout: int = 5,
    proxy_headers: bool = False,
    forwarded_allow_ips: str = "127.0.0.1",
    access_log: bool = False,
    limits: Limits | None = None,
) -> bool:
    """Serve until told to stop. False when the application could not be started."""
    config = uvicorn.Config(
        asgi,
        lifespan="on",
        **options(limits or Limits()),
        proxy_headers=proxy_headers,
        forwarded_allow_ips=forwarded_allow_ips,
        access_log=access_log,
        server_header=False,
        timeout_graceful_shutdown=graceful_timeout,
        log_config=None,
    )
    server = Server(config, ready=ready, parent=parent)
    try:
        server.run(sockets=[listener])
    except SystemExit:
        return False  # Its start failed and was logged.
    return server.started


def listen(host: str, port: int, *, tries: int = 1) -> socket.socket:
    """A listening socket at the first free port from `port` on. Raises an `AgentError` when there is none."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    last = OSError(0, "there is no such port")
    for candidate in range(port, min(port + tries, 65536)) if port else [0]:
        # Said to be TCP, or asyncio lets the kernel hold the second half of an answer back for 40 ms.
        listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, candidate))
        except OSError as error:
            listener.close()
            last = error
            continue
        listener.listen(1024)
        return listener
    where = f"{host}:{port}" if tries == 1 else f"{host}, ports {port} to {port + tries - 1}"
    what = f"Cannot listen at {where}: {last.strerror or last}."
    raise AgentError(what, next_step=_instead(last)) from last


def _instead(error: OSError) -> str:
    """Where to listen instead."""
    if error.errno == errno.EADDRINUSE:
        return "Stop what uses it, or choose another port: --port 9000"
    if error.errno in (errno.EACCES, errno.EPERM):
        return "Ports below 1024 are for root: choose another one, --port 9000"
    return "Give an address of this machine: --host 127.0.0.1 for yourself, --host 0.0.0.0 for everybody"


def address(listener: socket.socket) -> str:
    """The URL of a listening socket, as one opens it on this machine."""
    host, port = listener.getsockname()[:2]
    shown = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
    return f"http://{shown}:{port}"


UNGUARDED = (
    "Everybody who can reach {where} may read and write every conversation: the app has no authenticate."
    " Give it one (App(YourAgent, authenticate=…), see docs/howto-auth.md), listen for yourself alone"
    " (--host 127.0.0.1), or see that something in front asks who it is."
)


def warn_when_open(loaded: Loaded, listener: socket.socket) -> None:
    """Say so when strangers may come in. What is around an app may ask who it is."""
    is_bare = loaded.app is loaded.asgi and loaded.app is not None and loaded.app.authenticate is None
    if is_bare and _is_public(listener):
        say_error(UNGUARDED.format(where=listener.getsockname()[0]), "yellow")


def _is_public(listener: socket.socket) -> bool:
    """True when a listening socket can be reached from other machines."""
    return not ipaddress.ip_address(listener.getsockname()[0].partition("%")[0]).is_loopback


def tell(text: str = "", style: str = "") -> None:
    """A line for the person. A server goes on when nobody reads what it says any more."""
    with contextlib.suppress(SystemExit):  # which is how rich answers a closed pipe, once
        say(text, style)


def describe(loaded: Loaded, base: str) -> Iterator[str]:
    """What is served, one line each."""
    for route in loaded.routes:
        yield f"  {base.replace('http', 'ws', 1)}{route}/<name>"
    for path, app in loaded.mounts:
        if app.mcp is not None:
            yield f"  {base}{path}/{app.mcp.path.strip('/')} for MCP clients"
    for note in loaded.notes:
        yield f"  Note: {note}"


# Browsers cannot send headers with a socket, so what stands behind the ? is often a token.
_QUERY = re.compile(r"\?[^\s\"]*")


class _Plain(logging.Formatter):
    """Messages as sentences; access lines with the time. Queries of requests are left out.

    Whoever wrote it, a line that begins at the edge is one of ours: what follows a line break is indented.
    """

    def format(self, record: logging.LogRecord) -> str:
        if record.name == "uvicorn.access":
            said = plain(_QUERY.sub("?…", record.getMessage()))
            return f"{time.strftime('%Y-%m-%dT%H:%M:%S%z')} {said}"
        said = super().format(record)
        said = _QUERY.sub("?…", said) if '"WebSocket ' in said else said
        return plain(mask(said), lines=True).replace("\n", "\n  ")


class _Lines(logging.StreamHandler[TextIO]):
    """Access lines. One that nobody reads any more is no error of the request it is about."""

    def handleError(self, record: logging.LogRecord) -> None:
        if not isinstance(sys.exc_info()[1], BrokenPipeError):
            super().handleError(record)


def quiet_logs(*, access: bool, level: str = "warning") -> None:
    """Warnings of ours and of uvicorn to standard error, access lines to standard output."""
    errors = logging.StreamHandler(sys.stderr)
    errors.setFormatter(_Plain("%(levelname)s %(message)s"))
    errors.setLevel(level.upper())
    errors.addFilter(CLEAN)  # uvicorn's lines too: a client can make it complain as often as it likes
    logging.basicConfig(level=level.upper(), handlers=[errors])
    logging.getLogger("uvicorn.error").addFilter(_is_news)
    logging.getLogger("mcp.server").setLevel("WARNING")  # else it tells of each request's beginning and end
    if access:
        lines = _Lines(sys.stdout)
        lines.setFormatter(_Plain("%(message)s"))
        lines.addFilter(CLEAN)
        logger = logging.getLogger("uvicorn.access")
        logger.addHandler(lines)
        logger.setLevel("INFO")
        logger.propagate = False


def _is_news(record: logging.LogRecord) -> bool:
    """Whether a line of uvicorn's says more than we have said ourselves. That something was cancelled when
    the server ended at once, on a second signal, is no news."""
    if record.exc_info and isinstance(record.exc_info[1], asyncio.CancelledError):
        return False
    said = record.getMessage()
    if said.startswith("Traceback") and said.rstrip().endswith("CancelledError"):
        return False
    return "Application startup failed" not in said and "without completing handshake" not in said


def _is_no_request(record: logging.LogRecord) -> bool:
    """Whether a line of uvicorn's is about something else than a request, where those are told by us."""
    said = record.getMessage()
    return '"WebSocket ' not in said and not said.startswith("connection ")


# --- the process that `dev` starts


def _first_line(descriptor: int) -> bytes:
    """What the parent wrote. Nothing beyond it is read: the end of the pipe is the end of the parent."""
    line = b""
    while not line.endswith(b"\n"):
        if not (piece := os.read(descriptor, 65_536)):
            raise SystemExit(1)  # the parent is gone before it said what to serve
        line += piece
    return line


def main() -> int:
    """Serve what the parent says, for development."""
    settings: dict[str, Any] = json.loads(_first_line(sys.stdin.fileno()))
    begun = time.perf_counter()
    quiet_logs(access=False, level="info" if settings["verbose"] else "warning")
    listener = socket.socket(fileno=settings["fd"])
    base, has_bot = address(listener), False
    try:
        loaded = load(settings["target"], ask=Asked(**settings["asked"]))
        use_demo_models(loaded)
        for _, app in loaded.mounts:
            app.network.loopback = True  # MCP servers are tried on one's own machine first
        asgi: Any = WithPage(loaded, hosts=settings["hosts"])
        token = os.environ.get("TELEGRAM_BOT_TOKEN")
        has_bot = loaded.app is not None and loaded.app.talk_on_telegram(token)
    except AgentError as error:
        print_error(error)
        if isinstance(error, WrittenWrongly) and not settings["again"]:
            return EXIT_WRITTEN_WRONGLY
        if settings["watches"] is None:
            return DID_NOT_START
        say_error(waiting(settings["watches"]), "dim")
        loaded, asgi = None, Broken(str(error))
    if settings["verbose"]:
        logging.getLogger("uvicorn.error").addFilter(_is_no_request)
        asgi = Requests(asgi, lambda line: tell(line, "dim"))

    def ready() -> None:
        if loaded is None:
            return
        if has_bot:  # nobody waits for it: the platform may be far away
            threading.Thread(target=_tell_of_bot, args=(settings["again"],), daemon=True).start()
        if settings["again"]:
            tell(f"Ready again after {time.perf_counter() - begun:.1f} s.", "dim")
            return
        warn_when_open(loaded, listener)
        tell(f"everthink serves {loaded.source}.", "bold")
        for line in describe(loaded, base):
            tell(line)
        tell(f"\n  Open {base}", "bold")
        if loaded.app and loaded.app.authenticate is not None:
            tell("  The app asks who one is: the page takes a token, everthink chat too (--token).")
        if routes := [address for _, address in loaded.chatting]:
            chooses = loaded.app is not None and loaded.app.authorize is not None
            name = "NAME" if chooses else "default"
            hint = ", with a name that authorize lets you in" if chooses else ""
            tell(f"  or, in another terminal: everthink chat {base}{routes[0]}/{name}{hint}")
        tell(
            "  Ctrl-C stops it."
            if settings["watches"] is None
            else "  It reloads when a file changes. Ctrl-C stops it."
        )
        if settings["open"]:
            import webbrowser

            webbrowser.open(base)

    limits = loaded.app.limits if loaded and loaded.app else None
    fine = run(asgi, listener, ready=ready, parent=True, graceful_timeout=2, limits=limits)
    return 0 if fine else DID_NOT_START


def _tell_of_bot(again: bool) -> None:
    """Say whether the bot of the environment answers, once its platform has said so."""
    from ..messengers.telegram import telegram_messenger
    from .missing_messengers import who_answers

    text, is_known = asyncio.run(who_answers(telegram_messenger(mode="polling"), "TELEGRAM_BOT_TOKEN"))
    if is_known and not again:
        tell(f"  {text}")
    elif not is_known:
        say_error(text, "yellow")


def waiting(folder: str) -> str:
    """What is said while nothing can be served until a file is mended."""
    return f"Waiting until a Python file in {folder} changes. Ctrl-C stops it."


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        os._exit(0)  # Ctrl-C before the loop ran; there is nothing to close yet.
