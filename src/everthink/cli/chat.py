"""`everthink chat`: a conversation in the terminal.

the person (main thread) <--> chat <--> Line (its own thread and loop) <--> server
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
from collections.abc import Coroutine, Generator
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit, urlunsplit

import click

__all__ = ["command"]

T = TypeVar("T")

HELP = """\
  /history      the whole conversation
  /regenerate   answer again; the old answer stays in the tree
  /clear        forget the conversation
  /quit         leave (so do Ctrl-D, and Ctrl-C twice)"""


@click.command(
    "chat",
    short_help="Talk to an agent of a running server in the terminal.",
    help="""Talk to an agent of a running server in the terminal.

    WHOM is AGENT/NAME, or a whole address. Without it: the first agent of the server, conversation
    "default". Lines come from the person or from a pipe; in a pipe, the answers alone are on standard
    output. Ctrl-C stops an answer. A lost connection is found again, and nothing is shown twice.

    Exit codes: 0 all answered, 1 an answer failed or nobody is there, 130 stopped with Ctrl-C.

    Settings in a file .env of this folder count where the environment does not say otherwise.

    \b
    Examples:
      everthink chat assistant/room-1
      everthink chat https://agents.example.com/agents/assistant/room-1
      echo "Weather in Paris?" | everthink chat assistant/room-1
      everthink chat -m "Send a postcard to Ada" --yes""",
)
@click.argument("whom", required=False)
@click.option(
    "--server",
    default="http://127.0.0.1:8787",
    show_default=True,
    envvar="EVERTHINK_SERVER",
    help="Where AGENT/NAME is.",
)
@click.option("-m", "--message", help="Send one message, print the answer, and leave.")
@click.option("--yes", is_flag=True, help="Allow every tool call that asks.")
@click.option("--token", envvar="EVERTHINK_TOKEN", help="Sent as the query parameter `token`.")
def command(whom: str | None, server: str, message: str | None, yes: bool, token: str | None) -> None:
    """Chat in the terminal."""
    from .line import Line
    from .screen import Screen

    if sys.stdin.isatty():
        with contextlib.suppress(ImportError):
            import readline  # noqa: F401  # pyright: ignore[reportUnusedImport] - arrow keys and history

    screen = Screen()
    url = address_of(whom, server, token)
    with _loop() as here:
        line = here.run(_opened(Line, url, screen))
        chat = Chat(here, line, screen, yes=yes)
        try:
            fine = chat.say(message) if message is not None else chat.talk()
        finally:
            here.run(line.close())
    raise SystemExit(130 if chat.was_stopped else 0 if fine else 1)


async def _opened(kind: Any, url: str, screen: Any) -> Any:
    def tell(text: str) -> None:
        screen.line(text, "dim")

    # Made on the loop it lives on.
    line = kind(url, show=screen.show, tell=tell)
    await line.open()
    return line


class Leave(Exception):
    """The person has had enough."""


class Chat:
    """Takes lines, shows answers, asks for approval."""

    def __init__(self, here: Here, line: Any, screen: Any, *, yes: bool) -> None:
        self._here, self._line, self._screen, self._yes = here, line, screen, yes
        self.was_stopped = False

    def talk(self) -> bool:
        """Read lines until there are no more. False when an answer failed."""
        from ..errors import AgentError

        screen, fine, tired = self._screen, True, False
        self._greet()
        while True:
            try:
                if self._line.refusal is not None:
                    return False  # it has been told
                if self._line.waiting():
                    fine = self._follow() and fine
                if sys.stdin.isatty():
                    print()
                text = screen.prompt("you> ")
                tired = False
                fine = self._take(text.strip()) and fine
            except EOFError:
                if sys.stdin.isatty():
                    print()
                return fine
            except Leave:
                return fine
            except AgentError as error:
                screen.failure(str(error))
                return False
            except KeyboardInterrupt:
                screen.end_line()
                if tired or not sys.stdin.isatty():
                    self.was_stopped = True
                    return fine
                tired = True
                print("\nPress Ctrl-C again, or Ctrl-D, to leave.")

    def say(self, text: str) -> bool:
        """Send a message, show the answer and all that follows from it."""
        return self._show(self._line.ask(text)) and self._follow()

    def _greet(self) -> None:
        if not sys.stdin.isatty():
            return
        kept = len(self._line.messages)
        count = "1 message is" if kept == 1 else f"{kept} messages are"
        from ..server.names import from_address

        # From the server, which is a stranger here.
        name = from_address(str(self._line.identity.get("name", "")))
        who = f"{self._line.identity.get('agent', 'the agent')}/{name}"
        self._screen.line(f"You talk to {who}. {count} kept. /help shows what you can do.", "dim")

    def _take(self, text: str) -> bool:
        match text.split():
            case []:
                return True
            case ["/help"]:
                self._screen.line(HELP)
            case ["/quit" | "/exit"]:
                raise Leave
            case ["/history"]:
                for message in self._line.messages:
                    self._screen.message(message)
            case ["/clear"]:
                self._here.run(self._line.clear())
                self._screen.line("Forgotten.", "dim")
            case ["/regenerate"]:
                return self._show(self._line.ask_again()) and self._follow()
            case [word, *_] if word.startswith("/"):
                self._screen.line(f"There is no {word}. /help lists the commands.")
            case _:
                return self.say(text)
        return True

    def _follow(self) -> bool:
        """Ask about every call that waits, then let the agent go on. No answer is a no."""
        fine = True
        while waiting := self._line.waiting():
            answers = {part["toolCallId"]: self._may(part) for part in waiting}
            fine = self._show(self._line.answer(answers)) and fine
        for part in self._line.unanswered():
            self._screen.line(f"  … {_name(part)} waits for a browser that is connected", "dim")
        return fine

    def _may(self, part: dict[str, Any]) -> bool:
        if self._yes:
            self._screen.line(f"  {_name(part)} is allowed (--yes)", "dim")
            return True
        try:
            return self._screen.prompt(f"  Allow {_name(part)}? [y/N] ").strip().lower() in ("y", "yes")
        except EOFError:
            self._screen.line("  no answer, so no", "dim")
            return False

    def _show(self, turn: Coroutine[Any, Any, Any]) -> bool:
        """Wait for a turn while it is shown. Ctrl-C stops it; a second one leaves."""
        from ..errors import AgentError

        future = self._here.start(turn)
        stopped = False
        while True:
            try:
                ending = future.result()
                break
            except AgentError as error:
                self._screen.failure(str(error))
                return False
            except KeyboardInterrupt:
                if stopped:
                    raise
                stopped = True
                self._here.run(self._line.stop())
        self._screen.answer_ended()
        if stopped or ending.outcome == "aborted":
            self._screen.line("Stopped. What was said is kept.", "dim")
            self.was_stopped = self.was_stopped or not sys.stdin.isatty()
        elif ending.error is not None or ending.outcome == "error":
            self._screen.failure(f"This did not work: {ending.error or 'the turn failed.'}")
            return False
        return True


def _name(part: dict[str, Any]) -> str:
    from .screen import name_of

    return name_of(part)


# --- a loop beside the main thread, which belongs to the person


class Here:
    """Runs coroutines on the other thread's loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def start(self, work: Coroutine[Any, Any, T]) -> Any:
        """Begin `work`; `result()` of what is returned waits for it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do `work` and wait for it."""
        return self.start(work).result()


@contextlib.contextmanager
def _loop() -> Generator[Here]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="everthink chat", daemon=True)
    thread.start()
    try:
        yield Here(loop)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(2)
        loop.close()


# --- addresses


def address_of(whom: str | None, server: str, token: str | None) -> str:
    """The WebSocket address of an agent, from what the person wrote."""
    from ..errors import AgentError
    from ..server.names import from_address

    if whom and "://" in whom:
        parts = urlsplit(whom)
        base, path, query = f"{parts.scheme}://{parts.netloc}", parts.path.strip("/"), parts.query
        path = quote(path, safe="/%:@!$&'()*+,;=~")  # as a browser would send it
    else:
        base, path, query = server.rstrip("/"), (whom or "").strip("/"), ""
        if path:
            agent, _, name = path.partition("/")
            path = f"agents/{agent}/{quote(from_address(name or 'default').replace('%2F', '/'), safe='')}"
    if not path:
        path = f"{_first_agent(base)}/default"
    scheme = {"http": "ws", "https": "wss", "ws": "ws", "wss": "wss"}.get(urlsplit(base).scheme)
    if scheme is None or not urlsplit(base).netloc:
        raise AgentError(
            f"{base!r} is not an address.", next_step="Write http://host:port, or AGENT/NAME with --server."
        )
    if token:
        query = f"{query}&token={quote(token, safe='')}".lstrip("&")
    return urlunsplit((scheme, urlsplit(base).netloc, "/" + path, query, ""))


def _first_agent(base: str) -> str:
    """The server's first agent. A development server tells; others keep it to themselves."""
    import json
    from urllib.request import urlopen

    from ..errors import AgentError
    from .page import AGENTS_LIST

    plain = base.replace("ws", "http", 1) if base.startswith("ws") else base
    try:
        with urlopen(plain + AGENTS_LIST, timeout=5) as answer:
            found = json.load(answer)
            return f"{found[0]['prefix']}/{found[0]['kebab']}"
    except (ValueError, LookupError, OSError) as error:
        if getattr(error, "code", None):  # It answers, and does not tell.
            raise AgentError(
                f"{base} does not say which agents it has.",
                next_step="Name one: everthink chat assistant/default",
            ) from error
        raise AgentError(
            f"Nobody answers at {base}.", next_step="Start a server in another terminal: everthink dev"
        ) from error
