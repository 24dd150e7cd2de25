"""Nothing that comes out of a machine is believed: lines, trees, names, sizes and calls are looked at."""

from __future__ import annotations

import base64
import io
import json
import tarfile

import pytest

from everthink.machines.sandbox import MachineSandbox
from everthink.machines.tree import packed, unpacked
from everthink.sandbox.child import Gone
from everthink.sandbox.port import Job, Limits, NoHost, Outcome
from everthink.testing.contracts.sandbox.case import Asked
from tests.machines.pipes import SaidMachine, SaidPipe, line

pytestmark = pytest.mark.anyio

LIMITS = Limits(files=3, file_bytes=100, tree_bytes=150)
JOB = Job(language="bash", source="", files={"/a": b"1"}, commands=("ask",), collect=("/",), limits=LIMITS)


async def outcome_of(*said: bytes, job: Job = JOB, host: Asked | None = None) -> tuple[Outcome, SaidPipe]:
    pipe = SaidPipe(said)
    return await MachineSandbox(SaidMachine(pipe)).run(job, host or NoHost()), pipe


def tree(*entries: tuple[tarfile.TarInfo, bytes]) -> str:
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w") as tar:
        for entry, data in entries:
            tar.addfile(entry, io.BytesIO(data))
    return base64.b64encode(written.getvalue()).decode()


def entry(
    name: str, data: bytes = b"x", kind: bytes = tarfile.REGTYPE, link: str = ""
) -> tuple[tarfile.TarInfo, bytes]:
    made = tarfile.TarInfo(name)
    made.type, made.linkname = kind, link
    made.size = len(data) if kind == tarfile.REGTYPE else 0
    return made, data


TREES: dict[str, str] = {
    "a path that climbs": tree(entry("../../etc/passwd")),
    "a path that climbs within": tree(entry("b/../../c")),
    "an absolute path": tree(entry("/etc/passwd")),
    "a link": tree(entry("l", b"", tarfile.SYMTYPE, "/etc/passwd")),
    "a hard link": tree(entry("a", b"new"), entry("l", b"", tarfile.LNKTYPE, "a")),
    "a device": tree(entry("d", b"", tarfile.CHRTYPE)),
    "a pipe": tree(entry("p", b"", tarfile.FIFOTYPE)),
    "a folder among the files": tree(entry("d", b"", tarfile.DIRTYPE)),
    "a file twice": tree(entry("b"), entry("b", b"y")),
    "a file that is too large": tree(entry("b", b"x" * 101)),
    "files that are too large together": tree(entry("b", b"x" * 80), entry("c", b"x" * 80)),
    "too many files": tree(*(entry(f"f{number}") for number in range(4))),
    "a file below a file": tree(entry("b"), entry("b/c")),
    "no tar": base64.b64encode(b"no tar at all" * 100).decode(),
    "half a tar": base64.b64encode(base64.b64decode(tree(entry("b", b"x" * 90)))[:540]).decode(),
}


@pytest.mark.parametrize("kind", TREES)
async def test_a_tree_that_no_job_can_have_made_is_not_taken(kind: str) -> None:
    outcome, pipe = await outcome_of(line(t="done", exit=0, tree=TREES[kind]))
    assert (outcome.status, outcome.changed, outcome.deleted) == ("crashed", {}, ())
    assert (outcome.error or "").endswith("Nothing was written.")
    assert pipe.killed


LINES: dict[str, bytes] = {
    "nothing": b"",
    "half a line": b'{"t": "done"',
    "no JSON": b"GET / HTTP/1.1\r\n\n",
    "another word": line(t="gimme"),
    "another type": line(t="done", exit="zero"),
    "another limit": line(t="done", stopped="mercy"),
    "another stream": line(t="out", s="stdlog", d=""),
    "no base64": line(t="out", s="stdout", d="!!"),
    "deep": b"[" * 1_000_000 + b"\n",
    "no text": b'{"t": "done", "error": "\xff"}\n',
    "half a character": b'{"t": "done", "deleted": ["\\ud800"]}\n',
    "a command that is not the job's": line(t="call", id=1, name="shutdown", stdin=""),
    "a function that is not the job's": line(t="call", id=1, name="ask"),
    "a deletion of what is not there": line(t="done", deleted=["/b"]),
    "a folder elsewhere": line(t="done", folders=["/../b"]),
    "too many folders": line(t="done", folders=[f"/{number}" for number in range(9)]),
    "a huge number": b'{"t": "done", "exit": 1e999}\n',
}


@pytest.mark.parametrize("kind", LINES)
async def test_a_line_that_is_none_is_a_crash(kind: str) -> None:
    host = Asked()
    outcome, pipe = await outcome_of(LINES[kind], host=host)
    assert outcome.status == "crashed"
    assert (outcome.error or "").endswith("Nothing was written.")
    assert (host.calls, bool(pipe.killed)) == ([], True)


async def test_a_line_without_end_is_not_read_to_its_end() -> None:
    parts = [b"x" * (1 << 20)] * 64
    pipe = SaidPipe(parts)
    outcome = await MachineSandbox(SaidMachine(pipe)).run(JOB, NoHost())
    assert outcome.status == "crashed"
    assert "without an end" in (outcome.error or "")
    assert await SaidPipe.read(pipe) == b""  # killed: what was left was not read


async def test_output_beyond_the_limit_is_dropped_here_whatever_the_runner_says() -> None:
    part = line(t="out", s="stdout", d=base64.b64encode(b"x" * 30_000).decode())
    outcome, _ = await outcome_of(*[part] * 5, line(t="done", exit=4_000, dropped=-5))
    assert (outcome.status, len(outcome.stdout), outcome.exit_code) == ("done", 64_000, 4_000 & 255)
    assert outcome.dropped_bytes == 86_000


async def test_calls_beyond_the_limit_are_not_made_whatever_the_runner_does() -> None:
    host = Asked()
    job = Job(language="bash", source="", commands=("ask",), limits=Limits(calls=2))
    asks = [line(t="call", id=number, name="ask", stdin="", args=["x"]) for number in range(50)]
    outcome, pipe = await outcome_of(*asks, line(t="done", exit=0), job=job, host=host)
    assert (outcome.status, outcome.calls) == ("calls", 2)
    assert len(host.calls) <= 2
    told = [json.loads(one) for one in pipe.written.splitlines()]
    assert told.count({"stop": "calls"}) == 1


async def test_a_machine_that_says_nothing_is_killed_at_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("everthink.machines.running.GRACE", 0.1)
    pipe = SaidPipe([], ends=False)
    job = Job(language="bash", source="", limits=Limits(wall=0.1))
    outcome = await MachineSandbox(SaidMachine(pipe)).run(job, NoHost())
    assert (outcome.status, outcome.exit_code, pipe.killed) == ("timeout", 124, 1)
    assert (outcome.error or "").endswith("It was killed. Nothing was written.")


async def test_a_value_of_a_job_that_did_not_end_well_is_not_its_value() -> None:
    outcome, _ = await outcome_of(line(t="done", exit=0, value="42", stopped="wall"))
    assert (outcome.status, outcome.value) == ("timeout", None)


def test_a_tree_goes_in_and_comes_out_as_it_was() -> None:
    files = {"/a": b"", "/b/ü": bytes(range(256)), "/" + "l" * 250 + "/" + "n" * 250: b"x"}
    assert dict(unpacked(packed(files, []), Limits())) == files


@pytest.mark.parametrize("cut", [1, 100, 511, 513, 700])
def test_a_tree_that_was_cut_is_none(cut: int) -> None:
    whole = packed({"/a": b"x" * 600}, [])
    with pytest.raises(Gone):
        unpacked(whole[:cut], Limits())
