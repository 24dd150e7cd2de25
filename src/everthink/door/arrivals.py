"""What of a chat window's list is taken: the new user messages at its end, and nothing else.

    ChatRequest --take--> Arrival --plan()--> the messages to store, and where

The journal is the only history. A window's idea of what the assistant, a tool or the system said is never
stored or shown to anybody; the answer that streams just now is put in its place from our own journal. A
message that comes back changed by the one who wrote it begins a branch; the one it came from stays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ..errors import InvalidMessage, InvalidTurn, SessionBusy, UnknownMessage
from ..identity import mark_of
from ..limits import Limits
from ..messages import UNSET, Message, Unset
from ..session import authors
from ..session.overlay import is_overlay
from ..session.queries import DEEPEST
from ..session.session import Session
from ..session.tree import Plan
from ..store.port import Statement
from ..turn.attempt import with_stamps
from ..turn.host import TurnHost
from .chat_request import ChatRequest
from .continuations import is_incomplete
from .spoken import check_sizes, checked_id, has_said_the_same, spoken

__all__ = ["Arrival", "take", "trailing"]


@dataclass(slots=True)
class Arrival:
    """What is taken of a request."""

    new: list[Message] = field(default_factory=list[Message])
    """The messages to store, one below the other."""
    below: str | Unset | None = UNSET
    """Where they hang: for one that was changed, below what it answered. Otherwise at the tip."""
    parent: str | Unset | None = UNSET
    """Where the answer hangs, for a regeneration."""
    statements: list[Statement] = field(default_factory=list[Statement])
    """What is written with them."""
    seen: set[str] = field(default_factory=set[str])
    """What the window has on its screen, by id."""
    has_answer: bool = False
    """True when it shows, before what is new, an answer that we have not stored."""
    in_sight: set[str] | None = None
    """What was in sight when it was decided that going back hides nobody's words; `None`: that is allowed."""
    plan: Callable[[], Plan] = Plan
    """What to write. Commit it without an await: a turn that runs may store its answer at any time."""
    dropped_messages: int = 0
    dropped_parts: int = 0

    @property
    def ids(self) -> list[str]:
        """The ids of the new messages."""
        return [message.id for message in self.new]


def trailing(messages: Sequence[Message]) -> list[str]:
    """The user messages at the end of the list."""
    return [message.id for message in _tail(messages)]


def _tail(messages: Sequence[Message]) -> list[Message]:
    tail: list[Message] = []
    for message in reversed(messages):
        if message.role != "user":
            break
        tail.append(message)
    return tail[::-1]


async def take(host: TurnHost, request: ChatRequest, *, regenerates: bool) -> Arrival:
    """Decide what of a request is taken. Raises what the window is told; then nothing is."""
    session, limits = host.session, host.limits
    await session.refresh()
    # A summary that comes back is ours. One of a person under such an id is refused below, with words.
    given = [m for m in request.messages if m.role == "user" or not is_overlay(m)]
    tail = _tail(given)
    known = await _known(session, [message.id for message in tail[-limits.new_messages - 1 :]])
    new = _new(tail, known, limits)
    arrival = Arrival(seen={message.id for message in given})
    arrival.plan = lambda: _planned(host, arrival)
    if regenerates:
        if new or not request.messages or not await session.has(session.row_id(request.messages[-1].id)):
            raise UnknownMessage(
                "There is no such message to answer again.", kept="The conversation is as it was."
            )
        arrival.parent = given[-1].id if given else session.row_id(request.messages[-1].id)
    before = given[-len(new) - 1] if new and len(given) > len(new) else None
    arrival.has_answer = before is not None and before.role == "assistant" and not session.is_known(before.id)
    for message in new:
        try:
            said, left_out = spoken(message, limits)
        except InvalidMessage:
            if message is new[-1]:
                raise
            arrival.dropped_messages += 1  # it was refused when it was sent; the window still lists it
            continue
        arrival.new.append(with_stamps(said, request.channel, request.metadata))
        arrival.dropped_parts += left_out
    if len(new) > 1:
        check_sizes(arrival.new, limits)
    if tail and not new:
        await _look_for_change(host, request, tail[-1], arrival, regenerates=regenerates)
    if not regenerates and not arrival.new and is_incomplete(session.leaf):
        raise InvalidTurn(
            "There is nothing new in this request, and a question is open.",
            kept="The question stays open.",
            next_step="Answer it, or write something.",
        )
    mark = mark_of(request.identity)
    if not request.may_clear:
        await _leave_others_in_sight(host, arrival, mark)
    if mark is not None:
        arrival.statements = [authors.wrote(id, author=mark) for id in arrival.ids]
    is_ours = int(arrival.has_answer and host.turns.answer is not None)
    arrival.dropped_messages += await _unread(session, given, {m.id for m in new}) - is_ours
    return arrival


def _new(tail: list[Message], known: set[str], limits: Limits) -> list[Message]:
    """The messages at the very end that we do not have."""
    new: list[Message] = []
    for message in reversed(tail):
        if message.id in known:
            break
        new.append(message)
        if len(new) > limits.new_messages:
            raise InvalidMessage("messages", f"has more than {limits.new_messages} new entries at its end")
    if len({message.id for message in new}) < len(new):
        raise InvalidMessage("messages", "has two new entries with one id")
    return new[::-1]


async def _known(session: Session, ids: list[str]) -> set[str]:
    """Those of `ids` that are on the path, being written, or left behind by somebody who went back.

    The last one is what is new: one of another branch under its id is refused by the commit.
    """
    found = {id for id in ids if session.is_known(id)}
    unseen = [id for id in (ids if session.is_partial else ids[:-1]) if id not in found]
    return found | await session.known(unseen)


async def _unread(session: Session, given: list[Message], new: set[str]) -> int:
    """How many messages of the list are neither ours nor taken."""
    strange = [m.id for m in given if m.id not in new and not session.is_known(m.id)]
    if strange and len(strange) <= 200:
        known = await session.known(strange)
        strange = [id for id in strange if id not in known]
    return len(strange)


async def _look_for_change(
    host: TurnHost, request: ChatRequest, last: Message, arrival: Arrival, *, regenerates: bool
) -> None:
    """The last message is one that we have. If its author changed it, it begins a branch."""
    checked_id(last.id, host.limits)
    known = host.session.find(last.id) or await host.session.get_message(last.id)
    if known is None or not last.parts or has_said_the_same(last, known):
        return
    said, left_out = spoken(last, host.limits)
    if has_said_the_same(said, known):
        return
    if known.role != "user" or await _author(host, last.id) != mark_of(request.identity):
        if regenerates:
            arrival.dropped_messages += 1  # it is answered as it was said
            return
        raise InvalidMessage("message.id", "is that of another message, which only its author may change")
    changed = Message(host.new_id(), "user", said.parts, said.metadata)
    arrival.new = [with_stamps(changed, request.channel, request.metadata)]
    arrival.below = await host.session.get_parent(last.id)
    arrival.parent = UNSET
    arrival.dropped_parts += left_out


async def _leave_others_in_sight(host: TurnHost, arrival: Arrival, mark: str | None) -> None:
    """Raise when a branch would take what others said since out of everybody's sight."""
    parent = arrival.parent if isinstance(arrival.below, Unset) else arrival.below
    if isinstance(parent, Unset):
        return
    # From the database: what a summary covers and what is out of memory is in sight too.
    path = await host.session.get_history_row_stats()
    arrival.in_sight = {row.id for row in path}
    stays = set[str]()
    if parent is not None:
        stays = {row.id for row in await host.session.get_history_row_stats(host.session.row_id(parent))}
    hidden = [row.id for row in path if row.role == "user" and row.id not in stays]
    is_longer = len(path) > DEEPEST and path[0].id not in stays  # than anybody reads
    if is_longer or any(author != mark for author in await authors.authors_of(host.store, hidden)):
        raise _others_have_written()


def _others_have_written() -> InvalidTurn:
    return InvalidTurn(
        "Others have written since, and going back would take that out of sight.",
        kept="The conversation is as it was.",
        next_step="Ask anew at its end.",
    )


async def _author(host: TurnHost, id: str) -> str | None:
    return (await authors.authors_of(host.store, [id]))[0]


def _planned(host: TurnHost, arrival: Arrival) -> Plan:
    session = host.session
    turns = host.turns
    taken = {turn.message_id for turn in turns} | {m.id for turn in turns for m in turn.input}
    if any(id in taken or session.is_known(id) for id in arrival.ids):
        raise InvalidMessage("message.id", "is that of another message")
    if arrival.in_sight is not None:
        said = {m.id for m in session.path if m.role == "user" and not is_overlay(m)}
        if host.turns.arriving or said - arrival.in_sight:
            raise _others_have_written()  # while it was decided
    if not isinstance(arrival.below, Unset):
        if turns or host.turns.arriving:
            raise SessionBusy(
                "An earlier message cannot be changed while a turn runs or waits.",
                kept="The conversation is as it was.",
                next_step="Wait for its end, or stop it, and send the change again.",
            )
        return session.plan_append(arrival.new, arrival.below)
    return session.plan_append([*_answer_so_far(host, arrival), *arrival.new], is_new=True)


def _answer_so_far(host: TurnHost, arrival: Arrival) -> list[Message]:
    """The answer that streams, if the window has seen it: what is said next belongs after it."""
    running = host.turns.answer
    if running is None or not arrival.new or not running.has_content or host.session.is_known(running.id):
        return []
    turn = next((turn for turn in host.turns if turn.message_id == running.id), None)
    if turn is None or not isinstance(turn.parent, Unset):
        return []  # it has a place of its own
    leaf = host.session.leaf
    goes_on = turn.continuation and leaf is not None and leaf.id in arrival.seen
    return [running.message()] if arrival.has_answer or goes_on else []
