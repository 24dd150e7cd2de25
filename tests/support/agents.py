"""Agents for tests, made on the spot."""

from __future__ import annotations

from typing import Any

from everthink import Think


def assistant(model: Any, **members: Any) -> type[Think]:
    """An agent class called `Assistant` with this model and these members."""
    return type("Assistant", (Think,), {"model": model, **members})
