"""Processes to be killed while a model works in files, code puts some there, and turns are taken back.

nursery --> run: a story in a room of its own, gone on with from wherever an earlier process left it

The model reads from the prompt which of its calls have a result, and makes those that have none: a process
that comes later does what the dead one would have done.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from everthink import App, Think
from everthink.models.port import (
    AssistantMessage,
    Request,
    ToolCallPart,
    ToolMessage,
    ToolResultPart,
    UserMessage,
)
from everthink.testing.scripted import Play, ScriptedModel, says
from tests.crash.nursery import fork_for_each_line

__all__ = ["TURNS", "UPLOAD", "Clerk", "files", "go_on"]

UPLOAD = "/uploads/photo.bin"
UPLOADED = bytes(range(256)) * 32

_SCRIPT = """\
mkdir -p /made/deep
printf 'three\\n' >> /notes/plan.md
printf 'made\\n' > /made/deep/new.txt
printf '\\000\\001' > /bytes.bin
rm /old.txt
"""

Call = tuple[str, dict[str, Any]]

TURNS: dict[str, Sequence[Sequence[Call]]] = {
    "Begin.": (
        [("write", {"path": "/old.txt", "content": "old\n"})],
        [("write", {"path": "/junk/a.txt", "content": "a\n"})],
    ),
    "Go on.": (
        [("write", {"path": "/notes/plan.md", "content": "one\ntwo\n"})],
        [
            ("edit", {"path": "/notes/plan.md", "old_string": "one", "new_string": "eins"}),
            ("edit", {"path": "/notes/plan.md", "old_string": "two", "new_string": "zwei"}),
        ],
        [("bash", {"script": _SCRIPT})],
        [("delete", {"path": "/junk", "recursive": True})],
    ),
}
"""What is asked, and what the model does then, step by step."""


def work(request: Request) -> Play:
    """The calls of the first step that has no results yet; after the last one, a word."""
    asked = max(n for n, message in enumerate(request.messages) if isinstance(message, UserMessage))
    since = request.messages[asked:]
    question = since[0]
    assert isinstance(question, UserMessage)
    results = {
        part.id
        for message in since
        if isinstance(message, ToolMessage)
        for part in message.content
        if isinstance(part, ToolResultPart)
    }
    done = [
        (part.name, part.input)
        for message in since
        if isinstance(message, AssistantMessage)
        for part in message.content
        if isinstance(part, ToolCallPart) and part.id in results
    ]
    for step in next(steps for text, steps in TURNS.items() if text in str(question.content)):
        missing = [call for call in step if call not in done]
        if missing:
            play = Play()
            for name, given in missing:
                play = play.calls(name, given)
            return play
    return says("Done.")


class Clerk(Think):
    """An agent that works in its files."""

    model: Any = ScriptedModel(work, repeat=True, records=False)


def files(store: str) -> App:
    """The app of the stories."""
    return App(Clerk, store=store, grace=0.0, idle_after=None)


async def go_on(app: App, room: str, *, undoes: bool) -> None:
    """Do what a person would who looks where things stand and does what is left."""
    clerk: Any = await app.agent(Clerk, room).__aenter__()
    await clerk.wait_until_stable()
    for place, text in enumerate(TURNS):
        if len(await clerk.get_messages()) <= 2 * place:
            await clerk.save_messages(text)
        if not await clerk.workspace.exists(UPLOAD):
            await clerk.workspace.write_file_bytes(UPLOAD, UPLOADED)
    if undoes:
        await take_back(clerk.workspace)


async def take_back(workspace: Any) -> None:
    """Undo the last turn, and then undo that."""
    changes = await workspace.changes()
    turn, last = next((one.turn, one.seq) for one in reversed(changes) if one.turn is not None)
    if changes[-1].seq == last:
        await workspace.undo(turn=turn)
    if not await workspace.exists("/notes/plan.md"):
        await workspace.restore(last)


async def run(store: str, room: str, undoes: bool) -> None:
    async with files(store) as app:
        await go_on(app, room, undoes=undoes)


if __name__ == "__main__":
    fork_for_each_line(run)
