"""Every public name says what it is for; every hook is in the docs."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from .source import ROOT, Module, modules

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef

# Pages that are written by a program, or that tell how we decided, document nothing.
NOT_DOCUMENTATION = ("glossary.md", "performance.md", "decisions", "reference")


def public(module: Module) -> list[str]:
    """The names in the module's `__all__`."""
    for node in module.tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return list(ast.literal_eval(node.value))
    return []


def definitions(body: list[ast.stmt]) -> Iterator[Definition]:
    """Functions and classes of a body, those under `if` and `try` too; not the overloads."""
    for node in body:
        if isinstance(node, Definition):
            decorators = {ast.unparse(decorator).rpartition(".")[2] for decorator in node.decorator_list}
            if not decorators & {"overload", "override", "setter"}:
                yield node
        elif isinstance(node, ast.If | ast.Try):
            yield from definitions(node.body)


def undocumented(module: Module) -> Iterator[str]:
    """Public names of `module` without a docstring. Constants and aliases speak for themselves."""
    if module.tree.body and ast.get_docstring(module.tree) is None:
        yield f"{module.place}: the module itself"
    names = set(public(module))
    for definition in definitions(module.tree.body):
        if definition.name not in names:
            continue
        if ast.get_docstring(definition) is None:
            yield f"{module.place}:{definition.lineno} {definition.name}"
        if isinstance(definition, ast.ClassDef):
            for method in definitions(definition.body):
                # The name of a test is its sentence.
                if not method.name.startswith(("_", "test_")) and ast.get_docstring(method) is None:
                    yield f"{module.place}:{method.lineno} {definition.name}.{method.name}"


def test_every_public_name_has_a_docstring() -> None:
    assert [name for module in modules() for name in undocumented(module)] == []


def test_every_public_name_exists() -> None:
    missing: list[str] = []
    for module in modules():
        bound = {name for node in ast.walk(module.tree) for name in _binds(node)}
        lazy = "__getattr__" in bound
        missing += [f"{module.place}: {name}" for name in public(module) if name not in bound and not lazy]
    assert missing == []


def _binds(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.Name(id=name, ctx=ast.Store()):
            yield name
        case ast.Import(names=names) | ast.ImportFrom(names=names):
            yield from (alias.asname or alias.name for alias in names)
        case _:
            pass


def hooks() -> list[str]:
    """What a subclass of Think may override or set: its public methods and attributes."""
    found: list[str] = []
    for module in modules():
        for node in module.tree.body:
            is_ours = module.short in ("think", "chat_hooks")
            if is_ours and isinstance(node, ast.ClassDef) and node.name in ("Think", "Hooks"):
                found += [method.name for method in definitions(node.body)]
                found += [
                    ast.unparse(statement.target)
                    for statement in node.body
                    if isinstance(statement, ast.AnnAssign)
                ]
    return sorted({name for name in found if not name.startswith("_")})


def documentation() -> str:
    pages = [
        page
        for page in (ROOT / "docs").rglob("*.md")
        if not set(page.relative_to(ROOT / "docs").parts) & set(NOT_DOCUMENTATION)
    ]
    return "\n".join(page.read_text(encoding="utf-8") for page in pages)


def test_every_hook_of_think_is_documented() -> None:
    pages = documentation()
    if not pages or not hooks():
        pytest.skip("there are no pages in docs/ yet")
    assert [hook for hook in hooks() if f"`{hook}" not in pages and f"{hook}(" not in pages] == []
