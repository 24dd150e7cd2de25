"""`write`, `edit` and `delete`: one edit each, literal, and never a guess."""

from __future__ import annotations

import pytest

from everthink.file_tools.editing import NotEdited, edited
from everthink.file_tools.writing import LONGEST_EDITED
from everthink.testing.scripted import calls
from everthink.workspace import Workspace, WorkspaceLimits
from tests.file_tools.support import Failed, MakeDesk

pytestmark = pytest.mark.anyio


@pytest.mark.memory_case(341, 342)
async def test_a_file_is_written_with_the_folders_above_it(desk: MakeDesk) -> None:
    agent = await desk()
    output = await agent.call("write", path="/new/folder/a.txt", content="grün\nblau")
    assert output == {"path": "/new/folder/a.txt", "bytesWritten": 10, "lines": 2}
    assert await (await agent.files()).read_file("/new/folder/a.txt") == "grün\nblau"
    assert (await agent.call("write", path="/new/folder/a.txt", content=""))["lines"] == 1
    assert await (await agent.files()).read_file("/new/folder/a.txt") == ""


@pytest.mark.memory_case(601)
async def test_a_file_is_not_written_over_a_folder(desk: MakeDesk) -> None:
    agent = await desk()
    await agent.call("write", path="/folder/a.txt", content="a")
    output = await agent.call("write", path="/folder", content="b")
    assert isinstance(output, Failed)
    assert output.startswith("EISDIR")
    assert await (await agent.files()).read_file("/folder/a.txt") == "a"


async def test_what_cannot_be_text_is_written_without_breaking_anything(desk: MakeDesk) -> None:
    agent = await desk()
    await agent.turn(calls("write", path="/nul.txt", content="a\0b"))
    assert await (await agent.files()).read_file_bytes("/nul.txt") == b"a\0b"


async def test_a_write_beyond_the_limits_is_refused_and_changes_nothing(desk: MakeDesk) -> None:
    limits = WorkspaceLimits(file_bytes=1_000, files_bytes=1_500)
    agent = await desk(workspace=Workspace(limits=limits), workspace_bash=False)
    large, first, second = await agent.turn(
        calls("write", path="/large", content="x" * 1_001),
        calls("write", path="/first", content="x" * 900),
        calls("write", path="/second", content="x" * 900),
    )
    assert large.startswith("EFBIG")
    assert first["bytesWritten"] == 900
    assert second.startswith("EDQUOT")
    assert "files_bytes" in second
    assert [entry.path for entry in await (await agent.files()).glob("*")] == ["/first"]
    assert (await agent.call("delete", path="/first")) == {"deleted": "/first"}
    assert (await agent.call("write", path="/second", content="x" * 900))["bytesWritten"] == 900


async def test_a_huge_write_is_refused_before_it_runs(desk: MakeDesk) -> None:
    agent = await desk()
    output = await agent.call("write", path="/a", content="x" * 1_000_001)
    assert isinstance(output, Failed)
    assert "1000000" in output
    assert not await (await agent.files()).exists("/a")


@pytest.mark.memory_case(343)
async def test_the_one_place_is_replaced(desk: MakeDesk) -> None:
    agent = await desk()
    await agent.call("write", path="/a.txt", content="one\ntwo\nthree")
    output = await agent.call("edit", path="/a.txt", old_string="two", new_string="2\n2")
    assert output == {"path": "/a.txt", "replaced": True, "lines": 4}
    assert await (await agent.files()).read_file("/a.txt") == "one\n2\n2\nthree"


@pytest.mark.memory_case(344, 345, 346)
async def test_a_place_that_is_not_there_once_is_an_error_that_says_so(desk: MakeDesk) -> None:
    agent = await desk(workspace_bash=False)
    missing, _, absent, twice, overlapping = await agent.turn(
        calls("edit", path="/a.txt", old_string="a", new_string="b"),
        calls("write", path="/a.txt", content="aaa\nx x"),
        calls("edit", path="/a.txt", old_string="nowhere", new_string="b"),
        calls("edit", path="/a.txt", old_string="x", new_string="b"),
        calls("edit", path="/a.txt", old_string="aa", new_string="b"),
    )
    assert missing == {"error": "File not found: /a.txt"}
    assert "not found" in absent["error"]
    assert "appears 2 times" in twice["error"]
    assert "appears 2 times" in overlapping["error"]
    assert await (await agent.files()).read_file("/a.txt") == "aaa\nx x"


@pytest.mark.memory_case(347)
async def test_nothing_to_replace_makes_a_new_file_and_never_replaces_one(desk: MakeDesk) -> None:
    agent = await desk()
    made = await agent.call("edit", path="/a.txt", old_string="", new_string="new")
    assert made == {"path": "/a.txt", "created": True, "lines": 1}
    again = await agent.call("edit", path="/a.txt", old_string="", new_string="newer")
    assert "is there already" in again["error"]
    assert await (await agent.files()).read_file("/a.txt") == "new"


@pytest.mark.memory_case(348)
async def test_a_place_with_other_white_space_is_found_and_told(desk: MakeDesk) -> None:
    agent = await desk()
    await agent.call("write", path="/a.js", content="if (a) {\r\n\tfoo();\r\n}\r\n")
    output = await agent.call("edit", path="/a.js", old_string="{\n foo();", new_string="{ bar();")
    assert output == {"path": "/a.js", "replaced": True, "lines": 3, "fuzzyMatch": True}
    assert await (await agent.files()).read_file("/a.js") == "if (a) { bar();\r\n}\r\n"


@pytest.mark.memory_case(349)
async def test_two_places_with_other_white_space_are_one_too_many(desk: MakeDesk) -> None:
    agent = await desk()
    await agent.call("write", path="/a.py", content="x  =  1\nx\t=\t1\n")
    output = await agent.call("edit", path="/a.py", old_string="x = 1", new_string="x = 2")
    assert "multiple places" in output["error"]
    assert await (await agent.files()).read_file("/a.py") == "x  =  1\nx\t=\t1\n"


@pytest.mark.parametrize(
    ("text", "old", "new", "comes_to"),
    [
        ("a  b\t\tc", "b c", "X", "a  X"),
        ("a \t b", "a b", "X", "X"),
        ("\ta\t", " a ", "X", "X"),
        ("one\r\ntwo\r\n", "one\ntwo", "X", "X\r\n"),
        ("grün  und\tblau", "grün und blau", "X", "X"),
    ],
)
def test_white_space_goes_with_its_place_and_stays_elsewhere(
    text: str, old: str, new: str, comes_to: str
) -> None:
    made = edited("/a", text, old, new)
    assert (made.text, made.is_fuzzy) == (comes_to, True)


@pytest.mark.parametrize(("text", "old"), [("a\nb", "a b"), ("ab", "a b"), ("  a", "a\n"), ("a", "\n")])
def test_lines_and_missing_spaces_are_not_made_up(text: str, old: str) -> None:
    with pytest.raises(NotEdited, match="not found"):
        edited("/a", text, old, "X")


def test_a_place_that_is_there_ever_so_often_is_not_counted_to_the_end() -> None:
    with pytest.raises(NotEdited, match="more than 1,000 times"):
        edited("/a", "a" * 3_000_000, "a", "b")
    with pytest.raises(NotEdited, match="not found"):
        edited("/a", "a \t" * 1_000_000, "a b", "b")


@pytest.mark.memory_case(599)
async def test_what_is_put_in_is_taken_as_it_is_written(desk: MakeDesk) -> None:
    agent = await desk()
    await agent.call("write", path="/a.txt", content="<here>")
    await agent.call("edit", path="/a.txt", old_string="here", new_string=r"$& $1 $$ \1 \g<0>")
    assert await (await agent.files()).read_file("/a.txt") == r"<$& $1 $$ \1 \g<0>>"


async def test_an_edit_does_not_spoil_what_is_no_text(desk: MakeDesk) -> None:
    agent = await desk()
    files = await agent.files()
    await files.write_file_bytes("/latin.txt", "grün".encode("latin-1"))
    await files.write_file("/sign.txt", "a \ufffd sign")
    spoilt = await agent.call("edit", path="/latin.txt", old_string="gr", new_string="Gr")
    assert "no text in UTF-8" in spoilt["error"]
    assert await files.read_file_bytes("/latin.txt") == "grün".encode("latin-1")
    fine = await agent.call("edit", path="/sign.txt", old_string="sign", new_string="mark")
    assert fine["replaced"]
    assert await files.read_file("/sign.txt") == "a \ufffd mark"


async def test_two_edits_of_one_file_in_one_step_both_land(desk: MakeDesk) -> None:
    agent = await desk()
    await agent.call("write", path="/a.txt", content="one two three")
    both = calls("edit", path="/a.txt", old_string="one", new_string="1")
    both = both.calls("edit", path="/a.txt", old_string="three", new_string="3")
    first, second = await agent.turn(both)
    assert first["replaced"]
    assert second["replaced"]
    assert await (await agent.files()).read_file("/a.txt") == "1 two 3"


async def test_deleting_is_content_when_there_is_nothing_and_careful_with_folders(desk: MakeDesk) -> None:
    agent = await desk(workspace_bash=False)
    nothing, _, full, all_, root = await agent.turn(
        calls("delete", path="/nothing"),
        calls("write", path="/folder/a.txt", content="a"),
        calls("delete", path="/folder"),
        calls("delete", path="/folder", recursive=True),
        calls("delete", path="/", recursive=True),
    )
    assert nothing == {"deleted": "/nothing"}
    assert full.startswith("ENOTEMPTY")
    assert all_ == {"deleted": "/folder"}
    assert root.startswith("EPERM")
    assert await (await agent.files()).glob("**/*") == []


async def test_a_change_says_which_call_of_which_turn_did_it(desk: MakeDesk) -> None:
    agent = await desk()
    files = await agent.files()
    await files.write_file("/by-code", "x")
    await agent.turn(calls("write", path="/by-call", content="x", id="the-call"))
    by_code, by_call = await files.changes()
    assert (by_code.call_id, by_code.turn) == (None, None)
    assert by_call.call_id == "the-call"
    assert by_call.turn is not None
    await files.undo(turn=by_call.turn)
    assert [entry.path for entry in await files.glob("*")] == ["/by-code"]


async def test_an_edit_that_changes_nothing_says_so(desk: MakeDesk) -> None:
    agent = await desk()
    await (await agent.files()).write_file("/plan.md", "buy milk")
    output = await agent.call("edit", path="/plan.md", old_string="milk", new_string="milk")
    assert output["replaced"] is True
    assert output["note"] == "The file is as it was: new_string is what was there."
    changed = await agent.call("edit", path="/plan.md", old_string="milk", new_string="oats")
    assert "note" not in changed


async def test_a_text_that_is_too_long_is_not_edited(desk: MakeDesk) -> None:
    agent = await desk()
    files = await agent.files()
    await files.write_file("/long.txt", "x" * (LONGEST_EDITED + 1))
    told = await agent.call("edit", path="/long.txt", old_string="y", new_string="z")
    assert "a text of more than 8.0 MB is not edited" in told["error"]


def test_how_often_a_long_place_is_there_is_counted_only_as_far_as_it_is_cheap() -> None:
    part = "a" * 900_000
    with pytest.raises(NotEdited, match="more than 11 times"):
        edited("/a", "a" * 950_000, part, "b")
    with pytest.raises(NotEdited, match="appears 5 times"):
        edited("/a", "a" * 900_004, part, "b")
    with pytest.raises(NotEdited, match="more than 1,000 times"):
        edited("/a", "a" * 5_000, "aa", "b")
