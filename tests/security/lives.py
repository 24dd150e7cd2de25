"""An agent that keeps something in every table, and where its secret can be found."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from everthink import App, Think, tool
from everthink.context.providers import SearchableEntries
from everthink.messages import Message
from everthink.models.port import Request, UserMessage
from everthink.runtime.directory import Directory
from everthink.runtime.erasing import TABLES
from everthink.session.media import MediaEviction
from everthink.testing import ScriptedModel, calls, says
from everthink.testing.scripted import Play
from tests.support.agents import live
from tests.support.postgres import postgres_database, postgres_server, postgres_url

__all__ = [
    "SECRET",
    "Keeper",
    "anyio_backend",
    "live",
    "postgres_database",
    "postgres_server",
    "postgres_url",
    "quiet",
    "rows_of",
    "traces",
    "url",
]

SECRET = "Zanzibarquokka"
PICTURE = f"data:text/plain;base64,{base64.b64encode((SECRET * 400).encode()).decode()}"


def answer(request: Request) -> Play:
    """Repeat what was said, or look it up."""
    last = request.messages[-1]
    if isinstance(last, UserMessage) and "Look up" in str(last.content):
        return calls("look_up", {"what": SECRET})
    return says(f"I shall remember {SECRET}.")


class Keeper(Think):
    """Keeps what it hears, in every way there is."""

    model: Any = ScriptedModel(answer, repeat=True, records=False)
    initial_state: Any = {"notes": ""}  # noqa: RUF012 - copied by the framework
    media_eviction = MediaEviction(keep_recent_messages=4, min_part_bytes=1000)

    def configure_session(self, session: Any) -> Any:
        return (
            session.with_context("memory", description="What I know")
            .with_context("facts", description="What I learned", provider=SearchableEntries())
            .with_cached_prompt()
        )

    @tool
    def look_up(self, what: str) -> str:
        """Look something up."""
        return f"{what} is an island. {SECRET}."

    async def ring(self, payload: Any) -> None:
        """A timer."""

    async def wait(self, payload: Any) -> None:
        """A job that takes for ever."""
        await asyncio.Event().wait()


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(params=["sqlite", "postgres"])
async def url(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[str]:
    """Where the agents of a test live, on both engines."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/everthink.db"
    else:
        yield request.getfixturevalue("postgres_url")


async def live_through(app: App, name: str = "ada") -> None:
    """Let an agent have a life: a conversation, tools, memory, state, files, timers, jobs, fibers."""
    agent: Any = await live(app.agent(Keeper, name))
    await agent.add_messages(
        [
            Message("p", "user", [{"type": "file", "mediaType": "text/plain", "url": PICTURE}]),
            *(Message(f"{SECRET}-{n}", "user", [{"type": "text", "text": "hm"}]) for n in range(6)),
        ]
    )
    await agent.save_messages(f"My island is {SECRET}")
    await agent.save_messages(f"Look up {SECRET}")
    await agent.submit_messages(f"Later: {SECRET}", idempotency_key=SECRET, metadata={"why": SECRET})
    await agent.wait_until_stable()
    await agent.session.replace_context_block("memory", f"They live on {SECRET}")
    await agent.session.set_context_entry("facts", "home", f"{SECRET} is home")
    await agent.session.refresh_system_prompt()
    await agent.set_state({"notes": SECRET})
    await agent.workspace.write_file(f"/notes/{SECRET}.md", f"It lies in {SECRET}.")
    await agent.workspace.write_file(f"/notes/{SECRET}.md", f"It lay in {SECRET}, once.")
    await agent.schedule(86_400, "ring", {"secret": SECRET})
    await agent.queue("wait", {"secret": SECRET})
    stashed = asyncio.Event()

    async def work(fiber: Any) -> None:
        await agent.stash({"secret": SECRET})
        stashed.set()
        await asyncio.Event().wait()

    task = agent.run_fiber(SECRET, work)
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
    await stashed.wait()
    path = list(agent.session.path)
    await agent.session.add_compaction(f"They spoke of {SECRET}", path[1].id, path[3].id)


async def rows_of(app: App, agent: str = "Keeper/ada") -> dict[str, int]:
    """How many rows an agent has, by table; tables without are left out."""
    directory: Directory = await app.open()
    counts = {
        table.name: (
            await directory.store.fetch(f"SELECT COUNT(*) FROM {table.name} WHERE agent = ?", agent)
        )[0][0]
        for table in TABLES
    }
    return {name: count for name, count in counts.items() if count}


async def quiet(app: App, name: str = "ada", cls: type[Think] = Keeper) -> None:
    """Return once an agent does nothing in the background."""
    directory = await app.open()
    actor = await directory.reach(directory.address(cls, name))
    while actor._tasks:
        await asyncio.wait(actor._tasks)


def spellings(text: str) -> list[bytes]:
    """The bytes of a text, small and large, and the core of its base64 at each of three places."""
    found = [text.encode(), text.lower().encode(), text.upper().encode()]
    for shift in range(3):
        coded = base64.b64encode(b"?" * shift + text.encode())
        found.append(coded[4 if shift else 0 : -4])
    return found


def traces(folder: Path, text: str = SECRET) -> dict[str, int]:
    """How often each file in a folder holds the text in any spelling; files without are left out."""
    counts = {file.name: 0 for file in folder.iterdir() if file.is_file()}
    for name in counts:
        content = (folder / name).read_bytes()
        counts[name] = sum(content.count(spelling) for spelling in spellings(text))
    return {name: count for name, count in counts.items() if count}
