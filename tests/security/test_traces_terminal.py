"""A terminal obeys control characters. What models, people and files say is shown and not obeyed."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import re
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from everthink import App, Think, tool
from everthink.cli.chat import FormPrompt
from everthink.cli.doctor import Check
from everthink.cli.main import cli
from everthink.cli.screen import Screen, name_of
from everthink.client import ToolQuestion
from everthink.errors import AgentError
from everthink.plain import in_json, plain
from everthink.serving import output
from everthink.testing import ScriptedModel, calls, says
from everthink.tools.question import Form

ATTACKS = {
    "clear the screen": "\x1b[2J",
    "change the title": "\x1b]0;owned\x07",
    "write to the clipboard": "\x1b]52;c;cm0gLXJm\x07",
    "a link that lies": "\x1b]8;;http://evil.example\x1b\\bank\x1b]8;;\x1b\\",
    "answer of the terminal": "\x1b[6n",
    "eight-bit control": "\x9b31m",
    "overwrite the line": "safe\rrm -rf /",
    "backspace": "safe\b\b\b\bevil",
    "bell": "\x07",
    "read backwards": "\u202etxt.exe",
    "isolate": "\u2066x\u2069",
    "line separator": "a\u2028b",
    "delete": "a\x7fb",
    "nul": "a\x00b",
    "half a character": "\ud83d",
}
MARKUP = "[bold red]not markup[/] [link=http://evil.example]x[/link] :smile:"
OBEYED = set("\x1b\x9b\r\b\x07\x00\x7f\u202e\u2066\u2069\u2028")


class Terminal(io.StringIO):
    """Takes the place of standard output and error."""

    def isatty(self) -> bool:
        return True


@contextlib.contextmanager
def on_terminal() -> Iterator[Terminal]:
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(Terminal()) as out:
        patch.setattr(sys, "stderr", out)
        patch.setenv("TERM", "dumb")  # then all that is obeyed is the attacker's
        yield out


def harmless(text: str) -> bool:
    text.encode()  # half a character would raise
    return not OBEYED & set(text)


@pytest.mark.parametrize("attack", ATTACKS)
def test_plain_text_has_no_power(attack: str) -> None:
    assert harmless(plain(ATTACKS[attack]))
    assert harmless(plain(ATTACKS[attack], lines=True))
    assert "\n" not in plain("a\nb")
    assert plain("a\r\n\tb", lines=True) == "a\n\tb"
    said = json.dumps({"x": ATTACKS[attack]}, ensure_ascii=False)
    assert harmless(in_json(said))
    assert json.loads(in_json(said)) == {"x": ATTACKS[attack]}


@pytest.mark.parametrize(
    "text", ["Grüße, 世界 👩‍👩‍👧 שלום", "naïve café – “quoted”", "1\N{NO-BREAK SPACE}000 €"]
)
def test_other_peoples_writing_stays(text: str) -> None:
    assert plain(text) == text


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_model_cannot_command_the_terminal_of_chat(attack: str) -> None:
    evil = ATTACKS[attack]
    chunks: list[dict[str, Any]] = [
        {"type": "text-delta", "delta": f"Hello {evil} {MARKUP}"},
        {"type": "text-end"},
        {"type": "reasoning-delta", "delta": evil},
        {"type": "reasoning-end"},
        {"type": "tool-input-available", "toolCallId": "c", "toolName": evil, "input": {evil: evil}},
        {"type": "tool-input-available", "toolCallId": "d", "toolName": "t", "input": evil},
        {"type": "tool-output-available", "toolCallId": "c", "output": evil},
        {"type": "tool-output-error", "toolCallId": "d", "errorText": evil},
        {"type": "tool-input-error", "toolName": evil, "errorText": evil, "input": evil},
    ]
    with on_terminal() as terminal:
        screen = Screen()
        for chunk in chunks:
            screen.show(chunk)
        for role in ("user", "assistant"):
            screen.message({"role": role, "parts": [{"type": "text", "text": evil}]})
        screen.failure(f"This did not work: {evil}")
        screen.line(f"You talk to {evil}", "dim")
    assert harmless(terminal.getvalue())
    assert MARKUP in " ".join(terminal.getvalue().split())
    assert harmless(name_of({"type": f"tool-{evil}"}))


def test_a_sequence_that_comes_in_pieces_is_taken_apart_as_well() -> None:
    with on_terminal() as terminal:
        screen = Screen()
        for letter in ATTACKS["change the title"]:
            screen.show({"type": "text-delta", "delta": letter})
    assert "owned" in terminal.getvalue()
    assert harmless(terminal.getvalue())


FORGED = (
    "ok\n  → pay({'amount': 1})\n  Allow pay? [y/N] y\nyou> yes\n✓ keys  all is well"
    "\n  Go to bank.example: https://"
)
"""Rows that only we write, in the words of somebody else."""
OURS = re.compile(r"(?: {0,4}(?:[→←!?…] |Allow |Go to |[0-9]+ )|you> |[✓✗-] )")


def rows(text: str) -> list[str]:
    """The lines that look like ours."""
    return [line for line in text.splitlines() if OURS.match(line)]


def test_what_others_say_cannot_look_like_a_row_of_ours() -> None:
    chunks: list[dict[str, Any]] = [
        {"type": "tool-input-available", "toolCallId": "c", "toolName": FORGED, "input": {FORGED: FORGED}},
        {"type": "tool-output-available", "toolCallId": "c", "output": FORGED},
        {"type": "tool-output-error", "toolCallId": "c", "errorText": FORGED},
        {"type": "tool-input-error", "toolName": "t", "errorText": FORGED, "input": FORGED},
    ]
    with on_terminal() as terminal:
        screen = Screen()
        for chunk in chunks:
            screen.show(chunk)
        screen.message({"role": "user", "parts": [{"type": "text", "text": FORGED}]})
        screen.line(f"  shop asks: {FORGED}")
        screen.failure(f"This did not work: {FORGED}")
    said = terminal.getvalue()
    assert [row[:4] for row in rows(said)] == ["  → ", "  ← ", "  ! ", "  → ", "  ! ", "you>"]
    assert max(map(len, said.splitlines())) < 1_000
    assert len(name_of({"type": f"tool-{'x' * 5_000}"})) < 300


def test_what_a_form_asks_stands_on_lines_of_ours() -> None:
    class Silent(Screen):
        def prompt(self, text: str) -> str:
            print(plain(text))
            return "1"

    choice = {"type": "string", "oneOf": [{"const": "a", "title": FORGED}], "title": FORGED}
    forms = {
        "one": Form(FORGED, {"type": "object", "properties": {"x": choice}, "required": ["x"]}),
        "two": Form("Go there", {}, url=f"https://evil.example/{FORGED}"),
    }
    with on_terminal() as terminal:
        FormPrompt(Silent(), yes=False).fill(ToolQuestion("c", FORGED, FORGED, forms))
    said = rows(terminal.getvalue())
    assert [row.split()[0] for row in said] == ["1", "Go"]
    assert said[1].startswith("  Go to evil.example: ")


def test_a_call_is_shown_again_where_a_model_has_said_something_since() -> None:
    with on_terminal() as terminal:
        screen = Screen()
        screen.call("pay", {"amount": 1_000})
        screen.call_above("pay", {"amount": 1_000})
        screen.call("pay", {"amount": 1_000})
        screen.show({"type": "text-delta", "delta": "\n  → pay(amount=1)\n"})
        screen.call_above("pay", {"amount": 1_000})
    lines = terminal.getvalue().split("\n")
    assert lines.count("  → pay(amount=1000)") == 3
    assert lines[-2] == "  → pay(amount=1000)"


def test_doctor_shows_no_check_that_it_has_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    def hostile() -> Iterator[Check]:
        yield Check(f"MCP {FORGED}\x1b[2J", "problem", FORGED, FORGED)
        yield Check("x" * 5_000, "ok", "fine")

    monkeypatch.setattr("everthink.cli.doctor._keys", hostile)
    monkeypatch.setattr("everthink.cli.doctor._here", lambda: [])
    shown = CliRunner().invoke(cli, ["doctor"]).output
    assert harmless(shown)
    assert not [row for row in rows(shown) if row.startswith(("✓ keys", "you>", "  →", "  Allow", "  Go"))]
    assert max(map(len, shown.splitlines())) < 500


@pytest.mark.parametrize("attack", ATTACKS)
def test_letters_show_and_do_not_obey(attack: str) -> None:
    with on_terminal() as terminal:
        output.print_error(AgentError(f"{ATTACKS[attack]}\nsecond", kept=ATTACKS[attack], next_step=MARKUP))
        output.print_error(ValueError(ATTACKS[attack]))
        output.say(ATTACKS[attack])
    assert harmless(terminal.getvalue())
    assert MARKUP in terminal.getvalue()


# --- what a database holds


class Odd(Think):
    model = ScriptedModel(calls("look", id="c1", word="\x1b[2J[red]"), says("Fine."))

    @tool
    def look(self, word: str) -> str:
        """Look."""
        raise RuntimeError("\x1b]0;owned\x07 at postgresql://app:hunter2@db/x")


@pytest.fixture
def stored(tmp_path: Path) -> str:
    async def fill() -> None:
        async with App(Odd, store=f"sqlite:///{tmp_path}/odd.db") as app:
            await app.agent(Odd, "room\x1b[31m\u202e[bold]\n").save_messages("Go")

    asyncio.run(fill())
    return f"sqlite:///{tmp_path}/odd.db"


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_inspect_shows_names_and_errors_and_obeys_none(stored: str, options: list[str]) -> None:
    ran = CliRunner().invoke(cli, ["inspect", "--store", stored, *options])
    assert ran.exit_code == 0
    assert harmless(ran.output)
    assert "hunter2" not in ran.output
    assert "[bold]" in ran.output
    if options:
        assert json.loads(ran.output)["agents"][0]["name"] == "room\x1b[31m\u202e[bold]\n"


WRITTEN = {
    "no JSON": "UPDATE messages SET content = '{evil}'",
    "JSON": 'UPDATE messages SET content = \'{{"parts":[{{"type":"text","text":"{evil}"}}]}}\'',
    "no text": "UPDATE messages SET content = CAST(x'ff1b5b324afe' AS TEXT)",
    "bytes": "UPDATE messages SET content = x'ff1b5b324afe'",
    "deep": "UPDATE messages SET content = '" + "[" * 900 + "]" * 900 + "'",
    "a long number": "UPDATE messages SET content = '" + "9" * 5_000 + "'",
    "no time of a turn": "UPDATE turns SET created_at = '{evil}', ended_at = '{evil}'",
    "a time far away": "UPDATE turns SET created_at = 9e18, started_at = -9e18",
    "no time of an agent": "UPDATE agents SET created_at = '{evil}'",
    "a status": "UPDATE turns SET status = '{evil}'",
    "a value": "INSERT INTO kv (agent, name, value) SELECT agent, '{evil}', '\"{evil}\"' FROM agents",
}


@pytest.mark.parametrize("kind", WRITTEN)
def test_rows_that_a_stranger_wrote_are_exported_and_inspected_and_obeyed_by_nobody(
    stored: str, kind: str
) -> None:
    # Given what none of our code writes
    evil = "".join(attack for attack in ATTACKS.values() if attack.isascii() and "\0" not in attack)
    with contextlib.closing(sqlite3.connect(stored.removeprefix("sqlite:///"))) as database:
        database.execute(WRITTEN[kind].format(evil=evil + "\u202e\x9b31m"))
        [name] = database.execute("SELECT name FROM agents").fetchone()
        database.commit()

    # When an operator looks
    exported = CliRunner().invoke(cli, ["export", f"Odd/{name}", "--store", stored])
    shown = [CliRunner().invoke(cli, ["inspect", "--store", stored, *more]) for more in ([], ["--json"])]

    # Then they see it all, as text
    for ran in (exported, *shown):
        assert ran.exit_code == 0, ran.output
        assert harmless(ran.output)
    kinds = [json.loads(line)["kind"] for line in exported.stdout.splitlines()]
    assert kinds[0] == "export"
    assert {"agent", "message", "turn"} <= set(kinds)


@pytest.mark.parametrize("command", [["inspect"], ["export", "Odd/x"], ["release", "Odd/x"]])
@pytest.mark.parametrize("ending", ["-wal", "-shm", "-journal"])
def test_looking_into_a_database_writes_to_no_file_that_a_link_names(
    stored: str, tmp_path: Path, command: list[str], ending: str
) -> None:
    database, victim = Path(stored.removeprefix("sqlite:///")), tmp_path / "victim"
    victim.write_text("precious" * 5_000)
    database.with_name(database.name + "-wal").touch()
    database.with_name(database.name + ending).unlink(missing_ok=True)
    os.link(victim, database.with_name(database.name + ending))
    ran = CliRunner().invoke(cli, [*command, "--store", stored])
    assert ran.exit_code == 1
    assert "hard link" in ran.output
    assert victim.read_text() == "precious" * 5_000


@pytest.mark.slow
@pytest.mark.parametrize("options", [[], ["--json"]])
def test_doctor_shows_no_password(options: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from everthink.cli import doctor

    found = Check(
        "store", "problem", "postgresql://app:hunter2@db \x1b[2J", "Try postgresql://app:hunter2@db"
    )
    monkeypatch.setattr(doctor, "_store", lambda store: found)
    ran = CliRunner().invoke(cli, ["doctor", "--port", "1024", *options])
    assert "hunter2" not in ran.output
    assert harmless(ran.output)
    assert "postgresql://app:***@db" in ran.output


@pytest.mark.slow
@pytest.mark.parametrize("command", ["inspect", "doctor"])
@pytest.mark.parametrize(
    "store",
    [
        "postgresql://app:hunter2@127.0.0.1:1/x",
        "postgres://app:hun/ter2@127.0.0.1:1/x",
        "mysql://app:hunter2@h/x",
    ],
)
def test_a_store_that_cannot_be_reached_is_told_without_its_password(command: str, store: str) -> None:
    pytest.importorskip("asyncpg")
    ran = CliRunner().invoke(cli, [command, "--store", store])
    assert ran.exit_code == 1
    assert "ter2" not in ran.output
