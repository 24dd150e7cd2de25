"""How the commands and the process they serve in speak: a console for answers, another for complaints.

Answers go to standard output, so that scripts can read them; everything else to standard error.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import click
from rich.console import Console
from rich.text import Text

from ..errors import AgentError
from ..masking import mask
from ..plain import in_json, plain

__all__ = [
    "EXIT_INTERRUPTED",
    "EXIT_PROBLEM",
    "EXIT_WRITTEN_WRONGLY",
    "WrittenWrongly",
    "exit_code_of",
    "print_error",
    "print_json",
    "print_unless_traced",
    "say",
    "say_error",
]

EXIT_PROBLEM = 1
EXIT_WRITTEN_WRONGLY = 2
EXIT_INTERRUPTED = 130


class WrittenWrongly(AgentError):
    """The command names something that is not there, or that does not go together: waiting mends nothing."""


def say(text: str | Text = "", style: str = "") -> None:
    """A line for the person. Never wrapped: addresses and paths stay whole."""
    _print(text, style, sys.stdout)


def say_error(text: str | Text = "", style: str = "") -> None:
    """A line on standard error."""
    _print(text, style, sys.stderr)


def _print(text: str | Text, style: str, file: Any) -> None:
    # Made anew each time: tests exchange the streams.
    console = Console(file=file, highlight=False, soft_wrap=True, emoji=False, markup=False)
    console.print(plain(text, lines=True) if isinstance(text, str) else text, style=style or None)
    file.flush()


def print_json(value: Any) -> None:
    """A value for scripts."""
    click.echo(in_json(json.dumps(value, indent=2, ensure_ascii=False, default=str)))


def print_error(error: BaseException) -> None:
    """An error in sentences: what happened, what was kept, what to do next."""
    if isinstance(error, AgentError):
        say_error(_heading(error.what))
        for line in (error.kept, error.next_step):
            if line:
                say_error(mask(line))
        return
    if isinstance(error, OSError):
        place = f"{error.filename}: " if error.filename else ""
        say_error(_heading(f"{place}{error.strerror or error}."))
        return
    said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    say_error(_heading(f"Something broke that should not have: {said}"))
    say_error("To see where, run the same with EVERTHINK_TRACEBACK=1 in the environment.")


def print_unless_traced(error: BaseException) -> bool:
    """Print `error` in sentences. False, and nothing, when the developer wants to see the traceback."""
    if os.environ.get("EVERTHINK_TRACEBACK"):
        return False
    print_error(error)
    return True


def exit_code_of(error: BaseException) -> int:
    """With what a command ends that failed like this."""
    return EXIT_WRITTEN_WRONGLY if isinstance(error, WrittenWrongly) else EXIT_PROBLEM


def _heading(what: str) -> Text:
    first, newline, rest = plain(mask(what), lines=True).partition("\n")
    return Text.assemble((first, "bold red"), newline, rest)
