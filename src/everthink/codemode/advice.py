"""What a model is told of JavaScript that does not run: the way round, beside what the engine says.

    an error, the code --advised--> the same with a way round

Pure. Python has its own, in the room of its engine: the checker of types says more there.
"""

from __future__ import annotations

import re

__all__ = ["advised"]

_WAYS: tuple[tuple[str, str], ...] = (
    ("fetch is not defined", "There is no network here: call a tool."),
    ("XMLHttpRequest is not defined", "There is no network here: call a tool."),
    (
        "require is not defined",
        "There are no packages here: call a tool. Files: await state.readFile({path}).",
    ),
    ("process is not defined", "There is no process here. Code ends with its last line."),
    ("open is not defined", "Files: await state.readFile({path}), await state.writeFile({path, content})."),
    (
        "There are no files here",
        "Those of the workspace: await state.readFile({path}), await state.writeFile({path, content}).",
    ),
    ("There is no state.", "The names of state are in camelCase: state.readFile."),
    ("BigInt are forbidden", "Return a string: String(value)."),
)
_KEYWORDS = re.compile(r"\b(?:tools|state|codemode)\.\w+\(\s*\w+\s*=[^=>]")
_TYPES = re.compile(
    r"\b(?:const|let|var)\s+\w+\s*:|^\s*(?:interface|type|enum)\s+\w+|\)\s*:\s*\w+\s*(?:=>|\{)", re.MULTILINE
)
_PYTHON = re.compile(
    r"^\s*(?:def \w+\(.*\):|for .+ in .+:|if .+:|import \w+$|from \w+ import |print\()", re.MULTILINE
)


def advised(error: str, code: str) -> str:
    """An error with the way round it."""
    told = [error, *(way for sign, way in _WAYS if sign in error)]
    if _KEYWORDS.search(code):
        told.append("Parameters are one object: await tools.name({key: value}).")
    if "SyntaxError" in error and _TYPES.search(code):
        told.append("This runs JavaScript, not TypeScript: leave the types out.")
    if _PYTHON.search(code):
        told.append("This runs JavaScript, not Python.")
    return "\n".join(dict.fromkeys(told))
