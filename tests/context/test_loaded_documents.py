"""Which documents a conversation holds, read back from its calls."""

from __future__ import annotations

from typing import Any

import pytest

from everthink.context.loaded_documents import (
    restored,
    unloaded_in,
    without_unloaded,
)
from everthink.messages import Message

DOCUMENT = "Speak like a pirate."
GONE = "[skill unloaded: pirate]"


def call(name: str, output: Any, key: str = "pirate", label: str = "skills", **fields: Any) -> dict[str, Any]:
    return {
        "type": f"tool-{name}",
        "toolCallId": "c1",
        "state": "output-available",
        "input": {"label": label, "key": key},
        "output": output,
        **fields,
    }


def dynamic(part: dict[str, Any]) -> dict[str, Any]:
    return {**part, "type": "dynamic-tool", "toolName": part["type"].removeprefix("tool-")}


def said(*parts: dict[str, Any], id: str = "m1") -> Message:
    return Message(id, "assistant", list(parts), {"kept": True}, created_text="2026-01-01")


LOADED = call("load_context", DOCUMENT)


@pytest.mark.memory_case(141, 609)
@pytest.mark.parametrize("part", [LOADED, dynamic(LOADED)], ids=["static", "dynamic"])
def test_trap_a_loaded_document_is_known_again_whether_its_part_names_the_tool_or_not(
    part: dict[str, Any],
) -> None:
    assert restored([said(part)]) == {"skills:pirate"}


@pytest.mark.parametrize("make", [dict, dynamic], ids=["static", "dynamic"])
def test_loads_and_unloads_count_in_the_order_they_happened(make: Any) -> None:
    unload = make(call("unload_context", "Unloaded."))
    load = make(LOADED)
    assert restored([said(load), said(unload)]) == set()
    assert restored([said(load, unload, load)]) == {"skills:pirate"}
    assert restored([said(load), said(make(call("load_context", GONE)))]) == set()


@pytest.mark.parametrize(
    "part",
    [
        call("load_context", "Not found: pirate"),
        call("load_context", "Error: load_context: label should be one of 'skills'."),
        {**LOADED, "state": "output-error", "errorText": "broke"},
        {**LOADED, "preliminary": True},
        {**LOADED, "input": {"label": "skills"}},
        {**LOADED, "input": "nonsense"},
        call("weather", DOCUMENT),
        {"type": "text", "text": DOCUMENT},
    ],
)
def test_what_is_no_successful_load_loads_nothing(part: dict[str, Any]) -> None:
    assert restored([said(part)]) == set()
    assert unloaded_in(said(part), "skills", "pirate") is None


def test_only_the_assistant_loads() -> None:
    message = Message("u1", "user", [LOADED])
    assert restored([message]) == set()
    assert unloaded_in(message, "skills", "pirate") is None


@pytest.mark.parametrize("part", [LOADED, dynamic(LOADED)], ids=["static", "dynamic"])
def test_trap_unloading_takes_the_document_out_of_its_part_and_nothing_else(part: dict[str, Any]) -> None:
    # Given a message with two documents
    other = call("load_context", "Be polite.", key="polite")
    text = {"type": "text", "text": "Aye."}
    message = said(text, part, other)

    # When one is unloaded
    changed = unloaded_in(message, "skills", "pirate")

    # Then its result says so, everything else is the same, and the message given is untouched
    assert changed is not None
    assert changed.parts == [text, {**part, "output": GONE}, other]
    assert (changed.id, changed.metadata, changed.created_text) == ("m1", {"kept": True}, "2026-01-01")
    assert message.parts[1]["output"] == DOCUMENT
    assert restored([changed]) == {"skills:polite"}


def test_a_message_whose_document_is_unloaded_already_is_passed_over() -> None:
    changed = unloaded_in(said(LOADED), "skills", "pirate")
    assert changed is not None
    assert unloaded_in(changed, "skills", "pirate") is None


def test_an_unload_that_failed_leaves_the_document() -> None:
    failed = call("unload_context", "Error: It could not be done.")
    assert restored([said(LOADED, failed)]) == {"skills:pirate"}
    message = said(LOADED, failed)
    assert without_unloaded(message) is message


@pytest.mark.parametrize("make", [dict, dynamic], ids=["static", "dynamic"])
def test_a_turn_that_loads_and_lets_go_keeps_only_what_it_loaded_afterwards(make: Any) -> None:
    # Given a message that loads two documents, lets one go, and loads it once more
    load, unload = make(LOADED), make(call("unload_context", "Unloaded."))
    other = make(call("load_context", "Be polite.", key="polite"))
    message = said(load, other, unload, load)

    # Then only the result before the unload is emptied
    assert without_unloaded(message).parts == [{**load, "output": GONE}, other, unload, load]
    assert restored([without_unloaded(message)]) == {"skills:pirate", "skills:polite"}
    # And with nothing to do it is the same message
    assert without_unloaded(said(unload, load)).parts == [unload, load]


def test_another_block_or_key_is_not_touched() -> None:
    assert unloaded_in(said(LOADED), "skills", "polite") is None
    assert unloaded_in(said(LOADED), "guides", "pirate") is None
