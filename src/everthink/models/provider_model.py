"""A language model served by a provider, through pydantic-ai's model classes.

    turn/loop --Request--> ProviderModel.stream --HTTP--> provider
              <--ModelEvent--                   <--SSE---

The call is ours: one request, no retries inside, closed as soon as the reader stops. Importing
this module imports pydantic-ai (about a second), so only `providers.resolve_model` does it.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Literal

from pydantic_ai import messages as ai
from pydantic_ai.models import Model as AIModel
from pydantic_ai.models import ModelRequestParameters, StreamedResponse
from pydantic_ai.settings import ModelSettings

from ..errors import ModelError
from . import provider_request
from .classify import classify
from .port import Failed, ModelEvent, Opened, Request, TextDelta, Usage
from .provider_events import Translation, usage_of

__all__ = ["ProviderModel"]

_MAX_SEGMENTS = 20
_LONGEST_FETCH = 120.0
"""Seconds until a call has to open when the library may fetch files of its prompt from this machine first."""
_SENDS_IMAGE_LINKS = frozenset({"anthropic", "openai"})
"""Who opens the address of an image itself."""


class ProviderModel:
    """Our `Model` over a pydantic-ai model object."""

    def __init__(
        self,
        model: AIModel[Any],
        *,
        name: str | None = None,
        continues: Literal["prefill", "prompt"] = "prompt",
    ) -> None:
        self.model = model
        self.name = name or model.model_id
        self.continues: Literal["prefill", "prompt"] = continues
        self._history = provider_request.History(model)

    def __repr__(self) -> str:
        return f"ProviderModel({self.name!r})"

    async def stream(self, request: Request) -> AsyncGenerator[ModelEvent, None]:
        """Ask the provider. A pause it makes in a long answer is bridged here."""
        opened = False
        try:
            parameters = provider_request.parameters(self.model, request)
            settings = provider_request.settings(self.model, request)
            messages = self._history.map(request.messages, parameters)
            _follow_event_loop(self.model)
            tool = parameters.output_tools[0].name if parameters.output_tools else None
            translation = Translation(tool)
            usage: Usage | None = None
            for segment in itertools.count(1):
                async with self._requested(messages, settings, parameters) as stream:
                    if not opened:
                        opened = True
                        yield Opened(stream.provider_response_id, stream.model_name)
                    ids = translation.ids
                    async for event in stream:
                        # The common case first and inline: a burst is thousands of these.
                        if (
                            type(event) is ai.PartDeltaEvent
                            and type(delta := event.delta) is ai.TextPartDelta
                            and delta.citations_delta is None
                        ):
                            if delta.content_delta:
                                yield TextDelta(ids[event.index], delta.content_delta)
                        else:
                            for mine in translation.translate(event):
                                yield mine
                    usage = usage_of(stream.usage, usage)
                    for mine in translation.end_stream():
                        yield mine
                if stream.state == "suspended" and segment < _MAX_SEGMENTS:
                    messages = [*messages, stream.get()]
                    continue
                if not _is_cut(stream):
                    finish = translation.finish(stream, usage)
                    finish.warnings = provider_request.ignored(self.model, settings)
                    yield finish
                return
        except Exception as error:  # noqa: BLE001 - everything that leaves an adapter is a ModelError
            failure = classify(error, model=self.name, address=self._address(), secrets=self._secrets())
            if not opened:
                raise failure from failure.__cause__
            yield Failed(failure)

    @asynccontextmanager
    async def _requested(
        self, messages: list[ai.ModelMessage], settings: ModelSettings, parameters: ModelRequestParameters
    ) -> AsyncGenerator[StreamedResponse, None]:
        """The provider's answer. Who serves a file drop by drop does not hold a turn for ever."""
        asked = self.model.request_stream(messages, settings, parameters)
        if not self._may_fetch(messages):
            async with asked as stream:
                yield stream
            return
        async with AsyncExitStack() as held:
            limit = asyncio.timeout(_LONGEST_FETCH)
            try:
                async with limit:
                    stream = await held.enter_async_context(asked)
            except TimeoutError:
                if not limit.expired():
                    raise
                raise ModelError(
                    f"{self.name} did not begin within {_LONGEST_FETCH:g} s; a file given by its address may"
                    " have come too slowly.",
                    kind="unknown",
                ) from None
            yield stream

    def _may_fetch(self, messages: Sequence[ai.ModelMessage]) -> bool:
        sends_images = self.model.system in _SENDS_IMAGE_LINKS
        return any(
            isinstance(item, ai.FileUrl) and not (sends_images and isinstance(item, ai.ImageUrl))
            for message in messages
            for part in message.parts
            if isinstance(part, ai.UserPromptPart) and not isinstance(part.content, str)
            for item in part.content
        )

    async def aclose(self) -> None:
        """Close the HTTP client that belongs to this model."""
        async with self.model:
            pass

    def _address(self) -> str | None:
        """Where the provider is asked, if its library tells."""
        for holder in (self.model, getattr(self.model, "client", None)):
            with contextlib.suppress(Exception):  # a property of theirs
                if address := getattr(holder, "base_url", None):
                    return str(address)
        return None

    def _secrets(self) -> list[str]:
        client = getattr(self.model, "client", None)
        return [key for key in (getattr(client, "api_key", None), getattr(client, "auth_token", None)) if key]


def _follow_event_loop(model: AIModel[Any]) -> None:
    """Connections belong to the loop that opened them: give a model that moved to another loop new ones."""
    refresh = getattr(model, "_refresh_http_client", None)
    if refresh is not None:
        refresh()


def _is_cut(stream: StreamedResponse) -> bool:
    """True for an answer whose end never came: the connection closed politely, half way."""
    if (stream.provider_details or {}).get("finish_reason") is not None:
        return False
    # A function that stands in for a model names no provider, and no reason either. Where OpenAI's chat
    # protocol has none, the library makes one up.
    never_ended = stream.finish_reason is None and stream.provider_name is not None
    is_made_up = not getattr(stream, "_has_finish_reason", True)
    return stream.state == "incomplete" or never_ended or is_made_up
