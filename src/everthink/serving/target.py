"""What `dev` and `serve` are asked to serve.

"module:app"  a file  a folder  nothing --> load --> Loaded (an ASGI application, and what to say about it)
"""

from __future__ import annotations

import importlib
import inspect
import os
import shlex
import sys
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from ..address import kebab
from ..agent import Agent
from ..app.app import DEFAULT_STORE, App
from ..errors import AgentError, DiscoveryFailed
from ..settings import nearest, shown
from ..think import Think
from .mounts import WithLifespan, mounts_in
from .output import WrittenWrongly

__all__ = ["Asked", "Loaded", "load", "source_of", "watched"]


WHAT_IS_SERVED = "Name an App, an agent class, or an ASGI application with an App mounted in it."
MOUNT_ONE = 'Mount one: site.mount("/", App(YourAgent)).'
WHAT_TO_NAME = "Name a folder with agents, a file with one, or an app as module:app."


@dataclass(frozen=True)
class Asked:
    """How a command asks for something to serve: its own name, and what it says about the agents' app."""

    command: str = "dev"
    store: str | None = None
    store_from: str = "--store"
    """What named the store: the option, or a variable of the environment."""
    grace: float | None = None

    def __post_init__(self) -> None:
        if self.store is not None and not self.store.strip():
            what = f"{self.store_from} is empty."
            raise WrittenWrongly(what, next_step="Name a database, or leave it out.")

    @property
    def options(self) -> dict[str, Any]:
        """For an `App` that is made here."""
        given: dict[str, Any] = {} if self.grace is None else {"grace": self.grace}
        return {"store": self.store or DEFAULT_STORE, **given}

    @property
    def or_nothing(self) -> str:
        """What else may be typed where a target is not needed."""
        return " Or leave it out: everthink dev" if self.command == "dev" else ""

    def app(self, cls: type[Agent]) -> App:
        """An app of one agent class."""
        return App(cls, **self.options)

    def check_store(self, target: str, apps: list[App]) -> None:
        """Raise when a store is named for apps that name another: it would be kept in theirs."""
        is_option = self.store_from == "--store"
        if not self.store or (all(app.store_url == self.store for app in apps) and (apps or not is_option)):
            return
        how = "Leave --store out" if is_option else f"Take {self.store_from} out of the environment and .env"
        raise WrittenWrongly(
            f"{self.store_from} does not go with {target}: that app names its own store.",
            next_step=f"{how}, or give the app the same: App(…, store=…). An agent class, or a folder with"
            " agents, takes it.",
        )


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
    def agents(self) -> list[tuple[type[Agent], str]]:
        """The classes of its agents, each with where it is, without names."""
        return [
            (cls, f"{path}/{'/'.join([*app.prefix, kebab(cls.__name__)])}")
            for path, app in self.mounts
            for cls in app.classes
        ]

    @property
    def chatting(self) -> list[tuple[type[Think], str]]:
        """Those of them that chat."""
        return [(cls, address) for cls, address in self.agents if issubclass(cls, Think)]

    @property
    def routes(self) -> list[str]:
        """The addresses of its agents, without names."""
        return [address for _, address in self.agents]


def load(target: str | None, *, ask: Asked | None = None) -> Loaded:
    """Find what `target` names. Raises an `AgentError` when there is no such thing, or when it is broken."""
    ask = ask or Asked()
    if target is None and not Path("agents").is_dir():
        from ..devtools.demo import Demo

        return _of_app(ask.app(Demo), "the built-in demo agent")
    target = "agents" if target is None else target
    path = Path(target)
    if target and path.is_dir():
        return _of_app(_discovered(path, ask), f"the agents in {target}")
    if target and path.is_file():
        return _in_file(path, ask)
    if ":" in target:
        return _named(target, ask)
    raise _nothing_at(target, ask)


def source_of(option: str) -> str:
    """Where the command that runs has an option from: `--store`, or the variable that said it."""
    import click
    from click.core import ParameterSource

    context = click.get_current_context()
    parameter = next(one for one in context.command.params if one.name == option)
    if context.get_parameter_source(option) is ParameterSource.ENVIRONMENT:
        return str(parameter.envvar)
    return parameter.opts[0]


def watched(target: str | None) -> Path | None:
    """The folder whose changes matter; `None` for the demo agent."""
    if target is None and not Path("agents").is_dir():
        return None
    path = Path(target or "agents").resolve()
    is_elsewhere = path.is_file() and not path.is_relative_to(Path.cwd())
    return path.parent if path.is_dir() or is_elsewhere else Path.cwd()


def _of_app(app: App, source: str) -> Loaded:
    return Loaded(app, source, app)


def _discovered(folder: Path, ask: Asked) -> App:
    try:
        return App.discover(folder, **ask.options)
    except DiscoveryFailed as error:
        inner = folder / "agents"
        if not any(inner.glob("*.py")) and not any(inner.glob("*/agent.py")):
            raise
        hint = f"Its agents are in a folder of their own: everthink {ask.command} {shlex.quote(str(inner))}"
        raise WrittenWrongly(error.what, next_step=hint) from error


def _nothing_at(target: str, ask: Asked) -> WrittenWrongly:
    """No folder, no file and no module:app."""
    if not target.strip():
        return WrittenWrongly("The target is empty.", next_step=WHAT_TO_NAME + ask.or_nothing)
    if Path(f"{target}.py").is_file():
        hint = f"There is a file of that name: everthink {ask.command} {shlex.quote(target)}.py"
    elif near := nearest(Path(target).name, _beside(Path(target).parent)):
        meant = str(Path(target).with_name(near))
        hint = f"Did you mean: everthink {ask.command} {shlex.quote(meant)}"
    else:
        hint = f"{WHAT_TO_NAME} To start from nothing: everthink new my-agents"
    return WrittenWrongly(f"There is nothing to serve at {target!r}: no such folder or file.", next_step=hint)


def _beside(folder: Path) -> list[str]:
    """What might be served in a folder: Python files, and folders with some."""
    try:
        entries = sorted(folder.iterdir())
    except OSError:
        return []
    files = [entry.name for entry in entries if entry.suffix == ".py" and entry.name != "__init__.py"]
    return files + [entry.name for entry in entries if entry.is_dir() and any(entry.glob("*.py"))]


# --- module:app, and a file


def _in_file(path: Path, ask: Asked) -> Loaded:
    """The app in a file, or the one agent class."""
    whole = path.resolve()
    below = whole.is_relative_to(Path.cwd())
    steps = whole.relative_to(Path.cwd() if below else whole.parent).with_suffix("").parts
    if path.suffix != ".py" or any("." in step for step in steps):
        raise WrittenWrongly(
            f"{path} cannot be imported: it is not a Python file with a name such as travel.py.",
            next_step=f"Rename it. {WHAT_TO_NAME}",
        )
    module = ".".join(steps)
    found: dict[str, Any] = _import(module, str(Path.cwd() if below else whole.parent)).__dict__
    apps = [name for name, thing in found.items() if isinstance(thing, App)]
    offers = apps or [name for name, thing in found.items() if _is_agent(thing, module)]
    if len(offers) == 1:
        return _served(found[offers[0]], f"{module}:{offers[0]}", ask)
    if offers:
        lines = "".join(f"\n  everthink {ask.command} {module}:{name}" for name in offers)
        what = f"{path} has {len(offers)} things to serve."
        raise WrittenWrongly(what, next_step=f"Name one of them:{lines}")
    raise WrittenWrongly(
        f"There is no agent in {path}.",
        next_step='Write one into it (class Assistant(Think): model = "demo"), or name what it has that is '
        f"an application: everthink {ask.command} {module}:NAME",
    )


def _is_agent(thing: Any, module: str | None = None) -> bool:
    """True for an agent class; with a module, for one that is defined there."""
    if not isinstance(thing, type) or thing in (Agent, Think):
        return False
    cls = cast("type[object]", thing)
    return issubclass(cls, Agent) and module in (None, cls.__module__)


def _named(target: str, ask: Asked) -> Loaded:
    module, _, attribute = target.partition(":")
    if not module:
        raise WrittenWrongly(f"{target!r} names no module.", next_step=WHAT_TO_NAME)
    if module.startswith(".") or "/" in module:
        raise _no_module(module, module, target, ask)
    value: Any = _import(module, os.getcwd(), target, ask)
    for name in (attribute or "app").split("."):
        if not hasattr(value, name):
            raise _not_in(value, module, name, ask)
        value = getattr(value, name)
    return _served(value, target, ask)


def _not_in(value: Any, module: str, name: str, ask: Asked) -> WrittenWrongly:
    inside: dict[str, Any] = getattr(value, "__dict__", {})
    offers = [known for known, thing in inside.items() if isinstance(thing, App) or _is_agent(thing)]
    sites = [known for known, thing in inside.items() if known not in offers and _is_site(thing)]
    near = nearest(name, [*offers, *sites])
    offers.sort(key=lambda known: not isinstance(inside[known], App))
    offers = [near, *offers] if near else offers or sites
    return WrittenWrongly(
        f"{module} has no {name!r}.",
        next_step=f"It has {offers[0]!r}: everthink {ask.command} {module}:{offers[0]}"
        if offers
        else f"Put this into it: {name} = App(YourAgent)",
    )


def _served(value: Any, target: str, ask: Asked) -> Loaded:
    """What stands behind a name, as something to serve."""
    if _is_agent(value):
        return _of_app(ask.app(value), target)
    if not callable(value):
        raise WrittenWrongly(f"{target} is {shown(value)}, which cannot be served.", next_step=WHAT_IS_SERVED)
    if not _is_application(value):
        raise WrittenWrongly(
            f"{target} is {_called(value)}, not an application.",
            next_step=f"If it makes one, call it in the module and name the result: app = "
            f"{target.rpartition(':')[2] or 'app'}(). {WHAT_IS_SERVED}",
        )
    mounts = mounts_in(value)
    apps = [app for _, app in mounts]
    ask.check_store(target, apps)
    if isinstance(value, App):
        return _of_app(value, target)
    if not mounts:  # it may have one all the same: mounted at its start, or used in its own routes
        return Loaded(WithLifespan(value, []), target, notes=[f"no agent is seen in it. {MOUNT_ONE}"])
    return Loaded(WithLifespan(value, apps), target, apps[0], mounts=mounts)


def _is_application(value: Any) -> bool:
    """Whether something that is called may be called as a server does, with scope, receive and send."""
    if isinstance(value, type):
        return False
    try:
        inspect.signature(value).bind(None, None, None)
    except TypeError:
        return False
    except ValueError:
        return True  # made in C: nobody knows
    return True


def _is_site(value: Any) -> bool:
    """Whether something in a module is an application of another kind: an object, not a function."""
    if isinstance(value, type | ModuleType) or inspect.isroutine(value) or not callable(value):
        return False
    return _is_application(value)


def _called(value: Any) -> str:
    if isinstance(value, type):
        return f"the class {cast('type[object]', value).__name__}"
    return (
        f"the {'async ' * inspect.iscoroutinefunction(value)}function {getattr(value, '__name__', value)!s}"
    )


def _import(name: str, folder: str, target: str = "", ask: Asked | None = None) -> Any:
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        return importlib.import_module(name)
    except AgentError:
        raise  # App.discover at the top of their module, say: an error of ours already.
    except (Exception, SystemExit) as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if ask and missing and (name + ".").startswith(missing + "."):
            raise _no_module(name, missing, target, ask) from error
        frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith("<")]
        said = traceback.format_exception_only(error)[-1].strip()
        place = f"{frames[-1].filename}:{frames[-1].lineno}"
        if isinstance(error, SyntaxError) and error.filename:
            place = f"{error.filename}:{error.lineno}"
        raise AgentError(f"Importing {name} failed at {place}: {said}") from error


def _no_module(name: str, missing: str, target: str, ask: Asked) -> WrittenWrongly:
    """The module is not there: it is written as a path, there is one that is called like it, or neither."""
    attribute = target.partition(":")[2] or "app"
    written = Path(name.removesuffix(".py"))
    folder = Path(*missing.split(".")[:-1]) if "/" not in missing else Path(missing).parent
    near = nearest(missing.split("/")[-1].split(".")[-1], [e.removesuffix(".py") for e in _beside(folder)])
    if Path(f"{written}.py").is_file() and (".." in written.parts or written.is_absolute()):
        hint = f"Name the file itself: everthink {ask.command} {shlex.quote(str(written))}.py"
    elif Path(f"{written}.py").is_file():
        meant = ".".join(written.parts)
        hint = f"Write it as in an import: everthink {ask.command} {meant}:{attribute}"
    elif near:
        meant = ".".join([*folder.parts, near]) + name[len(missing) :]
        hint = f"Did you mean: everthink {ask.command} {meant}:{attribute}"
    else:
        hint = "Run this where the module is, and write it as in an import: package.module:app"
    return WrittenWrongly(f"There is no module {missing!r} in {os.getcwd()}.", next_step=hint)
