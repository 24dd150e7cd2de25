"""Context blocks as a session has them: built, kept, and known again from its history."""

from __future__ import annotations

from typing import Any

import pytest

from everthink.context.providers import StoredEntries
from everthink.errors import InvalidSettings
from everthink.messages import Message
from everthink.session.session import Session
from everthink.tools.tool import ToolContext
from tests.session.conftest import OpenSession
from tests.support.context import Library

pytestmark = pytest.mark.anyio


def loads(id: str, key: str, output: str) -> Message:
    part: dict[str, Any] = {
        "type": "tool-load_context",
        "toolCallId": f"call-{id}",
        "state": "output-available",
        "input": {"label": "skills", "key": key},
        "output": output,
    }
    return Message(id, "assistant", [part])


@pytest.mark.memory_case(108, 110, 111)
async def test_the_builder_is_a_session_at_every_step_in_any_order(open_session: OpenSession) -> None:
    one = await open_session(id="s1")
    assert one.with_context("memory").with_cached_prompt() is one
    await one.replace_context_block("memory", "Likes tea.")
    prompt = await one.freeze_system_prompt()

    again = (await open_session(id="s1")).with_cached_prompt().with_context("memory")
    assert await again.freeze_system_prompt() == prompt
    block = await again.append_context_block("memory", "Has a cat.")
    assert block.content == "Likes tea.\nHas a cat."

    other = (await open_session(id="s2")).with_context("memory").with_cached_prompt()
    assert "Likes tea." not in await other.freeze_system_prompt()


@pytest.mark.memory_case(123)
async def test_a_session_without_blocks_offers_no_context_tools(open_session: OpenSession) -> None:
    session = await open_session()
    assert await session.tools() == {}
    assert await session.freeze_system_prompt() == ""


async def with_history(open_session: OpenSession) -> None:
    """A conversation in which two documents were loaded and one of them was let go."""
    session = await open_session()
    await session.append_message(Message("u1", "user", [{"type": "text", "text": "Ahoy"}]))
    await session.append_message(loads("a1", "pirate", "Arr."))
    await session.append_message(loads("a2", "polite", "[skill unloaded: polite]"))


def count_reads(session: Session, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Note each time the session looks through its rows."""
    looked: list[str] = []
    look = session.get_history_row_stats

    async def noted(*given: Any, **options: Any) -> Any:
        looked.append("rows")
        return await look(*given, **options)

    monkeypatch.setattr(session, "get_history_row_stats", noted)
    return looked


@pytest.mark.memory_case(158)
async def test_without_documents_to_load_the_history_is_not_searched(
    open_session: OpenSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    await with_history(open_session)
    session = (await open_session()).with_context("memory")
    looked = count_reads(session, monkeypatch)
    await session.tools()
    await session.freeze_system_prompt()
    assert looked == []
    assert session.context.loaded == set()


@pytest.mark.memory_case(159, 609)
async def test_what_was_loaded_is_known_again_after_a_restart(open_session: OpenSession) -> None:
    await with_history(open_session)
    session = (await open_session()).with_context("skills", provider=Library(pirate="Arr."))
    tools = await session.tools()
    assert session.context.loaded == {"skills:pirate"}
    assert "skills:pirate" in tools["unload_context"].description


@pytest.mark.memory_case(161)
async def test_a_block_of_documents_that_is_added_later_starts_the_search_once(
    open_session: OpenSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    await with_history(open_session)
    session = await open_session()
    looked = count_reads(session, monkeypatch)
    await session.add_context("skills", provider=Library(pirate="Arr."))
    assert session.context.loaded == {"skills:pirate"}
    await session.add_context("more", provider=Library())
    await session.tools()
    assert looked == ["rows"]


@pytest.mark.memory_case(142, 144)
async def test_unloading_takes_the_document_out_of_the_history_for_good(open_session: OpenSession) -> None:
    await with_history(open_session)
    session = (await open_session()).with_context("skills", provider=Library(pirate="Arr."))
    tools = await session.tools()
    said = await tools["unload_context"].call({"label": "skills", "key": "pirate"}, ToolContext())
    assert said.startswith("Unloaded")

    again = await open_session()
    message = await again.get_message("a1")
    assert message is not None
    assert message.parts[0]["output"] == "[skill unloaded: pirate]"
    restarted = again.with_context("skills", provider=Library(pirate="Arr."))
    await restarted.tools()
    assert restarted.context.loaded == set()
    assert await restarted.load_context("skills", "pirate") == "Arr."


@pytest.mark.memory_case(146)
async def test_clearing_the_conversation_forgets_what_was_loaded_and_refreshes_the_prompt(
    open_session: OpenSession,
) -> None:
    session = (await open_session()).with_context("memory").with_context("skills", provider=Library(a="x"))
    await session.load_context("skills", "a")
    await session.freeze_system_prompt()
    await session.replace_context_block("memory", "Likes tea.")
    await session.clear_messages()
    assert session.context.loaded == set()
    assert "Likes tea." in await session.freeze_system_prompt()
    assert session.context.last_refresh is not None
    assert session.context.last_refresh[0] == "cleared"


@pytest.mark.memory_case(616)
async def test_trap_a_deleted_session_leaves_no_blocks_no_entries_and_no_prompt(
    open_session: OpenSession,
) -> None:
    session = (await open_session(id="s1")).with_context("memory").with_cached_prompt()
    session.with_context("skills", provider=StoredEntries())
    await session.replace_context_block("memory", "Likes tea.")
    await session.set_context_entry("skills", "k", "text")
    await session.freeze_system_prompt()

    await session._store.apply(session.plan_delete())

    again = (await open_session(id="s1")).with_context("memory").with_cached_prompt()
    again.with_context("skills", provider=StoredEntries())
    assert "Likes tea." not in await again.freeze_system_prompt()
    assert [block.content for block in again.get_context_blocks()] == ["", ""]


async def test_the_options_of_a_block_may_be_a_dict_and_a_slip_in_it_is_named(
    open_session: OpenSession,
) -> None:
    session = (await open_session()).with_context("memory", {"maxTokens": 5}, description="Facts")
    await session.add_context("soul", {"provider": "Be kind."})
    assert [
        (block.max_tokens, block.description, block.content) for block in session.get_context_blocks()
    ] == [
        (5, "Facts", ""),
        (None, None, "Be kind."),
    ]
    with pytest.raises(InvalidSettings, match=r"'notes'.*no field 'descripton'. Did you mean 'description'"):
        session.with_context("notes", {"descripton": "Notes"})
