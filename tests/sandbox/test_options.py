"""What a job is made of is looked at where it is written, and not when it has run as something else."""

from __future__ import annotations

from typing import Any

import pytest

from everthink.errors import InvalidSettings
from everthink.sandbox.bash import BashSandbox
from everthink.sandbox.port import Job, Limits


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"style": "comand"}, "style is 'comand'.*Did you mean 'command'"),
        ({"language": "pyton"}, "language is 'pyton'.*Did you mean 'python'"),
        ({"args": "hello"}, r"args is 'hello'.*write \['hello'\]"),
        ({"args": ("x", 3)}, r"args is \('x', 3\)"),
        ({"commands": "refund"}, r"write \['refund'\]"),
        ({"stdin": "text"}, "stdin is 'text'.*Write b'text'"),
        ({"files": {"/a": "text"}}, "files is .*paths and bytes"),
        ({"folders": ["/a"]}, r"folders is \['/a'\].*frozenset"),
        ({"names": ["tools.refund"]}, "names is .*their stubs"),
        ({"env": {"N": 3}}, "env is .*a dict of texts"),
        ({"limits": {}}, r"limits is \{\}.*Limits\(memory"),
    ],
)
def test_a_job_of_the_wrong_kind_is_refused_with_what_was_meant(options: Any, why: str) -> None:
    with pytest.raises(InvalidSettings, match=f"Job: .*{why}"):
        Job(**{"language": "bash", "source": "", **options})


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"wall": 0}, "wall is 0.*seconds above 0"),
        ({"cpu": float("nan")}, "cpu is nan"),
        ({"memory": 1.5}, "memory is 1.5.*a whole number"),
        ({"memory": "1GB"}, "memory is '1GB'"),
        ({"processes": 1 << 62}, "processes is"),
    ],
)
def test_a_limit_that_is_none_is_refused(options: Any, why: str) -> None:
    with pytest.raises(InvalidSettings, match=f"Limits: {why}"):
        Limits(**options)


def test_lists_do_for_tuples() -> None:
    args: Any = ["--all"]
    assert Job(language="bash", source="", args=args, collect=args).args == ["--all"]


def test_a_sandbox_for_no_job_at_once_is_refused() -> None:
    with pytest.raises(InvalidSettings, match=r"BashSandbox: most is 0.*at least 1"):
        BashSandbox(most=0)
