"""What the models of the agents miss before they can answer: a key, a package, a name that somebody knows.

    dev --use_demo_models--> the demo model answers where a provider is not set up, and says so
    serve, doctor --what_is_missing--> agents stay as they are, and it says which will fail
    all three --odd_keys--> keys that can be none: a placeholder that was typed as it stood

A model that `get_model` chooses is only known when a turn asks for it; that of a class is known at the start.
"""

from __future__ import annotations

import functools
import inspect
import logging
import os
import re
import string
from collections.abc import Callable, Iterable
from typing import Any, cast

from ..agent import Agent
from ..calling import awaited
from ..children.declared import with_children
from ..errors import AgentError, MissingExtra, MissingKey
from ..think import Think
from .target import Loaded

__all__ = ["KEYS", "odd_keys", "use_demo_models", "what_is_missing"]

log = logging.getLogger("everthink.cli")

KEYS = (
    "OPENAI_API_KEY",
    "ANTHROPIC_API_KEY",
    "GOOGLE_API_KEY",
    "OPENROUTER_API_KEY",
    "GROQ_API_KEY",
    "MISTRAL_API_KEY",
)
LETTERS = frozenset(string.ascii_letters + string.digits + string.punctuation)
"""Of which keys are made."""
PLACEHOLDER = re.compile(
    r"""[<\[{(].*[>\]})]  # <your-key>
    | \$.*                # $OPENAI_API_KEY, which nobody replaces
    | .*\.\.\..*          # sk-...
    | (sk-)?(ant-)?(      # with the beginning of a key, or without
        [x*.\-_]{3,}
        | (your|my|the|insert|enter|put|paste|replace|add)\b.*
        | (your|my|insert|enter|put|paste|replace|add)[-_].*
        | .*(change|replace)[-_]?(me|this|it)\b.*
        | .*placeholder.*
        | (\w+[-_])?api[-_]?key([-_]here)? | key | secret | token | todo | none | null
    )""",
    re.IGNORECASE | re.VERBOSE,
)
"""What examples have where a key belongs."""
DEMO_HINT = 'To look around without a key, use the model "demo".'


def use_demo_models(loaded: Loaded) -> None:
    """Let agents whose provider is not set up answer with the demo model, and note which."""
    loaded.notes += odd_keys()
    for cls in _chatting(cls for cls, _ in loaded.agents):
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


def what_is_missing(classes: Iterable[type[Agent]]) -> list[str]:
    """A sentence for every agent whose model cannot be asked as things are."""
    return [
        f"{cls.__name__} cannot answer. {_words(error)}"
        for cls in _chatting(classes)
        if cls.get_model is Think.get_model and (error := _trouble(cls.model))
    ]


def _chatting(classes: Iterable[type[Agent]]) -> list[type[Think]]:
    """Those that ask a model: of these classes, and of their children."""
    return [cls for cls in with_children(classes) if issubclass(cls, Think)]


def odd_keys() -> list[str]:
    """A sentence for every key in the environment that no provider can have given out."""
    return [f"{name} is no key: {why}" for name in KEYS if (why := _oddity(os.environ.get(name, "")))]


def _oddity(key: str) -> str | None:
    if not set(key) <= LETTERS:
        return "it holds blanks, or letters that no key has. Requests with it cannot be sent."
    if PLACEHOLDER.fullmatch(key):
        return "it is the placeholder of an example. Put the key there that the provider gave you."
    return None


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
    from ..models.loading import is_loaded, load_provider

    original = cast("Callable[[Think], Any]", cls.get_model)
    told: set[str] = set()

    def stood_in(chosen: Any) -> Any:
        error = _trouble(chosen)
        if error is None or not is_not_set_up(error):
            return chosen  # A misspelt name is told by the turn, in full.
        if chosen not in told:
            told.add(chosen)
            stand_ins[cls.__name__] = _words(error)
            log.warning("%s answers with the demo model. %s", cls.__name__, _words(error))
        return "demo"

    async def later(chosen: Any) -> Any:
        chosen = await awaited(chosen)
        await load_provider(chosen)  # not on the event loop
        return stood_in(chosen)

    @functools.wraps(original)
    def get_model(self: Think) -> Any:
        chosen = original(self)
        return later(chosen) if inspect.isawaitable(chosen) or not is_loaded(chosen) else stood_in(chosen)

    cls.get_model = get_model
