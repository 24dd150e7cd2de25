"""The journal's tables: `turns`, `segments`, `calls`. Definitions and statements; nobody else touches them.

    turn/, door/, recovery/ --what happened--> Statement --> a commit of the agent's store

Rows are read in `turn_rows.py`, `read.py`, `ledger.py` and, for people who look, `facts.py`.

`turns` is one row per turn, whichever door it came by. `segments` holds the chunks of a turn
as a log with dense numbers. `calls` is the ledger: in which world is each tool call?
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from ..masking import mask
from ..store.port import Statement
from .states import states_before

__all__ = [
    "ANSWERS",
    "ANY_CHUNKS",
    "ANY_OPEN",
    "CALL",
    "CALLS",
    "CHUNKS",
    "CLIENT",
    "EXTENT",
    "IS_ASKING",
    "LAST",
    "LAST_CHUNK",
    "NUMBERED",
    "OPEN_ANSWER",
    "OPEN_CALLS",
    "TABLES",
    "WAS_CALLED",
    "WORKED_AT",
    "CallState",
    "abandoned",
    "accepted",
    "all_stopped",
    "answered",
    "approved",
    "approved_by",
    "asked",
    "called",
    "client_of",
    "deleted",
    "ended",
    "ended_early",
    "failing",
    "forgotten",
    "interrupted",
    "passed",
    "picked_up",
    "pruned",
    "question_answered",
    "questioned",
    "released",
    "rewound",
    "segment",
    "set_aside",
    "settled",
    "skipped",
    "started",
    "stashed",
    "stopped",
    "swept",
    "taken",
    "unsaid",
]

TABLES = (
    """CREATE TABLE turns (
        agent TEXT NOT NULL,
        id TEXT NOT NULL,
        seq BIGINT NOT NULL,
        request_id TEXT NOT NULL,
        trigger TEXT NOT NULL,
        status TEXT NOT NULL,
        continuation BIGINT NOT NULL,
        input TEXT,
        metadata TEXT,
        idempotency_key TEXT,
        message_id TEXT,
        error TEXT,
        created_at BIGINT NOT NULL,
        started_at BIGINT,
        ended_at BIGINT,
        PRIMARY KEY (agent, id)
    ) /* clustered */""",
    "CREATE UNIQUE INDEX turns_by_key ON turns (agent, idempotency_key) WHERE idempotency_key IS NOT NULL",
    "CREATE INDEX turns_open ON turns (agent, seq) WHERE ended_at IS NULL",
    """CREATE TABLE segments (
        agent TEXT NOT NULL,
        turn TEXT NOT NULL,
        first_seq BIGINT NOT NULL,
        last_seq BIGINT NOT NULL,
        chunks TEXT NOT NULL,
        PRIMARY KEY (agent, turn, first_seq)
    )""",
    """CREATE TABLE calls (
        agent TEXT NOT NULL,
        turn TEXT NOT NULL,
        call_id TEXT NOT NULL,
        tool TEXT NOT NULL,
        step BIGINT NOT NULL,
        state TEXT NOT NULL,
        on_interrupt TEXT NOT NULL,
        input TEXT,
        asked_at BIGINT NOT NULL,
        started_at BIGINT,
        settled_at BIGINT,
        answer TEXT,
        PRIMARY KEY (agent, call_id, turn)
    ) /* clustered */""",
)

# Migration 2: what recovery needs to know of a turn.
RECOVERY = (
    "ALTER TABLE turns ADD COLUMN question TEXT",
    "ALTER TABLE turns ADD COLUMN stash TEXT",
    "ALTER TABLE segments ADD COLUMN written_at BIGINT",
)

# Migration 8: a turn that is over and keeps all that is needed to try it again.
SETTING_ASIDE = ("ALTER TABLE turns ADD COLUMN set_aside_at BIGINT",)
# Migration 10: what a failing tool said, which only the model reads.
SAID = ("ALTER TABLE calls ADD COLUMN words TEXT",)

# Migration 11: in whose name an approved call runs.
APPROVED = ("ALTER TABLE calls ADD COLUMN approved_by TEXT",)

# Migration 13: that somebody stopped a turn, and why.
STOPPED = ("ALTER TABLE turns ADD COLUMN stop TEXT",)

# Migration 16: what a tool asks a person before it goes on, and the answer.
QUESTIONS = ("ALTER TABLE calls ADD COLUMN question TEXT",)

# Migration 14: how a turn fails for which people have not been told anything yet.
FAILING = ("ALTER TABLE turns ADD COLUMN failing TEXT",)

# Migration 20: how many chunks a turn had said before it began anew.
STARTING_OVER = ("ALTER TABLE turns ADD COLUMN rewound BIGINT NOT NULL DEFAULT 0",)

CallState = Literal["asked", "approved", "started", "done", "failed", "denied", "unknown"]
CLIENT = "client"
"""What the ledger notes instead of a policy for a call that runs in a browser."""


def client_of(mark: str | None) -> str:
    """The same for one that only the windows of one person may answer; `None`: of anybody."""
    return CLIENT if mark is None else f"{CLIENT}:{mark}"


CHUNKS = (
    "SELECT turn, first_seq, chunks FROM segments WHERE agent = :agent AND (turn, first_seq) > (?, ?)"
    " ORDER BY turn, first_seq LIMIT 100"
)
"""What turns have said that need not be messages yet, a few commits at a time."""

JOURNAL = "SELECT chunks, written_at FROM segments WHERE agent = :agent AND turn = ? ORDER BY first_seq"
ANY_CHUNKS = "SELECT 1 FROM segments LIMIT 1"
ANY_OPEN = "SELECT 1 FROM turns WHERE agent = ? AND ended_at IS NULL LIMIT 1"
LAST = "SELECT MAX(COALESCE(ended_at, created_at)) FROM turns WHERE agent = ?"
# A turn and what it has said, of one moment: one row without chunks for a turn that has said nothing.
NUMBERED = (
    "SELECT t.rewound, s.chunks FROM turns t LEFT JOIN segments s ON s.agent = t.agent AND s.turn = t.id"
    " WHERE t.agent = :agent AND t.id = ? ORDER BY s.first_seq"
)
# How long that is, without reading it.
EXTENT = (
    "SELECT t.rewound, COALESCE(MAX(s.last_seq), -1) + 1, COALESCE(SUM(LENGTH(s.chunks)), 0) FROM turns t"
    " LEFT JOIN segments s ON s.agent = t.agent AND s.turn = t.id"
    " WHERE t.agent = :agent AND t.id = ? GROUP BY t.rewound"
)
# How far a turn has come, without reading what it said.
LAST_CHUNK = "SELECT COALESCE(MAX(last_seq), -1) FROM segments WHERE agent = :agent AND turn = ?"
# Which agents have work that a process left: the index of open turns holds nothing else.
WAITING = "SELECT DISTINCT agent FROM turns WHERE ended_at IS NULL"
ANSWERS = "SELECT call_id, answer FROM calls WHERE agent = :agent AND turn = ? AND answer IS NOT NULL"
WORKED_AT = (
    "SELECT MAX(at) FROM (SELECT written_at AS at FROM segments WHERE agent = :agent"
    " UNION ALL SELECT COALESCE(ended_at, created_at) FROM turns WHERE agent = :agent) AS times"
)
IS_ASKING = (
    "SELECT 1 FROM calls WHERE agent = :agent AND state IN ('asked', 'approved') AND turn ="
    " (SELECT id FROM turns WHERE agent = :agent ORDER BY seq DESC LIMIT 1) LIMIT 1"
)
# A tool of ours may settle in the very millisecond in which its turn ends; people answer after it.
OPEN_ANSWER = (
    "SELECT 1 FROM calls WHERE agent = :agent AND turn = ? AND (state IN ('asked', 'approved')"
    " OR settled_at > ? OR (settled_at = ? AND (state = 'denied' OR on_interrupt LIKE 'client%'))) LIMIT 1"
)
# The calls that wait for a person, or a browser.
OPEN_CALLS = "SELECT DISTINCT call_id, tool FROM calls WHERE agent = :agent AND state = 'asked'"
# What is known of one call, the newest first: some providers use an id again in a later turn.
CALL = (
    "SELECT turn, tool, state, on_interrupt, input, approved_by, question FROM calls"
    " WHERE agent = :agent AND call_id = ? ORDER BY asked_at DESC, turn DESC"
)
WAS_CALLED = "SELECT 1 FROM calls WHERE agent = :agent AND call_id = ? LIMIT 1"
CALLS = (
    "SELECT call_id, tool, state, input, words FROM calls WHERE agent = :agent AND turn = ?"
    " ORDER BY asked_at, call_id"
)
WORDS = (
    "SELECT c.call_id, t.message_id, c.words FROM calls c"
    " LEFT JOIN turns t ON t.agent = c.agent AND t.id = c.turn"
    " WHERE c.agent = :agent AND c.words IS NOT NULL ORDER BY c.asked_at"
)


def accepted(
    *,
    id: str,
    seq: int,
    request_id: str,
    trigger: str,
    continuation: bool,
    input: str | None,
    message_id: str,
    now: int,
    metadata: str | None = None,
    key: str | None = None,
    at_once: bool = False,
    question: str | None = None,
) -> Statement:
    """A turn is ours from here on. `at_once`: nothing is ahead of it, so it is running already."""
    return Statement(
        "INSERT INTO turns (agent, id, seq, request_id, trigger, status, continuation, input, metadata,"
        " idempotency_key, message_id, created_at, started_at, question)"
        " VALUES (:agent, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            id,
            seq,
            request_id,
            trigger,
            "running" if at_once else "accepted",
            int(continuation),
            input,
            metadata,
            key,
            message_id,
            now,
            now if at_once else None,
            question,
        ),
    )


def started(id: str, *, question: str | None, input: str | None, now: int) -> Statement:
    """The turn's messages are in the conversation (same commit) and its work begins.

    `question` is the message it answers: the tip of the conversation at this moment. `input` is what the
    row keeps of what it was asked with from now on; `None` leaves that as it is.
    """
    return Statement(
        "UPDATE turns SET status = 'running', started_at = ?, question = ?, input = COALESCE(?, input)"
        f" WHERE agent = :agent AND id = ? AND status IN ({states_before('start')})",
        (now, question, input, id),
        guard=True,
    )


def interrupted(id: str) -> Statement:
    """The turn was cut off and is to go on."""
    return Statement(
        "UPDATE turns SET status = 'interrupted'"
        f" WHERE agent = :agent AND id = ? AND status IN ({states_before('cut')})",
        (id,),
    )


def picked_up(id: str) -> Statement:
    """The turn goes on from where it was cut off."""
    return Statement(
        "UPDATE turns SET status = 'running'"
        f" WHERE agent = :agent AND id = ? AND status IN ({states_before('pick up')})",
        (id,),
        guard=True,
    )


def rewound(id: str, *, message_id: str) -> list[Statement]:
    """The turn starts over under another message: what it has said is forgotten, but not how much that was.

    The first statement returns how many chunks it has said up to now, in all its beginnings.
    """
    return [
        Statement(
            "UPDATE turns SET message_id = ?, rewound = rewound + (SELECT COALESCE(MAX(last_seq), -1) + 1"
            " FROM segments WHERE agent = :agent AND turn = ?)"
            " WHERE agent = :agent AND id = ? RETURNING rewound",
            (message_id, id, id),
        ),
        Statement("DELETE FROM segments WHERE agent = :agent AND turn = ?", (id,)),
        Statement("DELETE FROM calls WHERE agent = :agent AND turn = ?", (id,)),
    ]


def stashed(id: str, *, data: str) -> Statement:
    """Data of the developer's own that belongs to a turn that runs."""
    return Statement(
        "UPDATE turns SET stash = ? WHERE agent = :agent AND id = ? AND ended_at IS NULL", (data, id)
    )


def stopped(request_id: str, *, reason: str | None) -> Statement:
    """Somebody stopped the turn: whatever happens, it does not go on. Empty: for no particular reason."""
    return Statement(
        "UPDATE turns SET stop = ? WHERE agent = :agent AND request_id = ? AND ended_at IS NULL",
        (reason or "", request_id),
    )


def all_stopped(*, reason: str | None) -> Statement:
    """The same for every turn of an agent that runs or waits."""
    return Statement("UPDATE turns SET stop = ? WHERE agent = :agent AND ended_at IS NULL", (reason or "",))


def ended(id: str, *, status: str, error: str | None, now: int) -> Statement:
    """The turn is over. A row that is over already stays as it is. Its input is not needed any more, nor is
    what it was to answer, if it did."""
    return Statement(
        "UPDATE turns SET status = ?, error = ?, ended_at = ?, input = NULL, stash = NULL, failing = NULL,"
        " question = CASE WHEN ? IN ('error', 'aborted') THEN question END"
        f" WHERE agent = :agent AND id = ? AND status IN ({states_before('end')}) RETURNING id",
        (status, error and mask(error), now, status, id),
    )


def failing(id: str, *, failure: str) -> Statement:
    """The turn fails: what it said is stored with this, and only the words for people are missing."""
    return Statement(
        "UPDATE turns SET status = 'failing', failing = ?"
        f" WHERE agent = :agent AND id = ? AND status IN ({states_before('fail')})",
        (mask(failure), id),
    )


def set_aside(id: str, *, error: str, now: int) -> Statement:
    """The turn is over with an error. Nothing of it is dropped: once released it may be tried again."""
    return Statement(
        "UPDATE turns SET status = 'error', error = ?, ended_at = ?, set_aside_at = ?"
        f" WHERE agent = :agent AND id = ? AND status IN ({states_before('set aside')}) RETURNING id",
        (mask(error), now, now, id),
    )


def released(id: str | None = None) -> Statement:
    """A turn that was set aside, or all of an agent's, may be tried again. Returns their ids."""
    one, params = ("", ()) if id is None else (" AND id = ?", (id,))
    return Statement(
        "UPDATE turns SET status = CASE WHEN failing IS NOT NULL THEN 'failing'"
        " WHEN started_at IS NULL THEN 'accepted' ELSE 'interrupted' END,"
        " error = NULL, ended_at = NULL, set_aside_at = NULL"
        f" WHERE agent = :agent{one} AND set_aside_at IS NOT NULL RETURNING id",
        params,
    )


def ended_early(id: str, *, status: str, error: str | None, now: int) -> Statement:
    """End a turn that has not begun. Returns its id; nothing when it has."""
    return Statement(
        "UPDATE turns SET status = ?, error = ?, ended_at = ?, input = NULL, question = NULL"
        f" WHERE agent = :agent AND id = ? AND status IN ({states_before('drop')}) RETURNING id",
        (status, error and mask(error), now, id),
    )


def skipped(*, error: str, now: int) -> Statement:
    """End every turn that has not begun (a reset). Returns id and trigger of each."""
    return Statement(
        "UPDATE turns SET status = 'skipped', error = ?, ended_at = ?, input = NULL, question = NULL"
        f" WHERE agent = :agent AND ended_at IS NULL AND status IN ({states_before('drop')})"
        " RETURNING id, trigger",
        (error, now),
    )


def segment(turn: str, *, first: int, last: int, chunks: str, now: int) -> Statement:
    """Chunks `first` to `last` of a turn, as one JSON list."""
    return Statement(
        "INSERT INTO segments (agent, turn, first_seq, last_seq, chunks, written_at)"
        " VALUES (:agent, ?, ?, ?, ?, ?)",
        (turn, first, last, chunks, now),
    )


def asked(
    turn: str,
    *,
    call_id: str,
    tool: str,
    step: int,
    input: str | None,
    on_interrupt: str,
    now: int,
) -> Statement:
    """The model asked for a call; nothing runs yet."""
    return Statement(
        "INSERT INTO calls (agent, turn, call_id, tool, step, state, on_interrupt, input, asked_at)"
        " VALUES (:agent, ?, ?, ?, ?, 'asked', ?, ?, ?) ON CONFLICT (agent, call_id, turn) DO NOTHING",
        (turn, call_id, tool, step, on_interrupt, input, now),
    )


def called(
    turn: str,
    *,
    call_id: str,
    tool: str,
    step: int,
    input: str | None,
    on_interrupt: str,
    now: int,
) -> Statement:
    """The call's body is about to run. Durable before it does."""
    return Statement(
        "INSERT INTO calls"
        " (agent, turn, call_id, tool, step, state, on_interrupt, input, asked_at, started_at)"
        " VALUES (:agent, ?, ?, ?, ?, 'started', ?, ?, ?, ?)"
        " ON CONFLICT (agent, call_id, turn) DO UPDATE SET state = 'started', input = excluded.input,"
        " started_at = excluded.started_at",
        (turn, call_id, tool, step, on_interrupt, input, now, now),
    )


def settled(call_id: str, *, state: CallState, words: str | None = None, now: int) -> Statement:
    """The call's outcome, in the same commit as the chunk that shows it, and the words for the model alone.

    Without the turn: an approved call was asked for in an earlier turn than the one that ran it.
    """
    return Statement(
        "UPDATE calls SET state = ?, settled_at = ?, words = ?"
        " WHERE agent = :agent AND call_id = ? AND state IN ('asked', 'approved', 'started')",
        (state, now, words, call_id),
    )


def passed(call_id: str, *, now: int) -> Statement:
    """Nobody has answered a call before the conversation went on: in the commit that mends its message."""
    return Statement(
        "UPDATE calls SET state = 'failed', settled_at = ?"
        " WHERE agent = :agent AND call_id = ? AND state = 'asked'",
        (now, call_id),
    )


def approved(call_id: str) -> Statement:
    """A person said yes to a call that asked."""
    return Statement(
        "UPDATE calls SET state = 'approved' WHERE agent = :agent AND call_id = ? AND state = 'asked'",
        (call_id,),
    )


def taken(turn: str, call_id: str, *, now: int) -> Statement:
    """An approved call is about to run: in the commit of its start, and refused when its yes is used up."""
    return Statement(
        "UPDATE calls SET state = 'started', started_at = ?"
        " WHERE agent = :agent AND call_id = ? AND turn = ? AND state = 'approved'",
        (now, call_id, turn),
        guard=True,
        name="a yes is for one run",
    )


def approved_by(call_id: str, *, who: str) -> Statement:
    """Who said yes, as JSON. In the commit of the yes, after it."""
    return Statement(
        "UPDATE calls SET approved_by = ? WHERE agent = :agent AND call_id = ? AND state = 'approved'",
        (who, call_id),
    )


def answered(call_id: str, *, answer: str, state: CallState, now: int) -> Statement:
    """Somebody answered a call of a message that is still being streamed: kept here until its turn ends."""
    return Statement(
        "UPDATE calls SET answer = ?, state = ?, settled_at = ?"
        " WHERE agent = :agent AND call_id = ? AND state IN ('asked', 'approved', 'started')",
        (answer, state, None if state == "approved" else now, call_id),
    )


def questioned(turn: str, call_id: str, *, question: str) -> Statement:
    """A call that ran asks a person something, and waits. In the commit of the chunk that shows it."""
    return Statement(
        "UPDATE calls SET state = 'asked', started_at = NULL, question = ?"
        " WHERE agent = :agent AND turn = ? AND call_id = ? AND state = 'started'",
        (question, turn, call_id),
    )


def question_answered(call_id: str, *, question: str) -> Statement:
    """What was answered, beside what was asked. In the commit of the yes, after it."""
    return Statement(
        "UPDATE calls SET question = ?"
        " WHERE agent = :agent AND call_id = ? AND state = 'approved' AND question IS NOT NULL",
        (question, call_id),
    )


def abandoned(turn: str, *, now: int) -> Statement:
    """The turn stopped while calls ran: nobody knows how they ended."""
    return Statement(
        "UPDATE calls SET state = 'unknown', settled_at = ?"
        " WHERE agent = :agent AND turn = ? AND state = 'started'",
        (now, turn),
    )


def pruned(*, before: int) -> Statement:
    """Drop the chunks of turns that ended before `before`: their messages are the truth now. Those of a child
    that ran for its parent are kept with the run: windows of the parent are told of them."""
    return Statement(
        "DELETE FROM segments WHERE agent = :agent AND turn IN"
        " (SELECT DISTINCT s.turn FROM segments s JOIN turns t ON t.agent = s.agent AND t.id = s.turn"
        " WHERE s.agent = :agent AND t.ended_at < ? AND t.set_aside_at IS NULL"
        " AND NOT EXISTS (SELECT 1 FROM child_runs r WHERE r.child = s.agent))",
        (before,),
    )


def swept(*, before: int) -> Statement:
    """The same for all agents, also those that nobody reaches any more."""
    return Statement(
        "DELETE FROM segments WHERE EXISTS (SELECT 1 FROM turns t"
        " WHERE t.agent = segments.agent AND t.id = segments.turn AND t.ended_at < ?"
        " AND t.set_aside_at IS NULL)"
        " AND NOT EXISTS (SELECT 1 FROM child_runs r WHERE r.child = segments.agent)",
        (before,),
    )


def forgotten() -> list[Statement]:
    """Drop all chunks and ledger rows (clear)."""
    return [
        Statement("DELETE FROM segments WHERE agent = :agent"),
        *_without_calls("agent = :agent"),
        # What is set aside cannot go on any more, and keeps nothing of what was said.
        Statement(
            "UPDATE turns SET input = NULL, stash = NULL, question = NULL, set_aside_at = NULL"
            " WHERE agent = :agent AND set_aside_at IS NOT NULL"
        ),
    ]


def unsaid(turns: Sequence[str]) -> list[Statement]:
    """Drop the chunks and ledger rows of turns that said something after the conversation was cleared."""
    statements: list[Statement] = []
    for turn in turns:
        statements.append(Statement("DELETE FROM segments WHERE agent = :agent AND turn = ?", (turn,)))
        statements += _without_calls("agent = :agent AND turn = ?", turn)
    return statements


_EMPTIED = (
    "UPDATE calls SET tool = '', step = 0, state = 'denied', input = NULL, answer = NULL, words = NULL,"
    " approved_by = NULL, question = NULL"
)
"""Of the row of a question only the ids stay."""


def _without_calls(those: str, *params: str) -> list[Statement]:
    """Drop ledger rows. Of a question its id stays, and nothing else.

    Somebody may still look at it, or another session hold a copy of it, and neither a later call under that
    id nor the copy may be taken for it.
    """
    return [
        Statement(
            f"{_EMPTIED} WHERE {those} AND (state IN ('asked', 'approved') OR input IS NOT NULL)", params
        ),
        Statement(f"DELETE FROM calls WHERE {those} AND tool <> ''", params),
    ]


def deleted(ids: Sequence[str]) -> list[Statement]:
    """Remove ended turns with their chunks and ledger rows. The first statement of each returns its id."""
    over = "status IN ('completed', 'error', 'aborted', 'skipped')"
    statements: list[Statement] = []
    for id in ids:
        statements += [
            Statement(f"DELETE FROM turns WHERE agent = :agent AND id = ? AND {over} RETURNING id", (id,)),
            Statement(
                "DELETE FROM segments WHERE agent = :agent AND turn = ?"
                " AND NOT EXISTS (SELECT 1 FROM turns t WHERE t.agent = :agent AND t.id = ?)",
                (id, id),
            ),
            Statement(
                f"{_EMPTIED} WHERE agent = :agent AND turn = ? AND state NOT IN ('asked', 'approved')"
                " AND input IS NOT NULL"
                " AND NOT EXISTS (SELECT 1 FROM turns t WHERE t.agent = :agent AND t.id = ?)",
                (id, id),
            ),
            Statement(
                "DELETE FROM calls WHERE agent = :agent AND turn = ? AND state NOT IN ('asked', 'approved')"
                " AND tool <> ''"
                " AND NOT EXISTS (SELECT 1 FROM turns t WHERE t.agent = :agent AND t.id = ?)",
                (id, id),
            ),
        ]
    return statements
