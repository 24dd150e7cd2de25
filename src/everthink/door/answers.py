"""Answers to calls that wait for a person: a browser tool's result, an approval.

    server/asking, Think.apply_tool_result --> Answers --> the call's part and its row in the ledger

The call may be in a message that streams, in a stored one, or in one that was cut off and does not go on yet.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import msgspec

from ..current import in_active_turn
from ..errors import InvalidTurn
from ..identity import Approver, mark_of
from ..journal import queries
from ..journal.feed import MessageUpdated
from ..journal.interactions import holder_of, is_pending, with_approval, with_result
from ..journal.ledger import Asking, asks_again, is_open, question_of
from ..journal.read import Journal, read_journal
from ..journal.turn import Turn
from ..messages import Message, Part, copy_json, encode_json
from ..observe.events import ToolApproval, ToolResult
from ..settings import check_call
from ..store.port import Statement
from ..tools.collect import as_tools
from ..tools.question import Given, LiveQuestion, as_shown, read_answer, yes_to
from ..turn.host import TurnHost
from .browser import Browser

__all__ = ["Answers", "Stranger"]

log = logging.getLogger("everthink.turn")

Change = Callable[[Sequence[Part]], list[Part] | None]
"""New parts with the answer in them; `None` when no call waits for it."""

SETTLES_MS = 1000
"""So old a question has to be that is not its call's first, before a client can have meant it that does not
say which it answers: a second click, and what a window had kept while it was away, meant the one before."""


@dataclass(frozen=True, slots=True)
class Stranger:
    """A client that answers: nothing it says is believed that the ledger does not confirm."""

    since: int
    """When its window came (ms)."""
    question: str | None = None
    """The id of the question that it answers, if it says so."""


def _named(stranger: Stranger | None, asked: str | None) -> str | None:
    """The question that an answer names, whoever gives it."""
    return asked if stranger is None else stranger.question


class Answers:
    """What is said about the open calls of one agent. `Think` says what each method means."""

    __slots__ = ("_browser", "_host")

    def __init__(self, host: TurnHost, browser: Browser) -> None:
        self._host, self._browser = host, browser

    # --- what is open

    def is_waiting_for_person(self) -> bool:
        """True when a call waits for a person: an approval, or a tool in their browser."""
        browser, answer = self.browser_tools(), self._host.turns.answer
        parts: list[Part] = list(answer.parts) if answer else []
        for message in self._host.session.path:
            if message.role == "assistant":
                parts += message.parts
        return any(is_pending(part, browser) for part in parts)

    def browser_tools(self) -> list[str]:
        """The names of the tools that run where the person is."""
        names = [schema["name"] for schema in self._browser.tools]
        names += [name for name, tool in self._host.own_tools().items() if not tool.has_body]
        more = self._host.hooks.agent.get_tools()
        if inspect.isawaitable(more):
            cast("Any", more).close()  # asked for without waiting: only what is declared at once counts
        else:
            names += [name for name, tool in as_tools(more).items() if not tool.has_body]
        return names

    def is_live(self, call_id: str) -> bool:
        """True when a call that runs waits for this answer: then no other turn has to go on with it."""
        return call_id in (self._host.questions or {})

    async def part_of(self, call_id: str) -> Part | None:
        """A call as the conversation shows it, the answer that streams, or one that was cut off."""
        host = self._host
        if (answer := host.turns.answer) is not None and (part := answer.call(call_id)) is not None:
            return part
        await host.session.refresh()
        if (holder := await host.session.find_call(call_id)) is not None:
            return next(part for part in holder.parts if part.get("toolCallId") == call_id)
        for turn in host.turns:
            if turn.is_interrupted:
                journal = await self._journal_of(turn)
                if (part := journal.fold.call(call_id)) is not None:
                    return part
        return None

    async def is_question(self, call_id: str) -> bool:
        """True when a tool itself asks this, and nobody has answered yet."""
        return self.is_live(call_id) or await question_of(self._host.store, call_id) is not None

    # --- answers

    async def apply_result(
        self,
        call_id: str,
        output: Any,
        *,
        is_error: bool = False,
        error_text: str | None = None,
        more: Sequence[Statement] = (),
        stranger: Stranger | None = None,
        asked: str | None = None,
        by: Any = None,
    ) -> bool:
        """Settle a call that ran elsewhere. `more` rides in the commit that settles it, and `asked` is the id
        of the question that is answered.

        `stranger`: a client says so, and it counts only for a browser's call that the ledger holds as
        asked, and that is theirs to answer. `by` is who said so, as JSON.
        """
        host = self._host
        check_call("apply_tool_result", tool_call_id=call_id, asked=asked)
        asked = _named(stranger, asked)
        if (live := (host.questions or {}).get(call_id)) is not None and not is_error:
            given = read_answer(live.forms, output)
            return self._answer_live(call_id, live, given, stranger=stranger, asked=asked)
        question = await question_of(host.store, call_id)
        if question is not None and not is_error:
            given = read_answer(question.forms, output)
            approver = None if by is None else Approver(identity=by)
            return await self._answer(
                call_id, question, given, more, stranger=stranger, asked=asked, by=approver
            )
        if stranger is not None and not await is_open(host.store, call_id, in_browser=True, by=mark_of(by)):
            return False
        changed = await self._apply(
            call_id,
            lambda parts: with_result(
                parts,
                call_id,
                output=output,
                is_error=is_error,
                error_text=error_text,
                is_strangers=stranger is not None,
            ),
            "failed" if is_error else "done",
            more,
        )
        if changed is not None:
            host.emit(ToolResult(tool_call_id=call_id, tool_name=changed))
        return changed is not None

    async def apply_approval(
        self,
        call_id: str,
        approved: bool,
        *,
        reason: str | None = None,
        more: Sequence[Statement] = (),
        stranger: Stranger | None = None,
        asked: str | None = None,
        by: Any = None,
        approver: Approver | None = None,
    ) -> bool:
        """Answer a call that asked for approval. `more` rides in the commit that keeps the answer. `asked` is
        the id of the question that is meant: a call that asks another by now does not take it.

        `stranger`: a client says so, and it counts only for a call that the ledger holds as asking.
        `by` is who said so, as JSON: the call runs in their name. `approver`: somebody in a messenger.
        """
        host = self._host
        check_call("apply_tool_approval", tool_call_id=call_id, asked=asked)
        asked = _named(stranger, asked)
        if not isinstance(cast("object", approved), bool):
            raise InvalidTurn(
                f"apply_tool_approval: `approved` is True or False, not {approved!r}.",
                kept="The question is still open.",
            )
        if (live := (host.questions or {}).get(call_id)) is not None:
            declined = {name: Given("decline") for name in live.forms}
            given = yes_to(live.forms) if approved else declined
            return self._answer_live(call_id, live, given, stranger=stranger, asked=asked)
        approver = Approver(identity=by) if approver is None and by is not None else approver
        question = await question_of(host.store, call_id) if approved else None
        if question is not None:
            given = yes_to(question.forms)
            return await self._answer(
                call_id, question, given, more, stranger=stranger, asked=asked, by=approver
            )
        return await self._approve(
            call_id, approved, reason, more, stranger=stranger, asked=asked, by=approver
        )

    def _answer_live(
        self,
        call_id: str,
        live: LiveQuestion,
        given: dict[str, Given] | str,
        *,
        stranger: Stranger | None,
        asked: str | None,
    ) -> bool:
        """Hand an answer to the call that waits for it."""
        if isinstance(given, str):
            return self._refused(call_id, given, stranger=stranger)
        if live.answered.done() or not self._is_meant(call_id, live.id, stranger, asked):
            return False
        live.answered.set_result(given)
        answer = self._host.turns.answer
        part = None if answer is None else answer.call(call_id)
        shown = as_shown(given)
        parts = None if part is None else with_approval([part], call_id, approved=True, answers=shown)
        if answer is not None and part is not None and parts is not None:
            part |= parts[0]
            self._host.feed.publish(MessageUpdated(answer.message()))
        return True

    def _is_meant(self, call_id: str, id: str | None, stranger: Stranger | None, asked: str | None) -> bool:
        """False when somebody may mean what the call asked before. `id`: of what it asks now, if known."""
        if asked is not None:
            return id is None or asked == id
        if stranger is None:
            return True
        again = self._host.asked_again.get(call_id)
        if id is not None and again is None:
            return True  # the first that a running call asks
        return self._host.clock.now_ms() - max(again or 0, stranger.since) >= SETTLES_MS

    def _refused(self, call_id: str, why: str, *, stranger: Stranger | None) -> bool:
        if stranger is None:
            raise InvalidTurn(
                f"The answer to {call_id!r} cannot be used. {why}", kept="The question is still open."
            )
        log.info("%s: an answer to %s is not taken: %s", self._host.id, call_id, why)
        return False

    async def _answer(
        self,
        call_id: str,
        question: Asking,
        given: dict[str, Given] | str,
        more: Sequence[Statement],
        *,
        stranger: Stranger | None,
        asked: str | None,
        by: Approver | None,
    ) -> bool:
        """Keep what somebody answered to the question of a tool, which then goes on in their name."""
        if isinstance(given, str):
            return self._refused(call_id, given, stranger=stranger)
        kept = encode_json(msgspec.structs.replace(question, answers=given)).decode()
        more = [queries.question_answered(call_id, question=kept), *more]
        return await self._approve(
            call_id, True, None, more, answers=as_shown(given), stranger=stranger, asked=asked, by=by
        )

    async def _approve(
        self,
        call_id: str,
        approved: bool,
        reason: str | None,
        more: Sequence[Statement],
        *,
        answers: dict[str, Any] | None = None,
        stranger: Stranger | None,
        asked: str | None,
        by: Approver | None,
    ) -> bool:
        host = self._host
        if approved and by is not None:
            more = [queries.approved_by(call_id, who=encode_json(by.as_json()).decode()), *more]
        if stranger is not None and not await is_open(host.store, call_id, in_browser=False):
            return False
        again = stranger is not None and await asks_again(host.store, call_id)
        if again and not self._is_meant(call_id, None, stranger, asked):
            return False
        changed = await self._apply(
            call_id,
            lambda parts: with_approval(
                parts,
                call_id,
                approved=approved,
                reason=reason,
                answers=answers,
                is_strangers=stranger is not None,
                to=asked,
            ),
            "approved" if approved else "denied",
            more,
        )
        if changed is not None:
            host.asked_again.pop(call_id, None)
            host.emit(ToolApproval(tool_call_id=call_id, approved=approved))
        return changed is not None

    async def _apply(
        self, call_id: str, change: Change, state: queries.CallState, more: Sequence[Statement]
    ) -> str | None:
        """Change a call's part, wherever it is. The name of its tool, or `None`: no call waits for that."""
        host = self._host
        for turn in list(host.turns):
            # What it has said is in no stream any more and no message yet. A hook of its end must not wait.
            if turn.ending is not None and not in_active_turn(host.id):
                await turn.ending.wait()
        answer = host.turns.answer
        if answer is not None and (part := answer.call(call_id)) is not None:
            parts = change([part])
            if parts is None:
                return None
            # The turn stores its message with this part when it ends; until then the ledger keeps the answer.
            kept = self._answered(call_id, parts[0], state)
            part.clear()
            part.update(copy_json(parts[0]))
            await host.store.apply([kept, *more])
            host.feed.publish(MessageUpdated(answer.message()))
            return str(part.get("toolName", ""))
        settled = (
            queries.approved(call_id)
            if state == "approved"
            else queries.settled(call_id, state=state, now=host.clock.now_ms())
        )
        # One after the other: each answer changes the message as the one before it has left it, also if the
        # conversation has to be read again in between.
        async with host.session.rewriting:
            await host.session.refresh()
            holder = holder_of(reversed(host.session.path), call_id)
            if holder is None and host.session.is_partial:
                holder = await host.session.find_call(call_id)
            if holder is not None:
                return await self._rewrite(holder, call_id, change, [settled, *more])
        return await self._apply_to_cut_off(call_id, change, state, more)

    async def _rewrite(
        self, holder: Message, call_id: str, change: Change, more: Sequence[Statement]
    ) -> str | None:
        """Store a message whose call was answered. The name of its tool, or `None`: nothing changes."""
        session, parts = self._host.session, change(holder.parts)
        if parts is None:
            return None
        message = holder.with_parts(parts)
        plan = session.plan_update(message)
        session.apply_early(message)
        await session.write(plan, *more)
        self._host.feed.publish(MessageUpdated(message))
        return next(str(p.get("toolName", "")) for p in parts if p.get("toolCallId") == call_id)

    async def _apply_to_cut_off(
        self, call_id: str, change: Change, state: queries.CallState, more: Sequence[Statement]
    ) -> str | None:
        """Change a call of a turn that was cut off and does not go on yet: the ledger keeps the answer."""
        host = self._host
        for turn in host.turns:
            if not turn.is_interrupted:
                continue
            journal = await self._journal_of(turn)
            part = journal.fold.call(call_id)
            parts = None if part is None else change([part])
            if part is None or parts is None:
                continue
            await host.store.apply([self._answered(call_id, parts[0], state), *more])
            part.update(parts[0])
            answer = host.turns.answer
            live = answer.call(call_id) if answer is not None else None
            if live is not None:  # it went on while this was written
                live.update(copy_json(parts[0]))
            host.feed.publish(MessageUpdated(journal.fold.message()))
            return str(part.get("toolName", ""))
        return None

    async def _journal_of(self, turn: Turn) -> Journal:
        return await read_journal(
            self._host.store, turn.id, message_id=turn.message_id, continuation=turn.continuation
        )

    def _answered(self, call_id: str, part: Part, state: queries.CallState) -> Statement:
        host, answer = self._host, encode_json(part).decode()
        return queries.answered(call_id, answer=answer, state=state, now=host.clock.now_ms())
