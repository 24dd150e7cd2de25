"""docs/deploy.md: what its files say runs, and what it says about stopping holds."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from websockets.exceptions import InvalidStatus

from everthink.testing.client import Client
from everthink.testing.server_address import Place

from ..support.commands import PATIENCE, Command
from ..support.node import free_port
from .pages import ROOT, files, program, written

pytestmark = pytest.mark.anyio

PAGE = "deploy.md"
SERVES = r"serves app:app at http://127.0.0.1:(\d+)"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return written(PAGE, tmp_path)


def at(port: str | int) -> Place:
    place = Place()
    place.port = int(port)
    return place


async def stopped(command: Command) -> int:
    """The exit code after SIGTERM."""
    command.process.send_signal(signal.SIGTERM)
    return await asyncio.to_thread(command.ended)


# --- the application


async def test_its_health_is_answered_and_its_errors_are_worded_for_people(folder: Path) -> None:
    with Command(folder, "serve", "app:app", "--port", "0", MODEL="openai:no-key-here") as server:
        here = at(server.until(SERVES)[1])
        health = await here.http("/healthz")
        assert (health.status, health.text) == (200, "ok")
        assert (await here.http("/elsewhere")).status == 404
        chat = await here.connect("/agents/assistant/room")
        failed = await chat.until_done(await chat.say("Hello"))
        assert (failed["error"], failed["body"]) == (True, "Something went wrong. Please try again.")
        await here.leave()
        assert await stopped(server) == 0
    assert "failed at turn" in "\n".join(server.seen)


@pytest.mark.parametrize(
    ("words", "env"),
    [
        (["--store", "sqlite:///x.db"], {}),
        ([], {"EVERTHINK_STORE": "sqlite:///x.db"}),
        (["--workers", "2"], {}),
    ],
)
def test_what_serve_refuses(folder: Path, words: list[str], env: dict[str, str]) -> None:
    with Command(folder, "serve", "app:app", *words, **env) as server:
        assert server.ended() == 2
    assert not (folder / "x.db").exists()


async def test_postgresql_is_one_variable(folder: Path, postgres_url: str) -> None:
    with Command(folder, "serve", "app:app", "--port", "0", DATABASE_URL=postgres_url) as server:
        here = at(server.until(SERVES)[1])
        chat = await here.connect("/agents/assistant/room")
        await chat.until_done(await chat.say("Hello"))
        await here.leave()
        assert await stopped(server) == 0
    database = await asyncpg.connect(postgres_url)
    try:
        assert await database.fetchval("SELECT count(*) FROM messages") == 2
    finally:
        await database.close()
    assert not (folder / "data").exists()  # where its SQLite file would be


# --- stopping


async def test_a_stop_tells_sockets_to_come_back_and_lets_the_answer_end(folder: Path) -> None:
    # Given an answer in the middle
    with Command(folder, "serve", "app:app", "--port", "0") as server:
        port = server.until(SERVES)[1]
        chat = await Client.connect(f"ws://127.0.0.1:{port}/agents/assistant/room")
        await chat.say("Count to 150")
        await chat.until(lambda: len(chat.text) > 5)

        # When the process is told to stop
        server.process.send_signal(signal.SIGTERM)

        # Then the client is told to come back, and to the next process, not to this one
        assert (await chat.until_closed())[0] == 1012
        with pytest.raises(OSError, match="Connect call failed"):
            await Client.connect(f"ws://127.0.0.1:{port}/agents/assistant/room")
        assert await asyncio.to_thread(server.ended) == 0

    # And the next process has the whole answer
    with Command(folder, "serve", "app:app", "--port", "0") as server:
        here = at(server.until(SERVES)[1])
        [_, counted] = (await here.http("/agents/assistant/room/get-messages")).json
        assert await stopped(server) == 0
    text = "".join(part["text"] for part in counted["parts"] if part["type"] == "text")
    assert text.startswith(chat.text)
    assert len(text) > len(chat.text)


async def test_an_answer_that_was_killed_goes_on_in_the_next_process(folder: Path) -> None:
    # Given a process that is killed in the middle of an answer
    with Command(folder, "serve", "app:app", "--port", "0") as server:
        here = at(server.until(SERVES)[1])
        chat = await here.connect("/agents/assistant/room")
        await chat.say("Count to 60")
        await chat.until_text(" 12, ")
        server.process.kill()
        await chat.until_closed()

    # When the next one is there, then the reader who comes back sees the rest, and what was seen once
    with Command(folder, "serve", "app:app", "--port", "0") as server:
        here = at(server.until(SERVES)[1])
        again = await here.connect("/agents/assistant/room", resumes=True)
        await again.until(lambda: again.text.endswith(" 60."))
        assert again.text == ", ".join(map(str, range(1, 61))) + "."
        assert again.text.startswith(chat.text)
        await here.leave()
        assert await stopped(server) == 0


def test_what_stops_the_process_waits_longer_than_both_grace_periods(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    source = files(PAGE)["app.py"]
    grace = re.search(r"grace=(\d+)", source)
    assert grace
    assert program(PAGE, "app.py")["app"]  # it is an app
    text = (ROOT / "docs" / PAGE).read_text("utf-8")
    requests = [int(found) for found in re.findall(r"--graceful-timeout\"?,? \"?(\d+)", text)]
    waits = [
        int(found) for found in re.findall(r"(?:TimeoutStopSec=|--stop-timeout |PeriodSeconds: )(\d+)", text)
    ]
    assert len(requests) == 2
    assert len(waits) == 3
    assert min(waits) > max(requests) + int(grace[1])


# --- systemd, Docker, nginx


def test_the_unit_is_one_that_systemd_understands(folder: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd-analyze is not installed.")
    unit = folder / "agents.service"
    text = unit.read_text()
    [start] = re.findall(r"^ExecStart=(\S+)", text, re.M)
    assert start.endswith("/everthink")
    # It looks whether the program is there.
    unit.write_text(text.replace(start, sys.executable))
    checked = subprocess.run(
        [analyze, "verify", "--man=no", str(unit)], capture_output=True, text=True, timeout=PATIENCE
    )
    assert (checked.returncode, checked.stderr) == (0, "")


async def test_the_container_starts_is_healthy_and_keeps_its_data_in_the_volume(folder: Path) -> None:
    """Its own command, variables and check, without the container."""
    dockerfile = files(PAGE)["Dockerfile"]
    command = json.loads(re.search(r"^CMD (.*)$", dockerfile, re.M)[1])  # type: ignore[index]
    check = json.loads(re.search(r"^HEALTHCHECK CMD (.*)$", dockerfile, re.M)[1])  # type: ignore[index]
    env = dict(pair.split("=", 1) for pair in re.search(r"^ENV (.*)$", dockerfile, re.M)[1].split())  # type: ignore[index]
    assert (command[0], check[0]) == ("everthink", "python")
    assert env["HOST"] == "0.0.0.0"
    assert f":{env['PORT']}/healthz" in check[2]
    port, data = str(free_port()), folder / "data"
    data.mkdir()
    variables = {
        **env,
        "PORT": port,
        "DATABASE_URL": env["DATABASE_URL"].replace("/data", str(data)),
    }
    with Command(folder, *command[1:], **variables) as server:
        server.until(r"serves app:app at")
        probe = [sys.executable, "-c", check[2].replace(env["PORT"], port)]
        healthy = await asyncio.to_thread(subprocess.run, probe, timeout=PATIENCE)
        assert healthy.returncode == 0
        here = at(port)
        chat = await here.connect("/agents/assistant/room")
        await chat.until_done(await chat.say("Hello"))
        await here.leave()
        assert await stopped(server) == 0
        healthy = await asyncio.to_thread(subprocess.run, probe, stderr=subprocess.DEVNULL, timeout=PATIENCE)
        assert healthy.returncode == 1
    assert (data / "agents.db").exists()


@contextlib.contextmanager
def nginx(folder: Path, agents: int) -> Iterator[int]:
    """The page's own configuration, without the certificate, on a free port."""
    found = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")
    if found is None:
        pytest.skip("nginx is not installed.")
    port = free_port()
    site = (folder / "agents.conf").read_text()
    site = re.sub(r"^\s*ssl_.*\n", "", site, flags=re.M)
    site = site.replace("listen 443 ssl;", f"listen 127.0.0.1:{port};").replace(":8787;", f":{agents};")
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    places = "\n".join(f"{kind}_temp_path {folder}/nginx-{kind};" for kind in kinds)
    (folder / "nginx.conf").write_text(
        f"daemon off;\nworker_processes 1;\npid {folder}/nginx.pid;\nerror_log stderr notice;\nevents {{}}\n"
        f"http {{\naccess_log {folder}/access.log;\n{places}\n{site}\n}}\n"
    )
    with subprocess.Popen(
        [found, "-p", str(folder), "-c", str(folder / "nginx.conf"), "-e", "stderr"],
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stderr
            said: list[str] = []
            while not any("start worker process " in line for line in said):
                said.append(process.stderr.readline())
                assert said[-1], "nginx ended:\n" + "".join(said)
            yield port
        finally:
            process.terminate()


async def test_a_chat_through_nginx_streams_and_foreign_pages_stay_outside(folder: Path) -> None:
    with Command(folder, "serve", "app:app", "--port", "0") as server:
        agents = int(server.until(SERVES)[1])
        with nginx(folder, agents) as port:
            here = at(port)
            assert (await here.http("/healthz")).text == "ok"
            options: Any = {"origin": f"http://{here.host}"}
            chat = await here.connect("/agents/assistant/room", **options)
            await chat.until_done(await chat.say("Hello"))
            assert len((await here.http("/agents/assistant/room/get-messages")).json) == 2
            with pytest.raises(InvalidStatus) as caught:
                await here.connect("/agents/assistant/room", origin="https://evil.example")
            assert caught.value.response.status_code == 403

            # A stop of the agents reaches the browser as what it is.
            assert await stopped(server) == 0
            assert (await chat.until_closed())[0] == 1012
            await here.leave()
