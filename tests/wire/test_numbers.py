"""What numbers count as before they are read: by their digits, outside strings, wherever pieces end."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from everthink.limits import Limits
from everthink.wire.bounds import PIECE, check
from everthink.wire.numbers import FAR, FARTHEST, LONG, LONGEST, Numbers, at_most


def more(*pieces: bytes) -> int | None:
    """What the numbers count as besides; `None` when one is too long."""
    numbers = Numbers()
    for piece in pieces:
        numbers.add(piece)
    numbers.end()
    return None if numbers.is_too_long else numbers.more


WEIGHTS = {
    "0": 0,
    "0.1": 0,
    "-51.50735": 0,
    "1e-7": 0,
    "1e-07": 0,
    "2.5E+9": 0,
    "1731895200123": 0,
    "1731895200.123": 0,
    "123456789012345": 0,
    "true": 0,
    "9007199254740993": LONG,
    "0.12345678901234567": LONG,
    "-1234567.8901234567": LONG,
    "9" * 40: 2 * LONG,
    "1e23": FAR,
    "1.5E-10": FAR,
    "1.2345678901234567e+99": LONG + FAR,
    "1e300": FARTHEST,
    "4.9e-324": FARTHEST,
    "1e0000007": FARTHEST,
    "1.7976931348623157e308": LONG + FARTHEST,
}


@pytest.mark.parametrize("number", WEIGHTS)
def test_a_number_counts_as_what_reading_it_takes(number: str) -> None:
    text = f'[{number}, {{"":{number}}},{number}]'.replace('""', "").encode()
    assert more(text) == 3 * WEIGHTS[number]
    assert at_most(text) >= 3 * WEIGHTS[number]


@pytest.mark.parametrize(
    "number", [*(number for number in WEIGHTS if number != "1e-07"), "9" * 41, "0." + "0" * 40]
)
def test_a_number_may_be_cut_anywhere(number: str) -> None:
    text = f"[{number}]".encode()
    whole = more(text)
    assert all(more(text[:cut], text[cut:]) == whole for cut in range(len(text)))
    assert more(*(bytes([byte]) for byte in text)) == whole


@pytest.mark.parametrize("number", ["9" * 41, "-" + "9" * 41, "0." + "1" * 40, "1" * 4200, "1e" + "0" * 41])
def test_a_number_has_forty_digits_at_most(number: str) -> None:
    why = f"holds a number of more than {LONGEST} digits"
    for padding in (10, PIECE - 60, PIECE - 30, 3 * PIECE):
        text = json.dumps({"x": "y" * padding, "n": 0}).replace("0}", number + "}")
        assert check(text, Limits()) == check(text.encode(), Limits()) == why


@pytest.mark.parametrize("quote", ["", '\\"', "\\\\", "\\\\\\\\", '\\\\\\"'])
def test_what_stands_in_strings_is_no_number(quote: str) -> None:
    for padding in (0, 1, 2, 3, PIECE - 50):
        inside = "x" * padding + (quote + "9" * 60 + ",1e300," * 3) * 2000 + quote
        assert check(f'{{"{inside}":["{inside}",1]}}', Limits()) is None
        assert check(f'{{"{inside}":["{inside}",1e300]}}', Limits()) is None
        assert check(f'{{"a":["{inside}",{"9" * 60}]}}', Limits()) is not None


@pytest.mark.parametrize("number", ["1e300", "1.7976931348623157e308", "4.9e-324", "1.2345678901234567e-300"])
def test_numbers_that_are_slow_to_read_are_few(number: str) -> None:
    # So many that reading them takes less than ten milliseconds
    assert check(json.dumps([1] * 100)[:-1] + f",{number}" * 190 + "]", Limits()) is None
    for count in (210, 70_000, 198_000):
        why = check("[" + ",".join([number] * count) + "]", Limits())
        assert "slow to read" in (why or "")


def floats(count: int, scale: float) -> list[float]:
    chance = random.Random(1)
    return [chance.gauss(0, scale) for _ in range(count)]


@pytest.mark.parametrize(
    "value",
    [
        floats(3072, 0.02),
        floats(3072, 1e-12),
        [floats(3072, 0.02) for _ in range(4)],
        [{"at": 1_731_895_200_123 + n, "lat": 51.50735, "lon": -0.12776, "p": 1e-7} for n in range(8_000)],
        [2**63, 2**127, 1.7976931348623157e308, 5e-324],
    ],
    ids=["an embedding", "an embedding of tiny numbers", "four embeddings", "a track", "extremes"],
)
def test_numbers_as_people_have_them_are_let_in(value: Any) -> None:
    assert check(json.dumps(value), Limits()) is None
