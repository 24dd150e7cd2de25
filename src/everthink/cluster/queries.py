"""The tables of a cluster, `nodes` and `claims`, on PostgreSQL. Definitions and statements.

    nodes    one row for each life of a process: until when it is believed to live, and the lock it holds
    claims   one row for each agent that was ever run: who owns it, in which epoch, how many commits it made

Death is for ever: a process that was declared dead comes back under another id. The time is the database's.
"""

from __future__ import annotations

from ..store.port import Statement

__all__ = [
    "CLAIM",
    "CUT",
    "DECLARE_DEAD",
    "FOREIGN",
    "GUARD",
    "LIVING",
    "LOCK",
    "OWNER",
    "PEERS",
    "REGISTER",
    "RELEASE_ALL",
    "RENEW",
    "TABLES",
    "UPTIME",
    "all_released",
    "alone",
    "forgotten",
    "guard",
    "released",
    "tidied",
]

TABLES = (
    """CREATE TABLE nodes (
        id TEXT NOT NULL,
        url TEXT NOT NULL,
        place TEXT NOT NULL,
        state TEXT NOT NULL,
        lock BIGINT NOT NULL,
        version TEXT NOT NULL,
        classes TEXT NOT NULL,
        lease_until BIGINT NOT NULL,
        started_at BIGINT NOT NULL,
        PRIMARY KEY (id)
    )""",
    """CREATE TABLE claims (
        agent TEXT NOT NULL,
        owner TEXT,
        epoch BIGINT NOT NULL,
        head BIGINT NOT NULL,
        PRIMARY KEY (agent)
    )""",
    # Every commit changes such a row: with room on its page that touches no index.
    "ALTER TABLE claims SET (fillfactor = 50)",
    "CREATE INDEX claims_by_owner ON claims (owner)",
)

_NOW = "(extract(epoch from clock_timestamp()) * 1000)::bigint"
_KEPT_MS = 3_600_000
"""So long the row of a dead process stays: no commit of it can be under way any more."""
_EVERYBODY = 0x65766572_616C6C
"""The lock of whoever works for all agents at once."""

# --- a process

LOCK = "SELECT pg_try_advisory_lock($1)"
UPTIME = f"SELECT {_NOW} - (extract(epoch from pg_postmaster_start_time()) * 1000)::bigint"
REGISTER = f"""INSERT INTO nodes (id, url, place, state, lock, version, classes, lease_until, started_at)
VALUES ($1, '', $2, 'live', $3, $4, $5, {_NOW} + $6, {_NOW}) ON CONFLICT (id) DO NOTHING"""
RENEW = f"UPDATE nodes SET lease_until = {_NOW} + $2 WHERE id = $1 AND state <> 'dead' RETURNING 1"
PEERS = f"""SELECT id, place, lease_until < {_NOW} AS is_late, NOT EXISTS (
  SELECT 1 FROM pg_locks l WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
  AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND ((l.classid::bigint << 32) | l.objid::bigint) = nodes.lock
) AS is_unlocked FROM nodes WHERE id <> $1 AND state <> 'dead'"""
LIVING = f"SELECT place FROM nodes WHERE state <> 'dead' AND lease_until >= {_NOW} ORDER BY started_at"
DECLARE_DEAD = "UPDATE nodes SET state = 'dead' WHERE id = $1 AND state <> 'dead' RETURNING 1"
# A process that stands still may hold row locks in the middle of a commit: its sessions go with it.
CUT = """SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
WHERE application_name = 'everthink ' || $1 AND pid <> pg_backend_pid()"""

# --- an agent

# Only positive evidence of death counts. "There is no live owner" would rob a process that registered after
# our snapshot, while we waited for the row. What a look shows to be somebody else's is not even waited for;
# and who was declared dead itself claims nothing any more.
CLAIM = f"""WITH taken AS (
  SELECT 1 FROM claims c JOIN nodes n ON n.id = c.owner
  WHERE c.agent = $1 AND c.owner <> $2 AND n.state <> 'dead'
), me AS (
  SELECT id FROM nodes WHERE id = $2 AND state = 'live' AND NOT EXISTS (SELECT 1 FROM taken) FOR KEY SHARE
)
INSERT INTO claims (agent, owner, epoch, head) SELECT $1, me.id, {_NOW}, 0 FROM me
ON CONFLICT (agent) DO UPDATE SET owner = excluded.owner, epoch = claims.epoch + 1
WHERE claims.owner IS NULL OR claims.owner = excluded.owner
  OR EXISTS (SELECT 1 FROM nodes n WHERE n.id = claims.owner AND n.state = 'dead')
RETURNING epoch, head"""
OWNER = """SELECT c.owner, n.place, n.state FROM claims c LEFT JOIN nodes n ON n.id = c.owner
WHERE c.agent = $1 AND c.owner IS NOT NULL"""
RELEASE_ALL = "UPDATE claims SET owner = NULL WHERE owner = $1"

FOREIGN = """SELECT c.agent FROM claims c JOIN nodes n ON n.id = c.owner
WHERE c.owner <> ? AND n.state <> 'dead'"""

GUARD = "claim"
"""The name of the statement that each commit of a claimed agent begins with."""


def guard(agent: str, owner: str, epoch: int) -> Statement:
    """Refuses a commit unless this owner has the agent, in this epoch. Returns how many there were."""
    # Not with the expected number: commits are sent one behind the other, and one that is refused for a
    # reason of its own would take the next with it.
    return Statement(
        "UPDATE claims SET head = head + 1 WHERE agent = ? AND owner = ? AND epoch = ? RETURNING head",
        (agent, owner, epoch),
        guard=True,
        name=GUARD,
    )


def released(agent: str, owner: str, epoch: int) -> Statement:
    """Anybody may claim the agent."""
    return Statement(
        "UPDATE claims SET owner = NULL WHERE agent = ? AND owner = ? AND epoch = ?", (agent, owner, epoch)
    )


def all_released(owner: str) -> Statement:
    """Anybody may claim what this process has."""
    return Statement("UPDATE claims SET owner = NULL WHERE owner = ?", (owner,))


def forgotten(agent: str) -> Statement:
    """The agent is erased: nothing says that it was ever run."""
    return Statement("DELETE FROM claims WHERE agent = ?", (agent,))


def alone() -> Statement:
    """Refuses the commit while another process does what is done for all agents at once."""
    return Statement(
        "SELECT 1 WHERE pg_try_advisory_xact_lock(?)", (_EVERYBODY,), guard=True, name="for everybody"
    )


def tidied() -> list[Statement]:
    """Drop the rows of processes that died long ago, once no claim names them."""
    return [
        Statement(
            "UPDATE claims SET owner = NULL WHERE owner IN (SELECT id FROM nodes WHERE state = 'dead'"
            f" AND lease_until < {_NOW} - {_KEPT_MS})"
        ),
        Statement(
            f"DELETE FROM nodes WHERE state = 'dead' AND lease_until < {_NOW} - {_KEPT_MS}"
            " AND NOT EXISTS (SELECT 1 FROM claims WHERE claims.owner = nodes.id)"
        ),
    ]
