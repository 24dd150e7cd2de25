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
    from .journal import Journal, Row

__all__ = ["command"]

NARROW = 8
"""Characters that a column of long texts has, at least."""
STATUS_STYLES = {
    "completed": "green",
    "done": "green",
    "error": "red",
    "failed": "red",
    "denied": "yellow",
    "aborted": "yellow",
    "interrupted": "yellow",
    "failing": "yellow",
    "rejected": "yellow",
    "paused": "yellow",
    "pending": "yellow",
    "unknown": "yellow",
    "running": "cyan",
    "sending": "yellow",
    "sent": "cyan",
    "started": "cyan",
}


@click.command(
    "inspect",
    short_help="Look into a database: agents, turns, calls.",
    help="""Look into a database: its agents, their latest turns, tool calls, code with the calls that it
    made, runs of children and messages to platforms.

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
    help="How many turns, calls, codes, runs and messages; calls of one code, and children of one parent.",
)
@click.option("--json", "as_json", is_flag=True, help="For scripts; times are milliseconds since 1970.")
def command(store: str, agent: str | None, limit: int, as_json: bool) -> None:
    """Look into a database."""
    from ..masking import masked
    from ..serving.output import print_json, say
    from . import journal as read

    journal = read.open_journal(store)
    try:
        found = _read(journal, agent, limit)
    finally:
        journal.close()
    if as_json:
        print_json(masked(found))
    elif not found["agents"]:
        say("No agent has been reached yet: the database is empty.")
    else:
        for title, columns, rows in _tables(found, limit):
            _table(title, columns, rows)


def _read(journal: Journal, agent: str | None, limit: int) -> dict[str, list[Row]]:
    """All that is shown."""
    from . import journal as read

    found = {
        "agents": read.agents(journal, agent),
        "turns": read.turns(journal, agent, limit=limit),
        "calls": read.calls(journal, agent, limit=limit),
        "executions": read.executions(journal, agent, limit=limit),
        "runs": read.runs(journal, agent, limit=limit),
        "deliveries": read.deliveries(journal, agent, limit=limit),
        "set_aside": read.set_aside(journal, agent),
    }
    if agent and not found["agents"]:
        raise read.unknown(journal, agent)
    return found


def _tables(found: dict[str, list[Row]], limit: int) -> Iterator[tuple[str, list[str], list[list[Any]]]]:
    """What the terminal shows: titles, columns and cells."""
    agents = [
        [who, *_conversation(row)] if row is not None else [who, "", "", "", ""]
        for who, row in _families(found["agents"], limit)
    ]
    yield "Agents", ["agent", "messages", "turns", "open", "last turn"], agents
    columns = ["agent", "turn", "strikes", "since", "why"]
    yield "Set aside (everthink release tries again)", columns, [_aside(row) for row in found["set_aside"]]
    columns = ["agent", "turn", "trigger", "status", "began", "took", "error"]
    yield "Latest turns", columns, [_turn(row) for row in found["turns"]]
    columns = ["agent", "tool", "state", "asked at", "took", "input"]
    yield "Latest tool calls", columns, [_call(row) for row in found["calls"]]
    columns = ["agent", "code", "state", "began", "took", "input", "error"]
    code = [cells for row in found["executions"] for cells in _execution(row, limit)]
    yield "Latest code and its calls", columns, code
    columns = ["parent", "child", "status", "began", "took", "asked", "error"]
    yield "Latest runs of children", columns, [_run(row) for row in found["runs"]]
    columns = ["agent", "to", "what", "state", "planned", "tried", "next", "id there", "error"]
    yield "Latest messages to platforms", columns, [_delivery(row) for row in found["deliveries"]]


def _aside(row: Row) -> list[Any]:
    return [_who(row), row["turn"] or "(its start)", row["strikes"], _when(row["last_at"]), row["what"]]


def _turn(row: Row) -> list[Any]:
    took = _took(row["started_at"], row["ended_at"])
    begun = _when(row["created_at"])
    return [_who(row), _short(row["id"]), row["trigger"], row["status"], begun, took, row["error"] or ""]


def _call(row: Row) -> list[Any]:
    took = _took(row["started_at"], row["settled_at"])
    return [_who(row), row["tool"], row["state"], _when(row["asked_at"]), took, row["input"] or ""]


def _execution(row: Row, limit: int) -> Iterator[list[Any]]:
    """A piece of code, and a line for each of its first calls."""
    took = "" if row["state"] in ("running", "paused") else _took(row["began_at"], row["changed_at"])
    begun, told = _when(row["began_at"]), row["error"] or ""
    name = f"{row['tool']} {_short(row['id'])}"
    yield [_who(row), name, row["state"], begun, took, row["code"], told]
    calls = row["calls"]
    for call in calls[:limit]:
        took, begun = _took(call["began_at"], call["settled_at"]), _when(call["began_at"])
        told = call["error"] or ""
        yield ["", f"  {call['seq']} {call['tool']}", call["state"], begun, took, call["input"], told]
    if len(calls) > limit:
        yield ["", f"  … and {len(calls) - limit} more", "", "", "", "", ""]


def _run(row: Row) -> list[Any]:
    child, took = f"{row['child_class']}/{row['run_id']}", _took(row["started_at"], row["ended_at"])
    asked, error = row["preview"] or "", row["error"] or ""
    return [_who(row), child, row["status"], _when(row["started_at"]), took, asked, error]


def _delivery(row: Row) -> list[Any]:
    return [
        _who(row),
        f"{row['messenger']} {row['chat']}",
        f"{row['kind']} {row['part']}" if row["kind"] == "more" else row["kind"],
        row["state"],
        _when(row["created_at"]),
        row["attempts"] or "",
        _when(row["next_at"]),
        row["ref"] or "",
        row["error"] or "",
    ]


def _who(row: Row) -> str:
    from .journal import who

    return who(row)


def _short(id: str) -> str:
    return id[-8:]


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
    cells = [[Text(_cell(str(cell)), STATUS_STYLES.get(str(cell), "")) for cell in row] for row in rows]
    # The long ones share what the others leave, which are read at a glance.
    long = [column in ("input", "asked", "error", "why") for column in columns]
    widths = [max(Text(name).cell_len, *(row[n].cell_len for row in cells)) for n, name in enumerate(columns)]
    taken = 2 + sum(width + 3 for width, gives_way in zip(widths, long, strict=True) if not gives_way)
    left = max(NARROW, (console.width - taken) // max(1, sum(long)) - 3)
    for column, gives_way in zip(columns, long, strict=True):
        overflow = "ellipsis" if gives_way else "fold"
        table.add_column(column, no_wrap=True, overflow=overflow, max_width=left if gives_way else None)
    for row in cells:
        table.add_row(*row)
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
