"""Memory under people who come and go: `python -m bench.churn --minutes 10`, or `make churn`.

    churn.py --starts--> served.py <--WebSocket-- a thousand tabs, always another one of them leaving

Somebody asks a short question, reads the answer and leaves; somebody else comes, to any of the agents. A
conversation makes room for a new one after some turns: what people keep saying is theirs to keep, and would
hide what we forget to let go of. After the second minute memory may grow by a tenth.
"""

from __future__ import annotations

import argparse
import random
import resource
import sys
import tempfile
import time
from pathlib import Path

from .crowd import EMPTY, Crowd, Tab, resident
from .sockets import OURS, Server

TURNS = 20
"""After so many turns a conversation is cleared."""
GROWTH = 1.10
"""Memory is flat when the last minute has at most so many times what the second had."""
SETTLED = 2
"""Minutes after which memory should not grow."""


class Churn:
    """Tabs that come and go."""

    def __init__(self, crowd: Crowd, *, sockets: int, agents: int, rate: float, seed: int = 1) -> None:
        self._crowd, self._rate, self._random = crowd, rate, random.Random(seed)
        self._agents = [f"/agents/short/churn-{number}" for number in range(agents)]
        self._turns = dict.fromkeys(self._agents, 0)
        self._homes: dict[Tab, str] = {}
        self._asking: dict[Tab, str] = {}
        self.turns = self.left = 0
        for number in range(sockets):
            self._come(self._agents[number % agents])

    def go_on(self, seconds: float) -> None:
        """People come and go for a while."""
        began = time.perf_counter()
        end, due = began + seconds, began

        def next_one() -> bool:
            nonlocal due
            now = time.perf_counter()
            while due <= now:
                due += 1 / self._rate
                self._one_asks()
            return now > end

        self._crowd.read(until=next_one, each=self._heard)

    def _come(self, agent: str) -> None:
        (tab,) = self._crowd.open([agent], greeted=False)
        self._homes[tab] = agent

    def _one_asks(self) -> None:
        busy = set(self._asking.values())
        for _ in range(10):
            tab = self._random.choice(list(self._homes))
            agent = self._homes[tab]
            if tab.is_greeted and agent not in busy:
                break
        else:
            return  # the server is late: so is the question
        self._turns[agent] += 1
        if self._turns[agent] % TURNS == 0:
            tab.send(b'{"type":"cf_agent_chat_clear"}')
            tab.snapshot = EMPTY
        self._asking[tab] = agent
        tab.asked = tab.done  # answers to others were heard as well
        tab.ask(f"{self.turns}")
        self.turns += 1

    def _heard(self, tab: Tab) -> None:
        if tab not in self._asking or tab.done < tab.asked:
            return
        del self._asking[tab], self._homes[tab]
        self._crowd.close(tab)
        self.left += 1
        self._come(self._random.choice(self._agents))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.churn", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--sockets", type=int, default=1000)
    parser.add_argument("--agents", type=int, default=200)
    parser.add_argument("--rate", type=float, default=60, help="how many leave in a second")
    parser.add_argument("--folder", default=".", help="where the database goes")
    options = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    sizes: list[float] = []
    with tempfile.TemporaryDirectory(prefix=".churn-", dir=options.folder) as folder:
        server = Server(OURS, Path(folder).resolve())
        try:
            crowd = Crowd(server.port, server.pid)
            churn = Churn(crowd, sockets=options.sockets, agents=options.agents, rate=options.rate)
            print(f"start: {resident(server.pid) / 2**20:.1f} MiB, {options.sockets} sockets", flush=True)
            for minute in range(1, round(options.minutes) + 1):
                churn.go_on(60)
                sizes.append(resident(server.pid) / 2**20)
                print(
                    f"minute {minute}: {sizes[-1]:.1f} MiB, {churn.turns:,} turns, {churn.left:,} left",
                    flush=True,
                )
        finally:
            server.stop()
    if len(sizes) > SETTLED:
        grown = sizes[-1] / sizes[SETTLED - 1]
        print(f"after minute {SETTLED}: × {grown:.3f} (flat is ≤ {GROWTH})")
        sys.exit(grown > GROWTH)


if __name__ == "__main__":
    main()
