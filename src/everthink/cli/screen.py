"""Chunks on a terminal, or in a pipe: thinking is dim, tools are cyan, the answer is plain.

In a pipe, only the answer is written to standard output; what else there is to see goes to standard error.
Models and other people choose what is shown here: control characters are written out, never obeyed, and the
lines of what they say begin further in than ours, so that none of them looks like a call or a question.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from typing import Any, cast

from ..plain import cut, plain

__all__ = ["Screen"]

Json = dict[str, Any]
STYLES = {"dim": "2", "tool": "36", "bad": "31", "you": "1"}
FURTHER_IN = "      "
"""Before the second line and all further ones of what somebody says: ours begin with two spaces at most."""
LONGEST_NAME = 200
"""Characters of a name that is shown: what stands behind it is to be seen, too."""


class Screen:
    """Prints chunks as they arrive."""

    def __init__(self) -> None:
        self.is_terminal = sys.stdout.isatty()
        wanted = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        self._styles = STYLES if self.is_terminal and wanted else {}
        # What the current line belongs to: "text", "thinking", "progress", or nothing when it is empty.
        self._open = ""
        self._column = 0
        self._calls: dict[str, str] = {}
        self._last_call = ""
        """The call that was shown last, as long as nothing else stands below it."""

    def line(self, text: str, style: str = "") -> None:
        """A line beside the answer. Has the text more, they begin further in."""
        self.lines(plain(text, lines=True).replace("\n", f"\n{FURTHER_IN}"), style)

    def lines(self, text: str, style: str = "") -> None:
        """Several lines, as they are: our own, or an answer."""
        self.end_line()
        self._last_call = ""
        print(self._styled(plain(text, lines=True), style), file=self._beside, flush=True)

    def failure(self, text: str) -> None:
        """Say that something did not work."""
        self.end_line()
        text = plain(text, lines=True).replace("\n", f"\n{FURTHER_IN}")
        print(self._styled(text, "bad"), file=sys.stderr, flush=True)

    def answer_ended(self) -> None:
        """The turn is over."""
        self.end_line()
        self._calls.clear()

    def end_line(self) -> None:
        """Begin a new line unless this one is empty. Progress makes room for what follows it."""
        if self._open:
            out = self._beside if self._open != "text" else sys.stdout
            print("\r\x1b[2K" if self._open == "progress" else "\n", end="", file=out, flush=True)
        self._open, self._column = "", 0

    def prompt(self, text: str) -> str:
        """A line from the person. The prompt is for terminals only."""
        if not sys.stdin.isatty():
            return input()
        # What readline must not count as columns stands between \x01 and \x02.
        return input(re.sub("(\x1b\\[[0-9;]*m)", "\x01\\1\x02", self._styled(plain(text), "you")))

    def show(self, chunk: Json) -> None:
        """Show one chunk of an answer."""
        match chunk:
            case {"type": "text-delta", "delta": str(text)}:
                self._grow("text", text)
            case {"type": "reasoning-start"} if not self._styles:
                self._grow("thinking", "(thinking) ")
            case {"type": "reasoning-delta", "delta": str(text)}:
                self._grow("thinking", text, "dim")
            case {"type": "text-end" | "reasoning-end"}:
                self.end_line()
            case {"type": "tool-input-available", "toolCallId": str(id), "toolName": str(name)}:
                self._calls[id] = name
                self.call(name, chunk.get("input"))
            case {"type": "tool-input-error", "toolName": str(name), "errorText": str(error)}:
                self.call(name, chunk.get("input"))
                self.line(f"  ! {error}", "bad")
            case {"type": "tool-output-available", "preliminary": True, "output": output}:
                if self.is_terminal:
                    self.end_line()
                    self._grow("progress", f"  … {self._from(chunk)}{output}", "dim")
            case {"type": "tool-output-available", "output": output}:
                self.line(f"  ← {self._from(chunk)}{output}", "tool")
            case {"type": "tool-output-error", "errorText": str(error)}:
                self.line(f"  ! {self._from(chunk)}{error}", "bad")
            case {"type": "tool-output-denied"}:
                self.line(f"  ! {self._from(chunk)}not allowed", "bad")
            case _:
                pass

    def call(self, name: str, given: Any) -> None:
        """Show a tool call with its input."""
        called = self._rendered(name, given)
        self.line(called, "tool")
        self._last_call = called

    @staticmethod
    def _rendered(name: str, given: Any) -> str:
        inner = repr(given)
        if isinstance(given, dict):
            inner = ", ".join(f"{plain(k)}={v!r}" for k, v in cast("Json", given).items())
        return f"  → {shown_name(name)}({inner})"

    def call_above(self, name: str, given: Any) -> None:
        """Show a call unless it stands just above: somebody is asked about it, and what a model has said
        since may look like another."""
        before, self._last_call = self._last_call, ""
        if before != self._rendered(name, given):
            self.call(name, given)

    def message(self, message: Json) -> None:
        """Show a stored message."""
        parts: list[Json] = message["parts"]
        if message["role"] == "user":
            self.line("you> " + "".join(part.get("text", "") for part in parts), "you")
            return
        for part in parts:
            match part:
                case {"type": "text", "text": str(text)}:
                    self.lines(text)
                case {"type": "reasoning", "text": str(text)}:
                    self.lines(text if self._styles else f"(thinking) {text}", "dim")
                case {"toolCallId": _, "state": state}:
                    self.call(name_of(part), part.get("input"))
                    self._question(part)
                    if state == "output-available":
                        self.line(f"  ← {part.get('output')}", "tool")
                    elif state in ("output-error", "output-denied"):
                        self.line(f"  ! {part.get('errorText', 'not allowed')}", "bad")
                case _:
                    pass

    def _question(self, part: Json) -> None:
        """What a tool asked, and what was answered."""
        from ..client.questions import answers_in

        for form, given in answers_in(part):
            filled = ", ".join(f"{key}={value!r}" for key, value in (given.content or {}).items())
            said = filled or "yes" if given.action == "accept" else given.action
            self.line(f"  ? {form.message} {said}", "tool")

    @property
    def _beside(self) -> Any:
        return sys.stdout if self.is_terminal else sys.stderr

    def _styled(self, text: str, style: str) -> str:
        code = self._styles.get(style)
        return f"\x1b[{code}m{text}\x1b[0m" if code else text

    def _grow(self, kind: str, text: str, style: str = "") -> None:
        if self._open != kind:
            self.end_line()
        self._open, self._last_call = kind, ""
        # Progress stays on its line, which is wiped; the rest may have lines of its own.
        text = plain(text, lines=kind != "progress")
        out = sys.stdout if kind == "text" else self._beside
        print(self._styled(self._wrapped(text), style), end="", file=out, flush=True)

    def _wrapped(self, text: str) -> str:
        """`text` with line breaks between words where the terminal ends."""
        if not self.is_terminal:
            return text
        width = shutil.get_terminal_size().columns - 1
        wrapped = ""
        for word in re.findall(r"\n|[^\s]+[^\S\n]*|[^\S\n]+", text):
            if word != "\n" and 0 < self._column > width - len(word.rstrip()):
                wrapped += "\n"
                self._column = 0
            wrapped += word
            self._column = 0 if word == "\n" else self._column + len(word)
        return wrapped

    def _from(self, chunk: Json) -> str:
        # With several calls under way, say whose result this is.
        name = self._calls.get(str(chunk.get("toolCallId")))
        return f"{shown_name(name)}: " if name and len(self._calls) > 1 else ""


def name_of(part: Json) -> str:
    """The tool of a stored part."""
    return shown_name(part.get("toolName") or part["type"].removeprefix("tool-"))


def shown_name(name: object) -> str:
    """A name that somebody chose, on one line that goes on behind it."""
    return cut(plain(name), LONGEST_NAME)
