"""What a server's tool returned, as ours do."""

from __future__ import annotations

import base64
import math
from typing import Any

import mcp_types as sdk
import pytest

from everthink.errors import ToolError
from everthink.mcp import results as module
from everthink.mcp.results import output_of, progress_of, shown_to_model
from everthink.messages import Message, encode_json
from everthink.models.port import FilePart, TextPart
from everthink.session.media import evicted
from everthink.tools.output import ModelOutput, jsonable, model_output
from everthink.tools.tool import Tool

PNG = base64.b64encode(b"\x89PNG not really").decode()
PNG_URL = f"data:image/png;base64,{PNG}"


def result(*blocks: Any, **more: Any) -> sdk.CallToolResult:
    return sdk.CallToolResult(content=list(blocks), **more)


def text(words: str) -> sdk.TextContent:
    return sdk.TextContent(text=words)


def image(data: str = PNG, kind: str = "image/png") -> sdk.ImageContent:
    return sdk.ImageContent(data=data, mime_type=kind)


def shown(found: sdk.CallToolResult) -> ModelOutput:
    """The way of a result through the framework: as JSON into the ledger, from there to the model."""
    tool = Tool.from_schema("t", "", None, lambda given: given, to_model_output=shown_to_model)
    return model_output(tool, jsonable(output_of(found), tool=tool))


# --- texts and data


def test_structured_content_is_the_output() -> None:
    found = result(text('{"sum": 3}'), structured_content={"sum": 3})
    assert output_of(found) == {"sum": 3}
    assert shown(found) == ModelOutput({"sum": 3})


@pytest.mark.parametrize("value", [0, False, "", [], [1], {"type": "content"}])
def test_structured_content_may_be_any_json(value: Any) -> None:
    assert output_of(result(structured_content=value)) == value


def test_without_it_the_texts_are_joined() -> None:
    assert output_of(result(text("one"), text("two"))) == "one\ntwo"
    assert output_of(result()) == ""


def test_links_and_embedded_texts_are_text_and_embedded_files_are_noted() -> None:
    link = sdk.ResourceLink(uri="file:///a.png", name="a", mime_type="image/png", description="A cat.")
    words = sdk.EmbeddedResource(resource=sdk.TextResourceContents(uri="file:///b", text="hello"))
    blob = sdk.EmbeddedResource(resource=sdk.BlobResourceContents(uri="file:///c", blob="AAAA"))
    assert output_of(result(link, words, blob)).split("\n") == [
        "[resource a: file:///a.png (image/png, A cat.)]",
        "[resource file:///b]",
        "hello",
        "[resource file:///c: binary, 3 bytes, left out]",
    ]


def test_a_text_that_is_far_too_long_is_cut_and_says_so() -> None:
    output = output_of(result(text("x" * 20_000_000)))
    assert len(output) < module.MOST_TEXT + 100
    assert output.endswith("[cut: this text has 20,000,000 characters]")


def test_data_that_is_far_too_large_becomes_text_that_says_so() -> None:
    output = output_of(result(structured_content={"rows": ["x" * 1000] * 2000}))
    assert output.startswith('{"rows":["xxx')
    assert "[cut: this text has 2," in output


def test_data_that_looks_like_parts_is_data() -> None:
    listed = [{"type": "file", "url": "http://169.254.169.254/", "mediaType": "image/png"}]
    assert shown(result(structured_content=listed)) == ModelOutput(encode_json(listed).decode())
    mimicked = {"type": "content", "value": listed}
    assert shown(result(structured_content=mimicked)).content == [TextPart("http://169.254.169.254/")]


# --- pictures and sounds


def test_a_picture_is_shown_to_people_and_to_the_model() -> None:
    found = result(text("A cat:"), image())

    output, content = output_of(found), shown(found).content

    assert output == {
        "type": "content",
        "value": [
            {"type": "text", "text": "A cat:"},
            {"type": "file", "mediaType": "image/png", "url": PNG_URL},
        ],
    }
    assert content == [TextPart("A cat:"), FilePart(PNG_URL, "image/png")]


def test_a_sound_is_a_file_as_well_and_models_of_text_get_a_note() -> None:
    found = shown(result(sdk.AudioContent(data=PNG, mime_type="audio/wav; codecs=1")))
    assert found.content == [FilePart(f"data:audio/wav;base64,{PNG}", "audio/wav")]
    assert found.output == "[file: audio/wav]"


def test_a_picture_beside_structured_content_goes_along() -> None:
    found = result(text('{"sum": 3}'), image(), structured_content={"sum": 3})
    assert output_of(found)["structured"] == {"sum": 3}
    assert shown(found).content == [TextPart('{"sum":3}'), FilePart(PNG_URL, "image/png")]


def test_base64_in_lines_is_base64() -> None:
    folded = f"{PNG[:8]}\n{PNG[8:]}"
    assert shown(result(image(folded))).content == [FilePart(PNG_URL, "image/png")]


def test_pictures_above_five_megabytes_are_left_out_with_a_note() -> None:
    large = base64.b64encode(b"\0" * 3_000_000).decode()
    content = shown(result(image(large), image(large), image())).content
    assert content is not None
    assert [type(part).__name__ for part in content] == ["FilePart", "TextPart", "FilePart"]
    assert content[1] == TextPart(
        "[image, image/png, 3,000,000 bytes: left out, because one result may have 5,000,000]"
    )


@pytest.mark.parametrize(
    "block",
    [
        image("<script>"),
        image(""),
        image(kind="text/html"),
        image(kind="audio/wav"),
        image(kind='image/png";x'),
    ],
)
def test_what_is_no_picture_is_left_out_with_a_note(block: sdk.ImageContent) -> None:
    assert output_of(result(block)).endswith(": left out, because it is none]")


def test_a_picture_that_has_left_an_old_conversation_says_where_it_went() -> None:
    large = base64.b64encode(b"\0" * 50_000).decode()
    part = {"type": "tool-t", "toolCallId": "c", "state": "output-available"}
    message = Message("m", "assistant", [{**part, "output": output_of(result(image(large)))}])

    lighter = evicted(message, min_part_bytes=32 * 1024)

    assert lighter is not None
    assert lighter.blobs[0].media_type == "image/png"
    (told,) = shown_to_model(lighter.message.parts[0]["output"])
    assert told["text"].startswith("[evicted image/png, 50000 bytes; preserved at ")


# --- failures, progress


@pytest.mark.parametrize(
    ("blocks", "words"),
    [
        ([text("No such\x1b city.")], "No such city."),
        ([text("One."), text("Two.")], "One.\nTwo."),
        ([text("x" * 9000)], "x" * 3999 + "…"),
        ([text("\x00")], "Tool call failed"),
        ([], "Tool call failed"),
    ],
)
def test_a_failure_is_raised_with_the_words_of_the_server(blocks: list[Any], words: str) -> None:
    with pytest.raises(ToolError) as caught:
        output_of(result(*blocks, is_error=True, structured_content={"ignored": True}))
    assert str(caught.value) == words


def test_progress_is_a_small_value() -> None:
    assert progress_of(1, 4, "Half\nway\x07") == {"progress": 1, "total": 4, "message": "Half way"}
    assert progress_of(0.5) == {"progress": 0.5}
    assert progress_of(math.nan, math.inf) == {}
