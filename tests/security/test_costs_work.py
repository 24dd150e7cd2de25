"""Work done by what a client, a model or a tool can make long: four times as much costs four times as much.

Counted in steps, never in seconds. Each of these once grew with the square, or worse.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from everthink import chunks as ui
from everthink.door.continuations import is_incomplete
from everthink.door.reconcile import adopt_by_call, reconcile
from everthink.journal.fold import Accumulator, fold
from everthink.journal.interactions import holder_of
from everthink.messages import Message, encode_json
from everthink.models import port as model
from everthink.models.tokens import estimate_message, estimate_tokens
from everthink.prompt.convert import paired
from everthink.session import row_size as budget
from everthink.store.port import LONGEST_QUERY, Search
from everthink.store.search import words_of
from everthink.workspace import glob

from ..support.steps import grows_no_faster, steps

Work = Callable[[int], Callable[[], Any]]


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def call(number: int, state: str = "output-available", **more: Any) -> dict[str, Any]:
    return {"type": "tool-add", "toolCallId": f"c{number}", "state": state, "input": {}, **more}


def many_data(size: int) -> Callable[[], Any]:
    chunks = [ui.Data(f"data-x{n % 3}", {"n": n}, id=f"d{n}") for n in range(size)]
    return lambda: fold(chunks)


def replaced_data(size: int) -> Callable[[], Any]:
    chunks = [ui.Data("data-x", {"n": n}, id=f"d{n % 50}") for n in range(size)]
    return lambda: fold(chunks)


def many_blocks(size: int) -> Callable[[], Any]:
    chunks: list[ui.Chunk] = []
    for n in range(size):
        chunks += [ui.TextStart(f"t{n}"), ui.TextDelta(f"t{n}", "x"), ui.TextEnd(f"t{n}")]
    return lambda: fold(chunks)


def open_step(size: int) -> Callable[[], Any]:
    message = Message("m", "assistant", [call(n) for n in range(size)])
    return lambda: is_incomplete(message)


def own_calls(size: int) -> Callable[[], Any]:
    said = [model.ToolCallPart(f"c{n}", "add", {}) for n in range(size)]
    results = [model.ToolResultPart(f"c{n}", "add", "x") for n in range(size)]
    messages = [model.AssistantMessage(said), model.ToolMessage(results)]
    return lambda: paired(messages)


def providers_calls(size: int) -> Callable[[], Any]:
    """Each of many answers begins calls that nobody answers."""
    messages = [
        model.AssistantMessage([model.ToolCallPart(f"c{n}-{k}", "search", {}, True) for k in range(4)])
        for n in range(size)
    ]
    return lambda: paired(messages)


def fitted(size: int) -> Callable[[], Any]:
    message = Message("m", "assistant", [text("x" * 2000) for _ in range(size)])
    return lambda: budget.fit(message, limit=1000)


def cut_list(size: int) -> Callable[[], Any]:
    value = [{"name": "x" * 40, "n": n} for n in range(size)]
    return lambda: budget.cut(value, 500)


def cut_dict(size: int) -> Callable[[], Any]:
    value = {f"k{n}": "x" * 300 for n in range(size)}
    return lambda: budget.cut(value, 40 * size)


def cut_deep(size: int) -> Callable[[], Any]:
    value: Any = "x" * 100
    for _ in range(40):
        value = {"in": value, "items": ["y" * 10] * (size // 40)}
    return lambda: budget.cut(value, 500)


def believed(size: int) -> Callable[[], Any]:
    stored = [Message(f"m{n}", "assistant", [text("the same words")]) for n in range(size)]
    incoming = [Message(f"new{n}", "assistant", [text("the same words")]) for n in range(size)]
    return lambda: reconcile(incoming, stored)


def adopted(size: int) -> Callable[[], Any]:
    stored = [Message(f"m{n}", "assistant", [call(n)]) for n in range(size)]
    incoming = [Message(f"new{n}", "assistant", [call(n)]) for n in range(size)]
    return lambda: adopt_by_call(incoming, stored)


def found_holder(size: int) -> Callable[[], Any]:
    path = [Message(f"m{n}", "assistant", [call(n)]) for n in range(size)]
    return lambda: holder_of(path, "nobody")


def counted_tokens(size: int) -> Callable[[], Any]:
    message = Message("m", "user", [text("a b c " * 100) for _ in range(size)])
    return lambda: estimate_message(message)


def open_braces(size: int) -> Callable[[], Any]:
    return lambda: glob._compiled.__wrapped__("{" * size)  # pyright: ignore[reportPrivateUsage]


@pytest.mark.parametrize(
    "work",
    [
        many_data,
        replaced_data,
        many_blocks,
        open_step,
        own_calls,
        providers_calls,
        fitted,
        cut_list,
        cut_dict,
        cut_deep,
        believed,
        adopted,
        found_holder,
        counted_tokens,
        open_braces,
    ],
)
def test_four_times_as_much_costs_four_times_as_much(work: Work) -> None:
    grows_no_faster(work, 200)


# --- what is written in C is counted by what goes through it


def encoded(monkeypatch: pytest.MonkeyPatch, work: Callable[[], Any]) -> int:
    """Bytes of JSON that `work` writes on its way."""
    written = 0

    def counting(value: Any) -> bytes:
        nonlocal written
        data = encode_json(value)
        written += len(data)
        return data

    with monkeypatch.context() as patch:
        patch.setattr(budget, "encode_json", counting)
        work()
    return written


@pytest.mark.parametrize("work", [fitted, cut_list, cut_dict, cut_deep])
def test_a_message_that_is_cut_is_not_written_again_for_each_part(
    work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    small, large = encoded(monkeypatch, work(200)), encoded(monkeypatch, work(800))
    assert large <= 5 * small


def test_words_are_counted_without_a_list_of_them() -> None:
    seed = random.Random(3)
    for _ in range(50):
        signs = "".join(seed.choices("ab \n\t\u3000é", k=seed.randrange(60_000)))
        assert estimate_tokens(signs) == _estimated(signs)
    assert steps(lambda: estimate_tokens("a " * 500_000)) < 2000


def _estimated(signs: str) -> int:
    import math

    units = len(signs.encode("utf-16-le")) // 2
    return math.ceil(max(units / 4, len(signs.split()) * 1.3))


def test_a_huge_query_costs_no_more_than_a_long_one() -> None:
    def asked(size: int) -> Callable[[], Any]:
        return lambda: words_of(Search("messages", ("id",), ("x " * size,)))

    assert words_of(Search("messages", ("id",), ("x " * 10_000,))) == ["x"] * 32
    assert steps(asked(1_000_000)) <= steps(asked(LONGEST_QUERY))


# --- and what is cheaper is still the same


def test_data_with_an_id_is_replaced_in_its_place_also_after_a_copy() -> None:
    first = fold([ui.Data("data-a", 1, id="x"), ui.Data("data-b", 2, id="x"), ui.Data("data-a", 3)])
    again = fold([ui.Data("data-a", 4, id="x"), ui.Data("data-a", 5, id="y")], first)
    assert [part["data"] for part in again.parts] == [4, 2, 3, 5]
    assert [part["data"] for part in first.parts] == [1, 2, 3]
    resumed = Accumulator.of(again.message())
    resumed.apply(ui.Data("data-b", 6, id="x"))
    assert [part["data"] for part in resumed.parts] == [4, 6, 3, 5]


def test_a_list_keeps_the_longest_beginning_that_fits() -> None:
    value = [f"number {n}" for n in range(100)]
    kept = budget.cut(value, 300)
    assert kept[:-1] == value[: len(kept) - 1]
    assert kept[-1] == f"... [truncated {100 - len(kept) + 1} items]"
    assert len(encode_json(kept)) <= 300
    assert len(encode_json(value[: len(kept)])) > 300 - 40


def test_a_providers_result_counts_only_until_a_person_speaks() -> None:
    call_, result = model.ToolCallPart("c", "search", {}, True), model.ToolResultPart("c", "search", "x")
    asks, answers = model.AssistantMessage([call_]), model.AssistantMessage([result])
    person = model.UserMessage([model.TextPart("Hi")])
    assert paired([asks, answers]) == [asks, answers]
    assert paired([asks, person, answers]) == [person]
    assert paired([model.AssistantMessage([result, call_])]) == []
    assert paired([model.AssistantMessage([call_, result])]) == [model.AssistantMessage([call_, result])]
