"""The frontmatter by itself."""

from __future__ import annotations

import pytest

from everthink.skills.frontmatter import parse, read, split


@pytest.mark.memory_case(511)
def test_the_fields_are_read_and_the_body_is_kept_as_it_is() -> None:
    body = "\n# Pirate\n\n---\nSay arr.  \n"
    text = (
        "---\nname: pirate-style\ndescription: Talk like a pirate.\nallowed-tools: Bash Read\n"
        f"metadata:\n  author: ada\n---\n{body}"
    )

    fields, rest = parse(text)
    found = read(text, "pirate-style")

    assert rest == body
    assert fields["allowed-tools"] == "Bash Read"
    assert found.skill is not None
    assert (found.skill.allowed_tools, dict(found.skill.metadata)) == ("Bash Read", {"author": "ada"})
    assert (found.skill.body, found.skill.raw) == (body, text)
    assert found.diagnostics == []


@pytest.mark.parametrize("text", ["", "x", "---", "---\n", "--- \n--", "----\n---\n", " ---\n---\n"])
def test_anything_else_is_all_body(text: str) -> None:
    assert split(text) == (None, text)
    assert parse(text) == ({}, text)


def test_nothing_that_stands_in_a_file_raises() -> None:
    import random

    dice = random.Random(7)
    pieces = [
        "---\n",
        "name: a\n",
        "description: b\n",
        "\t",
        ": ",
        "- ",
        "&a ",
        "*a\n",
        "{",
        "[",
        "]",
        "}",
        '"',
        "'",
        "|\n",
        ">\n",
        "!!map ",
        "? ",
        "\x00",
        "\ud800",
        "\u2028",
        "%YAML 9\n",
        "...\n",
        "#",
        "<<: ",
        "\x7f",
        "é",
        "0x1\n",
    ]
    for _ in range(3_000):
        text = "---\n" + "".join(dice.choices(pieces, k=dice.randrange(1, 40))) + "\n---\nbody"
        found = read(text, "a")
        assert found.skill is not None or any(one.level == "error" for one in found.diagnostics)
