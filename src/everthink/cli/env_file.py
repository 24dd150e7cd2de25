"""Settings from a file `.env` in the folder where a command is run.

    .env --read_env_file--> os.environ --> keys of providers, EVERTHINK_STORE, HOST, …

What is set already stays as it is. A value may stand in quotes and then go over several lines; nothing in it
is replaced or run. A line that is no `NAME=value` is told by its number, never by what it holds, and takes no
other line with it. So is a name that looks like one of ours and is none, wherever it was set. The option
`--store`, which EVERTHINK_STORE stands for, is here too.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

__all__ = ["database_option", "place_of", "read_env_file", "served_option", "settings_in", "tell_unknown"]

KNOWN = (
    "EVERTHINK_STORE",
    "EVERTHINK_SERVER",
    "EVERTHINK_TOKEN",
    "EVERTHINK_SECRET_KEY",
    "EVERTHINK_TRACEBACK",
    "EVERTHINK_EFFECTS",
    "EVERTHINK_CRASH_AT",
    "EVERTHINK_COUNT_COMMITS",
    "EVERTHINK_CRASHTEST",
)
"""The settings of ours. What begins like them and is none of them is a slip, unless it is for tests."""
_BARE = ("HOST", "PORT")
"""Settings that have no name of ours in front, as the places where servers run know them."""
_OURS = re.compile(r"EVERTH[A-Z]*_(?!TEST_)", re.IGNORECASE)
_places: dict[str, str] = {}

_SETTING = re.compile(r"\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=\s*(.*)", re.DOTALL)
_COMMENT = re.compile(r"(?:^|\s)#.*")
_ESCAPES = {"\\n": "\n", "\\r": "\r", "\\t": "\t", '\\"': '"', "\\\\": "\\"}
_ESCAPE = re.compile(r'\\[nrt"\\]')


def read_env_file(path: str = ".env") -> None:
    """Take over what the file says and the environment does not. Without a file nothing happens."""
    from ..errors import AgentError
    from ..serving.output import say_error

    if Path(path).is_dir():
        say_error(f"{path} is a folder, not a file; no settings are read from it.", "yellow")
    if not Path(path).is_file():
        return
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise AgentError(f"{path} cannot be read: {why}.", next_step="Mend it, or take it away.") from error
    for number, setting in settings_in(text):
        if isinstance(setting, str):
            say_error(f"Line {number} of {path} {setting}; it is left out.", "yellow")
        elif setting[0] not in os.environ:
            os.environ[setting[0]] = setting[1]
            _places[setting[0]] = f"line {number} of {path}"


def place_of(name: str) -> str:
    """Where a setting was made, in words."""
    return _places.get(name, "the environment")


def tell_unknown() -> None:
    """Say which settings look like ours and are read by nobody."""
    from ..serving.output import say_error
    from ..settings import nearest

    for name in sorted(os.environ):
        if not _OURS.match(name) or name in KNOWN:
            continue
        bare = name.upper().partition("_")[2]
        near = bare if bare in _BARE else nearest(name.upper(), KNOWN, like=0.8)
        hint = f"Did you mean {near}?" if near else f"There are {', '.join(KNOWN[:4])}."
        say_error(f"{name} ({place_of(name)}) is no setting of everthink; nobody reads it. {hint}", "yellow")


def settings_in(text: str) -> Iterator[tuple[int, tuple[str, str] | str]]:
    """The settings in a text with the numbers of their lines; words for what is none."""
    lines = text.splitlines()
    place = 0
    while place < len(lines):
        line, number, place = lines[place], place + 1, place + 1
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        found = _SETTING.fullmatch(line)
        if found is None or "\x00" in line:
            yield number, "is no NAME=value"
            continue
        name, value = found.groups()
        if value[:1] not in ("'", '"'):
            yield number, (name, _COMMENT.sub("", value).strip())
        elif (quoted := _quoted(value, lines[place:])) is None:
            yield number, "has a quote that does not end its value"  # the lines below are read for themselves
        else:
            value, more = quoted
            place += more
            yield number, (name, value)


def _quoted(value: str, below: Sequence[str]) -> tuple[str, int] | None:
    """What stands in quotes, and how many of the lines below belong to it. `None` when it does not end."""
    quote, value, more = value[0], value[1:], 0
    while (end := _end_of(value, quote)) is None:
        if more == len(below):
            return None
        value, more = f"{value}\n{below[more]}", more + 1
    if _COMMENT.sub("", value[end + 1 :]).strip():
        return None
    said = value[:end]
    return (said if quote == "'" else _ESCAPE.sub(lambda one: _ESCAPES[one[0]], said)), more


def _end_of(value: str, quote: str) -> int | None:
    """Where the closing quote is."""
    place = 0
    while place < len(value):
        if value[place] == quote:
            return place
        place += 2 if value[place] == "\\" and quote == '"' else 1
    return None


# --- the option that stands for one of them

database_option = click.option(
    "--store",
    default="sqlite:///.everthink/everthink.db",
    show_default=True,
    envvar="EVERTHINK_STORE",
    help="The database: sqlite:///path, a path, or postgresql://…",
)

served_option = click.option(
    "--store",
    envvar="EVERTHINK_STORE",
    show_envvar=True,
    help="The database, when TARGET is a folder: sqlite:///path or postgresql://… One with a password "
    "is better given in the environment: others can list the arguments of a process.",
)
