"""`everthink erase`: delete one agent for good."""

from __future__ import annotations

import asyncio
import math
import sys

import click

from .env_file import database_option

__all__ = ["command"]


@click.command(
    "erase",
    short_help="Delete an agent and everything that is kept of it.",
    help="""Delete AGENT (class/name) and all below it: every row, file and index entry. It cannot be undone.

    A child is class/name/sub/class/name; its parent stays. No server may run on the database meanwhile;
    inside one, call `await app.erase(Assistant, "room-1")`. The file is rewritten, so that nothing is left
    in it. Copies elsewhere (backups, logs, exports) are yours to delete. Exit code 0 also when there is no
    such agent; that is said.

    \b
    Examples:
      everthink erase assistant/room-1
      everthink erase assistant/room-1 --store data/agents.db --yes --json""",
)
@click.argument("agent")
@database_option
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--json", "as_json", is_flag=True, help="For scripts; needs --yes.")
def command(agent: str, store: str, yes: bool, as_json: bool) -> None:
    """Erase an agent."""
    from ..address import canonical
    from ..serving.output import print_json, say
    from . import journal as read

    if as_json and not yes:
        raise click.UsageError("--json is for scripts, which cannot be asked: add --yes.")
    journal = read.open_journal(store)
    try:
        found = read.named(journal, agent)
        unknown = read.unknown(journal, agent) if found is None else None
        if found is not None:
            read.refuse_beside_a_server(
                journal, agent, kept="Nothing was erased.", inside="await app.erase(…)"
            )
    finally:
        journal.close()
    if found is None:
        if as_json:
            print_json({"agent": agent, "erased": False, "rows": 0, "scrubbed": True})
        else:
            assert unknown is not None
            say(f"{unknown.what} Nothing was erased. {unknown.next_step}")
        return
    id = read.who(found)
    if not yes:
        say(f"{id} has {found['messages']} messages and {found['turns']} turns. Erasing cannot be undone.")
        if found["below"]:
            say(f"So will be all below it: {found['below']} more.")
        typed = _asked("Type its name to erase it")
        if canonical(typed) != canonical(found["name"]):
            say("That is another name: nothing was erased.")
            raise click.exceptions.Exit(1)
    rows, is_clean = asyncio.run(_erase(store, id))
    if as_json:
        print_json({"agent": id, "erased": True, "rows": rows, "scrubbed": is_clean})
        return
    say(f"{id} is erased: {rows} rows.")
    if not is_clean:
        say("Somebody reads the database, so its files may hold some of it for now: erase it again later.")
    say("Backups and other copies of the database still hold it.")


def _asked(question: str) -> str:
    """What the person types; without one, nothing is erased."""
    from ..errors import AgentError
    from ..serving.output import EXIT_INTERRUPTED, say_error

    try:
        return click.prompt(question, default="", show_default=False)
    except click.Abort:
        say_error()
        if not sys.stdin.isatty():
            raise AgentError(
                "There was nobody to ask: nothing was erased.", next_step="Without a terminal, say --yes."
            ) from None
        say_error("Nothing was erased.")
        raise click.exceptions.Exit(EXIT_INTERRUPTED) from None


async def _erase(store: str, agent: str) -> tuple[int, bool]:
    from ..errors import StoreLocked
    from ..keeping.objects import unknown_objects
    from ..open_store import open_store
    from ..runtime.erasing import erased, rows_erased
    from ..runtime.queries import MEMBERS
    from ..runtime.schema import MIGRATIONS
    from ..workspace.queries import COUNT_OBJECTS

    try:
        database = await open_store(store, MIGRATIONS)
    except StoreLocked as error:
        raise StoreLocked(
            error.what,
            kept="Nothing was erased.",
            next_step="Stop that process first, or call `await app.erase(…)` inside it.",
        ) from error
    try:
        for (member,) in await database.fetch(MEMBERS, agent):
            if count := (await database.fetch(COUNT_OBJECTS, agent=member))[0][0]:
                raise unknown_objects(member, count)
        rows = rows_erased(await database.apply(erased(agent, is_claimed=hasattr(database, "dial"))))
        return rows, await database.scrub(patience=math.inf)
    finally:
        await database.close()
