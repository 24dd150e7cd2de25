"""A server process: `python -m bench.served everthink|unbound|strangers|floor FOLDER`. Prints its port.

everthink runs as `everthink serve` runs it. The floor is a bare Starlette socket under uvicorn as it comes,
without compression: for each question it sends the frames that everthink sent (FOLDER/frames.json), at the
same pace, to the same readers, and does nothing else: it neither reads the question nor keeps anything.

`BENCH_PROFILE=FILE` writes a profile of the process there.
"""

from __future__ import annotations

import asyncio
import cProfile
import json
import os
import resource
import sys
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from everthink import App
from everthink.server import Limits
from everthink.serving.page import WithPage
from everthink.serving.process import listen, quiet_logs, run
from everthink.serving.target import Loaded

from .bounds import lift
from .ours import agent_class, family_class
from .stranger import Target
from .work import STEADY, WIRE, Job


def everthink(folder: Path) -> App:
    """Agents that do the jobs, in a SQLite file with the defaults."""
    crowd = Limits(sockets_per_address=100_000, agents_per_minute=1_000_000)  # they are all on this machine
    classes = {job: agent_class(job) for job in WIRE}
    parent = family_class(classes[STEADY])
    return App(*classes.values(), parent, store=f"sqlite:///{folder / 'sockets.db'}", grace=0.0, limits=crowd)


def strangers(folder: Path) -> WithPage:
    """An agent for everybody, and the page beside it, with the bounds as they come."""
    crowd = Limits(agents_per_minute=1_000_000)
    app = App(Target, store=f"sqlite:///{folder / 'strangers.db'}", grace=0.0, limits=crowd)
    return WithPage(Loaded(app, "bench", app))


def unbound(folder: Path) -> App:
    """The same as everthink, without the bounds on strangers."""
    lift()
    return everthink(folder)


def floor(folder: Path) -> Starlette:
    """The same frames, without us."""
    recorded: dict[str, Any] = json.loads((folder / "frames.json").read_text())
    jobs = {job.name.lower(): job for job in WIRE}
    rooms: dict[str, list[WebSocket]] = {}

    async def talk(socket: WebSocket) -> None:
        await socket.accept()
        job, name = jobs[socket.path_params["job"]], socket.url.path
        frames = recorded[job.name]
        for text in frames["greeting"]:
            await socket.send_text(text)
        room = rooms.setdefault(name, [])
        room.append(socket)
        asked = 0
        try:
            while True:
                await socket.receive_text()
                await answer(room, job, frames["turns"][asked % len(frames["turns"])])
                asked += 1
        except WebSocketDisconnect:
            room.remove(socket)

    async def answer(room: list[WebSocket], job: Job, frames: list[str]) -> None:
        for text in frames:
            if job.pace is not None and "text-delta" in text:
                await asyncio.sleep(job.pace)
            for reader in room:
                await reader.send_text(text)

    return Starlette(routes=[WebSocketRoute("/agents/{job}/{name}", talk)])


SERVED = {"everthink": everthink, "unbound": unbound, "strangers": strangers, "floor": floor}


def main() -> None:
    who, folder = sys.argv[1], Path(sys.argv[2])
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    quiet_logs(access=False)
    listener = listen("127.0.0.1", 0)
    asgi = SERVED[who](folder)
    profile = cProfile.Profile() if "BENCH_PROFILE" in os.environ else None
    if profile:
        profile.enable()
    print(listener.getsockname()[1], flush=True)  # it listens: who connects early waits
    if who == "floor":
        uvicorn.Server(uvicorn.Config(asgi, ws_per_message_deflate=False, log_config=None)).run([listener])
    else:
        run(asgi, listener, ready=lambda: None, graceful_timeout=1)
    if profile:
        profile.disable()
        profile.dump_stats(os.environ["BENCH_PROFILE"])


if __name__ == "__main__":
    main()
