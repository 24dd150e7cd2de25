"""Turns that code asks for: save_messages, chat, continue_last_turn, regenerate, run_turn.

Think.save_messages, … --> Programmatic --Turn--> door/admission
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, cast

from ..abort import AbortSignal
from ..calling import call_hook
from ..errors import InvalidTurn, UnknownMessage
from ..hooks.values import TurnResult
from ..journal.interactions import is_pending
from ..journal.turn import Turn
from ..messages import Message, Part, as_messages, json_object, tool_name
from ..settings import check_call
from ..surface import check_function
from ..tools.collect import check_client_tools, client_tools_from
from ..tools.tool import Tool
from ..turn.attempt import with_stamps
from ..turn.host import TurnHost
from .admission import Door
from .answers import Answers
from .browser import Browser
from .chat_stream import ChatStream, Prepared
from .submission import Submission
from .submissions import Submissions

__all__ = ["Programmatic"]

log = logging.getLogger("everthink.turn")


class Programmatic:
    """What code may ask of one agent's conversation. `Think` says what each one means."""

    __slots__ = ("_answers", "_browser", "_door", "_host", "_submissions")

    def __init__(
        self, host: TurnHost, door: Door, browser: Browser, answers: Answers, submissions: Submissions
    ) -> None:
        self._host, self._door, self._browser = host, door, browser
        self._answers, self._submissions = answers, submissions

    async def save(
        self,
        messages: Any,
        *,
        signal: AbortSignal | None = None,
        channel: str | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> TurnResult:
        """Add messages and answer them."""
        self._door.refuse_nested("programmatic")
        metadata = json_object(metadata, "metadata")
        turn = self._door.new_turn(
            "programmatic",
            **self._input("save_messages", messages, channel, metadata),
            body=self._browser.body,
            channel=channel,
            metadata=metadata,
        )
        return await (await self._door.admit(turn, external=signal)).result()

    def stream(
        self,
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
        """Answer a message, streaming."""
        if tools is not None:
            log.warning("chat(tools=...) is ignored: define tools on %s.", self._host.hooks.cls.__name__)

        async def prepare() -> Prepared:
            self._door.refuse_nested("rpc")
            marks = json_object(metadata, "metadata")
            turn = self._door.new_turn(
                "rpc",
                **self._input("chat", given, channel, marks),
                client_tools=_own_client_tools(client_tools, on_client_tool_call),
                channel=channel,
                metadata=marks,
            )
            return self._prepared(turn, signal)

        return ChatStream(prepare, callback)

    def go_on(self, body: dict[str, Any] | None = None, *, signal: AbortSignal | None = None) -> ChatStream:
        """Let the model go on after its last message."""

        async def prepare() -> Prepared | TurnResult:
            self._door.refuse_nested("programmatic")
            await self._host.session.refresh()
            leaf = self._host.session.leaf
            if leaf is None or leaf.role != "assistant":
                return TurnResult("", "skipped", continuation=True)
            self._refuse_unanswered(leaf)
            turn = self._door.new_turn(
                "programmatic",
                continuation=True,
                body=json_object(body, "body") if body is not None else self._browser.body,
                client_tools=self._browser.client_tools(),
            )
            turn.tools_by = self._browser.tools_by
            turn.gate = self.still_goes_on
            return self._prepared(turn, signal)

        return ChatStream(prepare, raises=True)

    async def still_goes_on(self) -> bool | str:
        """Asked when the time of a continuation has come, also of one that an earlier process had queued.

        Another may have gone on first, and asked the next question: the answer was to the one before.
        """
        await self._host.session.refresh()
        leaf = self._host.session.leaf
        if leaf is None or self._unanswered(leaf) is None:
            return True
        return "The last answer waits for a person by now; the question stays open."

    def regenerate(self, message_id: str | None = None, *, signal: AbortSignal | None = None) -> ChatStream:
        """Answer again."""

        async def prepare() -> Prepared:
            self._door.refuse_nested("programmatic")
            await self._host.session.refresh()
            turn = self._door.new_turn(
                "programmatic", parent=self._question_before(message_id), body=self._browser.body
            )
            return self._prepared(turn, signal)

        return ChatStream(prepare, raises=True)

    async def run(
        self,
        given: Any,
        *,
        mode: Literal["wait", "submit", "stream"],
        continuation: bool,
        **options: Any,
    ) -> TurnResult | Submission:
        """One of the above, or a submission, by `mode`. `options` are those of `Think.run_turn`."""
        _check_run(given, mode, continuation, options.get("callback"))
        way = "continuation" if continuation else mode
        _refuse_unused(options, way)
        taken = {name: options[name] for name in _TAKEN[way]}
        if continuation:
            return await self.go_on(**taken)
        is_empty = isinstance(given, str | list | tuple) and not given
        if mode == "submit":
            return await self._submissions.accept([] if is_empty else cast("Any", given), **taken)
        if mode == "stream":
            if is_empty:
                return await ChatStream(_nothing, taken["callback"])
            return await self.stream(given, **taken)
        return TurnResult("", "skipped") if is_empty else await self.save(given, **taken)

    # ---

    def _input(
        self, call: str, given: Any, channel: str | None, metadata: dict[str, Any] | None
    ) -> dict[str, Any]:
        check_call(call, channel=channel)
        if callable(given):
            return {"compute_input": given}
        messages = as_messages(given, new_id=self._host.new_id)
        return {"input": [with_stamps(m, channel, metadata) for m in messages]}

    def _prepared(self, turn: Turn, signal: AbortSignal | None) -> Prepared:
        return Prepared(
            turn,
            self._host.feed,
            lambda: self._door.admitting(turn, external=signal),
            lambda: self._host.aborts.remove(turn.request_id),
        )

    def _refuse_unanswered(self, leaf: Message) -> None:
        """Going on would answer for the person: the call is taken as one that was interrupted."""
        if (asked := self._unanswered(leaf)) is not None:
            call = asked.get("toolCallId")
            is_approval = asked.get("state") == "approval-requested"
            waits = "an approval" if is_approval else "the result of a client tool"
            raise InvalidTurn(
                f"The last answer waits for {waits}, of the call {call!r} of {tool_name(asked)!r}.",
                kept="Nothing was asked; the question stays open.",
                next_step=f"Answer it: apply_tool_approval({call!r}, True)"
                f" or apply_tool_result({call!r}, …).",
            )

    def _unanswered(self, leaf: Message) -> Part | None:
        names = self._answers.browser_tools()
        return next((part for part in leaf.parts if is_pending(part, names)), None)

    def _question_before(self, message_id: str | None) -> str:
        """The id of the message that the answer `message_id` (or the last one) follows."""
        session = self._host.session
        path = list(session.path)
        if message_id is None:
            while path and path[-1].role == "assistant":
                path.pop()
        else:
            index = next((i for i, m in enumerate(path) if m.id == message_id), None)
            if index is None:
                raise UnknownMessage(
                    f"regenerate: message {message_id!r} is not in the conversation.",
                    kept="Nothing was changed.",
                )
            path = path[:index]
        if not path:
            raise InvalidTurn("regenerate: there is no message to answer.", kept="Nothing was changed.")
        return session.row_of(path[-1])


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
