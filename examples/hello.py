"""A chat in the terminal: the demo agent, without a key.

    make run                                              or: python examples/hello.py
    python examples/hello.py --once "Weather in Paris?"   one answer, for scripts
    python examples/hello.py --model openai:gpt-5         a real model, with its key in the environment

The conversation is kept in ./.everthink/everthink.db. Leave in the middle of it and come back.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import logging
import operator
import os
import re
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Callable, Generator
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import Any, cast

from everthink import AbortController, AbortSignal, AgentError, App, ChatStream, Handle, Think, chunks, tool
from everthink.messages import Message, Part, tool_name

with suppress(ImportError):
    import readline  # noqa: F401 - arrow keys and history for input()

# --- the agent: this is all that everthink needs -----------------------------------------


class Hello(Think):
    """The demo agent: a few tools, one of which asks first."""

    model = "demo"
    system_prompt = "You are a friendly guide to everthink. Answer in a few short sentences."

    @tool
    def weather(self, city: str) -> str:
        """The weather in a city. Invented, but always the same."""
        mood = sum(map(ord, city))
        sky = ("windy", "sunny", "cloudy", "rainy", "foggy")[mood % 5]
        return f"It is {sky} in {city}, {8 + mood % 20} degrees."

    @tool
    def clock(self) -> str:
        """The time and the date on this machine, now."""
        return f"It is {datetime.now():%H:%M on %A, %d %B %Y}."

    @tool
    def calculate(self, expression: str) -> float:
        """Calculate with + - * / and parentheses, for example 12 * (3 + 4)."""
        return value_of(ast.parse(expression, mode="eval").body)

    @tool
    async def research(self, topic: str) -> AsyncIterator[str]:
        """Research a topic in the library. Shows how far it is."""
        for shelf in ("A to F", "G to M", "N to Z"):
            await asyncio.sleep(0.4)
            yield f"searching shelf {shelf}"
        yield f"The library has three books about {topic}."

    @tool(needs_approval=True)
    def send_postcard(self, to: str) -> str:
        """Send a postcard to somebody. Asks you first. (No postcard leaves this machine.)"""
        return f"The postcard to {to} is on its way."


OPERATORS: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


def value_of(node: ast.expr) -> float:
    """The value of a parsed sum. What is not arithmetic raises, and the model reads why."""
    match node:
        case ast.Constant(value=int() | float() as number):
            return number
        case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATORS:
            return OPERATORS[type(op)](value_of(left), value_of(right))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -value_of(operand)
        case _:
            raise ValueError(f"I can only calculate with numbers, not with {ast.unparse(node)!r}.")


# --- the screen --------------------------------------------------------------------------

HELP = """\
  Talk to me, or try:
    What is the weather in Paris and Rome?      two tools at once
    Calculate 12 * (3 + 4)                      a tool that computes
    Research "lighthouses"                      a tool that shows its progress
    Send a postcard to Ada                      a tool that asks first
    Tell me a story                             then press Ctrl-C in the middle

  /regenerate   answer again; the old answer stays in the tree
  /history      the whole conversation
  /clear        forget it
  /quit         leave (so do Ctrl-D, and Ctrl-C twice)"""


def uses_color() -> bool:
    """Colors are for terminals, and for people who did not say no (https://no-color.org)."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


class Screen:
    """Prints chunks as they arrive. Thinking is dim, tools are cyan, the answer is plain."""

    def __init__(self) -> None:
        self.is_terminal = sys.stdout.isatty()
        self._styles = {"dim": "2", "tool": "36", "bad": "31", "you": "1"} if uses_color() else {}
        # What the current line belongs to: "text", "thinking", "progress", or nothing when it is empty.
        self._open = ""
        self._column = 0
        self._calls: dict[str, str] = {}

    def styled(self, text: str, style: str) -> str:
        """`text` in a style, where styles are shown at all."""
        code = self._styles.get(style)
        return f"\x1b[{code}m{text}\x1b[0m" if code else text

    def line(self, text: str, style: str = "") -> None:
        """Print a line of its own."""
        self.end_line()
        print(self.styled(text, style), flush=True)

    def failure(self, text: object) -> None:
        """Say that something did not work, where scripts expect it."""
        self.end_line()
        print(self.styled(str(text), "bad"), file=sys.stderr, flush=True)

    def end_line(self) -> None:
        """Begin a new line unless this one is empty. Progress makes room for what follows it."""
        if self._open:
            print("\r\x1b[2K" if self._open == "progress" else "\n", end="", flush=True)
        self._open, self._column = "", 0

    def prompt(self, text: str) -> str:
        """A line from the person. The prompt is for terminals only."""
        if not sys.stdin.isatty():
            return input()
        # What readline must not count as columns stands between \x01 and \x02.
        return input(re.sub("(\x1b\\[[0-9;]*m)", "\x01\\1\x02", self.styled(text, "you")))

    def begin(self) -> None:
        """A new question: its calls are counted anew."""
        self._calls.clear()

    def show(self, chunk: chunks.Chunk) -> None:
        """Show one chunk of an answer."""
        match chunk:
            case chunks.TextDelta(delta=text):
                self._grow("text", text)
            case chunks.ReasoningStart() if not self._styles:
                self._grow("thinking", "(thinking) ")
            case chunks.ReasoningDelta(delta=text):
                self._grow("thinking", text, "dim")
            case chunks.TextEnd() | chunks.ReasoningEnd():
                self.end_line()
            case chunks.ToolInputAvailable(tool_call_id=id, tool_name=name, input=given):
                self._calls[id] = name
                self.call(name, given)
            case chunks.ToolInputError(tool_name=name, input=given, error_text=error):
                self.call(name, given)
                self.line(f"  ! {error}", "bad")
            case chunks.ToolOutputAvailable(tool_call_id=id, output=output, preliminary=True):
                if self.is_terminal:
                    self.end_line()
                    self._grow("progress", f"  … {self._from(id)}{output}", "dim")
            case chunks.ToolOutputAvailable(tool_call_id=id, output=output):
                self.line(f"  ← {self._from(id)}{output}", "tool")
            case chunks.ToolOutputError(tool_call_id=id, error_text=error):
                self.line(f"  ! {self._from(id)}{error}", "bad")
            case _:
                pass

    def call(self, name: str, given: Any) -> None:
        """Show a tool call with its input."""
        inner = repr(given)
        if isinstance(given, dict):
            inner = ", ".join(f"{k}={v!r}" for k, v in cast("dict[str, Any]", given).items())
        self.line(f"  → {name}({inner})", "tool")

    def message(self, message: Message) -> None:
        """Show a stored message."""
        if message.role == "user":
            self.line(f"you> {message.text}", "you")
            return
        for part in message.parts:
            match part:
                case {"type": "text", "text": str(text)}:
                    self.line(text)
                case {"type": "reasoning", "text": str(text)}:
                    self.line(text if self._styles else f"(thinking) {text}", "dim")
                case {"toolCallId": _, "state": state}:
                    self.call(tool_name(part), part.get("input"))
                    if state == "output-available":
                        self.line(f"  ← {part['output']}", "tool")
                    elif state != "approval-requested":
                        self.line(f"  ! {part.get('errorText', 'not allowed')}", "bad")
                case _:
                    pass

    def _grow(self, kind: str, text: str, style: str = "") -> None:
        if self._open != kind:
            self.end_line()
        self._open = kind
        print(self.styled(self._wrapped(text), style), end="", flush=True)

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

    def _from(self, id: str) -> str:
        # With several calls under way, say whose result this is.
        return f"{self._calls[id]}: " if len(self._calls) > 1 and id in self._calls else ""


# --- the conversation --------------------------------------------------------------------


class Leave(Exception):
    """The person has had enough."""


class Chat:
    """Takes lines, shows answers, asks for approval."""

    def __init__(self, agent: Handle[Hello], screen: Screen) -> None:
        self.agent, self.screen = agent, screen
        self.interrupted = False
        """True after one Ctrl-C: the next one leaves."""

    async def greet(self) -> None:
        """Say hello, or welcome back."""
        kept = len(await self.agent.messages())
        self.screen.line(
            "everthink demo: no key, no network, nothing you see is lost. /help shows what to try."
        )
        if kept:
            count = "1 message is" if kept == 1 else f"{kept} messages are"
            self.screen.line(f"Welcome back: {count} kept. /history shows them.")

    async def take(self, line: str) -> None:
        """Do what a line asks for."""
        self.interrupted = False
        match line.split():
            case []:
                pass
            case ["/help"]:
                self.screen.line(HELP)
            case ["/quit" | "/exit"]:
                raise Leave
            case ["/history"]:
                for message in await self.agent.messages():
                    self.screen.message(message)
            case ["/clear"]:
                await self.agent.clear_messages()
                self.screen.line("Forgotten.")
            case ["/regenerate"]:
                await self.regenerate()
            case [word, *_] if word.startswith("/"):
                self.screen.line(f"There is no {word}. /help lists the commands.")
            case _:
                await self.say(line)

    async def say(self, text: str) -> bool:
        """Stream the answer to a message. False when it failed."""
        self.screen.begin()
        return await self.follow(lambda signal: self.agent.chat(text, signal=signal))

    async def go_on(self) -> bool:
        """Stream what follows a yes or a no."""
        return await self.follow(lambda signal: self.agent.continue_last_turn(signal=signal))

    async def follow(self, start: Callable[[AbortSignal], ChatStream]) -> bool:
        """Show a stream to its end, or to Ctrl-C. False when it failed."""
        stopped = AbortController()
        stream = start(stopped.signal)
        try:
            with stopping(stopped):
                async for chunk in stream:
                    self.screen.show(chunk)
        except AgentError as error:
            self.screen.failure(f"This did not work: {error}")
            return False
        self.screen.end_line()
        self._tell_stopped(stopped)
        return True

    async def regenerate(self) -> None:
        """Answer again."""
        self.screen.line("Answering again…", "dim")
        self.screen.begin()
        await self.follow(lambda signal: self.agent.regenerate(signal=signal))

    def _tell_stopped(self, stopped: AbortController) -> None:
        self.interrupted = stopped.signal.aborted
        if self.interrupted:
            self.screen.line("Stopped. What was said is kept.", "dim")

    async def waiting(self) -> list[Part]:
        """The calls that wait for a yes or a no."""
        parts = [part for message in await self.agent.messages() for part in message.tool_parts]
        return [part for part in parts if part["state"] == "approval-requested"]

    async def answer(self, part: Part, approved: bool) -> None:
        """Pass on a yes or a no."""
        await self.agent.apply_tool_approval(part["toolCallId"], approved)


@contextmanager
def stopping(stopped: AbortController) -> Generator[None]:
    """Ctrl-C stops the answer; once more leaves."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()

    def interrupt() -> None:
        if stopped.signal.aborted and task is not None:
            task.cancel()
        stopped.abort("Stopped with Ctrl-C.")

    loop.add_signal_handler(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)


# --- the program -------------------------------------------------------------------------


def approve(runner: asyncio.Runner, chat: Chat) -> bool:
    """Ask about every call that waits, then let the agent go on. No answer is a no."""
    fine = True
    while waiting := runner.run(chat.waiting()):
        for part in waiting:
            try:
                yes = chat.screen.prompt(f"  Allow {tool_name(part)}? [y/N] ").strip().lower()
            except EOFError:
                yes = ""
                chat.screen.line("no answer, so no")
            runner.run(chat.answer(part, yes in ("y", "yes")))
        fine = runner.run(chat.go_on())
    return fine


def talk(runner: asyncio.Runner, chat: Chat) -> None:
    """Read lines until there are no more."""
    runner.run(chat.greet())
    while True:
        try:
            approve(runner, chat)
            if sys.stdin.isatty():
                print()
            line = chat.screen.prompt("you> ")
            runner.run(chat.take(line))
        except EOFError:
            if sys.stdin.isatty():
                print()
            break
        except (Leave, asyncio.CancelledError):
            break
        except KeyboardInterrupt:
            print()
            if chat.interrupted:
                break
            chat.interrupted = True
            print("Press Ctrl-C again, or Ctrl-D, to leave.")
    if sys.stdin.isatty():
        chat.screen.line("Goodbye. This conversation is kept in ./.everthink.")


def main() -> int:
    """Run the chat. Returns the exit code."""
    parser = argparse.ArgumentParser(
        description="Chat with the demo agent in the terminal.",
        epilog='example: python examples/hello.py --once "What is the weather in Paris?"',
    )
    parser.add_argument("--once", metavar="TEXT", help="send one message, print the answer, and exit")
    parser.add_argument(
        "--model", default="demo", help='"provider:model", such as openai:gpt-5 (default: demo)'
    )
    parser.add_argument("--verbose", action="store_true", help="show the log on standard error")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO if options.verbose else logging.CRITICAL)
    Hello.model = options.model

    app = App(Hello, grace=1.0)
    chat = Chat(app.agent(Hello, "terminal"), Screen())
    with asyncio.Runner() as runner:
        try:
            runner.run(app.open())
            if options.once is None:
                talk(runner, chat)
                return 0
            fine = runner.run(chat.say(options.once)) and approve(runner, chat)
            return 130 if chat.interrupted else 0 if fine else 1
        except AgentError as error:
            chat.screen.failure(error)
            return 1
        except (KeyboardInterrupt, asyncio.CancelledError):
            print()
            return 130
        finally:
            runner.run(app.close())


if __name__ == "__main__":
    sys.exit(main())
