"""Processes to be killed while they remember, shorten, tidy up, fork and delete.

nursery --> run: a story of one agent, on a database of its own
"""

from __future__ import annotations

import asyncio
import os
from typing import Any

from everthink import App, Message, Think, tool
from everthink.models.port import Request, ToolMessage, UserMessage
from everthink.session.media import MediaEviction
from everthink.session.summary import CompactContext, Compaction
from everthink.testing.scripted import Play, ScriptedModel, calls, says
from everthink.turn.overflow import ContextOverflow, Proactive
from tests.crash.nursery import fork_for_each_line

__all__ = ["FACT", "LIMIT", "PICTURE", "SUMMARY", "assistant", "conversation", "play"]

FACT = "The cat is called Mo."
SUMMARY = "They talked about bees."
PICTURE = "data:image/png;base64," + "iVBORw0KGgo=" * 800
LIMIT = 3
"""More messages than this from the conversation before are too long for the model."""


def conversation() -> list[Message]:
    """What was said before each story."""
    texts = [f"About bees, part {n}. " * 8 for n in range(6)]
    roles = ("user", "assistant")
    return [
        Message(f"old{n}", roles[n % 2], [{"type": "text", "text": text}]) for n, text in enumerate(texts)
    ]


def pictures() -> list[Message]:
    """A conversation that begins with heavy files."""
    heavy = [
        Message(f"pic{n}", "user", [{"type": "file", "mediaType": "image/png", "url": PICTURE}])
        for n in range(3)
    ]
    return [*heavy, *conversation()]


def summarize(messages: list[Message], context: CompactContext) -> Compaction | None:
    """All but the last message become a summary."""
    covered = messages[:-1]
    return Compaction(covered[0].id, covered[-1].id, SUMMARY) if len(covered) > 1 else None


def play(request: Request, story: str, is_first: bool) -> Play:
    """What the model says: it depends on what it is shown, and whether this is the process that began."""
    question = next(
        part.text
        for message in reversed(request.messages)
        if isinstance(message, UserMessage)
        for part in message.content
        if getattr(part, "text", "") in QUESTIONS
    )
    has_result = any(isinstance(message, ToolMessage) for message in request.messages)
    old = sum("About bees" in str(message) for message in request.messages)
    if question == "Remember my cat.":
        if has_result or not is_first:
            return says("Noted.")
        action = "append" if story == "adds" else "replace"
        return says("I will. ").calls("set_context", label="memory", content=FACT, action=action)
    if question == "And a wasp?":
        if story == "proactive" and not has_result:
            return calls("buzz").uses(950, 10)
        if story == "exhausted" or (story == "reactive" and old > LIMIT):
            return says("A cous").then_overflows()
        return says("A cousin.")
    return says("Hello.")


QUESTIONS = ("Hi.", "Remember my cat.", "And a wasp?", "What is my cat called?")


def assistant(story: str, *, is_first: bool, is_cached: bool = False) -> tuple[type[Think], ScriptedModel]:
    """The agent of a story."""
    model = ScriptedModel(lambda request: play(request, story, is_first), repeat=True)

    class Assistant(Think):
        context_overflow = ContextOverflow(
            reactive=story in ("reactive", "exhausted"),
            proactive=Proactive(1000) if story == "proactive" else None,
        )
        media_eviction = MediaEviction(min_part_bytes=1000) if story == "evicts" else False

        def get_model(self) -> ScriptedModel:
            return model

        def configure_session(self, session: Any) -> Any:
            session.with_context("memory", description="What you know.").on_compaction(summarize)
            if story == "threshold":
                session.compact_after(150)
            return session.with_cached_prompt() if is_cached else session

        @tool
        def buzz(self) -> str:
            """Buzz."""
            effects = os.environ.get("EFFECTS")
            if effects:
                with open(effects, "a") as file:
                    file.write("buzz\n")
            return "bzz"

    return Assistant, model


async def run(store: str, story: str, is_cached: bool) -> None:
    cls, _ = assistant(story, is_first=True, is_cached=is_cached)
    evicted, moved = asyncio.Event(), 0

    def count(event: Any) -> None:
        nonlocal moved
        moved += event.body.messages
        if moved == len(pictures()) - len(conversation()):
            evicted.set()

    async with App(cls, store=store, grace=0.0) as app:
        app.events.subscribe(count, type="chat:media:evicted")
        agent: Any = await app.agent(cls, "room").__aenter__()
        if story in ("remembers", "adds"):
            if story == "adds":
                await agent.session.replace_context_block("memory", "The dog is called Bo.")
            await agent.save_messages("Hi.")
            await agent.save_messages("Remember my cat.")
        elif story in ("threshold", "reactive", "exhausted", "proactive"):
            # The prompt is frozen before the fact is written: the next compaction shows it.
            await agent.session.freeze_system_prompt()
            await agent.session.replace_context_block("memory", FACT)
            await agent.add_messages(conversation())
            await agent.save_messages("And a wasp?")
        elif story == "evicts":
            await agent.add_messages(pictures())
            await agent.save_messages("Hi.")
            await evicted.wait()
        elif story in ("forks", "splits", "deletes"):
            await agent.add_messages(conversation())
            if story == "forks":
                await agent.sessions.fork("", "old3", "Another way")
            elif story == "splits":
                await agent.sessions.compact_and_split("", SUMMARY, "Part two")
            else:
                made = await agent.sessions.create("Doomed")
                await agent.sessions.append_all(made.id, conversation())
                session = await agent.sessions.session(made.id)
                await session.freeze_system_prompt()
                await session.replace_context_block("memory", FACT)
                await session.compact()
                await agent.sessions.delete(made.id)


if __name__ == "__main__":
    fork_for_each_line(run)
