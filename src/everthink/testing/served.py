"""Serve a model over HTTP, the way providers do.

    real provider adapter, or another process --HTTP--> served --> ScriptedModel
                                              <--SSE---

Speaks OpenAI's chat completions (`/v1/chat/completions`) and responses (`/v1/responses`) and
Anthropic's messages (`/v1/messages`), streaming only. A request is read back into our `Request`,
so the scripted model sees, records and checks what really went over the wire.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Any

import msgspec

from ..errors import ModelError, ScriptExhausted
from ..models.port import Failed, Model, ModelEvent, Opened
from .served_anthropic import Anthropic
from .served_openai import OpenAIChat
from .served_responses import OpenAIResponses

if TYPE_CHECKING:
    from ..models.provider_model import ProviderModel

__all__ = ["Endpoint", "served"]

_DIALECTS = {
    "/v1/chat/completions": OpenAIChat(),
    "/v1/responses": OpenAIResponses(),
    "/v1/messages": Anthropic(),
}

Dialect = OpenAIChat | OpenAIResponses | Anthropic


@contextlib.asynccontextmanager
async def served(model: Model, *, host: str = "127.0.0.1", port: int = 0) -> AsyncGenerator[Endpoint, None]:
    """Serve `model` while the block runs.

    async with served(ScriptedModel(says("Hello"))) as endpoint:
        model = endpoint.openai_model()

    A script that ran out is raised again at the end of the block.
    """
    endpoint = Endpoint(model)
    server = await asyncio.start_server(endpoint.serve, host, port)
    host, port = server.sockets[0].getsockname()[:2]
    endpoint.url = f"http://{host}:{port}"
    try:
        yield endpoint
    finally:
        server.close()
        await endpoint.close()
    if endpoint.exhausted is not None:
        raise endpoint.exhausted


class Endpoint:
    """A served model: where it is, who hung up, and real adapters that point at it."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.url = ""
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.closed_connections = 0
        self.exhausted: ScriptExhausted | None = None
        self._hung_up = asyncio.Condition()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._adapters: list[ProviderModel] = []

    def openai_model(self, name: str = "gpt-4o") -> ProviderModel:
        """OpenAI's chat completions adapter, pointed here."""
        from pydantic_ai.models.openai import OpenAIChatModel
        from pydantic_ai.providers.openai import OpenAIProvider

        provider = OpenAIProvider(base_url=f"{self.url}/v1", api_key="sk-served-key")
        return self._adapter(OpenAIChatModel(name, provider=provider))

    def openai_responses_model(self, name: str = "gpt-5") -> ProviderModel:
        """OpenAI's responses adapter (what `openai:` names), pointed here."""
        from pydantic_ai.models.openai import OpenAIResponsesModel
        from pydantic_ai.providers.openai import OpenAIProvider

        provider = OpenAIProvider(base_url=f"{self.url}/v1", api_key="sk-served-key")
        return self._adapter(OpenAIResponsesModel(name, provider=provider))

    def anthropic_model(self, name: str = "claude-sonnet-5") -> ProviderModel:
        """Anthropic's adapter, pointed here."""
        from pydantic_ai.models.anthropic import AnthropicModel
        from pydantic_ai.providers.anthropic import AnthropicProvider

        provider = AnthropicProvider(base_url=self.url, api_key="sk-ant-served-key")
        return self._adapter(AnthropicModel(name, provider=provider))

    def _adapter(self, model: Any) -> ProviderModel:
        from ..models.provider_model import ProviderModel

        adapter = ProviderModel(model)
        self._adapters.append(adapter)
        return adapter

    @property
    def environment(self) -> dict[str, str]:
        """Variables that point a process's `openai:…` and `anthropic:…` models here."""
        return {
            "OPENAI_BASE_URL": f"{self.url}/v1",
            "OPENAI_API_KEY": "sk-served-key",
            "ANTHROPIC_BASE_URL": self.url,
            "ANTHROPIC_API_KEY": "sk-ant-served-key",
        }

    async def wait_for_disconnect(self, count: int = 1, *, timeout: float = 10.0) -> None:
        """Return once `count` clients have hung up before their answer was complete."""
        async with asyncio.timeout(timeout), self._hung_up:
            await self._hung_up.wait_for(lambda: self.closed_connections >= count)

    async def close(self) -> None:
        """End what still streams and close the adapters made here."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for adapter in self._adapters:
            await adapter.aclose()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one connection, which carries one request."""
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            path, headers, body = await _read(reader)
            dialect = _DIALECTS.get(path.partition("?")[0])
            if dialect is None:
                return await _refuse(writer, 404, {"error": {"message": f"There is nothing at {path}."}})
            self.headers.append(headers)
            self.bodies.append(body)
            await self._answer(dialect, body, reader, writer)
        except (asyncio.CancelledError, asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self._tasks.discard(task)
            writer.close()
            with contextlib.suppress(Exception):
                await writer.wait_closed()

    async def _answer(
        self,
        dialect: Dialect,
        body: dict[str, Any],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        answering = asyncio.ensure_future(self._stream(dialect, body, writer))
        hung_up = asyncio.ensure_future(reader.read(1))
        try:
            await asyncio.wait({answering, hung_up}, return_when=asyncio.FIRST_COMPLETED)
            if not answering.done():
                answering.cancel()
                await asyncio.wait({answering})
                async with self._hung_up:
                    self.closed_connections += 1
                    self._hung_up.notify_all()
            elif error := answering.exception():
                raise error
        finally:
            answering.cancel()
            hung_up.cancel()
            await asyncio.gather(answering, hung_up, return_exceptions=True)

    async def _stream(self, dialect: Dialect, body: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        events: AsyncGenerator[ModelEvent, None] | None = None
        try:
            events = self.model.stream(dialect.read(body))
            first = await anext(events)
        except ModelError as error:
            return await _refuse(writer, *dialect.error(error))
        except ScriptExhausted as error:
            self.exhausted = error
            return await _refuse(writer, *dialect.error(ModelError(str(error), kind="fatal", status=400)))
        try:
            await self._write(dialect, body, first, events, writer)
        except ModelError as error:
            writer.write(_chunk(dialect.writer(body).event(Failed(error))) + _chunk(b""))
        except Exception:  # noqa: BLE001 - whatever broke the model breaks the connection, as a crash would
            writer.transport.abort()
        finally:
            await events.aclose()

    async def _write(
        self,
        dialect: Dialect,
        body: dict[str, Any],
        first: ModelEvent,
        events: AsyncGenerator[ModelEvent, None],
        writer: asyncio.StreamWriter,
    ) -> None:
        lines = dialect.writer(body)
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncache-control: no-cache\r\n"
            b"transfer-encoding: chunked\r\nconnection: close\r\n\r\n"
        )
        writer.write(_chunk(lines.event(first if isinstance(first, Opened) else Opened())))
        await writer.drain()
        async for event in events:
            if data := lines.event(event):
                writer.write(_chunk(data))
                await writer.drain()
        writer.write(b"0\r\n\r\n")
        await writer.drain()


async def _read(reader: asyncio.StreamReader) -> tuple[str, dict[str, str], dict[str, Any]]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    pairs = (line.partition(":") for line in head[1:] if line)
    headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return head[0].split(" ")[1], headers, msgspec.json.decode(body) if body else {}


async def _refuse(
    writer: asyncio.StreamWriter, status: int, body: dict[str, Any], headers: dict[str, str] | None = None
) -> None:
    data = msgspec.json.encode(body)
    extra = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
    writer.write(
        f"HTTP/1.1 {status} Served\r\ncontent-type: application/json\r\n{extra}"
        f"content-length: {len(data)}\r\nconnection: close\r\n\r\n".encode()
        + data
    )
    await writer.drain()


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)
