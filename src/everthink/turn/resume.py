"""Pick up a turn where it was cut off: settle its calls, and say from where the model goes on.

    Journal --pick_up--> PickedUp --> turn/loop

The ledger decides about calls: what is done is not run again; what had not begun may run; of what
had begun nobody knows whether it happened, so the tool's `on_interrupt` says what to do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from .. import chunks as ui
from ..hooks.values import (
    CalledTool,
    StepResult,
    ToolResult,
)
from ..journal.read import Journal
from ..messages import Message, Part, is_settled, is_tool_part, normalize_input, steps, tool_name
from ..models import port as model
from ..prompt.convert import convert
from ..prompt.wording import CONTINUE_NUDGE
from .calls import StepCalls
from .running import Run

__all__ = ["PickedUp", "pick_up"]


@dataclass(slots=True)
class PickedUp:
    """Where a turn stands."""

    steps: list[StepResult] = field(default_factory=list[StepResult])
    """The steps that are over."""
    produced: list[model.ModelMessage] = field(default_factory=list[model.ModelMessage])
    """What they said and got, for the prompt."""
    cut: list[model.AssistantContent] = field(default_factory=list[model.AssistantContent])
    """What the step that was cut off had said; the model goes on from there."""
    open_block: str | None = None
    """The reader's id of the block of text that may still grow."""
    half_made: list[Part] = field(default_factory=list[Part])
    """Calls whose input the model had not finished: it is expected to make them again."""
    has_begun: bool = False
    """True when the step that comes next has said its start already."""
    is_waiting: bool = False
    """True when a call waits for a browser or a person."""
    is_over: bool = False
    """True when the model had said all it had to say."""

    @property
    def said(self) -> str:
        """The text of the cut step that the model goes on from; empty when it starts afresh."""
        last = self.cut[-1] if self.cut else None
        return last.text if isinstance(last, model.TextPart) else ""

    def asking(self, model_: model.Model) -> list[model.ModelMessage]:
        """What follows the conversation in the prompt of the step that was cut off."""
        if not self.cut:
            return []
        if model_.continues == "prefill":
            # Providers refuse an answer to be continued that ends in white space.
            kept = [*self.cut[:-1], model.TextPart(self.said.rstrip())] if self.said else self.cut
            return [model.AssistantMessage(kept)]
        return [
            model.AssistantMessage(list(self.cut)),
            model.UserMessage([model.TextPart(CONTINUE_NUDGE)]),
        ]


async def pick_up(run: Run, journal: Journal, calls: StepCalls) -> PickedUp:
    """Bring the turn to where the model can go on. `calls` are those of the step that was cut off."""
    parts = run.fold.parts
    blocks = steps(parts)
    last = blocks[-1] if blocks else []
    found = PickedUp(has_begun=bool(blocks) and not journal.step_is_over)
    own = [part for part in last if is_tool_part(part) and not part.get("providerExecuted")]
    if all(part.get("state") == "input-streaming" for part in own):
        # No call was asked for: the step goes on as if none had been begun.
        found.half_made, own = own, []
    _close_blocks(run, found, keeps_text=found.has_begun and not own)
    for part in [part for block in blocks for part in block if is_tool_part(part)]:
        if part in found.half_made:
            continue
        await calls.take_over(part, journal)
    await calls.finished()
    over = blocks if journal.step_is_over or own else blocks[:-1]
    found.steps = [_result(number, block) for number, block in enumerate(over)]
    found.is_waiting = any(part["toolCallId"] not in calls.outcomes for part in own)
    if own and not journal.step_is_over:
        run.say(ui.FinishStep())
        found.has_begun = False

    def words(_: str, call_id: str) -> str | None:
        outcome = calls.outcomes.get(call_id)
        return str(outcome.output) if outcome is not None and outcome.is_error else None

    views, id = run.host.views, run.turn.message_id
    await views.learn([_message(id, blocks)], calls.tools)
    found.produced = convert(_message(id, over), calls.tools, words, views.of)
    if own or not blocks:
        return found
    if journal.step_is_over:
        found.is_over = True
        return found
    said = convert(_message(id, [last]), calls.tools, words, views.of)
    content = list(said[0].content) if said and isinstance(said[0], model.AssistantMessage) else []
    # Thinking that was cut off has no signature, and alone it is no beginning of an answer.
    while content and isinstance(content[-1], model.ReasoningPart):
        content.pop()
    found.cut = content
    return found


def _message(id: str, steps: Sequence[Sequence[Part]]) -> Message:
    return Message(id, "assistant", [part for step in steps for part in ({"type": "step-start"}, *step)])


def _close_blocks(run: Run, found: PickedUp, *, keeps_text: bool) -> None:
    """End the blocks that were open, except the text that the model goes on with."""
    last = run.fold.parts[-1] if run.fold.parts else None
    for kind, id, part in run.fold.open_blocks:
        if kind == "text" and keeps_text and part is last:
            found.open_block = id
        elif kind == "text":
            run.say(ui.TextEnd(id))
        else:
            run.say(ui.ReasoningEnd(id))


def _result(number: int, parts: Sequence[Part]) -> StepResult:
    """A step of an earlier process, as far as the journal knows it."""
    calls = [part for part in parts if is_tool_part(part)]
    return StepResult(
        step_number=number,
        text="".join(part["text"] for part in parts if part.get("type") == "text"),
        reasoning=[
            model.ReasoningPart(part.get("text", "")) for part in parts if part.get("type") == "reasoning"
        ],
        files=[],
        sources=[],
        tool_calls=[
            CalledTool(
                part["toolCallId"],
                tool_name(part),
                normalize_input(part.get("input")),
                bool(part.get("providerExecuted")),
            )
            for part in calls
        ],
        tool_results=[
            ToolResult(
                part["toolCallId"],
                tool_name(part),
                normalize_input(part.get("input")),
                part.get("output", part.get("errorText")),
                is_error=part.get("state") == "output-error",
            )
            for part in calls
            if is_settled(part)
        ],
        content=[],
        finish_reason="tool-calls" if calls else "other",
        raw_finish_reason=None,
        usage=model.Usage(),
        model="",
        response_id=None,
        response_messages=[],
        provider_metadata=None,
        request=model.Request(system="", messages=[]),
    )
