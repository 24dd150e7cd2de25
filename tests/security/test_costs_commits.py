"""Everybody's commits wait for one writer: what a stranger adds to one of them is bounded."""

from __future__ import annotations

import pytest

from everthink.door.spoken import (
    MAX_URL,
    check_sizes,
    is_open_url,
    spoken,
)
from everthink.errors import InvalidMessage
from everthink.limits import Limits
from everthink.messages import Message, user_message

from ..support.steps import steps


def test_the_new_messages_of_a_request_share_the_bounds_of_one() -> None:
    limits = Limits(text_bytes=1000, message_bytes=5000)
    check_sizes([user_message("x" * 100, id=str(n)) for n in range(10)], limits)
    with pytest.raises(InvalidMessage, match="1100 bytes of text, more than 1000"):
        check_sizes([user_message("x" * 100, id=str(n)) for n in range(11)], limits)
    file = {"type": "file", "mediaType": "image/png", "url": "data:," + "x" * 1500}
    with pytest.raises(InvalidMessage, match="more than 5000"):
        check_sizes([Message(str(n), "user", [file]) for n in range(4)], limits)


def test_a_text_is_weighed_in_bytes_whatever_its_letters() -> None:
    with pytest.raises(InvalidMessage, match="has 1200 bytes of text"):
        spoken(user_message("話" * 400, id="u"), Limits(text_bytes=1000))


def test_a_file_of_megabytes_is_not_read_as_an_address() -> None:
    assert is_open_url("data:image/png;base64," + "A" * 8_000_000)
    assert steps(lambda: is_open_url("data:," + "A" * 8_000_000)) < 20
    assert not is_open_url("https://example.com/" + "a" * MAX_URL)
    assert not is_open_url("javascript:alert(1)")
    assert is_open_url("https://example.com/cat.png")
