"""What a person may take with them: an export holds all there is, and reads back."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from everthink import App, Think
from everthink.errors import AgentError
from everthink.messages import Message
from everthink.runtime.erasing import TABLES
from everthink.runtime.exporting import _KINDS, sections
from everthink.runtime.schema import MIGRATIONS
from everthink.testing import ScriptedModel
from tests.support.agents import live

from .lives import (
    SECRET,
    Keeper,
    anyio_backend,
    live_through,
    postgres_database,
    postgres_server,
    postgres_url,
    rows_of,
    url,
)

__all__ = ["anyio_backend", "postgres_database", "postgres_server", "postgres_url", "url"]

pytestmark = pytest.mark.anyio


async def exported(app: App, name: str = "ada", cls: type[Think] = Keeper) -> list[dict[str, Any]]:
    return [line async for line in app.export(cls, name)]


async def test_an_export_has_a_line_for_every_row(url: str) -> None:
    async with App(Keeper, store=url, grace=0.0) as app:
        await live_through(app)
        await app.agent(Keeper, "bob").add_messages("not mine")
        head, *lines = await exported(app)
        assert head == {
            "kind": "export",
            "format": 2,
            "class": "Keeper",
            "name": "ada",
            "schema": MIGRATIONS[-1].number,
            "exported_at": head["exported_at"],
        }
        assert len(lines) == sum((await rows_of(app)).values())
        kinds = {line["kind"] for line in lines}
        assert kinds >= {
            "agent", "message", "turn", "submission", "call", "state", "block", "prompt", "entry",
            "compaction", "file", "content", "schedule", "job", "fiber", "segment",
        }  # fmt: skip
        # All of it as values that JSON can carry, nothing masked, nothing of others
        text = json.dumps(lines)
        assert text.count(SECRET) > 20
        assert "not mine" not in text


async def test_the_conversation_reads_back_from_it(url: str) -> None:
    async with App(Keeper, store=url, grace=0.0) as app:
        agent: Any = await live(app.agent(Keeper, "ada"))
        for number in range(40):
            await agent.add_messages(
                Message(f"m{40 - number}", "user", [{"type": "text", "text": f"{number}"}])
            )
        await agent.save_messages(f"Look up {SECRET}")
        lines = [line for line in await exported(app) if line["kind"] == "message"]
        told = await agent.get_messages()
    # In their order, each with its parent
    assert [line["id"] for line in lines] == [message.id for message in told]
    assert [line["parent"] for line in lines] == [None, *(message.id for message in told[:-1])]
    assert [line["content"]["parts"] for line in lines] == [message.to_json()["parts"] for message in told]


async def test_exporting_starts_nobody_and_makes_nobody(url: str) -> None:
    async with App(Keeper, store=url, grace=0.0) as app:
        with pytest.raises(AgentError, match="There is no Keeper 'nobody'"):
            await exported(app, "nobody")
        assert await rows_of(app, "Keeper/nobody") == {}
        await app.agent(Keeper, "ada").add_messages("hello")
        await app.evict(Keeper, "ada")
        await exported(app)
        assert len(await app.open()) == 0


async def test_what_cannot_be_read_is_exported_as_it_is(url: str) -> None:
    from everthink.store.port import Statement

    class Plain(Think):
        model = ScriptedModel()

    deep = "[" * 20_000
    async with App(Plain, store=url, grace=0.0) as app:
        await app.agent(Plain, "ada").add_messages("hello")
        store = (await app.open()).store
        for name, value in (("broken", "{"), ("deep", deep)):
            await store.apply([Statement("INSERT INTO kv VALUES ('Plain/ada', ?, ?)", (name, value))])
        lines = await exported(app, cls=Plain)
    values = {line["name"]: line["value"] for line in lines if line["kind"] == "value"}
    assert values["broken"] == "{"
    assert values["deep"] == deep


def test_every_table_is_exported_and_has_a_name_for_its_rows() -> None:
    assert [section.table for section in sections()] == list(TABLES)
    assert {table.name for table in TABLES} <= set(_KINDS), "name the kind of a new table's rows"


async def test_a_long_conversation_is_read_in_pages(url: str) -> None:
    class Plain(Think):
        model = ScriptedModel()

    async with App(Plain, store=url, grace=0.0) as app:
        agent: Any = await live(app.agent(Plain, "ada"))
        await asyncio.gather(*(agent.add_messages(f"{n}") for n in range(100)))
        ids = [line["id"] for line in await exported(app, cls=Plain) if line["kind"] == "message"]
        assert len(ids) == len(set(ids)) == 100
