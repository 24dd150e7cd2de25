"""The turn APIs: what a developer may ask of an agent, put into words admission understands.

Think.save_messages, chat, run_turn, add_messages, … --> here --> turn/admission, session/
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, cast

from ..abort import AbortSignal
from ..calling import call_hook
from ..current import in_active_turn
from ..door.chat_stream import ChatStream, Prepared
from ..door.submissions import SKIPPED_TEXT, Submission
from ..errors import InvalidTurn, UnknownMessage
from ..hooks.values import TurnResult
from ..identity import mark_of
from ..journal import queries
from ..journal.feed import (
    Cleared,
    HistoryChanged,
    MessageUpdated,
)
from ..journal.interactions import (
    holder_of,
    is_pending,
    with_approval,
    with_result,
)
from ..journal.ledger import is_open
from ..journal.read import read_journal
from ..journal.turn import Turn
from ..json_values import plain_json, without_objects
from ..messages import (
    UNSET,
    Message,
    Part,
    Unset,
    as_messages,
    copy_json,
    encode_json,
    json_object,
    tool_name,
)
from ..models.classify import default_context_overflow_classifier
from ..observe.events import MessageClear, ToolApproval, ToolResult
from ..session.attachments import read_attachment
from ..session.repair import as_interrupted
from ..session.summary import model_summarizer
from ..session.tree import Plan
from ..settings import check_call, setting
from ..store.port import Statement
from ..surface import check_function
from ..tools.collect import as_tools, check_client_tools, client_tools_from
from ..tools.tool import Tool
from ..turn.attempt import with_stamps
from ..turn.model_timeout import Patient
from .actor import Actor

__all__ = [
    "add",
    "apply_approval",
    "apply_result",
    "as_interrupted",
    "clear",
    "config_of",
    "configure",
    "default_kind",
    "generate_text",
    "go_on",
    "is_waiting_for_person",
    "read_attachment",
    "regenerate",
    "reset",
    "run_turn",
    "save",
    "stream",
    "until_stable",
]

log = logging.getLogger("everthink.turn")

RESET = "Turn state reset"


def _input(
    home: Actor, call: str, given: Any, channel: str | None, metadata: dict[str, Any] | None
) -> dict[str, Any]:
    check_call(call, channel=channel)
    if callable(given):
        return {"compute_input": given}
    messages = as_messages(given, new_id=home.new_id)
    return {"input": [with_stamps(m, channel, metadata) for m in messages]}


# --- turns


async def save(
    home: Actor,
    messages: Any,
    *,
    signal: AbortSignal | None = None,
    channel: str | None = None,
    metadata: dict[str, Any] | None = None,
) -> TurnResult:
    """See `Think.save_messages`."""
    home.door.refuse_nested("programmatic")
    metadata = json_object(metadata, "metadata")
    turn = home.door.new_turn(
        "programmatic",
        **_input(home, "save_messages", messages, channel, metadata),
        body=home.last_body,
        channel=channel,
        metadata=metadata,
    )
    return await (await home.door.admit(turn, external=signal)).result()


def go_on(
    home: Actor, body: dict[str, Any] | None = None, *, signal: AbortSignal | None = None
) -> ChatStream:
    """See `Think.continue_last_turn`."""

    async def prepare() -> Prepared | TurnResult:
        home.door.refuse_nested("programmatic")
        await home.session.refresh()
        leaf = home.session.leaf
        if leaf is None or leaf.role != "assistant":
            return TurnResult("", "skipped", continuation=True)
        _refuse_unanswered(home, leaf)
        turn = home.door.new_turn(
            "programmatic",
            continuation=True,
            body=json_object(body, "body") if body is not None else home.last_body,
            client_tools=client_tools_from(home.open_tools),
        )
        turn.tools_by = home.tools_by
        return _prepared(home, turn, signal)

    return ChatStream(prepare, raises=True)


def _refuse_unanswered(home: Actor, leaf: Message) -> None:
    """Going on would answer for the person: the call is taken as one that was interrupted."""
    names = _browser_tools(home)
    asked = next((part for part in leaf.parts if is_pending(part, names)), None)
    if asked is not None:
        call = asked.get("toolCallId")
        waits = "an approval" if asked.get("state") == "approval-requested" else "the result of a client tool"
        raise InvalidTurn(
            f"The last answer waits for {waits}, of the call {call!r} of {tool_name(asked)!r}.",
            kept="Nothing was asked; the question stays open.",
            next_step=f"Answer it: apply_tool_approval({call!r}, True) or apply_tool_result({call!r}, …).",
        )


def _prepared(home: Actor, turn: Turn, signal: AbortSignal | None) -> Prepared:
    return Prepared(
        turn,
        home.feed,
        lambda: home.door.admitting(turn, external=signal),
        lambda: home.aborts.remove(turn.request_id),
    )


def regenerate(
    home: Actor, message_id: str | None = None, *, signal: AbortSignal | None = None
) -> ChatStream:
    """See `Think.regenerate`."""

    async def prepare() -> Prepared:
        home.door.refuse_nested("programmatic")
        await home.session.refresh()
        turn = home.door.new_turn(
            "programmatic",
            parent=_question_before(home, message_id),
            body=home.last_body,
        )
        return _prepared(home, turn, signal)

    return ChatStream(prepare, raises=True)


def _question_before(home: Actor, message_id: str | None) -> str:
    """The id of the message that the answer `message_id` (or the last one) follows."""
    path = list(home.session.path)
    if message_id is None:
        while path and path[-1].role == "assistant":
            path.pop()
    else:
        place = next((i for i, m in enumerate(path) if m.id == message_id), None)
        if place is None:
            raise UnknownMessage(
                f"regenerate: message {message_id!r} is not in the conversation.", kept="Nothing was changed."
            )
        path = path[:place]
    if not path:
        raise InvalidTurn("regenerate: there is no message to answer.", kept="Nothing was changed.")
    return home.session.row_of(path[-1])


def stream(
    home: Actor,
    given: Any,
    *,
    callback: Any = None,
    signal: AbortSignal | None = None,
    client_tools: Sequence[Mapping[str, Any]] | None = None,
    on_client_tool_call: Callable[..., Any] | None = None,
    channel: str | None = None,
    metadata: dict[str, Any] | None = None,
    tools: Any = None,
) -> ChatStream:
    """See `Think.chat`."""
    if tools is not None:
        log.warning("chat(tools=...) is ignored: define tools on %s.", home.cls.__name__)

    async def prepare() -> Prepared:
        home.door.refuse_nested("rpc")
        marks = json_object(metadata, "metadata")
        turn = home.door.new_turn(
            "rpc",
            **_input(home, "chat", given, channel, marks),
            client_tools=_own_client_tools(client_tools, on_client_tool_call),
            channel=channel,
            metadata=marks,
        )
        return _prepared(home, turn, signal)

    return ChatStream(prepare, callback)


def _own_client_tools(schemas: Any, answer: Callable[..., Any] | None) -> dict[str, Tool]:
    """Client tools of one `chat()`; with `answer` they are run by whoever called it."""
    given = list(schemas or [])
    check_client_tools(given)
    declared = client_tools_from(given)
    if answer is None:
        return declared
    check_function("on_client_tool_call", answer, ("name", "input", "call_id"))
    return {name: _answered(tool, answer) for name, tool in declared.items()}


def _answered(tool: Tool, answer: Callable[..., Any]) -> Tool:
    async def execute(input: dict[str, Any], ctx: Any) -> Any:
        return await call_hook(answer, tool.name, input, ctx.tool_call_id)

    return Tool.from_schema(tool.name, tool.description, tool.input_schema, execute)


async def run_turn(
    home: Actor,
    given: Any,
    *,
    mode: Literal["wait", "submit", "stream"],
    continuation: bool,
    callback: Any,
    signal: AbortSignal | None,
    channel: str | None,
    metadata: dict[str, Any] | None,
    body: dict[str, Any] | None,
    submission_id: str | None,
    idempotency_key: str | None,
    client_tools: Any,
    on_client_tool_call: Any,
) -> TurnResult | Submission:
    """See `Think.run_turn`."""
    _check_run(given, mode, continuation, callback)
    options = {
        "callback": callback,
        "signal": signal,
        "channel": channel,
        "metadata": metadata,
        "body": body,
        "submission_id": submission_id,
        "idempotency_key": idempotency_key,
        "client_tools": client_tools,
        "on_client_tool_call": on_client_tool_call,
    }
    _refuse_unused(options, "continuation" if continuation else mode)
    if continuation:
        return await go_on(home, body, signal=signal)
    is_empty = isinstance(given, str | list | tuple) and not given
    if mode == "submit":
        return await home.submissions.accept(
            [] if is_empty else cast("Any", given),
            submission_id=submission_id,
            idempotency_key=idempotency_key,
            metadata=metadata,
            channel=channel,
        )
    if mode == "stream":
        if is_empty:
            return await ChatStream(_nothing, callback)
        return await stream(
            home,
            given,
            callback=callback,
            signal=signal,
            client_tools=client_tools,
            on_client_tool_call=on_client_tool_call,
            channel=channel,
            metadata=metadata,
        )
    if is_empty:
        return TurnResult("", "skipped")
    return await save(home, given, signal=signal, channel=channel, metadata=metadata)


async def _nothing() -> TurnResult:
    return TurnResult("", "skipped")


_TAKEN = {
    "wait": ("signal", "channel", "metadata"),
    "continuation": ("signal", "body"),
    "submit": ("submission_id", "idempotency_key", "channel", "metadata"),
    "stream": ("callback", "signal", "channel", "metadata", "client_tools", "on_client_tool_call"),
}
"""Which options each way to run a turn makes use of."""


def _refuse_unused(options: Mapping[str, Any], way: str) -> None:
    for name, value in options.items():
        if value is not None and name not in _TAKEN[way]:
            takers = [repr(other) for other in ("wait", "submit", "stream") if name in _TAKEN[other]]
            needs = f"mode {' or '.join(takers)}" if takers else "continuation=True"
            with_ = "continuation=True" if way == "continuation" else f"mode {way!r}"
            raise InvalidTurn(
                f"run_turn: {name} has no effect with {with_}.",
                kept="Nothing was stored.",
                next_step=f"It goes with {needs}; or leave it out.",
            )


def _check_run(given: Any, mode: Any, continuation: bool, callback: Any) -> None:
    if mode not in ("wait", "submit", "stream"):
        raise InvalidTurn(f"run_turn: mode must be 'wait', 'submit' or 'stream', not {mode!r}.")
    if continuation and mode != "wait":
        raise InvalidTurn(f"run_turn: continuation works with mode 'wait' only, not {mode!r}.")
    if mode == "stream" and callback is None:
        raise InvalidTurn("run_turn: mode 'stream' needs a callback.", next_step="Or iterate over chat().")
    if mode == "wait" and given is None and not continuation:
        raise InvalidTurn("run_turn: give either input or continuation=True.")
    if given is not None and continuation:
        raise InvalidTurn("run_turn: give input or continuation=True, not both.")
    if mode != "wait" and given is None:
        raise InvalidTurn(f"run_turn: mode {mode!r} needs input.")
    if mode == "submit" and callable(given):
        raise InvalidTurn("run_turn: mode 'submit' cannot take a function input: it could not be stored.")


# --- stopping


async def reset(home: Actor) -> None:
    """See `Think.reset_turn_state`."""
    stopped = queries.all_stopped(home.id, reason=RESET)
    rows = await home.store.apply([_stop(home), stopped, home.continuations.forget()])
    await home.submissions.skipped([row[0] for row in rows[0] if row[1] == "submission"])


def _stop(home: Actor) -> Statement:
    """Stop what runs and what waits. The statement ends the rows of the latter."""
    home.queue.reset()
    home.aborts.abort_all(RESET)
    home.overlaps.reset()
    return queries.skipped(home.id, error=SKIPPED_TEXT, now=home.clock.now_ms())


async def clear(home: Actor) -> None:
    """See `Think.clear_messages`."""
    # One commit, asked for in one breath: what was accepted before it goes, what comes after it stays.
    forget = home.save_value("lastFailure", None)
    home.last_failure = None
    running = home.door.running
    stopped = [_stop(home), home.continuations.forget()]
    commit = [*stopped, *home.session.plan_clear(), *queries.forgotten(home.id), forget]
    commit += home.trials.dropping(home.id)
    try:
        rows = await home.store.apply(commit)
    except BaseException:
        home.session.fail()
        raise
    home.session.confirm_clear()
    home.converter.forget()
    home.words.forget()
    await home.session.refresh_system_prompt("cleared")
    home.cleaning.ask(running)
    home.feed.publish(Cleared())
    home.emit(MessageClear())
    await home.submissions.skipped([row[0] for row in rows[0] if row[1] == "submission"])


# --- the conversation without a turn


async def add(
    home: Actor,
    messages: Any,
    *,
    parent_id: str | Unset | None = UNSET,
    mode: Literal["append", "upsert"] = "append",
    broadcast: bool = True,
) -> tuple[str, ...]:
    """See `Think.add_messages`."""
    if mode not in ("append", "upsert"):
        raise InvalidTurn(f"add_messages: mode must be 'append' or 'upsert', not {mode!r}.")
    session = home.session
    await session.refresh()
    if callable(messages):
        messages = messages([message.copy() for message in session.path])
        if inspect.isawaitable(messages):
            messages = await messages
    given = as_messages(messages, new_id=home.new_id)
    if isinstance(parent_id, str):
        await session.require(parent_id, what="add_messages: parent_id")
    if not given:
        return ()
    known = {message.id for message in given if await session.has(message.id)}
    plan = Plan()
    # A known message keeps its place; what follows it in the list hangs below it.
    above = parent_id
    for message in given:
        if message.id in known:
            step = session.plan_update(message) if mode == "upsert" else Plan()
        else:
            step = session.plan_append([message], above)
        plan.statements += step.statements
        plan.writes += step.writes
        above = message.id
    if plan.statements:
        await session.write(plan)
        home.evictor.start_pass()
        await session.compact_if_due()
    if broadcast and not in_active_turn(home.id):
        home.feed.publish(HistoryChanged())
    return tuple(plan.cut)


# --- interactions


def is_waiting_for_person(home: Actor) -> bool:
    """See `Think.has_pending_interaction`."""
    browser = _browser_tools(home)
    parts: list[Part] = list(home.inflight.parts) if home.inflight else []
    for message in home.session.path:
        if message.role == "assistant":
            parts += message.parts
    return any(is_pending(part, browser) for part in parts)


def _browser_tools(home: Actor) -> list[str]:
    """The names of the tools that run where the person is."""
    browser = [schema["name"] for schema in home.open_tools]
    browser += [name for name, tool in home.own_tools().items() if not tool.has_body]
    more = home.agent.get_tools()
    if inspect.isawaitable(more):
        cast("Any", more).close()  # asked for without waiting: only what is declared at once counts
    else:
        browser += [name for name, tool in as_tools(more).items() if not tool.has_body]
    return browser


async def until_stable(home: Actor, timeout: float | None) -> bool:
    """See `Think.wait_until_stable`."""
    check_call("wait_until_stable", timeout=timeout)
    if timeout is None:
        home.door.refuse_waiting("wait_until_stable")
    changed = asyncio.Event()
    leave = home.feed.join(lambda _: changed.set())
    settled = asyncio.ensure_future(_settled(home, changed))
    limits = [] if timeout is None else [asyncio.ensure_future(home.clock.sleep(max(0.0, timeout)))]
    try:
        await asyncio.wait([settled, *limits], return_when=asyncio.FIRST_COMPLETED)
        return settled.done()
    finally:
        leave()
        for task in (settled, *limits):
            task.cancel()


async def _settled(home: Actor, changed: asyncio.Event) -> None:
    while True:
        changed.clear()
        await home.queue.wait_for_idle()
        waits = home.continuations.pending is not None or bool(home.door.turns) or is_waiting_for_person(home)
        if not waits:
            return
        await changed.wait()


async def apply_result(
    home: Actor,
    call_id: str,
    output: Any,
    *,
    is_error: bool = False,
    error_text: str | None = None,
    more: Sequence[Statement] = (),
    is_strangers: bool = False,
    by: Any = None,
) -> bool:
    """See `Think.apply_tool_result`. `more` rides in the commit that settles the call.

    `is_strangers`: a client says so, and it counts only for a browser's call that the ledger holds as asked,
    and that is theirs to answer. `by` is who said so, as JSON.
    """
    check_call("apply_tool_result", tool_call_id=call_id)
    is_strangers = is_strangers and not home.trusts_clients
    if is_strangers and not await is_open(home, call_id, in_browser=True, by=mark_of(by)):
        return False
    changed = await _apply(
        home,
        call_id,
        lambda parts: with_result(
            parts,
            call_id,
            output=output,
            is_error=is_error,
            error_text=error_text,
            is_strangers=is_strangers,
        ),
        "failed" if is_error else "done",
        more,
    )
    if changed is not None:
        home.emit(ToolResult(tool_call_id=call_id, tool_name=changed))
    return changed is not None


async def apply_approval(
    home: Actor,
    call_id: str,
    approved: bool,
    *,
    reason: str | None = None,
    more: Sequence[Statement] = (),
    is_strangers: bool = False,
    by: Any = None,
) -> bool:
    """See `Think.apply_tool_approval`. `more` rides in the commit that keeps the answer.

    `is_strangers`: a client says so, and it counts only for a call that the ledger holds as asking.
    `by` is who said so, as JSON: the call runs in their name.
    """
    check_call("apply_tool_approval", tool_call_id=call_id)
    if not isinstance(cast("object", approved), bool):
        raise InvalidTurn(
            f"apply_tool_approval: `approved` is True or False, not {approved!r}.",
            kept="The question is still open.",
        )
    if approved and by is not None:
        more = [queries.approved_by(home.id, call_id, who=encode_json(by).decode()), *more]
    is_strangers = is_strangers and not home.trusts_clients
    if is_strangers and not await is_open(home, call_id, in_browser=False):
        return False
    changed = await _apply(
        home,
        call_id,
        lambda parts: with_approval(
            parts, call_id, approved=approved, reason=reason, is_strangers=is_strangers
        ),
        "approved" if approved else "denied",
        more,
    )
    if changed is not None:
        home.emit(ToolApproval(tool_call_id=call_id, approved=approved))
    return changed is not None


async def _apply(
    home: Actor,
    call_id: str,
    change: Callable[[Sequence[Part]], list[Part] | None],
    state: queries.CallState,
    more: Sequence[Statement],
) -> str | None:
    """Change a call's part, in the message being streamed or a stored one. Its tool's name, or `None`."""
    ledger = [
        queries.approved(home.id, call_id)
        if state == "approved"
        else queries.settled(home.id, call_id, state=state, now=home.clock.now_ms())
    ]
    if home.inflight is not None and (part := home.inflight.call(call_id)) is not None:
        parts = change([part])
        if parts is None:
            return None
        # The turn stores its message with this part when it ends; until then the ledger keeps the answer.
        answer = encode_json(parts[0]).decode()
        now = home.clock.now_ms()
        part.clear()
        part.update(copy_json(parts[0]))
        kept = queries.answered(home.id, call_id, answer=answer, state=state, now=now)
        await home.store.apply([kept, *more])
        home.feed.publish(MessageUpdated(home.inflight.message()))
        return str(part.get("toolName", ""))
    await home.session.refresh()
    holder = holder_of(reversed(home.session.path), call_id)
    if holder is not None:
        return await _rewritten(home, holder, call_id, change, [*ledger, *more])
    if home.session.is_partial:
        async with home.session.rewriting:
            holder = await home.session.find_call(call_id)
            if holder is not None:
                return await _rewritten(home, holder, call_id, change, [*ledger, *more])
    return await _apply_to_cut_off(home, call_id, change, state, more)


async def _rewritten(
    home: Actor,
    holder: Message,
    call_id: str,
    change: Callable[[Sequence[Part]], list[Part] | None],
    more: Sequence[Statement],
) -> str | None:
    """Store a message whose call was changed. The name of the call's tool, or `None`: nothing changes."""
    parts = change(holder.parts)
    if parts is None:
        return None
    message = Message(holder.id, holder.role, parts, holder.metadata, createdAt=holder.createdAt)
    plan = home.session.plan_update(message)
    home.session.apply_early(message)
    await home.session.write(plan, *more)
    home.feed.publish(MessageUpdated(message))
    return next(str(p.get("toolName", "")) for p in parts if p.get("toolCallId") == call_id)


async def _apply_to_cut_off(
    home: Actor,
    call_id: str,
    change: Callable[[Sequence[Part]], list[Part] | None],
    state: queries.CallState,
    more: Sequence[Statement],
) -> str | None:
    """Change a call of a turn that was cut off and does not go on yet: the ledger keeps the answer."""
    for turn in home.door.turns:
        if not turn.is_interrupted:
            continue
        journal = await read_journal(
            home, turn.id, message_id=turn.message_id, continuation=turn.continuation
        )
        part = journal.fold.call(call_id)
        parts = None if part is None else change([part])
        if part is None or parts is None:
            continue
        answer, now = encode_json(parts[0]).decode(), home.clock.now_ms()
        await home.store.apply(
            [queries.answered(home.id, call_id, answer=answer, state=state, now=now), *more]
        )
        part.update(parts[0])
        live = home.inflight.call(call_id) if home.inflight is not None else None
        if live is not None:  # it went on while this was written
            live.update(copy_json(parts[0]))
        home.feed.publish(MessageUpdated(journal.fold.message()))
        return str(part.get("toolName", ""))
    return None


async def generate_text(home: Actor, prompt: str, system: str, model: Any) -> str:
    """See `Think.generate_text`."""
    chosen = await home.resolve_model(await call_hook(home.agent.get_model) if model is None else model)
    asked = Patient(chosen, setting(home.agent, "model_timeout"), home.clock)
    return await model_summarizer(asked, system=system)(prompt)


def default_kind(error: BaseException) -> str | None:
    """See `Think.classify_chat_error`."""
    return default_context_overflow_classifier(error)


# --- configuration


async def configure(home: Actor, config: Any) -> None:
    """See `Think.configure`."""
    config = plain_json(without_objects(config), "config", "configure")
    await home.store.apply([home.save_value("config", config)])
    home.config = config


def config_of(home: Actor) -> Any:
    """See `Think.get_config`."""
    return copy_json(home.config)
