"""Is the story of a process that died the story of one that did not?

    reference, story --> judge --> what is wrong with it

Pure. Ids and times differ between any two performances and are left out. Two things a crash may do, and
nothing else: a call of which nobody knows whether it ran is reported to the model as failed, from where
on the model may answer something else; and a thought that was cut off is thought again, from its start.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, Literal

from ...messages import is_tool_part, tool_name
from .story import Story

__all__ = ["Failure", "Kind", "judge"]

Kind = Literal["broken", "transcript", "reader", "effect", "provider", "turn", "error", "log"]

Json = dict[str, Any]
_OVER = ("completed", "error", "aborted", "skipped")
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
    compared = _Transcript(reference.messages, story.messages)
    failures += [Failure("transcript", what) for what in compared.differences[:_MOST]]
    failures += [Failure("transcript", what) for what in _doubles(story)]
    failures += [Failure("reader", what) for what in _screen(story)]
    failures += [Failure("effect", what) for what in _effects(reference, story, compared.reported)]
    failures += [Failure("turn", what) for what in _turns(reference, story)]
    return failures


def _doubles(story: Story) -> Iterator[str]:
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


def _turns(reference: Story, story: Story) -> Iterator[str]:
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


def _without_time(message: Json) -> Json:
    return {key: value for key, value in message.items() if key != "createdAt"}


class _Transcript:
    """Two transcripts, compared part by part."""

    def __init__(self, expected: Sequence[Json], found: Sequence[Json]) -> None:
        self.differences: list[str] = []
        self.reported = 0
        """How many calls the model was told to be interrupted."""
        # From a report to the next question the model may say something else than without one.
        self._is_told = False
        for number, (one, other) in enumerate(zip_longest(_normal(expected), _normal(found)), 1):
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
            if self._is_told or wanted == part:
                continue
            if _is_report(wanted, part):
                self._is_told = True
                continue
            one, other = _contrast(_part, part, wanted)
            self.differences.append(f"message {number} has {one} instead of {other}")
            break
        failed = sum(map(_is_failed, found["parts"])) - sum(map(_is_failed, expected["parts"]))
        self.reported += max(0, failed)


def _is_report(wanted: Json | None, part: Json | None) -> bool:
    if wanted is None or part is None or not (is_tool_part(wanted) and is_tool_part(part)):
        return False
    return tool_name(wanted) == tool_name(part) and _is_failed(part) and not _is_failed(wanted)


def _is_failed(part: Json) -> bool:
    return part.get("state") == "output-error"


def _normal(messages: Sequence[Json]) -> Iterator[Json]:
    """Messages without what differs between any two performances."""
    numbers: dict[str | None, int] = {m["id"]: n for n, m in enumerate(messages, 1)}
    for message in messages:
        yield {
            "role": message["role"],
            "parent": numbers.get(message.get("parent")),
            "metadata": message.get("metadata"),
            "parts": _thought_once([_normal_part(p) for p in message.get("parts", ()) if _says(p)]),
        }


def _says(part: Json) -> bool:
    """A step that was cut off is more than one step; where steps begin is no part of what was said."""
    return part["type"] != "step-start"


def _normal_part(part: Json) -> Json:
    kept = {key: value for key, value in part.items() if key != "toolCallId"}
    approval: Json | None = part.get("approval")
    if approval is not None:
        kept["approval"] = {key: value for key, value in approval.items() if key != "id"}
    return kept


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
