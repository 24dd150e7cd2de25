"""`everthink inspect`: what is in a database."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from .env_file import database_option

if TYPE_CHECKING:
    from ..address import Address

__all__ = ["command"]

STATUS_STYLES = {
    "completed": "green",
    "done": "green",
    "error": "red",
    "failed": "red",
    "denied": "yellow",
    "aborted": "yellow",
    "interrupted": "yellow",
    "failing": "yellow",
    "running": "cyan",
    "sending": "yellow",
    "sent": "cyan",
    "started": "cyan",
}


@click.command(
    "inspect",
    short_help="Look into a database: agents, turns, calls.",
    help="""Look into a database: its agents, their latest turns, tool calls, runs of children and messages
    to platforms.

    Children stand below their parent, the latest first. Reads only, and works while a server runs on the
    same database.

    \b
    Examples:
      everthink inspect
      everthink inspect --agent assistant/room-1
      everthink inspect --agent assistant/room-1/sub/researcher/notes
      everthink inspect --store postgresql://me@db/agents --json | jq .turns[0]""",
)
@database_option
@click.option("--agent", help="Only this agent and all below it: a class, or class/name.")
@click.option(
    "--limit",
    default=20,
    show_default=True,
    type=click.IntRange(1),
    help="How many turns, calls, runs and messages, and children of one parent.",
)
@click.option("--json", "as_json", is_flag=True, help="For scripts; times are milliseconds since 1970.")
def command(store: str, agent: str | None, limit: int, as_json: bool) -> None:
    """Look into a database."""
    from ..masking import masked
    from ..serving.output import print_json, say
    from . import journal as read

    journal = read.open_journal(store)
    try:
        found = {
            "agents": read.agents(journal, agent),
            "turns": read.turns(journal, agent, limit=limit),
            "calls": read.calls(journal, agent, limit=limit),
            "runs": read.runs(journal, agent, limit=limit),
            "deliveries": read.deliveries(journal, agent, limit=limit),
            "set_aside": read.set_aside(journal, agent),
        }
        if agent and not found["agents"]:
            raise read.unknown(journal, agent)
    finally:
        journal.close()
    if as_json:
        print_json(masked(found))
        return
    if not found["agents"]:
        say("No agent has been reached yet: the database is empty.")
        return
    _table(
        "Agents",
        ["agent", "messages", "turns", "open", "last turn"],
        [
            [who, *_conversation(r)] if r is not None else [who, "", "", "", ""]
            for who, r in _families(found["agents"], limit)
        ],
    )
    _table(
        "Set aside (everthink release tries again)",
        ["agent", "turn", "strikes", "since", "why"],
        [
            [read.who(r), r["turn"] or "(its start)", r["strikes"], _when(r["last_at"]), r["what"]]
            for r in found["set_aside"]
        ],
    )
    _table(
        "Latest turns",
        ["agent", "turn", "trigger", "status", "began", "took", "error"],
        [
            [
                read.who(r),
                r["id"][:8] if len(r["id"]) < 9 else r["id"][-8:],
                r["trigger"],
                r["status"],
                _when(r["created_at"]),
                _took(r["started_at"], r["ended_at"]),
                r["error"] or "",
            ]
            for r in found["turns"]
        ],
    )
    _table(
        "Latest tool calls",
        ["agent", "tool", "state", "asked at", "took", "input"],
        [
            [
                read.who(r),
                r["tool"],
                r["state"],
                _when(r["asked_at"]),
                _took(r["started_at"], r["settled_at"]),
                r["input"] or "",
            ]
            for r in found["calls"]
        ],
    )
    _table(
        "Latest runs of children",
        ["parent", "child", "status", "began", "took", "asked", "error"],
        [
            [
                read.who(r),
                f"{r['child_class']}/{r['run_id']}",
                r["status"],
                _when(r["started_at"]),
                _took(r["started_at"], r["ended_at"]),
                r["preview"] or "",
                r["error"] or "",
            ]
            for r in found["runs"]
        ],
    )
    _table(
        "Latest messages to platforms",
        ["agent", "to", "what", "state", "planned", "tried", "next", "id there", "error"],
        [
            [
                read.who(r),
                f"{r['messenger']} {r['chat']}",
                f"{r['kind']} {r['part']}" if r["kind"] == "more" else r["kind"],
                r["state"],
                _when(r["created_at"]),
                r["attempts"] or "",
                _when(r["next_at"]),
                r["ref"] or "",
                r["error"] or "",
            ]
            for r in found["deliveries"]
        ],
    )


def _conversation(row: dict[str, Any]) -> list[Any]:
    """What there is of an agent's conversation; words for one of a class that never had any."""
    if not row["chats"]:
        return ["no chat", "", "", ""]
    return [row["messages"], row["turns"], row["open_turns"] or "", _when(row["last_turn_at"])]


def _families(rows: list[dict[str, Any]], limit: int) -> Iterator[tuple[str, dict[str, Any] | None]]:
    """Agents with how they are shown: children below their parent, and not all of very many.

    For those that are left out there is a line without a row.
    """
    from .journal import address, who

    addresses = [address(row) for row in rows]
    siblings = Counter(one.parent for one in addresses)
    told: Counter[Address | None] = Counter()
    levels: dict[Address, int | None] = {}
    for one, row in zip(addresses, rows, strict=True):
        level = levels.get(one.parent, -1) if one.parent is not None else -1
        told[one.parent] += 1
        if level is None or (level >= 0 and told[one.parent] > limit):
            levels[one] = None  # and so are those below it
            if level is not None and told[one.parent] == limit + 1:
                yield f"{'  ' * (level + 1)}… and {siblings[one.parent] - limit} more", None
            continue
        levels[one] = level + 1
        is_below = level >= 0
        yield ("  " * (level + 1) + f"{one.cls_name}/{one.name}" if is_below else who(row)), row


def _table(title: str, columns: list[str], rows: list[list[Any]]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    if not rows:
        return
    # A column that says nothing anywhere is left out.
    kept = [number for number in range(len(columns)) if any(str(row[number]) for row in rows)]
    columns, rows = [columns[n] for n in kept], [[row[n] for n in kept] for row in rows]
    console = Console(highlight=False, markup=False)
    if not console.is_terminal:
        console = Console(highlight=False, markup=False, width=200)  # A pipe has no edge.
    table = Table(
        title=f"\n{title}", title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False
    )
    for column in columns:
        # The long ones give way, the others are read at a glance.
        long = column in ("input", "asked", "error", "why")
        table.add_column(
            column, no_wrap=True, overflow="ellipsis" if long else "fold", ratio=1 if long else None
        )
    for row in rows:
        table.add_row(*[Text(_cell(str(cell)), STATUS_STYLES.get(str(cell), "")) for cell in row])
    console.print(table)


def _cell(text: str) -> str:
    """Names and errors are strangers' words: a terminal must not obey them. What stands below stays there."""
    from ..masking import mask
    from ..plain import plain

    indent = len(text) - len(text.lstrip(" "))
    return " " * indent + plain(" ".join(mask(text).split()))


def _when(milliseconds: int | None) -> str:
    if milliseconds is None:
        return ""
    try:
        moment = datetime.fromtimestamp(milliseconds / 1000, UTC).astimezone()
    except (TypeError, ValueError, OverflowError, OSError):
        return str(milliseconds)[:20]  # no time, whoever wrote it
    today = moment.date() == datetime.now().astimezone().date()
    return f"{moment:%H:%M:%S}" if today else f"{moment:%Y-%m-%d %H:%M}"


def _took(begun: int | None, ended: int | None) -> str:
    if not isinstance(begun, int) or not isinstance(ended, int):
        return ""
    return f"{(ended - begun) / 1000:.1f} s"
