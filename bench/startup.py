"""Start-up with many idle agents and some interrupted turns: `python -m bench.startup IDLE CUT FILE`.

Prints milliseconds until the app is open, until an idle agent answers, and until every interrupted turn is
finished, and the CPU time of all that. The database is written first, as a process that was killed leaves it.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

from everthink import App
from everthink.store.port import Statement, Store

from .ours import agent_class
from .work import SHORT

SAID = (
    '[{"type":"start","messageId":"%s"},{"type":"start-step"},'
    '{"type":"text-start","id":"t"},["t","t","Half "]]'
)


def _idle(cls: str, number: int, now: int) -> list[Statement]:
    agent = f"{cls}/{number}"
    return [
        Statement(
            "INSERT INTO agents (agent, class, name, created_at) VALUES (?, ?, ?, ?)",
            (agent, cls, str(number), now),
        ),
        Statement(
            "INSERT INTO messages (agent, session, id, seq, parent, role, content, created_at)"
            " VALUES (?, '', ?, 1, NULL, 'user', ?, ?)",
            (agent, f"m{number}", '{"parts":[{"type":"text","text":"Hi"}]}', now),
        ),
        Statement(
            "INSERT INTO turns (agent, id, seq, request_id, trigger, status, continuation, message_id,"
            " created_at, started_at, ended_at) VALUES (?, ?, 1, ?, 'ws-chat', 'completed', 0, ?, ?, ?, ?)",
            (agent, f"t{number}", f"r{number}", f"a{number}", now, now, now),
        ),
    ]


def _cut(cls: str, number: int, now: int) -> list[Statement]:
    agent, message = f"{cls}/{number}", f"b{number}"
    return [
        Statement(
            "INSERT INTO turns (agent, id, seq, request_id, trigger, status, continuation, message_id,"
            " created_at, started_at, question) VALUES (?, ?, 2, ?, 'ws-chat', 'running', 0, ?, ?, ?, ?)",
            (agent, f"x{number}", f"y{number}", message, now, now, f"m{number}"),
        ),
        Statement(
            "INSERT INTO segments (agent, turn, first_seq, last_seq, chunks, written_at)"
            " VALUES (?, ?, 0, 3, ?, ?)",
            (agent, f"x{number}", SAID % message, now),
        ),
    ]


async def _fill(store: Store, cls: str, idle: int, cut: int) -> None:
    now = time.time_ns() // 1_000_000
    for first in range(0, idle, 1000):
        numbers = range(first, min(first + 1000, idle))
        await store.apply([statement for number in numbers for statement in _idle(cls, number, now)])
    for number in range(0, idle, idle // cut):
        await store.apply(_cut(cls, number, now))


async def measure(idle: int, cut: int, path: str) -> list[float]:
    """Milliseconds: open, an idle agent answers, all is recovered; and of CPU."""
    cls = agent_class(SHORT)
    url = f"sqlite:///{path}"
    async with App(cls, store=url, idle_after=None) as app:
        await _fill((await app.open()).store, cls.__name__, idle, cut)
    began, cpu = time.perf_counter(), time.process_time()
    async with App(cls, store=url, idle_after=None) as app:
        store = (await app.open()).store
        opened = time.perf_counter()
        await app.agent(cls, "1").get_messages()
        answered = time.perf_counter()
        while (await store.fetch("SELECT COUNT(*) FROM turns WHERE ended_at IS NULL"))[0][0]:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        ended, spent = time.perf_counter(), time.process_time() - cpu
        assert "Half " in (await app.agent(cls, "0").get_messages())[-1].text
    return [1000 * (opened - began), 1000 * (answered - opened), 1000 * (ended - began), 1000 * spent]


if __name__ == "__main__":
    print(json.dumps(asyncio.run(measure(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]))))
