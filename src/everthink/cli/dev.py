"""`everthink dev`: a server for one developer, restarted when a file changes.

    dev --> listening socket --> serving process (serving/process.py) --change, death--> the next one

The socket stays open from one process to the next: whoever connects in between waits a moment
and is not refused. The old process ends before the new one begins, since a database has one owner.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import click

from ..backoff import backoff
from .env_file import served_option

__all__ = ["command"]

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0
"""Seconds before a server that died is started again."""
SHORT = 10.0
"""One that dies within so many seconds is waited for longer each time."""
STOP_PATIENCE = 10.0
"""Seconds until a process that does not stop is killed."""


@click.command(
    "dev",
    short_help="Serve your agents on this machine, with reload and a page.",
    help="""Serve your agents on this machine, with reload and a page.

    TARGET is module:app, a file with one app or agent, or a folder with agents. Without it: ./agents if
    there is one, else a demo agent that needs no key. Agents whose provider has no key answer with
    the demo model.

    Settings in a file .env of this folder count where the environment does not say otherwise.

    \b
    Examples:
      everthink dev
      everthink dev agents --port 9000 --open
      everthink dev shop.main:app""",
)
@click.argument("target", required=False)
@click.option(
    "--port",
    default=8787,
    show_default=True,
    type=click.IntRange(0, 65535),
    help="Which port. If it is taken, the next free one.",
)
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="Where to listen. Others can reach anything but 127.0.0.1.",
)
@click.option(
    "--allow-host",
    "hosts",
    multiple=True,
    metavar="NAME",
    help="Answer to this name too. Without it: localhost and IP addresses.",
)
@served_option
@click.option(
    "--reload/--no-reload", default=True, show_default=True, help="Restart when a Python file changes."
)
@click.option("--open", "open_page", is_flag=True, help="Open the page in a browser.")
@click.option("--verbose", is_flag=True, help="Show requests and the log.")
def command(
    target: str | None,
    port: int,
    host: str,
    hosts: tuple[str, ...],
    store: str | None,
    reload: bool,
    open_page: bool,
    verbose: bool,
) -> None:
    """Serve for development."""
    from ..access.origins import Hosts
    from ..serving.output import say
    from ..serving.process import listen
    from ..serving.target import source_of, watched

    names = [*hosts, *([host] if host else [])]
    Hosts(names)  # says what is wrong with them
    listener = listen(host, port, tries=20)
    bound = listener.getsockname()[1]
    if port and bound != port:
        say(f"Port {port} is taken, so this is port {bound}.", "yellow")
    folder = watched(target) if reload else None
    settings: dict[str, Any] = {
        "fd": listener.fileno(),
        "target": target,
        "hosts": names,
        "asked": {"command": "dev", "store": store, "store_from": source_of("store"), "grace": 0.5},
        "open": open_page,
        "verbose": verbose,
        "watches": str(folder) if folder else None,
    }
    raise SystemExit(asyncio.run(supervise(listener, settings, folder)))


async def supervise(listener: socket.socket, settings: dict[str, Any], folder: Path | None) -> int:
    """Keep a serving process running until Ctrl-C. Returns the exit code."""
    from ..serving.output import EXIT_PROBLEM, EXIT_WRITTEN_WRONGLY, say, say_error
    from ..serving.process import DID_NOT_START, waiting

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for sign in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(sign, stop.set)
    changes: asyncio.Queue[str] = asyncio.Queue()
    watching = asyncio.create_task(_watch(folder, changes, stop)) if folder else None
    again, deaths = False, 0
    try:
        while True:
            began = loop.time()
            process = await _start(
                listener, {**settings, "again": again, "open": settings["open"] and not again}
            )
            why = await _first(process, changes, stop)
            if why == "ended" and not stop.is_set():
                ended = process.returncode or 0
                has_died = ended not in (0, DID_NOT_START, EXIT_WRITTEN_WRONGLY)
                if ended == EXIT_WRITTEN_WRONGLY:
                    return ended
                if has_died:
                    say_error(f"The server {_how(ended)}. What was acknowledged is kept.", "yellow")
                if folder is None or not ended or (ended == DID_NOT_START and not again):
                    return EXIT_PROBLEM if ended else 0
                pause = None
                if has_died:
                    deaths = deaths + 1 if loop.time() - began < SHORT else 1
                    pause = backoff(deaths, first=FIRST_PAUSE, most=LONGEST_PAUSE)
                    say_error(f"It is started again in {pause:g} s, or when a file changes.", "dim")
                else:
                    say_error(waiting(str(folder)), "dim")
                why = await _first(None, changes, stop, pause)
            again = True
            await _end(process)
            if stop.is_set():
                return 0
            say("Restarting…" if why == "waited" else f"{why} changed. Restarting…", "dim")
    finally:
        stop.set()
        if watching:
            watching.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watching


async def _start(listener: socket.socket, settings: dict[str, Any]) -> asyncio.subprocess.Process:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "everthink.serving.process",
        stdin=asyncio.subprocess.PIPE,  # Closes when we are gone, so that the process does not outlive us.
        pass_fds=(listener.fileno(),),
    )
    assert process.stdin is not None
    # Not as an argument: a store's URL holds a password, and everybody can list arguments.
    process.stdin.write(json.dumps(settings).encode() + b"\n")
    with contextlib.suppress(ConnectionError):  # It ended already, and said why.
        await process.stdin.drain()
    return process


async def _first(
    process: asyncio.subprocess.Process | None,
    changes: asyncio.Queue[str],
    stop: asyncio.Event,
    pause: float | None = None,
) -> str:
    """What happens first: `"ended"`, `"stopped"`, `"waited"`, or the name of the file that changed."""
    tasks: dict[asyncio.Task[Any], str] = {
        asyncio.create_task(changes.get()): "",
        asyncio.create_task(stop.wait()): "stopped",
    }
    if process:
        tasks[asyncio.create_task(process.wait())] = "ended"
    if pause is not None:
        tasks[asyncio.create_task(asyncio.sleep(pause))] = "waited"
    done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in pending:
        task.cancel()
    first = next((task for task in done if not tasks[task]), None) or done.pop()
    return tasks[first] or str(first.result())


def _how(code: int) -> str:
    """How a process ended that nobody asked to."""
    return f"ended with code {code}" if code > 0 else f"was ended by {signal.Signals(-code).name}"


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    process.terminate()
    try:
        await asyncio.wait_for(process.wait(), STOP_PATIENCE)
    except TimeoutError:
        process.kill()
        await process.wait()


async def _watch(folder: Path, changes: asyncio.Queue[str], stop: asyncio.Event) -> None:
    import watchfiles

    # Typed with anyio's events, which need not be installed.
    awatch: Callable[..., AsyncIterator[set[tuple[Any, str]]]] = getattr(watchfiles, "awatch")  # noqa: B009
    only_python = watchfiles.PythonFilter()
    async for batch in awatch(folder, watch_filter=only_python, stop_event=stop, debounce=200, step=50):
        names = sorted({Path(path).relative_to(folder).as_posix() for _, path in batch})
        changes.put_nowait(names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more")
