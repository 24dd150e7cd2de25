"""A difference leads from one text to the other, whatever somebody made it of."""

from __future__ import annotations

import random
from typing import Any

import pytest

from everthink import text_diff


def applied(before: str, difference: str) -> str:
    """What a unified diff makes of a text."""
    lines, made, at = before.split("\n") if before else [], list[str](), 0
    for line in difference.split("\n")[2:-1]:
        if line.startswith("@@"):
            start, length = (int(number) for number in line.split()[1][1:].split(","))
            start -= 1 if length else 0
            made, at = made + lines[at:start], start
        elif line[0] == "+":
            made.append(line[1:])
        else:
            assert lines[at] == line[1:]
            made += [lines[at]] if line[0] == " " else []
            at += 1
    return "\n".join(made + lines[at:])


@pytest.mark.parametrize("steps", [0, 10, 100, text_diff.MOST_STEPS])
def test_a_difference_leads_from_one_text_to_the_other_also_when_it_ends_early(
    steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_diff, "MOST_STEPS", steps)
    dice = random.Random(steps)
    for _ in range(300):
        one = [dice.choice("abcde") for _ in range(dice.randrange(30))]
        other = [line for line in one if dice.random() < 0.8]
        for _ in range(dice.randrange(4)):
            other.insert(dice.randrange(len(other) + 1), dice.choice("abx"))
        before, after = "\n".join(one), "\n".join(other)
        if before != after:
            assert applied(before, text_diff.unified(before, after, old="a", new="b")) == after


def test_texts_of_lines_that_are_all_alike_are_compared_in_so_many_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked_at = 0

    def counted(
        matcher: text_diff.SequenceMatcher[str], alo: int, ahi: int, blo: int, bhi: int
    ) -> text_diff.Match:
        nonlocal looked_at
        looked_at += sum(len(matcher.b2j.get(line, ())) for line in matcher.a[alo:ahi])  # pyright: ignore
        return real(matcher, alo, ahi, blo, bhi)

    real: Any = text_diff.SequenceMatcher.find_longest_match  # pyright: ignore
    monkeypatch.setattr(text_diff.SequenceMatcher, "find_longest_match", counted)
    one = [f"{n % 40}" for n in range(9_000)]
    other = [f"{n * 7 % 40}" for n in range(9_000)]
    before, after = "\n".join(one), "\n".join(other)
    found = text_diff.unified(before, after, old="a", new="b")
    assert looked_at <= text_diff.MOST_STEPS
    assert applied(before, found) == after

    # And what both begin and end with costs nothing
    looked_at = 0
    before, after = "\n".join(["x"] * 9_000), "\n".join([*["x"] * 5_000, "new", *["x"] * 3_000])
    found = text_diff.unified(before, after, old="a", new="b")
    assert (looked_at, applied(before, found)) == (0, after)
