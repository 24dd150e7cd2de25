"""Reading what a turn did: the chunks it showed, and what the model was asked."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from everthink import TurnConfig
from everthink.calling import call_hook
from everthink.chunks import Chunk
from everthink.door.chat_request import ChatRequest
from everthink.journal.feed import ChunksStored
from everthink.messages import Message
from everthink.models.port import (
    AssistantMessage,
    Request,
    SystemMessage,
    TextPart,
    ToolMessage,
    ToolResultPart,
    UserMessage,
)
from tests.support.agents import live
from tests.support.turns import accept_request

T = TypeVar("T")


async def soon(work: Awaitable[T]) -> T:
    """`work`'s result. Fails instead of hanging when it never comes."""
    return await asyncio.wait_for(work, 10)


async def until(condition: Callable[[], Any]) -> None:
    """Return once `condition` (plain or async) holds. Fails instead of hanging when it never does."""
    async with asyncio.timeout(10):
        while not await call_hook(condition):  # noqa: ASYNC110 - what is waited for may be anywhere
            await asyncio.sleep(0)


async def submitted(handle: Any, text: str) -> Any:
    """Submit a message and return the submission once it is over."""
    accepted = await handle.submit_messages(text)

    async def is_over() -> bool:
        return (await handle.inspect_submission(accepted.submission_id)).status not in ("pending", "running")

    await until(is_over)
    return await handle.inspect_submission(accepted.submission_id)


async def breathe() -> None:
    """Let everything that can run now run."""
    for _ in range(20):
        await asyncio.sleep(0)


async def watch(handle: Any) -> list[Chunk]:
    """A list that fills with the chunks of every turn of this agent from now on."""
    seen: list[Chunk] = []
    home = (await live(handle))._home
    home.feed.join(lambda shown: seen.extend(shown.chunks) if isinstance(shown, ChunksStored) else None)
    return seen


def types(chunks: list[Chunk]) -> list[str]:
    return [chunk.type for chunk in chunks]


def only(chunks: list[Chunk], kind: str) -> list[Any]:
    """The chunks of one type."""
    return [chunk for chunk in chunks if chunk.type == kind]


async def ask(handle: Any, text: str, **options: Any) -> Any:
    """Send a message as a chat window does, and wait for the turn's end."""
    home = (await live(handle))._home
    number = home.chat.door._numbers._last + 1
    message = Message(f"user-{number}", "user", [{"type": "text", "text": text}])
    request_id = options.pop("request_id", f"request-{number}")
    request = ChatRequest(request_id, [*await handle.get_messages(), message], **options)
    admitted: Any = await accept_request(home, request)
    return await admitted.result()


def configured(*configs: TurnConfig | None) -> Any:
    """A `before_turn` that gives these configs, one per turn, then none."""
    left = list(configs)
    return lambda self, turn: left.pop(0) if left else None


def script(request: Request) -> list[tuple[str, Any]]:
    """What the model was shown, as (who, what): texts, names of calls, and results."""
    lines: list[tuple[str, Any]] = []
    for message in request.messages:
        match message:
            case SystemMessage(text):
                lines.append(("system", text))
            case UserMessage(content):
                lines.append(("user", " ".join(p.text for p in content if isinstance(p, TextPart))))
            case AssistantMessage(content):
                lines += [
                    ("assistant", part.text)
                    if isinstance(part, TextPart)
                    else (type(part).__name__, getattr(part, "name", None))
                    for part in content
                ]
            case ToolMessage(content):
                lines += [("result", getattr(part, "output", part)) for part in content]
    return lines


def results(request: Request) -> list[ToolResultPart]:
    """The results in the newest tool message the model was shown."""
    for message in reversed(request.messages):
        if isinstance(message, ToolMessage):
            return [part for part in message.content if isinstance(part, ToolResultPart)]
    return []


def offered(request: Request) -> list[str]:
    """The tools the model was offered."""
    return [spec.name for spec in request.tools]
