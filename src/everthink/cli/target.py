"""What `dev` and `serve` are asked to serve.

"module:app"  a folder  nothing --> load --> Loaded (an ASGI application, and what to say about it)
"""

from __future__ import annotations

import functools
import importlib
import logging
import os
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from ..errors import AgentError, MissingExtra, MissingKey
from ..server.app import DEFAULT_STORE, App
from ..server.names import kebab
from ..think import Think
from .mounts import WithLifespan, mounts_in

__all__ = ["Loaded", "load", "use_demo_models", "watched"]

log = logging.getLogger("everthink.cli")


@dataclass
class Loaded:
    """Something to serve."""

    asgi: Any
    source: str
    """Where it came from, for the person."""
    app: App | None = None
    """The agents in it: an `App`, or the first one that is mounted in it."""
    notes: list[str] = field(default_factory=list[str])
    mounts: list[tuple[str, App]] = field(default_factory=list[tuple[str, App]])
    """Every `App` in it, with the path below which it is."""

    stand_ins: dict[str, str] = field(default_factory=dict[str, str])
    """Classes for which the demo model answers, and what is missing of theirs."""

    def __post_init__(self) -> None:
        if self.app is not None and not self.mounts:
            self.mounts = [("", self.app)]

    @property
    def agents(self) -> list[tuple[type[Think], str]]:
        """The classes of its agents, each with where it is, without names."""
        return [
            (cls, f"{path}/{'/'.join([*app.prefix, kebab(cls.__name__)])}")
            for path, app in self.mounts
            for cls in app.classes
        ]

    @property
    def routes(self) -> list[str]:
        """The addresses of its agents, without names."""
        return [address for _, address in self.agents]


def load(target: str | None, *, store: str | None = None, grace: float | None = None) -> Loaded:
    """Find what `target` names. Raises a letter when there is no such thing."""
    options: dict[str, Any] = {} if grace is None else {"grace": grace}
    if target is None and not Path("agents").is_dir():
        from ..devtools.demo import Demo

        return _of_app(App(Demo, store=store or DEFAULT_STORE, **options), "the built-in demo agent")
    target = target or "agents"
    if ":" in target and not Path(target).exists():
        return _named(target, store, options)
    path = Path(target)
    if path.suffix == ".py":
        module = ".".join(path.with_suffix("").parts)
        raise AgentError(
            f"{target} is a file; name the app in it.", next_step=f"For example: everthink dev {module}:app"
        )
    if not path.is_dir():
        raise AgentError(
            f"There is nothing to serve at {target!r}: no such folder.",
            next_step="Name a folder with agents, or an app as module:app. "
            "To start from nothing: everthink new my-agents",
        )
    return _of_app(App.discover(path, store=store or DEFAULT_STORE, **options), f"the agents in {target}")


def watched(target: str | None) -> Path | None:
    """The folder whose changes matter; `None` for the demo agent."""
    if target is None and not Path("agents").is_dir():
        return None
    folder = Path(target or "agents")
    return folder.resolve().parent if folder.is_dir() else Path.cwd()


def _of_app(app: App, source: str) -> Loaded:
    return Loaded(app, source, app)


def _named(target: str, store: str | None, options: dict[str, Any]) -> Loaded:
    module_name, _, attribute = target.partition(":")
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    value: Any = _import(module_name)
    for name in (attribute or "app").split("."):
        if not hasattr(value, name):
            inside: dict[str, Any] = getattr(value, "__dict__", {})
            offers = [known for known, thing in inside.items() if isinstance(thing, App)]
            hint = f"It has an app called {offers[0]!r}: {module_name}:{offers[0]}" if offers else ""
            raise AgentError(
                f"{module_name} has no {name!r}.",
                next_step=hint or "Put this into it: app = App(YourAgent)",
            )
        value = getattr(value, name)
    if isinstance(value, type) and issubclass(cast("type[object]", value), Think):
        return _of_app(App(cast("type[Think]", value), store=store or DEFAULT_STORE, **options), target)
    if store:
        raise AgentError(
            f"--store does not go with {target}: that app names its own store.",
            next_step="Leave --store out, or name an agent class or a folder with agents instead.",
        )
    if isinstance(value, App):
        return _of_app(value, target)
    if not callable(cast("object", value)):
        raise AgentError(
            f"{target} is {value!r}, which cannot be served.",
            next_step="Name an App, an agent class, or an ASGI application with an App mounted in it.",
        )
    mounts = mounts_in(value)
    if not mounts:
        return Loaded(value, target)
    apps = [app for _, app in mounts]
    return Loaded(WithLifespan(value, apps), target, apps[0], mounts=mounts)


def _import(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except AgentError:
        raise  # App.discover at the top of their module, say: a letter already.
    except (Exception, SystemExit) as error:
        if (
            isinstance(error, ModuleNotFoundError)
            and error.name
            and (name + ".").startswith(error.name + ".")
        ):
            raise AgentError(
                f"There is no module {error.name!r} in {os.getcwd()}.",
                next_step="Run this where the module is, and write it as in an import: package.module:app",
            ) from error
        frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith("<")]
        said = traceback.format_exception_only(error)[-1].strip()
        place = f"{frames[-1].filename}:{frames[-1].lineno}"
        if isinstance(error, SyntaxError) and error.filename:
            place = f"{error.filename}:{error.lineno}"
        raise AgentError(f"Importing {name} failed at {place}: {said}") from error


# --- the demo model where a key is missing


def use_demo_models(loaded: Loaded) -> None:
    """Let agents whose provider is not set up answer with the demo model, and note which."""
    for cls, _ in loaded.agents:
        if cls.get_model is not Think.get_model:
            _with_fallback(cls, loaded.stand_ins)
        elif isinstance(cls.model, str) and (missing := _missing(cls.model)):
            cls.model = "demo"
            loaded.stand_ins[cls.__name__] = missing
            loaded.notes.append(f"{cls.__name__} answers with the demo model. {missing}")


def _missing(name: str) -> str | None:
    from ..models.providers import resolve_model

    try:
        resolve_model(name)
    except (MissingKey, MissingExtra) as error:
        return f"{error.what} {error.next_step.replace(DEMO_HINT, '').strip()}".strip()
    except AgentError:
        return None  # A misspelt name is told when the agent is asked, in full.
    return None


DEMO_HINT = 'To look around without a key, use the model "demo".'


def _with_fallback(cls: type[Think], stand_ins: dict[str, str]) -> None:
    """A model chosen by code is only known when a turn asks for it."""
    original = cast("Callable[[Think], Any]", cls.get_model)
    told: set[str] = set()

    @functools.wraps(original)
    def get_model(self: Think) -> Any:
        chosen = original(self)
        if not isinstance(chosen, str) or not (missing := _missing(chosen)):
            return chosen
        if chosen not in told:
            told.add(chosen)
            stand_ins[cls.__name__] = missing
            log.warning("%s answers with the demo model. %s", cls.__name__, missing)
        return "demo"

    cls.get_model = get_model
