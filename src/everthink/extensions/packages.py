"""Extensions that installed packages bring along, found by their names.

    a package: [project.entry-points."everthink.extensions"] words = "everthink_words:Words"
    an agent:  extensions = [installed("words")] --loaded--> the class, once per process

Nothing of a package is imported before an agent names it: its code has all the rights of the process.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from traceback import walk_tb
from typing import Any

from ..errors import ExtensionError, InvalidSettings
from ..settings import nearest, shown
from ..words import said
from .trusted import TrustedExtension, TrustedLoaded, check_options
from .values import InstalledExtension, prefix_of

__all__ = ["GROUP", "Package", "check", "found", "installed", "loaded", "packages"]

GROUP = "everthink.extensions"
"""The group of entry points."""


def installed(name: str, /, **options: Any) -> InstalledExtension:
    """Name an extension that a package brings along. It runs in this process, with all its rights.

        class Assistant(Think):
            extensions = [installed("words", limit=3)]

    `options` are what it is made with. `everthink doctor` lists which there are.
    """
    if not isinstance(name, str) or not name.strip():  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidSettings(f"installed({shown(name)}) names no extension.", next_step="It takes its name.")
    prefix_of(name)
    return InstalledExtension(name, options)


@dataclass(frozen=True, slots=True)
class Package:
    """An extension that is installed, of which nothing was run."""

    name: str
    distribution: str
    """The package that brings it along."""
    version: str
    """That of the package."""
    entry: EntryPoint = field(repr=False, compare=False)


def packages() -> list[Package]:
    """All that are installed, by name, of which nothing is run."""
    there = [_package(one) for one in entry_points(group=GROUP)]
    return sorted(there, key=lambda one: (one.name, one.distribution))


def _package(entry: EntryPoint) -> Package:
    dist = entry.dist
    return Package(entry.name, dist.name if dist else "?", dist.version if dist else "0", entry)


# By name, what was loaded: an agent that starts does not look through all packages again.
_classes: dict[str, tuple[Package, type[TrustedExtension]]] = {}


def found(name: str) -> tuple[Package, type[TrustedExtension]]:
    """The class behind a name, imported now if nobody has used it yet. Raises `ExtensionError`."""
    if name not in _classes:
        package = _only(name, packages())
        _classes[name] = package, _class(package)
    return _classes[name]


def _only(name: str, there: list[Package]) -> Package:
    named = [one for one in there if one.name == name]
    if len(named) == 1:
        return named[0]
    if named:
        places = " and ".join(f"{one.distribution} {one.version}" for one in named)
        raise ExtensionError(
            f"The extension {name!r} is in two packages: {places}.", next_step="Uninstall one of them."
        )
    names = sorted({one.name for one in there})
    near = nearest(name, names)
    listed = f"Installed are: {', '.join(names)}." if names else "No package here brings one along."
    raise ExtensionError(
        f"No installed package has the extension {name!r}.",
        next_step=(f"Did you mean {near!r}?" if near else f"{listed} Install its package into this Python."),
    )


def _class(package: Package) -> type[TrustedExtension]:
    where = f"{package.distribution} {package.version}: {package.entry.value}"
    try:
        value: Any = package.entry.load()
    except (Exception, SystemExit) as error:  # whatever a module of others raises
        raise ExtensionError(
            f"The extension {package.name!r} cannot be imported ({where}):"
            f" {said(f'{type(error).__name__}: {error}')}{_place(error)}",
            next_step=f"Install another version of {package.distribution}, or what it lacks.",
        ) from error
    if not isinstance(value, type) or not issubclass(value, TrustedExtension):
        raise ExtensionError(
            f"The extension {package.name!r} ({where}) is {shown(value)}, and no class of extensions.",
            next_step="Its entry point names a subclass of everthink.extensions.TrustedExtension.",
        )
    return value


def _place(error: BaseException) -> str:
    """Where it was raised: the innermost file that is not Python's own machinery of imports."""
    if isinstance(error, SyntaxError) and error.filename:
        return f" ({error.filename}:{error.lineno})"
    files = [
        (frame.f_code.co_filename, line)
        for frame, line in walk_tb(error.__traceback__)
        if not frame.f_code.co_filename.startswith("<frozen")
    ]
    ours = {__file__, importlib.metadata.__file__, importlib.__file__}
    places = [f" ({name}:{line})" for name, line in files if name not in ours]
    return places[-1] if places else ""


def check(declared: InstalledExtension) -> None:
    """Raise for an extension of a package that no agent could have. It is imported, and none is made."""
    if declared.kind is not None:
        check_options(declared.kind, declared.options, declared.name, "")
        return
    package, kind = found(declared.name)
    where = f" ({package.distribution} {package.version})"
    check_options(kind, declared.options, declared.name, where)


async def loaded(declared: InstalledExtension, agent: Any) -> TrustedLoaded:
    """One for an agent. Raises `ExtensionError` or `InvalidSettings`."""
    name, options, kind, version = declared.name, declared.options, declared.kind, None
    if kind is None:
        # Modules of others take their time; other agents go on meanwhile.
        package, kind = _classes.get(name) or await asyncio.to_thread(found, name)
        version = package.version
    return await TrustedLoaded.begun(kind, options, agent, name=name, version=version)
