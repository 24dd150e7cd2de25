"""What the bounds on strangers cost a short turn: `python -m bench --only bounds`.

    bounds.py --starts--> served.py everthink     as it is
         └─────starts---> served.py unbound       the same process, from which `lift` has taken the bounds
    both <--WebSocket-- crowd.py, by turns

CPU of the server for a block of short turns, all threads. The two take turns, in an order that is reversed
each time, so that whatever else the machine does meets both; the ratio is the median of the pairs'. Between
two processes there is a difference that has nothing to do with bounds (where memory lies), so each pair of
rounds has processes of its own. Comparisons of two numbers (`len(id) > most`) stay in both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Any

from .measure import Row
from .sockets import OURS, Server
from .work import SHORT

UNBOUND = "unbound"
COLUMNS = (UNBOUND, OURS)
AGENTS, TURNS = 20, 40
MOST = 1.03
"""What a turn may cost, against the same without bounds."""


def measured(folder: Path, *, quick: bool, take: Callable[[list[Row]], object]) -> None:
    """Measure and hand the row to `take`."""
    rounds = range(2 if quick else 10)
    pairs = list(chain.from_iterable(_pairs(folder / f"bounds-{n}", blocks=4) for n in rounds))
    row = Row(
        "CPU per short turn over a socket, without the bounds on strangers and with them",
        "µs",
        {UNBOUND: median(without for without, _ in pairs), OURS: median(bound for _, bound in pairs)},
        times := median(bound / without for without, bound in pairs),
    )
    take([row.held_to(f"≤ {MOST:g} ×", times <= MOST)])


def _pairs(folder: Path, *, blocks: int) -> Sequence[tuple[float, float]]:
    """µs of a turn without and with bounds, of new processes."""
    pair: list[Server] = []
    try:
        for name in (UNBOUND, OURS):
            (own := folder / name).mkdir(parents=True)
            pair.append(Server(name, own))
            _block(pair[-1], "warm")
        found: list[tuple[float, float]] = []
        for number in range(blocks):
            order = pair if number % 2 else pair[::-1]
            taken = {server.name: _block(server, f"{number}") for server in order}
            found.append((taken[UNBOUND], taken[OURS]))
        return found
    finally:
        for server in pair:
            server.stop()


def _block(server: Server, agent: str) -> float:
    found = server.play("chats", SHORT, f"{server.pid}-{agent}", agents=AGENTS, turns=TURNS)
    return found["cpu"] / found["turns"] * 1e6


# --- in the server without bounds


def lift() -> None:
    """Take the bounds on strangers out of this process. Never but to measure them."""
    from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

    from everthink.access.crowd import Crowd
    from everthink.door import arrivals, requests, spoken
    from everthink.server import guarded
    from everthink.server.arriving import Arriving
    from everthink.server.waiting import Buffers
    from everthink.wire import body, codec

    def nothing(*args: Any, **options: Any) -> None: ...

    def same(id: str, *args: Any, **options: Any) -> str:
        return id

    places: dict[Any, dict[str, Any]] = {
        codec: {"check": nothing},
        body: {"check": nothing},
        spoken: {"check_sizes": nothing, "checked_id": same},
        arrivals: {"check_sizes": nothing, "checked_id": same},
        requests: {"checked_id": same, "refuse_when_full": nothing, "refuse_more_than_a_share": nothing},
        requests.Requests: {"_check": nothing},
        Crowd: {"enter": nothing, "leave": nothing, "may_create": nothing},
        Arriving: {"hold": nothing, "keep_within": nothing},
        Buffers: {"hold": nothing, "forget": nothing, "share": nothing, "unshare": nothing},
        guarded.GuardedProtocol: {
            "data_received": WebSocketsSansIOProtocol.data_received,
            "handle_text": WebSocketsSansIOProtocol.handle_text,
            "_weigh": nothing,
        },
    }
    for place, members in places.items():
        for name, instead in members.items():
            assert hasattr(place, name), f"{place} has no {name} any more: what does it do now?"
            setattr(place, name, instead)
