"""Patterns, one by one: what they mean, and what they cost."""

from __future__ import annotations

from contextlib import suppress

import pytest

from everthink.errors import WorkspaceError
from everthink.testing.contracts.files.case import refused
from everthink.workspace import glob
from everthink.workspace.glob import Glob


@pytest.mark.parametrize(
    ("pattern", "meant", "not_meant"),
    [
        ("*", ["/a", "/.hidden"], ["/a/b", "/"]),
        ("**", ["/a", "/a/b"], ["/"]),
        ("a/**/b", ["/a/b", "/a/x/b", "/a/x/y/b"], ["/ab", "/a/xb", "/x/a/b"]),
        ("**/a", ["/a", "/x/a"], ["/xa"]),
        ("a/**", ["/a/b", "/a/b/c"], ["/a", "/ab"]),
        ("a**z", ["/az", "/a/b/z"], ["/b/z"]),
        ("**/**/a", ["/a", "/x/y/a"], []),
        ("a?c", ["/abc", "/aéc"], ["/ac", "/a/c"]),
        ("[abc]", ["/a", "/c"], ["/d", "/ab"]),
        ("[a-c]x", ["/ax", "/cx"], ["/dx", "/-x"]),
        ("[!a-c]x", ["/dx", "/-x"], ["/ax", "//x"]),
        ("[^a]", ["/b"], ["/a"]),
        ("[a-]", ["/a", "/-"], ["/b"]),
        ("[]a]", ["/]", "/a"], ["/b"]),
        ("[!]]", ["/a"], ["/]"]),
        ("[z-a]", [], ["/z", "/a", "/b"]),
        ("[!z-a]", ["/z", "/b"], []),
        (r"[.*+?^$()|]", ["/.", "/$", "/|"], ["/a"]),
        ("x[&&y]", ["/x&", "/xy"], ["/x"]),
        ("{a,b}c", ["/ac", "/bc"], ["/c", "/abc"]),
        ("{a,{b,c}d}", ["/a", "/bd", "/cd"], ["/b", "/d"]),
        ("{a/b,c}/*.{md,txt}", ["/a/b/x.md", "/c/y.txt"], ["/a/x.md"]),
        ("{,x}y", ["/y", "/xy"], ["/zy"]),
        ("{a}", ["/a"], ["/{a}"]),
        ("{**/x,y}", ["/x", "/a/x", "/y"], ["/a/y"]),
        ("a{b", ["/a{b"], ["/ab"]),
        ("a}b", ["/a}b"], []),
        ("a[b", ["/a[b"], ["/ab"]),
        ("a.b", ["/a.b"], ["/axb"]),
        ("(a|b)+", ["/(a|b)+"], ["/a"]),
        ("a,b", ["/a,b"], ["/a"]),
    ],
)
def test_a_pattern_means(pattern: str, meant: list[str], not_meant: list[str]) -> None:
    assert Glob(pattern).matching([*meant, *not_meant]) == set(meant)


@pytest.mark.parametrize(
    ("pattern", "folder"),
    [
        ("*.md", "/"),
        ("/src/*.md", "/src"),
        ("/src/lib*/x", "/src"),
        ("/src/lib/{a,b}", "/src/lib"),
        ("/src/**", "/src"),
        ("src/a?", "/src"),
    ],
)
def test_it_is_looked_for_in_the_folder_that_it_names(pattern: str, folder: str) -> None:
    assert Glob(pattern).folder == folder


def test_braces_have_a_bound() -> None:
    with refused("EINVAL"):
        Glob("{a,b}" * 65)
    with refused("EINVAL"):
        Glob("{" * 9 + "a" + "}" * 9)
    with refused("EINVAL"):
        Glob("a" * 5_000)
    assert Glob("{a,b}" * 20).matching(["/" + "ab" * 10]) == {"/" + "ab" * 10}


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("*a" * 40 + "b", "/" + "a" * 250),
        ("**/a/" * 20 + "b", "/a" * 90),
        ("{a,aa}" * 30 + "b", "/" + "a" * 200),
        ("{*,?*,[a]*}" * 12 + "b", "/" + "a" * 250),
        ("**a" * 30 + "b", "/a" * 100),
    ],
)
def test_a_pattern_that_would_take_for_ever_is_answered_or_refused(
    pattern: str, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(glob, "_SECONDS", 0.05)
    with suppress(WorkspaceError):
        assert Glob(pattern).matching([path]) == set()


def test_a_pattern_is_short_and_a_path_may_be_long() -> None:
    assert Glob("/" + "a" * 4_000).path == "/" + "a" * 4_000
    with refused("EINVAL"):
        Glob("{" * 1_001)
    assert Glob("{" * 900).matching(["/" + "{" * 900]) == {"/" + "{" * 900}
