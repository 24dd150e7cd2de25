"""Pick up turns that were cut off, within bounds; give up the others where everybody sees it.

    turn/attempt --decide--> journal + incident --> go on | start over | end

The decision is `incident.evaluate`; here it is carried out. A turn keeps its row, its request id,
its stream and its message however often it is cut off, so there is nothing to reconcile: the next
chunk has the next number. Every step is one commit, and may itself be cut off.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any

import msgspec

from ..backoff import backoff
from ..calling import ask, call_hook
from ..clock import moment_of
from ..errors import CommitRefused, StoreError, TurnGivenUp, is_elsewhere
from ..hooks.values import TurnStatus
from ..journal import queries as turns
from ..journal import turn_rows
from ..journal.feed import (
    ChunksStored,
    FeedEvent,
    HistoryChanged,
    RecoveryChanged,
    RunTold,
    TurnEnded,
)
from ..journal.interactions import is_pending
from ..journal.read import Below, Journal, keep_answer, last_chunk
from ..journal.turn import SUBMITTED, Turn
from ..journal.turn_input import schema_of
from ..masking import mask
from ..messages import Part, copy_json, decode_json, is_tool_part, text_of
from ..observe.events import (
    ChatRecoveryAttempt,
    ChatRecoveryCompleted,
    ChatRecoveryDetected,
    ChatRecoveryExhausted,
    ChatRecoveryFailed,
    ChatRecoveryScheduled,
    ChatRecoverySkipped,
)
from ..settings import as_settings
from ..store.port import Statement
from ..turn.ending import (
    Explained,
    close,
    end_unstarted,
    end_where_cut,
    explain,
    finish_failing,
    read_again,
)
from ..turn.host import TurnHost
from ..turn.outcome import Outcome, Postponed, reason_of
from ..turn.start_over import start_over
from . import queries
from .aside import SET_ASIDE_TEXT, UNREADABLE_TEXT, put_aside, tell_aside
from .context import ChatRecoveryContext, RecoveryDecision
from .incident import (
    INCIDENT_TTL_MS,
    TERMINAL_MESSAGE,
    ChatRecovery,
    Exhausted,
    ExhaustedReason,
    Incident,
    KeepRecovering,
    Kind,
    evaluate,
    incident_id,
    progress_of,
    settings_of,
)
from .suspects import STRIKES, Suspect
from .trials import Trial, Trials

__all__ = ["DECLINED_TEXT", "RECOVERING_TTL_MS", "RESTED", "Recovering", "Recovery"]

log = logging.getLogger("everthink.recovery")

RESTED = "rested"
"""Under this name an agent keeps which turns left memory while all they did was wait for a person."""
SUBMISSION_TEXT = "Submission was interrupted after messages were applied."
DECLINED_TEXT = "The answer was interrupted and is not continued."
RECOVERING_TTL_MS = 15 * 60 * 1000
"""A recovery that takes longer than this is not announced to those who connect."""
POSTPONED_BY = 3.0
FIRST_RETRY = 30.0
LONGEST_RETRY = 300.0
AGAIN = 1.0
"""Seconds until a turn that could not be read is tried again; twice as many each time."""
LONGEST_AGAIN = 30.0


class Recovering(msgspec.Struct, frozen=True):
    """That a turn is being recovered, and since when (ms)."""

    request_id: str
    at: int


class Recovery:
    """Recovers the turns of one agent."""

    __slots__ = ("_failures", "_given_up", "_host", "_incidents", "_trials", "recovering")

    def __init__(self, host: TurnHost, trials: Trials) -> None:
        self._host, self._trials = host, trials
        self.recovering: Recovering | None = None
        """The turn that was cut off and is to go on, if any."""
        # The incidents of turns that are being recovered.
        self._incidents: dict[str, Incident] = {}
        # How often the store has failed, in a row, while a turn was being picked up.
        self._failures: dict[str, int] = {}
        # Turns that are given up, with the words for it: they are asked for once, though the end may fail.
        self._given_up: dict[str, Explained] = {}

    @property
    def settings(self) -> ChatRecovery | None:
        """The agent's settings now; `None` when recovery is off."""
        return settings_of(self._host.hooks.agent.chat_recovery)

    @property
    def is_on(self) -> bool:
        """False when the agent wants interrupted turns to fail."""
        return self.settings is not None

    @property
    def patience(self) -> float:
        """Seconds an interrupted turn waits for its place in the queue."""
        return (self.settings or ChatRecovery()).stable_timeout

    # --- a turn is cut off

    def interrupt(self, turn: Turn) -> None:
        """A turn was cut off and is to go on: tell those who wait for it."""
        turn.is_interrupted = True
        self._announce(turn)

    def _announce(self, turn: Turn) -> None:
        if self.recovering is None and self.is_on:
            self.recovering = Recovering(turn.request_id, self._host.clock.now_ms())
            self._host.feed.publish(RecoveryChanged(turn, True))

    async def decide(self, turn: Turn) -> Outcome | Postponed | None:
        """Decide about a turn that was cut off. `None`: it goes on, from `turn.journal`.

        Only a store that is closed, or another's by now, raises: the agent stops.
        """
        try:
            outcome = await self._try(turn)
        except StoreError as error:
            if is_elsewhere(error):
                raise
            return await self._unreached(turn, error)
        self._failures.pop(turn.id, None)
        return outcome

    async def _try(self, turn: Turn) -> Outcome | Postponed | None:
        """An attempt, counted before anything of the turn is read: it may be what took the process down."""
        host = self._host
        last_seq = await last_chunk(host.store, turn.id)
        trial = await self._trials.begin(host.id, turn.id, said=last_seq, what=f"{turn.trigger} turn")
        if trial.is_aside:
            return await self._set_aside(turn, trial.suspect)
        try:
            outcome = await self._decide(turn)
            if outcome is None and trial.suspect.strikes >= STRIKES:
                await self._keep_so_far(turn)
        except StoreError:
            await self._trials.undo(trial)
            raise
        except Exception as error:  # noqa: BLE001 - told: what cannot be read today cannot be read tomorrow
            return await self._set_aside(turn, trial.suspect, error)
        if isinstance(outcome, Postponed):
            await self._trials.undo(trial)
        elif outcome is None:
            self._watch(turn, trial)
        return outcome

    async def _decide(self, turn: Turn) -> Outcome | Postponed | None:
        if turn.failing is not None:
            turn.is_interrupted = False
            return await finish_failing(self._host, turn, turn.failing)
        journal = await self._read(turn)
        turn.is_interrupted = False
        # Whoever answers one of its calls meanwhile finds it here.
        turn.fold = journal.fold
        return await self._decide_from(turn, journal)

    async def _keep_so_far(self, turn: Turn) -> None:
        """Before the last try, put what was said and done into the conversation: set aside, nobody reads it
        any more, and what its calls have done would be known to nobody."""
        host, journal = self._host, turn.journal
        if turn.continuation or turn.question is None or journal is None or not journal.fold.has_content:
            return
        await host.session.refresh()
        if host.generation != turn.generation:
            return
        said = journal.fold.message()
        said = said.with_parts(copy_json(said.parts))
        waiting = host.turns.waiting_messages(turn)
        await host.session.write(keep_answer(host.session, said, turn.parent, waiting))

    def _watch(self, turn: Turn, trial: Trial) -> None:
        """Let the next suspect go as soon as this turn has said something, or is over.

        One that waits for a child takes nothing down, and the child may be a suspect that waits for a place.
        """
        calls = turn.journal.calls if turn.journal is not None else {}

        def see(shown: FeedEvent) -> None:
            if isinstance(shown, ChunksStored | TurnEnded) and shown.turn is turn:
                self._trials.lives(trial)
                leave()
            elif isinstance(shown, RunTold) and shown.call_id in calls:
                leave()
                self._host.background(self._trials.undo(trial))

        leave = self._host.feed.join(see)

    async def _decide_from(self, turn: Turn, journal: Journal) -> Outcome | Postponed | None:
        host = self._host
        if turn.signal.aborted:
            return await end_where_cut(self._host, turn, journal, "aborted", reason_of(turn))
        if turn.has_rested and turn.journal is None:
            return await self._wake_up(turn, journal)
        settings = self.settings
        if settings is None:
            text = SUBMISSION_TEXT if turn.trigger in SUBMITTED else TERMINAL_MESSAGE
            return await self._fail(turn, journal, TurnGivenUp(text, "recovery_off"))
        incident, reason = await self._assess(turn, journal, settings)
        if reason is not None:
            return await self._give_up(turn, journal, incident, reason, settings)
        try:
            decision = await self._unless_stopped(turn, self._ask(turn, journal, incident))
        except Exception as error:  # noqa: BLE001 - the turn is kept and comes again
            return await self._hook_failed(turn, incident, error)
        if decision is None or turn.signal.aborted:  # while the hook was asked
            return await end_where_cut(self._host, turn, journal, "aborted", reason_of(turn))
        if not decision.continue_:
            return await self._decline(turn, journal, incident, keeps=decision.persist)
        if not decision.persist and journal.next_seq and not journal.has_settled_results:
            journal = await start_over(self._host, turn)
            turn.fold = journal.fold
        try:
            await self._scheduled(turn, incident)
        except CommitRefused:
            return await self._cancelled(turn, journal)
        turn.journal = journal
        log.info("turn %s of %s goes on (%s, attempt %d)", turn.id, host.id, incident.kind, incident.attempt)
        return None

    async def _wake_up(self, turn: Turn, journal: Journal) -> Outcome | None:
        """A turn that left memory while it waited for a person goes on: it was not interrupted."""
        host = self._host
        try:
            await host.store.apply([turns.picked_up(turn.id), host.save_value(RESTED, None)])
        except CommitRefused:
            return await self._cancelled(turn, journal)
        turn.journal = journal
        return None

    async def _cancelled(self, turn: Turn, journal: Journal) -> Outcome:
        """It was cancelled at this very moment: the row is over already."""
        return await end_where_cut(self._host, turn, journal, "aborted", reason_of(turn))

    async def _read(self, turn: Turn) -> Journal:
        return await read_again(self._host, turn)

    async def _assess(
        self, turn: Turn, journal: Journal, settings: ChatRecovery
    ) -> tuple[Incident, ExhaustedReason | None]:
        host, now = self._host, self._host.clock.now_ms()
        id = incident_id(turn.request_id, self._asked_by(turn))
        await host.store.apply([queries.forget_old_incidents(before=now - INCIDENT_TTL_MS)])
        rows = await host.store.fetch(queries.ONE, id)
        kind: Kind = "continue" if journal.fold.has_content else "retry"
        below = Below() if host.below is None else await host.below(turn.id)
        assessment = evaluate(
            queries.incident_of(rows[0]) if rows else None,
            id=id,
            request_id=turn.request_id,
            kind=kind,
            progress=progress_of(journal.segments),
            now=now,
            settings=settings,
            awaiting=below.is_asking or self._awaits_person(turn, journal),
            worked_at=below.worked_at,
        )
        incident, reason = assessment.incident, assessment.exhausted
        await host.store.apply([queries.save_incident(incident)])
        self._incidents[turn.id] = incident
        if assessment.is_new:
            host.emit(ChatRecoveryDetected(**_fields(incident)))
        host.emit(ChatRecoveryAttempt(**_fields(incident)))
        if assessment.asks_policy and not await self._may_go_on(incident, settings, now):
            reason = "recovery_aborted"
        return incident, reason

    def _asked_by(self, turn: Turn) -> str | None:
        """The latest user message the turn answers."""
        session = self._host.session
        path = (session.up_to(turn.question) if turn.question else None) or session.path
        return next((m.id for m in reversed(path) if m.role == "user"), None)

    def _awaits_person(self, turn: Turn, journal: Journal) -> bool:
        """True when all that is open is a question to a person or a browser."""
        browser = {*turn.client_tools, *(n for n, t in self._host.own_tools().items() if not t.has_body)}
        waiting = [p for p in journal.fold.parts if is_tool_part(p) and is_pending(p, browser)]
        running = [row for row in journal.calls.values() if row.state == "started"]
        return bool(waiting) and not running

    async def _may_go_on(self, incident: Incident, settings: ChatRecovery, now: int) -> bool:
        assert settings.should_keep_recovering is not None
        question = KeepRecovering(
            incident_id=incident.id,
            request_id=incident.request_id,
            recovery_root_request_id=incident.request_id,
            attempt=incident.attempt,
            max_attempts=incident.max_attempts,
            recovery_kind=incident.kind,
            work=incident.work,
            age=(now - incident.first_seen_at) / 1000,
        )
        try:
            asked = settings.should_keep_recovering
            return await ask("should_keep_recovering", asked, question) is not False
        except Exception as error:  # noqa: BLE001 - a broken policy must not cost anybody an answer
            self._host.hooks.log_error("chat_recovery.should_keep_recovering", error)
            return True

    async def _unless_stopped(
        self, turn: Turn, asking: Coroutine[Any, Any, RecoveryDecision]
    ) -> RecoveryDecision | None:
        """What the hook says; `None` when somebody stops the turn first, which does not wait for it."""
        asked, stopped = asyncio.ensure_future(asking), asyncio.ensure_future(turn.signal.wait())
        try:
            await asyncio.wait([asked, stopped], return_when=asyncio.FIRST_COMPLETED)
            return asked.result() if asked.done() else None
        finally:
            stopped.cancel()
            if not asked.done():
                asked.cancel()
                self._host.background(asked)

    async def _ask(self, turn: Turn, journal: Journal, incident: Incident) -> RecoveryDecision:
        host = self._host
        if not host.hooks.overrides("on_chat_recovery"):
            return RecoveryDecision()
        stash = await self._stashed(turn)
        await host.session.refresh()
        parts = copy_json(journal.fold.message().parts)
        context = ChatRecoveryContext(
            incident_id=incident.id,
            attempt=incident.attempt,
            max_attempts=incident.max_attempts,
            recovery_kind=incident.kind,
            stream_id=turn.id if journal.next_seq else "",
            request_id=turn.request_id,
            recovery_root_request_id=turn.request_id,
            partial_text=text_of(parts),
            partial_parts=parts,
            recovery_data=stash,
            messages=[m.copy() for m in host.session.path if m.id != turn.message_id],
            created_at=moment_of(turn.created_at),
            last_body=turn.body,
            last_client_tools=[schema_of(tool) for tool in turn.client_tools.values()] or None,
        )
        answer = await host.hooks.on_chat_recovery(context)
        if answer is None:
            return RecoveryDecision()
        return as_settings(RecoveryDecision, answer, "What on_chat_recovery returned")

    async def _stashed(self, turn: Turn) -> Any:
        text = await turn_rows.stash_of(self._host.store, turn.id)
        try:
            return None if text is None else decode_json(text)
        except msgspec.DecodeError:
            log.warning("what turn %s stashed is not readable and is ignored: %.80s", turn.id, text)
            return None

    # --- it goes on

    async def _scheduled(self, turn: Turn, incident: Incident) -> None:
        host = self._host
        incident = self._incidents[turn.id] = replace(incident, status="scheduled", reason=None)
        await host.store.apply([turns.picked_up(turn.id), queries.save_incident(incident)])
        self._announce(turn)
        host.emit(ChatRecoveryScheduled(**_fields(incident)))

    async def _forget_copy(self, turn: Turn) -> None:
        """Remove the answer as far as a chat window has posted it with its next message."""
        session = self._host.session
        if await session.has(turn.message_id):
            await session.delete_messages([turn.message_id])
            self._host.feed.publish(HistoryChanged())

    async def _hook_failed(self, turn: Turn, incident: Incident, error: Exception) -> Postponed:
        host = self._host
        host.hooks.log_error("on_chat_recovery", error)
        text = mask(str(error)) or type(error).__name__
        incident = self._incidents[turn.id] = replace(incident, status="failed", reason=text)
        await host.store.apply([queries.save_incident(incident)])
        host.emit(ChatRecoveryFailed(**_fields(incident), reason=text))
        turn.is_interrupted = True
        return Postponed(backoff(incident.attempt, first=FIRST_RETRY, most=LONGEST_RETRY))

    async def queue_timeout(self, turn: Turn) -> Outcome | Postponed:
        """The turn waited for its place in vain: it comes again, or is given up after too many times."""
        try:
            return await self._postpone_or_give_up(turn)
        except StoreError as error:
            if is_elsewhere(error):
                raise
            return await self._unreached(turn, error)

    async def _postpone_or_give_up(self, turn: Turn) -> Outcome | Postponed:
        host, settings = self._host, self.settings or ChatRecovery()
        id = incident_id(turn.request_id, self._asked_by(turn))
        rows = await host.store.fetch(queries.ONE, id)
        now = host.clock.now_ms()
        known = queries.incident_of(rows[0]) if rows else None
        incident = known or self._blank(turn, id, settings)
        incident = replace(
            incident,
            attempt=incident.attempt + 1,
            status="scheduled",
            last_attempt_at=now,
            reason="stable_timeout_retry",
        )
        self._incidents[turn.id] = incident
        if incident.attempt > settings.max_attempts:
            return await self._give_up(turn, await self._read(turn), incident, "stable_timeout", settings)
        await host.store.apply([queries.save_incident(incident)])
        host.emit(ChatRecoveryScheduled(**_fields(incident)))
        return Postponed(POSTPONED_BY)

    def _blank(self, turn: Turn, id: str, settings: ChatRecovery) -> Incident:
        """The incident of a turn that nothing is known of yet."""
        now = self._host.clock.now_ms()
        return Incident(
            id=id,
            request_id=turn.request_id,
            kind="retry",
            attempt=0,
            max_attempts=settings.max_attempts,
            status="scheduled",
            first_seen_at=now,
            last_attempt_at=now,
            last_progress_at=now,
        )

    async def _unreached(self, turn: Turn, error: StoreError) -> Outcome | Postponed:
        """The store failed: the turn comes again, so often and no more. Then it is set aside, and told."""
        host, settings = self._host, self.settings or ChatRecovery()
        failures = self._failures[turn.id] = self._failures.get(turn.id, 0) + 1
        log.error("turn %s of %s cannot be picked up (%d)", turn.id, host.id, failures, exc_info=error)
        known = self._incidents.get(turn.id)
        known = known or self._blank(turn, incident_id(turn.request_id, None), settings)
        incident = self._incidents[turn.id] = replace(known, attempt=max(known.attempt, failures))
        host.emit(ChatRecoveryFailed(**_fields(incident), reason=str(error)))
        turn.fold, turn.is_interrupted = None, True
        if failures <= settings.max_attempts:
            return Postponed(backoff(failures, first=AGAIN, most=LONGEST_AGAIN))
        self._incidents[turn.id] = incident = replace(incident, status="exhausted", reason="recovery_error")
        await self._tell_exhausted(turn, None, incident, "recovery_error", settings)
        now = host.clock.now_ms()
        suspect = Suspect(agent=host.id, turn=turn.id, first_at=moment_of(now), last_at=moment_of(now))
        try:
            return await self._set_aside(turn, suspect, error)
        except StoreError as broken:
            if is_elsewhere(broken):
                raise
            log.error("turn %s stays open in the database; the next start takes it up: %s", turn.id, broken)
            explained = self._given_up[turn.id]
            close(host, TurnEnded(turn, "error", explained.shown, streamed=False))
            return Outcome(turn, "error", error=error, text=explained.text, stage="recovery")

    # --- it does not

    async def _give_up(
        self,
        turn: Turn,
        journal: Journal,
        incident: Incident,
        reason: ExhaustedReason,
        settings: ChatRecovery,
    ) -> Outcome:
        self._incidents[turn.id] = incident = replace(incident, status="exhausted", reason=reason)
        await self._tell_exhausted(turn, journal, incident, reason, settings)
        return await self._fail(turn, journal, TurnGivenUp(settings.terminal_message, reason))

    async def _tell_exhausted(
        self,
        turn: Turn,
        journal: Journal | None,
        incident: Incident,
        reason: ExhaustedReason,
        settings: ChatRecovery,
    ) -> None:
        host = self._host
        if turn.id in self._given_up:
            return  # it was told so; only its end could not be written
        host.emit(ChatRecoveryExhausted(**_fields(incident), reason=reason))
        if settings.on_exhausted is None:
            return
        parts: list[Part] = copy_json(journal.fold.message().parts) if journal is not None else []
        context = Exhausted(
            incident_id=incident.id,
            request_id=turn.request_id,
            recovery_root_request_id=turn.request_id,
            attempt=incident.attempt,
            max_attempts=incident.max_attempts,
            recovery_kind=incident.kind,
            stream_id=turn.id if journal is not None and journal.next_seq else "",
            created_at=moment_of(turn.created_at),
            partial_text=text_of(parts),
            partial_parts=parts,
            reason=reason,
            terminal_message=settings.terminal_message,
        )
        try:
            await call_hook(settings.on_exhausted, context)
        except Exception as error:  # noqa: BLE001 - people must be told all the same
            host.hooks.log_error("chat_recovery.on_exhausted", error)

    async def _decline(self, turn: Turn, journal: Journal, incident: Incident, *, keeps: bool) -> Outcome:
        host = self._host
        self._incidents[turn.id] = replace(incident, status="skipped", reason="continue_disabled")
        keeps = keeps or journal.has_settled_results
        if not keeps:
            await self._forget_copy(turn)
        await host.session.refresh()
        leaf = host.session.leaf
        if leaf is not None and leaf.role == "assistant" and leaf.id not in (turn.question, turn.message_id):
            # The hook has brought the answer from elsewhere.
            return await end_where_cut(self._host, turn, journal, "completed", None, keeps=keeps)
        return await self._fail(turn, journal, TurnGivenUp(DECLINED_TEXT, "declined"), keeps=keeps)

    async def _set_aside(self, turn: Turn, suspect: Suspect, error: Exception | None = None) -> Outcome:
        """End a turn without reading what is stored of it. It is kept, and may be released."""
        host = self._host
        if host.generation != turn.generation:
            return await end_unstarted(host, turn, "skipped")
        text = SET_ASIDE_TEXT if error is None else UNREADABLE_TEXT
        explained = await self._explained(turn, TurnGivenUp(text, "set_aside"))
        turn.is_interrupted = False
        aside = put_aside(host, self._trials, turn.id, suspect, explained.text, error)
        await host.store.apply([*aside, host.last_failure.note_turn(turn, explained.shown)])
        tell_aside(host, turn.id, turn.request_id, suspect, error)
        await host.session.refresh()
        if is_stored := host.session.is_known(turn.message_id):
            host.feed.publish(HistoryChanged(turn, "answer"))
        close(host, TurnEnded(turn, "error", explained.shown, streamed=False, stored=is_stored))
        return Outcome(turn, "error", error=error, text=explained.text, stage="recovery")

    async def _explained(self, turn: Turn, error: TurnGivenUp) -> Explained:
        """Ask `on_chat_error` for its words, once."""
        explained = self._given_up.get(turn.id)
        if explained is None:
            explained = self._given_up[turn.id] = await explain(
                self._host, error, "recovery", turn.request_id, turn.is_applied, identity=turn.identity
            )
        return explained

    async def _fail(self, turn: Turn, journal: Journal, error: TurnGivenUp, *, keeps: bool = True) -> Outcome:
        """End a turn that does not go on, with the words that `on_chat_error` has for it."""
        explained = await self._explained(turn, error)
        outcome = await end_where_cut(
            self._host, turn, journal, "error", explained.text, shown=explained.shown, keeps=keeps
        )
        outcome.error, outcome.stage = explained.error, "recovery"
        return outcome

    # --- the turn ends

    def closing(self, turn: Turn, status: TurnStatus) -> list[Statement]:
        """What to write together with the end of a turn."""
        host, incident = self._host, self._incidents.get(turn.id)
        passing = self._trials.passing(host.id, turn.id)
        if incident is None:
            return passing
        if status == "completed" and incident.status not in ("skipped", "exhausted"):
            return [*passing, queries.forget_incident(incident.id)]
        return [*passing, queries.save_incident(self._closed_as(incident, status))]

    def _closed_as(self, incident: Incident, status: TurnStatus) -> Incident:
        if incident.status in ("exhausted", "skipped"):
            return incident
        if status == "completed":
            return replace(incident, status="completed")
        return replace(incident, status="skipped" if status == "skipped" else "failed", reason=status)

    def closed(self, turn: Turn, status: TurnStatus) -> None:
        """The turn's end is durable: tell how its recovery ended."""
        host, incident = self._host, self._incidents.pop(turn.id, None)
        self._failures.pop(turn.id, None)
        self._given_up.pop(turn.id, None)
        self._trials.passed(host.id, turn.id)
        if incident is not None:
            ended = self._closed_as(incident, status)
            match ended.status:
                case "completed":
                    host.emit(ChatRecoveryCompleted(**_fields(ended)))
                case "skipped":
                    host.emit(ChatRecoverySkipped(**_fields(ended), reason=ended.reason))
                case "failed":
                    host.emit(ChatRecoveryFailed(**_fields(ended), reason=ended.reason))
                case _:
                    pass
        if self.recovering is not None and self.recovering.request_id == turn.request_id:
            self.recovering = None
            host.feed.publish(RecoveryChanged(turn, False))


def _fields(incident: Incident) -> dict[str, Any]:
    return {
        "incident_id": incident.id,
        "request_id": incident.request_id,
        "attempt": incident.attempt,
        "max_attempts": incident.max_attempts,
        "recovery_kind": incident.kind,
    }
