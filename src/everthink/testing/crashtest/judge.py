"""Is the story of a process that died the story of one that did not?

    reference, story --> judge --> what is wrong with it

Pure. Ids and times differ between any two performances and are left out. Two things a crash may do, and
nothing else: a call of which nobody knows whether it ran is reported to the model as failed, from where
on the model may answer something else; and a thought that was cut off is thought again, from its start.
Children are held to the same, each by itself; what one answers that was told of a report, its parent reads.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any, Literal, cast

from ...messages import is_tool_part, tool_name
from .story import ABOVE, Member, SeenRun, Story

__all__ = ["Failure", "Kind", "judge"]

Kind = Literal["broken", "transcript", "child", "reader", "effect", "provider", "turn", "error", "log"]

Json = dict[str, Any]
_OVER = ("completed", "error", "aborted", "skipped")
_EXCUSED = "excused"
"""What a part says here of the call of a child that was told of a report."""
_RUN = "executionId"
_CLOCKS = (_RUN, "ms", "mtime")
_MOST = 3
"""So many differences of a transcript are told; the others mostly follow from them."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Something that a crash has done and must not do."""

    kind: Kind
    what: str


def judge(reference: Story, story: Story) -> list[Failure]:
    """What is wrong with `story`, given how it goes without a crash."""
    failures: list[Failure] = []
    if story.broken is not None:
        failures.append(Failure("broken", story.broken))
    failures += [Failure("provider", refused) for refused in story.refusals]
    failures += [Failure("reader", fault) for fault in story.faults]
    shown = Counter(story.errors) - Counter(reference.errors)
    failures += [Failure("error", f"the reader was shown: {text}") for text in shown]
    failures += [Failure("log", line) for line in _complaints(reference, story)]
    if story.broken is not None:
        return failures  # What was not played to its end has no transcript.
    family = _Family(reference.family, story.family)
    compared = _Transcript(reference.messages, story.messages, family.excused)
    failures += [Failure("transcript", what) for what in _transcript(compared, story)]
    failures += [Failure("reader", what) for what in _screen(story)]
    failures += [Failure("reader", what) for what in _runs(story)]
    reported = compared.reported + family.reported
    failures += [Failure("effect", what) for what in _effects(reference, story, reported)]
    failures += [Failure("turn", what) for what in _turns(reference, story)]
    return failures + family.failures


class _Family:
    """The agents below the one that is played, those furthest below first: what they say is read above."""

    def __init__(self, expected: Sequence[Member], found: Sequence[Member]) -> None:
        self.failures: list[Failure] = []
        self.reported = 0
        """How many calls their models were told to be interrupted."""
        self.excused: set[str] = set()
        """The calls whose child was told so, and may have answered something else."""
        wanted, there = ({member.agent: member for member in side} for side in (expected, found))
        for agent in [*wanted, *(agent for agent in there if agent not in wanted)][::-1]:
            if agent not in there:
                self.failures.append(Failure("child", f"{agent} is missing"))
            elif agent not in wanted:
                self.failures.append(Failure("child", f"{agent} is one too many"))
            else:
                self._compare(wanted[agent], there[agent])

    def _compare(self, expected: Member, found: Member) -> None:
        compared = _Transcript(expected.messages, found.messages, self.excused)
        self.reported += compared.reported
        if compared.is_excused and found.call is not None:
            self.excused.add(found.call)
        if found.run != expected.run:
            what = f"its run is {found.run} instead of {expected.run}"
            self.failures.append(Failure("child", f"{found.agent}: {what}"))
        wrong = [Failure("transcript", what) for what in _transcript(compared, found)]
        wrong += [Failure("turn", what) for what in _turns(expected, found)]
        self.failures += [replace(one, what=f"{found.agent}: {one.what}") for one in wrong]


def _transcript(compared: _Transcript, stored: Story | Member) -> Iterator[str]:
    yield from compared.differences[:_MOST]
    yield from _doubles(stored)


def _doubles(story: Story | Member) -> Iterator[str]:
    """A call is one part of one message."""
    parts = [part for message in story.messages for part in message.get("parts", ()) if is_tool_part(part)]
    for call, times in Counter(part["toolCallId"] for part in parts).items():
        if times > 1:
            yield f"the call {call} is there {times} times"


def _complaints(reference: Story, story: Story) -> Iterator[str]:
    """What the server logged as an error and does not without a crash."""
    known = {line for line in reference.log.splitlines() if line.startswith("ERROR ")}
    for line in dict.fromkeys(story.log.splitlines()):
        if line.startswith("ERROR ") and line not in known:
            yield line


def _effects(reference: Story, story: Story, reported: int) -> Iterator[str]:
    expected, found = Counter(reference.effects), Counter(story.effects)
    for effect, more in (found - expected).items():
        yield f"{effect!r} happened {found[effect]} times, {more} more than without a crash"
    missing = expected - found
    if missing.total() > reported:
        yield f"{', '.join(missing)} never happened, and {reported} calls were reported as interrupted"


def _turns(reference: Story | Member, story: Story | Member) -> Iterator[str]:
    for turn in story.turns:
        if turn["status"] not in _OVER:
            yield f"a {turn['trigger']} turn was left {turn['status']}"
    expected = [(turn["trigger"], turn["status"]) for turn in reference.turns]
    found = [(turn["trigger"], turn["status"]) for turn in story.turns]
    if found != expected:
        yield f"the turns were {_listed(found)} instead of {_listed(expected)}"
    left = Counter(call["tool"] for call in story.calls if call["state"] in ("asked", "started"))
    left -= Counter(call["tool"] for call in reference.calls if call["state"] in ("asked", "started"))
    for tool in left:
        yield f"the ledger does not know how a call of {tool} ended"


def _listed(turns: Sequence[tuple[str, str]]) -> str:
    return ", ".join(f"{trigger} {status}" for trigger, status in turns) or "none"


def _screen(story: Story) -> Iterator[str]:
    """The one who stayed must see what one who comes now sees."""
    for seen, stored in zip_longest(story.screen, story.path):
        if seen is None:
            yield f"{_told(stored)} is not on the screen"
        elif stored is None:
            yield f"{_told(seen)} is on the screen and nowhere else"
        elif _without_time(seen) != _without_time(stored):
            one, other = _contrast(_told, seen, stored)
            yield f"on the screen is {one}, stored is {other}"
        else:
            continue
        return


def _runs(story: Story) -> Iterator[str]:
    """Of its children's runs the one who stayed must have seen all that one who comes now is told."""
    for id, run in (story.runs | story.late_runs).items():
        stayed, late = story.runs.get(id), story.late_runs.get(id)
        if stayed is None or late is None:
            yield f"the run of {run.agent} is {'not' if stayed is None else 'only'} on the screen"
        elif stayed != late:
            seen, told = _first_difference(stayed, late)
            yield f"of the run of {run.agent} there is {seen} on the screen, and {told} is told"
    by_call = {run.call: run for run in story.late_runs.values()}
    for member in story.family:
        if member.run is None or member.call is None or ABOVE in member.agent:
            continue  # it is told to the windows of another, or code asked for it
        run = by_call.get(member.call)
        if run is None:
            yield f"nobody is told of the run of {member.agent}"
        elif run.status != member.run:
            yield f"the run of {member.agent} is told as {run.status} and stored as {member.run}"
        elif len(member.turns) == 1 and run.text != (said := _answer(member.messages)):
            yield f"the run of {member.agent} is told as {run.text!r} and its answer is {said!r}"


def _first_difference(one: SeenRun, other: SeenRun) -> tuple[Any, Any]:
    """Where two runs part: a piece, or the end."""
    both = zip_longest((*one.pieces, one.end), (*other.pieces, other.end), fillvalue="nothing")
    return next((pair for pair in both if pair[0] != pair[1]), (one.status, other.status))


def _answer(messages: Sequence[Json]) -> str:
    """What an agent has said last."""
    parts: list[Json] = messages[-1]["parts"] if messages and messages[-1]["role"] == "assistant" else []
    return "".join(part["text"] for part in parts if part["type"] == "text")


def _without_time(message: Json) -> Json:
    return {key: value for key, value in message.items() if key != "createdAt"}


class _Transcript:
    """Two transcripts, compared part by part. What calls that are `excused` gave may differ."""

    def __init__(self, expected: Sequence[Json], found: Sequence[Json], excused: Set[str]) -> None:
        self.differences: list[str] = []
        self.reported = 0
        """How many calls the model was told to be interrupted."""
        self.is_excused = False
        """True when it was told so, or read the answer of a child that was: it may say something else."""
        # From a report to the next question the model may say something else than without one.
        self._is_told = False
        pairs = zip_longest(_normal(expected), _normal(found, excused))
        for number, (one, other) in enumerate(pairs, 1):
            if other is None:
                self.differences.append(f"message {number}, {_told(one)}, is missing")
            elif one is None:
                self.differences.append(f"message {number}, {_told(other)}, is one too many")
            else:
                self._compare(number, one, other)

    def _compare(self, number: int, expected: Json, found: Json) -> None:
        if found["role"] == "user":
            self._is_told = False
        for key in ("role", "parent", "metadata"):
            if expected.get(key) != found.get(key):
                self.differences.append(
                    f"message {number} has {key} {found.get(key)!r} instead of {expected.get(key)!r}"
                )
        for wanted, part in zip_longest(expected["parts"], found["parts"]):
            is_excused = part is not None and part.pop(_EXCUSED, False)
            if self._is_told or wanted == part:
                continue
            if _is_same_call(wanted, part) and (is_excused or _is_newly_failed(wanted, part)):
                self._is_told = self.is_excused = True
                continue
            one, other = _contrast(_part, part, wanted)
            self.differences.append(f"message {number} has {one} instead of {other}")
            break
        failed = sum(map(_failures, found["parts"])) - sum(map(_failures, expected["parts"]))
        self.reported += max(0, failed)


def _is_same_call(wanted: Json | None, part: Json | None) -> bool:
    if wanted is None or part is None or not (is_tool_part(wanted) and is_tool_part(part)):
        return False
    return tool_name(wanted) == tool_name(part)


def _is_newly_failed(wanted: Json | None, part: Json | None) -> bool:
    return _is_failed(part or {}) and not _is_failed(wanted or {})


def _is_failed(part: Json) -> bool:
    return _failures(part) > 0


def _failures(part: Json) -> int:
    """How many calls have failed: this one, or calls that its code made and of which nobody knows the end."""
    calls = _execution(part).get("calls", ())
    return (part.get("state") == "output-error") + sum(call.get("state") == "unknown" for call in calls)


def _execution(part: Json) -> Json:
    """What a run of a model's code came to, if the part is one."""
    output = part.get("output")
    return cast("Json", output) if isinstance(output, dict) and _RUN in output else {}


def _normal(messages: Sequence[Json], excused: Set[str] = frozenset()) -> Iterator[Json]:
    """Messages without what differs between any two performances."""
    numbers: dict[str | None, int] = {m["id"]: n for n, m in enumerate(messages, 1)}
    for message in messages:
        yield {
            "role": message["role"],
            "parent": numbers.get(message.get("parent")),
            "metadata": message.get("metadata"),
            "parts": _thought_once([_normal_part(p, excused) for p in message.get("parts", ()) if _says(p)]),
        }


def _says(part: Json) -> bool:
    """A step that was cut off is more than one step; where steps begin is no part of what was said."""
    return part["type"] != "step-start"


def _normal_part(part: Json, excused: Set[str]) -> Json:
    kept = {key: value for key, value in part.items() if key != "toolCallId"}
    if part.get("toolCallId") in excused:
        kept[_EXCUSED] = True
    if execution := _execution(part):
        kept["output"] = {**_without_clocks(execution), _RUN: ""}
    approval: Json | None = part.get("approval")
    if approval is not None:
        kept["approval"] = {key: value for key, value in approval.items() if key != "id"}
    return kept


def _without_clocks(value: Any) -> Any:
    """What a run of code came to, without its name and without how long anything took."""
    if isinstance(value, dict):
        held = cast("Json", value)
        return {key: _without_clocks(one) for key, one in held.items() if key not in _CLOCKS}
    return [_without_clocks(one) for one in cast("list[Any]", value)] if isinstance(value, list) else value


def _thought_once(parts: list[Json]) -> list[Json]:
    """A thought that was cut off and one that is thought again are the same thought, where it came first."""
    kept: list[Json] = []
    for part in parts:
        place = _thought_before(kept, part) if part["type"] == "reasoning" else None
        if place is None:
            kept.append(part)
        else:
            kept[place] = part
    return kept


def _thought_before(kept: Sequence[Json], part: Json) -> int | None:
    for place, other in enumerate(kept):
        if other["type"] == "reasoning" and part["text"].startswith(other["text"]):
            return place
    return None


def _contrast(tell: Callable[[Any], str], one: Json | None, other: Json | None) -> tuple[str, str]:
    """Both in words, or in full where the words are the same."""
    words = tell(one), tell(other)
    return words if words[0] != words[1] else (json.dumps(one), json.dumps(other))


def _told(message: Json | None) -> str:
    if message is None:
        return "nothing"
    says = " ".join(_part(part) for part in message.get("parts", ()) if _says(part))
    return f"the {message['role']}'s [{says}]"


def _part(part: Json | None) -> str:
    if part is None:
        return "nothing"
    if is_tool_part(part):
        said = f"{tool_name(part)} {part.get('state')}"
        return said + (f" {part['errorText']!r}" if "errorText" in part else "")
    return repr(part["text"]) if "text" in part else part["type"]
