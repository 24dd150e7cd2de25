"""Every error everthink raises on purpose.

    AgentError                      what happened, what was kept, what to do next
    ├── InvalidMessage              a message that is not a valid UI message
    ├── InvalidTurn                 options of a turn API that make no sense together
    ├── NestedTurn                  a turn was asked for from inside a running turn
    ├── TurnInterrupted             the process is stopping while the turn runs or waits
    ├── TurnFailed                  a turn ended with status "error"
    ├── StreamStalled               the model fell silent for longer than it may
    ├── NoModel / NoMessages        the turn has nothing to run with
    ├── UnknownMessage              a message id that is not in this session
    ├── SubmissionConflict          id and idempotency key name different submissions
    ├── ToolDefinitionError         a function that cannot become a tool
    ├── ToolInputError              input that does not fit a tool's schema
    ├── ToolOutputError             a tool returned something that is not JSON
    ├── ToolTimeout                 a tool ran longer than it may
    ├── ModelError                  the provider refused or broke, with its kind
    ├── UnknownModel                a model name nobody serves
    ├── MissingExtra                an optional dependency is not installed
    ├── MissingKey                  a provider has no credentials
    ├── ScriptExhausted             a ScriptedModel was asked for more than its script
    └── StoreError                  the database said no
        ├── StoreLocked             another process holds it
        ├── StoreUnreadable         not a database, or no permission
        ├── StoreReadOnly           may not be written
        ├── StoreFull               no space left
        ├── StoreTooNew             written by a newer release
        ├── StoreUnavailable        the server cannot be reached
        ├── StoreClosed             used after close
        └── CommitRefused           a guard statement matched nothing

Nothing here imports anything of ours: every room may raise from it.
"""

from __future__ import annotations

from typing import Literal

__all__ = [
    "AgentError",
    "CommitRefused",
    "ErrorKind",
    "InvalidMessage",
    "InvalidTurn",
    "MissingExtra",
    "MissingKey",
    "ModelError",
    "NestedTurn",
    "NoMessages",
    "NoModel",
    "ScriptExhausted",
    "StoreClosed",
    "StoreError",
    "StoreFull",
    "StoreLocked",
    "StoreReadOnly",
    "StoreTooNew",
    "StoreUnavailable",
    "StoreUnreadable",
    "StreamStalled",
    "SubmissionConflict",
    "ToolDefinitionError",
    "ToolInputError",
    "ToolOutputError",
    "ToolTimeout",
    "TurnFailed",
    "TurnInterrupted",
    "UnknownMessage",
    "UnknownModel",
]

ErrorKind = Literal["context_overflow", "rate_limit", "transient", "fatal", "unknown"]


class AgentError(Exception):
    """Base of every error raised on purpose: what happened, what was kept, what next."""

    def __init__(self, what: str, *, kept: str = "", next_step: str = "") -> None:
        super().__init__(" ".join(s for s in (what, kept, next_step) if s))
        self.what, self.kept, self.next_step = what, kept, next_step


class InvalidMessage(AgentError):
    """A message is not a valid UI message; `path` names the field."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(
            f"Invalid message: {path} {problem}.",
            kept="Nothing was stored.",
            next_step='It looks like {"id": "…", "role": "user", "parts": [{"type": "text", "text": "…"}]}.',
        )
        self.path = path


class InvalidTurn(AgentError, TypeError):
    """A turn API was called with options that contradict each other. Nothing happened."""


class NestedTurn(AgentError):
    """A turn was asked for from inside a turn of the same agent; waiting for it would never end."""

    def __init__(self, trigger: str) -> None:
        super().__init__(
            f"Think turn admission ({trigger}) cannot be called from inside an active turn; "
            'use run_turn(mode="submit") or add_messages() instead.'
        )


class TurnFailed(AgentError):
    """A turn ended with status "error"; the partial answer is in the conversation."""

    def __init__(self, error: str, *, request_id: str, has_partial: bool = False) -> None:
        super().__init__(error, kept="What was said before the failure is stored." if has_partial else "")
        self.error, self.request_id = error, request_id


class TurnInterrupted(AgentError):
    """The process stopped while the turn ran or waited."""

    def __init__(self, request_id: str) -> None:
        super().__init__(
            f"Turn {request_id!r} was interrupted because the process is stopping.",
            kept="Everything shown so far is stored.",
            next_step="At the next start it is closed with what it had said; turns that waited run then.",
        )
        self.request_id = request_id


class StreamStalled(AgentError):
    """Nothing arrived for longer than `chat_stream_stall_timeout`."""

    def __init__(self, seconds: float) -> None:
        super().__init__(
            f"Chat stream stalled: no activity for {seconds * 1000:.0f}ms; "
            "the turn was aborted by the stall watchdog."
        )
        self.seconds = seconds


class NoModel(AgentError):
    """The agent names no model."""


class NoMessages(AgentError):
    """There is nothing to send to the model."""


class UnknownMessage(AgentError):
    """A message id that this session does not hold."""


class SubmissionConflict(AgentError):
    """A submission id and an idempotency key that belong to different submissions."""


class ToolDefinitionError(AgentError):
    """A function cannot become a tool; raised when the class is defined, with file and line."""


class ToolInputError(AgentError):
    """The model's input does not fit the tool's schema."""


class ToolOutputError(AgentError):
    """A tool returned a value that cannot be stored as JSON."""


class ToolTimeout(AgentError):
    """A tool ran longer than its `timeout`."""


class ModelError(AgentError):
    """The provider refused the call or broke off.

    `kind` is what the loop acts on; `retry_after` is in seconds; the provider's own
    exception is the `__cause__`.
    """

    def __init__(
        self,
        what: str,
        *,
        kind: ErrorKind = "unknown",
        status: int | None = None,
        retry_after: float | None = None,
        kept: str = "",
        next_step: str = "",
    ) -> None:
        super().__init__(what, kept=kept, next_step=next_step)
        self.kind: ErrorKind = kind
        self.status = status
        self.retry_after = retry_after

    @property
    def is_retryable(self) -> bool:
        """True when the same call may succeed a moment later."""
        return self.kind in ("rate_limit", "transient")


class UnknownModel(AgentError):
    """A model name that no adapter serves."""


class MissingExtra(AgentError):
    """An optional dependency is not installed; the message holds the install line."""


class MissingKey(AgentError):
    """A provider has no API key; the message names the variable to set."""


class ScriptExhausted(AgentError):
    """A `ScriptedModel` was called more often than its script has answers."""


class StoreError(AgentError):
    """The database could not do what was asked."""


class StoreLocked(StoreError):
    """Another process holds the database."""


class StoreUnreadable(StoreError):
    """The file is not a database, is damaged, or may not be read."""


class StoreReadOnly(StoreError):
    """The database may not be written."""


class StoreFull(StoreError):
    """There is no space left."""


class StoreTooNew(StoreError):
    """The database was written by a newer release."""


class StoreUnavailable(StoreError):
    """The database server cannot be reached."""


class StoreClosed(StoreError):
    """The store was used after it was closed."""


class CommitRefused(StoreError):
    """A guard statement matched no row, so nothing of its commit was written."""
