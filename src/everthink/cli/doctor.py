"""`everthink doctor`: what is there, what is missing, how to mend it."""

from __future__ import annotations

import importlib.util
import os
import socket
import sqlite3
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

if TYPE_CHECKING:
    from ..extensions.values import InstalledExtension

__all__ = ["command"]

EXTRAS = {
    "openai": "openai",
    "anthropic": "anthropic",
    "google": "google.genai",
    "bedrock": "boto3",
    "postgres": "asyncpg",
    "otel": "opentelemetry.trace",
    "objects": "obstore",
    "mcp": "mcp",
    "messengers": "httpx2",
    "discord": "cryptography",
    "sandbox": "bashkit",
    "browser": "html_to_markdown",
}


@dataclass
class Check:
    """One thing that was looked at."""

    name: str
    state: Literal["ok", "note", "problem"]
    found: str
    mend: str = ""


LONGEST_NAME = 60
"""Characters of a name that is shown: MCP servers and messengers may have any."""
ANSWERING = 20.0
"""Seconds that MCP servers get to answer, all together."""

MARKS = {"ok": ("✓", "green"), "note": ("-", "yellow"), "problem": ("✗", "bold red")}


@click.command(
    "doctor",
    short_help="See what is installed, configured and missing.",
    help="""See what is installed, configured and missing, and how to mend it.

    With TARGET (module:app, or a file with one app) the MCP servers of the app are asked whether they answer,
    and the platforms of its messengers whether they know the token; --offline asks nobody.

    Keys are named, never shown. Exit code 1 when something keeps everthink from working here, or a server of
    TARGET does not answer; a missing extra or key is only noted.

    \b
    Examples:
      everthink doctor
      everthink doctor shop.main:app
      everthink doctor shop.main:app --offline
      everthink doctor --store sqlite:////var/lib/agents.db --json""",
)
@click.argument("target", required=False)
@click.option(
    "--store",
    default="sqlite:///.everthink/everthink.db",
    show_default=True,
    envvar="EVERTHINK_STORE",
    help="The database to look at.",
)
@click.option(
    "--port", default=8787, show_default=True, type=click.IntRange(1, 65535), help="The port to look at."
)
@click.option("--offline", is_flag=True, help="Ask no MCP server, and no platform of a messenger.")
@click.option("--json", "as_json", is_flag=True, help="For scripts.")
def command(target: str | None, store: str, port: int, offline: bool, as_json: bool) -> None:
    """Look at everything."""
    from rich.text import Text

    from ..masking import mask, masked
    from ..plain import cut, plain
    from ..serving.output import EXIT_PROBLEM, print_json, say

    checks = [_python(), _sqlite(), *_extras(), *_here(), *_keys()]
    checks += [_store(store), *_agents(), *_packages(target), _port(port)]
    checks += [*_messengers(target, offline=offline), *_gone_messengers(target, store), *_sealing(store)]
    checks += [*(_servers(target, offline=offline) if target is not None else ())]
    problems = sum(check.state == "problem" for check in checks)
    if as_json:
        print_json({"ok": not problems, "checks": masked([asdict(check) for check in checks])})
    else:
        names = [cut(plain(check.name), LONGEST_NAME) for check in checks]
        width = max(map(len, names))
        below = f"\n  {'':{width}}  "  # further lines of a text, where none looks like a check

        def shown(text: str) -> str:
            return plain(mask(text), lines=True).replace("\n", below)

        for name, check in zip(names, checks, strict=True):
            say(Text.assemble(MARKS[check.state], f" {name:{width}}  {shown(check.found)}"))
            if check.mend:
                say(f"{below[1:]}{shown(check.mend)}", "dim")
        verdict = "1 problem." if problems == 1 else f"{problems} problems."
        say(f"\n{verdict}" if problems else "\nAll that is needed is there.", "bold")
    if problems:
        raise SystemExit(EXIT_PROBLEM)


def _python() -> Check:
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info < (3, 11):  # noqa: UP036 - installed by force, say
        return Check("Python", "problem", version, "everthink needs Python 3.11 or newer.")
    return Check("Python", "ok", f"{version} ({sys.executable})")


def _sqlite() -> Check:
    if sqlite3.sqlite_version_info < (3, 35):
        return Check(
            "SQLite", "problem", sqlite3.sqlite_version, "3.35 or newer is needed: use a newer Python."
        )
    return Check("SQLite", "ok", sqlite3.sqlite_version)


def _extras() -> Iterator[Check]:
    for extra, module in EXTRAS.items():
        if _is_installed(module):
            yield Check(f"extra {extra}", "ok", "installed")
        else:
            yield Check(f"extra {extra}", "note", "not installed", f'pip install "everthink[{extra}]"')


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def _here() -> Iterator[Check]:
    """What runs code and pages for models on this machine: in each something is run."""
    import asyncio

    from ..engines.here import looked

    for found in asyncio.run(looked()):
        yield Check(found.name, "ok" if found.hint is None else "note", found.text, found.hint or "")


def _keys() -> Iterator[Check]:
    from ..serving.missing_models import KEYS, odd_keys

    for odd in odd_keys():
        yield Check("keys", "problem", odd, "Copy it once more from the provider's page.")
    found = [key for key in KEYS if os.environ.get(key)]
    if found:
        yield Check("keys", "ok", f"{', '.join(found)} set")
    else:
        yield Check(
            "keys",
            "note",
            "none of the usual ones is set, so agents answer with the demo model in dev",
            f"export {KEYS[0]}=… or another: {', '.join(KEYS[1:])}",
        )


def _store(store: str) -> Check:
    from ..cluster.queries import LIVING
    from ..errors import AgentError
    from .journal import open_journal, sqlite_path

    shown = store
    try:
        if not store.startswith("postgres"):
            path = sqlite_path(store)
            shown = str(path)
            if not path.exists():
                return _new_store(path)
            if holder := _holder(path):
                open_journal(store).close()
                return Check("store", "ok", f"{path}, in use by {holder}")
        else:
            shown = "PostgreSQL"
        journal = open_journal(store)
        try:
            [row] = journal.rows("SELECT MAX(number) AS number FROM everthink_schema")
            number = int(row["number"] or 0)
            if shown == "PostgreSQL" and _has_nodes(number):
                shown = _in_use(shown, [row["place"] for row in journal.rows(LIVING)])
        finally:
            journal.close()
    except AgentError as error:
        return Check("store", "problem", error.what, error.next_step)
    return _schema(shown, number)


def _has_nodes(number: int) -> bool:
    """True when a database of this schema knows who uses it."""
    from ..cluster.queries import TABLES
    from ..runtime.schema import MIGRATIONS

    return number >= next(step.number for step in MIGRATIONS if step.statements == TABLES)


def _in_use(shown: str, places: list[str]) -> str:
    return f"{shown}, in use by {', '.join(places)}," if places else shown


def _schema(shown: str, number: int) -> Check:
    from ..runtime.schema import MIGRATIONS

    if number > len(MIGRATIONS):
        return Check(
            "store",
            "problem",
            f"{shown} was written by a newer release (schema {number}, this one knows {len(MIGRATIONS)})",
            "pip install --upgrade everthink",
        )
    return Check("store", "ok", f"{shown} can be opened")


def _new_store(path: Path) -> Check:
    """A database that is not there yet: can it be made?"""
    place = path.absolute().parent
    while not place.exists():
        place = place.parent
    if not place.is_dir() or not os.access(place, os.W_OK):
        return Check(
            "store", "problem", f"{path} cannot be made: {place} may not be written", "Choose --store."
        )
    return Check("store", "ok", f"{path} is made on first use")


def _holder(path: Path) -> str | None:
    """Who owns the database, by the text of its lock file. The lock itself is not touched."""
    lock = Path(os.path.realpath(path) + ".lock")
    try:
        facts = dict(line.split(" ", 1) for line in lock.read_text().splitlines() if " " in line)
        if facts.get("host") == socket.gethostname():
            os.kill(int(facts["pid"]), 0)
        return f"process {facts['pid']} on {facts['host']} since {facts['since']}"
    except PermissionError:
        return "a process of another user"
    except (OSError, ValueError, KeyError):
        return None  # No lock, or one that a dead process left.


def _agents() -> Iterator[Check]:
    from ..app.discovery import find_agents
    from ..errors import DiscoveryFailed
    from ..serving.missing_models import what_is_missing

    if not Path("agents").is_dir():
        yield Check("agents", "note", "no ./agents here", "everthink new my-agents starts a project")
        return
    try:
        found = find_agents("agents")
    except DiscoveryFailed as error:
        yield Check("agents", "problem", "; ".join(f"{p.path.name}: {p.what}" for p in error.problems))
        return
    yield Check("agents", "ok", ", ".join(_named(agent.cls) for agent in found))
    for missing in what_is_missing(agent.cls for agent in found):
        yield Check("agents", "note", missing, "In dev the demo model answers where only a key is missing.")


def _named(cls: type[Any]) -> str:
    """A class with those of its children: `Assistant (children: Researcher, Critic)`."""
    from ..children.declared import children_of

    children = ", ".join(child.__name__ for child in children_of(cls))
    return f"{cls.__name__} (children: {children})" if children else cls.__name__


def _packages(target: str | None) -> Iterator[Check]:
    """The extensions that are installed, and those that agents name. Of the others nothing is run."""
    from ..errors import AgentError
    from ..extensions.packages import check, packages

    there = packages()
    if there:
        listed = (f"{one.name} {one.version} ({one.distribution})" for one in there)
        yield Check("extensions", "ok", f"installed: {', '.join(listed)}")
    told: set[str] = set()
    for named in _named_extensions(target):
        try:
            check(named)
        except AgentError as error:
            if error.what not in told:
                told.add(error.what)
                yield Check("extensions", "problem", error.what, error.next_step)


def _messengers(target: str | None, *, offline: bool) -> Iterator[Check]:
    """What keeps messengers from starting; with a target also whether platforms know their tokens."""
    import asyncio

    from ..serving.missing_messengers import what_is_missing

    asks = target is not None and not offline
    for found in asyncio.run(what_is_missing(_classes(target), asks=asks)):
        yield Check(found.name, found.state, found.text, found.mend)


def _gone_messengers(target: str | None, store: str) -> Iterator[Check]:
    """Messengers that messages wait for, and that no class has by that id any more."""
    import asyncio

    from ..deliveries.queries import BY_MESSENGER
    from ..deliveries.sending import gone
    from ..errors import AgentError
    from ..serving.missing_messengers import ids_of
    from .journal import open_journal

    classes = {cls.__name__: cls for cls in _classes(target)}
    try:
        journal = open_journal(_store_of(target) or store)
    except AgentError:
        return  # said by _store; or there is none yet
    try:
        rows = journal.rows(BY_MESSENGER)
    except AgentError:
        return  # written by a release that knew no messengers
    finally:
        journal.close()
    for row in rows:
        cls = classes.get(str(row["root"]).partition("/")[0])
        known = None if cls is None else asyncio.run(ids_of(cls))
        if known is not None and row["messenger"] not in known and (row["waiting"] or row["asked"]):
            waiting, asked = int(row["waiting"]), int(row["asked"])
            what, _, mend = gone(row["messenger"], waiting=waiting, asked=asked, known=known).partition(". ")
            yield Check(f"messenger {row['messenger']}", "note", f"{row['root']}: {what}", mend)


def _store_of(target: str | None) -> str | None:
    """The database of an app, by its address."""
    from ..errors import AgentError
    from ..serving.target import load

    try:
        loaded = None if target is None else load(target)
    except AgentError:
        return None
    return next((app.store_url for _, app in loaded.mounts if app.store_url), None) if loaded else None


def _classes(target: str | None) -> list[type[Any]]:
    """The classes of agents in ./agents, or in an app."""
    from ..app.discovery import find_agents
    from ..errors import AgentError
    from ..serving.target import load

    try:
        if target is not None:
            return [cls for _, app in load(target).mounts for cls in app.classes]
        return [one.cls for one in find_agents("agents")] if Path("agents").is_dir() else []
    except AgentError:
        return []  # said by _agents, or by _servers


def _named_extensions(target: str | None) -> list[InstalledExtension]:
    """Those that they name, with their options."""
    from ..extensions.values import as_installed, listed

    named = (as_installed(one) for cls in _classes(target) for one in listed(getattr(cls, "extensions", ())))
    return [one for one in named if one is not None]


def _port(port: int) -> Check:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return Check(f"port {port}", "note", "taken", "dev takes the next free one; serve needs --port")
    return Check(f"port {port}", "ok", "free")


# --- MCP servers


def _sealing(store: str) -> Iterator[Check]:
    """Whether what lets agents in at MCP servers can be read by whoever reads the database."""
    from ..errors import AgentError
    from ..oauth.sealing import SECRET_KEY, Sealer

    try:
        has_key = Sealer.from_environment().has_key
    except AgentError as error:
        yield Check("MCP tokens", "problem", error.what, error.next_step)
        return
    kept = _kept(store)
    open_ones = sum(not Sealer.is_sealed(text) for text in kept)
    if has_key:
        left = f"; {open_ones} stored before are sealed when they are next used" if open_ones else ""
        yield Check("MCP tokens", "ok", f"sealed with {SECRET_KEY}{left}")
    elif open_ones:
        yield Check(
            "MCP tokens",
            "note",
            f"those of {open_ones} servers are stored openly: {SECRET_KEY} is not set",
            f"export {SECRET_KEY}=… a text of 16 characters or more, the same at each start",
        )
    elif kept:
        yield Check(
            "MCP tokens",
            "problem",
            f"sealed, and {SECRET_KEY} is not set",
            "Set the key they were sealed with.",
        )


def _kept(store: str) -> list[str]:
    from ..errors import AgentError
    from ..mcp.queries import SECRETS
    from .journal import open_journal, sqlite_path

    try:
        if not store.startswith("postgres") and not sqlite_path(store).exists():
            return []
        journal = open_journal(store)
        try:
            return [row["secrets"] for row in journal.rows(SECRETS)]
        finally:
            journal.close()
    except AgentError:
        return []  # said by _store; or written by a release that had none


def _servers(target: str, *, offline: bool) -> Iterator[Check]:
    """Whether the MCP servers of an app answer."""
    import asyncio

    from ..errors import AgentError
    from ..serving.target import load

    try:
        apps = [app for _, app in load(target).mounts]
    except AgentError as error:
        yield Check("app", "problem", error.what, error.next_step)
        return
    for app in apps:
        if app.mcp_servers and not offline:
            yield from asyncio.run(_asked(app))


async def _asked(app: Any) -> list[Check]:
    """Connect to each of an app's servers, beside whoever serves the app: with a database of our own."""
    import asyncio
    import tempfile

    from ..app.app import App

    with tempfile.TemporaryDirectory() as folder:
        servers = app.mcp_servers
        async with App(*app.classes, store=f"sqlite:///{folder}/doctor.db", mcp_servers=servers) as ours:
            shared = (await ours.open()).shared_servers
            await shared.open()
            waits = [link.settled.wait() for server in shared.servers if (link := server.link) is not None]
            await asyncio.wait([asyncio.ensure_future(wait) for wait in waits], timeout=ANSWERING)
            return [_standing(server) for server in shared.servers]


def _standing(server: Any) -> Check:
    name = f"MCP {server.name}"
    if server.state == "ready":
        count = len(server.tools())
        return Check(name, "ok", f"answers with {count} tool{'' if count == 1 else 's'}")
    why = server.error or f"it has not answered within {ANSWERING:g} seconds"
    said = f" It said: {' / '.join(server.said)}" if server.said else ""
    return Check(name, "problem", f"does not answer: {why}{said}", "Its tools are offered once it does.")
