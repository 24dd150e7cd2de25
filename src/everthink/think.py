"""`Think`: the chat agent. What may be asked of one; the machinery is in the rooms it delegates to.

save_messages, chat, submit_messages, … --> door/ --> turn/ --> session/
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from .agent import Agent
from .chat_hooks import Hooks
from .current import current_call, current_connection
from .messages import UNSET, Message, MessageInput, Unset
from .tools.collect import collect_tools

if TYPE_CHECKING:
    from .abort import AbortSignal
    from .deliveries.courier import Courier
    from .door.chat_stream import ChatStream, StreamCallback
    from .door.stopping import Stop
    from .door.submission import Status, Submission
    from .extensions.manager import ExtensionManager
    from .hooks.values import TurnResult
    from .journal.turn import InputFunction
    from .messengers.values import Attachment, MessengerContext
    from .models.port import Model
    from .runtime.chat import Chat, Degradation
    from .schedules.tasks import Tasks
    from .session.session import Session
    from .session.sessions import Sessions

    Input = MessageInput | Sequence[MessageInput] | InputFunction

__all__ = ["Think"]


class Think(Agent, Hooks):
    """A chat agent that remembers. Subclass it and override what you need.

        class Support(Think):
            model = "anthropic:claude-sonnet-5"

            @tool
            async def refund(self, order: str, amount: float) -> str:
                "Refund an order."

            async def before_tool_call(self, call):
                if call.name == "refund" and call.input["amount"] > 100:
                    return Block("Refunds above 100 need a person.")

    Hooks run on every turn, whichever door it came through, in the order below; each may be
    `def` or `async def`. A plain `def` hook runs on the event loop: keep it short.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Check the tools of a new agent class, so that a mistake shows where it was made."""
        classifier: Any = cls.__dict__.get("classify_chat_error")
        if getattr(classifier, "__name__", "") == "default_context_overflow_classifier":
            cls.classify_chat_error = staticmethod(classifier)  # assigned as it is: it wants no agent
        super().__init_subclass__(**kwargs)
        collect_tools(cls)

    # --- declared tasks

    async def reconcile_scheduled_tasks(self) -> None:
        """Read the declared tasks again, because something they depend on changed. Raises their mistakes."""
        await _declared(self).reconcile()

    async def _run_scheduled_task(self, payload: Any) -> None:
        await _declared(self).run(payload)

    def get_on_start_degradations(self) -> list[Degradation]:
        """The steps of this start that failed without keeping the agent from serving."""
        return list(_chat(self).degradations)

    @property
    def extension_manager(self) -> ExtensionManager:
        """Its extensions: load, list and unload them while it runs."""
        return _chat(self).extensions.manager

    # --- turns

    async def save_messages(
        self,
        messages: Input,
        *,
        signal: AbortSignal | None = None,
        channel: str | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> TurnResult:
        """Add messages and answer them; returns when the turn ended.

        A function is called inside the turn with the messages at that moment. If the caller stops
        waiting, the turn goes on. A turn that could not be set up raises; an answer that broke off
        returns status `"error"`.
        """
        return await _chat(self).programmatic.save(
            messages, signal=signal, channel=channel, metadata=metadata
        )

    def chat(
        self,
        input: Input,
        callback: StreamCallback | Callable[[str], Any] | None = None,
        *,
        signal: AbortSignal | None = None,
        client_tools: Sequence[Mapping[str, Any]] | None = None,
        on_client_tool_call: Callable[..., Any] | None = None,
        channel: str | None = None,
        metadata: dict[str, Any] | None = None,
        tools: Any = None,
    ) -> ChatStream:
        """Answer a message, streaming: `async for chunk in agent.chat("hi")`, or `await` it for the result.

        `client_tools` live for this turn only; with `on_client_tool_call(name, input, call_id)` they
        are answered within it. `tools` is ignored, with a warning: tools belong to the class, or to
        `TurnConfig(tools=…)`. Nothing happens until the stream is iterated or awaited.
        """
        return _chat(self).programmatic.stream(
            input,
            callback=callback,
            signal=signal,
            client_tools=client_tools,
            on_client_tool_call=on_client_tool_call,
            channel=channel,
            metadata=metadata,
            tools=tools,
        )

    def continue_last_turn(
        self, body: dict[str, Any] | None = None, *, signal: AbortSignal | None = None
    ) -> ChatStream:
        """Let the model go on after its last message, in a new one. Skipped when the last is not its own.

        Await it, or iterate over its chunks.
        """
        return _chat(self).programmatic.go_on(body, signal=signal)

    def regenerate(self, message_id: str | None = None, *, signal: AbortSignal | None = None) -> ChatStream:
        """Answer again: the new answer becomes a sibling of the old one (the last, or `message_id`).

        The old one stays in the tree; the model does not see it. Await it, or iterate over its chunks.
        """
        return _chat(self).programmatic.regenerate(message_id, signal=signal)

    async def run_turn(
        self,
        input: Input | None = None,
        *,
        mode: Literal["wait", "submit", "stream"] = "wait",
        continuation: bool = False,
        callback: StreamCallback | Callable[[str], Any] | None = None,
        signal: AbortSignal | None = None,
        channel: str | None = None,
        metadata: dict[str, Any] | None = None,
        body: dict[str, Any] | None = None,
        submission_id: str | None = None,
        idempotency_key: str | None = None,
        client_tools: Sequence[Mapping[str, Any]] | None = None,
        on_client_tool_call: Callable[..., Any] | None = None,
    ) -> TurnResult | Submission:
        """One method for all three ways: wait for the end, accept for later, or stream to a callback."""
        return await _chat(self).programmatic.run(
            input,
            mode=mode,
            continuation=continuation,
            callback=callback,
            signal=signal,
            channel=channel,
            metadata=metadata,
            body=body,
            submission_id=submission_id,
            idempotency_key=idempotency_key,
            client_tools=client_tools,
            on_client_tool_call=on_client_tool_call,
        )

    def cancel_chat(self, request_id: str, reason: object = None) -> Stop:
        """Stop a turn, queued or running. What it said is kept. False when there is none of that id.

        It stops at once; await the answer to know that the stop outlives a crash.
        """
        return _chat(self).cancel(request_id, reason)

    def abort_all_requests(self, reason: object = None) -> Stop:
        """Stop every turn of this agent, at once. Await it to know that it outlives a crash."""
        return _chat(self).cancel_all(reason)

    async def reset_turn_state(self) -> None:
        """Stop the running turn, skip those that wait, and start with an empty queue."""
        await _chat(self).reset()

    # --- submissions

    async def submit_messages(
        self,
        messages: MessageInput | Sequence[MessageInput],
        *,
        submission_id: str | None = None,
        idempotency_key: str | None = None,
        metadata: dict[str, Any] | None = None,
        channel: str | None = None,
    ) -> Submission:
        """Accept work now, run it later. The same id or key is accepted once."""
        return await _chat(self).submissions.accept(
            messages,
            submission_id=submission_id,
            idempotency_key=idempotency_key,
            metadata=metadata,
            channel=channel,
        )

    async def inspect_submission(self, submission_id: str) -> Submission | None:
        """How a submission stands."""
        return await _chat(self).submissions.inspect(submission_id)

    async def wait_for_submission(self, submission_id: str) -> Submission | None:
        """Return once a submission is over: how it ended, or `None` when there is none of that id.

        Inside a turn of this agent, which has to end first, it raises `NestedTurn`.
        """
        return await _chat(self).submissions.wait(submission_id)

    async def list_submissions(
        self, *, status: Status | Sequence[Status] | None = None, limit: int = 50
    ) -> list[Submission]:
        """Submissions, newest first, at most 100."""
        return await _chat(self).submissions.list(status=status, limit=limit)

    async def cancel_submission(self, submission_id: str, reason: object = None) -> None:
        """Stop a submission, whether it waits or runs. One that is over stays as it is."""
        await _chat(self).submissions.cancel(submission_id, reason)

    async def delete_submission(self, submission_id: str) -> bool:
        """Forget a submission that is over; its id and key are free again. The conversation stays."""
        return await _chat(self).submissions.delete(submission_id)

    async def delete_submissions(
        self,
        *,
        status: Status | Sequence[Status] | None = None,
        completed_before: datetime | None = None,
        limit: int = 100,
    ) -> int:
        """Forget submissions that are over, those completed first first. Returns how many."""
        return await _chat(self).submissions.delete_many(
            status=status, completed_before=completed_before, limit=limit
        )

    # --- the conversation

    @property
    def session(self) -> Session:
        """The conversation's tree of messages."""
        return _chat(self).session

    @property
    def sessions(self) -> Sessions:
        """All sessions of this agent; `session` is the live one of them."""
        return _chat(self).sessions

    async def read_attachment(self, path: str) -> bytes | None:
        """A file that left its message: the path stands in the marker. `None` when there is none."""
        return await _chat(self).read_attachment(path)

    @property
    def messages(self) -> list[Message]:
        """The conversation, as copies."""
        return [message.copy() for message in _chat(self).session.path]

    async def get_messages(self) -> list[Message]:
        """The conversation, as copies."""
        return await _chat(self).session.get_history()

    async def add_messages(
        self,
        messages: Input,
        *,
        parent_id: str | Unset | None = UNSET,
        mode: Literal["append", "upsert"] = "append",
        broadcast: bool = True,
    ) -> tuple[str, ...]:
        """Write to the conversation without a turn. Safe inside a turn and inside tools.

        Known ids are left alone (`"append"`) or replaced in place (`"upsert"`). `parent_id`: below
        that message, `None` for a new root, omitted for the tip. Returns the ids of those that were too large
        for a row and are stored in part; usually there are none.
        """
        return await _chat(self).add(messages, parent_id=parent_id, mode=mode, broadcast=broadcast)

    async def clear_messages(self) -> None:
        """Empty the conversation; turns that run or wait are stopped."""
        await _chat(self).clear()

    async def wait_until_stable(self, *, timeout: float | None = None) -> bool:
        """True once no turn runs or waits and nothing waits for a person; False after `timeout` seconds.

        Not for use inside a turn: that turn itself runs. Without a `timeout` it raises `NestedTurn` there.
        """
        return await _chat(self).until_stable(timeout)

    def has_pending_interaction(self) -> bool:
        """True when a call waits for a person: an approval, or a tool in their browser."""
        return _chat(self).answers.is_waiting_for_person()

    async def apply_tool_result(
        self,
        tool_call_id: str,
        output: Any = None,
        *,
        is_error: bool = False,
        error_text: str | None = None,
        asked: str | None = None,
    ) -> bool:
        """Settle a call that ran elsewhere, or answer what it asks: of several questions that with the id
        `asked`. False when no call waits for it."""
        return await _chat(self).answers.apply_result(
            tool_call_id, output, is_error=is_error, error_text=error_text, asked=asked
        )

    async def apply_tool_approval(
        self, tool_call_id: str, approved: bool, *, reason: str | None = None, asked: str | None = None
    ) -> bool:
        """Answer a call that asked for approval; `continue_last_turn` then runs it. False when none asked.

        A call may ask again, as code does that has several calls agreed to. `asked` is the `id` in the part's
        `approval`: with it that question is answered and no other; without it whatever is asked now.
        """
        caller = current_connection.get()
        return await _chat(self).answers.apply_approval(
            tool_call_id, approved, reason=reason, asked=asked, by=caller.who if caller else None
        )

    async def generate_text(self, prompt: str, *, system: str = "", model: Model | str | None = None) -> str:
        """Ask a model (this agent's own when none is named) something beside the conversation.

        Made for `create_compact_function(summarize=self.generate_text)`. Raises the model's error.
        """
        return await _chat(self).generate_text(prompt, system, model)

    # --- messengers

    def get_messenger_context(self) -> MessengerContext | None:
        """Whom this turn answers in a messenger: who wrote, where, what. Outside of a turn: whom the last
        message came from. `None` when it came by no messenger."""
        return _messaging(self).context(current_call(self._home.id)[1])

    async def fetch_attachment(self, attachment: Attachment, *, most: int = 20 * 1024 * 1024) -> bytes:
        """The bytes of a file that came by a messenger, at most so many. Raises `DeliveryError`."""
        return await _messaging(self).fetch(attachment, most=most)

    async def deliver_again(self) -> int:
        """Send what this conversation could not show in messengers (`failed`). Returns how many messages."""
        return await _messaging(self).deliver_again()

    # --- configuration

    async def configure(self, config: Any) -> None:
        """Keep a JSON value for this agent, private to the server. `None` forgets it."""
        await _chat(self).configure(config)

    def get_config(self) -> Any:
        """What `configure` kept, or `None`."""
        return _chat(self).get_config()

    def _skills(self) -> Any:
        return _chat(self).skills.registry


def _chat(agent: Think) -> Chat:
    """Where the machinery of an agent that chats is."""
    chat = agent._home.chat  # pyright: ignore[reportPrivateUsage] - the agent's one link to its home
    assert chat is not None
    return chat


def _messaging(agent: Think) -> Courier:
    messaging = agent._home.messaging  # pyright: ignore[reportPrivateUsage]
    assert messaging is not None
    return messaging.courier


def _declared(agent: Think) -> Tasks:
    tasks = agent._home.declared  # pyright: ignore[reportPrivateUsage]
    assert tasks is not None
    return tasks
