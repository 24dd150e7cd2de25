"""A Chromium of ours: found, started with nothing it could harm, ended with us.

    find_chromium() --> launched() --pipes--> Chromium --> a proxy that refuses all: what it wants itself
                                                       --> the proxy of a context: what its pages want

It talks to nobody by itself: it has no port, looks no name up, and what it asks for on its own is refused.
Its profile is a folder that goes when it does.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import re
import shutil
import signal
import tempfile
from collections import deque
from collections.abc import AsyncGenerator, Generator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path

from ..errors import AgentError
from ..guard.proxy import FilterProxy
from ..guard.rules import Rules
from ..programs import leashed, logged
from .cdp import Connection
from .channels import LARGEST, NoBrowser, Pipe

__all__ = ["MOST_MEMORY", "find_chromium", "launched"]

log = logging.getLogger("everthink.browser")

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
_PLACES = (
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
)
_OFF = (
    *("AsyncDns", "DnsOverHttps", "MediaRouter", "DialMediaRouteProvider", "Translate", "OptimizationHints"),
    *(
        "AutofillServerCommunication",
        "CertificateTransparencyComponentUpdater",
        "InterestFeedContentSuggestions",
    ),
    *("WebRtcHideLocalIpsWithMdns", "LensOverlay", "NetworkTimeServiceQuerying"),
)
_FLAGS = (
    *("--headless=new", "--disable-gpu", "--disable-quic", "--no-first-run", "--no-default-browser-check"),
    *(
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--disable-extensions",
    ),
    *("--disable-default-apps", "--disable-client-side-phishing-detection", "--disable-domain-reliability"),
    *("--disable-breakpad", "--disable-crash-reporter", "--disable-dev-shm-usage", "--dns-prefetch-disable"),
    *("--mute-audio", "--hide-scrollbars", "--no-pings", "--password-store=basic", "--use-mock-keychain"),
    # Without it a page sends packets anywhere, past every proxy. The first name is that of older releases.
    *(f"--{name}webrtc-ip-handling-policy=disable_non_proxied_udp" for name in ("force-", "")),
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
    f"--disable-features={','.join(_OFF)}",
    "--window-size=1280,900",
    "--log-level=3",
    "--remote-debugging-pipe",
)
_PIPES = 'ulimit -d "$0"; exec "$@" 3<&0 4>&1 </dev/null >/dev/null'
"""The browser reads commands from the third descriptor and answers on the fourth. No process of it gets more
memory than so much: each page has one of its own, and what it asks for is the page's to say."""
MOST_MEMORY = 1536 * 1024 * 1024
"""Bytes that one process of the browser may write to. A page that wants more crashes, alone."""
_KEPT = ("PATH", "LD_LIBRARY_PATH", "FONTCONFIG_FILE", "FONTCONFIG_PATH", "TZ")
_STARTING, _ENDING = 20.0, 5.0
_FOLDER = "everthink-browser-"
_LONGEST_PLACE = 40
_NOISE = re.compile(r"dbus|gcm|vaapi|gpu|GLES|ozone|inotify", re.IGNORECASE)


def find_chromium() -> str | None:
    """The Chromium of this machine, `None` when there is none."""
    found = (shutil.which(name) for name in (*_NAMES, *_PLACES))
    return next((path for path in found if path), None)


def needs_no_sandbox() -> bool:
    """True when Chromium will not start its own sandbox: for root it never does."""
    return hasattr(os, "geteuid") and os.geteuid() == 0


@asynccontextmanager
async def launched(
    executable: str | None = None, *, most_memory: int = MOST_MEMORY
) -> AsyncGenerator[Connection]:
    """A browser for as long as the block lasts. No process of it is left afterwards, however we end."""
    found = executable or find_chromium()
    if found is None or shutil.which(found) is None:
        raise NoBrowser(
            f"{found} is no program." if found else "No Chromium is installed on this server.",
            kept="Nothing was opened.",
            next_step="Whoever runs the server can install one (apt install chromium), name one"
            " (executable=…) or use one elsewhere (cdp_url=…). Until then do without the browser.",
        )
    async with AsyncExitStack() as stack:
        refusing = await stack.enter_async_context(FilterProxy(Rules.nothing()))
        profile = stack.enter_context(_profile())
        said: deque[str] = deque(maxlen=20)
        process = await stack.enter_async_context(_process(found, profile, refusing.port, said, most_memory))
        connection = Connection(Pipe(process))
        stack.push_async_callback(connection.close)
        try:
            version = await connection.send("Browser.getVersion", timeout=_STARTING)
        except AgentError as error:
            told = [line for line in said if "FATAL" in line] or [
                line for line in said if not _NOISE.search(line)
            ]
            words = " / ".join(told)
            raise NoBrowser(
                f"{found} does not start{f': {words[:500]}' if words else ''}.",
                kept="Nothing was opened.",
                next_step="Whoever runs the server finds more in its log, and `everthink doctor` tries it."
                " Until then do without the browser.",
            ) from error
        log.info("%s started (process %d)", version.get("product", found), process.pid)
        yield connection


@asynccontextmanager
async def _process(
    executable: str, profile: str, proxy: int, said: deque[str], most_memory: int
) -> AsyncGenerator[asyncio.subprocess.Process]:
    flags = [*_FLAGS, f"--user-data-dir={profile}", f"--proxy-server=http://127.0.0.1:{proxy}"]
    flags.append("--proxy-bypass-list=<-loopback>")
    if needs_no_sandbox():
        log.warning(
            "Chromium runs without its sandbox, since this process is root: a page that breaks out of it"
            " is root, too. Run the server as another user."
        )
        flags.append("--no-sandbox")
    environment = {name: os.environ[name] for name in _KEPT if name in os.environ}
    environment |= {"HOME": profile, "TMPDIR": profile, "XDG_CONFIG_HOME": profile, "LANG": "C.UTF-8"}
    arguments = ["-c", _PIPES, str(most_memory // 1024), executable, *flags, "about:blank"]
    with (
        leashed("/bin/sh", arguments, None) as (command, args),
        logged(log, "chromium", said.append) as errors,
    ):
        process = await asyncio.create_subprocess_exec(
            command,
            *args,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
            env=environment,
            limit=LARGEST,
        )
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            ending = asyncio.ensure_future(_over(process))
            await asyncio.wait([ending])


async def _over(process: asyncio.subprocess.Process) -> None:
    """Read what is left, so that the end of the process is seen."""
    assert process.stdout is not None, "its output is a pipe"
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_ENDING):
            while await process.stdout.read(65_536):
                pass
            await process.wait()


# --- its profile


@contextmanager
def _profile() -> Generator[str]:
    """A folder that is ours while we live: those of processes that were killed are removed by the next."""
    place = tempfile.gettempdir()
    if len(place) > _LONGEST_PLACE and os.access("/tmp", os.W_OK):
        place = "/tmp"  # a socket is made below it, whose path may not be long
    _sweep(place)
    with tempfile.TemporaryDirectory(prefix=_FOLDER, dir=place, ignore_cleanup_errors=True) as folder:
        held = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(held, fcntl.LOCK_EX)
            yield folder
        finally:
            os.close(held)


def _sweep(place: str) -> None:
    for folder in Path(place).glob(f"{_FOLDER}*"):
        with contextlib.suppress(OSError):  # another user's, or somebody else removes it now
            held = os.open(folder, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(held)
