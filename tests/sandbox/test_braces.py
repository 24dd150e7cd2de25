"""Ranges that bashkit would leave as they are written are found, and nothing else is taken for one."""

from __future__ import annotations

import pytest

from everthink.sandbox.braces import too_many_words


@pytest.mark.parametrize(
    ("script", "word"),
    [
        ("for i in {1..10001}; do echo $i; done", "{1..10001}"),
        ("echo {20000..1}", "{20000..1}"),
        ("echo {-5000..5000..1}", "{-5000..5000..1}"),
        ("echo f{1..101}-{1..100}.txt", "{1..101}-{1..100}"),
        ("echo {a,b}{1..5001}", "{a,b}{1..5001}"),
        ("echo ok # no {1..99999}\necho {1..99999}", "{1..99999}"),
        ("x=$(echo {1..99999})", "{1..99999}"),
        ("cat <<E\n{1..99998}\nE\necho {1..99999}", "{1..99999}"),
        ("cat <<-'E'\n\tit's {1..99998}\n\tE\necho {1..99999}", "{1..99999}"),
        ("cat <<< word\necho {1..99999}", "{1..99999}"),
        ("echo it\\'s {1..99999}", "{1..99999}"),
        ("echo ${#x} {1..99999}", "{1..99999}"),
    ],
)
def test_a_range_of_too_many_words_is_found(script: str, word: str) -> None:
    assert too_many_words(script) == word


@pytest.mark.parametrize(
    "script",
    [
        "for i in {1..10000}; do echo $i; done",
        "echo {1..100}{1..100}",
        "echo {1..100000..10}",
        "echo '{1..99999}' \"{1..99999}\"",
        "# {1..99999}",
        "cat <<E\n{1..99999} it's\nE",
        "cat << 'END' > f\n{1..99999}\nEND\necho done",
        "awk '{ print $1 } {1..99999}'",
        "echo \\{1..99999}",
        "f() { echo a, b; }; f",
        "x=${y:1..99999}",
        "echo {a..z} {x,y,z} {}",
        "jq '{a, b} | {c: .d}' f",
    ],
)
def test_what_is_expanded_or_never_would_be_is_left_alone(script: str) -> None:
    assert too_many_words(script) is None


@pytest.mark.parametrize(
    "script", ["{" * 50_000, "{1..2}" * 20_000, "'" * 50_001, "<<E\n" * 20_000, "{a," * 30_000]
)
def test_a_script_that_is_hostile_to_whoever_reads_it_is_read(script: str) -> None:
    too_many_words(script)
