"""Every error everthink raises on purpose.

    AgentError                      what happened, what was kept, what to do next
    ├── InvalidMessage              a message that is not a valid UI message
    ├── TooDeep                     a value is nested deeper than can be kept
    ├── Unreadable                  what is stored of a turn cannot be read
    ├── AgentSetAside               an agent that took the process down too often is not started
    ├── AgentElsewhere              another process on the same database has the agent
    ├── AgentNotInMemory            a handle is asked for what only an agent in memory can answer at once
    ├── InvalidSettings             a setting, a hook or what it returned that is not understood
    ├── NotJson                     a state or a config that JSON cannot hold
    ├── InvalidTurn                 options of a turn API that make no sense together
    ├── NestedTurn                  a turn was asked for from inside a running turn
    ├── TooManyTurns                so many turns wait already that a client may not add one
    ├── TurnInterrupted             the process stops, or the agent leaves memory, while it runs or waits
    │   └── AgentErased             the agent is deleted meanwhile
    ├── TurnFailed                  a turn ended with status "error"
    ├── TurnGivenUp                 an answer was interrupted and does not go on
    ├── StreamStalled               the model fell silent for longer than it may
    ├── StreamCut                   the model's stream ended before the answer did
    ├── NoModel / NoMessages        the turn has nothing to run with
    ├── UnknownMessage              a message id that is not in this session
    ├── InvalidContext              a context block that cannot be declared
    ├── ContextRefused              a block does not take what was asked of it
    ├── ContextUnavailable          what stands behind a block cannot be read or written
    ├── CompactionNotSetUp          a compaction was asked for and nothing says how
    ├── UnknownSession              a session id that this agent does not have
    ├── SessionBusy                 another session cannot be opened while a turn runs
    ├── SubmissionConflict          id and idempotency key name different submissions
    ├── RunConflict                 a run's id names a run of another class, input or output
    ├── InvalidFiber                a fiber's id, key, checkpoint or outcome that makes no sense
    ├── FiberConflict               id and idempotency key name different fibers
    ├── NotInFiber                  a checkpoint outside a fiber and a turn
    ├── FiberStopped                the process is stopping while the fiber runs
    ├── InvalidRetry                retry options that make no sense
    ├── InvalidCallback             a timer or a job for a method that cannot be called
    ├── InvalidSchedule             a time, an interval or a cron expression that names no moment
    ├── InvalidScheduledTask        a declared task whose schedule cannot be read
    ├── ToolDefinitionError         a function that cannot become a tool
    ├── ToolError                   a tool says to people why it did not work
    │   ├── ToolInputError          input that does not fit a tool's schema
    │   ├── ToolOutputError         a tool returned something that is not JSON
    │   ├── ToolTimeout             a tool ran longer than it may
    │   └── ToolInterrupted         a tool was cut off: nobody knows whether it took effect
    ├── StructuredOutputError       the model's answer does not follow the schema
    ├── ModelError                  the provider refused or broke, with its kind
    ├── UnknownModel                a model name nobody serves
    ├── MissingExtra                an optional dependency is not installed
    ├── MissingKey                  a provider has no credentials
    ├── WorkspaceError              a file, a folder or a path that cannot be used so, with its code
    ├── SkillError                  skills that cannot be read, unpacked or installed
    ├── ExtensionError              an extension that cannot be loaded, or asks for what it may not do
    ├── BlockedAddress              a URL that somebody else chose leads where only we can go
    ├── SecretsUnreadable           stored secrets that none of the keys at hand opens
    ├── NeedsAuthorization          an MCP server wants a person to allow access first
    ├── AuthorizationFailed         an authorization server said no, or cannot be asked
    ├── CallbackRefused             somebody came back from where nobody here has sent them
    ├── ScriptExhausted             a ScriptedModel was asked for more than its script
    ├── NotConnected                a client is not let in, finds nobody, or lost the connection for good
    │   └── NoSuchChild             the address of a child at which its parent answers
    ├── CallFailed                  a method that a client called did not work
    ├── AnsweredBefore              somebody else has answered a call first, and otherwise
    ├── DiscoveryFailed             a folder of agents with mistakes in it, all of them
    └── StoreError                  the database said no
        ├── StoreLocked             another process holds it
        ├── StoreUnreadable         not a database, or no permission
        ├── StoreReadOnly           may not be written
        ├── StoreFull               no space left
        ├── StoreTooNew             written by a newer release
        ├── StoreUnavailable        the server cannot be reached
        │   └── CommitInDoubt       the connection broke in a commit: stored, or not
        ├── StorePooled             a pooler hands every transaction to another session
        ├── StoreClosed             used after close
        ├── LeaseLost               another process runs this agent now
        └── CommitRefused           a guard statement matched nothing

Nothing here imports anything of ours: every room may raise from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

__all__ = [
    "UNTOLD",
    "AgentElsewhere",
    "AgentErased",
    "AgentError",
    "AgentNotInMemory",
    "AgentSetAside",
    "AnsweredBefore",
    "AuthorizationFailed",
    "BlockedAddress",
    "CallFailed",
    "CallbackRefused",
    "CommitInDoubt",
    "CommitRefused",
    "CompactionNotSetUp",
    "ContextRefused",
    "ContextUnavailable",
    "DiscoveryFailed",
    "ErrorKind",
    "ExtensionError",
    "FiberConflict",
    "FiberStopped",
    "InvalidCallback",
    "InvalidContext",
    "InvalidFiber",
    "InvalidMessage",
    "InvalidRetry",
    "InvalidSchedule",
    "InvalidScheduledTask",
    "InvalidSettings",
    "InvalidTurn",
    "LeaseLost",
    "MissingExtra",
    "MissingKey",
    "ModelError",
    "NeedsAuthorization",
    "NestedTurn",
    "NoMessages",
    "NoModel",
    "NoSuchChild",
    "NotConnected",
    "NotInFiber",
    "NotJson",
    "Problem",
    "RunConflict",
    "ScriptExhausted",
    "SecretsUnreadable",
    "SessionBusy",
    "SkillError",
    "StoreClosed",
    "StoreError",
    "StoreFull",
    "StoreLocked",
    "StorePooled",
    "StoreReadOnly",
    "StoreTooNew",
    "StoreUnavailable",
    "StoreUnreadable",
    "StreamCut",
    "StreamStalled",
    "StructuredOutputError",
    "SubmissionConflict",
    "TooDeep",
    "TooManyTurns",
    "ToolDefinitionError",
    "ToolError",
    "ToolInputError",
    "ToolInterrupted",
    "ToolOutputError",
    "ToolTimeout",
    "TurnFailed",
    "TurnGivenUp",
    "TurnInterrupted",
    "UnknownMessage",
    "UnknownModel",
    "UnknownSession",
    "Unreadable",
    "WorkspaceCode",
    "WorkspaceError",
    "is_elsewhere",
    "is_for_people",
]

ErrorKind = Literal["context_overflow", "rate_limit", "transient", "fatal", "unknown"]


UNTOLD = "Something went wrong on our side. Please try again."
"""What people read of a failure whose own words are not for them."""


def is_for_people(error: BaseException) -> bool:
    """True when the words of an error may leave the server.

    Our own errors are written for people. The database's name its place, and others may hold anything.
    """
    return isinstance(error, AgentError) and not isinstance(error, StoreError)


class AgentError(Exception):
    """Base of every error raised on purpose: what happened, what was kept, what next."""

    def __init__(self, what: str, *, kept: str = "", next_step: str = "") -> None:
        super().__init__(" ".join(s for s in (what, kept, next_step) if s))
        self.what, self.kept, self.next_step = what, kept, next_step


class InvalidMessage(AgentError):
    """A message is not a valid UI message; `path` names the field."""

    def __init__(self, path: str, problem: str, *, next_step: str = "") -> None:
        super().__init__(
            f"Invalid message: {path} {problem}.",
            kept="Nothing was stored.",
            next_step=next_step
            or 'It looks like {"id": "…", "role": "user", "parts": [{"type": "text", "text": "…"}]}.',
        )
        self.path = path


class TooDeep(AgentError, ValueError):
    """A value is nested deeper than can be kept, copied or sent."""

    def __init__(self, levels: int) -> None:
        super().__init__(
            f"A value is nested more than {levels} levels deep.",
            kept="Nothing of it was stored.",
            next_step="Use a flatter value.",
        )


class Unreadable(AgentError):
    """What is stored of a turn cannot be read: somebody else wrote it, or it was damaged."""

    def __init__(self, what: str, problem: object) -> None:
        found = problem.what.rstrip(".") if isinstance(problem, AgentError) else problem
        super().__init__(f"{what} cannot be read: {found}.", kept="It stays as it is in the database.")


class AgentSetAside(AgentError):
    """An agent whose start took the process down or hung it too often. It is not started until released."""

    def __init__(self, agent: str, strikes: int) -> None:
        super().__init__(
            f"The agent {agent!r} is set aside: {strikes} times its start took the process down, or hung it.",
            kept="Everything of it is kept.",
            next_step=f"Look with `everthink inspect`; `everthink release {agent}` tries again.",
        )
        self.agent, self.strikes = agent, strikes


class AgentElsewhere(AgentError):
    """Another process that uses the same database has the agent; this one may neither run nor change it."""

    def __init__(self, agent: str, where: str = "another process") -> None:
        super().__init__(
            f"The agent {agent!r} lives in {where} now.",
            kept="Nothing was changed here; the agent goes on there.",
            next_step="Ask there, or again when it has left memory there: it is given back after idle_after.",
        )
        self.agent, self.where = agent, where


class AgentNotInMemory(AgentError):
    """A property or a plain method was asked of a handle, and the agent is not in memory in this process."""

    def __init__(self, agent: str, name: str, *, is_method: bool, is_own: bool) -> None:
        call = f"{name}(…)" if is_method else name
        rather = f", or write it as `async def {name}`" if is_method and is_own else ""
        super().__init__(
            f"The agent {agent!r} is not in memory here, and {name!r} is answered at once or not at all.",
            kept="Nothing was done.",
            next_step=f"Write `async with handle as agent: agent.{call}`, which starts it{rather}."
            " Through the handle itself, what is awaited reaches it everywhere.",
        )
        self.agent, self.name = agent, name


class InvalidSettings(AgentError, TypeError, ValueError):
    """A setting, a hook's name or what a hook returned that is not understood; the nearest name is in it."""


class NotJson(AgentError, TypeError, ValueError):
    """A state or a config that is not made of what JSON has; the path to what is not is in it."""


class InvalidTurn(AgentError, TypeError):
    """A turn API was called with options that contradict each other. Nothing happened."""


class TooManyTurns(AgentError):
    """So many turns of an agent wait already that a client may not ask for one more."""

    def __init__(self, waiting: int, most: int) -> None:
        super().__init__(
            f"{waiting} requests wait here already, and {most} may.",
            kept="This one was not taken.",
            next_step="Wait for an answer, then send it again.",
        )
        self.waiting, self.most = waiting, most


class NestedTurn(AgentError):
    """A turn was asked for from inside a turn of the same agent; waiting for it would never end."""

    def __init__(self, trigger: str, *, waits: str = "") -> None:
        if waits:
            super().__init__(
                f"{waits}() would wait for ever: it was called from inside a turn that has to end first.",
                kept="The turn goes on, and so does what waits behind it.",
                next_step="Wait outside of the turn, in on_chat_response, or in a fiber;"
                " inspect_submission() says how one stands.",
            )
            return
        super().__init__(
            f"Think turn admission ({trigger}) cannot be called from inside an active turn; "
            'use run_turn(mode="submit") or add_messages() instead.'
        )


class TurnFailed(AgentError):
    """A turn ended with status "error"; the partial answer is in the conversation."""

    def __init__(self, error: str, *, request_id: str, has_partial: bool = False) -> None:
        super().__init__(error, kept="What was said before the failure is stored." if has_partial else "")
        self.error, self.request_id = error, request_id


class EarlierFailure(Exception):
    """What made a turn fail in a process that died before it could say so: the words of that error."""


class TurnInterrupted(AgentError):
    """The process stopped, or the agent left memory, while the turn ran or waited."""

    def __init__(
        self,
        request_id: str,
        because: str = "the process is stopping",
        *,
        kept: str = "Everything shown so far is stored.",
        next_step: str = "At the next start it goes on from there, without anybody asking.",
    ) -> None:
        super().__init__(
            f"Turn {request_id!r} was interrupted because {because}.", kept=kept, next_step=next_step
        )
        self.request_id = request_id


class AgentErased(TurnInterrupted):
    """The agent was deleted while the turn ran or waited: nothing of it goes on."""

    def __init__(self, request_id: str) -> None:
        super().__init__(
            request_id,
            "its agent is deleted",
            kept="Nothing of the conversation is kept.",
            next_step="Whoever reaches the agent afterwards finds a new one, without a conversation.",
        )


class StreamStalled(AgentError):
    """Nothing arrived for longer than `chat_stream_stall_timeout`."""

    def __init__(self, seconds: float) -> None:
        super().__init__(
            f"Chat stream stalled: no activity for {seconds * 1000:.0f}ms; "
            "the turn was aborted by the stall watchdog."
        )
        self.seconds = seconds


class StreamCut(AgentError):
    """The model's stream ended without saying that the answer is over: a connection broke, most likely."""

    def __init__(self, model: str) -> None:
        super().__init__(
            f"The answer of {model} was cut off: its stream ended without a finish reason.",
            kept="What it had said is kept.",
            next_step="Ask again, or let it go on.",
        )


class TurnGivenUp(AgentError):
    """An answer was interrupted and does not go on. `reason`: which bound it hit, or who declined."""

    def __init__(self, text: str, reason: str) -> None:
        super().__init__(text)
        self.reason = reason


class NoModel(AgentError):
    """The agent names no model."""


class NoMessages(AgentError):
    """There is nothing to send to the model."""


class UnknownMessage(AgentError):
    """A message id that this session does not hold."""


class InvalidContext(AgentError, ValueError):
    """A context block was declared with a label, a limit or a provider that makes no sense."""


class ContextRefused(AgentError):
    """A context block does not take what was asked of it: unknown, readonly, keyed, or too much."""


class ContextUnavailable(AgentError):
    """What stands behind a context block could not be read or written; the reason is the `__cause__`."""


class CompactionNotSetUp(AgentError):
    """A compaction was asked for, and nothing says how to summarise."""

    def __init__(self) -> None:
        super().__init__(
            "This session has no compaction function.",
            kept="The conversation is as it was.",
            next_step="Give it one in configure_session(): "
            "session.on_compaction(create_compact_function(summarize=...)).",
        )


class UnknownSession(AgentError):
    """A session id that this agent does not have."""


class SessionBusy(AgentError):
    """Another session cannot be opened while a turn runs or waits."""


class SubmissionConflict(AgentError):
    """A submission id and an idempotency key that belong to different submissions."""


class RunConflict(AgentError):
    """The id of a run names one that asked another class, or something else."""


class InvalidFiber(AgentError, ValueError):
    """A fiber was given an id, a key or an outcome that makes no sense."""


class FiberConflict(AgentError):
    """A fiber id and an idempotency key that belong to different fibers."""


class NotInFiber(AgentError):
    """A checkpoint was made by code that is part of no fiber and no turn."""

    def __init__(self) -> None:
        super().__init__(
            "stash() called outside a fiber and outside a turn.",
            kept="Nothing was stored.",
            next_step="Call it in the function given to run_fiber() or start_fiber(), or in a tool or hook of"
            " a turn, while that runs.",
        )


class FiberStopped(AgentError):
    """The process stopped while the fiber ran or waited."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"Fiber {name!r} was interrupted because the process is stopping.",
            kept="Its last checkpoint is stored.",
            next_step="At the next start it comes to on_fiber_recovered().",
        )
        self.name = name


class InvalidRetry(AgentError, ValueError):
    """Retry options that make no sense. Nothing was stored."""


class InvalidCallback(AgentError, TypeError):
    """A timer or a job names a method that the agent does not have or that cannot be called so."""


class InvalidSchedule(AgentError, ValueError):
    """What was given as a time is none. Nothing was stored."""


class ToolDefinitionError(AgentError):
    """A function cannot become a tool; raised when the class is defined, with file and line."""


class ToolError(AgentError):
    """Raise it in a tool to tell people why it did not work: `raise ToolError("There is no order 17.")`.

    The model reads it as it reads every exception of a tool. People and their browsers read the words of
    this one only: of any other they learn that the tool failed, and the log has the rest. `what` may be an
    exception, or anything else that has a text.
    """

    def __init__(self, what: object, *, kept: str = "", next_step: str = "") -> None:
        super().__init__(str(what), kept=kept, next_step=next_step)


class ToolInputError(ToolError):
    """The model's input does not fit the tool's schema."""


class ToolOutputError(ToolError):
    """A tool returned a value that cannot be stored as JSON."""


class ToolTimeout(ToolError):
    """A tool ran longer than its `timeout`."""


class ToolInterrupted(ToolError):
    """The process died while the tool ran, and nothing says whether it took effect."""


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


class StructuredOutputError(AgentError):
    """The model's final text does not follow the schema that was asked for."""


class UnknownModel(AgentError):
    """A model name that no adapter serves."""


class MissingExtra(AgentError):
    """An optional dependency is not installed; the message holds the install line."""


class MissingKey(AgentError):
    """A provider has no API key; the message names the variable to set."""


WorkspaceCode = Literal[
    "ENOENT",
    "EISDIR",
    "ENOTDIR",
    "EEXIST",
    "ENOTEMPTY",
    "EPERM",
    "EINVAL",
    "ELOOP",
    "ENAMETOOLONG",
    "EFBIG",
    "EDQUOT",
    "EROFS",
    "EXDEV",
    "ESTALE",
    "EIO",
]
"""What POSIX calls it; `ESTALE` is a file that somebody else changed meanwhile."""


class WorkspaceError(AgentError):
    """A file, a folder or a path of a workspace that cannot be used so; `code` is what POSIX calls it."""

    def __init__(
        self, what: str, *, code: WorkspaceCode, path: str = "", kept: str = "", next_step: str = ""
    ) -> None:
        super().__init__(f"{code}: {what}", kept=kept, next_step=next_step)
        self.code: WorkspaceCode = code
        self.path = path


class SkillError(AgentError):
    """Skills cannot be read from where they are, or an archive of them is none that we unpack."""


class ExtensionError(AgentError):
    """An extension cannot be loaded as it is, is not there any more, or asks for what it may not do."""


class BlockedAddress(AgentError, ValueError):
    """A URL that a model, a client or a server chose and that is not opened. Nothing was sent to it."""

    def __init__(
        self, reason: str, *, next_step: str = "Use a public address that begins with https://."
    ) -> None:
        super().__init__(f"Blocked URL: {reason}.", kept="Nothing was sent there.", next_step=next_step)


class SecretsUnreadable(AgentError):
    """Secrets that are stored cannot be opened with the keys at hand. They stay stored as they are."""


class NeedsAuthorization(AgentError):
    """An MCP server lets nobody in whom no person has allowed to come. `url` is where a person does that.

    The address is for that person alone, and in no words of this error.
    """

    def __init__(self, server: str, url: str, *, why: str = "") -> None:
        super().__init__(
            f"MCP server {server!r} wants a person to allow access{f': {why}' if why else ''}.",
            kept="Its tools stay listed, and other servers are not affected.",
            next_step="Open its authorization address and come back.",
        )
        self.server, self.url = server, url


class AuthorizationFailed(AgentError):
    """An authorization server said no, answered with something else, or could not be asked at all."""


class CallbackRefused(AgentError):
    """Somebody came to the callback of an MCP server, and nobody was sent away to come back with that.

    Forged, late, used before, or another server's. `is_repeat`: it is the one that was redeemed last.
    """

    def __init__(self, why: str, *, is_repeat: bool = False) -> None:
        super().__init__(
            f"This authorization callback is not accepted: {why}.",
            kept="Nothing was changed.",
            next_step="Start again from the server's authorization address.",
        )
        self.is_repeat = is_repeat


class ScriptExhausted(AgentError):
    """A `ScriptedModel` was called more often than its script has answers."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake in a folder of agents: its kind, where it is, what it is, what to do."""

    code: str
    path: Path
    place: str
    """The path as a person in the current directory would write it."""
    what: str
    next_step: str = ""

    def __str__(self) -> str:
        return f"{self.place}: {self.what}" + (f"\n    {self.next_step}" if self.next_step else "")


class DiscoveryFailed(AgentError):
    """The agents of a folder cannot all be found; `problems` has every reason."""

    def __init__(self, folder: str, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        count = "1 problem" if len(self.problems) == 1 else f"{len(self.problems)} problems"
        listed = "\n".join(f"  {problem}" for problem in self.problems)
        super().__init__(f"The agents in {folder} cannot be used: {count}.\n{listed}")


class NotConnected(AgentError):
    """A client has no connection: nobody answers, it is not let in, or it was told to stay away.

    `status` is that of an HTTP answer that refused it, `code` the one with which its socket was closed.
    """

    def __init__(
        self,
        what: str,
        *,
        kept: str = "",
        next_step: str = "",
        status: int | None = None,
        code: int | None = None,
    ) -> None:
        super().__init__(what, kept=kept, next_step=next_step)
        self.status, self.code = status, code


class NoSuchChild(NotConnected):
    """The address of a child at which its parent answers: the server knows no such class of children."""

    def __init__(self, kind: str, name: str, *, place: str, parent: str, near: str | None = None) -> None:
        meant = f"Did you mean {near}? " if near else ""
        super().__init__(
            f"{place} names the child {kind}/{name}, and {parent} answers there:"
            f" it has no children {kind!r}.",
            kept="Nothing was sent.",
            next_step=f"{meant}Check how the class is written, and that its parent names it:"
            " sub_agents = (…,), or an agent_tool.",
        )
        self.kind, self.name, self.place, self.parent = kind, name, place, parent


class CallFailed(AgentError):
    """A method that a client called did not work. The words are the agent's."""

    def __init__(self, method: str, error: str) -> None:
        super().__init__(f"{method}: {error}")
        self.method, self.error = method, error


class AnsweredBefore(AgentError):
    """Somebody else has answered a call before this client did, and otherwise. Their answer counts.

    `reply` is what the agent makes of it.
    """

    def __init__(self, call_id: str, reply: Any) -> None:
        super().__init__(
            f"Somebody else was faster: call {call_id!r} has another answer than this one.",
            kept="Theirs counts.",
            next_step="It is in the conversation.",
        )
        self.call_id, self.reply = call_id, reply


class InvalidScheduledTask(AgentError):
    """A declared task or its schedule cannot be read. Nothing was stored; what was scheduled stays."""


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


class CommitInDoubt(StoreUnavailable):
    """The connection broke between sending a commit and hearing what became of it."""


class StorePooled(StoreError):
    """A pooler in front of the database gives each transaction another session; ours must keep theirs."""


class StoreClosed(StoreError):
    """The store was used after it was closed."""


class LeaseLost(StoreError):
    """This process no longer owns the agent; another one runs it, with everything that was stored."""


def is_elsewhere(error: BaseException) -> bool:
    """True when a commit was refused because the agent is not this instance's to run any more: no failure."""
    return isinstance(error, StoreClosed | LeaseLost)


class CommitRefused(StoreError):
    """A guard statement matched no row, so nothing of its commit was written."""

    guard: str = ""
    """The name of the statement that was not met, if it has one."""
