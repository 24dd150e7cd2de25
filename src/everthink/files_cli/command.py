"""`everthink files`: the files of one agent, as a person at a terminal or a script uses them."""

from __future__ import annotations

import base64
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from ..cli.env_file import database_option
from ..clock import ms_of
from ..errors import AgentError, WorkspaceError
from ..file_tools.sizes import in_words
from ..media_types import text_of
from ..plain import plain
from ..serving.output import print_json, say, say_error
from ..text_diff import unified
from ..workspace.port import Change, Entry
from ..workspace.refusals import not_found
from ..workspace.workspace import Workspace
from .moving import Moved
from .moving import get as move_here
from .moving import put as move_there
from .opened import change, look

__all__ = ["command"]

_json = click.option(
    "--json", "as_json", is_flag=True, help="For scripts; times are milliseconds since 1970."
)
_SHORT = 8
"""Letters of a turn's id that `everthink inspect` shows, from its end."""
_recursive = click.option("-r", "--recursive", is_flag=True, help="Folders, with all that is in them.")


@click.group(
    "files",
    short_help="Look at an agent's files, and change them.",
    help="""Look at the files of AGENT (class/name), and change them.

    These are the files that an agent keeps in its database, which is what agents do unless their class names
    another Workspace. A child is class/name/sub/class/name. `ls`, `cat`, `get`, `diff` and `log` only read,
    also while a server runs. `put`, `rm` and `restore` need the database for themselves: with a server on
    it they say who holds it. Inside a server there is `agent.workspace`.

    \b
    Examples:
      everthink files ls assistant/room-1
      everthink files cat assistant/room-1 /notes/plan.md
      everthink files put assistant/room-1 report.pdf /inbox/
      everthink files get assistant/room-1 /notes -r
      everthink files log assistant/room-1
      everthink files restore assistant/room-1 41""",
)
def command() -> None:
    """The group of its commands."""


# --- looking


@command.command(
    "ls",
    short_help="List a folder.",
    help="""List what is in a folder of AGENT's files: size, time of the last change, name.

    \b
    Examples:
      everthink files ls assistant/room-1
      everthink files ls assistant/room-1 /notes -r
      everthink files ls assistant/room-1 -r --json | jq -r .[].path""",
)
@click.argument("agent")
@click.argument("path", default="/")
@_recursive
@database_option
@_json
def ls(agent: str, path: str, recursive: bool, store: str, as_json: bool) -> None:
    """List a folder."""

    async def found(workspace: Workspace) -> list[Entry]:
        entry = await workspace.stat(path)
        if entry is None:
            raise not_found(path)
        if entry.kind != "directory":
            return [entry]
        if recursive:
            return [one async for one, _ in workspace.files.scan(entry.path)]
        page, entries = await workspace.read_dir(entry.path), list[Entry]()
        while page:
            entries += page
            page = await workspace.read_dir(entry.path, offset=len(entries))
        return entries

    entries = look(store, agent, found)
    if as_json:
        print_json([_entry_json(entry) for entry in entries])
        return
    if not entries:
        say("There are no files." if path == "/" else f"{path} is empty.")
    for entry in entries:
        shown = entry.path if recursive else entry.name
        end = {"directory": "/", "symlink": f" -> {entry.target}"}.get(entry.kind, "")
        size = in_words(entry.size) if entry.kind == "file" else ""
        say(f"{size:>10}  {_when(entry.modified_at)}  {shown}{end}")


@command.command(
    "cat",
    short_help="Write a file to standard output.",
    help="""Write a file of AGENT to standard output, byte by byte.

    On a terminal control characters of a text are shown and not obeyed, and what is no text is refused.

    \b
    Examples:
      everthink files cat assistant/room-1 /notes/plan.md
      everthink files cat assistant/room-1 /photo.png > photo.png""",
)
@click.argument("agent")
@click.argument("path")
@database_option
@click.option("--json", "as_json", is_flag=True, help="For scripts; bytes that are no text are base64.")
def cat(agent: str, path: str, store: str, as_json: bool) -> None:
    """Write a file to standard output."""

    async def found(workspace: Workspace) -> bytes:
        data = await workspace.read_file_bytes(path)
        if data is None:
            raise not_found(path)
        return data

    data = look(store, agent, found)
    text = text_of(data)
    if as_json:
        encoded = {"encoding": "base64", "content": base64.b64encode(data).decode()}
        print_json({"path": path} | (encoded if text is None else {"encoding": "utf8", "content": text}))
    elif not sys.stdout.isatty():
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    elif text is None:
        raise AgentError(
            f"{path} is no text ({in_words(len(data))}), and this is a terminal.",
            next_step=f"Write it to a file: everthink files get {agent} {path}",
        )
    else:
        click.echo(plain(text, lines=True), nl=not text.endswith("\n"))


@command.command(
    "get",
    short_help="Copy a file or a folder to this machine.",
    help="""Copy a file of AGENT, or with -r a folder, to this machine: to DEST, or under its own name
    into the present folder. With a slash at its end DEST is a folder to copy into.

    What exists is not touched unless you say --force. New files can be read by you alone. Links are left
    out and told.

    \b
    Examples:
      everthink files get assistant/room-1 /report.pdf
      everthink files get assistant/room-1 /notes backup/ -r
      everthink files get assistant/room-1 / everything -r --json""",
)
@click.argument("agent")
@click.argument("path")
@click.argument("dest", required=False)
@_recursive
@click.option("--force", is_flag=True, help="Replace what exists.")
@database_option
@_json
def get(
    agent: str, path: str, dest: str | None, recursive: bool, force: bool, store: str, as_json: bool
) -> None:
    """Copy files to this machine."""
    moved = look(
        store, agent, lambda workspace: move_here(workspace, path, dest, recursive=recursive, force=force)
    )
    _tell_moved(moved, agent, as_json=as_json)


@command.command(
    "diff",
    short_help="Compare texts.",
    help="""Compare two files of AGENT; a file with one of this machine (--local); or what there is now with
    what there was after a change (--since), which is what `restore` would take back.

    A unified diff on standard output, nothing when they are equal; exit code 0 in both cases.

    \b
    Examples:
      everthink files diff assistant/room-1 /draft.md /final.md
      everthink files diff assistant/room-1 /plan.md --local plan.md
      everthink files diff assistant/room-1 --since 41""",
)
@click.argument("agent")
@click.argument("path", required=False)
@click.argument("other", required=False)
@click.option("--local", type=click.Path(exists=True, dir_okay=False), help="A file of this machine.")
@click.option("--since", type=click.IntRange(0), help="The number of a change: see `log`.")
@database_option
@click.option("--json", "as_json", is_flag=True, help="For scripts.")
def diff(
    agent: str,
    path: str | None,
    other: str | None,
    local: str | None,
    since: int | None,
    store: str,
    as_json: bool,
) -> None:
    """Compare texts."""
    if since is None and path is None:
        raise click.UsageError("Name a file, or say --since.")
    if [other, local, since].count(None) != 2:
        raise click.UsageError("Name one thing to compare with: another path, --local or --since.")

    text = "" if local is None else Path(local).read_text(encoding="utf-8", errors="replace")

    async def found(workspace: Workspace) -> str:
        if since is not None:
            return await _diff_since(workspace, since, path)
        assert path is not None
        if other is not None:
            return await workspace.diff(path, other)
        return await workspace.diff_content(path, text)

    told = look(store, agent, found)
    if as_json:
        print_json({"equal": not told, "diff": told})
    else:
        click.echo(plain(told, lines=True) if sys.stdout.isatty() else told, nl=False)


@command.command(
    "log",
    short_help="List what was changed.",
    help="""List the changes of AGENT's files, the latest last: number, time, what, path, turn.

    `restore` goes back to a number, `diff --since` shows what is different from then.

    \b
    Examples:
      everthink files log assistant/room-1
      everthink files log assistant/room-1 --after 120 --json""",
)
@click.argument("agent")
@click.option("--after", type=click.IntRange(0), help="Only changes behind this number, the first of them.")
@click.option("--limit", default=50, show_default=True, type=click.IntRange(1), help="How many.")
@database_option
@_json
def log(agent: str, after: int | None, limit: int, store: str, as_json: bool) -> None:
    """List what was changed."""

    async def found(workspace: Workspace) -> list[Change]:
        if after is not None:
            return await workspace.changes(after=after, limit=limit)
        last = list[Change]()
        while page := await workspace.changes(after=last[-1].seq if last else 0):
            last = (last + page)[-limit:]
        return last

    changes = look(store, agent, found)
    if as_json:
        print_json([_change_json(one) for one in changes])
        return
    if not changes:
        say("Nothing was changed.")
    for one in changes:
        turn = f"  (turn {one.turn})" if one.turn else ""
        end = "/" if one.kind == "directory" else ""
        say(f"{one.seq:>6}  {_when(one.at)}  {one.change:<6}  {one.path}{end}{turn}")


# --- changing


@command.command(
    "put",
    short_help="Copy a file or a folder to an agent.",
    help="""Copy SOURCE, a file or with -r a folder of this machine, to AGENT's files; - is standard input.

    PATH is where it goes; with a slash at its end, a folder to copy into, as is for a file a folder that
    is there. Without PATH it goes to the root under its own name. What has the same bytes already is left
    alone, so what was interrupted can be run again. The limits are those of WorkspaceLimits(), whatever the
    agent's class says.

    \b
    Examples:
      everthink files put assistant/room-1 report.pdf /inbox/
      everthink files put assistant/room-1 site /site -r
      echo "Buy milk" | everthink files put assistant/room-1 - /todo.txt""",
)
@click.argument("agent")
@click.argument("source")
@click.argument("path", required=False)
@_recursive
@database_option
@_json
def put(agent: str, source: str, path: str | None, recursive: bool, store: str, as_json: bool) -> None:
    """Copy files to an agent."""
    if source == "-" and (path is None or path.endswith("/")):
        raise click.UsageError("Say which file standard input becomes: a PATH that names one.")
    moved = change(store, agent, lambda workspace: move_there(workspace, source, path, recursive=recursive))
    _tell_moved(moved, agent, as_json=as_json)


@command.command(
    "rm",
    short_help="Remove a file or a folder.",
    help="""Remove a file of AGENT, or with -r a folder with all that is in it.

    Earlier bytes are kept for a while, so `restore` brings it back; `everthink erase` is what leaves nothing.

    \b
    Examples:
      everthink files rm assistant/room-1 /draft.md
      everthink files rm assistant/room-1 /old -r --json""",
)
@click.argument("agent")
@click.argument("path")
@_recursive
@database_option
@_json
def rm(agent: str, path: str, recursive: bool, store: str, as_json: bool) -> None:
    """Remove files."""

    async def removed(workspace: Workspace) -> None:
        try:
            await workspace.rm(path, recursive=recursive)
        except WorkspaceError as error:
            if error.code == "ENOTEMPTY":
                error.next_step = "Say -r to remove it with all that is in it."
            raise

    change(store, agent, removed)
    if as_json:
        print_json({"agent": agent, "removed": path})
    else:
        say(f"{path} is removed.")


@command.command(
    "restore",
    short_help="Go back to an earlier state.",
    help="""Bring all files of AGENT to where they stood after change SEQ, or take back what one turn changed.

    `log` lists the numbers. Going back is a change, too: it can be taken back the same way. A turn is only
    taken back while nobody has changed its files again.

    \b
    Examples:
      everthink files restore assistant/room-1 41
      everthink files restore assistant/room-1 --turn 01a1e405-5e72-7deb-bc55-953f7326ef75""",
)
@click.argument("agent")
@click.argument("seq", required=False, type=click.IntRange(0))
@click.option("--turn", help="Take back what this turn changed: its id, or the end that inspect shows.")
@database_option
@_json
def restore(agent: str, seq: int | None, turn: str | None, store: str, as_json: bool) -> None:
    """Go back to an earlier state."""
    if (seq is None) == (turn is None):
        raise click.UsageError("Say to which change, as `everthink files log` numbers them, or --turn.")

    async def restored(workspace: Workspace) -> list[Change]:
        if turn is not None:
            return await workspace.undo(turn=await _known(workspace, turn))
        assert seq is not None
        return await workspace.restore(seq)

    changes = change(store, agent, restored)
    if as_json:
        print_json([_change_json(one) for one in changes])
    elif changes:
        back = f"everthink files restore {agent} {changes[0].seq - 1}"
        say(f"{_counted(len(changes), 'change')} made it so. To take that back: {back}")
    else:
        say("It is so already.")


async def _known(workspace: Workspace, turn: str) -> str:
    """The turn that is meant: by its id, or by the end of it that `inspect` shows. Raises when it has changed
    nothing, as far as the log goes back."""
    after, found = 0, set[str]()
    while page := await workspace.changes(after=after):
        found |= {one.turn for one in page if one.turn is not None and one.turn.endswith(turn)}
        after = page[-1].seq
    if turn in found:
        return turn
    if len(found) == 1 and len(turn) >= _SHORT:
        return found.pop()
    raise AgentError(
        f"No change that is kept was made in the turn {turn!r}.",
        kept="Nothing was changed.",
        next_step="`everthink files log` lists the changes, each with its turn.",
    )


# --- how it is told


def _tell_moved(moved: Moved, agent: str, *, as_json: bool) -> None:
    if as_json:
        print_json({"agent": agent, **moved.as_json()})
        return
    for one in moved.skipped:
        say_error(f"{one} is a link, or nothing that can be copied: left out.")
    same = f"; {_counted(moved.unchanged, 'file')} had the same bytes already" if moved.unchanged else ""
    files = moved.written[0] if len(moved.written) == 1 else _counted(len(moved.written), "file")
    say(f"{files} written, {in_words(moved.bytes)}{same}.")


def _when(moment: datetime) -> str:
    return f"{moment.astimezone():%Y-%m-%d %H:%M:%S}"


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


async def _diff_since(workspace: Workspace, since: int, path: str | None) -> str:
    """What is different from what there was after a change, path by path."""
    was: dict[str, str | None] = {}
    after = since
    if since and not await workspace.changes(after=since - 1, limit=1):
        raise AgentError(
            f"There is no change {since}.",
            next_step="`everthink files log` lists those that there are.",
        )
    while page := await workspace.changes(after=after):
        if page[0].seq > after + 1:
            raise AgentError(
                f"The log does not go back to change {since}: it begins with {page[0].seq}.",
                next_step="`everthink files log` lists what is kept.",
            )
        for one in page:
            was.setdefault(one.path, one.was)
        after = page[-1].seq
    told = ""
    for where, hash in sorted(was.items()):
        if path is not None and where != path and not where.startswith(path.rstrip("/") + "/"):
            continue
        entry = await workspace.lstat(where)
        now = entry.hash if entry is not None else None
        if now != hash:
            before, later = await _text(workspace, hash), await _text(workspace, now)
            if before is None or later is None:
                told += f"Binary files {where} differ\n"
            else:
                told += unified(
                    before, later, old=where if hash else "/dev/null", new=where if now else "/dev/null"
                )
    return told


async def _text(workspace: Workspace, hash: str | None) -> str | None:
    """A content as text, or `None` when it is none or is not kept any more."""
    if hash is None:
        return ""
    data = await workspace.read_content(hash)
    return None if data is None else text_of(data)


def _entry_json(entry: Entry) -> dict[str, Any]:
    return {
        "path": entry.path,
        "kind": entry.kind,
        "size": entry.size,
        "media_type": entry.media_type,
        "hash": entry.hash,
        "target": entry.target,
        "created_at": ms_of(entry.created_at),
        "modified_at": ms_of(entry.modified_at),
    }


def _change_json(one: Change) -> dict[str, Any]:
    return {
        "seq": one.seq,
        "path": one.path,
        "change": one.change,
        "kind": one.kind,
        "hash": one.hash,
        "was": one.was,
        "at": ms_of(one.at),
        "call_id": one.call_id,
        "turn": one.turn,
    }
