"""Nothing that a guest says is believed: what a job cannot have done is not taken for its outcome."""

from __future__ import annotations

from typing import Any

import pytest

from everthink.sandbox.checks import brought_back, refusal
from everthink.sandbox.child import Done, Gone
from everthink.sandbox.port import Job, Limits

JOB = Job(
    language="bash",
    source="",
    files={"/out/a": b"1", "/out/b": b"2", "/c": b"3"},
    collect=("/out",),
    limits=Limits(files=3, file_bytes=10, tree_bytes=15),
)


@pytest.mark.parametrize(
    ("said", "body"),
    [
        ({"changed": [("/out/x", 2)]}, b"1"),
        ({"changed": [("/out/x", 1)]}, b"12"),
        ({"changed": [("/out/x", -1), ("/out/y", 2)]}, b"1"),
        ({"changed": [("/out/x", 11)]}, b"12345678901"),
        ({"changed": [("/out/x", 0), ("/out/x", 0)]}, b""),
        ({"changed": [(f"/out/{number}", 0) for number in range(4)]}, b""),
        ({"changed": [("/elsewhere", 0)]}, b""),
        ({"changed": [("/outside", 0)]}, b""),
        ({"changed": [("/out/../c", 0)]}, b""),
        ({"changed": [("out/x", 0)]}, b""),
        ({"changed": [("//out/x", 0)]}, b""),
        ({"changed": [("/out/x\0", 0)]}, b""),
        ({"changed": [("/out/" + "x" * 256, 0)]}, b""),
        ({"changed": [("/out/" + "x/" * 3_000 + "x", 0)]}, b""),
        ({"deleted": ["/never"]}, b""),
        ({"deleted": ["/c"]}, b""),
        ({"deleted": ["/out/a"], "changed": [("/out/a", 0)]}, b""),
        ({"folders": ["/elsewhere"]}, b""),
        ({"folders": ["/out/x/.."]}, b""),
        ({"folders": [f"/out/{number}" for number in range(4)]}, b""),
        ({"folders": ["/out/x"], "changed": [("/out/x", 0)]}, b""),
        ({"changed": [("/out/x", 0), ("/out/x/y", 0)]}, b""),
    ],
)
def test_what_a_job_cannot_have_done_is_not_believed(said: dict[str, Any], body: bytes) -> None:
    with pytest.raises(Gone):
        brought_back(Done(**said), body, JOB)


def test_what_it_can_have_done_is() -> None:
    done = Done(
        changed=[("/out/x", 2), ("/out/a", 1), ("/out/new/y", 0)],
        deleted=["/out/b"],
        folders=["/out", "/out/new"],
    )
    files = brought_back(done, b"xx1", JOB)
    assert files.changed == {"/out/x": b"xx", "/out/new/y": b""}  # a is as it was sent
    assert (files.deleted, files.folders) == (("/out/b",), {"/out", "/out/new"})


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"commands": ("rm -rf",)}, "'rm -rf'"),
        ({"commands": ("",)}, "command"),
        ({"env": {"A B": "1"}}, "'A B'"),
        ({"env": {"A": "\0"}}, "'A'"),
        ({"source": "echo \0"}, "U+0000"),
        ({"args": ("\0",)}, "U+0000"),
        ({"source": "#" * 1_000_001}, "1,000,001 characters"),
        ({"stdin": b"x" * 11}, "(file_bytes)"),
        ({"cwd": "here"}, "'here'"),
        ({"folders": frozenset({"/a/.."})}, "'/a/..'"),
    ],
)
def test_a_job_that_makes_no_sense_is_refused_in_words(options: dict[str, Any], words: str) -> None:
    job = Job(**{"language": "bash", "source": "", "limits": JOB.limits, **options})
    refused = refusal(job) or ""
    assert words in refused
    assert refused.endswith("Nothing was run.")
