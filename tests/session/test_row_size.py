"""What is cleaned away and cut before a message is stored, and before an old one is shown."""

from __future__ import annotations

from typing import Any

import pytest

from everthink.messages import Message, encode_json
from everthink.session import row_size as budget
from everthink.session.row_size import (
    MAX_ROW_BYTES,
    clean,
    fit,
    shorten,
    storable,
)
from everthink.testing.scripted import ScriptedModel, calls, says
from everthink.tools.tool import tool
from tests.conftest import OpenApp
from tests.support.agents import assistant

ITEM, SEALED = "itemId", "reasoningEncryptedContent"


def text(said: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": said, **more}


def call(output: Any, id: str = "c", **more: Any) -> dict[str, Any]:
    return {
        "type": "tool-t",
        "toolCallId": id,
        "state": "output-available",
        "input": {},
        "output": output,
        **more,
    }


def answer(*parts: dict[str, Any], **more: Any) -> Message:
    return Message("a", "assistant", list(parts), **more)


def size(message: Message) -> int:
    return len(encode_json(message))


# --- cleaning


@pytest.mark.case(213, 214)
@pytest.mark.parametrize("field", ["providerMetadata", "callProviderMetadata"])
@pytest.mark.parametrize("key", [ITEM, SEALED])
def test_what_only_openai_could_use_is_removed(field: str, key: str) -> None:
    given = answer(text("hi", **{field: {"openai": {key: "x", "kept": 1}, "other": {key: "y"}}}))
    assert clean(given).parts == [text("hi", **{field: {"openai": {"kept": 1}, "other": {key: "y"}}})]
    # and what is empty without it goes too
    assert clean(answer(text("hi", **{field: {"openai": {key: "x"}, "other": {}}}))).parts == [
        text("hi", **{field: {"other": {}}})
    ]
    assert clean(answer(text("hi", **{field: {"openai": {key: "x"}}}))).parts == [text("hi")]


@pytest.mark.case(213, 214)
def test_both_fields_and_both_keys_are_cleaned_at_once() -> None:
    part = call(
        1, providerMetadata={"openai": {ITEM: 1, SEALED: 2}}, callProviderMetadata={"openai": {ITEM: 1}}
    )
    assert clean(answer(part)).parts == [call(1)]


@pytest.mark.case(215)
@pytest.mark.parametrize(
    "part",
    [
        text("hi"),
        text("hi", providerMetadata={"anthropic": {"signature": "s"}}),
        text("hi", providerMetadata={"openai": {"logprobs": []}}),
        text("hi", providerMetadata={"openai": {}}),
        text("hi", providerMetadata={}),
        text("hi", providerMetadata=None),
        text("hi", providerMetadata={"openai": "odd"}),
        call(1, callProviderMetadata={"google": {"x": 1}}),
    ],
)
def test_a_message_without_such_data_is_the_same_object(part: dict[str, Any]) -> None:
    given = answer(part)
    assert clean(given) is given


@pytest.mark.case(216)
@pytest.mark.parametrize("blank", ["", " ", "\n\t"])
def test_empty_thinking_is_dropped_unless_a_provider_needs_it_back(blank: str) -> None:
    empty = {"type": "reasoning", "text": blank}
    redacted = {**empty, "providerMetadata": {"anthropic": {"redactedData": "x"}}}
    assert clean(answer(empty, text("hi"))).parts == [text("hi")]
    assert clean(answer({**empty, "providerMetadata": {}}, text("hi"))).parts == [text("hi")]
    assert clean(answer(redacted, text("hi"))).parts == [redacted, text("hi")]
    # data that is removed does not keep it
    sealed = {**empty, "providerMetadata": {"openai": {SEALED: "x"}}}
    assert clean(answer(sealed, text("hi"))).parts == [text("hi")]
    thought = {"type": "reasoning", "text": "hm"}
    assert clean(answer(thought)).parts == [thought]


def test_cleaning_leaves_the_given_message_and_everything_else_of_it() -> None:
    given = answer(
        text("hi", providerMetadata={"openai": {ITEM: 1}}),
        metadata={"k": 1},
        created_text="2026-01-01T00:00:00Z",
    )
    before = given.copy()
    cleaned = clean(given)
    assert given == before
    assert (cleaned.metadata, cleaned.created_text) == ({"k": 1}, "2026-01-01T00:00:00Z")
    assert clean(cleaned) is cleaned


# --- the size of a row


@pytest.mark.case(217)
def test_a_message_that_fits_is_the_same_object() -> None:
    given = answer(text("x" * 1000), call("y" * 100_000))
    assert fit(given) is given
    assert storable(given) is given


@pytest.mark.case(218)
def test_large_outputs_of_an_answer_are_cut_and_their_ids_noted(caplog: pytest.LogCaptureFixture) -> None:
    # Given an answer with two huge outputs and a small one
    huge = "x" * MAX_ROW_BYTES
    given = answer(
        text("t" * 5000),
        call(huge, "1"),
        call({"rows": ["y" * 600] * 5000}, "2"),
        call("small", "3"),
        {**call("z" * 2000, "4"), "state": "input-available"},
        metadata={"k": 1},
    )
    before = given.copy()

    # When it is made to fit
    cut = fit(given)

    # Then outputs were cut and nothing else, and the message says so
    assert size(cut) <= MAX_ROW_BYTES
    assert len(cut.parts[1]["output"]) <= 1000
    assert cut.parts[1]["output"].startswith("xxx")
    assert isinstance(cut.parts[2]["output"]["rows"], list)
    assert (cut.parts[0], cut.parts[3], cut.parts[4]) == (given.parts[0], given.parts[3], given.parts[4])
    assert cut.metadata == {"k": 1, "compactedToolOutputs": ["1", "2"]}
    assert given == before
    assert "it is cut" in caplog.text


@pytest.mark.case(219)
@pytest.mark.parametrize("role", ["user", "system"])
def test_large_texts_of_others_are_cut_from_the_oldest_until_it_fits(role: Any) -> None:
    long = "x" * 1_000_000
    given = Message("u", role, [text("short"), text(long), text("y" * 700_000), text("z" * 200_000)])
    cut = fit(given)
    assert size(cut) <= MAX_ROW_BYTES
    assert cut.parts[1]["text"] == (
        f"[Text truncated for storage (1000000 chars). First 500 chars: {'x' * 500}...]"
    )
    # the later ones stay, because it fits without cutting them
    assert [cut.parts[i] for i in (0, 2, 3)] == [given.parts[i] for i in (0, 2, 3)]
    assert cut.metadata == {"compactedTextParts": [1]}


@pytest.mark.case(218, 219)
def test_texts_of_an_answer_are_cut_when_its_outputs_were_not_enough() -> None:
    cut = fit(answer(call("o" * 900_000), text("x" * MAX_ROW_BYTES), text("y" * 2000)))
    assert size(cut) <= MAX_ROW_BYTES
    assert cut.metadata == {"compactedToolOutputs": ["c"], "compactedTextParts": [1]}
    assert cut.parts[2] == text("y" * 2000)


def test_outputs_of_others_are_never_touched() -> None:
    given = Message("u", "user", [call("o" * 1000, "1"), text("x" * MAX_ROW_BYTES)])
    assert fit(given).parts[0] == given.parts[0]


def test_bytes_count_not_characters() -> None:
    given = Message("u", "user", [text("€" * 700_000)])
    assert len(given.parts[0]["text"]) < MAX_ROW_BYTES < size(given)
    assert size(fit(given)) <= MAX_ROW_BYTES


def test_what_has_nothing_to_cut_is_kept_whole_and_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    # Given a row that is too large for many small reasons
    given = Message("u", "user", [text("x" * 300) for _ in range(9000)])
    assert size(given) > MAX_ROW_BYTES
    looks: list[Any] = []
    monkeypatch.setattr(budget, "encode_json", lambda value: looks.append(value) or encode_json(value))

    # Then nothing is thrown away, and the search for something to cut does not read it again for each part
    assert fit(given).parts == given.parts
    assert len(looks) <= 3


def test_making_it_fit_twice_changes_nothing_more() -> None:
    once = fit(answer(call({"a": "x" * MAX_ROW_BYTES, "b": ["y"] * 5000}), text("z" * 5000)))
    assert fit(once) is once


# --- what an old message is shown as


@pytest.mark.case(660)
def test_long_outputs_and_texts_are_cut_and_say_by_how_much() -> None:
    output, said = shorten(answer(call("x" * 501), text("y" * 10_001))).parts
    assert output["output"].endswith("... [truncated 501 chars]")
    assert said["text"].endswith("... [truncated 1 chars]")
    assert (len(output["output"]), len(said["text"])) == (500, 10_000)


@pytest.mark.case(660)
def test_what_is_short_enough_is_the_same_object() -> None:
    given = answer(call("x" * 500), call(["y"] * 100, "2"), text("z" * 10_000), {"type": "step-start"})
    assert shorten(given) is given


# --- through a real agent


@pytest.mark.anyio
@pytest.mark.case(213, 216, 218)
async def test_an_answer_is_cleaned_and_cut_before_it_is_stored(open_app: OpenApp) -> None:
    # Given a tool whose output no row can hold, and a model that says nothing while thinking
    @tool
    def dump() -> str:
        """Dump everything."""
        return "x" * (MAX_ROW_BYTES + 1)

    model = ScriptedModel(calls("dump").thinks("", redacted=None), says("That was much."))
    app = await open_app(cls := assistant(model, get_tools=lambda self: [dump]))
    handle = app.agent(cls, "room")
    assert (await handle.save_messages("Dump")).status == "completed"

    # Then the row fits and says what was cut; this turn's model still saw all of it
    await app.evict(cls, "room")
    stored = (await handle.get_messages())[-1]
    assert size(stored) <= MAX_ROW_BYTES
    assert stored.metadata == {"compactedToolOutputs": [stored.tool_parts[0]["toolCallId"]]}
    assert [part["type"] for part in stored.parts if part["type"] == "reasoning"] == []
    assert len(model.last_request.messages[-1].content[0].output) == MAX_ROW_BYTES + 1


@pytest.mark.anyio
@pytest.mark.case(213, 219)
async def test_so_is_what_people_send_and_code_adds(open_app: OpenApp) -> None:
    model = ScriptedModel(says("ok"))
    app = await open_app(cls := assistant(model))
    handle = app.agent(cls, "room")
    await handle.add_messages(
        [Message("a", "assistant", [text("hi", providerMetadata={"openai": {ITEM: 1}})])]
    )
    await handle.save_messages("x" * (MAX_ROW_BYTES + 1))
    await app.evict(cls, "room")
    added, sent, _ = await handle.get_messages()
    assert added.parts == [text("hi")]
    assert size(sent) <= MAX_ROW_BYTES
    assert sent.metadata == {"compactedTextParts": [0]}
