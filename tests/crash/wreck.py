"""What a killed process left in the database, and what an agent makes of it when it wakes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from everthink import App, Think, tool
from everthink import chunks as ui
from everthink.journal.segments import unpack
from everthink.models.port import AssistantMessage, Request, ToolMessage, UserMessage
from everthink.open_store import open_store
from everthink.prompt.wording import CONTINUE_NUDGE
from everthink.runtime.schema import MIGRATIONS
from everthink.store.port import Rows, Store
from everthink.testing.scripted import Play, ScriptedModel, says, thinks
from tests.support.agents import live

__all__ = ["WHOLE", "Survivor", "Wreck"]

AGENT = "Assistant/room"
WEATHER = "Weather in Paris?"
WHOLE = {
    WEATHER: "It rains in Paris, and it will rain tomorrow.",
    "Do the job.": "Job done.",
    "And then?": "Second answer.",
}
"""What the story of child.py answers to each question when nobody kills it."""


def answered(request: Request) -> Play:
    """The play that the dead process would have given. Asked to go on, it says it all again."""
    texts = [
        (message, "".join(getattr(part, "text", "") for part in message.content))
        for message in request.messages
    ]
    known = [text for message, text in texts if isinstance(message, AssistantMessage)]
    asked = [text for message, text in texts if isinstance(message, UserMessage) and text != CONTINUE_NUDGE]
    # A message may be in the conversation before its turn has come, so the last one is not always meant.
    asked = [text for text in asked if not any(WHOLE.get(text, text) in answer for answer in known)]
    question = asked[-1]
    if question == WEATHER and not any(isinstance(message, ToolMessage) for message, _ in texts):
        return thinks("Let me see.").calls("weather", city="Paris")
    return says(WHOLE.get(question, f"Answer to: {question}"))


class Wreck:
    """The database as the process left it, before anybody puts it right."""

    def __init__(self, store: Store) -> None:
        self._store = store

    @classmethod
    async def inspect(cls, url: str) -> Wreck:
        return cls(await open_store(url, MIGRATIONS))

    async def close(self) -> None:
        await self._store.close()

    async def rows(self, sql: str, *params: Any) -> Rows:
        return await self._store.fetch(sql, *params)

    async def chunks(self, turn: str) -> dict[int, str]:
        """The chunks of a turn by number, as JSON text."""
        found: dict[int, str] = {}
        sql = (
            "SELECT first_seq, last_seq, chunks FROM segments WHERE agent = ? AND turn = ? ORDER BY first_seq"
        )
        for first, last, text in await self.rows(sql, AGENT, turn):
            bodies = [ui.encode(chunk) for chunk in unpack(text)]
            assert last - first + 1 == len(bodies)
            for number, body in enumerate(bodies, first):
                assert number not in found
                found[number] = body
        assert sorted(found) == list(range(len(found)))
        return found

    async def calls(self) -> list[tuple[str, str]]:
        """The ledger: tool and state."""
        rows = await self.rows("SELECT tool, state FROM calls WHERE agent = ?", AGENT)
        return [(row[0], row[1]) for row in rows]

    async def message_ids(self) -> list[str]:
        rows = await self.rows("SELECT id FROM messages WHERE agent = ? ORDER BY seq", AGENT)
        return [row[0] for row in rows]

    async def turns(self) -> dict[str, str]:
        """The status of each turn, by request."""
        rows = await self.rows("SELECT request_id, status FROM turns WHERE agent = ? ORDER BY seq", AGENT)
        assert len({row[0] for row in rows}) == len(rows)
        return {row[0]: row[1] for row in rows}


class Survivor:
    """The agent in a new process: answers as the dead one would have, and says when it is at rest."""

    def __init__(self, url: str, effects: Path) -> None:
        self.model = ScriptedModel(answered, repeat=True)
        model = self.model

        class Assistant(Think):
            def get_model(self) -> ScriptedModel:
                return model

            @tool
            async def weather(self, city: str) -> str:
                """The weather."""
                with effects.open("a") as file:
                    file.write(f"weather {city}\n")
                return f"rain in {city}"

        self.cls, self._url = Assistant, url

    async def __aenter__(self) -> Survivor:
        self.app = App(self.cls, store=self._url, grace=0.0)
        await self.app.open()
        self.agent: Any = await live(self.app.agent(self.cls, "room"))
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.app.close()

    async def at_rest(self) -> None:
        """Return once nothing runs or waits."""
        home = self.agent._home
        while not home.chat.door.queue.is_idle or home.chat.door._open:
            await home.chat.door.queue.wait_for_idle()
            await asyncio.sleep(0)

    async def statuses(self) -> dict[str, str]:
        rows = await self.agent._home.store.fetch(
            "SELECT request_id, status FROM turns WHERE agent = ? ORDER BY seq", AGENT
        )
        return {row[0]: row[1] for row in rows}
