"""Who somebody is: as JSON, and as a mark that is the same whenever they come."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from everthink import AgentError
from everthink.identity import kept, mark_of


@dataclass
class Person:
    id: int
    seen: float


class Account:
    def __init__(self, username: str, **more: str) -> None:
        self.username = username
        vars(self).update(more)


class Nameless:
    pass


@pytest.mark.parametrize(
    ("one", "again"),
    [
        ("ada", "ada"),
        ({"sub": "ada", "exp": 1}, {"sub": "ada", "exp": 2}),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        (Person(7, 1.0), Person(7, 2.0)),
        (Account("ada"), Account("ada")),
        ({"sub": "ada", "iss": "a", "roles": []}, {"iss": "a", "roles": ["admin"], "sub": "ada"}),
        ({"id": "ada", "org": None}, {"id": "ada"}),
        (Account("ada", tenant="a"), Account("ada", tenant="a", email="ada@a.example")),
    ],
)
def test_a_person_has_one_mark_whenever_they_come(one: Any, again: Any) -> None:
    assert mark_of(one) == mark_of(again) == mark_of(kept(one))
    assert mark_of(one) != mark_of("bob")


@pytest.mark.parametrize("name", ["id", "sub", "user_id", "username"])
@pytest.mark.parametrize("home", ["iss", "tenant", "tenant_id", "org", "org_id"])
def test_the_same_name_elsewhere_is_somebody_else(name: str, home: str) -> None:
    marks = {mark_of({name: "ada", home: place}) for place in ("a", "b")}
    assert len({*marks, mark_of({name: "ada"})}) == 3
    assert len({mark_of(Account("ada", **{home: place})) for place in ("a", "b")}) == 2


def test_a_username_is_not_the_id_of_the_same_text() -> None:
    people = ["42", *({name: "42"} for name in ("id", "sub", "user_id", "username")), Account("43")]
    assert len({mark_of(one) for one in people}) == len(people)
    assert mark_of({"id": "42", "tenant": "t"}) != mark_of({"username": "42", "tenant": "t"})


def test_nobody_in_particular_has_no_mark() -> None:
    assert (kept(None), mark_of(None)) == (None, None)


def test_an_object_that_says_nothing_of_who_it_is_is_refused() -> None:
    with pytest.raises(AgentError, match="nothing says who that is"):
        mark_of(Nameless())
