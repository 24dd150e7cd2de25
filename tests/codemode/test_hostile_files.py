"""A hostile model calls `state.*`: each call is refused within its bound, which its words name."""

from __future__ import annotations

import asyncio
import io
import tarfile
from typing import Any

import pytest

from everthink.codemode import state_parts
from everthink.codemode.json_path import NoPlace, steps_of
from everthink.codemode.state_archives import _opened  # pyright: ignore[reportPrivateUsage]
from everthink.codemode.state_edits import _as_json  # pyright: ignore[reportPrivateUsage]
from everthink.codemode.state_looking import Wanted, wanted_of
from everthink.errors import ToolError
from everthink.workspace import Put
from tests.codemode.support import MakeCoder
from tests.support.steps import grows_no_faster, steps

MIB = 1 << 20


def asked(words: str, **given: Any) -> Wanted:
    return wanted_of(words, given)


# --- looking for something


@pytest.mark.parametrize(
    ("query", "given", "words"),
    [
        ("a" * 1_001, {"regex": True}, "has 1,000 characters at most, not 1,001"),
        ("|".join(f"a{n}" for n in range(100_000)), {"regex": True}, "1,000 characters at most"),
        ("a" * 10_001, {}, "has 10,000 characters at most, not 10,001"),
        ("(" * 500 + ")" * 500, {"regex": True}, "no regular expression"),
    ],
)
def test_a_pattern_that_takes_long_to_read_is_refused_first(
    query: str, given: dict[str, Any], words: str
) -> None:
    with pytest.raises(ToolError, match=words) as refused:
        wanted_of(query, given)
    assert len(str(refused.value)) < 500


def test_of_millions_of_places_only_those_that_are_wanted_are_looked_at() -> None:
    wanted, text = asked("a"), "a" * MIB
    assert steps(lambda: wanted.lines(text, {}, 10)) < 500
    assert [one["column"] for one in wanted.lines(text, {}, 3)] == [1, 2, 3]


def test_lines_around_places_have_one_bound_together_and_each_is_cut() -> None:
    text = f"{'b' * 100_000}\na\n{'c' * 100_000}"
    [found] = asked("a").lines(text, {"context_before": 5, "context_after": 5}, 10)
    assert [len(line) for line in (*found["beforeLines"], *found["afterLines"])] == [2_000, 2_000]
    many = ("a" * 1_500 + "\n") * 2_000
    with pytest.raises(ToolError, match="EFBIG: What was found has more than 1,000,000 characters"):
        asked("a").lines(many, {"context_before": 100, "context_after": 100}, 10_000)


def test_lines_before_and_after_are_those_of_the_text() -> None:
    text = "one\ntwo\nthree\nfour\nfive"
    [found] = asked("three").lines(text, {"context_before": 1, "context_after": 9}, 10)
    assert (found["beforeLines"], found["afterLines"]) == (["two"], ["four", "five"])
    [first] = asked("one").lines(text, {"context_before": 3, "context_after": 1}, 10)
    assert (first["beforeLines"], first["afterLines"]) == ([], ["two"])
    assert asked("$", regex=True).lines("a\n", {}, 10)[-1]["line"] == 2


def test_one_call_has_five_seconds_for_all_lines_together(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]

    def clock() -> float:
        now[0] += 0.3
        return now[0]

    monkeypatch.setattr("everthink.codemode.state_looking.time.monotonic", clock)
    with pytest.raises(ToolError, match="took longer than 5 seconds"):
        asked("b").lines("a\n" * 100_000, {}, 10)
    wanted = asked("a")
    for _ in range(40):
        wanted.lines("b", {}, 10)
    assert wanted._left < 0.01  # pyright: ignore[reportPrivateUsage]


# --- JSON


@pytest.mark.parametrize(
    "query", ["a" * 4_001, ".".join(["a"] * 91), "[" + "9" * 5_000 + "]", "a." * 1_900 + "["]
)
def test_a_place_in_json_is_short(query: str) -> None:
    with pytest.raises(NoPlace) as refused:
        steps_of(query)
    assert len(str(refused.value)) < 600


def test_spaces_of_deep_json_are_counted_while_they_are_written() -> None:
    value: Any = [0] * 100_000
    for _ in range(80):
        value = [value]
    with pytest.raises(ToolError, match="more than 8,388,608 characters with 10 spaces"):
        _as_json(value, 10)
    assert _as_json({"a": [1]}, 2) == '{\n  "a": [\n    1\n  ]\n}\n'


# --- archives


def packed(*members: tuple[str, bytes, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, kind, data in members:
            told = tarfile.TarInfo(name)
            told.type, told.size, told.linkname = kind, len(data), "/etc/passwd"
            archive.addfile(told, io.BytesIO(data))
    return out.getvalue()


def header(
    name: str, *, kind: bytes = tarfile.REGTYPE, size: int = 0, patch: dict[int, bytes] | None = None
) -> bytes:
    told = tarfile.TarInfo(name)
    told.type, told.size = kind, size
    made = bytearray(told.tobuf(tarfile.GNU_FORMAT))
    for at, data in (patch or {}).items():
        made[at : at + len(data)] = data
    made[148:156] = b" " * 8
    made[148:156] = b"%06o\0 " % sum(made[:512])
    return bytes(made[:512])


END = b"\0" * 1024
SPARSE = {386: b"0" * 11 + b"\0" + b"0" * 11 + b"\0", 483: b"%011o\0" % (32 * MIB - 1)}
NEGATIVE = {124: (-1024).to_bytes(12, "big", signed=True)}


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (packed(("l", tarfile.SYMTYPE, b"")), "neither a file nor a folder"),
        (packed(("l", tarfile.LNKTYPE, b"")), "neither a file nor a folder"),
        (packed(("l", tarfile.CHRTYPE, b"")), "neither a file nor a folder"),
        (packed(("a/../../x", tarfile.REGTYPE, b"1")), "would leave the folder"),
        (packed(("/x", tarfile.REGTYPE, b"1")), "would leave the folder"),
        (packed(*[("same", tarfile.REGTYPE, b"1")] * 1_001), "1,000 files and 33,554,432 bytes at most"),
        (packed(*[("same", tarfile.DIRTYPE, b"")] * 1_001), "1,000 files"),
        (packed(*[(f"{n}", tarfile.REGTYPE, b"x" * (4 * MIB)) for n in range(9)]), "33,554,432 bytes"),
        (header("s", kind=tarfile.GNUTYPE_SPARSE, patch=SPARSE) * 300 + END, "neither a file nor a folder"),
        (header("n", patch=NEGATIVE) + END, "lies about its size|a broken one"),
        (header("l", kind=tarfile.GNUTYPE_LONGNAME, patch=NEGATIVE) + END, "a broken one|lies"),
        (
            (header("l", kind=tarfile.GNUTYPE_LONGNAME, size=5) + b"name\0".ljust(512, b"\0")) * 5_000 + END,
            "a broken one",
        ),
        (header("f", size=MIB) + b"short", "a broken one"),
    ],
)
def test_an_archive_is_believed_in_nothing(data: bytes, words: str) -> None:
    counted = 0

    def refused() -> None:
        nonlocal counted
        counted += 1
        with pytest.raises(ToolError, match=words) as error:
            _opened(data)
        assert len(str(error.value)) < 400

    assert steps(refused) < 1_000_000
    assert counted == 1


# --- in the agent


BIG = "x" * 900_000


@pytest.mark.anyio
@pytest.mark.slow
@pytest.mark.parametrize(
    ("content", "code", "words"),
    [
        ("[" + "[]," * 900_000 + "[]]", "await state.read_json(path='/a')", "holds more than 2"),
        ("[" + "1e300," * 100_000 + "1]", "await state.read_json(path='/a')", "slow to read"),
        ("[" * 200 + "]" * 200, "await state.query_json(path='/a', query='[0]')", "nested deeper than 160"),
        ('["' + "x" * 1_500_000 + '"]', "await state.read_json(path='/a')", "Ask for less of it"),
        (
            "[" * 50 + "0" + "]" * 50,
            "await state.update_json(path='/a', operations=[{'op': 'set', 'path': '.'.join(['a'] * 5_000),"
            " 'value': 1}])",
            "EINVAL: A place has 4,000 characters at most",
        ),
        (
            "a\n" * 400_000,
            "await state.plan_edits(instructions=[{'kind': 'replace', 'path': '/a', 'search': 'a',"
            " 'replacement': 'b'}] * 1_000)",
            "EFBIG: The plan has more than 1,000,000 characters",
        ),
        ("a", "await state.find(path='/', name='*a' * 300_000)", "has 1,000 characters at most, not 600,000"),
        ("a", "await state.write_file(path='/' + 'a/' * 300_000, content='')", "ENAMETOOLONG"),
        ("a", "await state.write_file(path='/a\\x00b', content='')", "EINVAL"),
        ("a", "await state.glob(pattern='{' * 5_000)", "4,096 characters at most"),
        ("a", "await codemode.search(query='a ' * 400_000)", "500"),
        ("a", "await codemode.describe(target='a ' * 400_000)", "500"),
    ],
)
async def test_what_code_asks_for_is_refused_with_the_bound(
    coder: MakeCoder, content: str, code: str, words: str
) -> None:
    agent = await coder()
    workspace = (await agent.agent()).workspace
    await workspace.write_file("/a", content)
    output = await agent.run(code)
    assert output["status"] == "error"
    assert words in output["error"], output
    assert await workspace.read_file("/a") == content


@pytest.mark.anyio
@pytest.mark.slow
async def test_differences_that_are_too_long_together_are_left_out_and_the_edit_is_made(
    coder: MakeCoder,
) -> None:
    agent = await coder()
    workspace = (await agent.agent()).workspace
    line = b"a" * 99 + b"\n"
    await workspace.apply([Put(f"/d/{n}", line * 2_000) for n in range(6)])
    code = (
        "told = await state.replace_in_files(pattern='/d/*', search='a' * 99, replacement='b')\n"
        "[len(one['diff']) > 100 for one in told['files']]"
    )
    output = await agent.run(code)
    assert output["status"] == "completed", output
    assert output["result"] == [True] * 4 + [False] * 2
    assert await workspace.read_file("/d/5") == "b\n" * 2_000


@pytest.mark.anyio
@pytest.mark.slow
async def test_files_that_would_change_by_the_gigabyte_are_not_held_in_memory(coder: MakeCoder) -> None:
    agent = await coder()
    workspace = (await agent.agent()).workspace
    await workspace.apply([Put(f"/d/{n}", b"a" * MIB) for n in range(20)])
    output = await agent.run(
        "await state.replace_in_files(pattern='/d/*', search='a' * 1_000, replacement='b' * 1_000)"
    )
    assert "EFBIG: Files of more than 33,554,432 characters would change at once" in output["error"]
    assert await workspace.read_file_bytes("/d/0") == b"a" * MIB


@pytest.mark.anyio
@pytest.mark.slow
async def test_an_archive_reads_each_file_once_however_often_it_is_named(coder: MakeCoder) -> None:
    agent = await coder()
    workspace = (await agent.agent()).workspace
    await workspace.apply([Put(f"/d/{n}", b"x") for n in range(20)])
    code = "await state.create_archive(path='/t.tar', sources=['/d', '/d/', '/d/./1'] * 3_000)"
    output = await agent.run(code)
    assert output["status"] == "completed", output
    assert output["result"]["entries"] == 21


@pytest.mark.anyio
async def test_long_work_of_one_agent_takes_one_thread_at_a_time() -> None:
    running = most = 0

    def work() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        running -= 1

    agent = object()

    async def call() -> None:
        line = state_parts._lines.setdefault(id(agent), asyncio.Lock())  # pyright: ignore[reportPrivateUsage]
        state_parts._line.set(line)  # pyright: ignore[reportPrivateUsage]
        await state_parts.beside(work)

    await asyncio.gather(*(asyncio.create_task(call()) for _ in range(50)))
    assert most == 1


def test_reading_a_place_of_json_is_linear() -> None:
    grows_no_faster(lambda size: lambda: steps_of(".".join(["a"] * (size // 4))), 80)
