"""A language model served by a provider, through pydantic-ai's model classes.

    turn/loop --Request--> ProviderModel.stream --HTTP--> provider
              <--ModelEvent--                   <--SSE---

The call is ours: one request, no retries inside, closed as soon as the reader stops. Importing
this module imports pydantic-ai (about a second), so only `providers.resolve_model` does it.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncGenerator
from typing import Any, Literal

from pydantic_ai import messages as ai
from pydantic_ai.models import Model as AIModel
from pydantic_ai.models import StreamedResponse

from ..errors import ModelError
from . import provider_request
from .classify import classify
from .port import Failed, ModelEvent, Opened, Request, TextDelta, Usage
from .provider_events import Translation, usage_of

__all__ = ["ProviderModel"]

_MAX_SEGMENTS = 20


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
                async with self.model.request_stream(messages, settings, parameters) as stream:
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
                failure = _cut_short(self.name, stream)
                yield Failed(failure) if failure else translation.finish(stream, usage)
                return
        except Exception as error:  # noqa: BLE001 - everything that leaves an adapter is a ModelError
            failure = classify(error, model=self.name, secrets=self._secrets())
            if not opened:
                raise failure from failure.__cause__
            yield Failed(failure)

    async def aclose(self) -> None:
        """Close the HTTP client that belongs to this model."""
        async with self.model:
            pass

    def _secrets(self) -> list[str]:
        client = getattr(self.model, "client", None)
        return [key for key in (getattr(client, "api_key", None), getattr(client, "auth_token", None)) if key]


def _follow_event_loop(model: AIModel[Any]) -> None:
    """Connections belong to the loop that opened them: give a model that moved to another loop new ones."""
    refresh = getattr(model, "_refresh_http_client", None)
    if refresh is not None:
        refresh()


def _cut_short(name: str, stream: StreamedResponse) -> ModelError | None:
    """An answer whose end never came: the connection closed politely, half way."""
    if stream.state == "incomplete" or (stream.finish_reason is None and stream.provider_name == "anthropic"):
        raw = (stream.provider_details or {}).get("finish_reason")
        if raw is None:
            return ModelError(f"{name} broke off its answer without saying why.", kind="transient")
    return None
