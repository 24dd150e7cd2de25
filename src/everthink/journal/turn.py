"""A turn as a value: who asked, with what, and under which ids its rows and its answer live.

A turn's state travels in `Turn`, never in fields of the agent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from ..abort import AbortSignal
from ..messages import UNSET, Message, MessageInput, Unset
from ..models.port import Usage
from ..store.port import Statement
from ..tools.tool import Tool
from .fold import Accumulator
from .read import Journal

__all__ = ["SUBMITTED", "Admission", "Brings", "Failing", "InputFunction", "Trigger", "Turn"]

Trigger = Literal[
    "ws-chat", "rpc", "programmatic", "submission", "agent-tool", "messenger", "auto-continuation"
]
SUBMITTED: frozenset[str] = frozenset({"submission", "agent-tool", "messenger"})
"""What is accepted now and asked about later: by the application, by the parent of a child, or by whoever
delivers the answer to a messenger."""
Admission = Literal["queue", "execute-submission"]
InputFunction = Callable[
    [list[Message]], Sequence[MessageInput] | MessageInput | Awaitable[Sequence[MessageInput] | MessageInput]
]


class Failing(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a turn fails: what its row keeps until people are told."""

    stage: str
    text: str
    kind: str | None = None
    is_for_people: bool = False
    """True when the text may be shown to them as it is."""


@dataclass(frozen=True, slots=True)
class Brings:
    """What is written with the start of a turn, and undone in memory when that cannot be written."""

    statements: Callable[[], list[Statement]]
    undo: Callable[[], None]


@dataclass(slots=True, kw_only=True)
class Turn:
    """One turn: who asked, with what, and under which ids its rows and its answer live."""

    id: str
    request_id: str
    trigger: Trigger
    message_id: str
    signal: AbortSignal
    generation: int
    seq: int = 0
    created_at: int = 0
    """When it was accepted (ms)."""
    admission: Admission = "queue"
    continuation: bool = False
    input: list[Message] = field(default_factory=list[Message])
    compute_input: InputFunction | None = None
    """Gives the input when the turn begins; such a turn cannot be taken over by another process."""
    parent: str | Unset | None = UNSET
    """Where the answer is stored, for a regeneration; otherwise below the tip."""
    body: dict[str, Any] | None = None
    client_tools: Mapping[str, Tool] = field(default_factory=dict[str, Tool])
    channel: str | None = None
    metadata: dict[str, Any] | None = None
    is_applied: bool = False
    """True once the input is in the conversation."""
    is_started: bool = False
    """True once the row says `running`."""
    message_ids: list[str] = field(default_factory=list[str])
    answers: list[str] = field(default_factory=list[str])
    """The user messages a chat window wants answered: it is told when they are settled."""
    origin: str | None = None
    """The connection that asked, for a turn from a chat window."""
    is_readonly: bool = False
    """True when that connection may not change the state: then neither may this turn, on its behalf."""
    identity: Any = None
    """Who asked, as JSON, when the application knows."""
    tools_by: str | None = None
    """The mark of the person whose window declared its `client_tools`."""
    brings: Brings | None = None
    """What its window brings when it starts: its tools and fields count from then on."""
    gate: Callable[[], Awaitable[bool | str]] | None = None
    """Asked when the turn's time has come; False skips it (a newer message took its place), and so do words
    that say why."""
    watch: Callable[[str, str | None], Awaitable[None]] | None = None
    """Told `running` and the final status with its error (submissions)."""
    rewound: int = 0
    """How many chunks it had said before it began anew."""
    question: str | None = None
    """The message it answers: the tip of the conversation when it began."""
    failing: Failing | None = None
    """How it failed in a process that died before people were told."""
    fold: Accumulator | None = None
    """What it has said so far, while it runs or is about to go on."""
    ending: asyncio.Event | None = None
    """There while its answer is about to be a message; set once it is."""
    is_interrupted: bool = False
    """True while it was cut off and has not gone on."""
    journal: Journal | None = None
    """What it had said when it was cut off, for a turn that goes on."""
    is_read: bool = True
    """False while the conversation is being read for the model: what fails then is about the transcript."""
    cuts: int = 0
    """How often in a row the model's stream ended before it had said anything."""
    overflows: int = 0
    """How often it was too long for the model and the conversation was shortened for it."""
    slims: int = 0
    """How often results were left out of its prompt because that did not help."""
    cut: list[str] = field(default_factory=list[str])
    """Those of its messages that were too large for a row and are not stored as they were given."""
    usage: Usage = field(default_factory=Usage)
    """What the provider reported for its steps, in this process."""
    say: Callable[..., None] | None = None
    """Say a chunk of application data in it, with what is committed together with that, while it runs."""
    afterwards: Callable[[Callable[[], object]], None] | None = None
    """Call something once what was said so far is durable, just before it is shown, while it runs."""
    alive: Callable[[], None] | None = None
    """Say that it does not hang, while it runs, though it says nothing."""
    waits_for: Callable[[], Sequence[str]] | None = None
    """The calls that it waits for, while it runs; none while it does anything else."""
    has_rested: bool = False
    """True for one that was in memory before, and left it while all it did was wait for a person."""
    heard: asyncio.Event | None = None
    """Set once whoever streams a completed turn was told so: the response hook comes after that."""
