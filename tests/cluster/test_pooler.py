"""A pooler in front of the server: one that pools sessions is fine, one that pools transactions is not."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from everthink import App
from everthink.errors import StorePooled
from everthink.postgres.pooler import is_pooled, refuse_pooled_transactions
from everthink.testing import ScriptedModel, says
from tests.support.agents import assistant
from tests.support.postgres import Cluster, free_port, unprivileged_account

pytestmark = pytest.mark.anyio

Pooler = Callable[[str], str]
UP = "process up"


@pytest.fixture
def pooler(own_cluster: Cluster) -> Iterator[Pooler]:
    """Starts a pgbouncer in front of the cluster: the mode to the URL."""
    program = shutil.which("pgbouncer")
    if program is None:
        pytest.skip("pgbouncer is not installed (apt-get install pgbouncer)")
    account = unprivileged_account()
    with ExitStack() as stack:
        # Not a folder of pytest's: another user reads it.
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="everthink-pooler-")))
        folder.chmod(0o755)

        def start(mode: str) -> str:
            port, settings = free_port(), folder / f"{mode}.ini"
            settings.write_text(
                f"[databases]\n* = host=127.0.0.1 port={own_cluster.port} user=postgres\n"
                f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nauth_type = any\n"
                f"unix_socket_dir =\npool_mode = {mode}\n"
            )
            settings.chmod(0o644)
            options: dict[str, Any] = {"user": account.pw_uid} if account else {}
            process = subprocess.Popen(
                [program, str(settings)],
                stderr=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                text=True,
                **options,
            )
            stack.callback(process.wait)
            stack.callback(process.kill)
            assert process.stderr is not None
            lines: list[str] = []
            for line in process.stderr:
                lines.append(line)
                if UP in line:
                    break
            else:
                raise AssertionError("".join(lines))
            drain = threading.Thread(target=process.stderr.read, daemon=True)
            drain.start()
            database = own_cluster.create_database().rpartition("/")[2]
            return f"postgresql://postgres@127.0.0.1:{port}/{database}"

        yield start


@pytest.mark.parametrize("mode", ["transaction", "statement"])
async def test_a_pooler_that_does_not_keep_sessions_is_refused_with_what_to_do(
    pooler: Pooler, mode: str
) -> None:
    agent = assistant(ScriptedModel())
    with pytest.raises(StorePooled, match="gives each transaction another session") as refused:
        await App(agent, store=pooler(mode)).open()
    assert "pool_mode = session" in refused.value.next_step
    assert refused.value.kept == "Nothing was changed."


async def test_behind_a_pooler_that_keeps_sessions_everything_works(pooler: Pooler) -> None:
    agent = assistant(ScriptedModel(says("One."), says("Two.")))
    url = pooler("session")
    async with App(agent, store=url, idle_after=None) as app:
        assert (await app.agent(agent, "a").save_messages("Hello?")).text == "One."
    async with App(agent, store=url, idle_after=None) as app:
        assert (await app.agent(agent, "a").save_messages("Hello?")).text == "Two."


class Connection:
    """Answers which session it is in."""

    def __init__(self, *sessions: int) -> None:
        self._sessions = iter(sessions)

    async def fetchval(self, query: str) -> int:
        return next(self._sessions)


@pytest.mark.parametrize(
    ("one", "other", "is_kept"),
    [
        ((1, 1), (2, 2), True),
        ((1, 1), (1, 1), False),  # the last session that was used is used again
        ((1, 2), (2, 1), False),  # they take turns
        ((1, 1), (2, 3), False),
        ((1, 4), (2, 2), False),
    ],
)
async def test_each_of_two_connections_must_keep_a_session_of_its_own(
    one: tuple[int, int], other: tuple[int, int], is_kept: bool
) -> None:
    connections: Any = Connection(*one), Connection(*other)
    if is_kept:
        await refuse_pooled_transactions(*connections, "here")
    else:
        with pytest.raises(StorePooled):
            await refuse_pooled_transactions(*connections, "here")


def test_statements_that_others_prepared_give_a_pooler_away() -> None:
    class Strange(Exception):
        sqlstate = "42P05"

    assert is_pooled(Strange())
    assert not is_pooled(ValueError())
