"""Whatever a model calls: the tools for files, code and bash, with inputs that are nearly right.

A model that reads what strangers write may be talked into anything. No call ends in anything but a result or
an error in words, no turn is stuck, nothing outside of the workspace is read or written, nobody waits.
`make test` calls a sample; `make fuzz` calls 4,000 (FUZZ_REQUESTS, FUZZ_SEED).
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from everthink import Think
from everthink.codemode import create_execute_tool
from everthink.sandbox.bash import BashSandbox
from everthink.sandbox.port import Limits
from everthink.testing import ScriptedModel, calls, calls_raw, says
from everthink.workspace import DiskFiles, MountedFiles, ReadOnly, Workspace, WorkspaceLimits
from everthink.workspace.memory import MemoryFiles
from tests.conftest import OpenApp

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

CALLS = int(os.environ.get("FUZZ_REQUESTS", "300"))
SEED = int(os.environ.get("FUZZ_SEED", "1"))
PATIENCE = 60.0
SECRET = "nobody may read this"
SMALL = WorkspaceLimits(file_bytes=50_000, files_bytes=400_000, entries=300, history=40)

PATHS = [
    *(
        "/a.txt",
        "/b/c.md",
        "/d",
        "/",
        "",
        ".",
        "..",
        "/../../etc/passwd",
        "/../secret",
        "/link",
        "/link/secret",
    ),
    *("/ro/a", "/ro", "/disk/a", "/disk/link/secret", "/disk/../../secret", "/attachments/evicted/x"),
    *(
        "a\\b",
        "\0",
        "/a\nb",
        "/" + "x" * 300,
        "/" + "y/" * 120,
        "/ü",
        "/u\u0308",
        "/\u202e",
        "file:///etc/passwd",
    ),
    *("~/x", "/proc/self/environ", "C:\\x", "//a//b//", "/" + "z" * 5_000),
]
TEXTS = [
    *(
        "",
        "a",
        "a\n" * 2_000,
        "x" * 50_001,
        "話" * 9_000,
        "\0",
        "\u2028",
        "{}",
        "[" * 500,
        "\ufffd",
        "a" * 49_999,
    ),
    *("---\nname: x\n---\n", "<svg onload=alert(1)>", " \t \n" * 3_000),
]
PATTERNS = [
    *("*", "**", "**/*", "/**/*.md", "{" * 900, "{a,b}" * 60, "[", "[!a-", "*a" * 200, "?" * 900, "(a|aa)+$"),
    *("", "\\", "a{1,500}{1,500}", "(?:" * 300, "(?P<x>.)(?P=x)", "." * 999, "\0", "^", "$", "(?i)A"),
]
NUMBERS = [0, 1, -1, 2, 10, 1_000, 10**9, 10**30, 1.5, True, None, "1"]
ODD: list[Any] = [None, [], {}, 1, "x", [[[]]]]
CODE = [
    "await state.read_file(path={path})",
    "await state.write_file(path={path}, content={text})",
    "await state.append_file(path={path}, content={text})",
    "await state.replace_in_file(path={path}, search={text}, replacement={text})",
    "await state.write_json(path={path}, value=[{text}] * 3, spaces={number})",
    "await state.search_files(query={pattern}, pattern={pattern}, context={number}, max_matches={number})",
    "await state.glob(pattern={pattern})",
    "await state.mv(source={path}, destination={path})",
    "await state.cp(source={path}, destination={path}, recursive=True)",
    "await state.rm(path={path}, recursive=True, force=True)",
    "await state.symlink(target={path}, link_path={path})",
    "await state.diff(path_a={path}, path_b={path})",
    "open({path}).read()",
    "with open({path}, 'a') as file:\n    file.write({text})\n",
    "for n in range({number}):\n    await state.exists(path={path})\n",
    "await tools.read(path={path}, offset={number}, limit={number})",
    "await tools.execute(code={text})",
    "await codemode.search({text})",
    "{text}",
]
SCRIPTS = [
    "cat {path}",
    "echo {text} > {path}",
    "rm -rf {path}",
    "ln -s {path} {path}",
    "grep -r {pattern} /",
    "{text}",
]


def filled(dice: random.Random, template: str) -> str:
    for name, choices in (("path", PATHS), ("text", TEXTS), ("pattern", PATTERNS), ("number", NUMBERS)):
        while f"{{{name}}}" in template:
            template = template.replace(f"{{{name}}}", repr(dice.choice(choices)), 1)
    return template


def call(dice: random.Random) -> tuple[str, dict[str, Any]]:
    """A tool, and what it is given."""
    path, text = dice.choice(PATHS), dice.choice(TEXTS)
    number, pattern = dice.choice(NUMBERS), dice.choice(PATTERNS)
    offered: list[tuple[str, dict[str, Any]]] = [
        ("read", {"path": path, "offset": number, "limit": dice.choice(NUMBERS)}),
        ("read", {"path": path}),
        ("write", {"path": path, "content": text}),
        ("edit", {"path": path, "old_string": dice.choice(TEXTS), "new_string": text}),
        ("list", {"path": path, "limit": number, "offset": dice.choice(NUMBERS)}),
        ("find", {"pattern": pattern}),
        ("grep", {"query": pattern, "include": dice.choice(PATTERNS), "contextLines": number}),
        ("delete", {"path": path, "recursive": dice.choice([True, False, None, "yes"])}),
        ("execute", {"code": filled(dice, dice.choice(CODE))}),
        ("bash", {"script": filled(dice, dice.choice(SCRIPTS)), "cwd": dice.choice(PATHS)}),
    ]
    name, input = dice.choice(offered)
    if dice.random() < 0.1:  # a field too many, one too few, another type
        input[dice.choice(["evil", "path", "__proto__", *input])] = dice.choice(ODD)
    return name, input


class Slips(logging.Handler):
    """Tracebacks in our logs."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and not self._is_told(record):
            self.found.append(self.format(record))

    @staticmethod
    def _is_told(record: logging.LogRecord) -> bool:
        """A refusal of the workspace is logged with where it was raised; a model reads it in words."""
        kind = record.exc_info[0] if record.exc_info else None
        return kind is not None and kind.__name__ in ("WorkspaceError", "ToolError", "Failed", "ShownError")


async def test_whatever_a_model_calls_is_answered_in_words(open_app: OpenApp, tmp_path: Path) -> None:
    if why := await BashSandbox().check():
        pytest.skip(why)
    outside = tmp_path / "outside"
    (outside / "disk").mkdir(parents=True)
    (outside / "secret").write_text(SECRET)
    (outside / "disk" / "link").symlink_to(outside)
    places = {
        "/": MemoryFiles(),
        "/ro": ReadOnly(MemoryFiles({"/a": "read me"})),
        "/disk": DiskFiles(outside / "disk"),
    }

    class Own(Think):
        model: Any = ScriptedModel()
        workspace = Workspace(limits=SMALL)

        def get_tools(self) -> Any:
            return [create_execute_tool(limits=Limits(calls=60), timeout=10)]

    class Mounted(Own):
        workspace = Workspace(MountedFiles(places), limits=SMALL)

    app = await open_app(Own, Mounted)
    dice, slips, ends = random.Random(SEED), Slips(), Counter[str]()
    logging.getLogger("everthink").addHandler(slips)
    try:
        for number in range(CALLS):
            cls = dice.choice([Own, Mounted])
            name, input = call(dice)
            try:
                cls.model = ScriptedModel(calls(name, input), says("Well."))
            except (TypeError, ValueError, UnicodeError):
                cls.model = ScriptedModel(calls_raw(name, json.dumps(input)), says("Well."))
            told = f"seed {SEED}, call {number}: {name} {json.dumps(input)[:300]}"
            async with asyncio.timeout(PATIENCE):
                result = await app.agent(cls, f"room-{number % 3}").save_messages("Go")
            assert (result.status, result.text) == ("completed", "Well."), f"{told}: {result.error}"
            assert result.message is not None
            [part] = result.message.tool_parts
            assert part["state"] in ("output-available", "output-error"), f"{told}: {part}"
            assert SECRET not in json.dumps(part), told
            assert not slips.found, f"{told}: {slips.found}"
            ends[f"{name} {part['state']}"] += 1
    finally:
        logging.getLogger("everthink").removeHandler(slips)
    assert (outside / "secret").read_text() == SECRET
    assert sorted(os.listdir(outside)) == ["disk", "secret"]
    # It is a fuzzer of all of them, and both ways out are found.
    assert len(ends) >= 12, ends
