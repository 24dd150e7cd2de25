"""Import a provider's package beside the event loop.

    "anthropic:…" --load_provider--> a thread imports --> providers.resolve_model finds it there

It takes a second or two, in which a loop that imports would serve nobody. What is missing, broken or
misspelt is told by `resolve_model`, which meets it again.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import threading

__all__ = ["is_loaded", "load_provider"]

_loaded: set[str] = set()
_one_at_a_time = threading.Lock()


def is_loaded(value: object) -> bool:
    """True when resolving `value` imports nothing large any more."""
    return not isinstance(value, str) or ":" not in value or _provider_in(value) in _loaded


async def load_provider(value: object) -> None:
    """Import what a model's name needs, on a thread."""
    if isinstance(value, str) and not is_loaded(value):
        await asyncio.to_thread(_load, _provider_in(value))


def _load(provider: str) -> None:
    with _one_at_a_time:
        with contextlib.suppress(Exception):  # it is raised again when the model is resolved, and told there
            importlib.import_module(".provider_model", __package__)
            from pydantic_ai.providers import infer_provider_class

            infer_provider_class(provider)
        for library in (provider.partition("-")[0], "openai"):
            with contextlib.suppress(Exception):
                importlib.import_module(f"pydantic_ai.models.{library}")
                break
        _loaded.add(provider)


def _provider_in(name: str) -> str:
    return name.strip().partition(":")[0]
