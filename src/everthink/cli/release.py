"""`everthink release`: let what was set aside be tried again."""

from __future__ import annotations

from typing import Any

import click

from .env_file import database_option

__all__ = ["command"]


@click.command(
    "release",
    short_help="Try again what was set aside.",
    help="""Let AGENT (class/name), or one of its turns, be tried again after it was set aside. All that is
    below it goes with it; a child alone is class/name/sub/class/name.

    What takes the process down, or hangs it, three times is set aside, and so is a turn that cannot be
    read; `everthink inspect` shows what that is and why. Works while a server runs: an agent can be reached
    at once, a turn goes on when its agent next starts. Inside a server: `await app.release(Cls, "room-1")`.

    \b
    Examples:
      everthink release assistant/room-1
      everthink release assistant/room-1 --turn 01a1e405-5e72-7deb-bc55-953f7326ef75 --json
      everthink release --all --store postgresql://me@db/agents""",
)
@click.argument("agent", required=False)
@click.option("--turn", help="Only this turn; the others stay set aside.")
@click.option("--all", "everything", is_flag=True, help="All that is set aside in this database.")
@database_option
@click.option("--json", "as_json", is_flag=True, help="For scripts.")
def command(agent: str | None, turn: str | None, everything: bool, store: str, as_json: bool) -> None:
    """Release what was set aside."""
    from ..errors import AgentError
    from ..serving.output import print_json, say
    from . import journal as read

    if (agent is None) == (not everything):
        raise click.UsageError("Name an agent, as in `everthink release assistant/room-1`, or say --all.")
    if everything and turn is not None:
        raise click.UsageError("--turn names a turn of one agent: name the agent as well.")
    journal = read.open_journal(store, writes=True)
    try:
        known = read.set_aside(journal, agent)
        found = [row for row in known if turn in (None, row["turn"])]
        if agent and not known and not read.agents(journal, agent):
            raise read.unknown(journal, agent)
        if turn is not None and not found:
            raise AgentError(
                f"The turn {turn!r} of {agent} is not set aside. Nothing was changed.",
                next_step="`everthink inspect` shows what is.",
            )
        for row in found:
            journal.change(_released(row), agent=read.who(row))
    finally:
        journal.close()
    if as_json:
        keys = ("class", "name", "parents", "turn")
        print_json({"released": [{key: row[key] for key in keys} for row in found]})
        return
    if not found:
        say(f"Nothing {f'of {agent} ' if agent else ''}is set aside.")
    for row in found:
        who = read.who(row)
        say(
            f"{who} can be reached again."
            if not row["turn"]
            else f"Turn {row['turn']} of {who} is tried again."
        )


def _released(row: dict[str, Any]) -> list[Any]:
    from ..journal import queries as turns
    from ..recovery import suspects

    statements = [suspects.released(row["turn"])]
    return [*statements, turns.released(row["turn"])] if row["turn"] else statements
