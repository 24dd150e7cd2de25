"""`everthink export`: everything that is kept of one agent, as JSON lines."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Generator
from typing import BinaryIO

import click

from ..errors import AgentError
from .env_file import database_option

__all__ = ["command"]


@click.command(
    "export",
    short_help="Write everything that is kept of an agent, as JSON lines.",
    help="""Write everything that is kept of AGENT (class/name) and of all below it, as JSON lines.

    The first line is a header, every other one a thing with a "kind": message, turn, call, state, block,
    file, schedule and so on. The agent's children follow, each after a line of the kind "child"; what
    is theirs has a field "agent". It is what the person said and was told: nothing is masked, so keep it
    as safe as the database. Reads only, and works while a server runs on the same database.

    \b
    Examples:
      everthink export assistant/room-1 --output room-1.jsonl
      everthink export assistant/room-1 | jq 'select(.kind == "message") | .content.parts'
      everthink export assistant/room-1/sub/researcher/notes""",
)
@click.argument("agent")
@database_option
@click.option(
    "--output",
    default="-",
    show_default=True,
    help="A file, which only you may read and which must not exist yet; - is standard output.",
)
def command(agent: str, store: str, output: str) -> None:
    """Export an agent."""
    from ..messages import encode_json
    from ..plain import in_json
    from ..serving.output import say_error
    from . import journal as read

    journal = read.open_journal(store)
    count = 0
    try:
        found = read.named(journal, agent)
        if found is None:
            raise read.unknown(journal, agent)
        with _opened(output) as file:
            for line in read.lines(journal, read.address(found), now=int(time.time() * 1000)):
                # The same values, and no control characters for a terminal to obey.
                file.write(in_json(encode_json(line).decode()).encode() + b"\n")
                count += 1
    finally:
        journal.close()
    if output != "-":
        say_error(f"{count} lines are in {output}.")


@contextlib.contextmanager
def _opened(output: str) -> Generator[BinaryIO]:
    """A new file for its owner alone, which is removed again when it cannot be finished."""
    if output == "-":
        yield sys.stdout.buffer
        sys.stdout.flush()
        return
    try:
        descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        raise AgentError(
            f"{output} exists.", kept="It was not touched.", next_step="Name another file, or remove it."
        ) from None
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
    except BaseException:
        os.unlink(output)
        raise
