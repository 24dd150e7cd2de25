"""What the models of the agents miss before they can answer: a key, a package, a name that somebody knows.

    dev --use_demo_models--> the demo model answers where a provider is not set up, and says so
    serve --note_what_is_missing--> agents stay as they are, and it says which will fail

A model that `get_model` chooses is only known when a turn asks for it; that of a class is known at the start.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any, cast

from ..errors import AgentError, MissingExtra, MissingKey
from ..think import Think
from .target import Loaded

__all__ = ["note_what_is_missing", "use_demo_models"]

log = logging.getLogger("everthink.cli")

DEMO_HINT = 'To look around without a key, use the model "demo".'


def use_demo_models(loaded: Loaded) -> None:
    """Let agents whose provider is not set up answer with the demo model, and note which."""
    for cls, _ in loaded.agents:
        if cls.get_model is not Think.get_model:
            _with_fallback(cls, loaded.stand_ins)
        elif (error := _trouble(cls.model)) is None:
            continue
        elif is_not_set_up(error):
            cls.model = "demo"
            loaded.stand_ins[cls.__name__] = _words(error)
            loaded.notes.append(f"{cls.__name__} answers with the demo model. {_words(error)}")
        else:
            loaded.notes.append(f"{cls.__name__} cannot answer. {_words(error)}")


def note_what_is_missing(loaded: Loaded) -> list[str]:
    """A sentence for every agent whose model cannot be asked as things are."""
    return [
        f"{cls.__name__} cannot answer. {_words(error)}"
        for cls, _ in loaded.agents
        if cls.get_model is Think.get_model and (error := _trouble(cls.model))
    ]


def is_not_set_up(error: AgentError) -> bool:
    """True when the model's name is right, and this machine has no key or no package for it."""
    return isinstance(error, MissingKey | MissingExtra)


def _trouble(model: Any) -> AgentError | None:
    """Why a model that is named cannot be asked."""
    from ..models.providers import resolve_model

    if not isinstance(model, str):
        return None
    try:
        resolve_model(model)
    except AgentError as error:
        return error
    return None


def _words(error: AgentError) -> str:
    return f"{error.what} {error.next_step.replace(DEMO_HINT, '').strip()}".strip()


def _with_fallback(cls: type[Think], stand_ins: dict[str, str]) -> None:
    original = cast("Callable[[Think], Any]", cls.get_model)
    told: set[str] = set()

    @functools.wraps(original)
    def get_model(self: Think) -> Any:
        chosen = original(self)
        error = _trouble(chosen)
        if error is None or not is_not_set_up(error):
            return chosen  # A misspelt name is told by the turn, in full.
        if chosen not in told:
            told.add(chosen)
            stand_ins[cls.__name__] = _words(error)
            log.warning("%s answers with the demo model. %s", cls.__name__, _words(error))
        return "demo"

    cls.get_model = get_model
