"""`everthink chat`: a conversation in the terminal.

the person (main thread) <--> chat <--> Conversation (its own thread and loop) <--> server
"""

from __future__ import annotations

import contextlib
import json
import queue
import sys
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit, urlunsplit

import click

from ..plain import plain
from .screen import Screen, name_of, shown_name

if TYPE_CHECKING:
    from ..client import Conversation, Reply, ToolQuestion
    from ..client.below import Asking, Below
    from ..client.beside import Here
    from ..client.fields import Field
    from ..errors import AgentError, NoSuchChild, NotConnected
    from ..tools.question import Form

__all__ = ["command"]

Filled = dict[str, dict[str, Any]]
"""What a person answered, by the names of the forms."""

CLOSED = (
    "Either nothing is at that path (for an app that is mounted below one, write it:"
    " --server http://host/path), or you may not enter: then give another --token."
)
HELP = """\
  /history      the whole conversation
  /regenerate   answer again; the old answer stays in the tree
  /clear        forget the conversation
  /quit         leave (so do Ctrl-D, and Ctrl-C twice)"""


@click.command(
    "chat",
    short_help="Talk to an agent of a running server in the terminal.",
    help="""Talk to an agent of a running server in the terminal.

    WHOM is AGENT/NAME, a child of it AGENT/NAME/sub/AGENT/NAME, or a whole address, also that of the page
    of `everthink dev`. Without a NAME: conversation "default"; without an AGENT: the first one of the
    server. Lines come from the person or from a pipe; in a pipe, the answers alone are on standard output.
    Ctrl-C stops an answer. A lost connection is found again, and nothing is shown twice.

    Exit codes: 0 all answered, 1 an answer failed or nobody is there, 130 stopped with Ctrl-C.

    Settings in a file .env of this folder count where the environment does not say otherwise.

    \b
    Examples:
      everthink chat assistant/room-1
      everthink chat assistant/room-1/sub/researcher/notes
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
    from ..client.beside import beside
    from ..client.line import is_closed
    from ..errors import NoSuchChild, NotConnected

    if sys.stdin.isatty():
        with contextlib.suppress(ImportError):
            import readline  # noqa: F401  # pyright: ignore[reportUnusedImport] - arrow keys and history

    screen = Screen()
    _tell_unused(whom)
    url = address_of(whom, server, token)
    with beside() as here:
        try:
            room, below = here.run(_opened(url, screen))
        except NoSuchChild as error:
            raise _nearest_child(error, url) from error
        except NotConnected as error:
            is_unknown = error.status in (400, 404) or is_closed(error)
            raise (_unknown(error, url) if is_unknown else _for_people(error)) from error
        chat = Chat(here, room, below, screen, yes=yes, once=message is not None)
        try:
            _check_chats(room, url)
            fine = chat.say(message) if message is not None else chat.talk()
        finally:
            here.run(below.close())
            here.run(room.close())
    raise SystemExit(130 if chat.was_stopped else 0 if fine else 1)


async def _opened(url: str, screen: Screen) -> tuple[Conversation, Below]:
    from ..client import Conversation
    from ..client.below import Below

    is_open = False

    def tell(text: str) -> None:
        gone = room.refusal
        if gone is not None and not is_open:
            return  # opening raises it
        screen.line(str(_for_people(gone)) if gone is not None else f"({text})", "dim")

    # Made on the loop it lives on.
    room, below = Conversation(url, notice=tell), Below(url)
    below.watch(room)
    try:
        await room.open()
    except BaseException:
        await below.close()
        raise
    is_open = True
    return room, below


class Leave(Exception):
    """The person has had enough."""


class Chat:
    """Takes lines, shows answers, asks for approval."""

    def __init__(
        self, here: Here, room: Conversation, below: Below, screen: Screen, *, yes: bool, once: bool
    ) -> None:
        self._here, self._room, self._below, self._screen, self._yes = here, room, below, screen, yes
        self._once = once
        self._form = FormPrompt(screen, yes=yes)
        # "asked" when a call that runs, or a child, waits for a person; "over" at the end of what is shown.
        self._signs = queue.SimpleQueue[str]()
        self._is_idle = False
        below.asked = self._child_asks
        self.was_stopped = False

    def talk(self) -> bool:
        """Read lines until there are no more. False when an answer failed."""
        from ..errors import AgentError

        screen, fine, tired = self._screen, True, False
        self._greet()
        while True:
            try:
                if self._room.refusal is not None:
                    return False  # it has been told
                if self._room.to_approve or self._room.questions:
                    fine = self._follow() and fine
                if self._answer_below():
                    fine = self._go_on() and fine
                if sys.stdin.isatty():
                    print()
                self._is_idle = True
                text = screen.prompt("you> ")
                tired = self._is_idle = False
                fine = self._take(text.strip()) and fine
            except EOFError:
                if sys.stdin.isatty():
                    print()
                return fine
            except Leave:
                return fine
            except AgentError as error:
                screen.failure(str(_for_people(error)))
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
        return self._show(self._watch(lambda: self._room.say(text))) and self._follow()

    def _greet(self) -> None:
        if not sys.stdin.isatty():
            return
        kept = len(self._room.messages)
        count = "1 message is" if kept == 1 else f"{kept} messages are"
        who = f"{shown_name(self._room.agent or 'the agent')}/{shown_name(self._room.name)}"
        self._screen.line(f"You talk to {who}. {count} kept. /help shows what you can do.", "dim")

    def _take(self, text: str) -> bool:
        match text.split():
            case []:
                return True
            case ["/help"]:
                self._screen.lines(HELP)
            case ["/quit" | "/exit"]:
                raise Leave
            case ["/history"]:
                for message in self._room.messages:
                    self._screen.message(message.to_json())
            case ["/clear"]:
                self._here.run(self._room.clear())
                self._screen.line("Forgotten.", "dim")
            case ["/regenerate"]:
                return self._show(self._watch(self._room.regenerate)) and self._follow()
            case [word, *_] if word.startswith("/"):
                self._screen.line(f"There is no {word}. /help lists the commands.")
            case _:
                return self.say(text)
        return True

    def _follow(self) -> bool:
        """Ask about every call that waits, then let the agent go on. No answer is a no."""
        while True:
            answers = {part["toolCallId"]: self._may(part) for part in self._room.to_approve}
            filled = {one.call_id: self._form.fill(one) for one in self._room.questions}
            if not answers and not filled:
                break
            if not self._show(self._decide(answers, filled)):
                return False
        for part in self._room.to_answer:
            self._screen.line(f"  … {name_of(part)} waits for a browser that is connected", "dim")
        return True

    def _go_on(self) -> bool:
        """Show the rest of the answer that somebody waits for."""

        async def rest() -> Reply | None:
            return self._room.following()

        reply = self._here.run(rest())
        return reply is None or (self._show(self._shown(reply)) and self._follow())

    def _may(self, part: dict[str, Any], of: str = "") -> bool:
        if self._yes:
            self._screen.line(f"  {name_of(part)}{of} is allowed (--yes)", "dim")
            return True
        self._screen.call_above(name_of(part), part.get("input"))
        try:
            return self._screen.prompt(f"  Allow {name_of(part)}{of}? [y/N] ").strip().lower() in ("y", "yes")
        except EOFError:
            self._screen.line("  no answer, so no", "dim")
            return False

    async def _watch(self, begin: Callable[[], Reply]) -> Reply:
        """Begin a turn and show it until it is over."""
        return await self._shown(begin())

    async def _decide(self, answers: dict[str, bool], filled: dict[str, Filled]) -> Reply:
        """Say yes or no to calls that wait, answer what they ask, and show what the agent makes of it."""
        from ..errors import AnsweredBefore

        reply: Reply | None = None
        for call in (*answers, *filled):
            try:
                if call in answers:
                    reply = await self._room.approve(call, answers[call])
                else:
                    reply = await self._room.reply(call, answers=filled[call])
            except AnsweredBefore as error:
                self._screen.line(f"  ! {error}", "bad")
                reply = error.reply
        assert reply is not None  # something waited for an answer
        return await self._shown(reply)

    async def _shown(self, reply: Reply) -> Reply:
        from ..chunks import encode
        from ..errors import TurnFailed

        try:
            async for chunk in reply:
                self._screen.show(json.loads(encode(chunk)))
                if chunk.type == "tool-approval-request" and self._waits_now():
                    self._signs.put("asked")
        except TurnFailed:
            pass  # The reply says so itself.
        return reply

    def _show(self, turn: Coroutine[Any, Any, Reply]) -> bool:
        """Wait for a turn while it is shown. Ctrl-C stops it; a second one leaves."""
        from ..errors import AgentError

        signs = self._signs = queue.SimpleQueue[str]()
        if self._below.asking:
            signs.put("asked")
        future = self._here.start(turn)

        def over(_: Any) -> None:
            signs.put("over")

        future.add_done_callback(over)
        stopped = False
        while True:
            try:
                if signs.get() == "asked":
                    self._answer_now()
                    self._answer_below()
                    continue
                ending = future.result()
                break
            except AgentError as error:
                self._screen.failure(str(_for_people(error)))
                return False
            except KeyboardInterrupt:
                if stopped:
                    raise
                stopped = True
                self._here.run(self._room.cancel())
        self._screen.answer_ended()
        if stopped or ending.outcome == "aborted":
            self._screen.line("Stopped. What was said is kept.", "dim")
            self.was_stopped = self.was_stopped or self._once or not sys.stdin.isatty()
        elif ending.error is not None or ending.outcome == "error":
            self._screen.failure(f"This did not work: {ending.error or 'the turn failed.'}")
            return False
        return True

    # --- questions of calls that run meanwhile

    def _waits_now(self) -> list[ToolQuestion]:
        """The questions that are over when their call is."""
        return [question for question in self._room.questions if question.seconds is not None]

    def _answer_now(self) -> None:
        from ..errors import AgentError

        for question in self._waits_now():
            given = self._form.fill(question)
            try:
                self._here.run(self._room.reply(question.call_id, answers=given))
            except AgentError as error:
                self._screen.line(f"  ! {error}", "bad")  # it waited no longer, or somebody was faster

    def _child_asks(self) -> None:
        """A child asks something: now if an answer is shown, else when the person has typed a line."""
        if self._is_idle:
            self._screen.line("(A child asks something. An empty line shows it.)", "dim")
        self._signs.put("asked")

    def _answer_below(self) -> bool:
        """Ask the person what children ask. False when nobody asks."""
        from ..errors import AgentError

        asking = self._below.asking
        for one in asking:
            self._below.leave(one)  # whatever becomes of it: nobody is asked twice
            try:
                self._answer_child(one)
            except AgentError as error:
                self._screen.line(f"  ! {error}", "bad")  # it asks no longer, or somebody was faster
        return bool(asking)

    def _answer_child(self, one: Asking) -> None:
        from ..client.below import as_written

        screen, below, whom = self._screen, self._below, shown_name(one.whom)
        if (question := one.question) is not None:
            screen.line(f"  {whom} asks you something:")
            self._here.run(below.reply(one, self._form.fill(question)))
            return
        wants = "waits for what a client does" if one.is_for_client else "wants to use a tool"
        screen.line(f"  {whom} {wants}:")
        screen.call(one.tool, one.part.get("input"))
        if not one.is_for_client:
            self._here.run(below.approve(one, self._may(one.part, f" for {whom}")))
            return
        with contextlib.suppress(EOFError):
            hint = "  Its result, text or JSON (an empty line leaves it to a browser)> "
            if text := screen.prompt(hint).strip():
                self._here.run(below.answer(one, as_written(text)))
                return
        screen.line(f"  … {name_of(one.part)} waits for a browser that is connected to {whom}", "dim")


# --- what a tool asks, line by line


class Declined(Exception):
    """The person does not answer."""


HINT = "(An empty line takes what is in [brackets], or leaves out what is optional. /decline says no.)"
LONGEST_PROMPT = 60
FORMATS = {"email": "e-mail", "uri": "https://…", "date": "2026-12-24", "date-time": "2026-12-24T18:30:00Z"}


class FormPrompt:
    """Asks a person for the fields of a form, one after the other."""

    def __init__(self, screen: Screen, *, yes: bool) -> None:
        self._screen, self._yes = screen, yes

    def fill(self, question: ToolQuestion) -> Filled:
        """What the person answers to each form of a question. No answer is a no."""
        return {name: self._answer(question, form) for name, form in question.forms.items()}

    def _answer(self, question: ToolQuestion, form: Form) -> dict[str, Any]:
        from ..client.fields import fields_of

        screen, fields = self._screen, fields_of(form.schema)
        screen.line(f"  {shown_name(question.asks or question.tool)} asks: {form.message}")
        try:
            if form.url is not None:
                self._go(form.url)
            elif not fields:
                self._agree()
            else:
                return {"action": "accept", "content": self._content(fields)}
            return {"action": "accept", "content": {}} if form.schema else {"action": "accept"}
        except (Declined, EOFError) as end:
            screen.line("  no answer, so declined" if isinstance(end, EOFError) else "  declined", "dim")
            return {"action": "decline"}

    def _go(self, url: str) -> None:
        """Send the person somewhere. That they were there only they can say."""
        try:
            host = urlsplit(url).hostname
        except ValueError:
            host = None
        self._screen.line(f"  Go to {plain(host or 'this address')}: {plain(url)}")
        if not _is_yes(self._screen.prompt("  Have you done it? [y/N] ")):
            raise Declined

    def _agree(self) -> None:
        if self._yes:
            self._screen.line("  yes (--yes)", "dim")
        elif not _is_yes(self._screen.prompt("  Yes? [y/N] ")):
            raise Declined

    def _content(self, fields: Sequence[Field]) -> dict[str, Any]:
        if self._yes and all(field.default is not None or not field.is_required for field in fields):
            self._screen.line("  as it stands (--yes)", "dim")
            return {field.name: field.default for field in fields if field.default is not None}
        self._screen.line(f"  {HINT}", "dim")
        found = {field.name: self._value(field) for field in fields}
        blank = {field.name for field in fields if field.is_nullable}
        return {name: value for name, value in found.items() if value is not None or name in blank}

    def _value(self, field: Field) -> Any:
        """What the person says; `None`: nothing, which is allowed."""
        from ..client.fields import read

        text = plain(_asking_for(field))
        if field.options or len(text) > LONGEST_PROMPT:
            self._screen.line(f"  {text}")
            text = ">"
        for number, (_, name) in enumerate(field.options, 1):
            self._screen.line(f"    {number} {plain(name)}")
        while True:
            line = self._screen.prompt(f"  {text} ").strip()
            if line == "/decline" or (not line and field.is_required and field.default is None):
                raise Declined
            if not line:
                return field.default
            try:
                return read(field, line)
            except ValueError as error:
                self._screen.line(f"  ! {error}", "bad")


def _is_yes(line: str) -> bool:
    return line.strip().lower() in ("y", "yes")


def _asking_for(field: Field) -> str:
    """What stands before the cursor: `How many? (1 to 12) [2]`."""
    kinds = {
        "boolean": "y/n",
        "choice": f"1 to {len(field.options)}",
        "choices": f"1 to {len(field.options)}, several with commas",
        "json": "JSON",
        "text": FORMATS.get(str(field.schema.get("format")), ""),
    }
    hints = [kinds.get(field.kind, field.bounds), "" if field.is_required else "optional"]
    hint = ", ".join(one for one in hints if one)
    words = [field.label, field.help and f"- {field.help}", hint and f"({hint})"]
    default = "" if field.default is None else f"[{field.named(field.default)}]"
    return " ".join(word for word in (*words, default) if word)


# --- addresses


def _tell_unused(whom: str | None) -> None:
    """Say that --server, when somebody typed it, has no part in a whole address."""
    from click.core import ParameterSource

    from ..serving.output import say_error

    typed = click.get_current_context().get_parameter_source("server") is ParameterSource.COMMANDLINE
    if typed and whom and "://" in whom:
        say_error(f"--server is not used: {whom.partition('?')[0]} is a whole address.")


def address_of(whom: str | None, server: str, token: str | None) -> str:
    """The WebSocket address of an agent, from what the person wrote."""
    from ..address import Address, from_address, in_address
    from ..children.paths import SUB

    if whom and "://" in whom:
        parts = urlsplit(whom)
        base, path, query = f"{parts.scheme}://{parts.netloc}", parts.path.strip("/"), parts.query
        path = quote(path, safe="/%:@!$&'()*+,;=~")  # as a browser would send it
        if not path:
            whom, query = _from_page(query)  # the address of the page, copied
    else:
        base, path, query = server.rstrip("/"), "", ""
    scheme, below = _scheme_of(base), urlsplit(base).path.strip("/")
    if not path and whom:
        first, *children = whom.strip("/").split(f"/{SUB}/")
        written = Address.parse(first)
        agent = written.cls_name
        _check_is_agent(agent, whom)
        name = in_address(from_address(written.name or "default"))
        path = "/".join([_prefix_below(below), _as_address(agent), name, *map(_child, children)])
    elif not path:
        path = f"{_first_agent(base)}/default"
    if token:
        query = f"{query}&token={quote(token, safe='')}".lstrip("&")
    return urlunsplit((scheme, urlsplit(base).netloc, "/" + path, query, ""))


def _child(written: str) -> str:
    """What leads from an agent to its child, in an address: `researcher/notes` is `sub/researcher/notes`."""
    from ..children.paths import SUB
    from ..serving.output import WrittenWrongly

    agent, _, name = written.partition("/")
    if not agent or not name:
        raise WrittenWrongly(
            f"{written!r} names no child.",
            next_step=f"Write its class and its name: AGENT/NAME/{SUB}/AGENT/NAME. A / in the name is %2F.",
        )
    return f"{SUB}/{_as_address(agent)}/{quote(unquote(name), safe='')}"


def _prefix_below(path: str) -> str:
    """Where the agents are of an app that is mounted below this path, or whose agents are just there."""
    if path.rpartition("/")[2] == "agents":
        return path
    return f"{path}/agents".lstrip("/")


def _scheme_of(base: str) -> str:
    """The scheme of the socket at an address."""
    from ..serving.output import WrittenWrongly

    scheme = {"http": "ws", "https": "wss", "ws": "ws", "wss": "wss"}.get(urlsplit(base).scheme)
    if scheme is None or not urlsplit(base).netloc:
        raise WrittenWrongly(
            f"{base!r} is not an address.", next_step="Write http://host:port, or AGENT/NAME with --server."
        )
    return scheme


def _from_page(query: str) -> tuple[str, str]:
    """Agent, name and children from the address of the page of `everthink dev`, and the rest of its query."""
    from ..address import Address
    from ..children.paths import SUB

    given = parse_qsl(query, keep_blank_values=True)
    place = dict(given)
    whom = Address(place["agent"], place.get("name") or "default").id if "agent" in place else ""
    for child in [value for key, value in given if key == SUB] if whom else []:
        agent, _, name = child.partition("/")
        whom += f"/{SUB}/{agent}/{quote(name, safe='')}"
    known = ("agent", "name", SUB, "inspect")
    return whom, urlencode([(key, value) for key, value in given if key not in known])


def _check_is_agent(agent: str, whom: str) -> None:
    from ..serving.output import WrittenWrongly

    if ":" in agent:
        raise WrittenWrongly(
            f"{whom!r} is no AGENT/NAME; for an address, its beginning is missing.",
            next_step=f"Write http:// in front of it: everthink chat http://{whom}",
        )


def _as_address(agent: str) -> str:
    """How an agent is called in an address; a class may be named as it is in the code."""
    from ..address import kebab

    return kebab(agent) if agent != agent.lower() else agent


def _for_people(error: Exception) -> Exception:
    """An error for a program, with what a person at a terminal does next."""
    from ..client.line import NOBODY
    from ..errors import NotConnected

    if not isinstance(error, NotConnected) or error.code is not None:
        return error
    steps: dict[int | str | None, str] = {
        NOBODY: "Start a server in another terminal: everthink dev",
        401: "It asks who you are: give a token with --token or EVERTHINK_TOKEN, or a newer one.",
        403: "You may not enter here. Name one that is yours (AGENT/NAME), or give another --token.",
    }
    next_step = steps.get(error.next_step) or steps.get(error.status, error.next_step)
    return NotConnected(error.what, kept=error.kept, next_step=next_step, status=error.status)


def _unknown(error: NotConnected, url: str) -> AgentError:
    """A refusal for a name that nobody has, with the names that there are."""
    from ..client.line import is_closed
    from ..errors import AgentError, NotConnected
    from ..settings import nearest

    parts = urlsplit(url)
    base = f"{parts.scheme.replace('ws', 'http', 1)}://{parts.netloc}"
    whole = f"{base}{parts.path.rstrip('/')}"
    above, _, name = parts.path.strip("/").rpartition("/")
    prefix, _, asked = above.rpartition("/")
    agents = _chatting(base)
    places = {str(one["kebab"]): f"{base}/{one['prefix']}/{one['kebab']}" for one in agents or []}
    if is_closed(error) and (not agents or whole.rpartition("/")[0] in places.values()):
        return NotConnected(error.what, next_step=CLOSED, status=error.status)
    if not agents:
        return AgentError(
            error.what,
            next_step="Check the agent's name (class names are written-in-kebab-case): the server names its "
            "agents where it was started, and to nobody else.",
        )
    if whole in places.values():
        return AgentError(
            f"{whole} is an agent without a name.", next_step=f"Add one: everthink chat {whole}/default"
        )
    is_agent = prefix in {one["prefix"] for one in agents}
    near = nearest(asked, places)
    lines = [f"everthink chat {places[one]}/{name}" for one in sorted(places, key=lambda one: one != near)]
    return AgentError(
        f"There is no agent {asked!r} at {base}." if is_agent else f"There is no agent at {whole}.",
        next_step="\n  ".join(["Did you mean the first of these?" if near else "There are:", *lines]),
    )


def _nearest_child(error: NoSuchChild, url: str) -> NoSuchChild:
    """The same with the class of children that was meant, if the server tells."""
    from ..errors import NoSuchChild
    from ..settings import nearest

    parts = urlsplit(url)
    try:
        agents = known_agents(f"{parts.scheme}://{parts.netloc}") or []
    except OSError:
        agents = []
    near = nearest(error.kind, {str(child) for agent in agents for child in agent.get("children", ())})
    return NoSuchChild(error.kind, error.name, place=error.place, parent=error.parent, near=near)


def _check_chats(room: Conversation, url: str) -> None:
    """Say of an agent that has no conversation why nobody can talk to it."""
    from ..errors import AgentError

    if room.chats or not room.agent:  # a server that does not say who answers is heard to the end
        return
    parts = urlsplit(url)
    base = f"{parts.scheme.replace('ws', 'http', 1)}://{parts.netloc}"
    chatting = [f"everthink chat {base}/{one['prefix']}/{one['kebab']}/default" for one in _chatting(base)]
    there_are = "\n  ".join(["", "These chat:", *chatting]) if chatting else ""
    raise AgentError(
        f"{room.agent}/{room.name} does not chat: it is a plain Agent, with a state and methods of its own,"
        " and has no conversation.",
        next_step="Its methods are called from code, or by a client: room.call(…) of everthink.client."
        f" An agent that chats is a subclass of Think.{there_are}",
    )


def _chatting(base: str) -> list[dict[str, Any]]:
    """The agents of a server that chat, if it tells."""
    return [one for one in known_agents(base) or [] if one.get("chats") is not False]


def known_agents(base: str) -> list[dict[str, Any]] | None:
    """The agents of a server. A development server tells; others keep it to themselves."""
    from http.client import HTTPException
    from urllib.request import urlopen

    from ..client.received import agents_in
    from ..serving.page import AGENTS_LIST

    try:
        parts = urlsplit(base.replace("ws", "http", 1) if base.startswith("ws") else base)
        plain = f"{parts.scheme}://{parts.netloc}"  # it is told for all that is served there
        with urlopen(plain + AGENTS_LIST, timeout=5) as answer:
            return agents_in(answer)
    except (ValueError, LookupError, AttributeError, TypeError, RecursionError, HTTPException):
        return None
    except OSError as error:
        if getattr(error, "code", None):  # It answers, and does not tell.
            return None
        raise


def _first_agent(base: str) -> str:
    """The server's first agent."""
    from ..errors import AgentError

    try:
        found = known_agents(base)
    except OSError as error:
        raise AgentError(
            f"Nobody answers at {base}.", next_step="Start a server in another terminal: everthink dev"
        ) from error
    if not found:
        raise AgentError(
            f"{base} does not say which agents it has.",
            next_step="Name one that it said when it was started: everthink chat AGENT/NAME",
        )
    chatting = [one for one in found if one.get("chats") is not False]
    if not chatting:
        names = ", ".join(str(one["kebab"]) for one in found)
        raise AgentError(
            f"None of the agents at {base} chats: {names}.", next_step="One that does is a subclass of Think."
        )
    return f"{chatting[0]['prefix']}/{chatting[0]['kebab']}"
