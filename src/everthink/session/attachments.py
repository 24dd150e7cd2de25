"""Files that left their messages: where they are in the workspace, and what goes with a conversation.

    session/eviction --Put--> files of the agent     cleared --let_go--> gone, but for what a fork names

They are kept beside the conversation, so that history stays light and nothing is lost. Earlier databases have
them in a table of their own; `MOVED` makes files of its rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote

from ..store.port import Engine, Statement
from ..workspace import queries
from ..workspace.paths import EVICTED_FOLDER

__all__ = ["DROPPED", "MOVED", "TABLES", "cleared", "folder_of"]

TABLES = (
    """CREATE TABLE attachments (
        agent TEXT NOT NULL,
        path TEXT NOT NULL,
        session TEXT NOT NULL,
        media_type TEXT NOT NULL,
        size BIGINT NOT NULL,
        content TEXT NOT NULL,
        created_at BIGINT NOT NULL,
        PRIMARY KEY (agent, path)
    )""",
)
"""As migration 6 made it."""


def folder_of(session: str) -> str:
    """Where the files of a session are. Ids of messages are chosen by clients, and may be the same in two."""
    return f"{EVICTED_FOLDER}/{quote(session, safe='')}" if session else EVICTED_FOLDER


def cleared(session: str) -> Iterator[Statement]:
    """Forget the files of a session, except those that a fork of it still names.

    Anybody can type a path. What we copied into a fork is as old as the fork itself; what was typed is not.
    """
    named = Statement(
        "EXISTS (SELECT 1 FROM messages m"
        " JOIN sessions s ON s.agent = m.agent AND s.id = m.session"
        " WHERE m.agent = files.agent AND m.session <> ?"
        " AND s.parent_session IS NOT NULL AND m.created_at <= s.created_at"
        " AND m.content LIKE '%preserved at ' || files.path || ']%')",
        (session,),
    )
    return queries.let_go(folder_of(session), EVICTED_FOLDER, named)


# --- the table of earlier databases

_PIECE, _PIECE_TEXT = 786_432, 1_048_576
_WHOLE = 1 << 20
"""What has so many bytes is one row of `contents`; more is cut into pieces, of which each is whole base64."""


def _moved(hash: str, parent: str) -> tuple[str, ...]:
    """Make every row a file, with the folders above it. A file that is there already stays what it is."""
    entry = "agent, path, parent, kind, size, media_type, target, hash, created_at, modified_at"
    folders = tuple(
        f"INSERT INTO files ({entry}) SELECT agent, {path}, {above}, 'directory', 0, '', NULL, NULL,"
        " MIN(created_at), MIN(created_at) FROM attachments GROUP BY 1, 2, 3 ON CONFLICT DO NOTHING"
        for path, above in (
            ("'/attachments'", "'/'"),
            (f"'{EVICTED_FOLDER}'", "'/attachments'"),
            (parent, f"'{EVICTED_FOLDER}'"),
        )
    )
    return (
        *folders,
        f"INSERT INTO files ({entry}) SELECT agent, path, {parent}, 'file', size, media_type, NULL, {hash},"
        " created_at, created_at FROM attachments WHERE TRUE ON CONFLICT DO NOTHING",
        "WITH RECURSIVE pieces (number) AS (SELECT 0 UNION ALL SELECT number + 1 FROM pieces WHERE number <"
        f" (SELECT COALESCE(MAX(size), 0) / {_PIECE} FROM attachments))"
        " INSERT INTO contents (agent, hash, part, place, encoding, begins, size, content)"
        f" SELECT agent, {hash}, number, 'row', 'base64', number * {_PIECE},"
        f" CASE WHEN size <= {_WHOLE} THEN size WHEN size < (number + 1) * {_PIECE}"
        f" THEN size - number * {_PIECE} ELSE {_PIECE} END,"
        f" CASE WHEN size <= {_WHOLE} THEN content"
        f" ELSE substr(content, number * {_PIECE_TEXT} + 1, {_PIECE_TEXT}) END"
        f" FROM attachments JOIN pieces ON number = 0 OR (size > {_WHOLE} AND number * {_PIECE} < size)"
        " WHERE TRUE ON CONFLICT DO NOTHING",
    )


MOVED: dict[Engine, tuple[str, ...]] = {
    "sqlite": _moved("sha256_of_base64(content)", "rtrim(rtrim(path, replace(path, '/', '')), '/')"),
    "postgres": _moved(
        "encode(sha256(decode(content, 'base64')), 'hex')", "regexp_replace(path, '/[^/]*$', '')"
    ),
}
"""The rows of the table as files. SQLite is lent a function for the hashes by its adapter."""

DROPPED = ("DROP TABLE attachments",)
