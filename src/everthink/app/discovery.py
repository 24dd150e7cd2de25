"""Find the agents of a project by where their files are.

    agents/assistant.py                      one agent, or
    agents/assistant/agent.py                the same with room for its own modules
    agents/assistant/agents/researcher.py    a child of assistant, at …/assistant/room-1/sub/researcher/notes

What is found below an agent is declared for it, as `sub_agents` does in code. Folders hold one layer of
children; deeper ones are named in code. Only paths decide what is an agent file; `_private.py`, `__init__.py`
and anything deeper are ordinary code. Every mistake of a project is reported at once, with the file it is in.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import re
import sys
import traceback
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import cast

from ..address import kebab
from ..agent import Agent
from ..children.paths import SUB
from ..errors import DiscoveryFailed, Problem
from ..think import Think
from .declarative import is_unnamed, name_it

__all__ = ["Discovered", "discover", "find_agents"]


@dataclass(frozen=True)
class Discovered:
    """An agent that was found. `id` is its place: `assistant`, or `assistant/researcher` for a child."""

    id: str
    cls: type[Agent]
    path: Path
    children: tuple[Discovered, ...] = ()

    @property
    def route(self) -> str:
        """How the agent is called in an address."""
        return kebab(self.cls.__name__)

    @property
    def local(self) -> str:
        """What its file is called: it answers to that as well, a child below its parent."""
        return self.id.rpartition("/")[2]


def discover(folder: str | os.PathLike[str] = "agents") -> list[type[Agent]]:
    """The agent classes of a folder, in the order of their names. Raises `DiscoveryFailed`."""
    return [found.cls for found in find_agents(folder)]


def find_agents(folder: str | os.PathLike[str] = "agents") -> list[Discovered]:
    """The agents of a folder with their children. Raises `DiscoveryFailed` with all that is wrong."""
    root = Path(os.path.abspath(os.path.expanduser(folder)))
    if not root.is_dir():
        what = "is a file, not a folder." if root.exists() else "there is no such folder."
        hint = "Name the folder that holds the agents: agents/assistant.py, agents/support/agent.py."
        raise DiscoveryFailed(shown(root), [Problem("not-a-folder", root, shown(root), what, hint)])
    search = _Search(root)
    found = search.run()
    if search.problems:
        raise DiscoveryFailed(shown(root), search.problems)
    for agent in found:
        _declare(agent)
    return found


def _declare(agent: Discovered) -> None:
    """Let an agent have the children that its folder has."""
    children = (*agent.cls.sub_agents, *(child.cls for child in agent.children))
    if agent.children:
        agent.cls.sub_agents = tuple(dict.fromkeys(children))


def shown(path: Path) -> str:
    """A path as a person in this directory would write it."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)


@dataclass
class _Search:
    root: Path
    problems: list[Problem] = field(default_factory=list[Problem])

    def run(self) -> list[Discovered]:
        package = _package_for(self.root)
        tops = self._load(_candidates(self.root), self.root, package, parent=None)
        children: dict[str, list[Discovered]] = {}
        for nested in sorted(self.root.glob("*/agents")):
            if not nested.is_dir() or nested.parent.name.startswith((".", "_")):
                continue
            candidates = list(_candidates(nested))
            id = _id_of(nested.parent.name)
            if candidates and id not in {name for name, _ in _candidates(self.root)}:
                self._complain(
                    "orphan-subagent",
                    nested,
                    f"its agents are children of {id!r}, and there is no such agent.",
                    f"Add {shown(nested.parent / 'agent.py')}.",
                )
                continue
            if nested.parent.with_suffix(".py").is_file():
                # `agents.assistant` is the file, so nothing can be imported from inside it.
                children[id] = self._load(candidates, nested, _own_package(nested), parent=id)
            else:
                children[id] = self._load(candidates, self.root, package, parent=id)
            self._look_below(nested, has_agents=bool(candidates))
        if not tops and not self.problems:
            self._complain(
                "no-agents",
                self.root,
                "there is no agent in it.",
                f"Write one, such as {shown(self.root / 'assistant.py')}."
                " To start from nothing: everthink new my-agents",
            )
        found = [Discovered(a.id, a.cls, a.path, tuple(children.get(a.id, ()))) for a in tops]
        self._check_names(found)
        return found

    def _look_below(self, nested: Path, *, has_agents: bool) -> None:
        """What is in a folder of children and is none."""
        below = [path for path in sorted(nested.glob("*/agents")) if path.is_dir()]
        deep = [path for path in below if list(_candidates(path))]
        for path in deep:
            self._complain(
                "unsupported-nested-subagent",
                path,
                "folders hold one layer of children, and these would be a second.",
                f"Move them to {shown(nested)}, or elsewhere, and name their classes in that of the child: "
                "sub_agents = (…,).",
            )
        folders = [path.parent for path in sorted(nested.glob("[!._]*/*.py"))]
        if not has_agents and not deep and folders:
            self._complain(
                "no-agent-in-folder",
                nested,
                "it is where children are, and there is none in it.",
                f"The file of a child is {shown(nested / (folders[0].name + '.py'))}, or "
                f"{shown(folders[0] / 'agent.py')}.",
            )

    def _load(
        self, candidates: Iterable[tuple[str, Path]], root: Path, package: str, *, parent: str | None
    ) -> list[Discovered]:
        found: list[Discovered] = []
        places: dict[str, list[Path]] = {}
        for local, path in candidates:
            places.setdefault(local, []).append(path)
        for local, (path, *others) in places.items():
            id = f"{parent}/{local}" if parent else local
            if others:
                what = f"{' and '.join(map(shown, others))} is {id!r} as well."
                self._complain("duplicate-agent-id", path, what, "Keep one of them.")
                continue
            module = self._import(path, ".".join([package, *path.relative_to(root).with_suffix("").parts]))
            cls = self._agent_in(module, path) if module else None
            if cls:
                if is_unnamed(cls):
                    name_it(cls, id)
                found.append(Discovered(id, cls, path))
        return found

    def _import(self, path: Path, name: str) -> ModuleType | None:
        try:
            return importlib.import_module(name)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever a file of theirs does is told, not raised
            said = traceback.format_exception_only(error)[-1].strip()
            place = _place(error, self.root.parent)
            self._complain("import-error", path, f"importing it failed at {place}: {said}")
            return None

    def _agent_in(self, module: ModuleType, path: Path) -> type[Agent] | None:
        for name in ("agent", "default"):
            chosen: object = getattr(module, name, None)
            if _is_agent(chosen):
                return cast("type[Agent]", chosen)
        named = [cast("type[Agent]", value) for value in vars(module).values() if _is_agent(value)]
        # One class may have two names; one that was imported belongs elsewhere.
        classes = list(dict.fromkeys(cls for cls in named if cls.__module__ == module.__name__))
        if len(classes) == 1:
            return classes[0]
        if not classes:
            self._complain(
                "no-agent-in-file",
                path,
                "no agent is defined in it.",
                "Define a subclass of Think in it, or of Agent for one that does not chat. If it is a helper,"
                " give it a name that begins with _ "
                f"({shown(path.with_name('_' + path.name))}) or move it elsewhere.",
            )
        else:
            names = " and ".join(cls.__name__ for cls in classes)
            self._complain(
                "several-agents-in-file",
                path,
                f"it defines {names}; one file is one agent.",
                f"Say which one it is: agent = {classes[-1].__name__}. Or give each its own file.",
            )
        return None

    def _check_names(self, found: list[Discovered]) -> None:
        self._check_among(found)
        for agent in found:
            self._check_among(agent.children)
        # Rows go by the name of a class, whoever's child it is.
        names: dict[str, Discovered] = {}
        for agent in [*found, *(child for one in found for child in one.children)]:
            if kebab(agent.cls.__name__) == SUB and "/" in agent.id:
                what = f"its class {agent.cls.__name__} cannot be a child's: /{SUB}/ parts them in addresses."
                self._complain("reserved-agent-name", agent.path, what, "Give the class another name.")
            other = names.setdefault(agent.cls.__name__, agent)
            if other.cls is not agent.cls and not _are_siblings(other, agent):
                what = f"its class {agent.cls.__name__} is called as the one in {shown(other.path)}."
                self._complain("duplicate-agent-name", agent.path, what, "Rename one of them.")

    def _check_among(self, found: Sequence[Discovered]) -> None:
        """Agents at one place: those without a parent, or the children of one."""
        classes: dict[str, Discovered] = {}
        for agent in found:
            other = classes.setdefault(agent.route, agent)
            if other is not agent:
                same = other.cls.__name__ == agent.cls.__name__
                what = (
                    f"its class {agent.cls.__name__} is called as the one in {shown(other.path)}."
                    if same
                    else f"its class {agent.cls.__name__} and {other.cls.__name__} in {shown(other.path)} "
                    f"have the same address, {agent.route}."
                )
                self._complain("duplicate-agent-name", agent.path, what, "Rename one of them.")
        for agent in found:
            other = classes.get(agent.local)
            if other is not None and other.cls is not agent.cls:
                self._complain(
                    "ambiguous-agent-address",
                    agent.path,
                    f"the file is called like the class {other.cls.__name__} in {shown(other.path)}, "
                    f"and both would be at {agent.local}.",
                    "Rename one of them: an agent answers to its file and to its class.",
                )

    def _complain(self, code: str, path: Path, what: str, next_step: str = "") -> None:
        self.problems.append(Problem(code, path, shown(path), what, next_step))


def _is_agent(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, Agent) and value not in (Agent, Think)


def _are_siblings(one: Discovered, other: Discovered) -> bool:
    return one.id.rpartition("/")[0] == other.id.rpartition("/")[0]


def _candidates(folder: Path) -> Iterator[tuple[str, Path]]:
    """The agent files of a folder with their names."""
    for entry in sorted(folder.iterdir()):
        if entry.name.startswith((".", "_")):
            continue
        if entry.suffix == ".py" and entry.is_file():
            yield _id_of(entry.stem), entry
        elif (entry / "agent.py").is_file():
            yield _id_of(entry.name), entry / "agent.py"


def _id_of(name: str) -> str:
    return re.sub(r"[_\s]+", "-", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", name)).lower()


def _place(error: BaseException, project: Path) -> str:
    """Where an import went wrong: the last line of the project's own code, else the last line at all."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{shown(Path(error.filename))}:{error.lineno}"
    frames = traceback.extract_tb(error.__traceback__)
    own = [
        f for f in frames if Path(f.filename).is_relative_to(project) and "site-packages" not in f.filename
    ]
    # Frames of the import machinery are not files.
    last = own[-1] if own else next((f for f in reversed(frames) if not f.filename.startswith("<")), None)
    return f"{shown(Path(last.filename))}:{last.lineno}" if last else "its first line"


def _package_for(root: Path) -> str:
    """The package name to import the folder's files under: `agents`, as tests and the files themselves do.

    When that name belongs to somebody else (openai-agents installs an `agents`), one of our own.
    """
    parent, name = str(root.parent), root.name
    if parent not in sys.path:
        sys.path.insert(0, parent)
    importlib.invalidate_caches()
    if name.isidentifier() and _leads_to(name, root):
        return name
    return _own_package(root)


def _own_package(root: Path) -> str:
    own = f"_everthink_agents_{hashlib.sha256(str(root).encode()).hexdigest()[:8]}"
    if own not in sys.modules:
        package = ModuleType(own, f"The agents of {root}.")
        package.__path__ = [str(root)]
        sys.modules[own] = package
    return own


def _leads_to(name: str, root: Path) -> bool:
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return False
    places = list((spec and spec.submodule_search_locations) or ())
    # A namespace of several folders may hold another project's `assistant` already.
    return [os.path.realpath(place) for place in places] == [os.path.realpath(root)]
