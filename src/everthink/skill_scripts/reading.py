"""What kind of program a script in Python is: one that is called, or one that runs by itself.

    source --read--> Program: a function `run` with so many arguments, or a program with a command line

Pure, and by the syntax: a `def run(` in a comment or in a text is none.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from ..errors import ToolError
from ..words import said as on_one_line

__all__ = ["Program", "read"]

_CONTEXT = frozenset({"ctx", "context", "_ctx", "_context"})


@dataclass(frozen=True, slots=True)
class Program:
    """A script in Python."""

    has_run: bool
    """True: its function `run` is called. False: it is run as a program."""
    is_async: bool = False
    takes: int = 0
    """How many arguments `run` takes by place, two at most."""


def read(path: str, source: str) -> Program:
    """Look at a script. Raises for one that is no Python, whichever engine would run it."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", None)
        where = f", line {line}" if line else ""
        words = getattr(error, "msg", None) or str(error) or "it is nested too deep"
        raise ToolError(
            f"{path}{where} cannot be read as Python: {on_one_line(words, 200)}.", kept="Nothing was run."
        ) from None
    found = next((node for node in reversed(tree.body) if _is_run(node)), None)
    if not isinstance(found, ast.FunctionDef | ast.AsyncFunctionDef):
        return Program(has_run=False)
    names = [one.arg for one in (*found.args.posonlyargs, *found.args.args)]
    if any(map(_is_main, tree.body)) and not _CONTEXT & set(names):
        return Program(has_run=False)  # a program that has a function of its own by this name
    takes = 2 if found.args.vararg is not None else min(2, len(names))
    return Program(has_run=True, is_async=isinstance(found, ast.AsyncFunctionDef), takes=takes)


def _is_run(node: ast.stmt) -> bool:
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == "run"


def _is_main(node: ast.stmt) -> bool:
    """`if __name__ == "__main__":`."""
    return (
        isinstance(node, ast.If)
        and isinstance(node.test, ast.Compare)
        and any(isinstance(one, ast.Name) and one.id == "__name__" for one in ast.walk(node.test))
    )
