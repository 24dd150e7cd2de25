"""A real PostgreSQL for the tests: a throw-away cluster, or the server that a variable names.

    postgres_url         a URL of our tables with no row in them, for one test
    empty_postgres_url   a URL of a database with nothing in it, for tests that bring tables of their own
    postgres_server      the server, to make databases and users on
    own_cluster          a cluster that one module may stop and start

`EVERTHINK_TEST_POSTGRES=postgresql://user:password@host/database` uses a server of yours; the user must be
allowed to create databases and users. Without it the binaries are looked for, and without those the tests
fail: a store that was not tested on both engines was not tested.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import ctypes
import getpass
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import pytest

from everthink.open_store import open_store
from everthink.runtime.schema import MIGRATIONS

__all__ = [
    "Cluster",
    "Server",
    "empty_postgres_url",
    "own_cluster",
    "postgres_database",
    "postgres_server",
    "postgres_url",
]

VARIABLE = "EVERTHINK_TEST_POSTGRES"
MISSING = (
    "PostgreSQL is not installed, and the stores are tested on both engines.\n"
    "  Debian, Ubuntu:  scripts/ensure-postgres   (apt-get install postgresql)\n"
    "  macOS:           brew install postgresql\n"
    f"  or a server you have:  {VARIABLE}=postgresql://user:password@host:5432/database"
)
READY = "database system is ready to accept connections"
PASSWORD_USER, PASSWORD = "guarded", "correct-horse"

MOST_USES = 50
"""So many tests use the same tables, one after the other: nobody vacuums here."""

SHAPE = """
    SELECT md5(string_agg(line, ',' ORDER BY line)) FROM (
        SELECT concat_ws(' ', table_name, column_name, data_type, is_nullable, column_default) AS line
        FROM information_schema.columns WHERE table_schema = current_schema
        UNION ALL SELECT indexdef FROM pg_indexes WHERE schemaname = current_schema
        UNION ALL SELECT 'migration ' || everthink_schema::text FROM everthink_schema
    ) AS lines
"""
"""What there is in a schema apart from rows, as one word: tables, indexes, migrations."""

EMPTY = """
    DO $$ DECLARE name text; BEGIN
        FOR name IN SELECT tablename FROM pg_tables
            WHERE schemaname = current_schema AND tablename <> 'everthink_schema'
        LOOP EXECUTE format('DELETE FROM %I', name); END LOOP;
    END $$
"""


class Server:
    """A PostgreSQL server on which databases can be made."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._names = (f"everthink_test_{os.getpid()}_{number}" for number in count(1))
        self._kept: dict[str, _Tables] = {}

    def create_database(self) -> str:
        """Make an empty database and return its URL."""
        name = next(self._names)
        self.run(f"CREATE DATABASE {name}")
        return self.at(name)

    def drop_database(self, url: str) -> None:
        """Remove a database, whoever is connected to it."""
        self.run(f"DROP DATABASE {urlsplit(url).path.lstrip('/')} WITH (FORCE)")

    @contextlib.contextmanager
    def empty(self, url: str, *, owner: str = "CURRENT_USER") -> Iterator[str]:
        """A URL that sees the database at `url` as an empty one: a schema is quicker than a database."""
        name = next(self._names)
        self.run(f"CREATE SCHEMA {name} AUTHORIZATION {owner}", url=url)
        try:
            yield f"{url}?search_path={name}"
        finally:
            self.run(f"DROP SCHEMA {name} CASCADE", url=url)

    @contextlib.contextmanager
    def migrated(self, url: str) -> Iterator[str]:
        """A URL that sees in the database at `url` our tables, and no row in them.

        Making the tables takes ten times as long as emptying them, so the next test gets the same ones,
        unless this one has changed them.
        """
        tables = self._kept.pop(url, None) or self._make_tables(url)
        try:
            yield tables.url
        finally:
            tables.uses += 1
            if tables.uses < MOST_USES and in_thread(emptied(tables)):
                self._kept[url] = tables
            else:
                self.run(f"DROP SCHEMA {tables.schema} CASCADE", url=url)

    def _make_tables(self, url: str) -> _Tables:
        name = next(self._names)
        self.run(f"CREATE SCHEMA {name}", url=url)
        tables = _Tables(name, f"{url}?search_path={name}")
        tables.shape = in_thread(migrated(tables.url))
        return tables

    def at(self, database: str, *, user: str = "", password: str = "any") -> str:
        """The URL of `database` on this server, as another user if one is named."""
        parts = urlsplit(self.url)
        netloc = parts.netloc
        if user:
            netloc = f"{user}:{password}@{netloc.rpartition('@')[2]}"
        return urlunsplit(parts._replace(netloc=netloc, path=f"/{database}"))

    def run(self, *statements: str, url: str = "") -> None:
        """Run statements as the administrator, each by itself."""

        async def run() -> None:
            import asyncpg

            connection = await asyncpg.connect(url or self.url)
            try:
                for statement in statements:
                    await connection.execute(statement)
            finally:
                await connection.close()

        in_thread(run())


@dataclass
class _Tables:
    """Our tables in a schema of their own, which one test after the other uses."""

    schema: str
    url: str
    shape: str = ""
    uses: int = 0


async def migrated(url: str) -> str:
    """Make our tables, and say what they look like."""
    import asyncpg

    await (await open_store(url, MIGRATIONS)).close()
    connection = await asyncpg.connect(url)
    try:
        shape: str = await connection.fetchval(SHAPE)
        return shape
    finally:
        await connection.close()


async def emptied(tables: _Tables) -> bool:
    """Take every row out of tables. False when they are not what they were."""
    import asyncpg

    connection = await asyncpg.connect(tables.url)
    try:
        if await connection.fetchval(SHAPE) != tables.shape:
            return False
        await connection.execute(EMPTY)
        return True
    except asyncpg.UndefinedTableError:
        return False
    finally:
        await connection.close()


def in_thread(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run it in a thread, because the caller may be inside a running event loop."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, coroutine).result()


class Cluster(Server):
    """A server of our own in a temporary directory, on a free port. Nothing in it is made durable."""

    def __init__(self) -> None:
        self.binaries = find_binaries()
        self.directory = Path(tempfile.mkdtemp(prefix="everthink-postgres-"))
        self.port = free_port()
        self._process: subprocess.Popen[str] | None = None
        self._log: deque[str] = deque(maxlen=50)
        self._account = unprivileged_account()
        super().__init__(f"postgresql://postgres@127.0.0.1:{self.port}/postgres")
        atexit.register(self.remove)
        if self._account:
            os.chown(self.directory, self._account.pw_uid, self._account.pw_gid)
        self._initialise()
        self.start()
        self.run(f"CREATE ROLE {PASSWORD_USER} LOGIN PASSWORD '{PASSWORD}'")

    def start(self) -> None:
        """Start the server and wait until it answers."""
        settings = {
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": str(self.directory),
            "fsync": "off",
            "full_page_writes": "off",
            "log_min_messages": "log",
            # Tables are made and dropped all the time here: tidying up behind it is a third of the work.
            "autovacuum": "off",
            "jit": "off",
            "wal_level": "minimal",
            "max_wal_senders": "0",
        }
        command = [self.binaries / "postgres", "-D", self.directory / "data", "-p", str(self.port)]
        for name, value in settings.items():
            command += ["-c", f"{name}={value}"]
        # A session of its own, so that Ctrl-C reaches us first and we stop it in order.
        self._process = subprocess.Popen(
            command,
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
            preexec_fn=stop_when_the_tests_die,
            **self._as_account(),
        )
        is_ready = threading.Event()
        threading.Thread(target=self._follow, args=(self._process, is_ready), daemon=True).start()
        if not is_ready.wait(timeout=60) or self._process.poll() is not None:
            raise RuntimeError("PostgreSQL did not start:\n" + "".join(self._log))

    def stop(self, *, how: signal.Signals = signal.SIGQUIT) -> None:
        """Stop the server: SIGQUIT is as abrupt as a crash, SIGINT disconnects everybody politely."""
        if self._process:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(how)
            self._process.wait(timeout=60)
            assert self._process.stderr
            self._process = None

    def remove(self) -> None:
        """Stop the server and delete its files."""
        atexit.unregister(self.remove)
        self.stop()
        shutil.rmtree(self.directory, ignore_errors=True)

    def _initialise(self) -> None:
        data = self.directory / "data"
        command = [self.binaries / "initdb", "-D", data, "-U", "postgres", "-A", "trust", "--no-sync"]
        command += ["--locale=C", "--encoding=UTF8"]
        done = subprocess.run(
            command, capture_output=True, text=True, cwd=self.directory, **self._as_account()
        )
        if done.returncode:
            raise RuntimeError(f"initdb failed:\n{done.stdout}{done.stderr}")
        (data / "pg_hba.conf").write_text(
            f"host all {PASSWORD_USER} 127.0.0.1/32 scram-sha-256\n"
            "local all all trust\n"
            "host all all 127.0.0.1/32 trust\n"
        )

    def _as_account(self) -> dict[str, object]:
        if not self._account:
            return {}
        return {"user": self._account.pw_uid, "group": self._account.pw_gid, "extra_groups": []}

    def _follow(self, process: subprocess.Popen[str], is_ready: threading.Event) -> None:
        assert process.stderr
        with process.stderr:
            for line in process.stderr:
                self._log.append(line)
                if READY in line:
                    is_ready.set()
        is_ready.set()


def find_binaries() -> Path:
    """The directory that holds `postgres` and `initdb`, newest version first."""
    candidates = sorted(
        Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name), reverse=True
    )
    for name in ("postgres", "initdb"):
        if found := shutil.which(name):
            candidates.append(Path(found).resolve().parent)
    for directory in candidates:
        if (directory / "postgres").exists() and (directory / "initdb").exists():
            return directory
    pytest.fail(MISSING, pytrace=False)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def unprivileged_account() -> pwd.struct_passwd | None:
    """PostgreSQL refuses to run as root; then it runs as somebody else."""
    if os.getuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    raise RuntimeError(f"{getpass.getuser()} cannot run PostgreSQL and there is no user postgres or nobody.")


def stop_when_the_tests_die() -> None:
    """In the child: be told to stop even when the test run is killed (Linux)."""
    if sys.platform == "linux":
        set_parent_death_signal = 1
        ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGINT)


@cache
def shared_cluster() -> Cluster:
    """The throw-away cluster of this process: one, however many folders import the fixture."""
    return Cluster()


def remove_shared_cluster() -> None:
    """At the end of the run."""
    if shared_cluster.cache_info().currsize:
        shared_cluster().remove()
        shared_cluster.cache_clear()


@pytest.fixture(scope="session")
def postgres_server() -> Server:
    """The server for this run: yours, or a throw-away cluster."""
    url = os.environ.get(VARIABLE)
    return Server(url) if url else shared_cluster()


@pytest.fixture(scope="session")
def postgres_database(postgres_server: Server) -> Iterator[str]:
    """The URL of one database for the whole run."""
    url = postgres_server.create_database()
    yield url
    postgres_server.drop_database(url)


@pytest.fixture
def postgres_url(postgres_server: Server, postgres_database: str) -> Iterator[str]:
    """The URL of our tables with no row in them, for this test alone."""
    with postgres_server.migrated(postgres_database) as url:
        yield url


@pytest.fixture
def empty_postgres_url(postgres_server: Server, postgres_database: str) -> Iterator[str]:
    """The URL of a database with nothing in it, for this test alone."""
    with postgres_server.empty(postgres_database) as url:
        yield url


@pytest.fixture(scope="module")
def own_cluster() -> Iterator[Cluster]:
    """A cluster that the tests of one module may stop and start."""
    cluster = Cluster()
    try:
        yield cluster
    finally:
        cluster.remove()
