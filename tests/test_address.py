"""Which agent: what its id is made of, and how it is cut."""

from __future__ import annotations

import pytest

from everthink.address import Address


@pytest.mark.parametrize(
    ("address", "id"),
    [
        (Address("Assistant", "room-1"), "Assistant/room-1"),
        (Address("Assistant", "Jürgen"), "Assistant/Jürgen"),
        (Address("Assistant", "a/b/c"), "Assistant/a/b/c"),
        (Address("Assistant", "a%2Fb"), "Assistant/a%2Fb"),
        (Address("Assistant", "/"), "Assistant//"),
        (Address("Assistant", ""), "Assistant/"),
    ],
)
def test_an_id_is_class_and_name_cut_at_the_first_slash(address: Address, id: str) -> None:
    assert address.id == str(address) == id
    assert Address.parse(id) == address


def test_a_class_alone_is_an_address_without_a_name() -> None:
    assert Address.parse("Assistant") == Address("Assistant", "")


def test_the_id_of_a_child_is_below_that_of_its_parent() -> None:
    parent = Address("Assistant", "room-1")
    child = Address("Researcher", "r1", (("Assistant", "room-1"),))
    grandchild = Address("Reader", "r2", (("Assistant", "room-1"), ("Researcher", "r1")))

    assert child.id == f"{parent.id}/sub/Researcher/r1"
    assert grandchild.id == f"{child.id}/sub/Reader/r2"


def test_a_child_cannot_take_the_id_of_another_by_its_name() -> None:
    above = (("Assistant", "room-1"),)
    grandchild = Address("Reader", "r2", (*above, ("Researcher", "r1")))

    child = Address("Researcher", "r1/sub/Reader/r2", above)

    assert child.id != grandchild.id
    assert Address("Researcher", "a%2Fb", above).id != Address("Researcher", "a/b", above).id
