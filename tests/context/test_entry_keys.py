"""Keys of entries: the same thing has the same key, here and in the JavaScript original."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everthink.context.entry_keys import entry_key


@pytest.mark.memory_case(135, 136, 138, 605)
@pytest.mark.parametrize(
    ("content", "title", "key"),
    [
        ("no key", None, "no-key-1nprufp"),
        ("用户喜欢咖啡", None, "entry-2mzjev"),
        ("Hello World", "  ", "hello-world-1dtlsmf"),
        ("Arr.", "Pirate style", "pirate-style"),
        ("Arr.", "用户", "entry-1in002o"),
        ("x", "A" * 80, "a" * 60),
    ],
)
def test_a_key_is_made_as_the_original_makes_it(content: str, title: str | None, key: str) -> None:
    assert entry_key(content, title) == key


@pytest.mark.memory_case(137)
def test_contents_that_begin_alike_have_different_keys() -> None:
    start = "The quick brown fox jumps over the lazy dog, again and again and again. "
    one, other = entry_key(start + "One."), entry_key(start + "Two.")
    assert one != other
    assert one.rpartition("-")[0] == other.rpartition("-")[0]


def test_spaces_around_a_title_do_not_make_another_entry() -> None:
    assert entry_key("a", " 用户 ") == entry_key("b", "用户")
    assert entry_key("a", "\tPirate style\n") == "pirate-style"


def test_one_dash_stands_for_whatever_is_between_words() -> None:
    assert entry_key("", "--- C++ / (Rust) & Ünïcode! ---") == "c-rust-n-code"


def test_half_an_emoji_at_the_cut_is_no_obstacle() -> None:
    assert entry_key("", "a" * 59 + "😀b") == "a" * 59


@given(st.text(alphabet=st.characters(), max_size=200), st.none() | st.text(max_size=100))
def test_a_key_is_short_plain_and_always_the_same(content: str, title: str | None) -> None:
    key = entry_key(content, title)
    assert re.fullmatch(r"[a-z0-9-]{1,68}", key)
    assert entry_key(content, title) == key
