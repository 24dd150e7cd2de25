"""The floor: what a person would write by hand, without a framework, to stream and journal answers.

It keeps the same promises in the plainest way: the question is stored before the model is asked, a word
is stored before the reader has it, a tool call is stored before its body runs, and WAL with
`synchronous=FULL` makes each commit survive a power cut. Everything happens on the event loop's thread,
which saves the hop to another one (and blocks all other conversations meanwhile). There are no hooks, no
cancellation, no queue, no branches, no checks and no recovery.

How often to commit decides what a delta costs, so there are three of them:

    commit per delta    an INSERT and a commit for every delta
    batched rows        an INSERT per delta, one commit for as many as come within 50 ms (512 at most)
    batched segments    the same, with one row for the whole batch: the least work that journals every delta

Ratios are taken against the cheapest of the three. In a turn, the batched ones also save a commit by storing the
last words together with the answer.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec

from .work import QUESTION, Job, add

__all__ = ["CHEAPEST", "PER_DELTA", "ROWS", "Floor"]

PER_DELTA, ROWS, CHEAPEST = "floor, commit per delta", "floor, batched rows", "floor, batched segments"

SCHEMA = """
    CREATE TABLE messages (agent TEXT, seq INTEGER, role TEXT, content TEXT, PRIMARY KEY (agent, seq));
    CREATE TABLE deltas (agent TEXT, turn INTEGER, seq INTEGER, body TEXT, PRIMARY KEY (agent, turn, seq));
    CREATE TABLE calls (agent TEXT, turn INTEGER, state TEXT, input TEXT, output TEXT, PRIMARY KEY (agent, turn));
"""
MESSAGE = "INSERT INTO messages VALUES (?, ?, ?, ?)"
DELTA = "INSERT INTO deltas VALUES (?, ?, ?, ?)"
CALL = "INSERT INTO calls VALUES (?, ?, 'started', ?, NULL)"
SETTLE = "UPDATE calls SET state = 'done', output = ? WHERE agent = ? AND turn = ?"
LARGEST, LONGEST = 512, 0.05


class Delta(msgspec.Struct, tag_field="type", tag="text-delta"):
    """A piece of text as it is journaled."""

    id: str
    delta: str


encode = msgspec.json.Encoder().encode


class Floor:
    """Conversations in one SQLite file."""

    def __init__(self, folder: Path, name: str) -> None:
        self.name = name
        self._db = sqlite3.connect(folder / f"{name}.db", isolation_level=None)
        self._db.executescript("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;" + SCHEMA)
        self._histories: dict[str, list[dict[str, str]]] = {}

    async def close(self) -> None:
        self._db.close()

    async def turn(self, agent: str, job: Job) -> None:
        history = self._histories.setdefault(agent, [])
        question = {"role": "user", "content": QUESTION}
        history.append(question)
        turn = len(history)
        self._db.execute(MESSAGE, (agent, turn, "user", encode(question).decode()))
        if job.calls_tool:
            await self._call(agent, turn)
        words: list[str] = []
        waiting: list[Delta] = []
        began = 0.0
        async for word in model(job, history):
            words.append(word)
            waiting.append(Delta("1", word))
            now = time.perf_counter()
            began = began if len(waiting) > 1 else now
            if self.name == PER_DELTA or len(waiting) == LARGEST or now - began > LONGEST:
                self._keep(agent, turn, len(words), waiting)
                self._show(job, waiting)
                waiting = []
        answer = {"role": "assistant", "content": "".join(words)}
        self._db.execute("BEGIN")
        if waiting:
            self._keep(agent, turn, len(words), waiting, within=True)
        if job.calls_tool:
            self._db.execute(SETTLE, ("3", agent, turn))
        self._db.execute(MESSAGE, (agent, turn + 1, "assistant", encode(answer).decode()))
        self._db.execute("COMMIT")
        self._show(job, waiting)
        history.append(answer)

    async def _call(self, agent: str, turn: int) -> None:
        input = {"a": 1, "b": 2}
        self._db.execute(CALL, (agent, turn, encode(input).decode()))
        add(**input)

    def _keep(self, agent: str, turn: int, last: int, batch: list[Delta], *, within: bool = False) -> None:
        first = last - len(batch)
        if self.name == CHEAPEST:
            self._db.execute(DELTA, (agent, turn, first, encode(batch).decode()))
            return
        rows = ((agent, turn, first + i, encode(delta).decode()) for i, delta in enumerate(batch))
        if within or len(batch) == 1:
            self._db.executemany(DELTA, rows)
        else:
            self._db.execute("BEGIN")
            self._db.executemany(DELTA, rows)
            self._db.execute("COMMIT")

    def _show(self, job: Job, batch: list[Delta]) -> None:
        now = time.perf_counter()
        job.heard += [now for _ in batch]


async def model(job: Job, history: list[dict[str, str]]) -> AsyncIterator[str]:
    """The model is shown the whole history, as it would be over HTTP."""
    assert history
    async for word in job.speak():
        yield word
