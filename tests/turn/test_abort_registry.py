"""Abort signals by themselves: one controller per request, linked to whoever else may stop it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from everthink.abort import AbortController, Aborted, AbortRegistry, AbortSignal

pytestmark = pytest.mark.anyio


@pytest.mark.case(67)
def test_a_controller_is_made_when_first_asked_for_and_then_stays_the_same() -> None:
    registry = AbortRegistry()
    assert len(registry) == 0
    signal = registry.signal("a")
    assert len(registry) == 1
    assert registry.signal("a") is signal is registry.controller("a").signal
    assert registry.signal("b") is not signal


@pytest.mark.case(68)
@pytest.mark.parametrize("id", [None, 7, b"a", ["a"]])
def test_ids_that_are_not_text_have_no_signal(id: Any) -> None:
    registry = AbortRegistry()
    assert registry.signal(id) is None
    assert len(registry) == 0


@pytest.mark.case(68)
def test_peeking_makes_none() -> None:
    registry = AbortRegistry()
    assert registry.peek("a") is None
    assert len(registry) == 0
    assert registry.signal("a") is registry.peek("a")


@pytest.mark.case(69)
def test_cancelling_passes_the_reason_on() -> None:
    registry = AbortRegistry()
    signal = registry.signal("a")
    assert signal is not None
    assert not signal.aborted
    assert registry.cancel("a", "enough") is True
    assert (signal.aborted, signal.reason) == (True, "enough")
    with pytest.raises(Aborted, match="enough"):
        signal.raise_if_aborted()


@pytest.mark.case(69)
def test_an_unknown_id_is_nothing_to_cancel() -> None:
    registry = AbortRegistry()
    assert registry.cancel("nobody", "enough") is False
    assert len(registry) == 0


@pytest.mark.case(70)
def test_an_id_that_was_removed_gets_a_fresh_controller() -> None:
    registry = AbortRegistry()
    registry.signal("a")
    registry.cancel("a")
    registry.remove("a")
    registry.remove("a")
    fresh = registry.signal("a")
    assert fresh is not None
    assert not fresh.aborted


@pytest.mark.case(71)
def test_destroying_all_aborts_everything_and_empties_the_registry() -> None:
    registry = AbortRegistry()
    signals = [registry.signal(id) for id in "abc"]
    registry.destroy_all("over")
    assert [(s.aborted, s.reason) for s in signals if s] == [(True, "over")] * 3
    assert len(registry) == 0


@pytest.mark.case(72)
def test_linking_to_no_signal_does_nothing() -> None:
    registry = AbortRegistry()
    unlink = registry.link("a", None)
    unlink()
    assert len(registry) == 0


@pytest.mark.case(73)
def test_linking_to_a_signal_that_fired_cancels_at_once() -> None:
    registry, external = AbortRegistry(), AbortController()
    external.abort("too late")
    registry.link("a", external.signal)
    signal = registry.peek("a")
    assert signal is not None
    assert (signal.aborted, signal.reason) == (True, "too late")


@pytest.mark.case(74)
def test_a_linked_signal_that_fires_later_cancels() -> None:
    registry, external = AbortRegistry(), AbortController()
    registry.link("a", external.signal)
    signal = registry.signal("a")
    assert signal is not None
    assert not signal.aborted
    external.abort("now")
    assert (signal.aborted, signal.reason) == (True, "now")


@pytest.mark.case(75)
def test_an_unlinked_signal_no_longer_cancels() -> None:
    registry, external = AbortRegistry(), AbortController()
    unlink = registry.link("a", external.signal)
    unlink()
    unlink()
    external.abort()
    signal = registry.signal("a")
    assert signal is not None
    assert not signal.aborted


@pytest.mark.case(76)
def test_an_id_linked_to_two_signals_is_cancelled_once_for_the_first_reason() -> None:
    registry, one, two = AbortRegistry(), AbortController(), AbortController()
    registry.link("a", one.signal)
    registry.link("a", two.signal)
    signal = registry.signal("a")
    assert signal is not None
    fired: list[object] = []
    signal.on_abort(lambda s: fired.append(s.reason))
    two.abort("second")
    one.abort("first")
    assert (fired, signal.reason) == (["second"], "second")


@pytest.mark.case(77)
def test_one_long_lived_signal_over_many_turns_gathers_no_listeners() -> None:
    registry, external = AbortRegistry(), AbortController()
    for turn in range(100):
        unlink = registry.link(f"turn-{turn}", external.signal)
        assert external.signal.listeners == 1
        unlink()
        registry.remove(f"turn-{turn}")
    assert external.signal.listeners == 0
    assert len(registry) == 0


@pytest.mark.case(78)
def test_one_signal_reaches_every_id_linked_to_it_and_they_stay_independent() -> None:
    registry, external = AbortRegistry(), AbortController()
    for id in "abc":
        registry.link(id, external.signal)
    registry.cancel("b", "just me")
    assert [registry.peek(id).aborted for id in "abc"] == [False, True, False]  # type: ignore[union-attr]
    external.abort("all")
    assert [registry.peek(id).reason for id in "abc"] == ["all", "just me", "all"]  # type: ignore[union-attr]


def test_a_listener_that_raises_does_not_keep_the_others_from_hearing() -> None:
    controller, heard = AbortController(), []

    def broken(signal: AbortSignal) -> None:
        raise RuntimeError("deaf")

    controller.signal.on_abort(broken)
    controller.signal.on_abort(lambda signal: heard.append(signal.reason))
    controller.abort("stop")
    controller.abort("again")
    assert heard == ["stop"]


def test_the_same_function_may_listen_twice_and_leave_once() -> None:
    controller, heard = AbortController(), []

    def listen(signal: AbortSignal) -> None:
        heard.append(1)

    leave = controller.signal.on_abort(listen)
    controller.signal.on_abort(listen)
    leave()
    controller.abort()
    assert heard == [1]


async def test_waiting_for_a_signal_ends_when_it_fires() -> None:
    controller = AbortController()
    waiting = asyncio.create_task(controller.signal.wait())
    await asyncio.sleep(0)
    assert not waiting.done()
    controller.abort()
    await waiting
    await controller.signal.wait()
