"""The floor: what a person would write by hand, without a framework, to stream and journal answers.

It keeps the promises that matter in the plainest way: the question is stored before the model is asked, a
word before the reader has it, a tool call before its body runs, in WAL with `synchronous=FULL`, so each
commit survives a power cut. All of it happens on the event loop's thread, which saves the hop to another one
(and holds up every other conversation meanwhile). No hooks, checks, queue, branches, cancellation, recovery.

How often to commit decides what a delta costs, so there are two floors:

    commit per delta    an INSERT and a commit for every delta, as one writes it first
    batched             one row and one commit for what comes within 50 ms (512 deltas at most), and the
                        last words go in with the answer: the least work that still journals every delta

Ratios are taken against the batched one, the cheaper by far.
"""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path

import msgspec

from .work import QUESTION, Job, add

PER_DELTA, BATCHED = "floor, commit per delta", "floor, batched"
LARGEST, LONGEST = 512, 0.05
SCHEMA = """
    CREATE TABLE messages (agent TEXT, seq INTEGER, role TEXT, content TEXT, PRIMARY KEY (agent, seq));
    CREATE TABLE deltas (agent TEXT, turn INTEGER, seq INTEGER, body TEXT, PRIMARY KEY (agent, turn, seq));
    CREATE TABLE calls (agent TEXT, turn INTEGER, state TEXT, input TEXT, output TEXT,
                        PRIMARY KEY (agent, turn));
"""
MESSAGE = "INSERT INTO messages VALUES (?, ?, ?, ?)"
DELTAS = "INSERT INTO deltas VALUES (?, ?, ?, ?)"
CALL = "INSERT INTO calls VALUES (?, ?, 'started', ?, NULL)"
SETTLE = "UPDATE calls SET state = 'done', output = ? WHERE agent = ? AND turn = ?"


class Delta(msgspec.Struct, tag_field="type", tag="text-delta"):
    """A piece of text as it is journaled."""

    id: str
    delta: str


encode = msgspec.json.Encoder().encode


class Floor:
    """Conversations in one SQLite file."""

    def __init__(self, folder: Path, name: str) -> None:
        self.name = name
        self._largest = 1 if name == PER_DELTA else LARGEST
        self._db = sqlite3.connect(folder / f"{name}.db", isolation_level=None)
        self._db.executescript("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;" + SCHEMA)
        self._histories: dict[str, list[dict[str, str]]] = {}

    async def close(self) -> None:
        self._db.close()

    async def turn(self, agent: str, job: Job) -> None:
        history = self._histories.setdefault(agent, [])
        history.append({"role": "user", "content": QUESTION})
        turn = len(history)
        self._db.execute(MESSAGE, (agent, turn, "user", encode(history[-1]).decode()))
        if job.calls_tool:
            input = {"a": 1, "b": 2}
            self._db.execute(CALL, (agent, turn, encode(input).decode()))
            output = add(**input)
        words: list[str] = []
        batch: list[Delta] = []
        began = 0.0
        async for word in job.speak():
            words.append(word)
            batch.append(Delta("text_1", word))
            now = time.perf_counter()
            began = now if len(batch) == 1 else began
            if len(batch) >= self._largest or now - began > LONGEST:
                self._keep(agent, turn, len(words), batch)
                self._show(job, batch)
                batch = []
        history.append({"role": "assistant", "content": "".join(words)})
        self._db.execute("BEGIN")
        if batch:
            self._keep(agent, turn, len(words), batch)
        if job.calls_tool:
            self._db.execute(SETTLE, (str(output), agent, turn))
        self._db.execute(MESSAGE, (agent, turn + 1, "assistant", encode(history[-1]).decode()))
        self._db.execute("COMMIT")
        self._show(job, batch)

    def _keep(self, agent: str, turn: int, last: int, batch: list[Delta]) -> None:
        self._db.execute(DELTAS, (agent, turn, last - len(batch), encode(batch).decode()))

    def _show(self, job: Job, batch: list[Delta]) -> None:
        if job.pace is not None:
            job.heard += [time.perf_counter()] * len(batch)
