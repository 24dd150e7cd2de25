"""A conversation that nobody has opened says so, instead of waiting for ever."""

from __future__ import annotations

import pytest

from everthink.client import connect
from everthink.errors import NotConnected

pytestmark = pytest.mark.anyio


async def test_what_is_asked_before_it_is_open_is_refused() -> None:
    room = connect("http://127.0.0.1:1", "desk", "one")
    with pytest.raises(NotConnected, match="async with connect"):
        await room.call("add")
    with pytest.raises(NotConnected, match="async with connect"):
        await room.ask("Hi")
    with pytest.raises(NotConnected, match="async with connect"):
        room.say("Hi")
