"""Read the package's own source: which modules there are and what they import."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "everthink"


@dataclass(frozen=True)
class Import:
    """One import statement's target. `name` is dotted; ours start with `everthink`."""

    name: str
    line: int


@dataclass(frozen=True)
class Module:
    """One file of the package."""

    name: str
    path: Path

    @property
    def place(self) -> str:
        """The path as one would open it."""
        return self.path.relative_to(ROOT).as_posix()

    @property
    def short(self) -> str:
        """The name without the package: `turn.loop`."""
        return self.name.removeprefix("everthink").lstrip(".")

    @property
    def room(self) -> str:
        """The folder directly below the package, or the module itself: `turn`, `errors`."""
        return self.short.partition(".")[0]

    @cached_property
    def tree(self) -> ast.Module:
        """The parsed source."""
        return ast.parse(self.path.read_text(encoding="utf-8"), filename=str(self.path))

    def imports(self) -> tuple[Import, ...]:
        """Every import, wherever it stands: at the top, in a function, under TYPE_CHECKING."""
        return self._imports

    @cached_property
    def _imports(self) -> tuple[Import, ...]:
        return tuple(self._find_imports(names()))

    def _find_imports(self, known: frozenset[str]) -> Iterator[Import]:
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    yield Import(alias.name, node.lineno)
            elif isinstance(node, ast.ImportFrom):
                base = self._absolute(node)
                for alias in node.names:
                    # `from ..models import port` names a module, `from ..errors import X` a thing in one.
                    inner = f"{base}.{alias.name}"
                    yield Import(inner if inner in known else base, node.lineno)

    def _absolute(self, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        package = self.name.split(".")
        if self.path.name != "__init__.py":
            package = package[:-1]
        package = package[: len(package) - (node.level - 1)]
        return ".".join([*package, *([node.module] if node.module else [])])


@cache
def modules() -> tuple[Module, ...]:
    """Every module of the package, by name."""
    found: list[Module] = []
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        found.append(Module(".".join(parts[:-1] if parts[-1] == "__init__" else parts), path))
    return tuple(found)


@cache
def names() -> frozenset[str]:
    """What the modules of the package are called."""
    return frozenset(module.name for module in modules())
